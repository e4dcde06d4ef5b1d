"""One ledger in a folder and everybody who works on it, in one process that may die at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

from opledger.checkpoints.maker import Checkpointer
from opledger.cli import main
from opledger.edges.files import ResultFolder
from opledger.edges.secrets import SecretResolver
from opledger.ledger import Ledger
from opledger.rules.model import Operation, State
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.sim.hooks import WEBHOOK_SECRET
from opledger.sim.process import BackDoor
from opledger.store import Store
from tests.crashes.page import SharedClock
from tests.fakes.clock import HandClock
from tests.fakes.hooks import ReceiverThread
from tests.fakes.sim import SimThread
from tests.scenarios.stage import Loop, Stage, TurnWorker

PATIENT: Final = {'timeout = "2s"': 'timeout = "60s"', 'timeout = "3s"': 'timeout = "60s"'}
"""Timeouts are the only real time in a story; no busy machine may run into one."""

LEASE: Final = timedelta(minutes=2)
"""Long enough for a patient call, and short beside every deadline: who comes after a death waits for the lease."""

Play = Callable[["Life"], None]
Begin = Callable[[BackDoor, list[str]], None]


@dataclass(frozen=True, slots=True)
class Story:
    """One scenario. Everything but `prepare` is told anew by whoever comes after a death, and must bear that.

    `prepare` fills the ledger before anybody dies; `begin` tells the provider how to behave, once. `clean` is where the
    operations end if nobody dies, `ends` where else a death may leave them: each of those has ended, or waits for a
    person with evidence.
    """

    name: str
    prepare: Play
    play: Play
    clean: tuple[State, ...]
    ends: frozenset[State] = frozenset()
    begin: Begin | None = None
    must: frozenset[str] = frozenset({"commit", "send", "receive", "lease"})
    core: bool = False
    check: Play | None = None  #: what else must hold in the end
    jobs: int = 1  #: most jobs that one operation may have started
    faults: bool = False  #: the provider breaks its word, so that its log shows what no client is to blame for
    orphans: bool = False  #: a result that can be read once may be kept, and its record not be written any more
    made: bool = False  #: its operations are submitted in `play`
    resends_cancels: bool = False  #: a cancel is idempotent: it may be sent again under one intent
    forgets: bool = False  #: an older copy of the ledger is put in its place


class CrashWorker(TurnWorker):
    """A worker that also tells that it lives, and says goodbye, as under the service."""

    async def turn(self) -> int:
        """Do all that is due now."""
        await self.heartbeat()
        return await super().turn()


class Life(Stage):
    """One ledger, its people and agents, and one worker; in a folder that others may have died in before."""

    def __init__(self, folder: Path, url: str, sim: BackDoor, clock: SharedClock, loop: Loop) -> None:
        super().__init__(folder, url, cast(SimThread, sim), cast(HandClock, clock), loop)  # they are asked no more
        settings = folder / "opledger.toml"
        self._policies = settings.read_text(encoding="utf-8") if settings.exists() else ""
        self.secrets["HOOK_SECRET"] = WEBHOOK_SECRET
        self._receiver: ReceiverThread | None = None
        self._checkpoints: Checkpointer | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._receiver is not None:
            self._receiver.stop()
        super().__exit__(kind, error, trace)

    def _make_worker(self, store: Store, name: str) -> TurnWorker:
        results = ResultFolder.from_setting(str(self.folder / "results"))
        secrets = SecretResolver({"SIM_TOKEN": DEFAULT_TOKEN, **self.secrets})
        return CrashWorker(store, results=results, name=name, lease=LEASE, clock=self.clock, secrets=secrets)

    # --- who does what --------------------------------------------------------------------------------------------

    def contract(
        self, flavour: str = "v1", changes: Mapping[str, str] | None = None, *, more: str = "", **deadlines: str
    ) -> str:
        """Write a contract, with patient timeouts."""
        name = super().contract(flavour, changes, more=more, **deadlines)
        path = self.contracts / f"{name}.toml"
        text = path.read_text(encoding="utf-8")
        for old, new in PATIENT.items():
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
        return name

    def op(self, number: int = 0) -> Operation:
        """One of the operations, in the order of their submission."""
        return sorted(self.operations(), key=lambda op: op.operation_id)[number]

    def seal(self) -> None:
        """Sign and anchor what there is, as a worker does now and then and at its end."""
        if self._checkpoints is None:
            self._checkpoints = Checkpointer(self.ledger.store.database, self.ledger.settings.audit, self.clock)
            self._checkpoints.start()
        self._checkpoints.run(last=True)

    def leave(self) -> None:
        """Let the worker end as it does when it is told to."""
        for worker, _ in list(self._workers):
            self.stop(worker)

    def receiver(self) -> ReceiverThread:
        """The receiver of webhooks; made on first use."""
        if self._receiver is None:
            ledger = Ledger.open(settings=self.ledger.settings, clock=self.clock)
            self._receiver = ReceiverThread(ledger, secret=WEBHOOK_SECRET)
            self._receiver.__enter__()
            told = {"to": self._receiver.url("sim"), "scheme": "standard", "follow": False}
            self.sim.ask("POST", "/_webhooks", told)
        return self._receiver

    def deliver(self, *events: str) -> None:
        """Let the provider send what it has to tell of the first operation's job; it was heard, or it comes again."""
        self.receiver()
        (job, *_) = self.jobs(self.op())
        confirmed = {one["event"] for one in self.sim.ask("GET", "/_webhooks") if one["status"] == 202}
        open_ones = [event for event in events if event not in confirmed]
        sent = self.sim.ask("POST", "/_deliver", {"job": job, "events": open_ones})
        assert [one["status"] for one in sent] == [202] * len(open_ones), sent

    def during(self, kind: str, act: Callable[[], object]) -> None:
        """Let a worker do what is due, and while the provider keeps back its answer to one kind of request, act."""
        self.sim.control(hold=kind)
        before = self.sim.wait_for(kind=kind, count=0, timeout=0)
        under_way = self.begin()
        assert self.sim.wait_for(kind=kind, count=before + 1) > before
        act()
        self.sim.control(release=True)
        under_way.result(60)

    def go(self, holds: Callable[[Operation], bool], number: int = 0) -> Operation:
        """Let the worker work, moment by moment, until a record is so, or nothing is due any more."""
        for _ in range(200):
            self.turn()
            found = self.op(number)
            horizon = self.ledger.store.idle_horizon(self.clock.now())
            if holds(found) or horizon is None:
                return found
            self.clock.pass_by(max(0.001, (horizon - self.clock.now()).total_seconds()))
        raise AssertionError(f"it goes round in a circle: {self.kinds(self.op(number))}")

    def decided(self, number: int = 0) -> list[str]:
        """What people have decided about an operation so far."""
        return [str(data["choice"]) for data in self.told(self.op(number), "Decided")]

    def command(self, *arguments: str, by: str = "olga") -> int:
        """Run a command of the program in this process; returns its exit code."""
        os.environ.update(
            OPLEDGER_DB=self.url,
            OPLEDGER_CONTRACTS=str(self.contracts),
            OPLEDGER_RESULTS=str(self.folder / "results"),
            OPLEDGER_OPERATOR=by,
        )
        os.chdir(self.folder)
        return main(arguments)

    def events_of(self, number: int = 0) -> list[str]:
        """The kinds of evidence of one operation."""
        return self.kinds(self.op(number))

    def ids(self) -> list[str]:
        """The ids of all operations."""
        return sorted(op.operation_id for op in self.operations())


def live(folder: Path, sim: BackDoor, clock: SharedClock, work: Callable[[Life], None]) -> None:
    """Do something in a folder, in this process."""
    with Loop() as loop, Life(folder, f"sqlite:///{folder / 'ledger.db'}", sim, clock, loop) as life:
        work(life)


def intents(life: Life) -> tuple[dict[str, int], list[str]]:
    """How often people asked for a cancel, by job; and under what creates they accepted a possible second job."""
    asked: dict[str, set[str]] = {}
    accepted: list[str] = []
    for op in life.operations():
        for event in life.ledger.events(op.operation_id):
            data = dict(event.data or {})
            if event.kind == "CancelRequested" or (event.kind == "Decided" and data.get("choice") == "cancel"):
                for job in op.jobs:
                    asked.setdefault(job, set()).add(str(data.get("request_id")))
            if event.kind == "Decided" and data.get("choice") == "resend":
                accepted += filter(None, [op.operation_id, op.idempotency_token])
    return {job: len(requests) for job, requests in asked.items()}, accepted


def permits(life: Life, op: Operation, actions: Iterable[str]) -> list[dict[str, Any]]:
    """The permits of some actions in the journal."""
    return [data for data in life.told(op, "CallSent") if data.get("action") in set(actions)]


def told(path: Path) -> list[tuple[str, int, str]]:
    """What was acknowledged: operation, number of the event, and its hash."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(one, int(seq), digest) for one, seq, digest in (line.split() for line in lines)]
