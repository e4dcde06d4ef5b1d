"""The product's own shell on simulated ground: its commits without a thread, its HTTP edge without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import httpx

from opledger.edges.carriers import Outgoing, Reply
from opledger.edges.clock import Clock
from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.errors import StoreUnavailable
from opledger.rules import evidence as e
from opledger.rules.calls import Request
from opledger.store import Store
from opledger.worker import commits as committing
from opledger.worker.commits import Commits
from tests.simulation.loop import Process, current
from tests.simulation.ports import TLS

if TYPE_CHECKING:
    from tests.simulation.world import World


class SimCommits(Commits):
    """The product's group commit; what its thread does between two looks at the queue happens in the loop."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._most = 400
        self._loop = asyncio.get_running_loop()
        self._world = world
        self._process = current()
        self._pile: list[Any] = []
        self._under_way = False

    def _put(self, job: Any) -> Any:
        for write in job.writes:
            if isinstance(write.evidence, e.CallSent):
                self._world.at_the_permit(write.operation_id, write.evidence)
        self._pile.append(job)
        if not self._under_way:
            self._begin()
        return job.future

    def _begin(self) -> None:
        world, self._under_way = self._world, True
        delay = world.moment(0.0005, 0.004)
        if world.swarm.strikes("commit slow", world.chance):
            world.hit("commit slow", "worker")
            delay += world.moment(0.5, 45.0)
        world.loop.in_strand(self._process, self._turn, delay=delay)

    def close(self) -> None:
        """Do what is left."""
        while self._pile:
            self._turn()

    def _turn(self) -> None:
        world, self._under_way = self._world, False
        batch, self._pile = self._pile, []
        writes = [one for one in batch if one.writes]
        phase = world.phase_of(writes)
        if writes and world.dies("killed before commit", self._process, phase):
            return
        settled = self._commit(writes, [one for one in batch if one.claim is not None])
        settled += [self._settle(one) for one in batch if one.work is not None]
        if writes and world.dies("killed after commit", self._process, phase):
            return
        if any(isinstance(write.evidence, e.CallSent) for one in writes for write in one.writes):
            world.holds_up(self._process, phase)
        if world.swarm.strikes("told late", world.chance):
            world.hit("told late", phase)
            self._under_way = True  # the one thread that there is waits for the disk
            world.loop.in_strand(self._process, self._told, settled, delay=world.moment(0.5, 45.0))
        else:
            committing._deliver(settled)

    def _told(self, settled: Any) -> None:
        self._under_way = False
        committing._deliver(settled)
        if self._pile:
            self._begin()


class SimReply:
    """What comes of a request: the head, and all of the body, or half of it and then an error."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, *, cut: bool) -> None:
        self.status, self.headers = status, headers
        self._body, self._cut = body, cut

    async def chunks(self) -> AsyncIterator[bytes]:
        """Give the body."""
        if self._cut:
            yield self._body[: len(self._body) // 2]
            raise httpx.RemoteProtocolError("the peer closed the connection")
        yield self._body

    async def aclose(self) -> None:
        """Nothing is open."""


class SimCarrier:
    """In place of sockets."""

    def __init__(self, world: World, *, effectful: bool) -> None:
        self._world, self._effectful = world, effectful

    async def carry(self, outgoing: Outgoing) -> Reply:
        """Send a request through the simulated network."""
        return await self._world.exchange(outgoing, effectful=self._effectful)

    async def aclose(self) -> None:
        """Nothing is open."""


class SimHttp(Http):
    """The product's HTTP edge, with everything in it but the sockets."""

    def __init__(self, clock: Clock, secrets: SecretResolver, *, max_connections: int, world: World) -> None:
        super().__init__(clock, secrets, max_connections=max_connections, tls=TLS)
        self._effects = SimCarrier(world, effectful=True)
        self._reads = self._abroad = SimCarrier(world, effectful=False)
        self._world = world

    async def send(self, request: Request) -> Any:
        """As the product's, and how long the exchange took is looked at."""
        began, process = self._world.loop.now, current()
        stalls = process.stalls
        outcome = await super().send(request)
        took = self._world.loop.now - began
        if took > request.timeout.total_seconds() + 0.25 and process.stalls == stalls:
            self._world.problem("I12", f"a call with {request.timeout} took {took:.2f} s")
        return outcome


_COMPILED: dict[Any, Any] = {}


class _Reader:
    """A connection that only reads, handed out by `_Readers`."""

    __slots__ = ("_home", "_real", "cursor", "invalidate")

    def __init__(self, home: list[_Reader], real: Any) -> None:
        self._home, self._real = home, real
        self.cursor: Callable[[], Any] = real.driver_connection.cursor
        self.invalidate: Callable[[], None] = self._throw_away

    def close(self) -> None:
        """Give it back."""
        if self._real is not None:
            self._home.append(self)

    def _throw_away(self) -> None:
        self._real.invalidate()
        self._real = None


class _Readers:
    """In place of a pool with its locks and time-outs, in front of it: here is one thread, and nobody waits."""

    def __init__(self, pool: Any) -> None:
        self._pool, self._free = pool, list[_Reader]()

    def raw_connection(self) -> _Reader:
        """Hand one out."""
        return self._free.pop() if self._free else _Reader(self._free, self._pool.raw_connection())

    def dispose(self) -> None:
        """Close them all."""
        for one in self._free:
            one._real.close()
        self._free.clear()
        self._pool.dispose()


def _there() -> None:
    """Nobody takes the file of a seed away; `tests/core/store` and `tests/faults` do that to others."""


def faulty(world: World, store: Store) -> None:
    """Let writes of a store fail as the swarm has it: before anything happened, or after all of it did."""
    database = store.database
    database._known = _COMPILED  # statements are the same for every file
    database._readers = _Readers(database._readers)  # type: ignore[assignment]
    database.side.present = _there  # type: ignore[method-assign]
    real: Callable[..., Any] = database.write

    def write(work: Any) -> Any:
        process: Process = current()
        if world.swarm.strikes("store busy", world.chance):
            world.hit("store busy", world.busy_phase(process))
            raise StoreUnavailable("the database is locked (simulated)")
        found = real(work)
        world.committed(process)
        if world.swarm.strikes("commit uncertain", world.chance):
            world.hit("commit uncertain", world.busy_phase(process))
            raise StoreUnavailable("whether it was stored is not known (simulated)")
        return found

    database.write = write  # type: ignore[method-assign]
    _watched(world, store)


def _watched(world: World, store: Store) -> None:
    """Keep book of leases as they were handed out (I10), and read once between two commits what only they change."""
    exchange, renew, paused = store.exchange, store.renew, store.paused

    def exchanged(writes: Any, ask: Any) -> Any:
        outcomes, claimed = exchange(writes, ask)
        now = world.clock.now()
        for one in claimed:
            world.leased(one.operation.operation_id, one.operation.lease, one.taken_from, now)
        return outcomes, claimed

    def renewed(owner: str, held: Any, lease: Any, now: Any) -> set[str]:
        kept = renew(owner, held, lease, now)
        for operation in kept:
            if operation in world.leases:  # else it was claimed by a commit whose outcome nobody heard
                world.leases[operation] = (world.leases[operation][0], now + lease)
        return kept

    def paused_now() -> dict[str, str]:
        if world.paused is None or world.paused[0] != world.steps.commits:
            world.paused = (world.steps.commits, paused())
        return dict(world.paused[1])

    store.exchange, store.renew, store.paused = exchanged, renewed, paused_now  # type: ignore[method-assign]
