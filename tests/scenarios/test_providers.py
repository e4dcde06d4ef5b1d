"""Providers that are paused, by people or because they only fail: one escalation, and order after it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from opledger.errors import Refused
from opledger.rules.model import Operation, State, from_rfc3339
from tests.scenarios.stage import Stage


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_pause_the_provider_once(stage: Stage, status: int) -> None:
    """Ten operations wait, one call was made, nothing has failed; another provider goes on; then all go on."""
    stage.contract("guarded")
    first = stage.submit(_seconds=30)
    stage.sim.control(answer_next={"kind": "create", "status": status, "body": {}, "before": True})
    stage.turn()
    others = [stage.submit(_seconds=30) for _ in range(9)]
    elsewhere = stage.submit(flavour="guarded", _seconds=30)
    stage.run(120)
    assert list(stage.ledger.store.paused()) == ["sim"]
    assert len(stage.ledger.store.stopped_providers()) == 1
    assert len([entry for entry in stage.wire("create") if entry["flavour"] == "v1"]) == 1
    assert {stage.show(op).state for op in (first, *others)} == {State.CREATE_PENDING}
    assert stage.show(elsewhere).state is State.SUCCEEDED
    stage.ledger.resume_provider("sim", reason="a new credential is in place")
    stage.run()
    assert {stage.show(op).state for op in (first, *others)} == {State.SUCCEEDED}
    stage.honest()


def test_refused_credentials_of_a_cancel_pause_too(stage: Stage) -> None:
    """The call was not taken, and that is nobody's final word."""
    operation = stage.until_state(stage.submit("cancellable", _seconds=7200), State.OBSERVING)
    stage.sim.control(answer_next={"kind": "cancel", "status": 401, "body": {}, "before": True})
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run(60)
    assert list(stage.ledger.store.paused()) == ["sim"]
    assert stage.show(operation).state is State.CANCELLING
    stage.ledger.resume_provider("sim", reason="mended")
    stage.run()
    assert stage.show(operation).state is State.CANCELLATION_UNCONFIRMED
    assert len(stage.wire("cancel")) == 1
    stage.honest()


def test_refused_credentials_of_a_resend_leave_the_create_unknown(stage: Stage) -> None:
    """The first one may have arrived; the pause does not change that."""
    stage.sim.control(drop_next="create", answer_next={"kind": "create", "status": 401, "body": {}, "before": True})
    operation = stage.submit(_seconds=30)
    stage.run(60)
    assert stage.show(operation).state is State.CREATE_UNKNOWN
    assert list(stage.ledger.store.paused()) == ["sim"]
    stage.ledger.resume_provider("sim", reason="mended")
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.jobs(operation)) == 1
    stage.honest()


def test_a_spent_error_budget_pauses_once(stage: Stage) -> None:
    """A provider that only fails is one trouble and not one for each operation."""
    stage.contract(changes={"concurrency = 50": 'concurrency = 50\nerror_budget = 6\nerror_window = "10s"'})
    operations = [stage.submit(_seconds=7200) for _ in range(4)]
    for operation in operations:
        stage.until_state(operation, State.OBSERVING)
    stage.sim.control(answer_next=[{"kind": "status", "status": 500, "body": {}}] * 100)
    stage.run(600)
    (reason,) = stage.ledger.store.paused().values()
    assert "error budget" in reason
    assert len(stage.ledger.store.stopped_providers()) == 1
    failed = [data for op in operations for data in stage.told(op, "ReadFailed")]
    assert 6 <= len(failed) <= 20
    assert {stage.show(op).state for op in operations} == {State.OBSERVING}
    reads = len(stage.wire("status"))
    stage.run(600)
    assert len(stage.wire("status")) == reads
    with pytest.raises(Refused, match="error budget"):
        stage.ledger.pause_provider("sim", reason="me too")


def overdue(stage: Stage) -> tuple[Operation, Operation, Operation]:
    """Three operations, and what becomes of them while their provider is paused: two deadlines pass, one does not."""
    stage.contract(result="30m", create="10m")
    throttled = {"kind": "create", "status": 429, "body": {}, "headers": {"retry-after": "60"}, "before": True}
    stage.sim.control(answer_next=throttled)
    unsent = stage.submit(_seconds=60)
    stage.turn()
    short = stage.until_state(stage.submit(_seconds=7200), State.OBSERVING)
    long = stage.until_state(stage.submit(_seconds=5400, wish={"result_deadline": "5h"}), State.OBSERVING)
    stage.ledger.pause_provider("sim", reason="their maintenance")
    return unsent, short, long


def test_deadlines_are_kept_while_the_provider_is_paused(stage: Stage) -> None:
    """A deadline needs no call, and none is made."""
    unsent, short, long = overdue(stage)
    before = stage.calls()
    stage.run(3600)
    assert stage.calls() == before
    assert stage.show(unsent).state is State.FAILED
    assert stage.show(short).state is State.RESULT_TIMED_OUT
    assert stage.show(long).state is State.OBSERVING
    with pytest.raises(Refused, match="paused"):
        stage.ledger.pause_provider("sim", reason="me too")


def test_after_a_pause_in_which_nobody_worked_deadlines_come_first_and_then_one_poll_each(stage: Stage) -> None:
    """What became overdue concludes without a call; every other job is read once, not once for each missed poll."""
    unsent, short, long = overdue(stage)
    before = len(stage.wire())
    stage.passes(3600)
    stage.ledger.resume_provider("sim", reason="they are back")
    stage.turn()
    assert stage.show(unsent).state is State.FAILED
    assert stage.show(short).state is State.RESULT_TIMED_OUT
    after = stage.wire()[before:]
    assert [(entry["kind"], entry["client_ref"]) for entry in after] == [("status", long.operation_id)]
    stage.run()
    assert stage.show(long).state is State.SUCCEEDED
    stage.honest()


def test_overdue_polls_after_a_pause_are_spread(file_stage: Stage) -> None:
    """Reads that fell due at once leave as the rate allows, and at first one by one.

    A server deals moments out by its own clock, which no story moves: there real workers show it (tests/faults).
    """
    stage = file_stage
    stage.contract(changes={"concurrency = 50": 'concurrency = 50\nrate = "2/s"'})
    operations = [stage.submit(_seconds=36000, wish={"result_deadline": "20h"}) for _ in range(8)]
    stage.run(300)
    assert {stage.show(op).state for op in operations} == {State.OBSERVING}
    stage.ledger.pause_provider("sim", reason="their maintenance")
    stage.run(1800)
    before = len(stage.wire("status"))
    stage.ledger.resume_provider("sim", reason="they are back")
    stage.sim.control(hold="status")
    under_way = stage.begin()
    assert stage.sim.wait_for(2, timeout=0.3, kind="status", held="true") == 1
    stage.sim.control(release=True)
    under_way.result(20)
    for _ in range(12):
        stage.passes(0.5)
        stage.turn()
    reads = stage.wire("status")[before:]
    assert {entry["client_ref"] for entry in reads} == {op.operation_id for op in operations}
    first: dict[str, datetime] = {}
    for entry in reads:
        first.setdefault(entry["client_ref"], from_rfc3339(entry["time"]))
    assert max(first.values()) - min(first.values()) >= timedelta(seconds=2)
