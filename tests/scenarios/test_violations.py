"""The provider broke its promises: both answers are kept, nothing more is sent, and a person chooses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opledger.errors import Refused
from opledger.rules.model import Choice, Operation, State, to_rfc3339
from tests.scenarios.stage import Stage

Story = Callable[[Stage], list[Operation]]


def unfamiliar_id(stage: Stage) -> list[Operation]:
    """The resend under one token starts a second job, and its answer comes after the first job is known."""
    operation = stage.submit("token_ignoring", _seconds=7200)
    stage.run(600)
    return [operation]


def identity_changed(stage: Stage) -> list[Operation]:
    """A status read answers for another job."""
    operation = stage.submit("id_changing")
    stage.run(600)
    return [operation]


def many_jobs(stage: Stage) -> list[Operation]:
    """Two live jobs answer to one reference."""
    stage.contract("body", {'[[reconcile]]\nstrategy = "resend"\n': ""})
    stage.sim.control(drop_next="create")
    operation = stage.submit(flavour="body", _seconds=7200)
    item = {"client_ref": operation.operation_id, "state": "running", "created_at": to_rfc3339(stage.clock.now())}
    page = {"data": [{"id": "job_a", **item}, {"id": "job_b", **item}], "next": None}
    stage.sim.control(answer_next={"kind": "list", "status": 200, "body": page})
    stage.run(600)
    return [operation]


def one_id_for_two(stage: Stage) -> list[Operation]:
    """One id is given to two operations: both stop."""
    first = stage.submit("id_reusing", _seconds=7200)
    stage.until_state(first, State.OBSERVING)
    second = stage.submit("id_reusing", _seconds=7200)
    stage.run(600)
    return [first, second]


def one_id_for_two_in_a_list(stage: Stage) -> list[Operation]:
    """The answer that gives the id a second time is lost, and only a list can tell of it."""
    stage.contract("v1", {'[[reconcile]]\nstrategy = "resend"\n': ""})
    first = stage.submit("id_reusing", _seconds=7200)
    stage.until_state(first, State.OBSERVING)
    stage.sim.control(drop_next="create")
    second = stage.submit("id_reusing", _seconds=7200)
    stage.run(600)
    return [first, second]


def token_mismatch(stage: Stage) -> list[Operation]:
    """The token is known with another body."""
    body = {"error": {"code": "idempotency_mismatch", "message": "other parameters"}, "id": "job_other"}
    stage.sim.control(drop_next="create", answer_next={"kind": "create", "status": 422, "body": body, "before": True})
    operation = stage.submit(_seconds=7200)
    stage.run(600)
    return [operation]


def final_state_changed(stage: Stage) -> list[Operation]:
    """The job had succeeded, and now it says that it failed."""
    operation = stage.submit("expiring", "late", _seconds=1)
    found = stage.until_state(operation, State.RESULT_COLLECTING)
    stage.sim.control(job={"id": found.remote_job_id, "state": "failed"})
    stage.run(600)
    return [operation]


STORIES: list[tuple[Story, str, int]] = [
    (unfamiliar_id, "", 2),
    (identity_changed, "IdentityChanged", 2),
    (many_jobs, "ManyJobs", 1),
    (one_id_for_two, "IdentityChanged", 2),
    (one_id_for_two_in_a_list, "IdentityChanged", 2),
    (token_mismatch, "TokenMismatch", 1),
    (final_state_changed, "FinalStateChanged", 2),
]


@pytest.mark.parametrize(("story", "kind", "answers"), STORIES, ids=[story.__name__ for story, *_ in STORIES])
def test_b04_and_its_kin_all_automation_stops_and_both_answers_are_kept(
    stage: Stage, story: Story, kind: str, answers: int
) -> None:
    """Nothing is polled to success, nothing is cancelled, for any operation involved."""
    involved = story(stage)
    before = stage.calls()
    for operation in involved:
        found = stage.show(operation)
        assert found.state is State.CONTRACT_VIOLATION, stage.kinds(operation)
        assert found.attention is not None
        assert found.next is not None
        assert found.next.at is None
        violations = [name for name in stage.kinds(operation) if name in VIOLATIONS]
        assert violations == [kind] if kind else len(violations) == 1
    kept = [text for operation in involved for _, text in stage.kept(operation)]
    assert len(set(kept)) >= answers
    stage.on(involved[0])
    assert stage.calls() == before
    assert "cancel" not in before
    for operation in involved:
        offered = {option.choice: option for option in stage.ledger.choices(operation.operation_id)}
        assert "close" in offered
        if stage.show(operation).jobs:
            assert set(offered) == {"keep", "cancel", "close"}
            assert set(offered[Choice.KEEP].jobs) == set(stage.show(operation).jobs)
        with pytest.raises(Refused):
            stage.ledger.cancel(operation.operation_id, reason="stop it")
        packet = str(stage.ledger.packet(operation.operation_id))
        assert all(job in packet for job in stage.show(operation).jobs)
    assert stage.calls() == before


VIOLATIONS = {"UnfamiliarJobId", "TokenMismatch", "ManyJobs", "IdentityChanged", "FinalStateChanged"}


def test_b04_the_answers_of_two_jobs_under_one_token_are_both_there_word_for_word(stage: Stage) -> None:
    """Support needs what the provider said, not our reading of it."""
    (operation,) = unfamiliar_id(stage)
    one, two = stage.jobs(operation)
    texts = "\n".join(text for _, text in stage.kept(operation))
    assert one in texts
    assert two in texts
    assert set(stage.show(operation).jobs) == {one, two}


def test_the_answer_that_gave_one_id_to_two_operations_is_kept_on_the_second(stage: Stage) -> None:
    """Each record holds the answer that its own create got, and names the other one."""
    first, second = one_id_for_two(stage)
    job = stage.show(first).remote_job_id
    assert job is not None
    for operation, other in ((first, second), (second, first)):
        assert any(job in text for _, text in stage.kept(operation))
        (changed,) = stage.told(operation, "IdentityChanged")
        assert changed["other_operation"] == other.operation_id


def test_an_id_that_an_ended_operation_had_is_put_before_a_person_there_too(stage: Stage) -> None:
    """The first one has succeeded with that job: its state stays, and its record says what came up."""
    first = stage.submit("id_reusing", _seconds=1)
    stage.run()
    assert stage.show(first).state is State.SUCCEEDED
    second = stage.submit("id_reusing", _seconds=1)
    stage.run()
    assert stage.show(second).state is State.CONTRACT_VIOLATION
    ended = stage.show(first)
    assert ended.state is State.SUCCEEDED
    assert ended.attention is not None
    assert ended.attention.code == "final_state_contradicted"
    assert second.operation_id in ended.attention.reason


def test_a_late_answer_that_names_another_job_stops_everything(stage: Stage) -> None:
    """A worker that froze with an answer in hand wakes up after its successor found another job."""
    operation = stage.submit(flavour="header", _seconds=7200)
    ghost = stage.worker
    wakes = stage.freezes(ghost, "Accepted")
    under_way = stage.begin()
    assert stage.sim.wait_for(kind="create", status="202", client_ref=operation.operation_id) == 1
    stage.froze(ghost)
    stage.leases_end()
    stage.sim.control(forget_tokens=True)
    successor = stage.another_worker()
    stage.turn(successor)
    assert stage.show(operation).remote_job_id == stage.jobs(operation)[1]
    wakes()
    under_way.result(20)
    found = stage.show(operation)
    assert found.state is State.CONTRACT_VIOLATION
    assert "UnfamiliarJobId" in stage.kinds(operation)
    assert set(found.jobs) == set(stage.jobs(operation))
    texts = "\n".join(text for _, text in stage.kept(operation))
    assert all(f'"{job}"' in texts for job in found.jobs)
    before = stage.calls()
    stage.on(operation)
    assert stage.calls() == before


@pytest.mark.parametrize("which", [0, 1])
def test_keep_polls_exactly_that_job_to_its_end(stage: Stage, which: int) -> None:
    """The other one runs on, unread and uncancelled."""
    (operation,) = unfamiliar_id(stage)
    jobs = stage.show(operation).jobs
    before = len(stage.wire())
    with pytest.raises(Refused, match="needs the job's id"):
        stage.ledger.resolve(operation.operation_id, "keep", reason="the first one is ours")
    with pytest.raises(Refused, match="never came up"):
        stage.ledger.resolve(operation.operation_id, "keep", job="job_x", reason="this one")
    stage.ledger.resolve(operation.operation_id, "keep", job=jobs[which], reason="that one is ours")
    stage.sim.control(job={"id": jobs[which], "state": "succeeded"})
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.remote_job_id) == (State.SUCCEEDED, jobs[which])
    after = stage.wire()[before:]
    assert {entry["job_id"] for entry in after} == {jobs[which]}
    assert {entry["kind"] for entry in after} == {"status", "result"}


@pytest.mark.parametrize("which", [0, 1])
def test_cancel_cancels_exactly_that_job(stage: Stage, which: int) -> None:
    """One call, for the job that was named."""
    (operation,) = unfamiliar_id(stage)
    jobs = stage.show(operation).jobs
    before = len(stage.wire())
    stage.ledger.resolve(operation.operation_id, "cancel", job=jobs[which], reason="that one is too many")
    stage.run()
    assert stage.show(operation).state is State.CANCELLED
    after = stage.wire()[before:]
    assert {entry["job_id"] for entry in after} == {jobs[which]}
    assert [entry["kind"] for entry in after].count("cancel") == 1


def test_close_sends_nothing(stage: Stage) -> None:
    """Whatever runs goes on running, and the record says who decided that."""
    (operation,) = unfamiliar_id(stage)
    before = stage.calls()
    closed = stage.ledger.resolve(operation.operation_id, "close", reason="support deletes both")
    assert closed.state is State.RESOLVED
    stage.on(operation)
    assert stage.calls() == before


def test_agents_do_not_resolve(stage: Stage) -> None:
    """A program never decides what no program may decide."""
    (operation,) = identity_changed(stage)
    with pytest.raises(Refused, match="agent"):
        stage.ledger.resolve(operation.operation_id, "close", reason="done", by="agent-7")
    assert stage.show(operation).state is State.CONTRACT_VIOLATION
