"""A ledger, worker processes that may be killed at will, and the provider whose log is the judge.

Workers are forked from a server process that has loaded everything already, so one costs a tenth of a second. They are
real processes all the same: they share nothing with the test but the database and the wire.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from opledger.config import load_settings
from opledger.edges.clock import SystemClock
from opledger.ledger import Ledger
from opledger.rules.model import Operation, State
from opledger.sim.contracts import DEFAULT_TOKEN, contract_name, contract_text
from opledger.sim.judge import judge
from opledger.sim.process import BackDoor
from tests.faults.victim import Order, Strike, child

ROOT: Final = Path(__file__).resolve().parents[2]
LONG: Final[Mapping[str, str]] = {"create": "60s", "result": "60s", "cancel": "60s", "collect": "60s"}
PATIENCE: Final = 60.0
"""Seconds after which a test gives up on something that should have happened long ago."""

_CONTEXT = multiprocessing.get_context("forkserver")
_ASKING = threading.Lock()
"""Held while any child is asked for its exit code.

Starting a process asks all the others too, and the fork server tells each code once: of two threads that ask at the
same time the second reads "unknown", which `multiprocessing` calls 255.
"""
_CONTEXT.set_forkserver_preload(
    # What a worker would import only when it runs, and each of them again.
    [
        "tests.faults.victim",
        "anyio._backends._asyncio",
        "apscheduler.triggers.interval",
        "httpcore",
        "psycopg",
        "uvloop",
    ]
)


class Hand:
    """One worker process."""

    def __init__(self, order: Order, target: Callable[[Order, Any], None] = child) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # the fork server starts with the first worker
        try:
            self._pipe, theirs = _CONTEXT.Pipe()
            self._process = _CONTEXT.Process(target=target, args=(order, theirs), daemon=True)
            with _ASKING:
                self._process.start()
            theirs.close()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
        self.log = Path(order.log)
        self.told: list[str] = []
        self._closed = False

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def hears(self, timeout: float = PATIENCE) -> str:
        """The next thing the worker tells: which effect it was struck at, or that it is done."""
        assert self._pipe.poll(timeout), f"the worker told nothing: {self.tail()}"
        self.told.append(self._pipe.recv())
        return self.told[-1]

    def struck(self) -> str | None:
        """The effect at which it was struck, once it has ended; None where it came to its end."""
        while self._pipe.poll():
            try:
                self.told.append(self._pipe.recv())
            except EOFError:
                break
        return next((word for word in self.told if not word.startswith("done")), None)

    def ends(self, timeout: float = PATIENCE) -> int:
        """Wait for its end and return the exit code; a negative one names the signal."""
        wait([self._process.sentinel], timeout)
        code = self._code()
        assert code is not None, f"the worker did not end: {self.tail()}"
        return code

    @property
    def alive(self) -> bool:
        """True while it runs (or is stopped)."""
        return self._code() is None

    def _code(self) -> int | None:
        with _ASKING:
            return self._process.exitcode

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    def freezes(self, effect: str) -> None:
        """Wait until it was stopped at an effect, and has come to a stand."""
        assert self.hears() == f"stop {effect}"
        self._stands()

    def freeze(self) -> None:
        """Stop it wherever it is, outside of a transaction, and wait until it has come to a stand."""
        self._pipe.send(True)
        self.freezes("by order")

    def _stands(self) -> None:
        clock = SystemClock()
        end = clock.monotonic() + PATIENCE
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert clock.monotonic() < end, "it was told to stop and runs on"
            os.sched_yield()

    def close(self) -> None:
        """End it if it still runs, and let go of everything."""
        if self._closed:
            return
        self._closed = True
        if self.alive:
            with _ASKING:
                self._process.kill()
        wait([self._process.sentinel], PATIENCE)
        with _ASKING:
            self._process.join(0)
            self._process.close()
        self._pipe.close()


class Lab:
    """One ledger and the processes that work on it, in one folder. Contracts are written on first use."""

    def __init__(self, folder: Path, url: str, sim: BackDoor) -> None:
        self.folder, self.url, self.sim = folder, url, sim
        self.contracts = folder / "contracts"
        self.contracts.mkdir(exist_ok=True)
        self.results = folder / "results"
        self.environment = {
            "OPLEDGER_DB": url,
            "OPLEDGER_CONTRACTS": str(self.contracts),
            "OPLEDGER_RESULTS": str(self.results),
            "SIM_TOKEN": DEFAULT_TOKEN,
        }
        self._hands: list[Hand] = []
        self._programs: list[subprocess.Popen[bytes]] = []
        self._ledger: Ledger | None = None

    @property
    def ledger(self) -> Ledger:
        """The ledger, as an agent or a person in another process sees it."""
        if self._ledger is None:
            settings = load_settings({"operator": "olga"}, {**os.environ, **self.environment}, self.folder)
            self._ledger = Ledger.open(self.url, settings=settings)
        return self._ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hand in self._hands:
            hand.close()
        for program in self._programs:
            if program.poll() is None:
                program.kill()
            program.wait()
        if self._ledger is not None:
            self._ledger.close()

    # --- what is wanted -------------------------------------------------------------------------------------------

    def contract(self, flavour: str = "v1", changes: Mapping[str, str] | None = None, **deadlines: str) -> str:
        """Write the contract of a flavour, with some of its text replaced; returns its name."""
        text = contract_text(flavour, self.sim.base_url, elsewhere=self.sim.elsewhere, deadlines={**LONG, **deadlines})
        for old, new in (changes or {}).items():
            assert old in text, f"the contract does not say {old!r}"
            text = text.replace(old, new)
        name = contract_name(flavour)
        (self.contracts / f"{name}.toml").write_text(text, encoding="utf-8")
        return name

    def submit(
        self, personality: str = "ideal", variant: str | None = None, *, flavour: str = "v1", **body: Any
    ) -> Operation:
        """Write down a new operation whose job will be so; options of the simulation as ``_polls=2`` and so on."""
        name = contract_name(flavour)
        if not (self.contracts / f"{name}.toml").exists():
            self.contract(flavour)
        asked = {"account": "acct_218", "rows": 3, "_personality": personality, **body}
        if variant is not None:
            asked["_variant"] = variant
        return self.ledger.submit(name, asked, requested_by="agent-7")

    # --- processes ------------------------------------------------------------------------------------------------

    def worker(self, *strikes: Strike, target: Callable[[Order, Any], None] = child, **how: Any) -> Hand:
        """Start a worker; `how` are fields of `Order`, and `target` is what runs it."""
        log = self.folder / f"worker-{len(self._hands) + 1}.log"
        order = Order(str(self.folder), self.environment, str(log), strikes=strikes, **how)
        hand = Hand(order, target)
        self._hands.append(hand)
        return hand

    def finish(self, timeout: float = PATIENCE, **how: Any) -> Hand:
        """Run a normal worker until nothing will become due without a person."""
        hand = self.worker(until_idle=True, **how)
        assert hand.ends(timeout) == 0, hand.tail()
        return hand

    def present(self, count: int = 1) -> None:
        """Wait until so many workers have signed on."""
        clock, store = self.ledger.clock, self.ledger.store
        end = clock.monotonic() + PATIENCE
        while len(store.workers()) < count:
            assert clock.monotonic() < end, "the workers did not sign on"
            store.wait_for_change(1)

    def deserted(self) -> None:
        """Wait until every worker has signed off."""
        clock, store = self.ledger.clock, self.ledger.store
        end = clock.monotonic() + PATIENCE
        while store.workers():
            assert clock.monotonic() < end, f"still there: {store.workers()}"
            store.wait_for_change(1)

    def program(self, *arguments: str, module: str = "opledger.cli", **environment: str) -> subprocess.Popen[bytes]:
        """Start the command line program, as a person would; or what else a module is."""
        log = self.folder / f"program-{len(self._programs) + 1}.log"
        with log.open("wb") as sink:
            started = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=self.folder,
                env={**os.environ, **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        self._programs.append(started)
        return started

    # --- looking --------------------------------------------------------------------------------------------------

    def show(self, operation: Operation) -> Operation:
        """The record as it stands."""
        return self.ledger.store.get(operation.operation_id)

    def until(self, operation: Operation, holds: Callable[[Operation], bool], timeout: float = PATIENCE) -> Operation:
        """Wait until the record is so, looking whenever somebody has written."""
        clock = self.ledger.clock
        end = clock.monotonic() + timeout
        while True:
            found = self.show(operation)
            if holds(found):
                return found
            left = end - clock.monotonic()
            assert left > 0, f"still {found.state}, next {found.next}: {self.kinds(found)}"
            self.ledger.store.wait_for_change(left)

    def until_state(self, operation: Operation, *states: State, timeout: float = PATIENCE) -> Operation:
        """Wait until the operation is in one of these states."""
        return self.until(operation, lambda op: op.state in states, timeout)

    def kinds(self, operation: Operation) -> list[str]:
        """The kinds of evidence in its journal, in order."""
        return [event.kind for event in self.ledger.events(operation.operation_id)]

    def wire(self, kind: str, operation: Operation | None = None) -> list[dict[str, Any]]:
        """What arrived at the provider, of one kind, for one operation or all."""
        return [
            entry
            for entry in self.sim.log()
            if entry["kind"] == kind and (operation is None or operation.operation_id == entry["client_ref"])
        ]

    def jobs(self, operation: Operation) -> list[str]:
        """The jobs that the provider started for an operation."""
        return [entry["job_id"] for entry in self.wire("create", operation) if entry["started"]]

    def honest(self, **intents: int) -> None:
        """The provider's log shows no fault of ours. `intents`: how often a person asked for the cancel of a job."""
        assert judge(self.sim.log(), intents) == []

    def partials(self) -> list[Path]:
        """Files of transfers that did not come to their end."""
        return sorted(self.results.rglob("*.part"))

    def kept(self) -> list[Path]:
        """The results that are kept."""
        return sorted(path for path in self.results.rglob("op_*") if path.is_file())
