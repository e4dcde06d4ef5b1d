"""What waits for a person, the most urgent first, and what people decided last."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from opledger.errors import OpledgerError, StoreUnavailable
from opledger.rules.contract import Contract
from opledger.rules.escalation import Escalation, Severity, of_operation, severity, triage
from opledger.rules.filters import parse
from opledger.rules.model import Operation, State
from opledger.store import Filter
from opledger.store.tail import Mark, TailEvent
from opledger.store.values import Sort
from opledger_console.desk import Desk
from opledger_console.desk.plans import PlanBook
from opledger_console.pages.plans import waiting

MOST: Final = 1_000
"""How many rows are read; a person who has more in front of them needs a filter, not a list."""

LAST: Final = 10
"""How many of the last decisions are shown."""

LOOKED_BACK: Final = 2_000
"""How many of the newest events are looked through for decisions."""

_DECISIONS: Final[Mapping[str, str]] = {
    "Approved": "approved",
    "Rejected": "declined",
    "Withdrawn": "withdrawn",
    "Decided": "resolved",
}


@dataclass(frozen=True, slots=True)
class Settled:
    """What a person decided: about what, when, and why."""

    key: str  #: no other event has it
    operation_id: str
    contract: str
    words: str
    by: str
    at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """All that waits at one moment, in the order of a list of work; with very much, the first `MOST` of it."""

    rows: tuple[Escalation, ...]
    operations: Mapping[str, Operation]  #: the records behind them, by id
    contracts: Mapping[str, Contract]  #: what those are pinned to, by digest
    total: int
    settled: tuple[Settled, ...]  #: the newest first; read only where nothing waits
    taken_at: datetime
    tasks: int = 0  #: how many tasks stand still until somebody does something; the tasks screen shows them


class InboxReader:
    """Reads the inbox. It keeps what it has seen of the journal, so that each look reads only what is new.

    One thread at a time.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._mark: Mark | None = None
        self._settled: deque[Settled] = deque(maxlen=LAST)
        self._plans = PlanBook(desk)

    def read(self) -> Waiting:
        """Look at everything that waits. Raises StoreUnavailable."""
        ledger = self._desk.ledger
        store, now = ledger.store, ledger.clock.now()
        counts = store.queries.attentions()
        stopped = store.stopped_providers()
        records = {op.operation_id: op for op in self._records(counts, now)}
        found = [*stopped.values(), *(one for op in records.values() if (one := of_operation(op, now)) is not None)]
        rows = triage(found, now)[:MOST]
        shown = {one.operation_id: records[one.operation_id] for one in rows if one.operation_id is not None}
        return Waiting(
            rows=rows,
            operations=shown,
            contracts=self._contracts(shown.values()),
            total=max(sum(counts.values()) + len(stopped), len(rows)),
            settled=() if rows else self._decided(),
            taken_at=now,
            tasks=waiting(self._plans.read(), now),
        )

    def _records(self, counts: Mapping[str, int], now: datetime) -> Iterable[Operation]:
        """Return the records that can be among the first `MOST`: all, or of each code the ones to be looked at first.

        Critical codes come before all others, so that what is left of the room is what others can get.
        """
        queries, found = self._desk.ledger.store.queries, dict[str, Operation]()
        if sum(counts.values()) <= MOST:
            # By code, because there is an index of codes; a million operations that want nothing are not looked at.
            pages = [queries.list(Filter(attention_code=code), limit=MOST) for code in counts]
            return [op for page in pages for op in page.operations]
        for rank in _RANKS:
            room = MOST - sum(op.acknowledged_by is None for op in found.values())
            for code in sorted(counts) if room > 0 else ():
                if _rank(code) == rank:
                    found |= {op.operation_id: op for op in self._of_code(code, min(counts[code], room), now)}
        return found.values()

    def _of_code(self, code: str, most: int, now: datetime) -> list[Operation]:
        queries, wanted = self._desk.ledger.store.queries, parse(f'code:"{code}"')
        first: tuple[Operation, ...] = ()
        if code == State.AWAITING_APPROVAL:
            first = queries.window(wanted, Sort.DEADLINE, now=now, limit=most).operations
        if len(first) < most:
            first += queries.window(wanted, Sort.OLDEST, now=now, limit=most).operations
        return list(first)

    def _contracts(self, operations: Iterable[Operation]) -> dict[str, Contract]:
        """Return the contracts, as far as they can be read; what an operation offers is not worth losing the list."""
        found: dict[str, Contract] = {}
        for op in operations:
            if op.contract_digest not in found:
                try:
                    found[op.contract_digest] = self._desk.ledger.contract_of(op)
                except StoreUnavailable:
                    raise
                except OpledgerError:
                    continue
        return found

    def _decided(self) -> tuple[Settled, ...]:
        tail = self._desk.ledger.store.queries.tail(self._mark, limit=LOOKED_BACK)
        self._mark = tail.mark
        self._settled.extend(_settled(one) for one in tail.events if one.event.kind in _DECISIONS)
        return tuple(reversed(self._settled))


_RANKS: Final = (Severity.CRITICAL, Severity.HIGH, Severity.LOW)


def _rank(code: str) -> Severity:
    """Where a code can stand at best: an approval is high once its deadline is near."""
    return Severity.HIGH if code == State.AWAITING_APPROVAL else severity(code)


def _settled(one: TailEvent) -> Settled:
    event = one.event
    words = _DECISIONS[event.kind]
    if event.kind == "Decided":
        words = f"{words}: {(event.data or {}).get('choice', '?')}"
    return Settled(
        key=f"{one.operation_id}/{event.seq}",
        operation_id=one.operation_id,
        contract=one.contract,
        words=words,
        by=event.actor,
        at=event.at,
        why=event.reason or "",
    )
