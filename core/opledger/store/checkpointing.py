"""What the checkpointer reads and writes: which heads moved, the leaves and the note over them, what was given up.

What moved is read outside of the writing transaction, which then only adds rows and is short. In between, only another
checkpointer could come: the number of the newest checkpoint is compared again before anything is written.

SQLite numbers its journal rows in the order of their commits, so what is behind the last number seen has moved. On
PostgreSQL an event may become visible after a later one: there the last seconds are looked at again each time. On both
every operation is looked at now and then (`everything`), so that nothing is left out for good, whatever a mark says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    null,
    select,
    update,
)

from opledger.errors import IntegrityBroken, Refused
from opledger.rules import notes, tree
from opledger.rules.auditlog import Acknowledgement
from opledger.rules.tombstones import Tombstone
from opledger.rules.tree import Tree
from opledger.store.checkpoints import JUMP, LOCK, Newest, read_newest, wait_turn
from opledger.store.directory import OPEN_STATES
from opledger.store.encoding import to_micros
from opledger.store.engine import Database
from opledger.store.statements import Tongue, Tx
from opledger.store.tables import ACKNOWLEDGEMENT, ANCHORED, CHECKPOINT, EVENT, LEAF, OPERATION, TOMBSTONE

PIECE: Final = 5_000
"""Most leaves of one checkpoint, so that no transaction holds SQLite's write lock for long."""

MARGIN: Final = 10_000_000
"""Microseconds behind the newest event seen in which PostgreSQL may still show one that was not visible then."""

ARCHIVED_LATE: Final = 3_600_000_000
"""Microseconds by which the time of a tombstone may lie behind the checkpoint that should have seen it."""

_EVER: Final = -(2**62)
_SWEEP: Final = -1
"""A mark of SQLite that says: look at all records, the row numbers say nothing."""

_rowid: Final[ColumnElement[int]] = literal_column("event.rowid", BigInteger)
_e, _a, _o, _c = EVENT.c, ANCHORED.c, OPERATION.c, CHECKPOINT.c


@dataclass(frozen=True, slots=True)
class Added:
    """A leaf to be: the head of an operation that moved, or its tombstone."""

    operation_id: str
    seq: int
    hash: bytes
    kind: int
    before: int  #: seq of its newest leaf so far; 0: it has none


@dataclass(slots=True)
class Moved:
    """What has happened since the newest checkpoint, seen at one moment."""

    newest: Newest | None
    leaves: list[Added] = field(default_factory=list)
    epoch: int = 0
    mark: int = 0
    more: bool = False  #: there is more than fits into one checkpoint


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint to be written, on top of `before`."""

    before: Moved
    note: str
    parsed: notes.Signed
    tree: Tree


# --- what moved ---------------------------------------------------------------------------------------------------


def _leaf_count(_: Tongue) -> ClauseElement:
    return select(func.coalesce(func.max(LEAF.c.number), -1) + 1)


def _fresh(_: Tongue) -> ClauseElement:
    """SQLite: the journal rows behind a row number."""
    return (
        select(_e.operation_id, _e.seq, _e.hash, _rowid)
        .where(_rowid > bindparam("mark", type_=BigInteger))
        .order_by(_rowid)
        .limit(bindparam("most"))
    )


def _last_row(_: Tongue) -> ClauseElement:
    return select(func.max(_rowid)).select_from(EVENT)


def _recent(_: Tongue) -> ClauseElement:
    """PostgreSQL: the heads that moved, as far as an event since then shows."""
    known = and_(_a.operation_id == _e.operation_id, _a.seq >= _e.seq)
    from sqlalchemy.dialects.postgresql import distinct_on

    return (
        select(_e.operation_id, _e.seq, _e.hash, _e.at)
        .where(_e.at >= bindparam("mark", type_=BigInteger), ~select(_a.seq).where(known).exists())
        .ext(distinct_on(_e.operation_id))
        .order_by(_e.operation_id, _e.seq.desc())
        .limit(bindparam("most"))
    )


def _all_moved(_: Tongue) -> ClauseElement:
    """All heads that moved, found from the records."""
    head = and_(_e.operation_id == _o.operation_id, _e.seq == _o.head_seq)
    return (
        select(_e.operation_id, _e.seq, _e.hash, _e.at)
        .select_from(
            OPERATION.join(EVENT, head).outerjoin(ANCHORED, _a.operation_id == _o.operation_id),
        )
        .where(_o.head_seq > func.coalesce(_a.seq, 0))
        .limit(bindparam("most"))
    )


def _buried(_: Tongue) -> ClauseElement:
    """Tombstones that no leaf holds yet: the operation still has its row of a head."""
    return (
        select(TOMBSTONE)
        .select_from(TOMBSTONE.join(ANCHORED, _a.operation_id == TOMBSTONE.c.operation_id))
        .where(TOMBSTONE.c.archived_at >= bindparam("since", type_=BigInteger))
        .limit(bindparam("most"))
    )


def _known(tongue: Tongue) -> ClauseElement:
    return select(_a.operation_id, _a.seq).where(tongue.among(_a.operation_id, "ids"))


def _fence(tongue: Tongue) -> ClauseElement:
    return select(func.max(_o.lease_epoch)).where(tongue.among(_o.operation_id, "ids"))


def moved(database: Database, *, everything: bool = False, most: int = PIECE) -> Moved:
    """What has happened since the newest checkpoint. Raises IntegrityBroken where nothing can be built upon that."""
    return database.read(lambda tx: _moved(tx, everything=everything, most=most), snapshot=True)


def _moved(tx: Tx, *, everything: bool, most: int) -> Moved:
    found = Moved(read_newest(tx))
    last = found.newest
    if int(tx.all(_leaf_count)[0][0]) != (0 if last is None else last.tree.size):
        raise IntegrityBroken(
            "the leaves in the database are not those of its newest checkpoint: nothing is built upon them; find out "
            "what happened with: opledger audit verify"
        )
    found.mark = 0 if last is None else last.mark
    since = _EVER if everything or last is None else to_micros(last.at) - ARCHIVED_LATE
    graves = [Tombstone(*row) for row in tx.all(_buried, since=since, most=most)]
    if tx.tongue.kind == "sqlite":
        heads = _rows(tx, found, sweep=everything or bool(graves), most=most)
    else:
        heads = _times(tx, found, everything=everything or bool(graves), most=most)
    ids = tx.tongue.several([*heads, *(one.operation_id for one in graves)])
    known = {row[0]: row[1] for row in tx.all(_known, ids=ids)} if heads else {}
    found.leaves = [
        Added(operation_id, seq, digest, tree.HEAD, known.get(operation_id, 0))
        for operation_id, (seq, digest) in heads.items()
        if seq > known.get(operation_id, 0)
    ]
    found.leaves += [Added(one.operation_id, one.seq, one.digest(), tree.TOMBSTONE, one.seq) for one in graves]
    found.more = found.more or len(graves) == most
    found.epoch = 0 if last is None else last.epoch
    if found.leaves:
        found.epoch = max(found.epoch, tx.all(_fence, ids=ids)[0][0] or 0)
    return found


Heads = dict[str, tuple[int, bytes]]


def _rows(tx: Tx, found: Moved, *, sweep: bool, most: int) -> Heads:
    """The heads in the journal rows behind the mark.

    Once the last rows of the journal were archived, their numbers are given again: then all records are looked at.
    """
    end = tx.all(_last_row)[0][0] or 0
    if end < found.mark or found.mark == _SWEEP or (sweep and found.newest is not None):
        heads = tx.all(_all_moved, most=most)
        found.more = len(heads) == most
        found.mark = _SWEEP if found.more else end
        return {row[0]: (row[1], bytes(row[2])) for row in heads}
    fresh: Heads = {}
    rows = tx.all(_fresh, mark=found.mark, most=most)
    for operation_id, seq, digest, number in rows:
        found.mark = number
        if seq > fresh.get(operation_id, (0, b""))[0]:
            fresh[operation_id] = seq, bytes(digest)
    found.more = len(rows) == most
    return fresh


def _times(tx: Tx, found: Moved, *, everything: bool, most: int) -> Heads:
    """The heads that moved since the mark, and a while before it; or all that ever did."""
    if everything or found.newest is None:
        heads = tx.all(_all_moved, most=most)
    else:
        heads = tx.all(_recent, mark=found.mark - MARGIN, most=most)
    found.more = len(heads) == most
    if heads and not found.more:
        # Not beyond the server's own clock: a writer whose clock is ahead must not hide what others write after it.
        found.mark = max(found.mark, min(max(row[3] for row in heads), tx.clock() or 0))
    return {row[0]: (row[1], bytes(row[2])) for row in heads}


# --- writing ------------------------------------------------------------------------------------------------------


def _try(_: Tongue) -> ClauseElement:
    return select(func.pg_try_advisory_xact_lock(LOCK))


def _number(_: Tongue) -> ClauseElement:
    return select(func.coalesce(func.max(_c.number), 0))


def _add_leaf(_: Tongue) -> ClauseElement:
    return insert(LEAF)


def _anchor(tongue: Tongue) -> ClauseElement:
    statement = tongue.insert(ANCHORED)
    new = statement.excluded
    changed = {"seq": new.seq, "leaf": new.leaf}
    return statement.on_conflict_do_update(index_elements=["operation_id"], set_=changed)


def _bury(_: Tongue) -> ClauseElement:
    return delete(ANCHORED).where(_a.operation_id == bindparam("operation_id"))


def _add(_: Tongue) -> ClauseElement:
    return insert(CHECKPOINT)


def add(database: Database, draft: Draft) -> bool:
    """Write a checkpoint and its leaves, in one transaction. False where somebody else was faster: look again."""
    before = draft.before
    first = 0 if before.newest is None else before.newest.tree.size

    def work(tx: Tx) -> bool:
        if tx.tongue.kind == "postgresql" and not tx.all(_try)[0][0]:
            return False
        if tx.all(_number)[0][0] != (0 if before.newest is None else before.newest.number):
            return False
        numbered = list(enumerate(before.leaves, start=first))
        if numbered:
            leaves = [(number, one.operation_id, one.seq, one.hash, one.kind) for number, one in numbered]
            tx.many(tx.prepared(_add_leaf), leaves)
        heads = [(one.operation_id, one.seq, number) for number, one in numbered if one.kind == tree.HEAD]
        if heads:
            tx.many(tx.prepared(_anchor), heads)
        buried = [(one.operation_id,) for one in before.leaves if one.kind == tree.TOMBSTONE]
        if buried:
            tx.many(tx.prepared(_bury), buried)
        tx.many(tx.prepared(_add), [_row(draft)])
        return True

    return database.write(work)


# --- what is given up ---------------------------------------------------------------------------------------------


def _give_up(_: Tongue) -> ClauseElement:
    return insert(ACKNOWLEDGEMENT)


def _jump(tongue: Tongue) -> ClauseElement:
    return (
        update(OPERATION)
        .values(
            lease_epoch=tongue.later(_o.lease_epoch, bindparam("epoch", type_=BigInteger)),
            lease_owner=null(),
            lease_expires_at=null(),
        )
        .where(tongue.among(_o.state, "states"))
    )


def give_up(database: Database, given: Acknowledgement, draft: Draft) -> int:
    """Write down what is given up and the checkpoint that says so, and put the fences of all open operations beyond it.

    Nobody holds a lease afterwards, so what a process of before still wants to write is refused. Returns how many
    operations those were. Raises Refused where another checkpoint or acknowledgement came meanwhile.
    """
    last = draft.before.newest

    def work(tx: Tx) -> int:
        wait_turn(tx)
        if tx.all(_number)[0][0] != (0 if last is None else last.number):
            raise Refused("the ledger has gone on meanwhile; nothing was written: look again")
        tx.many(tx.prepared(_give_up), [tuple(getattr(given, column.name) for column in ACKNOWLEDGEMENT.columns)])
        tx.many(tx.prepared(_add), [_row(draft)])
        jumped = tx.run(_jump, epoch=given.epoch + JUMP, states=tx.tongue.several(OPEN_STATES))
        tx.wakes = True
        return jumped

    return database.write(work)


def _row(draft: Draft) -> tuple[Any, ...]:
    note = draft.parsed.note
    return (
        note.number,
        to_micros(note.at),
        note.size,
        note.operations,
        note.events,
        note.epoch,
        note.root,
        note.previous,
        draft.note,
        draft.parsed.hash,
        draft.parsed.key_id,
        draft.tree.packed,
        draft.before.mark,
    )
