"""The only HTTP. One request in, one answer or one honest failure out; nothing is followed, repeated or remembered."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import httpx

from opledger import __version__
from opledger.edges import addresses, credentials
from opledger.edges.bodies import TooLarge, Unpacker, Unusable, header_map
from opledger.edges.carriers import Carrier, Effects, Fresh, Outgoing, Reads, Reply, as_written, tidy
from opledger.edges.clock import Clock
from opledger.edges.connections import Anew, Connector, Guard
from opledger.edges.failures import NotSent, Trail, words
from opledger.edges.keys import Keys
from opledger.edges.marks import Marks
from opledger.edges.masking import LOGGERS, Mask
from opledger.edges.secrets import SecretResolver
from opledger.edges.streams import Interrupted, OnHead, Rest, Stream
from opledger.rules.calls import MAX_ANSWER, Answer, Download, Failure, Request, origin_of
from opledger.rules.contract import Auth
from opledger.rules.redact import Redactor

CONNECT_TIMEOUT: Final = 10.0
STALL: Final = timedelta(seconds=30)

_ALWAYS: Final = nullcontext()
_WHOLE: Final = frozenset({200, 201, 203, 204})
_BROKEN: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, aiohttp.ClientError, OSError, UnicodeError)

T = TypeVar("T")


class Http:
    """Sends requests. Belongs to one event loop; close it with `aclose`.

    No cookies, no redirects, no proxies from the environment, no retries. Two ways lead out:

    - *Effectful* requests go through httpx, each on a connection of its own. A kept connection that the server has just
      closed looks exactly like a request that was lost; without kept connections that cannot happen. Only a request
      whose connection was never made is known to be not delivered.
    - *Reads* go through aiohttp, which carries the others, too, over kept connections. Nobody asks what became of them.
    """

    def __init__(
        self,
        clock: Clock,
        secrets: SecretResolver,
        *,
        max_connections: int = 200,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`max_connections` holds for effectful requests and for reads separately. `tls` replaces the trust store."""
        self._clock = clock
        self._secrets = secrets
        self._most = max_connections
        self._keys = Keys(clock, secrets, self._ask_for_token)
        self._slots = asyncio.Semaphore(max_connections)
        self._tls = tls or httpx.create_ssl_context()
        self._effects: Carrier = Effects(Fresh(partial(self._session, Anew)))
        self._reads: Carrier = Reads(partial(self._session, Connector))
        self._abroad: Carrier = Reads(self._session_abroad)
        self._known: tuple[str, ...] = ()
        self._scrub = Redactor(())
        self._mask = Mask(secrets)
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
            logging.getLogger(name).addFilter(self._mask)

    async def aclose(self) -> None:
        """Close all connections. What is under way fails."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self._mask)
        await self._keys.aclose()
        await self._reads.aclose()
        await self._abroad.aclose()
        await self._effects.aclose()

    async def send(self, request: Request) -> Answer | Failure:
        """Send a request once and read its whole answer, within `request.timeout` and `request.max_bytes`.

        Every status is an Answer, redirects too. Raises ConfigWrong, before anything is sent, where a secret or a
        header cannot be used; cancelling the task closes the connection.
        """
        trail = Trail(request)
        return await self._bounded(trail, self._send(trail))

    async def download(
        self,
        request: Request,
        folder: Path,
        on_chunk: Callable[[bytes], None],
        *,
        on_head: OnHead | None = None,
        stall: timedelta = STALL,
        rest: Rest | None = None,
        marks: Marks | None = None,
    ) -> Download | Answer | Failure:
        """Send a read once and stream what it brings to a new file in `folder`.

        Statuses 200, 201, 203 and 204 (no byte) give a Download of at most `request.max_bytes` bytes, unpacked; the
        caller moves or removes its file. Every other status (202 is "not ready", 206 is a part) gives a small Answer.
        `on_head` gets the headers of what will be streamed, before any of it, and may return what wants the bytes of
        the wire, too; `on_chunk` gets every piece that was written, in order, one call at a time, in a thread. No byte
        for as long as `stall` ends it.

        Where a transfer breaks off and the server can send the rest of exactly the same thing, the Failure is an
        Interrupted, and what came so far is in its `rest`: the caller hands that to the next download, which asks for
        what is missing and tells `on_chunk` of nothing twice, or discards it. A server that then sends the whole starts
        anew: `on_head` tells. After every other Failure, an Answer, an error or a cancellation no file is left, unless
        there are `marks`: then what may be gone on with later stays, for whoever finds it by its mark.

        Raises as `send` does, and StoreUnavailable where the file cannot be written.
        """
        trail = Trail(request)
        stream = Stream(folder, on_chunk, on_head, rest, marks)
        try:
            outcome = await self._bounded(trail, self._download(trail, stream, stall))
        except asyncio.CancelledError:
            await stream.leave()
            raise
        except BaseException:
            await stream.discard()
            raise
        if not isinstance(outcome, Download | Interrupted):
            await stream.leave(outcome)
        return outcome

    async def _bounded(self, trail: Trail, work: Awaitable[T]) -> T | Failure:
        """Hold everything under one deadline, since httpx has none (F7), and put failures into our own words."""
        limit = trail.request.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit) as bound:
                trail.ends = bound.when()
                return await work
        except TimeoutError as error:
            # Our own, unless it is one of aiohttp's, which are of the same class.
            own = not isinstance(error, aiohttp.ClientError)
            return trail.failure(f"no whole answer within {limit:g} s" if own else words(error))
        except TooLarge as error:
            return replace(trail.failure(str(error)), too_large=True)
        except (NotSent, Unusable) as error:
            return trail.failure(str(error))
        except _BROKEN as error:
            return trail.failure(words(error))

    async def _send(self, trail: Trail) -> Answer:
        request = trail.request
        async with self._slots if request.effectful else _ALWAYS:
            reply = await self._reply(trail, request.timeout, {})
            try:
                return await self._whole(trail, reply, request.max_bytes)
            finally:
                await reply.aclose()

    async def _download(self, trail: Trail, stream: Stream, stall: timedelta) -> Download | Answer | Failure:
        try:
            return await self._streamed(trail, stream, stall)
        except Unusable:
            await stream.discard()  # too large, damaged, or not the rest of what is here
            raise
        except _BROKEN as error:
            if not stream.started:
                raise
            return await stream.interrupted(trail.failure(words(error)))

    async def _streamed(self, trail: Trail, stream: Stream, stall: timedelta) -> Download | Answer | Failure:
        request, rest = trail.request, stream.rest
        reply = await self._reply(trail, stall, {} if rest is None else rest.asks)
        try:
            goes_on = rest is not None and reply.status == 206
            if reply.status not in _WHOLE and not goes_on:
                return await self._whole(trail, reply, min(request.max_bytes, MAX_ANSWER))
            headers = header_map(reply.headers)
            if rest is None or not goes_on:
                await stream.begin(reply.status, self._hidden(headers))
            elif not rest.fits(headers):
                raise Unusable("the rest that the server sent does not fit what is here")
            unpacker = Unpacker(headers, request.max_bytes, stream.received)
            async for data in reply.chunks():
                if stream.on_wire is not None:
                    stream.on_wire(data)
                for piece in unpacker.feed(data):
                    await stream.take(piece)
            unpacker.finish()
            if stream.falls_short:
                return await stream.interrupted(trail.failure("the server sent less than the rest"))
            return await stream.finish(self._clock.now())
        finally:
            await reply.aclose()

    async def _whole(self, trail: Trail, reply: Reply, limit: int) -> Answer:
        """Read an answer into memory."""
        if reply.status < 200:
            raise Unusable(f"the server wants to switch protocols (status {reply.status})")
        headers = header_map(reply.headers)
        pieces: list[bytes] = []
        if trail.request.method.upper() != "HEAD":
            unpacker = Unpacker(headers, limit)
            async for data in reply.chunks():
                pieces.extend(unpacker.feed(data))
            unpacker.finish()
        body, at = b"".join(pieces), self._clock.now()
        if trail.guest_of is not None:
            # A token endpoint may give the token that we have: masked, it could not be used. Nobody else reads this.
            return Answer(reply.status, headers, body, at, trail.request.url)
        # An answer that repeats our credentials is scrubbed before anybody reads a word out of it (I24).
        headers, body = self._hidden(headers), self._scrubber().hide_bytes(body)
        renewed = reply.status == 401 and trail.renewed is not None and await trail.renewed(trail.ends)
        return Answer(reply.status, headers, body, at, trail.request.url, renewed=renewed)

    def _scrubber(self) -> Redactor:
        known = self._secrets.known()
        if known != self._known:
            self._known, self._scrub = known, Redactor(known)
        return self._scrub

    def _hidden(self, headers: Mapping[str, str]) -> dict[str, str]:
        scrub = self._scrubber()
        return {name: scrub.hide_text(value) for name, value in headers.items()}

    async def _reply(self, trail: Trail, silence: timedelta, adds: Mapping[str, tuple[str, str]]) -> Reply:
        """Send, and return the answer whose body is still to be read; the caller lets it go."""
        request = trail.request
        own = _is_own(request)
        outgoing = await self._outgoing(trail, silence, adds, own=own)
        carrier: Carrier = self._effects if request.effectful else self._reads
        if not own or trail.guest_of is not None:
            await self._look_abroad(request, trail.guest_of or request.origin)
            carrier = self._abroad
        trail.handed_over = True
        reply = await carrier.carry(outgoing)
        trail.status = reply.status
        return reply

    async def _outgoing(
        self, trail: Trail, silence: timedelta, adds: Mapping[str, tuple[str, str]], *, own: bool
    ) -> Outgoing:
        """Make the request that leaves; only this one has credentials in it."""
        request = trail.request
        headers, url, body = credentials.plain_headers(request, own=own), request.url, request.body
        entitled = origin_of(request.url) == request.auth_origin if request.auth_origin else own
        if own or entitled:
            request = request if entitled else replace(request, auth=Auth())
            purse = self._keys.purse()
            headers, url = await credentials.dress(request, headers, purse)
            body = await credentials.body_of(request, purse)
            trail.renewed = purse.renewed
        headers.setdefault("user-agent", ("User-Agent", f"opledger/{__version__}"))
        headers.setdefault("accept", ("Accept", "*/*"))
        headers["accept-encoding"] = ("Accept-Encoding", "identity")  # F8: what is not packed cannot be a bomb
        headers.update(adds)
        if request.effectful:
            headers["connection"] = ("Connection", "close")
        total = request.timeout.total_seconds()
        return Outgoing(
            request.method,
            tidy(url),
            credentials.checked(headers),
            body if own else None,
            connect=min(CONNECT_TIMEOUT, total),
            silence=min(silence.total_seconds(), total),
            total=total,
            trace=trail.trace,
        )

    async def _ask_for_token(self, request: Request, base: str) -> Answer | Failure:
        """Send the form of a token request to its own endpoint.

        Where that lies is checked as for a URL of an answer: a base URL outside does not lead a secret inside.
        """
        trail = Trail(request, guest_of=base)
        return await self._bounded(trail, self._send(trail))

    async def _look_abroad(self, request: Request, origin: str) -> None:
        """Check where a foreign URL leads, as far as the URL tells; names are checked when they are resolved.

        Only public addresses, unless the own origin is itself in a local network.
        """
        if request.effectful:
            raise NotSent("a call that changes something goes only to the contract's own origin")
        base = urlsplit(origin)
        permitted = addresses.PUBLIC
        if base.hostname:
            with suppress(OSError):  # an origin that cannot be resolved is nowhere near us
                permitted = addresses.permitted(await addresses.kinds(base.hostname, base.port or 443))
        addresses.PERMITTED.set(permitted)
        if (addresses.literal(urlsplit(request.url).hostname or "") or "public") not in permitted:
            raise addresses.AddressRefused

    def _session(self, connector: type[Connector]) -> aiohttp.ClientSession:
        return self._new_session(
            connector(ssl=self._tls, limit=self._most, resolver=aiohttp.ThreadedResolver(), ttl_dns_cache=10)
        )

    def _session_abroad(self) -> aiohttp.ClientSession:
        # A kept connection or a cached address would go round the check that another request needs.
        return self._new_session(
            Connector(ssl=self._tls, limit=self._most, resolver=Guard(), use_dns_cache=False, force_close=True)
        )

    def _new_session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Content-Type",),
            max_line_size=16 * 1024,
            max_field_size=16 * 1024,
        )
        # aiohttp silently sends GET, HEAD, PUT and DELETE again on a new connection where a kept one breaks, also after
        # the server has read them. There is no public switch.
        session._retry_connection = False  # noqa: SLF001
        # aiohttp rewrites percent-escapes ("%2f" becomes "/"), which breaks URLs that are signed as they are written.
        session._build_url = as_written  # type: ignore[method-assign]  # noqa: SLF001
        return session


def _is_own(request: Request) -> bool:
    try:
        return origin_of(request.url) == request.origin
    except ValueError:
        raise NotSent("the URL is not one that can be used") from None
