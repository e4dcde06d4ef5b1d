"""Runs, and what is printed of them: a line for each story, one for whatever is wrong, and counters."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.crashes.broken import BROKEN
from tests.crashes.crew import Crew, Task
from tests.crashes.lane import Fate, Place, seconds
from tests.crashes.life import Story
from tests.crashes.points import KINDS, fresh, kinds


@dataclass(slots=True)
class Tally:
    """What one story has come to so far."""

    story: Story
    began: float
    points: tuple[str, ...] = ()
    open: int = 0  #: tasks that are not done yet
    deaths: int = 0
    pairs: int = 0
    struck: set[str] = field(default_factory=set)
    again: bool = False  #: what no number met was asked for by its name
    ends: Counter[str] = field(default_factory=Counter)
    wrong: int = 0

    def line(self) -> str:
        """One line for people."""
        pairs = f", {self.pairs:,} pairs" if self.pairs else ""
        ends = ", ".join(f"{count:,} {state}" for state, count in self.ends.most_common())
        spent = seconds() - self.began
        words = f"{len(self.points):4} points, {self.deaths:,} kills{pairs}; {ends}; {spent:.1f} s"
        return f"{self.story.name:24} {words}{f'; {self.wrong} WRONG' if self.wrong else ''}"


class Run:
    """Some stories, told again and again."""

    def __init__(
        self,
        stories: Sequence[Story],
        lanes: int,
        *,
        every: int = 1,
        every_pair: bool = False,
        broken: str | None = None,
    ) -> None:
        """`every`: only each so manieth point is died at, and no story need have met all of its points."""
        self._every = max(1, every)
        self._tallies = {story.name: Tally(story, seconds()) for story in stories}
        self._lanes, self._every_pair, self._broken = lanes, every_pair, broken
        self._tasks: deque[Task] = deque()
        self._pairs, self._chosen = False, False
        self._reached: Counter[str] = Counter()
        self._wrong = 0

    def once(self, places: Sequence[Place]) -> int:
        """Tell each story once, with deaths at these places."""
        with Crew(1, self._broken) as crew:
            tasks = deque(Task(name, tuple(places)) for name in self._tallies)
            crew.work(tasks, lambda task, fate: self._said(task, fate, show=True))
        return int(self._wrong > 0)

    def all(self, *, pairs: bool, chosen: bool) -> int:
        """Tell every story at every point, and at pairs of points."""
        began, self._pairs, self._chosen = seconds(), pairs, chosen
        with Crew(self._lanes, self._broken) as crew:
            # One story after the other: whoever watches sees something finished.
            for name, tally in self._tallies.items():
                tally.began = seconds()
                self._add(Task(name, counting=True))
                crew.work(self._tasks, self._done)
                print(tally.line(), flush=True)
        self._summary(seconds() - began)
        return int(self._wrong > 0)

    def _add(self, task: Task) -> None:
        self._tallies[task.story].open += 1
        self._tasks.append(task)

    def _done(self, task: Task, fate: Fate) -> None:
        tally = self._tallies[task.story]
        tally.open -= 1
        self._said(task, fate)
        tally.ends["+".join(fate.states) or "nothing left"] += 1
        tally.deaths += len(fate.struck)
        tally.struck.update(fate.struck)
        for name in fate.struck:
            self._reached.update(kinds(name))
        if len(task.deaths) == 2 and len(fate.struck) == 2:
            tally.pairs += 1
        if task.counting:
            self._counted(tally, task, fate)
        if not tally.open and not tally.again:
            self._missed(tally)

    def _counted(self, tally: Tally, task: Task, fate: Fate) -> None:
        """Take up what follows from the points of a run in which nobody died, or nobody after the first."""
        everything = range(1, len(fate.points) + 1)
        some = everything if self._every_pair else fresh(fate.points)
        if task.deaths:
            for number in some[:: self._every]:
                self._add(Task(task.story, (*task.deaths, number)))
            return
        tally.points = fate.points
        for lacking in sorted(tally.story.must - {kind for name in fate.points for kind in kinds(name)}):
            self._complain(f"{task.story}: it has no point of the kind {lacking}", f"--only {task.story}")
        for number in everything[:: self._every]:
            self._add(Task(task.story, (number,)))
        if self._pairs and (tally.story.core or self._chosen):
            for number in some[:: self._every]:
                self._add(Task(task.story, (number,), counting=True))

    def _left(self, tally: Tally) -> list[str]:
        """The names of points at which nobody has died."""
        return sorted(set(tally.points) - tally.struck) if self._every == 1 else []

    def _missed(self, tally: Tally) -> None:
        """Ask by name for what no number met: which number a point has may depend on who was faster."""
        tally.again = True
        for name in self._left(tally):
            self._add(Task(tally.story.name, (name,)))

    def _said(self, task: Task, fate: Fate, *, show: bool = False) -> None:
        places = ",".join(map(str, task.deaths))
        repeat = f"--only {task.story}" + (f" --at {shlex.quote(places)}" if places else "")
        if show:
            print(f"{task.story}: died {' and then '.join(fate.struck) or 'nowhere'}; ends {', '.join(fate.states)}")
        for sentence in fate.wrong:
            self._tallies[task.story].wrong += 1
            self._complain(f"{task.story} at {' and then '.join(fate.struck) or 'no point'}: {sentence}", repeat)

    def _complain(self, sentence: str, repeat: str) -> None:
        self._wrong += 1
        with_fault = f" --broken {self._broken}" if self._broken else ""
        print(f"WRONG {sentence}; repeat: python -m tests.crashes {repeat}{with_fault}", flush=True)

    def _summary(self, spent: float) -> None:
        tallies = self._tallies.values()
        for tally in tallies:
            for name in self._left(tally):
                self._complain(f"{tally.story.name}: nobody died {name}", f"--only {tally.story.name} --at '{name}'")
        if not self._chosen and self._every == 1:
            for kind in KINDS:
                if not self._reached[kind] and any(kind in tally.story.must for tally in tallies):
                    self._complain(f"nobody died at a point of the kind {kind}", "")
        counted = ", ".join(f"{self._reached[kind]:,} {kind}" for kind in KINDS if self._reached[kind])
        deaths, pairs = sum(tally.deaths for tally in tallies), sum(tally.pairs for tally in tallies)
        points = sum(len(tally.points) for tally in tallies)
        print(
            f"{len(self._tallies)} stories, {points:,} points, {deaths:,} kills, {pairs:,} pairs in {spent:.0f} s; "
            f"by kind: {counted}; {self._wrong} wrong"
        )


def prove(lanes: int) -> int:
    """Plant every fault, and see that the story that is named for it finds it; returns the exit code."""
    missed = 0

    def done(task: Task, fate: Fate) -> None:
        nonlocal missed
        assert task.broken is not None
        found = bool(fate.wrong) and bool(fate.struck)
        missed += not found
        because = fate.wrong[0][-160:] if fate.wrong else f"nothing: {fate.states}"
        print(f"{'found ' if found else 'MISSED'} {task.broken}: {BROKEN[task.broken].does}: {because}", flush=True)

    with Crew(lanes) as crew:
        crew.work(deque(Task(one.story, (one.at,), broken=name) for name, one in BROKEN.items()), done)
    print(f"{len(BROKEN) - missed} of {len(BROKEN)} planted faults were found")
    return int(missed > 0)
