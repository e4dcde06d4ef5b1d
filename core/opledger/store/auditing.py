"""Reads for whoever verifies: rows as they are stored, in slices by operation, each slice seen at one moment.

Nothing is decoded and nothing is trusted here. A slice is short, so that a verification of hours never holds a
snapshot that the database would have to keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import BigInteger, ClauseElement, ColumnElement, LargeBinary, Table, Text, and_, bindparam, func, select

from opledger.errors import StoreUnavailable
from opledger.rules.audit import Leaf
from opledger.rules.auditlog import Acknowledgement, Checkpoint
from opledger.rules.tombstones import Tombstone
from opledger.rules.tree import HEAD
from opledger.store.engine import Database, Work
from opledger.store.packing import row_of
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import (
    ACKNOWLEDGEMENT,
    ANCHORED,
    ANSWER,
    CHECKPOINT,
    CONTRACT,
    EVENT,
    LEAF,
    LEDGER,
    OPERATION,
    REQUEST,
    TOMBSTONE,
)

T = TypeVar("T")
Raw = Sequence[Any]

PAGE: Final = 20_000
"""Leaves that are read at once."""

NONE: Final = 2**62
"""A number behind which there is no checkpoint."""

AT_ONCE: Final = 200
"""Answers that are read at once."""

_FIRST: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class Slice:
    """All that there is of some operations, each kind in order of operation (and seq)."""

    operations: list[Raw]
    events: list[Raw]
    requests: list[Raw]
    tombstones: list[Raw]


@dataclass(frozen=True, slots=True)
class Papers:
    """Checkpoints and what explains them, seen at one moment; leaves were there up to the number `last_leaf`."""

    ledger: tuple[str, str] | None  #: id and public key, as the database has them
    checkpoints: list[Checkpoint]
    acknowledgements: list[Acknowledgement]
    last_leaf: int | None


# --- statements ---------------------------------------------------------------------------------------------------


def _within(table: Table) -> Recipe:
    def recipe(_: Tongue) -> ClauseElement:
        id_ = table.c.operation_id
        return _ordered(table, id_ > bindparam("after", type_=Text), id_ <= bindparam("upto", type_=Text))

    return recipe


def _beyond(table: Table) -> Recipe:
    return lambda _: _ordered(table, table.c.operation_id > bindparam("after", type_=Text))


def _named(table: Table) -> Recipe:
    return lambda tongue: _ordered(table, tongue.among(table.c.operation_id, "ids"))


def _ordered(table: Table, *where: ColumnElement[bool]) -> ClauseElement:
    order = [table.c.operation_id, *([table.c.seq] if table is EVENT else [])]
    return select(table).where(*where).order_by(*order)


_TABLES: Final = (OPERATION, EVENT, REQUEST, TOMBSTONE)
_WITHIN: Final = tuple(_within(table) for table in _TABLES)
_BEYOND: Final = tuple(_beyond(table) for table in _TABLES)
_NAMED: Final = tuple(_named(table) for table in _TABLES)


def _end(table: Table) -> Recipe:
    def recipe(_: Tongue) -> ClauseElement:
        id_ = table.c.operation_id
        step = bindparam("step", type_=BigInteger)
        return select(id_).where(id_ > bindparam("after", type_=Text)).order_by(id_).limit(1).offset(step)

    return recipe


_ENDS: Final = (_end(OPERATION), _end(TOMBSTONE))


def _checkpoints(_: Tongue) -> ClauseElement:
    number = CHECKPOINT.c.number
    most = bindparam("most", type_=BigInteger)
    return select(CHECKPOINT).where(number > bindparam("number", type_=BigInteger)).order_by(number).limit(most)


def _acknowledgements(_: Tongue) -> ClauseElement:
    return select(*(ACKNOWLEDGEMENT.c[name] for name in Acknowledgement._fields)).order_by(
        ACKNOWLEDGEMENT.c.abandoned_to
    )


def _ledger(_: Tongue) -> ClauseElement:
    return select(LEDGER.c.ledger_id, LEDGER.c.public_key).where(LEDGER.c.one == 1)


def _last_leaf(_: Tongue) -> ClauseElement:
    return select(func.max(LEAF.c.number))


def _leaves(_: Tongue) -> ClauseElement:
    number = LEAF.c.number
    return (
        select(LEAF)
        .where(number > bindparam("after", type_=BigInteger), number <= bindparam("last", type_=BigInteger))
        .order_by(number)
        .limit(PAGE)
    )


def _totals(table: Table) -> Recipe:
    return lambda _: select(func.count()).select_from(table)


_COUNT_OPERATIONS: Final = _totals(OPERATION)
_COUNT_EVENTS: Final = _totals(EVENT)
_COUNT_TOMBSTONES: Final = _totals(TOMBSTONE)


# --- reads --------------------------------------------------------------------------------------------------------


def counts(database: Database) -> tuple[int, int, int]:
    """How many operations, events and tombstones there are."""

    def work(tx: Tx) -> tuple[int, int, int]:
        found = [int(tx.all(recipe)[0][0]) for recipe in (_COUNT_OPERATIONS, _COUNT_EVENTS, _COUNT_TOMBSTONES)]
        return found[0], found[1], found[2]

    return database.read(work)


def bounds(database: Database, step: int) -> Iterator[tuple[str, str | None]]:
    """The ends of slices of about `step` operations each: behind the first id, up to the second; None: all the rest."""
    after = ""
    while True:
        found = database.read(partial(_ends, after=after, step=step))
        yield after, found
        if found is None:
            return
        after = found


def _ends(tx: Tx, *, after: str, step: int) -> str | None:
    found = [row[0] for recipe in _ENDS for row in tx.all(recipe, after=after, step=step)]
    return min((one for one in found if isinstance(one, str)), default=None)


def within(database: Database, after: str, upto: str | None) -> Slice:
    """Everything of the operations behind one id and up to another."""
    values = {"after": after} if upto is None else {"after": after, "upto": upto}
    return _slice(database, _BEYOND if upto is None else _WITHIN, values)


def named(database: Database, ids: Sequence[str]) -> Slice:
    """Everything of these operations."""
    return _slice(database, _NAMED, {"ids": database.tongue.several(sorted(ids))})


def _slice(database: Database, recipes: Sequence[Recipe], values: dict[str, Any]) -> Slice:
    def work(tx: Tx) -> Slice:
        operations, events, requests, stones = (tx.all(recipe, **values) for recipe in recipes)
        return Slice(operations, [row_of(event) for event in events], requests, stones)

    return _tolerant(database, work)


def _tolerant(database: Database, work: Work[T]) -> T:
    """Read also texts that are no UTF-8, which an owner of an SQLite file may have put there: as half surrogates."""
    try:
        return database.read(work, snapshot=True)
    except StoreUnavailable:
        if database.kind != "sqlite":
            raise
    connection: Any = None

    def again(tx: Tx) -> T:
        nonlocal connection
        connection = tx.cursor.connection  # type: ignore[attr-defined]
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        return work(tx)

    try:
        return database.read(again, snapshot=True)
    finally:
        if connection is not None:
            connection.text_factory = str


def papers(database: Database, after: int = _FIRST, most: int = NONE) -> Papers:
    """The checkpoints behind a number, at most so many, and what else is needed to judge them."""

    def work(tx: Tx) -> Papers:
        ledgers = tx.all(_ledger)
        return Papers(
            ledger=(ledgers[0][0], ledgers[0][1]) if ledgers and _texts(ledgers[0]) else None,
            checkpoints=[Checkpoint(*row) for row in tx.all(_checkpoints, number=after, most=most)],
            acknowledgements=[Acknowledgement(*row) for row in tx.all(_acknowledgements)],
            last_leaf=tx.all(_last_leaf)[0][0],
        )

    return _tolerant(database, work)


def _texts(row: Raw) -> bool:
    return all(isinstance(value, str) for value in row)  # SQLite keeps whatever is put into a column


def leaves(database: Database, first: int, last: int | None) -> Iterator[Leaf]:
    """The leaves from one number (0: also what should not be there, below it) up to another, in order."""
    after = first - 1 if first else _FIRST
    while last is not None and after < last:
        found = _tolerant(database, partial(_some_leaves, after=after, last=last))
        yield from found
        if len(found) < PAGE:
            return
        after = found[-1].number


def _some_leaves(tx: Tx, *, after: int, last: int) -> list[Leaf]:
    return [Leaf(*row) for row in tx.all(_leaves, after=after, last=last)]


def tombstones(database: Database, ids: Sequence[str]) -> list[Tombstone]:
    """The tombstones of these operations."""
    found = database.read(lambda tx: tx.all(_NAMED[3], ids=database.tongue.several(ids)))
    return [Tombstone(*row) for row in found]


def _archives(_: Tongue) -> ClauseElement:
    file, sha256 = TOMBSTONE.c.file, TOMBSTONE.c.file_sha256
    return select(file, sha256, func.count()).group_by(file, sha256).order_by(file)


def archives(database: Database) -> list[tuple[Any, Any, int]]:
    """The files that tombstones name: where each was written, its SHA-256, how many operations lie in it."""
    return [(row[0], row[1], int(row[2])) for row in _tolerant(database, lambda tx: tx.all(_archives))]


_IS_LEAF: Final = and_(
    LEAF.c.number == ANCHORED.c.leaf, LEAF.c.operation_id == ANCHORED.c.operation_id, LEAF.c.kind == HEAD
)
"""Where `anchored` points to a leaf of its own operation: then that leaf counts, and never what is said beside it."""


def _moved(_: Tongue) -> ClauseElement:
    seen = OPERATION.outerjoin(ANCHORED, ANCHORED.c.operation_id == OPERATION.c.operation_id).outerjoin(LEAF, _IS_LEAF)
    newer = OPERATION.c.head_seq > func.coalesce(LEAF.c.seq, 0)
    return select(OPERATION.c.operation_id).select_from(seen).where(newer)


def _anchored(tongue: Tongue) -> ClauseElement:
    seen = select(ANCHORED.c.operation_id, LEAF.c.seq).select_from(ANCHORED.join(LEAF, _IS_LEAF))
    return seen.where(tongue.among(ANCHORED.c.operation_id, "ids"))


def _astray(_: Tongue) -> ClauseElement:
    seen = ANCHORED.outerjoin(LEAF, and_(_IS_LEAF, LEAF.c.seq == ANCHORED.c.seq))
    id_ = ANCHORED.c.operation_id
    return select(id_, ANCHORED.c.seq).select_from(seen).where(LEAF.c.number.is_(None)).order_by(id_).limit(1_000)


def astray(database: Database) -> list[Raw]:
    """Of which operations the checkpointer would believe that they are anchored up to an event, and no leaf says so."""
    return _tolerant(database, lambda tx: tx.all(_astray))


def anchored(database: Database, ids: Sequence[str]) -> dict[str, int]:
    """Up to which event the newest known leaf of each of these operations goes; those that have none are left out."""
    return dict(database.read(lambda tx: tx.all(_anchored, ids=database.tongue.several(ids))))


def moved(database: Database) -> list[str]:
    """The operations whose records say that they have events which no checkpoint has seen."""
    return [row[0] for row in database.read(lambda tx: tx.all(_moved))]


def _contracts(_: Tongue) -> ClauseElement:
    return select(CONTRACT.c.digest, CONTRACT.c.name, CONTRACT.c.source, CONTRACT.c.environment)


def contracts(database: Database) -> list[Raw]:
    """All pinned contracts: digest, name, text, environment."""
    return _tolerant(database, lambda tx: tx.all(_contracts))


_PLACES: Final = tuple(f"digest_{number}" for number in range(AT_ONCE))


def _answers(_: Tongue) -> ClauseElement:
    wanted = [bindparam(place, type_=LargeBinary) for place in _PLACES]
    return select(ANSWER.c.sha256, ANSWER.c.body).where(ANSWER.c.sha256.in_(wanted))


def answers(database: Database, digests: Sequence[bytes]) -> list[Raw]:
    """Those of these answers that are there, at most `AT_ONCE` at a time: hash and body, as they are stored."""
    padded = [*digests, *[digests[0]] * (AT_ONCE - len(digests))]
    return _tolerant(database, lambda tx: tx.all(_answers, **dict(zip(_PLACES, padded, strict=True))))
