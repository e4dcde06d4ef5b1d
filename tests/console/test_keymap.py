"""Keys by people's choice: what can be had is, what cannot is told and leaves everything as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from textual.app import App
from textual.binding import Binding

from opledger.cli.program import run
from opledger_console import keymap
from opledger_console.app import ConsoleApp
from opledger_console.desk import Desk
from tests.console.hands import sees
from tests.core.ledgers import Home


def problems(**wanted: str) -> tuple[str, ...]:
    """What is wrong with a choice; ids with a dot are written with two underscores."""
    return keymap.check({action.replace("__", "."): key for action, key in wanted.items()})[1]


def test_the_actions_of_every_screen_are_known() -> None:
    """What is not listed cannot be changed."""
    known = {one.action_id: one for one in keymap.known()}
    assert {"approve", "cancel", "look", "help", "quit", "mode.audit", "tail.follow", "audit.verify"} <= set(known)
    assert known["tail.follow"].keys == ("L",)
    assert known["tail.follow"].places == ("tail",)
    assert "operations" in known["cancel"].places
    assert all(one.does for one in known.values())


def test_what_can_be_had_is_taken_as_textual_writes_it() -> None:
    """Characters and names; several keys with commas."""
    good, wrong = keymap.check({"tail.follow": "f5", "help": "f1,?", "approve": "A"})
    assert wrong == ()
    assert good == {"tail.follow": "f5", "help": "f1,question_mark", "approve": "A"}


@pytest.mark.parametrize("key", ["enter", "space", "ctrl+a", "tab", "ctrl+shift+x", "escape"])
@pytest.mark.parametrize("action", sorted(keymap.DESTRUCTIVE))
def test_no_decision_gets_a_key_of_habit(action: str, key: str) -> None:
    """Enter and space are pressed without looking, and a slip of the finger is a ctrl away (k9s deleted that way)."""
    (said,) = problems(**{action: key})
    assert "leads to a decision" in said
    assert keymap.check({action: key})[0] == {}


def test_an_action_that_there_is_not_is_named_with_the_nearest() -> None:
    """A typing error must not be silence."""
    assert "did you mean approve?" in problems(aprove="f2")[0]
    assert "opledger keys lists them" in problems(zzzzzzzzz="f2")[0]


@pytest.mark.parametrize(
    ("key", "words"), [("entr", "did you mean enter?"), ("hyper+x", "is no key"), ("", "has no key")]
)
def test_a_key_that_there_is_not_is_named(key: str, words: str) -> None:
    """Textual would take any text, and the action would have no key at all."""
    assert words in problems(tail__follow=key)[0]


def test_one_key_for_two_actions_in_one_place_is_refused() -> None:
    """One of them would silently do nothing."""
    good, (said,) = keymap.check({"tail.filter": "L"})
    assert good == {}
    assert (
        said
        == "tail.filter and tail.follow cannot both have the key L on the screen tail; give one of them another key"
    )


def test_a_key_that_is_taken_everywhere_is_refused_too() -> None:
    """The key q quits on every screen, j moves in every list."""
    assert "quit" in problems(tail__follow="q")[0]
    assert "down" in problems(tail__follow="j")[0]


def test_two_actions_may_change_places() -> None:
    """Both keys are free once both have moved."""
    good, wrong = keymap.check({"tail.follow": "slash", "tail.filter": "L"})
    assert (good, wrong) == ({"tail.follow": "slash", "tail.filter": "L"}, ())


def test_one_key_in_two_places_is_no_trouble() -> None:
    """The tail and the audit are never on the screen together."""
    assert problems(tail__follow="f6", audit__verify="f6") == ()


def test_what_is_given_up_can_take_others_with_it() -> None:
    """An action that keeps its old key may stand in the way of another choice."""
    good, wrong = keymap.check({"tail.follow": "nokey", "tail.filter": "L"})
    assert good == {}
    assert len(wrong) == 2


def test_the_defaults_do_not_clash() -> None:
    """Nobody chose them, so nobody would be told."""
    places: dict[str, dict[str, str]] = {}
    for bound in keymap._bindings():
        for key in bound.keys:
            if bound.action_id:
                assert places.setdefault(bound.place, {}).setdefault(key, bound.action) == bound.action, (bound, key)


def test_keys_are_listed_for_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """For people, and for programs."""
    assert run(["keys"]) == 0
    assert "tail.follow" in capsys.readouterr().out
    assert run(["keys", "--json"]) == 0
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["keys"]}
    assert found["audit.verify"] == {"id": "audit.verify", "keys": ["v"], "does": "verify", "places": ["audit"]}


async def test_a_chosen_key_works_and_the_old_one_does_not(tmp_path: Path) -> None:
    """And what cannot be had is said on the screen, as a text."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger():
        desk = Desk(home.settings(), read_only=False, drive=False)
        keys = {"audit.verify": "f5", "approve": "enter", "[/red]": "x"}
        desk.settings = replace(desk.settings, console=replace(desk.settings.console, keys=keys))
    app = ConsoleApp(desk, start="audit")
    async with app.run_test(size=(100, 30)) as pilot:
        await sees(pilot, "Nothing was verified")
        await sees(pilot, "[/red]", "leads to a decision")
        await pilot.press("v")
        await pilot.pause()
        await sees(pilot, "Nothing was verified")
        await pilot.press("f5")
        await sees(pilot, "verified at")
        desk.closing.set()
    desk.close()


def test_a_class_outside_the_console_is_none_of_its_keys() -> None:
    """Tests and plug-ins have apps of their own."""

    class Other(App[None]):
        BINDINGS = [Binding("z", "zap", "zap", id="other.zap")]  # noqa: RUF012 - as Textual's own examples

    assert Other.BINDINGS
    assert "other.zap" not in {one.action_id for one in keymap.known()}
