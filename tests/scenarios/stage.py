"""A whole story in one process: a real ledger, a real worker, real sockets, and time that passes only when told.

The worker works in turns. In one turn it does all that is due now; between turns the clock is moved to the next planned
moment. So hours pass in milliseconds, nothing sleeps, and what left in which order is read from the provider's log.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from opledger.config import load_settings
from opledger.edges.files import ResultFolder
from opledger.edges.secrets import SecretResolver
from opledger.ledger import Ledger
from opledger.rules.model import Operation, State, to_rfc3339
from opledger.sim.contracts import DEFAULT_TOKEN, contract_name, contract_text
from opledger.sim.judge import judge
from opledger.store import Store
from opledger.worker import Worker
from tests.fakes.clock import HandClock
from tests.fakes.sim import SimThread
from tests.support.databases import admin

T = TypeVar("T")

LONG: Final[Mapping[str, str]] = {"create": "10m", "result": "2h", "cancel": "10m", "collect": "15m"}
POLL: Final = ('first = "50ms"\nfactor = 1.6\nmax = "400ms"', 'first = "1s"\nfactor = 2.0\nmax = "60s"')
"""A pace for jobs that run for hours."""

LEASE: Final = timedelta(minutes=10)
TURNS: Final = 1000
"""Most turns of one story; one that wants more goes round in a circle."""

PATIENCE: Final = 60.0
BREATH: Final = 0.02
"""Real seconds in which nothing ended and nobody woke the worker: then somebody may be waiting for his turn."""

CALLS: Final = frozenset({"create", "cancel", "status", "result", "list"})


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scenario-worker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start something in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop, and wait for it."""
        return self.begin(work).result(60)


class Death(Exception):
    """The worker is no more: whatever it knew and had not written down is lost."""


class TurnWorker(Worker):
    """A worker that does what is due, and stands still."""

    dead = False
    frozen = threading.Event()
    hand: HandClock  #: the time of the story

    async def equip(self, dies: tuple[str, str] | None = None) -> None:
        """Get ready. Without a heartbeat: no database server's clock replaces the one of the story.

        `dies`: before or after it records the first evidence of a kind.
        """
        self._equip()
        if dies is not None:
            self._commits.hand_in = _until_death(self._commits, *dies)  # type: ignore[method-assign]

    async def turn(self) -> int:
        """Do all that is due now; returns how many operations were taken."""
        taken = 0
        while True:
            found = await self.tick()
            while self._drives:
                await self._look_after()
            if self._broken is not None:
                self.dead = isinstance(self._broken, Death)
                raise self._broken
            if not found or self.dead:
                return taken
            taken += found

    async def _look_after(self) -> None:
        """Let those work that were begun, and have those that wait for their turn get it; for these time passes."""
        self._wake.clear()
        await self.tick(0)
        waking = asyncio.ensure_future(self._wake.wait())
        ended, _ = await asyncio.wait({waking, *self._drives}, timeout=BREATH, return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()
        if not ended:
            self._pass_for_all()
        await asyncio.sleep(0)

    def _pass_for_all(self) -> None:
        """Let time pass to the next turn, where all wait for a place or for their moment."""
        now, room = self.clock.monotonic(), self._limits.next_room(self.clock.monotonic(), begins=False)
        queued = {id(turn) for part in self._limits._parts.values() for turn in part.queue if not turn.told.is_set()}
        turns = [drive.turn for drive, _ in self._drives.values()]
        moments = [turn.begins - now for turn in turns if turn.begins is not None and turn.begins > now]
        if sum(id(turn) in queued for turn in turns) + len(moments) < len(turns):
            return
        self.hand.pass_by(min([*moments, *([] if room is None else [room])], default=0.0))
        for turn in turns:
            turn.told.set()

    async def close(self) -> None:
        """Let go of everything, as at the end of a run."""
        try:
            await self._wind_down()
        finally:  # a worker that has died says so here
            await self._http.aclose()
            self._commits.close()


def _until_death(commits: Any, when: str, kind: str) -> Any:
    record = commits.hand_in

    async def recording(*writes: Any) -> Any:
        fatal = any(write.evidence.kind == kind for write in writes)
        if fatal and when == "after":
            await record(*writes)
        if fatal:

            async def no_more(*_: Any) -> Any:
                raise Death

            commits.hand_in = lambda *_: asyncio.ensure_future(no_more())
            commits.run = no_more
            raise Death
        return await record(*writes)

    return lambda *writes: asyncio.ensure_future(recording(*writes))


class Stage:
    """One ledger, its people and agents, and one worker."""

    def __init__(self, folder: Path, url: str, sim: SimThread, clock: HandClock, loop: Loop) -> None:
        self.folder, self.url, self.sim, self.clock, self.loop = folder, url, sim, clock, loop
        self.contracts = folder / "contracts"
        self.contracts.mkdir(exist_ok=True)
        self.secrets: dict[str, str] = {}  #: more variables that the worker finds secrets in
        self._policies = ""
        self._ledger: Ledger | None = None
        self._workers: list[tuple[TurnWorker, Store]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker, store in self._workers:
            with suppress(Death):
                self.loop.run(worker.close())
            store.close()
        if self._ledger is not None:
            self._ledger.close()

    # --- people ---------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The ledger, as people and agents use it."""
        if self._ledger is None:
            (self.folder / "opledger.toml").write_text(self._policies, encoding="utf-8")
            environment = {"OPLEDGER_CONTRACTS": str(self.contracts), "OPLEDGER_OPERATOR": "olga"}
            settings = load_settings({"db": self.url}, environment, self.folder, self.folder / "no", self.folder / "no")
            self._ledger = Ledger.open(settings=settings, clock=self.clock)
        return self._ledger

    def policies(self, toml: str) -> None:
        """Write policies, before the ledger is first used."""
        assert self._ledger is None
        self._policies = toml

    def contract(
        self, flavour: str = "v1", changes: Mapping[str, str] | None = None, *, more: str = "", **deadlines: str
    ) -> str:
        """Write the contract of a flavour, with some of its text replaced and some added; returns its name."""
        text = contract_text(flavour, self.sim.base_url, elsewhere=self.sim.elsewhere, deadlines={**LONG, **deadlines})
        for old, new in (POLL, *(changes or {}).items()):
            assert old in text, f"the contract does not say {old!r}"
            text = text.replace(old, new)
        name = contract_name(flavour)
        (self.contracts / f"{name}.toml").write_text(text + more, encoding="utf-8")
        return name

    def submit(
        self, personality: str = "ideal", variant: str | None = None, *, flavour: str = "v1", by: str = "agent-7",
        wish: Mapping[str, Any] | None = None, **body: Any,
    ) -> Operation:  # fmt: skip
        """Write down a new operation whose job will be so; `wish` are arguments of `Ledger.submit`."""
        name = contract_name(flavour)
        if not (self.contracts / f"{name}.toml").exists():
            self.contract(flavour)
        asked = {"account": "acct_218", "rows": 3, "_personality": personality, **body}
        if variant is not None:
            asked["_variant"] = variant
        return self.ledger.submit(name, asked, requested_by=by, **(wish or {}))

    # --- the worker -----------------------------------------------------------------------------------------------

    @property
    def worker(self) -> TurnWorker:
        """The worker; made on first use."""
        alive = [worker for worker, _ in self._workers if not worker.dead]
        return alive[0] if alive else self.another_worker()

    def another_worker(self, dies: tuple[str, str] | None = None) -> TurnWorker:
        """Make a worker with a connection of its own; `dies` as in `TurnWorker.equip`."""
        self.ledger  # noqa: B018 - the ledger's file is made before
        store = Store.open(self.url)
        worker = self._make_worker(store, f"w{len(self._workers) + 1}")
        worker.hand = self.clock
        self._workers.append((worker, store))
        self.loop.run(worker.equip(dies))
        return worker

    def dies(self, when: str, kind: str, operation: Operation) -> None:
        """Let a worker work on the operation until it dies, before or after it records a kind of evidence.

        The worker after it is another one.
        """
        dead = self.another_worker((when, kind))
        end = monotonic() + PATIENCE
        while monotonic() < end:
            try:
                self.turn(dead)
            except Death:
                break
            planned = self.show(operation).next
            assert planned is not None and planned.at is not None
            # It waits for a place that the worker before had: on a server for a real second.
            self._passes_to(planned.at, held_back=0.02)
        else:
            raise AssertionError(f"it does not die: {self.kinds(operation)}")

    def _make_worker(self, store: Store, name: str) -> TurnWorker:
        results = ResultFolder.from_setting(str(self.folder / "results"))
        secrets = SecretResolver({"SIM_TOKEN": DEFAULT_TOKEN, **self.secrets})
        return TurnWorker(store, results=results, name=name, lease=LEASE, clock=self.clock, secrets=secrets)

    def stop(self, worker: TurnWorker) -> None:
        """Stop a worker, as a signal does; the next turn is another one's."""
        worker.dead = True
        self.loop.run(worker.close())
        for pair in [pair for pair in self._workers if pair[0] is worker]:
            self._workers.remove(pair)
            pair[1].close()

    def turn(self, worker: TurnWorker | None = None) -> int:
        """Let the worker do what is due now."""
        return self.loop.run((worker or self.worker).turn())

    def begin(self) -> Future[int]:
        """Let the worker begin a turn, and go on meanwhile."""
        return self.loop.begin(self.worker.turn())

    def passes(self, seconds: float) -> None:
        """Let time pass in which nobody works."""
        self.clock.pass_by(seconds)

    def _passes_to(self, moment: datetime, held_back: float = 0.25) -> None:
        """Let time pass until something is due. What is due and was not taken needs time, and no particular moment."""
        ahead = (moment - self.clock.now()).total_seconds()
        self.clock.pass_by(max(0.001, ahead) if ahead > 0 else held_back)

    def run(self, seconds: float = 1e9) -> None:
        """Let the worker work on until nothing will become due without a person, or so much time has passed."""
        end = self.clock.now() + timedelta(seconds=min(seconds, 1e8))
        for _ in range(TURNS):
            self.turn()
            horizon = self.ledger.store.idle_horizon(self.clock.now())
            if horizon is None or horizon > end:
                self.clock.pass_by(0 if seconds > 1e8 else max(0.0, (end - self.clock.now()).total_seconds()))
                return
            self._passes_to(horizon)
        raise AssertionError(f"it never comes to rest: {[(op.state, op.next) for op in self.operations()]}")

    def until(self, operation: Operation, holds: Callable[[Operation], bool], turns: int = 60) -> Operation:
        """Let the worker work, turn by turn and moment by moment, until the record is so."""
        for _ in range(turns):
            self.turn()
            found = self.show(operation)
            if holds(found):
                return found
            horizon = self.ledger.store.idle_horizon(self.clock.now())
            assert horizon is not None, f"nothing is due any more: {found.state}, {self.kinds(operation)}"
            self._passes_to(horizon)
        raise AssertionError(f"still {self.show(operation).state}: {self.kinds(operation)}")

    def until_state(self, operation: Operation, *states: State) -> Operation:
        """Let the worker work until the operation is in one of these states."""
        return self.until(operation, lambda op: op.state in states)

    def on(self, operation: Operation) -> None:
        """Let the worker run on for a long time, to see that nothing more comes of it."""
        self.run(seconds=7200)

    # --- looking --------------------------------------------------------------------------------------------------

    def operations(self) -> list[Operation]:
        """All records."""
        return list(self.ledger.list())

    def show(self, operation: Operation) -> Operation:
        """The record as it stands."""
        return self.ledger.store.get(operation.operation_id)

    def kinds(self, operation: Operation) -> list[str]:
        """The kinds of evidence in its journal, in order."""
        return [event.kind for event in self.ledger.events(operation.operation_id)]

    def told(self, operation: Operation, kind: str) -> list[dict[str, Any]]:
        """The data of all evidence of one kind in its journal, in order."""
        events = self.ledger.events(operation.operation_id)
        return [dict(event.data or {}) for event in events if event.kind == kind]

    def kept(self, operation: Operation) -> list[tuple[str, str]]:
        """The answers that its journal refers to: kind of evidence, and text."""
        found = []
        for event in self.ledger.events(operation.operation_id):
            digest = (event.data or {}).get("answer")
            if digest is not None:
                stored = self.ledger.store.answer(digest)
                assert stored is not None, f"the answer of {event.kind} is not in the ledger"
                found.append((event.kind, stored.body.decode("utf-8", "replace")))
        return found

    def sql(self, statement: str) -> None:
        """Change the database behind everybody's back."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file, file:
                file.execute(statement)
        else:
            with admin(self.url) as session:
                session.execute(statement.encode())

    def freezes(self, worker: TurnWorker, kind: str) -> Callable[[], None]:
        """Let a worker freeze just before it records a kind of evidence; returns what wakes it."""
        commits, record = worker._commits, worker._commits.hand_in
        wake, worker.frozen = threading.Event(), threading.Event()

        async def recording(*writes: Any) -> Any:
            if not wake.is_set() and any(write.evidence.kind == kind for write in writes):
                worker.frozen.set()
                await asyncio.to_thread(wake.wait, 30)
            return await record(*writes)

        commits.hand_in = lambda *writes: asyncio.ensure_future(recording(*writes))  # type: ignore[method-assign]
        return wake.set

    def froze(self, worker: TurnWorker) -> None:
        """Wait until it stands still."""
        assert worker.frozen.wait(20), "it did not come to that"

    def leases_end(self) -> None:
        """Let all leases expire, as after the death of their holders."""
        self.sql("UPDATE operation SET lease_expires_at = 1 WHERE lease_owner IS NOT NULL")

    def read_once(self, operation: Operation) -> Operation:
        """Do one status read now, as `opledger read` does where no worker runs."""

        async def read() -> Operation | None:
            with Store.open(self.url) as store:
                return await self._make_worker(store, "reader").read_once(operation.operation_id)

        found = self.loop.run(read())
        assert found is not None
        return found

    def wire(self, kind: str | None = None, operation: Operation | None = None) -> list[dict[str, Any]]:
        """What arrived at the provider: of one kind or all, for one operation or all."""
        return [
            entry
            for entry in self.sim.log()
            if kind in (None, entry["kind"])
            and (operation is None or operation.operation_id == entry["client_ref"])
            and entry["kind"] in CALLS
        ]

    def calls(self, operation: Operation | None = None) -> list[str]:
        """The kinds of what arrived at the provider, in order."""
        return [entry["kind"] for entry in self.wire(None, operation)]

    def jobs(self, operation: Operation) -> list[str]:
        """The jobs that the provider started for an operation."""
        return [entry["job_id"] for entry in self.wire("create", operation) if entry["started"]]

    def honest(self, intents: Mapping[str, int] | None = None) -> None:
        """The provider's log shows no fault of ours. `intents`: how often a person asked for the cancel of a job."""
        assert judge(self.sim.log(), dict(intents or {})) == []

    @property
    def now(self) -> str:
        """The present moment, as the provider's log writes it."""
        return to_rfc3339(self.clock.now())
