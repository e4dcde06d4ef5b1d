"""The command line: what is typed means one thing, what is wrong says what would be right, and Tab goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.app import App
from textual.widgets import Input

from opledger.errors import UsageError
from opledger_console import topics
from opledger_console.commands import ALIASES, VERBS, Command, CommandWrong, Vocabulary, complete, parse
from opledger_console.screens.command import CommandScreen, LineScreen
from tests.console.hands import HOSTILE, assert_inert, sees, shown, until

KNOWN = Vocabulary(
    filters={"contract": ("reports", "payouts"), "by": ("agent-7",)},
    themes=("dark", "light", "contrast", "ansi"),
    views=("mine", "night shift"),
    topics=topics.known(),
)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ops state:failed", Command("ops", "state:failed")),
        (":ops /state:failed", Command("ops", "state:failed")),
        ("OPS", Command("ops")),
        ("list by:agent-7", Command("ops", "by:agent-7")),
        ("  inbox  ", Command("inbox")),
        ("tail kind:CallLost", Command("tail", "kind:CallLost")),
        ("verify", Command("audit")),
        ("find req_8812", Command("find", "req_8812")),
        ("show YGWBXFHZ", Command("open", "YGWBXFHZ")),
        ("?", Command("help")),
        ("help create_unknown", Command("help", "create_unknown")),
        ("theme light", Command("theme", "light")),
        ("save night shift", Command("save", "night shift")),
        ("view night shift", Command("view", "night shift")),
        ("quit", Command("q")),
    ],
)
def test_what_a_line_means(text: str, command: Command) -> None:
    """The words of the command line, and k9s's slash before a filter."""
    assert parse(text) == command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a command is missing"),
        (":", "a command is missing"),
        ("taik", r"did you mean ta\w+\?"),
        ("inbx", r"did you mean inbox\?"),
        ("zzzzzz", "there are inbox, ops"),
        ("inbox now", "takes nothing more"),
        ("open", "needs a operation|needs an operation"),
        ("open a b", "takes one operation"),
        ("theme", "needs a theme"),
        ("ops stat:failed", r"did you mean state\?"),
        ("tail age>2h", "and not of an event"),
        ("\x1b[2J", "is no command"),
    ],
)
def test_a_line_that_is_wrong_says_what_would_be_right(text: str, words: str) -> None:
    """Also where only the filter is wrong."""
    with pytest.raises(UsageError, match=words):
        parse(text)


def test_what_was_typed_is_repeated_inert() -> None:
    """An error message goes to the screen."""
    with pytest.raises(CommandWrong) as wrong:
        parse(f"x{HOSTILE}")
    assert_inert(wrong.value.message)


def test_every_alias_leads_to_a_verb() -> None:
    """One that leads nowhere would end the console."""
    assert set(ALIASES.values()) <= set(VERBS)
    assert not set(ALIASES) & set(VERBS)


@pytest.mark.parametrize(
    ("text", "offers"),
    [
        ("ta", ("tasks", "tail ")),
        ("esc", ("escalations",)),
        (":theme c", ("theme contrast",)),
        ("theme contrast", ()),
        ("view n", ("view night shift",)),
        ("help cap", ("help capacity",)),
        ("help create_u", ("help create_unknown",)),
        ("tail kind:CallL", ("tail kind:CallLost",)),
        ("ops contract:rep", ("ops contract:reports",)),
        ("ops /by:ag", ("ops /by:agent-7",)),
        ("inbox ", ()),
        ("zzz x", ()),
    ],
)
def test_how_a_line_goes_on(text: str, offers: tuple[str, ...]) -> None:
    """Verbs, then what each of them takes."""
    assert complete(text, KNOWN) == offers


def test_every_offer_can_be_read_or_goes_on() -> None:
    """A completion that leads into an error is a trap."""
    for line in complete("help ", KNOWN) + complete("theme ", KNOWN) + complete("view ", KNOWN):
        assert parse(line).rest


# --- the line on the screen ---------------------------------------------------------------------------------------


class Bare(App[None]):
    """An app with nothing but the line."""

    def __init__(self, *, value: str = "") -> None:
        super().__init__()
        self.animation_level = "none"
        self.value = value
        self.answers: list[Command | None] = []

    def on_mount(self) -> None:
        """Ask."""
        self.ask()

    def ask(self) -> None:
        """Ask once more."""
        self.push_screen(CommandScreen(KNOWN, value=self.value), self.answers.append)


@pytest.fixture(autouse=True)
def no_past() -> Iterator[None]:
    """What other tests entered is none of this one's."""
    LineScreen._past.clear()
    yield
    LineScreen._past.clear()


async def test_a_line_is_typed_and_answers_with_a_command() -> None:
    """Enter carries it out only because it can be read."""
    app = Bare()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"ops /state:failed", "enter")
        await until(pilot, lambda: app.answers)
        assert app.answers == [Command("ops", "state:failed")]


async def test_a_wrong_line_stays_for_mending() -> None:
    """With the reason above it."""
    app = Bare()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"inbx", "enter")
        await sees(pilot, "did you mean inbox?", ":inbx")
        assert app.answers == []
        await pilot.press("escape")
        await until(pilot, lambda: app.answers == [None])


async def test_tab_completes_and_goes_through_what_there_is() -> None:
    """One way to go on is taken at once; of several the next with each Tab."""
    app = Bare(value="th")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("e", "tab")
        field = app.screen.query_one(Input)
        await until(pilot, lambda: field.value == "theme ")
        await sees(pilot, "theme dark", "theme ansi")
        await pilot.press("tab", "tab")
        await until(pilot, lambda: field.value == "theme light")
        await pilot.press("shift+tab")
        await until(pilot, lambda: field.value == "theme dark")
        await pilot.press("enter")
        await until(pilot, lambda: app.answers == [Command("theme", "dark")])


async def test_up_and_down_bring_back_what_was_entered() -> None:
    """And what was being typed is not lost."""
    app = Bare()
    async with app.run_test(size=(80, 24)) as pilot:
        for line in ("inbox", "tasks"):
            await pilot.press(*line, "enter")
            await pilot.pause()
            app.ask()
            await pilot.pause()
        field = app.screen.query_one(Input)
        await pilot.press("x", "up")
        assert field.value == "tasks"
        await pilot.press("up", "up")
        assert field.value == "inbox"
        await pilot.press("down", "down")
        assert field.value == "x"


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (1, 1)])
async def test_hostile_text_in_the_line_does_nothing(size: tuple[int, int]) -> None:
    """Pasted text, and names that others chose for views."""
    app = Bare(value=f"view {HOSTILE}")
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert_inert(shown(pilot))
        field = app.screen.query_one(Input)
        field.insert_text_at_cursor(HOSTILE)
        await pilot.pause()
        assert_inert(shown(pilot))
        assert_inert(field.value)


def test_the_topics_of_the_help_are_words_of_the_command(tmp_path: Path) -> None:
    """`:help` and a topic's name: each must be one word that completes."""
    assert all(len(name.split()) == 1 for name in topics.known())
    assert set(topics.NAMES) <= set(topics.known())
