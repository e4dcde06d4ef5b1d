"""One operation under one lease, as the actions use it: record, permit, send, keep, renew, release.

Every effectful call is two commits: `CallSent` before the first byte leaves, then what the answer means. A safe read
is one commit after the answer. Nothing is concluded before the answer is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from opledger.edges.clock import new_id
from opledger.edges.http import Http
from opledger.edges.stores import ResultStore
from opledger.errors import IllegalTransition, LeaseLost, Refused, StoreUnavailable
from opledger.rules import answers, decide, redact, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Failure, Request
from opledger.rules.contract import Contract
from opledger.rules.journal import read_body
from opledger.rules.model import Action, Actor, Operation, StoredRequest
from opledger.store import Answer as StoredAnswer
from opledger.store import Claimed, Declined, Fence, JobIdTaken, Recorded, Store, Write
from opledger.worker.commits import Commits
from opledger.worker.keep import kept
from opledger.worker.limits import Turn
from opledger.worker.shared_clock import SharedClock
from opledger.worker.turns import Dropped, Held, Turns

__all__ = ["GRACE", "Dropped", "Hand", "Held", "Workshop", "margin_of"]

log = logging.getLogger("opledger.worker")

GRACE: Final = 5.0
"""Seconds that calls and commits under way are given to finish when the worker is told to stop."""


def margin_of(lease: float) -> float:
    """Seconds before the end of a lease at which whatever goes on under it must be over."""
    return min(1.0, lease / 10)


@dataclass(frozen=True, slots=True)
class Workshop:
    """What every drive of one worker shares."""

    name: str
    worker: Actor
    policy: Actor  #: the same hand, where a policy's word is carried out
    store: Store
    commits: Commits
    clock: SharedClock
    http: Http
    results: ResultStore
    turns: Turns
    lease: timedelta
    contract_of: Callable[[str], Contract]
    paused: Callable[[str], str | None]
    pause: Callable[[str, str], Any]
    skip: Callable[[Contract, str], None]
    redactor: Callable[[], redact.Redactor]
    planned: Callable[[Operation], None]
    fared: Callable[[Contract, e.Evidence], Awaitable[None]]
    leaving: Callable[[], bool]
    #: One document is taken apart at a time: several threads take no less time for it, and each takes memory.
    parsing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    def actor(self, evidence: e.Evidence) -> Actor:
        """Return who the journal says it was: an approval that nobody gave in time is refused by a policy's word."""
        return self.policy if isinstance(evidence, e.ApprovalExpired) else self.worker


class Hand:
    """One operation under one lease."""

    def __init__(self, shop: Workshop, claimed: Claimed, held: Held) -> None:
        self.shop = shop
        self.op: Operation = claimed.operation
        self.taken_from = claimed.taken_from
        self.held = held
        self.fence = Fence(shop.name, held.epoch)
        self.released = False
        self.turn = Turn(self.op.contract)
        #: The status answer that was read last under this lease: (document, URL). Never stored.
        self.fresh: tuple[Any, str] | None = None

    # --- recording ------------------------------------------------------------------------------------------

    def write(
        self,
        evidence: e.Evidence,
        cause: str,
        *,
        reason: str | None = None,
        answer: StoredAnswer | None = None,
        live: bool = False,
        release: bool = False,
    ) -> Write:
        """Make a fenced write of this drive."""
        now, jitter = self.shop.clock.now(), self.shop.clock.random()
        contract = self.shop.contract_of(self.op.contract_digest)
        return Write(
            operation_id=self.op.operation_id,
            evidence=evidence,
            actor=self.shop.actor(evidence),
            at=now,
            cause=cause,
            reason=reason,
            plan=lambda op: decide.plan(op, contract, evidence, now, jitter),
            fence=self.fence,
            live=live,
            # What a permit was decided on must still be all there is: a cancel asked for meanwhile forbids a resend.
            expected_version=self.op.version if isinstance(evidence, e.CallSent) else None,
            basis=self.op,
            release=release,
            answer=answer,
        )

    async def record(
        self,
        evidence: e.Evidence,
        cause: str,
        *,
        reason: str | None = None,
        answer: StoredAnswer | None = None,
        live: bool = False,
        release: bool = False,
    ) -> Operation:
        """Commit one event. Raises Dropped where the lease is lost or the record moved on.

        What was handed in is seen to its end also where this drive is told to stop: an answer that may no longer be
        acted on is still kept as a late one.
        """
        write = self.write(evidence, cause, reason=reason, answer=answer, live=live, release=release)
        handed = self.shop.commits.hand_in(write)
        recording: asyncio.Future[Operation] | None = None
        try:
            with suppress(StoreUnavailable):  # it is in what was handed in, too, and is met below
                (outcome,) = await asyncio.shield(handed)
                if isinstance(outcome, Recorded):
                    return self._recorded(outcome)
            recording = asyncio.ensure_future(self._record(write, handed))
            return await asyncio.shield(recording)
        except asyncio.CancelledError:
            recording = recording or asyncio.ensure_future(self._record(write, handed))
            await asyncio.wait({recording})
            if not recording.cancelled() and recording.exception() is not None:
                log.info("%s of %s: %s", evidence.kind, self.op.operation_id, recording.exception())
            raise

    async def _record(self, write: Write, handed: asyncio.Future[list[Recorded | Declined]]) -> Operation:
        outcome = await self._commit(write, handed)
        if isinstance(outcome, Declined):
            await self._declined(outcome, write)
        assert isinstance(outcome, Recorded)
        return self._recorded(outcome)

    def _recorded(self, outcome: Recorded) -> Operation:
        self.op = outcome.operation
        self.released = self.released or self.op.lease is None
        self.shop.planned(self.op)
        return self.op

    async def _commit(self, write: Write, handed: asyncio.Future[list[Recorded | Declined]]) -> Recorded | Declined:
        """Commit, and try again while the lease lasts where the database was away: an answer in hand is worth it.

        A permit is never tried again: if its commit is uncertain, nothing may be sent (I29). A worker that is leaving
        does not try for ever.
        """
        began = self.shop.clock.monotonic()
        while True:
            try:
                (outcome,) = await handed
                return outcome
            except StoreUnavailable:
                now = self.shop.clock.monotonic()
                if write.live or now + 1 > self.held.ends or (self.shop.leaving() and now > began + GRACE):
                    self.held.lost = True  # the lease is left to expire: nobody can be told
                    raise
                await asyncio.sleep(0.2)
                write = replace(write, basis=None)
                handed = self.shop.commits.hand_in(write)

    async def _declined(self, outcome: Declined, write: Write) -> None:
        """Handle a refused write: keep a late answer, then stop."""
        error, evidence = outcome.error, write.evidence
        if isinstance(error, JobIdTaken):
            await self._one_id_two_operations(error, write)
            return
        if isinstance(error, LeaseLost):
            self.held.lost = True
        if isinstance(evidence, e.Answered) and evidence.call_id is not None:
            await self._keep_late(write)
        if isinstance(error, LeaseLost | IllegalTransition | Refused):
            raise Dropped(error.message)
        raise error

    async def _one_id_two_operations(self, taken: JobIdTaken, write: Write) -> None:
        """One job id stands for two operations: both stop, both keep the evidence (I3)."""
        evidence = write.evidence
        job_id = getattr(evidence, "job_id", "") or ""
        call_id = evidence.call_id if isinstance(evidence, e.Answered) else None
        other = taken.other_operation_id
        why = f"job {job_id} came back for {self.op.operation_id} and already belongs to {other}"
        mine = e.IdentityChanged(**_cited(evidence), why=why, jobs=(job_id,), other_operation=other)
        theirs = e.IdentityChanged(why=why, jobs=(job_id,), other_operation=self.op.operation_id)
        cause = f"call:{call_id}"
        unfenced = replace(self.write(theirs, cause), operation_id=other, fence=None, basis=None)
        (told,) = await self.shop.commits.record(unfenced)
        if isinstance(told, Declined):
            # It has ended: its state stays, and a person is told.
            note = e.Noted(why, late_kind=theirs.kind, late=e.to_data(theirs))
            (told,) = await self.shop.commits.record(replace(unfenced, evidence=note))
        if isinstance(told, Declined):
            log.warning("%s could not be told: %s", other, told.error)
        await self.record(mine, cause, answer=write.answer, release=True)
        raise Dropped(why)

    async def _keep_late(self, write: Write) -> None:
        """Append an answer that came too late to be acted on, so that it can still be judged (I11)."""
        evidence = write.evidence
        note = e.Noted(
            f"a late answer of {self.shop.name}: {evidence.kind}", late_kind=evidence.kind, late=e.to_data(evidence)
        )
        late: e.Evidence = note
        current = await self.shop.commits.run(lambda: self.shop.store.get(self.op.operation_id))
        job_id = evidence.job_id if isinstance(evidence, e.Accepted) else None
        if job_id and current.jobs and job_id not in current.jobs:
            why = f"a late answer brought job {job_id}, after job {current.jobs[0]}"
            late = e.UnfamiliarJobId(**_cited(evidence), why=why, jobs=(*current.jobs, job_id))
        elif isinstance(evidence, e.Violation):
            late = evidence  # a broken promise stops everything, whoever holds the operation by now (I3)
        contract = self.shop.contract_of(current.contract_digest)
        unfenced = replace(
            write,
            evidence=late,
            fence=None,
            basis=None,
            live=False,
            release=False,
            reason="the answer came after the lease was lost",
            plan=lambda op: decide.plan(op, contract, late, write.at, 0.5),
        )
        (outcome,) = await self.shop.commits.record(unfenced)
        if isinstance(outcome, Declined) and late is not note:
            late = note  # it has ended: its state stays, and the note tells a person
            (outcome,) = await self.shop.commits.record(replace(unfenced, evidence=note))
        if isinstance(outcome, Declined):
            log.warning("a late answer for %s could not be kept: %s", self.op.operation_id, outcome.error)

    async def release(self) -> None:
        """Give the lease back. Where the database is away it is left to expire."""
        self.released = True
        try:
            await self.shop.commits.run(
                lambda: self.shop.store.release(self.shop.name, [(self.op.operation_id, self.held.epoch)])
            )
        except StoreUnavailable as error:
            log.warning("the lease of %s is left to expire: %s", self.op.operation_id, error)

    async def stored_request(self, contract: Contract) -> StoredRequest:
        """Return the create request as it was submitted. Raises ConfigWrong where it was changed since."""
        store, operation_id = self.shop.store, self.op.operation_id
        stored, (first,) = await self.shop.commits.run(
            lambda: (store.request_of(operation_id), store.queries.events(operation_id, limit=1))
        )
        submitted = read_body(first.body).entry.evidence
        assert isinstance(submitted, e.Submitted)
        requests.check_unchanged(self.op, contract, stored, submitted)
        return stored

    # --- calling --------------------------------------------------------------------------------------------

    async def within_lease(self, request: Request) -> Request:
        """Cut the call's time so that it ends before the lease does; renew first where little is left (I12)."""
        shop = self.shop
        lease = shop.lease.total_seconds()
        margin = margin_of(lease)
        left = self.held.ends - shop.clock.monotonic()
        if left < min(request.timeout.total_seconds() + margin, lease * 0.75):
            await self.renew()
            left = self.held.ends - shop.clock.monotonic()
        allowed = left - margin
        if allowed <= 0:
            raise Dropped("the lease ends before a call could")
        if request.timeout.total_seconds() <= allowed:
            return request
        return replace(request, timeout=timedelta(seconds=allowed))

    async def ready(self, request: Request) -> Request:
        """Wait for our turn at the provider, and cut the call's time to the lease."""
        await self.shop.turns.take(self)
        return await self.within_lease(request)

    async def fresh_lease(self) -> None:
        """Make sure that half of the lease is left, before work that renews it from then on."""
        if self.held.ends - self.shop.clock.monotonic() < self.shop.lease.total_seconds() / 2:
            await self.renew()

    async def renew(self) -> None:
        """Extend the lease. Raises Dropped where it is no longer ours."""
        before = self.shop.clock.monotonic()
        key = (self.op.operation_id, self.held.epoch)
        kept = await self.shop.commits.run(
            lambda: self.shop.store.renew(self.shop.name, [key], self.shop.lease, self.shop.clock.now())
        )
        if self.op.operation_id not in kept:
            self.held.lost = True
            raise Dropped("the lease could not be renewed")
        self.shop.turns.renewed(self, before)

    def keep(self, outcome: Answer | Failure, contract: Contract) -> StoredAnswer | None:
        """Sanitise and cap an answer for storage; None where there is no body to keep."""
        return kept(outcome, contract, self.shop.redactor())

    async def permitted(
        self,
        action: Action,
        request: Request,
        *,
        strategy: str | None = None,
        may_create: bool = False,
        digest: str | None = None,
    ) -> tuple[Request, str]:
        """Commit the permit of an effectful call and return the request, cut to the lease, and its call id."""
        request = await self.ready(request)
        call_id = new_id("call")
        attempts = self.op.attempts
        sent = e.CallSent(
            call_id=call_id,
            action=action,
            method=request.method,
            url=redact.mask_url(request.url),
            attempt=getattr(attempts, action.value) + 1,
            request_sha256=digest,
            strategy=strategy,
            may_create=may_create,
        )
        try:
            await self.record(sent, f"call:{call_id}", live=True)
            return await self.ready(request), call_id
        except (Dropped, asyncio.CancelledError):
            await self._unused(sent)
            raise

    async def _unused(self, sent: e.CallSent) -> None:
        """Say of a permit that stands that nothing left under it: that is better known than left unknown."""
        call, why = self.op.open_call, "this worker had to stop before anything was sent"
        if call is None or call.call_id != sent.call_id:
            return
        undone: e.Evidence = e.NotDelivered(call_id=call.call_id, action=call.action, why=why)
        if call.action is Action.RECONCILE:
            undone = e.Inconclusive(call_id=call.call_id, why=why, strategy=sent.strategy)
        await self.record(undone, f"call:{call.call_id}", release=True)

    async def send(self, request: Request, call_id: str, *, undone: Callable[[str], e.Evidence]) -> Answer | Failure:
        """Send an effectful request. If we are told to stop meanwhile, record that its fate is unknown."""
        try:
            self.shop.turns.spend(self)
            return await self.shop.http.send(request)
        except asyncio.CancelledError:
            lost = undone("this worker was stopped before an answer came")
            await asyncio.shield(self.record(lost, f"call:{call_id}", release=True))
            raise

    async def look(self, request: Request) -> Answer | Failure:
        """Send a read that is in its turn."""
        self.shop.turns.spend(self)
        return await self.shop.http.send(request)

    async def settle(self, reading: answers.Reading, call_id: str, kept: StoredAnswer | None, *, release: bool) -> None:
        """Record what an answer means; credentials that were refused pause the provider first."""
        if reading.credentials:
            await self.shop.pause(self.op.contract, getattr(reading.evidence, "why", "credentials refused"))
        await self.shop.fared(self.shop.contract_of(self.op.contract_digest), reading.evidence)
        await self.record(reading.evidence, f"call:{call_id}", answer=kept, release=release)


def _cited(evidence: e.Evidence) -> dict[str, Any]:
    """Return where the answer behind some evidence is kept, for the violation that is recorded in its place."""
    if not isinstance(evidence, e.Answered):
        return {}
    return {
        "call_id": evidence.call_id,
        "status": evidence.status,
        "answer": evidence.answer,
        "request_id": evidence.request_id,
        "notes": evidence.notes,
    }
