"""One seed: two workers, a receiver, people and a provider in one process and one virtual afternoon."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx

from opledger.config import Settings, load_settings
from opledger.edges.carriers import Outgoing
from opledger.edges.secrets import SecretResolver
from opledger.errors import StoreUnavailable
from opledger.ledger import Ledger
from opledger.rules.jsontext import loads
from opledger.sim.contracts import DEFAULT_TOKEN, contract_name
from opledger.sim.hooks import WEBHOOK_SECRET
from opledger.sim.replies import Reply, error_reply
from opledger.store import Store, open_database
from opledger.store.packing import unpack
from opledger.worker import Worker
from tests.simulation.faults import STORE, Swarm
from tests.simulation.loop import WORLD, Process, current, new_loop
from tests.simulation.loop import operation as driven
from tests.simulation.ports import Results, SimClock, replaced
from tests.simulation.provider import FLAVOURS, Arrived, Provider, contract
from tests.simulation.shell import SimCommits, SimHttp, SimReply, faulty

LEASE: Final = 30.0
SAFETY: Final = 1_500.0  #: seconds with faults after the last submission
BOUND: Final = 12_000.0  #: seconds without faults in which everything must come to rest
SLICE: Final = 200.0
POLICY: Final = """
[[policy]]
when = 'has(operation.body.amount) && operation.body.amount > 100'
approvals = 1
expires = "20m"
[[policy]]
when = 'has(operation.body.amount) && operation.body.amount > 1000'
approvals = 2
four_eyes = true
expires = "20m"
"""
PHASES: Final = {
    "awaiting_approval": "approve",
    "create_pending": "create",
    "create_unknown": "create",
    "reconciliation": "create",
    "accepted": "observe",
    "observing": "observe",
    "cancel_requested": "cancel",
    "cancelling": "cancel",
    "result_collecting": "collect",
}
KINDS: Final = {
    "create": "create",
    "list": "create",
    "status": "observe",
    "cancel": "cancel",
    "result": "collect",
    "abroad": "collect",
}


@dataclass
class Violation:
    """One broken invariant."""

    number: str
    words: str


@dataclass
class Steps:
    """What counts as a step of the full stack."""

    calls: int = 0  #: requests that left a worker, and deliveries that left the provider
    answers: int = 0  #: answers that came back and were read
    commits: int = 0  #: transactions that wrote
    timers: int = 0  #: timers that fired

    @property
    def total(self) -> int:
        """All of them."""
        return self.calls + self.answers + self.commits + self.timers


@dataclass
class Sent:
    """One effectful request as it left."""

    at: float
    operation: str
    kind: str
    call_id: str | None
    worker: str
    late: bool  #: its process stood still between permit and send
    paused: bool = False  #: it stood still a short while ago, who knows where


@dataclass
class Slot:
    """A place for a worker; whoever dies there is followed by another one."""

    number: int
    store: Store
    process: Process | None = None
    worker: Worker | None = None
    stop: asyncio.Event | None = None


def template() -> Path:
    """Return the folder of what is made once for all seeds; other processes may use it as well."""
    return _template()


def use_template(folder: str) -> None:
    """Use what another process has made, and leave it to that one to be interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _given.append(Path(folder))


_given: list[Path] = []


@cache
def _template() -> Path:
    if _given:
        return _given[0]
    parent = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="opledger-simulation-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    open_database(f"sqlite:///{folder}/ledger.db").close()
    contracts = folder / "contracts"
    contracts.mkdir()
    for flavour in FLAVOURS:
        (contracts / f"{contract_name(flavour)}.toml").write_text(contract(flavour), encoding="utf-8")
    (folder / "opledger.toml").write_text(POLICY, encoding="utf-8")
    return folder


@cache
def _settings() -> Settings:
    folder = _template()
    environment = {"OPLEDGER_CONTRACTS": str(folder / "contracts"), "OPLEDGER_OPERATOR": "olga"}
    return load_settings({"db": "sqlite:///none"}, environment, folder, folder / "none", folder / "none")


def forget_template() -> None:
    """Remove what was made once for all seeds."""
    if _template.cache_info().currsize and not _given:
        shutil.rmtree(_template(), ignore_errors=True)
        _template.cache_clear()
        _settings.cache_clear()


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, *, keep: bool = False) -> None:
        self.seed = seed
        self.loop = new_loop(Random(f"{seed}/order"))
        self.chance = Random(f"{seed}/faults")
        self.paths = Random(f"{seed}/network")
        self.ids = Random(f"{seed}/ids")
        self.people_random = Random(f"{seed}/people")
        self.clock = SimClock(self.loop, Random(f"{seed}/jitter"))
        self.swarm = Swarm.of(Random(f"{seed}/swarm"))
        self.provider = Provider(Random(f"{seed}/provider"), lambda: self.loop.now, self.clock.true)
        self.steps = Steps()
        self.cells: Counter[tuple[str, str]] = Counter()
        self.problems: list[Violation] = []
        self.sends: list[Sent] = []
        self.used: set[str] = set()
        self.commits: list[tuple[float, str, int]] = []  #: when which event was there
        self.lines: list[str] | None = [] if keep else None
        self.hash = hashlib.blake2b(digest_size=16)
        self.acknowledged: dict[str, str] = {}  #: deliveries that the receiver said it has: id -> contract
        self.forged: set[str] = set()
        self.slots: list[Slot] = []
        self.people = Process("people")
        self.receiving = Process("receiver")
        self.leases: dict[str, tuple[int, datetime]] = {}
        self.born: dict[str, float] = {}  #: when each worker started
        self.owners: dict[str, list[tuple[float, str]]] = {}  #: who held an operation, from when on
        self.cancelled: Callable[[str], None] = lambda _: None  #: somebody wants an operation cancelled, now
        self.held_up: dict[Process, int] = {}  #: who stood still between the commit of a permit and its next step
        self.paused: tuple[int, dict[str, str]] | None = None  #: after how many commits which providers were paused
        self._rows = 0
        self._dying: str | None = None

    # --- telling ----------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self.loop.now:12.4f} {text}"
        self.hash.update(line.encode("utf-8", "replace"))
        if self.lines is not None:
            self.lines.append(line)

    def problem(self, number: str, words: str) -> None:
        """Note a broken invariant."""
        if self.loop.is_closed():
            return  # what is thrown away at the end
        if len(self.problems) < 50:
            self.problems.append(Violation(number, words))
        self.say(f"BROKEN {number}: {words}")

    def hit(self, fault: str, phase: str) -> None:
        """Count a fault in the phase that it struck."""
        self.cells[fault, phase] += 1
        self.say(f"fault: {fault} ({phase})")

    def moment(self, least: float, most: float) -> float:
        """Draw a short time."""
        return least + (most - least) * self.paths.random()

    # --- processes --------------------------------------------------------------------------------------------------

    def dies(self, fault: str, process: Process, phase: str) -> bool:
        """Kill a worker here, if the swarm has it so."""
        if not any(slot.process is process for slot in self.slots) or not self.swarm.strikes(fault, self.chance):
            return False
        self.hit(fault, phase)
        self.kill(process)
        return True

    def kill(self, process: Process) -> None:
        """Kill a worker, and let another one come after it some time later."""
        self.say(f"{process.name} is killed")
        self.loop.kill(process)
        slot = next(slot for slot in self.slots if slot.process is process)
        process.kept.append(slot.worker)
        self.loop.in_strand(WORLD, self.start, slot, delay=self.moment(0.5, 3 * LEASE))

    def tell_to_end(self, slot: Slot) -> None:
        """Ask a worker to end, as SIGTERM does; another one comes once it has."""
        if slot.stop is not None and slot.process is not None and not slot.stop.is_set():
            self.say(f"{slot.process.name} is told to end")
            slot.stop.set()

    def _ends_in_a_call(self, process: Process, phase: str) -> None:
        slot = next((slot for slot in self.slots if slot.process is process), None)
        if slot is None or slot.stop is None or slot.stop.is_set():
            return
        if self.swarm.strikes("told to end in a call", self.chance):
            self.hit("told to end in a call", phase)
            self.tell_to_end(slot)

    def gone(self, process: Process) -> None:
        """A worker has ended as it was told to: nothing waits for its leases, where the database took its farewell."""
        self.say(f"{process.name} has ended")
        process.dead = True
        held = self.eyes.execute("SELECT operation_id FROM operation WHERE lease_owner = ?", (process.name,)).fetchall()
        if held and not any(self.swarm.rates.get(name) for name in STORE):
            self.problem("I12", f"{process.name} has ended and still holds {', '.join(one for (one,) in held)}")

    def start(self, slot: Slot) -> None:
        """Let a worker run."""
        process = Process(f"w{slot.number}")
        slot.process, slot.stop = process, asyncio.Event()
        slot.worker = Worker(
            slot.store,
            results=self.results,  # type: ignore[arg-type]
            name=process.name,
            lease=timedelta(seconds=LEASE),
            concurrency=40,
            tick=timedelta(seconds=30),
            clock=self.clock,
            secrets=SecretResolver({"SIM_TOKEN": DEFAULT_TOKEN}),
        )
        process.name = slot.worker.name
        self.born[process.name] = self.loop.now
        self.say(f"{process.name} starts")
        self.loop.spawn(process, self._working(slot, slot.worker, slot.stop, process))

    async def _working(self, slot: Slot, worker: Worker, stop: asyncio.Event, process: Process) -> None:
        keeping = self.loop.create_task(self._upkeep(worker))
        try:
            await worker.run(stop)
            self.gone(process)
            self.loop.in_strand(WORLD, self.start, slot, delay=self.moment(0.1, LEASE))
        except StoreUnavailable:
            process.dead = True
            self.loop.in_strand(WORLD, self.start, slot, delay=5.0)
        except Exception as error:  # noqa: BLE001 - whatever ends a worker is a finding
            self.problem("worker", f"{worker.name} ended by itself: {type(error).__name__}: {error}")
            process.dead = True
        finally:
            keeping.cancel()

    async def _upkeep(self, worker: Worker) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(LEASE / 3)
            await worker.renew()
            rounds += 1
            if rounds % 12 == 0:
                with suppress(StoreUnavailable):
                    await worker.heartbeat()

    def at_the_permit(self, operation: str, sent: Any) -> None:
        """A permit is decided on and not yet committed: the worst moment for somebody to want it cancelled."""
        if self.swarm.strikes("cancel at the permit", self.chance):
            self.hit("cancel at the permit", "create" if sent.action != "cancel" else "cancel")
            self.cancelled(operation)

    def holds_up(self, process: Process, phase: str) -> None:
        """A permit is committed: a process that stands still now must look at lease and window once more."""
        if process.until == 0.0 and self.swarm.strikes("stalled at the permit", self.chance):
            self.hit("stalled at the permit", phase)
            self.loop.stall(process, self.moment(0.1, 1.5) * LEASE)
            self.held_up[process] = process.stalls

    def phase_of(self, jobs: list[Any]) -> str:
        """Say what the writes of a batch are about."""
        for job in jobs:
            for write in job.writes:
                if write.basis is not None:
                    return PHASES.get(write.basis.state.value, "ended")
        return "other"

    def busy_phase(self, process: Process) -> str:
        """Say whom a failing store hits."""
        if process is self.people:
            return "approve"
        return "webhook" if process is self.receiving else "worker"

    def committed(self, process: Process) -> None:
        """Look at what a transaction brought, with a connection that nobody else has."""
        self.steps.commits += 1
        rows = self.eyes.execute(
            "SELECT rowid, operation_id, seq, kind, to_state, hash FROM event WHERE rowid > ? ORDER BY rowid",
            (self._rows,),
        ).fetchall()
        for rowid, operation, seq, kind, to_state, digest in rows:
            self._rows = rowid
            self.commits.append((self.loop.now, operation, seq))
            self.say(f"{process.name} commits {operation[-6:]} {seq} {kind} {to_state or ''} {digest.hex()[:16]}")
        if rows and (process is self.people or process is self.receiving):
            self.wake()

    def leased(self, operation: str, lease: Any, taken_from: str | None, now: datetime) -> None:
        """Look at a lease as it is handed out: its number is new, and nobody else still has it."""
        epoch, ends = self.leases.get(operation, (0, now))
        if lease.epoch <= epoch:
            self.problem("I10", f"{operation} was leased under number {lease.epoch} after number {epoch}")
        if taken_from is not None and ends > now and self.clock.stepped_at < self.loop.now - 10 * LEASE:
            self.problem("I10", f"{lease.owner} took {operation} from {taken_from}, whose lease lasts until {ends}")
        self.leases[operation] = (lease.epoch, lease.expires_at)
        self.owners.setdefault(operation, []).append((self.loop.now, lease.owner))

    def wake(self) -> None:
        """Let the workers notice, some time later, that somebody wrote."""
        for slot in self.slots:
            if slot.process is not None and slot.worker is not None and not slot.process.dead:
                self.loop.in_strand(slot.process, slot.worker.wake, delay=self.moment(0.01, 1.0))

    # --- the network ------------------------------------------------------------------------------------------------

    async def exchange(self, request: Outgoing, *, effectful: bool) -> SimReply:
        """Carry a request to the provider, and what comes of it back."""
        process = current()
        headers = {name.lower(): value for name, value in request.headers}
        body = request.body or b""
        entry = self.provider.read(request.method, request.url, headers, body, process.name)
        phase, late = KINDS.get(entry.kind, "other"), False
        tell = request.trace
        if effectful and self.dies("killed before send", process, phase):
            await self.loop.create_future()
        if effectful and self.swarm.strikes("stalled before send", self.chance):
            self.hit("stalled before send", phase)
            self.loop.stall(process, self.moment(0.5 * LEASE, 4 * LEASE))
            late = True
            await asyncio.sleep(0)
        fault = self.swarm.of_call(self.chance)
        if fault is not None:
            self.hit(fault, phase)
        if fault == "refused":
            await tell("connection.connect_tcp.started", {})
            await asyncio.sleep(self.moment(0.001, 0.05))
            await tell("connection.connect_tcp.failed", {})
            # As libraries do that put the whole request into their errors.
            raise httpx.ConnectError(f"refused: {request.url} {headers}")
        self._leaves(entry, process, effectful=effectful, late=late)
        await tell("connection.connect_tcp.complete", {"return_value": None})
        await tell("http11.send_request_headers.started", {})
        self.steps.calls += 1
        self.say(f"{process.name} sends {entry.kind} {entry.path} {(entry.ref or '')[-6:]} {entry.body[:12]}")
        self._ends_in_a_call(process, phase)
        future = self.loop.create_future()
        query = request.url.partition("?")[2]
        way = (entry, body, query, fault, future, process)
        self.loop.in_strand(WORLD, self._arrive, *way, delay=self.moment(0.002, 0.08))
        reply = await future
        self.steps.answers += 1
        said = {"content-length": str(len(reply.body)), **dict(reply.headers)}
        if reply.content_type is not None:
            said.setdefault("content-type", reply.content_type)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said.items()]
        return SimReply(reply.status, raw, reply.body, cut=fault == "cut")

    def _leaves(self, entry: Arrived, process: Process, *, effectful: bool, late: bool) -> None:
        """Look, with other eyes, at what is durable while the first byte leaves."""
        if not effectful:
            return
        operation = driven()
        late = late or process.until > 0
        row = self.eyes.execute(
            "SELECT lease_owner, lease_expires_at FROM operation WHERE operation_id = ?", (operation,)
        ).fetchone()
        if row is None:
            self.problem("I1", f"a {entry.kind} leaves for {operation}, and there is no record of it")
            return
        found = self.eyes.execute(
            "SELECT at, body FROM event WHERE operation_id = ? AND kind = 'CallSent' AND actor = ?"
            " ORDER BY seq DESC LIMIT 1",
            (operation, process.name),
        ).fetchone()
        call_id = None
        if found is None:
            self.problem("I1", f"a {entry.kind} leaves for {operation}, and no permit of {process.name} is recorded")
        else:
            data = loads(unpack(found[1]))["data"]
            call_id = str(data["call_id"])
            wanted = {"create": ("create", "reconcile"), "cancel": ("cancel",), "result": ("collect",)}
            if data["action"] not in wanted.get(entry.kind, ()):
                self.problem("I1", f"a {entry.kind} leaves for {operation} under a permit to {data['action']}")
            if call_id in self.used:
                self.problem("I7", f"the permit {call_id} of {operation} is used for a second {entry.kind}")
            self.used.add(call_id)
        now = int(self.clock.now().timestamp() * 1_000_000)
        paused = process.stalled_at > self.loop.now - LEASE and self.held_up.get(process) != process.stalls
        stood = late or self.clock.stepped_at > self.loop.now - 2 * LEASE or paused
        if not stood and (row[0] != process.name or row[1] is None or row[1] <= now):
            self.problem("I12", f"{process.name} sends a {entry.kind} for {operation} without a lease")
        self.sends.append(Sent(self.loop.now, operation, entry.kind, call_id, process.name, late, paused))

    def _arrive(
        self, entry: Arrived, body: bytes, query: str, fault: str | None, future: Any, process: Process
    ) -> None:
        """At the provider's door."""
        if self.dies("killed after send", process, KINDS.get(entry.kind, "other")):
            pass  # the request is on its way all the same
        if fault == "request lost":
            self._fails(process, future, self.moment(0.01, 4.0))
            return
        reply = self._handled(entry, body, query, fault)
        self.say(f"provider: {entry.kind} {entry.path} {entry.effect} {reply.status} {entry.job or ''}")
        if fault == "duplicate":
            again = replace(entry, copy=True)
            self.loop.in_strand(WORLD, self._again, again, body, query, delay=self.moment(0.01, 20.0))
        lossy = entry.kind in ("create", "cancel", "status") and self._is_lossy(entry)
        if fault == "answer lost" or lossy:
            self.cells["answer lost", KINDS.get(entry.kind, "other")] += lossy
            self._fails(process, future, self.moment(0.01, 4.0))
            return
        wait = self.moment(0.002, 0.08)
        if fault == "answer late":
            wait = self.moment(1.0, 6 * LEASE)
        self.loop.in_strand(process, _give, future, reply, delay=wait)

    def _handled(self, entry: Arrived, body: bytes, query: str, fault: str | None) -> Reply:
        if fault in ("5xx before", "429", "401"):
            entry.number, entry.at, entry.effect = len(self.provider.log), self.loop.now, fault
            self.provider.log.append(entry)
            return _waited_for(entry, self._gate(fault))
        reply = self.provider.handle(entry, body, query)
        if fault == "5xx after":
            return _waited_for(entry, self._broken("internal", "Something broke."))
        if fault == "html":
            return Reply(200, b"<html><body>Sign in</body></html>", (), "text/html")
        return reply

    def _gate(self, fault: str) -> Reply:
        if fault == "401":
            return error_reply(401, "token_expired", "The token has expired.", ("www-authenticate", "Bearer"))
        if fault == "429":
            wait = self.chance.choice(("1", "30", "120", "soon", "-3", "999999999"))
            return error_reply(429, "rate_limited", "Too many requests.", ("retry-after", wait))
        return self._broken("busy", "Not now.")

    def _broken(self, code: str, words: str) -> Reply:
        status = self.chance.choice((500, 502, 503, 504))
        asks = len(self.provider.log) % 4 if status == 503 else 0
        return error_reply(status, code, words, *((("retry-after", str(20 * asks)),) if asks else ()))

    def _is_lossy(self, entry: Arrived) -> bool:
        job = self.provider.by_id.get((entry.flavour, entry.job or ""))
        return job is not None and job.personality == "lossy" and self.chance.random() < 0.35

    def _again(self, entry: Arrived, body: bytes, query: str) -> None:
        self.provider.handle(entry, body, query)
        self.say(f"provider: a copy: {entry.kind} {entry.path} {entry.effect} {entry.job or ''}")

    def _fails(self, process: Process, future: Any, delay: float) -> None:
        """Let the client hear of a broken connection, or of nothing."""
        if self.chance.random() < 0.7:
            self.loop.in_strand(process, _break, future, delay=delay)

    # --- the whole --------------------------------------------------------------------------------------------------

    @contextmanager
    def built(self) -> Iterator[None]:
        """Make files, ledger and stores; take luck and sockets away from the product meanwhile."""
        template = _template()
        self.folder = Path(tempfile.mkdtemp(prefix="seed-", dir=template))
        commits, http = partial(SimCommits, world=self), partial(SimHttp, world=self)
        try:
            shutil.copy(template / "ledger.db", self.folder / "ledger.db")
            self.url = f"sqlite:///{self.folder}/ledger.db"
            self.results = Results(self.folder / "results")
            environment = {"HOOK_SECRET": WEBHOOK_SECRET}
            settings = replace(_settings(), database=self.url, environment=environment)
            audit = replace(settings.audit, keys=self.folder / "keys", anchors=(self.folder / "anchor",))
            settings = replace(settings, audit=audit)
            with replaced(self.ids, commits, http):  # type: ignore[arg-type]
                self.ledger = Ledger.open(settings=settings, clock=self.clock)
                self.store = Store.open(self.url)
                self.eyes = sqlite3.connect(f"file:{self.folder}/ledger.db?mode=ro", uri=True)
                faulty(self, self.store)
                faulty(self, self.ledger.store)
                try:
                    yield
                finally:
                    self.loop.bury()
                    self.eyes.close()
                    self.store.close()
                    self.ledger.close()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def finish(self) -> None:
        """Count what the loop knows."""
        self.steps.timers = self.loop.fired


def _waited_for(entry: Arrived, reply: Reply) -> Reply:
    """Note in the log how an answer ends that the provider's own hand did not make, and how long it asks to wait."""
    entry.status = reply.status
    asked = dict(reply.headers).get("retry-after", "")
    entry.wait = float(asked) if asked.isdigit() else 0.0
    return reply


def _give(future: Any, reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)


def _break(future: Any) -> None:
    if not future.done():
        future.set_exception(httpx.RemoteProtocolError("the peer closed the connection without an answer"))


@dataclass
class Outcome:
    """What a seed brought."""

    seed: int
    digest: str
    operations: int
    steps: Steps
    problems: list[Violation]
    states: Counter[str]
    cells: Counter[tuple[str, str]]
    arrows: Counter[str]
    faults: frozenset[str]
    seconds: float
    virtual: float
    lines: list[str] = field(default_factory=list)
