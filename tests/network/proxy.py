"""A TCP proxy between the worker and the provider that breaks one chosen exchange, at one chosen byte.

It knows just enough of HTTP to tell one request from the next. What it did with which bytes is kept in `Seen`: that is
the truth against which the journal is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal

HOLDS: Final = 30.0
"""Seconds after which the proxy lets go of a client that does not give up by itself."""

_NOTHING: Final = struct.pack("ii", 1, 0)  #: SO_LINGER on, 0 seconds: close() sends RST instead of FIN
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)", re.IGNORECASE)

Kind = Literal[
    "cut",  # forward so many bytes of that side, then close both
    "half",  # the same, and only our writing half is closed
    "silent",  # take the request and do nothing
    "hole",  # answer so many bytes, and then no more
    "slam",  # reset after so many bytes of the request were read
    "stall",  # read no further than so many bytes of the request
    "delay",  # that side comes later
    "drip",  # the answer comes byte by byte from there on, with pauses
    "pieces",  # the answer comes byte by byte, at once
    "twice",  # the provider gets the request twice; the second answer counts (side "answer": the first)
    "echo",  # the answer comes twice, at once
    "late",  # the answer comes twice, the second time a moment later
    "swap",  # two pieces of the answer change places
    "crossed",  # two answers change places
    "garbage",  # bytes follow the answer
]
Side = Literal["request", "answer"]
Framing = Literal["length", "chunked", "close"]


@dataclass(frozen=True, slots=True)
class Toxic:
    """What is done to one exchange."""

    kind: Kind
    side: Side = "answer"
    at: int = 0  #: bytes of that side that pass
    reset: bool = False  #: RST in place of FIN
    framing: Framing = "length"  #: how the end of the answer is told
    seconds: float = 0.0

    def __str__(self) -> str:
        ends = " rst" if self.reset else ""
        framing = "" if self.framing == "length" else f" {self.framing}"
        return f"{self.kind} {self.side}@{self.at}{ends}{framing}"


@dataclass(slots=True)
class Seen:
    """One request of the worker, and what became of it."""

    kind: str
    request: bytes
    toxic: Toxic | None
    sent_on: int = 0  #: bytes of the request that the provider was sent
    times: int = 0  #: how often the provider got the whole of it
    true_answer: bytes = b""  #: what the provider said
    answer: bytes = b""  #: what the worker was to get of it, as it was framed
    given: int = 0  #: bytes of that which were sent
    began: float = 0.0
    ended: float = 0.0
    broken: bool = False  #: closed by a reset, after which nobody knows what of the given bytes was read
    stray: bool = False  #: something else than the true answer was sent

    @property
    def whole(self) -> bool:
        """True where every byte of the answer was sent."""
        return bool(self.answer) and self.given >= len(self.answer)

    @property
    def status(self) -> int:
        """The status that was to be told; 0 where there is none."""
        found = re.match(rb"HTTP/1\.[01] ([0-9]{3})", self.answer)
        return int(found.group(1)) if found else 0

    @property
    def body(self) -> bytes:
        """The provider's own body."""
        return self.true_answer.partition(b"\r\n\r\n")[2]


@dataclass
class Proxy:
    """Listens on a port of its own. All methods but `arm` belong to its event loop; use it with `tests` `Loop`."""

    upstream: tuple[str, int]
    tls: ssl.SSLContext | None = None
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    _armed: dict[tuple[str, bytes], deque[Toxic]] = field(default_factory=lambda: defaultdict(deque))
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)
    _crossing: tuple[Seen, asyncio.Future[bytes]] | None = None

    @property
    def url(self) -> str:
        """Where the worker finds it."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def open(self) -> None:
        """Listen; again on the same port after `shut`."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self.tls, backlog=512, limit=32 * 1024 * 1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Refuse connections, and drop those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def arm(self, kind: str, marker: str, *toxics: Toxic) -> None:
        """Break the next requests of a kind that have the marker in them, in this order."""
        self._armed[kind, marker.encode()].extend(toxics)

    def disarm(self) -> int:
        """Forget what was not used; returns how many that were."""
        left = sum(map(len, self._armed.values()))
        self._armed.clear()
        return left

    # --- one connection -------------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                continue
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = _length_of(head)
        toxic = self._take(head, head)
        loop = asyncio.get_running_loop()
        if toxic is not None and toxic.kind in ("slam", "stall"):
            seen = Seen(kind_of(head), head, toxic, began=loop.time())
            self.seen.append(seen)
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readexactly(max(0, min(length, toxic.at - len(head))))
            if toxic.kind == "stall":
                await self._until_gone(reader, writer, reads=False)
            await _close(writer, reset=True)
            seen.ended = loop.time()
            return False
        request = head + await reader.readexactly(length)
        toxic = toxic or self._take(head, request)
        seen = Seen(kind_of(head), request, toxic, began=loop.time())
        self.seen.append(seen)
        try:
            goes_on = await self._exchange(seen, toxic or Toxic("pieces", at=-1), reader, writer)
        finally:
            seen.ended = loop.time()
        return goes_on and b"\r\nconnection: close" not in head.lower()

    def _take(self, head: bytes, text: bytes) -> Toxic | None:
        kind = kind_of(head)
        for (armed, marker), toxics in self._armed.items():
            if toxics and armed == kind and marker in text:
                return toxics.popleft()
        return None

    async def _exchange(
        self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        passes = seen.request
        if toxic.side == "request" and toxic.kind in ("cut", "half"):
            passes = seen.request[: toxic.at]
        if toxic.kind == "silent":
            await self._until_gone(reader, writer)
            return False
        if toxic.kind == "delay" and toxic.side == "request":
            await asyncio.sleep(toxic.seconds)
        seen.sent_on, whole = len(passes), len(passes) == len(seen.request)
        for _ in range(2 if toxic.kind == "twice" else 1):
            answer = await self._ask(passes, halves=toxic.kind == "half" and toxic.side == "request")
            seen.times += whole
            if not seen.true_answer or toxic.side == "request":
                seen.true_answer = answer
        if not whole or (toxic.side == "request" and toxic.kind in ("cut", "half")):
            seen.broken = toxic.reset
            await _close(writer, reset=toxic.reset)
            return False
        seen.answer = framed(seen.true_answer, toxic.framing)
        return await _WAYS.get(toxic.kind, Proxy._give)(self, seen, toxic, reader, writer)

    async def _ask(self, request: bytes, *, halves: bool = False) -> bytes:
        """Send a request, or the beginning of one, on; returns the answer with our own address in it."""
        reader, writer = await asyncio.open_connection(*self.upstream, limit=32 * 1024 * 1024)
        try:
            writer.write(request)
            if halves:
                writer.write_eof()
                with contextlib.suppress(OSError):
                    await asyncio.wait_for(reader.read(), 0.5)
                return b""
            await writer.drain()
            if not request or len(request) < _whole_length(request):
                return b""
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(_length_of(head)) if _LENGTH.search(head) else await reader.read()
            mine, theirs = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.upstream[1]}"
            assert len(mine) == len(theirs), "two ports of different length: no answer could be cut at a known byte"
            found = head + body
            return found if self.tls else found.replace(f"http://{theirs}".encode(), self.url.encode())
        except (OSError, asyncio.IncompleteReadError):
            return b""
        finally:
            writer.close()

    # --- ways to answer -------------------------------------------------------------------------------------------

    async def _give(self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Give the whole answer, in pieces of one byte where `at` is not negative, maybe late."""
        if toxic.kind == "delay":
            await asyncio.sleep(toxic.seconds)
        if toxic.kind == "pieces" and toxic.at >= 0:
            for number in range(len(seen.answer)):
                await self._write(seen, writer, seen.answer[number : number + 1])
                await asyncio.sleep(0)
        else:
            await self._write(seen, writer, seen.answer)
        if toxic.framing == "close":
            writer.close()
        return bool(seen.answer) and toxic.framing != "close"

    async def _cut(self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await self._write(seen, writer, seen.answer[: toxic.at])
        seen.broken = toxic.reset
        await _close(writer, reset=toxic.reset)
        return False

    async def _half(self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await self._write(seen, writer, seen.answer[: toxic.at])
        if writer.can_write_eof():
            writer.write_eof()
        await self._until_gone(reader, writer)
        return False

    async def _hole(self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        # An answer may be shorter than the one that was measured. Its last byte stays back at least: where only the
        # end of the connection ends it, it would be whole and not be over.
        await self._write(seen, writer, seen.answer[: min(toxic.at, len(seen.answer) - 1)])
        await self._until_gone(reader, writer)
        return False

    async def _drip(self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Give byte after byte; what is left after `HOLDS` comes at once."""
        await self._write(seen, writer, seen.answer[: toxic.at])
        gone = asyncio.ensure_future(self._until_gone(reader, writer))
        ends = asyncio.get_running_loop().time() + HOLDS
        try:
            for number in range(toxic.at, len(seen.answer)):
                wait = toxic.seconds if asyncio.get_running_loop().time() < ends else 0
                if gone.done() or (await asyncio.wait({gone}, timeout=wait))[0]:
                    return False
                await self._write(seen, writer, seen.answer[number : number + 1])
        finally:
            gone.cancel()
        return False

    async def _echo(self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        again = seen.answer if toxic.kind != "garbage" else b"\x00\xffHTTP/1.1 599 garbage"
        await self._write(seen, writer, seen.answer)
        if toxic.kind == "late":
            await asyncio.sleep(toxic.seconds)
        with contextlib.suppress(OSError):
            writer.write(again)
            await writer.drain()
        seen.stray = True
        return True

    async def _swap(self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        text, size = seen.answer, 12
        one, two = text[toxic.at : toxic.at + size], text[toxic.at + size : toxic.at + 2 * size]
        seen.answer = text[: toxic.at] + two + one + text[toxic.at + 2 * size :]
        seen.stray = seen.answer != text
        await self._write(seen, writer, seen.answer)
        await _close(writer, reset=False)  # what was swapped may say of any length that it is
        return False

    async def _crossed(
        self, seen: Seen, toxic: Toxic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        loop = asyncio.get_running_loop()
        if self._crossing is None:
            mine: asyncio.Future[bytes] = loop.create_future()
            self._crossing = seen, mine
            answer = await mine
        else:
            other, theirs = self._crossing
            self._crossing = None
            answer = other.answer
            theirs.set_result(seen.answer)
        seen.answer, seen.stray = answer, True
        await self._write(seen, writer, answer)
        return True

    async def _write(self, seen: Seen, writer: asyncio.StreamWriter, data: bytes) -> None:
        if data:
            writer.write(data)
            await writer.drain()
            seen.given += len(data)

    async def _until_gone(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, reads: bool = True
    ) -> None:
        """Wait until the client has had enough."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(HOLDS):
                if reads:
                    while await reader.read(65536):
                        continue
                else:
                    await writer.wait_closed()


_Way = Callable[[Proxy, Seen, Toxic, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
_WAYS: Final[dict[str, _Way]] = {
    "cut": Proxy._cut,
    "half": Proxy._half,
    "hole": Proxy._hole,
    "drip": Proxy._drip,
    "echo": Proxy._echo,
    "late": Proxy._echo,
    "garbage": Proxy._echo,
    "swap": Proxy._swap,
    "crossed": Proxy._crossed,
}


def kind_of(head: bytes) -> str:
    """Say what a request asks of the simulated provider, by its first line."""
    method, _, target = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    path = target.partition(" ")[0].partition("?")[0]
    if path.startswith("/_"):
        return "steering"
    if path == "/oauth/token":
        return "token"
    if method == "POST":
        return "create"
    if method == "DELETE":
        return "cancel"
    if path.endswith(("/result", "/errors")):
        return "result"
    return "list" if path.endswith("/jobs") else "status"


def framed(answer: bytes, framing: Framing) -> bytes:
    """Tell the end of an answer in another way than by its length."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if framing == "length" or not answer or not _LENGTH.search(head):
        return answer
    head = _LENGTH.sub(b"", head)
    if framing == "close":
        return head + b"\r\nconnection: close\r\n\r\n" + body
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body[:half], body[half:]) if piece)
    return head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def _length_of(head: bytes) -> int:
    found = _LENGTH.search(head)
    return int(found.group(1)) if found else 0


def _whole_length(request: bytes) -> int:
    head, ends, _ = request.partition(b"\r\n\r\n")
    return len(head) + 4 + _length_of(request) if ends else len(request) + 1


async def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        plain = writer.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOTHING)
        writer.transport.abort()
    else:
        writer.close()
