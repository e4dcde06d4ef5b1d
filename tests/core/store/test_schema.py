from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from opledger.errors import OpledgerError, SchemaMismatch, StoreUnavailable
from opledger.store import Store, archiving, guards, open_database, schema
from opledger.store.engine import restore_guards
from opledger.store.tables import OPERATION, whole
from tests.core.store.making import CONTRACT, assert_whole, opened
from tests.support.databases import admin, with_database


@contextmanager
def raw(url: str) -> Iterator[Callable[[str], list[Any]]]:
    """Run statements on a database past the store."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            yield lambda statement: connection.execute(statement).fetchall()
        return
    with admin(url) as session:

        def run(statement: str) -> list[Any]:
            cursor = session.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

        yield run


def test_the_migrations_make_the_tables_that_the_code_uses(database_url: str) -> None:
    """Two descriptions of one schema must not drift: nullability, types, keys, indexes and their conditions."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    url = database_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url)
    with engine.connect() as connection:
        dialect = engine.dialect.name

        def is_here(_: Any, name: str | None, kind: str, *__: Any) -> bool:
            return (kind, name) != ("index", "event_at") or dialect == "postgresql"

        options = {"compare_type": True, "version_table": schema.VERSION_TABLE, "include_object": is_here}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), whole()) == []
    engine.dispose()


def test_partial_indexes_have_their_conditions(database_url: str) -> None:
    """Alembic does not compare them, and a full index would make claims scan what waits."""
    query = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'operation'"
    if database_url.startswith("sqlite"):
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'operation'"
    with raw(database_url) as run:
        found = {name: " ".join(sql.replace("(", " ").replace(")", " ").split()) for name, sql in run(query) if sql}
    for index in OPERATION.indexes:
        condition = index.dialect_options["sqlite"]["where"]
        _, _, written = found[str(index.name)].partition(" WHERE ")
        assert set(written.split(" AND ")) == set(str("" if condition is None else condition).split(" AND "))


def test_an_empty_database_is_made_ready(tmp_path: Path) -> None:
    """The first submit of a newcomer just works."""
    path = tmp_path / "ledger.db"
    path.touch()
    with Store.open(f"sqlite:///{path}") as store:
        store.pin_contract(CONTRACT)
        opened(store)
    with raw(f"sqlite:///{path}") as run:
        assert run(f"SELECT version_num FROM {schema.VERSION_TABLE}") == [(schema.CURRENT,)]


def test_every_revision_is_known(sqlite_url: str) -> None:
    """The list in the code is the chain of migrations that is shipped."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "opledger.store:migrations")
    shipped = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(shipped)) == schema.REVISIONS


@pytest.mark.parametrize("named", ["NULL", "'9001'"], ids=["nobody said", "a newer one"])
def test_a_newer_ledger_is_left_alone(store: Store, database_url: str, named: str) -> None:
    """An old program on a new ledger would fold events it does not know; one that runs is told so."""
    opened(store)
    with raw(database_url) as run:
        run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9001', oldest = {named}")
        for how in ({}, {"read_only": True}, {"create": False}):
            with pytest.raises(SchemaMismatch, match=f"9001.*{schema.CURRENT}.*newer opledger"):
                open_database(database_url, **how)
        with pytest.raises(SchemaMismatch, match="9001"):
            store.database.check_version()
        run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{schema.CURRENT}'")
    open_database(database_url).close()
    store.database.check_version()


def test_a_newer_ledger_that_admits_older_programs_is_used(store: Store, database_url: str) -> None:
    """Hosts are upgraded one after the other: what was only added is in nobody's way, and nothing is changed back."""
    with raw(database_url) as run:
        run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9001', oldest = '{schema.CURRENT}'")
        run("ALTER TABLE operation ADD COLUMN later TEXT")
        run("CREATE TABLE later (one TEXT)")
        store.database.check_version()
        (before,) = opened(store)
        with Store.open(database_url) as second:
            assert second.get(before.operation_id) == before
            opened(second)
        with pytest.raises(SchemaMismatch, match="newer opledger"):
            restore_guards(database_url)
        assert run(f"SELECT version_num FROM {schema.VERSION_TABLE}") == [("9001",)]


def test_whoever_makes_or_upgrades_a_ledger_names_the_oldest_that_may_go_on(database_url: str) -> None:
    """The next version's programs ask for it."""
    with raw(database_url) as run:
        assert run(f"SELECT version_num, oldest FROM {schema.VERSION_TABLE}") == [(schema.CURRENT, schema.OLDEST)]
    assert schema.OLDEST in schema.REVISIONS


def test_an_upgrade_waits_for_workers_that_could_not_go_on(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would misread what is there, or spoil it; those that died or signed off are in nobody's way."""
    database, now = store.database, datetime.now(UTC)
    monkeypatch.setattr(schema, "REVISIONS", ("0000", schema.CURRENT))
    monkeypatch.setattr(schema, "OLDEST", schema.CURRENT)
    monkeypatch.setattr("alembic.command.upgrade", lambda *_: None)
    with raw(database_url) as run:
        run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '0000'")
        store.heartbeat("w-dead", "here", 1, now - timedelta(seconds=schema.ALIVE + 5))
        schema.migrate(database.side)
        store.heartbeat("w-old", "here", 1, now)
        with pytest.raises(SchemaMismatch, match=r"0000.*\(w-old\).*stop them first"):
            schema.migrate(database.side)
        monkeypatch.setattr(schema, "OLDEST", "0000")
        schema.migrate(database.side)
        monkeypatch.setattr(schema, "OLDEST", schema.CURRENT)
        store.farewell("w-old")
        schema.migrate(database.side)


def test_an_older_ledger_is_upgraded_under_a_lock(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write upgrades; who only reads says what to do."""
    older = ("0000", schema.CURRENT)
    monkeypatch.setattr(schema, "REVISIONS", older)
    with raw(database_url) as run:
        run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '0000'")
    for how in ({"read_only": True}, {"create": False}):
        with pytest.raises(SchemaMismatch, match=f"0000.*needs {schema.CURRENT}"):
            open_database(database_url, **how)

    def upgrade(config: Any, revision: str) -> None:
        connection = config.attributes["connection"]
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{revision}'")

    monkeypatch.setattr("alembic.command.upgrade", upgrade)
    with Store.open(database_url) as upgraded:
        opened(upgraded)
    with raw(database_url) as run:
        assert run(f"SELECT version_num FROM {schema.VERSION_TABLE}") == [(schema.CURRENT,)]


def first_guards(kind: str, run: Callable[[str], Any]) -> None:
    """The guards as the first version made them."""
    if kind == "sqlite":
        for name, when in (("update", "UPDATE"), ("delete", "DELETE")):
            run(f"CREATE TRIGGER event_no_{name} BEFORE {when} ON event BEGIN SELECT RAISE(ABORT, 'no'); END")
        return
    run("CREATE FUNCTION opledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no'; END$$")
    for name, when in (
        ("event_no_change", "UPDATE OR DELETE ON event FOR EACH ROW"),
        ("event_no_truncate", "TRUNCATE ON event FOR EACH STATEMENT"),
    ):
        run(f"CREATE TRIGGER {name} BEFORE {when} EXECUTE FUNCTION opledger_refuse()")
        run(f"ALTER TABLE event ENABLE ALWAYS TRIGGER {name}")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_the_first_schema_is_upgraded_with_all_that_is_in_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody starts a new ledger because the program is new: records, journal and guards stay as they were."""
    url = f"sqlite:///{tmp_path / 'old.db'}"
    if kind == "postgresql":
        server = request.getfixturevalue("postgres_server")
        with admin(server) as session:
            session.execute("DROP DATABASE IF EXISTS opledger_old")
            session.execute("CREATE DATABASE opledger_old")
        url = with_database(server, "opledger_old")
    with monkeypatch.context() as patch:
        patch.setattr(guards, "install", first_guards)
        patch.setattr(guards, "missing", lambda *_: [])
        patch.setattr(schema, "CURRENT", schema.REVISIONS[0])
        patch.setattr(schema, "REVISIONS", schema.REVISIONS[:1])
        patch.setattr(archiving, "taken", lambda *_: [])  # the program of then knew no archive
        with Store.open(url) as old:
            old.pin_contract(CONTRACT)
            (before,) = opened(old)
    with pytest.raises(SchemaMismatch, match=r"0001.*open it once for writing"):
        open_database(url, read_only=True)
    with Store.open(url) as new:
        assert new.get(before.operation_id) == before
        assert_whole(new, before.operation_id)
        assert new.notices_of(before.operation_id) == []
        opened(new)
    with raw(url) as run:
        assert run(f"SELECT version_num FROM {schema.VERSION_TABLE}") == [(schema.CURRENT,)]


@pytest.mark.postgres
def test_an_upgrade_makes_way_for_those_who_wait_behind_it(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report reads for an hour, the upgrade waits for it, and behind the upgrade every worker would wait."""
    tries: list[str] = []

    def upgrade(config: Any, revision: str) -> None:
        tries.append(revision)
        run = config.attributes["connection"].exec_driver_sql
        if len(tries) == 4:
            report.rollback()
        run("ALTER TABLE operation ADD COLUMN later TEXT")
        run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{revision}'")

    with Store.open(postgres_url) as store, psycopg.connect(postgres_url) as report:
        monkeypatch.setattr("alembic.command.upgrade", upgrade)
        monkeypatch.setattr(schema, "REVISIONS", (schema.CURRENT, "9001"))
        monkeypatch.setattr(schema, "CURRENT", "9001")
        monkeypatch.setattr(schema, "PATIENCE", "20ms")
        monkeypatch.setattr(schema, "TRIES", 3)
        report.execute("SELECT count(*) FROM operation")
        with pytest.raises(StoreUnavailable, match="locked by another session"):
            open_database(postgres_url)
        assert len(tries) == 3
        store.pin_contract(CONTRACT)
        opened(store)  # nobody waits any more
        open_database(postgres_url).close()
        assert len(tries) == 4
        opened(store)


@pytest.mark.parametrize("how", [{}, {"read_only": True}, {"create": False}])
def test_somebody_elses_database_is_left_alone(tmp_path: Path, how: dict[str, bool]) -> None:
    """A wrong path must not put our tables among another program's."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
        connection.commit()
    with pytest.raises(StoreUnavailable, match=r"other tables \(songs\)"):
        open_database(f"sqlite:///{path}", **how)
    with raw(f"sqlite:///{path}") as run:
        assert run("SELECT name FROM sqlite_master") == [("songs",)]


@pytest.mark.postgres
def test_a_ledger_lives_beside_other_tables_on_a_server(postgres_server: str) -> None:
    """A PostgreSQL database is often shared; only a table of our own names is a clash."""
    with admin(postgres_server) as session:
        session.execute("DROP DATABASE IF EXISTS opledger_shared")
        session.execute("CREATE DATABASE opledger_shared")
    url = with_database(postgres_server, "opledger_shared")
    with admin(url) as session:
        session.execute("CREATE TABLE songs (title text); CREATE TABLE alembic_version (version_num text)")
    open_database(url).close()
    with admin(url) as session:
        session.execute(f"DROP TABLE {schema.VERSION_TABLE}")
    with pytest.raises(StoreUnavailable, match="other tables"):
        open_database(url)


@pytest.mark.parametrize("how", [{"read_only": True}, {"create": False}])
def test_an_empty_database_is_not_made_ready_for_a_reader(tmp_path: Path, how: dict[str, bool]) -> None:
    """Looking must not write."""
    path = tmp_path / "ledger.db"
    path.touch()
    with pytest.raises(StoreUnavailable, match="no ledger yet"):
        open_database(f"sqlite:///{path}", **how)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_many_processes_make_one_ledger(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Four agents that start together on an empty database all find the same finished ledger."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    if kind == "postgresql":
        server = request.getfixturevalue("postgres_server")
        with admin(server) as session:
            session.execute("DROP DATABASE IF EXISTS opledger_new")
            session.execute("CREATE DATABASE opledger_new")
        url = with_database(server, "opledger_new")
    errors: list[OpledgerError] = []
    barrier = threading.Barrier(4)

    def start() -> None:
        barrier.wait()
        try:
            with Store.open(url) as store:
                store.pin_contract(CONTRACT)
                opened(store)
        except OpledgerError as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Store.open(url) as store:
        assert sum(store.queries.counts().values()) == 4


def test_opening_a_finished_ledger_does_not_load_alembic(sqlite_url: str) -> None:
    """Half a second for every `opledger show` would be felt."""
    code = (
        "import sys; from opledger.store import Store; store = Store.open(sys.argv[1]); "
        "store.queries.counts(); store.close(); "
        "print([name for name in ('alembic', 'psycopg', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, sqlite_url], capture_output=True, text=True, check=True)
    assert "alembic" not in done.stdout
    assert "psycopg" not in done.stdout
