"""Serving the simulator: one process, one event loop, two ports (the provider, and a stranger to redirect to)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from opledger.edges.clock import Clock
from opledger.edges.listening import ReadyServer, listen
from opledger.sim.app import Settings, Sim
from opledger.sim.protocol import Lines, protocol_class

HOST = "127.0.0.1"
ADVICE = "choose another one, or 0 for any"


@dataclass(frozen=True, slots=True)
class Running:
    """A simulator that accepts connections. `stop` may be called from any thread."""

    base_url: str
    elsewhere: str
    stop: Callable[[], None]


async def serve(
    settings: Settings | None = None,
    *,
    port: int = 0,
    ready: Callable[[Running], None] | None = None,
    until: Callable[[], object] | None = None,
    clock: Clock | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT (in the main thread), `Running.stop`, or the end of `until`.

    `port` 0 takes any free one; the other origin always does. `ready` is called once connections are accepted;
    `until` is run in a thread of its own and ends the server when it returns. `clock` moves jobs on and stamps them
    (default: the machine's). Raises ConfigWrong if the port cannot be used.
    """
    loop = asyncio.get_running_loop()
    listeners = [listen(HOST, wanted, ADVICE) for wanted in (port, 0)]
    lines = Lines()
    ports = (listeners[0].getsockname()[1], listeners[1].getsockname()[1])
    sim = Sim(settings or Settings(), lines, ports, clock)
    config = uvicorn.Config(
        sim,
        http=protocol_class(lines),
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )

    def started() -> None:
        if ready is not None:
            ready(Running(sim.base_url, sim.elsewhere, stop))

    server = ReadyServer(config, started)

    def end() -> None:
        sim.post.closing.set()
        sim.holds.release()
        server.should_exit = True

    def stop() -> None:
        # The loop is closed already if the server ended by itself.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(end)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
    if until is not None:
        threading.Thread(target=_then, args=(until, stop), name="sim-until", daemon=True).start()
    await server.serve(sockets=listeners)


def _then(first: Callable[[], object], second: Callable[[], None]) -> None:
    first()
    second()
