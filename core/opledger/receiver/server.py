"""Serving: a listening socket, bounds for what comes before a body, and an end that answers what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from opledger.edges.listening import ReadyServer, listen
from opledger.ledger import Ledger
from opledger.ledger.deliveries import Doors
from opledger.receiver.app import Receiver, refusal_document
from opledger.receiver.intake import WITHIN

HEAD: Final = 32 * 1024  #: bytes of request line and headers
HEADERS: Final = 100
CONNECTIONS: Final = 2_000


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds for what comes before a body: it waits for headers for ever, however many."""

    _fed = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._fed += len(data)
        super().data_received(data)
        if self._timer is not None and self._fed > HEAD and not self.transport.is_closing():
            self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_is_here()
        if len(self.headers) > HEADERS or sum(len(name) + len(value) for name, value in self.headers) > HEAD:
            raise ValueError("too many headers")  # becomes a 400
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP as everything else is refused: with a JSON document."""
        answer = refusal_document(400, "malformed", msg, {"connection": "close"})
        lines = [b"HTTP/1.1 400 Bad Request", *(name + b": " + value for name, value in answer.raw_headers)]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(answer.body))
        self.transport.close()

    def _await_head(self) -> None:
        self._fed = 0
        self._timer = self.loop.call_later(WITHIN, self._give_up)

    def _head_is_here(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._head_is_here()
        if self._fed:
            self.send_400_response("The headers are too long or came too slowly.")
        else:
            self.transport.close()


async def serve(
    receiver: Receiver, listener: socket.socket, stop: asyncio.Event, ready: Callable[[], None] | None = None
) -> None:
    """Serve until told to stop; requests under way are answered first. `ready` is called once connections are taken."""
    settings = uvicorn.Config(
        receiver.app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(WITHIN) + 2,
    )
    server = ReadyServer(settings, ready or (lambda: None))
    upkeep = asyncio.ensure_future(receiver.run())
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({upkeep, serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        upkeep.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await upkeep


def run(ledger: Ledger, host: str, port: int, ready: Callable[[str, Sequence[str]], None] | None = None) -> None:
    """Receive webhooks in this process until SIGTERM or SIGINT. `ready` gets the address and the contracts.

    Raises ConfigWrong where the port or the contracts cannot be used. Uses uvloop where it is installed.
    """
    doors = Doors(ledger.settings)
    doors.look()
    listener = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}"

    async def main() -> None:
        stop = asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        receiver = Receiver(ledger, doors)
        await serve(receiver, listener, stop, lambda: ready(address, doors.names) if ready is not None else None)

    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
