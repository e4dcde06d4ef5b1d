"""Bugs on the way of a call: permits, leases, fences, tokens, waits and transports."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import bindparam, update

from opledger.edges.clock import new_id
from opledger.edges.http import Http
from opledger.errors import StoreUnavailable
from opledger.rules import answers, calls, decide, lookups, requests, schedule, states
from opledger.rules import evidence as e
from opledger.rules.calls import Failure
from opledger.rules.contract import Contract
from opledger.rules.decisions import Call, Conclude
from opledger.rules.model import Action, State
from opledger.store import claims, recording
from opledger.store.tables import OPERATION
from opledger.worker import actions
from opledger.worker.hand import Hand
from tests.model.designs import (
    _always,
    _creates_again,
    _insists,
    _no_plan,
    _since_last,
    both,
    cell,
    entry,
    function,
    table,
)
from tests.planted.bug import Bug
from tests.planted.looks import bomb, death, seeds
from tests.planted.looks import states as worlds
from tests.simulation.planted import (
    _any_lease,
    _creates_all_the_same,
    _new_token,
    _permit_later,
    _twice,
)

_LOST: Final = {"answer lost": 0.3}
_STALLS: Final = {"stalled at the permit": 0.3, "stalled anywhere": 0.5, "answer late": 0.3}

# --- permits --------------------------------------------------------------------------------------------------------

_record, _http_send, _exchange_of = Hand.record, Http.send, Http._send


async def _uncommitted(self: Any, action: Action, request: Any, **how: Any) -> Any:
    """A permit that nobody writes down."""
    return await self.within_lease(request), new_id("call")


async def _hopes(self: Any, evidence: e.Evidence, cause: str, **how: Any) -> Any:
    """Take a permit whose commit failed for one that is there."""
    try:
        return await _record(self, evidence, cause, **how)
    except StoreUnavailable:
        if not isinstance(evidence, e.CallSent):
            raise
        self.held.lost = False
        return self.op


async def _repeats(self: Any, request: Any) -> Any:
    """As a transport does that tries again by itself."""
    outcome = await _http_send(self, request)
    return await _http_send(self, request) if request.effectful and isinstance(outcome, Failure) else outcome


async def _follows(self: Any, trail: Any) -> Any:
    answer = await _exchange_of(self, trail)
    place = answer.headers.get("location")
    if answer.status not in (302, 307) or place is None:
        return answer
    again = replace(trail.request, url=place, origin=calls.origin_of(place))
    return await _http_send(self, again)


async def _boundless(self: Any, trail: Any, work: Any) -> Any:
    """Send with a day for everything."""
    trail.request = replace(trail.request, timeout=timedelta(days=1))
    return await _bounded(self, trail, work)


_bounded = Http._bounded

# --- leases ---------------------------------------------------------------------------------------------------------

_may_write = recording._may_write


async def _never_mind(self: Any, request: Any) -> Any:
    """Send however little of the lease is left."""
    return request


def _not_looked_at(tx: Any, write: Any, seat: Any, clock: Any) -> None:
    """Judge a write by its fence, and never by the time of its lease."""
    _may_write(tx, replace(write, live=False), seat, clock)


def _unfenced(tx: Any, write: Any, seat: Any, clock: Any) -> None:
    """Let everybody write who once had a lease."""
    _may_write(tx, replace(write, fence=None, live=False), seat, clock)


def _other_version(tx: Any, write: Any, seat: Any, clock: Any) -> None:
    """Let a permit stand on whatever copy it was decided on."""
    _may_write(tx, replace(write, expected_version=None), seat, clock)


def _same_epoch(tongue: Any) -> Any:
    """A take-over that nobody can tell from the one before."""
    o = claims.o
    return (
        update(OPERATION)
        .where(tongue.among(o.operation_id, "ids"))
        .values(lease_owner=bindparam("owner"), lease_expires_at=tongue.clock + claims.LEASE)
        .returning(*o)
    )


def _nobody(*_: Any) -> list[Any]:
    return []


# --- tokens ---------------------------------------------------------------------------------------------------------

_create = requests.create


_lost = answers._lost


def _not_asked_to_wait(why: str, facts: Any, **how: Any) -> Any:
    """Forget when the provider wants to be asked again."""
    return _lost(why, facts, **{**how, "retry_at": None})


def _without_token(op: Any, contract: Any, stored: Any, *, resend: bool = False) -> Any:
    request = _create(op, contract, stored, resend=resend)
    if not resend:
        return request
    headers = tuple((name, value) for name, value in request.headers if name.lower() != "idempotency-key")
    return replace(request, headers=headers)


def _other_body(op: Any, contract: Any, stored: Any, *, resend: bool = False) -> Any:
    request = _create(op, contract, stored, resend=resend)
    return replace(request, body=request.body + b" ") if resend and request.body else request


def _twice_as_long(self: Contract) -> timedelta | None:
    memory = self.create.idempotency.memory
    return None if memory is None else memory * 2


# --- waits ----------------------------------------------------------------------------------------------------------

_when, _backoff = decide._when, schedule.backoff


def _at_once(op: Any, contract: Any, action: Any, evidence: Any, now: Any, jitter: float) -> Any:
    """Wait for nothing after a call that was not taken."""
    if isinstance(evidence, e.Throttled | e.NotDelivered):
        return now, "once more"
    return _when(op, contract, action, evidence, now, jitter)


def _unhinted(page: Any) -> tuple[None, None]:
    """Hear nothing of when the provider wants to be asked again."""
    return None, None


def _without_cap(base: timedelta, factor: float, cap: timedelta, step: int, jitter: float) -> timedelta:
    return _backoff(base, factor, timedelta(days=400), step, jitter)


def _without_pause(base: timedelta, factor: float, cap: timedelta, step: int, jitter: float) -> timedelta:
    return timedelta(0)


def _no_deadline(op: Any) -> None:
    """See no deadline anywhere."""


def _gives_up(op: Any, contract: Any, now: Any) -> Any:
    """Cancel a job that takes its time, though nobody asked for it."""
    return Call(Action.CANCEL, "it takes too long")


def _unused(op: Any) -> Conclude:
    call = op.open_call
    undone = e.NotDelivered(call_id=call.call_id, action=call.action, why="nobody knows")
    return Conclude(undone, "recovery", "nothing was heard of it")


BUGS: Final = (
    # Permits.
    Bug(
        "the request is sent before it is recorded",
        (seeds("I1"), death("permit-late")),
        function(Hand, "permitted", _permit_later),
    ),
    Bug("a cancel is sent before it is recorded", (death("cancel-late"),)),
    Bug("a resend that nobody could recognise is sent before it is recorded", (death("resend-blind"),)),
    Bug("a permit is not committed", (seeds("I1"),), function(Hand, "permitted", _uncommitted)),
    Bug(
        "a permit counts though its commit failed",
        (seeds("I1", faults={"store busy": 0.1}),),
        function(Hand, "record", _hopes),
    ),
    Bug(
        "a permit is used twice",
        (seeds("I7", "I8", faults=_LOST),),
        function(Hand, "send", _twice),
    ),
    Bug("the transport repeats what got no answer", (seeds("I7", faults=_LOST),), function(Http, "send", _repeats)),
    Bug(
        "a permit is given on an older copy",
        (seeds("I9", flavours=("v1", "batch"), faults={"answer lost": 0.5, "cancel at the permit": 0.5}),),
        function(recording, "_may_write", _other_version),
    ),
    Bug(
        "a permit without an outcome counts as unused",
        (worlds("blind"), seeds("I4", "I6", "I7", faults={"killed after send": 0.2}, flavours=("none",))),
        function(decide, "_recovered", _unused),
    ),
    # Leases and fences.
    Bug("a lease that stands is taken over", (seeds("I10", "I12", "I21"),), function(claims, "expired", _any_lease)),
    Bug(
        "the lease is not looked at when the bytes leave",
        (seeds("I12", faults=_STALLS),),
        both(function(Hand, "within_lease", _never_mind), function(recording, "_may_write", _not_looked_at)),
    ),
    Bug("the fence is not looked at", (seeds("I11", faults=_STALLS),), function(recording, "_may_write", _unfenced)),
    Bug("a take-over has the number of the one before", (seeds("I10"),), function(claims, "_take", _same_epoch)),
    Bug(
        "what a dead worker held is taken by nobody",
        (seeds("I21", faults={"killed after send": 0.2}), death("lease-for-ever")),
        function(claims, "_abandoned", _nobody),
    ),
    # Tokens and their window (F12).
    Bug(
        "a provider that lost a create and asks to wait is not waited for",
        (seeds("I20", faults={"5xx after": 0.5}),),
        function(answers, "_lost", _not_asked_to_wait),
    ),
    Bug(
        "the token's window is not looked at",
        (seeds("I4", personalities=("replays-500",), flavours=("header",), cancels=0.0), worlds("window")),
        function(decide, "may_resend", _always),
        issue="F12",
    ),
    Bug(
        "the token's window runs from the last send",
        (seeds("I4", personalities=("replays-500",), flavours=("header",), cancels=0.0),),
        function(decide, "may_resend", _since_last),
        issue="F12",
    ),
    Bug(
        "the token's window is taken for twice as long",
        (seeds("I4", personalities=("replays-500",), flavours=("header",), cancels=0.0), worlds("window")),
        function(Contract, "resend_window", property(_twice_as_long)),
        issue="F12",
    ),
    Bug(
        "the window is not looked at again before the bytes leave",
        (seeds("I4", personalities=("replays-500",), flavours=("header",), faults={"stalled at the permit": 0.7}),),
        function(actions, "decide", SimpleNamespace(may_resend=_always)),
        issue="F12",
    ),
    Bug(
        "every attempt has a token of its own",
        (seeds("I2", "I4", personalities=("lossy",), flavours=("v1", "header")),),
        function(requests, "create", _new_token),
    ),
    Bug(
        "a resend has no token",
        (seeds("I2", "I4", personalities=("lossy",), flavours=("v1", "header")),),
        function(requests, "create", _without_token),
    ),
    Bug(
        "a resend has another body",
        (seeds("I2", personalities=("lossy",), flavours=("v1", "header")),),
        function(requests, "create", _other_body),
    ),
    # What is sent though it may not be.
    Bug(
        "a create leaves though a cancel is wanted",
        (
            seeds("I9", personalities=("ideal",), flavours=("v1", "header"), faults={"429": 0.4}, cancels=1.0),
            worlds("resend"),
        ),
        both(
            entry(decide._DECIDERS, State.CREATE_PENDING, _creates_all_the_same),
            cell(State.CREATE_PENDING, e.CallSent, states.Arrow(None, states._call(Action.CREATE))),
        ),
    ),
    Bug(
        "an unknown create is sent again without a look",
        (seeds("I4", "I6", "I13", flavours=("none",), faults=_LOST), worlds("blind")),
        both(
            entry(decide._DECIDERS, State.CREATE_UNKNOWN, _creates_again),
            cell(State.CREATE_UNKNOWN, e.CallSent, states.Arrow(State.CREATE_PENDING, states._may_create)),
        ),
    ),
    Bug(
        "a cancel is sent twice",
        (seeds("I8", faults={"answer lost": 0.5}, cancels=1.0), worlds("calm")),
        entry(decide._DECIDERS, State.CANCELLING, _insists),
    ),
    Bug(
        "a job that takes its time is cancelled, and nobody asked",
        (seeds("I9", personalities=("ideal",), flavours=("v1",), cancels=0.0), worlds("resend")),
        both(
            entry(decide._DECIDERS, State.OBSERVING, _gives_up),
            table({(State.OBSERVING, e.CallSent): (states.Arrow(None, states._call(Action.CANCEL)),)}),
        ),
    ),
    # Waits and deadlines.
    Bug("429 is not waited for", (seeds("I20", faults={"429": 0.4}),), function(decide, "_when", _at_once)),
    Bug(
        "Retry-After is not heard",
        (seeds("I20", faults={"429": 0.4}),),
        both(*(function(module, "wait_until", _unhinted) for module in (answers, lookups))),
    ),
    Bug(
        "waits grow without a cap",
        (seeds("I20"),),
        both(*(function(module, "backoff", _without_cap) for module in (decide, schedule))),
    ),
    Bug(
        "there is no pause between tries",
        (seeds("I20"),),
        both(*(function(module, "backoff", _without_pause) for module in (decide, schedule))),
    ),
    Bug("no deadline counts", (seeds("I21"),), function(decide, "open_deadline", _no_deadline)),
    Bug("a running job has no next step", (worlds("resend"), seeds("I21")), function(decide, "plan", _no_plan)),
    # Transport.
    Bug(
        "an exchange has no end",
        (seeds("I12", "I21", faults={"answer late": 0.5}),),
        function(Http, "_bounded", _boundless),
        issue="F7",
    ),
    Bug(
        "a redirect is followed",
        (seeds("I25", personalities=("redirector",)),),
        function(Http, "_send", _follows),
        issue="F5",
        quick=True,
    ),
    Bug("an answer is unpacked without a bound", (bomb("deflate", "status", "unpacking"),), issue="F8"),
)
