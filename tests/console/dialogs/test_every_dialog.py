"""What holds for every dialog: deaf at first, the safe answer first, nothing from outside acts or hides anything."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from opledger_console.dialogs.parts import FieldInput, Press
from tests.console.dialogs.samples import HOSTILE, Clock, Opened, every
from tests.console.hands import until

NAMES = sorted(every())
CONFIRMED = [name for name in NAMES if name not in ("report", "panel", "copy")]


def opened(name: str, text: str | None = None, *, big: bool = False) -> tuple[Opened, Clock]:
    """An app that opens one dialog, and its clock."""
    clock = Clock()
    return Opened(every(text, clock, big)[name]), clock


def drawn(pilot: Pilot[None]) -> list[str]:
    """What the compositor would send to the terminal, by line."""
    return [strip.text for strip in pilot.app.screen._compositor.render_strips()]


async def settled(pilot: Pilot[None]) -> list[str]:
    """The screen, once all layout has been done."""
    await pilot.pause()
    await pilot.pause()
    return drawn(pilot)


@pytest.mark.parametrize("name", NAMES)
async def test_three_fast_enters_do_nothing_and_a_later_one_takes_the_safe_way(name: str) -> None:
    """A key that was held too long must not answer a question that nobody has read."""
    app, clock = opened(name)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "enter", "enter", "escape")
        assert app.screen is app.dialog
        assert app.answers == []
        assert app.focused is not None and app.focused.id == "keep"
        clock.now += 0.31
        await pilot.press("enter")
        assert app.answers == [None]
        assert app.screen is not app.dialog


@pytest.mark.parametrize("name", [name for name in CONFIRMED if name != "quit"])
async def test_the_button_sleeps_until_all_is_there_and_says_what_is_missing(name: str) -> None:
    """An empty reason, or one of spaces, is none."""
    app, _ = opened(name)
    async with app.run_test(size=(80, 24)) as pilot:
        for value in ("", "   "):
            for field in app.screen.query(FieldInput):
                field.value = value
            text = "\n".join(await settled(pilot))
            assert "Missing: " in text
            assert app.screen.query_one("#confirm", Press).disabled


@pytest.mark.parametrize("name", NAMES)
async def test_hostile_text_acts_on_nothing_and_hides_nothing(name: str) -> None:
    """No control byte reaches the terminal, no markup is obeyed, and head and buttons stay where they are."""
    app, clock = opened(name, HOSTILE)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        for field in app.screen.query(FieldInput):
            field.value = HOSTILE
        for size in ((80, 24), (60, 15), (120, 40)):
            await pilot.resize_terminal(*size)
            lines = await settled(pilot)
            text = "\n".join(lines)
            assert not [char for char in text if (ord(char) < 32 and char != "\n") or 0x7F <= ord(char) < 0xA0]
            assert not set("\u202e\u200b\ufe0f\ud800\U000e0041") & set(text)
            assert stands(app, lines)
            for y in range(size[1]):
                assert app.screen.get_style_at(30, y).meta.get("@click") is None
            if name != "copy":  # there a click is a choice
                await pilot.click("#content")
        assert app.screen is app.dialog
        assert app.is_running


@pytest.mark.parametrize("size", [(80, 24), (60, 15)])
@pytest.mark.parametrize("name", ["approve", "reject"])
async def test_a_large_request_pushes_nothing_away(name: str, size: tuple[int, int]) -> None:
    """100 KB of body and 5,000 characters of address scroll; the last line of them can be reached."""
    app, clock = opened(name, big=True)
    async with app.run_test(size=size) as pilot:
        assert stands(app, await settled(pilot))
        clock.now += 1
        app.screen.query_one("#content").focus()
        await pilot.press("G")
        # Going to the end waits for the layout of all that text, which a busy machine does late.
        await until(pilot, lambda: any("+ /" in line for line in drawn(pilot)), "show the last line")
        assert stands(app, await settled(pilot))


def stands(app: Opened, lines: list[str]) -> bool:
    """Tell whether the head's first line and every button that is shown are drawn in full, in their order."""
    verb = app.screen.query_one("#head", Static).render()
    first = next(line for line in lines if line.strip(" │╭╮─"))
    buttons = [button for button in app.screen.query("#buttons Press").results(Press) if button.display]
    shown = [lines[button.region.y][button.region.x : button.region.right] for button in buttons]
    words = [str(button.label).strip() for button in buttons]
    return str(verb).split(" ")[0] in first and [text.strip() for text in shown] == words


@pytest.mark.parametrize("name", NAMES)
async def test_too_small_a_window_says_so_and_decides_nothing(name: str) -> None:
    """What was typed is still there when the window has grown again."""
    app, clock = opened(name)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        for field in app.screen.query(FieldInput):
            field.value = "kept"
        await pilot.resize_terminal(40, 10)
        assert "too small" in "\n".join(await settled(pilot))
        await pilot.press("enter", "tab", "enter", "space")
        assert app.answers == []
        await pilot.resize_terminal(60, 15)
        lines = await settled(pilot)
        assert "too small" not in "\n".join(lines)
        assert stands(app, lines)
        assert app.focused is not None and app.focused.id == "keep"
        assert all(field.value == "kept" for field in app.screen.query(FieldInput))
        await pilot.resize_terminal(40, 10)
        await pilot.press("escape")
        assert app.answers == [None]


@pytest.mark.parametrize("name", CONFIRMED)
async def test_a_record_that_moved_can_not_be_decided_any_more(name: str) -> None:
    """What was read is not what is there; the safe way stays open."""
    app, clock = opened(name)
    async with app.run_test(size=(80, 24)) as pilot:
        clock.now += 1
        for field in app.screen.query(FieldInput):
            field.value = "x"
        app.dialog.record_moved(f"version 8: {HOSTILE}")  # type: ignore[attr-defined]
        lines = await settled(pilot)
        assert "changed while you were reading: version 8" in "\n".join(lines)
        assert app.screen.query_one("#confirm", Press).disabled
        app.dialog.confirm()  # type: ignore[attr-defined]
        assert app.answers == []
        await pilot.press("enter")
        assert app.answers == [None]
