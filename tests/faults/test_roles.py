"""Each PostgreSQL role does its whole job, with processes that have no other login."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from opledger.config import load_settings
from opledger.errors import StoreUnavailable
from opledger.rules.model import State
from opledger.sim.process import SimProcess
from opledger.store.roles import roles_sql
from opledger_console.desk import Desk
from tests.faults.lab import Lab
from tests.support.databases import admin, as_role

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

ROLES = OWNER, WORKER, OPERATOR, READER = tuple(
    f"opledger_f_{name}" for name in ("owner", "worker", "operator", "reader")
)


@pytest.fixture
def kept_apart(postgres_url: str) -> Iterator[str]:
    """A ledger whose roles are made as the README says."""
    with admin(postgres_url) as session:
        session.execute(roles_sql(*ROLES))
    yield postgres_url
    with admin(postgres_url) as session:
        for role in ROLES:
            session.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}")


def test_every_role_does_its_whole_job(kept_apart: str, sim: SimProcess, tmp_path: Path) -> None:
    """An agent and a worker with the worker's login, a person with the operator's, an auditor with the reader's."""
    (tmp_path / "home").mkdir()
    with Lab(tmp_path, as_role(kept_apart, WORKER), sim) as lab:
        lab.environment["XDG_DATA_HOME"] = str(tmp_path / "home")
        done = lab.submit()
        lost = lab.submit("lossy")
        stays = lab.submit(_seconds=600)
        hand = lab.worker()
        lab.until_state(done, State.SUCCEEDED)
        lab.until_state(lost, State.SUCCEEDED)
        lab.until_state(stays, State.OBSERVING)
        # A person, whose login may do more, and whose word the worker carries out.
        for command in (
            ("cancel", stays.operation_id, "--reason", "not needed"),
            ("provider", "pause", stays.contract, "--reason", "night"),
            ("provider", "resume", stays.contract, "--reason", "day"),
            ("doctor",),
        ):
            person = lab.program(*command, OPLEDGER_DB=as_role(kept_apart, OPERATOR), OPLEDGER_OPERATOR="ana")
            assert person.wait(60) == 0, (command, _last_log(lab))
        lab.until_state(stays, State.CANCELLED)
        hand.signal(signal.SIGTERM)
        assert hand.ends() == 0, hand.tail()
        assert lab.ledger.store.workers() == []
        lab.honest(**dict.fromkeys(lab.jobs(stays), 1))
        # A worker as a person starts it, which signs a checkpoint at its end.
        last = lab.program("worker", "--once")
        assert last.wait(60) == 0, _last_log(lab)
        with admin(kept_apart) as session:
            assert session.execute("SELECT count(*) > 0 FROM checkpoint").fetchone() == (True,)
        # An auditor reads all of it, and vouches for it.
        audit = lab.program("audit", "verify", "--json", OPLEDGER_DB=as_role(kept_apart, READER))
        assert audit.wait(60) == 0, _last_log(lab)
        environment = {**os.environ, **lab.environment, "OPLEDGER_DB": as_role(kept_apart, READER)}
        desk = Desk(load_settings({"operator": "audrey"}, environment, lab.folder), read_only=True, drive=False)
        try:
            reader = desk.ledger
            assert sum(desk.overview().counts.values()) == 3
            assert reader.show(done.operation_id).state is State.SUCCEEDED
            assert reader.events(done.operation_id) == lab.ledger.events(done.operation_id)
            assert reader.explain(stays.operation_id).why
            assert reader.packet(stays.operation_id)["calls"]
            assert reader.escalations() == lab.ledger.escalations()
            assert reader.doctor()
            with pytest.raises(StoreUnavailable, match="for reading only"):
                reader.pause_provider(done.contract, reason="no")
        finally:
            desk.close()
    with admin(as_role(kept_apart, READER)) as session:
        for table in ("event", "operation", "checkpoint"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(f"DELETE FROM {table}")


def _last_log(lab: Lab) -> str:
    return max(lab.folder.glob("program-*.log"), key=lambda path: path.stat().st_mtime).read_text()
