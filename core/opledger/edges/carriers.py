"""What carries one request to the network and its answer back: httpx where something is changed, aiohttp for reads."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import aiohttp
import httpx
from multidict import CIMultiDict
from yarl import URL

Trace = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Is told how far a request got, in the words of httpcore; aiohttp has none."""

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
    trace: Trace


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


# --- httpx ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Effect:
    response: httpx.Response

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]:
        return self.response.headers.raw

    async def chunks(self) -> AsyncIterator[bytes]:
        # `aiter_bytes` of httpx would unpack without any bound.
        assert isinstance(self.response.stream, httpx.AsyncByteStream)
        async for data in self.response.stream:
            yield data

    async def aclose(self) -> None:
        await self.response.aclose()


class Effects:
    """Carries what changes something, each request on a connection of its own."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def carry(self, outgoing: Outgoing) -> Reply:
        """Send a request once. Raises httpx.HTTPError."""
        request = httpx.Request(
            outgoing.method,
            outgoing.url,
            headers=[(name.encode(), value.encode()) for name, value in outgoing.headers],
            content=outgoing.body,
            extensions={
                "timeout": {
                    "connect": outgoing.connect,
                    "read": outgoing.silence,
                    "write": outgoing.total,
                    "pool": outgoing.total,
                },
                "trace": outgoing.trace,
            },
        )
        return _Effect(await self._transport.handle_async_request(request))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


# --- aiohttp ----------------------------------------------------------------------------------------------------------


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


class Reads:
    """Carries what changes nothing, over connections that are kept. The session is made where it is first needed."""

    def __init__(self, make: Callable[[], aiohttp.ClientSession]) -> None:
        self._make = make
        self._session: aiohttp.ClientSession | None = None

    async def carry(self, outgoing: Outgoing) -> Reply:
        """Send a request once. Raises aiohttp.ClientError, OSError."""
        session = self._session
        if session is None:
            session = self._session = self._make()
        return _Read(
            await session.request(
                outgoing.method,
                outgoing.url,
                headers=CIMultiDict(outgoing.headers),
                data=outgoing.body or None,
                allow_redirects=False,
                timeout=_timeout(outgoing.connect, outgoing.silence, outgoing.total),
            )
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


@lru_cache(maxsize=256)
def _timeout(connect: float, silence: float, total: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=connect, sock_read=silence, connect=total)


def as_written(str_or_url: str | URL) -> URL:
    """Make a URL of aiohttp that is sent as it is written."""
    return URL(str(str_or_url), encoded=True)
