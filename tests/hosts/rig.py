"""Everything in its place: the database's host, the provider's, the workers', and people who sit at the router."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from opledger.sim.process import SimProcess
from opledger.store import open_database
from tests.faults.lab import ROOT, Lab
from tests.hosts.lan import LOOPBACK, Host, Lan
from tests.hosts.server import Server

PATIENCE: Final = 60.0
LOOK: Final = 0.02
PATHS: Final = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
TIMEOUTS: Final = {f'timeout = "{seconds}s"': 'timeout = "30s"' for seconds in (3, 5)}
"""Calls of the contract that may take so long that only the end of a lease cuts them: creates, results."""


class Provider(SimProcess):
    """The fake provider, on its host."""

    def __init__(self, host: Host, seed: int) -> None:
        super().__init__(seed=seed)
        self._command = [*host.enter, *self._command]


class Slow(AssertionError):
    """Something that had to happen did not, in time."""


def until(holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> float:
    """Wait for a fact, and return how many seconds that took. Raises Slow."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() > began + patience:
            raise Slow(f"{what}: not within {patience:g} s")
        time.sleep(LOOK)
    return time.monotonic() - began


@dataclass(slots=True)
class Desk:
    """A worker's host and the worker process on it."""

    host: Host
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """What the worker is called."""
        return self.host.name

    @property
    def log(self) -> Path:
        """The worker's log."""
        return self.folder / "worker.log"

    def kill(self) -> None:
        """Kill the worker, and see its end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send the worker a signal."""
        assert self.process is not None
        os.kill(self.process.pid, number)


@dataclass(slots=True)
class Rig:
    """One run's hosts and processes."""

    folder: Path
    lan: Lan
    server: Server
    sim: Provider
    lab: Lab
    lease: float
    desks: list[Desk] = field(default_factory=list)

    def worker(self, name: str, planted: Sequence[str] = ()) -> Desk:
        """Give a worker a host and start it there."""
        folder = self.folder / name
        folder.mkdir()
        desk = Desk(self.lan.plug(name), folder)
        self.desks.append(desk)
        self.start(desk, planted)
        return desk

    def start(self, desk: Desk, planted: Sequence[str] = ()) -> None:
        """Start the worker of a host."""
        (desk.folder / "opledger.toml").write_text(settings(self.lease, self.folder / "signing.key"))
        with desk.log.open("ab") as log:
            desk.process = subprocess.Popen(
                [*desk.host.enter, sys.executable, "-m", "tests.hosts.worker", "--name", desk.name],
                cwd=desk.folder,
                env=self.environment(desk.folder, planted),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def environment(self, folder: Path, planted: Sequence[str]) -> dict[str, str]:
        """What the user of a host finds."""
        more = {"PYTHONPATH": PATHS, "OPLEDGER_LOG": "info", "HOSTS_PLANTED": ",".join(planted)}
        return {**os.environ, **self.lab.environment, **own_folders(folder), **more}

    def signed_on(self) -> None:
        """Wait until all workers have signed on."""
        names = {desk.name for desk in self.desks}
        until(lambda: names <= {life.name.rpartition("-")[0] for life in self.lab.ledger.store.workers()}, "workers")

    def addresses(self, where: str) -> list[str]:
        """What a cut of the database, the provider or both takes away."""
        both = {"database": self.lan.hosts["db"].address, "provider": LOOPBACK}
        return list(both.values()) if where == "both" else [both[where]]

    def held(self, desk: Desk, *kinds: str) -> list[dict[str, Any]]:
        """The calls of a worker that the provider has not answered yet."""
        log = self.sim.log()
        return [one for one in log if one["held"] and one["peer"] == desk.host.address and one["kind"] in kinds]

    @contextmanager
    def only(self, desk: Desk) -> Iterator[None]:
        """Let the other workers stand still meanwhile."""
        others = [one for one in self.desks if one is not desk]
        for one in others:
            one.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for one in others:
                one.signal(signal.SIGCONT)

    def close(self) -> None:
        """End the workers."""
        for desk in self.desks:
            if desk.process is not None:
                desk.kill()


def own_folders(folder: Path) -> dict[str, str]:
    """Where a user of a host of its own keeps data and settings."""
    return {name: str(folder / name.lower()) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}


def settings(lease: float, key: Path) -> str:
    """What stands in the settings file of each host."""
    return f'[worker]\nlease = "{lease:g}s"\n\n[audit]\nkey = "{key}"\n'


@contextmanager
def rig(folder: Path, lease: float, seed: int) -> Iterator[Rig]:
    """Bring up router, database and provider; workers are for the caller to add."""
    with ExitStack() as stack:
        lan = Lan()
        sim_host, db = lan.plug("sim", provider=True), lan.plug("db")
        server = Server(db, folder)
        server.start()
        stack.callback(server.stop)
        server.prepare()
        open_database(server.url).close()
        sim = stack.enter_context(Provider(sim_host, seed))
        work = folder / "desk"
        work.mkdir()
        os.environ.update(own_folders(work))  # ours, too: nothing of the person who runs this is touched
        (work / "opledger.toml").write_text(settings(lease, folder / "signing.key"))
        lab = stack.enter_context(Lab(work, server.url, sim))
        lab.contract(changes=TIMEOUTS, create="120s", result="120s", cancel="60s", collect="120s")
        made = Rig(folder, lan, server, sim, lab, lease)
        stack.callback(made.close)
        yield made
