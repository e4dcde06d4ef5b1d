"""T18: the one way by which outside text reaches a widget, with two thousand hostile texts and a real renderer."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console
from textual.app import App, ComposeResult
from textual.widgets import DataTable, Static

from opledger_console.text import block, fitted, line
from tests.support.hostile import STYLE, raw, stacks, strings

HOSTILE = [text for text in strings() if len(text) < 100_000]


def test_what_leaves_is_literal_and_inert() -> None:
    """No control, no markup that is read, no link, no action."""
    for text in HOSTILE:
        one, many = line(text), block(text)
        assert raw(one.plain, "") == []
        assert raw(many.plain) == []
        assert stacks(one.plain) <= 4
        assert one.spans == [] and many.spans == []
        for width in (1, 7, 40):
            assert cell_len(fitted(text, width)) == width
            assert raw(fitted(text, width), "") == []


def test_a_renderer_writes_nothing_but_text_and_colours() -> None:
    """What Rich makes of it for a terminal that can do everything."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=200, legacy_windows=False)
    for text in HOSTILE:
        console.print(line(text, limit=150, style="bold red"))
    written = screen.getvalue()
    assert "\x1b[1;31m" in written
    assert raw(STYLE.sub("", written)) == []


class Board(App[None]):
    """A screen full of outside text; it counts what is done to it."""

    CSS = "DataTable { height: 20; } #block { height: 15; }"
    deeds = 0

    def compose(self) -> ComposeResult:
        """A table and a block."""
        yield DataTable()
        yield Static(id="block")

    def action_approve(self, *_: object) -> None:
        """What markup would call."""
        self.deeds += 1

    action_quit = action_approve  # type: ignore[assignment]


async def test_widgets_show_it_and_do_nothing() -> None:
    """Put into cells and blocks and clicked at: no action runs, nothing ends, nothing raw is drawn."""
    app = Board()
    async with app.run_test(size=(120, 40)) as pilot:
        table = app.query_one(DataTable)
        table.add_columns("a", "b")
        for number, text in enumerate(HOSTILE):
            table.add_row(line(text, limit=60), fitted(text, 20) and line(fitted(text, 20)), key=str(number))
        drawn = []
        for start in range(0, len(HOSTILE), 60):
            table.scroll_to(y=start, animate=False)
            app.query_one("#block", Static).update(block("\n".join(HOSTILE[start : start + 15])[:4000]))
            await pilot.pause()
            drawn += [strip.text for strip in app.screen._compositor.render_strips()]
            await pilot.click("#block", offset=(2, 0))
        assert app.is_running
        assert app.deeds == 0
        assert len(drawn) > 1_000
        for row in drawn:
            assert raw(row, "") == []
