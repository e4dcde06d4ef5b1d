"""Creates: bugs B01 to B06 of other people, and what must not happen here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from opledger.errors import BodyConflict
from opledger.rules.model import State, from_rfc3339, to_rfc3339
from tests.scenarios.stage import Death, Stage


def tokens(stage: Stage, operation: Any) -> set[tuple[str, str]]:
    """Under which tokens, and with which bodies, creates arrived for an operation."""
    return {(entry["token"], entry["body_sha256"]) for entry in stage.wire("create", operation)}


# --- B01 the job id lived only in memory ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "kind"),
    [
        pytest.param("before", "CallSent", id="before the permit"),
        pytest.param("after", "CallSent", id="permitted, unsent"),
        pytest.param("before", "Accepted", id="answered, unrecorded"),
        pytest.param("after", "Accepted", id="recorded"),
        pytest.param("before", "Observed", id="in the first poll"),
    ],
)
def test_b01_a_worker_dies_at_any_point_and_one_job_exists(stage: Stage, when: str, kind: str) -> None:
    """Whatever the dead worker knew was in its memory only; record and token were there before it began."""
    operation = stage.submit(_seconds=30)
    stage.dies(when, kind, operation)
    stage.leases_end()
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert [found.remote_job_id] == stage.jobs(operation)
    assert {token for token, _ in tokens(stage, operation)} == {operation.idempotency_token}
    unknown = "CallLost" in stage.kinds(operation)
    assert unknown == ((when, kind) in (("after", "CallSent"), ("before", "Accepted")))
    stage.honest()


def test_b01_two_deaths_in_a_row(stage: Stage) -> None:
    """The second worker dies while it finds out what became of the first one's create."""
    operation = stage.submit(_seconds=30)
    stage.dies("before", "Accepted", operation)
    stage.leases_end()
    with pytest.raises(Death):
        stage.turn(stage.another_worker(dies=("before", "Accepted")))
    stage.leases_end()
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.jobs(operation)) == 1
    assert len(tokens(stage, operation)) == 1
    stage.honest()


# --- B03 the same token brought back an old failure -------------------------------------------------------------------


def test_b03_a_replayed_failure_is_marked_as_a_replay_and_ends_in_failed(stage: Stage) -> None:
    """The first job has failed; the resend brings it back. It is no new attempt, and no other one is made."""
    operation = stage.submit("replaying", "failed")
    stage.run()
    stage.on(operation)
    found = stage.show(operation)
    assert found.state is State.FAILED
    (accepted,) = stage.told(operation, "Accepted")
    assert accepted["replay"] is True
    assert len(stage.jobs(operation)) == 1
    assert len(stage.wire("create", operation)) == 2
    assert len(tokens(stage, operation)) == 1
    stage.honest()


def test_b03_a_stored_500_goes_to_a_person_and_not_round_for_ever(stage: Stage) -> None:
    """The provider repeats its stored error whatever we do: some tries under one token, then a person."""
    stage.contract("header", create="5m")
    operation = stage.submit("replaying", "error", flavour="header")
    stage.run()
    found = stage.show(operation)
    assert found.state is State.CREATE_UNKNOWN
    assert found.exhausted
    assert found.attention is not None
    tries = len(stage.wire("create", operation))
    assert 2 <= tries <= 20
    assert len(tokens(stage, operation)) == 1
    stage.on(operation)
    assert len(stage.wire("create", operation)) == tries


def test_b03_a_conflict_that_says_done_is_looked_up(stage: Stage) -> None:
    """409 "already done" names no job: the list does, and the failure found there is the old one."""
    says = "duplicate_when = 'status == 409 && body.error.code == \"already_done\"'\n"
    stage.contract(changes={"replay_marker =": says + "replay_marker ="})
    operation = stage.submit("failing", _seconds=0)
    done = {"error": {"code": "already_done", "message": "This was done before."}}
    stage.sim.control(drop_next="create")
    stage.sim.control(answer_next=[{"kind": "create", "status": 409, "body": done, "delay": 0}])
    stage.run()
    found = stage.show(operation)
    assert found.state is State.FAILED
    assert [found.remote_job_id] == stage.jobs(operation)
    (accepted,) = stage.told(operation, "Accepted")
    assert accepted["how"] == "list"
    stage.honest()


@pytest.mark.parametrize(("earlier", "replay"), [(600, True), (60, False)], ids=["long before", "just before"])
def test_b03_an_end_before_our_first_send_is_named_a_replay(file_stage: Stage, earlier: int, replay: bool) -> None:
    """No mark says so, but the job ended before we had sent anything; two clocks may differ by two minutes."""
    stage = file_stage
    operation = stage.submit("failing", _seconds=3600)
    found = stage.until_state(operation, State.OBSERVING)
    assert found.first_sent_at is not None
    ended = to_rfc3339(found.first_sent_at - timedelta(seconds=earlier))
    stage.sim.control(job={"id": found.remote_job_id, "state": "failed", "document": {"updated_at": ended}})
    stage.run()
    assert stage.show(operation).state is State.FAILED
    notes = stage.told(operation, "Observed")[-1].get("notes") or []
    assert any("ended before our first send: a replay" in note for note in notes) is replay


def test_b03_a_new_attempt_is_a_new_record_with_a_token_of_its_own(stage: Stage) -> None:
    """Trying again is somebody's decision; the failed record stays as it is."""
    stage.policies("[[policy]]\nwhen = \"operation.body.account == 'acct_218'\"\n")
    operation = stage.submit("replaying", "failed")
    stage.ledger.approve(operation.operation_id, reason="fine")
    stage.run()
    assert stage.show(operation).state is State.FAILED
    again = stage.submit(_seconds=1, wish={"supersedes": operation.operation_id})
    assert again.state is State.AWAITING_APPROVAL
    assert again.idempotency_token != operation.idempotency_token
    stage.on(again)
    assert stage.wire("create", again) == []
    stage.ledger.approve(again.operation_id, reason="fine")
    stage.run()
    assert stage.show(again).state is State.SUCCEEDED
    assert stage.show(operation).state is State.FAILED
    assert len(stage.jobs(operation)) == 1


# --- B06 the body changed under the same token ------------------------------------------------------------------------


def test_b06_another_body_under_one_identity_is_refused_before_any_call(stage: Stage) -> None:
    """The same step with another body is another wish; the first one stands."""
    first = stage.submit(_seconds=30, wish={"task": "t1", "step": "s1"})
    same = stage.submit(_seconds=30, wish={"task": "t1", "step": "s1"})
    assert same.operation_id == first.operation_id
    with pytest.raises(BodyConflict):
        stage.submit(_seconds=31, wish={"task": "t1", "step": "s1"})
    assert stage.wire() == []
    stage.run()
    assert len(stage.wire("create")) == 1


def test_b06_a_resend_has_the_same_bytes(stage: Stage) -> None:
    """Two lost answers: token and body are the same three times."""
    operation = stage.submit(_seconds=30)
    stage.sim.control(drop_next=["create", "create"])
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.wire("create", operation)) >= 2
    assert len(tokens(stage, operation)) == 1
    stage.honest()


@pytest.mark.parametrize("lost", [False, True], ids=["at once", "after a lost answer"])
def test_b06_a_token_that_is_known_with_another_body_stops_everything(stage: Stage, lost: bool) -> None:
    """Somebody else used our token, or the provider mixes things up: nothing is sent any more."""
    body = {"error": {"code": "idempotency_mismatch", "message": "other parameters"}}
    if lost:
        stage.sim.control(drop_next="create")
    stage.sim.control(answer_next={"kind": "create", "status": 422, "body": body, "before": True})
    operation = stage.submit(_seconds=30)
    stage.run()
    found = stage.show(operation)
    assert found.state is State.CONTRACT_VIOLATION
    assert ("TokenMismatch", 422) in [
        ("TokenMismatch", data["status"]) for data in stage.told(operation, "TokenMismatch")
    ]
    before = stage.calls()
    stage.on(operation)
    assert stage.calls() == before


def test_b06_after_429_the_same_body_goes_under_the_same_token(stage: Stage) -> None:
    """Throttled is not refused: token and bytes stay, and we wait as long as we were asked to."""
    stage.sim.control(
        answer_next={"kind": "create", "status": 429, "body": {}, "headers": {"retry-after": "40"}, "before": True}
    )
    operation = stage.submit(_seconds=30)
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    first, second = stage.wire("create", operation)
    assert (first["token"], first["body_sha256"]) == (second["token"], second["body_sha256"])
    assert from_rfc3339(second["time"]) - from_rfc3339(first["time"]) >= timedelta(seconds=40)
    assert "CallLost" not in stage.kinds(operation)
    stage.honest()
