"""Verifying the ledger, and finding operations by anything that names them. Blocks for long; for threads."""

from __future__ import annotations

import os
from collections.abc import Callable

from opledger.ledger import audit
from opledger.ledger.audit import LISTED, Asked, Progress, Verified
from opledger.store.finding import Found
from opledger_console.desk import Desk

__all__ = ["LISTED", "Progress", "Verified", "find", "verify", "was_verified"]


def was_verified(desk: Desk) -> bool:
    """Tell whether this ledger was verified on this machine before, so that the rest is quickly done."""
    return audit.was_verified(desk.ledger)


def verify(desk: Desk, told: Callable[[Progress], None], stop: Callable[[], bool], *, recent: bool = False) -> Verified:
    """Verify everything, or with `recent` what came since it was last verified here. Raises StoreUnavailable.

    Told are two words at least: one at the beginning, and how far it got about five times a second.
    """
    asked = Asked(full=not recent, recent=recent, helpers=os.cpu_count() or 1)
    return audit.run(desk.ledger, asked, told=told, stop=stop)


def find(desk: Desk, text: str, told: Callable[[int, int], None], stop: Callable[[], bool]) -> Found:
    """Find operations by an id, a token, a fingerprint, a provider's request id. Raises StoreUnavailable."""
    return desk.ledger.store.queries.find_all(text, told=told, stop=stop)
