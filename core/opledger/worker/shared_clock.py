"""One time of day for all workers of a ledger, whatever their hosts believe.

What is due, which deadline has passed and when an event happened are written by one machine and read by others. On a
database server its clock is the one that counts (I28); with SQLite everything is on one host, whose clock it then is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from opledger.edges.clock import Clock


class SharedClock:
    """The server's time, carried on by our own monotonic clock between two looks; without a server, our own time."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._mark: tuple[datetime, float] | None = None

    def learn(self, shared: datetime | None, asked: float, answered: float) -> None:
        """Take what the server's clock said, somewhere between two readings of our monotonic one; None: it has none."""
        self._mark = None if shared is None else (shared, (asked + answered) / 2)

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        mark = self._mark
        if mark is None:
            return self._own.now()
        return mark[0] + timedelta(seconds=self._own.monotonic() - mark[1])

    def monotonic(self) -> float:
        """Return seconds on our own monotonic clock."""
        return self._own.monotonic()

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._own.random()
