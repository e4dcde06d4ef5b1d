"""The worker: claim, decide, permit, request, send, read, record. The hub that knows rules, store and edges.

`Worker.run` looks at the table whenever something may be due: when another process wrote, when a drive ended, when
the earliest planned time comes, and at the latest every tick. Nothing about an operation lives in here between looks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.edges.clock import Clock, SystemClock, new_id
from opledger.edges.http import Http
from opledger.edges.place import acting
from opledger.edges.secrets import SecretResolver
from opledger.edges.stores import ResultStore
from opledger.errors import ConfigWrong, DatabaseReplaced, OpledgerError, StoreUnavailable, UnknownOperation
from opledger.rules.contract import Contract
from opledger.rules.evidence import Evidence
from opledger.rules.model import Actor, ActorKind, Operation
from opledger.store import Claim, Claimed, Store
from opledger.store.encoding import from_micros
from opledger.worker.absence import Absence
from opledger.worker.commits import Commits
from opledger.worker.drive import Drive
from opledger.worker.hand import GRACE, Held, Workshop
from opledger.worker.known import Known
from opledger.worker.limits import Limits, Unread
from opledger.worker.reach import Reach
from opledger.worker.renewing import renew_all
from opledger.worker.shared_clock import SharedClock
from opledger.worker.turns import Turns
from opledger.worker.watching import wake_on_change

log = logging.getLogger("opledger.worker")

LEFT_OVER: Final = timedelta(hours=6)
"""Age after which a temporary file belongs to no transfer that is still under way."""

CLAIM: Final = 200
"""Most operations claimed in one transaction."""


class Worker:
    """One poll loop over one ledger.

    `name` is shown to people; the lease owner is the name and a random part, so that a restarted worker of the same
    name is never taken for its own ghost (B38).
    """

    def __init__(
        self,
        store: Store,
        *,
        results: ResultStore,
        name: str | None = None,
        lease: timedelta = timedelta(seconds=30),
        concurrency: int = 200,
        tick: timedelta = timedelta(seconds=1),
        clock: Clock | None = None,
        secrets: SecretResolver | None = None,
    ) -> None:
        self.store = store
        self.clock = SharedClock(clock or SystemClock())
        self.name = f"{name or socket.gethostname()}-{new_id('w')[2:8]}"
        self.lease = lease
        self.concurrency = concurrency
        self.tick_every = tick
        self._results = results
        self._secrets = secrets or SecretResolver(os.environ)
        self._limits = Limits()
        self._reach = Reach(self.name, store, self.clock, self._limits)
        self._known = Known(store, self._secrets)
        self._paused: dict[str, str] = {}
        self._drives: dict[asyncio.Task[None], tuple[Drive, str]] = {}
        self._wake = asyncio.Event()
        self._due_at: datetime | None = None
        self._claimed_at = 0.0
        self._absence = Absence()
        self._lateness = timedelta(0)
        self._broken: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._signed_off = False

    # --- the loop -------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event, *, until_idle: bool = False, once: bool = False) -> None:
        """Drive operations until told to stop, until nothing will become due without a person, or for one look.

        Raises StoreUnavailable where the database cannot be used at the start; once running, the worker sends
        nothing while the database is away and goes on by itself when it is back. Raises DatabaseReplaced at once.
        """
        self._stop = stop
        self._equip()
        watching = threading.Event()
        watcher = wake_on_change(self.store, self._wake, watching)
        present = False
        try:
            await self.heartbeat()
            present = True
            if once:
                await self._look_once(stop)
            else:
                watcher.start()
                await self._loop(stop, until_idle=until_idle)
        finally:
            watching.set()
            if present:
                await self._wind_down()
            await self._http.aclose()
            self._commits.close()
            if watcher.is_alive():
                await asyncio.to_thread(watcher.join, 2)

    async def _loop(self, stop: asyncio.Event, *, until_idle: bool) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self._wake.clear()
                try:
                    found = await self.tick()
                    if until_idle and not self._drives and not found and await self._idle():
                        break
                    self._absence.over()
                except DatabaseReplaced:
                    raise
                except StoreUnavailable as error:
                    found = 0
                    await self._absence.wait(error, stopping)
                if found >= CLAIM and len(self._drives) < self.concurrency:
                    continue
                await self._rest(stopping)
                if self._broken is not None:
                    break
            if self._broken is not None:
                raise self._broken
        finally:
            stopping.cancel()

    async def _look_once(self, stop: asyncio.Event) -> None:
        """Drive what is due, each operation at least once, in as many rounds as the limits make of it."""
        stopping = asyncio.ensure_future(stop.wait())
        driven: set[str] = set()
        try:
            while not stop.is_set():
                before = len(driven)
                await self.tick()
                driven.update(drive.op.operation_id for drive, _ in self._drives.values())
                while self._drives and not stop.is_set():
                    self._wake.clear()
                    await self.tick(0)  # for those that wait for their turn
                    wait = self._limits.next_room(self.clock.monotonic(), begins=False)
                    await self._sleep(wait, stopping, *self._drives)
                if self._broken is not None:
                    raise self._broken
                if len(driven) == before:
                    return
        finally:
            stopping.cancel()

    async def _rest(self, stopping: asyncio.Future[Any]) -> None:
        """Sleep until something may be due: a wake-up, the earliest planned time, or the tick."""
        pause = self.tick_every.total_seconds()
        if self._due_at is not None and len(self._drives) < self.concurrency:
            pause = min(pause, max((self._due_at - self.clock.now()).total_seconds(), 0.0005))
        refill = self._limits.next_room(self.clock.monotonic(), begins=len(self._drives) < self.concurrency)
        if refill is not None:
            pause = min(pause, refill)
        await self._sleep(pause, stopping)

    async def _sleep(self, seconds: float | None, *others: asyncio.Future[Any]) -> None:
        waking = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({waking, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()

    def wake(self) -> None:
        """Make the loop look at the table now."""
        self._wake.set()

    async def tick(self, most: int = CLAIM) -> int:
        """Claim what is due and start driving it; returns how many operations were claimed."""
        limit = min(self.concurrency - len(self._drives), most)
        if limit <= 0 and not self._limits.waits(self.clock.monotonic()):
            return 0
        with self._limits.claiming():
            claimed = await self._commits.claim(lambda writing: self._ask(max(limit, 0), writing=writing))
            self._limits.granted(claimed.grants, self.clock.monotonic(), self.clock.monotonic_at)
            for one in claimed:
                self._start(one)
        self._limits.serve(self.clock.monotonic())
        if claimed:
            planned = claimed[0].operation.next
            if planned is not None and planned.at is not None:
                self._lateness = max(self.clock.now() - planned.at, timedelta(0))
            if len(claimed) >= limit:
                self._due_at = self.clock.now()
        return len(claimed)

    def _ask(self, limit: int, *, writing: bool) -> Claim | None:
        """On the store's thread: say what to claim, or None where nothing is due.

        Where a transaction is under way anyway, claiming costs next to nothing, and a due operation that the last look
        did not know of is found without another one.
        """
        self._claimed_at = self.clock.monotonic()  # before the time of day: nothing may last longer here than there
        now, limits = self.clock.now(), self._limits
        self._paused = self.store.paused()
        for name in limits.pauses(self._paused, self.clock.monotonic()):
            self._reach.resumed(name)
        # A provider without room is treated as a paused one: deadlines that have passed need no call and are kept.
        held = {*self._paused, *limits.full(self.clock.monotonic())}
        self._due_at, due = self.store.look(now, held)
        due = due.difference(self._paused)
        limits.note(due, self.clock.monotonic())
        ready = limit > 0 and self._due_at is not None and (self._due_at <= now or writing)
        if not ready and not limits.waits(self.clock.monotonic()):
            return None
        for name in limits.unknown(due):  # before anything of it is claimed
            contract = self._known.waiting(name)
            if contract is not None:
                limits.know(contract)
        wants = limits.wants(self._claimed_at, due)
        known = Unread({want.contract: limit for want in wants})
        return Claim(self.name, limit, self.lease, now, paused=held, room=known, wants=wants)

    def _start(self, claimed: Claimed) -> None:
        operation = claimed.operation
        assert operation.lease is not None
        # Counted from before the claim, on our own clock: never later than the database counts it.
        held = Held(operation.lease.epoch, self._claimed_at + self.lease.total_seconds())
        drive = Drive(self._shop, claimed, held)
        try:
            self._limits.know(self._known.contract(operation.contract_digest))
        except ConfigWrong as wrong:
            log.error("%s cannot be driven: %s", operation.operation_id, wrong)
        if claimed.seated:
            self._limits.began(drive.turn, self.clock.monotonic_at(claimed.moment) if claimed.moment else None)
        task = asyncio.create_task(drive.run(), name=operation.operation_id)
        self._drives[task] = (drive, operation.contract)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        drive, _ = self._drives.pop(task)
        self._limits.ended(drive.turn, self.clock.monotonic())
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            if isinstance(error, OpledgerError):
                log.error("driving %s failed: %s", drive.op.operation_id, error)
            else:
                # A fault of ours: stop loudly rather than poll on with a record nobody understands.
                log.error("driving %s broke", drive.op.operation_id, exc_info=error)
                self._broken = error
        self._wake.set()

    async def _idle(self) -> bool:
        horizon = await self._commits.run(self.store.idle_horizon)
        if horizon is not None:
            self._due_at = min(self._due_at, horizon) if self._due_at is not None else horizon
        return horizon is None

    async def read_once(self, operation_id: str) -> Operation | None:
        """Do one status read now under a lease of our own, recorded; None where another worker holds the lease.

        For a worker that does not run. Raises UnknownOperation where there is no remote job yet, and ConfigWrong where
        the operation has no address to read.
        """
        if self.store.get(operation_id).remote_job_id is None:
            raise UnknownOperation(f"{operation_id} has no remote job to read yet")
        self._equip(limited=False)  # a person asked for this one call, and no share is held for it
        try:
            await self._commits.run(self._set_clock)
            began, now = self.clock.monotonic(), self.clock.now()
            claimed = await self._commits.run(lambda: self.store.claim_one(operation_id, self.name, self.lease, now))
            if claimed is None or claimed.operation.lease is None:
                return None
            held = Held(claimed.operation.lease.epoch, began + self.lease.total_seconds())
            await Drive(self._shop, claimed, held).read_now(self._known.contract(claimed.operation.contract_digest))
            return self.store.get(operation_id)
        finally:
            await self._http.aclose()
            self._commits.close()

    # --- upkeep, called by the service's scheduler ----------------------------------------------------------

    async def renew(self) -> None:
        """Renew the leases of all drives; those that are lost stop before their lease ends."""
        await renew_all(self._shop, {task: drive for task, (drive, _) in self._drives.items()})

    async def heartbeat(self) -> None:
        """Say in the database that this worker is alive and how late it is, and set our clock by the database's.

        Raises SchemaMismatch where the tables have become those of another version meanwhile.
        """
        if not self._signed_off:
            await self._commits.run(self._sign_of_life)

    def _sign_of_life(self) -> None:
        self.store.database.check_version()
        self._set_clock()
        host, process = socket.gethostname(), os.getpid()
        self.store.heartbeat(self.name, host, process, self.clock.now(), lateness=self._lateness)
        self._reach.beat()

    def _set_clock(self) -> None:
        # Counted from when there is a connection: to make one may take long, and that says nothing of the clock.
        asked, shared, answered = self.store.database.read(
            lambda tx: (self.clock.monotonic(), tx.clock(), self.clock.monotonic())
        )
        self.clock.learn(None if shared is None else from_micros(shared), asked, answered)

    def sweep(self) -> None:
        """Remove what broken transfers left behind."""
        self._results.sweep(self.clock.now() - LEFT_OVER)

    # --- stopping -------------------------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """Let calls under way finish for a moment, leave the rest as unknown, release leases. Cancels no job."""
        self._limits.dismiss()
        if self._drives:
            await asyncio.wait(set(self._drives), timeout=min(GRACE, self.lease.total_seconds() / 2))
        left = list(self._drives)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        self._signed_off = True  # a sign of life after this would outlive us
        try:
            await self._commits.run(lambda: self.store.farewell(self.name))
        except StoreUnavailable as error:
            log.warning("could not sign off: %s", error)

    # --- pieces ---------------------------------------------------------------------------------------------

    def _equip(self, *, limited: bool = True) -> None:
        """Make what belongs to one event loop. Call it inside of that loop."""
        self._commits = Commits(self.store)
        self._http = Http(self.clock, self._secrets, max_connections=self.concurrency)
        leaving = lambda: self._stop is not None and self._stop.is_set()  # noqa: E731
        self._shop = Workshop(
            name=self.name,
            worker=acting(Actor(self.name, ActorKind.WORKER)),
            policy=acting(Actor(self.name, ActorKind.POLICY)),
            store=self.store,
            commits=self._commits,
            clock=self.clock,
            http=self._http,
            results=self._results,
            turns=Turns(
                self._limits if limited else None,
                self.clock.monotonic,
                self._wake.set,
                self.lease,
                leaving,
                self._paused_because,
            ),
            lease=self.lease,
            contract_of=self._known.contract,
            paused=self._paused_because,
            pause=self._pause,
            skip=self._reach.missing,
            redactor=self._known.redactor,
            planned=self._planned,
            fared=self._fared,
            leaving=leaving,
        )

    def _paused_because(self, contract: str) -> str | None:
        return self._paused.get(contract) or self._reach.aside(contract)

    def _planned(self, operation: Operation) -> None:
        if operation.next is not None and operation.next.at is not None:
            self._due_at = operation.next.at if self._due_at is None else min(self._due_at, operation.next.at)

    async def _pause(self, contract: str, reason: str) -> None:
        """Stop all calls to one provider: one escalation instead of five hundred failures."""
        if contract in self._paused:
            return
        self._paused = {**self._paused, contract: reason}
        now = self.clock.now()
        try:
            await self._commits.run(lambda: self.store.pause_provider(contract, self.name, reason, now))
        except StoreUnavailable as error:
            # The answer that asked for it is still to be recorded; the next one like it asks again.
            log.warning("%s could not be paused: %s", contract, error)

    async def _fared(self, contract: Contract, evidence: Evidence) -> None:
        """Count what a call to a provider brought, and pause the provider once its error budget is spent by all."""
        if self._reach.fared(contract, evidence):
            why = await self._reach.judge(contract.name, getattr(evidence, "why", ""), self._commits.run)
            if why is not None:
                await self._pause(contract.name, why)
