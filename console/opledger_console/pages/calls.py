"""Each outside call: what was asked and when, what came back and when, and the answer as it is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from opledger.rules.shapes import Event
from opledger_console.pages.events import fact, told
from opledger_console.pages.rows import Cell, Key, Kind, Row, amount, body_rows, clock, exact, pairs, row, took

ACTIONS: Final = {
    "Observed": "observe",
    "ReadFailed": "observe",
    "ResultAccepted": "collect",
    "ResultInvalid": "collect",
    "ResultMissing": "collect",
    "ResultAllItemsFailed": "collect",
    "PartialAttached": "collect",
    "CancelAnswered": "cancel",
    "Inconclusive": "reconcile",
    "ProvenAbsent": "reconcile",
}
"""What was asked where only the answer is recorded, as it is for reads that change nothing."""

WIDE: Final = 100


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored answer: sanitised and capped. `size` is how many bytes came."""

    text: str
    content_type: str | None
    size: int


@dataclass(slots=True)
class Call:
    """One call. Effectful ones have a permit; of safe reads only the answer is recorded."""

    seq: int
    last: int
    permit: Event | None = None
    answers: list[Event] = field(default_factory=list)

    @property
    def answer(self) -> Event | None:
        """What is known about it last."""
        return self.answers[-1] if self.answers else None

    @property
    def action(self) -> str:
        """Which of our actions it belongs to."""
        for event in (self.permit, *self.answers):
            action = event and (fact(event, "action") or ACTIONS.get(event.kind))
            if action:
                return action
        return "call"


def calls(events: Sequence[Event]) -> list[Call]:
    """Return the calls of a journal in the order of their first event."""
    found: dict[str, Call] = {}
    for event in events:
        data = event.data or {}
        name = data.get("call_id")
        answered = "status" in data or "answer" in data
        if event.kind == "Submitted" or not (isinstance(name, str) or answered):
            continue
        key = name if isinstance(name, str) else f"event {event.seq}"
        call = found.setdefault(key, Call(event.seq, event.seq))
        call.last = event.seq
        if event.kind == "CallSent":
            call.permit = event
        else:
            call.answers.append(event)
    return list(found.values())


def rows(
    events: Sequence[Event],
    opened: Collection[Key],
    width: int,
    kept: Mapping[str, Kept],
    targets: Mapping[str, str],
) -> tuple[Row, ...]:
    """Return the calls, oldest first. `kept` are the stored answers of what is opened, by hash; `targets` says where
    the contract makes its reads, by action.
    """
    found = calls(events)
    if not found:
        return (row("nothing was ever sent to the provider", "dim"),)
    out = [_heads(width)]
    for call in found:
        key = ("call", call.seq)
        out.append(_line(call, width, targets, key))
        if key in opened:
            out += _opened(call, width, kept, targets)
    return tuple(out)


def wanted(events: Sequence[Event], opened: Collection[Key]) -> list[str]:
    """Return the hashes of the answers that are to be shown."""
    hashes = [
        fact(answer, "answer")
        for call in calls(events)
        if ("call", call.seq) in opened
        for answer in call.answers
    ]  # fmt: skip
    return [one for one in dict.fromkeys(hashes) if one is not None]


def _heads(width: int) -> Row:
    names = ("time", "took", "action", "status", "outcome")
    cells: list[Cell] = [(name, "dim", size) for name, size in zip(names, (9, 5, 9, 6, 14), strict=True)]
    if width >= WIDE:
        cells.append(("provider request id", "dim", 24))
    return Row((*cells, ("what", "dim", 0)))


def _line(call: Call, width: int, targets: Mapping[str, str], key: Key) -> Row:
    answer = call.answer
    first = call.permit or answer
    status = "" if answer is None else fact(answer, "status") or "-"
    outcome = "NO ANSWER" if answer is None else answer.kind
    kind: Kind = "warn" if answer is None or answer.kind in _POOR else "text"
    cells: list[Cell] = [
        ("" if first is None else clock(first.at), "dim", 9),
        (_took(call), "dim", 5),
        (call.action, "strong", 9),
        (status, "bad" if status[:1] in "45" and status else kind, 6),
        (outcome, kind, 14),
    ]
    if width >= WIDE:
        cells.append(("" if answer is None else fact(answer, "request_id") or "", "dim", 24))
    cells.append((_what(call, targets), "text", 0))
    return Row(tuple(cells), call.seq, call.last, opens=key)


_POOR: Final = frozenset({"CallLost", "NotDelivered", "Throttled", "ReadFailed", "Inconclusive"})


def _sent(call: Call) -> datetime | None:
    return None if call.permit is None else call.permit.at


def _took(call: Call) -> str:
    sent, answer = _sent(call), call.answer
    return "" if sent is None or answer is None else took(answer.at - sent)


def _where(call: Call, targets: Mapping[str, str]) -> str:
    if call.permit is not None:
        return f"{fact(call.permit, 'method') or ''} {fact(call.permit, 'url') or ''}".strip()
    return targets.get(call.action, "")


def _what(call: Call, targets: Mapping[str, str]) -> str:
    answer = call.answer
    if call.permit is None and answer is not None:
        return told(answer)
    if answer is None:
        return f"{_where(call, targets)}: whether it arrived is not known"
    return f"{_where(call, targets)}: {told(answer)}"


def _opened(call: Call, width: int, kept: Mapping[str, Kept], targets: Mapping[str, str]) -> Iterator[Row]:
    permit, seq = call.permit, call.seq
    where = _where(call, targets)
    yield from pairs(
        {
            "asked": where + ("" if permit is not None or not where else "  (a read; by the contract)"),
            "sent": "not recorded: it is a read, only its answer is" if permit is None
            else f"{exact(permit.at)}, event {permit.seq}, attempt {fact(permit, 'attempt')}",
            "permit": None if permit is None else fact(permit, "call_id"),
            "strategy": None if permit is None else fact(permit, "strategy"),
            "request sha256": None if permit is None else fact(permit, "request_sha256"),
            "may create": None if permit is None else fact(permit, "may_create"),
        },
        width, indent=4, seq=seq,
    )  # fmt: skip
    if not call.answers:
        yield row("    no answer is recorded: it may have arrived, and it may not", "warn", seq=seq)
    for answer in call.answers:
        yield from _answer(answer, call, width, kept)


def _answer(answer: Event, call: Call, width: int, kept: Mapping[str, Kept]) -> Iterator[Row]:
    notes = (answer.data or {}).get("notes")
    sha256 = fact(answer, "answer")
    sent = _sent(call)
    yield from pairs(
        {
            "answered": f"{exact(answer.at)}, event {answer.seq}"
            + ("" if sent is None else f", after {took(answer.at - sent)}"),
            "status": fact(answer, "status") or "(no status line arrived)",
            "outcome": f"{answer.kind}: {told(answer)}",
            "request id": fact(answer, "request_id") or "(the provider gave none)",
            "notes": "; ".join(map(str, notes)) if isinstance(notes, list) and notes else None,
        },
        width, indent=4, seq=call.seq,
    )  # fmt: skip
    if sha256 is None:
        yield row("    no body is kept", "dim", seq=call.seq)
        return
    body = kept.get(sha256)
    if body is None:
        yield row(f"    the answer {sha256} is not in the ledger", "warn", seq=call.seq)
        return
    head = f"    {amount(body.size)} of {body.content_type or 'unknown type'}, sha256 {sha256}"
    yield row(head, "dim", seq=call.seq)
    yield from body_rows(body.text, width, size=body.size, indent=4, seq=call.seq)
