"""Going on with a download that an earlier attempt left on the disk, maybe one of a process that is dead."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opledger.edges import marks as marking
from opledger.edges.http import Http
from opledger.edges.marks import Label, Marks
from opledger.edges.streams import Interrupted, Rest, Sink
from opledger.rules.calls import Answer, Download, Failure
from tests.core.edges.test_ranges import BIG, BYTES, ETAG, HALF, Client, head, rest_from, serves
from tests.core.edges.wire import SHORT, Talk, Wire, reply

LABEL = Label("op_1", "", "job_1", "https://api.example.com/jobs/1/result?sig=1")


class Told(Marks):
    """Marks that tell of themselves."""

    on_note: Callable[[], object]

    def note(self, *args: Any) -> None:
        """Write it down, then tell."""
        super().note(*args)
        self.on_note()


class Taker(Client):
    """Downloads with marks; a second one in the same folder knows nothing of the first but its files."""

    def __init__(self, http: Http, wire: Wire, folder: Path) -> None:
        super().__init__(http, wire, folder)
        self.took, self.marked = asyncio.Event(), asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def take(self, chunk: bytes) -> None:
        """Take what was written, and tell."""
        super().take(chunk)
        self.loop.call_soon_threadsafe(self.took.set)

    def marks(self, label: Label = LABEL) -> Marks:
        """As the worker makes them."""
        marks = Told(self.folder, label, lambda: hashlib.sha256(self.got).hexdigest())
        marks.on_note = lambda: bool(self.loop.call_soon_threadsafe(self.marked.set))
        return marks

    async def load(self, rest: Any = None, **how: Any) -> Download | Answer | Failure:
        """One download, that marks how far it is."""
        stall = how.pop("stall", timedelta(seconds=20))
        request = self.wire.request(**{"max_bytes": len(BIG), **how})
        return await self.http.download(
            request, self.folder, self.take, on_head=self.begin, rest=rest, stall=stall, marks=self.marks()
        )

    def found(self, label: Label = LABEL) -> Rest | None:
        """What is here from before."""
        marks = self.marks(label)
        found = marks.find()
        if found is None:
            return None
        self.got += b"".join(found.pieces())
        sink = Sink.again(found, self.take, marks)
        assert hashlib.sha256(self.got).hexdigest() == found.sha256
        return Rest.of(sink, found.status, found.headers, found.received)


def endless(then: Callable[[int], bytes]) -> Any:
    """A server that falls silent in the first answer after half of it, and then sends the rest."""

    async def handle(talk: Talk) -> bool:
        asked = talk.request.headers.get("range")
        if asked is None:
            await talk.send(head(ETAG, BYTES, "Set-Cookie: a=secret") + BIG[:HALF])
            await asyncio.Event().wait()
        await talk.send(then(int(str(asked).removeprefix("bytes=").removesuffix("-"))))
        return False

    return handle


def rest(start: int) -> bytes:
    """The rest, of the same thing."""
    return rest_from(start, ETAG)


async def left_by(how: str, http: Http, wire: Wire, folder: Path) -> None:
    """Break a transfer off, and leave what came."""
    first = Taker(http, wire, folder)
    if how == "the time is over":
        late = await first.load(timeout=SHORT * 2)
        assert isinstance(late, Failure)
        assert not isinstance(late, Interrupted)
    elif how == "the attempt ends":
        broken = await first.load(stall=SHORT)
        assert isinstance(broken, Interrupted)
        assert broken.rest is not None
        await broken.rest.sink.leave()
    else:
        task = asyncio.ensure_future(first.load())
        await asyncio.wait_for(first.took.wait(), 60)
        task.cancel()
        await asyncio.wait({task})
    assert sorted(path.suffix for path in folder.iterdir()) == [".part", ".rest"]


@pytest.mark.parametrize("how", ["the time is over", "the attempt ends", "the worker stops"])
async def test_the_next_one_asks_only_for_the_rest(http: Http, tmp_path: Path, how: str) -> None:
    """Of the same thing, by its validator. In the end there is the one whole file, and no mark."""
    async with Wire(endless(rest)) as wire:
        await left_by(how, http, wire, tmp_path)
        second = Taker(http, wire, tmp_path)
        begun = second.found()
        assert begun is not None
        assert 0 < begun.received <= HALF
        assert second.got == BIG[: begun.received]
        got = await second.load(begun)
        assert isinstance(got, Download)
        assert (Path(got.path).read_bytes(), bytes(second.got)) == (BIG, BIG)
        sent = wire.arrived[-1].headers
        assert (sent["range"], sent["if-range"]) == (f"bytes={begun.received}-", '"v1"')
        assert second.left() == [Path(got.path)]


@pytest.mark.parametrize("status", [401, 403, 408, 425, 429, 500, 503])
async def test_an_answer_that_says_nothing_of_the_thing_costs_nothing(http: Http, tmp_path: Path, status: int) -> None:
    """An address that has expired, a server that is busy: the half that is here stays good."""
    async with Wire(serves(head(ETAG, BYTES), reply(status, b"{}"))) as wire:
        first = Taker(http, wire, tmp_path)
        broken = await first.load()
        assert isinstance(broken, Interrupted)
        assert isinstance(await first.load(broken.rest), Answer)
        begun = Taker(http, wire, tmp_path).found()
        assert begun is not None
        await begun.sink.discard()
        assert first.left() == []


@pytest.mark.parametrize("status", [302, 404, 410, 416])
async def test_an_answer_that_speaks_of_the_thing_ends_it(http: Http, tmp_path: Path, status: int) -> None:
    """It is gone, or not so long: nothing of it stays."""
    async with Wire(serves(head(ETAG, BYTES), reply(status, b"{}"))) as wire:
        first = Taker(http, wire, tmp_path)
        broken = await first.load()
        assert isinstance(broken, Interrupted)
        assert isinstance(await first.load(broken.rest), Answer)
        assert first.left() == []


@pytest.mark.parametrize("then", ["another version", "all of it"])
async def test_what_is_another_thing_now_is_not_joined(http: Http, tmp_path: Path, then: str) -> None:
    """As within one attempt: the server says so, or sends all of what there is now."""
    other = b"another thing"
    answer = reply(200, other, 'ETag: "v2"') if then == "all of it" else rest_from(HALF, 'ETag: "v2"')
    async with Wire(endless(lambda _: answer)) as wire:
        await left_by("the attempt ends", http, wire, tmp_path)
        second = Taker(http, wire, tmp_path)
        got = await second.load(second.found())
        if then == "all of it":
            assert isinstance(got, Download)
            assert (Path(got.path).read_bytes(), bytes(second.got)) == (other, other)
            assert second.left() == [Path(got.path)]
        else:
            assert isinstance(got, Failure)
            assert second.left() == []


async def test_without_a_strong_validator_nothing_is_left(http: Http, tmp_path: Path) -> None:
    """Nobody could show that it is the same thing, so it is only in the way."""
    async with Wire(serves(head('ETag: W/"v1"', BYTES), b"")) as wire:
        client = Taker(http, wire, tmp_path)
        assert isinstance(await client.load(), Failure)
        assert client.left() == []


class Left:
    """Half a file and its mark, by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.part = folder / "tmp_abc.part"
        self.part.write_bytes(b"half")
        self.marks = Marks(folder, LABEL, lambda: hashlib.sha256(b"half").hexdigest())
        self.marks.note(self.part, 4, 200, {"etag": '"v1"', "set-cookie": "a=secret"})
        (self.mark,) = folder.glob("*.rest")

    def rewrite(self, **changes: Any) -> None:
        """Write another mark."""
        self.mark.write_text(json.dumps({**json.loads(self.mark.read_text()), **changes}))


def test_a_mark_holds_no_address_and_no_cookie(tmp_path: Path) -> None:
    """It lies on a disk for hours; a signed address is a key."""
    left = Left(tmp_path)
    text = left.mark.read_text()
    assert "sig=" not in text
    assert "secret" not in text
    assert "example.com" not in text
    assert left.mark.stat().st_mode & 0o777 == 0o600
    found = left.marks.find()
    assert found is not None
    assert (found.received, found.status, dict(found.headers)) == (4, 200, {"etag": '"v1"'})
    found.file.close()


@pytest.mark.parametrize(
    "other",
    [
        replace(LABEL, operation_id="op_2"),
        replace(LABEL, name="errors"),
        replace(LABEL, job="job_2"),
        replace(LABEL, url="https://api.example.com/jobs/2/result?sig=1"),
        replace(LABEL, url="https://other.example.com/jobs/1/result?sig=1"),
    ],
)
def test_only_the_same_file_of_the_same_job_goes_on(tmp_path: Path, other: Label) -> None:
    """Another query is another signature, and no other thing."""
    Left(tmp_path)
    assert Marks(tmp_path, other, str).find() is None
    again = Marks(tmp_path, replace(LABEL, url=LABEL.url.replace("sig=1", "sig=2")), str).find()
    assert again is not None
    again.file.close()


def test_what_somebody_else_writes_is_left_alone(tmp_path: Path) -> None:
    """A frozen worker that thaws has the file open still; two that write to it would spoil it."""
    left = Left(tmp_path)
    first = left.marks.find()
    assert first is not None
    assert left.marks.find() is None
    first.file.close()
    again = left.marks.find()
    assert again is not None
    again.file.close()


def test_more_than_was_marked_is_cut_off(tmp_path: Path) -> None:
    """What came after the last mark was not counted, and may be torn."""
    left = Left(tmp_path)
    left.part.write_bytes(b"half and some more")
    found = left.marks.find()
    assert found is not None
    assert b"".join(found.pieces()) == b"half"
    found.file.close()
    assert left.part.read_bytes() == b"half"


def a_link(path: Path) -> None:
    """Put a link in the place of a file."""
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def a_pipe(path: Path) -> None:
    """Put a pipe in the place of a file."""
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    """Put a folder in the place of a file."""
    path.unlink()
    path.mkdir()


WRONG: dict[str, Callable[[Left], object]] = {
    "torn": lambda left: left.mark.write_text('{"key": '),
    "no mark": lambda left: left.mark.unlink(),
    "a list": lambda left: left.mark.write_text("[1]"),
    "too deep": lambda left: left.mark.write_text("[" * 100_000),
    "a number that is none": lambda left: left.rewrite(received=True),
    "nothing received": lambda left: left.rewrite(received=0),
    "headers that are none": lambda left: left.rewrite(headers=[1]),
    "a header that is no text": lambda left: left.rewrite(headers={"etag": 1}),
    "a file elsewhere": lambda left: left.rewrite(file="../tmp_abc.part"),
    "another file": lambda left: left.rewrite(file="abc.txt"),
    "the file is gone": lambda left: left.part.unlink(),
    "the file is shorter": lambda left: left.part.write_bytes(b"ha"),
    "two names": lambda left: os.link(left.part, left.folder / "kept"),
    "a link": lambda left: a_link(left.part),
    "a pipe": lambda left: a_pipe(left.part),
    "a folder": lambda left: a_folder(left.part),
    "the mark is a link": lambda left: a_link(left.mark),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_mark_that_is_not_fit_is_none(tmp_path: Path, fault: str) -> None:
    """Then the transfer begins anew; nothing fails over it, and nothing outside of the folder is touched."""
    left = Left(tmp_path)
    WRONG[fault](left)
    assert left.marks.find() is None


async def test_a_transfer_is_marked_while_it_lasts(http: Http, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed writes nothing any more: what it wrote before must do."""
    monkeypatch.setattr(marking, "MARK_EVERY", 1)
    async with Wire(endless(rest)) as wire:
        client = Taker(http, wire, tmp_path)
        task = asyncio.ensure_future(client.load())
        await asyncio.wait_for(client.marked.wait(), 60)
        (told,) = tmp_path.glob("*.rest")
        document = json.loads(told.read_text())
        (part,) = tmp_path.glob("*.part")
        assert part.name == document["file"]
        assert hashlib.sha256(part.read_bytes()[: document["received"]]).hexdigest() == document["sha256"]
        assert client.marks().find() is None  # it is under way
        task.cancel()
        await asyncio.wait({task})
