"""Row <-> `Operation`, fast: both directions run once for every poll.

What people and workers search by has columns of its own. Everything else that a record knows goes into `facts`, one
compact JSON object that leaves out fields at their default; it follows the dataclass, so that a new field of
`Operation` needs no new column. The lease columns are never written from an `Operation`: only claims, renewals and
releases write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, Final

from opledger.errors import StoreUnavailable
from opledger.rules.model import EPOCH, Attention, Lease, Means, Operation, Plan, State
from opledger.store.encoding import (
    decode_fields,
    decoders_of,
    encode_fields,
    from_json,
    from_micros,
    key,
    layout_of,
    span,
    span_micros,
    text,
    to_json,
    to_micros,
)
from opledger.store.tables import OPERATION

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

_FACTS: Final = layout_of(Operation, frozenset({*_SIMPLE, "next", "attention", "lease"}))
_FACT_NAMES: Final = tuple(name for name, *_ in _FACTS)
_FACT_DECODERS: Final = decoders_of(_FACTS)
_facts_of: Final = attrgetter(*_FACT_NAMES)


def _facts(operation: Operation) -> str:
    data = encode_fields(_FACTS, _facts_of(operation))
    if operation.attention is not None:
        data["attention_reason"] = operation.attention.reason
    return to_json(data)


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
_EVERY: Final = range(len(_FIELDS))
_GROUPS: Final = tuple(dict.fromkeys(_groups_of(name)) for name in _FIELDS)


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
    old, new = _all_of(before), _all_of(after)
    dirty: dict[str, None] = {}
    # Untouched fields are the very same objects: that is asked first, and in C.
    for position in compress(_EVERY, map(is_not, old, new)):
        if old[position] != new[position]:
            dirty.update(_GROUPS[position])
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


_TIMES: Final = slice(COLUMNS.index("first_sent_at"), COLUMNS.index("deadline_at"))


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
        created_at, state, job_id, remote_state, remote_means, last_error, create_timeout, result_timeout,
        cancel_timeout, collect_timeout, _, _, _, _, _, _, _, _, _, _, _, _, next_action, next_because, attention_code,
        facts, lease_owner, lease_expires_at, lease_epoch, version, head_seq, head_hash,
    ) = row  # fmt: skip
    (
        first_sent_at, last_sent_at, accepted_at, observed_at, create_deadline, result_deadline, cancel_deadline,
        collect_deadline, approval_deadline, attention_since, next_at,
    ) = [None if micros is None else EPOCH + timedelta(0, 0, micros) for micros in row[_TIMES]]  # fmt: skip
    data = from_json(facts)
    attention_reason = data.pop("attention_reason", "")
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
        first_sent_at=first_sent_at,
        last_sent_at=last_sent_at,
        accepted_at=accepted_at,
        observed_at=observed_at,
        create_deadline=create_deadline,
        result_deadline=result_deadline,
        cancel_deadline=cancel_deadline,
        collect_deadline=collect_deadline,
        approval_deadline=approval_deadline,
        next=None if next_action is None else Plan(next_action, next_at, next_because),
        last_error=last_error,
        attention=None if attention_since is None else Attention(attention_code, attention_since, attention_reason),
        version=version,
        head_seq=head_seq,
        head_hash=head_hash.hex(),
        lease=None if lease_owner is None else Lease(lease_owner, lease_epoch, from_micros(lease_expires_at)),
        **decode_fields(_FACT_DECODERS, data),
    )
