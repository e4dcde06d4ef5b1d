"""What happens next, and when: the decision the worker obeys, and the plan that is stored for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import evidence as e
from opledger.rules.contract import Contract, Poll, Strategy
from opledger.rules.decide import (
    MAX_CANCEL_CALLS,
    AskHuman,
    Call,
    Conclude,
    Wait,
    decide,
    may_resend,
    open_deadline,
    plan,
    usable_strategy,
)
from opledger.rules.model import (
    TERMINAL,
    Action,
    Approval,
    CancelIntent,
    Choice,
    Deadline,
    Means,
    OpenCall,
    Operation,
    Plan,
    State,
    StoredResult,
)
from opledger.rules.projection import Entry, project
from opledger.rules.questions import NEVER_ASKED, NEVER_TOLD, QUESTIONS
from opledger.rules.schedule import LAST_LOOK
from tests.support.contracts import GET, LIST, RESEND, a_contract, with_cancel, with_status, with_token
from tests.support.records import (
    FINGERPRINT,
    JOB,
    OPERATION_ID,
    T0,
    WORKER,
    Story,
    a_permit,
    a_record,
    seconds,
    seen,
)

INTENT = CancelIntent("req_1", "ana", T0, "too dear", "stops billing")
DEADLINES: dict[str, Any] = {
    "create_deadline": T0 + timedelta(minutes=2),
    "result_deadline": T0 + timedelta(hours=1),
    "cancel_deadline": T0 + timedelta(minutes=10),
    "collect_deadline": T0 + timedelta(minutes=15),
    "approval_deadline": T0 + timedelta(hours=4),
}


def in_state(state: State, **facts: Any) -> Operation:
    """A record with every deadline ahead, as if it had come to this state an instant ago."""
    known: dict[str, Any] = {**DEADLINES}
    if state not in (State.AWAITING_APPROVAL, State.CREATE_PENDING):
        known.update(first_sent_at=T0, last_sent_at=T0)
    if state not in (State.AWAITING_APPROVAL, State.CREATE_PENDING, State.CREATE_UNKNOWN, State.RECONCILIATION):
        known.update(remote_job_id=JOB, jobs=(JOB,), accepted_at=T0)
    if state in (State.CANCEL_REQUESTED, State.CANCELLING, State.CANCELLATION_UNCONFIRMED):
        known.update(cancel=INTENT)
    return a_record(state, **{**known, **facts})


def what(op: Operation, contract: Contract | None = None, now: datetime = T0, paused: str | None = None) -> str:
    """The decision in one word or two, for tables."""
    decision = decide(op, contract or a_contract(), now, paused=paused)
    if isinstance(decision, Call):
        return f"call {decision.action}"
    if isinstance(decision, Conclude):
        return f"conclude {decision.evidence.kind}"
    return "wait" if isinstance(decision, Wait) else "ask"


# --- one line for each state ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "then"),
    [
        (State.AWAITING_APPROVAL, "ask"),
        (State.CREATE_PENDING, "call create"),
        (State.CREATE_UNKNOWN, "call reconcile"),
        (State.ACCEPTED, "call observe"),
        (State.OBSERVING, "call observe"),
        (State.CANCEL_REQUESTED, "call cancel"),
        (State.CANCELLING, "call observe"),
        (State.CANCELLATION_UNCONFIRMED, "ask"),
        (State.RESULT_TIMED_OUT, "ask"),
        (State.RESULT_COLLECTING, "call collect"),
        (State.RESULT_UNAVAILABLE, "ask"),
        (State.RESULT_VALIDATION_FAILED, "ask"),
        (State.CONTRACT_VIOLATION, "ask"),
        *((state, "wait") for state in State if state in TERMINAL),
    ],
    ids=str,
)
def test_what_each_state_calls_for(state: State, then: str) -> None:
    """The worker does nothing that is not said here."""
    assert what(in_state(state)) == then


def test_an_ended_operation_waits_for_nothing() -> None:
    """Nothing more happens by itself, whatever the clock says."""
    for state in TERMINAL:
        decision = decide(in_state(state), a_contract(), T0 + timedelta(days=400))
        assert isinstance(decision, Wait)
        assert decision.until is None


@pytest.mark.parametrize("state", [state for state in State if state.needs_human], ids=str)
def test_a_question_names_its_code_and_says_what_can_be_done(state: State) -> None:
    """A person at three in the morning reads this sentence first."""
    decision = decide(in_state(state), a_contract(), T0)
    assert isinstance(decision, AskHuman)
    assert (decision.code, len(decision.question) > 40) == (state, True)
    assert decision.until == (DEADLINES["approval_deadline"] if state is State.AWAITING_APPROVAL else None)


def test_the_question_counts_the_approvals_that_are_missing() -> None:
    """With one approval of three given, two are missing."""
    given_one = (Approval("ana", T0, "", FINGERPRINT),)
    decision = decide(in_state(State.AWAITING_APPROVAL, approvals_needed=3, approvals=given_one), a_contract(), T0)
    assert isinstance(decision, AskHuman)
    assert "2 more approvals" in decision.question


# --- recovery ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "action", "lost", "then"),
    [
        (State.CREATE_PENDING, Action.CREATE, "CallLost", State.CREATE_UNKNOWN),
        (State.RECONCILIATION, Action.RECONCILE, "Inconclusive", State.CREATE_UNKNOWN),
        (State.CANCEL_REQUESTED, Action.CANCEL, "CallLost", State.CANCELLING),
        (State.CANCELLING, Action.CANCEL, "CallLost", State.CANCELLING),
        (State.RESULT_COLLECTING, Action.COLLECT, "ResultMissing", State.RESULT_UNAVAILABLE),
        *((State.CONTRACT_VIOLATION, action, "CallLost", State.CONTRACT_VIOLATION) for action in Action),
    ],
)
@pytest.mark.parametrize("late", [timedelta(0), timedelta(days=30)], ids=["at once", "after every deadline"])
@pytest.mark.parametrize("paused", [None, "credentials"])
def test_a_permit_without_an_outcome_means_unknown(
    state: State, action: Action, lost: str, then: State, late: timedelta, paused: str | None
) -> None:
    """Found by somebody who did not make the call, it may have been made (I7): for every action, before all else."""
    op = in_state(state, open_call=OpenCall("call_9", action, T0, "resend"), first_sent_at=T0)
    decision = decide(op, a_contract(), T0 + late, paused=paused)
    assert isinstance(decision, Conclude)
    assert (decision.evidence.kind, decision.cause) == (lost, "recovery")
    assert not isinstance(decision.evidence, e.CallLost) or decision.evidence.action is action
    after = project(op, Entry(OPERATION_ID, 2, T0 + late, WORKER, decision.evidence, decision.cause))
    assert (after.state, after.open_call) == (then, None)


def test_a_recovered_look_up_names_its_strategy() -> None:
    """The journal says which way was being tried."""
    op = in_state(State.RECONCILIATION, open_call=OpenCall("r1", Action.RECONCILE, T0, "list"))
    decision = decide(op, a_contract(), T0)
    assert isinstance(decision, Conclude)
    assert isinstance(decision.evidence, e.Inconclusive)
    assert (decision.evidence.strategy, decision.evidence.call_id) == ("list", "r1")


# --- deadlines --------------------------------------------------------------------------------------------------------

DUE = [
    (State.AWAITING_APPROVAL, "approval", "ApprovalExpired", State.REJECTED),
    (State.CREATE_PENDING, "create", "DeadlinePassed", State.FAILED),
    (State.CREATE_UNKNOWN, "create", "DeadlinePassed", State.CREATE_UNKNOWN),
    (State.ACCEPTED, "result", "DeadlinePassed", State.RESULT_TIMED_OUT),
    (State.OBSERVING, "result", "DeadlinePassed", State.RESULT_TIMED_OUT),
    (State.CANCEL_REQUESTED, "cancel", "DeadlinePassed", State.CANCELLATION_UNCONFIRMED),
    (State.CANCELLING, "cancel", "DeadlinePassed", State.CANCELLATION_UNCONFIRMED),
    (State.RESULT_COLLECTING, "collect", "ResultMissing", State.RESULT_UNAVAILABLE),
]


@pytest.mark.parametrize(("state", "which", "kind", "then"), DUE, ids=str)
@pytest.mark.parametrize("paused", [None, "credentials"], ids=["", "paused"])
def test_deadlines_are_enforced_at_their_instant_even_while_paused(
    state: State, which: str, kind: str, then: State, paused: str | None
) -> None:
    """They are absolute times in the record, whether a worker ran or not; a pause stops calls, not clocks."""
    op = in_state(state)
    assert open_deadline(op) == (Deadline(which), DEADLINES[f"{which}_deadline"])
    deadline = DEADLINES[f"{which}_deadline"]
    early = decide(op, a_contract(), deadline - timedelta(microseconds=1), paused=paused)
    assert not isinstance(early, Conclude)
    decision = decide(op, a_contract(), deadline, paused=paused)
    assert isinstance(decision, Conclude)
    assert (decision.evidence.kind, decision.cause) == (kind, f"deadline:{which}")
    after = project(op, Entry(OPERATION_ID, 2, deadline, WORKER, decision.evidence, decision.cause))
    assert after.state is then
    assert what(after, now=deadline) in ("ask", "wait")


def test_other_states_have_no_deadline() -> None:
    """A person has all the time there is."""
    timed = {state for state, *_ in DUE} | {State.RECONCILIATION}
    assert [state for state in State if state not in timed and open_deadline(in_state(state)) is not None] == []
    assert open_deadline(in_state(State.RECONCILIATION)) == (Deadline.CREATE, DEADLINES["create_deadline"])


def test_the_escalated_create_unknown_does_not_escalate_again() -> None:
    """The deadline is spent once it has spoken."""
    op = in_state(State.CREATE_UNKNOWN, exhausted=True)
    assert what(op, now=T0 + timedelta(days=1)) == "ask"


def test_a_missed_result_says_what_went_wrong_last() -> None:
    """That a deadline passed helps nobody by itself."""
    decision = decide(in_state(State.RESULT_COLLECTING, last_error="status 503"), a_contract(), T0 + timedelta(hours=1))
    assert isinstance(decision, Conclude)
    assert isinstance(decision.evidence, e.ResultMissing)
    assert "status 503" in decision.evidence.why


def sentences(decision: Any) -> list[str]:
    """All that people will read of a decision."""
    own = [getattr(decision, name) for name in ("why", "because", "question") if hasattr(decision, name)]
    evidence: Any = getattr(decision, "evidence", None)
    return [*own, *([evidence.why] if hasattr(evidence, "why") else [])]


SHARED = replace(INTENT, shares="op_01J7Q5X4D4PA3DK0F5Q2V8W9AC")
CIRCUMSTANCES: list[dict[str, Any]] = [
    {}, {"exhausted": True}, {"cancel": INTENT}, {"cancel": INTENT, "duplicate_accepted": True}, {"cancel": SHARED},
    {"cancel": replace(INTENT, sent=1, lost=True, reread=True)}, {"last_error": "status 503"}, {"approvals_needed": 3},
    *({"open_call": OpenCall("call_1", action, T0)} for action in Action),
]  # fmt: skip
NEWS = [
    e.Inconclusive(why="busy", retry_at=T0 + seconds(9)), e.Inconclusive(why="busy"), e.CallLost(why="reset"),
    e.CallLost(why="reset", status=503), e.Throttled(why="429", retry_at=T0 + seconds(9)),
    e.NotDelivered(why="refused"),
    seen("running"), e.Noted("x"), e.Decided("ana", Choice.RESEND),
]  # fmt: skip


@pytest.mark.parametrize("state", State, ids=str)
def test_whatever_is_decided_or_planned_says_why(state: State) -> None:
    """In every circumstance, in a sentence that has no hole in it."""
    for contract in (
        a_contract(),
        a_contract(cancel=None, reconcile=()),
        a_contract(reconcile=(LIST, RESEND), result=None),
        with_cancel(idempotent=True),
        with_status(by_delivery=True),
    ):
        for facts in CIRCUMSTANCES:
            op = in_state(state, **facts)
            said = [
                text
                for now in (T0, T0 + timedelta(days=1))
                for paused in (None, "credentials")
                for text in sentences(decide(op, contract, now, paused=paused))
            ]
            plans = [plan(op, contract, news, T0, 0.5) for news in NEWS]
            said += [found.because for found in plans if found is not None]
            assert [text for text in said if not text or "None" in text or not isinstance(text, str)] == []


@pytest.mark.parametrize("sent", [0, 1])
@pytest.mark.parametrize("by_delivery", [False, True])
@pytest.mark.parametrize("state", [state for state in QUESTIONS if state is not State.AWAITING_APPROVAL], ids=str)
def test_a_question_fits_what_happened(state: State, sent: int, by_delivery: bool) -> None:
    """Whether the cancel ever left, and whether anybody could ask: only where that is what the question is about."""
    contract = with_status(by_delivery=by_delivery)
    expected = QUESTIONS[state]
    if state is State.CANCELLATION_UNCONFIRMED and not sent:
        expected = NEVER_ASKED
    if state is State.RESULT_TIMED_OUT and by_delivery:
        expected = NEVER_TOLD
    decision = decide(in_state(state, cancel=replace(INTENT, sent=sent), exhausted=True), contract, T0)
    assert isinstance(decision, AskHuman)
    assert (decision.code, decision.question) == (state, expected)


def test_a_cancel_by_way_of_another_was_asked_for() -> None:
    """It sent none of its own, and needn't."""
    decision = decide(in_state(State.CANCELLATION_UNCONFIRMED, cancel=SHARED), a_contract(), T0)
    assert isinstance(decision, AskHuman)
    assert decision.question == QUESTIONS[State.CANCELLATION_UNCONFIRMED]


def concluded(op: Operation, contract: Contract | None = None, now: datetime = T0) -> Conclude:
    """What follows from the record alone."""
    decision = decide(op, contract or a_contract(), now)
    assert isinstance(decision, Conclude)
    return decision


def test_a_conclusion_names_its_cause_and_the_call_that_it_ends() -> None:
    """The journal is read by these: whose wish it was, or that a worker died, and of which call nothing is known."""
    twice = in_state(State.CREATE_PENDING, cancel=INTENT, duplicate_accepted=True)
    assert concluded(twice).cause == "human_request:req_1"
    assert concluded(in_state(State.CREATE_UNKNOWN), a_contract(reconcile=())).cause == "recovery"
    assert concluded(in_state(State.RESULT_COLLECTING), a_contract(result=None)).cause == "call:none"
    collecting = in_state(State.RESULT_COLLECTING, open_call=OpenCall("call_7", Action.COLLECT, T0))
    assert getattr(concluded(collecting).evidence, "call_id", None) == "call_7"
    cancelling = in_state(State.CANCEL_REQUESTED, open_call=OpenCall("call_8", Action.CANCEL, T0))
    lost = concluded(cancelling).evidence
    assert isinstance(lost, e.CallLost)
    assert (lost.call_id, lost.action) == ("call_8", Action.CANCEL)
    reconciling = in_state(State.RECONCILIATION, open_call=OpenCall("call_9", Action.RECONCILE, T0))
    unsure = concluded(reconciling).evidence
    assert isinstance(unsure, e.Inconclusive)
    assert (unsure.call_id, unsure.strategy) == ("call_9", None)
    overdue = concluded(in_state(State.OBSERVING), now=T0 + timedelta(hours=2)).evidence
    assert isinstance(overdue, e.DeadlinePassed)
    assert overdue.deadline == DEADLINES["result_deadline"]


def test_one_missing_approval_is_not_counted() -> None:
    """The question itself asks for one."""
    decision = decide(in_state(State.AWAITING_APPROVAL, approvals_needed=1), a_contract(), T0)
    assert isinstance(decision, AskHuman)
    assert decision.question == QUESTIONS[State.AWAITING_APPROVAL]


def test_the_ways_to_find_out_are_tried_in_their_order() -> None:
    """Onwards from the one that is next, past those that cannot be used now."""
    late = T0 + timedelta(days=2)
    assert (
        usable_strategy(in_state(State.CREATE_UNKNOWN, strategy=1), a_contract(reconcile=(LIST, RESEND, GET)), late)
        == 2
    )


# --- pauses and planned times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [
        State.CREATE_PENDING,
        State.CREATE_UNKNOWN,
        State.ACCEPTED,
        State.OBSERVING,
        State.CANCEL_REQUESTED,
        State.CANCELLING,
        State.RESULT_COLLECTING,
    ],
    ids=str,
)
def test_a_paused_provider_is_not_called(state: State) -> None:
    """One escalation, and its operations wait, at most until their deadline."""
    op = in_state(state)
    decision = decide(op, a_contract(), T0, paused="its credentials are refused")
    deadline = open_deadline(op)
    assert isinstance(decision, Wait)
    assert deadline is not None
    assert decision.until == deadline[1]
    assert "its credentials are refused" in decision.because
    waits = replace(op, next=Plan("observe", T0 + seconds(5), "Retry-After: 5"))
    early = decide(waits, a_contract(), T0)
    assert isinstance(early, Wait)
    assert (early.until, early.because) == (T0 + seconds(5), "Retry-After: 5")
    assert what(waits, now=T0 + seconds(5)).startswith("call")


# --- create -----------------------------------------------------------------------------------------------------------


def test_a_cancelled_create_is_taken_back_before_it_is_sent_again() -> None:
    """A standing cancel forbids a further create; provably nothing was accepted (DESIGN §5)."""
    op = in_state(State.CREATE_PENDING, first_sent_at=T0, cancel=INTENT)
    for now in (T0, T0 + timedelta(days=1)):
        decision = decide(op, a_contract(), now)
        assert isinstance(decision, Conclude)
        after = project(op, Entry(OPERATION_ID, 2, now, WORKER, decision.evidence, decision.cause))
        assert after.state is State.WITHDRAWN
    early = decide(op, a_contract(), T0)
    assert isinstance(early, Conclude)
    assert (early.evidence, early.cause) == (e.Withdrawn("ana", "req_1"), "human_request:req_1")


def test_a_cancelled_resend_leaves_the_first_create_unknown() -> None:
    """A person accepted a possible duplicate, another cancelled: nothing is sent, and nothing is claimed."""
    op = in_state(State.CREATE_PENDING, first_sent_at=T0, cancel=INTENT, duplicate_accepted=True)
    decision = decide(op, a_contract(), T0)
    assert isinstance(decision, Conclude)
    after = project(op, Entry(OPERATION_ID, 2, T0, WORKER, decision.evidence, decision.cause))
    assert (after.state, what(after)) == (State.CREATE_UNKNOWN, "ask")


# --- create_unknown: which way to try ---------------------------------------------------------------------------------

DAY = timedelta(hours=24)
MARGIN = DAY / 10


@pytest.mark.parametrize(
    ("memory", "timeout", "window"),
    [
        (DAY, seconds(30), DAY - MARGIN),
        (timedelta(minutes=30), seconds(30), timedelta(minutes=27)),
        (timedelta(minutes=2), seconds(30), seconds(90)),  # the margin is at least one whole call
        (seconds(30), seconds(30), None),
        (seconds(20), seconds(30), None),
        (None, seconds(30), None),
    ],
    ids=str,
)
def test_a_resend_ends_well_before_the_token_is_forgotten(
    memory: timedelta | None, timeout: timedelta, window: timedelta | None
) -> None:
    """I4, at the boundary: margin of a tenth and of one call at least; an unknown memory allows none."""
    contract = with_token(memory=memory)
    contract = replace(contract, create=replace(contract.create, timeout=timeout))
    op = in_state(State.CREATE_UNKNOWN, create_deadline=T0 + timedelta(days=9))
    if window is None:
        assert not may_resend(op, contract, T0)
        assert what(op, contract) == "conclude Inconclusive"
        return
    last = T0 + window - timedelta(microseconds=1)
    assert (may_resend(op, contract, last), what(op, contract, last)) == (True, "call reconcile")
    assert (may_resend(op, contract, T0 + window), what(op, contract, T0 + window)) == (False, "conclude Inconclusive")


def test_a_later_send_does_not_make_the_window_longer() -> None:
    """It is measured from the first."""
    op = in_state(State.CREATE_UNKNOWN, last_sent_at=T0 + timedelta(hours=20))
    assert not may_resend(op, a_contract(), T0 + DAY - MARGIN)


def test_a_token_known_as_long_as_the_job_may_be_sent_again_for_as_long() -> None:
    """Some providers keep the token with the record."""
    contract = with_token(memory=None, while_record_exists=True)
    assert may_resend(in_state(State.CREATE_UNKNOWN), contract, T0 + timedelta(days=300))
    without = with_token(mechanism="none", memory=DAY, while_record_exists=True)
    assert not may_resend(in_state(State.CREATE_UNKNOWN), without, T0)


def test_nothing_was_sent_nothing_is_resent() -> None:
    """Without a first send there is no window to be in."""
    assert not may_resend(in_state(State.CREATE_UNKNOWN, first_sent_at=None), a_contract(), T0)


def test_without_a_way_to_find_out_it_says_so() -> None:
    """Providers without token or look-up: one create, and a plain sentence (I6)."""
    op = in_state(State.CREATE_UNKNOWN)
    decision = decide(op, a_contract(reconcile=()), T0)
    assert isinstance(decision, Conclude)
    assert isinstance(decision.evidence, e.Inconclusive)
    assert decision.evidence.exhausted
    assert "at-most-once cannot be shown" in decision.because
    forgotten = decide(replace(op, create_deadline=None), a_contract(), T0 + DAY)
    assert isinstance(forgotten, Conclude)
    assert "memory" in forgotten.because


@pytest.mark.parametrize(
    ("reconcile", "start", "in_window", "cancelled", "index"),
    [
        ((RESEND, LIST), 0, True, False, 0),
        ((RESEND, LIST), 1, True, False, 1),
        ((RESEND, LIST), 2, True, False, 0),
        ((RESEND, LIST), 3, True, False, 1),
        ((RESEND, LIST), 0, False, False, 1),
        ((LIST, RESEND), 1, False, False, 0),
        ((RESEND, LIST), 0, True, True, 1),  # a look-up can tell as much, and creates nothing
        ((GET, RESEND), 1, True, True, 0),
        ((RESEND,), 0, True, True, 0),  # resending is the only way to learn the job id
        ((RESEND,), 0, False, True, None),
        ((RESEND,), 0, False, False, None),
        ((RESEND, RESEND), 1, True, False, 1),
        ((), 0, True, False, None),
    ],
)
def test_which_way_is_tried(
    reconcile: tuple[Any, ...], start: int, in_window: bool, cancelled: bool, index: int | None
) -> None:
    """In the contract's order, round and round; a resend only while the token is known, and never beside a cancel
    where a look-up could tell as much (DESIGN §5).
    """
    contract = a_contract(reconcile=reconcile)
    op = in_state(State.CREATE_UNKNOWN, strategy=start, cancel=INTENT if cancelled else None, create_deadline=None)
    now = T0 if in_window else T0 + DAY
    assert usable_strategy(op, contract, now) == index
    decision = decide(op, contract, now)
    if index is None:
        assert isinstance(decision, Conclude)
    else:
        assert isinstance(decision, Call)
        assert (decision.action, decision.strategy) == (Action.RECONCILE, index)


# --- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.ACCEPTED, State.OBSERVING], ids=str)
@pytest.mark.parametrize("now", [T0, T0 + timedelta(days=1)], ids=["in time", "after the result deadline"])
@pytest.mark.parametrize("paused", [None, "x"], ids=["", "paused"])
def test_a_standing_cancel_follows_the_job_id_at_once(state: State, now: datetime, paused: str | None) -> None:
    """Job id learnt -> accepted -> cancel_requested at once: no deadline, wait or pause comes between."""
    op = in_state(state, cancel=INTENT, next=Plan("observe", T0 + timedelta(days=9), ""))
    decision = decide(op, a_contract(), now, paused=paused)
    assert isinstance(decision, Conclude)
    assert decision.evidence == e.CancelRequested("req_1", "ana", "stops billing")
    assert decision.cause == "human_request:req_1"
    assert plan(op, a_contract(), e.Accepted(retry_at=now + timedelta(hours=1)), now, 0.5) == Plan(
        "cancel", now, decision.because
    )


def test_a_cancel_that_was_sent_is_not_asked_for_again() -> None:
    """One call for each recorded intent (I8)."""
    op = in_state(State.OBSERVING, cancel=replace(INTENT, sent=1))
    assert what(op) == "call observe"


def test_without_a_cancel_call_the_job_runs_on_and_is_watched() -> None:
    """A standing wish that cannot be sent must not stop the polling, nor break the worker."""
    contract = a_contract(cancel=None)
    assert what(in_state(State.ACCEPTED, cancel=INTENT), contract) == "call observe"
    op = in_state(State.CANCEL_REQUESTED)
    assert what(op, contract) == "call observe"
    ahead = plan(op, contract, seen("running"), T0, 0.5)
    assert ahead is not None
    assert (ahead.kind, ahead.at) == ("observe", T0 + seconds(2))


@pytest.mark.parametrize(
    ("idempotent", "lost", "reread", "undelivered", "sent", "then"),
    [
        (True, True, True, False, 1, "call cancel"),
        (True, True, False, False, 1, "call observe"),  # read first: it may have worked
        (True, False, False, False, 1, "call observe"),  # it was answered
        (True, False, True, False, 1, "call observe"),
        (True, False, False, True, 2, "call cancel"),  # the second one provably never arrived
        (False, True, True, False, 1, "call observe"),
        (False, False, False, True, 1, "call observe"),
        (True, True, True, False, MAX_CANCEL_CALLS, "call observe"),
        (True, True, True, False, MAX_CANCEL_CALLS - 1, "call cancel"),
    ],
)
def test_when_a_cancel_is_sent_again(
    idempotent: bool, lost: bool, reread: bool, undelivered: bool, sent: int, then: str
) -> None:
    """Only after a re-read, only where the contract calls cancel idempotent, and not for ever (I8)."""
    intent = replace(INTENT, lost=lost, reread=reread, undelivered=undelivered, sent=sent)
    op = in_state(State.CANCELLING, cancel=intent)
    assert what(op, with_cancel(idempotent=idempotent)) == then


def test_a_lost_cancel_is_read_before_it_is_sent_again() -> None:
    """The whole way: lost, read, sent again under the same intent."""
    story = Story(with_cancel(idempotent=True))
    story.observing()
    story.tell(e.CancelRequested("req_1", "ana"), a_permit(Action.CANCEL, "c1"))
    op = story.tell(e.CallLost(call_id="c1", action=Action.CANCEL, why="reset"))
    assert op.next is not None
    assert op.next.kind == "observe"
    op = story.wait(60).tell(seen("running"))
    assert op.next is not None
    assert (op.next.kind, what(op, story.contract, op.next.at or T0)) == ("cancel", "call cancel")


# --- results ----------------------------------------------------------------------------------------------------------


def test_nothing_to_fetch_is_concluded_at_once() -> None:
    """A contract without results succeeds with the status read; so does an inline answer that is stored already."""
    assert what(in_state(State.RESULT_COLLECTING), a_contract(result=None)) == "conclude ResultAccepted"
    stored = StoredResult("file:///r", 3, "0" * 64, "application/json", validated=True)
    inline = in_state(State.RESULT_COLLECTING, remote_job_id=None, result=stored)
    decision = decide(inline, a_contract(), T0)
    assert isinstance(decision, Conclude)
    assert decision.evidence == e.ResultAccepted(result=stored)


def test_a_result_of_an_earlier_attempt_is_fetched_again() -> None:
    """A person asked to collect again: the old file is not the answer."""
    stored = StoredResult("file:///r", 3, "0" * 64, "text/csv", validated=False)
    assert what(in_state(State.RESULT_COLLECTING, result=stored)) == "call collect"


def test_what_is_not_stored_did_not_come_with_the_create_answer() -> None:
    """A success without its result is not claimed, whether or not there is a job to ask about."""
    assert what(in_state(State.RESULT_COLLECTING, remote_job_id=None)) == "call collect"


# --- the plan ---------------------------------------------------------------------------------------------------------


def planned(op: Operation, evidence: e.Evidence, contract: Contract | None = None, now: datetime = T0) -> Plan:
    """The plan with the middle of the jitter; there is one."""
    found = plan(op, contract or a_contract(), evidence, now, 0.5)
    assert found is not None
    return found


def test_nothing_is_planned_for_what_has_ended() -> None:
    """Nothing more happens by itself."""
    for state in TERMINAL:
        assert plan(in_state(state), a_contract(), e.Noted("x"), T0, 0.5) is None


@pytest.mark.parametrize("state", [state for state in State if state.needs_human], ids=str)
def test_a_person_s_time_is_not_planned(state: State) -> None:
    """The record is not due; it is asked about. An approval lapses by itself."""
    found = planned(in_state(state), e.Noted("x"))
    assert found.kind == "human"
    assert found.at == (DEADLINES["approval_deadline"] if state is State.AWAITING_APPROVAL else None)


def test_what_is_under_way_is_due_at_once() -> None:
    """If its worker dies, the next one must find it when the lease ends."""
    op = in_state(State.CREATE_PENDING, open_call=OpenCall("call_1", Action.CREATE, T0))
    assert planned(op, a_permit(Action.CREATE)) == Plan("create", T0, "the create call is under way")


@pytest.mark.parametrize(
    ("state", "evidence"),
    [
        (State.CREATE_PENDING, e.Throttled(why="429", retry_at=T0 + seconds(77))),
        (State.CREATE_UNKNOWN, e.Inconclusive(why="429", retry_at=T0 + seconds(77))),
        (State.OBSERVING, replace(seen("running"), retry_at=T0 + seconds(77))),
        (State.OBSERVING, e.ReadFailed(why="429", retry_at=T0 + seconds(77))),
        (State.ACCEPTED, e.Accepted(job_id=JOB, retry_at=T0 + seconds(77))),
        (State.CANCEL_REQUESTED, e.Throttled(action=Action.CANCEL, why="429", retry_at=T0 + seconds(77))),
        (State.CANCELLING, e.Throttled(action=Action.CANCEL, why="429", retry_at=T0 + seconds(77))),
        (State.RESULT_COLLECTING, e.ReadFailed(action=Action.COLLECT, why="429", retry_at=T0 + seconds(77))),
    ],
    ids=lambda value: str(value) if isinstance(value, State) else value.kind,
)
def test_what_the_provider_asks_for_is_honoured_exactly(state: State, evidence: e.Evidence) -> None:
    """Never earlier, in every phase (I20)."""
    assert planned(in_state(state), evidence).at == T0 + seconds(77)


@pytest.mark.parametrize("remark", [e.Noted("x"), e.Acknowledged("ana"), e.LeaseTaken("w2", 2, "w1")])
@pytest.mark.parametrize(
    "state", [State.CREATE_PENDING, State.CREATE_UNKNOWN, State.OBSERVING, State.CANCEL_REQUESTED, State.CANCELLING]
)
def test_a_remark_changes_no_plan(state: State, remark: e.Evidence) -> None:
    """Somebody's note is no reason to ask the provider earlier than it asked for."""
    stored = Plan("observe", T0 + seconds(77), "Retry-After: 77")
    assert planned(in_state(state, next=stored), remark) == stored
    assert planned(in_state(state), remark).at is not None


@pytest.mark.parametrize("news", [seen("running"), e.ReadFailed(why="503"), e.Notified("webhook")])
@pytest.mark.parametrize("state", [State.CREATE_PENDING, State.CANCEL_REQUESTED], ids=str)
def test_news_of_the_job_sends_no_throttled_call_earlier(state: State, news: e.Evidence) -> None:
    """The provider asked to wait with the call, not with the reads."""
    stored = Plan("deadline", T0 + seconds(77), "throttled")
    assert planned(in_state(state, next=stored), news).at == T0 + seconds(77)
    assert planned(in_state(state, next=Plan("human", None, "waiting")), news).at == T0


@pytest.mark.parametrize(
    "state", [State.ACCEPTED, State.OBSERVING, State.CANCELLING, State.CREATE_UNKNOWN, State.RESULT_COLLECTING]
)
def test_a_notice_makes_a_read_due_now(state: State) -> None:
    """A webhook brings the next read forward (I18); a resend is none."""
    op = in_state(state, next=Plan("observe", T0 + seconds(77), "backoff"), last_sent_at=T0 - seconds(99))
    assert planned(op, e.Notified("webhook"), a_contract(reconcile=(LIST,))).at == T0


@pytest.mark.parametrize(
    ("state", "decided"),
    [
        (State.OBSERVING, e.Decided("ana", Choice.EXTEND, extend_by=timedelta(hours=1))),
        (State.CANCELLING, e.Decided("ana", Choice.WATCH, extend_by=timedelta(hours=1))),
        (State.CANCEL_REQUESTED, e.Decided("ana", Choice.CANCEL)),
        (State.CREATE_PENDING, e.Decided("ana", Choice.RESEND)),
        (State.RESULT_COLLECTING, e.Decided("ana", Choice.COLLECT)),
        (State.ACCEPTED, e.Decided("ana", Choice.BIND, JOB)),
        (State.CANCEL_REQUESTED, e.CancelRequested("req_1", "ana")),
        (State.CREATE_PENDING, e.Approved("ana", FINGERPRINT)),
    ],
)
def test_what_a_person_decided_is_due_now(state: State, decided: e.Evidence) -> None:
    """An intent wakes the next lease owner at once, however far away the next poll was (B20)."""
    for stored in (Plan("human", None, "waiting"), Plan("observe", T0 + seconds(77), "Retry-After: 77")):
        found = planned(in_state(state, next=stored), decided)
        assert found.at == T0
        assert (found.because == "a person decided") is isinstance(decided, e.Decided)


@pytest.mark.parametrize("state", [State.OBSERVING, State.CANCELLING, State.CREATE_PENDING, State.RESULT_COLLECTING])
def test_without_a_hint_the_waits_grow_up_to_a_cap(state: State) -> None:
    """2, 4, 8 … seconds and never above the cap, whether reads or calls fail."""
    create = state is State.CREATE_PENDING
    evidence: e.Evidence = e.NotDelivered(why="refused") if create else e.ReadFailed(why="503")
    op = in_state(state, **{name: T0 + timedelta(days=9) for name in DEADLINES})
    waits = [(planned(replace(op, backoff=step), evidence).at or T0) - T0 for step in range(1, 9)]
    assert waits == [seconds(number) for number in (2, 4, 8, 16, 32, 60, 60, 60)]


def test_tries_to_learn_the_fate_back_off_too() -> None:
    """A provider in trouble is not asked in a tight loop."""
    story = Story(a_contract(), create_timeout=timedelta(days=1))
    story.lost()
    waits = []
    for number in range(4):
        story.tell(a_permit(Action.RECONCILE, f"r{number}", strategy="resend"))
        op = story.tell(e.Inconclusive(call_id=f"r{number}", why="503"))
        assert op.next is not None
        assert op.next.at is not None
        waits.append(op.next.at - story.now)
        story.wait(waits[-1])
    assert waits == [seconds(number) for number in (2, 4, 8, 16)]


@pytest.mark.parametrize(("status", "wait"), [(None, 0), (503, 2)], ids=["no answer", "answered 503"])
def test_a_create_that_was_answered_badly_is_not_asked_about_at_once(status: int | None, wait: float) -> None:
    """A reset is looked into at once; a server that just said 503 gets a moment."""
    found = planned(in_state(State.CREATE_UNKNOWN), e.CallLost(why="x", status=status))
    assert (found.kind, found.at) == ("reconcile", T0 + seconds(wait))


def test_a_read_after_a_lost_cancel_is_a_poll() -> None:
    """Whatever came last: it waits as polls do, and says who asked for how long."""
    for answer in (e.CallLost(action=Action.CANCEL, why="reset"), e.CancelAnswered()):
        assert planned(in_state(State.CANCELLING), answer).at == T0 + seconds(2)
    hinted = replace(seen("running"), retry_at=T0 + seconds(9), hint="in the header Retry-After")
    assert "in the header Retry-After" in planned(in_state(State.OBSERVING), hinted).because


def test_a_job_that_runs_again_while_collecting_is_not_polled_without_a_pause() -> None:
    """Collecting needs a fresh success; until it comes, reads are spaced like polls."""
    op = in_state(State.RESULT_COLLECTING, backoff=3, collect_deadline=T0 + timedelta(hours=1))
    assert planned(op, seen("running")).at == T0 + seconds(8)
    assert planned(op, seen("succeeded")).at == T0


def test_a_look_up_waits_until_a_new_job_can_be_seen() -> None:
    """A list that lags behind would show nothing, and nothing would look like absence."""
    story = Story(a_contract(reconcile=(LIST,)))
    op = story.lost()
    assert op.next is not None
    assert (op.next.kind, op.next.at) == ("reconcile", T0 + seconds(30))
    hinted = planned(in_state(State.CREATE_UNKNOWN), e.Inconclusive(retry_at=T0 + seconds(9)), story.contract)
    assert hinted.at == T0 + seconds(30)
    later = planned(
        in_state(State.CREATE_UNKNOWN), e.Inconclusive(why="busy", retry_at=T0 + seconds(50)), story.contract
    )
    assert (later.at, later.because) == (T0 + seconds(50), "busy; list to learn whether the job was created")


def test_a_resend_whose_time_would_be_up_gives_way_to_a_look_up_that_waits() -> None:
    """A list in its place, at the moment that the resend was planned for, would not show what was sent last."""
    contract = a_contract(reconcile=(RESEND, LIST))
    sent = T0 + DAY - MARGIN - seconds(1)
    op = in_state(State.CREATE_UNKNOWN, last_sent_at=sent, create_deadline=T0 + timedelta(days=9))
    found = planned(op, e.CallLost(why="x", status=503), contract, now=sent)
    assert (found.kind, found.at) == ("reconcile", sent + seconds(30))
    assert found.because == "a new job may not be visible yet; then list to learn whether the job was created"
    alone = planned(op, e.CallLost(why="x", status=503), a_contract(reconcile=(RESEND,)), now=sent)
    assert alone.at == sent + seconds(2)


@pytest.mark.parametrize(
    ("strategy", "facts"),
    [
        (replace(LIST, visibility_lag=timedelta(0)), {}),
        (replace(RESEND, visibility_lag=seconds(30)), {}),  # it looks for nothing
        (LIST, {"last_sent_at": None}),
    ],
    ids=["no lag", "resend", "never sent"],
)
def test_there_is_nothing_to_wait_for_until_it_can_be_seen(strategy: Strategy, facts: dict[str, Any]) -> None:
    """So nobody is told of a wait."""
    op = in_state(State.CREATE_UNKNOWN, **facts)
    found = planned(op, e.CallLost(why="reset"), a_contract(reconcile=(strategy,)))
    assert (found.at, found.because) == (T0, f"{strategy.strategy} to learn whether the job was created")


@pytest.mark.parametrize("state", [State.OBSERVING, State.CANCEL_REQUESTED, State.CREATE_PENDING], ids=str)
def test_a_record_without_a_deadline_or_a_plan_is_planned_for(state: State) -> None:
    """As one is that an older version wrote."""
    op = in_state(state, next=None, **dict.fromkeys(DEADLINES))
    assert planned(op, seen("running")).at == T0 + seconds(2 if state is State.OBSERVING else 0)
    assert what(replace(op, next=Plan("human", None, "waiting"))).startswith("call")


def test_an_absurd_wait_leaves_one_read_before_the_deadline() -> None:
    """A billion seconds is a mistake; the deadline still gets its last look."""
    absurd = T0 + timedelta(days=11_574)
    for op, evidence in (
        (in_state(State.OBSERVING), replace(seen("running"), retry_at=absurd)),
        (in_state(State.CANCELLING), e.ReadFailed(why="429", retry_at=absurd)),
        (in_state(State.RESULT_COLLECTING), e.ReadFailed(action=Action.COLLECT, why="429", retry_at=absurd)),
    ):
        deadline = open_deadline(op)
        found = planned(op, evidence)
        assert deadline is not None
        assert found.at == deadline[1] - seconds(2)
        assert found.kind != "deadline"


@pytest.mark.parametrize(("state", "which", "kind", "then"), DUE[1:], ids=str)
def test_no_plan_lies_behind_the_deadline(state: State, which: str, kind: str, then: State) -> None:
    """Every non-terminal record that waits for no person comes up again by its deadline (I21)."""
    deadline = DEADLINES[f"{which}_deadline"]
    late = deadline + timedelta(days=1)
    op = in_state(state)
    throttled: e.Throttled | e.Inconclusive = e.Throttled(why="429", retry_at=late)
    if state is State.CREATE_UNKNOWN:
        throttled = e.Inconclusive(why="429", retry_at=late)
    found = planned(op, throttled)
    assert found.at is not None
    assert found.at <= deadline
    now = deadline - timedelta(microseconds=1)
    assert planned(op, throttled, now=now).at == deadline
    exactly = planned(op, replace(throttled, retry_at=deadline))
    assert (exactly.kind, exactly.at) == ("deadline", deadline)  # then nothing is sent any more


def test_what_follows_from_the_record_is_planned_for_now() -> None:
    """A conclusion needs no wait: a crash between must not delay it to the next poll."""
    wanted_back = in_state(State.CREATE_PENDING, first_sent_at=T0, cancel=INTENT)
    found = planned(wanted_back, e.NotDelivered(why="refused"))
    assert (found.at, found.kind) == (T0, "create")
    found = planned(in_state(State.RESULT_COLLECTING), seen("succeeded"), a_contract(result=None))
    assert (found.at, found.kind) == (T0, "collect")
    for state in (State.ACCEPTED, State.OBSERVING):
        found = planned(in_state(state, cancel=INTENT), seen("running"))
        assert (found.at, found.kind) == (T0, "cancel")
    under_way = planned(in_state(State.RECONCILIATION), e.LeaseTaken("w2", 2, "w1"))
    assert (under_way.at, under_way.kind) == (T0, "reconcile")
    no_way = planned(in_state(State.CREATE_UNKNOWN), e.CallLost(why="x", status=503), a_contract(reconcile=()))
    assert (no_way.at, no_way.kind) == (T0, "reconcile")
    overdue = planned(in_state(State.OBSERVING), seen("running"), now=T0 + timedelta(hours=2))
    assert (overdue.at, overdue.kind) == (T0 + timedelta(hours=2), "deadline")


@given(
    st.sampled_from([state for state in State if state not in TERMINAL]),
    st.sampled_from(
        [
            seen("running"),
            seen("succeeded"),
            e.ReadFailed(why="503"),
            e.Throttled(why="429", retry_at=T0 + timedelta(days=3)),
            e.NotDelivered(why="refused"),
            e.CallLost(why="reset"),
            e.CancelAnswered(),
            e.Notified("webhook"),
            e.Noted("x"),
            e.Inconclusive(why="503"),
            e.Accepted(job_id=JOB),
        ]
    ),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 40),
    st.sampled_from([a_contract(), a_contract(cancel=None, reconcile=()), a_contract(poll=Poll(max=seconds(1)))]),
)
def test_at_the_planned_time_there_is_something_to_do(
    state: State, evidence: e.Evidence, jitter: float, backoff: int, contract: Contract
) -> None:
    """Plan and decision agree: a record that comes up is never only put off again."""
    op = in_state(state, backoff=backoff)
    if state is State.RECONCILIATION:
        op = replace(op, open_call=OpenCall("r1", Action.RECONCILE, T0))
    found = plan(op, contract, evidence, T0, jitter)
    assert found is not None
    if found.at is None:
        assert found.kind == "human"
        return
    assert found.at >= T0
    decision = decide(replace(op, next=found), contract, found.at)
    if state is State.AWAITING_APPROVAL:
        assert isinstance(decision, Conclude)
    assert isinstance(decision, Call | Conclude)
    if isinstance(decision, Call):
        assert found.kind == decision.action.value


def test_the_plan_names_the_call_that_will_be_made() -> None:
    """`explain` and the console show the plan: it must not promise a read where a cancel will go out."""
    intent = replace(INTENT, lost=True, reread=True, sent=1)
    op = in_state(State.CANCELLING, cancel=intent)
    again = planned(op, seen("running"), with_cancel(idempotent=True))
    assert (again.kind, again.at) == ("cancel", T0 + seconds(2))
    assert planned(op, seen("running"), with_cancel(idempotent=False)).kind == "observe"


def test_an_unknown_word_is_polled_like_any_other() -> None:
    """It is never success and never failure; only the deadline ends the wait (B10)."""
    op = in_state(State.OBSERVING)
    unknown = replace(seen("?"), means=Means.UNKNOWN)
    assert planned(op, unknown) == planned(op, seen("running"))


# --- what the provider asked to wait for ------------------------------------------------------------------------------


def test_after_a_lost_create_nothing_is_sent_before_the_provider_wants_it() -> None:
    """A gateway that says 503 and Retry-After is asked no sooner, and no sooner than our own pause either (I20)."""
    op = in_state(State.CREATE_UNKNOWN, last_sent_at=T0)
    contract = a_contract(reconcile=(RESEND,))
    asked = planned(op, e.CallLost(why="busy", status=503, retry_at=T0 + seconds(50)), contract)
    assert (asked.kind, asked.at) == ("reconcile", T0 + seconds(50))
    assert asked.because == "busy; resend to learn whether the job was created"
    pause = planned(op, e.CallLost(why="busy", status=503), contract).at
    assert pause is not None
    assert pause > T0
    for soon in (T0 - seconds(9), T0):
        assert planned(op, e.CallLost(why="busy", status=503, retry_at=soon), contract).at == pause
        assert planned(op, e.Inconclusive(why="x", next_strategy=True, retry_at=soon), contract).at == pause
    throttled = e.Inconclusive(why="429", retry_at=T0)
    assert planned(op, throttled, contract).at == T0  # who says "now" and takes it, means it


def test_a_look_up_is_made_before_the_deadline_however_long_the_provider_wants_to_be_left_alone() -> None:
    """As a status read is: else a person is asked what one more look would have told. Nothing is created for it."""
    op = in_state(State.CREATE_UNKNOWN, last_sent_at=T0 - seconds(99), create_deadline=T0 + seconds(100))
    lost = e.CallLost(why="busy", status=503, retry_at=T0 + timedelta(hours=9))
    look = planned(op, lost, a_contract(reconcile=(LIST,)))
    assert (look.kind, look.at) == ("reconcile", T0 + seconds(100) - LAST_LOOK)
    assert planned(op, lost, a_contract(reconcile=(RESEND,))).kind == "deadline"
    slow = a_contract(reconcile=(LIST,), poll=Poll(first=timedelta(hours=1), max=timedelta(hours=1)))
    assert planned(op, e.CallLost(why="busy", status=503), slow).kind == "deadline"  # nobody asked for that
    for_ever = replace(op, create_deadline=None)
    assert planned(for_ever, lost, a_contract(reconcile=(LIST,))).at == lost.retry_at


@pytest.mark.parametrize("way", [(RESEND, LIST), (LIST, RESEND)], ids=["resend first", "list first"])
def test_no_resend_takes_the_place_of_a_look_up_that_the_deadline_brings_forward(way: tuple[Strategy, ...]) -> None:
    """Planned for a time at which the token is forgotten, it would be made while the token still counts (I20)."""
    contract = replace(with_token(memory=seconds(150)), reconcile=way)
    assert contract.resend_window is not None
    sent = T0 + seconds(110) - contract.resend_window
    op = in_state(
        State.CREATE_UNKNOWN,
        first_sent_at=sent,
        last_sent_at=T0 - seconds(99),
        create_deadline=T0 + seconds(100),
        strategy=way.index(RESEND),
    )
    lost = e.CallLost(why="busy", status=503, retry_at=T0 + seconds(120))  # by then, the token is forgotten
    assert planned(op, lost, contract).kind == "deadline"
    forgotten = replace(op, first_sent_at=T0 + seconds(50) - contract.resend_window)
    look = planned(forgotten, lost, contract)
    assert (look.kind, look.at) == ("reconcile", T0 + seconds(100) - LAST_LOOK)


@pytest.mark.parametrize("news", [e.Notified("webhook"), e.CancelRequested("req_1", "ana")], ids=["told", "cancelled"])
def test_news_is_no_leave_to_send_what_may_create_earlier(news: e.Evidence) -> None:
    """A delivery brings a look forward, and no resend that the provider asked to wait with (I20)."""
    waits = Plan("reconcile", T0 + seconds(50), "busy; resend to learn whether the job was created")
    op = in_state(State.CREATE_UNKNOWN, last_sent_at=T0 - seconds(99), next=waits)
    assert planned(op, news, a_contract(reconcile=(RESEND,))) == waits
    assert planned(op, news, a_contract(reconcile=(LIST,))).at == T0
    looks = Plan("reconcile", T0 + seconds(50), "busy; list to learn whether the job was created")
    for way in ((RESEND, LIST), (LIST, RESEND)):  # what is tried next, should the list not tell
        both = replace(op, strategy=way.index(LIST), next=looks)
        told = planned(replace(both, first_sent_at=T0 - seconds(99)), news, a_contract(reconcile=way))
        assert (told.at == T0 + seconds(50)) is isinstance(news, e.Notified)  # a wanted cancel is no resend's leave
        assert planned(replace(both, first_sent_at=T0 - timedelta(days=9)), news, a_contract(reconcile=way)).at == T0
    for unplanned in (None, Plan("reconcile", None, "")):
        assert planned(replace(op, next=unplanned), news, a_contract(reconcile=(RESEND,))).at == T0
