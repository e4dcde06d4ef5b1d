from __future__ import annotations

import json
from dataclasses import replace

import pytest

from opledger.rules.tasks.records import Compared, Unreadable, compare, read, read_all, write
from tests.core.rules.tasks.telling import plan, records, settled

PLAN = plan()
FOUND = records(PLAN, (None, "note"), *settled("create", "convert"))
LINES = [write(record) for record in FOUND]
WHOLE = b"".join(LINES)


def test_a_line_reads_back_as_it_was() -> None:
    """In the shape that other programs know, and in which no character acts on a terminal."""
    record = replace(FOUND[1], reason="a\u202eb\x1b[0m", proof={"exit": 0}, outputs={"rows": 2**63})
    line = write(record)
    assert read(line) == record
    assert line.isascii() and line.count(b"\n") == 1
    document = json.loads(line)
    assert {"at", "actor", "run", "step", "kind", "proof", "outputs", "reason"} <= set(document)
    assert document["at"].endswith("Z")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"nonsense",
        LINES[0][:40],
        LINES[0].replace(b'"note"', b'"nothing"'),
        LINES[0].replace(b'"seq": 1', b'"seq": "1"'),
        LINES[0].replace(b'"seq": 1', b'"seq": true'),
        LINES[0].replace(b'"actor"', b'"actress"'),
        LINES[0].replace(b"Z", b""),
        LINES[0].replace(b'"proof": {}', b'"proof": []'),
        LINES[0].replace(b'"run": ', b'"run": "x", "run": '),
    ],
)
def test_anything_else_is_no_record(line: bytes) -> None:
    """A wrong shape is never read as a record, or as none."""
    with pytest.raises(Unreadable):
        read(line)


def test_what_is_too_large_is_refused() -> None:
    """A progress file is read and compared as a whole."""
    with pytest.raises(ValueError, match="too large"):
        write(replace(FOUND[0], reason="x" * 300_000))


def test_a_file_cut_anywhere_is_broken() -> None:
    """Torn at each byte: it is told, except where nothing but the very last record is missing (B57)."""
    whole_but_last = len(WHOLE) - len(LINES[-1])
    for size in range(len(WHOLE)):
        found = compare(WHOLE[:size], LINES, "here")
        if size == whole_but_last:
            assert found == Compared(behind=True)
        else:
            assert found.broken is not None, size


@pytest.mark.parametrize(
    ("data", "broken"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (WHOLE[:-1], "is cut off"),
        (b"[1, 2]\n", "another shape"),
        (b"\xff\xfe\n", "JSON"),
        (WHOLE + b"{}\n", "line 6 has another shape"),
        (LINES[0] + LINES[2], "line 2 is record 3"),
        (None, "is missing"),
        (LINES[0] + LINES[1].replace(b"ana", b"eve") + b"".join(LINES[2:]), "something else in line 2"),
        (b"".join(LINES[:2]), "lacks the last 3 records"),
    ],
)
def test_every_broken_file_is_named(data: bytes | None, broken: str) -> None:
    """Empty, cut, of the wrong shape, changed, missing: each stops the task."""
    assert broken in str(compare(data, LINES, "here").broken)


def test_a_file_that_knows_more_than_the_ledger_is_broken() -> None:
    """Another ledger, or one that was set back: either way nothing may be repeated."""
    for known in (LINES[:4], []):
        assert "it belongs to another ledger" in str(compare(WHOLE, known, "here").broken)


def test_what_a_crash_leaves_is_mended() -> None:
    """The ledger is written first; before the first step there may be no file yet."""
    assert compare(WHOLE, LINES, "here") == Compared()
    assert compare(b"".join(LINES[:-1]), LINES, "here") == Compared(behind=True)
    assert compare(None, LINES[:1], "here") == Compared(behind=True)
    assert compare(None, [], "here") == Compared()


def test_what_was_written_elsewhere_may_be_missing() -> None:
    """On another machine an answer was given and a note made: this file catches up."""
    assert compare(b"".join(LINES[:2]), LINES, "there") == Compared(behind=True)


def test_numbers_follow_each_other() -> None:
    """A line taken out of the middle is seen."""
    assert read_all(WHOLE) == tuple(FOUND)
    with pytest.raises(Unreadable, match="line 3 is record 4"):
        read_all(b"".join([*LINES[:2], *LINES[3:]]))
