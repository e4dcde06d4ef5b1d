"""The console's only door to the core: snapshots in, and the worker that it starts where none is alive.

Its methods block; they are called from threads, never from the loop that draws.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from opledger.config import Settings
from opledger.ledger import Ledger
from opledger.ledger.health import ALIVE
from opledger_console.views import Detail, Snapshot

SHOWN: Final = 500
"""How many operations the list holds: the newest."""

GRACE: Final = 5.0


class Desk:
    """One open ledger, and at most one worker process beside it."""

    def __init__(self, settings: Settings, *, read_only: bool, drive: bool) -> None:
        self.settings = settings
        self.read_only = read_only
        self._drive = drive and not read_only
        self._ledger: Ledger | None = None
        self._worker: subprocess.Popen[bytes] | None = None

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened at first use. Raises StoreUnavailable where it cannot be."""
        if self._ledger is None:
            self._ledger = Ledger.open(settings=self.settings, read_only=self.read_only)
        return self._ledger

    def snapshot(self) -> Snapshot:
        """Return the list as it stands. Raises StoreUnavailable while the database is away."""
        ledger = self.ledger
        now = ledger.clock.now()
        alive = [life for life in ledger.store.workers() if now - life.heartbeat < ALIVE]
        if self._drive and not alive:
            self._start_worker()
        if alive:
            late = max(life.lateness for life in alive)
            driver = f"{len(alive)} worker{'s' if len(alive) > 1 else ''} alive, {late.total_seconds():.1f} s late"
        else:
            driver = "starting a worker" if self._drive else "NO WORKER: nothing is driven"
        return Snapshot(
            taken_at=now,
            operations=ledger.list(limit=SHOWN),
            counts=ledger.store.queries.counts(),
            attentions=ledger.store.queries.attentions(),
            paused=ledger.store.paused(),
            worker=driver,
        )

    def detail(self, operation_id: str) -> Detail:
        """Return one operation, explained. Raises StoreUnavailable, and Refused for one that is not there."""
        ledger = self.ledger
        explanation = ledger.explain(operation_id)
        return Detail(explanation.operation, explanation, ledger.history(operation_id), ledger.clock.now())

    def _start_worker(self) -> None:
        """Start a worker as a child, so that neither can stall the other; it ends with the console."""
        if self._worker is not None and self._worker.poll() is None:
            return
        environment = {**os.environ, "OPLEDGER_DB": self.settings.database, "OPLEDGER_RESULTS": self.settings.results}
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "opledger.cli", "worker", "--name", "console"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """Stop the worker that was started here (it cancels nothing), and close the ledger."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.poll() is None:
            worker.terminate()
            try:
                worker.wait(GRACE)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
