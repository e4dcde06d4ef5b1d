"""One run: processes, blows, a quiet end, and the judgement."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import SystemClock
from opledger.receiver import listen
from opledger.sim.contracts import contract_name
from opledger.sim.flavours import FLAVOURS
from opledger.sim.hooks import WEBHOOK_SECRET, webhook_text
from opledger.sim.process import SimProcess
from opledger.store import open_database
from tests.chaos.people import POLICY, Crowd
from tests.chaos.planted import child
from tests.chaos.schedule import WORKERS, Blow, Plan, draw
from tests.checker.judging import check
from tests.checker.papers import read_facts
from tests.faults.lab import ROOT, Hand, Lab
from tests.support.places import in_memory
from tests.support.server import private_server

TICK: Final = 0.02
QUIET: Final = 150.0
"""Seconds after the last blow in which everything must have come to its end."""

APART: Final = 0.1
"""How well workers know the time of a database server, in seconds."""

RIPE: Final = 6.0
"""Seconds after which a worker is killed although it has done nothing."""

STOPPING: Final = 40.0
AWAY: Final = ("StoreUnavailable", "database")
"""What a worker's log says where it could not start because its database was away, or locked by one that is stopped."""

REACHED: Final[Mapping[str, int]] = {
    "kills": 5,
    "pauses": 3,
    "receivers killed": 1,
    "leases taken over": 5,
    "calls that nobody answers for": 5,
    "webhooks that counted": 1,
    "orders given twice": 1,
    "decisions": 1,
    "wire: jobs started": 20,
    "wire: creates that repeated one": 1,
}
"""What a run of a minute must have met, and a shorter one its share of it: one that met less proves nothing."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    folder: Path | None = None

    def missed(self) -> list[str]:
        """What it should have met and did not."""
        wanted = dict(REACHED)
        if self.plan.database == "postgresql":
            wanted |= {"database restarts": 1, "database crashes": 1}
        share = min(1.0, self.plan.seconds / 60)
        least = {name: int(number * share) for name, number in wanted.items()}
        return [f"{name}: {self.counts[name]} of {some}" for name, some in least.items() if self.counts[name] < some]

    def lines(self) -> list[str]:
        """The counters, to be printed."""
        told = [f"  {name:34} {count:>7,}" for name, count in sorted(self.counts.items())]
        return [*told, "  " + ", ".join(f"{state} {count}" for state, count in self.states.most_common())]


@dataclass(slots=True)
class Ring:
    """Where blows fall: three workers, a receiver, a database."""

    plan: Plan
    lab: Lab
    pg: Any
    outcome: Outcome
    workers: list[Hand] = field(default_factory=list)
    resumes: dict[int, float] = field(default_factory=dict)  #: paused workers, and when each goes on
    door: socket.socket | None = None
    receiver: subprocess.Popen[bytes] | None = None
    born: dict[int, tuple[float, int]] = field(default_factory=dict)  #: when, and after how many requests
    credible: float | None = None  #: when credentials are good again
    clock: SystemClock = field(default_factory=SystemClock)

    def start(self, place: int) -> None:
        """Start a worker in its place."""
        number = self.outcome.counts["workers started"] = self.outcome.counts["workers started"] + 1
        skew = self.plan.skew * (1, -1, 0)[place]
        hand = self.lab.worker(
            target=child, name=f"w{place}-{number}", lease=self.plan.lease, tick=0.5, skew=skew, level="warning"
        )
        self.workers[place : place + 1] = [hand]
        self.born[place] = (self.clock.monotonic(), self._arrived())

    def _arrived(self) -> int:
        """How many requests the provider has seen."""
        return self.lab.sim.wait_for(0, timeout=0)

    def unripe(self, blow: Blow) -> bool:
        """Tell whether a worker has done nothing yet: on a slow machine all would die before they begin."""
        since, seen = self.born[blow.worker]
        return blow.ripe and self.clock.monotonic() - since < RIPE and self._arrived() < seen + 3

    def begin(self) -> None:
        """Start everything."""
        for place in range(WORKERS):
            self.start(place)
        self.door = listen("127.0.0.1", 0)
        self.listen()

    def listen(self) -> None:
        """Start the receiver of webhooks, at the address that it always has."""
        assert self.door is not None
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        port = self.door.getsockname()[1]
        self.receiver = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.receiving", str(port), "never", "0"],
            cwd=self.lab.folder,
            env={**os.environ, **self.lab.environment, "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def strike(self, blow: Blow) -> None:
        """Do what is planned."""
        place = blow.worker
        counts = self.outcome.counts
        match blow.what:
            case "kill":
                self._end(place, signal.SIGKILL)
                counts["kills"] += 1
                self.start(place)
            case "terminate":
                self._go_on(place)
                self._end(place, signal.SIGTERM)
                counts["terminations"] += 1
                self.start(place)
            case "pause" if place not in self.resumes and self.workers[place].alive:
                self.workers[place].signal(signal.SIGSTOP)
                self.resumes[place] = self.clock.monotonic() + blow.seconds
                counts["pauses"] += 1
            case "restart" | "crash":
                self._restart(blow)
            case "deafen":
                self._deafen()
                counts["receivers killed"] += 1
                self.listen()
            case "revoke":
                self.lab.sim.control(revoke=True)
                self.credible = self.clock.monotonic() + blow.seconds
                counts["credentials refused for a while"] += 1
            case _:
                return

    def _end(self, place: int, number: signal.Signals) -> None:
        hand = self.workers[place]
        self.resumes.pop(place, None)
        if hand.alive:
            hand.signal(number)
            code = self._awaited(hand)
            if code not in (-number, 0):
                self._blame(place, code)
        hand.close()

    def _awaited(self, hand: Hand) -> int:
        """Wait for a worker's end; one that is stopped in the middle of a transaction may be what it waits for."""
        end = self.clock.monotonic() + STOPPING
        while hand.alive and self.clock.monotonic() < end:
            self._go_on_where_due()
            threading.Event().wait(TICK)
        return hand.ends(TICK)

    def _go_on_where_due(self) -> None:
        now = self.clock.monotonic()
        for place in [place for place, until in self.resumes.items() if now >= until]:
            self._go_on(place)

    def _go_on(self, place: int) -> None:
        if self.resumes.pop(place, None) is not None and self.workers[place].alive:
            self.workers[place].signal(signal.SIGCONT)

    def _deafen(self) -> None:
        if self.receiver is not None:
            self.receiver.kill()
            self.receiver.wait()
            self.receiver = None

    def _restart(self, blow: Blow) -> None:
        """Stop the database server in an orderly way, or as a crash would; then start it again."""
        if blow.what == "crash":
            os.kill(self.pg.get_pid(), signal.SIGQUIT)
            pid = Path(f"/proc/{self.pg.get_pid() or 0}")
            end = self.clock.monotonic() + STOPPING
            while pid.exists() and self.clock.monotonic() < end:
                threading.Event().wait(TICK)
        else:
            self.pg.stop()
        self.outcome.counts[f"database {'crashes' if blow.what == 'crash' else 'restarts'}"] += 1
        threading.Event().wait(blow.seconds)
        self.pg.ensure_postgres_running()

    def tend(self) -> None:
        """Let paused workers go on whose time is over, and start those anew that could not start."""
        self._go_on_where_due()
        for place, hand in enumerate(self.workers):
            if not hand.alive:
                self._blame(place, hand.ends())
                hand.close()
                self.start(place)
        if self.credible is not None and self.clock.monotonic() >= self.credible:
            self.lab.sim.control(revoke=False)
            self.credible = None

    def _blame(self, place: int, code: int) -> None:
        tail = self.workers[place].tail()
        if any(word in tail for word in AWAY):
            self.outcome.counts["workers that gave up without a database"] += 1
        else:
            self.outcome.wrong.append(f"worker {place} ended by itself with {code}: {tail[-400:]}")

    def quiet(self) -> None:
        """No more blows: everything runs."""
        for place in list(self.resumes):
            self._go_on(place)
        self.lab.sim.control(revoke=False)
        self.credible = None

    def stop(self) -> None:
        """Let everybody go home."""
        self._deafen()
        for place in range(len(self.workers)):
            hand = self.workers[place]
            if hand.alive:
                hand.signal(signal.SIGTERM)
        for place, hand in enumerate(self.workers):
            if (code := hand.ends(STOPPING)) != 0:
                self._blame(place, code)

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self._deafen()
        if self.door is not None:
            self.door.close()


def run(plan: Plan, say: Say = print, *, keep: bool = False) -> Outcome:
    """Do it all, and return what came of it. The folder is kept where something was wrong, or where asked to."""
    outcome = Outcome(plan)
    # In memory: what is killed here is processes, and a disk that others keep busy looks like a worker that hangs.
    folder = Path(tempfile.mkdtemp(prefix="opledger-chaos-", dir=in_memory()))
    outcome.folder = folder
    try:
        with ExitStack() as stack:
            pg = None
            if plan.database == "postgresql":
                pg = stack.enter_context(private_server(in_memory()))
                url = pg.get_uri()
            else:
                url = f"sqlite:///{folder / 'ledger.db'}"
            open_database(url).close()
            sim = stack.enter_context(SimProcess(seed=plan.seed))
            lab = stack.enter_context(Lab(folder, url, sim))
            _prepare(lab, plan)
            ring = Ring(plan, lab, pg, outcome)
            stack.callback(ring.close)
            _round(ring, lab, say)
            _judge(lab, outcome, say)
    finally:
        if not outcome.wrong and not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _prepare(lab: Lab, plan: Plan) -> None:
    lab.environment["HOOK_SECRET"] = WEBHOOK_SECRET
    if plan.planted is not None:
        lab.environment["CHAOS_PLANTED"] = plan.planted
    (lab.folder / "opledger.toml").write_text(f'{POLICY}\n[audit]\nkey = "signing.key"\n')
    for flavour in FLAVOURS:
        lab.contract(flavour, None, create=plan.deadline, result=plan.deadline, cancel="6s", collect="12s")
    path = lab.contracts / f"{contract_name('v1')}.toml"
    path.write_text(path.read_text() + webhook_text("standard", "env:HOOK_SECRET"))


def _round(ring: Ring, lab: Lab, say: Say) -> None:
    """Blows, then quiet until all has ended."""
    plan, outcome, clock = ring.plan, ring.outcome, ring.clock
    crowd = Crowd(lab, plan)
    people = threading.Thread(target=crowd.run, name="people", daemon=True)
    ring.begin()
    assert ring.door is not None
    to = {"to": f"http://127.0.0.1:{ring.door.getsockname()[1]}/webhooks/sim", "scheme": "standard"}
    lab.sim.ask("POST", "/_webhooks", to)
    lab.present(1)
    people.start()
    try:
        began = clock.monotonic()
        blows, told = draw(plan), 0.0
        while (now := clock.monotonic() - began) < plan.seconds and crowd.broken is None:
            while blows and blows[0].at <= now:
                blow = blows.pop(0)
                if ring.unripe(blow):
                    insort(blows, replace(blow, at=now + 0.25), key=_when)
                else:
                    ring.strike(blow)
            ring.tend()
            if now - told >= 10:
                told = now
                counts = outcome.counts
                say(f"  {now:5.0f} s  {counts['kills']} kills, {counts['pauses']} pauses, {crowd.did['orders']} orders")
            threading.Event().wait(TICK)
        ring.quiet()
        crowd.calm.set()
        end = clock.monotonic() + QUIET
        while (
            (crowd.left or crowd.did["orders"] < max(1, plan.orders))
            and clock.monotonic() < end
            and crowd.broken is None
        ):
            ring.tend()
            threading.Event().wait(0.2)
    finally:
        crowd.done.set()
        people.join(STOPPING)
    lab.sim.ask("POST", "/_webhooks", {})
    ring.stop()
    outcome.counts.update({name: count for name, count in crowd.did.items() if not name.startswith("decide ")})
    outcome.counts["decisions"] = sum(count for name, count in crowd.did.items() if name.startswith("decide "))
    if crowd.broken is not None:
        outcome.wrong.append(f"a person met what nobody should meet: {crowd.broken}")
    for op in crowd.left.values() if crowd.busy else ():
        outcome.wrong.append(f"I21 {op.operation_id} is still {op.state} after {QUIET:g} s of quiet, next {op.next}")


def _when(blow: Blow) -> float:
    return blow.at


def _judge(lab: Lab, outcome: Outcome, say: Say) -> None:
    """From outside: the two papers, and what the command line says."""
    export, log = lab.folder / "export.jsonl", lab.sim.log()
    (lab.folder / "log.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in log))
    if (code := lab.program("audit", "export", "--out", str(export)).wait(STOPPING)) != 0:
        outcome.wrong.append(f"audit export ended with {code}")
        return
    if (code := lab.program("audit", "verify", "--full").wait(STOPPING)) != 0:
        outcome.wrong.append(f"audit verify ended with {code}")
    # A database server tells workers the time, and they know it as well as their question was fast.
    apart = APART if outcome.plan.database == "postgresql" else 0.0
    facts = dict(read_facts(path.read_text()) for path in lab.contracts.glob("*.toml"))
    entries = [json.dumps(entry) for entry in log]
    with export.open("rb") as lines:
        outcome.wrong += [str(finding) for finding in check(lines, entries, facts, idle=True, apart=apart)]
    counts = outcome.counts
    for kind in ("create", "status", "cancel", "result", "list"):
        counts[f"wire: {kind}"] = sum(entry["kind"] == kind for entry in log)
    counts["wire: creates that repeated one"] = sum(entry["effect"] == "repeated" for entry in log)
    counts["wire: jobs started"] = sum(bool(entry["started"]) for entry in log)
    _count_events(export, outcome)
    say(f"  judged {counts['operations']} operations, {counts['events']} events, {len(log)} requests")


def _count_events(export: Path, outcome: Outcome) -> None:
    counts = outcome.counts
    with export.open("rb") as lines:
        for line in lines:
            document = json.loads(line)
            if document.get("type") == "record":
                counts["operations"] += 1
                outcome.states[document["state"]] += 1
            elif document.get("type") == "event":
                counts["events"] += 1
                counts["leases taken over"] += document["kind"] == "LeaseTaken"
                counts["calls that nobody answers for"] += document["cause"] == "recovery"
                counts["webhooks that counted"] += document["cause"].startswith("webhook:")
