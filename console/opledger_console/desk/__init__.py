"""The console's only door to the core: what screens read, what people decide, and the worker beside the console.

Everything here blocks and is called from threads, never from the loop that draws. `Desk` holds what is open; the other
modules read one kind of thing each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from opledger.config import Settings
from opledger.errors import Refused
from opledger.ledger import Ledger
from opledger.ledger.health import ALIVE
from opledger_console.desk.child import ChildWorker
from opledger_console.desk.prefs import Memory
from opledger_console.views import Overview, WorkerView

SPARING: Final = 20
"""Counting may take one part in so many of the time: with a million operations it costs 60 ms."""


class Desk:
    """One open ledger, and at most one worker process beside it. Safe to use from several threads."""

    def __init__(self, settings: Settings, *, read_only: bool, drive: bool, memory: Memory | None = None) -> None:
        self.settings = settings
        self.read_only = read_only
        self.drives = drive and not read_only
        self.closing = threading.Event()
        self._ledger: Ledger | None = None
        self._opening = threading.Lock()
        self._child = ChildWorker(settings)
        self.memory = memory or Memory()
        self.latest: Overview | None = None  #: the last picture of the whole, for a screen that has just been opened
        self._counts: dict[str, int] = {}
        self._count_again = 0.0

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened at first use. Raises StoreUnavailable where it cannot be."""
        with self._opening:
            if self._ledger is None:
                self._ledger = Ledger.open(settings=self.settings, read_only=self.read_only, tested=True)
            return self._ledger

    @property
    def where(self) -> str:
        """Host and database, or the file's name, without credentials."""
        parts = urlsplit(self.settings.database)
        if parts.scheme.startswith("sqlite"):
            return parts.path.rpartition("/")[2] or self.settings.database
        return f"{parts.hostname or 'localhost'}{parts.path}"

    def now(self) -> datetime:
        """The time by the clock that the ledger goes by."""
        return self.ledger.clock.now()

    def wait_for_change(self, timeout: float) -> bool:
        """Block until somebody has written, or `timeout` seconds have passed. Raises StoreUnavailable."""
        return self.ledger.store.wait_for_change(timeout, self.closing)

    def overview(self) -> Overview:
        """Return what the frame of every screen says. Raises StoreUnavailable while the database is away."""
        ledger = self.ledger
        ledger.store.database.check_version()  # somebody may have upgraded it since
        now = ledger.clock.now()
        workers = tuple(
            WorkerView(life.name, life.host, life.pid, life.heartbeat, life.lateness, now - life.heartbeat < ALIVE)
            for life in ledger.store.workers()
        )
        # A heartbeat speaks for ten seconds; of the worker that was started here, it is known when it has gone.
        gone = not self._child.running
        alive = [one for one in workers if one.alive and not (gone and one.name.startswith(self._child.name))]
        if self.drives and not alive:
            self._child.start(now)
        queries = ledger.store.queries
        self.latest = Overview(
            taken_at=now,
            counts=self._counted(queries.counts),
            attentions=queries.attentions(),
            paused=ledger.store.paused(),
            workers=workers,
            driver=self._driver(alive),
            mode=self._mode(alive),
        )
        return self.latest

    def _counted(self, count: Callable[[], dict[str, int]]) -> dict[str, int]:
        monotonic = self.ledger.clock.monotonic
        begun = monotonic()
        if begun >= self._count_again:
            self._counts = count()
            self._count_again = begun + SPARING * (monotonic() - begun)
        return self._counts

    def _mode(self, alive: list[WorkerView]) -> str:
        if self.read_only:
            return "READ-ONLY"
        return "drives" if alive and self._child.running else "watches"

    def _driver(self, alive: list[WorkerView]) -> str:
        if alive:
            self._child.ended = None
            late = max((worker.lateness for worker in alive), default=timedelta())
            return f"{len(alive)} worker{'s' if len(alive) > 1 else ''}, {late.total_seconds():.1f} s late"
        if self.drives and self._child.ended is not None:
            return f"NO WORKER: the one started here ended ({self._child.ended})"
        return "starting a worker" if self.drives else "NO WORKER: nothing is driven"

    def check_writable(self) -> None:
        """Raise Refused in read-only mode, which the ledger itself enforces too."""
        if self.read_only:
            raise Refused("this console was opened with --read-only; open it without to decide anything")

    def close(self) -> None:
        """Stop the worker that was started here (it cancels nothing), and close the ledger."""
        self.closing.set()
        self._child.stop()
        with self._opening:
            if self._ledger is not None:
                self._ledger.close()
                self._ledger = None
