"""The stage of the demonstration: a provider, a ledger and a worker, each real, the first and last as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from opledger.config import load_settings
from opledger.edges.files import atomic_write, private_folder
from opledger.edges.private import open_file
from opledger.ledger import Ledger
from opledger.rules.model import Operation
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.sim.process import SimProcess

GRACE: Final = 10.0


class Stage:
    """Everything the demonstration runs on, in one folder that is left behind for a look afterwards."""

    def __init__(self, folder: Path, seed: int, policies: str = "") -> None:
        self.folder = folder
        self._policies = policies
        self.url = f"sqlite:///{folder / 'ledger.db'}"
        self.sim = SimProcess(seed=seed, contracts=folder / "contracts")
        self.environment = {
            **os.environ,
            "OPLEDGER_DB": self.url,
            "OPLEDGER_CONTRACTS": str(folder / "contracts"),
            "OPLEDGER_RESULTS": str(folder / "results"),
            "SIM_TOKEN": DEFAULT_TOKEN,
        }
        self._worker: subprocess.Popen[bytes] | None = None
        self._log: int | None = None

    def __enter__(self) -> Self:
        private_folder(self.folder / "contracts")
        # The key beside all the rest: a demonstration leaves nothing elsewhere.
        settings_file = f'{self._policies}\n[audit]\nkey = "signing.key"\n'
        atomic_write(self.folder / "opledger.toml", settings_file.encode())
        self.sim.start()
        settings = load_settings({"operator": "operator"}, self.environment, self.folder)
        self.ledger = Ledger.open(self.url, settings=settings)
        return self

    def start_worker(self) -> None:
        """Start the worker, a process of its own; what it logs goes to ``worker.log``."""
        command = [
            sys.executable,
            "-m",
            "opledger.cli",
            "worker",
            "--name",
            "demo-worker",
            "--parent",
            str(os.getpid()),
        ]
        log = open_file(self.folder / "worker.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            self._worker = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        finally:
            os.close(log)

    def worker_gone(self) -> str | None:
        """Say how the worker ended, if it did, with the end of its log."""
        if self._worker is None or self._worker.poll() is None:
            return None
        tail = (self.folder / "worker.log").read_text(errors="replace")[-600:]
        return f"the worker ended with exit code {self._worker.returncode}: {tail}"

    def find_job(self, operation: Operation) -> str | None:
        """Look for an operation's job at the provider, as a person would on its own pages."""
        found = [job["id"] for job in self.sim.jobs() if job["client_ref"] == operation.operation_id]
        return found[0] if found else None

    def stop_worker(self) -> None:
        """Stop the worker as a deploy would; it cancels no job."""
        worker, self._worker = self._worker, None
        if worker is None or worker.poll() is not None:
            return
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(GRACE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_worker()
        self.ledger.close()
        self.sim.stop()
