"""The request, the result, what people decided, the bare events and the packet, as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from opledger.rules import jsontext, shapes
from opledger.rules.journal import Finding
from opledger.rules.model import Operation, State, StoredFile
from opledger.rules.shapes import Event
from opledger_console.pages.events import fact, told
from opledger_console.pages.head import why_words
from opledger_console.pages.rows import Cell, Key, Kind, Row, amount, body_rows, capped, clock, pairs, row, wrapped
from opledger_console.pages.timeline import details
from opledger_console.views import counted, short_id

Json = Mapping[str, Any]

_RELATIONS: Final = {
    "supersedes": "compared with the operation that it supersedes,",
    "same": "THE SAME REQUEST IS OPEN ALREADY:",
    "alike": "compared with the most similar open operation,",
}


def request(shown: Json, op: Operation, credentials: str | None, compared: Json | None, width: int) -> tuple[Row, ...]:
    """Return exactly what is sent, credentials masked, and how it differs from another request."""
    out = [row(f"{shown['method']} {shown['url']}", "strong")]
    out += pairs(shown["headers"], width, indent=2)
    out += pairs({"credentials": credentials or "none", "fingerprint": op.request_fingerprint,
                  "token": op.idempotency_token}, width, indent=2)  # fmt: skip
    out.append(row(""))
    body = shown["body"]
    out += body_rows(body if isinstance(body, str) else jsontext.dumps_inert(body, indent=2), width)
    out.append(row(""))
    if compared is None:
        out.append(row("no other open operation is much like it, and it supersedes none", "dim"))
    else:
        out += _compared(compared, width)
    return tuple(out)


def _compared(compared: Json, width: int) -> Iterator[Row]:
    differences = compared["differences"]
    words = f"{_RELATIONS.get(compared['relation'], '')} {short_id(compared['operation_id'])} ({compared['state']})"
    kind: Kind = "warn" if compared["relation"] == "same" else "head"
    yield from wrapped(words if differences else f"{words}: the bodies are equal", width, kind)
    for difference in differences[:1000]:
        place = difference["pointer"] or "(the whole body)"
        if difference["change"] != "added":
            yield from wrapped(f"- {place}: {_value(difference['before'])}", width, "minus")
        if difference["change"] != "removed":
            yield from wrapped(f"+ {place}: {_value(difference['after'])}", width, "plus")
    if len(differences) > 1000:
        yield row(f"and {len(differences) - 1000} more differences", "warn")


def _value(value: Any) -> str:
    return jsontext.dumps_inert(value)[:4096]


# --- result ------------------------------------------------------------------------------------------------------


def result(op: Operation, why: str, promises: Json | None, width: int) -> tuple[Row, ...]:
    """Return where the result is and how we know that it is whole; or why there is none. `why` explains the state."""
    out: list[Row] = []
    found = op.result
    if found is None:
        out += wrapped(f"no result yet, because {_because(op)}" if not op.state.terminal
                       else f"there is no result: {_because(op)}", width, "strong")  # fmt: skip
        if not op.state.terminal:
            out += wrapped(why_words(why), width, "dim")
    else:
        checked = "it was checked and is whole" if found.validated else "NOT CHECKED, or it did not pass"
        facts = {
            "location": found.location or "(none)",
            "size": f"{amount(found.size)} ({found.size} bytes)",
            "sha256": found.sha256,
            "content type": found.content_type,
            "checks": checked,
        }
        out += pairs(facts, width)
        for also in found.also:
            out += [row(f"further file: {also.name}", "head"), *pairs(_of_file(also), width, indent=2)]
        out += [row(f"problem: {problem}", "bad") for problem in found.problems]
        if found.location is not None:
            out += wrapped(
                f"opledger result {op.operation_id[-8:]} --out FILE hands it over, checked again", width, "dim"
            )
        items = found.items
        if items is not None:
            kind: Kind = "warn" if items.failed else "good"
            out.append(row(f"items: {items.succeeded} of {items.total} succeeded, {items.failed} failed", kind))
            out += [row(f"  failed: {reference}", "bad") for reference in items.failed_refs]
    if promises:
        out += [row(""), row("what the contract promises of results", "head")]
        out += pairs({name.replace("_", " "): _promise(value) for name, value in promises.items()}, width, indent=2)
    return tuple(out)


def _of_file(also: StoredFile) -> dict[str, Any]:
    return {
        "location": also.location,
        "size": f"{amount(also.size)} ({also.size} bytes)",
        "sha256": also.sha256,
        "content type": also.content_type,
    }


def _promise(value: Any) -> str | None:
    if value in (None, "", []):
        return None
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "; ".join(value)
    return value if isinstance(value, str) else jsontext.dumps_inert(value)


def _because(op: Operation) -> str:
    if op.state in (State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED):
        return op.last_error or "what came was not usable"
    if op.state is State.RESULT_COLLECTING:
        return "it is being fetched now"
    if not op.sent:
        return "nothing has been sent"
    if op.state in (State.CREATE_UNKNOWN, State.RECONCILIATION):
        return "it is not known whether the job exists"
    if op.state is State.FAILED:
        return f"the job failed ({op.last_error or 'the provider gave no reason'})"
    if op.state is State.SUCCEEDED:
        return "the job succeeded, and there was none to keep"
    if op.state.terminal:
        return f"it ended as {op.state}"
    return "the provider has not said that the job succeeded"


# --- what people decided -----------------------------------------------------------------------------------------

DECISIONS: Final = frozenset(
    {"Approved", "Rejected", "ApprovalExpired", "Withdrawn", "CancelRequested", "Decided", "Acknowledged", "Noted"}
)


def approvals(
    op: Operation, events: Sequence[Event], opened: Collection[Key], shown: Mapping[str, Sequence[str]], width: int
) -> tuple[Row, ...]:
    """Return every decision: who, when, why. `shown` is what an approver was shown, in lines, by its hash."""
    out: list[Row] = []
    for event in events:
        if event.kind == "Submitted":
            needed = (
                f"{counted(op.approvals_needed, 'approval')} needed" if op.approvals_needed else "no approval needed"
            )
            because = fact(event, "approval_because")
            words = f"asked for by {fact(event, 'requested_by')}: {needed}{f', because {because}' if because else ''}"
            out += [_decision(event, words), *_details(event, opened, width)]
        elif event.kind in DECISIONS:
            words = _KINDS[event.kind] + ("" if event.kind == "ApprovalExpired" else f" by {event.actor}")
            words += " (signed)" if fact(event, "signature") is not None else ""
            out += [_decision(event, f"{words}: {told(event)}"), *_details(event, opened, width)]
            if ("event", event.seq) in opened and (digest := fact(event, "shown")) is not None:
                out.append(row("    they were shown:", "head", seq=event.seq))
                lines = shown.get(digest, ("(it is not kept)",))
                out += wrapped(capped("\n".join(lines))[0], width, "data", indent=4, seq=event.seq)
    if len(out) < 2:
        out.append(row("nobody has decided anything about it", "dim"))
    return tuple(out)


_KINDS: Final = {
    "Approved": "approved", "Rejected": "rejected", "ApprovalExpired": "the approval lapsed", "Withdrawn": "withdrawn",
    "CancelRequested": "cancellation requested", "Decided": "decided", "Acknowledged": "acknowledged", "Noted": "noted",
}  # fmt: skip


def _decision(event: Event, words: str) -> Row:
    when = f"{event.at:%m-%d} {clock(event.at)}"
    return Row(((when, "dim", 15), (words, "strong", 0)), event.seq, opens=("event", event.seq))


def _details(event: Event, opened: Collection[Key], width: int) -> Iterator[Row]:
    if ("event", event.seq) in opened:
        yield from details(event, width)


def shown_hashes(events: Sequence[Event], opened: Collection[Key]) -> list[str]:
    """Return the hashes of the reviews that are to be shown."""
    found = [fact(event, "shown") for event in events if event.kind == "Approved" and ("event", event.seq) in opened]
    return [one for one in found if one is not None]


# --- the journal as it is ----------------------------------------------------------------------------------------


def raw(
    op: Operation, events: Sequence[Event], opened: Collection[Key], findings: Sequence[Finding], width: int
) -> tuple[Row, ...]:
    """Return the events as JSON, under the verdict on their chain."""
    out: list[Row] = []
    last = events[-1].seq if events else 0
    if findings:
        out.append(row(f"THE CHAIN IS BROKEN: {len(findings)} findings", "bad"))
        out += [row(f"  {finding.kind} at event {finding.seq}: {finding.message}", "bad") for finding in findings[:50]]
    elif not events or last != op.head_seq or events[-1].hash != op.head_hash:
        out.append(row(f"the events end at {last}, the record at {op.head_seq}: this is not all of the journal", "bad"))
    else:
        out.append(row(f"✓ chain verified up to seq {last}, hash {op.head_hash}", "good"))
    for event in events:
        key = ("event", event.seq)
        data = jsontext.dumps_inert(event.data)
        cells: tuple[Cell, ...] = (
            (str(event.seq), "dim", 6),
            (event.kind, "strong", 16),
            (event.hash[:8], "dim", 8),
            (data, "text", 0),
        )
        out.append(Row(cells, event.seq, opens=key))
        if key in opened:
            whole = jsontext.dumps_inert(shapes.journal_event(event), indent=2)
            out += body_rows(whole, width, indent=2, seq=event.seq)
    return tuple(out)


def packet(words: str, upto: int, head: int, width: int) -> tuple[Row, ...]:
    """Return the escalation packet. `upto` is the event that it was made at, `head` where the journal is now."""
    shown, rest = capped(words)
    behind = f"; the journal has gone on to event {head}: r makes it anew" if head > upto else ""
    out = [row(f"o saves it; made at event {upto}{behind}", "warn" if behind else "dim")]
    if rest is not None:
        out.append(row(f"{rest}; the file has all of it", "warn"))
    out += wrapped(shown, width, "data")
    return tuple(out)
