"""What happens next, and why: one pure function that the worker obeys and `explain` prints.

`decide` looks at a record and says: make this call, conclude this from what the record already shows, wait until
then, or ask a person. `plan` says what to store as the next step after an event, so that a waiting operation needs
nothing but its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from opledger.rules import evidence as e
from opledger.rules.contract import Contract, Strategy
from opledger.rules.model import TERMINAL, Action, Deadline, Operation, Plan, State
from opledger.rules.schedule import backoff, next_poll

MAX_CANCEL_CALLS: Final = 5
"""Most cancel calls under one intent, where the contract calls cancel idempotent."""


@dataclass(frozen=True, slots=True)
class Call:
    """Make this call now. `strategy` is the index of the reconcile strategy to use."""

    action: Action
    because: str
    strategy: int | None = None


@dataclass(frozen=True, slots=True)
class Conclude:
    """Record this evidence now: it follows from the record and the clock, without any call."""

    evidence: e.Evidence
    cause: str
    because: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until then (None: nothing more happens by itself)."""

    until: datetime | None
    because: str


@dataclass(frozen=True, slots=True)
class AskHuman:
    """Automation has ended here; `until` is when the question lapses, if it does."""

    code: str
    question: str
    until: datetime | None = None


Decision = Call | Conclude | Wait | AskHuman

QUESTIONS: Final[Mapping[State, str]] = {
    State.AWAITING_APPROVAL: "a person must approve or reject the request before anything is sent",
    State.CREATE_UNKNOWN: (
        "nobody knows whether the job was created, and no automatic way to find out is left: at-most-once cannot be "
        "shown; look at the provider and decide"
    ),
    State.CONTRACT_VIOLATION: "the provider broke its promises; decide which job stands, or close",
    State.CANCELLATION_UNCONFIRMED: "the provider never confirmed the cancellation; keep watching, send again, or close",
    State.RESULT_TIMED_OUT: "the job did not finish in time and may still run; extend, cancel, or close",
    State.RESULT_UNAVAILABLE: "the job succeeded but its result cannot be had; collect again, accept, or close",
    State.RESULT_VALIDATION_FAILED: "the result arrived and is wrong; collect again, accept as is, or close",
}


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
    window = contract.resend_window
    for offset in range(len(contract.reconcile)):
        index = (op.strategy + offset) % len(contract.reconcile)
        if contract.reconcile[index].strategy != "resend":
            return index
        in_window = window is not None and op.first_sent_at is not None and now < op.first_sent_at + window
        if in_window and (op.cancel is None or not look_ups):
            return index
    return None


def decide(op: Operation, contract: Contract, now: datetime, *, paused: str | None = None) -> Decision:
    """Say what to do for `op` now. `paused` is why calls to its provider are paused, if they are."""
    if op.state in TERMINAL:
        return Wait(None, f"it has ended: {op.state}")
    if op.open_call is not None:
        return _recovered(op)
    due = open_deadline(op)
    if due is not None and now >= due[1]:
        return _overdue(op, *due)
    return _DECIDERS[op.state](op, contract, now, paused)


def _recovered(op: Operation) -> Conclude:
    """A permit without an outcome, found by somebody who did not make the call: its fate is unknown (I7)."""
    call = op.open_call
    assert call is not None
    why = f"the worker that was permitted to {call.action} stopped before an answer was recorded"
    if op.state is State.RECONCILIATION:
        lost: e.Evidence = e.Inconclusive(call_id=call.call_id, why=why, strategy=call.detail or None)
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


def _due(op: Operation, now: datetime, paused: str | None, then: Call) -> Decision:
    """Wait for a pause to end and for the planned time; then make the call."""
    deadline = open_deadline(op)
    if paused is not None:
        return Wait(deadline[1] if deadline else None, f"calls to {op.contract} are paused: {paused}")
    if op.next is not None and op.next.at is not None and now < op.next.at:
        return Wait(op.next.at, op.next.because)
    return then


def _awaiting_approval(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    left = op.approvals_needed - len(op.approvals)
    question = QUESTIONS[State.AWAITING_APPROVAL] + (f" ({left} more approvals)" if left > 1 else "")
    return AskHuman(op.state, question, op.approval_deadline)


def _create_pending(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    if op.cancel is not None:
        if op.duplicate_accepted:
            why = "a cancel is wanted, and whether the first create started anything is still unknown"
            return Conclude(e.Inconclusive(why=why, exhausted=True), f"human_request:{op.cancel.request_id}", why)
        return Conclude(
            e.Withdrawn(op.cancel.by, op.cancel.request_id),
            f"human_request:{op.cancel.request_id}",
            "a cancel is wanted, and no create was accepted",
        )
    return _due(op, now, paused, Call(Action.CREATE, "nothing has been accepted yet"))


def _create_unknown(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
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
    return _due(op, now, paused, Call(Action.RECONCILE, f"the answer to the create was lost; {how} to find out", index))


def _reconciliation(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    # Only the call that is under way can lead out of here; without one the record could not be in this state.
    return Wait(None, "a look-up is under way")


def _polling(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    if op.state is State.ACCEPTED and op.cancel is not None and op.cancel.sent == 0:
        return Conclude(
            e.CancelRequested(op.cancel.request_id, op.cancel.by, op.cancel.effect),
            f"human_request:{op.cancel.request_id}",
            "a cancel was asked for before the job id was known",
        )
    return _due(op, now, paused, Call(Action.OBSERVE, "the next status read is due"))


def _cancel_requested(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    return _due(op, now, paused, Call(Action.CANCEL, "a cancel intent is recorded and not yet sent"))


def _cancelling(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    intent, cancel = op.cancel, contract.cancel
    again = (
        intent is not None
        and cancel is not None
        and cancel.idempotent
        and ((intent.lost and intent.reread) or intent.undelivered)
        and intent.sent < MAX_CANCEL_CALLS
    )
    if again:
        return _due(op, now, paused, Call(Action.CANCEL, "the cancel's answer was lost and the job still runs"))
    return _due(op, now, paused, Call(Action.OBSERVE, "only a status read can say how the cancel ended"))


def _collecting(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    if contract.result is None or op.result is not None and op.remote_job_id is None:
        # No result to fetch, or it came with the create answer and is stored already.
        return Conclude(
            e.ResultAccepted(result=op.result), "call:none", "there is nothing to fetch beyond the status read"
        )
    return _due(op, now, paused, Call(Action.COLLECT, "the job succeeded; its result is to be fetched"))


def _ask(op: Operation, contract: Contract, now: datetime, paused: str | None) -> Decision:
    return AskHuman(op.state, QUESTIONS[op.state])


_DECIDERS: Final[Mapping[State, Callable[[Operation, Contract, datetime, str | None], Decision]]] = {
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

_NEXT_ACTION: Final[Mapping[State, Action]] = {
    State.CREATE_PENDING: Action.CREATE,
    State.CREATE_UNKNOWN: Action.RECONCILE,
    State.RECONCILIATION: Action.RECONCILE,
    State.ACCEPTED: Action.OBSERVE,
    State.OBSERVING: Action.OBSERVE,
    State.CANCEL_REQUESTED: Action.CANCEL,
    State.CANCELLING: Action.OBSERVE,
    State.RESULT_COLLECTING: Action.COLLECT,
}


def plan(op: Operation, contract: Contract, evidence: e.Evidence, now: datetime, jitter: float) -> Plan | None:
    """Return what happens next after `evidence` led to `op`: the action, when, and why. None where all has ended.

    `jitter` is a number in [0, 1). The time is never later than the state's deadline.
    """
    if op.state in TERMINAL:
        return None
    action = _NEXT_ACTION.get(op.state)
    if action is None or op.exhausted:
        return Plan("human", op.approval_deadline if op.state is State.AWAITING_APPROVAL else None, QUESTIONS[op.state])
    if op.open_call is not None:
        return Plan(op.open_call.action, now, f"the {op.open_call.action} call is under way")
    when, because = _when(op, contract, evidence, now, jitter)
    deadline = open_deadline(op)
    if deadline is not None and deadline[1] < when:
        return Plan("deadline", deadline[1], f"the {deadline[0]} deadline comes first")
    return Plan(action, when, because)


def _when(
    op: Operation, contract: Contract, evidence: e.Evidence, now: datetime, jitter: float
) -> tuple[datetime, str]:
    if isinstance(evidence, e.Observed | e.ReadFailed | e.Accepted | e.CancelAnswered | e.CallLost) and op.state in (
        State.ACCEPTED,
        State.OBSERVING,
        State.CANCELLING,
    ):
        return _poll_time(op, contract, evidence, now, jitter)
    if op.state is State.CANCEL_REQUESTED and not isinstance(evidence, e.Throttled | e.NotDelivered):
        return now, "the cancel is to be sent"
    if isinstance(evidence, e.Throttled | e.NotDelivered | e.ReadFailed):
        asked = getattr(evidence, "retry_at", None)
        if asked is not None:
            return max(asked, now), f"{evidence.why}; the provider asked to wait"
        pause = backoff(contract.poll.first, contract.poll.factor, contract.poll.max, max(op.backoff - 1, 0), jitter)
        return now + pause, f"{evidence.why}; next attempt"
    if op.state is State.CREATE_UNKNOWN:
        return _reconcile_time(op, contract, evidence, now, jitter)
    if op.state is State.OBSERVING and isinstance(evidence, e.CancelRequested | e.Notified | e.Decided):
        return now, "a person decided" if isinstance(evidence, e.Decided) else "a change was announced"
    if isinstance(evidence, e.Noted | e.Acknowledged | e.LeaseTaken) and op.next is not None and op.next.at is not None:
        return op.next.at, op.next.because
    return now, f"follows {evidence.kind}"


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
    strategy = contract.reconcile[index]
    earliest = now
    because = f"{strategy.strategy} to learn whether the job was created"
    if isinstance(evidence, e.Inconclusive):
        if evidence.retry_at is not None and evidence.retry_at > now:
            return evidence.retry_at, f"{evidence.why}; {because}"
        pause = backoff(contract.poll.first, contract.poll.factor, contract.poll.max, max(op.backoff - 1, 0), jitter)
        earliest = now + pause
    visible = _visible_from(op, strategy)
    if visible is not None and visible > earliest:
        return visible, f"a new job may not be visible yet; then {because}"
    return earliest, because


def _visible_from(op: Operation, strategy: Strategy) -> datetime | None:
    """When a look-up can first be trusted to show a job that our last send created."""
    if strategy.strategy == "resend" or op.last_sent_at is None:
        return None
    return op.last_sent_at + strategy.visibility_lag
