"""Real workers under their service, on real time, killed; at every point and in every story: `tests.crashes`."""

from __future__ import annotations

import signal

import pytest

from opledger.rules.model import State
from tests.faults.lab import Lab
from tests.faults.victim import Strike

pytestmark = pytest.mark.processes

ON_THE_SERVER = (
    "before transaction",
    "after transaction",
    "after record CallSent.create",
    "before record Accepted",
    "after record Accepted",
    "before record Observed",
    "after keep",
)


def killed(lab: Lab, *strikes: Strike) -> str | None:
    """Run a worker to its death; returns the effect at which it died."""
    hand = lab.worker(*strikes, until_idle=True, lease=0.5)
    assert hand.ends() == -signal.SIGKILL, hand.tail()
    return hand.struck()


def test_a_dropped_create_answer_leads_to_exactly_one_job(both: Lab) -> None:
    """The provider starts the job and drops the answer: the client must find that job and not start another."""
    operation = both.submit("lossy", _polls=2)
    both.finish()
    assert both.show(operation).state is State.SUCCEEDED
    assert len(both.jobs(operation)) == 1
    both.honest()


def test_killed_while_the_provider_holds_its_answer(both: Lab) -> None:
    """The create has arrived and is not answered: the worker's death must not start a second job (B01)."""
    operation = both.submit(_polls=2)
    both.sim.control(hold="create")
    hand = both.worker(lease=1)
    assert both.sim.wait_for(kind="create", held="true") == 1
    hand.signal(signal.SIGKILL)
    assert hand.ends() == -signal.SIGKILL
    both.sim.control(release=True)
    both.finish()
    assert both.show(operation).state is State.SUCCEEDED
    assert len(both.jobs(operation)) == 1
    assert "CallLost" in both.kinds(operation)
    both.honest()


@pytest.mark.parametrize("effect", ON_THE_SERVER)
@pytest.mark.postgres
def test_killed_on_a_database_server(server_lab: Lab, effect: str) -> None:
    """PostgreSQL rolls back what a dead session left open; then the same must hold as on SQLite."""
    operation = server_lab.submit(_polls=2)
    assert killed(server_lab, Strike(at=effect)) == f"kill {effect}"
    server_lab.finish()
    assert server_lab.show(operation).state is State.SUCCEEDED
    assert len(server_lab.jobs(operation)) == 1
    assert len(server_lab.kept()) == 1
    server_lab.honest()
