"""Verifying the journal, and finding operations by anything that names them. Blocks for long; for threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Final

from opledger.errors import IllegalTransition
from opledger.rules.journal import GENESIS, Finding, Row, read_body, verify_chain
from opledger.rules.model import Operation
from opledger.rules.projection import project
from opledger.store.finding import Found
from opledger_console.desk import Desk

EVERY: Final = 0.2
"""Seconds between two words about how far it got."""

LISTED: Final = 1_000
"""Findings that are kept; the others are counted."""

_BESIDE: Final = frozenset({"lease"})
"""Fields of a record that are no part of its journal."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verification has got."""

    done: int  #: operations
    total: int
    events: int
    seconds: float
    found: int = 0

    @property
    def rate(self) -> float:
        """Events a second so far."""
        return self.events / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that it will take, should it go on like this; None while nobody can tell."""
        return self.seconds / self.done * max(self.total - self.done, 0) if self.done else None


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification found. `complete` is False where it was stopped: then it speaks for a part only."""

    at: datetime
    progress: Progress
    findings: tuple[Finding, ...]  #: at most `LISTED`
    kinds: tuple[tuple[str, int], ...]  #: all of them, counted, in the order of their kinds
    complete: bool

    @property
    def count(self) -> int:
        """How many findings there are."""
        return sum(number for _, number in self.kinds)


def verify(desk: Desk, told: Callable[[Progress], None], stop: Callable[[], bool]) -> Verified:
    """Compute every chain again, and every record from its journal. Raises StoreUnavailable.

    Told are two words at least: one at the beginning, and how far it got about five times a second.
    """
    ledger = desk.ledger
    clock, queries = ledger.clock, ledger.store.queries
    begun, total = clock.monotonic(), sum(queries.counts().values())
    done, events, said = 0, 0, begun
    findings: list[Finding] = []
    kinds: Counter[str] = Counter()
    complete = True
    told(Progress(0, total, 0, 0.0))
    for record, rows in queries.chains():
        if stop():
            complete = False
            break
        wrong = check(record, rows)
        kinds.update(one.kind for one in wrong)
        findings += wrong[: max(LISTED - len(findings), 0)]
        done, events, now = done + 1, events + len(rows), clock.monotonic()
        if now - said >= EVERY:
            said = now
            told(Progress(done, max(total, done), events, now - begun, kinds.total()))
    if complete and not events:
        findings.append(Finding("NOTHING_CHECKED", None, None, "there was no event to check"))
        kinds["NOTHING_CHECKED"] += 1
    # Operations that came meanwhile were checked as well, or not: all there were is what was gone through.
    progress = Progress(done, done if complete else max(total, done), events, clock.monotonic() - begun, kinds.total())
    return Verified(clock.now(), progress, tuple(findings), tuple(sorted(kinds.items())), complete)


def check(record: Operation, rows: Sequence[Row]) -> list[Finding]:
    """Return what is wrong with one operation: its chain, the end of it, and the record beside it.

    Besides what `verify_chain` finds: MISSING_EVENTS (the journal ends before the record does, or after it), HEAD (the
    record names another last event) and PROJECTION (the record is not what its journal says).
    """
    name = record.operation_id
    found = verify_chain(name, rows)
    last = rows[-1] if rows else None
    seq, digest = (0, GENESIS) if last is None else (last.seq, last.hash.hex())
    if seq != record.head_seq:
        words = f"the journal ends at event {seq}, and the record is at {record.head_seq}"
        found.append(Finding("MISSING_EVENTS", name, seq or None, words))
    elif digest != record.head_hash:
        found.append(Finding("HEAD", name, seq, f"the record names another hash for its last event, {seq}"))
    if not found:
        # A record can only be compared with a journal that is whole.
        found += _compared(record, rows)
    return found


def _compared(record: Operation, rows: Sequence[Row]) -> list[Finding]:
    name = record.operation_id
    again: Operation | None = None
    for row in rows:
        try:
            written = read_body(row.body)
            again = project(again, written.entry)
        except (ValueError, IllegalTransition) as error:
            return [Finding("PROJECTION", name, row.seq, f"event {row.seq} cannot follow what stands before: {error}")]
        again = replace(again, next=written.plan, version=row.seq, head_seq=row.seq, head_hash=row.hash.hex())
    if again is None:
        return []
    wrong = [
        one.name
        for one in fields(Operation)
        if one.name not in _BESIDE and getattr(again, one.name) != getattr(record, one.name)
    ]
    if not wrong:
        return []
    words = f"the record is not what its journal says: {', '.join(wrong)}"
    return [Finding("PROJECTION", name, record.head_seq, words)]


def find(desk: Desk, text: str, told: Callable[[int, int], None], stop: Callable[[], bool]) -> Found:
    """Find operations by an id, a token, a fingerprint, a provider's request id. Raises StoreUnavailable."""
    return desk.ledger.store.queries.find_all(text, told=told, stop=stop)
