"""The long form in as many parts as it needs: what was reached is kept in a file, per revision of the tree.

The file is written after each batch of seeds, in one piece, so that a kill loses a batch at most. A run that is started
again goes on behind the last seed that is counted there. Where the tree has changed since, what follows is counted
under the new revision, and seeds that were broken under an older one are tried again first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.simulation.counts import Counts
from tests.simulation.world import Outcome

ROOT: Final = Path(__file__).resolve().parents[2]
BATCH: Final = 20
"""Seeds between two writings of the file."""
Runs = Callable[[range], Iterable[Outcome]]


class StateWrong(Exception):
    """The file is none of ours, or is about other seeds."""


@dataclass
class Part:
    """Seeds that were run one after the other under one revision."""

    revision: str
    first: int  #: the first seed
    counts: Counts = field(default_factory=Counts)


@dataclass
class Broken:
    """A broken invariant, and the revision under which the same seed broke none any more."""

    seed: int
    revision: str
    number: str
    words: str
    mended: str | None = None


@dataclass
class State:
    """What was reached so far."""

    first: int
    parts: list[Part] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Seeds that are counted."""
        return sum(part.counts.seeds for part in self.parts)

    @property
    def open(self) -> list[Broken]:
        """What is still broken, as far as anybody knows."""
        return [one for one in self.broken if one.mended is None]

    def total(self) -> Counts:
        """Everything together, whatever the revision."""
        counts = Counts()
        for part in self.parts:
            counts.join(part.counts)
        return counts

    def part(self, revision: str) -> Part:
        """The part that goes on under a revision."""
        if not self.parts or self.parts[-1].revision != revision:
            self.parts.append(Part(revision, self.first + self.done))
        return self.parts[-1]

    def add(self, outcome: Outcome, revision: str) -> None:
        """Count a seed in."""
        self.part(revision).counts.add(outcome)
        self.broken += [Broken(outcome.seed, revision, one.number, one.words) for one in outcome.problems]

    def lines(self) -> list[str]:
        """Say under which revisions how much was reached, and what is broken."""
        said = [
            f"revision {part.revision}: seeds {part.first} to {part.first + part.counts.seeds - 1}, "
            f"{part.counts.operations:,} operations, {part.counts.total:,} steps, {part.counts.seconds:,.0f} CPU s, "
            f"{part.counts.problems} broken"
            for part in self.parts
        ]
        said += [
            f"seed {one.seed}: {one.number}: {one.words} (under {one.revision}"
            + (f", no more under {one.mended})" if one.mended else f"; python -m tests.simulation replay {one.seed})")
            for one in self.broken
        ]
        return said


def read(path: Path, first: int) -> State:
    """Read a state, or begin one. Raises StateWrong where the file is none or began at another seed."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return State(first)
    try:
        known = json.loads(text)
        parts = [Part(one["revision"], one["first"], Counts.of(one["counts"])) for one in known["parts"]]
        state = State(known["first"], parts, [Broken(**one) for one in known["broken"]])
    except (ValueError, KeyError, TypeError) as error:
        raise StateWrong(f"{path} is no state of the simulation ({error!r}); name another file") from error
    if state.first != first:
        raise StateWrong(f"{path} began at seed {state.first}, not {first}; say --from {state.first}, or another file")
    return state


def write(path: Path, state: State) -> None:
    """Replace the file in one piece, and see it on the disk."""
    document = {
        "first": state.first,
        "next": state.first + state.done,
        "operations": sum(part.counts.operations for part in state.parts),
        "parts": [
            {"revision": part.revision, "first": part.first, "counts": part.counts.document()} for part in state.parts
        ],
        "broken": [asdict(one) for one in state.broken],
    }
    draft = path.with_name(path.name + ".new")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def revision(root: Path = ROOT) -> str:
    """Return the commit of the tree that runs, with a mark made of the changes that are in no commit."""
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD").decode().strip()
        changes = _git(root, "diff", "HEAD", "--", "core", "tests")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head if not changes else f"{head}+{blake2b(changes, digest_size=4).hexdigest()}"


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=True).stdout


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """Collect the signals that ask for an end, so that a seed is not torn apart by them."""
    heard: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)

    before = [(number, signal.signal(number, hear)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield heard
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def go_on(path: Path, state: State, seeds: int, runs: Runs, *, now: str, batch: int = BATCH) -> int | None:
    """Run what is left of so many seeds; return the signal that ended it before, or None where it is through."""
    if state.parts and state.parts[-1].revision != now:
        print(f"the tree was {state.parts[-1].revision} until seed {state.first + state.done - 1}, and is {now} now")
    if state.done:
        print(f"{state.done:,} of {seeds:,} seeds were run before", flush=True)
    with stoppable() as heard:
        try:
            _again(state, runs, now, heard)
            write(path, state)
            if not heard:
                _forward(path, state, seeds, runs, now=now, batch=batch, heard=heard)
        finally:
            write(path, state)
    return heard[0] if heard else None


def _again(state: State, runs: Runs, now: str, heard: list[int]) -> None:
    """Try once more what was broken under another revision."""
    for seed in sorted({one.seed for one in state.open if one.revision != now}):
        if heard:
            return
        for outcome in runs(range(seed, seed + 1)):
            if outcome.problems:
                print(f"seed {seed} is still broken: {outcome.problems[0].words}")
                continue
            print(f"seed {seed} is broken no more")
            for one in state.broken:
                if one.seed == seed and one.mended is None:
                    one.mended = now


def _forward(path: Path, state: State, seeds: int, runs: Runs, *, now: str, batch: int, heard: list[int]) -> None:
    began, before = time.monotonic(), state.done
    outcomes = iter(runs(range(state.first + before, state.first + seeds)))
    for outcome in outcomes:
        state.add(outcome, now)
        for one in outcome.problems[:5]:
            print(
                f"seed {outcome.seed}: {one.number}: {one.words}   (python -m tests.simulation replay {outcome.seed})"
            )
        if state.done % batch == 0 or outcome.problems:
            write(path, state)
            print(progress(state, seeds, time.monotonic() - began, state.done - before), flush=True)
        if heard:
            break
    close: Callable[[], Any] = getattr(outcomes, "close", lambda: None)
    close()


def progress(state: State, seeds: int, seconds: float, run: int) -> str:
    """Say how far it is, and when it will be through at the pace of this run."""
    counts = state.total()
    left = timedelta(seconds=round(seconds / max(run, 1) * (seeds - state.done)))
    end = datetime.now(UTC) + left
    return (
        f"  {state.done:,} of {seeds:,} seeds, {counts.operations:,} operations, {counts.total:,} steps, "
        f"{counts.seconds:,.0f} CPU s, {len(state.open)} broken; through in {left}, on {end:%Y-%m-%d at %H:%M} UTC"
    )
