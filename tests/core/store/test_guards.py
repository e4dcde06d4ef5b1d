from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from opledger.errors import IntegrityBroken, StoreUnavailable
from opledger.store import Store, guards, open_database, restore_guards
from opledger.store.statements import Tx
from tests.core.store.making import CONTRACT, bound, opened
from tests.support.databases import admin, as_role, with_database

KEY = "(SELECT operation_id FROM event LIMIT 1)"
ROW = f"{KEY}, 1, 0, 'x', 'Noted', NULL, NULL, 'x', NULL, NULL, x'00', x'00', x'00', 1"

REST = "at, actor, kind, cause, body, prev_hash, hash, format"
COLUMNS = f"operation_id, seq, {REST}"

#: Everything that would change, replace or remove a journal row in an SQLite file.
CHANGES = [
    "UPDATE event SET actor = 'nobody'",
    "UPDATE event SET body = x'00' WHERE seq = 1",
    "UPDATE OR REPLACE event SET seq = 2 WHERE seq = 1",
    "UPDATE OR IGNORE event SET seq = 9 WHERE seq = 1",
    "DELETE FROM event",
    "DELETE FROM event WHERE seq = 1",
    f"INSERT OR REPLACE INTO event VALUES ({ROW})",
    f"REPLACE INTO event VALUES ({ROW})",
    # Through the hidden rowid, under another key.
    f"INSERT OR REPLACE INTO event (rowid, {COLUMNS}) SELECT rowid, 'op_x', 77, {REST} FROM event LIMIT 1",
    f"INSERT INTO event VALUES ({ROW}) ON CONFLICT DO UPDATE SET actor = 'nobody'",
]


def of_operation(column: str) -> str:
    """A column of the one record."""
    return f"(SELECT {column} FROM operation LIMIT 1)"


HEAD = ", ".join(of_operation(column) for column in ("operation_id", "head_seq", "head_hash"))

#: The other tables that only grow: what a row of each looks like, as values.
OTHERS = {
    "ledger": "1, 'ldg_x', 0, 'x'",
    "leaf": f"0, {KEY}, 1, x'00', 1",
    "checkpoint": "1, 0, 1, 1, 1, 0, x'00', x'00', 'x', x'00', x'00', x'00', 0",
    "acknowledgement": "7, 5, 0, 'x', 'x', 0, x'00'",
    "tombstone": f"{HEAD}, 'failed', 'x', NULL, NULL, NULL, NULL, 0, 'x', 'x', 'x', x'00'",
}

#: What a program that has our connection may not do besides.
FORBIDDEN = [
    *CHANGES,
    "DELETE FROM operation",
    "DELETE FROM request",
    *(f"DELETE FROM {table}" for table in OTHERS),
    *(f"UPDATE {table} SET rowid = rowid" for table in OTHERS),
    "UPDATE request SET body = x'00'",
    "UPDATE operation SET request_fingerprint = 'x'",
    "UPDATE operation SET created_at = 0",
    "UPDATE contract SET source = ''",
    "DELETE FROM contract",
    "UPDATE answer SET body = ''",
    "DELETE FROM answer",
    "DROP TRIGGER event_no_update",
    "DROP TABLE event",
    "ALTER TABLE event RENAME TO old_event",
    "ALTER TABLE event DROP COLUMN reason",
    "CREATE TABLE event2 AS SELECT * FROM event",
    "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM operation; END",
    "CREATE TEMP TRIGGER t AFTER INSERT ON event BEGIN SELECT 1; END",
    "CREATE INDEX i ON event (actor)",
    "PRAGMA writable_schema = 1",
    "PRAGMA recursive_triggers = 0",
    "PRAGMA synchronous = 0",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA trusted_schema = 1",
    "PRAGMA ignore_check_constraints = 1",
    "UPDATE sqlite_master SET sql = ''",
    "DELETE FROM sqlite_master WHERE name = 'event_no_update'",
    "UPDATE opledger_version SET version_num = '9999'",
    "ATTACH DATABASE ':memory:' AS other",
    "DETACH DATABASE main",
    "VACUUM",
    "REINDEX",
    "SELECT load_extension('x')",
]


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Store]:
    """A file with some events in it."""
    with Store.open(sqlite_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        bound(store, operation, "j1")
        yield store


def journal_of(path: str) -> list[tuple[object, ...]]:
    """All journal rows, read past the store."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT rowid, * FROM event ORDER BY rowid").fetchall()


@pytest.mark.parametrize("statement", CHANGES)
def test_a_stranger_with_the_file_cannot_change_the_journal_by_accident(ledger: Store, statement: str) -> None:
    """F10: the guards stand in the file itself, also for a tool that knows nothing of us and sets nothing up."""
    path = ledger.database.name
    before = journal_of(path)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="the journal only grows"),
    ):
        connection.execute(statement)
    assert journal_of(path) == before


@pytest.mark.parametrize("table", OTHERS)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {table} SET {column} = {column}",
        "UPDATE OR REPLACE {table} SET rowid = 77",
        "DELETE FROM {table}",
        "INSERT OR REPLACE INTO {table} VALUES ({row})",
        "REPLACE INTO {table} ({columns}) SELECT {columns} FROM {table}",
        "INSERT INTO {table} SELECT * FROM {table} WHERE true ON CONFLICT DO UPDATE SET {column} = {column}",
    ],
)
def test_the_other_papers_only_grow_too(ledger: Store, table: str, statement: str) -> None:
    """A checkpoint that could be written anew would vouch for whatever it is wanted to."""
    with closing(sqlite3.connect(ledger.database.name, isolation_level=None)) as connection:
        connection.execute(f"INSERT INTO {table} VALUES ({OTHERS[table]})")
        before = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        text = statement.format(table=table, column=names[1], row=OTHERS[table], columns=", ".join(names))
        with pytest.raises(sqlite3.IntegrityError, match=f"the journal only grows: no row of {table} can"):
            connection.execute(text)
        assert connection.execute(f"SELECT rowid, * FROM {table}").fetchall() == before


@pytest.mark.parametrize("table", ["answer", "contract"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {table} SET {column} = {column}",
        "UPDATE OR REPLACE {table} SET rowid = 77",
        "DELETE FROM {table}",
        "INSERT OR REPLACE INTO {table} SELECT {forged} FROM {table}",
        "REPLACE INTO {table} (rowid, {columns}) SELECT rowid, {stranger} FROM {table}",
        "INSERT OR IGNORE INTO {table} SELECT {forged} FROM {table}",
        "INSERT INTO {table} SELECT {forged} FROM {table} WHERE true ON CONFLICT DO UPDATE SET {column} = 'forged'",
    ],
)
def test_what_events_cite_only_grows_too(ledger: Store, table: str, statement: str) -> None:
    """An answer and a contract come again and again: the first one stays, whatever stands in a later one."""
    with closing(sqlite3.connect(ledger.database.name, isolation_level=None)) as connection:
        if table == "answer":
            connection.execute("INSERT INTO answer VALUES (x'00', 'text/plain', 1, 0, x'61')")
        before = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
        assert len(before) == 1
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        told = {
            "columns": ", ".join(names),
            "forged": ", ".join([names[0], *(["'forged'"] * (len(names) - 1))]),
            "stranger": ", ".join(["'other'", *(["'forged'"] * (len(names) - 1))]),
        }
        with suppress(sqlite3.IntegrityError):
            connection.execute(statement.format(table=table, column=names[1], **told))
        assert connection.execute(f"SELECT rowid, * FROM {table}").fetchall() == before


@pytest.mark.parametrize(
    ("seq", "digest"),
    [("1", "head_hash"), ("head_seq - 1", "head_hash"), ("head_seq", "x'00'"), ("head_seq + 1", "head_hash")],
)
def test_a_tombstone_names_the_head_of_a_chain(ledger: Store, seq: str, digest: str) -> None:
    """Else a made-up tombstone would let anybody delete a part of a chain, or leave its end behind."""
    head = ", ".join(of_operation(column) for column in ("operation_id", seq, digest))
    with (
        closing(sqlite3.connect(ledger.database.name, isolation_level=None)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="must name the head of an operation's chain"),
    ):
        connection.execute(f"INSERT INTO tombstone VALUES ({OTHERS['tombstone'].replace(HEAD, head)})")


def test_events_can_go_once_a_tombstone_says_so(ledger: Store) -> None:
    """The archive's way out of the journal; the events of every other operation stay."""
    opened(ledger, step="other")
    with closing(sqlite3.connect(ledger.database.name, isolation_level=None)) as connection:
        rows = connection.execute("SELECT operation_id, head_seq, head_hash FROM operation ORDER BY head_seq DESC")
        (first, seq, head), (other, *_) = rows.fetchall()
        values = OTHERS["tombstone"].replace(HEAD, "?, ?, ?")
        connection.execute(f"INSERT INTO tombstone VALUES ({values})", (first, seq, head))
        # What comes behind the head that the tombstone names is in no archive.
        later = f"{seq + 1}, 0, 'x', 'Noted', NULL, NULL, 'x', NULL, NULL, x'00', x'00', x'00', 1"
        connection.execute("BEGIN")
        connection.execute(f"INSERT INTO event VALUES (?, {later})", (first,))
        with pytest.raises(sqlite3.IntegrityError, match="the journal only grows"):
            connection.execute("DELETE FROM event WHERE seq = ?", (seq + 1,))
        connection.execute("ROLLBACK")
        for table in ("event", "request", "operation"):
            connection.execute(f"DELETE FROM {table} WHERE operation_id = ?", (first,))
        assert connection.execute("SELECT operation_id FROM event").fetchall() == [(other,)]
        with pytest.raises(sqlite3.IntegrityError, match="the journal only grows"):
            connection.execute("DELETE FROM event WHERE operation_id = ?", (other,))


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_our_own_connection_refuses_all_but_what_we_do(ledger: Store, statement: str) -> None:
    """A bug (or an injected statement) inside the process finds every way closed (reliability §5.5)."""
    path = ledger.database.name
    before = journal_of(path)
    connection = ledger.database.side.connect(writing=True)  # type: ignore[call-arg]
    with closing(connection), pytest.raises(sqlite3.DatabaseError):
        connection.execute(statement)
    assert journal_of(path) == before
    with closing(sqlite3.connect(path)) as check:
        assert guards.missing("sqlite", check.cursor()) == []


@pytest.mark.parametrize("name", guards.SQLITE)
def test_a_ledger_without_its_guards_is_not_opened(ledger: Store, sqlite_url: str, name: str) -> None:
    """Who removed a guard may have changed history; nothing is added on top before somebody has looked."""
    with closing(sqlite3.connect(ledger.database.name)) as connection:
        connection.execute(f"DROP TRIGGER {name}")
    with pytest.raises(IntegrityBroken, match=name):
        open_database(sqlite_url)
    open_database(sqlite_url, read_only=True).close()  # an auditor must be able to look


def test_a_guard_that_was_made_harmless_is_missed(ledger: Store, sqlite_url: str) -> None:
    """The text is compared, not only the name."""
    with closing(sqlite3.connect(ledger.database.name)) as connection:
        connection.execute("DROP TRIGGER event_no_delete")
        connection.execute("CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT 1; END")
    with pytest.raises(IntegrityBroken, match="event_no_delete"):
        open_database(sqlite_url)


def test_what_would_swallow_rows_is_seen(ledger: Store, sqlite_url: str) -> None:
    """A trigger of somebody else that lets an insert succeed and do nothing: acknowledged, and nowhere."""
    with closing(sqlite3.connect(ledger.database.name)) as connection:
        connection.execute("CREATE TRIGGER quiet BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(IntegrityBroken, match="quiet on event, which is none of ours"):
        open_database(sqlite_url)


RECORD_CHANGES = ["DELETE FROM operation", "DELETE FROM request", "UPDATE request SET url = 'x'"]


@pytest.mark.parametrize("statement", RECORD_CHANGES)
def test_records_stay_as_long_as_their_events(ledger: Store, statement: str) -> None:
    """An operation without its record, or with another request, could not be told from one that never was."""
    with (
        closing(sqlite3.connect(ledger.database.name, isolation_level=None)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="stay until a tombstone stands for them"),
    ):
        connection.execute(statement)


def test_only_while_archiving_can_our_own_connection_let_go(ledger: Store, sqlite_url: str) -> None:
    """And then only of what has a tombstone; a statement that was prepared meanwhile is judged anew afterwards."""
    remove = "DELETE FROM event WHERE operation_id IN (SELECT operation_id FROM event)"
    connection = ledger.database.side.connect(writing=True)  # type: ignore[call-arg]
    with closing(connection):
        with ledger.database.side.archiving(connection):
            with pytest.raises(sqlite3.IntegrityError, match="the journal only grows"):
                connection.execute(remove)
            connection.execute(f"INSERT INTO tombstone VALUES ({OTHERS['tombstone']})")
            assert connection.execute(remove).rowcount > 0
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                connection.execute("DELETE FROM leaf")
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            connection.execute(remove)


def test_the_archive_writes_through_the_front_door(ledger: Store) -> None:
    """`Database.archive` opens that way for one transaction and closes it again, however it ends."""
    operation_id = ledger.queries.list().operations[0].operation_id
    text = f"DELETE FROM event WHERE operation_id = '{operation_id}'"

    def archive(tx: Tx) -> None:
        tx.cursor.execute(f"INSERT INTO tombstone VALUES ({OTHERS['tombstone']})")
        tx.cursor.execute(text)

    with pytest.raises(StoreUnavailable):
        ledger.database.write(archive)
    ledger.database.archive(archive)
    with pytest.raises(StoreUnavailable):
        ledger.database.write(lambda tx: tx.cursor.execute(text))


# --- PostgreSQL -------------------------------------------------------------------------------------------------

POSTGRES_CHANGES = [
    "UPDATE event SET actor = 'nobody'",
    "DELETE FROM event",
    "DELETE FROM event WHERE seq = 1",
    "TRUNCATE event",
    "TRUNCATE event CASCADE",
    "INSERT INTO event SELECT * FROM event LIMIT 1 ON CONFLICT (operation_id, seq) DO UPDATE SET actor = 'nobody'",
    "WITH gone AS (DELETE FROM event RETURNING *) SELECT count(*) FROM gone",
    "MERGE INTO event e USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
    "SET session_replication_role = replica; DELETE FROM event",
]


@pytest.fixture
def server_ledger(postgres_url: str) -> Iterator[Store]:
    """A database with some events in it."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        bound(store, operation, "j1")
        yield store


@pytest.mark.postgres
@pytest.mark.parametrize("statement", POSTGRES_CHANGES)
def test_not_even_a_superuser_changes_the_journal_by_accident(
    server_ledger: Store, postgres_url: str, statement: str
) -> None:
    """F11: ENABLE ALWAYS triggers hold for a superuser too, and in replica mode."""
    count = len(server_ledger.queries.events(server_ledger.queries.list().operations[0].operation_id))
    with admin(postgres_url) as session, pytest.raises(psycopg.Error, match="the journal only grows"):
        session.execute(statement)
    with admin(postgres_url) as session:
        assert session.execute("SELECT count(*) FROM event").fetchone() == (count,)


@pytest.mark.postgres
@pytest.mark.parametrize("table", OTHERS)
def test_a_server_keeps_the_other_papers_too(server_ledger: Store, postgres_url: str, table: str) -> None:
    """Also from a superuser, and in replica mode; a superuser's own login is not asked for rights."""
    assert server_ledger.queries.counts()
    row = OTHERS[table].replace("x'00'", "'\\x00'")
    with admin(postgres_url) as session:
        session.execute(f"INSERT INTO {table} VALUES ({row})")
        first = "one" if table == "ledger" else "operation_id" if table == "tombstone" else "at"
        first = "seq" if table == "leaf" else first
        for statement in (f"UPDATE {table} SET {first} = {first}", f"DELETE FROM {table}", f"TRUNCATE {table}"):
            for mode in ("SET session_replication_role = replica; ", "SET session_replication_role = origin; "):
                with pytest.raises(psycopg.Error, match=f"the journal only grows: no row of {table} can"):
                    session.execute(mode + statement)


@pytest.mark.postgres
@pytest.mark.parametrize("statement", [*RECORD_CHANGES, "TRUNCATE operation CASCADE", "TRUNCATE request"])
def test_a_server_keeps_records_too(server_ledger: Store, postgres_url: str, statement: str) -> None:
    """As on SQLite, and from a superuser."""
    assert server_ledger.queries.counts()
    with admin(postgres_url) as session, pytest.raises(psycopg.Error, match="stay until a tombstone stands for them"):
        session.execute(statement)


@pytest.mark.postgres
def test_a_server_lets_events_go_once_a_tombstone_says_so(server_ledger: Store, postgres_url: str) -> None:
    """As on SQLite: a tombstone names the head, and then that operation's events may go; no others."""
    opened(server_ledger, step="other")
    with admin(postgres_url) as session:
        rows = session.execute(
            "SELECT operation_id, head_seq, head_hash FROM operation ORDER BY head_seq DESC"
        ).fetchall()
        (first, seq, head), (other, *_) = rows
        add = "INSERT INTO tombstone VALUES (%s, %s, %s, 'x', 'x', NULL, NULL, NULL, NULL, 0, 'x', 'x', 'x', '')"
        for wrong in ((first, seq - 1, head), (first, seq, b"no"), (first, seq + 1, head), (other, seq, head)):
            with pytest.raises(psycopg.Error, match="must name the head of an operation's chain"):
                session.execute(add, wrong)
        session.execute(add, (first, seq, head))
        # What comes behind the head that the tombstone names is in no archive.
        later = f"{seq + 1}, 0, 'x', 'Noted', NULL, NULL, 'x', NULL, NULL, '', '', '', 1"
        session.execute("BEGIN")
        session.execute(f"INSERT INTO event VALUES (%s, {later})", (first,))
        with pytest.raises(psycopg.Error, match="the journal only grows"):
            session.execute("DELETE FROM event WHERE seq = %s", (seq + 1,))
        session.execute("ROLLBACK")
        for table in ("event", "request", "operation"):
            session.execute(f"DELETE FROM {table} WHERE operation_id = %s", (first,))
        assert session.execute("SELECT operation_id FROM event").fetchall() == [(other,)]
        with pytest.raises(psycopg.Error, match="the journal only grows"):
            session.execute("DELETE FROM event")


@pytest.mark.postgres
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE event DISABLE TRIGGER event_no_change",
        "ALTER TABLE event ENABLE TRIGGER event_no_truncate",
        "ALTER TABLE event ENABLE REPLICA TRIGGER event_no_change",
        "DROP TRIGGER event_no_change ON event",
        """CREATE OR REPLACE TRIGGER event_no_change BEFORE UPDATE OF reason ON event FOR EACH ROW
           EXECUTE FUNCTION opledger_refuse(); ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_change""",
        # What would swallow rows, so that they are acknowledged and nowhere.
        "CREATE RULE event_no_rows AS ON INSERT TO event DO INSTEAD NOTHING",
        """CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
           CREATE TRIGGER event_no_rows BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION f()""",
        "CREATE OR REPLACE FUNCTION opledger_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        """CREATE OR REPLACE FUNCTION opledger_refuse_delete() RETURNS trigger LANGUAGE plpgsql
           AS 'BEGIN RETURN OLD; END'""",
        """CREATE OR REPLACE TRIGGER event_no_change BEFORE DELETE ON event FOR EACH ROW
           EXECUTE FUNCTION opledger_refuse(); ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_change""",
        """CREATE OR REPLACE TRIGGER event_no_delete BEFORE DELETE ON event FOR EACH ROW WHEN (false)
           EXECUTE FUNCTION opledger_refuse_delete(); ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_delete""",
    ],
)
def test_a_server_without_its_guards_is_not_used(server_ledger: Store, postgres_url: str, change: str) -> None:
    """Each of these would leave the journal open; each is seen at the next start."""
    with admin(postgres_url) as session:
        session.execute(change)
    with pytest.raises(IntegrityBroken, match="event_no_"):
        open_database(postgres_url)
    open_database(postgres_url, read_only=True).close()


@pytest.mark.postgres
def test_the_owner_of_the_table_has_no_right_to_change_rows(postgres_server: str) -> None:
    """Whoever migrates takes the rights from itself, so that a slip is refused before any trigger runs."""
    with admin(postgres_server) as session:
        session.execute("DROP DATABASE IF EXISTS opledger_owned")
        session.execute("DROP ROLE IF EXISTS opledger_owner_alone")
        session.execute("CREATE ROLE opledger_owner_alone LOGIN")
        session.execute("CREATE DATABASE opledger_owned OWNER opledger_owner_alone")
    url = as_role(with_database(postgres_server, "opledger_owned"), "opledger_owner_alone")
    with Store.open(url) as store:
        store.pin_contract(CONTRACT)
        opened(store)
    for statement in (
        "UPDATE event SET actor = ''",
        "TRUNCATE event",
        "DELETE FROM leaf",
        "UPDATE tombstone SET seq = 1",
    ):
        with admin(url) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(statement)
    with admin(url) as session, pytest.raises(psycopg.Error, match="the journal only grows"):
        session.execute("DELETE FROM event")  # its right, for the archive; the guard holds


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_guards_can_be_restored(request: pytest.FixtureRequest, kind: str) -> None:
    """Once somebody knows why they were gone, the ledger must be usable again."""
    url = str(request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url"))
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("DROP TRIGGER event_no_delete")
    else:
        with admin(url) as session:
            session.execute("DROP TRIGGER event_no_change ON event")
    with pytest.raises(IntegrityBroken):
        open_database(url)
    restore_guards(url)
    open_database(url).close()


def test_the_guards_are_written_in_one_place(tmp_path: Path) -> None:
    """A migration calls `install` last, whatever it did to the tables; calling it again changes nothing."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    open_database(url).close()
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as connection:
        guards.install("sqlite", connection.execute)
        assert guards.missing("sqlite", connection.cursor()) == []
    open_database(url).close()
