"""What a record knows after each event, beyond its state."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.errors import IllegalTransition
from opledger.rules import evidence as e
from opledger.rules.attention import PERSISTENT
from opledger.rules.model import Action, CancelIntent, Choice, Deadline, Means, OpenCall, Operation, State, StoredResult
from opledger.rules.projection import Entry, project
from tests.support.contracts import a_contract
from tests.support.records import (
    FINGERPRINT,
    OPERATION_ID,
    T0,
    WORKER,
    Story,
    a_permit,
    a_record,
    a_submission,
    seconds,
    seen,
)


def a_story(**submission: Any) -> Story:
    """An operation on the reports API."""
    return Story(a_contract(), **submission)


def folded(record: Operation, evidence: e.Evidence, *, reason: str | None = None) -> Operation:
    """One event on top of a record of any shape, a minute after the beginning."""
    return project(record, Entry(OPERATION_ID, 9, T0 + seconds(60), WORKER, evidence, "test", reason))


# --- the beginning ----------------------------------------------------------------------------------------------------


def test_a_record_begins_with_everything_it_was_submitted_with() -> None:
    """A rebuilt record must equal the stored one, so the first event must carry it all."""
    submitted = a_submission(
        tags={"team": "x"}, expectation="a file", expected_effect="money", supersedes="op_0", task="t", step="s"
    )
    op = project(None, Entry(OPERATION_ID, 1, T0, WORKER, submitted, "submit"))
    assert (op.operation_id, op.contract, op.contract_digest) == (OPERATION_ID, "reports", submitted.contract_digest)
    assert (op.request_fingerprint, op.idempotency_token) == (FINGERPRINT, submitted.token)
    assert (op.trace_id, op.requested_by, op.created_at) == (submitted.trace_id, "agent-7", T0)
    assert (op.tags, op.expectation, op.expected_effect) == ({"team": "x"}, "a file", "money")
    assert (op.supersedes, op.task, op.step) == ("op_0", "t", "s")
    assert (op.create_deadline, op.result_deadline) == (T0 + timedelta(minutes=2), T0 + timedelta(hours=1))
    assert (op.sent, op.attention, op.approval_deadline) == (False, None, None)


def test_the_clock_of_an_approved_request_starts_with_the_approval() -> None:
    """Waiting for a person must not eat the time that the job has."""
    story = a_story(approvals_needed=1, approval_timeout=timedelta(hours=4), approval_because="costs money")
    assert story.op.approval_deadline == T0 + timedelta(hours=4)
    assert (story.op.create_deadline, story.op.result_deadline) == (None, None)
    assert story.op.attention is not None
    assert (story.op.attention.code, story.op.attention.reason) == ("awaiting_approval", "costs money")
    op = story.wait(timedelta(hours=3)).tell(e.Approved("ana", FINGERPRINT), reason="fine")
    assert op.create_deadline == T0 + timedelta(hours=3, minutes=2)
    assert op.result_deadline == T0 + timedelta(hours=4)
    assert op.attention is None
    assert [(given.by, given.reason, given.fingerprint) for given in op.approvals] == [("ana", "fine", FINGERPRINT)]


def test_each_approval_counts_until_the_quorum() -> None:
    """Two approvals mean two people."""
    story = a_story(approvals_needed=2)
    assert story.tell(e.Approved("ana", FINGERPRINT)).state is State.AWAITING_APPROVAL
    with pytest.raises(IllegalTransition):
        story.tell(e.Approved("ana", FINGERPRINT))
    assert story.tell(e.Approved("jo", FINGERPRINT)).state is State.CREATE_PENDING
    assert [given.by for given in story.op.approvals] == ["ana", "jo"]


# --- permits and their outcomes ---------------------------------------------------------------------------------------


def test_a_permit_opens_a_call_and_counts() -> None:
    """A permit found without an outcome is all a restarted worker knows (I7)."""
    story = a_story()
    op = story.wait(5).tell(a_permit(Action.CREATE, "call_7"))
    assert op.open_call == OpenCall("call_7", Action.CREATE, T0 + seconds(5))
    assert (op.attempts.create, op.first_sent_at, op.last_sent_at) == (1, T0 + seconds(5), T0 + seconds(5))


def test_the_token_s_memory_is_measured_from_the_first_send() -> None:
    """A later attempt does not renew what the provider remembers (I4)."""
    story = a_story()
    story.tell(a_permit(Action.CREATE, "call_1"), e.NotDelivered(call_id="call_1"))
    op = story.wait(30).tell(a_permit(Action.CREATE, "call_2"))
    assert (op.first_sent_at, op.last_sent_at) == (T0, T0 + seconds(30))


def test_a_create_permit_counts_as_sent_whatever_it_says_of_itself() -> None:
    """A create starts work; a flag that was forgotten must not make it harmless."""
    op = folded(a_record(State.CREATE_PENDING), replace(a_permit(Action.CREATE), may_create=False))
    assert op.sent


def test_a_look_up_is_no_send() -> None:
    """The settle time counts from the last create or resend, not from the last look."""
    story = a_story()
    story.lost()
    op = story.wait(10).tell(a_permit(Action.RECONCILE, "call_2", strategy="list"))
    assert (op.attempts.reconcile, op.last_sent_at) == (1, T0)
    assert op.open_call is not None
    assert op.open_call.detail == "list"
    op = story.tell(e.Inconclusive(call_id="call_2"))
    op = story.wait(10).tell(a_permit(Action.RECONCILE, "call_3", strategy="resend"))
    assert (op.first_sent_at, op.last_sent_at) == (T0, T0 + seconds(20))


@pytest.mark.parametrize(
    "answer",
    [
        e.Accepted(call_id="call_1", job_id="job_1"),
        e.Refused(call_id="call_1"),
        e.CallLost(call_id="call_1"),
        e.NotDelivered(call_id="call_1"),
        e.Throttled(call_id="call_1"),
        e.CompletedInline(call_id="call_1"),
        e.TokenMismatch(call_id="call_1"),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_closes_its_call(answer: e.Evidence) -> None:
    """A call has one outcome (I17); after it the record is free for the next."""
    story = a_story()
    story.tell(a_permit(Action.CREATE))
    assert story.tell(answer).open_call is None


@pytest.mark.parametrize("read", [e.ReadFailed(call_id="call_1"), e.ReadFailed(call_id="call_1", action=Action.CREATE)])
def test_a_failed_read_never_closes_a_create(read: e.ReadFailed) -> None:
    """If it did, the create would count as never sent and be sent again."""
    story = a_story()
    assert story.tell(a_permit(Action.CREATE), read).open_call is not None


def test_a_status_read_never_closes_a_cancel() -> None:
    """A read that crosses the cancel says nothing of its answer."""
    intent = CancelIntent("req_1", "ana", T0, "")
    record = a_record(State.CANCELLING, first_sent_at=T0, cancel=intent, open_call=OpenCall("c", Action.CANCEL, T0))
    assert folded(record, replace(seen("running"), call_id="c")).open_call is not None


def test_a_failed_transfer_closes_a_single_use_read() -> None:
    """The outcome of a collect call is a read."""
    record = a_record(State.RESULT_COLLECTING, first_sent_at=T0, open_call=OpenCall("c", Action.COLLECT, T0))
    assert folded(record, e.ReadFailed(call_id="c", action=Action.COLLECT)).open_call is None


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (State.RECONCILIATION, Action.RECONCILE),
        (State.CANCEL_REQUESTED, Action.CANCEL),
        (State.CANCELLING, Action.CANCEL),
        (State.RESULT_COLLECTING, Action.COLLECT),
    ],
)
def test_a_violation_keeps_the_call_under_way_until_it_has_an_outcome(state: State, action: Action) -> None:
    """Another operation's answer stops this one, and its worker may die: the permit still gets an outcome (I17)."""
    record = a_record(
        state, first_sent_at=T0, remote_job_id="job_1", jobs=("job_1",), open_call=OpenCall("c", action, T0)
    )
    stopped = folded(record, e.IdentityChanged(jobs=("job_1",)))
    assert (stopped.state, stopped.open_call) == (State.CONTRACT_VIOLATION, record.open_call)
    lost = folded(stopped, e.CallLost(call_id="c", action=action, why="gone"))
    assert (lost.state, lost.open_call, lost.attention) == (State.CONTRACT_VIOLATION, None, stopped.attention)
    told = folded(stopped, e.Noted("late", late_kind="CancelAnswered", late={"call_id": "c"}))
    assert (told.state, told.open_call) == (State.CONTRACT_VIOLATION, None)
    for other in (e.Noted("a remark"), e.Noted("late", late_kind="CancelAnswered", late={"call_id": "d"})):
        assert folded(stopped, other).open_call == record.open_call


def test_a_violation_that_the_call_itself_brought_is_its_outcome() -> None:
    """Nothing is left to find out then."""
    record = a_record(State.RECONCILIATION, first_sent_at=T0, open_call=OpenCall("c", Action.RECONCILE, T0))
    assert folded(record, e.ManyJobs(call_id="c", jobs=("job_1", "job_2"))).open_call is None


def test_a_late_answer_elsewhere_leaves_the_call_open() -> None:
    """Its worker lost the lease: closed by a note, the create would be sent again by the next one (I7)."""
    record = a_record(State.CREATE_PENDING, first_sent_at=T0, open_call=OpenCall("c", Action.CREATE, T0))
    assert folded(record, e.Noted("late", late_kind="Accepted", late={"call_id": "c"})).open_call == record.open_call


@pytest.mark.parametrize("choice", [Choice.KEEP, Choice.CANCEL])
def test_a_decision_leaves_no_call_open(choice: Choice) -> None:
    """Left open it would make the record illegal to drive after the decision."""
    call = OpenCall("c", Action.CANCEL, T0)
    record = a_record(State.CONTRACT_VIOLATION, first_sent_at=T0, jobs=("job_1",), open_call=call)
    assert folded(record, e.Decided("ana", choice, "job_1", request_id="r")).open_call is None


def test_an_ending_lets_go_of_the_call_under_way() -> None:
    """A job that ended while the cancel was on its way leaves nothing to recover."""
    record = a_record(State.CANCEL_REQUESTED, first_sent_at=T0, open_call=OpenCall("c", Action.CANCEL, T0))
    assert folded(record, seen("failed")).open_call is None


# --- a lost create ----------------------------------------------------------------------------------------------------


def test_tries_to_learn_the_fate_move_on_and_wait_longer() -> None:
    """Going to reconciliation and back is one more try, not a new beginning (I20)."""
    story = a_story()
    story.lost()
    for number in range(1, 5):
        story.tell(a_permit(Action.RECONCILE, f"r{number}", strategy="resend"))
        op = story.tell(e.Inconclusive(call_id=f"r{number}", why="503", next_strategy=True))
        assert (op.backoff, op.strategy, op.last_error) == (number, number, "503")


def test_no_way_left_is_remembered_and_shown() -> None:
    """`create_unknown` needs a person only once its attention is raised."""
    story = a_story()
    assert (story.lost().exhausted, story.op.attention) == (False, None)
    op = story.tell(e.Inconclusive(why="no way to look it up", exhausted=True))
    assert op.exhausted
    assert op.attention is not None
    assert (op.attention.code, op.attention.reason) == ("create_unknown", "no way to look it up")


def test_the_create_deadline_escalates_and_decides_nothing() -> None:
    """A lost answer is never read as "not created", however long ago it was (I5)."""
    story = a_story()
    story.lost()
    op = story.wait(120).tell(e.DeadlinePassed(Deadline.CREATE, story.now))
    assert (op.state, op.exhausted) == (State.CREATE_UNKNOWN, True)
    assert op.attention is not None
    assert op.attention.code == "create_unknown"


@pytest.mark.parametrize("choice", [Choice.BIND, Choice.RESEND])
def test_a_decision_frees_an_exhausted_record(choice: Choice) -> None:
    """A record that leaves `create_unknown` must be planned like any other, or nobody ever picks it up."""
    story = a_story()
    story.lost()
    story.tell(e.Inconclusive(exhausted=True))
    op = story.tell(e.Decided("ana", choice, "job_5", request_id="req_2"))
    assert (op.exhausted, op.attention) == (False, None)


def test_cancelling_a_job_out_of_a_violation_frees_an_exhausted_record() -> None:
    """The violation may have come out of an exhausted `create_unknown`."""
    story = a_story()
    story.lost()
    story.tell(e.Inconclusive(exhausted=True), e.UnfamiliarJobId(jobs=("job_1", "job_2")))
    op = story.tell(e.Decided("ana", Choice.CANCEL, "job_2", request_id="req_2"), reason="stop it")
    assert (op.state, op.exhausted, op.remote_job_id) == (State.CANCEL_REQUESTED, False, "job_2")
    assert op.cancel == CancelIntent("req_2", "ana", T0, "stop it")
    assert op.next is not None
    assert op.next.at is not None


def test_a_resend_gets_time_of_its_own() -> None:
    """The create deadline has passed by the time a person decides."""
    story = a_story()
    story.lost()
    op = story.wait(timedelta(hours=2)).tell(e.Decided("ana", Choice.RESEND))
    assert op.create_deadline == story.now + timedelta(minutes=2)
    assert op.result_deadline == story.now + timedelta(hours=1)
    assert op.duplicate_accepted


def test_a_refused_resend_says_nothing_of_the_first() -> None:
    """A person let a possible duplicate be sent; its refusal must not end the operation (I5)."""
    story = a_story()
    story.lost()
    story.tell(e.Decided("ana", Choice.RESEND), a_permit(Action.CREATE, "call_2"))
    op = story.tell(e.Refused(call_id="call_2", why="status 422"))
    assert (op.state, op.exhausted) == (State.CREATE_UNKNOWN, True)
    assert op.attention is not None
    assert "status 422" in op.attention.reason


def test_proof_of_absence_wipes_the_doubt_of_a_duplicate() -> None:
    """It was proven after our last send: from there on the record is as good as new."""
    story = a_story()
    story.lost()
    story.tell(e.Decided("ana", Choice.RESEND), a_permit(Action.CREATE, "call_2"), e.CallLost(call_id="call_2"))
    story.tell(a_permit(Action.RECONCILE, "r1", strategy="list"), e.Inconclusive(call_id="r1", absent=True))
    assert story.op.absent_since == story.now
    op = story.tell(a_permit(Action.RECONCILE, "r2", strategy="list"), e.ProvenAbsent(call_id="r2"))
    assert (op.state, op.duplicate_accepted, op.strategy, op.absent_since) == (State.CREATE_PENDING, False, 0, None)


# --- the job ----------------------------------------------------------------------------------------------------------


def test_an_accepted_job_is_bound() -> None:
    """From here on every call is about this job."""
    op = a_story().accepted("job_1", remote_state="queued", refs={"status_url": "https://api.example.com/s/1"})
    assert (op.remote_job_id, op.jobs, op.accepted_at) == ("job_1", ("job_1",), T0)
    assert (op.remote_state, op.remote_refs) == ("queued", {"status_url": "https://api.example.com/s/1"})


def test_an_inline_result_is_kept_with_its_success() -> None:
    """A synchronous success goes on to collecting with its result in hand."""
    story = a_story()
    result = StoredResult("file:///r", 3, "0" * 64, "application/json", validated=True)
    op = story.tell(a_permit(Action.CREATE), e.CompletedInline(call_id="call_1", result=result, remote_state="done"))
    assert (op.state, op.result, op.remote_means) == (State.RESULT_COLLECTING, result, Means.SUCCEEDED)
    assert op.collect_deadline == T0 + timedelta(minutes=15)


def test_each_reading_of_the_job_is_kept() -> None:
    """The provider's word and ours are two columns."""
    story = a_story()
    story.accepted()
    op = story.wait(3).tell(seen("processing", progress={"completed": 3, "total": 9}, refs={"log": "x"}))
    assert (op.remote_state, op.remote_means, op.progress) == (
        "processing",
        Means.RUNNING,
        {"completed": 3, "total": 9},
    )
    assert (op.observed_at, op.attempts.observe, op.remote_refs) == (T0 + seconds(3), 1, {"log": "x"})


@pytest.mark.parametrize(
    ("word", "state"), [("failed", State.FAILED), ("expired", State.FAILED), ("canceled", State.CANCELLED)]
)
def test_the_word_that_ended_the_job_is_kept(word: str, state: State) -> None:
    """The record of a failed job must say what the provider said, and why."""
    story = a_story()
    story.observing()
    op = story.wait(3).tell(seen(word, error="E_QUOTA: too large"))
    assert (op.state, op.remote_state, op.last_error) == (state, word, "E_QUOTA: too large")
    assert op.remote_means is not None
    assert op.remote_means.final
    assert op.observed_at == story.now


def test_the_waits_between_polls_grow_while_nothing_changes() -> None:
    """The backoff counts reads that brought no news; a new word starts it again."""
    story = a_story()
    story.accepted()
    steps = [story.tell(seen(word)).backoff for word in ("queued", "queued", "queued", "running", "running")]
    assert steps == [1, 2, 3, 1, 2]


def test_an_understood_read_ends_a_row_of_failed_ones() -> None:
    """Attention shows what is wrong now."""
    story = a_story()
    story.observing()
    for _ in range(PERSISTENT):
        story.tell(e.ReadFailed(why="status 503"))
    assert story.op.attention is not None
    op = story.tell(seen("running"))
    assert (op.failures, op.attention, op.last_error) == (0, None, None)


# --- attention --------------------------------------------------------------------------------------------------------


def attention_of(op: Operation) -> str | None:
    """The code of the attention, if there is one."""
    return None if op.attention is None else op.attention.code


@pytest.mark.parametrize("code", ["read_failed", "throttled", "credentials", "result"])
def test_failed_reads_show_once_they_persist(code: str) -> None:
    """One bad poll is nothing; a row of three is (B14)."""
    assert PERSISTENT == 3
    story = a_story()
    story.observing()
    for _ in range(PERSISTENT - 1):
        assert attention_of(story.tell(e.ReadFailed(why="no", code=code))) is None
    since = story.wait(9).now
    assert attention_of(story.tell(e.ReadFailed(why="no", code=code))) == code
    op = story.wait(9).tell(e.ReadFailed(why="still no", code=code))
    assert op.attention is not None
    assert (op.attention.since, op.attention.reason) == (since, "still no")
    assert (op.state, op.failures, op.backoff) == (State.OBSERVING, PERSISTENT + 1, PERSISTENT + 2)


@pytest.mark.parametrize("code", ["not_visible_yet", "not_ready"])
def test_what_is_expected_for_a_while_is_no_trouble(code: str) -> None:
    """A deadline ends it; a person is not called (B09)."""
    story = a_story()
    story.observing()
    for _ in range(3 * PERSISTENT):
        assert attention_of(story.tell(e.ReadFailed(why="not yet", code=code))) is None


def test_a_job_that_is_gone_shows_at_once_and_over_any_other_trouble() -> None:
    """Later than the grace it is an attention, never a verdict."""
    story = a_story()
    story.observing()
    for _ in range(PERSISTENT):
        story.tell(e.ReadFailed(why="status 503"))
    op = story.tell(e.ReadFailed(why="status 404", code="gone"))
    assert (op.state, attention_of(op)) == (State.OBSERVING, "gone")


@pytest.mark.parametrize(
    ("word", "code"), [("pending_review", "unknown_state"), ("review", "waiting_human"), ("deleted", "gone")]
)
def test_remarkable_words_show_while_polling_goes_on(word: str, code: str) -> None:
    """A word nobody knew is never success and never failure; a person should see it (B10)."""
    story = a_story()
    story.accepted()
    op = story.tell(seen(word))
    assert (op.state, attention_of(op), op.remote_state) == (State.OBSERVING, code, word)
    since = story.now
    op = story.wait(60).tell(seen(word))
    assert op.attention is not None
    assert op.attention.since == since
    assert attention_of(story.tell(seen("running"))) is None


def test_a_job_that_runs_again_while_its_result_is_fetched_shows() -> None:
    """A final word was taken back; it is read again, and a person should know (B12)."""
    story = a_story()
    story.observing()
    story.tell(seen("succeeded"))
    op = story.tell(seen("running"))
    assert (op.state, attention_of(op)) == (State.RESULT_COLLECTING, "status_went_backwards")
    assert attention_of(story.tell(seen("succeeded"))) is None


@pytest.mark.parametrize(
    ("evidence", "code"), [(e.Throttled, "throttled"), (e.NotDelivered, "not_delivered")], ids=["429", "refused"]
)
def test_calls_that_nobody_takes_show_once_they_persist(
    evidence: type[e.Throttled | e.NotDelivered], code: str
) -> None:
    """Provably nothing was done, but somebody should know why nothing happens."""
    story = a_story()
    for number in range(PERSISTENT):
        assert attention_of(story.op) is None
        story.tell(a_permit(Action.CREATE, f"c{number}"), evidence(call_id=f"c{number}", why="no"))
    op = story.op
    assert (attention_of(op), op.failures, op.backoff, op.attempts.create) == (code, PERSISTENT, PERSISTENT, PERSISTENT)


@pytest.mark.parametrize("later", ["running", "failed", "cancelled"])
def test_a_contradiction_of_an_ended_job_shows_and_changes_nothing(later: str) -> None:
    """A final state is never overwritten in silence (B12)."""
    story = a_story()
    story.observing()
    before = story.tell(seen("succeeded"), e.ResultAccepted(call_id="d1"))
    op = story.tell(seen(later))
    assert attention_of(op) == "final_state_contradicted"
    assert op.attention is not None
    assert later in op.attention.reason
    assert "succeeded" in op.attention.reason
    assert (op.state, op.remote_state, op.remote_means) == (before.state, "succeeded", Means.SUCCEEDED)


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_the_same_ending_seen_again_is_no_contradiction(ending: str) -> None:
    """A webhook that comes late leads to a read that says what is known."""
    story = a_story()
    story.observing()
    story.tell(seen(ending))
    assert attention_of(story.tell(seen(ending))) is None
    assert attention_of(story.tell(seen("something new"))) is None


def test_a_closed_operation_is_contradicted_by_nothing() -> None:
    """Nobody claimed to know how it ended."""
    story = a_story()
    story.observing()
    story.wait(3600).tell(e.DeadlinePassed(Deadline.RESULT, story.now), e.Decided("ana", Choice.CLOSE))
    assert attention_of(story.tell(seen("succeeded"))) is None


def test_a_state_that_needs_a_person_says_why_and_a_read_does_not_hush_it() -> None:
    """The attention of such a state stands until the state is left."""
    story = a_story()
    story.observing()
    story.wait(3600).tell(e.DeadlinePassed(Deadline.RESULT, story.now))
    assert story.op.attention is not None
    assert story.op.attention.reason == "the result deadline passed"
    for ev in (seen("running"), e.ReadFailed(why="x", code="gone"), e.ReadFailed(why="x"), e.ReadFailed(why="x")):
        assert attention_of(story.tell(ev)) == "result_timed_out"
    op = story.tell(e.Decided("ana", Choice.EXTEND, extend_by=timedelta(hours=2)))
    assert (attention_of(op), op.result_deadline) == (None, story.now + timedelta(hours=2))


def test_a_failed_read_does_not_hush_an_exhausted_create_unknown() -> None:
    """It waits for a person though its state is not one of those that always do."""
    story = a_story()
    story.lost()
    story.tell(e.Inconclusive(why="no way", exhausted=True))
    assert attention_of(story.tell(e.ReadFailed(why="404", code="gone"))) == "create_unknown"


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_a_standing_cancel_keeps_its_own_intent_when_the_job_is_found() -> None:
    """The wish was recorded once; turning it into a call is no second wish."""
    story = a_story()
    story.lost()
    story.tell(e.CancelRequested("req_1", "ana", "stops billing"), reason="too dear")
    intent = story.op.cancel
    assert intent == CancelIntent("req_1", "ana", T0, "too dear", "stops billing")
    story.wait(5).tell(a_permit(Action.RECONCILE, "r", strategy="resend"), e.Accepted(call_id="r", job_id="job_1"))
    op = story.tell(e.CancelRequested("req_1", "ana", "stops billing"))
    assert (op.state, op.cancel) == (State.CANCEL_REQUESTED, intent)
    assert op.cancel_deadline == T0 + seconds(5) + timedelta(minutes=10)


def test_what_became_of_the_cancel_call_is_remembered() -> None:
    """Whether it may be sent again depends on it (I8)."""
    story = a_story()
    story.observing()
    story.tell(e.CancelRequested("req_1", "ana"), a_permit(Action.CANCEL, "c1"))
    assert story.op.cancel is not None
    assert (story.op.cancel.sent, story.op.attempts.cancel) == (1, 1)
    op = story.tell(e.CallLost(call_id="c1", action=Action.CANCEL, why="reset"))
    assert op.cancel is not None
    assert (op.cancel.lost, op.cancel.reread, op.last_error) == (True, False, "reset")
    op = story.tell(seen("running"))
    assert op.cancel is not None
    assert op.cancel.reread
    op = story.tell(a_permit(Action.CANCEL, "c2"))
    assert op.cancel is not None
    assert (op.cancel.sent, op.cancel.lost, op.cancel.reread) == (2, False, False)
    op = story.tell(e.NotDelivered(call_id="c2", action=Action.CANCEL))
    assert op.cancel is not None
    assert (op.cancel.lost, op.cancel.undelivered) == (False, True)


@pytest.mark.parametrize("again", [Choice.WATCH, Choice.CANCEL])
def test_an_unconfirmed_cancel_gets_a_new_deadline(again: Choice) -> None:
    """Watching on is the same intent; sending again is a new one."""
    story = a_story()
    story.observing()
    story.tell(e.CancelRequested("req_1", "ana"), a_permit(Action.CANCEL, "c1"), e.CancelAnswered(call_id="c1"))
    story.wait(600).tell(e.DeadlinePassed(Deadline.CANCEL, story.now))
    op = story.tell(e.Decided("jo", again, None, timedelta(minutes=30), "req_2"))
    assert op.cancel is not None
    assert (op.cancel.request_id, op.cancel.sent) == (("req_1", 1) if again is Choice.WATCH else ("req_2", 0))
    longer = timedelta(minutes=30) if again is Choice.WATCH else timedelta(minutes=10)
    assert op.cancel_deadline == story.now + longer


def test_a_read_after_an_answered_cancel_is_no_re_read() -> None:
    """Only a lost cancel is waited for to be read again before it may be sent again."""
    story = a_story()
    story.observing()
    story.tell(e.CancelRequested("req_1", "ana"), a_permit(Action.CANCEL, "c1"), e.CancelAnswered(call_id="c1"))
    op = story.tell(seen("running"))
    assert op.cancel is not None
    assert not op.cancel.reread


def test_sending_a_cancel_again_stays_with_the_job() -> None:
    """Only a violation leaves open which job is ours."""
    story = a_story()
    story.observing()
    story.tell(e.CancelRequested("req_1", "ana"), e.DeadlinePassed(Deadline.CANCEL, story.now))
    assert story.tell(e.Decided("jo", Choice.CANCEL, "job_9", None, "req_2")).remote_job_id == "job_1"


# --- decisions about jobs ---------------------------------------------------------------------------------------------


def violated() -> Story:
    """An operation whose token brought a second job."""
    story = a_story()
    story.accepted("job_1", refs={"status_url": "https://api.example.com/s/1"})
    story.tell(e.UnfamiliarJobId(why="two jobs", jobs=("job_1", "job_2")))
    return story


def test_a_violation_keeps_every_job_and_says_why() -> None:
    """Nothing is overwritten; the loser is still known to run and cost (B04)."""
    op = violated().op
    assert (op.jobs, op.remote_job_id, op.last_error) == (("job_1", "job_2"), "job_1", "two jobs")
    assert op.attention is not None
    assert (op.attention.code, op.attention.reason) == ("contract_violation", "two jobs")


@pytest.mark.parametrize("choice", [Choice.KEEP, Choice.CANCEL])
def test_another_job_is_never_read_at_the_first_one_s_address(choice: Choice) -> None:
    """The status URL came with job 1; reading it for job 2 would report the wrong job."""
    assert violated().tell(e.Decided("ana", choice, "job_2")).remote_refs == {}
    assert violated().tell(e.Decided("ana", choice, "job_1")).remote_refs != {}


def test_a_kept_job_becomes_the_operation_s_own_and_has_time() -> None:
    """The decision may come days later."""
    story = violated().wait(timedelta(days=2))
    op = story.tell(e.Decided("ana", Choice.KEEP, "job_2"))
    assert (op.state, op.remote_job_id, op.attention) == (State.OBSERVING, "job_2", None)
    assert op.result_deadline == story.now + timedelta(hours=1)


def test_a_bound_job_has_time() -> None:
    """The result deadline may have passed while nobody knew of the job."""
    story = a_story()
    story.lost()
    op = story.wait(timedelta(days=2)).tell(e.Decided("ana", Choice.BIND, "job_7"))
    assert (op.remote_job_id, op.jobs, op.accepted_at) == ("job_7", ("job_7",), story.now)
    assert op.result_deadline == story.now + timedelta(hours=1)


def test_letting_a_job_run_on_overrules_a_cancel_that_still_stands() -> None:
    """Somebody asked to cancel before the violation; whoever keeps the job decides against it."""
    story = a_story()
    story.lost()
    story.tell(e.CancelRequested("req_1", "ana"), e.UnfamiliarJobId(jobs=("job_1", "job_2")))
    assert story.op.cancel is not None
    assert story.tell(e.Decided("jo", Choice.KEEP, "job_2")).cancel is None


def test_a_resumed_job_is_not_cancelled_by_an_old_wish() -> None:
    """The cancel was meant for the run that failed."""
    record = a_record(
        State.FAILED, first_sent_at=T0, remote_job_id="job_1", cancel=CancelIntent("req_1", "ana", T0, "")
    )
    op = folded(record, e.Decided("jo", Choice.RESUME))
    assert (op.state, op.cancel, op.result_deadline) == (State.OBSERVING, None, T0 + seconds(60) + timedelta(hours=1))


# --- results ----------------------------------------------------------------------------------------------------------


def test_a_result_is_recorded_with_its_problems() -> None:
    """Even a wrong result is kept: somebody may accept it as it is."""
    story = a_story()
    story.observing()
    story.tell(seen("succeeded"), e.ReadFailed(action=Action.COLLECT, why="cut", code="result"))
    bad = StoredResult("file:///r", 3, "0" * 64, "text/csv", validated=False, problems=("2 records, not 3",))
    op = story.tell(e.ResultInvalid(call_id="d2", why="2 records, not 3", problems=bad.problems, result=bad))
    assert (op.state, op.result, op.last_error) == (State.RESULT_VALIDATION_FAILED, bad, "2 records, not 3")
    assert op.attempts.collect == 2
    op = story.wait(timedelta(hours=1)).tell(e.Decided("ana", Choice.COLLECT))
    assert (op.state, op.collect_deadline) == (State.RESULT_COLLECTING, story.now + timedelta(minutes=15))
    good = replace(bad, validated=True, problems=())
    op = story.tell(e.ResultAccepted(call_id="d3", result=good))
    assert (op.state, op.result, op.last_error) == (State.SUCCEEDED, good, None)


def test_a_missing_result_leaves_what_was_there() -> None:
    """A second attempt that finds nothing must not lose what the first one stored."""
    stored = StoredResult("file:///r", 3, "0" * 64, "text/csv", validated=False)
    op = folded(a_record(State.RESULT_COLLECTING, first_sent_at=T0, result=stored), e.ResultMissing(why="gone"))
    assert (op.state, op.result, op.last_error) == (State.RESULT_UNAVAILABLE, stored, "gone")


def test_partial_output_is_attached_and_changes_no_state() -> None:
    """What a failed job left may be worth having."""
    story = a_story()
    story.observing()
    story.tell(seen("failed"))
    part = StoredResult("file:///p", 3, "0" * 64, "text/csv", validated=True)
    op = story.tell(e.PartialAttached(result=part))
    assert (op.state, op.result) == (State.FAILED, part)


# --- what comes too late ----------------------------------------------------------------------------------------------


def late(job_id: str) -> e.Noted:
    """The answer of a worker that had lost its lease."""
    answer = e.Accepted(call_id="call_1", job_id=job_id)
    return e.Noted("a late answer", late_kind=answer.kind, late=e.to_data(answer))


def test_a_job_named_by_a_late_answer_is_remembered() -> None:
    """Another id under the same token must still be noticed afterwards (I3, I11)."""
    story = a_story()
    story.lost()
    op = story.tell(late("job_1"))
    assert (op.state, op.jobs, op.remote_job_id, op.attention) == (State.CREATE_UNKNOWN, ("job_1",), None, None)


def test_a_late_answer_that_contradicts_the_end_shows() -> None:
    """A person said "not created", and it was: that must not stay in the journal alone."""
    story = a_story()
    story.lost()
    story.tell(e.Decided("ana", Choice.NOT_CREATED))
    op = story.tell(late("job_1"))
    assert (op.state, attention_of(op)) == (State.FAILED, "final_state_contradicted")
    assert op.attention is not None
    assert "job_1" in op.attention.reason


def test_a_late_answer_that_says_what_is_known_is_a_remark() -> None:
    """The same job again is no news."""
    story = a_story()
    story.observing()
    story.tell(seen("failed"))
    assert (attention_of(story.tell(late("job_1"))), story.op.jobs) == (None, ("job_1",))


def test_remarks_change_nothing_at_all() -> None:
    """Notes, acknowledgements and take-overs are for people and auditors."""
    story = a_story()
    before = story.observing()
    for remark in (e.Noted("hm"), e.Acknowledged("ana"), e.LeaseTaken("w2", 2, "w1"), e.Notified("webhook")):
        after = story.wait(1).tell(remark)
        assert replace(after, next=before.next, version=before.version, head_seq=before.head_seq) == before


def test_a_create_without_an_answer_may_have_left_until_it_was_given_up() -> None:
    """Its worker may have stood still between permit and bytes: what is to show by then is counted from there (I5)."""
    sent = a_record(State.CREATE_PENDING, first_sent_at=T0, last_sent_at=T0, open_call=OpenCall("c", Action.CREATE, T0))
    assert folded(sent, e.CallLost(call_id="c", action=Action.CREATE)).last_sent_at == T0 + seconds(60)
    call = OpenCall("c", Action.RECONCILE, T0, "resend")
    again = a_record(State.RECONCILIATION, first_sent_at=T0, last_sent_at=T0, open_call=call)
    assert folded(again, e.Inconclusive(call_id="c", strategy="resend")).last_sent_at == T0 + seconds(60)
    assert folded(again, e.Inconclusive(call_id="c", strategy="list")).last_sent_at == T0
    cancelled = a_record(
        State.CANCELLING, first_sent_at=T0, last_sent_at=T0, open_call=OpenCall("c", Action.CANCEL, T0)
    )
    assert folded(cancelled, e.CallLost(call_id="c", action=Action.CANCEL)).last_sent_at == T0
