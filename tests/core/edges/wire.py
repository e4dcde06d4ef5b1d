"""A server of raw bytes: it sends what a test tells it, however wrong, and remembers what arrived."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from opledger.rules.calls import Request, origin_of

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
SHORT = timedelta(milliseconds=200)


class StillClock:
    """It is always noon, and no time passes unless a test says so."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        """Noon."""
        return NOON

    def monotonic(self) -> float:
        """What a test has let pass."""
        return self.passed

    def random(self) -> float:
        """The middle."""
        return 0.5


@dataclass(frozen=True)
class Arrived:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    raw: bytes


@dataclass
class Talk:
    """What a test's handler gets: the request and the way back."""

    request: Arrived
    writer: asyncio.StreamWriter
    wire: Wire

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close with a TCP reset, so that the other side gets an error and no end."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Talk], Awaitable[Any]]


def reply(status: int = 200, body: bytes = b"{}", *headers: str, close: bool = False) -> bytes:
    """One whole answer."""
    lines = [f"HTTP/1.1 {status} Any", f"Content-Length: {len(body)}", *headers, *(["Connection: close"] * close)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Wire:
    """The server. `handler` says what happens after a request has arrived; True from it closes the connection."""

    def __init__(self, handler: Handler | bytes, tls: ssl.SSLContext | None = None) -> None:
        self.handler = handler
        self.arrived: list[Arrived] = []
        self.connections = 0
        self.closed = asyncio.Event()
        self.came = asyncio.Event()
        self.greet: Handler | None = None
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{port}"
        self.origin = origin_of(self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._one(reader, writer):
                continue
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.closed.set()
        except asyncio.CancelledError:
            writer.transport.abort()  # the test is over; asyncio's streams would log a task that ends as cancelled
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if self.greet is not None:
            await self.greet(Talk(Arrived("", "", {}, b"", b""), writer, self))
            return False
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Arrived(method, target, headers, body, head + body)
        self.arrived.append(request)
        self.came.set()
        if isinstance(self.handler, bytes):
            writer.write(self.handler)
            await writer.drain()
            return b"Connection: close" not in self.handler
        if await self.handler(Talk(request, writer, self)):
            return False
        if headers.get("connection") == "close":
            await reader.read()
            self.closed.set()
            return False
        return True

    def request(self, path: str = "/jobs", *, effectful: bool = False, **changes: Any) -> Request:
        """A request to this server, with its own origin."""
        values: dict[str, Any] = {
            "method": "POST" if effectful else "GET",
            "url": self.url + path,
            "body": b'{"a":1}' if effectful else None,
            "origin": self.origin,
            "effectful": effectful,
            "timeout": timedelta(seconds=20),
        }
        return Request(**(values | changes))


@contextlib.asynccontextmanager
async def closed_port() -> AsyncIterator[str]:
    """A URL on which nobody listens, and nobody will as long as this is open."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
