"""The exact bytes of every event, and the chain that makes a change to any of them show (reliability §5, I23).

The bytes are made once, hashed, stored as they are and never made again to verify. Each operation has a chain of its
own: an event's hash covers its bytes, its place and the hash before it. Columns beside the bytes exist for queries;
`verify_chain` compares every one of them with the bytes, so that none lies outside the digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from json.encoder import encode_basestring as quoted
from operator import attrgetter
from types import UnionType
from typing import Any, Final, NamedTuple

from opledger.rules import jsontext
from opledger.rules.evidence import from_data, to_data
from opledger.rules.model import EPOCH, Actor, ActorKind, Plan, State, from_rfc3339, to_rfc3339
from opledger.rules.projection import Entry

FORMAT: Final = 1
GENESIS: Final = "0" * 64  #: what the first event of an operation links to
DOMAIN: Final = b"opledger/h1"

_ACTOR: Final = '{"actor":'


# --- writing and reading ----------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """What `read_body` finds in the bytes of an event."""

    entry: Entry
    plan: Plan | None
    from_state: State | None
    to_state: State | None
    remote_job_id: str | None


def body_of(
    entry: Entry,
    from_state: State | None,
    to_state: State | None,
    remote_job_id: str | None,
    plan: Plan | None,
) -> bytes:
    """Return the exact bytes of an event: compact JSON, keys sorted, UTF-8; what `jsontext.dumps` would give.

    Keys: ``format, operation_id, seq, at, actor {host, kind, name, process}, kind, from, to, cause, reason,
    remote_job_id, data, next``. ``host`` and ``process`` are left out where they are not known; ``from`` and ``to`` are
    null where the state did not change. Raises ValueError for a naive time, a lone surrogate or a number that JSON does
    not have.
    """
    # Written by hand because it runs once for every poll; the evidence, whose keys vary, goes through the encoder.
    if from_state is to_state:
        from_state = to_state = None
    evidence = entry.evidence
    return (
        f"{_actor(entry.actor)},"
        f'"at":"{to_rfc3339(entry.at)}","cause":{quoted(entry.cause)},"data":{jsontext.dumps_text(to_data(evidence))},'
        f'"format":{FORMAT},"from":{_quoted(from_state)},"kind":"{evidence.kind}","next":{_next(plan)},'
        f'"operation_id":{quoted(entry.operation_id)},"reason":{_quoted(entry.reason)},'
        f'"remote_job_id":{_quoted(remote_job_id)},"seq":{entry.seq},"to":{_quoted(to_state)}}}'
    ).encode()


def _actor(actor: Actor) -> str:
    host = "" if actor.host is None else f'"host":{quoted(actor.host)},'
    process = "" if actor.process is None else f',"process":{quoted(actor.process)}'
    return f'{{"actor":{{{host}"kind":"{actor.kind}","name":{quoted(actor.name)}{process}}}'


def _quoted(text: str | None) -> str:
    return "null" if text is None else quoted(text)


def _next(plan: Plan | None) -> str:
    if plan is None:
        return "null"
    at = "null" if plan.at is None else f'"{to_rfc3339(plan.at)}"'
    return f'{{"at":{at},"because":{quoted(plan.because)},"kind":{quoted(plan.kind)}}}'


def read_body(body: bytes) -> Written:
    """Rebuild what `body_of` wrote, with the very evidence that was recorded.

    Raises ValueError for bytes that it did not write.
    """
    event = jsontext.loads(body)
    try:
        if event["format"] != FORMAT:
            raise ValueError(f"an event of format {event['format']} cannot be read by this version of opledger")
        entry = Entry(
            operation_id=event["operation_id"],
            seq=event["seq"],
            at=from_rfc3339(event["at"]),
            actor=_read_actor(event["actor"]),
            evidence=from_data(event["kind"], event["data"]),
            cause=event["cause"],
            reason=event["reason"],
        )
        plan = plan_of(event["next"])
        return Written(entry, plan, _state(event["from"]), _state(event["to"]), event["remote_job_id"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"these bytes are no event of this journal: {error!r}") from error


def actor_of(start: str) -> Actor:
    """Return whom an event names, by what its text begins with up to its time: ``{"actor":{…},"at":"``.

    Raises ValueError for a text that `body_of` did not begin.
    """
    try:
        return _read_actor(jsontext.loads(start.removeprefix(_ACTOR).removesuffix(',"at":"')))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the event begins with no actor: {error!r}") from error


def _read_actor(data: Any) -> Actor:
    return Actor(data["name"], ActorKind(data["kind"]), data.get("host"), data.get("process"))


def plan_of(data: Any) -> Plan | None:
    """Rebuild what an event says of the next step. Raises TypeError, KeyError or ValueError for anything else."""
    if data is None:
        return None
    return Plan(data["kind"], None if data["at"] is None else from_rfc3339(data["at"]), data["because"])


def _state(word: str | None) -> State | None:
    return None if word is None else State(word)


# --- the chain --------------------------------------------------------------------------------------------------------


def link(previous_hash: str, operation_id: str, seq: int, body: bytes) -> str:
    """Return the hash of an event as 64 hex digits.

    SHA-256 over: the ASCII bytes ``opledger/h1``; the length of the operation id in UTF-8 as 8 bytes, big-endian; the
    operation id; `seq` as 8 bytes, big-endian; the 32 bytes of the previous hash; the 32 bytes of SHA-256(body).
    """
    return _digest(_head(operation_id), seq, bytes.fromhex(previous_hash), body).hex()


def _head(operation_id: str) -> bytes:
    name = operation_id.encode("utf-8", "surrogatepass")  # a tampered one may be no UTF-8: then its hash fits nothing
    return DOMAIN + len(name).to_bytes(8, "big") + name


def _digest(head: bytes, seq: int, previous: bytes, body: bytes) -> bytes:
    return sha256(head + seq.to_bytes(8, "big") + previous + sha256(body).digest()).digest()


# --- verifying --------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One row of the event table, as it is stored: `at` in whole microseconds since 1970 UTC, hashes as 32 bytes."""

    operation_id: str
    seq: int
    at: int
    actor: str
    kind: str
    from_state: str | None
    to_state: str | None
    cause: str
    reason: str | None
    remote_job_id: str | None
    body: bytes
    prev_hash: bytes
    hash: bytes
    format: int


_TYPES: Final[dict[str, type | UnionType]] = {
    **dict.fromkeys(("operation_id", "actor", "kind", "cause"), str),
    **dict.fromkeys(("from_state", "to_state", "reason", "remote_job_id"), str | None),
    **dict.fromkeys(("seq", "at", "format"), int),
    **dict.fromkeys(("body", "prev_hash", "hash"), bytes),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with the journal, and where (reliability §5.7)."""

    kind: str
    operation_id: str | None
    seq: int | None
    message: str


def verify(rows: Iterable[Row]) -> list[Finding]:
    """Check many operations: rows ordered by operation, then seq. No rows at all is a finding, NOTHING_CHECKED."""
    findings: list[Finding] = []
    operation_id = None
    for operation_id, chain in groupby(rows, attrgetter("operation_id")):
        findings += verify_chain(operation_id, chain)
    if operation_id is None:
        findings.append(Finding("NOTHING_CHECKED", None, None, "there was no event to check"))
    return findings


def verify_chain(operation_id: str, rows: Iterable[Row], *, after: tuple[int, str] = (0, GENESIS)) -> list[Finding]:
    """Check the events of one operation, in the order of seq, that follow the event `after` (its seq and hash, hex).

    Finds HASH (the bytes were changed), LINK (an event does not follow from the one before it), SEQ (an event is
    missing, stands twice or out of order), COLUMN (a column is not what the bytes say), MOVED (the bytes are of another
    operation) and FORMAT_DOWNGRADE (a format that this chain cannot hold). A chain that was cut at its end looks whole
    from here: compare its last hash with the record and with the checkpoints.
    """
    findings: list[Finding] = []
    seq, previous = after[0], bytes.fromhex(after[1])
    head = _head(operation_id)
    for row in rows:
        if not _intact(head, operation_id, row, seq, previous):
            if mistyped := [name for name, kind in _TYPES.items() if not isinstance(getattr(row, name), kind)]:
                message = f"an event has values of another type in its columns: {', '.join(mistyped)}"
                findings.append(Finding("COLUMN", operation_id, None if "seq" in mistyped else row.seq, message))
                continue
            findings += _examine(operation_id, row, seq, previous)
        if row.seq > seq:
            seq, previous = row.seq, row.hash
    return findings


def _intact(head: bytes, operation_id: str, row: Row, seq: int, previous: bytes) -> bool:
    try:
        return (
            row.seq == seq + 1
            and row.prev_hash == previous
            and row.operation_id == operation_id
            and _digest(head, row.seq, previous, row.body) == row.hash
            and _agrees(row)
        )
    except (TypeError, ValueError, AttributeError, OverflowError):  # SQLite keeps whatever is put into a column
        return False


def _agrees(row: Row) -> bool:
    """True where the columns are what the bytes say: quickly, by comparing text in the places where it must stand.

    False is no verdict; the bytes are then read. True is one, for bytes that `body_of` wrote: quotes inside strings
    are escaped, so that the last ``,"format":`` and the end of the text can only be the event's own.
    """
    operation_id, seq, at, actor, kind, from_state, to_state, cause, reason, job, body, _, _, form = row
    text = body.decode("utf-8", "replace")
    place = text.find('},"at":"')
    who = _named(text[:place])
    start = f'}},"at":"{_stamp(at)}","cause":{quoted(cause)},"data":{{'
    middle = f',"format":{FORMAT},"from":{_quoted(from_state)},"kind":"{kind}","next":'
    end = (
        f',"operation_id":{quoted(operation_id)},"reason":{_quoted(reason)},"remote_job_id":{_quoted(job)},'
        f'"seq":{seq},"to":{_quoted(to_state)}}}'
    )
    return (
        form == FORMAT
        and who is not None
        and who == actor
        and text.startswith(start, place)
        and text.endswith(end)
        and text.startswith(middle, text.rfind(',"format":', place + len(start), len(text) - len(end)))
    )


@lru_cache(maxsize=256)
def _named(actor: str) -> str | None:
    """Return whom the text before ``},"at":`` names; None where `body_of` did not write it. Neighbours share theirs."""
    try:
        found = _read_actor(jsontext.loads(f"{actor.removeprefix(_ACTOR)}}}".encode()))
        return found.name if f"{actor}}}" == _actor(found) else None
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return to_rfc3339(EPOCH + timedelta(seconds=seconds))[:20]


def _stamp(micros: int) -> str:
    """Write microseconds since 1970 as `to_rfc3339` would; neighbouring events share their second."""
    seconds, rest = divmod(micros, 1_000_000)
    return f"{_second(seconds)}{rest:06}Z"


def _examine(operation_id: str, row: Row, seq: int, previous: bytes) -> list[Finding]:
    """Say what is wrong with a row that is not simply right. Never raises, whatever stands in it."""
    event = _read(row.body)
    own_id, own_seq = _identity(event, row)
    found: list[tuple[str, str]] = []
    if row.seq > seq + 1:
        found.append(("SEQ", f"event {seq + 1} is missing before event {row.seq}"))
    elif row.seq <= seq:
        found.append(("SEQ", f"event {row.seq} stands after event {seq}: it is there twice, or out of order"))
    elif row.prev_hash != previous:
        found.append(("LINK", f"event {row.seq} does not follow from what stands before it"))
    if row.format != FORMAT or (event is not None and event.get("format") != FORMAT):
        found.append(("FORMAT_DOWNGRADE", f"event {row.seq} claims another format than {FORMAT}"))
    # The bytes are genuine where their hash fits the place they claim, or the one they stand in: then only what is
    # beside them was changed, and that is another finding.
    places = {(name, at) for name in (operation_id, own_id) for at in (row.seq, own_seq)}
    genuine = any(
        _digest(_head(name), at, before, row.body) == row.hash
        for name, at in places
        if 0 <= at < 2**63
        for before in (row.prev_hash, previous)
    )
    if not genuine:
        found.append(("HASH", f"event {row.seq} or its hash was changed"))
    if row.operation_id != operation_id or (genuine and own_id != operation_id):
        found.append(("MOVED", f"event {row.seq} was written for {own_id} and stands under {operation_id}"))
    elif event is None:
        if genuine:
            found.append(("COLUMN", f"the bytes of event {row.seq} cannot be read, so no column agrees with them"))
    elif wrong := [name for name, value in _columns(event).items() if value != getattr(row, name)]:
        found.append(("COLUMN", f"of event {row.seq} the bytes and the columns differ: {', '.join(wrong)}"))
    return [Finding(kind, operation_id, row.seq, message) for kind, message in found]


def _read(body: bytes) -> dict[str, Any] | None:
    try:
        event = jsontext.loads(body)
    except jsontext.JsonError:
        return None
    return event if isinstance(event, dict) else None


def _identity(event: dict[str, Any] | None, row: Row) -> tuple[str, int]:
    """Return the operation and the place that the bytes themselves claim, or those of the row."""
    own_id, own_seq = (None, None) if event is None else (event.get("operation_id"), event.get("seq"))
    return own_id if isinstance(own_id, str) else row.operation_id, own_seq if type(own_seq) is int else row.seq


def _columns(event: dict[str, Any]) -> dict[str, Any]:
    """Return what each column must hold, by the bytes."""
    actor = event.get("actor")
    return {
        "seq": event.get("seq"),
        "at": _micros(event.get("at")),
        "actor": actor.get("name") if isinstance(actor, dict) else None,
        "kind": event.get("kind"),
        "from_state": event.get("from"),
        "to_state": event.get("to"),
        "cause": event.get("cause"),
        "reason": event.get("reason"),
        "remote_job_id": event.get("remote_job_id"),
    }


def _micros(text: Any) -> int | None:
    try:
        return (from_rfc3339(text) - EPOCH) // timedelta(microseconds=1)
    except (TypeError, ValueError):
        return None
