"""Waiting while the database is away: longer each time, and said once, not at every try."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

log = logging.getLogger("opledger.worker")

FIRST: Final = 0.25
LONGEST: Final = 5.0
"""Seconds between two tries: the first pause, and the longest."""


class Absence:
    """How long the database has not answered."""

    def __init__(self) -> None:
        self.tries = 0

    async def wait(self, error: Exception, stopping: asyncio.Future[Any]) -> None:
        """Wait before the next try, or until the worker is to stop."""
        if self.tries == 0:
            log.warning("the database is away: %s", error)
        pause = min(FIRST * 2 ** min(self.tries, 10), LONGEST)
        self.tries += 1
        await asyncio.wait({stopping}, timeout=pause)

    def over(self) -> None:
        """The database has answered."""
        if self.tries:
            log.warning("the database is back, after %d tries", self.tries)
            self.tries = 0
