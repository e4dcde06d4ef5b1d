"""The app as a whole: going from screen to screen, the command line, what is said where, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.css.query import NoMatches
from textual.pilot import Pilot
from textual.widgets import Input

from opledger.errors import StoreUnavailable
from opledger_console import themes
from opledger_console.app import SCREENS, ConsoleApp
from opledger_console.desk import Desk, trace
from opledger_console.dialogs.leaving import QuitDialog
from opledger_console.dialogs.note import NoteDialog
from opledger_console.messages import LedgerAway, NotGathered
from opledger_console.screens.base import LedgerScreen
from opledger_console.screens.command import CommandScreen
from opledger_console.screens.help import HelpScreen
from opledger_console.screens.inbox import InboxScreen
from opledger_console.screens.operation import OperationScreen
from opledger_console.screens.operations import OperationsScreen
from opledger_console.screens.tail import TailScreen
from opledger_console.widgets.notice import NoticeLine
from tests.console.hands import HOSTILE, assert_inert, running, sees, shown, until
from tests.core.ledgers import BODY, LOST, Home, accepted, happens, observed, sent


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with one thing that waits and one that runs."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger() as ledger:
        op = ledger.submit("jobs", BODY, requested_by="agent-1")
        happens(ledger, op, sent(), accepted("job_1"), observed(job="job_1"))
        happens(ledger, ledger.submit("jobs", {"rows": 6}, requested_by="agent-2"), *LOST)
    return home


async def command(pilot: Pilot[int], words: str) -> None:
    """Type a command and confirm it."""
    await pilot.press("colon")
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandScreen), "open the command line")
    pilot.app.screen.query_one("Input").value = words  # type: ignore[attr-defined]
    await pilot.press("enter")


async def test_digits_go_to_the_six_screens(home: Home) -> None:
    """From anywhere, also from an operation that was opened."""
    async with running(home, "inbox") as pilot:
        for number, mode in enumerate(SCREENS, start=1):
            await pilot.press(str(number))
            await until(pilot, lambda mode=mode: isinstance(pilot.app.screen, SCREENS[mode]), mode)  # type: ignore[misc]
            await sees(pilot, SCREENS[mode].TITLE_WORDS, "unknown create 1")


async def test_the_start_is_the_inbox(home: Home) -> None:
    """What needs a person comes first."""
    async with running(home, "inbox") as pilot:
        await sees(pilot, "create unknown")
        assert isinstance(pilot.app.screen, InboxScreen)


async def test_an_exclamation_mark_leads_to_what_needs_a_person(home: Home) -> None:
    """From any screen, by one key."""
    async with running(home, "tail") as pilot:
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, InboxScreen), "go to the inbox")
        await sees(pilot, "create unknown")


async def test_the_command_line_goes_where_it_is_told(home: Home) -> None:
    """As on the command line of the shell; what is not understood says what is nearest."""
    async with running(home, "inbox") as pilot:
        await sees(pilot, "create unknown")
        await command(pilot, "ops by:agent-1")
        await until(pilot, lambda: isinstance(pilot.app.screen, OperationsScreen), "show operations")
        await sees(pilot, "1 match by:agent-1")
        await command(pilot, "save mine")
        await sees(pilot, "saved as mine")
        await command(pilot, "ops")
        await sees(pilot, "2 operations")
        await command(pilot, "view mine")
        await sees(pilot, "1 match by:agent-1")
        await command(pilot, "tail kind:Submitted")
        await until(pilot, lambda: isinstance(pilot.app.screen, TailScreen), "show the tail")
        with home.ledger() as ledger:
            op = ledger.list(limit=1)[0].operation_id
        await command(pilot, f"open {op[-8:]}")
        await until(pilot, lambda: isinstance(pilot.app.screen, OperationScreen), "open it")
        await sees(pilot, op)
        await command(pilot, "help states")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen), "help")
        await pilot.press("escape")
        await command(pilot, "theme light")
        assert pilot.app.theme == themes.LIGHT.name
        await pilot.press("colon", *"opps", "enter")
        await sees(pilot, "ops")
        assert isinstance(pilot.app.screen, CommandScreen)


async def test_an_operation_that_is_not_there_is_said(home: Home) -> None:
    """A mistyped id opens a page that says so, and Escape leads back."""
    async with running(home, "operations") as pilot:
        await command(pilot, "open ZZZZZZZZ")
        await sees(pilot, "ZZZZZZZZ")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, OperationsScreen), "go back")


async def test_the_palette_and_help_open_from_every_screen(home: Home) -> None:
    """ctrl+p and ?, and nothing of the ledger is touched by them."""
    async with running(home, "inbox") as pilot:
        for mode in SCREENS:
            await command(pilot, mode if mode != "operations" else "ops")
            await pilot.press("ctrl+p")
            await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette), "open the palette")
            await pilot.press("escape")
            await pilot.press("question_mark")
            await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen), "open the help")
            assert_inert(shown(pilot))
            await pilot.press("escape")


async def test_what_is_said_covers_nothing(home: Home) -> None:
    """A notice has room of its own above the keys: it lies over no row, no dialog and no button."""
    async with running(home, "operations", (80, 24)) as pilot:
        await sees(pilot, "2 operations")
        screen = pilot.app.screen
        assert isinstance(screen, OperationsScreen)
        screen.say(f"done {HOSTILE}", severity="error")
        text = await sees(pilot, "done", "2 operations", "a approve")
        assert_inert(text)
        assert "[@click=app.quit]" in text
        screen.query_one(NoticeLine).clear()
        await until(pilot, lambda: "[@click=app.quit]" not in shown(pilot), "say nothing more")


@pytest.mark.parametrize("theme", ["dark", "light", "contrast", "ansi"])
async def test_every_theme_shows_the_same_words(home: Home, theme: str) -> None:
    """Colour is never the only carrier: glyph and word are there in each."""
    async with running(home, "operations", toml=f'[console]\ntheme = "{theme}"\n') as pilot:
        await sees(pilot, "‽ create_unknown", "▸ observing")
        assert pilot.app.theme == themes.SHORT[theme]


async def test_a_theme_that_does_not_exist_is_said(home: Home) -> None:
    """And the console is dressed all the same."""
    async with running(home, "inbox", toml='[console]\ntheme = "[/red"\n') as pilot:
        await sees(pilot, "there is no theme '[/red'")
        assert pilot.app.theme == themes.DARK.name


async def test_an_unexpected_error_in_a_thread_is_written_down_and_said_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen stays; the file names kinds and places, and nothing that could be a secret."""
    async with running(home, "operations") as pilot:
        await sees(pilot, "2 operations")

        def broken(question: object) -> object:
            secret = "sk-very-secret"
            raise RuntimeError(secret)

        monkeypatch.setattr(pilot.app.screen, "gather", broken)
        pilot.app.screen.action_look()  # type: ignore[attr-defined]
        text = await sees(pilot, "reading failed", "RuntimeError")
        assert "sk-very-secret" not in text
        written = trace.path().read_text()
        assert "RuntimeError" in written
        assert "sk-very-secret" not in written


async def test_a_crash_prints_no_values(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Textual's own report of a crash shows local variables; ours says what and where."""
    desk = Desk(home.settings(), read_only=False, drive=False)
    app = ConsoleApp(desk, start="inbox")

    def fail() -> None:
        secret = "sk-very-secret"
        raise ValueError(secret)

    async def crash() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await sees(pilot, "Inbox")
            app.call_later(fail)
            await pilot.pause(0.2)

    with pytest.raises(ValueError, match="sk-very-secret"):
        await crash()
    desk.close()
    assert app.return_value == 1
    printed = "".join(str(one) for one in app._exit_renderables)
    assert "sk-very-secret" not in printed + capsys.readouterr().err
    assert "ValueError" in trace.path().read_text()


async def test_the_frame_says_when_nothing_is_driven(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """And, while the database is away, since when the picture is old."""
    async with running(home, "inbox") as pilot:
        await sees(pilot, "NO WORKER: nothing is driven", "watches")

        def away() -> object:
            raise StoreUnavailable(f"no route to the database {HOSTILE}")

        monkeypatch.setattr(pilot.app.desk, "overview", away)  # type: ignore[attr-defined]
        assert_inert(await sees(pilot, "DATABASE AWAY", "what you see was true at"))
        monkeypatch.undo()
        await until(pilot, lambda: "DATABASE AWAY" not in shown(pilot), "come back")


async def test_leaving_asks_only_where_something_typed_would_be_lost(home: Home) -> None:
    """Ctrl-C in a dialog with a reason in it asks; in an empty one, or on a screen, it ends the console."""
    async with running(home, "operations") as pilot:
        await sees(pilot, "2 operations")
        await pilot.press("G", "n")
        await until(pilot, lambda: isinstance(pilot.app.screen, NoteDialog), "ask for the note")
        dialog = pilot.app.screen
        dialog.query_one("#reason", Input).value = "half a sentence"
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(pilot.app.screen, QuitDialog), "ask")
        await until(pilot, lambda: not pilot.app.screen.deaf, "listen")  # type: ignore[attr-defined]
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is dialog, "go back")
        assert dialog.query_one("#reason", Input).value == "half a sentence"
        await pilot.press("ctrl+c", "ctrl+c")
        await until(pilot, lambda: not pilot.app.is_running or pilot.app._exit, "end")


@pytest.mark.parametrize("name", list(SCREENS))
async def test_what_comes_while_a_screen_is_taken_down_is_let_go(home: Home, name: str) -> None:
    """A read that ends, or a word of the database, finds no widget any more; nobody waits for it either."""
    async with running(home, name) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, LedgerScreen)
        asked = screen.question()
        await screen.query("*").remove()
        screen.post_message(LedgerAway("it is away"))
        screen.post_message(NotGathered(asked, "it is away"))
        screen.call_later(screen.action_look)
        await pilot.pause()
        assert pilot.app.is_running


async def test_a_widget_that_is_missing_from_a_whole_screen_is_a_fault(home: Home) -> None:
    """Else a slip in a screen would show as nothing at all."""
    with pytest.raises(NoMatches):
        await _ask_for_what_is_not_there(home)


async def _ask_for_what_is_not_there(home: Home) -> None:
    async with running(home, "operations") as pilot:
        pilot.app.screen.call_later(lambda: pilot.app.screen.query_one("#nobody"))
        await pilot.pause()


@pytest.mark.parametrize("name", list(SCREENS))
async def test_a_screen_that_is_taken_down_has_no_keys(home: Home, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A footer asks late which keys are on: a list that is gone by then must not end the console.

    Nothing else runs meanwhile: what a read brings to a screen that was emptied is another question.
    """

    def gone(*_: object) -> None:
        raise NoMatches("it was taken down")

    async with running(home, name) as pilot:
        await pilot.pause()
        screen = pilot.app.screen
        with monkeypatch.context() as patch:
            patch.setattr(screen, "query_one", gone)
            assert screen.active_bindings is not None
        assert pilot.app.is_running
