"""The operations screen, in a real app without a terminal: what it shows, what keys do, what hostile text cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from opledger.rules import evidence as e
from opledger.rules.model import Means
from opledger_console.app import ConsoleApp
from opledger_console.desk import Desk
from opledger_console.screens.operations import OperationsScreen
from opledger_console.widgets.table import OperationsTable
from tests.core.ledgers import BODY, Home, accepted, happens, observed, sent

HOSTILE = "\x1b[2J\x9b31m[/red][@click=app.quit]\u202e\u200bx[bold"
SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with one operation of each kind that matters here."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger() as ledger:
        quiet = ledger.submit("jobs", BODY, requested_by="agent-1")
        happens(ledger, quiet, sent(), accepted("job_1"), observed())
        broken = ledger.submit("jobs", {"rows": 6}, requested_by="agent-2")
        happens(ledger, broken, sent("call_2"), accepted("job_2", "call_2"))
        happens(ledger, broken, e.IdentityChanged(why=f"answered for {HOSTILE}", jobs=("job_2", HOSTILE)))
        strange = ledger.submit("jobs", {"rows": 7}, requested_by="agent-3")
        happens(ledger, strange, sent("call_3"), accepted("job_3", "call_3"), observed(HOSTILE, Means.UNKNOWN, "job_3"))
    return home


@pytest.fixture
def app(home: Home) -> Iterator[ConsoleApp]:
    """The console on that ledger; it starts no worker."""
    desk = Desk(home.settings(), read_only=False, drive=False)
    yield ConsoleApp(desk, "ledger.db")
    desk.close()


async def shown(pilot: Pilot[int]) -> str:
    """Wait until the ledger has been looked at, and return what is on the screen."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


def table(pilot: Pilot[int]) -> OperationsTable:
    """The list."""
    return pilot.app.screen.query_one(OperationsTable)


@pytest.mark.parametrize("size", SIZES)
async def test_it_says_what_needs_a_person_at_every_size(app: ConsoleApp, size: tuple[int, int]) -> None:
    """The list, the strip and the explanation stand on the screen, also in 80 columns."""
    async with app.run_test(size=size) as pilot:
        text = await shown(pilot)
        assert "violation 1" in text
        assert "contract_violation" in text
        assert "observing" in text
        assert "NO WORKER" in text
        assert "3 operations" in text


async def test_hostile_text_reaches_the_screen_as_text_only(app: ConsoleApp) -> None:
    """No control byte, no markup, no action: what a provider sends is shown, and does nothing."""
    async with app.run_test(size=(200, 60)) as pilot:
        text = await shown(pilot)
        for key in ("g", "j", "j", "k"):
            await pilot.press(key)
            text = await shown(pilot)
            assert not {char for char in text if ord(char) < 32 and char != "\n"}
            assert not {"\x9b", "\u202e", "\u200b", "\x7f"} & set(text)
        assert "[/red][@click=app.quit]" in text
        assert app.is_running


async def test_the_cursor_stays_on_its_operation(app: ConsoleApp, home: Home) -> None:
    """A new operation pushes the rows down; the cursor goes with the one it stood on (B52)."""
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        await pilot.press("j")
        before = table(pilot).cursor_id
        with home.ledger() as ledger:
            newest = ledger.submit("jobs", {"rows": 99}, requested_by="agent-4")
        await pilot.press("r")
        assert newest.operation_id[-8:] in await shown(pilot)
        assert table(pilot).cursor_id == before


async def test_exclamation_mark_goes_to_what_needs_a_person(app: ConsoleApp) -> None:
    """One key from anywhere to the next thing that waits for you."""
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        await pilot.press("g", "exclamation_mark")
        chosen = table(pilot).chosen
        assert chosen is not None
        assert chosen.state == "contract_violation"
        assert "resolve --as close" in await shown(pilot)


async def test_frozen_rows_stay_where_they_are(app: ConsoleApp, home: Home) -> None:
    """While frozen nothing enters the list; afterwards it does."""
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        await pilot.press("f")
        with home.ledger() as ledger:
            newest = ledger.submit("jobs", {"rows": 99}, requested_by="agent-4").operation_id[-8:]
        await pilot.press("r")
        text = await shown(pilot)
        assert "FROZEN" in text
        assert newest not in text
        await pilot.press("f")
        assert newest in await shown(pilot)


async def test_a_database_that_is_away_is_told_and_comes_back(app: ConsoleApp, home: Home) -> None:
    """The last picture stays, with the word that it is old; nothing ends."""
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        screen = app.screen
        assert isinstance(screen, OperationsScreen)
        file = home.root / "ledger.db"
        away = file.with_name("away.db")
        screen._desk.close()
        file.rename(away)
        file.mkdir()
        await pilot.press("r")
        text = await shown(pilot)
        assert "DATABASE AWAY" in text
        assert "contract_violation" in text
        file.rmdir()
        away.rename(file)
        await pilot.press("r")
        assert "DATABASE AWAY" not in await shown(pilot)


async def test_q_ends_the_console(app: ConsoleApp) -> None:
    """And only the console: it holds no lease and cancels nothing."""
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot)
        await pilot.press("q")
    assert app.return_code == 0
