from __future__ import annotations

import signal

import pytest

from opledger.rules.model import Operation, State
from opledger.worker import GRACE
from tests.faults.lab import Hand, Lab
from tests.faults.victim import Strike

pytestmark = pytest.mark.processes

SIGNALS = [signal.SIGTERM, signal.SIGINT]
LEASE = 300.0
"""A lease so long that a successor who had to wait for it would fail the test."""


def stopped(lab: Lab, hand: Hand, number: signal.Signals) -> None:
    """Send the signal and see that the worker left in good order."""
    began = lab.ledger.clock.monotonic()
    hand.signal(number)
    assert hand.ends(GRACE + 5) == 0, hand.tail()
    assert lab.ledger.clock.monotonic() - began < GRACE + 3
    assert "Traceback" not in hand.tail()
    assert lab.ledger.store.workers() == []
    assert lab.partials() == []


def finished(lab: Lab, operation: Operation, state: State, *, cancels: int) -> None:
    """A successor brings it to its end at once; the provider saw one job, and no cancel that nobody asked for."""
    assert lab.show(operation).lease is None
    lab.sim.control(release=True)
    lab.finish(20, lease=LEASE)
    assert lab.show(operation).state is state
    assert "LeaseTaken" not in lab.kinds(operation)
    assert len(lab.jobs(operation)) == 1
    assert len(lab.wire("cancel", operation)) == cancels
    lab.honest()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_create_is_in_flight(lab: Lab, number: signal.Signals) -> None:
    """The provider has the request and has not answered: its fate is recorded as unknown, not guessed (B26)."""
    lab.contract(changes={'timeout = "3s"': 'timeout = "60s"'})
    lab.sim.control(hold="create")
    operation = lab.submit(_polls=2)
    hand = lab.worker(lease=LEASE)
    assert lab.sim.wait_for(kind="create", held="true") == 1
    stopped(lab, hand, number)
    assert lab.show(operation).state is State.CREATE_UNKNOWN
    assert lab.kinds(operation)[-1] == "CallLost"
    finished(lab, operation, State.SUCCEEDED, cancels=0)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_status_read_is_in_flight(lab: Lab, number: signal.Signals) -> None:
    """A read may be dropped: it changes nothing, and the job runs on at the provider."""
    lab.contract(changes={'timeout = "2s"': 'timeout = "60s"'})
    lab.sim.control(hold="status")
    operation = lab.submit(_polls=2)
    hand = lab.worker(lease=LEASE)
    assert lab.sim.wait_for(kind="status", held="true") == 1
    stopped(lab, hand, number)
    assert lab.show(operation).state is State.ACCEPTED
    finished(lab, operation, State.SUCCEEDED, cancels=0)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_all_operations_wait(both: Lab, number: signal.Signals) -> None:
    """Between two polls nothing is held, so the worker goes at once and the record needs no mending."""
    both.contract(changes={'first = "50ms"': 'first = "1h"', 'max = "400ms"': 'max = "1h"'}, result="2h")
    operation = both.submit()
    hand = both.worker(lease=LEASE)
    before = both.until(operation, lambda op: op.state is State.ACCEPTED and op.lease is None)
    began = both.ledger.clock.monotonic()
    stopped(both, hand, number)
    assert both.ledger.clock.monotonic() - began < GRACE
    assert both.show(operation) == before
    assert both.wire("cancel") == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_cancel_is_in_flight(lab: Lab, number: signal.Signals) -> None:
    """The cancel that a person asked for has left: unknown, read after, and not sent a second time."""
    lab.contract(changes={'timeout = "2s"': 'timeout = "60s"'})
    operation = lab.submit("cancellable", "prompt")
    hand = lab.worker(lease=LEASE)
    lab.until_state(operation, State.OBSERVING)
    lab.sim.control(hold="cancel")
    lab.ledger.cancel(operation.operation_id, reason="ordered twice")
    assert lab.sim.wait_for(kind="cancel", held="true") == 1
    stopped(lab, hand, number)
    assert lab.show(operation).state is State.CANCELLING
    assert lab.kinds(operation)[-1] == "CallLost"
    finished(lab, operation, State.CANCELLED, cancels=1)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_result_is_downloaded(lab: Lab, number: signal.Signals) -> None:
    """Half a result is no result: it is removed and fetched again by the next worker."""
    lab.contract(changes={'timeout = "5s"': 'timeout = "60s"'})
    lab.sim.control(hold="result")
    operation = lab.submit(_polls=1)
    hand = lab.worker(lease=LEASE)
    assert lab.sim.wait_for(kind="result", held="true") == 1
    stopped(lab, hand, number)
    assert lab.show(operation).state is State.RESULT_COLLECTING
    assert lab.kept() == []
    finished(lab, operation, State.SUCCEEDED, cancels=0)
    assert len(lab.kept()) == 1


@pytest.mark.parametrize("number", SIGNALS)
def test_a_call_that_ends_in_time_is_recorded_and_nothing_new_begins(lab: Lab, number: signal.Signals) -> None:
    """The answer comes while the worker winds down: it is kept, and the next step is left to the next worker."""
    lab.sim.control(hold="create", drop_next="create")
    operation = lab.submit(_polls=2)
    hand = lab.worker(Strike("stop", at="before farewell"), lease=LEASE)
    assert lab.sim.wait_for(kind="create", held="true") == 1
    hand.signal(number)
    lab.sim.control(release=True)
    assert hand.hears() == "stop before farewell"
    hand.signal(signal.SIGCONT)
    assert hand.ends() == 0
    # The answer was dropped, so a resend was due at once; a worker that is leaving must not begin one.
    assert lab.show(operation).state is State.CREATE_UNKNOWN
    assert len(lab.wire("create", operation)) == 1
    finished(lab, operation, State.SUCCEEDED, cancels=0)


def test_a_signal_leaves_no_operation_behind(lab: Lab) -> None:
    """Forty at once in every phase: all leases are given back, nothing is half-written, nobody is cancelled."""
    operations = [
        lab.submit(name, _seconds=0.3)
        for name in ("ideal", "lossy", "slow", "throttling", "hidden", "flapping", "cut", "ideal")
        for _ in range(5)
    ]
    hand = lab.worker(lease=LEASE)
    assert lab.sim.wait_for(kind="status", count=20, timeout=20) >= 20
    stopped(lab, hand, signal.SIGTERM)
    assert all(lab.show(operation).lease is None for operation in operations)
    assert all(lab.show(operation).open_call is None for operation in operations)
    lab.finish(lease=LEASE)
    assert {lab.show(operation).state for operation in operations} == {State.SUCCEEDED}
    assert all(len(lab.jobs(operation)) == 1 for operation in operations)
    assert lab.wire("cancel") == []
    lab.honest()
