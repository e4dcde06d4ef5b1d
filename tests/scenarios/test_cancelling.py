"""Cancels: bugs B20 to B26 of other people, and every way in which a provider answers a cancel."""

from __future__ import annotations

from typing import Any

import pytest

import opledger.worker
from opledger.edges import clock
from opledger.errors import Refused
from opledger.rules.model import Operation, State
from opledger.worker import hand
from tests.scenarios.stage import Stage

IDEMPOTENT = {"idempotent = false": "idempotent = true"}


def running(stage: Stage, personality: str = "cancellable", variant: str | None = None, **body: Any) -> Operation:
    """An operation whose job runs."""
    if personality == "cancellable":
        body.setdefault("_seconds", 7200)
    return stage.until_state(stage.submit(personality, variant, **body), State.OBSERVING)


def cancels(stage: Stage, operation: Operation | None = None) -> int:
    """How many cancels arrived."""
    return len(stage.wire("cancel", operation))


# --- B20 killed while parked: the remote job went on ------------------------------------------------------------------


def test_b20_a_cancel_between_two_polls_leaves_at_once_and_once(stage: Stage) -> None:
    """Nobody holds the operation and its next poll is far away: the wish itself makes it due."""
    operation = running(stage)
    busy = {"kind": "status", "status": 429, "body": {}, "headers": {"retry-after": "1200"}}
    stage.sim.control(answer_next=busy)
    parked = stage.until(operation, lambda op: op.failures == 1)
    assert (parked.lease, cancels(stage)) == (None, 0)
    stage.passes(60)
    wanted = stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    assert wanted.state is State.CANCEL_REQUESTED
    stage.turn()
    assert cancels(stage, operation) == 1
    assert stage.show(operation).state is State.CANCELLING
    stage.run()
    assert stage.show(operation).state is State.CANCELLED
    assert stage.told(operation, "Observed")[-1]["means"] == "cancelled"
    assert cancels(stage, operation) == 1
    stage.honest()


# --- B22 the answer to the cancel was not true ------------------------------------------------------------------------

ANSWERS: dict[str, dict[str, Any]] = {
    "200 true": {"status": 200, "body": {"accepted": True}},
    "200 false": {"status": 200, "body": {"accepted": False}},
    "200 cancelled": {"status": 200, "body": {"accepted": True, "state": "cancelled"}},
    "202": {"status": 202, "body": {}},
    "204": {"status": 204, "body": "", "content_type": None},
    "200 html": {"status": 200, "body": "<html>ok</html>", "content_type": "text/html"},
    "200 no json": {"status": 200, "body": "{cancelled"},
    "301": {"status": 301, "body": "", "headers": {"location": "/elsewhere"}},
    "400": {"status": 400, "body": {"error": {"code": "bad"}}},
    "404": {"status": 404, "body": {"error": {"code": "not_found"}}},
    "409 finished": {"status": 409, "body": {"error": {"code": "already_finished"}}},
    "409": {"status": 409, "body": {"error": {"code": "conflict"}}},
    "410": {"status": 410, "body": {}},
    "422": {"status": 422, "body": {}},
    "429": {"status": 429, "body": {}},
    "500": {"status": 500, "body": {}},
    "503": {"status": 503, "body": {}, "headers": {"retry-after": "1"}},
}


@pytest.mark.parametrize("answer", list(ANSWERS))
def test_b22_only_a_status_read_says_how_a_cancel_ended(file_stage: Stage, answer: str) -> None:
    """Whatever the cancel is answered with, one call leaves, and the end is what the provider's status says."""
    stage = file_stage
    fates = {fate: running(stage, "never_ending") for fate in ("succeeded", "failed", "cancelled", "running")}
    for operation in fates.values():
        stage.sim.control(answer_next={"kind": "cancel", "before": True, **ANSWERS[answer]})
        stage.ledger.cancel(operation.operation_id, reason="ordered twice")
        stage.turn()
        assert stage.show(operation).state is State.CANCELLING
    for fate, operation in fates.items():
        if fate != "running":
            stage.sim.control(job={"id": operation.remote_job_id, "state": fate})
    stage.run()
    stage.run(3600)
    for fate, operation in fates.items():
        ended = State.CANCELLATION_UNCONFIRMED if fate == "running" else State(fate)
        assert (stage.show(operation).state, cancels(stage, operation)) == (ended, 1)
    stage.honest()


def test_b22_a_cancel_of_a_job_that_had_finished_ends_in_its_success(stage: Stage) -> None:
    """Finish and cancel cross: the honest end is succeeded, with the wish and its timing in the history."""
    operation = running(stage, "cancel_racing")
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert found.cancel is not None
    assert found.cancel.reason == "ordered twice"
    assert cancels(stage, operation) == 1
    stage.honest()


def test_b22_unconfirmed_at_the_deadline_with_a_packet_and_again_only_on_a_new_wish(stage: Stage) -> None:
    """The provider says yes and runs on: one call, then a person; their new intent is one more call."""
    operation = running(stage, "cancel_ignoring", "forever")
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    stage.on(operation)
    found = stage.show(operation)
    assert found.state is State.CANCELLATION_UNCONFIRMED
    assert found.attention is not None
    assert cancels(stage, operation) == 1
    packet = stage.ledger.packet(operation.operation_id)
    assert str(found.remote_job_id) in str(packet)
    with pytest.raises(Refused, match="never confirmed"):
        stage.ledger.cancel(operation.operation_id, reason="again")
    stage.ledger.resolve(operation.operation_id, "watch", reason="it may take longer", extend_by="5m")
    stage.run()
    assert (stage.show(operation).state, cancels(stage, operation)) == (State.CANCELLATION_UNCONFIRMED, 1)
    stage.ledger.resolve(operation.operation_id, "cancel", reason="once more")
    stage.run()
    assert (stage.show(operation).state, cancels(stage, operation)) == (State.CANCELLATION_UNCONFIRMED, 2)
    intents = {data["request_id"] for data in stage.told(operation, "CancelRequested")}
    intents |= {data["request_id"] for data in stage.told(operation, "Decided") if data["choice"] == "cancel"}
    assert len(intents) == 2
    stage.ledger.resolve(operation.operation_id, "close", reason="support has it")
    before = stage.calls()
    stage.on(operation)
    assert stage.calls() == before
    stage.honest({str(found.remote_job_id): 2})


# --- B24 cancelling one stopped its brothers --------------------------------------------------------------------------


BY_RUN = '[cancel]\nmethod = "POST"\npath = "/v1/jobs/{step.run}/cancel"'


def test_b24_a_shared_target_is_cancelled_by_one_call_and_names_all(stage: Stage) -> None:
    """Two jobs of one run, and the cancel takes the run: all must be named, one call leaves, each gets the event."""
    stage.contract(
        changes={'[cancel]\nmethod = "DELETE"\npath = "/v1/jobs/{job_id}"': BY_RUN},
        more='\n[create.refs]\nrun = "/name"\n',
    )
    one, two, other = (running(stage, "never_ending", name=name) for name in ("run_1", "run_1", "run_2"))
    with pytest.raises(Refused, match=two.operation_id):
        stage.ledger.cancel(one.operation_id, reason="ordered twice")
    stage.run(60)
    assert cancels(stage) == 0
    both = [one.operation_id, two.operation_id]
    stage.ledger.cancel(one.operation_id, reason="ordered twice", also=both)
    stage.ledger.cancel(two.operation_id, reason="ordered twice", also=both)
    stage.run(60)
    assert [entry["path"] for entry in stage.wire("cancel")] == ["/v1/jobs/run_1/cancel"]
    for operation in (one, two):
        assert stage.kinds(operation).count("CancelRequested") == 1
        stage.sim.control(job={"id": operation.remote_job_id, "state": "cancelled"})
    stage.run(600)
    assert [stage.show(op).state for op in (one, two, other)] == [State.CANCELLED, State.CANCELLED, State.OBSERVING]
    assert len(stage.wire("cancel")) == 1


# --- B26 a deploy cancelled the customer's jobs -----------------------------------------------------------------------


@pytest.mark.parametrize("held", ["create", "status", "result", None])
def test_b26_stopping_a_worker_never_cancels(stage: Stage, held: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in flight are left as unknown, leases are given back, and the next worker carries on."""
    monkeypatch.setattr(opledger.worker, "GRACE", 0.05)
    operation = stage.submit(_seconds=60)
    if held in ("status", None):
        stage.until_state(operation, State.OBSERVING)
        stage.passes(5)
    if held == "result":
        stage.sim.control(hold="result")
        stage.until(operation, lambda op: op.progress is not None and op.state is State.OBSERVING)
        stage.passes(120)
    stopped = stage.worker
    if held is not None:
        stage.sim.control(hold=held)
        under_way = stage.begin()
        assert stage.sim.wait_for(kind=held, held="true", client_ref=operation.operation_id) == 1
        stage.stop(stopped)
        under_way.result(20)
    else:
        stage.stop(stopped)
    stage.sim.control(release=True)
    assert stage.show(operation).lease is None
    assert stage.show(operation).cancel is None
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.jobs(operation)) == 1
    assert cancels(stage) == 0
    stage.honest()


def test_b26_a_cancel_in_flight_is_not_sent_again_by_the_next_worker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is unknown; the contract does not call a cancel idempotent, so only reads follow."""
    monkeypatch.setattr(opledger.worker, "GRACE", 0.05)
    operation = running(stage)
    stage.sim.control(hold="cancel")
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    under_way = stage.begin()
    assert stage.sim.wait_for(kind="cancel", held="true", client_ref=operation.operation_id) == 1
    stage.stop(stage.worker)
    under_way.result(20)
    stage.sim.control(release=True)
    stage.run()
    assert stage.show(operation).state is State.CANCELLED
    assert "CallLost" in stage.kinds(operation)
    assert cancels(stage, operation) == 1
    stage.honest()


# --- answers that are lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["drop_next", "drop_before_next"])
def test_a_lost_answer_is_read_after_and_no_second_cancel_leaves(stage: Stage, order: str) -> None:
    """Not idempotent: whether it arrived is unknown, and nobody asks again without a person."""
    operation = running(stage)
    stage.sim.control(**{order: "cancel"})
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    arrived = order == "drop_next"
    assert stage.show(operation).state is (State.CANCELLED if arrived else State.CANCELLATION_UNCONFIRMED)
    assert "CallLost" in stage.kinds(operation)
    assert cancels(stage, operation) == 1
    stage.honest()


def test_a_lost_answer_of_an_idempotent_cancel_is_read_after_and_sent_again(stage: Stage) -> None:
    """Under the same intent, after a read that shows the job still running, and not for ever."""
    stage.contract(changes=IDEMPOTENT)
    operation = running(stage, "never_ending")
    stage.sim.control(drop_before_next=["cancel"] * 9)
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    calls = stage.calls(operation)
    first = calls.index("cancel")
    assert calls[first + 1] == "status"
    assert 1 < cancels(stage, operation) <= 5
    assert stage.kinds(operation).count("CancelRequested") == 1
    assert stage.show(operation).state is State.CANCELLATION_UNCONFIRMED


def test_a_throttled_idempotent_cancel_waits_as_long_as_it_was_told(stage: Stage) -> None:
    """429 is "not executed" where the contract calls a cancel idempotent: the same intent goes again, later."""
    stage.contract(changes=IDEMPOTENT)
    operation = running(stage)
    throttled = {"kind": "cancel", "status": 429, "body": {}, "headers": {"retry-after": "30"}, "before": True}
    stage.sim.control(answer_next=throttled)
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.turn()
    stage.passes(25)
    stage.turn()
    assert cancels(stage, operation) == 1
    stage.run()
    assert stage.show(operation).state is State.CANCELLED
    assert cancels(stage, operation) == 2
    stage.honest()


# --- before there is a job --------------------------------------------------------------------------------------------


def test_a_cancel_before_the_create_takes_back_and_sends_nothing(stage: Stage) -> None:
    """Nothing ever leaves, by anybody's hand."""
    stage.policies("[[policy]]\nwhen = 'operation.body.rows > 100'\n")
    pending, waiting = stage.submit(), stage.submit(rows=101)
    for operation in (pending, waiting):
        found = stage.ledger.cancel(operation.operation_id, reason="ordered twice", by="agent-7")
        assert found.state is State.WITHDRAWN
    stage.run(3600)
    assert stage.wire() == []


def test_a_cancel_after_undelivered_creates_takes_back(stage: Stage) -> None:
    """The one that was throttled provably started nothing, so the standing wish ends it without a further call."""
    throttled = {"kind": "create", "status": 429, "body": {}, "headers": {"retry-after": "60"}, "before": True}
    stage.sim.control(answer_next=throttled)
    operation = stage.submit(_seconds=30)
    stage.turn()
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    assert stage.show(operation).state is State.WITHDRAWN
    assert stage.calls() == ["create"]


@pytest.mark.parametrize("found", [True, False], ids=["found", "absent"])
def test_a_cancel_of_an_unknown_create_waits_for_the_job_and_then_leaves_at_once(stage: Stage, found: bool) -> None:
    """While nobody knows the job there is nothing to cancel; a look-up is preferred to a resend, which might create."""
    operation = stage.submit("cancellable")
    busy = {"kind": "list", "status": 429, "body": {}, "headers": {"retry-after": "60"}}
    resends = [{"kind": "create", "status": 500, "body": {}, "before": True}] * 2
    stage.sim.control(drop_next="create") if found else stage.sim.control(drop_before_next="create")
    stage.sim.control(answer_next=[*resends, busy])
    stage.until(operation, lambda op: "throttled" in (op.last_error or ""))
    assert stage.show(operation).state is State.CREATE_UNKNOWN
    creates = len(stage.wire("create"))
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    assert stage.show(operation).state is State.CREATE_UNKNOWN
    stage.run()
    assert len(stage.wire("create")) == creates
    ended = stage.show(operation)
    assert ended.state is (State.CANCELLED if found else State.WITHDRAWN)
    assert cancels(stage) == (1 if found else 0)
    if found:
        calls = stage.calls()
        assert calls[calls.index("cancel") - 1] == "list"
    stage.honest()


def test_a_cancel_asked_for_while_a_resend_is_prepared_stops_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's copy of the record is older than the cancel: no permit may be given on it."""
    operation = stage.submit("cancellable")
    stage.sim.control(drop_before_next="create")
    given: list[str] = []

    def new_id(prefix: str) -> str:
        if prefix == "call" and not given and stage.show(operation).state is State.CREATE_UNKNOWN:
            given.append(prefix)
            stage.ledger.cancel(operation.operation_id, reason="a moment before the permit")
        return clock.new_id(prefix)

    monkeypatch.setattr(hand, "new_id", new_id)
    stage.run()
    assert given
    assert stage.show(operation).state is State.WITHDRAWN
    assert len(stage.wire("create")) == 1
    stage.honest()


def test_a_provider_without_a_cancel_says_so(stage: Stage) -> None:
    """No promise is made that cannot be kept."""
    stage.contract()
    path = stage.contracts / "sim.toml"
    text = path.read_text()
    start = text.index("[cancel]")
    path.write_text(text[:start] + text[text.index("[result]") :])
    operation = running(stage, "ideal", _seconds=60)
    with pytest.raises(Refused, match="has no cancel"):
        stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert cancels(stage) == 0


def test_two_wishes_at_a_time_are_one(stage: Stage) -> None:
    """The second one is told of the first, and one call leaves."""
    operation = running(stage)
    stage.ledger.cancel(operation.operation_id, reason="ordered twice", by="olga")
    with pytest.raises(Refused, match="olga"):
        stage.ledger.cancel(operation.operation_id, reason="me too", by="pedro")
    stage.run()
    assert cancels(stage, operation) == 1
