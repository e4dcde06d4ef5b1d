"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class HandClock:
    """Wall time and monotonic time go together; chance is always the same."""

    def __init__(self, now: datetime = datetime(2026, 11, 29, 12, tzinfo=UTC), chance: float = 0.5) -> None:
        self._now = now
        self._passed = 0.0
        self._chance = chance

    def now(self) -> datetime:
        """Wall time, UTC."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made, as far as it was moved."""
        return self._passed

    def random(self) -> float:
        """The same number every time."""
        return self._chance

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._passed += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock on (or back) while no time passes."""
        self._now += timedelta(seconds=seconds)
