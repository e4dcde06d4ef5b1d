"""Agent tasks: every line of a progress file once more, append-only, and the lease of whoever runs a task.

The row of a task in `task_lease` is locked for every write, so that records have one order. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from sqlalchemy import BigInteger, ClauseElement, bindparam, func, insert, null, select, update

from opledger.errors import LeaseLost, Refused
from opledger.rules.model import to_rfc3339
from opledger.rules.tasks.records import Record
from opledger.store import encoding
from opledger.store.encoding import from_micros, to_micros
from opledger.store.engine import Database
from opledger.store.statements import Tongue, Tx
from opledger.store.task_tables import TASK_LEASE, TASK_RECORD

r: Final = TASK_RECORD.c
l: Final = TASK_LEASE.c  # noqa: E741 - one letter a table, as everywhere in this room


class TaskMoved(Refused):
    """Somebody else has written about the task meanwhile. Nothing was written; look again."""

    code: ClassVar[str] = "task_moved"


@dataclass(frozen=True, slots=True)
class TaskLease:
    """Who runs a task, and until when. `epoch` grows with every take-over; `place` is where it runs."""

    task: str
    run: str
    owner: str | None
    place: str | None
    epoch: int
    expires_at: datetime | None
    held: bool  #: it stands at the moment of reading


@dataclass(frozen=True, slots=True)
class TaskHead:
    """A task as the ledger knows it: its run, how many records there are, and when the last was written."""

    task: str
    run: str
    records: int
    last_at: datetime


# --- writing -----------------------------------------------------------------------------------------------------


def _make(tongue: Tongue) -> ClauseElement:
    into = tongue.insert(TASK_LEASE)
    values = {"task": bindparam("task"), "run": bindparam("run"), "epoch": 0}
    return into.values(values).on_conflict_do_nothing(index_elements=["task"])


def _locked(_: Tongue) -> ClauseElement:
    return select(l.run, l.owner, l.place, l.epoch, l.expires_at).where(l.task == bindparam("task")).with_for_update()


def _last(_: Tongue) -> ClauseElement:
    return select(func.max(r.seq)).where(r.task == bindparam("task"))


def _add(_: Tongue) -> ClauseElement:
    return insert(TASK_RECORD)


def append(tx: Tx, task: str, record: Record, line: bytes, now: datetime, fence: tuple[str, int] | None = None) -> None:
    """Write one record, given with the line that stands for it in the progress file.

    Raises TaskMoved where its number is not the next one or the task has another run, LeaseLost where a `fence`
    (owner, epoch) is given and stale.
    """
    tx.run(_make, task=encoding.key(task), run=encoding.key(record.run))
    run, owner, _, epoch, expires_at = tx.all(_locked, task=task)[0]
    if run != record.run:
        raise TaskMoved(f"task {task} has the run {run}, and this record is of {record.run}; look at it again")
    last = tx.all(_last, task=task)[0][0] or 0
    if record.seq != last + 1:
        raise TaskMoved(f"task {task} has {last} records by now; look at it again")
    if fence is not None and ((owner, epoch) != fence or (expires_at or 0) <= (tx.clock() or to_micros(now))):
        raise LeaseLost(f"task {task} is run by {owner or 'nobody'} now (epoch {epoch}); this runner stops")
    tx.wakes = True
    tx.run(
        _add,
        task=task,
        seq=record.seq,
        run=record.run,
        at=to_micros(record.at),
        actor=encoding.text(record.actor),
        step=encoding.key(record.step),
        kind=str(record.kind),
        place=record.place,
        body=line,
    )


# --- the lease ---------------------------------------------------------------------------------------------------


def _expires(tongue: Tongue) -> Any:
    return tongue.clock + bindparam("lease", type_=BigInteger)


def _take(tongue: Tongue) -> ClauseElement:
    return (
        update(TASK_LEASE)
        .where(l.task == bindparam("task_"))
        .values(owner=bindparam("owner_"), place=bindparam("place_"), epoch=l.epoch + 1, expires_at=_expires(tongue))
    )


def _extend(tongue: Tongue) -> ClauseElement:
    return (
        update(TASK_LEASE)
        .where(
            l.task == bindparam("task_"),
            l.owner == bindparam("owner_"),
            l.epoch == bindparam("epoch_"),
            l.expires_at > tongue.clock,
        )
        .values(expires_at=_expires(tongue))
    )


def _give_back(_: Tongue) -> ClauseElement:
    return (
        update(TASK_LEASE)
        .where(l.task == bindparam("task_"), l.owner == bindparam("owner_"), l.epoch == bindparam("epoch_"))
        .values(owner=null(), place=null(), expires_at=null())
    )


def claim(
    tx: Tx, task: str, run: str, owner: str, place: str, lease: timedelta, *, now: datetime, dead: int | None = None
) -> TaskLease:
    """Take the lease of a task, and return it as it stands then: the owner's, or somebody else's.

    `dead` is the epoch of a holder that is known to have died: its lease need not run out.
    """
    tx.run(_make, task=encoding.key(task), run=encoding.key(run))
    before = tx.all(_locked, task=task)[0]
    clock = tx.clock() or to_micros(now)
    if before[1] is not None and (before[4] or 0) > clock and before[3] != dead:
        return _lease(task, before, clock)
    tx.run(
        _take,
        task_=task,
        owner_=encoding.text(owner),
        place_=place,
        lease=encoding.span_micros(lease),
        now=to_micros(now),
    )
    return _lease(task, tx.all(_locked, task=task)[0], clock)


def renew(tx: Tx, task: str, owner: str, epoch: int, lease: timedelta, now: datetime) -> bool:
    """Extend a lease; False where it is lost."""
    return (
        tx.run(
            _extend,
            task_=task,
            owner_=owner,
            epoch_=epoch,
            lease=encoding.span_micros(lease),
            now=to_micros(now),
        )
        > 0
    )


def release(tx: Tx, task: str, owner: str, epoch: int) -> None:
    """Give a lease back, if it is still held."""
    tx.wakes = True
    tx.run(_give_back, task_=task, owner_=owner, epoch_=epoch)


# --- reading -----------------------------------------------------------------------------------------------------


def _held(_: Tongue) -> ClauseElement:
    return select(l.run, l.owner, l.place, l.epoch, l.expires_at).where(l.task == bindparam("task"))


def _lines(_: Tongue) -> ClauseElement:
    return select(r.body).where(r.task == bindparam("task"), r.seq > bindparam("after")).order_by(r.seq)


def _heads(_: Tongue) -> ClauseElement:
    last = func.max(r.at)
    return (
        select(r.task, func.max(r.run), func.count(), last)
        .group_by(r.task)
        .order_by(last.desc(), r.task)
        .limit(bindparam("most", type_=BigInteger))
    )


def lines(tx: Tx, task: str, after: int = 0) -> list[bytes]:
    """The records of a task as they stand in a progress file, in order, from behind a number on."""
    if not encoding.storable(task):
        return []
    return [bytes(row[0]) for row in tx.all(_lines, task=task, after=after)]


def lease_of(tx: Tx, task: str, now: datetime) -> TaskLease | None:
    """Who runs a task; None where it was never begun."""
    row = tx.one(_held, task=task) if encoding.storable(task) else None
    return None if row is None else _lease(task, row, tx.clock() or to_micros(now))


def heads(tx: Tx, most: int) -> list[TaskHead]:
    """The tasks, the one that was written about last first."""
    return [TaskHead(row[0], row[1], row[2], from_micros(row[3])) for row in tx.all(_heads, most=most)]


def _lease(task: str, row: Sequence[Any], clock: int) -> TaskLease:
    run, owner, place, epoch, expires_at = row
    expires = None if expires_at is None else from_micros(expires_at)
    return TaskLease(task, run, owner, place, epoch, expires, owner is not None and (expires_at or 0) > clock)


def holder(lease: TaskLease) -> str:
    """Say who holds a lease and until when."""
    until = "" if lease.expires_at is None else f" until {to_rfc3339(lease.expires_at)}"
    return f"{lease.owner}{until}"


class TaskStore:
    """What is kept of agent tasks. Every method raises StoreUnavailable where the database cannot do its part."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(
        self, task: str, record: Record, line: bytes, now: datetime, fence: tuple[str, int] | None = None
    ) -> None:
        """Write one record, durably; see the function of this name."""
        self._database.write(lambda tx: append(tx, task, record, line, now, fence))

    def claim(
        self, task: str, run: str, owner: str, place: str, lease: timedelta, *, now: datetime, dead: int | None = None
    ) -> TaskLease:
        """Take the lease of a task, and return it as it stands then; see the function of this name."""
        return self._database.write(lambda tx: claim(tx, task, run, owner, place, lease, now=now, dead=dead))

    def renew(self, task: str, owner: str, epoch: int, lease: timedelta, now: datetime) -> bool:
        """Extend a lease; False where it is lost."""
        return self._database.write(lambda tx: renew(tx, task, owner, epoch, lease, now))

    def release(self, task: str, owner: str, epoch: int) -> None:
        """Give a lease back, if it is still held."""
        self._database.write(lambda tx: release(tx, task, owner, epoch))

    def lines(self, task: str) -> list[bytes]:
        """The records of a task, in order, as they stand in a progress file."""
        return self._database.read(lambda tx: lines(tx, task))

    def lease(self, task: str, now: datetime) -> TaskLease | None:
        """Who runs a task; None where it was never begun."""
        return self._database.read(lambda tx: lease_of(tx, task, now))

    def heads(self, most: int = 200) -> list[TaskHead]:
        """The tasks, the one that was written about last first."""
        return self._database.read(lambda tx: heads(tx, most))
