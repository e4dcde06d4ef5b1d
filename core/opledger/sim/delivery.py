"""Sending an answer, or spoiling it: late, dripping, cut, dropped, held back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from opledger.sim.faults import Fault
from opledger.sim.log import Entry, Log
from opledger.sim.protocol import Lines
from opledger.sim.replies import Reply

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_DROPS: Final = 8  #: pieces of a dripping body


class Holds:
    """Answers that wait until a test lets them go."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.waiting: dict[int, tuple[str, asyncio.Event]] = {}

    def hold(self, kind: str) -> None:
        """From now on answers to requests of this kind wait."""
        self.kinds.add(kind)

    def release(self, kind: str | None = None) -> int:
        """Stop holding one kind (None: all) and let its waiting answers go. Returns how many waited."""
        self.kinds = set() if kind is None else self.kinds - {kind}
        going = [event for held, event in self.waiting.values() if kind in (None, held)]
        for event in going:
            event.set()
        return len(going)


class Post:
    """Everything that brings an answer to the wire."""

    def __init__(self, lines: Lines, log: Log, holds: Holds) -> None:
        self._lines = lines
        self._log = log
        self._holds = holds
        self.closing = asyncio.Event()

    def parcel(self, reply: Reply, fault: Fault | None, entry: Entry, done: Callable[[], None] | None = None) -> Parcel:
        """An ASGI callable that sends `reply` as `fault` has it, and calls `done` whatever happens."""
        return Parcel(self, reply, fault, entry, done)

    async def pause(self, seconds: float) -> None:
        """Let time pass, but not beyond the end of the server."""
        try:
            await asyncio.wait_for(self.closing.wait(), seconds)
        except TimeoutError:
            return

    async def hold(self, entry: Entry, receive: Receive) -> bool:
        """Wait until the answer is released or the client has gone. Returns whether there is still a client."""
        if entry["kind"] not in self._holds.kinds:
            return True
        event = asyncio.Event()
        self._holds.waiting[entry["at"]] = (entry["kind"], event)
        entry["held"] = True
        self._log.changed()
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(_hung_up(receive))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            del self._holds.waiting[entry["at"]]
            entry["held"] = False
            self._log.changed()
        return event.is_set()

    async def reset(self, peer: tuple[str, int]) -> None:
        """Abort the client's connection without a byte."""
        await self._lines.reset(peer)

    async def hang_up(self, peer: tuple[str, int]) -> None:
        """Close the client's connection after what was sent."""
        await self._lines.hang_up(peer)

    def answered(self, entry: Entry, status: int | None) -> None:
        """Note how the request was answered."""
        entry["status"] = status
        self._log.changed()


class Parcel:
    """One answer on its way."""

    def __init__(
        self, post: Post, reply: Reply, fault: Fault | None, entry: Entry, done: Callable[[], None] | None
    ) -> None:
        self._post = post
        self._fault = fault or Fault("")
        self._reply = (self._fault.reply or reply).adding()
        self._entry = entry
        self._done = done

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Send it."""
        fault = self._fault
        if fault.note:
            self._entry["fault"] = fault.note
        try:
            if not fault.before and not await self._post.hold(self._entry, receive):
                self._entry["fault"] = "client gone while held"
                return
            if fault.delay:
                await self._post.pause(fault.delay)
            if fault.drop:
                self._post.answered(self._entry, None)
                await self._post.reset(scope["client"])
                return
            self._post.answered(self._entry, self._reply.status)
            await send({"type": "http.response.start", "status": self._reply.status, "headers": self._headers()})
            await self._send_body(scope, send)
        finally:
            if self._done is not None:
                self._done()

    async def _send_body(self, scope: MutableMapping[str, Any], send: Send) -> None:
        body = self._reply.body
        if self._fault.cut:
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            await self._post.hang_up(scope["client"])
            return
        if self._fault.drip:
            size = max(1, -(-len(body) // _DROPS))
            for start in range(0, len(body) - size, size):
                await send({"type": "http.response.body", "body": body[start : start + size], "more_body": True})
                await self._post.pause(self._fault.drip / _DROPS)
            body = body[(max(0, len(body) - 1) // size) * size :]
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _headers(self) -> list[tuple[bytes, bytes]]:
        said = dict((*self._reply.headers, *self._fault.headers))
        said.setdefault("content-length", str(len(self._reply.body)))
        if self._reply.content_type is not None:
            said.setdefault("content-type", self._reply.content_type)
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said.items()]


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
