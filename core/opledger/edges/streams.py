"""Bringing a stream to the disk, and through its checks, without holding up the event loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, TypeVar

from opledger.edges import marks as marking
from opledger.edges.files import Partial
from opledger.edges.marks import Found, Marks
from opledger.errors import StoreUnavailable
from opledger.rules.calls import Answer, Download, Failure

BATCH: Final = 256 * 1024
"""How many bytes are written and checked in one step. A result that is smaller costs one step."""

_RANGE: Final = re.compile(r"\s*bytes\s+([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)\s*", re.IGNORECASE)
_STRONG: Final = re.compile(r'"[!-~\x80-\xff]*"')

_NOT_NOW: Final = frozenset({401, 403, 408, 425, 429})
"""Statuses that say nothing of the thing itself: later, or under a fresh address, the rest may be had."""

OnHead = Callable[[Mapping[str, str]], Callable[[bytes], None] | None]
"""Gets the head of what will be streamed; may return what wants the bytes as they come, before they are unpacked."""

T = TypeVar("T")


class Sink:
    """Gathers the pieces of one stream and hands them on in batches: first to the file, then to `on_chunk`."""

    def __init__(self, folder: Path, on_chunk: Callable[[bytes], None]) -> None:
        self._partial = Partial(folder)
        self._on_chunk = on_chunk
        self._pieces: list[bytes] = []
        self._size = 0
        self._written = 0
        self._marked = 0
        self._mark: Callable[[Path, int], None] | None = None
        self._marks: Marks | None = None

    @classmethod
    def again(cls, found: Found, on_chunk: Callable[[bytes], None], marks: Marks) -> Sink:
        """Go on behind what was found; `on_chunk` has been told of it."""
        sink = cls(found.path.parent, on_chunk)
        sink._partial = Partial.again(found.path, found.file)
        sink._written = sink._marked = found.received
        sink.mark_with(marks, found.status, found.headers)
        return sink

    def mark_with(self, marks: Marks, status: int, headers: Mapping[str, str]) -> None:
        """From now on, mark how far the file is, for whoever goes on with it after us."""
        self._marks = marks
        self._mark = lambda path, received: marks.note(path, received, status, headers)

    async def take(self, piece: bytes) -> None:
        """Take the next piece. Raises what `on_chunk` raises, and StoreUnavailable where the disk refuses."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= BATCH:
            await in_thread(self._write)

    async def finish(self) -> Path:
        """Hand on the rest and return the file. Raises as `take` does."""
        return await in_thread(self._end)

    async def discard(self) -> None:
        """Remove the file."""
        await in_thread(self.drop)

    async def mark(self) -> None:
        """Bring to the file what is here, and mark how far it is. Raises as `take` does."""
        await in_thread(self._write_and_mark)

    async def leave(self) -> None:
        """Leave the file to whoever goes on with it; where nobody could, remove it."""
        await in_thread(self._leave)

    def _write(self) -> None:
        data, self._pieces, self._size = b"".join(self._pieces), [], 0
        if data:
            self._partial.write(data)
            self._on_chunk(data)
            self._written += len(data)
            if self._mark is not None and self._written - self._marked >= marking.MARK_EVERY:
                self._note(self._mark)

    def _write_and_mark(self) -> None:
        self._write()
        if self._mark is not None and self._written:
            self._note(self._mark)

    def _note(self, mark: Callable[[Path, int], None]) -> None:
        mark(self._partial.flush(), self._written)
        self._marked = self._written

    def _end(self) -> Path:
        self._write()
        if self._marks is not None:
            self._marks.forget()  # first: a whole file is somebody's who moves it, and nobody may shorten it again
        return self._partial.close()

    def drop(self) -> None:
        """Remove the file and its mark, at once."""
        if self._marks is not None:
            self._marks.forget()
        self._partial.discard()

    def _leave(self) -> None:
        with suppress(StoreUnavailable):  # the disk is full, for one; then the room is worth more than what came
            self._write_and_mark()
            if self._marked:
                self._partial.close()
                return
        self.drop()


@dataclass(frozen=True, slots=True)
class Rest:
    """What is here of a transfer that broke off, and how the rest of exactly the same thing is asked for.

    Its owner hands it to the next download, or discards it.
    """

    sink: Sink
    status: int
    headers: Mapping[str, str]  #: those of the answer that began it
    received: int  #: bytes that are here
    validator: str  #: a strong ETag, or a date that is as good as one (RFC 9110 §13.1.5)

    @classmethod
    def of(cls, sink: Sink, status: int, headers: Mapping[str, str], received: int) -> Rest | None:
        """Return what may be resumed; None where the server does not offer it, or could send another thing."""
        units = {unit.strip().lower() for unit in headers.get("accept-ranges", "").split(",")}
        packed = headers.get("content-encoding", "").strip().lower() not in ("", "identity")
        validator = _validator(headers)
        if status != 200 or packed or received < 1 or validator is None or "bytes" not in units:
            return None
        rest = cls(sink, status, headers, received, validator)
        return rest if rest.total is None or received < rest.total else None

    @property
    def total(self) -> int | None:
        """How many bytes the whole has, where the first answer said so."""
        text = self.headers.get("content-length", "").split(",")[0].strip()
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None

    @property
    def asks(self) -> dict[str, tuple[str, str]]:
        """The headers that ask for the rest, or for all of it where it is another thing now."""
        return {"range": ("Range", f"bytes={self.received}-"), "if-range": ("If-Range", self.validator)}

    def fits(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a 206 answer goes on exactly where this one broke off."""
        found = _RANGE.fullmatch(headers.get("content-range", ""))
        if found is None or int(found.group(1)) != self.received:
            return False
        same_size = found.group(3) == "*" or self.total in (None, int(found.group(3)))
        # A 206 must name the ETag that the 200 had; the date it may leave out where it was asked by date (RFC 9110
        # §15.3.7). One that does not say what it is a part of could be a part of another thing.
        if self.validator.startswith('"'):
            same = headers.get("etag") == self.validator
        else:
            same = headers.get("last-modified", self.validator) == self.validator
        packed = headers.get("content-encoding", "").strip().lower() not in ("", "identity")
        return same_size and same and not packed


@dataclass(frozen=True, slots=True)
class Interrupted(Failure):
    """A download that broke off and can be gone on with."""

    rest: Rest | None = None


class Stream:
    """What one download brings to the disk: a new file, or the rest of one."""

    def __init__(
        self,
        folder: Path,
        on_chunk: Callable[[bytes], None],
        on_head: OnHead | None,
        rest: Rest | None,
        marks: Marks | None = None,
    ) -> None:
        self.rest = rest
        self.on_wire: Callable[[bytes], None] | None = None
        self._marks = marks
        self._folder, self._on_chunk, self._on_head = folder, on_chunk, on_head
        self._sink = None if rest is None else rest.sink
        self._status = 200 if rest is None else rest.status
        self._headers = {} if rest is None else rest.headers
        self.received = 0 if rest is None else rest.received

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin a new file; what was here of an older one is another thing now."""
        await self.discard()
        self.rest, self.received, self._status, self._headers = None, 0, status, headers
        self.on_wire = None if self._on_head is None else self._on_head(headers)
        self._sink = Sink(self._folder, self._on_chunk)
        if self._marks is not None and Rest.of(self._sink, status, headers, 1) is not None:
            self._sink.mark_with(self._marks, status, headers)

    async def take(self, piece: bytes) -> None:
        """Take the next piece."""
        assert self._sink is not None
        await self._sink.take(piece)
        self.received += len(piece)

    @property
    def started(self) -> bool:
        """True where something is here already, which may be gone on with."""
        return self._sink is not None

    @property
    def falls_short(self) -> bool:
        """True where a rest came to its end, and the whole is still not here."""
        return self.rest is not None and self.rest.total is not None and self.received < self.rest.total

    async def interrupted(self, failure: Failure) -> Failure:
        """Return what is to be known of a transfer that broke off. Raises as `take` does."""
        assert self._sink is not None
        rest = Rest.of(self._sink, self._status, self._headers, self.received)
        if rest is None:
            return failure
        await self._sink.mark()
        return Interrupted(failure.fate, failure.why, failure.status, failure.too_large, rest)

    async def finish(self, at: datetime) -> Download:
        """End the file. Its headers are those of the answer that began it."""
        assert self._sink is not None
        path = await self._sink.finish()
        return Download(self._status, self._headers, str(path), self.received, at)

    async def discard(self) -> None:
        """Remove what is here."""
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.discard()

    async def leave(self, outcome: Answer | Failure | None = None) -> None:
        """Leave what is here to a later attempt, unless the outcome says that it is of no use any more."""
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if isinstance(outcome, Answer) and outcome.status < 500 and outcome.status not in _NOT_NOW:
            await sink.discard()
        else:
            await sink.leave()


def _validator(headers: Mapping[str, str]) -> str | None:
    etag = headers.get("etag", "")
    if _STRONG.fullmatch(etag):
        return etag
    changed, sent = _date(headers.get("last-modified")), _date(headers.get("date"))
    if etag or changed is None or sent is None or sent - changed < timedelta(seconds=1):
        return None  # two changes within one second have one date
    return headers["last-modified"]


def _date(text: str | None) -> datetime | None:
    try:
        found = None if text is None else parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found is not None and found.tzinfo is not None else None


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and wait for its end, also when cancelled: nobody may close a file under its writer."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue  # there is still the same end to wait for; the first cancellation goes on below
        raise
