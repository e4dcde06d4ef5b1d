"""Letting go of operations that have ended: a tombstone for each, and its rows are deleted, in one transaction.

The guards of the database let only that be deleted for which a tombstone stands, and only such a tombstone be put up
as names the head of the chain. What a tombstone names stays taken: ids, tokens, steps and jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, ClauseElement, Table, Text, and_, bindparam, delete, insert, or_, select

from opledger.errors import Refused, UnknownOperation
from opledger.rules.model import TERMINAL, to_rfc3339
from opledger.rules.tombstones import Tombstone
from opledger.store.encoding import from_micros
from opledger.store.engine import Database
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import ANCHORED, EVENT, OPERATION, REQUEST, TOMBSTONE

BATCH: Final = 200
"""Operations that are let go of in one transaction."""

_ENDED: Final = tuple(sorted(state.value for state in TERMINAL))
o, t, a, e = OPERATION.c, TOMBSTONE.c, ANCHORED.c, EVENT.c


class Archived(UnknownOperation):
    """The operation was here and has been archived; the message says when, by whom and into which file."""

    code = "archived"

    def __init__(self, stone: Tombstone, named: str) -> None:
        super().__init__(
            f"{named} was archived at {to_rfc3339(from_micros(stone.archived_at))} by {stone.by} ({stone.reason}): "
            f"it had ended {stone.state} and lies in {stone.file} "
            f"(SHA-256 {stone.file_sha256.hex()}); look at it there"
        )
        self.stone = stone


# --- statements ---------------------------------------------------------------------------------------------------


def _ripe(tongue: Tongue) -> ClauseElement:
    """What has ended, with nothing left to do, its head in a checkpoint, and its last event before a time."""
    last = and_(e.operation_id == o.operation_id, e.seq == o.head_seq)
    seen = and_(a.operation_id == o.operation_id, a.seq == o.head_seq)
    return (
        select(o.operation_id)
        .select_from(OPERATION.join(EVENT, last).join(ANCHORED, seen))
        .where(
            tongue.among(o.state, "states"),
            e.at < bindparam("before", type_=BigInteger),
            o.next_action.is_(None),
            o.attention_code.is_(None),
            o.lease_owner.is_(None),
            o.operation_id > bindparam("after", type_=Text),
        )
        .order_by(o.operation_id)
        .limit(bindparam("most", type_=BigInteger))
    )


def _locked(tongue: Tongue) -> ClauseElement:
    return (
        select(
            o.operation_id, o.head_seq, o.head_hash, o.state, o.contract, o.idempotency_token, o.remote_job_id, o.task,
            o.step, o.lease_owner,
        )
        .where(tongue.among(o.operation_id, "ids"))
        .order_by(o.operation_id)
        .with_for_update()
    )  # fmt: skip


def _put_up(_: Tongue) -> ClauseElement:
    return insert(TOMBSTONE)


def _delete_from(table: Table) -> Recipe:
    return lambda tongue: delete(table).where(tongue.among(table.c.operation_id, "ids"))


_DELETES: Final = tuple(_delete_from(table) for table in (EVENT, REQUEST, OPERATION))


def _taken(tongue: Tongue) -> ClauseElement:
    """The tombstones that stand in the way of new operations."""
    return select(TOMBSTONE).where(
        or_(
            tongue.among(t.operation_id, "ids"),
            and_(tongue.among(t.task, "tasks"), t.step.is_not(None)),
            tongue.among(t.idempotency_token, "tokens"),
        )
    )


def _named(tongue: Tongue) -> ClauseElement:
    return select(TOMBSTONE).where(tongue.among(t.operation_id, "ids"))


def _ending(_: Tongue) -> ClauseElement:
    return select(TOMBSTONE).where(t.operation_id.endswith(bindparam("ending", type_=Text))).limit(2)


def _in_file(_: Tongue) -> ClauseElement:
    return select(TOMBSTONE).where(t.file_sha256 == bindparam("sha256")).order_by(t.operation_id)


# --- work ---------------------------------------------------------------------------------------------------------


def ripe(database: Database, before: int, after: str = "", most: int = 10_000) -> list[str]:
    """The operations that may be archived whose last event came before a time, behind an id, in order of id."""
    states = database.tongue.several(_ENDED)
    found = database.read(lambda tx: tx.all(_ripe, states=states, before=before, after=after, most=most))
    return [row[0] for row in found]


def heads(database: Database, ids: Sequence[str]) -> list[Tombstone]:
    """What tombstones of these operations would say, without when, by whom, why and where."""
    return database.read(lambda tx: _stones(tx, ids))


def _stones(tx: Tx, ids: Sequence[str]) -> list[Tombstone]:
    return [
        Tombstone._make([*row[:2], bytes(row[2]), *row[3:9], 0, "", "", "", b""])
        for row in tx.all(_locked, ids=tx.tongue.several(ids))
        if row[9] is None and row[3] in _ENDED
    ]


def bury(database: Database, stones: Sequence[Tombstone]) -> None:
    """Put up tombstones and delete what they stand for. Raises Refused where one of them has moved on meanwhile."""
    ids = [stone.operation_id for stone in stones]

    def work(tx: Tx) -> None:
        named = tx.tongue.several(ids)
        found = {one.operation_id: one for one in _stones(tx, ids)}
        for stone in stones:
            now = found.get(stone.operation_id)
            if now is None or (now.seq, now.head_hash) != (stone.seq, stone.head_hash):
                raise Refused(f"{stone.operation_id} has moved on since it was written to {stone.file}; begin again")
        tx.many(tx.prepared(_put_up), [tuple(stone) for stone in stones])
        for recipe in _DELETES:
            tx.run(recipe, ids=named)
        tx.wakes = True

    database.archive(work)


def taken(tx: Tx, ids: Any, tasks: Any, tokens: Any) -> list[Tombstone]:
    """The tombstones that name one of these ids, tasks or tokens (each given through `Tongue.several`)."""
    return [Tombstone(*row) for row in tx.all(_taken, ids=ids, tasks=tasks, tokens=tokens)]


def find(tx: Tx, text: str) -> Tombstone | None:
    """The tombstone that an id, or the end of one, names; None where none or several do."""
    found = tx.all(_named, ids=tx.tongue.several([text]))
    if not found and len(text) >= 8 and "%" not in text and "_" not in text:
        found = tx.all(_ending, ending=text.upper())
    return Tombstone(*found[0]) if len(found) == 1 else None


def in_file(database: Database, sha256: bytes) -> list[Tombstone]:
    """The tombstones that name a file."""
    return [Tombstone(*row) for row in database.read(lambda tx: tx.all(_in_file, sha256=sha256))]
