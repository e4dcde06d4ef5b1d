from __future__ import annotations

import json
import multiprocessing
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from opledger.edges.anchors import NEAR, TAIL, FileAnchor, JournalAnchor, SyslogAnchor, open_anchor
from opledger.errors import ConfigWrong, StoreUnavailable
from tests.support.objects import SECRET, s3_server

LEDGER = "ldg_01JC0000000000000000000000"


def note(number: int) -> str:
    """Stands in for a note: an anchor keeps texts."""
    return f"opledger/x\n{number}\n\n— sig {'x' * 300} {number}\n"


def test_a_file_keeps_one_line_for_each_note(tmp_path: Path) -> None:
    """For its owner only, one JSON object for each line, so that any tool can read it."""
    path = tmp_path / "new" / "ledger.anchor"
    anchor = open_anchor(path, LEDGER)
    assert (anchor.name, anchor.reads) == (str(path), True)
    assert list(anchor.latest(1)) == list(anchor.notes()) == []
    anchor.append([])
    assert not path.exists()
    anchor.append([(1, note(1))])
    anchor.append([(2, note(2)), (3, note(3))])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"note": note(n)} for n in (1, 2, 3)]
    assert list(anchor.latest(3)) == list(anchor.notes()) == [note(1), note(2), note(3)]


def test_what_is_kept_is_not_kept_twice(tmp_path: Path) -> None:
    """Two workers of one machine catch up at the same time."""
    first, second = FileAnchor(tmp_path / "a"), FileAnchor(tmp_path / "a")
    first.append([(1, note(1))])
    second.append([(1, note(1)), (2, note(2))])
    first.append([(2, note(2))])
    assert list(first.notes()) == [note(1), note(2)]


@pytest.mark.parametrize("torn", [1, 9, 200])
def test_a_torn_line_is_passed_over(tmp_path: Path, torn: int) -> None:
    """A machine died while it wrote: what was whole is still there, and the next note begins a line of its own."""
    anchor = FileAnchor(tmp_path / "a")
    anchor.append([(1, note(1)), (2, note(2))])
    data = anchor.path.read_bytes()
    anchor.path.write_bytes(data[:-torn])
    assert anchor.latest(2)[0] == note(1)
    anchor.append([(2, note(2)), (3, note(3))])
    assert [text for text in anchor.notes() if text != note(2)] == [note(1), note(3)]
    assert note(2) in anchor.latest(3)


@pytest.mark.parametrize("junk", [b"\0" * 5_000_000, b"not json\n" * 300_000, b'{"note": 7}\n{"other": ""}\n[]\n"x"\n'])
def test_the_newest_note_is_found_behind_anything(tmp_path: Path, junk: bytes) -> None:
    """Somebody (or a file system after a power cut) has filled the end of the file."""
    anchor = FileAnchor(tmp_path / "a")
    anchor.append([(1, note(1))])
    with anchor.path.open("ab") as file:
        file.write(junk)
    assert anchor.latest(1) == [note(1)]
    anchor.append([(2, note(2))])
    assert anchor.latest(2)[-1] == note(2)


def test_of_a_long_file_only_the_end_is_read(tmp_path: Path) -> None:
    """An anchor of a year has gigabytes."""
    anchor = FileAnchor(tmp_path / "a")
    anchor.append([(number, note(number)) for number in range(1, 6000)])
    latest = anchor.latest(5999)
    assert latest[-1] == note(5999)
    assert NEAR < TAIL <= sum(map(len, latest)) + 100_000 < 3 * TAIL


def write(path: Path, numbers: range) -> None:
    """Append notes one by one, as another process."""
    anchor = FileAnchor(path)
    for number in numbers:
        anchor.append([(number, note(number))])


@pytest.mark.processes
def test_two_processes_write_whole_lines(tmp_path: Path) -> None:
    """No line in the middle of another, none twice."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write, args=(tmp_path / "a", range(1, 40))) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(FileAnchor(tmp_path / "a").notes()) == sorted(note(number) for number in range(1, 40))


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """A folder, a link, a pipe, a full disk: said in one sentence, and nothing hangs."""
    with pytest.raises(StoreUnavailable, match="is not a plain file"):
        FileAnchor(tmp_path).latest(1)
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        FileAnchor(tmp_path).append([(1, note(1))])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreUnavailable, match="is not a plain file"):
        FileAnchor(tmp_path / "pipe").latest(1)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        FileAnchor(tmp_path / "link").append([(1, note(1))])
    with pytest.raises(StoreUnavailable, match="is not a plain file"):
        FileAnchor(Path("/dev/full")).append([(1, note(1))])


def test_a_path_may_name_the_ledger(tmp_path: Path) -> None:
    """Two ledgers on one server must not share a file."""
    assert open_anchor(tmp_path / "{ledger}.anchor", LEDGER).name == str(tmp_path / f"{LEDGER}.anchor")


@contextmanager
def listener(path: Path) -> Iterator[socket.socket]:
    """A socket that takes datagrams, as /dev/log does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(path))
        line.settimeout(60)
        yield line


def test_syslog_gets_one_line(tmp_path: Path) -> None:
    """RFC 3164 as local programs speak it; the note with its line breaks as JSON."""
    with listener(tmp_path / "log") as line:
        anchor = open_anchor(f"syslog:{tmp_path / 'log'}", LEDGER)
        anchor.append([(7, note(7))])
        said = line.recv(65536).decode()
    assert said.startswith(f"<37>opledger[{os.getpid()}]: ")
    assert json.loads(said.partition(": ")[2]) == {"note": note(7)}
    assert "\n" not in said
    assert (anchor.reads, list(anchor.latest(7)), list(anchor.notes())) == (False, [], [])


def test_the_journal_gets_the_note_as_a_field(tmp_path: Path) -> None:
    """systemd.io/JOURNAL_NATIVE_PROTOCOL: a value with line breaks comes with its length."""
    with listener(tmp_path / "log") as line:
        open_anchor(f"journald:{tmp_path / 'log'}", LEDGER).append([(7, note(7))])
        said = line.recv(65536)
    head, _, rest = said.partition(b"OPLEDGER_NOTE\n")
    assert b"OPLEDGER_CHECKPOINT=7\n" in head
    assert int.from_bytes(rest[:8], "little") == len(note(7).encode())
    assert rest[8:] == note(7).encode() + b"\n"


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    """The C library would lose the message in silence."""
    for anchor in (SyslogAnchor(tmp_path / "no"), JournalAnchor(tmp_path / "no")):
        with pytest.raises(StoreUnavailable, match="does not take checkpoints"):
            anchor.append([(1, note(1))])
    assert (open_anchor("syslog:", LEDGER).name, open_anchor("journald:", LEDGER).name) == ("syslog:", "journald:")


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.processes)])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of an object store: in memory, and of an S3 server behind real sockets."""
    if request.param == "memory":
        yield f"memory://anchors/{uuid4().hex}"
        return
    with s3_server("anchors") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield "s3://anchors/some/folder"


def test_objects_are_written_once(bucket: str) -> None:
    """A bucket under retention lock: create-only, one object for each note, the newest found without listing all."""
    anchor, other = open_anchor(bucket, LEDGER), open_anchor(bucket, "ldg_01JC0000000000000000000001")
    assert (anchor.name, anchor.reads) == (bucket, True)
    assert list(anchor.latest(1)) == list(anchor.notes()) == []
    anchor.append([(number, note(number)) for number in range(1, 12)])
    other.append([(1, note(99))])
    anchor.append([(11, note(11)), (12, note(12))])
    with pytest.raises(StoreUnavailable, match=r"has another checkpoint at .*00012\.note than the database"):
        anchor.append([(12, note(13))])
    assert list(anchor.notes()) == [note(number) for number in range(1, 13)]
    for near in (1, 2, 12, 13, 5_000, 10**9):
        assert anchor.latest(near)[-1] == note(12)
    assert list(other.notes()) == [note(99)]


def test_a_bucket_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said in our own words, which hold no key."""
    with s3_server("anchors") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        anchor = open_anchor("s3://missing/x", LEDGER)
        for do in (lambda: anchor.append([(1, note(1))]), lambda: list(anchor.notes()), lambda: anchor.latest(3)):
            with pytest.raises(StoreUnavailable, match="the anchor s3://missing/x: the bucket is not there") as caught:
                do()
            assert SECRET not in caught.value.message


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "s3://user:hunter2@bucket/x", "memory://a?b=c", "nothing:x"])
def test_what_is_no_anchor(url: str) -> None:
    """A word of it may be a password, so the message names the setting instead."""
    with pytest.raises(ConfigWrong, match=r"an anchor in \[audit\]") as caught:
        open_anchor(url, LEDGER)
    assert "hunter2" not in caught.value.message
