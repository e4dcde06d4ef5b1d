from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys

import pytest

from opledger.rules.model import State
from tests.faults.lab import PATIENCE, Lab

pytestmark = pytest.mark.processes

HOURLY = {'first = "50ms"': 'first = "1h"', 'max = "400ms"': 'max = "1h"'}
SETTINGS = """\
[worker]
tick = "1h"
lease = "30s"

[[policy]]
when = 'operation.body.account == "acct_large"'
approvals = 1
"""


def test_a_worker_wakes_when_others_write(both: Lab) -> None:
    """It looks only every hour by itself, and the next poll is an hour away: what people do reaches it at once."""
    (both.folder / "opledger.toml").write_text(SETTINGS)
    both.contract(changes=HOURLY, result="3h", cancel="5s")
    worker = both.program("worker", "--name", "hourly")
    both.present()

    plain = both.submit("cancellable", "prompt")
    assert both.sim.wait_for(kind="create", count=1, timeout=60) == 1  # a submit wakes it

    large = both.submit(account="acct_large")
    assert both.show(large).state is State.AWAITING_APPROVAL
    both.ledger.approve(large.operation_id, reason="within budget", by="ana")
    assert both.sim.wait_for(kind="create", count=2, timeout=60) == 2  # an approval does

    both.until_state(large, State.ACCEPTED)
    both.ledger.ask_for_read(large.operation_id)
    assert both.sim.wait_for(kind="status", client_ref=large.operation_id, timeout=60) == 1  # a wish for a read does

    both.until_state(plain, State.ACCEPTED)
    assert both.wire("status", plain) == []
    both.ledger.cancel(plain.operation_id, reason="ordered twice")
    assert both.sim.wait_for(kind="cancel", timeout=60) == 1  # and a cancel does
    both.until(plain, lambda op: op.state.terminal)

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert both.ledger.store.workers() == []
    both.honest()


def test_once_does_what_is_due_and_stops(lab: Lab) -> None:
    """One look: the create is sent and its answer recorded; the poll that follows is for another time."""
    lab.contract(changes=HOURLY, result="3h")
    operation = lab.submit()
    assert lab.program("worker", "--once").wait(PATIENCE) == 0
    assert lab.show(operation).state is State.ACCEPTED
    assert lab.show(operation).lease is None
    assert lab.program("worker", "--once").wait(PATIENCE) == 0
    assert [entry["kind"] for entry in lab.sim.log()] == ["create"]
    assert lab.ledger.store.workers() == []


def test_once_waits_for_the_answer(lab: Lab) -> None:
    """It does not leave while a call that it made is unanswered."""
    lab.sim.control(hold="create")
    operation = lab.submit()
    program = lab.program("worker", "--once")
    assert lab.sim.wait_for(kind="create", held="true") == 1
    assert program.poll() is None
    lab.sim.control(release=True)
    assert program.wait(PATIENCE) == 0
    assert lab.show(operation).state is State.ACCEPTED


def test_until_idle_waits_for_polls_and_not_for_people(lab: Lab) -> None:
    """It ends what ends by itself, leaves what a person must decide, and says that all is done with 0."""
    (lab.folder / "opledger.toml").write_text(SETTINGS.replace("1h", "1s"))
    running, waiting = lab.submit(_polls=3), lab.submit(account="acct_large")
    assert lab.program("worker", "--until-idle").wait(PATIENCE) == 0
    assert lab.show(running).state is State.SUCCEEDED
    assert lab.show(waiting).state is State.AWAITING_APPROVAL
    assert lab.wire("create", waiting) == []
    assert lab.ledger.store.workers() == []
    lab.honest()


def test_once_and_until_idle_exclude_each_other(lab: Lab) -> None:
    """Two wishes that contradict are a mistake of usage, told before anything is done."""
    assert lab.program("worker", "--once", "--until-idle").wait(PATIENCE) == 2


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_worker_whose_file_was_taken_away_stops(lab: Lab, how: str) -> None:
    """SQLite would go on in a file that nobody can find again; another one in its place is another history."""
    operation = lab.submit(_seconds=600)
    program = lab.program("worker", "--name", "long")
    lab.until_state(operation, State.ACCEPTED)
    lab.present()
    lab.ledger.close()
    lab._ledger = None
    path = lab.folder / "ledger.db"
    shutil.copy(path, lab.folder / "copy.db")
    path.rename(lab.folder / "away.db")
    if how == "replaced":
        (lab.folder / "copy.db").rename(path)
    assert program.wait(PATIENCE) == 4
    said = (lab.folder / "program-1.log").read_text()
    assert f"was {how}" in said
    assert "while it was open" in said
    assert "Traceback" not in said


def test_a_worker_that_comes_up_when_its_parent_has_gone_ends(lab: Lab) -> None:
    """Whoever starts it with its own id may be killed before the worker has read who that is."""
    gone = subprocess.Popen(["/bin/true"])
    gone.wait(PATIENCE)
    assert lab.program("worker", "--parent", str(gone.pid)).wait(PATIENCE) == 0
    assert "the process that started this worker has ended" in (lab.folder / "program-1.log").read_text()


def test_a_worker_ends_with_its_parent(lab: Lab) -> None:
    """Also where the parent is killed and can tell it nothing."""
    words = 'import subprocess, sys; subprocess.run([sys.executable, "-m", "opledger.cli", "worker", "--with-parent"])'
    operation = lab.submit(_seconds=600)
    with (lab.folder / "child.log").open("wb") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", words],
            cwd=lab.folder, env={**os.environ, **lab.environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        lab.until_state(operation, State.ACCEPTED)
        [worker] = [os.pidfd_open(life.pid) for life in lab.ledger.store.workers()]
    finally:
        parent.kill()
        parent.wait(PATIENCE)
    assert select.select([worker], [], [], PATIENCE)[0], "the worker outlived its parent"
    os.close(worker)
    assert "the process that started this worker has ended" in (lab.folder / "child.log").read_text()
