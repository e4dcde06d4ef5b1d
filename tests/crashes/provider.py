"""The provider of one lane: the simulator in a forked process, on the lane's own time. It outlives all it serves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Self

from starlette.requests import Request
from starlette.responses import Response

from opledger.sim.hooks import Hooks
from opledger.sim.process import BackDoor
from opledger.sim.server import Running, serve
from tests.crashes.forks import dies_with_parent
from tests.crashes.page import SharedClock


class ForkedSim(BackDoor):
    """A simulator in a child of this process."""

    def __init__(self, clock: SharedClock) -> None:
        self._clock = clock
        self._pid = 0

    def start(self) -> Self:
        """Fork it, and wait until it accepts connections."""
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(theirs)
            dies_with_parent()
            try:
                _forget_with_the_account()
                asyncio.run(serve(ready=lambda running: _tell(ours, running), clock=self._clock))
            finally:
                os._exit(0)
        self._pid = pid
        os.close(ours)
        with os.fdopen(theirs, "rb") as pipe:
            told = json.loads(pipe.readline())
        self.base_url, self.elsewhere = told["base_url"], told["elsewhere"]
        return self

    def stop(self) -> None:
        """End it."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _forget_with_the_account() -> None:
    """Let it forget what it sent when it is told to send no more: the next story is another one."""
    register = Hooks._register

    async def registering(self: Hooks, request: Request) -> Response:
        if not await request.json():
            self.sent.clear()
        return await register(self, request)

    Hooks._register = registering  # type: ignore[method-assign]


def _tell(pipe: int, running: Running) -> None:
    told = {"base_url": running.base_url, "elsewhere": running.elsewhere}
    os.write(pipe, json.dumps(told).encode() + b"\n")
    os.close(pipe)
