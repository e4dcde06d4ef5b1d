from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from opledger.errors import SchemaMismatch, StoreUnavailable
from opledger.rules.model import State
from opledger.store import Answer, Store, open_database, roles, roles_sql, schema
from opledger.store.guards import APPEND_ONLY
from opledger.store.tables import METADATA
from tests.core.store.making import (
    CONTRACT,
    LEASE,
    T0,
    accepted,
    assert_whole,
    bound,
    claim,
    fence_of,
    opened,
    sent,
    write,
)
from tests.support.databases import admin, as_role, fresh_postgres, with_database

pytestmark = pytest.mark.postgres

OWNER, WORKER = "opledger_t_owner", "opledger_t_worker"
OPERATOR, READER = "opledger_t_operator", "opledger_t_reader"

#: The tables that only grow, besides the journal, with a column of each.
GROWING = {"ledger": "one", "leaf": "seq", "checkpoint": "at", "acknowledgement": "at", "tombstone": "seq"}

#: What a worker's login must never be able to do (F11).
FORBIDDEN = [
    "UPDATE event SET actor = 'nobody'",
    "TRUNCATE event",
    "TRUNCATE operation CASCADE",
    "UPDATE operation SET request_fingerprint = 'x'",
    "UPDATE operation SET operation_id = 'x'",
    "UPDATE operation SET idempotency_token = 'x'",
    "UPDATE operation SET created_at = 0",
    "UPDATE request SET body = ''",
    "UPDATE contract SET source = ''",
    "UPDATE answer SET body = ''",
    "DELETE FROM answer",
    "DELETE FROM provider",
    *(f"UPDATE {table} SET {column} = {column}" for table, column in GROWING.items()),
    *(f"DELETE FROM {table}" for table in GROWING),
    *(f"TRUNCATE {table}" for table in GROWING),
    "UPDATE opledger_version SET version_num = '9999'",
    "ALTER TABLE event DISABLE TRIGGER event_no_change",
    "ALTER TABLE event DISABLE TRIGGER ALL",
    "DROP TRIGGER event_no_change ON event",
    "DROP TABLE event",
    "ALTER TABLE event ADD COLUMN x int",
    "SET session_replication_role = replica",
    "CREATE OR REPLACE FUNCTION opledger_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
    "CREATE RULE r AS ON INSERT TO event DO INSTEAD NOTHING",
    "GRANT UPDATE ON event TO CURRENT_USER; UPDATE event SET actor = 'nobody'",
    f"SET ROLE {OWNER}",
]

#: What only an operator's login may do besides; and the guards allow it only for what has a tombstone.
ARCHIVING = ["DELETE FROM event", "DELETE FROM request", "DELETE FROM operation"]
PAPERS = [
    "INSERT INTO acknowledgement VALUES (7, 5, 0, 'x', 'x', 0, '')",
    """INSERT INTO tombstone SELECT operation_id, head_seq, head_hash, 'failed', 'x', NULL, NULL, NULL, NULL, 0,
       'x', 'x', 'x', '' FROM operation LIMIT 1""",
]


@pytest.fixture(scope="module")
def url(postgres_server: str) -> Iterator[str]:
    """A database with the three roles; what is refused changes nothing, so that one serves all tests."""
    with fresh_postgres(postgres_server) as fresh:
        with admin(fresh) as session:
            script = roles_sql(OWNER, WORKER, OPERATOR, READER)
            session.execute(script)
            session.execute(script)  # it may be run again at any time
        yield fresh
        with admin(fresh) as session:
            for role in (OWNER, WORKER, OPERATOR, READER):
                session.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """The ledger as the worker's login sees it."""
    with Store.open(as_role(url, WORKER)) as opened_:
        opened_.pin_contract(CONTRACT)
        yield opened_


def test_a_worker_can_do_all_its_work(store: Store) -> None:
    """Least rights must still be enough rights: every method once."""
    (operation,) = opened(store, tags={"a": "b"})
    store.heartbeat("w1", "host", 1, T0)
    store.pause_provider("reports", "ana", "night", T0)
    store.resume_provider("reports", "ana", "day", T0)
    claimed = store.claim_one(operation.operation_id, "w1", LEASE, T0)
    assert claimed is not None
    assert claim(store, limit=1) is not None
    fence = fence_of(claimed)
    assert store.renew("w1", [(operation.operation_id, fence.epoch)], LEASE, T0)
    store.record_many([write(operation, sent(), fence=fence, live=True)])
    store.record_many([write(operation, accepted("j1"), fence=fence, answer=Answer.of(b"{}"))])
    assert store.release("w1", [(operation.operation_id, fence.epoch)])
    store.farewell("w1")
    assert store.get(operation.operation_id).state is State.ACCEPTED
    assert store.providers()
    assert_whole(store, operation.operation_id)


@pytest.mark.parametrize("statement", [*FORBIDDEN, *ARCHIVING, *PAPERS])
def test_a_worker_cannot_rewrite_history(store: Store, url: str, statement: str) -> None:
    """Each with a real login, each refused for want of rights, not by a trigger."""
    opened(store)
    with admin(as_role(url, WORKER)) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement)


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_an_operator_cannot_rewrite_history_either(store: Store, url: str, statement: str) -> None:
    """A person may say that something goes; what stays is as it was."""
    opened(store)
    with admin(as_role(url, OPERATOR)) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement)


@pytest.mark.parametrize("statement", ARCHIVING)
def test_an_operator_deletes_nothing_that_was_not_archived(store: Store, url: str, statement: str) -> None:
    """The right is there; the guard holds it back."""
    opened(store)
    with (
        admin(as_role(url, OPERATOR)) as session,
        pytest.raises(psycopg.Error, match=r"only grows|until a tombstone stands for them"),
    ):
        session.execute(statement)


def test_an_operator_does_what_a_worker_does_and_archives(url: str) -> None:
    """People submit, decide, acknowledge a restored backup and put old operations away."""
    with Store.open(as_role(url, OPERATOR)) as store:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store, step="archived")
        bound(store, operation, "job_of_operator")
        store.pause_provider("reports", "ana", "night", T0)
        store.resume_provider("reports", "ana", "day", T0)
    acknowledge, tombstone = PAPERS
    with admin(as_role(url, OPERATOR)) as session:
        session.execute(acknowledge)
        session.execute("UPDATE operation SET lease_epoch = lease_epoch + 1, lease_owner = NULL")
        session.execute(tombstone.replace("LIMIT 1", f"WHERE operation_id = '{operation.operation_id}'"))
        for statement in ARCHIVING:
            done = session.execute(f"{statement} WHERE operation_id = '{operation.operation_id}'")
            assert done.rowcount >= 1


def test_every_table_has_a_decided_grant() -> None:
    """A table that was forgotten here would only show at somebody's production server."""
    assert roles.WORKER.keys() == METADATA.tables.keys()
    assert roles.OPERATOR.keys() <= METADATA.tables.keys()
    may = {table: set(re.findall("[A-Z]+", rights)) for table, rights in roles.WORKER.items()}
    for table in APPEND_ONLY:
        assert may[table] <= {"INSERT"}, table


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO provider VALUES ('x', 'paused', 'x', 'x', 0)",
        "UPDATE operation SET state = 'succeeded'",
        "DELETE FROM worker",
        "SELECT * FROM operation FOR UPDATE",
        "CREATE TABLE x (y int)",
        *ARCHIVING,
        *PAPERS,
    ],
)
def test_a_reader_only_reads(store: Store, url: str, statement: str) -> None:
    """An auditor's login can break nothing."""
    (operation,) = opened(store)
    with Store.open(as_role(url, READER), read_only=True) as reader:
        assert reader.get(operation.operation_id) == operation
        assert reader.queries.events(operation.operation_id)
        with pytest.raises(StoreUnavailable, match="for reading only"):
            reader.record_many([write(operation, sent())])
    with admin(as_role(url, READER)) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement)


def test_a_worker_may_not_migrate_and_says_who_must(postgres_server: str) -> None:
    """An upgrade is the owner's decision where roles are kept apart."""
    with admin(postgres_server) as session:
        session.execute("DROP DATABASE IF EXISTS opledger_empty")
        session.execute("CREATE DATABASE opledger_empty")
        session.execute("DROP ROLE IF EXISTS opledger_nobody")
        session.execute("CREATE ROLE opledger_nobody LOGIN")
    empty = with_database(postgres_server, "opledger_empty")
    with pytest.raises(SchemaMismatch, match="owner's login"):
        open_database(as_role(empty, "opledger_nobody"))
    open_database(empty).close()


def test_the_owner_can_still_migrate(url: str) -> None:
    """Roles must not lock out the one who upgrades."""
    Store.open(as_role(url, OWNER)).close()
    with admin(as_role(url, OWNER)) as session:
        session.execute("ALTER TABLE operation ADD COLUMN later text")
        session.execute(f"UPDATE {schema.VERSION_TABLE} SET version_num = version_num")


@pytest.mark.parametrize("role", ["", "a'b", "a$b", "a%b", "a\0b"])
def test_a_role_that_would_break_out_of_the_script_is_refused(role: str) -> None:
    """The script is run by a superuser."""
    with pytest.raises(ValueError, match="cannot be the name of a role"):
        roles_sql(role, "w", "o", "r")


def test_one_login_cannot_be_two_roles() -> None:
    """The worker would own the tables, and the script would look as if it had done its work."""
    with pytest.raises(ValueError, match="given for two roles"):
        roles_sql("x", "x", "o", "r")
