from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from opledger.rules.model import State
from opledger.sim.process import SimProcess
from tests.faults.lab import Lab
from tests.faults.victim import Strike

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    "effect", ["record CallSent.create", "record Accepted", "record Observed", "record ResultAccepted"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_fails_loses_nothing(both: Lab, when: str, effect: str) -> None:
    """A commit broke, and it is unknown whether it went through: no answer is lost, and no call is made on it."""
    operation = both.submit(_polls=2)
    worker = both.worker(Strike("fail", at=f"{when} {effect}"), lease=2 if "CallSent" in effect else 4, until_idle=True)
    assert worker.hears() == f"fail {when} {effect}"
    assert worker.ends() == 0, worker.tail()
    assert both.show(operation).state is State.SUCCEEDED
    assert len(both.jobs(operation)) == 1
    # An answer in hand is tried again. A permit is not: whether it stands is unknown, so another one is needed.
    assert len(both.wire("create", operation)) == 1
    assert len(both.wire("status", operation)) == 2
    assert len(both.kept()) == 1
    both.honest()


def test_a_file_that_another_program_has_locked(lab: Lab) -> None:
    """For seconds nobody may write: nothing is sent, the answers in hand are kept, and work goes on by itself."""
    lab.contract(changes={'timeout = "3s"': 'timeout = "30s"'})
    lab.sim.control(hold="create")
    operation = lab.submit(_polls=2)
    waiting = [lab.submit(_polls=2) for _ in range(5)]
    worker = lab.worker(lease=30, until_idle=True)
    assert lab.sim.wait_for(kind="create", held="true", count=6) == 6
    late = lab.submit(_polls=2)
    assert lab.sim.wait_for(kind="create", held="true", count=7) == 7
    other = sqlite3.connect(lab.folder / "ledger.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        lab.sim.control(release=True)
        assert lab.sim.wait_for(kind="status", count=1, timeout=3) == 0
        other.execute("ROLLBACK")
    finally:
        other.close()
    assert worker.ends() == 0, worker.tail()
    for one in (operation, *waiting, late):
        assert lab.show(one).state is State.SUCCEEDED
        assert len(lab.wire("create", one)) == 1
    lab.honest()


@pytest.mark.postgres
def test_a_server_that_restarts_while_jobs_run(own_server: Any, sim: SimProcess, tmp_path: Path) -> None:
    """Every session is cut off in every phase: nothing is sent twice, and both workers go on by themselves."""
    url = own_server.get_uri()
    with Lab(tmp_path, url, sim) as lab:
        lab.contract(changes={'timeout = "3s"': 'timeout = "30s"'})
        lab.sim.control(hold="create")
        creating = [lab.submit(_polls=2) for _ in range(5)]
        workers = [lab.worker(lease=20, until_idle=True) for _ in range(2)]
        assert lab.sim.wait_for(kind="create", held="true", count=5) == 5
        lab.sim.control(hold=["create", "result"])
        own_server.stop()
        lab.sim.control(release=True)
        # All five answers are in hand, and no database is there to keep them.
        assert lab.sim.wait_for(kind="status", count=1, timeout=1.5) == 0
        own_server.ensure_postgres_running()
        assert [worker.ends() for worker in workers] == [0, 0], workers[0].tail() + workers[1].tail()
        for operation in creating:
            assert lab.show(operation).state is State.SUCCEEDED
            assert len(lab.jobs(operation)) == 1
            assert len(lab.wire("create", operation)) == 1
        lab.honest()


@pytest.mark.postgres
def test_a_server_that_restarts_while_there_is_nothing_to_do(own_server: Any, sim: SimProcess, tmp_path: Path) -> None:
    """The next poll is seconds away and the server is gone: the worker waits for both and is not idle."""
    with Lab(tmp_path, own_server.get_uri(), sim) as lab:
        lab.contract(changes={'first = "50ms"': 'first = "4s"', 'max = "400ms"': 'max = "4s"'})
        operation = lab.submit(_polls=1)
        worker = lab.worker(until_idle=True, tick=0.1)
        lab.until(operation, lambda op: op.state is State.ACCEPTED and op.lease is None)
        own_server.stop()
        assert lab.sim.wait_for(kind="status", timeout=1) == 0
        assert worker.alive
        own_server.ensure_postgres_running()
        assert worker.ends() == 0, worker.tail()
        assert "the database is away" in worker.tail()
        assert lab.show(operation).state is State.SUCCEEDED
        lab.honest()


def test_many_writers_a_long_reader_and_a_death_under_the_lock(lab: Lab) -> None:
    """Two workers, people who write and look, a reader that never ends, a worker killed in a transaction (B44)."""
    reader = sqlite3.connect(lab.folder / "ledger.db", isolation_level=None)
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM event").fetchone()
        operations = [lab.submit(_polls=2) for _ in range(10)]
        doomed = lab.worker(Strike(at="before transaction", nth=4), lease=0.5)
        for number, operation in enumerate(operations):
            lab.ledger.note(operation.operation_id, f"looked at it {number} times")
            lab.ledger.list()
        doomed.ends()  # before the others begin: they could leave it nothing to die over
        workers = [lab.worker(lease=10, until_idle=True) for _ in range(2)]
        assert [worker.ends() for worker in workers] == [0, 0], workers[0].tail() + workers[1].tail()
        assert all("locked" not in worker.tail() for worker in workers)
    finally:
        reader.close()
    for operation in operations:
        assert lab.show(operation).state is State.SUCCEEDED
        assert len(lab.jobs(operation)) == 1
    lab.honest()
