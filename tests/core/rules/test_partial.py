"""Output of a job that did not succeed: when it is fetched, how patiently, and when it is given up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.rules import evidence as e
from opledger.rules import partial
from opledger.rules.contract import Contract
from opledger.rules.decide import Call, Conclude, Wait, decide, plan
from opledger.rules.explain import explain
from opledger.rules.model import (
    Action,
    Actor,
    ActorKind,
    Attempts,
    Attention,
    Means,
    Operation,
    Plan,
    State,
    StoredResult,
)
from opledger.rules.projection import Entry, project
from tests.core.rules.operations import CANCEL, NOON, contract, operation

WANTS = contract(CANCEL + '[result]\nurl = "/u"\ncollect_in = ["succeeded", "failed", "expired"]\n')
WORKER = Actor("w1", ActorKind.WORKER)
STORED = StoredResult("/r/a", 3, "00", None, validated=True)
LATER = NOON + timedelta(days=2)


def ended(state: State = State.FAILED, **facts: Any) -> Operation:
    """A job that has ended other than well."""
    known: dict[str, Any] = {
        "remote_job_id": "job_7", "remote_means": Means.FAILED, "first_sent_at": NOON, "observed_at": NOON,
        "collect_timeout": timedelta(minutes=15),
    }  # fmt: skip
    return operation(state, **{**known, **facts})


def told(op: Operation, evidence: e.Evidence) -> Operation:
    """The record after some evidence."""
    return project(op, Entry(op.operation_id, 9, NOON, WORKER, evidence, "call:c1"))


def test_what_is_worth_having_is_fetched_at_once() -> None:
    """The end was just seen; the lease is held, and the address is fresh."""
    op = ended()
    assert decide(op, WANTS, NOON) == Call(
        Action.COLLECT, "the job did not succeed; what it left behind is worth having"
    )
    seen = e.Observed(means=Means.FAILED, remote_state="failed")
    assert plan(op, WANTS, seen, NOON, 0.5) == Plan("collect", NOON, "follows Observed")
    assert partial.wanted(op, WANTS)


@pytest.mark.parametrize(
    "facts",
    [
        {"state": State.CANCELLED, "remote_means": Means.CANCELLED},
        {"result": STORED},
        {"remote_job_id": None},
        {"state": State.RESOLVED},
        {"state": State.WITHDRAWN},
        {"remote_means": Means.SUCCEEDED},
        {"remote_means": None},
        {"attention": Attention(partial.LOST, NOON, "gone")},
    ],
)
def test_nothing_is_fetched_of_any_other_end(facts: dict[str, Any]) -> None:
    """Not wanted, not ended so, attached already, never created, or given up."""
    op = ended(**facts)
    for at in (NOON, LATER):
        assert decide(op, WANTS, at) == Wait(None, f"it has ended: {op.state}")
        assert plan(op, WANTS, e.Noted("x"), at, 0.5) is None


def test_a_contract_that_does_not_ask_for_it_gets_no_output_of_failed_jobs() -> None:
    """A plain result is the result of a success."""
    plain: Contract = contract(CANCEL + '[result]\nurl = "/u"\n')
    for one in (plain, contract()):
        assert decide(ended(), one, NOON) == Wait(None, "it has ended: failed")


def test_after_what_brought_nothing_the_next_try_is_later_and_later_and_never_after_the_deadline() -> None:
    """It backs off like every read, by the number of tries: a record that has ended counts nothing else."""
    failed = e.ReadFailed(call_id="c1", action=Action.COLLECT, why="status 503", code="result")
    waits = []
    for tries in (1, 3, 5, 20):
        op = ended(attempts=Attempts(collect=tries))
        found = plan(op, WANTS, failed, NOON, 0.5)
        assert found is not None
        assert found.at is not None
        waits.append(found.at - NOON)
        assert decide(replace(op, next=found), WANTS, NOON) == Wait(found.at, found.because)
    assert waits == sorted(waits)
    assert waits[0] < waits[-1]
    asked = plan(ended(), WANTS, replace(failed, retry_at=NOON + timedelta(seconds=99)), NOON, 0.5)
    assert asked is not None
    assert asked.at == NOON + timedelta(seconds=99)
    near = NOON + timedelta(minutes=15) - timedelta(milliseconds=1)
    found = plan(ended(attempts=Attempts(collect=20)), WANTS, failed, near, 0.5)
    assert found == Plan("deadline", NOON + timedelta(minutes=15), "the collect deadline comes first")


def test_another_word_of_the_provider_is_no_reason_to_ask_at_once() -> None:
    """Else a job that came back to life would be read as fast as the machine can."""
    seen = e.Observed(means=Means.RUNNING, remote_state="running")
    found = plan(ended(attempts=Attempts(observe=6)), WANTS, seen, NOON, 0.5)
    assert found is not None
    assert found.at is not None
    assert found.at > NOON


def test_at_the_deadline_it_is_given_up_and_shown() -> None:
    """One remark in the journal, an attention, and nothing after it. The state stays."""
    op = ended(last_error="source_unreadable")
    end = partial.deadline(op)
    assert end == NOON + timedelta(minutes=15)
    assert isinstance(decide(op, WANTS, end - timedelta(microseconds=1)), Call)
    decision = decide(op, WANTS, end, paused="by hand")
    assert isinstance(decision, Conclude)
    assert decision.cause == "deadline:collect"
    after = told(op, decision.evidence)
    assert (after.state, after.last_error) == (State.FAILED, "source_unreadable")
    assert after.attention == Attention(partial.LOST, NOON, decision.because)
    assert decide(after, WANTS, LATER) == Wait(None, "it has ended: failed")


def test_what_ends_a_collecting_is_no_more_than_a_failed_read_of_a_job_that_has_ended() -> None:
    """ResultMissing, ResultInvalid and violations would move the state, which is settled."""
    evidence: tuple[e.ResultMissing | e.ResultInvalid | e.Violation, ...] = (
        e.ResultMissing(call_id="c1", status=410, answer="aa", why="gone"),
        e.ResultInvalid(call_id="c1", why="too large"),
        e.IdentityChanged(call_id="c1", why="another job"),
    )
    for ending in evidence:
        failed = partial.ending(ended(), ending)
        assert isinstance(failed, e.ReadFailed)
        assert (failed.call_id, failed.why, failed.status, failed.answer, failed.code) == (
            "c1", ending.why, ending.status, ending.answer, partial.LOST,
        )  # fmt: skip
        assert partial.ending(operation(State.RESULT_COLLECTING), ending) is ending
    seen = e.Observed(means=Means.FAILED)
    assert partial.ending(ended(), seen) is seen


def test_what_is_attached_is_a_part_of_the_record_and_shows_where_it_is_wrong() -> None:
    """The state stays what it is; a result that is not what it should be is an attention."""
    good = told(ended(), e.PartialAttached(call_id="c1", result=STORED))
    assert (good.state, good.result, good.attention, good.attempts.collect) == (State.FAILED, STORED, None, 1)
    wrong = replace(STORED, validated=False, problems=("cut", "short"))
    bad = told(ended(), e.PartialAttached(call_id="c1", result=wrong))
    why = "the partial output is not what it should be: cut; short"
    assert bad.attention == Attention(partial.INVALID, NOON, why)
    assert not partial.wanted(bad, WANTS)


def test_people_are_told_that_something_still_happens() -> None:
    """A failed operation with a next step is not over; one without is."""
    op = ended(next=Plan("collect", NOON + timedelta(seconds=9), "status 503"), remote_state="failed")
    waiting = explain(op, WANTS, NOON, events=[])
    assert waiting.next == Plan("collect", NOON + timedelta(seconds=9), "status 503")
    assert "Nothing more happens" not in waiting.why
    paused = explain(op, WANTS, NOON + timedelta(seconds=20), events=[], paused="by hand")
    assert paused.blocked_by is not None
    assert paused.blocked_by.code == "provider_paused"
    over = explain(ended(remote_state="failed", result=STORED), WANTS, NOON, events=[])
    assert (over.next, "Nothing more happens by itself" in over.why) == (None, True)
