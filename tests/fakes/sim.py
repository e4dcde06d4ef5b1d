"""The simulator in a thread of the test's own process: starts in milliseconds, with real sockets."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from opledger.edges.clock import Clock
from opledger.sim.app import Settings
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.sim.personalities import parse_faults
from opledger.sim.process import BackDoor
from opledger.sim.server import Running, serve


class SimThread(BackDoor):
    """Use as a context manager. `token` is the credential it wants to see; `clock` moves its jobs on."""

    def __init__(
        self, *, seed: int = 0, faults: str = "none", token: str = DEFAULT_TOKEN, clock: Clock | None = None
    ) -> None:
        self._clock = clock
        self.token = token
        self._settings = Settings(seed=seed, faults=parse_faults(faults), token=token)
        self._started: Future[Running] = Future()
        self._thread = threading.Thread(target=self._run, name="sim", daemon=True)

    def _run(self) -> None:
        try:
            asyncio.run(serve(self._settings, ready=self._started.set_result, clock=self._clock))
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a client that is let in."""
        return {"authorization": f"Bearer {self.token}"}

    def __enter__(self) -> Self:
        self._thread.start()
        running = self._started.result(timeout=20)
        self.base_url, self.elsewhere, self._stop = running.base_url, running.elsewhere, running.stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join(timeout=20)
