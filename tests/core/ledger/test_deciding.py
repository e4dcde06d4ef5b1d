from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opledger import Ledger
from opledger.edges.clock import SystemClock
from opledger.errors import Refused, UsageError
from opledger.rules import evidence as e
from opledger.rules.model import Deadline, State
from opledger.store import Changed
from tests.core.ledgers import BODY, LOST, RUNNING, VIOLATED, Home, happens, observed, sent

APPROVE = """
[[policy]]
when = 'operation.body.rows > 3'
"""
TWO = """
[[policy]]
when = 'operation.body.rows > 3'
approvals = 2
expires = "4h"
"""


class Later(SystemClock):
    """The clock of somebody who comes later."""

    def __init__(self, by: timedelta) -> None:
        self.by = by

    def now(self) -> datetime:
        """Wall time, as it will be."""
        return super().now() + self.by


# --- approving -------------------------------------------------------------------------------------------------------


def test_a_policy_holds_a_request_back_until_enough_people_approved(home: Home) -> None:
    """Nothing is sent before; the deadlines start when it may be."""
    with home.ledger(TWO) as ledger:
        assert ledger.submit("jobs", {"rows": 3}, requested_by="agent-7").state is State.CREATE_PENDING
        op = ledger.submit("jobs", BODY, requested_by="agent-7")
        assert (op.state, op.approvals_needed, op.create_deadline) == (State.AWAITING_APPROVAL, 2, None)
        assert op.approval_deadline == op.created_at + timedelta(hours=4)
        assert op.attention is not None
        assert "rows > 3" in op.attention.reason
        one = ledger.approve(op.operation_id, reason="looks right", by="ana")
        assert (one.state, len(one.approvals)) == (State.AWAITING_APPROVAL, 1)
        two = ledger.approve(op.operation_id, reason="me too", by="jo")
        assert two.state is State.CREATE_PENDING
        assert [given.by for given in two.approvals] == ["ana", "jo"]
        assert two.create_deadline is not None
        assert two.next is not None
        assert two.next.kind == "create"


@pytest.mark.parametrize("by", ["ana", "Ana", "agent-7", "agent-8"])
def test_requesters_and_agents_do_not_approve(file_home: Home, by: str) -> None:
    """Four eyes, and never a program's."""
    with file_home.ledger(APPROVE) as ledger:
        op = ledger.submit("jobs", BODY, requested_by="ana" if "na" in by else "agent-7")
        for act in (ledger.approve, ledger.reject):
            with pytest.raises(Refused):
                act(op.operation_id, reason="fine", by=by)
        assert len(ledger.events(op.operation_id)) == 1


def test_whoever_comes_too_late_is_told_who_decided(file_home: Home) -> None:
    """Two approvers look at the same request; the second should not wonder."""
    with file_home.ledger(APPROVE) as ledger:
        op = ledger.submit("jobs", BODY, requested_by="agent-7")
        ledger.reject(op.operation_id, reason="too big", by="jo")
        with pytest.raises(Refused, match=r"rejected by jo at 20.*nothing left to approve"):
            ledger.approve(op.operation_id, reason="fine", by="ana")
        other = ledger.submit("jobs", {"rows": 1}, requested_by="agent-7")
        with pytest.raises(Refused, match="needs no approval"):
            ledger.approve(other.operation_id, reason="fine", by="ana")


def test_an_approval_is_for_what_was_looked_at(file_home: Home) -> None:
    """Neither another fingerprint nor a record that moved on is approved by mistake."""
    with file_home.ledger(TWO) as ledger:
        op = ledger.submit("jobs", BODY, requested_by="agent-7")
        with pytest.raises(Refused, match="look at it again"):
            ledger.approve(op.operation_id, reason="fine", fingerprint="sha256:other")
        ledger.note(op.operation_id, "is this right?", by="jo")
        with pytest.raises(Changed, match=r"since you looked at version 1: Noted by jo; it is now awaiting_approval"):
            ledger.approve(op.operation_id, reason="fine", expected_version=op.version)
        ledger.approve(op.operation_id, reason="fine", by="jo")
        with pytest.raises(Changed, match=r"Noted by jo, Approved by jo; .* version 3"):
            ledger.reject(op.operation_id, reason="no", expected_version=op.version)
        with pytest.raises(Changed, match="no version 9 yet"):
            ledger.reject(op.operation_id, reason="no", expected_version=9)


def test_an_approval_expires_where_no_worker_runs(home: Home) -> None:
    """The hour is the database's to keep, not a worker's: nothing may be approved after it (B14)."""
    with home.ledger(TWO) as ledger:
        op = ledger.submit("jobs", BODY, requested_by="agent-7")
        clock = Later(timedelta(hours=4, seconds=1))
        with home.ledger(TWO, clock=clock) as later, pytest.raises(Refused, match=r"has expired .*submitted anew"):
            later.approve(op.operation_id, reason="fine", by="ana")
        assert ledger.show(op.operation_id) == op


def test_a_policy_that_cannot_be_evaluated_asks(file_home: Home) -> None:
    """And the approver reads why."""
    with file_home.ledger(APPROVE) as ledger:
        op = ledger.submit("jobs", {"size": 1}, requested_by="agent-7")
        assert op.state is State.AWAITING_APPROVAL
        assert op.attention is not None
        assert "could not be evaluated" in op.attention.reason


def test_only_those_whom_the_policy_names_approve(file_home: Home) -> None:
    """A list of approvers is a list."""
    with file_home.ledger(APPROVE + 'approvers = ["kim"]\n') as ledger:
        op = ledger.submit("jobs", BODY, requested_by="agent-7")
        with pytest.raises(Refused, match="kim"):
            ledger.approve(op.operation_id, reason="fine", by="ana")
        assert ledger.approve(op.operation_id, reason="fine", by="kim").state is State.CREATE_PENDING


@pytest.mark.parametrize("reason", ["", "   "])
def test_every_decision_has_a_reason(file_home: Home, reason: str) -> None:
    """The auditor asks for it afterwards."""
    with file_home.ledger(APPROVE) as ledger:
        op = ledger.submit("jobs", BODY, requested_by="agent-7")
        for act in (ledger.approve, ledger.reject, ledger.cancel):
            with pytest.raises(UsageError, match="reason"):
                act(op.operation_id, reason=reason)


# --- cancelling and resolving ----------------------------------------------------------------------------------------


def test_what_was_never_sent_is_withdrawn(home: Home) -> None:
    """Also while it waits for approval."""
    with home.ledger(APPROVE) as ledger:
        for rows in (1, 5):
            op = ledger.submit("jobs", {"rows": rows}, requested_by="agent-7")
            done = ledger.cancel(op.operation_id, reason="not needed", by="agent-7")
            assert done.state is State.WITHDRAWN
            assert done.next is None
            last = ledger.history(op.operation_id)[-1]
            assert (last.kind, last.actor, last.actor_kind, last.reason) == (
                "Withdrawn",
                "agent-7",
                "agent",
                "not needed",
            )
            assert last.cause.startswith("human_request:req_")


def test_a_cancel_is_an_intent_before_it_is_a_call(home: Home) -> None:
    """Who wanted it, why, and what they expect stands in the record before a worker sends anything."""
    with home.ledger() as ledger:
        op = happens(ledger, ledger.submit("jobs", BODY), *RUNNING)
        done = ledger.cancel(op.operation_id, reason="too slow", by="jo", effect="it stops")
        assert done.state is State.CANCEL_REQUESTED
        assert done.cancel is not None
        assert (done.cancel.by, done.cancel.reason, done.cancel.effect) == ("jo", "too slow", "it stops")
        assert done.expected_effect == "it stops"
        assert done.next is not None
        assert done.next.kind == "cancel"
        with pytest.raises(Refused, match="by jo"):
            ledger.cancel(op.operation_id, reason="really", by="ana")


def test_a_cancel_crosses_the_first_send(file_home: Home) -> None:
    """The record was unsent when it was judged and sent when it is written: an intent, never a withdrawal."""
    with file_home.ledger() as ledger, file_home.ledger() as worker:
        op = ledger.submit("jobs", BODY)
        honest, crossed = ledger.store.record_many, list[Any]()

        def late(writes: Any) -> Any:
            if not crossed:
                crossed.append(happens(worker, op, sent()))
            return honest(writes)

        ledger.store.record_many = late  # type: ignore[method-assign]
        done = ledger.cancel(op.operation_id, reason="not needed")
        assert done.state is State.CREATE_PENDING
        assert done.cancel is not None
        assert [event.kind for event in ledger.events(op.operation_id)] == ["Submitted", "CallSent", "CancelRequested"]


def test_a_record_that_never_stands_still_is_not_decided_upon(file_home: Home) -> None:
    """Better no decision than one about something else."""
    with file_home.ledger() as ledger, file_home.ledger() as worker:
        op = happens(ledger, ledger.submit("jobs", BODY), *RUNNING)
        honest = ledger.store.record_many

        def always_late(writes: Any) -> Any:
            happens(worker, op, observed())
            return honest(writes)

        ledger.store.record_many = always_late  # type: ignore[method-assign]
        with pytest.raises(Refused, match="too fast"):
            ledger.cancel(op.operation_id, reason="not needed")


@pytest.mark.parametrize(
    ("story", "choice", "given", "state"),
    [
        (LOST, "bind", {"job": "job_9"}, State.ACCEPTED),
        (LOST, "not-created", {}, State.FAILED),
        (LOST, "resend", {}, State.CREATE_PENDING),
        (LOST, "close", {}, State.RESOLVED),
        (VIOLATED, "keep", {"job": "job_8"}, State.OBSERVING),
        (VIOLATED, "cancel", {"job": "job_7"}, State.CANCEL_REQUESTED),
    ],
)
def test_people_resolve_what_no_program_can(
    home: Home, story: tuple[e.Evidence, ...], choice: str, given: dict[str, Any], state: State
) -> None:
    """Each choice that is offered leads where it says."""
    with home.ledger() as ledger:
        op = happens(ledger, ledger.submit("jobs", BODY), *story)
        offered = {option.choice: option for option in ledger.choices(op.operation_id)}
        assert offered[choice].to is state  # type: ignore[index]
        done = ledger.resolve(op.operation_id, choice, reason="I looked", by="jo", **given)
        assert done.state is state
        if given:
            assert done.remote_job_id == given["job"]
        last = ledger.events(op.operation_id)[-1]
        assert (last.kind, last.actor, last.reason) == ("Decided", "jo", "I looked")


def test_a_deadline_can_be_extended(file_home: Home) -> None:
    """Times come as text, seconds or timedelta."""
    with file_home.ledger() as ledger:
        late = e.DeadlinePassed(Deadline.RESULT, datetime(2026, 11, 29, tzinfo=UTC))
        op = happens(ledger, ledger.submit("jobs", BODY), *RUNNING, late)
        done = ledger.resolve(op.operation_id, "extend", reason="it is nearly done", extend_by="2h")
        assert done.state is State.OBSERVING
        assert done.result_deadline is not None
        assert done.result_deadline - ledger.clock.now() > timedelta(minutes=119)


@pytest.mark.parametrize(
    ("choice", "given", "error"),
    [("maybe", {}, UsageError), ("keep", {"job": "x"}, Refused), ("bind", {}, Refused), ("extend", {}, Refused)],
)
def test_what_is_not_offered_is_not_decided(
    ledger: Ledger, choice: str, given: dict[str, Any], error: type[Refused]
) -> None:
    """Nothing is written either."""
    op = happens(ledger, ledger.submit("jobs", BODY), *LOST)
    with pytest.raises(error):
        ledger.resolve(op.operation_id, choice, reason="I looked", **given)
    assert ledger.show(op.operation_id) == op


def test_a_job_of_another_operation_is_not_bound(ledger: Ledger) -> None:
    """One job cannot be two operations, not even by a person's word."""
    happens(ledger, ledger.submit("jobs", BODY), *RUNNING)
    lost = happens(ledger, ledger.submit("jobs", {"rows": 6}), *LOST)
    with pytest.raises(Refused, match="job_7"):
        ledger.resolve(lost.operation_id, "bind", reason="found it", job="job_7")


def test_remarks_change_nothing_else(ledger: Ledger) -> None:
    """On-call notes and acknowledgements are events, and no arrows."""
    op = happens(ledger, ledger.submit("jobs", BODY), *RUNNING)
    noted = ledger.note(op.operation_id, "asked the provider", by="jo")
    seen = ledger.acknowledge(op.operation_id, by="jo")
    assert (noted.state, seen.state, seen.next) == (op.state, op.state, op.next)
    assert [event.kind for event in ledger.events(op.operation_id)][-2:] == ["Noted", "Acknowledged"]
    with pytest.raises(Refused, match="agent"):
        ledger.acknowledge(op.operation_id, by="agent-7")
