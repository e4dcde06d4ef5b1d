"""Webhooks: in any order, doubled, early, late, wrong or lost, an operation ends as if there were none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opledger.ledger.deliveries import Deliveries
from opledger.rules.model import State
from opledger.sim.hooks import MANNERS
from tests.scenarios.hooked import LONG_POLL, Hooked, moved_by, outcome
from tests.scenarios.stage import Stage

IN_FLIGHT = {"error": {"code": "in_progress", "message": "still running"}}


@pytest.fixture
def polled(file_stage: Stage) -> Iterator[Hooked]:
    """In a file, polled as often as is usual."""
    with Hooked(file_stage) as made:
        yield made


@pytest.fixture
def hooked(stage: Stage) -> Iterator[Hooked]:
    """On both databases, polled once an hour."""
    with Hooked(stage, **LONG_POLL) as made:
        yield made


@pytest.mark.parametrize("scheme", ["standard", "hmac"])
def test_a_webhook_makes_the_read_due_and_the_read_decides(file_stage: Stage, scheme: str) -> None:
    """Success is what a status answer says that we fetched ourselves (I15)."""
    with Hooked(file_stage, scheme, **LONG_POLL) as hooked:
        operation = file_stage.submit(_seconds=30)
        file_stage.turn()
        assert hooked.reads(operation) == 0
        assert hooked.deliver(operation, "succeeded") == [202]  # the provider says so and is not so far itself
        assert file_stage.show(operation).state is State.ACCEPTED
        file_stage.turn()
        assert (hooked.reads(operation), file_stage.show(operation).state) == (1, State.OBSERVING)
        file_stage.passes(31)
        assert file_stage.turn() == 0
        assert hooked.deliver(operation, "succeeded") == [202]  # the same event again: it counts once
        assert file_stage.turn() == 0
        assert hooked.deliver(operation, "finished") == [202]
        file_stage.turn()
        assert outcome(file_stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
        assert hooked.reads(operation) == 2
        assert "webhook" not in moved_by(file_stage, operation)
        file_stage.honest()


def test_b35_old_news_that_arrives_last_moves_nothing_back(hooked: Hooked) -> None:
    """Completed before in progress before queued, each forty times, and one of them a day later."""
    stage = hooked.stage
    operation = stage.submit(_seconds=5)
    stage.turn()
    stage.passes(6)
    for _ in range(40):
        hooked.deliver(operation, "succeeded", "running", "queued")
    stage.turn()
    assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    assert stage.kinds(operation).count("Notified") == 3
    assert hooked.reads(operation) == 1
    ended = stage.show(operation)
    stage.passes(86_400)
    assert hooked.deliver(operation, "queued", "deleted") == [202, 202]
    stage.on(operation)
    assert stage.show(operation) == ended
    stage.honest()


@pytest.mark.parametrize("knows", ["token", "job_id"])
def test_b37_a_notice_before_the_create_answer_is_not_lost(stage: Stage, knows: str) -> None:
    """It carries our own reference, or only the job id, and the create's answer is still held back."""
    with Hooked(stage, **LONG_POLL) as hooked:
        if knows == "job_id":
            path = stage.contracts / "sim.toml"
            path.write_text(path.read_text().replace('token = "/data/client_ref"\n', ""))
            hooked.thread.receiver.doors.look()
        stage.sim.control(hold="create")
        operation = stage.submit(_seconds=0)
        turn = stage.begin()
        assert stage.sim.wait_for(kind="create", held="true") == 1
        assert hooked.deliver(operation, "succeeded") == [202]
        assert ("Notified" in stage.kinds(operation)) is (knows == "token")
        assert stage.show(operation).state is State.CREATE_PENDING
        stage.sim.control(release=True)
        turn.result(30)
        assert Deliveries(stage.ledger).match_parked() == (1 if knows == "job_id" else 0)
        if knows == "token":  # told while the create was out: its answer plans the first read anew
            assert hooked.deliver(operation, "finished") == [202]
        stage.turn()
        assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
        stage.honest()


def test_b37_a_notice_under_our_token_brings_the_reconciliation_forward(stage: Stage) -> None:
    """The create's answer was lost: that the job exists is found by the look-up that the notice makes due."""
    with Hooked(stage) as hooked:
        stage.sim.control(drop_next=["create"])
        stage.sim.control(answer_next={"kind": "create", "status": 409, "before": True, "body": IN_FLIGHT})
        operation = stage.submit(_seconds=0)
        stage.turn()
        assert stage.show(operation).state is State.CREATE_UNKNOWN
        planned = stage.show(operation).next
        assert hooked.deliver(operation, "succeeded") == [202]
        sooner = stage.show(operation).next
        assert planned is not None and sooner is not None and planned.at is not None and sooner.at is not None
        assert sooner.at <= planned.at
        (told,) = stage.told(operation, "Notified")
        assert told["job_id"] == stage.jobs(operation)[0]
        stage.run()
        assert outcome(stage, operation)[:4] == (State.SUCCEEDED, "succeeded", 4, 1)
        stage.honest()


@pytest.mark.parametrize("manner", sorted(MANNERS))
def test_every_manner_of_sending_ends_in_the_same(file_stage: Stage, manner: str) -> None:
    """Polls alone are enough, webhooks only make them sooner; and what is not right is refused."""
    expected = {"forged": {401}, "replayed": {401}, "lost": set()}
    with Hooked(file_stage) as hooked:
        operation = file_stage.submit(_seconds=20)
        file_stage.turn()
        statuses = hooked.deliver(operation, "queued", "running", manner=manner)
        file_stage.run(10)
        statuses += hooked.deliver(operation, "succeeded", manner=manner)
        file_stage.run()
        assert set(statuses) == expected.get(manner, {202})
        assert outcome(file_stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
        assert "webhook" not in moved_by(file_stage, operation)
        if manner in ("forged", "replayed", "lost", "stranger"):
            assert "Notified" not in file_stage.kinds(operation)
        file_stage.honest()


STEPS = ["queued", "running", "succeeded", "failed", "turn", "turn", "pass", "pass", "parked"]


@given(
    order=st.permutations(STEPS),
    doubled=st.sets(st.integers(0, len(STEPS) - 1)),
    lost=st.sets(st.integers(0, len(STEPS) - 1)),
    cancel=st.sampled_from([None, None, 2, 5]),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_doubling_and_loss_ends_in_the_same(
    polled: Hooked, order: Sequence[str], doubled: set[int], lost: set[int], cancel: int | None
) -> None:
    """Deliveries (true ones and lies), polls and time in any order: one create, one result, the same end (I18)."""
    stage = polled.stage
    operation = stage.submit("ideal" if cancel is None else "cancellable", _seconds=6 if cancel is None else 1000)
    stage.turn()
    for place, step in enumerate(order):
        if place == cancel:
            stage.ledger.cancel(operation.operation_id, reason="not needed")
        for _ in range(0 if place in lost else 2 if place in doubled else 1):
            if step == "turn":
                stage.turn()
            elif step == "pass":
                stage.passes(4)
            elif step == "parked":
                Deliveries(stage.ledger).match_parked()
            else:
                assert polled.deliver(operation, step) == [202]
    stage.run()
    if cancel is None:
        assert outcome(stage, operation) == (State.SUCCEEDED, "succeeded", 4, 1, 1)
    else:
        assert outcome(stage, operation) == (State.CANCELLED, "cancelled", None, 1, 0)
        assert len(stage.wire("cancel", operation)) == 1
    assert "webhook" not in moved_by(stage, operation)
    stage.honest()
