"""Killed while a delivery is all there is: it is read once, nothing is polled, and the end is the same."""

from __future__ import annotations

import signal

import pytest

from opledger.rules.model import State
from opledger.sim.hooks import WEBHOOK_SECRET, webhook_text
from tests.fakes.hooks import ReceiverThread, without_status
from tests.faults.lab import Lab
from tests.faults.victim import Strike

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["Observed", "ResultAccepted"])
def test_a_worker_that_is_killed_over_a_delivery(both: Lab, when: str, kind: str) -> None:
    """What was handed over stands in the journal until what it says does; then a second worker goes on from there."""
    path = both.contracts / f"{both.contract()}.toml"
    path.write_text(without_status(path.read_text()) + webhook_text("standard", "env:HOOK_SECRET", decides=True))
    operation = both.submit(_seconds=0)
    with ReceiverThread(both.ledger, secret=WEBHOOK_SECRET) as receiver:
        hand = both.worker(Strike(at=f"{when} record {kind}"), lease=0.5)
        both.until_state(operation, State.ACCEPTED)
        (job,) = both.jobs(operation)
        both.sim.ask("POST", "/_webhooks", {"to": receiver.url("sim"), "follow": False})
        try:
            (sent,) = both.sim.ask("POST", "/_deliver", {"job": job, "events": ["succeeded"]})
        finally:
            both.sim.ask("POST", "/_webhooks", {})
        assert sent["status"] == 202
        assert hand.ends() == -signal.SIGKILL, hand.tail()
    both.finish(lease=5.0)
    assert both.show(operation).state is State.SUCCEEDED
    kinds = both.kinds(operation)
    assert (kinds.count("Notified"), kinds.count("Observed")) == (1, 1)
    assert [entry for entry in both.sim.log() if entry["kind"] == "status"] == []
    both.honest()
