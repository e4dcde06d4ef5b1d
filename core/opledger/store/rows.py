"""Row <-> `Operation`, fast: both directions run once for every poll.

What people and workers search by has columns of its own. Everything else that a record knows goes into `facts`, one
compact JSON object that leaves out fields at their default; it follows the dataclass, so that a new field of
`Operation` needs no new column. The lease columns are never written from an `Operation`: only claims, renewals and
releases write them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from opledger.errors import StoreUnavailable
from opledger.rules.evidence import result_from_data, result_to_data
from opledger.rules.model import Attention, Lease, Means, Operation, Plan, State, StoredResult
from opledger.store.tables import OPERATION

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000

LONGEST_KEY: Final = 1_000
"""Bytes of the longest text that may stand in an index; PostgreSQL refuses rows beyond about 2,700."""


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 in UTC. Raises TypeError for a naive time."""
    since = moment - _EPOCH
    return since.days * _DAY + since.seconds * _SECOND + since.microseconds


def from_micros(micros: int) -> datetime:
    """The moment that `to_micros` wrote, in UTC."""
    return _EPOCH + timedelta(0, 0, micros)


def span_micros(span: timedelta) -> int:
    """A duration in whole microseconds."""
    return span.days * _DAY + span.seconds * _SECOND + span.microseconds


@lru_cache(maxsize=1024)
def span(micros: int) -> timedelta:
    """The duration that `span_micros` wrote. Cached: a contract's operations share a handful of them."""
    return timedelta(0, 0, micros)


def text(value: str | None) -> str | None:
    """Check that both databases can hold a text, and return it.

    Raises ValueError for NUL characters, which PostgreSQL cannot store, and for half surrogate pairs, which are no
    Unicode text; one such value must not fail a whole batch.
    """
    if value is None:
        return None
    if "\0" in value:
        raise ValueError("a text with a NUL character cannot be stored")
    if not value.isascii():
        value.encode()
    return value


def key(value: str | None) -> str | None:
    """As `text`, for a column with an index: the value may not be too long for one.

    Raises ValueError for what `text` refuses and for more than `LONGEST_KEY` bytes.
    """
    if value is not None and len(value) * 4 > LONGEST_KEY and len(value.encode()) > LONGEST_KEY:
        raise ValueError(f"a name of more than {LONGEST_KEY} bytes cannot be stored")
    return text(value)


_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_raw_decode = json.JSONDecoder().raw_decode


def to_json(data: Any) -> str:
    """Compact JSON in ASCII. Raises ValueError for NaN and infinities."""
    return _dumps(data)


def from_json(written: str) -> Any:
    """The data that `to_json` wrote."""
    return _raw_decode(written)[0]


# --- which deadline counts --------------------------------------------------------------------------------------

_DEADLINE_OF: Final[Mapping[State, Callable[[Operation], datetime | None]]] = {
    State.AWAITING_APPROVAL: attrgetter("approval_deadline"),
    State.CREATE_PENDING: attrgetter("create_deadline"),
    State.CREATE_UNKNOWN: lambda operation: None if operation.exhausted else operation.create_deadline,
    State.RECONCILIATION: attrgetter("create_deadline"),
    State.ACCEPTED: attrgetter("result_deadline"),
    State.OBSERVING: attrgetter("result_deadline"),
    State.CANCEL_REQUESTED: attrgetter("cancel_deadline"),
    State.CANCELLING: attrgetter("cancel_deadline"),
    State.RESULT_COLLECTING: attrgetter("collect_deadline"),
}


def deadline_of(operation: Operation) -> datetime | None:
    """The deadline that applies in the operation's present state, or None."""
    pick = _DEADLINE_OF.get(operation.state)
    return None if pick is None else pick(operation)


# --- facts: fields without a column -----------------------------------------------------------------------------

_Codec = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def _codec(hint: Any) -> _Codec:
    """(encode, decode) for a field's type; None where JSON holds the value as it is."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not type(None)]
        return _codec(inner[0])
    if hint is datetime:
        return to_micros, from_micros
    if hint is timedelta:
        return span_micros, span
    if hint is StoredResult:
        return result_to_data, result_from_data
    if origin is tuple:
        return _list_codec(*_codec(get_args(hint)[0]))
    if is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_codec(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return str, hint
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict, None
    return None, None


def _list_codec(encode: Callable[[Any], Any] | None, decode: Callable[[Any], Any] | None) -> _Codec:
    if encode is None or decode is None:
        return list, tuple
    return (lambda items: [encode(item) for item in items]), (lambda items: tuple(decode(item) for item in items))


def _layout(cls: type[Any], skip: frozenset[str] = frozenset()) -> list[tuple[str, Any, Any, Any]]:
    """(name, default, encode, decode) for every field that is not skipped."""
    hints = get_type_hints(cls)
    return [
        (f.name, f.default_factory() if f.default_factory is not MISSING else f.default, *_codec(hints[f.name]))
        for f in fields(cls)
        if f.name not in skip
    ]


def _dataclass_codec(cls: type[Any]) -> _Codec:
    layout = _layout(cls)
    read = attrgetter(*(name for name, *_ in layout))
    decoders = _decoders(layout)

    def encode(value: Any) -> dict[str, Any]:
        return _encode_fields(layout, read(value))

    def decode(data: dict[str, Any]) -> Any:
        return cls(**_decode_fields(decoders, data))

    return encode, decode


def _encode_fields(layout: Sequence[tuple[str, Any, Any, Any]], values: Sequence[Any]) -> dict[str, Any]:
    data = {}
    for (name, default, encode, _), value in zip(layout, values, strict=True):
        if value is default or value == default:
            continue
        data[name] = value if encode is None or value is None else encode(value)
    return data


def _decoders(layout: Sequence[tuple[str, Any, Any, Any]]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((name, decode) for name, _, _, decode in layout if decode is not None)


def _decode_fields(decoders: Sequence[tuple[str, Callable[[Any], Any]]], data: dict[str, Any]) -> dict[str, Any]:
    for name, decode in decoders:
        if name in data and data[name] is not None:
            data[name] = decode(data[name])
    return data


# --- columns ----------------------------------------------------------------------------------------------------

COLUMNS: Final = tuple(column.name for column in OPERATION.columns)
"""The order of every full row, read or written."""


def _micros(value: datetime | None) -> int | None:
    return None if value is None else to_micros(value)


_SIMPLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("operation_id", "contract", "idempotency_token", "trace_id", "task", "step"), key),
    **dict.fromkeys(("requested_by", "remote_job_id"), key),
    **dict.fromkeys(("contract_digest", "request_fingerprint", "supersedes"), text),
    **dict.fromkeys(("remote_state", "last_error"), text),
    **dict.fromkeys(("created_at", "first_sent_at", "last_sent_at", "accepted_at", "observed_at"), _micros),
    **dict.fromkeys(("create_timeout", "result_timeout", "cancel_timeout", "collect_timeout"), span_micros),
    **dict.fromkeys(("create_deadline", "result_deadline", "cancel_deadline"), _micros),
    **dict.fromkeys(("collect_deadline", "approval_deadline"), _micros),
    "state": str,
    "remote_means": lambda means: None if means is None else means.value,
    "tags": lambda tags: to_json(dict(tags)) if tags else None,
    "version": int,
    "head_seq": int,
    "head_hash": bytes.fromhex,
}
"""Fields with a column of the same name, and how each is written."""

_FACTS: Final = _layout(Operation, frozenset({*_SIMPLE, "next", "attention", "lease"}))
_FACT_NAMES: Final = tuple(name for name, *_ in _FACTS)
_FACT_DECODERS: Final = _decoders(_FACTS)
_facts_of: Final = attrgetter(*_FACT_NAMES)


def _facts(operation: Operation) -> str:
    data = _encode_fields(_FACTS, _facts_of(operation))
    if operation.attention is not None:
        data["attention_reason"] = operation.attention.reason
    return _dumps(data)


def _next(operation: Operation) -> tuple[Any, ...]:
    plan = operation.next
    return (None, None, None) if plan is None else (_micros(plan.at), str(plan.kind), text(plan.because))


def _attention(operation: Operation) -> tuple[Any, ...]:
    attention = operation.attention
    return (None, None) if attention is None else (key(str(attention.code)), to_micros(attention.since))


_Write = tuple[tuple[str, ...], Callable[[Operation], tuple[Any, ...]]]


def _simple(name: str) -> _Write:
    read, encode = attrgetter(name), _SIMPLE[name]
    return (name,), lambda operation: (encode(read(operation)),)


_WRITES: Final[Mapping[str, _Write]] = {
    **{name: _simple(name) for name in _SIMPLE},
    "next": (("next_action_at", "next_action", "next_because"), _next),
    "attention": (("attention_code", "attention_since"), _attention),
    "deadline": (("deadline_at",), lambda operation: (_micros(deadline_of(operation)),)),
    "short_id": (("short_id",), lambda operation: (operation.operation_id[-8:],)),
    "facts": (("facts",), lambda operation: (_facts(operation),)),
}
"""Groups of columns that are written together, in the order of an UPDATE's SET list."""

_DEADLINE_FIELDS: Final = frozenset(
    {"state", "exhausted", *(name for name in _SIMPLE if name.endswith("_deadline"))},
)


def _groups_of(field: str) -> tuple[str, ...]:
    """The groups that must be written when a field of the record has changed."""
    groups = [field if field in _WRITES else "facts"]
    if field == "attention":
        groups.append("facts")
    if field in _DEADLINE_FIELDS:
        groups.append("deadline")
    return tuple(groups)


_FIELDS: Final = tuple(f.name for f in fields(Operation) if f.name != "lease")
_all_of: Final = attrgetter(*_FIELDS)
_GROUPS: Final = tuple(_groups_of(name) for name in _FIELDS)


def new_row(operation: Operation) -> tuple[Any, ...]:
    """A full row, in the order of `COLUMNS`, without a lease.

    Raises ValueError where a value cannot be stored (see `text`, `key`, `to_json`).
    """
    values: dict[str, Any] = {"lease_owner": None, "lease_expires_at": None, "lease_epoch": 0}
    for names, write in _WRITES.values():
        values.update(zip(names, write(operation), strict=True))
    return tuple(values[name] for name in COLUMNS)


def changes(before: Operation, after: Operation) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """The columns that differ, and their new values: most polls touch few of them, and few indexes.

    Raises ValueError where a value cannot be stored.
    """
    dirty: dict[str, None] = {}
    for groups, old, new in zip(_GROUPS, _all_of(before), _all_of(after), strict=True):
        if new is not old and new != old:
            for group in groups:
                dirty[group] = None
    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    for group in dirty:
        columns, write = _WRITES[group]
        names += columns
        values += write(after)
    return names, values


_POSITIONS: Final = {f.name: position for position, f in enumerate(fields(Operation))}
_values_of: Final = attrgetter(*_POSITIONS)
_NEXT, _VERSION, _HEAD_SEQ, _HEAD_HASH, _LEASE = (
    _POSITIONS[name] for name in ("next", "version", "head_seq", "head_hash", "lease")
)


def sealed(operation: Operation, plan: Plan | None, seq: int, digest: str, lease: Lease | None) -> Operation:
    """The record with what only the store knows. `dataclasses.replace` would take twice as long, once a poll."""
    values = list(_values_of(operation))
    values[_NEXT] = plan
    values[_VERSION] = values[_HEAD_SEQ] = seq
    values[_HEAD_HASH] = digest
    values[_LEASE] = lease
    return Operation(*values)


_STATES: Final = {state.value: state for state in State}
_MEANS: Final[dict[str | None, Means | None]] = {None: None, **{means.value: means for means in Means}}


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(0, 0, micros)


def from_row(row: Sequence[Any]) -> Operation:
    """The record that a full row (in the order of `COLUMNS`) stands for.

    Raises StoreUnavailable for a row that this program did not write.
    """
    try:
        return _from_row(row)
    except (AttributeError, KeyError, TypeError, ValueError) as damage:
        raise StoreUnavailable(
            f"the stored record of {row[0]!r} cannot be read ({type(damage).__name__}: {damage}); it was damaged or "
            "written by a newer opledger: run `opledger audit verify`"
        ) from damage


def _from_row(row: Sequence[Any]) -> Operation:
    (
        operation_id, _, contract, digest, fingerprint, token, trace_id, requested_by, task, step, supersedes, tags,
        created_at, state, job_id, remote_state, remote_means, last_error, attention_code, attention_since,
        first_sent_at, last_sent_at, accepted_at, observed_at,
        create_timeout, result_timeout, cancel_timeout, collect_timeout,
        create_deadline, result_deadline, cancel_deadline, collect_deadline, approval_deadline, _,
        next_at, next_action, next_because, facts, lease_owner, lease_expires_at, lease_epoch,
        version, head_seq, head_hash,
    ) = row  # fmt: skip
    data = from_json(facts)
    why = data.pop("attention_reason", "")
    return Operation(
        operation_id=operation_id,
        contract=contract,
        contract_digest=digest,
        request_fingerprint=fingerprint,
        idempotency_token=token,
        trace_id=trace_id,
        requested_by=requested_by,
        created_at=from_micros(created_at),
        state=_STATES[state],
        create_timeout=span(create_timeout),
        result_timeout=span(result_timeout),
        cancel_timeout=span(cancel_timeout),
        collect_timeout=span(collect_timeout),
        tags=from_json(tags) if tags else {},
        supersedes=supersedes,
        task=task,
        step=step,
        remote_job_id=job_id,
        remote_state=remote_state,
        remote_means=_MEANS[remote_means],
        create_deadline=_moment(create_deadline),
        result_deadline=_moment(result_deadline),
        cancel_deadline=_moment(cancel_deadline),
        collect_deadline=_moment(collect_deadline),
        approval_deadline=_moment(approval_deadline),
        next=None if next_action is None else Plan(next_action, _moment(next_at), next_because),
        last_error=last_error,
        attention=None if attention_code is None else Attention(attention_code, from_micros(attention_since), why),
        first_sent_at=_moment(first_sent_at),
        last_sent_at=_moment(last_sent_at),
        accepted_at=_moment(accepted_at),
        observed_at=_moment(observed_at),
        version=version,
        head_seq=head_seq,
        head_hash=head_hash.hex(),
        lease=None if lease_owner is None else Lease(lease_owner, lease_epoch, from_micros(lease_expires_at)),
        **_decode_fields(_FACT_DECODERS, data),
    )
