"""How reads connect: connections that are kept, and names that may not lead anywhere."""

from __future__ import annotations

import asyncio
import functools
import select
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import aiohttp
import aiohttp.abc
from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage

from opledger.edges import addresses

MOST_INTERIM: Final = 100
"""Most answers of status 1xx that may come before the answer (RFC 9110 §15.2); an honest server sends a few."""


class _Handler(ResponseHandler):
    """One connection, which is not used again once something has come while nobody waited for it."""

    idle = False
    interim = 0  #: how many 1xx came since the last answer

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take one answer. Interim ones tell us nothing: aiohttp would keep any number of them for its reader."""
        if not 100 <= data[0].code < 200 or data[0].code == 101:
            self.interim = 0
            super().feed_data(data, size)
            return
        self.interim += 1
        if self.interim == MOST_INTERIM:
            if self.transport is not None:
                self.transport.abort()
            self.set_exception(HttpProcessingError(message="too many interim answers"))

    def data_received(self, data: bytes) -> None:
        """Take bytes, asked for or not; none where aiohttp itself wants what it has to be read on."""
        if self.idle and data:
            self.force_close()
        super().data_received(data)


def _new_handler(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Handler(loop)


class Connector(aiohttp.TCPConnector):
    """Keeps connections, and uses one again only where nothing has come since its last answer.

    By itself aiohttp takes bytes that follow an answer, or a second answer, for the answer to the next request, which
    may be about another job. httpx looks for them; here there is no public switch.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self._factory = functools.partial(_new_handler, loop=self._loop)

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        if isinstance(protocol, _Handler):
            protocol.idle = True
        super()._release(key, protocol, should_close=should_close)

    async def _get(self, key: Any, traces: Any) -> Connection | None:
        while (kept := await super()._get(key, traces)) is not None:
            handler = kept.protocol
            if isinstance(handler, _Handler) and not handler.should_close and not _unread(handler):
                handler.idle = False
                return kept
            kept.close()
        return None


Told = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Is told how far a request got, in the words of httpcore."""

TOLD: Final[ContextVar[Told]] = ContextVar("told")
"""Who is told how far the request of this task is, for `Anew`."""


class Anew(Connector):
    """Connects for each request anew, and says, in the words of httpcore, when bytes of it may leave from."""

    def __init__(self, **how: Any) -> None:
        super().__init__(force_close=True, **how)

    async def connect(self, req: aiohttp.ClientRequest, *how: Any, **more: Any) -> Connection:
        """Connect, with TLS where that is asked for. What fails until it returns has sent nothing of the request."""
        told = TOLD.get()
        await told("connection.connect_tcp.started", {})
        connection = await super().connect(req, *how, **more)
        await told("http11.send_request_headers.started", {})
        return connection


def _unread(handler: ResponseHandler) -> bool:
    """Tell whether there is something on the socket that was not read yet: bytes, or its end."""
    plain = None if handler.transport is None else handler.transport.get_extra_info("socket")
    if plain is None or not hasattr(select, "poll"):
        return False
    waiting = select.poll()
    waiting.register(plain.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


class Guard(aiohttp.abc.AbstractResolver):
    """Resolves names of foreign hosts, and refuses all of a host that has an address where it must not lead."""

    def __init__(self) -> None:
        self._system = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        """Look a name up. Raises AddressRefused."""
        found = await self._system.resolve(host, port, family)
        if not {addresses.kind_of(entry["host"]) for entry in found} <= addresses.PERMITTED.get():
            raise addresses.AddressRefused
        return found

    async def close(self) -> None:
        """Let go of the system's resolver."""
        await self._system.close()
