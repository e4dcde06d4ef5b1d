from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import make_url

from opledger.errors import ConfigWrong, DatabaseReplaced, OpledgerError, SchemaMismatch, StoreUnavailable
from opledger.store import Recorded, Store, open_database, recording, sqlite
from opledger.store.postgres import PostgresServer
from opledger.store.statements import Tx
from tests.core.store.making import CONTRACT, T0, bound, claim, noted, opened, opening, operation_of, sent, write
from tests.support.databases import admin, as_role, with_database


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Store]:
    """A ledger in a file."""
    with Store.open(sqlite_url) as store:
        store.pin_contract(CONTRACT)
        yield store


def path_of(store: Store) -> Path:
    """The file behind a store."""
    return Path(store.database.name)


# --- settings ---------------------------------------------------------------------------------------------------

SETTINGS = {"synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1, "trusted_schema": 0, "journal_mode": "wal"}


def settings(connection: Any) -> dict[str, object]:
    """What SQLite says that it does."""
    cursor = connection.cursor()
    found = {}
    for name in SETTINGS:
        cursor.execute(f"PRAGMA {name}")
        found[name] = cursor.fetchone()[0]
    return found


def test_every_connection_is_durable(ledger: Store) -> None:
    """F1: with synchronous=NORMAL half of all acknowledged commits were lost; so each pooled connection is asked."""
    pool = ledger.database._ready()
    held = [pool.raw_connection() for _ in range(4)]
    assert [settings(connection) for connection in held] == [SETTINGS] * 4
    for connection in held:
        connection.close()
    assert ledger.database.with_writer(settings) == SETTINGS


def test_a_connection_that_cannot_be_made_durable_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SQLite answers counts, not what it was told."""
    monkeypatch.setitem(sqlite._PRAGMAS, "synchronous", 7)
    with pytest.raises(StoreUnavailable, match="synchronous"):
        open_database(sqlite_url)


def test_a_reading_connection_cannot_write(ledger: Store) -> None:
    """Reads for people must not be able to change anything, whatever they are made to run."""

    def work(tx: Tx) -> None:
        tx.cursor.execute("UPDATE operation SET state = 'succeeded'")

    with pytest.raises(StoreUnavailable, match="read-only"):
        ledger.database.read(work)


def test_an_old_sqlite_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library without what the store relies on fails at the start, not at the first claim."""
    monkeypatch.setattr(sqlite, "OLDEST", (99, 0, 0))
    with pytest.raises(StoreUnavailable, match="too old"):
        open_database(sqlite_url)


# --- files ------------------------------------------------------------------------------------------------------


def test_a_new_ledger_is_private(tmp_path: Path) -> None:
    """Requests and answers are nobody else's business: folder 0700, file 0600, side files too."""
    path = tmp_path / "a" / "b" / "ledger.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.pin_contract(CONTRACT)
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    """What somebody else made is not ours to change."""
    tmp_path.chmod(0o755)
    Store.open(f"sqlite:///{tmp_path / 'ledger.db'}").close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "url",
    ["", "ledger.db", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "oracle://x", "sqlite3:///x"],
)
def test_another_kind_of_url_is_a_mistake_in_the_settings(url: str) -> None:
    """The sentence says what to write instead."""
    with pytest.raises(ConfigWrong, match="sqlite:///"):
        open_database(url)


def test_nothing_is_made_where_nothing_may_be_made(tmp_path: Path) -> None:
    """`show` on a wrong path must not leave an empty ledger behind."""
    path = tmp_path / "none" / "ledger.db"
    for how in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreUnavailable, match="there is no database"):
            open_database(f"sqlite:///{path}", **how)
    assert not path.parent.exists()


def test_a_path_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """A file stands where a folder would have to be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        open_database(f"sqlite:///{tmp_path / 'file' / 'ledger.db'}")


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    """The driver's own message would be a riddle."""
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        open_database(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize("how", [{}, {"read_only": True}, {"create": False}])
def test_something_else_is_no_database(tmp_path: Path, how: dict[str, bool]) -> None:
    """It is left exactly as it was."""
    path = tmp_path / "notes.txt"
    path.write_bytes(b"dear diary, " * 1_000)
    with pytest.raises(StoreUnavailable, match="is not an SQLite database"):
        open_database(f"sqlite:///{path}", **how)
    assert path.read_bytes() == b"dear diary, " * 1_000


def test_a_damaged_file_is_said_to_be_damaged(ledger: Store, sqlite_url: str) -> None:
    """A page of rubbish is found, not served (reliability §3.4)."""
    opened(ledger, 300)
    ledger.close()
    path = path_of(ledger)
    content = bytearray(path.read_bytes())
    content[8192 * 2 :] = b"\xff" * (len(content) - 8192 * 2)
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match="damaged"), Store.open(sqlite_url, read_only=True) as reader:
        reader.queries.list()


# --- reading only -----------------------------------------------------------------------------------------------


def test_nothing_is_written_through_a_read_only_ledger(ledger: Store, sqlite_url: str) -> None:
    """Not even by a bug: refused before SQLite is asked, and by SQLite too."""
    (operation,) = opened(ledger)
    with Store.open(sqlite_url, read_only=True) as reader:
        for attempt in (
            lambda: reader.record_many([write(operation, sent())]),
            lambda: reader.open_many([opening()]),
            lambda: reader.claim("w", limit=1, lease=T0 - T0, now=T0),
            lambda: reader.heartbeat("w", "h", 1, T0),
        ):
            with pytest.raises(StoreUnavailable, match="for reading only"):
                attempt()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.database.side.connect(writing=True).execute("DELETE FROM worker")  # type: ignore[call-arg]


def test_a_ledger_on_a_read_only_medium_can_be_read(ledger: Store, tmp_path: Path) -> None:
    """A backup on a read-only disk has no room for a log's side files, and needs none."""
    (operation,) = opened(ledger)
    ledger.close()
    folder = tmp_path / "backup"
    folder.mkdir()
    shutil.copy(path_of(ledger), folder / "ledger.db")
    (folder / "ledger.db-wal").unlink(missing_ok=True)
    with read_only(folder), Store.open(f"sqlite:///{folder / 'ledger.db'}", read_only=True) as reader:
        assert reader.get(operation.operation_id) == operation


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder in which nothing can be made; for root, for whom modes mean nothing, SQLite is told so."""
    patch = pytest.MonkeyPatch()
    real = sqlite3.connect

    def connect(url: str, *rest: Any, **how: Any) -> sqlite3.Connection:
        if str(folder) in url and "immutable" not in url:
            raise sqlite3.OperationalError("unable to open database file")
        return real(url, *rest, **how)

    folder.chmod(0o500)
    patch.setattr("opledger.store.sqlite.sqlite3.connect", connect)
    patch.setattr("opledger.store.sqlite.os.access", lambda *_: False)
    try:
        yield
    finally:
        patch.undo()
        folder.chmod(0o700)


# --- being in each other's way ----------------------------------------------------------------------------------


def test_a_locked_file_is_waited_for_and_then_reported(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """B44: bounded waiting, then one sentence; nothing is half-written."""
    (operation,) = opened(ledger)
    with closing(sqlite3.connect(path_of(ledger), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(sqlite, "BUSY_MS", 5)
        ledger.database._drop_writer()
        with pytest.raises(StoreUnavailable, match="is locked by another process"):
            ledger.record_many([write(operation, sent())])
        assert ledger.get(operation.operation_id) == operation  # reading goes on
        other.execute("ROLLBACK")
    assert operation_of(ledger.record_many([write(operation, sent())])[0]).version == 2


def test_the_lock_of_a_file_is_asked_for_again_at_once(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own wait grows to a tenth of a second; whoever commits often has the lock again long before it ends."""
    (operation,) = opened(ledger)
    waits: list[float] = []
    with closing(sqlite3.connect(path_of(ledger), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 7:
                other.execute("ROLLBACK")

        monkeypatch.setattr(sqlite, "time", SimpleNamespace(sleep=sleep))
        assert operation_of(ledger.record_many([write(operation, sent())])[0]).version == 2
    assert waits == [sqlite.AGAIN_MS / 1_000] * 7
    assert waits[0] <= 0.001


def test_a_write_is_tried_again_as_a_whole(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """B44: repeating the one refused statement could never work; the transaction starts over and reads anew."""
    (operation,) = opened(ledger)
    monkeypatch.setattr(sqlite, "BUSY_MS", 5)
    ledger.database._drop_writer()
    other = sqlite3.connect(path_of(ledger), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tries = []
    real = ledger.database._once

    def once(work: Any) -> Any:
        tries.append(1)
        if len(tries) == 3:
            other.execute("ROLLBACK")
        return real(work)

    monkeypatch.setattr(ledger.database, "_once", once)
    assert operation_of(ledger.record_many([write(operation, sent())])[0]).version == 2
    assert len(tries) == 3
    other.close()


def test_readers_and_writers_on_one_file_do_not_fail(ledger: Store, sqlite_url: str) -> None:
    """B44: a console, two workers and an intake in read-then-write loops, beside one long reader."""
    records = opened(ledger, 8)
    errors: list[OpledgerError] = []
    long_reader = sqlite3.connect(path_of(ledger), isolation_level=None)
    long_reader.execute("BEGIN")
    long_reader.execute("SELECT count(*) FROM event").fetchone()

    def work(number: int) -> None:
        try:
            with Store.open(sqlite_url) as store:
                for turn in range(15):
                    record = store.get(records[(number + turn) % 8].operation_id)
                    outcome = store.record_many([write(record, noted(f"{number}.{turn}"), basis=record)])[0]
                    assert isinstance(outcome, Recorded)
                    store.queries.counts()
        except OpledgerError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    long_reader.close()
    assert errors == []
    assert sum(record.version - 1 for record in ledger.queries.get_many([r.operation_id for r in records])) == 60


def test_a_full_disk_is_one_sentence_and_no_half_write(ledger: Store) -> None:
    """ENOSPC: nothing of the batch is there, and the store goes on once there is room."""
    records = opened(ledger, 3)
    page = ledger.database.with_writer(lambda c: c.execute("PRAGMA journal_mode").fetchone())
    assert page == ("wal",)

    def limit(connection: sqlite3.Connection) -> None:
        connection.set_authorizer(None)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    ledger.database.with_writer(limit)
    big = [write(record, noted("x" * 200_000)) for record in records]
    with pytest.raises(StoreUnavailable, match="disk is full"):
        ledger.record_many(big)
    assert [ledger.get(record.operation_id) for record in records] == records
    assert all(isinstance(outcome, Recorded) for outcome in ledger.record_many(big))


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_file_that_was_taken_away_is_not_written_to(ledger: Store, replaced: bool) -> None:
    """SQLite would acknowledge writes into a file that no path leads to any more."""
    (operation,) = opened(ledger)
    path = path_of(ledger)
    path.rename(path.with_suffix(".old"))
    if replaced:
        shutil.copy(path.with_suffix(".old"), path)
    for attempt in (lambda: ledger.record_many([write(operation, sent())]), lambda: ledger.get(operation.operation_id)):
        with pytest.raises(DatabaseReplaced, match="another file" if replaced else "was removed or renamed"):
            attempt()
    path.with_suffix(".old").replace(path)
    assert operation_of(ledger.record_many([write(operation, sent())])[0]).version == 2


def test_an_interrupted_transaction_leaves_no_lock(ledger: Store) -> None:
    """B46: two hundred interruptions in the middle of writing and reading, then one normal operation."""
    (operation,) = opened(ledger)

    class Stop(BaseException):
        pass

    def stopped(tx: Tx) -> None:
        tx.cursor.execute("UPDATE operation SET last_error = 'half'")
        raise Stop

    def reading(tx: Tx) -> None:
        tx.cursor.execute("SELECT * FROM event")
        raise Stop

    for _ in range(100):
        with pytest.raises(Stop):
            ledger.database.write(stopped)
        with pytest.raises(Stop):
            ledger.database.read(reading, snapshot=True)
    assert ledger.get(operation.operation_id) == operation
    assert operation_of(ledger.record_many([write(operation, sent())])[0]).version == 2


def test_a_snapshot_sees_one_moment(store: Store, second: Store) -> None:
    """A record and its journal must be read together, or a verifier would cry wolf."""
    (operation,) = opened(store)

    def look(tx: Tx) -> tuple[Any, Any]:
        tx.cursor.execute("SELECT head_seq FROM operation")
        before = tx.cursor.fetchall()
        second.record_many([write(operation, sent())])
        tx.cursor.execute("SELECT max(seq) FROM event")
        return before, tx.cursor.fetchall()

    record, journal = store.database.read(look, snapshot=True)
    assert record[0][0] == journal[0][0] == 1
    assert store.get(operation.operation_id).version == 2


def test_a_closed_store_says_so(store: Store) -> None:
    """Using it afterwards is a bug, and is called by its name."""
    store.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        store.get("op_1")
    with pytest.raises(StoreUnavailable, match="is closed"):
        store.open_many([opening()])
    store.close()


# --- uncertain commits ------------------------------------------------------------------------------------------


class Flaky:
    """A connection whose first commit loses its answer, after or before the commit was done."""

    def __init__(self, real: Any, *, stored: bool) -> None:
        self.real = real
        self.stored = stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def cursor(self) -> Any:
        """A cursor that breaks on COMMIT."""
        return FlakyCursor(self)


class FlakyCursor:
    def __init__(self, connection: Flaky) -> None:
        self.connection = connection
        self.real = connection.real.cursor()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, text: str, *values: Any) -> Any:
        """Break the connection at the commit."""
        if text.endswith("COMMIT"):
            if self.connection.stored:
                self.real.execute(text)
            self.connection.real.close()
        return self.real.execute(text, *values)


@pytest.mark.postgres
@pytest.mark.parametrize("stored", [True, False], ids=["it was stored", "it was not"])
def test_an_uncertain_commit_is_looked_up(postgres_url: str, stored: bool) -> None:
    """I29: the connection broke at COMMIT; either way the event is there exactly once, and the caller knows it."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        store.database._writer = Flaky(store.database._writer, stored=stored)
        (outcome,) = store.record_many([write(operation, sent())])
        assert outcome == Recorded(store.get(operation.operation_id), 2)
        assert [row.seq for row in store.queries.events(operation.operation_id)] == [1, 2]
        assert operation_of(store.record_many([write(operation, noted())])[0]).version == 3


@pytest.mark.postgres
@pytest.mark.parametrize("stored", [True, False], ids=["it was stored", "it was not"])
def test_an_uncertain_opening_is_looked_up(postgres_url: str, stored: bool) -> None:
    """The same for a submit: one operation, whatever became of the first try."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        store.database._writer = Flaky(store.database._writer, stored=stored)
        wish = opening()
        (outcome,) = store.open_many([wish])
        assert operation_of(outcome) == store.get(wish.operation_id)
        assert len(store.queries.events(wish.operation_id)) == 1


@pytest.mark.postgres
def test_an_uncertain_commit_that_cannot_be_looked_up_is_said_to_be_uncertain(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker sends nothing until it has read the record again."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        store.database._writer = Flaky(store.database._writer, stored=True)

        def unreachable(_: Any) -> Any:
            raise psycopg.OperationalError("connection refused")

        monkeypatch.setattr(store.database.side, "writing", unreachable)
        with pytest.raises(StoreUnavailable, match="read the records again"):
            store.record_many([write(operation, sent())])
        monkeypatch.undo()
        assert store.get(operation.operation_id).version == 2


@pytest.mark.postgres
def test_an_uncertain_claim_is_said_to_be_uncertain(postgres_url: str) -> None:
    """A claim leaves no event to look up; its lease, if there is one, ends by itself."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        opened(store)
        store.database._writer = Flaky(store.database._writer, stored=True)
        with pytest.raises(StoreUnavailable, match="read the records again"):
            claim(store)
        assert claim(store) == []


def test_a_commit_that_the_disk_refused_is_said_to_be_uncertain(ledger: Store) -> None:
    """After a failed fsync nobody may build on that connection; it is dropped, and the next one reads anew."""
    (operation,) = opened(ledger)
    real = ledger.database._writer

    class Cursor(FlakyCursor):
        def execute(self, text: str, *values: Any) -> Any:
            if text == "COMMIT":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return self.real.execute(text, *values)

    class Connection(Flaky):
        def cursor(self) -> Any:
            return Cursor(self)

    ledger.database._writer = Connection(real, stored=False)
    with pytest.raises(StoreUnavailable, match=r"disk.*read the records again"):
        ledger.record_many([write(operation, sent())])
    assert ledger.get(operation.operation_id) == operation
    assert operation_of(ledger.record_many([write(operation, sent())])[0]).version == 2


@pytest.mark.postgres
def test_a_broken_connection_between_two_writes_is_replaced(postgres_url: str) -> None:
    """A restarted server costs one try, not one operation."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        pid = store.database.writer_pid
        with admin(postgres_url) as session:
            session.execute("SELECT pg_terminate_backend(%s, 30000)", (pid,))
        assert operation_of(store.record_many([write(operation, sent())])[0]).version == 2
        assert store.database.writer_pid != pid


@pytest.mark.postgres
def test_a_broken_reading_connection_is_replaced(postgres_url: str) -> None:
    """The pool tries each connection before it is used."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        assert store.get(operation.operation_id) == operation  # now the pool holds a session
        with admin(postgres_url) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
                " WHERE application_name = 'opledger' AND datname = current_database()"
            )
        assert store.get(operation.operation_id) == operation


@pytest.mark.postgres
def test_every_session_commits_durably(postgres_url: str) -> None:
    """A server whose default is fast and loose must not make our acknowledgements so (F1)."""
    with admin(postgres_url) as session:
        session.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
    try:
        with Store.open(postgres_url) as store:
            cursor = store.database.with_writer(lambda c: c.execute("SHOW synchronous_commit"))
            assert cursor.fetchone() == ("on",)
    finally:
        with admin(postgres_url) as session:
            session.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")


@pytest.mark.postgres
def test_every_session_gives_up_an_end_that_is_silent(postgres_url: str) -> None:
    """Ours and the server's: left to TCP that takes a quarter of an hour, and for a listener for ever."""
    wanted = {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3", "tcp_user_timeout": "10000"}
    with Store.open(postgres_url) as store:
        side = store.database.side
        assert isinstance(side, PostgresServer)
        with closing(side.connect()) as listening:
            for session in (listening, store.database.with_writer(lambda writer: writer)):
                given = conninfo_to_dict(session.info.dsn)
                assert {name: str(given[name]) for name in wanted} == wanted
                assert given["connect_timeout"] in (5, "5")
                for name in ("tcp_keepalives_idle=5", "tcp_user_timeout=10000"):
                    assert name in session.info.get_parameters()["options"]
            stands = store.database.with_writer(lambda w: w.execute("SHOW idle_in_transaction_session_timeout"))
            assert stands.fetchone() == ("20s",)
    told = PostgresServer(make_url(f"{postgres_url}&keepalives_idle=60"), read_only=False)
    with closing(told.connect()) as session:
        assert conninfo_to_dict(session.info.dsn)["keepalives_idle"] in (60, "60")


class Pressed:
    """A connection during whose next statement somebody presses Ctrl-C; it is carried out all the same."""

    def __init__(self, real: Any, at: str) -> None:
        self.real, self.at = real, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def cursor(self) -> Any:
        """A cursor that is interrupted."""
        return PressedCursor(self)


class PressedCursor:
    def __init__(self, connection: Pressed) -> None:
        self.connection = connection
        self.real = connection.real.cursor()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, text: str, *values: Any) -> Any:
        """Interrupt the statement that was chosen."""
        done = self.real.execute(text, *values)
        if text.startswith(self.connection.at):
            self.connection.at = "never again"
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("at", ["BEGIN", "SELECT", "ROLLBACK"])
def test_an_interrupted_write_leaves_no_transaction_open(store: Store, second: Store, at: str) -> None:
    """Its locks would keep everybody else from that record until the server loses patience."""
    (operation,) = opened(store)
    store.database._writer = Pressed(store.database.with_writer(lambda writer: writer), at)

    def work(tx: Tx) -> None:
        recording.record(tx, [write(operation, sent())])
        if at == "ROLLBACK":
            raise KeyError

    with pytest.raises(KeyboardInterrupt):
        store.database.write(work)
    assert operation_of(second.record_many([write(operation, noted())])[0]).version == 2
    assert operation_of(store.record_many([write(operation, noted())])[0]).version == 3


# --- servers that cannot be used --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"read_only": True}])
def test_an_unreachable_server_is_one_sentence_without_the_password(how: dict[str, bool]) -> None:
    """The message names the database and never the password (promise 11)."""
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        open_database("postgresql://ana:hunter2@127.0.0.1:1/ledger", **how)
    assert "hunter2" not in str(caught.value)


@pytest.mark.postgres
def test_a_database_that_does_not_exist_is_one_sentence(postgres_server: str) -> None:
    """The server answers, and the database is not there."""
    with pytest.raises(StoreUnavailable, match="does not exist"):
        open_database(with_database(postgres_server, "opledger_nowhere"))


@pytest.mark.postgres
def test_a_server_that_only_reads_is_one_sentence(postgres_url: str) -> None:
    """A standby is found out at the first write, and nothing is half-written."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        with admin(postgres_url) as session:
            name = session.info.dbname
            session.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        store.database._drop_writer()
        with pytest.raises(StoreUnavailable, match="only allows reading"):
            store.record_many([write(operation, sent())])
        assert store.get(operation.operation_id) == operation


@pytest.mark.postgres
def test_a_login_without_rights_is_one_sentence(postgres_url: str) -> None:
    """Whoever forgot the grants reads what to do about it."""
    with admin(postgres_url) as session:
        session.execute(
            "DO $$ BEGIN CREATE ROLE opledger_poor LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    with pytest.raises((StoreUnavailable, SchemaMismatch), match="does not allow this role"):
        open_database(as_role(postgres_url, "opledger_poor"))


@pytest.mark.postgres
def test_a_statement_that_waits_too_long_for_a_lock_is_one_sentence(postgres_url: str) -> None:
    """A forgotten session elsewhere must not hang a worker for ever."""
    with Store.open(postgres_url) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        store.database.with_writer(lambda c: c.execute("SET lock_timeout = '5ms'"))
        with admin(postgres_url) as session, session.transaction():
            session.execute("SELECT * FROM operation FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="is locked by another session"):
                store.record_many([write(operation, sent())])
            assert claim(store) == []  # a claim skips what is locked
        assert operation_of(store.record_many([write(operation, sent())])[0]).version == 2


def test_every_refusal_is_ours(tmp_path: Path) -> None:
    """No driver's exception ever leaves the store."""
    for url in (f"sqlite:///{tmp_path}", "postgresql://x@127.0.0.1:1/x", "x"):
        with pytest.raises(OpledgerError):
            Store.open(url)


def test_a_bound_job_survives_the_store(ledger: Store, sqlite_url: str) -> None:
    """Closing and opening again finds everything."""
    (operation,) = opened(ledger)
    record = bound(ledger, operation, "j1")
    ledger.close()
    with Store.open(sqlite_url) as store:
        assert store.get(operation.operation_id) == record
