"""The help: the keys that really are bound, why some are off, and something to do in every state."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from opledger.rules.choices import choices
from opledger.rules.model import NEEDS_HUMAN, State
from opledger_console import topics
from opledger_console.screens.help import HelpScreen
from opledger_console.widgets.paper import Paper, Paragraph
from tests.console.hands import assert_inert, running, sees, shown, until
from tests.core.ledgers import BODY, LOST, Home, happens
from tests.core.rules.operations import contract, operation


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with an operation whose create was lost."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger() as ledger:
        happens(ledger, ledger.submit("jobs", BODY, requested_by="agent-1"), *LOST)
    return home


def paper(pilot: Pilot[int]) -> Paper:
    """The text."""
    return pilot.app.screen.query_one(Paper)


def top(pilot: Pilot[int]) -> str:
    """The first line of the text that is on the screen."""
    return shown(pilot).split("\n")[1].strip()


# --- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_every_state_says_what_to_do(state: State) -> None:
    """At 03:00 a state without a topic is the one you are woken up for."""
    states = next(topic for topic in topics.topics() if topic.name == "states")
    start = states.places[state]
    section = states.lines[start + 1 :]
    end = next((at for at, line in enumerate(section) if line.kind == "head"), len(section))
    said = section[:end]
    assert [line.label.rstrip(":") for line in said if line.kind == "label"] == list(topics.LABELS)
    assert all(len(line.text) > len(line.label) + 5 for line in said if line.kind == "label")
    assert len([line for line in said if line.kind == "point"]) == len(topics.options_in(state))


def test_the_states_stand_in_the_order_of_the_rules() -> None:
    """Two lists of states must not differ in their order."""
    states = next(topic for topic in topics.topics() if topic.name == "states")
    assert list(states.places) == list(State)


def test_nothing_is_said_of_a_state_that_there_is_not() -> None:
    """A state that was renamed must not stay behind in the texts."""
    text = (Path(topics.__file__).parent / "states.md").read_text(encoding="utf-8")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(State)


@pytest.mark.parametrize("state", sorted({*NEEDS_HUMAN, State.CREATE_UNKNOWN} - {State.AWAITING_APPROVAL}))
def test_the_choices_are_those_of_the_rules(state: State) -> None:
    """Each with its consequence: the help must not promise what the dialog does not offer."""
    real = choices(operation(state, jobs=("job_1", "job_2")), contract())
    assert [option.choice for option in topics.options_in(state)] == [option.choice for option in real]
    states = next(topic for topic in topics.topics() if topic.name == "states")
    text = " ".join(line.text for line in states.lines)
    assert all(option.consequence in text for option in real)


def test_topics_have_titles_and_stay_short() -> None:
    """One screen of reading each, but for the states."""
    for topic in topics.topics():
        assert topic.title
        assert topic.about
        assert topic.name == "states" or len(topic.lines) < 30


# --- the screen ---------------------------------------------------------------------------------------------------


async def test_it_lists_the_keys_that_are_bound_and_why_one_is_off(home: Home) -> None:
    """Made from the bindings: a list by hand is wrong after the first change."""
    async with running(home, "audit", (100, 60)) as pilot:
        await sees(pilot, "Nothing was verified")
        await pilot.press("question_mark")
        text = await sees(pilot, "Keys of Audit", "Keys everywhere", "off now, nothing is under way")
        assert "compute every chain" in text
        assert "Scroll Left" not in text
        assert "tail" in text


async def test_it_begins_at_a_topic_or_a_state(home: Home) -> None:
    """`:help create_unknown` goes there."""
    async with running(home, "tail", (80, 24)) as pilot:
        await sees(pilot, "following")
        pilot.app.push_screen(HelpScreen(pilot.app.screen, "create_unknown"))
        await sees(pilot, "its answer was lost")
        assert top(pilot) == "‽ create_unknown"
        await pilot.press("escape")
        await sees(pilot, "following")


async def test_s_goes_to_the_state_of_the_operation_below(home: Home) -> None:
    """The one question at night: what do I do with this one?"""
    async with running(home, "operations", (80, 24)) as pilot:
        await until(pilot, lambda: getattr(pilot.app.screen, "subject", lambda: None)() is not None)
        await pilot.press("question_mark")
        await sees(pilot, "s what to do in create_unknown")
        await pilot.press("s")
        await until(pilot, lambda: top(pilot) == "‽ create_unknown")


async def test_a_word_is_searched_for_and_found_again(home: Home) -> None:
    """Also in a paragraph that is wrapped; what is not there is said."""
    async with running(home, "tail", (80, 24)) as pilot:
        await sees(pilot, "following")
        await pilot.press("question_mark", "slash", *"clipboard", "enter")
        await sees(pilot, "goes to the clipboard of the")
        first = paper(pilot).found
        await pilot.press("n")
        await until(pilot, lambda: paper(pilot).found != first)
        await pilot.press("N")
        await until(pilot, lambda: paper(pilot).found == first)
        await pilot.press("slash", *"zzz", "enter")
        await sees(pilot, "the help does not have")


async def test_topics_are_gone_through_and_the_keys_move(home: Home) -> None:
    """Tab from topic to topic, j and k by lines, g and G to the ends."""
    async with running(home, "tail", (80, 24)) as pilot:
        await sees(pilot, "following")
        await pilot.press("question_mark", "tab")
        await sees(pilot, "When you are woken up")
        await pilot.press("j", "j", "k")
        assert paper(pilot).scroll_offset.y == paper(pilot)._firsts[pilot.app.screen._starts["night"]] + 1  # type: ignore[attr-defined]
        await pilot.press("G")
        assert paper(pilot).scroll_offset.y == paper(pilot).max_scroll_y
        await pilot.press("g")
        assert paper(pilot).scroll_offset.y == 0
        await pilot.press("q")
        await sees(pilot, "following")


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60), (1, 1)])
async def test_it_can_be_read_at_every_size(home: Home, size: tuple[int, int]) -> None:
    """Nothing is cut off at the right: what does not fit is wrapped."""
    async with running(home, "tail", size) as pilot:
        await pilot.app.push_screen(HelpScreen(pilot.app.screen, "night"))
        await until(pilot, lambda: paper(pilot)._lines)
        assert_inert(shown(pilot))
        if size[0] >= 40:
            width = paper(pilot).size.width
            assert all(len(line.front + line.text) <= width for line in paper(pilot)._lines)


async def test_a_reason_from_outside_is_shown_as_text(home: Home) -> None:
    """The reason why a key is off may name an operation, a provider, an error."""
    async with running(home, "tail", (80, 24)) as pilot:
        await sees(pilot, "following")
        await pilot.press("question_mark")
        paper(pilot).show([Paragraph("off: \x1b[2J\u202e[/red]", label="\x9b1", hang=4)])
        assert_inert(await sees(pilot, "[/red]"))
