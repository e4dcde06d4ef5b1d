from __future__ import annotations

from datetime import timedelta

import pytest

from opledger.cli import text
from opledger.rules.model import Action, Attention, OpenCall, Plan, State, StoredFile, StoredResult
from opledger.rules.shapes import Event
from tests.core.rules.operations import NOON, operation

ROWS = [("12345678", "cancellation_unconfirmed", "日本語の契約の長い名前"), ("87654321", "ok", "x" * 100)]


@pytest.mark.parametrize(
    ("length", "written"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=400), "0s"),
        (timedelta(seconds=59), "59s"),
        (timedelta(minutes=12, seconds=5), "12m 5s"),
        (timedelta(hours=2), "2h"),
        (timedelta(days=3, hours=4, minutes=5), "3d 4h"),
        (-timedelta(seconds=5), "-5s"),
        (-timedelta(milliseconds=5), "0s"),
    ],
)
def test_lengths_of_time_are_short(length: timedelta, written: str) -> None:
    """Two units say enough, and a clock that runs ahead shows."""
    assert text.span(length) == written


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_table_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Wide characters count double, and what gives way says so."""
    from rich.cells import cell_len

    monkeypatch.setenv("COLUMNS", str(columns))
    lines = list(text.table(("ID", "STATE", "CONTRACT"), ROWS, stretch=2))
    assert len(lines) == 3
    assert all(cell_len(line) <= columns for line in lines)
    assert ("…" in lines[2]) is (columns < 138)
    assert lines[0].split() == ["ID", "STATE", "CONTRACT"]


def test_a_list_marks_and_colours_what_needs_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the word itself had to be cut."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(text, "coloured", lambda: True)
    attention = Attention("cancellation_unconfirmed", NOON, "no word")
    stuck = operation(State.CANCELLATION_UNCONFIRMED, attention=attention, next=Plan("human", None, "decide"))
    lines = list(text.listing([stuck, operation(State.SUCCEEDED)], NOON + timedelta(minutes=2)))
    assert "!" in lines[1]
    assert "\x1b[33m" in lines[1]
    assert "cancell…" in lines[1]
    assert "!" not in lines[2]
    assert "\x1b[32m" in lines[2]


@pytest.mark.parametrize(
    ("terminal", "environ", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environ: dict[str, str], colours: bool
) -> None:
    """https://no-color.org, pipes and dumb terminals."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert text.coloured() is colours


def test_sentences_break_and_words_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that is cut in two cannot be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    word = "sha256:" + "a" * 64
    lines = list(text.wrapped(f"the fingerprint of it is {word} and\nnothing \x1b[2J else", "  "))
    assert f"  {word}" in lines
    assert all(len(line) <= 40 or word in line for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("host", "process", "shown"),
    [
        ("build-7", "41@20261129T142200Z", "Noted by worker-1 on build-7 (41@20261129T142200Z)"),
        (None, None, "Noted by worker-1"),
        ("a\x1b[2Jb\u202e", "1\n2", "Noted by worker-1 on a␛[2Jb\\u202e (1␊2)"),
    ],
)
def test_an_event_says_where_its_actor_was(host: str | None, process: str | None, shown: str) -> None:
    """What other machines are called is outside text; older events do not say it."""
    event = Event(
        1, NOON, "worker-1", "worker", "Noted", None, None, "c", None, None, {}, "0" * 64, "1" * 64, host, process
    )
    assert next(iter(text.journal([event]))).endswith(f"  {shown}")


def test_a_record_names_the_further_files_of_its_result() -> None:
    """By the names that `opledger result --also` takes: without them nobody learns that there are any."""
    also = (StoredFile("errors", "/r/1.errors.jsonl", 3, "aa" * 32), StoredFile("log", "/r/1.log.txt", 3, "bb" * 32))
    done = operation(State.SUCCEEDED, result=StoredResult("/r/1.jsonl", 9, "cc" * 32, None, True, also=also))
    (line,) = [line for line in text.record(done, NOON) if line.startswith("  result")]
    assert line.endswith("/r/1.jsonl (9 bytes, checked); further files: errors, log")


def test_why_nothing_can_be_decided_yet_is_said() -> None:
    """A call under way has to end first; without a word, somebody would look for choices that are not there."""
    call = OpenCall("call_9", Action.CANCEL, NOON)
    op = operation(State.CONTRACT_VIOLATION, first_sent_at=NOON, open_call=call)
    said = " ".join(text.choices((), op))
    assert said.startswith("Nothing can be decided yet: the cancel call of")
    assert "Nothing is to be decided" in " ".join(text.choices((), operation(State.OBSERVING, first_sent_at=NOON)))
