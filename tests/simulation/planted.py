"""Bugs planted in the product, in memory: how a run is made with one, and some that every run must find.

A patch is what `tests.model.designs` makes: something to call, that gives a context manager. `planted` runs seeds under
it until an invariant is broken, and takes it back.

    found = planted(function(Hand, "renew", nothing))
    assert found.problem is not None
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ClauseElement, select

from opledger.edges.clock import new_id
from opledger.ledger.deliveries import Deliveries
from opledger.rules import answers, decide, lookups, requests, states
from opledger.rules import evidence as e
from opledger.rules.calls import Failure
from opledger.rules.model import Action, Means, State
from opledger.store import claims
from opledger.worker.hand import Hand
from tests.model.designs import Patch, _always, _nothing_settles, _status_404, both, cell, entry, function
from tests.simulation.faults import ALL, Focus
from tests.simulation.run import EVERYTHING, OPERATIONS, run
from tests.simulation.world import Violation


@dataclass(frozen=True)
class Found:
    """What came of looking for a planted bug."""

    seeds: int
    seconds: float  #: of CPU
    problem: Violation | None  #: the first one
    numbers: frozenset[str] = frozenset()  #: all invariants that were broken in that seed


def planted(
    patch: Patch, *, first: int = 0, seeds: int = 40, operations: int = OPERATIONS, focus: Focus = EVERYTHING
) -> Found:
    """Run seeds with a bug in the product until one of them breaks an invariant. `focus` brings it out sooner."""
    began = time.process_time()
    for count, seed in enumerate(range(first, first + seeds), 1):
        with patch():
            outcome = run(seed, operations=operations, focus=focus)
        if outcome.problems:
            numbers = frozenset(one.number for one in outcome.problems)
            return Found(count, time.process_time() - began, outcome.problems[0], numbers)
    return Found(seeds, time.process_time() - began, None)


@dataclass(frozen=True)
class Bug:
    """A planted bug, and the invariants by which it may show."""

    name: str
    patch: Patch
    breaks: frozenset[str]
    focus: Focus = EVERYTHING
    first: int = 0  #: a seed that finds it
    quick: bool = False  #: in the short test run


# --- what stands in the product's place -----------------------------------------------------------------------------

_permitted, _send, _match = Hand.permitted, Hand.send, Deliveries._match
_read_status, _create = answers.read_status, requests.create


async def _permit_later(self: Any, action: Action, request: Any, **how: Any) -> Any:
    """Send first; the permit is written down a moment later."""
    if action is Action.CREATE:
        outcome = await self.shop.http.send(request)
        permitted = await _permitted(self, action, request, **how)
        self.early = outcome
        return permitted
    return await _permitted(self, action, request, **how)


async def _twice(self: Any, request: Any, call_id: str, **how: Any) -> Any:
    """Send again under the same permit what brought no answer."""
    outcome = await _send(self, request, call_id, **how)
    return await _send(self, request, call_id, **how) if isinstance(outcome, Failure) else outcome


def _any_lease(tongue: Any) -> ClauseElement:
    o = claims.o
    return (
        select(o.next_action_at, o.operation_id, o.contract, o.deadline_at, o.lease_owner)
        .where(o.lease_owner.is_not(None), o.next_action_at <= claims.NOW)
        .limit(100)
    )


def _trusting(self: Any, op: Any, delivery: Any, answer: Any, at: Any) -> Any:
    """Take a delivery for a status read."""
    match = _match(self, op, delivery, answer, at)
    if op.state not in (State.ACCEPTED, State.OBSERVING) or "succeeded" not in str(delivery.event_type):
        return match
    seen = e.Observed(new_id("call"), job_id=op.remote_job_id, remote_state="succeeded", means=Means.SUCCEEDED)
    return match if match.write is None else replace(match, write=replace(match.write, evidence=seen))


def _whosever(outcome: Any, op: Any, contract: Any, **facts: Any) -> Any:
    """Read a status answer, whichever job it is about."""
    reading = _read_status(outcome, op, contract, **facts)
    if isinstance(reading.evidence, e.Violation):
        other = reading.evidence.jobs[-1] if reading.evidence.jobs else "another"
        seen = e.Observed(facts["call_id"], job_id=other, remote_state="succeeded", means=Means.SUCCEEDED)
        return answers.Reading(seen)
    return reading


def _new_token(op: Any, contract: Any, stored: Any, **how: Any) -> Any:
    request = _create(op, contract, stored, **how)
    headers = tuple(
        (name, new_id("idem") if name.lower() == "idempotency-key" else value) for name, value in request.headers
    )
    return replace(request, headers=headers)


def _creates_all_the_same(op: Any, contract: Any, now: Any) -> Any:
    return decide.Call(Action.CREATE, "nothing has been accepted yet")


def _nothing(*_: Any, **__: Any) -> None:
    """Leave undone what was to be done."""


async def _no_release(self: Any) -> None:
    self.released = True


async def _uncut(self: Any, request: Any) -> Any:
    return request


async def _forget(self: Any, write: Any) -> None:
    """Keep nothing of an answer that came too late."""


BUGS: Final = (
    Bug(
        "the request is sent before it is recorded",
        function(Hand, "permitted", _permit_later),
        frozenset({"I1"}),
        quick=True,
    ),
    Bug(
        "a permit is used twice",
        function(Hand, "send", _twice),
        frozenset({"I7", "I8"}),
        Focus((), (), {"answer lost": 0.3}),
        quick=True,
    ),
    Bug(
        "a lease that stands is taken over",
        function(claims, "expired", _any_lease),
        frozenset({"I10", "I12", "I21"}),
    ),
    Bug(
        "a 404 to a status read means failed",
        function(answers, "read_status", _status_404(Means.FAILED)),
        frozenset({"I16"}),
        Focus(("slow-visibility",)),
        quick=True,
    ),
    Bug(
        "an empty list proves absence at once",
        function(lookups, "_absent", _nothing_settles),
        frozenset({"I4", "I5"}),
        Focus(("slow-visibility",), ("v1",), {"answer lost": 0.3}, cancels=0.8),
        first=5,
        quick=True,
    ),
    Bug(
        "the token's window is not looked at",
        function(decide, "may_resend", _always),
        frozenset({"I4"}),
        Focus(("replays-500",), ("header",), cancels=0.0),
        quick=True,
    ),
    Bug(
        "a cancel that is wanted is not heard",
        both(
            entry(decide._DECIDERS, State.CREATE_PENDING, _creates_all_the_same),
            cell(State.CREATE_PENDING, e.CallSent, states.Arrow(None, states._call(Action.CREATE))),
        ),
        frozenset({"I9", "I13"}),
        Focus(("ideal",), ("v1", "header"), {"429": 0.4}, cancels=1.0),
    ),
    Bug(
        "a delivery is taken for a status read",
        function(Deliveries, "_match", _trusting),
        frozenset({"I18", "I15"}),
        Focus(("liar-webhook",), ("v1", "header"), cancels=0.0),
        quick=True,
    ),
    Bug(
        "the answer about another job is taken",
        function(answers, "read_status", _whosever),
        frozenset({"I3"}),
        Focus(("changes-id",)),
        quick=True,
    ),
    Bug(
        "every attempt has a token of its own",
        function(requests, "create", _new_token),
        frozenset({"I2", "I4"}),
        Focus(("lossy",), ("v1", "header")),
        quick=True,
    ),
    Bug(
        "an answer that comes too late is forgotten",
        function(Hand, "_keep_late", _forget),
        frozenset({"I17", "I3", "I4", "I5"}),
        Focus((), (), {"stalled before send": 0.3, "answer late": 0.2}),
    ),
    Bug(
        "a worker that ends keeps its leases",
        both(function(claims, "release_all", _nothing), function(Hand, "release", _no_release)),
        frozenset({"I12"}),
        Focus((), (), {**dict.fromkeys(ALL, 0.0), "told to end in a call": 0.2}),
        quick=True,
    ),
    Bug(
        "nobody looks at the lease once the permit is there",
        function(Hand, "within_lease", _uncut),
        frozenset({"I12"}),
        Focus((), (), {**dict.fromkeys(ALL, 0.0), "told late": 0.2}),
        quick=True,
    ),
)
