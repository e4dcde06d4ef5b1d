"""What carries one request to the network and its answer back: httpx for what changes something, aiohttp for reads."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import aiohttp
import httpx
from multidict import CIMultiDict
from yarl import URL

from opledger.edges.connections import TOLD, Told

_TIDY: Final = re.compile(
    r"https?://[a-z0-9.-]+(?::(?!(?:80|443)(?:[/?]|$))[1-9][0-9]{1,4})?"
    r"(?!\S*/\.)(?:/(?:[A-Za-z0-9._~!$&()*+,;=:@/-]|%[0-9A-F]{2})*)(?:\?(?:[A-Za-z0-9._~!$&()*+,;=:@/?-]|%[0-9A-F]{2})*)?"
)
"""URLs that httpx would leave exactly as they are. To ask it costs as much as the rest of making a request."""

_LONG: Final = 2048

PIECE: Final = 64 * 1024
"""Most bytes of the wire that come at once."""


def tidy(url: str) -> str:
    """Return a URL with everything escaped that must be, and nothing else changed (RFC 3986). Raises InvalidURL."""
    if len(url) <= _LONG and _TIDY.fullmatch(url):
        return url
    return str(httpx.URL(url))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it leaves, with its credentials. Times are in seconds."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes | None
    connect: float  #: until there is a connection
    silence: float  #: longest time in which no byte comes
    total: float
    trace: Told


class Reply(Protocol):
    """The head of an answer, and its body that is still to be read. Whoever has one closes it."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]:
        """The headers as they came."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Give the bytes of the wire, nothing unpacked (F8)."""
        ...

    async def aclose(self) -> None:
        """Let the connection go; it is closed where the body was not read to its end."""
        ...


class Carrier(Protocol):
    """Sends requests; raises what its library raises."""

    async def carry(self, outgoing: Outgoing) -> Reply:
        """Send a request once and return the answer as soon as its head is here."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


# --- what changes nothing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Read:
    response: aiohttp.ClientResponse

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]:
        return self.response.raw_headers

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self.response.content
        while data := await content.read(PIECE):
            yield data

    async def aclose(self) -> None:
        self.response.release()
        await self.response.wait_for_close()


class _Session:
    """A session of aiohttp, made where it is first needed."""

    def __init__(self, make: Callable[[], aiohttp.ClientSession]) -> None:
        self._make = make
        self._made: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        body: bytes | None,
        limits: tuple[float, float, float],
    ) -> _Read:
        """Send a request once, within the limits that `_timeout` takes. Raises aiohttp.ClientError, OSError."""
        if self._made is None:
            self._made = self._make()
        response = await self._made.request(
            method,
            url,
            headers=CIMultiDict(headers),
            data=body or None,
            allow_redirects=False,
            timeout=_timeout(*limits),
        )
        return _Read(response)

    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.close()


class Reads:
    """Carries what changes nothing, over connections that are kept. `make` makes the session where it is needed."""

    def __init__(self, make: Callable[[], aiohttp.ClientSession]) -> None:
        self._session = _Session(make)

    async def carry(self, outgoing: Outgoing) -> Reply:
        """Send a request once. Raises aiohttp.ClientError, OSError."""
        limits = (outgoing.connect, outgoing.silence, outgoing.total)
        return await self._session.send(outgoing.method, outgoing.url, outgoing.headers, outgoing.body, limits)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.aclose()


# --- what changes something ---------------------------------------------------------------------------------------


class Fresh(httpx.AsyncBaseTransport):
    """A transport of httpx over aiohttp, for one request on a connection of its own.

    httpx's own looks through all connections of its pool for each request: with 200 of them it takes ten times as long.
    The errors are aiohttp's: to give them the names that httpx has for its own would say more than is known.
    """

    def __init__(self, make: Callable[[], aiohttp.ClientSession]) -> None:
        """`make` gives a session whose connector is a `connections.Anew`."""
        self._session = _Session(make)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request once. Raises aiohttp.ClientError, OSError."""
        TOLD.set(request.extensions["trace"])
        times: Mapping[str, float] = request.extensions["timeout"]
        limits = (times["connect"], times["read"], times["pool"])
        headers = request.headers.multi_items()
        read = await self._session.send(request.method, str(request.url), headers, request.content, limits)
        return httpx.Response(read.status, headers=list(read.headers), stream=_Body(read))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, read: _Read) -> None:
        self._read = read

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._read.chunks()

    async def aclose(self) -> None:
        await self._read.aclose()


@dataclass(frozen=True, slots=True)
class _Effect:
    response: httpx.Response

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]:
        return self.response.headers.raw

    def chunks(self) -> AsyncIterator[bytes]:
        # `aiter_bytes` of httpx would unpack without any bound.
        assert isinstance(self.response.stream, httpx.AsyncByteStream)
        return aiter(self.response.stream)

    async def aclose(self) -> None:
        await self.response.aclose()


class Effects:
    """Carries what changes something, through httpx."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def carry(self, outgoing: Outgoing) -> Reply:
        """Send a request once. Raises what the transport raises."""
        total = outgoing.total
        limits = {"connect": outgoing.connect, "read": outgoing.silence, "write": total, "pool": total}
        request = httpx.Request(
            outgoing.method,
            outgoing.url,
            headers=[(name.encode(), value.encode()) for name, value in outgoing.headers],
            content=outgoing.body,
            extensions={"timeout": limits, "trace": outgoing.trace},
        )
        return _Effect(await self._transport.handle_async_request(request))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


@lru_cache(maxsize=256)
def _timeout(connect: float, silence: float, total: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=connect, sock_read=silence, connect=total)


def as_written(str_or_url: str | URL) -> URL:
    """Make a URL of aiohttp that is sent as it is written."""
    return URL(str(str_or_url), encoded=True)
