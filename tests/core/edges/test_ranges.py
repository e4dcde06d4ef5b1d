"""Going on with a download that broke off: only with exactly the same thing, and within the same bounds."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opledger.edges.http import Http
from opledger.edges.streams import BATCH, Interrupted, Sink
from opledger.rules.calls import Answer, Download, Failure
from tests.core.edges.wire import SHORT, Talk, Wire, reply

BIG = bytes(range(256)) * 4000
HALF = len(BIG) // 2
ETAG = 'ETag: "v1"'
BYTES = "Accept-Ranges: bytes"
DROPS = b""
NOON = "Date: Sun, 29 Nov 2026 12:00:00 GMT"


def head(*headers: str, length: int = len(BIG), status: int = 200) -> bytes:
    """The head of an answer."""
    return "\r\n".join([f"HTTP/1.1 {status} Any", f"Content-Length: {length}", *headers, "", ""]).encode()


class Client:
    """Downloads, and remembers what it was told."""

    def __init__(self, http: Http, wire: Wire, folder: Path) -> None:
        self.http, self.wire, self.folder = http, wire, folder
        self.got = bytearray()
        self.heads: list[Mapping[str, str]] = []

    def begin(self, headers: Mapping[str, str]) -> None:
        """A file begins, or begins anew."""
        self.heads.append(headers)
        self.got.clear()

    async def load(self, rest: Any = None, **how: Any) -> Download | Answer | Failure:
        """One download, or the rest of one."""
        stall = how.pop("stall", timedelta(seconds=5))
        request = self.wire.request(**{"max_bytes": len(BIG), **how})
        return await self.http.download(request, self.folder, self.take, on_head=self.begin, rest=rest, stall=stall)

    def take(self, chunk: bytes) -> None:
        """Take what was written."""
        self.got += chunk

    def left(self) -> list[Path]:
        """The files that are there."""
        return sorted(self.folder.iterdir())


def serves(first: bytes, then: Any, sent: int = HALF) -> Any:
    """A server that breaks off in the first answer after `sent` bytes, and then answers `then`."""

    async def handle(talk: Talk) -> bool:
        if len(talk.wire.arrived) == 1:
            await talk.send(first + BIG[:sent])
            return True
        asked = talk.request.headers.get("range", "bytes=0-")
        await talk.send(then(int(asked.removeprefix("bytes=").removesuffix("-"))) if callable(then) else then)
        return then == DROPS

    return handle


def rest_from(start: int, *headers: str, total: int | str = len(BIG), end: int = len(BIG)) -> bytes:
    """The part of the thing from a place on."""
    content_range = f"Content-Range: bytes {start}-{end - 1}/{total}"
    return head(content_range, *headers, length=end - start, status=206) + BIG[start:end]


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ([ETAG, BYTES], '"v1"'),
        ([BYTES, NOON, "Last-Modified: Sun, 29 Nov 2026 11:00:00 GMT"], "Sun, 29 Nov 2026 11:00:00 GMT"),
        ([ETAG, "Accept-Ranges: lines, Bytes", NOON, "Last-Modified: Sun, 29 Nov 2026 11:00:00 GMT"], '"v1"'),
    ],
)
async def test_the_rest_is_asked_for_of_the_same_thing(
    http: Http, tmp_path: Path, headers: list[str], validator: str
) -> None:
    """By its strong validator; the file is one, and whoever checks it sees every byte once and in order."""
    async with Wire(serves(head(*headers), lambda start: rest_from(start, *headers))) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Interrupted)
        assert broken.rest is not None
        assert len(client.left()) == 1
        got = await client.load(broken.rest)
        assert isinstance(got, Download)
        assert (got.status, got.size, got.headers["content-length"]) == (200, len(BIG), str(len(BIG)))
        assert Path(got.path).read_bytes() == BIG
        assert bytes(client.got) == BIG
        assert len(client.heads) == 1
        sent = wire.arrived[1].headers
        assert (sent["range"], sent["if-range"]) == (f"bytes={broken.rest.received}-", validator)
        assert "range" not in wire.arrived[0].headers
        assert sent["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "headers",
    [
        [ETAG],
        [ETAG, "Accept-Ranges: none"],
        ['ETag: W/"v1"', BYTES],
        ['ETag: W/"v1"', BYTES, NOON, "Last-Modified: Sun, 29 Nov 2026 11:00:00 GMT"],
        [BYTES],
        [BYTES, NOON, "Last-Modified: Sun, 29 Nov 2026 12:00:00 GMT"],
        [BYTES, "Last-Modified: Sun, 29 Nov 2026 11:00:00 GMT"],
        [BYTES, NOON, "Last-Modified: yesterday"],
    ],
)
async def test_what_could_be_another_thing_is_not_gone_on_with(http: Http, tmp_path: Path, headers: list[str]) -> None:
    """Without a range, or with a validator that two versions may share, the halves of two files could be joined."""
    async with Wire(serves(head(*headers), b"")) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Failure)
        assert not isinstance(broken, Interrupted)
        assert client.left() == []


async def test_packed_bytes_are_not_gone_on_with(http: Http, tmp_path: Path) -> None:
    """A place in what was unpacked is no place on the wire."""
    packed = gzip.compress(BIG, compresslevel=0)

    async def cut(talk: Talk) -> bool:
        await talk.send(head(ETAG, BYTES, "Content-Encoding: gzip", length=len(packed)) + packed[:HALF])
        return True

    async with Wire(cut) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load(max_bytes=2 * len(BIG))
        assert isinstance(broken, Failure)
        assert not isinstance(broken, Interrupted)
        assert client.left() == []


@pytest.mark.parametrize("changed", ['ETag: "v2"', "X-Nothing: here"])
async def test_a_server_that_sends_all_of_it_starts_anew(http: Http, tmp_path: Path, changed: str) -> None:
    """The thing is another one now, or the server knows no ranges: nothing of the first half stays."""
    other = b"another thing"
    async with Wire(serves(head(ETAG, BYTES), reply(200, other, changed))) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Interrupted)
        got = await client.load(broken.rest)
        assert isinstance(got, Download)
        assert (got.size, Path(got.path).read_bytes(), bytes(client.got)) == (len(other), other, other)
        assert len(client.heads) == 2
        assert client.left() == [Path(got.path)]


WRONG = {
    "another version": lambda start: rest_from(start, 'ETag: "v2"'),
    "another place": lambda start: rest_from(start + 1, ETAG),
    "another size": lambda start: rest_from(start, ETAG, total=len(BIG) + 1),
    "no place": lambda _: head(ETAG, length=3, status=206) + b"abc",
    "packed": lambda start: rest_from(start, ETAG, "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("fault", WRONG)
async def test_a_rest_that_does_not_fit_is_not_joined(http: Http, tmp_path: Path, fault: str) -> None:
    """Halves of two things would pass as one: length and format may even be right."""
    async with Wire(serves(head(ETAG, BYTES), WRONG[fault])) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Interrupted)
        got = await client.load(broken.rest)
        assert isinstance(got, Failure)
        assert not isinstance(got, Interrupted)
        assert got.why == "the rest that the server sent does not fit what is here"
        assert client.left() == []


@pytest.mark.parametrize("status", [404, 416, 503])
async def test_an_answer_in_place_of_the_rest_leaves_no_file(http: Http, tmp_path: Path, status: int) -> None:
    """The link died meanwhile, for one: a fresh attempt begins from the start."""
    async with Wire(serves(head(ETAG, BYTES), reply(status, b"{}"))) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Interrupted)
        got = await client.load(broken.rest)
        assert isinstance(got, Answer)
        assert (got.status, client.left()) == (status, [])


async def test_a_rest_that_comes_in_pieces_is_gone_on_with(http: Http, tmp_path: Path) -> None:
    """A server may send less than it was asked for; only the end of the whole is the end."""
    step = 100_000
    pieces = serves(head(ETAG, BYTES), lambda start: rest_from(start, ETAG, end=min(start + step, len(BIG))))
    async with Wire(pieces) as wire:
        client = Client(http, wire, tmp_path)
        got = await client.load()
        tries = 0
        while isinstance(got, Interrupted):
            tries += 1
            assert tries < 20
            got = await client.load(got.rest)
        assert isinstance(got, Download)
        assert Path(got.path).read_bytes() == BIG
        assert tries >= HALF // step


async def test_the_caps_hold_over_all_answers_together(http: Http, tmp_path: Path) -> None:
    """A rest that goes on for ever is one thing that is too large, and not many small ones."""

    def endless(start: int) -> bytes:
        return head(f"Content-Range: bytes {start}-{start + len(BIG)}/*", ETAG, length=len(BIG), status=206) + BIG

    first = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{ETAG}\r\n{BYTES}\r\n\r\n{HALF:x}\r\n".encode()
    async with Wire(serves(first, endless)) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Interrupted)
        got = await client.load(broken.rest)
        assert isinstance(got, Failure)
        assert (got.too_large, client.left()) == (True, [])


async def test_a_stall_can_be_gone_on_with_and_the_end_of_the_time_cannot(http: Http, tmp_path: Path) -> None:
    """Silence is one connection's trouble; the time of the attempt is all there is."""

    async def stall(talk: Talk) -> None:
        await talk.send(head(ETAG, BYTES) + BIG[:HALF])
        await asyncio.Event().wait()

    async with Wire(stall) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load(stall=SHORT)
        assert isinstance(broken, Interrupted)
        assert broken.rest is not None
        assert 0 < broken.rest.received <= HALF
        await broken.rest.sink.discard()
        assert client.left() == []
        late = await client.load(timeout=SHORT)
        assert isinstance(late, Failure)
        assert not isinstance(late, Interrupted)
        assert client.left() == []


async def test_a_connection_that_fails_before_the_rest_comes_loses_nothing(http: Http, tmp_path: Path) -> None:
    """A network that is bad for a moment is often bad for two; what is here is still right."""
    async with Wire(serves(head(ETAG, BYTES), DROPS)) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Interrupted)
        again = await client.load(broken.rest)
        assert isinstance(again, Interrupted)
        assert again.rest is not None
        assert broken.rest is not None
        assert again.rest.received == broken.rest.received
        assert len(client.left()) == 1
        wire.handler = rest_from(again.rest.received, ETAG)
        got = await client.load(again.rest)
        assert isinstance(got, Download)
        assert Path(got.path).read_bytes() == BIG


async def test_a_disk_that_fails_in_the_rest_leaves_no_file(http: Http, tmp_path: Path) -> None:
    """What cannot be written is not gone on with."""
    async with Wire(serves(head(ETAG, BYTES), lambda start: rest_from(start, ETAG))) as wire:
        client = Client(http, wire, tmp_path)
        broken = await client.load()
        assert isinstance(broken, Interrupted)

        def full(_: bytes) -> None:
            raise RuntimeError("no more")

        assert broken.rest is not None
        broken.rest.sink._on_chunk = full
        with pytest.raises(RuntimeError, match="no more"):
            await client.load(broken.rest)
        assert client.left() == []


async def test_no_more_than_a_batch_waits_in_memory(
    http: Http, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the result and however fast it comes: pieces go on to the disk, and the network waits for that."""
    most = 0
    largest = 0
    take = Sink.take

    async def counted(self: Sink, piece: bytes) -> None:
        nonlocal most, largest
        most, largest = max(most, self._size + len(piece)), max(largest, len(piece))
        await take(self, piece)
        assert self._size < BATCH

    monkeypatch.setattr(Sink, "take", counted)
    size = 64 * len(BIG)

    async def flood(talk: Talk) -> bool:
        await talk.send(head(length=size))
        for _ in range(64):
            await talk.send(BIG)
        return True

    async with Wire(flood) as wire:
        client = Client(http, wire, tmp_path)
        got = await client.load(max_bytes=size)
        assert isinstance(got, Download)
        assert got.size == size
        assert BATCH <= most < BATCH + largest
        assert largest <= BATCH
