"""Programs of two versions on one ledger, as processes: what may go on does, what may not says so and stops."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest

from opledger.rules.model import State
from opledger.store import schema
from tests.faults.lab import PATIENCE, ROOT, Lab
from tests.faults.newer import NEXT
from tests.support.databases import admin

pytestmark = pytest.mark.processes
OUT_OF_REACH = 5


def newer(lab: Lab, how: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the command line program of the next version."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return lab.program(how, *arguments, module="tests.faults.newer", PYTHONPATH=paths)


def said(lab: Lab, number: int) -> str:
    """What the program that was started as this one printed."""
    return (lab.folder / f"program-{number}.log").read_text()


def tell(lab: Lab, statement: str) -> list[tuple[object, ...]]:
    """Run a statement past the store."""
    if lab.url.startswith("sqlite"):
        with closing(sqlite3.connect(lab.url.removeprefix("sqlite:///"))) as connection, connection:
            return connection.execute(statement).fetchall()
    with admin(lab.url) as session:
        cursor = session.execute(statement.encode())
        return list(cursor.fetchall()) if cursor.description else []


def version(lab: Lab) -> object:
    """The schema's version."""
    return tell(lab, f"SELECT version_num FROM {schema.VERSION_TABLE}")[0][0]


def test_old_and_new_workers_drive_side_by_side(both: Lab) -> None:
    """A worker holds leases while the next version's first one upgrades the tables: nobody stops, nothing is twice."""
    both.contract(changes={'timeout = "3s"': 'timeout = "30s"'})
    old = both.worker(lease=30)
    both.present()
    both.sim.control(hold="create")
    under_way = [both.submit(_polls=2) for _ in range(3)]
    assert both.sim.wait_for(kind="create", held="true", count=3) == 3
    new = newer(both, "adds", "worker", "--name", "new")
    both.present(2)
    assert version(both) == NEXT
    both.sim.control(release=True)
    for operation in under_way:
        both.until_state(operation, State.SUCCEEDED)
        (accepted,) = [one for one in both.ledger.events(operation.operation_id) if one.kind == "Accepted"]
        assert accepted.actor.startswith("victim")  # who sent the create has also read its answer

    old.signal(signal.SIGTERM)
    assert old.ends() == 0, old.tail()
    both.until_state(both.submit(_polls=1), State.SUCCEEDED)  # the new one alone
    again = both.worker(lease=30)  # today's program starts on the newer tables
    both.present(2)
    new.send_signal(signal.SIGTERM)
    assert new.wait(PATIENCE) == 0, said(both, 1)
    both.until_state(both.submit(_polls=1), State.SUCCEEDED)  # today's alone
    again.signal(signal.SIGTERM)
    assert again.ends() == 0, again.tail()
    assert version(both) == NEXT
    assert len(both.wire("create")) == 5
    both.honest()


def test_an_upgrade_that_shuts_out_a_live_worker_is_refused(both: Lab) -> None:
    """The new program names whom to stop, and changes nothing; afterwards the old one is refused."""
    both.contract()
    old = both.program("worker", "--name", "old")
    both.present()
    assert newer(both, "changes", "worker", "--once").wait(PATIENCE) == OUT_OF_REACH
    assert "workers of that older version run on it (old-" in said(both, 2)
    assert version(both) == schema.CURRENT
    operation = both.submit(_polls=1)
    both.until_state(operation, State.SUCCEEDED)  # the old one goes on
    old.send_signal(signal.SIGTERM)
    assert old.wait(PATIENCE) == 0
    assert newer(both, "changes", "worker", "--once").wait(PATIENCE) == 0, said(both, 3)
    assert version(both) == NEXT
    assert both.program("worker", "--once").wait(PATIENCE) == OUT_OF_REACH
    assert "use the newer opledger" in said(both, 4)
    both.honest()


def test_a_worker_and_a_receiver_that_were_overtaken_stop(both: Lab) -> None:
    """Somebody upgraded past them, say from a copy: they see it at the next sign of life, and end with the reason."""
    both.contract()
    worker = both.program("worker", "--name", "old")
    receiver = both.program("webhooks", "serve", "--port", "0")
    both.present()
    tell(both, f"UPDATE {schema.VERSION_TABLE} SET version_num = '{NEXT}', oldest = '{NEXT}'")
    for number, program in enumerate((worker, receiver), 1):
        assert program.wait(PATIENCE) == OUT_OF_REACH
        assert "use the newer opledger" in said(both, number)
    assert tell(both, "SELECT name FROM worker") == []  # it signed off
