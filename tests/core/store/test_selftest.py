from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from opledger.errors import IntegrityBroken
from opledger.store import Store, guards, selftest, sqlite
from opledger.store.roles import roles_sql
from tests.core.store.making import CONTRACT, bound, opened
from tests.support.databases import admin, as_role

ROLES = OWNER, WORKER, OPERATOR, READER = tuple(
    f"opledger_s_{name}" for name in ("owner", "worker", "operator", "reader")
)


@pytest.fixture
def full(store: Store) -> Store:
    """A ledger with something in its journal, so that a change of it would be one."""
    (operation,) = opened(store)
    bound(store, operation, "j1")
    return store


def test_what_must_not_work_does_not_and_nothing_is_changed(full: Store) -> None:
    """On both databases, every statement is tried on what is there, and undone."""
    (operation,) = full.queries.list().operations
    events = full.queries.events(operation.operation_id)
    tried = full.database.self_test()
    assert tried.open == ()
    assert tried.count >= 14
    assert tried.owner  # of the single machine
    assert full.queries.events(operation.operation_id) == events
    assert full.get(operation.operation_id) == operation


def test_it_is_cheap_enough_for_every_start(full: Store) -> None:
    """A bound that a busy machine keeps; by itself it takes some milliseconds."""
    full.database.self_test()
    best = min(_seconds(full) for _ in range(5))
    assert best < 0.25


def _seconds(store: Store) -> float:
    began = time.perf_counter()
    store.database.self_test()
    return time.perf_counter() - began


# --- SQLite ------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(sqlite_url: str) -> Iterator[Store]:
    """A file with some events in it."""
    with Store.open(sqlite_url) as opened_:
        opened_.pin_contract(CONTRACT)
        (operation,) = opened(opened_)
        bound(opened_, operation, "j1")
        yield opened_


def test_a_connection_without_its_authorizer_is_noticed(file: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each statement that is tried can be: one that fails by itself would prove nothing."""
    monkeypatch.setattr(sqlite, "_authorize", lambda *_: sqlite3.SQLITE_OK)
    side = file.database.side
    tried = selftest.try_file(side)  # type: ignore[arg-type]
    assert tried.open == selftest.FILE
    with pytest.raises(IntegrityBroken, match="not safe from this program, which could run PRAGMA writable_schema"):
        file.database.self_test()


@pytest.mark.parametrize("table", guards.APPEND_ONLY)
@pytest.mark.parametrize("right", ["UPDATE", "DELETE", "DROP", "ALTER"])
def test_one_right_too_many_is_noticed(file: Store, monkeypatch: pytest.MonkeyPatch, table: str, right: str) -> None:
    """A line that somebody adds to the lists of what may be done."""
    action, place = {
        "UPDATE": (sqlite3.SQLITE_UPDATE, 0),
        "DELETE": (sqlite3.SQLITE_DELETE, 0),
        "DROP": (sqlite3.SQLITE_DROP_TABLE, 0),
        "ALTER": (sqlite3.SQLITE_ALTER_TABLE, 1),
    }[right]
    own = sqlite._authorize
    helpers = {"sqlite_master", "sqlite_temp_master"}

    def lax(what: int, *names: str | None) -> int:
        if what == action and names[place] == table:
            return sqlite3.SQLITE_OK
        beside = names[0] in helpers or what in (sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TRIGGER)
        if right in ("DROP", "ALTER") and (beside or what == sqlite3.SQLITE_DROP_INDEX):
            return sqlite3.SQLITE_OK  # what such a statement does besides
        return own(what, *names)

    monkeypatch.setattr(sqlite, "_authorize", lax)
    went = selftest.try_file(file.database.side).open  # type: ignore[arg-type]
    assert any(one.startswith(right) and table in one.split() for one in went)
    with pytest.raises(IntegrityBroken, match="not safe from this program"):
        file.database.self_test()


@pytest.mark.parametrize("name", ["event_no_update", "event_no_delete"])
def test_a_trigger_that_does_not_hold_is_noticed(file: Store, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its absence from the catalogue, and by the try alone; which changes nothing even then."""
    with closing(sqlite3.connect(file.database.name)) as connection:
        connection.execute(f"DROP TRIGGER {name}")
        before = connection.execute("SELECT * FROM event").fetchall()
        with pytest.raises(IntegrityBroken, match=f"removed or changed .{name}"):
            file.database.self_test()
        made, _, does = guards.SQLITE[name].partition(" ON event")
        connection.execute(f"{made} ON event WHEN false {does[does.index('BEGIN') :]}")
        monkeypatch.setattr(guards, "missing", lambda *_: [])
        with pytest.raises(IntegrityBroken, match=r"could run (UPDATE|DELETE FROM) event"):
            file.database.self_test()
        assert connection.execute("SELECT * FROM event").fetchall() == before


def test_somebody_who_writes_for_long_keeps_nobody_from_starting(file: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue was compared; the triggers are tried next time."""
    monkeypatch.setattr(sqlite, "BUSY_MS", 10)
    with closing(sqlite3.connect(file.database.name, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert file.database.self_test().count == len(selftest.FILE)
        other.execute("ROLLBACK")


# --- PostgreSQL --------------------------------------------------------------------------------------------------


@pytest.fixture
def server(postgres_url: str) -> Iterator[str]:
    """A database with the four roles and an operation in it."""
    with Store.open(postgres_url) as opened_:
        opened_.pin_contract(CONTRACT)
        (operation,) = opened(opened_)
        bound(opened_, operation, "j1")
    with admin(postgres_url) as session:
        session.execute(roles_sql(*ROLES))
    yield postgres_url
    with admin(postgres_url) as session:
        for role in ROLES:
            session.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}")


@pytest.mark.postgres
@pytest.mark.parametrize("role", [OWNER, WORKER, OPERATOR])
def test_each_role_is_held_back(server: str, role: str) -> None:
    """The owner by the triggers and by what it took from itself, the others by their rights."""
    with Store.open(as_role(server, role)) as store:
        tried = store.database.self_test()
    assert (tried.login, tried.owner, tried.open) == (role, role == OWNER, ())
    assert tried.count > (20 if role == OWNER else 50)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("grant", "said"),
    [
        (f"GRANT TRUNCATE ON tombstone TO {WORKER}; DROP TRIGGER tombstone_no_truncate ON tombstone", "TRUNCATE tomb"),
        (f"ALTER TABLE event OWNER TO {WORKER}", None),
        (f"ALTER FUNCTION opledger_refuse() OWNER TO {WORKER}", "DROP FUNCTION opledger_refuse"),
        (f"GRANT UPDATE (contract) ON operation TO {WORKER}", "UPDATE operation SET contract"),
        (f"ALTER TABLE checkpoint OWNER TO {WORKER}", "ALTER TABLE checkpoint DISABLE TRIGGER ALL"),
        (f"GRANT UPDATE ON event TO {WORKER}; DROP TRIGGER event_no_change ON event", "UPDATE event"),
        (f"GRANT DELETE ON event TO {WORKER}; DROP TRIGGER event_no_delete ON event", "DELETE FROM event"),
        (f"GRANT DELETE ON operation, event, request, answer TO {WORKER}", None),
        (f"GRANT SET ON PARAMETER session_replication_role TO {WORKER}", "SET LOCAL session_replication_role"),
    ],
)
def test_a_login_that_can_too_much_does_not_start(
    server: str, grant: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but a try can tell what a login can; where a guard holds, it starts."""
    monkeypatch.setattr(guards, "missing", lambda *_: [])  # what the catalogue shows has its own tests
    with Store.open(as_role(server, WORKER)) as store:
        with admin(server) as session:
            if session.info.server_version < 150000 and "PARAMETER" in grant:
                pytest.skip("such a right is not known before PostgreSQL 15")
            session.execute(grant)
        try:
            if said is None:
                assert store.database.self_test().open == ()
            else:
                with pytest.raises(IntegrityBroken, match=f"the login {WORKER}, which could run .*{said}"):
                    store.database.self_test()
        finally:
            with admin(server) as session:
                if "PARAMETER" in grant:
                    session.execute(f"REVOKE SET ON PARAMETER session_replication_role FROM {WORKER}")
    with admin(server) as session:
        assert session.execute("SELECT count(*) FROM event").fetchone()[0] > 0  # type: ignore[index]


@pytest.mark.postgres
def test_a_table_that_is_locked_keeps_nobody_from_starting(server: str) -> None:
    """Somebody alters the schema, or makes a backup: what cannot be tried now is not waited for."""
    with Store.open(as_role(server, OPERATOR)) as store, admin(server) as session, session.transaction():
        session.execute("LOCK TABLE event IN SHARE ROW EXCLUSIVE MODE")
        assert store.database.self_test().open == ()
