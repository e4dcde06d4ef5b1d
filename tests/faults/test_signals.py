from __future__ import annotations

import signal

import pytest

from opledger.rules.model import State
from opledger.worker.hand import GRACE
from tests.faults.lab import Hand, Lab

pytestmark = pytest.mark.processes

SIGNALS = [signal.SIGTERM, signal.SIGINT]
LEASE = 6.0
"""Half of it is what calls under way are given to end. A successor that waited for it would record a LeaseTaken."""


def stopped(lab: Lab, hand: Hand, number: signal.Signals) -> None:
    """Send the signal and see that the worker left in good order."""
    began = lab.ledger.clock.monotonic()
    hand.signal(number)
    assert hand.ends(GRACE + 5) == 0, hand.tail()
    assert lab.ledger.clock.monotonic() - began < GRACE + 3
    assert "Traceback" not in hand.tail()
    assert lab.ledger.store.workers() == []
    assert lab.partials() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_each_kind_of_call_is_in_flight(lab: Lab, number: signal.Signals) -> None:
    """Create, status read, cancel and download hang: fates are recorded as unknown, not guessed, and no cancel sent."""
    timeouts = {f'timeout = "{seconds}s"': 'timeout = "60s"' for seconds in (2, 3, 5)}
    lab.contract(changes=timeouts, cancel="90s", result="90s", collect="90s", create="90s")
    hand = lab.worker(lease=LEASE)
    lab.sim.control(hold="result")
    downloading = lab.submit(_polls=1)
    assert lab.sim.wait_for(kind="result", held="true") == 1
    cancelling = lab.submit("cancellable", "prompt")
    lab.until_state(cancelling, State.OBSERVING)
    lab.sim.control(hold="cancel")
    lab.ledger.cancel(cancelling.operation_id, reason="ordered twice")
    assert lab.sim.wait_for(kind="cancel", held="true") == 1
    lab.sim.control(hold="status")
    reading = lab.submit(_polls=2)
    assert lab.sim.wait_for(kind="status", held="true") == 1
    lab.sim.control(hold="create")
    creating = lab.submit(_polls=2)
    assert lab.sim.wait_for(kind="create", held="true") == 1

    stopped(lab, hand, number)

    assert lab.show(creating).state is State.CREATE_UNKNOWN  # the request is there and was not answered
    assert lab.kinds(creating)[-1] == "CallLost"
    assert lab.show(reading).state is State.ACCEPTED  # a read may be dropped: it changes nothing
    assert lab.show(cancelling).state is State.CANCELLING  # it has left: unknown, to be read after, not sent again
    assert lab.kinds(cancelling)[-1] == "CallLost"
    assert lab.show(downloading).state is State.RESULT_COLLECTING  # half a result is no result
    assert lab.kept() == []
    assert [lab.show(one).lease for one in (creating, reading, cancelling, downloading)] == [None] * 4

    lab.sim.control(release=True)
    lab.finish(20, lease=LEASE)
    for operation, state, cancels in (
        (creating, State.SUCCEEDED, 0),
        (reading, State.SUCCEEDED, 0),
        (cancelling, State.CANCELLED, 1),
        (downloading, State.SUCCEEDED, 0),
    ):
        assert lab.show(operation).state is state
        assert "LeaseTaken" not in lab.kinds(operation)
        assert len(lab.jobs(operation)) == 1
        assert len(lab.wire("cancel", operation)) == cancels
    assert len(lab.kept()) == 3
    lab.honest()


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
def test_a_call_that_ends_in_time_is_recorded_and_nothing_new_begins(lab: Lab, number: signal.Signals) -> None:
    """The answer comes while the worker winds down: it is kept, and the next step is left to the next worker."""
    lab.sim.control(hold="create", drop_next="create")
    operation = lab.submit(_polls=2)
    hand = lab.worker(lease=LEASE)
    assert lab.sim.wait_for(kind="create", held="true") == 1
    hand.signal(number)
    lab.sim.control(release=True)
    assert hand.ends() == 0
    # The answer was dropped, so a resend was due at once; a worker that is leaving must not begin one.
    assert lab.show(operation).state is State.CREATE_UNKNOWN
    assert len(lab.wire("create", operation)) == 1
    lab.finish(20, lease=LEASE)
    assert lab.show(operation).state is State.SUCCEEDED
    assert len(lab.jobs(operation)) == 1
    lab.honest()


def test_a_signal_leaves_no_operation_behind(lab: Lab) -> None:
    """Forty at once in every phase: all leases are given back, nothing is half-written, nobody is cancelled."""
    operations = [
        lab.submit(name, _seconds=0.3)
        for name in ("ideal", "lossy", "slow", "throttling", "hidden", "flapping", "cut", "ideal")
        for _ in range(5)
    ]
    hand = lab.worker(lease=LEASE)
    assert lab.sim.wait_for(kind="status", count=20, timeout=60) >= 20
    stopped(lab, hand, signal.SIGTERM)
    assert all(lab.show(operation).lease is None for operation in operations)
    assert all(lab.show(operation).open_call is None for operation in operations)
    lab.finish(lease=LEASE)
    assert {lab.show(operation).state for operation in operations} == {State.SUCCEEDED}
    assert all(len(lab.jobs(operation)) == 1 for operation in operations)
    assert lab.wire("cancel") == []
    lab.honest()
