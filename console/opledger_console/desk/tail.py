"""Reads for the tail: events of all operations as they come, and the ones before them. Blocks; for threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opledger.store.tail import Mark, Tail, TailEvent
from opledger_console.desk import Desk
from opledger_console.tailfilter import TailWanted, matches

STEP: Final = 500
"""Events of one read."""

EXAMINED: Final = 20_000
"""The most events that are looked through at once for those that a filter wants."""

ENOUGH: Final = 100


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some wanted events, oldest first, between two marks.

    `missed`: before them, some were left out. `examined`: how many were looked through. `ended`: nothing was before.
    """

    events: tuple[TailEvent, ...]
    mark: Mark
    start: Mark
    missed: bool = False
    examined: int = 0
    ended: bool = False


def newer(desk: Desk, after: Mark | None, wanted: TailWanted) -> Stretch:
    """Return what came after a mark; without one, the newest there is. Raises StoreUnavailable."""
    found = desk.ledger.store.queries.tail(after, limit=STEP)
    ended = after is None and len(found.events) < STEP
    return Stretch(_wanted(found, wanted), found.mark, found.start, found.missed, len(found.events), ended)


def older(desk: Desk, before: Mark, wanted: TailWanted) -> Stretch:
    """Return what was before a mark, looking back until there is enough to show. Raises StoreUnavailable."""
    events: tuple[TailEvent, ...] = ()
    start, mark, examined = before, before, 0
    while examined < EXAMINED and len(events) < ENOUGH and not desk.closing.is_set():
        found = desk.ledger.store.queries.earlier(start, limit=STEP)
        if not found.events:
            return Stretch(events, mark, start, examined=examined, ended=True)
        events = _wanted(found, wanted) + events
        start = found.start
        examined += len(found.events)
    return Stretch(events, mark, start, examined=examined)


def _wanted(found: Tail, wanted: TailWanted) -> tuple[TailEvent, ...]:
    return tuple(one for one in found.events if matches(one, wanted)) if wanted.terms else found.events
