"""What every screen looks like, letter by letter: texts of the screens, kept in ``snapshots/``.

A picture says what no assertion does: that columns stand in line, that no word is cut, that nothing is said twice. The
ledger is made by hand, at times that a clock of the test tells, with ids that count up; so the same screen is
always the same text.

Where a screen is meant to look otherwise, write the texts anew and look at the difference before you commit it:

    SNAPSHOTS=renew make test TESTS=tests/console/test_snapshots.py
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from textual.pilot import Pilot

from opledger.rules import evidence as e
from opledger_console.messages import Opened
from opledger_console.screens.operations import OperationsScreen
from opledger_console.widgets.listing import Listing
from opledger_console.widgets.table import OperationsTable
from tests.console.hands import assert_inert, running, sees, shown, until
from tests.console.night import NIGHT, SETTINGS, Night, frozen, sent, whole_night

SNAPSHOTS: Final = Path(__file__).with_name("snapshots")
RENEW: Final = os.environ.get("SNAPSHOTS") == "renew"
SIZES: Final = ((80, 24), (120, 40), (200, 60))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """The ledger at twelve minutes past three. Nobody writes to it."""
    with frozen() as hands:
        yield whole_night(tmp_path_factory.mktemp("night"), hands)


@pytest.fixture
def calm(tmp_path: Path) -> Iterator[Night]:
    """A ledger in which everything has been decided."""
    with frozen() as hands:
        hands.time = NIGHT - timedelta(hours=2)
        made = Night(tmp_path, hands)
        declined = made.submit("everything", 9000)
        with made.home.ledger(SETTINGS) as ledger:
            ledger.reject(declined, reason="one month is enough", by="ben")
        lost = made.tell(
            made.submit("payroll", 64), sent("c"), e.CallLost(call_id="c"), e.Inconclusive(why="none", exhausted=True)
        )
        with made.home.ledger(SETTINGS) as ledger:
            ledger.resolve(lost.operation_id, choice="not-created", reason="their list shows none", by="ana")
        hands.time = NIGHT
        yield made


# --- looking -----------------------------------------------------------------------------------------------------


def _text(pilot: Pilot[Any]) -> str:
    return "\n".join(line.rstrip() for line in shown(pilot).splitlines()) + "\n"


async def _settled(pilot: Pilot[Any]) -> str:
    """What is on the screen once it has not changed for half a second."""
    text, same = _text(pilot), 0
    while same < 10:
        await pilot.pause(0.05)
        now = _text(pilot)
        text, same = now, same + 1 if now == text else 0
    return text


def _shows(pilot: Pilot[Any], known: str) -> bool:
    return _text(pilot) == known


async def matches(pilot: Pilot[Any], name: str) -> None:
    """Fail with the difference where the screen does not come to look as it did."""
    problems: list[str] = []
    for width, height in SIZES:
        if pilot.app.size != (width, height):
            await pilot.resize_terminal(width, height)
        path = SNAPSHOTS / f"{name}-{width}x{height}.txt"
        if RENEW:
            path.write_text(await _settled(pilot), encoding="utf-8")
            continue
        known = path.read_text(encoding="utf-8") if path.is_file() else ""
        try:
            await until(pilot, partial(_shows, pilot, known))
        except AssertionError:
            seen = _text(pilot)
            difference = difflib.unified_diff(known.splitlines(), seen.splitlines(), path.name, "seen now", lineterm="")
            problems.append("\n".join(difference))
        assert_inert(_text(pilot).replace("\n", ""))
    assert not problems, "\n\n".join(problems) + "\n\nIf this is meant: see the docstring of this file.\n"


Steps = Callable[[Pilot[Any], Night], Awaitable[None]]


async def nothing(pilot: Pilot[Any], night: Night) -> None:
    """Only look."""


def press(*keys: str) -> Steps:
    """Press keys."""

    async def steps(pilot: Pilot[Any], night: Night) -> None:
        await pilot.press(*keys)

    return steps


def on(name: str, key: str) -> Steps:
    """Press a key on a row of the inbox."""

    async def steps(pilot: Pilot[Any], night: Night) -> None:
        listing = pilot.app.screen.query_one("#waiting", Listing)
        await until(pilot, lambda: listing.go_to(night.ids[name]), f"have {name}")
        await pilot.pause()
        await pilot.press(key)
        await until(pilot, lambda: pilot.app.screen.is_modal, "ask")

    return steps


def page(name: str, tab: str) -> Steps:
    """Open an operation."""

    async def steps(pilot: Pilot[Any], night: Night) -> None:
        pilot.app.post_message(Opened(night.ids[name], tab))
        await sees(pilot, "Operation ", "fingerprint")

    return steps


async def marked(pilot: Pilot[Any], night: Night) -> None:
    """A filter, and two marks."""
    screen = pilot.app.screen
    assert isinstance(screen, OperationsScreen)
    screen.show_look(replace(screen.look, text="state:waiting !by:agent-7"))
    table = screen.query_one(OperationsTable)
    await until(pilot, lambda: 3 < len(table.rows) < 10, "filter")
    await pilot.press("space", "j", "space")


VIEWS: Final[dict[str, tuple[str, Steps]]] = {
    "inbox": ("inbox", nothing),
    "operations": ("operations", nothing),
    "operations-marked": ("operations", marked),
    "timeline": ("operations", page("forecast", "timeline")),
    "conflict": ("operations", page("ledger export", "conflict")),
    "request": ("operations", page("audit trail", "request")),
    "calls": ("operations", page("year end", "calls")),
    "providers": ("providers", nothing),
    "tasks": ("tasks", nothing),
    "tail": ("tail", nothing),
    "audit": ("audit", press("v")),
    "help": ("operations", press("question_mark")),
    "command": ("operations", press("colon", "o", "p", "s", "space", "s")),
    "approve": ("inbox", on("audit trail", "a")),
    "cancel": ("inbox", on("forecast", "x")),
    "resolve": ("inbox", on("ledger export", "v")),
}


@pytest.mark.parametrize("name", VIEWS)
async def test_a_screen_looks_as_it_did(night: Night, name: str) -> None:
    """Letter by letter, in a small window, a usual one and a large one."""
    start, steps = VIEWS[name]
    async with running(night.home, start, SIZES[0], toml=SETTINGS) as pilot:
        await sees(pilot, "watches", *(["15 operations"] if start == "operations" else []))
        await steps(pilot, night)
        await matches(pilot, name)


async def test_an_empty_inbox_looks_as_it_did(calm: Night) -> None:
    """It says that nothing waits, and what was decided last."""
    async with running(calm.home, "inbox", SIZES[0], toml=SETTINGS) as pilot:
        await sees(pilot, "Nothing waits for a person")
        await matches(pilot, "inbox-empty")


def test_no_snapshot_is_left_of_a_screen_that_is_gone() -> None:
    """A file that nobody compares with anything proves nothing."""
    known = {f"{name}-{w}x{h}.txt" for name in (*VIEWS, "inbox-empty") for w, h in SIZES}
    assert {path.name for path in SNAPSHOTS.iterdir()} == known
