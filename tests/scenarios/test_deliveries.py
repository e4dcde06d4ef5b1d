"""A provider without a status read: its deliveries are the evidence, read by the worker, and nobody ever polls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opledger.errors import Refused
from opledger.ledger.deliveries import Deliveries
from opledger.rules.deliveries import GRADE
from opledger.rules.model import Operation, State
from opledger.sim.hooks import MANNERS
from tests.scenarios.hooked import Told, outcome
from tests.scenarios.stage import Stage

BY_JOB = {'token = "/data/client_ref"\n': ""}


@pytest.fixture
def told(stage: Stage) -> Iterator[Told]:
    """On both databases."""
    with Told(stage) as made:
        yield made
        assert stage.wire("status") == [], "a provider without a status read was asked for one"


@pytest.fixture
def told_in_file(file_stage: Stage) -> Iterator[Told]:
    """In a file."""
    with Told(file_stage) as made:
        yield made
        assert file_stage.wire("status") == [], "a provider without a status read was asked for one"


def accepted(told: Told, seconds: float = 0) -> Operation:
    """An operation whose job runs."""
    operation = told.stage.submit(_seconds=seconds)
    told.stage.turn()
    assert told.stage.show(operation).state is State.ACCEPTED
    return operation


def test_the_worker_reads_the_delivery_and_the_receiver_does_not(told: Told) -> None:
    """It is marked as what it is: told, not read. The result is fetched, and nothing is ever polled."""
    stage = told.stage
    operation = accepted(told)
    assert told.deliver(operation, "running") == [202]
    assert stage.show(operation).state is State.ACCEPTED
    stage.turn()
    seen = stage.show(operation)
    assert (seen.state, seen.remote_state, seen.attempts.observe) == (State.OBSERVING, "running", 0)
    assert told.deliver(operation, "succeeded") == [202]
    stage.turn()
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    observed = [event for event in stage.ledger.events(operation.operation_id) if event.kind == "Observed"]
    ids = [one["reference"] for one in stage.told(operation, "Notified")]
    assert [str(event.cause) for event in observed] == [f"webhook:{one}" for one in ids]
    assert [event.data["delivery"] for event in observed if event.data] == ids
    assert all(GRADE in event.data["notes"] for event in observed if event.data)
    assert {event.actor for event in observed} == {stage.worker.name}
    assert dict(stage.show(operation).unread) == {}
    stage.honest()


def test_where_every_delivery_is_lost_the_deadline_ends_the_wait(told: Told) -> None:
    """Nobody can ask: a read is refused with the reason. What comes after the deadline still counts."""
    stage = told.stage
    operation = accepted(told)
    with pytest.raises(Refused, match="has no status read"):
        stage.ledger.check_readable(stage.show(operation))
    with pytest.raises(Refused, match="has no status read"):
        stage.ledger.ask_for_read(operation.operation_id)
    planned = stage.show(operation).next
    assert planned is not None
    assert (planned.kind, planned.at) == ("deadline", stage.show(operation).result_deadline)
    why = stage.ledger.explain(operation.operation_id).why
    assert "cannot be asked about" in why
    assert "polled" not in why
    assert told.deliver(operation, "queued", "succeeded", manner="lost") == []
    stage.run()
    assert stage.show(operation).state is State.RESULT_TIMED_OUT
    assert told.deliver(operation, "succeeded") == [202]
    stage.run()
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    stage.honest()


@pytest.mark.parametrize("knows", ["token", "job_id"])
def test_what_comes_before_the_job_is_known_is_read_once_it_is(stage: Stage, knows: str) -> None:
    """The create's answer is held back: by our token it is handed over at once, by the job id it is parked."""
    with Told(stage, **(BY_JOB if knows == "job_id" else {})) as told:
        stage.sim.control(hold="create")
        operation = stage.submit(_seconds=0)
        turn = stage.begin()
        assert stage.sim.wait_for(kind="create", held="true") == 1
        assert told.deliver(operation, "running", "succeeded") == [202, 202]
        assert ("Notified" in stage.kinds(operation)) is (knows == "token")
        assert stage.show(operation).state is State.CREATE_PENDING
        stage.sim.control(release=True)
        turn.result(30)
        assert Deliveries(stage.ledger).match_parked() == 0, "the worker leaves them to a receiver"
        stage.run()
        assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
        assert stage.wire("status") == []
        stage.honest()


def test_what_comes_while_the_create_is_unknown_waits_for_the_look_up(told: Told) -> None:
    """A delivery binds no job: it makes the look-up due, and is read after it."""
    stage = told.stage
    stage.sim.control(drop_next=["create"])
    operation = stage.submit(_seconds=0)
    turn = stage.begin()
    turn.result(30)
    assert told.deliver(operation, "succeeded") == [202]
    stage.run()
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    kinds = stage.kinds(operation)
    assert kinds.index("Accepted") < kinds.index("Observed")
    stage.honest()


def test_what_was_parked_counts_before_a_deadline_passes(file_stage: Stage) -> None:
    """Also where no receiver has run since, and no worker: whoever looks first reads it."""
    with Told(file_stage, **BY_JOB) as told:
        operation = accepted(told)
        (job,) = file_stage.jobs(operation)
        file_stage.sql(f"UPDATE operation SET remote_job_id = NULL WHERE operation_id = '{operation.operation_id}'")
        assert told.deliver(operation, "succeeded") == [202]
        file_stage.sql(f"UPDATE operation SET remote_job_id = '{job}' WHERE operation_id = '{operation.operation_id}'")
        assert "Notified" not in file_stage.kinds(operation)
        file_stage.passes(3 * 3600)
        file_stage.turn()
        assert "DeadlinePassed" not in file_stage.kinds(operation)
        assert outcome(file_stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)


@pytest.mark.parametrize("manner", sorted(MANNERS))
def test_every_manner_of_sending(told: Told, manner: str) -> None:
    """Doubled, turned round and late ones end in the same; forged and lost ones bring nothing, and that shows."""
    stage = told.stage
    operation = accepted(told)
    statuses = told.deliver(operation, "queued", "running", "succeeded", manner=manner)
    stage.run(600)
    assert set(statuses) == {"forged": {401}, "replayed": {401}, "lost": set()}.get(manner, {202})
    if manner in ("forged", "replayed", "lost", "stranger"):
        assert stage.show(operation).state is State.ACCEPTED
        assert "Notified" not in stage.kinds(operation)
        stage.run()
        assert outcome(stage, operation)[0] is State.RESULT_TIMED_OUT
    else:
        assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
        assert stage.show(operation).attention is None
        assert stage.kinds(operation).count("Notified") == 3
    stage.honest()


def test_another_end_after_the_end_moves_nothing_and_tells_a_person(told: Told) -> None:
    """Old news and the same end again are kept and say nothing; a contradiction is an attention."""
    stage = told.stage
    operation = accepted(told)
    told.deliver(operation, "succeeded")
    stage.run()
    told.deliver(operation, "running", "queued")
    told.deliver(operation, "succeeded", manner="late")
    stage.run(60)
    ended = stage.show(operation)
    assert (ended.state, ended.attention, ended.next) == (State.SUCCEEDED, None, None)
    told.deliver(operation, "failed")
    stage.run(60)
    found = stage.show(operation)
    assert found.attention is not None
    assert found.attention.code == "final_state_contradicted"
    assert (found.state, found.remote_state, found.result) == (ended.state, ended.remote_state, ended.result)
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)


def test_another_end_while_the_result_is_fetched_is_a_violation(told: Told) -> None:
    """As in a status answer: a final state that changes is a broken promise. Old news is none."""
    stage = told.stage
    operation = accepted(told)
    for _ in range(2):
        stage.sim.control(answer_next={"kind": "result", "status": 404, "body": {}})
    told.deliver(operation, "succeeded")
    stage.turn()
    told.deliver(operation, "running")
    stage.turn()
    found = stage.show(operation)
    assert (found.state, found.remote_state, found.attention) == (State.RESULT_COLLECTING, "succeeded", None)
    told.deliver(operation, "failed")
    stage.turn()
    assert stage.show(operation).state is State.CONTRACT_VIOLATION
    assert "FinalStateChanged" in stage.kinds(operation)


def test_a_failure_is_told_with_its_reason(told: Told) -> None:
    """The error's place is in the delivery."""
    stage = told.stage
    operation = accepted(told)
    told.deliver(operation, "failed", error="the ledger could not be read")
    stage.run()
    failed = stage.show(operation)
    assert (failed.state, failed.last_error) == (State.FAILED, "the ledger could not be read")
    assert outcome(stage, operation) == (State.FAILED, "failed", None, 1, 0)


def test_another_job_under_our_token_is_a_violation_and_is_read_when_a_person_has_decided(told: Told) -> None:
    """Promise 4: an unfamiliar job id stops automation. The delivery is not lost by that."""
    stage = told.stage
    operation = accepted(told)
    (job,) = stage.jobs(operation)
    told.deliver(operation, "succeeded", id="job_of_nobody")
    stage.turn()
    found = stage.show(operation)
    assert (found.state, found.jobs) == (State.CONTRACT_VIOLATION, (job, "job_of_nobody"))
    told.deliver(operation, "running")
    stage.run(60)
    assert stage.show(operation).state is State.CONTRACT_VIOLATION
    stage.ledger.resolve(operation.operation_id, "keep", job=job, reason="asked them", by="ana")
    stage.run(60)
    assert (stage.show(operation).state, stage.show(operation).remote_state) == (State.OBSERVING, "running")
    assert dict(stage.show(operation).unread) == {}
    told.deliver(operation, "succeeded", manner="late")
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED


def test_a_delivery_that_names_one_operation_and_the_job_of_another_ends_neither(told: Told) -> None:
    """It contradicts itself: whose token it has is shown to a person, and the other one is not believed to be done."""
    stage = told.stage
    first, second = accepted(told), accepted(told)
    told.deliver(second, "succeeded", client_ref=first.operation_id)
    stage.run(60)
    assert [stage.show(one).state for one in (first, second)] == [State.CONTRACT_VIOLATION, State.ACCEPTED]
    told.deliver(second, "succeeded", manner="late")
    stage.run(60)
    assert stage.show(second).state is State.SUCCEEDED


def test_a_cancel_is_confirmed_by_a_delivery_or_by_nobody(told: Told) -> None:
    """The cancel deadline goes on counting; a late word still ends it."""
    stage = told.stage
    first, second = accepted(told, 1000), accepted(told, 1000)
    for one in (first, second):
        stage.ledger.cancel(one.operation_id, reason="not needed")
    stage.turn()
    assert stage.show(first).state is State.CANCELLING
    told.deliver(first, "running", "cancelled")
    stage.turn()
    assert stage.show(first).state is State.CANCELLED
    stage.run()
    assert stage.show(second).state is State.CANCELLATION_UNCONFIRMED
    told.deliver(second, "cancelled")
    stage.run()
    assert stage.show(second).state is State.CANCELLED
    assert len(stage.wire("cancel")) == 2


def test_a_link_with_a_signature_in_it_is_not_stored_and_so_cannot_be_read(told: Told) -> None:
    """It is a secret. That is said at once, and not after a day of refused reads."""
    stage = told.stage
    operation = accepted(told)
    (job,) = stage.jobs(operation)
    told.deliver(operation, "succeeded", result_url=f"/v1/jobs/{job}/result?sig=1abcdef")
    stage.run()
    found = stage.show(operation)
    assert found.state is State.RESULT_UNAVAILABLE
    assert found.last_error is not None
    assert "signature" in found.last_error
    assert stage.wire("result") == []


def test_a_result_inside_the_delivery(told_in_file: Told) -> None:
    """It is kept whole, however long it is."""
    stage = told_in_file.stage
    path = stage.contracts / "sim.toml"
    text = path.read_text()
    start, end = text.index("[result]"), text.index("[deadlines]")
    text = (text[:start] + text[end:]).replace('status = "none"', 'status = "none"\nresult = "inline:/data/output"')
    path.write_text(text)
    told_in_file.thread.receiver.doors.look()
    without = accepted(told_in_file, 1000)
    told_in_file.deliver(without, "succeeded")
    stage.turn()
    assert stage.show(without).last_error == "the delivery has nothing at /data/output"
    operation = accepted(told_in_file)
    output = {"text": "long " * 40_000}
    assert told_in_file.deliver(operation, "succeeded", output=output) == [202]
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    assert found.result.size > 200_000


def test_what_cannot_be_read_is_shown_at_once(told_in_file: Told) -> None:
    """A word that the contract does not know, and an event about something else."""
    stage = told_in_file.stage
    operation = accepted(told_in_file)
    told_in_file.deliver(operation, "archived")
    stage.run(60)
    found = stage.show(operation)
    assert found.attention is not None
    assert (found.state, found.attention.code) == (State.OBSERVING, "unknown_state")
    assert "next delivery" in found.attention.reason
    told_in_file.deliver(operation, "billed", state=None)
    stage.run(60)
    assert "says nothing about the state" in stage.told(operation, "Noted")[-1]["text"]
    told_in_file.deliver(operation, "succeeded")
    stage.run()
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_over_a_delivery_loses_nothing(told: Told, when: str) -> None:
    """What was handed over stands in the journal until what it says does."""
    stage = told.stage
    operation = accepted(told)
    told.deliver(operation, "succeeded")
    stage.dies(when, "Observed", operation)
    stage.leases_end()
    stage.run()
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    assert stage.kinds(operation).count("Observed") == 1


def test_a_paused_provider_is_not_listened_to_and_no_deadline_passes_over_what_came(told: Told) -> None:
    """Whoever stops a provider wants none of its words to count now; but none is lost."""
    stage = told.stage
    operation = accepted(told)
    stage.ledger.pause_provider("sim", reason="it sends nonsense", by="ana")
    told.deliver(operation, "running")
    stage.run(60)
    assert stage.show(operation).state is State.ACCEPTED
    told.deliver(operation, "succeeded")
    stage.run(2 * 3600)
    assert stage.show(operation).state is State.RESULT_COLLECTING
    stage.ledger.resume_provider("sim", reason="mended", by="ana")
    stage.run()
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)


STEPS = ["queued", "running", "running", "succeeded", "turn", "turn", "pass", "pass", "parked"]


@given(
    order=st.permutations(STEPS),
    doubled=st.sets(st.integers(0, len(STEPS) - 1)),
    lost=st.sets(st.integers(0, len(STEPS) - 1)),
    held=st.booleans(),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_doubling_and_loss_ends_in_the_same(
    told_in_file: Told, order: Sequence[str], doubled: set[int], lost: set[int], *, held: bool
) -> None:
    """Where the last word arrived, before or after the create's answer, the end and the result are the same (I18)."""
    told, stage = told_in_file, told_in_file.stage
    if held:
        stage.sim.control(hold="create")
    operation = stage.submit(_seconds=0)
    turn = stage.begin()
    if held:
        assert stage.sim.wait_for(kind="create", held="true") == 1
    else:
        turn.result(30)
    arrived = False
    for place, step in enumerate(order):
        for _ in range(0 if place in lost else 2 if place in doubled else 1):
            if step == "turn" and not held:
                stage.turn()
            elif step == "pass":
                stage.passes(0.5)
            elif step == "parked":
                Deliveries(stage.ledger).match_parked()
            elif step != "turn":
                arrived = arrived or step == "succeeded"
                assert told.deliver(operation, step) == [202]
    if held:
        stage.sim.control(release=True)
        turn.result(30)
    stage.run()
    if arrived:
        assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    else:
        assert stage.show(operation).state is State.RESULT_TIMED_OUT
        assert told.deliver(operation, "succeeded") == [202]
        stage.run()
        assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    assert stage.show(operation).attention is None
    assert dict(stage.show(operation).unread) == {}
    stage.honest()
