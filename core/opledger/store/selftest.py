"""What must not work, tried at every start: in a transaction that is rolled back, on the login that will be used.

That a guard stands in the catalogue says that it was made; that its statement is refused says that it holds. Which
rights a login has on a server only a try on that login can tell (reliability.md, 5.5).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opledger.store.guards import APPEND_ONLY, GUARDED, RECORDS
from opledger.store.tables import METADATA

if TYPE_CHECKING:
    from opledger.store.sqlite import SqliteFile


@dataclass(frozen=True, slots=True)
class Tried:
    """How it went."""

    login: str | None  #: the role on the server; None for a file
    owner: bool  #: it owns the tables, or is a superuser: then only triggers hold it back
    count: int
    open: tuple[str, ...]  #: the statements that went through: none may


# --- a file ------------------------------------------------------------------------------------------------------

_SCHEMA: Final = (
    "PRAGMA writable_schema = 1",
    "PRAGMA recursive_triggers = 0",
    "PRAGMA trusted_schema = 1",
    "PRAGMA synchronous = 0",
    "ATTACH DATABASE ':memory:' AS other",
    "CREATE TEMP TRIGGER probe BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END",
)


def _on_file(table: str) -> tuple[str, ...]:
    return (
        f"UPDATE {table} SET rowid = rowid",  # noqa: S608 - names of our own
        f"DELETE FROM {table}",  # noqa: S608
        f"DROP TABLE {table}",
        f"ALTER TABLE {table} RENAME TO probe",
        f"DROP TRIGGER {table}_no_delete",
    )


FILE: Final = (*_SCHEMA, *(one for table in APPEND_ONLY for one in _on_file(table)), "DELETE FROM operation")
"""For the authorizer, which is asked when a statement is prepared: they are only explained, and never run."""


def _on_guards(table: str) -> tuple[str, ...]:
    last = f"(SELECT max(rowid) FROM {table})"  # noqa: S608 - names of our own
    replace = f"INSERT OR REPLACE INTO {table} SELECT * FROM {table} WHERE rowid = {last}"  # noqa: S608
    return (
        f"UPDATE {table} SET rowid = rowid WHERE rowid = {last}",  # noqa: S608
        f"DELETE FROM {table} WHERE rowid = {last}",  # noqa: S608
        replace,
    )


GUARDS: Final = (
    *(one for table in APPEND_ONLY for one in _on_guards(table)),
    *(f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})" for table in RECORDS),  # noqa: S608
)
"""For the triggers, past the authorizer. A table that is still empty has nothing that could be changed."""


def try_file(side: SqliteFile) -> Tried:
    """Try everything on an SQLite file. Raises sqlite3.Error where that cannot be done."""
    went: list[str] = []
    with closing(side.connect(writing=True)) as connection:
        for statement in FILE:
            try:
                connection.execute(f"EXPLAIN {statement}")
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_AUTH:
                    raise
            else:
                went.append(statement)
    count = len(FILE)
    if not went:
        with closing(side.connect(writing=True, guarded=False)) as connection:
            count += _try_guards(side, connection, went)
    return Tried(None, owner=True, count=count, open=tuple(went))


def _try_guards(side: SqliteFile, connection: sqlite3.Connection, went: list[str]) -> int:
    try:
        side.start(connection.cursor())
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return 0  # somebody writes for long; the catalogue was compared, and that must do
    try:
        for statement in GUARDS:
            try:
                if connection.execute(statement).rowcount > 0:
                    went.append(statement)
            except sqlite3.IntegrityError:
                continue
    finally:
        connection.execute("ROLLBACK")
    return len(GUARDS)


# --- a server ----------------------------------------------------------------------------------------------------

_WHO: Final = """
SELECT current_user, r.rolsuper, r.rolsuper OR pg_has_role(current_user, c.relowner, 'USAGE')
FROM pg_class c, pg_roles r WHERE c.oid = to_regclass('event') AND r.rolname = current_user
"""


_COLUMNS: Final = {"request": "url", **{table: list(METADATA.tables[table].columns)[-1].name for table in APPEND_ONLY}}
"""One column of each table of which no row may ever change."""


def _changes(table: str) -> tuple[str, ...]:
    one = f"(SELECT ctid FROM {table} LIMIT 1)"  # noqa: S608 - names of our own
    column = _COLUMNS.get(table)
    update = () if column is None else (f"UPDATE {table} SET {column} = {column} WHERE ctid = {one}",)  # noqa: S608
    return (*update, f"DELETE FROM {table} WHERE ctid = {one}")  # noqa: S608


def _schema_changes(table: str) -> tuple[str, ...]:
    return (
        f"ALTER TABLE {table} DISABLE TRIGGER ALL",
        f"DROP TRIGGER {table}_no_truncate ON {table}",
        f"DROP TABLE {table} CASCADE",
        f"CREATE RULE opledger_probe AS ON INSERT TO {table} DO INSTEAD NOTHING",
    )


SERVER: Final = tuple(one for table in GUARDED for one in _changes(table))
TRUNCATES: Final = tuple(f"TRUNCATE {table} CASCADE" for table in GUARDED)
"""Not for a superuser: it would get the lock of the whole table before the trigger refuses."""

OWNERS: Final = (
    *(one for table in GUARDED for one in _schema_changes(table)),
    "CREATE OR REPLACE FUNCTION opledger_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "DROP FUNCTION opledger_refuse() CASCADE",
    "SET LOCAL session_replication_role = replica",
    "UPDATE operation SET contract = contract WHERE ctid = (SELECT ctid FROM operation LIMIT 1)",
)
"""What an owner may do, and nobody else. A login that is refused these is refused before anything is locked."""

# Each statement in a subtransaction of its own, all in one round trip. A statement that was refused for another reason
# than a right or a guard ends it all: then nothing is known.
_TRY: Final = """
DO $try$
DECLARE statement text; went boolean; hit bigint; found text := '';
BEGIN
  FOREACH statement IN ARRAY ARRAY[{statements}] LOOP
    went := false;
    BEGIN
      EXECUTE statement;
      GET DIAGNOSTICS hit = ROW_COUNT;
      went := hit > 0 OR left(statement, 6) NOT IN ('UPDATE', 'DELETE');
      RAISE EXCEPTION 'opledger: undone';
    EXCEPTION WHEN insufficient_privilege OR raise_exception OR lock_not_available OR undefined_object THEN
      IF went THEN found := found || statement || chr(10); END IF;
    END;
  END LOOP;
  PERFORM set_config('opledger.open', found, true);
END $try$
"""


def try_server(cursor: Any) -> Tried:
    """Try everything on a server, with the rights of this session. Raises the driver's errors."""
    cursor.execute(_WHO)
    login, superuser, owner = cursor.fetchone()
    statements = (*SERVER, *(() if superuser else TRUNCATES), *(() if owner else OWNERS))
    array = ", ".join("'{}'".format(one.replace("'", "''")) for one in statements)
    cursor.execute("BEGIN")
    try:
        cursor.execute("SET LOCAL lock_timeout = '200ms'")
        cursor.execute(_TRY.format(statements=array))
        cursor.execute("SELECT current_setting('opledger.open')")
        went = cursor.fetchone()[0]
    finally:
        cursor.execute("ROLLBACK")
    return Tried(login, owner, len(statements), tuple(went.splitlines()))
