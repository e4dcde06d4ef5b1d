"""The schedule of very many operations in virtual time: how late polls are, and how many wait, with so many workers.

Operations are not objects: those that are due in the same step are one number, so that a hundred million cost what a
thousand cost. Every operation is in exactly one place at any time, and the numbers are whole, so that none is lost.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

PARTS: Final = 21
"""Into how many steps what was polled together is spread by the jitter of the next wait."""


@dataclass(slots=True)
class Outcome:
    """What came of it. Times in seconds of the virtual clock."""

    polls: int = 0
    seconds: float = 0.0
    late: dict[int, int] = field(default_factory=dict)  #: steps late -> polls, after the warm-up
    queues: list[int] = field(default_factory=list)  #: who was due and waited, at the end of each step
    step: float = 1.0

    def quantile(self, share: float) -> float:
        """Seconds that this share of the polls was late at most. Raises ValueError where there were none."""
        if not self.late:
            raise ValueError("nothing was polled after the warm-up")
        wanted = share * sum(self.late.values())
        for steps, upto in zip(sorted(self.late), accumulate(self.late[one] for one in sorted(self.late)), strict=True):
            if upto >= wanted:
                return steps * self.step
        raise AssertionError("a share is at most 1")

    @property
    def mean(self) -> float:
        """Seconds that polls were late in the mean."""
        return self.step * sum(steps * polls for steps, polls in self.late.items()) / sum(self.late.values())

    @property
    def rate(self) -> float:
        """Polls a second, after the warm-up."""
        return sum(self.late.values()) / self.seconds

    @property
    def waiting(self) -> int:
        """Who was due and waited at the end."""
        return self.queues[-1]


class Wheel:
    """Who is due when: a count for each step of the longest wait."""

    def __init__(self, open_: int, interval: float, *, step: float, jitter: float, seed: int) -> None:
        self._steps = max(1, round(interval / step))
        self._spread = round(self._steps * jitter)
        self._due = [0] * (self._steps + self._spread + 1)
        self._chance = random.Random(seed)
        self._at = 0
        self._left = 0
        # At the start they are spread evenly, as after a long time.
        for number in range(self._steps):
            self._due[number] = open_ * (number + 1) // self._steps - open_ * number // self._steps

    def turn(self) -> int:
        """Go on by one step; how many have become due."""
        found, self._due[self._at] = self._due[self._at], 0
        self._at = (self._at + 1) % len(self._due)
        return found

    def again(self, polled: int) -> None:
        """Plan the next poll of those that were polled in this step: an interval from now, give or take the jitter."""
        parts = min(PARTS, 2 * self._spread + 1)
        for number in range(parts):
            count = polled * (number + 1) // parts - polled * number // parts
            if not count:
                continue
            off = self._chance.randint(-self._spread, self._spread) if parts == PARTS else number - self._spread
            self._due[(self._at + max(0, self._steps - 1 + off)) % len(self._due)] += count

    def waiting(self) -> int:
        """How many are planned."""
        return sum(self._due)


def run(
    open_: int,
    interval: float,
    rate: float,
    *,
    seconds: float,
    warm: float = 0.0,
    step: float = 1.0,
    jitter: float = 0.5,
    seed: int = 1,
) -> Outcome:
    """Let `open_` operations be polled each `interval` seconds by workers that make `rate` polls a second together.

    The first in line is polled first. `jitter`: the share of the interval by which a wait is shorter or longer.
    """
    wheel = Wheel(open_, interval, step=step, jitter=jitter, seed=seed)
    line: deque[tuple[int, int]] = deque()  # (the step in which they became due, how many)
    outcome = Outcome(seconds=seconds - warm, step=step)
    waits, credit = 0, 0.0
    for now in range(round(seconds / step)):
        if due := wheel.turn():
            line.append((now, due))
            waits += due
        credit = min(credit + rate * step, float(waits) if waits else rate * step)
        polled = 0
        while line and int(credit) > polled:
            since, count = line[0]
            taken = min(count, int(credit) - polled)
            polled += taken
            if taken == count:
                line.popleft()
            else:
                line[0] = since, count - taken
            if now * step >= warm:
                outcome.late[now - since] = outcome.late.get(now - since, 0) + taken
        credit -= polled
        waits -= polled
        outcome.polls += polled
        wheel.again(polled)
        outcome.queues.append(waits)
        if waits + wheel.waiting() != open_:
            raise AssertionError(f"of {open_} operations {waits + wheel.waiting()} are left in step {now}")
    return outcome
