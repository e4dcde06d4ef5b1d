"""Approve, reject, cancel and the remarks: the ladder, the countdown, and what is handed back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Button

from opledger_console.dialogs.acknowledge import AcknowledgeDialog
from opledger_console.dialogs.approve import ApproveDialog
from opledger_console.dialogs.base import Dialog
from opledger_console.dialogs.cancel import CancelDialog
from opledger_console.dialogs.lines import Lines
from opledger_console.dialogs.parts import FieldInput, Press
from opledger_console.dialogs.provider import ProviderDialog
from opledger_console.dialogs.reject import RejectDialog
from opledger_console.verdicts import Verdict
from tests.console.dialogs.samples import SHEET, Clock, Opened, review, running, waiting
from tests.core.rules.operations import NOON, operation


def approve(clock: Clock, *, grace: float = 5.0, **more: Any) -> ApproveDialog:
    """The approval of an operation that waits for one."""
    op = waiting()
    return ApproveDialog(op, review(op, **more), NOON, grace=grace, clock=clock)


def field(dialog: Dialog[Any], name: str) -> FieldInput:
    """One of the fields."""
    return dialog.query_one(f"#{name}", FieldInput)


def drawn(pilot: Pilot[None]) -> str:
    """What is on the screen."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def test_approve_by_keyboard_from_opening_to_the_verdict() -> None:
    """Tab goes to the reason, Enter out of it to the safe button, Tab to the other one; then it counts down."""
    clock = Clock()
    dialog = approve(clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        await pilot.press("tab", "j", "k", "enter")
        assert field(dialog, "reason").value == "jk"
        assert app.focused is dialog.query_one("#keep")
        await pilot.press("tab", "enter")
        assert dialog.sending
        await pilot.press("enter", "space", "tab", "enter")
        assert "Sending in 5 s - Esc takes it back" in drawn(pilot)
        clock.now += 4.9
        dialog.tick()
        await pilot.pause()
        assert app.answers == []
        clock.now += 0.2
        dialog.tick()
        dialog.tick()
        await pilot.pause()
        op = waiting()
        verdict = Verdict("approve", op.operation_id, 7, "jk", fingerprint=op.request_fingerprint)
        assert app.answers == [verdict]


async def test_where_a_signature_is_demanded_the_dialog_shows_and_names_the_command() -> None:
    """Ssh-keygen asks at the terminal, which is the console's; nothing is sent from here."""
    clock = Clock()
    dialog = approve(clock, signed=True)
    app = Opened(dialog)
    async with app.run_test(size=(100, 30)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "fine"
        await pilot.pause()
        shown = drawn(pilot)
        assert f"opledger approve {waiting().operation_id} --reason R --sign" in shown
        assert "Missing: your signature" in shown
        assert dialog.query_one("#confirm", Press).disabled
        dialog.confirm()
        await pilot.pause()
        assert not dialog.sending
        assert app.answers == []


async def test_escape_takes_it_back_with_everything_that_was_typed() -> None:
    """And what was taken back is not sent when the time is up."""
    clock = Clock()
    dialog = approve(clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "fine"
        await pilot.pause()
        dialog.confirm()
        await pilot.press("escape")
        assert not dialog.sending
        assert field(dialog, "reason").value == "fine"
        assert app.focused is dialog.query_one("#keep")
        clock.now += 10
        dialog.tick()
        await pilot.pause()
        assert app.answers == []
        assert not dialog.query_one("#confirm", Press).disabled


async def test_nothing_is_sent_while_the_countdown_cannot_be_seen() -> None:
    """Behind another screen, or in too small a window, it is taken back."""
    clock = Clock()
    dialog = approve(clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "fine"
        dialog.confirm()
        assert dialog.sending
        app.push_screen(Screen())
        await pilot.pause()
        assert not dialog.sending
        app.pop_screen()
        await pilot.pause()
        dialog.confirm()
        assert not dialog.sending, "deaf again"
        clock.now += 1
        dialog.confirm()
        assert dialog.sending
        await pilot.resize_terminal(40, 10)
        await pilot.pause()
        assert not dialog.sending
        assert app.answers == []


async def test_a_record_that_moves_during_the_countdown_stops_it() -> None:
    """The five seconds are for this too."""
    clock = Clock()
    dialog = approve(clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "fine"
        dialog.confirm()
        dialog.record_moved("it was rejected by ben")
        clock.now += 10
        dialog.tick()
        await pilot.pause()
        assert app.answers == []
        assert "it was rejected by ben" in drawn(pilot)


async def test_pressing_twice_decides_once() -> None:
    """Two presses may be in the queue before the first one is handled."""
    clock = Clock()
    dialog = approve(clock, grace=0)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "fine"
        await pilot.pause()
        button = dialog.query_one("#confirm", Press)
        for _ in range(3):
            dialog.post_message(Button.Pressed(button))
        await pilot.pause()
        await pilot.pause()
        assert len(app.answers) == 1
        assert app.answers[0].verb == "approve"


async def test_clicks_are_not_heard_at_first_and_then_are() -> None:
    """A double click that opened the dialog must not press what came up under the mouse."""
    clock = Clock()
    dialog = approve(clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        field(dialog, "reason").value = "fine"
        await pilot.pause()
        await pilot.click("#confirm")
        assert not dialog.sending
        clock.now += 1
        await pilot.click("#confirm")
        assert dialog.sending
        await pilot.click("#take-back")
        assert not dialog.sending
        await pilot.click("#keep")
        assert app.answers == [None]


async def test_approve_shows_all_that_must_be_known() -> None:
    """Request, people, promises, gaps, and signs for what differs, whatever the colours are."""
    clock = Clock()
    dialog = approve(clock)
    async with Opened(dialog).run_test(size=(120, 100)) as pilot:
        await pilot.pause()
        text = drawn(pilot)
    for words in (
        "APPROVE TEST0001",
        "fingerprint …f00a08",
        "POST https://api.example.com/v1/jobs?region=eu-central-1",
        "Authorization: [secret]",
        '"rows": 5000,',
        "approvals: 1 of 2",
        "four eyes",
        "lapses in 12 m 05 s",
        "more than 1000 rows",
        "the nightly export",
        "At most one job: yes, enforced by the provider for a limited time (1h)",
        "! There are no webhooks",
        "A request much like it is open",
        "- /rows: 5 ",
        "+ /rows: 5000 ",
        "- /limit: 3 ",
    ):
        assert words in text


async def test_the_time_to_approve_runs_in_the_head() -> None:
    """Also while somebody reads; the ledger refuses what comes too late."""
    clock = Clock()
    dialog = approve(clock)
    async with Opened(dialog).run_test(size=(60, 15)) as pilot:
        await pilot.pause()
        assert "lapses 12m" in drawn(pilot)
        for passed, words in ((11 * 60, "lapses 65s"), (120, "LAPSED")):
            clock.now += passed
            dialog.show_head()
            await pilot.pause()
            assert words in drawn(pilot)


async def test_a_review_of_another_request_cannot_be_approved() -> None:
    """The approval is of the bytes that are shown."""
    clock = Clock()
    dialog = approve(clock, fingerprint="sha256:other")
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "fine"
        await pilot.pause()
        assert dialog.query_one("#confirm", Press).disabled
        dialog.confirm()
        assert not dialog.sending


async def test_reject_is_handed_back_at_once() -> None:
    """It sends nothing, so nothing needs to be taken back."""
    clock = Clock()
    op = waiting()
    dialog = RejectDialog(op, review(op), NOON, clock=clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = " not tonight "
        await pilot.pause()
        dialog.confirm()
        await pilot.pause()
        assert app.answers == [Verdict("reject", op.operation_id, 7, "not tonight")]


async def test_cancel_is_a_request_and_says_so() -> None:
    """The word is never "cancel job"; what is expected of it may be said."""
    clock = Clock()
    dialog = CancelDialog(running(), SHEET, NOON, grace=0, clock=clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 40)) as pilot:
        clock.now += 1
        await pilot.pause()
        text = drawn(pilot)
        assert "REQUEST CANCELLATION" in text
        assert "Cancel job" not in text
        assert "cancellation_unconfirmed" in text
        await pilot.press("tab", "x", "enter", "y", "enter", "tab", "space")
        assert app.answers == [Verdict("cancel", running().operation_id, 4, "x", effect="y")]


@pytest.mark.parametrize("more", [{"destroys": ("result",)}, {"others": (("op_other1234", "observing", "jobs"),)}])
async def test_a_cancel_that_does_more_wants_the_end_of_the_id(more: dict[str, Any]) -> None:
    """The other operations are named on the screen, and in the verdict."""
    clock = Clock()
    dialog = CancelDialog(running(), replace(SHEET, **more), NOON, grace=0, clock=clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 40)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "x"
        for typed, asleep in (("", True), ("ST0002", True), ("TEST0001", True), ("st0001", False)):
            field(dialog, "typed").value = typed
            await pilot.pause()
            assert dialog.query_one("#confirm", Press).disabled is asleep
        text = drawn(pilot)
        assert all(words in text for words in more.get("destroys", ("op_other1234",)))
        dialog.confirm()
        await pilot.pause()
        assert app.answers[0].also == (("op_other1234",) if "others" in more else ())


async def test_a_withdrawal_sends_nothing_and_says_so() -> None:
    """There is no effect to expect of what never was."""
    clock = Clock()
    dialog = CancelDialog(waiting(), replace(SHEET, verb="withdraw", sends=None), NOON, grace=0, clock=clock)
    async with Opened(dialog).run_test(size=(80, 40)) as pilot:
        await pilot.pause()
        text = drawn(pilot)
    assert "WITHDRAW" in text
    assert "Nothing was ever sent" in text
    assert "Expected effect" not in text


async def test_acknowledge_hands_back_for_how_long() -> None:
    """An hour unless something else is chosen, and the last word is: until it ends."""
    clock = Clock()
    dialog = AcknowledgeDialog(operation(version=3), NOON, clock=clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "mine"
        await pilot.pause()
        assert dialog.result().until == timedelta(hours=1)
        dialog.query_one("#until").focus()
        await pilot.press("left", "left")
        assert "[until it ends]" in drawn(pilot)
        await pilot.click("#until", offset=(2, 0))
        dialog.confirm()
        await pilot.pause()
        assert app.answers == [Verdict("acknowledge", operation().operation_id, 3, "mine", until=timedelta(minutes=30))]


async def test_a_provider_has_no_version() -> None:
    """Its name is the subject."""
    clock = Clock()
    dialog = ProviderDialog("jobs", "resume", 3, "it answers 500", clock=clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").value = "works again"
        await pilot.pause()
        assert "it answers 500" in drawn(pilot)
        dialog.confirm()
        await pilot.pause()
        assert app.answers == [Verdict("resume", "jobs", None, "works again")]


async def test_what_is_pasted_is_kept_whole_and_made_inert() -> None:
    """Textual takes the first line only, and passes escape bytes on."""
    clock = Clock()
    dialog = approve(clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        field(dialog, "reason").focus()
        app.post_message(events.Paste("one\ntwo\x1b]52;c;x\x07\n[/three"))
        await pilot.pause()
        assert field(dialog, "reason").value == "one two␛]52;c;x␇ [/three"
        assert dialog.holds_text


async def test_the_content_scrolls_wherever_the_focus_is() -> None:
    """By line and by page from the buttons; by page from a field, which keeps its letters."""
    clock = Clock()
    dialog = approve(clock)
    async with Opened(dialog).run_test(size=(80, 24)) as pilot:
        clock.now += 1
        content = dialog.query_one(Lines)
        await pilot.press("j", "down", "k")
        assert content.scroll_offset.y == 1
        field(dialog, "reason").focus()
        await pilot.press("pagedown")
        assert content.scroll_offset.y > 10
        await pilot.press("pageup", "j")
        assert content.scroll_offset.y == 1
        assert field(dialog, "reason").value == "j"


async def test_keys_that_follow_fast_go_where_the_focus_went() -> None:
    """Over a slow line they come in one piece; a space among them must not press the button that was left."""
    clock = Clock()
    dialog = approve(clock)
    app = Opened(dialog)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        for key, character in (("tab", "\t"), ("a", "a"), ("space", " "), ("b", "b"), ("enter", "\r")):
            app.post_message(events.Key(key, character))
        await pilot.pause()
        await pilot.pause()
        assert app.answers == []
        assert field(dialog, "reason").value == "a b"
        assert app.focused is dialog.query_one("#keep")
