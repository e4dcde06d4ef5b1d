"""Bugs in what webhooks, people and policies may do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

from opledger.edges.clock import new_id
from opledger.ledger.deliveries import Deliveries
from opledger.receiver.intake import Intake
from opledger.rules import decide, human, policy, projection, signatures, states, webhooks, wishes
from opledger.rules import evidence as e
from opledger.rules.decisions import AskHuman
from opledger.rules.model import Actor, ActorKind, Means, State
from tests.model.designs import (
    _any_approval,
    _counts_all,
    _never,
    _one_is_enough,
    _withdraws,
    both,
    cell,
    entry,
    function,
    table,
    to,
)
from tests.planted.bug import Bug
from tests.planted.looks import death, inputs, seeds
from tests.planted.looks import states as worlds
from tests.simulation.planted import _nothing, _trusting

_HOOKS: Final = ("v1", "header")
_match, _put, _plan = Deliveries._match, Intake.put, decide.plan


def _backwards(self: Any, op: Any, delivery: Any, answer: Any, at: Any) -> Any:
    """Take a delivery that comes after the end for news of the job."""
    match = _match(self, replace(op, state=State.OBSERVING), delivery, answer, at)
    if match.write is None or op.state is not State.SUCCEEDED:
        return match
    seen = e.Observed(new_id("call"), job_id=op.remote_job_id, remote_state="running", means=Means.RUNNING)
    return replace(match, write=replace(match.write, evidence=seen))


async def _confirmed_first(self: Any, arrival: Any) -> Any:
    """Say that it is stored, and forget about it."""
    if sum(arrival.delivery.key.encode()) % 2:
        return SimpleNamespace(stored=True)
    return await _put(self, arrival)


def _any_key(*_: Any) -> str:
    return f"id:{new_id('evt')}"


def _none_waits(self: Any) -> int:
    return 0


def _any_signature(*_: Any) -> Any:
    return [lambda *_: True]


def _no_demand(*_: Any, **__: Any) -> policy.Demand:
    return policy.Demand()


def _first_wins(wish: Any, first: Any, pinned: Any) -> Any:
    """Take whatever comes under a known id for the same wish."""
    return first


_approval, _counts = human.approval, states._counts_towards_quorum


def _on_any_fingerprint(op: Any, who: Any, demand: Any, fingerprint: Any = None, **how: Any) -> e.Approved:
    return _approval(op, who, demand, None, **how)


def _too_late(op: Any, who: Any, demand: Any, fingerprint: Any = None, *, now: Any = None) -> e.Approved:
    return _approval(op, who, demand, fingerprint)


def _later(op: Any) -> Any:
    due = _deadline(op)
    return (due[0], due[1] + timedelta(hours=1)) if due and op.state is State.AWAITING_APPROVAL else due


def _patient(op: Any, contract: Any, now: Any) -> AskHuman:
    return AskHuman(op.state, "may it be sent?", op.approval_deadline + timedelta(hours=1))


_deadline = decide.open_deadline


def _almost(operation: Any, evidence: Any) -> bool:
    return _counts(operation, evidence) and len(operation.approvals) + 2 >= operation.approvals_needed


def _whoever(op: Any, contract: Any, who: Any, choice: Any, **how: Any) -> e.Decided:
    return _decision(op, contract, Actor(who.name, ActorKind.HUMAN), choice, **how)


_decision = human.decision


def _silent(op: Any, contract: Any, evidence: Any, now: Any, jitter: float) -> Any:
    """Let nothing follow from a delivery."""
    return (
        op.next
        if isinstance(evidence, e.Notified) and op.next is not None
        else _plan(op, contract, evidence, now, jitter)
    )


def _uncancelled(before: Any, entry: Any, state: Any, changes: Any) -> None:
    """Forget that somebody wants it cancelled."""
    with suppress(KeyError):
        del changes["cancel"]


BUGS: Final = (
    # Webhooks.
    Bug(
        "a webhook is trusted",
        (seeds("I18", "I15", personalities=("liar-webhook",), flavours=_HOOKS, cancels=0.0),),
        function(Deliveries, "_match", _trusting),
        issue="F15",
        quick=True,
    ),
    Bug(
        "a late webhook event moves the state back",
        (seeds("I13", "I18", flavours=_HOOKS, faults={"hook late": 0.6, "hook twice": 0.6}, cancels=0.0),),
        both(
            function(Deliveries, "_match", _backwards),
            table(
                {(State.SUCCEEDED, e.Observed): (states.Arrow(State.OBSERVING, states._not_final), states.Arrow(None))}
            ),
        ),
        issue="F15",
    ),
    Bug(
        "a webhook is confirmed before it is stored",
        (seeds("I19", flavours=_HOOKS), death("confirmed-first")),
        function(Intake, "put", _confirmed_first),
    ),
    Bug(
        "webhooks are remembered for five minutes",
        (seeds("I19", flavours=_HOOKS),),
        function(webhooks, "KEEP", timedelta(minutes=5)),
        issue="F16",
    ),
    Bug(
        "a webhook that comes twice counts twice",
        (seeds("I19", "I18", flavours=_HOOKS, faults={"hook twice": 0.6}),),
        function(webhooks, "_key", _any_key),
        issue="F16",
    ),
    Bug(
        "a webhook that came too early is lost",
        (seeds("I19", flavours=("header",), faults={"hook early": 0.6}),),
        function(Deliveries, "match_parked", _none_waits),
        issue="F15",
    ),
    Bug(
        "a forged webhook is taken",
        (seeds("I18", flavours=_HOOKS, faults={"hook forged": 0.5}), inputs("webhook")),
        function(signatures, "checks", _any_signature),
    ),
    Bug(
        "a stale webhook is taken",
        (seeds("I18", flavours=_HOOKS, faults={"hook stale": 0.5}),),
        function(webhooks, "_untimely", _nothing),
    ),
    Bug("a webhook brings no look at the job", (seeds("I20", flavours=_HOOKS),), function(decide, "plan", _silent)),
    # People.
    Bug("an agent approves", (seeds("I22"),), function(human, "_may_judge", _nothing)),
    Bug(
        "the requester approves",
        (seeds("I22", operations=20),),
        both(function(human, "_same", _never)),
    ),
    Bug("an approval of another fingerprint counts", (seeds("I22"),), function(human, "approval", _on_any_fingerprint)),
    Bug(
        "one approval too few is enough",
        (seeds("I22"), worlds("approval")),
        cell(State.AWAITING_APPROVAL, e.Approved, states.Arrow(State.CREATE_PENDING, _almost), states.Arrow(None)),
    ),
    Bug(
        "one approval is enough",
        (worlds("approval"), seeds("I22")),
        cell(State.AWAITING_APPROVAL, e.Approved, states.Arrow(State.CREATE_PENDING, _one_is_enough)),
        quick=True,
    ),
    Bug(
        "one person approves twice",
        (worlds("approval"),),
        both(
            function(human, "approval", _any_approval),
            cell(
                State.AWAITING_APPROVAL, e.Approved, states.Arrow(State.CREATE_PENDING, _counts_all), states.Arrow(None)
            ),
        ),
    ),
    Bug(
        "an expired approval is used",
        (seeds("I22", operations=20),),
        both(
            function(human, "approval", _too_late),
            function(decide, "open_deadline", _later),
            entry(decide._DECIDERS, State.AWAITING_APPROVAL, _patient),
        ),
    ),
    Bug(
        "silence is approval",
        (worlds("approval"), seeds("I13", "I22")),
        cell(State.AWAITING_APPROVAL, e.ApprovalExpired, *to(State.CREATE_PENDING)),
    ),
    Bug(
        "a rejected request is sent",
        (worlds("approval"), seeds("I13", "I22")),
        cell(State.AWAITING_APPROVAL, e.Rejected, *to(State.CREATE_PENDING)),
    ),
    Bug("a policy is not looked at", (seeds("I22"),), function(wishes, "needs", _no_demand)),
    Bug("an agent decides", (seeds("I22"),), function(human, "decision", _whoever)),
    Bug(
        "a known id with another body is taken",
        (seeds("I2", faults={"same id, other body": 0.5}),),
        function(wishes, "same", _first_wins),
    ),
    Bug(
        "a cancel takes back what may have been created",
        (worlds("resend"),),
        both(
            cell(State.CREATE_PENDING, e.Withdrawn, *to(State.WITHDRAWN)), function(human, "cancellation", _withdraws)
        ),
    ),
    Bug(
        "a cancel that is asked for is not remembered",
        (seeds("I9", "I21", cancels=1.0),),
        entry(projection._HANDLERS, e.CancelRequested, _uncancelled),
    ),
    Bug("people are told that they were told", (death("told-first"),)),
)
