"""The palette: Textual swallows what goes wrong in it, so each of its providers is asked here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette, Hit
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from opledger.rules.model import State
from opledger_console import palette
from opledger_console.app import ConsoleApp
from opledger_console.desk import Desk
from opledger_console.palette import PROVIDERS, ActionsProvider, ThemesProvider, TopicsProvider, ViewsProvider, fits
from opledger_console.screens.help import HelpScreen
from tests.console.hands import HOSTILE, assert_inert, sees, shown, until
from tests.core.ledgers import Home


@contextmanager
def console(tmp_path: Path, views: tuple[str, ...] | None = ("mine", HOSTILE)) -> Iterator[ConsoleApp]:
    """A console at the audit, with the palette and perhaps with views to go to, the second under a bad name."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger():
        desk = Desk(home.settings(), read_only=False, drive=False)
    app: Any = ConsoleApp(desk, start="audit")
    app.COMMANDS = PROVIDERS
    app.saved_views = None if views is None else lambda: views
    app.open_view = lambda name: setattr(app, "opened", name)
    try:
        yield app
    finally:
        desk.close()


OURS: tuple[type[palette._Deeds], ...] = (ActionsProvider, ViewsProvider, ThemesProvider, TopicsProvider)


async def asked(pilot: Pilot[int], query: str) -> list[str]:
    """Every name that is offered for a query, the best first."""
    found: list[Hit] = []
    for kind in OURS:
        found += [hit async for hit in kind(pilot.app.screen).search(query) if isinstance(hit, Hit)]
    return [hit.text or "" for hit in sorted(found, key=lambda hit: (-hit.score, hit.text or ""))]


async def test_every_provider_offers_what_it_is_for(tmp_path: Path) -> None:
    """One that raises would show nothing, and nobody would know."""
    with console(tmp_path) as app:
        async with app.run_test() as pilot:
            await sees(pilot, "Nothing was verified")
            names: dict[type, list[str]] = {}
            for kind in OURS:
                names[kind] = [str(hit.text) async for hit in kind(app.screen).discover()]
            assert {"compute every chain and every record again", "look now", "go to inbox", "help", "quit"} <= set(
                names[ActionsProvider]
            )
            assert "stop what is under way" not in names[ActionsProvider]  # off now
            assert names[ViewsProvider] == ["view mine", f"view {HOSTILE}"]
            assert names[ThemesProvider] == ["theme dark", "theme light", "theme contrast", "theme ansi"]
            assert {f"help: what to do in {state}" for state in State} <= set(names[TopicsProvider])
            app.desk.closing.set()


async def test_textuals_own_commands_are_not_offered(tmp_path: Path) -> None:
    """No screenshots, no maximised widgets."""
    with console(tmp_path) as app:
        async with app.run_test() as pilot:
            await sees(pilot, "Nothing was verified")
            for query in ("screenshot", "maximize", "keys panel"):
                assert await asked(pilot, query) == []
            app.desk.closing.set()


async def test_a_choice_is_carried_out_on_the_screen_below(tmp_path: Path) -> None:
    """Typed, chosen with Enter, done: the same as its key."""
    with console(tmp_path) as app:
        async with app.run_test(size=(80, 24)) as pilot:
            await sees(pilot, "Nothing was verified")
            await choose(pilot, "compute")
            await sees(pilot, "verified at")
            await choose(pilot, "theme contr")
            await until(pilot, lambda: app.theme == "opledger-contrast")
            await choose(pilot, "view mine")
            await until(pilot, lambda: getattr(app, "opened", None) == "mine")
            await choose(pilot, "do in create_unknown")
            await until(pilot, lambda: isinstance(app.screen, HelpScreen))
            await sees(pilot, "its answer was lost")
            app.desk.closing.set()


async def choose(pilot: Pilot[int], query: str) -> None:
    """Open the palette, type, and take the first."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
    screen = pilot.app.screen
    screen.query_one(Input).value = query
    await until(pilot, lambda: screen.query_one(OptionList).option_count and query in shown(pilot))
    await until(pilot, lambda: screen.query_one(OptionList).highlighted == 0)
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.screen is not screen)


async def test_hostile_names_do_nothing_there(tmp_path: Path) -> None:
    """Textual reads strings in the palette as markup; no string gets there."""
    with console(tmp_path) as app:
        async with app.run_test(size=(100, 30)) as pilot:
            await sees(pilot, "Nothing was verified")
            await pilot.press("ctrl+p")
            await until(pilot, lambda: isinstance(app.screen, CommandPalette))
            app.screen.query_one(Input).value = "app.quit"
            assert_inert(await sees(pilot, "[/red][@click=app.quit]"))
            app.desk.closing.set()


async def test_without_saved_views_there_are_none(tmp_path: Path) -> None:
    """An app that keeps no views is no error."""
    with console(tmp_path, None) as app:
        async with app.run_test() as pilot:
            await sees(pilot, "Nothing was verified")
            assert [hit async for hit in ViewsProvider(app.screen).discover()] == []
            app.desk.closing.set()


@pytest.mark.parametrize(
    ("query", "name", "fit"),
    [
        ("ver", "verify", 1.0),
        ("tail go", "go to tail", 0.95),
        ("unknown", "help: what to do in create_unknown", 0.9),
        ("erify", "verify", 0.6),
        ("verify x", "verify", 0.0),
        ("", "verify", 0.0),
        ("a" * 30, "a" * 400, 1.0),
    ],
)
def test_how_well_a_name_fits(query: str, name: str, fit: float) -> None:
    """Beginnings first; and a name of one letter repeated takes no time."""
    assert fits(query, name) == pytest.approx(fit)


def test_the_palette_knows_all_its_providers() -> None:
    """One that is forgotten is never asked."""
    made = {kind for kind in vars(palette).values() if isinstance(kind, type) and issubclass(kind, palette._Deeds)}
    assert made - {palette._Deeds} == PROVIDERS
