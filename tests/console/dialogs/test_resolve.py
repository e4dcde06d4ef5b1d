"""Resolve: a choice, what it needs, and what makes a second question necessary."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from opledger.rules.model import Attention, State
from opledger_console.dialogs.answers import stacked
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import FieldInput, Press
from opledger_console.dialogs.resolve import ResolveDialog
from opledger_console.verdicts import Verdict
from tests.console.dialogs.samples import ANSWERS, Clock, Opened, options, violated
from tests.core.rules.operations import NOON, operation

LOST = operation(State.CREATE_UNKNOWN, version=5, attention=Attention("create_unknown", NOON, "nobody knows"))
LATE = operation(State.RESULT_TIMED_OUT, version=6)


def fill(dialog: ResolveDialog, **values: str) -> None:
    """Type into fields."""
    for name, value in values.items():
        dialog.query_one(f"#{name}", FieldInput).value = value


def opened(op: Any, answers: Any = ()) -> tuple[Opened, ResolveDialog, Clock]:
    """An app with the dialog."""
    clock = Clock()
    dialog = ResolveDialog(op, options(op), answers, NOON, clock=clock)
    return Opened(dialog), dialog, clock


def drawn(pilot: Pilot[None]) -> str:
    """What is on the screen."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def test_first_the_choices_then_what_the_chosen_one_needs() -> None:
    """Each with what follows; Escape goes back to them, and only then away."""
    app, dialog, clock = opened(LOST)
    async with app.run_test(size=(80, 60)) as pilot:
        await pilot.press("1")
        assert dialog.option is None, "deaf"
        clock.now += 1
        await pilot.pause()
        text = drawn(pilot)
        assert all(word in text for word in ("1  bind", "2  not-created", "3  resend", "4  close", "Cannot be undone"))
        assert not dialog.query_one("#confirm").display
        await pilot.press("9", "0", "1")
        assert dialog.option is not None and dialog.option.choice == "bind"
        assert dialog.query_one("#row-job").display
        assert not dialog.query_one("#row-typed").display
        await pilot.press("escape")
        assert dialog.option is None
        await pilot.press("escape")
        assert app.answers == [None]


async def test_a_job_is_bound_with_level_two() -> None:
    """The id and a reason; a missing id is said."""
    app, _, clock = opened(LOST)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press("1", "tab")
        assert "Missing: the job's id; a reason" in drawn(pilot)
        await pilot.press("x", "1", "enter", "y", "enter", "tab", "enter")
        assert app.answers == [Verdict("resolve", LOST.operation_id, 5, "y", choice="bind", job="x1")]


@pytest.mark.parametrize("key", ["2", "3", "4"])
async def test_what_ends_it_or_sends_again_wants_the_end_of_the_id(key: str) -> None:
    """And what was typed for one choice does not hold for another."""
    app, dialog, clock = opened(LOST)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press(key)
        fill(dialog, reason="x")
        await pilot.pause()
        assert dialog.query_one("#confirm", Press).disabled
        fill(dialog, typed="ST0001")
        await pilot.pause()
        assert not dialog.query_one("#confirm", Press).disabled
        dialog.choose(int(key) % 3 + 1)
        await pilot.pause()
        assert dialog.query_one("#typed", FieldInput).value == ""
        assert dialog.query_one("#confirm", Press).disabled


async def test_a_time_must_be_one() -> None:
    """Malformed, zero and empty are said; the text goes out as it was typed."""
    app, dialog, clock = opened(LATE)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press("1")
        for text in ("", "soon", "0s", "1.5h", "-3h"):
            fill(dialog, reason="x", length=text)
            await pilot.pause()
            assert dialog.query_one("#confirm", Press).disabled
        fill(dialog, length="4h")
        await pilot.pause()
        dialog.confirm()
        await pilot.pause()
        assert app.answers == [Verdict("resolve", LATE.operation_id, 6, "x", choice="extend", length="4h")]


async def test_a_violation_is_asked_about_twice() -> None:
    """The second question is deaf at first too, and a change of what is typed asks it anew."""
    app, dialog, clock = opened(violated(), ANSWERS)
    async with app.run_test(size=(120, 40)) as pilot:
        clock.now += 1
        await pilot.press("1", "tab", "down", "down", "enter")
        assert dialog.query_one("#job", FieldInput).value == "job_2"
        fill(dialog, reason="x")
        await pilot.pause()
        await pilot.press("enter", "tab", "enter", "enter", "enter")
        assert "Once more: keep" in drawn(pilot)
        assert app.focused is dialog.query_one("#keep")
        assert app.answers == []
        clock.now += 1
        fill(dialog, reason="xy")
        await pilot.pause()
        dialog.confirm()
        await pilot.pause()
        assert app.answers == []
        clock.now += 1
        dialog.confirm()
        await pilot.pause()
        assert app.answers == [Verdict("resolve", violated().operation_id, 9, "xy", choice="keep", job="job_2")]


async def test_the_second_question_can_be_answered_with_no() -> None:
    """Then the form is there again."""
    app, dialog, clock = opened(violated(), ANSWERS)
    async with app.run_test(size=(120, 40)) as pilot:
        clock.now += 1
        await pilot.press("3")
        fill(dialog, reason="x", typed="ST0001")
        await pilot.pause()
        dialog.confirm()
        clock.now += 1
        await pilot.press("enter")
        assert "Once more" not in drawn(pilot)
        assert app.answers == []
        assert dialog.option is not None


async def test_a_job_is_handed_back_exactly_as_the_record_has_it() -> None:
    """What is shown of an id has been made inert; two that look the same are not guessed between."""
    strange = "job\u200b1"
    app, dialog, clock = opened(violated((strange, "job_2")))
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press("1")
        fill(dialog, job="job\\u200b1", reason="x")
        await pilot.pause()
        assert dialog.result().job == strange
        fill(dialog, job="job_3")
        await pilot.pause()
        assert dialog.query_one("#confirm", Press).disabled
    app, dialog, clock = opened(violated((strange, "job\\u200b1")))
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press("1")
        fill(dialog, job="job\\u200b1", reason="x")
        await pilot.pause()
        assert dialog.query_one("#confirm", Press).disabled


async def test_answers_stand_side_by_side_where_there_is_room() -> None:
    """The fields that differ are marked in both, and no others."""
    app, _, clock = opened(violated(), ANSWERS)
    async with app.run_test(size=(100, 60)) as pilot:
        clock.now += 1
        await pilot.pause()
        rows = [line for line in drawn(pilot).splitlines() if '"team"' in line]
        assert len(rows) == 1
        assert rows[0].count("≠") == 2
        assert '"blue"' in rows[0] and '"red"' in rows[0]
        await pilot.resize_terminal(90, 60)
        await pilot.pause()
        await pilot.pause()
        rows = [line for line in drawn(pilot).splitlines() if '"team"' in line]
        assert len(rows) == 2


def test_only_differing_fields_are_marked() -> None:
    """One, true and 1.0 are three values; a field that is missing elsewhere differs; not JSON: by line."""

    def marked(*bodies: str) -> list[str]:
        pieces: list[Piece] = list(stacked([("t", body) for body in bodies]))
        return [piece.text.strip() for piece in pieces if piece.kind == "differs"]

    assert marked('{"a": 1, "b": [1, 2]}', '{"b": [1, 2], "a": true}') == ['"a": 1', '"a": true']
    assert marked('{"a": 1, "c": {}}', '{"a": 1}') == ['"c": {}']
    assert marked('{"": 1}', '{"": 2}') == ['"": 1', '"": 2']
    assert marked("one\ntwo", "one\n2") == ["two", "2"]
    assert marked("{}", "{}") == []
