from __future__ import annotations

from typing import Any

import pytest

from opledger.rules.model import State
from tests.faults.lab import Lab

pytestmark = pytest.mark.processes


def cancelled(lab: Lab, personality: str, variant: str | None = None, **body: Any) -> Any:
    """An operation whose job runs, and for which a person then wants a cancel, under a worker that is at work."""
    operation = lab.submit(personality, variant, **body)
    lab.worker()
    lab.until_state(operation, State.OBSERVING)
    lab.ledger.cancel(operation.operation_id, reason="ordered twice", effect="the job stops")
    return operation


def test_a_job_that_ends_as_the_cancel_arrives_has_succeeded(both: Lab) -> None:
    """The cancel is answered with yes and the job has finished all the same: what the provider says last counts."""
    operation = cancelled(both, "cancel_racing")
    found = both.until(operation, lambda op: op.state.terminal)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    assert len(both.wire("cancel", operation)) == 1
    assert "CancelRequested" in both.kinds(operation)
    both.honest()


def test_a_terminal_answer_under_way_while_a_cancel_is_asked_for(lab: Lab) -> None:
    """The read that says succeeded was sent before the intent and answered after it: no cancel need leave any more."""
    lab.sim.control(hold="status")
    operation = lab.submit(_polls=1)
    lab.worker()
    assert lab.sim.wait_for(kind="status", held="true", client_ref=operation.operation_id) == 1
    lab.ledger.cancel(operation.operation_id, reason="ordered twice")
    lab.sim.control(release=True)
    found = lab.until(operation, lambda op: op.state.terminal)
    assert found.state is State.SUCCEEDED
    assert len(lab.wire("cancel", operation)) <= 1
    lab.honest()


def test_a_lost_cancel_answer_is_read_after_and_not_sent_again(both: Lab) -> None:
    """The provider took the cancel and dropped its answer. Its contract does not call cancel idempotent: only look."""
    operation = cancelled(both, "cancellable", "lossy")
    found = both.until(operation, lambda op: op.state.terminal)
    assert found.state is State.CANCELLED
    assert len(both.wire("cancel", operation)) == 1
    assert "CallLost" in both.kinds(operation)
    both.honest()


def test_a_lost_cancel_that_is_idempotent_is_sent_again_under_one_intent(lab: Lab) -> None:
    """Where the contract calls cancel idempotent a lost one is read after, and resent while the job still runs."""
    lab.contract(changes={"idempotent = false": "idempotent = true"})
    lab.sim.control(drop_before_next="cancel")
    operation = cancelled(lab, "cancellable", "prompt")
    found = lab.until(operation, lambda op: op.state.terminal)
    assert found.state is State.CANCELLED
    assert [entry["fault"] for entry in lab.wire("cancel", operation)][1:] == [None]
    kinds = lab.kinds(operation)
    assert kinds.count("CancelRequested") == 1
    assert "Observed" in kinds[kinds.index("CallLost") :][: kinds[kinds.index("CallLost") :].index("CallSent")]


def test_a_cancel_that_is_ignored_stays_unconfirmed(both: Lab) -> None:
    """Accepted and ignored: at the deadline a person is asked, nothing is called cancelled, and nothing sent again."""
    both.contract(changes={'timeout = "2s"': 'timeout = "1s"'}, cancel="1500ms")
    operation = cancelled(both, "cancel_ignoring", "forever")
    found = both.until(operation, lambda op: op.state is State.CANCELLATION_UNCONFIRMED and op.lease is None)
    assert found.attention is not None
    assert len(both.wire("cancel", operation)) == 1
    both.honest()


def test_a_cancel_between_two_polls_needs_no_lease_owner(both: Lab) -> None:
    """Parked for twenty minutes and no worker there: the next worker sends the cancel, once, at once (B20)."""
    slowly = {'first = "50ms"': 'first = "20m"', 'max = "400ms"': 'max = "20m"'}
    both.contract(changes=slowly, result="2h", cancel="6s")
    operation = both.submit("cancellable", "prompt")
    parking = both.worker()
    parked = both.until_state(operation, State.ACCEPTED)
    assert parked.next is not None and parked.next.at is not None
    assert (parked.next.at - both.ledger.clock.now()).total_seconds() > 500
    parking.close()
    both.ledger.cancel(operation.operation_id, reason="no longer wanted")
    assert both.wire("cancel") == []
    both.worker()
    assert both.sim.wait_for(kind="cancel", count=1, timeout=60) == 1
    assert both.until(operation, lambda op: op.state.terminal).state is State.CANCELLED
    assert len(both.wire("cancel", operation)) == 1
    both.honest()


ANSWERS: dict[str, tuple[dict[str, Any], State]] = {
    "yes to a job that runs on": ({"status": 200, "body": {"accepted": True}, "before": True}, State.SUCCEEDED),
    "a polite no": ({"status": 200, "body": {"accepted": False}, "before": True}, State.SUCCEEDED),
    "202": ({"status": 202, "body": {"accepted": True}}, State.CANCELLED),
    "204 with nothing": ({"status": 204, "body": "", "content_type": None}, State.CANCELLED),
    "404": ({"status": 404, "body": {"error": {"code": "not_found"}}, "before": True}, State.SUCCEEDED),
    "409 already finished": (
        {"status": 409, "body": {"error": {"code": "already_finished"}}, "before": True},
        State.SUCCEEDED,
    ),
    "500": ({"status": 500, "body": {"error": {"code": "internal"}}, "before": True}, State.SUCCEEDED),
}


def test_no_answer_to_a_cancel_is_taken_for_the_end(lab: Lab) -> None:
    """Yes, no, nothing, gone, too late, broken: each is followed by reads, and only those say how it ended (B22)."""
    lab.worker()
    ended = {}
    for words, (answer, _) in ANSWERS.items():
        runs_on = answer.get("before", False)
        operation = lab.submit("ideal" if runs_on else "cancellable", None if runs_on else "prompt", _seconds=30)
        job = lab.until_state(operation, State.OBSERVING).remote_job_id
        lab.sim.control(answer_next={"kind": "cancel", **answer})
        lab.ledger.cancel(operation.operation_id, reason="ordered twice")
        assert lab.sim.wait_for(kind="cancel", client_ref=operation.operation_id) == 1
        if runs_on:
            lab.sim.control(advance={"job": job, "seconds": 60})
        ended[words] = lab.until(operation, lambda op: op.state.terminal).state
        assert len(lab.wire("cancel", operation)) == 1
    assert ended == {words: state for words, (_, state) in ANSWERS.items()}
    lab.honest()


def test_a_cancel_before_anything_was_sent_sends_nothing(lab: Lab) -> None:
    """A wish that never left is withdrawn: neither a create nor a cancel ever arrives."""
    operation = lab.submit()
    lab.ledger.cancel(operation.operation_id, reason="changed my mind")
    lab.finish()
    assert lab.show(operation).state is State.WITHDRAWN
    assert lab.sim.log() == []


def test_a_cancel_during_a_create_in_flight_stands_until_the_job_is_known(both: Lab) -> None:
    """The answer to the create is lost and a cancel is wanted: the job is found, then cancelled, once (DESIGN §5)."""
    both.sim.control(hold="create", drop_next="create")
    operation = both.submit("cancellable", "prompt")
    both.worker()
    assert both.sim.wait_for(kind="create", held="true") == 1
    both.ledger.cancel(operation.operation_id, reason="ordered twice")
    both.sim.control(release=True)
    assert both.until(operation, lambda op: op.state.terminal).state is State.CANCELLED
    assert len(both.jobs(operation)) == 1
    assert len(both.wire("cancel", operation)) == 1
    both.honest()
