from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.rules.explain import Explanation, Happened, explain, waits_for_person
from opledger.rules.model import (
    Action,
    Attempts,
    Attention,
    CancelIntent,
    Lease,
    Means,
    OpenCall,
    Operation,
    Plan,
    State,
)
from opledger.rules.questions import QUESTIONS
from tests.core.rules.operations import NOON, contract, operation

SENT = {"first_sent_at": NOON, "last_sent_at": NOON, "remote_job_id": "job_7"}
DEADLINES = {"create_deadline": NOON + timedelta(hours=1), "result_deadline": NOON + timedelta(hours=2)}
POLL = Plan("observe", NOON + timedelta(seconds=20), "Retry-After: 20")
EVENTS = [
    Happened(1, "Submitted", True, "agent-7"),
    Happened(2, "CallSent", False, "w1"),
    Happened(3, "Accepted", True, "w1"),
    Happened(4, "Observed", True, "w1"),
    Happened(5, "Observed", False, "w1"),
    Happened(6, "Noted", False, "ana"),
]


def explained(op: Operation, events: list[Happened] | None = None, **how: Any) -> Explanation:
    """An explanation at noon."""
    return explain(op, contract(), NOON, events=EVENTS if events is None else events, **how)


def test_a_waiting_poll_says_when_and_why() -> None:
    """What operators ask most is why it is still running."""
    found = explained(operation(State.OBSERVING, **SENT, **DEADLINES, next=POLL, remote_state="running"))
    assert found.next == POLL
    assert found.blocked_by is None
    assert "job_7" in found.why
    assert "Retry-After: 20" in found.why
    assert "2026-11-29T12:00:20" in found.why
    assert found.evidence == (4, 5)


@pytest.mark.parametrize("state", [state for state in State if state.needs_human])
def test_what_needs_a_person_says_so(state: State) -> None:
    """The question and the choices stand together."""
    found = explained(operation(state, **SENT, approvals_needed=1))
    assert found.blocked_by is not None
    assert found.blocked_by.code == state
    assert QUESTIONS[state] in found.why
    assert found.next is not None
    assert found.next.kind == "human"
    assert waits_for_person(found.operation)


@pytest.mark.parametrize("state", [state for state in State if state.terminal])
def test_what_has_ended_has_no_next_step(state: State) -> None:
    """Nobody should wait for something that has ended."""
    found = explained(operation(state, **SENT, next=POLL), [Happened(9, "Decided", True, "jo", "enough")])
    assert (found.next, found.blocked_by) == (None, None)
    assert "Nothing more happens" in found.why
    assert found.evidence == (9,)


def test_an_unknown_create_needs_a_person_only_once_no_path_is_left() -> None:
    """While it can still be looked up, automation goes on."""
    unknown = operation(State.CREATE_UNKNOWN, **SENT, **DEADLINES, next=replace(POLL, kind="reconcile"))
    assert not waits_for_person(unknown)
    assert explained(unknown).blocked_by is None
    lost = replace(unknown, exhausted=True, next=None)
    assert waits_for_person(lost)
    assert explained(lost).blocked_by is not None


def test_a_paused_provider_is_named() -> None:
    """The reason of the pause answers why five hundred operations stand still."""
    found = explained(operation(State.OBSERVING, **SENT, **DEADLINES, next=POLL), paused="401 on every call")
    assert found.blocked_by is not None
    assert found.blocked_by.code == "provider_paused"
    assert "401 on every call" in found.why


def test_work_that_is_due_without_a_worker_is_held_up() -> None:
    """The commonest mistake of a first evening: nobody started a worker."""
    due = operation(State.CREATE_PENDING, **DEADLINES, next=Plan("create", NOON - timedelta(minutes=1), "submitted"))
    found = explained(due, workers_alive=False)
    assert found.blocked_by is not None
    assert found.blocked_by.code == "no_worker"
    assert "Held up: this is due, and no worker is alive" in found.why
    assert found.next == Plan("create", NOON - timedelta(minutes=1), "nothing has been accepted yet")
    assert explained(due).blocked_by is None
    held = replace(due, lease=Lease("w1", 1, NOON + timedelta(seconds=5)))
    assert explained(held, workers_alive=False).blocked_by is None


def test_a_call_under_way_is_not_called_lost() -> None:
    """`decide` speaks to whoever did not make the call; while its maker lives, the call is simply under way."""
    call = OpenCall("call_1", Action.CREATE, NOON)
    op = operation(State.CREATE_PENDING, **SENT, **DEADLINES, open_call=call, next=Plan("create", NOON, "under way"))
    alive = explained(replace(op, lease=Lease("w1", 1, NOON + timedelta(seconds=5))), EVENTS[:2])
    assert "A permit for the create is used (call_1) and no answer is recorded. For now" in alive.why
    assert alive.evidence == (1, 2)
    dead = explained(replace(op, lease=Lease("w1", 1, NOON - timedelta(seconds=5))), EVENTS[:2])
    assert "stopped before an answer" in dead.why


def test_a_passed_deadline_is_due_now() -> None:
    """Deadlines are concluded by a worker; until one looks, the record says what it will find."""
    op = operation(State.OBSERVING, **SENT, result_deadline=NOON, next=POLL)
    found = explained(op)
    assert found.next is not None
    assert (found.next.kind, found.next.at) == ("deadline", NOON)


def test_a_cancel_is_part_of_the_evidence() -> None:
    """Who wanted it stopped, and since when, belongs to why it is being stopped."""
    intent = CancelIntent("req_1", "jo", NOON, "slow", sent=1)
    events = [
        *EVENTS[:4],
        Happened(5, "CancelRequested", True, "jo"),
        Happened(6, "CancelAnswered", True, "w1"),
        Happened(7, "Observed", False, "w1"),
        Happened(8, "Noted", False, "ana"),
    ]
    op = operation(State.CANCELLING, **SENT, cancel=intent, cancel_deadline=NOON + timedelta(hours=1), next=POLL)
    assert explained(op, events).evidence == (5, 6, 7)
    ended = [*events, Happened(9, "Observed", True, "w1")]
    assert explained(replace(op, state=State.CANCELLED), ended).evidence == (9,)
    assert explained(replace(op, cancel=None), events).evidence == (6, 7)


def test_an_open_permit_is_part_of_the_evidence() -> None:
    """Whatever came after it, the call that may be under way is what counts."""
    op = operation(State.CREATE_PENDING, **SENT, **DEADLINES, cancel=CancelIntent("req_1", "jo", NOON, "slow"))
    events = [*EVENTS[:2], Happened(3, "CancelRequested", False, "jo"), Happened(4, "ReadFailed", False, "w1")]
    permit = replace(op, open_call=OpenCall("call_1", Action.CREATE, NOON))
    assert explained(permit, events).evidence == (1, 2, 3, 4)
    assert explained(op, events).evidence == (1, 3, 4)


def test_a_look_up_under_way_has_no_time_of_its_own() -> None:
    """The stored plan is all that is known."""
    under_way = Plan("reconcile", NOON, "the look-up is under way")
    found = explained(operation(State.RECONCILIATION, **SENT, **DEADLINES, next=under_way))
    assert found.next == under_way
    assert "For now: a look-up is under way." in found.why


@pytest.mark.parametrize(
    ("state", "facts", "why"),
    [
        (State.CREATE_PENDING, {}, "Nothing has been sent yet. Due now: nothing has been accepted yet."),
        (
            State.CREATE_PENDING,
            {**SENT, "attempts": Attempts(create=1), "last_error": "connection refused"},
            ("The create was tried once and provably not accepted (connection refused). "
            "Due now: nothing has been accepted yet."),
        ),
        (
            State.CREATE_PENDING,
            {**SENT, "attempts": Attempts(create=3), "next": Plan("create", NOON + timedelta(seconds=4), "refused")},
            ("The create was tried 3 times and provably not accepted (no reason was recorded). "
            "Next: create at 2026-11-29T12:00:04.000000Z (refused)."),
        ),
        (
            State.CREATE_UNKNOWN,
            {**SENT, "last_error": "reset"},
            ("A create was sent and nobody knows its fate (reset). "
            "Due now: the answer to the create was lost; resend to find out."),
        ),
        (
            State.OBSERVING,
            {**SENT, "next": POLL, "remote_state": "going", "remote_means": Means.RUNNING},
            ("Job job_7 is being polled; the provider last said going, which means running. "
            "Next: observe at 2026-11-29T12:00:20.000000Z (Retry-After: 20)."),
        ),
        (
            State.OBSERVING,
            {**SENT, "next": POLL, "remote_state": "running", "remote_means": Means.RUNNING, "failures": 1,
             "last_error": "HTTP 503"},
            ("Job job_7 is being polled; the provider last said running; the last call told nothing (HTTP 503). "
            "Next: observe at 2026-11-29T12:00:20.000000Z (Retry-After: 20)."),
        ),
        (
            State.OBSERVING,
            {**SENT, "failures": 2, "last_error": "HTTP 503"},
            ("Job job_7 is being polled; the provider has said nothing yet; the last 2 calls told nothing (HTTP 503). "
            "Due now: the next status read is due."),
        ),
        (
            State.RESULT_TIMED_OUT,
            {**SENT, "attention": Attention(State.RESULT_TIMED_OUT, NOON, "the result deadline passed")},
            ("Automation stopped in result_timed_out: the result deadline passed. "
            f"Waiting for a person: {QUESTIONS[State.RESULT_TIMED_OUT]}."),
        ),
        (State.FAILED, {"last_error": "bad input"}, "It failed: bad input. Nothing more happens by itself."),
        (State.FAILED, {}, "It failed: no such job. Nothing more happens by itself."),
        (State.RESOLVED, {}, "It was resolved by jo: no such job. Nothing more happens by itself."),
        (
            State.AWAITING_APPROVAL,
            {"approvals_needed": 2, "approval_deadline": NOON + timedelta(hours=1)},
            ("0 of 2 approvals are given and nothing has been sent. "
            f"Waiting for a person: {QUESTIONS[State.AWAITING_APPROVAL]} (2 more approvals) "
            "(by 2026-11-29T13:00:00.000000Z)."),
        ),
    ],
)  # fmt: skip
def test_an_explanation_is_read_as_sentences(state: State, facts: dict[str, Any], why: str) -> None:
    """What is known is said, and nothing that is not."""
    last = [Happened(1, "Decided", True, "jo", "no such job")]
    assert explained(operation(state, **{**DEADLINES, **facts}), last).why == why


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_its_words(state: State) -> None:
    """No state may be a riddle, with whatever little is known."""
    bare = explained(operation(state), [])
    full = explained(
        operation(
            state, **SENT, remote_state="odd", remote_means=Means.UNKNOWN, last_error="HTTP 503", failures=3, next=POLL
        )
    )
    assert bare.why.endswith(".")
    assert full.why.endswith(".")
