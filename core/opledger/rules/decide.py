"""What happens next, and why: one pure function that the worker obeys and `explain` prints.

`decide` looks at a record and says: make this call, conclude this from what the record already shows, wait until
then, or ask a person. `plan` says what to store as the next step after an event, so that a waiting operation needs
nothing but its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from opledger.rules import evidence as e
from opledger.rules import expectation, partial
from opledger.rules.contract import Contract, Strategy
from opledger.rules.decisions import AskHuman, Call, Conclude, Decision, Read, Wait
from opledger.rules.deliveries import unread
from opledger.rules.model import TERMINAL, Action, Deadline, Operation, Plan, State
from opledger.rules.questions import NEVER_ASKED, NEVER_TOLD, QUESTIONS
from opledger.rules.schedule import LEAST_GAP, backoff, last_look, next_poll

__all__ = ["AskHuman", "Call", "Conclude", "Decision", "Read", "Wait", "decide", "may_resend", "open_deadline", "plan"]

NO_STATUS_READ: Final = "the provider has no status read; only a delivery of its webhooks can say how the job goes"

MAX_CANCEL_CALLS: Final = 5
"""Most cancel calls under one intent, where the contract calls cancel idempotent."""


def open_deadline(op: Operation) -> tuple[Deadline, datetime] | None:
    """Return the deadline that applies in the operation's present state, if any."""
    which: Deadline
    if op.state is State.AWAITING_APPROVAL:
        which, moment = Deadline.APPROVAL, op.approval_deadline
    elif op.state in (State.CREATE_PENDING, State.CREATE_UNKNOWN, State.RECONCILIATION):
        which, moment = Deadline.CREATE, None if op.exhausted else op.create_deadline
    elif op.state in (State.ACCEPTED, State.OBSERVING):
        which, moment = Deadline.RESULT, op.result_deadline
    elif op.state in (State.CANCEL_REQUESTED, State.CANCELLING):
        which, moment = Deadline.CANCEL, op.cancel_deadline
    elif op.state is State.RESULT_COLLECTING:
        which, moment = Deadline.COLLECT, op.collect_deadline
    else:
        return None
    return None if moment is None else (which, moment)


def usable_strategy(op: Operation, contract: Contract, now: datetime) -> int | None:
    """Return the index of the reconcile strategy to try now, or None where no automatic path is left.

    Strategies are tried in the contract's order, again from the start after the last. A resend is usable only
    inside the token's memory, measured from the first send (I4), and not while a cancel is wanted and a look-up
    could tell as much (DESIGN §5).
    """
    look_ups = any(strategy.strategy != "resend" for strategy in contract.reconcile)
    for offset in range(len(contract.reconcile)):
        index = (op.strategy + offset) % len(contract.reconcile)
        if contract.reconcile[index].strategy != "resend":
            return index
        if may_resend(op, contract, now) and (op.cancel is None or not look_ups):
            return index
    return None


def may_resend(op: Operation, contract: Contract, now: datetime) -> bool:
    """Tell whether the provider still knows the token. Asked when deciding, and again before the bytes leave (I4)."""
    window = contract.resend_window
    return window is not None and op.first_sent_at is not None and now < op.first_sent_at + window


def decide(op: Operation, contract: Contract, now: datetime, *, paused: str | None = None) -> Decision:
    """Say what to do for `op` now. `paused` is why calls to its provider are paused, if they are."""
    step = _next_step(op, contract, now)
    deadline = open_deadline(op)
    if isinstance(step, Read) and paused is not None and (deadline is None or now < deadline[1]):
        # What a stopped provider says waits too; but no deadline passes over what is here already.
        return Wait(deadline[1] if deadline else None, f"calls to {op.contract} are paused: {paused}")
    if not isinstance(step, Call):
        return step
    if paused is not None:
        return Wait(deadline[1] if deadline else None, f"calls to {op.contract} are paused: {paused}")
    if op.next is not None and op.next.at is not None and now < op.next.at:
        return Wait(op.next.at, op.next.because)
    return step


def _next_step(op: Operation, contract: Contract, now: datetime) -> Decision:
    """Say what the record and the clock call for, were there nothing to wait for."""
    if op.state in TERMINAL:
        return _ended(op, contract, now)
    if op.open_call is not None:
        return _recovered(op)
    if _cancel_stands(op, contract):
        return _ask_to_cancel(op)  # before any deadline: the intent is older than what the clock says now
    delivery = unread(op, contract)
    if delivery is not None:
        return delivery  # before any deadline, too: when a worker looks must not decide what counts
    due = open_deadline(op)
    if due is not None and now >= due[1]:
        return _overdue(op, *due)
    return _DECIDERS[op.state](op, contract, now)


def _ended(op: Operation, contract: Contract, now: datetime) -> Decision:
    """Nothing more happens by itself, but for the output that a job left behind which did not succeed.

    A delivery that comes late is still read: should it contradict the end, a person is told.
    """
    delivery = unread(op, contract)
    if delivery is not None:
        return delivery
    if not partial.wanted(op, contract):
        return Wait(None, f"it has ended: {op.state}")
    if now >= partial.deadline(op):
        return Conclude(partial.GIVEN_UP, f"deadline:{Deadline.COLLECT}", partial.GIVEN_UP.why)
    return Call(Action.COLLECT, "the job did not succeed; what it left behind is worth having")


def _cancel_stands(op: Operation, contract: Contract) -> bool:
    """Tell whether a cancel was wanted before there was a job to cancel, and now there is one."""
    unsent = op.cancel is not None and op.cancel.sent == 0
    return unsent and op.state in (State.ACCEPTED, State.OBSERVING) and contract.cancel is not None


def _ask_to_cancel(op: Operation) -> Conclude:
    intent = op.cancel
    assert intent is not None
    return Conclude(
        e.CancelRequested(intent.request_id, intent.by, intent.effect),
        f"human_request:{intent.request_id}",
        "a cancel was asked for before the job id was known",
    )


def _recovered(op: Operation) -> Conclude:
    """A permit without an outcome, found by somebody who did not make the call: its fate is unknown (I7)."""
    call = op.open_call
    assert call is not None
    why = f"the worker that was permitted to {call.action} stopped before an answer was recorded"
    if op.state is State.CONTRACT_VIOLATION:
        lost: e.Evidence = e.CallLost(call_id=call.call_id, action=call.action, why=why)
    elif call.action is Action.COLLECT:
        return Conclude(e.ResultMissing(call_id=call.call_id, why=f"{why}; it can be read only once"), "recovery", why)
    elif op.state is State.RECONCILIATION:
        lost = e.Inconclusive(call_id=call.call_id, why=why, strategy=call.detail or None)
    else:
        lost = e.CallLost(call_id=call.call_id, action=call.action, why=why)
    return Conclude(lost, "recovery", why)


def _overdue(op: Operation, which: Deadline, deadline: datetime) -> Decision:
    because = f"the {which} deadline passed"
    cause = f"deadline:{which}"
    if which is Deadline.APPROVAL:
        return Conclude(e.ApprovalExpired(), cause, because)
    if which is Deadline.COLLECT:
        why = f"{because} before the result could be fetched"
        return Conclude(e.ResultMissing(why=f"{why}: {op.last_error}" if op.last_error else why), cause, because)
    return Conclude(e.DeadlinePassed(which, deadline), cause, because)


def _awaiting_approval(op: Operation, contract: Contract, now: datetime) -> Decision:
    left = op.approvals_needed - len(op.approvals)
    question = QUESTIONS[State.AWAITING_APPROVAL] + (f" ({left} more approvals)" if left > 1 else "")
    return AskHuman(op.state, question, op.approval_deadline)


def _create_pending(op: Operation, contract: Contract, now: datetime) -> Decision:
    if op.cancel is not None:
        if op.duplicate_accepted:
            why = "a cancel is wanted, and whether the first create started anything is still unknown"
            return Conclude(e.Inconclusive(why=why, exhausted=True), f"human_request:{op.cancel.request_id}", why)
        return Conclude(
            e.Withdrawn(op.cancel.by, op.cancel.request_id),
            f"human_request:{op.cancel.request_id}",
            "a cancel is wanted, and no create was accepted",
        )
    return Call(Action.CREATE, "nothing has been accepted yet")


def _create_unknown(op: Operation, contract: Contract, now: datetime) -> Decision:
    if op.exhausted:
        return AskHuman(op.state, QUESTIONS[State.CREATE_UNKNOWN])
    index = usable_strategy(op, contract, now)
    if index is None:
        why = (
            "the contract names no way to look the job up: at-most-once cannot be shown"
            if not contract.reconcile
            else "the token's memory at the provider has ended and no look-up is left"
        )
        return Conclude(e.Inconclusive(why=why, exhausted=True), "recovery", why)
    how = contract.reconcile[index].strategy
    return Call(Action.RECONCILE, f"the answer to the create was lost; {how} to find out", index)


def _reconciliation(op: Operation, contract: Contract, now: datetime) -> Decision:
    # Only the call that is under way can lead out of here; without one the record could not be in this state.
    return Wait(None, "a look-up is under way")


def _look(op: Operation, contract: Contract, because: str) -> Decision:
    """Look at the job; where nobody can, wait for the provider to tell."""
    if not contract.status.by_delivery:
        return Call(Action.OBSERVE, because)
    deadline = open_deadline(op)
    return Wait(deadline[1] if deadline else None, NO_STATUS_READ)


def _polling(op: Operation, contract: Contract, now: datetime) -> Decision:
    return _look(op, contract, "the next status read is due")


def _cancel_requested(op: Operation, contract: Contract, now: datetime) -> Decision:
    if contract.cancel is None:
        return _look(op, contract, "the provider has no cancel; a status read says how the job ends")
    if op.cancel is not None and op.cancel.shares is not None:
        return _look(op, contract, f"the cancel of {op.cancel.shares} stops this job too; a status read says how")
    return Call(Action.CANCEL, "a cancel intent is recorded and not yet sent")


def _cancelling(op: Operation, contract: Contract, now: datetime) -> Decision:
    intent, cancel = op.cancel, contract.cancel
    again = (
        intent is not None
        and cancel is not None
        and cancel.idempotent
        and ((intent.lost and intent.reread) or intent.undelivered)
        and intent.sent < MAX_CANCEL_CALLS
    )
    if again:
        return Call(Action.CANCEL, "the cancel's answer was lost and the job still runs")
    return _look(op, contract, "only a status read can say how the cancel ended")


def _collecting(op: Operation, contract: Contract, now: datetime) -> Decision:
    if contract.result is None or (op.result is not None and op.remote_job_id is None):
        # No result to fetch, or it came with the create answer and is stored already.
        return Conclude(
            expectation.nothing_to_fetch(op), "call:none", "there is nothing to fetch beyond the status read"
        )
    return Call(Action.COLLECT, "the job succeeded; its result is to be fetched")


def _ask(op: Operation, contract: Contract, now: datetime) -> Decision:
    intent = op.cancel
    unsent = intent is not None and intent.sent == 0 and intent.shares is None
    if op.state is State.CANCELLATION_UNCONFIRMED and unsent:
        return AskHuman(op.state, NEVER_ASKED)
    if op.state is State.RESULT_TIMED_OUT and contract.status.by_delivery:
        return AskHuman(op.state, NEVER_TOLD)
    return AskHuman(op.state, QUESTIONS[op.state])


_DECIDERS: Final[Mapping[State, Callable[[Operation, Contract, datetime], Decision]]] = {
    State.AWAITING_APPROVAL: _awaiting_approval,
    State.CREATE_PENDING: _create_pending,
    State.CREATE_UNKNOWN: _create_unknown,
    State.RECONCILIATION: _reconciliation,
    State.ACCEPTED: _polling,
    State.OBSERVING: _polling,
    State.CANCEL_REQUESTED: _cancel_requested,
    State.CANCELLING: _cancelling,
    State.RESULT_COLLECTING: _collecting,
    State.CONTRACT_VIOLATION: _ask,
    State.CANCELLATION_UNCONFIRMED: _ask,
    State.RESULT_TIMED_OUT: _ask,
    State.RESULT_UNAVAILABLE: _ask,
    State.RESULT_VALIDATION_FAILED: _ask,
}


# --- what to store as the next step ------------------------------------------------------------------------------

_PHASES: Final[Mapping[State, Action]] = {
    State.CREATE_PENDING: Action.CREATE,
    State.CREATE_UNKNOWN: Action.RECONCILE,
    State.RECONCILIATION: Action.RECONCILE,
    State.ACCEPTED: Action.CANCEL,
    State.OBSERVING: Action.CANCEL,
    State.RESULT_COLLECTING: Action.COLLECT,
}
"""What a conclusion that needs no call and no deadline is about; elsewhere there is none."""


def plan(op: Operation, contract: Contract, evidence: e.Evidence, now: datetime, jitter: float) -> Plan | None:
    """Return what happens next after `evidence` led to `op`: the action, when, and why. None where all has ended.

    `jitter` is a number in [0, 1). The time is never later than the state's deadline, and what needs no call but
    follows from the record happens at once.
    """
    if op.state in TERMINAL and not partial.wanted(op, contract) and unread(op, contract) is None:
        return None
    if op.open_call is not None:
        return Plan(op.open_call.action.value, now, f"the {op.open_call.action} call is under way")
    step = _next_step(op, contract, now)
    if isinstance(step, AskHuman):
        return Plan("human", step.until, step.question)
    if isinstance(step, Read):
        return Plan(Action.OBSERVE.value, now, step.because)
    if isinstance(step, Wait) and step.until is not None:
        return Plan("deadline", step.until, step.because)
    if not isinstance(step, Call):
        overdue = isinstance(step, Conclude) and step.cause.startswith("deadline:")
        return Plan("deadline" if overdue else _PHASES[op.state].value, now, step.because)
    if isinstance(evidence, e.Noted | e.Acknowledged | e.LeaseTaken) and op.next is not None:
        return op.next  # a remark changes nothing, and nobody is asked again earlier than they asked for
    when, because = _when(op, contract, step.action, evidence, now, jitter)
    deadline = (Deadline.COLLECT, partial.deadline(op)) if op.state in TERMINAL else open_deadline(op)
    if deadline is not None and deadline[1] <= when:  # at that very moment it is the deadline that counts
        return Plan("deadline", deadline[1], f"the {deadline[0]} deadline comes first")
    return Plan(step.action.value, when, because)


_READS: Final = (e.Observed, e.ReadFailed, e.Accepted, e.CancelAnswered, e.CallLost)
_POLLED: Final = frozenset({State.ACCEPTED, State.OBSERVING, State.CANCELLING})


def _when(
    op: Operation, contract: Contract, action: Action, evidence: e.Evidence, now: datetime, jitter: float
) -> tuple[datetime, str]:
    if isinstance(evidence, _READS) and (op.state in _POLLED or action is Action.OBSERVE):
        return _poll_time(op, contract, evidence, now, jitter)
    if op.state is State.RESULT_COLLECTING and _brought_no_result(evidence):
        return _poll_time(op, contract, evidence, now, jitter)
    if op.state in TERMINAL and (tries := partial.tries(op, evidence)) is not None:
        return _poll_time(replace(op, backoff=tries), contract, evidence, now, jitter)
    if isinstance(evidence, e.Throttled | e.NotDelivered):
        asked = getattr(evidence, "retry_at", None)
        if asked is not None:
            return max(asked, now), f"{evidence.why}; the provider asked to wait"
        return now + _pause(op, contract, jitter), f"{evidence.why}; next attempt"
    if op.state is State.CREATE_UNKNOWN:
        return _reconcile_time(op, contract, evidence, now, jitter)
    waits = isinstance(evidence, e.Observed | e.ReadFailed | e.Notified) and action in (Action.CREATE, Action.CANCEL)
    if waits and op.next is not None and op.next.at is not None:
        return max(op.next.at, now), op.next.because  # news of the job is no leave to send an effectful call earlier
    return now, "a person decided" if isinstance(evidence, e.Decided) else f"follows {evidence.kind}"


def _brought_no_result(evidence: e.Evidence) -> bool:
    return isinstance(evidence, e.ReadFailed) or (isinstance(evidence, e.Observed) and not evidence.means.final)


def _pause(op: Operation, contract: Contract, jitter: float) -> timedelta:
    return backoff(contract.poll.first, contract.poll.factor, contract.poll.max, max(op.backoff - 1, 0), jitter)


def _poll_time(
    op: Operation, contract: Contract, evidence: e.Evidence, now: datetime, jitter: float
) -> tuple[datetime, str]:
    retry_at = getattr(evidence, "retry_at", None)
    hint: timedelta | None = None if retry_at is None else max(retry_at - now, timedelta(0))
    deadline = open_deadline(op)
    return next_poll(
        contract.poll,
        now=now,
        step=max(op.backoff - 1, 0),
        jitter=jitter,
        hint=hint,
        hint_words=getattr(evidence, "hint", None),
        deadlines=() if deadline is None else (deadline[1],),
    )


def _reconcile_time(
    op: Operation, contract: Contract, evidence: e.Evidence, now: datetime, jitter: float
) -> tuple[datetime, str]:
    index = usable_strategy(op, contract, now)
    if index is None:
        return now, "no automatic way to find out is left"
    earliest, asked, badly = now, "", False
    if isinstance(evidence, e.Inconclusive | e.CallLost):
        if evidence.retry_at is not None:
            earliest, asked = max(evidence.retry_at, now), f"{evidence.why}; "
        badly = evidence.status is not None if isinstance(evidence, e.CallLost) else evidence.next_strategy or not asked
    if badly:  # asking again at once helps nobody, whatever the answer allows
        earliest = max(earliest, now + _pause(op, contract, jitter))
    strategy = _strategy_at(op, contract, earliest, index)
    because = f"{asked}{strategy.strategy} to learn whether the job was created"
    # News is no leave to send what may create earlier, nor for a look-up that such a resend may follow.
    resends = may_resend(op, contract, now) and any(each.strategy == "resend" for each in contract.reconcile)
    cancelled = isinstance(evidence, e.CancelRequested) and strategy.strategy == "resend"
    if op.next is not None and (cancelled or (resends and isinstance(evidence, e.Notified))):
        return max(op.next.at or now, now), op.next.because
    deadline = open_deadline(op)
    look = last_look(now, (deadline[1],), LEAST_GAP) if asked and deadline is not None else None
    if look is not None and _strategy_at(op, contract, now + look, index).strategy != "resend":
        earliest = min(earliest, now + look)  # as at a status read: better than never to know
    if strategy.strategy != "resend" and op.last_sent_at is not None:
        visible = op.last_sent_at + strategy.visibility_lag  # a look-up can first be trusted to show a new job
        if visible > earliest:
            return visible, f"a new job may not be visible yet; then {because}"
    return earliest, because


def _strategy_at(op: Operation, contract: Contract, when: datetime, otherwise: int) -> Strategy:
    """Return what is tried then: the token may be forgotten by that time, and what replaces the resend waits longer."""
    return contract.reconcile[otherwise if (then := usable_strategy(op, contract, when)) is None else then]
