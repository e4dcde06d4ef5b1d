"""What people and agents may ask of an operation, as the evidence that is then recorded.

Each function looks at the record and either returns the evidence or raises `Refused` with a sentence that says why
not and what can be done instead. Whether the record has moved on meanwhile is the store's question, not one of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from opledger.errors import Refused, UsageError
from opledger.rules import evidence as e
from opledger.rules.choices import Option, choices, too_early
from opledger.rules.contract import Contract
from opledger.rules.model import TERMINAL, Actor, ActorKind, Choice, Operation, State, to_rfc3339
from opledger.rules.policy import Demand

_AGENT: Final = re.compile(r"agents?([^a-z].*)?", re.IGNORECASE | re.DOTALL)

LONGEST_REASON: Final = 4_000
"""Characters of a reason or a remark: events are never removed."""

_NO_CANCEL: Final[Mapping[State, str]] = {
    State.RESULT_COLLECTING: "the job has succeeded and its result is being fetched; there is nothing left to cancel",
    State.RESULT_UNAVAILABLE: "the job has ended; decide with: opledger resolve",
    State.RESULT_VALIDATION_FAILED: "the job has ended; decide with: opledger resolve",
    State.CONTRACT_VIOLATION: "the provider broke its promises; decide which job stands with: opledger resolve",
}
_BEFORE_CANCEL: Final = frozenset({State.CREATE_PENDING, State.CREATE_UNKNOWN, State.RECONCILIATION, State.ACCEPTED})


def actor(name: str) -> Actor:
    """Return who acts. A name that is ``agent``, or begins with it and a mark or digit (``agent-7``), is an agent's.

    Raises UsageError for a name that nobody could read.
    """
    if not name.strip() or not name.isprintable():
        raise UsageError("the name of whoever acts is empty or cannot be printed; set OPLEDGER_OPERATOR or give a name")
    return Actor(name, ActorKind.AGENT if _AGENT.fullmatch(name) else ActorKind.HUMAN)


def reason(text: str | None) -> str:
    """Return a reason that says something. Raises UsageError for an empty one."""
    if text is None or not text.strip():
        raise UsageError("a reason is missing; say in a few words why (--reason)")
    if len(text) > LONGEST_REASON:
        raise UsageError(
            f"a reason of {len(text):,} characters would stand in the journal for good; say it in at most "
            f"{LONGEST_REASON:,}"
        )
    return text.strip()


def approval(
    op: Operation, who: Actor, demand: Demand, fingerprint: str | None = None, *, now: datetime | None = None
) -> e.Approved:
    """Approve exactly the request that is recorded; `fingerprint` is the one that was looked at, if it is known.

    With `now`, an approval that comes too late is refused, whether a worker has recorded the expiry or not.
    """
    _awaits(op, "approved")
    _may_judge(op, who, "approve")
    if now is not None and op.approval_deadline is not None and now >= op.approval_deadline:
        raise Refused(
            f"the time to approve {op.operation_id} has expired (it ended at {to_rfc3339(op.approval_deadline)}); a "
            "worker records it as rejected; if it is still wanted, it must be submitted anew"
        )
    if demand.four_eyes and _same(who.name, op.requested_by):
        raise Refused(f"{who.name} requested {op.operation_id} and cannot approve it; somebody else must (four eyes)")
    if demand.approvers is not None and who.name not in demand.approvers:
        names = ", ".join(sorted(demand.approvers)) or "nobody, as the policies that apply name no common approver"
        raise Refused(f"{who.name} may not approve {op.operation_id}; the policy names: {names}")
    if any(_same(given.by, who.name) for given in op.approvals):
        raise Refused(f"{who.name} has approved {op.operation_id} already; the next approval must be somebody else's")
    if fingerprint is not None and fingerprint != op.request_fingerprint:
        raise Refused(
            f"{op.operation_id} does not have the fingerprint that was looked at ({fingerprint}); look at it again"
        )
    return e.Approved(who.name, op.request_fingerprint)


def rejection(op: Operation, who: Actor, demand: Demand) -> e.Rejected:
    """Refuse the request; it never leaves. Any person may, whom the policy names or not: no harm comes of it."""
    _awaits(op, "rejected")
    _may_judge(op, who, "reject")
    if demand.four_eyes and _same(who.name, op.requested_by):
        raise Refused(f"{who.name} requested {op.operation_id}; take it back with: opledger cancel")
    return e.Rejected(who.name)


def cancellation(
    op: Operation, contract: Contract, who: Actor, request_id: str, effect: str = "", *, shares: str | None = None
) -> e.Withdrawn | e.CancelRequested:
    """Take back what was never sent, or record the wish to cancel what may run.

    `shares` names the operation whose cancel call stops this one's job too.
    """
    if op.state in TERMINAL:
        raise Refused(f"{op.operation_id} has ended ({op.state}); there is nothing to cancel")
    if op.state in _NO_CANCEL:
        raise Refused(f"{op.operation_id} is {op.state}: {_NO_CANCEL[op.state]}")
    if op.state is State.AWAITING_APPROVAL or (op.state is State.CREATE_PENDING and not op.sent):
        if who.kind is ActorKind.AGENT and who.name != op.requested_by:
            raise Refused(
                f"{who.name} did not request {op.operation_id}; {op.requested_by} or an operator can withdraw it"
            )
        return e.Withdrawn(who.name, request_id)
    _not_wanted_yet(op)
    undelivered = op.state is State.CREATE_PENDING and op.open_call is None and not op.duplicate_accepted
    if contract.cancel is None and not undelivered:
        raise Refused(
            f"{contract.name} has no cancel: nothing can be sent to stop {op.operation_id}; it runs until the provider "
            "ends it or its deadline passes"
        )
    return e.CancelRequested(request_id, who.name, effect, shares)


def why_no_cancel(op: Operation) -> str | None:
    """Say why no cancellation of an operation can be recorded as it stands, whoever asks; None where one can."""
    if op.state in TERMINAL or op.state in _NO_CANCEL:
        return f"it is {op.state}: {_NO_CANCEL.get(op.state, 'there is nothing to cancel')}"
    if op.state is State.AWAITING_APPROVAL or (op.state is State.CREATE_PENDING and not op.sent):
        return None
    try:
        _not_wanted_yet(op)
    except Refused as error:
        return error.message
    return None


def _not_wanted_yet(op: Operation) -> None:
    """Refuse a second intent beside one that still stands, and say what became of the first."""
    intent = op.cancel
    if op.state in (State.OBSERVING, State.RESULT_TIMED_OUT):
        return  # an intent in the record is one that a person has overruled since
    if op.state in _BEFORE_CANCEL and (intent is None or intent.sent > 0):
        return
    by = f" by {intent.by} at {to_rfc3339(intent.at)}" if intent is not None else ""
    if op.state is State.CANCELLATION_UNCONFIRMED:
        then = "the provider never confirmed it; decide with: opledger resolve"
    elif intent is not None and intent.sent:
        then = "it was sent, and a status read will say how it ends"
    else:
        then = "it is sent as soon as it can be"
    raise Refused(f"a cancel of {op.operation_id} was requested{by} ({op.state}): {then}")


def decision(
    op: Operation,
    contract: Contract,
    who: Actor,
    choice: Choice,
    *,
    request_id: str,
    job: str | None = None,
    extend_by: timedelta | None = None,
) -> e.Decided:
    """Decide what no program may decide. Only what `choices` offers can be chosen."""
    if who.kind is ActorKind.AGENT:
        raise Refused(f"{who.name} is an agent; only a person may resolve {op.operation_id}")
    wait = too_early(op)
    if wait is not None:
        raise Refused(wait)
    offered = {option.choice: option for option in choices(op, contract)}
    option = offered.get(choice)
    if option is None:
        instead = f"it can be: {', '.join(offered)}" if offered else "nothing is to be decided there"
        raise Refused(f"{choice} is not a choice for {op.operation_id}, which is {op.state}; {instead}")
    _has_what_it_needs(op, option, job, extend_by)
    return e.Decided(who.name, choice, job, extend_by, request_id)


def _has_what_it_needs(op: Operation, option: Option, job: str | None, extend_by: timedelta | None) -> None:
    if "job" in option.needs:
        if job is None or not job.strip() or not job.isprintable() or job in (".", ".."):
            known = f"; known jobs: {', '.join(option.jobs)}" if option.jobs else ""
            raise Refused(f"{option.choice} needs the job's id at the provider (--job){known}")
        if option.jobs and job not in option.jobs:
            raise Refused(
                f"{job} never came up for {op.operation_id}; {option.choice} takes one of: {', '.join(option.jobs)}"
            )
    elif job is not None:
        raise UsageError(f"{option.choice} takes no job; leave --job out")
    if "for" in option.needs:
        if extend_by is None or extend_by <= timedelta(0):
            raise Refused(f"{option.choice} needs to know for how long (--for 30m)")
    elif extend_by is not None:
        raise UsageError(f"{option.choice} takes no time; leave --for out")


def _awaits(op: Operation, done: str) -> None:
    if op.state is not State.AWAITING_APPROVAL:
        raise Refused(f"{op.operation_id} is {op.state} and not waiting for approval, so it cannot be {done}")


def _may_judge(op: Operation, who: Actor, verb: str) -> None:
    if who.kind is ActorKind.AGENT:
        raise Refused(f"{who.name} is an agent; only a person may {verb} {op.operation_id}")


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()
