"""What a driver's exception means: try the whole transaction again, on a new connection, or give up and say why."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Remedy(Enum):
    """What to do about it."""

    AGAIN = "again"  #: somebody else was in the way; nothing was written
    RECONNECT = "reconnect"  #: the connection is gone; whether a commit went through is unknown
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A remedy, and the sentence for the person who must act if it does not help."""

    remedy: Remedy
    sentence: str


_SQLITE: Final = {
    sqlite3.SQLITE_BUSY: (Remedy.AGAIN, "is locked by another process; see which one holds it and try again"),
    sqlite3.SQLITE_LOCKED: (Remedy.AGAIN, "is locked by another connection of this process; try again"),
    sqlite3.SQLITE_READONLY: (Remedy.GIVE_UP, "cannot be written: the file or its folder is read-only for this user"),
    sqlite3.SQLITE_PERM: (Remedy.GIVE_UP, "may not be used by this user; check the file's owner and mode"),
    sqlite3.SQLITE_CANTOPEN: (Remedy.GIVE_UP, "cannot be opened; check that the path is right and may be read"),
    sqlite3.SQLITE_NOTADB: (Remedy.GIVE_UP, "is not an SQLite database; check the path"),
    sqlite3.SQLITE_CORRUPT: (Remedy.GIVE_UP, "is damaged; stop all workers, keep the file and restore a backup"),
    sqlite3.SQLITE_FULL: (Remedy.GIVE_UP, "cannot grow: the disk is full; make room and try again"),
    sqlite3.SQLITE_IOERR: (Remedy.GIVE_UP, "could not be read or written by the disk; check the disk and try again"),
    sqlite3.SQLITE_AUTH: (Remedy.GIVE_UP, "refused a statement that opledger never runs"),
}


def of_sqlite(error: sqlite3.Error, name: str) -> Trouble:
    """Read an SQLite error. `name` is what people call the database."""
    code = getattr(error, "sqlite_errorcode", None)
    known = None if code is None else _SQLITE.get(code & 0xFF)
    if known is None:
        return Trouble(Remedy.GIVE_UP, f"the database {name} refused a statement ({error}); nothing was written")
    return Trouble(known[0], f"the database {name} {known[1]}")


_AGAIN: Final = frozenset({"23505", "40001", "40P01", "55P03"})
"""Unique violation (the other writer has committed by now, so the next try sees it), serialisation, deadlock, lock."""

_POSTGRES: Final = {
    "25006": "only allows reading (a standby, or set to read-only); use the primary server",
    "42501": "does not allow this role to do that; grant it the worker role (see the README) or use another login",
    "53100": "cannot grow: the server's disk is full; make room and try again",
    "57014": "took too long over a statement and was stopped; see what else keeps the server busy",
    "55P03": "is locked by another session; see which one holds it and try again",
    "40P01": "was in a deadlock again and again; see what else writes to it",
    "3D000": "does not exist; create it first (`createdb`)",
    "28P01": "refused the password; correct it in OPLEDGER_DB",
    "28000": "refused this login; correct it in OPLEDGER_DB or in pg_hba.conf",
    "42P01": "lacks a table of opledger; was it restored in part?",
    "23505": "already holds such a row, though none is visible; run `opledger audit verify`",
}


def of_postgres(error: Exception, name: str, *, closed: bool, lost: bool) -> Trouble:
    """Read a psycopg error. `closed`: the connection did not survive it; `lost`: it is of the kind that says so."""
    state = getattr(error, "sqlstate", None)
    if state in _AGAIN and not closed:
        return Trouble(Remedy.AGAIN, f"the database {name} {_POSTGRES.get(state, 'could not serialise a write')}")
    if state in _POSTGRES:
        return Trouble(Remedy.GIVE_UP, f"the database {name} {_POSTGRES[state]}")
    if closed or (lost and state is None) or (state or "").startswith(("08", "57P")):
        return Trouble(
            Remedy.RECONNECT, f"the database {name} cannot be reached ({first_line(error)}); is the server running?"
        )
    sentence = f"the database {name} refused a statement ({first_line(error)}); nothing was written"
    return Trouble(Remedy.GIVE_UP, sentence)


def first_line(error: Exception) -> str:
    """The first line of a driver's message: the rest shows statements and values."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
