from __future__ import annotations

import signal

import pytest

from opledger.rules.model import State
from tests.faults.lab import Lab
from tests.faults.victim import Strike

pytestmark = pytest.mark.processes

CANCEL_UNSENT = ("after record CallSent.cancel", "before send DELETE")
CANCEL_SENT = (
    "before record CallSent.cancel",
    "after send DELETE",
    "before record CancelAnswered",
    "after record CancelAnswered",
)
RECONCILE = (
    "before record CallLost.create",
    "after record CallLost.create",
    "before record CallSent.reconcile",
    "after record CallSent.reconcile",
    "before record Accepted",
    "after record Accepted",
)
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


@pytest.mark.parametrize("effect", ["before transaction", "after transaction"])
def test_killed_inside_a_transaction(lab: Lab, effect: str) -> None:
    """A death under SQLite's write lock leaves a lock that nobody holds and a transaction that never was (B44)."""
    operation = lab.submit(_polls=2)
    assert killed(lab, Strike(at=effect)) == f"kill {effect}"
    lab.finish()
    assert lab.show(operation).state is State.SUCCEEDED
    assert len(lab.jobs(operation)) == 1
    lab.honest()


@pytest.mark.parametrize("effect", RECONCILE)
@pytest.mark.parametrize("flavour", ["v1", "body", "clientid"])
def test_killed_while_finding_out_what_became_of_a_create(lab: Lab, flavour: str, effect: str) -> None:
    """By resend, by list and by get: a look-up that died is begun again, and there is still one job."""
    operation = lab.submit("lossy", flavour=flavour, _polls=2)
    assert killed(lab, Strike(at=effect)) == f"kill {effect}"
    lab.finish()
    assert lab.show(operation).state is State.SUCCEEDED
    assert len(lab.jobs(operation)) == 1
    lab.honest()


@pytest.mark.parametrize(
    "effect", ["after record CallSent.create", "before send POST", "after send POST", "before record Accepted"]
)
def test_killed_where_nothing_can_be_looked_up(lab: Lab, effect: str) -> None:
    """No token, no list: whoever sends again may start a second job, so nobody does, and a person is asked (I6)."""
    operation = lab.submit(flavour="none", _polls=2)
    assert killed(lab, Strike(at=effect)) == f"kill {effect}"
    sent = len(lab.wire("create"))
    lab.finish()
    found = lab.show(operation)
    assert found.state is State.CREATE_UNKNOWN
    assert found.attention is not None
    assert (
        len(lab.wire("create")) == sent == (0 if effect in ("after record CallSent.create", "before send POST") else 1)
    )


@pytest.mark.parametrize("effect", [*CANCEL_SENT, *CANCEL_UNSENT])
def test_killed_while_cancelling(lab: Lab, effect: str) -> None:
    """One intent is at most one cancel on the wire; a permit that was never used is unknown, not free for another."""
    unsent = effect in CANCEL_UNSENT
    if unsent:
        lab.contract(cancel="3s")
    operation = lab.submit("cancellable", "prompt")
    hand = lab.worker(Strike(at=effect), lease=0.5)
    lab.until_state(operation, State.OBSERVING)
    lab.ledger.cancel(operation.operation_id, reason="ordered twice")
    assert hand.ends() == -signal.SIGKILL, hand.tail()
    assert hand.struck() == f"kill {effect}"
    lab.finish()
    assert len(lab.wire("cancel", operation)) == (0 if unsent else 1)
    assert lab.show(operation).state is (State.CANCELLATION_UNCONFIRMED if unsent else State.CANCELLED)
    lab.honest()
