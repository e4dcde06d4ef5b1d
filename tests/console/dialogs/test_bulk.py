"""Many at once, and the small dialogs."""

from __future__ import annotations

from typing import ClassVar

import pytest
from textual.binding import Binding, BindingType
from textual.pilot import Pilot

from opledger_console.dialogs.bulk import BulkDialog, BulkOutcome, BulkReport, Prospect
from opledger_console.dialogs.copymenu import CopyMenu
from opledger_console.dialogs.leaving import QuitDialog
from opledger_console.dialogs.lines import Lines
from opledger_console.dialogs.parts import FieldInput, Press
from opledger_console.verdicts import BulkVerdict
from tests.console.dialogs.samples import HOSTILE, PROSPECTS, Clock, Opened
from tests.console.hands import until


def drawn(pilot: Pilot[None]) -> str:
    """What is on the screen."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def test_many_are_decided_by_count_and_exactly_those_that_were_shown() -> None:
    """The ones that are left out are listed with the reason, and are not in the verdict."""
    clock = Clock()
    dialog = BulkDialog("cancel", PROSPECTS, clock=clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 60)) as pilot:
        clock.now += 1
        await pilot.pause()
        text = drawn(pilot)
        assert "12 operations" in text
        assert "there is nothing to cancel" in text
        dialog.query_one("#reason", FieldInput).value = "wrong table"
        for typed, asleep in (("13", True), ("twelve", True), ("12", False)):
            dialog.query_one("#typed", FieldInput).value = typed
            await pilot.pause()
            assert dialog.query_one("#confirm", Press).disabled is asleep
        dialog.confirm()
        assert dialog.sending
        clock.now += 5
        dialog.tick()
        await pilot.pause()
        wanted = tuple((one.operation_id, one.version) for one in PROSPECTS if one.eligible)
        assert app.answers == [BulkVerdict("cancel", wanted, "wrong table")]


async def test_what_else_was_decided_goes_along() -> None:
    """The choice and the time of a resolve were chosen before the preview."""
    clock = Clock()
    what = BulkVerdict("resolve", (), "", choice="extend", length="4h")
    dialog = BulkDialog("resolve", PROSPECTS[:1], what=what, clock=clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        for name, value in (("reason", "x"), ("typed", "1")):
            dialog.query_one(f"#{name}", FieldInput).value = value
        await pilot.pause()
        dialog.confirm()
        await pilot.pause()
        assert app.answers[0].choice == "extend"
        assert app.answers[0].length == "4h"


async def test_where_nothing_is_eligible_nothing_can_be_confirmed() -> None:
    """Not even by typing 0."""
    clock = Clock()
    dialog = BulkDialog("approve", (Prospect("op_1", "failed", False, "it has ended"),), clock=clock)
    async with Opened(dialog).run_test(size=(80, 24)) as pilot:
        clock.now += 1
        for name, value in (("reason", "x"), ("typed", "0")):
            dialog.query_one(f"#{name}", FieldInput).value = value
        await pilot.pause()
        assert dialog.query_one("#confirm", Press).disabled


async def test_five_thousand_are_all_listed() -> None:
    """And only what is on the screen is drawn; the last one can be reached."""
    clock = Clock()
    many = tuple(Prospect(f"op_{n:08}", "observing", True, "a cancel is recorded", n) for n in range(5000))
    dialog = BulkDialog("cancel", many, clock=clock)
    async with Opened(dialog).run_test(size=(80, 24)) as pilot:
        clock.now += 1
        assert dialog.query_one(Lines).count > 10_000
        dialog.query_one(Lines).focus()
        await pilot.press("G")
        await until(pilot, lambda: "None is left out." in drawn(pilot))
        assert "00004999" in drawn(pilot)


async def test_the_report_begins_with_what_failed() -> None:
    """With a count of each, and words beside the colour."""
    outcomes = (
        BulkOutcome("op_aaaaaaa1", "done", "it is rejected"),
        BulkOutcome("op_aaaaaaa2", "failed", "the database is away"),
        BulkOutcome("op_aaaaaaa3", "skipped", "it changed"),
    )
    async with Opened(BulkReport("reject", outcomes)).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        text = drawn(pilot)
    assert "REJECT: 1 done, 1 skipped, 1 failed" in text
    assert text.index("aaaaaaa2") < text.index("aaaaaaa3") < text.index("aaaaaaa1")


@pytest.mark.parametrize("how", ["key", "click"])
async def test_copy_hands_back_the_value_itself(how: str) -> None:
    """What is shown has been made inert; what is copied has not been touched."""
    clock = Clock()
    app = Opened(CopyMenu((("operation id", "op_1"), ("job id", HOSTILE)), clock=clock))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2")
        assert app.answers == []
        clock.now += 1
        if how == "key":
            await pilot.press("9", "2")
        else:
            await pilot.click("#content", offset=(3, 3))
        assert app.answers == [HOSTILE]


async def test_a_digit_that_closes_the_menu_means_nothing_below() -> None:
    """The screen below is in front again before the key has ended its way."""

    class Below(Opened):
        BINDINGS: ClassVar[list[BindingType]] = [Binding("1", "below", "below")]
        heard = 0

        def action_below(self) -> None:
            self.heard += 1

    clock = Clock()
    app = Below(CopyMenu((("operation id", "op_1"),), clock=clock))
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press("1")
        assert app.answers == ["op_1"]
        assert app.heard == 0
        await pilot.press("1")
        assert app.heard == 1


async def test_quit_must_be_meant() -> None:
    """It takes a key to the other button first."""
    clock = Clock()
    app = Opened(QuitDialog(clock=clock))
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press("right", "enter")
        assert app.answers == [True]
