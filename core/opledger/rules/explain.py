"""Why an operation is where it is, what happens next, and what holds it up: `decide`, put into words (DESIGN §6).

The worker obeys `decide` and people read it here, so the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from opledger.rules import holdups, partial, sharing
from opledger.rules.choices import Option, choices
from opledger.rules.contract import Contract
from opledger.rules.decide import AskHuman, Call, Conclude, Decision, Read, Wait, decide, open_deadline
from opledger.rules.holdups import Blocked, Standing
from opledger.rules.model import TERMINAL, Action, Operation, Plan, State, to_rfc3339

REMARKS: Final = frozenset({"Noted", "Acknowledged", "LeaseTaken", "Notified"})
"""Kinds of events that explain nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Happened:
    """What an explanation needs to know of one event."""

    seq: int
    kind: str
    changed_state: bool
    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "why is it there, and what happens next?"."""

    operation: Operation
    why: str
    evidence: tuple[int, ...]
    next: Plan | None
    blocked_by: Blocked | None
    choices: tuple[Option, ...]


def waits_for_person(op: Operation) -> bool:
    """Tell whether nothing happens before a person decides (DESIGN §5)."""
    return op.state.needs_human or (op.state is State.CREATE_UNKNOWN and op.exhausted)


def explain(
    op: Operation,
    contract: Contract,
    now: datetime,
    *,
    events: Sequence[Happened],
    paused: str | None = None,
    workers_alive: bool = True,
    standing: Standing | None = None,
    unreached: Blocked | None = None,
) -> Explanation:
    """Explain `op` from its record, the journal's last events, and the decision that the worker would take now.

    `standing`: the shares of its contract, where the operation is due. `unreached`: that all workers which are alive
    leave its provider to others.
    """
    held = op.lease is not None and op.lease.expires_at > now
    if op.open_call is not None and held:
        # `decide` speaks to whoever did not make the call; the one who did is still at it.
        decision: Decision = Wait(None, f"the {op.open_call.action} call is under way")
    else:
        decision = decide(op, contract, now, paused=paused)
    # What a job left behind that did not succeed may still be fetched.
    over = op.state in TERMINAL and not partial.wanted(op, contract)
    blocked = _blocked(op, decision, None if over else paused, idle=not workers_alive and not held)
    limited = standing is not None and isinstance(decision, Call | Read | Conclude) and not over and blocked is None
    in_hand = ""
    if limited and standing is not None and held:
        in_hand = _in_hand(op, contract, standing, now)
    elif limited and standing is not None and not _late(op, now):
        blocked = unreached or holdups.limit(contract, standing, now)
    ahead = None if over else _next(op, decision, now)
    if ahead is not None and blocked is not None and blocked.until is not None:
        ahead = replace(ahead, at=blocked.until)
    return Explanation(
        operation=op,
        why=f"{_where(op, contract, events)}.{in_hand} {_ahead(decision, ahead, blocked, over=over)}",
        evidence=_evidence(op, events),
        next=ahead,
        blocked_by=blocked,
        choices=choices(op, contract),
    )


def _evidence(op: Operation, events: Sequence[Happened]) -> tuple[int, ...]:
    """The events that led here: the last change of state, what was learnt last, and the permit still open."""
    found: set[int] = set()
    changes = [event.seq for event in events if event.changed_state]
    learnt = [event.seq for event in events if event.kind not in REMARKS]
    if changes:
        found.add(changes[-1])
    if learnt:
        found.add(learnt[-1])
    if op.open_call is not None:
        found.update([event.seq for event in events if event.kind == "CallSent"][-1:])
    if op.cancel is not None and op.state not in TERMINAL:
        found.update([event.seq for event in events if event.kind == "CancelRequested"][-1:])
    return tuple(sorted(found))


def _blocked(op: Operation, decision: Decision, paused: str | None, *, idle: bool) -> Blocked | None:
    if isinstance(decision, AskHuman):
        return Blocked(str(decision.code), decision.question)
    if isinstance(decision, Wait) and paused is not None and op.open_call is None:
        return Blocked("provider_paused", f"calls to {op.contract} are paused: {paused}")
    if isinstance(decision, Call | Read | Conclude) and idle:
        return Blocked("no_worker", "this is due, and no worker is alive to do it; start one with: opledger worker")
    return None


def _late(op: Operation, now: datetime) -> bool:
    """Tell whether its deadline has passed: that is kept whatever the provider allows."""
    deadline = open_deadline(op)
    return deadline is not None and deadline[1] <= now


def _in_hand(op: Operation, contract: Contract, standing: Standing, now: datetime) -> str:
    """Say what its worker may wait for; whether it does so or has sent its call is known to that worker alone."""
    moment = holdups.next_moment(contract, standing, now)
    if moment is None or moment <= now + timedelta(microseconds=sharing.AHEAD) or op.lease is None:
        return ""
    rate = holdups.rate_words(contract.limits.rate or 1)
    return (
        f" {op.lease.owner} has it in hand and sends when it may: {contract.name} allows {rate} (limits.rate, over all "
        f"workers), and the next moment that nobody has booked is at {to_rfc3339(moment)}."
    )


def _next(op: Operation, decision: Decision, now: datetime) -> Plan | None:
    stored = op.next
    due = stored.at if stored is not None and stored.at is not None and stored.at < now else now
    if isinstance(decision, AskHuman):
        return Plan("human", decision.until, decision.question)
    if isinstance(decision, Call):
        return Plan(decision.action.value, due, decision.because)
    if isinstance(decision, Read):
        return Plan(Action.OBSERVE.value, due, decision.because)
    if isinstance(decision, Conclude):
        kind = "deadline" if decision.cause.startswith("deadline:") else stored.kind if stored else "deadline"
        return Plan(kind, due, decision.because)
    if decision.until is None:
        return stored
    planned = stored is not None and stored.at == decision.until
    return Plan(stored.kind if planned and stored is not None else "deadline", decision.until, decision.because)


def _ahead(decision: Decision, ahead: Plan | None, blocked: Blocked | None, *, over: bool) -> str:
    if isinstance(decision, AskHuman):
        until = f" (by {to_rfc3339(decision.until)})" if decision.until is not None else ""
        return f"Waiting for a person: {decision.question}{until}."
    if over:
        return "Nothing more happens by itself."
    if blocked is not None:
        until = f" (its turn comes at about {to_rfc3339(blocked.until)})" if blocked.until is not None else ""
        return f"Held up: {blocked.reason}{until}."
    if isinstance(decision, Wait):
        if ahead is None or ahead.at is None or decision.until is None:
            return f"For now: {decision.because}."
        return f"Next: {ahead.kind} at {to_rfc3339(ahead.at)} ({decision.because})."
    return f"Due now: {decision.because}."


# --- where it is, in words ---------------------------------------------------------------------------------------


def _where(op: Operation, contract: Contract, events: Sequence[Happened]) -> str:
    if contract.status.by_delivery and op.state in (State.ACCEPTED, State.OBSERVING):
        return f"Job {op.remote_job_id} cannot be asked about: only its webhooks tell how it goes; {_word(op)}"
    if contract.status.by_delivery and op.state is State.CANCELLING:
        return f"The cancel of job {op.remote_job_id} was sent, and only a delivery can say how it ends; {_word(op)}"
    return _WORDS[op.state](op, next((event for event in reversed(events) if event.changed_state), None))


def _awaiting(op: Operation, _: Happened | None) -> str:
    because = f": {op.attention.reason}" if op.attention is not None else ""
    return f"{len(op.approvals)} of {op.approvals_needed} approvals are given and nothing has been sent{because}"


def _pending(op: Operation, _: Happened | None) -> str:
    if op.open_call is not None:
        return f"A permit for the create is used ({op.open_call.call_id}) and no answer is recorded"
    if not op.sent:
        return "Nothing has been sent yet"
    tried = "once" if op.attempts.create == 1 else f"{op.attempts.create} times"
    return f"The create was tried {tried} and provably not accepted ({op.last_error or 'no reason was recorded'})"


def _unknown(op: Operation, _: Happened | None) -> str:
    return f"A create was sent and nobody knows its fate ({op.last_error or 'its answer was lost'})"


def _looking(op: Operation, _: Happened | None) -> str:
    return "A create was sent, its answer was lost, and the provider is being asked about it"


def _taken(op: Operation, _: Happened | None) -> str:
    return f"The provider accepted the request as job {op.remote_job_id} and has not been asked about it since"


def _watched(op: Operation, _: Happened | None) -> str:
    return f"Job {op.remote_job_id} is being polled; {_word(op)}{_trouble(op)}"


def _cancel_wanted(op: Operation, _: Happened | None) -> str:
    by = f" by {op.cancel.by}" if op.cancel is not None else ""
    return f"A cancellation of job {op.remote_job_id} was requested{by} and is not answered yet{_trouble(op)}"


def _stopping(op: Operation, _: Happened | None) -> str:
    return f"The cancel of job {op.remote_job_id} was sent, and only a status read can say how it ends; {_word(op)}"


def _collecting(op: Operation, _: Happened | None) -> str:
    return f"The job succeeded and its result is being fetched{_trouble(op)}"


def _attended(op: Operation, _: Happened | None) -> str:
    reason = op.attention.reason if op.attention is not None else op.last_error or "no reason was recorded"
    return f"Automation stopped in {op.state}: {reason}"


def _succeeded(op: Operation, _: Happened | None) -> str:
    where = op.result.location if op.result is not None else None
    return (
        f"It succeeded, and the result is stored at {where}" if where else "It succeeded; there was no result to keep"
    )


def _failed(op: Operation, last: Happened | None) -> str:
    return f"It failed: {op.last_error or (last.reason if last else None) or 'the provider gave no reason'}"


def _cancelled(op: Operation, _: Happened | None) -> str:
    return f"The provider said that it is cancelled ({op.remote_state})"


def _ended_by_person(op: Operation, last: Happened | None) -> str:
    by = f" by {last.actor}" if last is not None else ""
    reason = f": {last.reason}" if last is not None and last.reason else ""
    return f"It was {op.state}{by}{reason}"


def _word(op: Operation) -> str:
    if op.remote_state is None:
        return "the provider has said nothing yet"
    means = f", which means {op.remote_means}" if op.remote_means not in (None, op.remote_state) else ""
    return f"the provider last said {op.remote_state}{means}"


def _trouble(op: Operation) -> str:
    if not op.failures:
        return ""
    calls = "call" if op.failures == 1 else f"{op.failures} calls"
    return f"; the last {calls} told nothing ({op.last_error})"


_WORDS: Final[Mapping[State, Callable[[Operation, Happened | None], str]]] = {
    State.AWAITING_APPROVAL: _awaiting,
    State.CREATE_PENDING: _pending,
    State.CREATE_UNKNOWN: _unknown,
    State.RECONCILIATION: _looking,
    State.ACCEPTED: _taken,
    State.OBSERVING: _watched,
    State.CANCEL_REQUESTED: _cancel_wanted,
    State.CANCELLING: _stopping,
    State.CANCELLATION_UNCONFIRMED: _attended,
    State.RESULT_TIMED_OUT: _attended,
    State.RESULT_COLLECTING: _collecting,
    State.RESULT_UNAVAILABLE: _attended,
    State.RESULT_VALIDATION_FAILED: _attended,
    State.CONTRACT_VIOLATION: _attended,
    State.SUCCEEDED: _succeeded,
    State.FAILED: _failed,
    State.CANCELLED: _cancelled,
    State.REJECTED: _ended_by_person,
    State.WITHDRAWN: _ended_by_person,
    State.RESOLVED: _ended_by_person,
}
