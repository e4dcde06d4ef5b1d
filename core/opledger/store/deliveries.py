"""Deliveries of webhooks: each kept once, and matched to operations at once or later. Decides nothing.

A row is how a delivery that comes again is known, and where one waits that names a job nobody knows yet. What it led
to stands in the journal of the operation; the row itself is swept when no sender would send it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    LargeBinary,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    func,
    select,
    union,
)
from sqlalchemy import update as sql_update

from opledger.store import encoding, recording
from opledger.store.directory import OPEN_STATES
from opledger.store.encoding import from_micros, to_micros
from opledger.store.statements import Prepared, Recipe, Tongue, Tx
from opledger.store.tables import DELIVERY, OPERATION, REFUSAL
from opledger.store.values import Answer, Recorded, Write

JSON: Final = "application/json"
SWEPT: Final = 2_000
"""Most rows that one sweep removes: a sweep holds nobody up."""

d: Final = DELIVERY.c
o: Final = OPERATION.c
w: Final = OPERATION.alias().c  # another one


@dataclass(frozen=True, slots=True)
class Match:
    """An operation that a delivery is about. Without a write it has ended: nothing is to be done."""

    operation_id: str
    write: Write | None


@dataclass(frozen=True, slots=True)
class Incoming:
    """A verified delivery, and the operations that it was found to be about."""

    delivery_id: str
    contract: str
    key: str  #: what tells it from all others of its contract
    received_at: datetime
    event_type: str | None
    job_id: str | None
    token: str | None
    answer: Answer  #: the body as it is kept
    matches: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a delivery: stored or here before, and which operations were told."""

    stored: bool
    operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parked:
    """A delivery that waits, and an operation that it is about by now."""

    delivery: KeptDelivery
    answer: Answer
    operation_id: str


@dataclass(frozen=True, slots=True)
class KeptDelivery:
    """A delivery as it is kept. `operation_id` is None while it is parked."""

    delivery_id: str
    contract: str
    key: str
    received_at: datetime
    event_type: str | None
    job_id: str | None
    token: str | None
    operation_id: str | None
    matched_at: datetime | None
    size: int  #: bytes that came
    body_sha256: str  #: of the body as it is kept: by this an answer is found once it has matched


@dataclass(frozen=True, slots=True)
class Refused:
    """How often deliveries were refused for one reason. `contract` is empty where none could be told."""

    contract: str
    kind: str
    times: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Named:
    """An operation by the names under which deliveries speak of it."""

    operation_id: str
    contract: str
    job_id: str | None
    token: str | None


# --- finding whom a delivery is about -----------------------------------------------------------------------------


def _named(tongue: Tongue) -> ClauseElement:
    # By three indexes, not by one condition of three parts: PostgreSQL would read the whole table for that.
    columns = (o.operation_id, o.contract, o.remote_job_id, o.idempotency_token)
    return union(
        select(*columns).where(tongue.among(o.remote_job_id, "jobs")),
        select(*columns).where(tongue.among(o.operation_id, "tokens")),
        select(*columns).where(tongue.among(o.idempotency_token, "tokens")),
    )


def named(tx: Tx, jobs: Sequence[str], tokens: Sequence[str]) -> list[Named]:
    """The operations, of any contract, that have one of these job ids, or one of these as their id or token."""
    if not jobs and not tokens:
        return []
    return [Named(*row) for row in tx.all(_named, jobs=tx.tongue.several(jobs), tokens=tx.tongue.several(tokens))]


# --- taking -------------------------------------------------------------------------------------------------------


def _insert(tongue: Tongue) -> ClauseElement:
    return tongue.insert(DELIVERY).on_conflict_do_nothing()


def _present(tongue: Tongue) -> ClauseElement:
    return select(d.delivery_id).where(tongue.among(d.delivery_id, "ids"))


def _waiting(tongue: Tongue) -> ClauseElement:
    parked = (tongue.among(d.delivery_id, "ids"), d.operation_id.is_(None))
    return select(d.delivery_id).where(*parked).order_by(d.delivery_id).with_for_update()


def _settle(_: Tongue) -> ClauseElement:
    return (
        sql_update(DELIVERY)
        .ordered_values(
            (d.operation_id, bindparam("operation", type_=Text)),
            (d.matched_at, bindparam("at", type_=BigInteger)),
            (d.body, bindparam("nothing", type_=LargeBinary)),  # the journal cites the answer from now on
        )
        .where(d.delivery_id == bindparam("delivery"))
    )


def take(tx: Tx, incoming: Sequence[Incoming]) -> list[Taken]:
    """Store deliveries and tell the operations that they are about, in one transaction; each has its own outcome."""
    if not incoming:
        return []
    rows = [
        (
            one.delivery_id, encoding.text(one.contract), encoding.text(one.key), to_micros(one.received_at),
            encoding.text(one.event_type), encoding.text(one.job_id), encoding.text(one.token), None, None,
            one.answer.size, bytes.fromhex(one.answer.sha256), one.answer.body,
        )
        for one in incoming
    ]  # fmt: skip
    # In order of the unique key: two receivers that get the same deliveries wait for each other and never both.
    tx.many(tx.prepared(_insert), sorted(rows, key=lambda row: (row[1], row[2])))
    ids = [one.delivery_id for one in incoming]
    stored = {row[0] for row in tx.all(_present, ids=tx.tongue.several(ids))}
    told = _tell(tx, {one.delivery_id: one.matches for one in incoming if one.delivery_id in stored}, incoming)
    return [Taken(one.delivery_id in stored, told.get(one.delivery_id, ())) for one in incoming]


def match(tx: Tx, matches: Mapping[str, Sequence[Match]], at: datetime) -> int:
    """Tell operations of deliveries that were parked for them; returns how many deliveries are parked no longer."""
    still = {row[0] for row in tx.all(_waiting, ids=tx.tongue.several(matches))}
    return len(_tell(tx, {id_: found for id_, found in matches.items() if id_ in still}, at))


def _tell(
    tx: Tx, matches: Mapping[str, Sequence[Match]], when: Sequence[Incoming] | datetime
) -> dict[str, tuple[str, ...]]:
    """Record what operations are told; where that is refused (nothing was sent yet), the delivery stays parked."""
    asked = [(id_, one) for id_, found in matches.items() for one in found]
    outcomes = iter(recording.record(tx, [one.write for _, one in asked if one.write is not None]))
    told: dict[str, tuple[str, ...]] = {}
    for id_, one in asked:
        if one.write is None or isinstance(next(outcomes), Recorded):
            told[id_] = (*told.get(id_, ()), one.operation_id)
    times = when if isinstance(when, datetime) else {one.delivery_id: one.received_at for one in when}
    settled = [
        (operations[0], to_micros(times if isinstance(times, datetime) else times[id_]), None, id_)
        for id_, operations in told.items()
    ]
    if settled:
        tx.many(tx.prepared(_settle), settled)
    return told


# --- what was parked ----------------------------------------------------------------------------------------------

_KEPT: Final = (
    d.delivery_id, d.contract, d.dedupe_key, d.received_at, d.event_type, d.job_id, d.token, d.operation_id,
    d.matched_at, d.size, d.body_sha256,
)  # fmt: skip


def _kept(row: Sequence[Any]) -> KeptDelivery:
    id_, contract, key, received, event_type, job_id, token, operation_id, matched, size, digest = row[:11]
    return KeptDelivery(
        id_, contract, key, from_micros(received), event_type, job_id, token, operation_id,
        None if matched is None else from_micros(matched), size, bytes(digest).hex(),
    )  # fmt: skip


def _known_by_now(tongue: Tongue) -> ClauseElement:
    return _pairs(tongue)


def _known_of(tongue: Tongue) -> ClauseElement:
    return _pairs(tongue, o.operation_id == bindparam("operation"))


def _by_token(operation: Any) -> tuple[ColumnElement[bool], ...]:
    return operation.operation_id == d.token, operation.idempotency_token == d.token


def _pairs(tongue: Tongue, *only: ColumnElement[bool]) -> ClauseElement:
    waits = (d.operation_id.is_(None), o.contract == d.contract, o.first_sent_at.is_not(None), *only)
    # Our own token says who is meant, while its operation is open: the job of another one does not.
    meant = [exists().where(w.contract == d.contract, tongue.among(w.state, "states"), way) for way in _by_token(w)]
    by_job = and_(o.remote_job_id == d.job_id, *(~one.correlate(DELIVERY) for one in meant))
    ways = (by_job, *_by_token(o))
    pairs = union(*(select(d.delivery_id, o.operation_id.label("about")).where(*waits, way) for way in ways)).subquery()
    return (
        select(*_KEPT, d.body, pairs.c.about)
        .join(pairs, pairs.c.delivery_id == d.delivery_id)
        .order_by(d.received_at, d.delivery_id, pairs.c.about)
        .limit(bindparam("most", type_=BigInteger))
    )


def known_by_now(tx: Tx, most: int, operation_id: str | None = None) -> list[Parked]:
    """The parked deliveries whose operation is known by now (or that are about this one), the oldest first."""
    states = tx.tongue.several(OPEN_STATES)
    if operation_id is None:
        rows = tx.all(_known_by_now, most=most, states=states)
    else:
        rows = tx.all(_known_of, most=most, states=states, operation=operation_id)
    return [Parked(_kept(row), Answer.of(bytes(row[11] or b""), JSON, size=row[9]), row[12]) for row in rows]


# --- looking, sweeping --------------------------------------------------------------------------------------------


def _newest(*conditions: ColumnElement[bool]) -> Recipe:
    statement = select(*_KEPT).where(*conditions).order_by(d.received_at.desc(), d.delivery_id.desc())
    return lambda _: statement.limit(bindparam("most", type_=BigInteger))


_ALL: Final = _newest()
_PARKED: Final = _newest(d.operation_id.is_(None))
_ABOUT: Final = _newest(d.operation_id == bindparam("operation"))


def listed(tx: Tx, *, operation_id: str | None = None, parked: bool = False, most: int = 100) -> list[KeptDelivery]:
    """Deliveries as they are kept, the newest first: of one operation, those that match nothing yet, or all."""
    if operation_id is None:
        return [_kept(row) for row in tx.all(_PARKED if parked else _ALL, most=most)]
    return [_kept(row) for row in tx.all(_ABOUT, operation=operation_id, most=most)]


def _parked_counts(_: Tongue) -> ClauseElement:
    counts = func.count(), func.min(d.received_at)
    return select(d.contract, *counts).where(d.operation_id.is_(None)).group_by(d.contract).order_by(d.contract)


def parked_counts(tx: Tx) -> dict[str, tuple[int, datetime]]:
    """How many deliveries match nothing yet, and since when, by contract."""
    return {name: (count, from_micros(oldest)) for name, count, oldest in tx.all(_parked_counts)}


def _old(_: Tongue) -> ClauseElement:
    old = select(d.delivery_id).where(d.received_at < bindparam("before", type_=BigInteger)).order_by(d.received_at)
    return delete(DELIVERY).where(d.delivery_id.in_(old.limit(SWEPT)))


def sweep(tx: Tx, before: datetime) -> int:
    """Remove some deliveries that came before a time; returns how many."""
    return tx.run(_old, before=to_micros(before))


# --- refusals -----------------------------------------------------------------------------------------------------


def _count(tongue: Tongue) -> ClauseElement:
    statement = tongue.insert(REFUSAL)
    r, new = REFUSAL.c, statement.excluded
    return statement.on_conflict_do_update(
        index_elements=[r.contract, r.kind],
        set_={"times": r.times + new.times, "last_at": tongue.later(r.last_at, new.last_at)},
    )


def _refusals(_: Tongue) -> ClauseElement:
    return select(REFUSAL).order_by(REFUSAL.c.contract, REFUSAL.c.kind)


def count_refusals(tx: Tx, refused: Mapping[tuple[str, str], int], at: datetime) -> None:
    """Add to the counters of refusals, given as (contract, kind): times."""
    moment = to_micros(at)
    counts: Prepared = tx.prepared(_count)
    rows = [(contract, kind, times, moment, moment) for (contract, kind), times in sorted(refused.items())]
    tx.many(counts, rows)


def refusals(tx: Tx) -> list[Refused]:
    """How often deliveries were refused, by contract and kind."""
    return [
        Refused(contract, kind, times, from_micros(first), from_micros(last))
        for contract, kind, times, first, last in tx.all(_refusals)
    ]
