"""One time of day for all workers of a ledger, whatever their hosts believe.

What is due, which deadline has passed and when an event happened are written by one machine and read by others. On a
database server its clock is the one that counts (I28); with SQLite everything is on one host, whose clock it then is.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final

from opledger.edges.clock import Clock

GOOD: Final = 0.05
"""Seconds: what is known this well is always taken."""

DRIFT: Final = 1e-4
"""Seconds by which two clocks may part in a second."""


LEAP: Final = timedelta(seconds=1)
"""By how much a time of day may part from the monotonic clock between two looks before it counts as set."""

MOST_LEAPS: Final = 100


class SharedClock:
    """The server's time, carried on by our own monotonic clock between two looks; without a server, our own time."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._seen: tuple[datetime, float] | None = None
        self._leaps: deque[tuple[datetime, timedelta]] = deque(maxlen=MOST_LEAPS)
        self._mark: tuple[datetime, float] | None = None
        self._unsure = 0.0

    def learn(self, shared: datetime | None, asked: float, answered: float) -> None:
        """Take what the server's clock said, somewhere between two readings of our monotonic one; None: it has none.

        An answer that took long says little: the server was away, or this process stood still. What is known is kept
        where that is better (Cristian, "Probabilistic clock synchronization", 1989).
        """
        unsure, mark = (answered - asked) / 2, self._mark
        known = 0.0 if mark is None else self._unsure + DRIFT * (answered - mark[1])
        if shared is not None and mark is not None and unsure > max(GOOD, known):
            return
        if shared is not None and mark is not None:
            self._compare(mark, (shared, (asked + answered) / 2))
        self._mark, self._unsure = None if shared is None else (shared, (asked + answered) / 2), unsure

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        mark = self._mark
        if mark is None:
            now, seen = (self._own.now(), self._own.monotonic()), self._seen
            if seen is not None:
                self._compare(seen, now)
            self._seen = now
            return now[0]
        return mark[0] + timedelta(seconds=self._own.monotonic() - mark[1])

    def ahead_since(self, moment: datetime) -> timedelta:
        """Return by how much the time of day was set ahead after a moment, as far as this process has seen it.

        By so much less time has passed since then than the time of day says. A machine that slept looks the same.
        """
        return sum((leap for at, leap in list(self._leaps) if at >= moment), timedelta(0))

    def _compare(self, before: tuple[datetime, float], after: tuple[datetime, float]) -> None:
        expected = before[0] + timedelta(seconds=after[1] - before[1])
        if after[0] - expected > LEAP:
            self._leaps.append((expected, after[0] - expected))

    def monotonic(self) -> float:
        """Return seconds on our own monotonic clock."""
        return self._own.monotonic()

    def monotonic_at(self, moment: datetime) -> float:
        """Return when a time of day is (or was) on our own monotonic clock."""
        return self._own.monotonic() + (moment - self.now()).total_seconds()

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._own.random()
