"""Recording events: the only writes that change a record.

Each write is judged by itself against the truth under lock: the fence, the version, the state machine, the uniqueness
of job ids. What one write is refused for never touches another. Then the journal rows and one UPDATE for each record,
guarded by version and epoch, go out together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ClauseElement, bindparam, insert, select, union_all, update

from opledger.errors import LeaseLost, OpledgerError, Refused, StoreUnavailable, UnknownOperation
from opledger.rules import journal
from opledger.rules.model import Lease, Operation, Plan
from opledger.rules.projection import Entry, project
from opledger.store import encoding, packing, rows
from opledger.store.statements import Prepared, Tongue, Tx
from opledger.store.tables import ANSWER, EVENT, OPERATION, TOMBSTONE
from opledger.store.values import Changed, Declined, JobIdTaken, Recorded, Write

Outcome = Recorded | Declined
JobKey = tuple[str, str]  # contract, remote job id
o: Final = OPERATION.c


# --- statements -------------------------------------------------------------------------------------------------


def heads(tongue: Tongue) -> ClauseElement:
    """Lock some operations, and say who holds them and how far their journals go. In order of id: no deadlocks."""
    return (
        select(o.operation_id, o.version, o.head_hash, o.lease_owner, o.lease_epoch, o.lease_expires_at)
        .where(tongue.among(o.operation_id, "ids"))
        .order_by(o.operation_id)
        .with_for_update()
    )


def records(tongue: Tongue) -> ClauseElement:
    """The full rows of some operations."""
    return select(OPERATION).where(tongue.among(o.operation_id, "ids"))


def insert_event(_: Tongue) -> ClauseElement:
    """One journal row, in the order of the table's columns."""
    return insert(EVENT)


def insert_answer(tongue: Tongue) -> ClauseElement:
    """One answer, unless it is there already."""
    return tongue.insert(ANSWER).on_conflict_do_nothing()


def _job_holders(tongue: Tongue) -> ClauseElement:
    t = TOMBSTONE.c
    return union_all(
        select(o.contract, o.remote_job_id, o.operation_id).where(tongue.among(o.remote_job_id, "jobs")),
        select(t.contract, t.remote_job_id, t.operation_id).where(tongue.among(t.remote_job_id, "jobs")),
    )


def _news(_: Tongue) -> ClauseElement:
    return (
        select(EVENT.c.kind, EVENT.c.actor)
        .where(EVENT.c.operation_id == bindparam("operation_id"), EVENT.c.seq > bindparam("seq"))
        .order_by(EVENT.c.seq)
        .limit(5)
    )


def _update(tx: Tx, columns: tuple[str, ...]) -> Prepared:
    """The guarded UPDATE of just these columns: an index whose columns are not named costs nothing."""
    found = tx.known.get(columns)
    if found is None:
        statement = (
            update(OPERATION)
            .ordered_values(*((o[name], bindparam(name)) for name in columns))
            .where(
                o.operation_id == bindparam("old_id"),
                o.version == bindparam("old_version"),
                o.lease_epoch == bindparam("old_epoch"),
            )
        )
        found = tx.known[columns] = tx.tongue.compile(statement)
    return found


# --- the truth under lock ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seat:
    """One operation inside the transaction: as it was found, and as the writes so far have left it."""

    found: Operation
    epoch: int
    owner: str | None
    expires_at: int | None
    now: Operation
    released: bool = False
    changed: dict[str, Any] = field(default_factory=dict)  #: column -> value, of all writes so far

    @property
    def lease(self) -> Lease | None:
        """The lease as it was found."""
        if self.owner is None or self.expires_at is None:
            return None
        return Lease(self.owner, self.epoch, encoding.from_micros(self.expires_at))

    def reset(self) -> None:
        """Back to how the operation was found."""
        self.now, self.released, self.changed = self.found, False, {}


def sit(tx: Tx, writes: Sequence[Write]) -> dict[str, Seat]:
    """Lock the operations of the writes and read them, where the writers' own copies are not still true."""
    copies = {write.operation_id: write.basis for write in writes}
    locked = {row[0]: row for row in tx.all(heads, ids=tx.tongue.several(copies))}
    known: dict[str, Operation] = {}
    for operation_id, basis in copies.items():
        row = locked.get(operation_id)
        if row is not None and basis is not None and basis.version == row[1] and basis.head_hash == row[2].hex():
            known[operation_id] = basis
    unread = locked.keys() - known.keys()
    if unread:
        for row in tx.all(records, ids=tx.tongue.several(unread)):
            known[row[0]] = rows.from_row(row)
    seats = {}
    for operation_id, (_, _, _, owner, epoch, expires_at) in locked.items():
        operation = known[operation_id]
        seats[operation_id] = Seat(operation, epoch, owner, expires_at, operation)
    return seats


# --- judging ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Batch:
    """What some writes have come to, before anything is written."""

    outcomes: list[Outcome]
    events: list[tuple[Any, ...]]
    answers: dict[bytes, tuple[Any, ...]]
    jobs: dict[JobKey, str]  #: job ids that were newly bound, and to which operation


def record(tx: Tx, writes: Sequence[Write]) -> list[Outcome]:
    """Record the writes, each with its own outcome."""
    if not writes:
        return []
    seats = sit(tx, writes)
    # Asked after the locks are held: waiting for them takes time off a lease.
    clock = tx.clock() if any(write.live for write in writes) else None
    batch = _judge(tx, writes, seats, {}, clock)
    taken = _taken(tx, batch.jobs) if batch.jobs else {}
    if taken:
        # Rare, and a provider's fault: judge all again, knowing now which job ids belong to somebody else.
        for seat in seats.values():
            seat.reset()
        batch = _judge(tx, writes, seats, taken, clock)
    _store(tx, batch, seats.values())
    return batch.outcomes


def _judge(
    tx: Tx, writes: Sequence[Write], seats: dict[str, Seat], taken: dict[JobKey, str], clock: int | None
) -> Batch:
    batch = Batch([], [], {}, {})
    for write in writes:
        seat = seats.get(write.operation_id)
        if seat is None:
            batch.outcomes.append(Declined(unknown(write.operation_id), None))
            continue
        try:
            _may_write(tx, write, seat, clock)
            batch.outcomes.append(_apply(write, seat, taken, batch))
        except OpledgerError as error:
            batch.outcomes.append(Declined(error, seat.now))
    return batch


def unknown(operation_id: str) -> UnknownOperation:
    """The refusal for an id that nobody has."""
    return UnknownOperation(f"there is no operation {operation_id} in this ledger; check the id")


def _may_write(tx: Tx, write: Write, seat: Seat, clock: int | None) -> None:
    fence = write.fence
    if fence is not None:
        if seat.released or seat.owner != fence.owner or seat.epoch != fence.epoch:
            holder = "nobody" if seat.released or seat.owner is None else seat.owner
            raise LeaseLost(
                f"{fence.owner} no longer holds {write.operation_id} (its take-over {fence.epoch}; now {holder}, "
                f"take-over {seat.epoch}): its {write.evidence.kind} was not recorded"
            )
        moment = encoding.to_micros(write.at) if clock is None else clock
        if write.live and (seat.expires_at is None or seat.expires_at <= moment):
            raise LeaseLost(f"the lease of {fence.owner} on {write.operation_id} has run out: nothing may be sent")
    if write.expected_version is not None and write.expected_version != seat.now.version:
        raise Changed(_what_changed(tx, write.expected_version, seat))


def _what_changed(tx: Tx, version: int, seat: Seat) -> str:
    operation = seat.now
    news = tx.all(_news, operation_id=operation.operation_id, seq=version)
    since = ", ".join(f"{kind} by {actor}" for kind, actor in news) or "another write"
    return (
        f"{operation.operation_id} has changed since you looked ({since}) and is now {operation.state}: "
        "look again and decide anew"
    )


def _apply(write: Write, seat: Seat, taken: dict[JobKey, str], batch: Batch) -> Recorded:
    before = seat.now
    entry = Entry(
        write.operation_id, before.head_seq + 1, write.at, write.actor, write.evidence, write.cause, write.reason
    )
    after = project(before, entry)
    job = None
    if after.remote_job_id is not None and after.remote_job_id != before.remote_job_id:
        job = (after.contract, after.remote_job_id)
        other = taken.get(job) or batch.jobs.get(job)
        if other is not None and other != write.operation_id:
            raise JobIdTaken(
                f"{after.contract} gave job {after.remote_job_id} to {other} before: one job cannot be two operations; "
                "ask the provider which it is",
                other,
            )
    plan = write.plan(after)
    # What has ended and has nothing planned is never taken over, so that a lease would stay on it for ever where its
    # holder dies now, or is dead already.
    over = after.state.terminal and plan is None
    released = seat.released or over or (write.release and write.fence is not None)
    lease = None if released else seat.lease
    sealed, event = seal(before, after, entry, plan, lease)
    try:
        columns, values = rows.changes(before, sealed)
    except ValueError as error:
        raise unstorable(entry, error) from error
    # Nothing is kept before the last refusal is behind us.
    seat.now, seat.released = sealed, released
    seat.changed.update(zip(columns, values, strict=True))
    batch.events.append(event)
    if job is not None:
        batch.jobs[job] = write.operation_id
    if write.answer is not None:
        answer = write.answer
        digest = bytes.fromhex(answer.sha256)
        batch.answers[digest] = (digest, answer.content_type, answer.size, int(answer.truncated), answer.body)
    return Recorded(sealed, entry.seq)


def seal(
    before: Operation | None, after: Operation, entry: Entry, plan: Plan | None, lease: Lease | None
) -> tuple[Operation, tuple[Any, ...]]:
    """Put plan, version, chain and lease on a record; return it with its journal row.

    Raises Refused where a text cannot be stored.
    """
    if before is not None and after.state is before.state:
        left, entered = None, None
    else:
        left, entered = (None if before is None else before.state), after.state
    previous = journal.GENESIS if before is None else before.head_hash
    try:
        body = journal.body_of(entry, left, entered, after.remote_job_id, plan)
        digest = journal.link(previous, entry.operation_id, entry.seq, body)
        event = (
            encoding.key(entry.operation_id),
            entry.seq,
            encoding.to_micros(entry.at),
            encoding.text(entry.actor.name),
            entry.evidence.kind,
            None if left is None else left.value,
            None if entered is None else entered.value,
            encoding.text(entry.cause),
            encoding.text(entry.reason),
            encoding.text(after.remote_job_id),
            packing.pack(body),
            bytes.fromhex(previous),
            bytes.fromhex(digest),
            journal.FORMAT,
        )
    except ValueError as error:
        raise unstorable(entry, error) from error
    return rows.sealed(after, plan, entry.seq, digest, lease), event


def unstorable(entry: Entry, error: ValueError) -> Refused:
    """The refusal for a value that one of the databases could not hold."""
    return Refused(f"the {entry.evidence.kind} of {entry.operation_id} cannot be stored: {error}; clean it first")


def _taken(tx: Tx, jobs: dict[JobKey, str]) -> dict[JobKey, str]:
    """The newly bound job ids that already belong to another operation, and to which."""
    held = tx.all(_job_holders, jobs=tx.tongue.several({job_id for _, job_id in jobs}))
    return {
        (contract, job_id): holder
        for contract, job_id, holder in held
        if jobs.get((contract, job_id), holder) != holder
    }


# --- writing ----------------------------------------------------------------------------------------------------


def _store(tx: Tx, batch: Batch, seats: Iterable[Seat]) -> None:
    if not batch.events:
        return
    tx.wakes = True
    if batch.answers:
        tx.many(tx.prepared(insert_answer), list(batch.answers.values()))
    store_events(tx, batch.events)
    grouped: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for seat in seats:
        if seat.now is seat.found:
            continue
        if seat.released:
            seat.changed.update(lease_owner=None, lease_expires_at=None)
        guard = (seat.found.operation_id, seat.found.version, seat.epoch)
        grouped.setdefault(tuple(seat.changed), []).append((*seat.changed.values(), *guard))
    for columns, values_of_all in grouped.items():
        if tx.many(_update(tx, columns), values_of_all) != len(values_of_all):
            raise StoreUnavailable("a record changed under its lock: the database does not keep its promises")


def store_events(tx: Tx, events: list[tuple[Any, ...]]) -> None:
    """Append journal rows."""
    tx.many(tx.prepared(insert_event), events)
    tx.events += len(events)
    operation_id, seq, *_ = events[0]
    tx.proof = (operation_id, seq, events[0][12])
