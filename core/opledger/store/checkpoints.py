"""Checkpoints as the table has them, what the ledger is called outside, and what people have given up of it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ClauseElement, bindparam, func, insert, select

from opledger.errors import IntegrityBroken
from opledger.rules import notes
from opledger.rules.auditlog import Acknowledgement
from opledger.rules.tree import Tree
from opledger.store.encoding import from_micros, to_micros
from opledger.store.engine import Database
from opledger.store.statements import Tongue, Tx
from opledger.store.tables import ACKNOWLEDGEMENT, ANCHORED, CHECKPOINT, LEDGER

JUMP: Final = 1_000
"""By how much fences leave the highest one behind that is known of what was given up; some are not known."""

LOCK: Final = 0x6F706C6564676572 + 1
"""On PostgreSQL: held by whoever writes a checkpoint, or gives some up."""

_a, _c = ANCHORED.c, CHECKPOINT.c


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the ledger is called outside, and the key that it was first given."""

    ledger_id: str
    created_at: datetime
    public: bytes

    @property
    def origin(self) -> str:
        """The name in its notes."""
        return f"opledger/{self.ledger_id}"


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest checkpoint, as the table has it."""

    number: int
    at: datetime
    operations: int
    events: int
    epoch: int
    tree: Tree
    note: str
    hash: bytes
    mark: int


def _wait(_: Tongue) -> ClauseElement:
    return select(func.pg_advisory_xact_lock(LOCK))


def wait_turn(tx: Tx) -> None:
    """Wait until nobody else writes a checkpoint; on SQLite nobody can, beside a transaction that writes."""
    if tx.tongue.kind == "postgresql":
        tx.all(_wait)


# --- the ledger's name --------------------------------------------------------------------------------------------


def _ledger(_: Tongue) -> ClauseElement:
    return select(LEDGER.c.ledger_id, LEDGER.c.created_at, LEDGER.c.public_key).where(LEDGER.c.one == 1)


def _name(_: Tongue) -> ClauseElement:
    return insert(LEDGER)


def ledger(database: Database) -> Ledger | None:
    """What the ledger is called; None as long as nobody has made a checkpoint."""
    return database.read(_read_ledger)


def _read_ledger(tx: Tx) -> Ledger | None:
    row = tx.one(_ledger)
    if row is None:
        return None
    try:
        public = base64.b64decode(row[2], validate=True)
    except ValueError:
        public = b""
    return Ledger(row[0], from_micros(row[1]), public)


def name_ledger(database: Database, ledger_id: str, public: bytes, now: datetime) -> Ledger:
    """Give the ledger its name and key; where it has some by now, those are returned."""

    def work(tx: Tx) -> Ledger:
        wait_turn(tx)
        found = _read_ledger(tx)
        if found is not None:
            return found
        row = (1, ledger_id, to_micros(now), base64.b64encode(public).decode())
        tx.many(tx.prepared(_name), [row])
        return Ledger(ledger_id, now, public)

    return database.write(work)


# --- reading ------------------------------------------------------------------------------------------------------


def _newest(_: Tongue) -> ClauseElement:
    return select(CHECKPOINT).order_by(_c.number.desc()).limit(1)


def _covering(_: Tongue) -> ClauseElement:
    number = bindparam("number", type_=BigInteger)
    a = ACKNOWLEDGEMENT.c
    return (
        select(*(a[name] for name in Acknowledgement._fields), _c.note)
        .join(CHECKPOINT, _c.number == a.abandoned_to + 1)
        .where(a.abandoned_from <= number, a.abandoned_to >= number)
    )


def _highest(_: Tongue) -> ClauseElement:
    return select(func.coalesce(func.max(ACKNOWLEDGEMENT.c.abandoned_to), 0))


def _hash_of(_: Tongue) -> ClauseElement:
    return select(_c.hash).where(_c.number == bindparam("number", type_=BigInteger))


def _after(_: Tongue) -> ClauseElement:
    number = bindparam("number", type_=BigInteger)
    return select(_c.number, _c.note).where(_c.number > number).order_by(_c.number).limit(bindparam("most"))


def newest(database: Database) -> Newest | None:
    """The newest checkpoint, or None. Raises IntegrityBroken where its row cannot be one that opledger wrote."""
    return database.read(read_newest)


def read_newest(tx: Tx) -> Newest | None:
    """As `newest`, in a transaction."""
    row = tx.one(_newest)
    if row is None:
        return None
    number, at, size, operations, events, epoch, root, _, note, digest, _, peaks, mark = row
    try:
        grown = Tree.of(size, bytes(peaks))
        fits = grown.root == bytes(root) and notes.hash_of(note) == bytes(digest) and type(mark) is int
    except (ValueError, TypeError) as error:
        raise _broken(number) from error
    if not fits:
        raise _broken(number)
    return Newest(number, from_micros(at), operations, events, epoch, grown, note, bytes(digest), mark)


def _broken(number: Any) -> IntegrityBroken:
    return IntegrityBroken(
        f"checkpoint {number} in the database is not as it was written: nothing is built upon it; find out what "
        "happened with: opledger audit verify"
    )


def has(database: Database, number: int, digest: bytes) -> bool:
    """Whether the note of this number and hash is in the table."""
    row = database.read(lambda tx: tx.one(_hash_of, number=number))
    return row is not None and bytes(row[0]) == digest


def given_up(database: Database, number: int) -> list[tuple[Acknowledgement, Any]]:
    """What says that a number was given up, each with the note behind it, which must be signed and name its digest."""
    found = database.read(lambda tx: tx.all(_covering, number=number))
    return [(Acknowledgement(*row[:-1]), row[-1]) for row in found]


def last_given_up(database: Database) -> int:
    """The highest number that anything in the table says was given up, whoever put that there; 0: none."""
    return int(database.read(lambda tx: tx.all(_highest))[0][0])


def notes_after(database: Database, number: int, most: int = 500) -> list[tuple[int, str]]:
    """The notes behind a number, with their own numbers, the oldest first."""
    return [(row[0], row[1]) for row in database.read(lambda tx: tx.all(_after, number=number, most=most))]


# --- for people ---------------------------------------------------------------------------------------------------


def _covered(_: Tongue) -> ClauseElement:
    """The first checkpoint whose tree holds an operation's newest leaf."""
    size = select(_a.leaf).where(_a.operation_id == bindparam("operation_id")).scalar_subquery()
    return select(_c.number, _c.at, _c.note).where(_c.size > size).order_by(_c.size, _c.number).limit(1)


def _seen(_: Tongue) -> ClauseElement:
    return select(_a.seq).where(_a.operation_id == bindparam("operation_id"))


@dataclass(frozen=True, slots=True)
class Covered:
    """The checkpoint that an operation is in, and up to which of its events."""

    number: int
    at: datetime
    note: str
    seq: int


def covered(database: Database, operation_id: str) -> Covered | None:
    """The first checkpoint that holds the newest leaf of an operation; None where it is in none yet."""

    def work(tx: Tx) -> Covered | None:
        seen, row = tx.one(_seen, operation_id=operation_id), tx.one(_covered, operation_id=operation_id)
        return None if seen is None or row is None else Covered(row[0], from_micros(row[1]), row[2], seen[0])

    return database.read(work, snapshot=True)
