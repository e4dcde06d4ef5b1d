"""The store: open it, claim what is due, record what happened. The only way to change a record.

Synchronous, and safe to call from several threads; writes of one process wait for each other. A worker calls it from
one thread and hands in many writes at once, so that one fsync serves them all.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from opledger.rules.contract import Contract
from opledger.rules.escalation import Escalation, Track
from opledger.rules.holdups import Standing
from opledger.rules.model import Operation, StoredRequest
from opledger.rules.reach import Budget, Judged, Row
from opledger.store import claims, deliveries, directory, notices, opening, reach, recording, shares
from opledger.store.deliveries import Incoming, KeptDelivery, Match, Named, Parked, Taken
from opledger.store.deliveries import Refused as RefusedDeliveries
from opledger.store.directory import Holding
from opledger.store.encoding import to_micros
from opledger.store.engine import Database, open_database
from opledger.store.notices import FailingTarget, Listening, Settled
from opledger.store.queries import Queries
from opledger.store.reach import Report
from opledger.store.statements import Tx
from opledger.store.tasks import TaskStore
from opledger.store.values import (
    Answer,
    Claim,
    Claimed,
    Declined,
    Opening,
    Provider,
    Recorded,
    Takings,
    WorkerLife,
    Write,
)
from opledger.store.watch import Watch, watch


class Store:
    """One ledger's database. Every method raises StoreUnavailable where the database cannot do its part."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.queries = Queries(database)
        self.tasks = TaskStore(database)
        self._watches: dict[tuple[threading.Thread, bool], Watch] = {}  #: each thread has seen something else

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, create: bool = True, tested: bool = False) -> Self:
        """Open (and where needed make or upgrade) a database; see `open_database`.

        With `tested`, as whoever stays should, also try that this login cannot rewrite history: see `self_test`.
        """
        database = open_database(url, read_only=read_only, create=create)
        if tested and not read_only:
            try:
                database.self_test()
            except BaseException:
                database.close()
                raise
        return cls(database)

    def close(self) -> None:
        """Close all connections, also those of threads that wait for changes; they must have stopped."""
        for one in self._watches.values():
            one.close()
        self._watches.clear()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing ------------------------------------------------------------------------------------------------

    def open_many(self, openings: Sequence[Opening]) -> list[Recorded | Declined]:
        """Write new operations, in one transaction, each with its own outcome.

        The same operation id, or the same task and step, with the same request returns the operation that is there
        (`existing`); with another request it is declined with BodyConflict, which names the first.
        """
        return self.database.write(lambda tx: opening.open_all(tx, openings))

    def record_many(self, writes: Sequence[Write]) -> list[Recorded | Declined]:
        """Record events, in one transaction, each with its own outcome; several for one operation build on each other.

        Declined with LeaseLost (the fence is stale), IllegalTransition, Changed, JobIdTaken, UnknownOperation or
        Refused. When this returns, everything recorded is durable.
        """
        return self.database.write(lambda tx: recording.record(tx, writes))

    def exchange(self, writes: Sequence[Write], ask: Claim) -> tuple[list[Recorded | Declined], Takings]:
        """Record events and claim what is due then, in one transaction: one fsync for both."""
        return self.database.write(lambda tx: (recording.record(tx, writes), claims.claim(tx, ask)))

    # --- leases -------------------------------------------------------------------------------------------------

    def claim(
        self,
        owner: str,
        *,
        limit: int,
        lease: timedelta,
        now: datetime,
        paused: Collection[str] = (),
        full: Collection[str] = (),
        room: Mapping[str, int] | None = None,
    ) -> list[Claimed]:
        """Take due operations under new leases, the longest overdue first.

        Of `paused` contracts only those whose deadline has passed, of `full` ones none, and of a contract named in
        `room` no more than that. Leases are counted by the server's clock; on SQLite by `now`.
        """
        ask = Claim(owner, limit, lease, now, paused, full, room)
        return self.database.write(lambda tx: claims.claim(tx, ask))

    def claim_one(self, operation_id: str, owner: str, lease: timedelta, now: datetime) -> Claimed | None:
        """Take one operation, due or not; None where there is none or somebody holds it."""
        return self.database.write(lambda tx: claims.claim_one(tx, operation_id, owner, lease, now))

    def renew(self, owner: str, held: Sequence[tuple[str, int]], lease: timedelta, now: datetime) -> set[str]:
        """Extend leases, given as (operation id, epoch); returns the ids that are still held."""
        return self.database.write(lambda tx: claims.renew(tx, owner, held, lease, now)) if held else set()

    def release(self, owner: str, held: Sequence[tuple[str, int]]) -> set[str]:
        """Give leases back, given as (operation id, epoch); returns the ids that were still held."""
        return self.database.write(lambda tx: claims.release(tx, owner, held)) if held else set()

    def next_due(self, now: datetime, paused: Collection[str] = (), full: Collection[str] = ()) -> datetime | None:
        """When there is next something to claim: a planned action or deadline, or a lease that runs out."""
        return self.database.read(lambda tx: claims.next_due(tx, now, paused, full))

    def look(self, now: datetime, paused: Collection[str] = ()) -> tuple[datetime | None, frozenset[str]]:
        """As `next_due`, and which contracts have something that is due now, also among those that are paused."""
        return self.database.read(lambda tx: claims.look(tx, now, paused))

    def pinned(self, contract: str) -> str | None:
        """The digest of a contract as the first operation that waits is pinned to it; None where none waits."""
        return self.database.read(lambda tx: claims.pinned(tx, contract))

    def idle_horizon(self, now: datetime | None = None) -> datetime | None:
        """When something becomes due without a person's doing; None where nothing will.

        Polls, deadlines and the leases of dead workers count; approvals do not, and of paused providers only deadlines.
        """
        return self.database.read(lambda tx: claims.idle_horizon(tx, now, directory.paused(tx)))

    # --- reading ------------------------------------------------------------------------------------------------

    def get(self, operation_id: str) -> Operation:
        """One record. Raises UnknownOperation. `queries` holds the other reads for people."""
        return self.queries.get(operation_id)

    def request_of(self, operation_id: str) -> StoredRequest:
        """The create request, exactly as it was stored at submit. Raises UnknownOperation."""
        return self.database.read(lambda tx: directory.request_of(tx, operation_id))

    def answer(self, sha256: str) -> Answer | None:
        """A stored answer by the hash that events cite, or None."""
        return self.database.read(lambda tx: directory.answer(tx, sha256))

    # --- contracts, workers, providers --------------------------------------------------------------------------

    def pin_contract(self, contract: Contract) -> None:
        """Keep this version of a contract for the operations that are submitted under it."""
        self.database.write(lambda tx: directory.pin_contract(tx, contract))

    def contract_source(self, digest: str) -> tuple[str, Mapping[str, str]] | None:
        """The text of a pinned contract and the environment values it used, or None."""
        return self.database.read(lambda tx: directory.contract_source(tx, digest))

    def heartbeat(
        self,
        name: str,
        host: str,
        pid: int,
        at: datetime,
        *,
        started: datetime | None = None,
        lateness: timedelta = timedelta(0),
    ) -> None:
        """Note that a worker is alive, and how late it is; `started` counts at its first sign of life."""
        life = WorkerLife(name, host, pid, started or at, at, lateness)
        self.database.write(lambda tx: directory.heartbeat(tx, life))

    def farewell(self, name: str) -> None:
        """Sign a worker off: its leases and its shares are given back and it leaves the list."""

        def leave(tx: Tx) -> None:
            claims.release_all(tx, name)
            shares.give_up(tx, name)
            reach.give_up(tx, name)
            directory.leave(tx, name)

        self.database.write(leave)

    def workers(self) -> list[WorkerLife]:
        """The workers that gave a sign of life within a day and did not sign off."""
        return self.database.read(directory.workers)

    def holdings(self, now: datetime) -> dict[str, Holding]:
        """How many operations each worker holds and when those leases lapse, by its name."""
        return self.database.read(lambda tx: directory.holdings(tx, now))

    def standing(self, op: Operation, now: datetime) -> Standing | None:
        """The shares of its contract, where an operation is due; else None."""
        if op.next is None or op.next.at is None or op.next.at > now:
            return None
        micros, due = to_micros(now), to_micros(op.next.at)
        return self.database.read(lambda tx: shares.standing(tx, op.contract, micros, due))

    def pause_provider(self, contract: str, by: str, reason: str, at: datetime) -> bool:
        """Stop all calls to a provider; False where they were stopped already, by somebody whose reason stands."""
        return self.database.write(lambda tx: directory.pause(tx, contract, by, reason, at))

    def resume_provider(self, contract: str, by: str, reason: str, at: datetime) -> bool:
        """Allow calls to a provider again; False where they were not stopped."""

        def resume(tx: Tx) -> bool:
            reach.begin_anew(tx, contract)
            return directory.resume(tx, contract, by, reason, at)

        return self.database.write(resume)

    def paused(self) -> dict[str, str]:
        """The paused providers, and why."""
        return self.database.read(directory.paused)

    def providers(self) -> list[Provider]:
        """All providers of this ledger, with their state and how many operations are open."""
        return self.database.read(directory.providers)

    # --- who reaches which provider -----------------------------------------------------------------------------

    def reach(self) -> list[Report]:
        """What workers tell of providers that somebody has trouble with."""
        return self.database.read(reach.told)

    def tell_reach(self, reports: Sequence[Report], now: datetime) -> None:
        """Write down how a worker fares with providers."""
        self.database.write(lambda tx: reach.keep(tx, reports, now))

    def judge_reach(self, mine: Report, own: Row, budget: Budget, now: datetime, *, asides: int) -> Judged:
        """Write down how a worker fares with a provider, and say what it is to do: see `rules.reach.judge`."""
        return self.database.write(lambda tx: reach.judge(tx, mine, own, budget, now, asides=asides))

    def forget_reach(self, owner: str, contract: str) -> None:
        """Remove what a worker told of a provider with which all is well."""
        self.database.write(lambda tx: reach.forget(tx, owner, contract))

    def workers_alive(self, owner: str, now: datetime) -> int:
        """How many workers gave a sign of life within seconds, with this one."""
        return self.database.read(lambda tx: shares.workers_alive(tx, owner, to_micros(now)))

    # --- notices ------------------------------------------------------------------------------------------------

    def untold(self, listening: Listening) -> list[tuple[str, str, datetime]]:
        """(subject, code, since) of the escalations that a target wants to hear of and has no track of."""
        return self.database.read(lambda tx: notices.untold(tx, listening))

    def begin_notices(self, target: str, found: Sequence[tuple[str, str, datetime]], at: datetime) -> None:
        """Begin tracks of these escalations; those that are there stay as they are."""
        self.database.write(lambda tx: notices.begin(tx, target, found, at))

    def due_notices(self, target: str, now: datetime) -> list[Track]:
        """The tracks of a target that must be looked at, the longest due first."""
        return self.database.read(lambda tx: notices.due(tx, target, now))

    def take_notices(self, tracks: Sequence[Track], who: str, until: datetime) -> list[bool]:
        """Take tracks in order to send them, until then; False for those that somebody else has taken."""
        return self.database.write(lambda tx: notices.take(tx, tracks, who, until))

    def settle_notices(self, settled: Sequence[Settled], held_until: datetime | None = None) -> int:
        """Write down what became of tracks, of those that nobody else took meanwhile; returns how many those were."""
        return self.database.write(lambda tx: notices.settle(tx, settled, held_until))

    def review_notices(self, subject: str, at: datetime) -> None:
        """Have everything that was told of an operation or provider looked at again then."""
        self.database.write(lambda tx: notices.look_now(tx, subject, at))

    def notices_of(self, subject: str) -> list[Track]:
        """What each target has been told of an operation or provider."""
        return self.database.read(lambda tx: notices.of_subject(tx, subject))

    def failing_notices(self, targets: Collection[str]) -> list[FailingTarget]:
        """Those of the targets that did not take what they were sent last."""
        return self.database.read(lambda tx: notices.failing(tx, targets))

    def stopped_providers(self) -> dict[str, Escalation]:
        """The escalations of the providers whose calls are stopped, by subject."""
        return self.database.read(notices.stopped)

    # --- deliveries ---------------------------------------------------------------------------------------------

    def named(self, jobs: Sequence[str], tokens: Sequence[str]) -> list[Named]:
        """The operations, of any contract, that have one of these job ids, or one of these as their id or token."""
        return self.database.read(lambda tx: deliveries.named(tx, jobs, tokens))

    def take_deliveries(self, incoming: Sequence[Incoming]) -> list[Taken]:
        """Store deliveries and tell the operations that they are about, in one transaction; durable when it returns."""
        return self.database.write(lambda tx: deliveries.take(tx, incoming))

    def parked_deliveries(self, most: int = 500, *, operation_id: str | None = None) -> list[Parked]:
        """The parked deliveries whose operation is known by now (or that are about this one), the oldest first."""
        return self.database.read(lambda tx: deliveries.known_by_now(tx, most, operation_id))

    def match_deliveries(self, matches: Mapping[str, Sequence[Match]], at: datetime) -> int:
        """Tell operations of deliveries that were parked for them; how many deliveries are parked no longer."""
        return self.database.write(lambda tx: deliveries.match(tx, matches, at)) if matches else 0

    def sweep_deliveries(self, before: datetime) -> int:
        """Remove some deliveries that came before a time; returns how many."""
        return self.database.write(lambda tx: deliveries.sweep(tx, before))

    def deliveries(
        self, *, operation_id: str | None = None, parked: bool = False, most: int = 100
    ) -> list[KeptDelivery]:
        """Deliveries as they are kept, the newest first: of one operation, those that match nothing yet, or all."""
        return self.database.read(lambda tx: deliveries.listed(tx, operation_id=operation_id, parked=parked, most=most))

    def parked_counts(self) -> dict[str, tuple[int, datetime]]:
        """How many deliveries match nothing yet, and since when, by contract."""
        return self.database.read(deliveries.parked_counts)

    def count_refusals(self, refused: Mapping[tuple[str, str], int], at: datetime) -> None:
        """Add to the counters of refused deliveries, given as (contract, kind): times."""
        self.database.write(lambda tx: deliveries.count_refusals(tx, refused, at))

    def refusals(self) -> list[RefusedDeliveries]:
        """How often deliveries were refused, by contract and kind."""
        return self.database.read(deliveries.refusals)

    # --- waiting ------------------------------------------------------------------------------------------------

    def wait_for_change(
        self, timeout: float, stop: threading.Event | None = None, *, others_only: bool = False
    ) -> bool:
        """Block until somebody has written since this thread's last call; False after `timeout` seconds, or on `stop`.

        With `others_only`, what this store itself wrote does not count: for a worker, which knows that already.
        The first call of a thread returns at once: nobody knows what it has missed.
        """
        key = (threading.current_thread(), others_only)
        if key not in self._watches:
            self._forget_the_dead()
            self._watches[key] = watch(self.database, others_only=others_only)
        return self._watches[key].wait(timeout, stop or threading.Event())

    def _forget_the_dead(self) -> None:
        """Close what threads watched with that have ended: each is a session, and a server has a hundred of them."""
        for key in [key for key in list(self._watches) if not key[0].is_alive()]:
            one = self._watches.pop(key, None)
            if one is not None:
                one.close()
