"""T18: two thousand hostile texts through everything that prints: none of them acts, hides, or breaks the layout."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from rich.cells import cell_len

from opledger.cli import logs, text
from opledger.rules.jsontext import dumps_inert
from opledger.rules.plain import clean
from tests.support.hostile import STYLE, raw, stacks, strings

HOSTILE = strings()


class Screen(io.StringIO):
    """Standard error, which may say that it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """As the test wants it."""
        return self._terminal


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Logging belongs to the process: put it back."""
    root, handlers, level = logging.getLogger(), logging.getLogger().handlers[:], logging.getLogger().level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_there_are_two_thousand() -> None:
    """All different; and the judge of these tests sees what is wrong with most of them."""
    assert len(set(HOSTILE)) == len(HOSTILE) >= 2_000
    assert sum(bool(raw(one)) or stacks(one) > 4 for one in HOSTILE) > 1_700
    assert raw("an honest line, 漢字, é, ש\n") == []


def test_one_line_is_one_line() -> None:
    """Also for what a person is told of an error, and in sentences that are wrapped."""
    for one in HOSTILE:
        shown = clean(one)
        assert raw(shown, "") == [], ascii(one)[:80]
        assert stacks(shown) <= 4
        assert raw(clean(one, newlines=True)) == []
        assert len(clean(one, limit=80)) <= 80 + len("…(+1000000)")
        if len(one) < 5_000:
            assert all(raw(line, "") == [] for line in text.wrapped(one, "  "))


def test_a_table_keeps_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row one line, no wider than the terminal, whatever stands in the cells."""
    monkeypatch.setenv("COLUMNS", "80")
    rows = [("op_1", clean(one), clean(one[::-1]), "x") for one in HOSTILE if len(one) < 5_000]
    lines = list(text.table(("ID", "WHAT", "WHY", "N"), rows, stretch=1))
    assert len(lines) == len(rows) + 1
    for line in lines:
        assert raw(line, "") == []
        assert cell_len(line) <= 80


def test_json_escapes_what_acts_and_loses_nothing() -> None:
    """A program gets every character back; a terminal gets none of the bad ones."""
    for one in HOSTILE:
        written = dumps_inert({"a": one, one: [one]})
        assert raw(written, "") == [], ascii(one)[:80]
        assert stacks(written) <= 4
        assert json.loads(written) == {"a": one, one: [one]}
    assert raw(dumps_inert(HOSTILE, indent=2)) == []


@pytest.mark.parametrize("terminal", [False, True])
def test_logs_are_inert(monkeypatch: pytest.MonkeyPatch, logging_as_before: None, *, terminal: bool) -> None:
    """Message, arguments, bound values, keys and tracebacks; from structlog, from us and from libraries."""
    screen = Screen(terminal=terminal)
    monkeypatch.setattr("sys.stderr", screen)
    logs.configure("debug")
    ours, theirs = structlog.get_logger("opledger.test"), logging.getLogger("library")
    some = [one for one in HOSTILE if len(one) < 5_000]
    for number, one in enumerate(some):
        theirs.warning("the provider said %s", one)
        theirs.warning(one.replace("%", "%%"))
        ours.info("said", what=one, pieces=[one], number=number)
        if number % 10 == 0:
            try:
                raise ValueError(one)
            except ValueError:
                theirs.exception("it broke over %r", one)
    written = screen.getvalue()
    assert raw(written) == []
    lines = written.splitlines()
    assert len(lines) > 3 * len(some)
    if not terminal:
        read: list[Any] = [json.loads(line) for line in lines]
        assert all(isinstance(one, dict) and one["level"] for one in read)
        assert len(lines) == 3 * len(some) + -(-len(some) // 10)
    assert STYLE.search(written) is None
