"""Least rights must still be enough: a worker's login writes checkpoints, an operator's acknowledges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from opledger.checkpoints import givingup
from opledger.edges.clock import SystemClock
from opledger.errors import StoreUnavailable
from opledger.rules.model import Actor, ActorKind
from opledger.store import guards, open_database, roles_sql, schema
from tests.core.checkpoints.world import World
from tests.core.store.making import CONTRACT, opened
from tests.support.databases import admin, as_role, fresh_postgres, with_database

pytestmark = pytest.mark.postgres

ROLES = ("opledger_c_owner", "opledger_c_worker", "opledger_c_operator", "opledger_c_reader")
ANA = Actor("ana", ActorKind.HUMAN)


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    """A database with its roles."""
    with fresh_postgres(postgres_server) as fresh:
        with admin(fresh) as session:
            session.execute(roles_sql(*ROLES))
        yield fresh
        with admin(fresh) as session:
            for role in ROLES:
                session.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}")


def test_a_workers_login_checkpoints_and_an_operators_acknowledges(url: str, tmp_path: Path) -> None:
    """Name, leaves, notes, what is anchored: all by the worker; to go on with a backup is a person's affair."""
    with World(as_role(url, ROLES[1]), tmp_path) as world:
        world.store.pin_contract(CONTRACT)
        for _ in range(3):
            opened(world.store)
            world.worker().run()
        assert world.kept() == [1, 2, 3]
        with admin(url) as session:
            session.execute("ALTER TABLE checkpoint DISABLE TRIGGER ALL; ALTER TABLE leaf DISABLE TRIGGER ALL")
            session.execute("DELETE FROM checkpoint WHERE number > 1; DELETE FROM leaf WHERE number > 0")
            for table in ("checkpoint", "leaf"):
                for name in ("no_change", "no_truncate"):
                    session.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_{name}")
        found = givingup.forgotten(world.store.database, world.audit)
        now = SystemClock().now()
        with pytest.raises(StoreUnavailable, match="does not allow this role"):
            givingup.acknowledge(world.store.database, world.audit, ANA, "restored", now, found)
        with World(as_role(url, ROLES[2]), tmp_path) as people:
            assert (
                givingup.acknowledge(people.store.database, people.audit, ANA, "restored", now, found).operations == 3
            )
    with World(as_role(url, ROLES[3]), tmp_path) as auditor:
        assert auditor.findings() == []  # a reader can verify; what was given up is no finding


def test_an_upgrade_lets_workers_go_on(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner opens the ledger once; workers must not stand still until somebody has run a script again."""
    with admin(postgres_server) as session:
        session.execute("DROP DATABASE IF EXISTS opledger_c_old")
        session.execute("DROP ROLE IF EXISTS opledger_c_writes; DROP ROLE IF EXISTS opledger_c_reads")
        session.execute("CREATE ROLE opledger_c_writes LOGIN; CREATE ROLE opledger_c_reads LOGIN")
        session.execute("CREATE DATABASE opledger_c_old")
    url = with_database(postgres_server, "opledger_c_old")
    with monkeypatch.context() as patch:
        patch.setattr(guards, "install", lambda *_: None)
        patch.setattr(guards, "missing", lambda *_: [])
        patch.setattr(schema, "CURRENT", "0004")
        patch.setattr(schema, "REVISIONS", schema.REVISIONS[:4])
        open_database(url).close()
    with admin(url) as session:
        session.execute("GRANT SELECT, INSERT ON event TO opledger_c_writes; GRANT SELECT ON event TO opledger_c_reads")
    open_database(url).close()
    with admin(as_role(url, "opledger_c_writes")) as session:
        session.execute("INSERT INTO leaf VALUES (0, 'x', 1, '', 1); INSERT INTO anchored VALUES ('x', 1, 0)")
        session.execute("UPDATE anchored SET seq = 2; SELECT * FROM checkpoint, ledger, tombstone, acknowledgement")
        for table in ("acknowledgement", "tombstone"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(f"INSERT INTO {table} DEFAULT VALUES")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("DELETE FROM leaf")
    with admin(as_role(url, "opledger_c_reads")) as session:
        session.execute("SELECT * FROM leaf, anchored, checkpoint, ledger, tombstone, acknowledgement")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("INSERT INTO leaf VALUES (1, 'x', 1, '', 1)")
