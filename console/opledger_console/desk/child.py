"""The worker that the console starts where none is alive: a child process, so that neither can stall the other."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta
from tempfile import TemporaryFile
from typing import IO, Final

from opledger.config import Settings
from opledger.rules.plain import clean

GRACE: Final = 5.0
"""Seconds that a child gets to end by itself."""

TAIL: Final = 4096
"""Bytes of what a child said last that are looked at once it has ended."""

AGAIN: Final = timedelta(seconds=5)
"""How long a worker that ended at once is left alone before the next try."""


class ChildWorker:
    """At most one worker process beside the console."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at: datetime | None = None
        self._said: IO[bytes] | None = None
        self.ended: str | None = None  #: how the last one ended, until one is alive

    @property
    def name(self) -> str:
        """What the worker is called in leases and histories; told apart by process, for two consoles on one ledger."""
        return f"console-{os.getpid()}"

    @property
    def running(self) -> bool:
        """True while the child runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, now: datetime) -> None:
        """Start it, unless it runs or has just been tried."""
        if self.running:
            return
        self._note_end()
        if self._started_at is not None and now - self._started_at < AGAIN:
            return
        self._started_at = now
        self._said = TemporaryFile()  # noqa: SIM115 - open as long as the child runs
        settings = self._settings
        environment = {
            **os.environ,
            "OPLEDGER_DB": settings.database,
            "OPLEDGER_RESULTS": settings.results,
            "OPLEDGER_OPERATOR": settings.operator,
        }
        self._process = subprocess.Popen(  # noqa: S603 - our own worker, and no shell
            [sys.executable, "-m", "opledger.cli", "worker", "--name", self.name, "--parent", str(os.getpid())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            # Ctrl-C and a hang-up are for the console, which then ends its child; and where it can't, the child sees
            # that its parent has gone.
            start_new_session=True,
        )

    def _note_end(self) -> None:
        """Keep what the child said last, once it has ended."""
        if self._process is None:
            return
        last = ""
        if self._said is not None:
            self._said.seek(max(self._said.seek(0, os.SEEK_END) - TAIL, 0))
            lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
            last = clean(lines[-1], limit=200) if lines else ""
            self._said.close()
        self.ended = f"exit {self._process.returncode}" + (f": {last}" if last else "")
        self._process = self._said = None

    def stop(self) -> None:
        """End it; it finishes what it has begun to record, and cancels nothing."""
        process, self._process = self._process, None
        said, self._said = self._said, None
        if said is not None:
            said.close()
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
