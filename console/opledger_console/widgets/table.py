"""The list of operations: drawn line by line, only what is on the screen, with the cursor on an operation.

The cursor is an operation's id, never a row number: rows may move under it, and it moves with its operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from opledger.rules.model import Operation
from opledger_console.messages import Chosen
from opledger_console.text import fitted
from opledger_console.views import GLYPHS, kind_of, next_words, progress_words, short_id, span

HEADER = 1

#: name, width (0: the rest), shown only from this terminal width on
COLUMNS: tuple[tuple[str, int, int], ...] = (
    ("", 1, 0),
    ("id", 8, 0),
    ("state", 24, 0),
    ("contract", 12, 0),
    ("remote", 11, 0),
    ("done", 9, 100),
    ("age", 4, 0),
    ("by", 14, 120),
    ("next", 0, 0),
)


class OperationsTable(ScrollView, can_focus=True):
    """Operations, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("home,g", "edge(-1)", "first", show=False),
        Binding("end,G", "edge(1)", "last", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--header", "table--cursor", "table--human", "table--good", "table--bad", "table--ended", "table--busy",
    }  # fmt: skip

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._rows: tuple[Operation, ...] = ()
        self._now: datetime | None = None
        self._places: dict[str, int] = {}
        self.cursor_id: str | None = None

    def show(self, rows: Sequence[Operation], now: datetime) -> None:
        """Show these operations; the cursor stays on its operation and that one on its line."""
        before = self._places.get(self.cursor_id or "", None)
        offset = None if before is None else before - self.scroll_offset.y
        self._rows, self._now = tuple(rows), now
        self._places = {row.operation_id: place for place, row in enumerate(rows)}
        self.virtual_size = Size(self.size.width, len(rows) + HEADER)
        if self.cursor_id not in self._places:
            self._put_cursor(min(before or 0, len(rows) - 1))
        elif offset is not None and self.scroll_offset.y > 0:
            place = self._places[self.cursor_id or ""]
            self.scroll_to(y=max(place - offset, 0), animate=False, immediate=True)
        self.refresh()

    @property
    def chosen(self) -> Operation | None:
        """The operation under the cursor."""
        place = self._places.get(self.cursor_id or "")
        return None if place is None else self._rows[place]

    def _put_cursor(self, place: int) -> None:
        if not self._rows:
            self.cursor_id = None
        else:
            self.cursor_id = self._rows[max(0, min(place, len(self._rows) - 1))].operation_id
        self.refresh()
        self.post_message(Chosen(self.cursor_id))
        self._show_cursor()

    def _show_cursor(self) -> None:
        if self.cursor_id is not None:
            region = Region(0, self._places[self.cursor_id] + HEADER, self.size.width, 1)
            self.scroll_to_region(region, animate=False, spacing=None, force=True)

    def go_to_next_needing(self) -> bool:
        """Move the cursor to the next operation that waits for a person, round the end; False where none does."""
        after = self._place() + 1
        for place in (*range(after, len(self._rows)), *range(after)):
            if kind_of(self._rows[place]) == "human":
                self._put_cursor(place)
                return True
        return False

    def _place(self) -> int:
        return self._places.get(self.cursor_id or "", 0)

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self._put_cursor(self._place() + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by a page."""
        self._put_cursor(self._place() + by * max(self.size.height - HEADER - 1, 1))

    def action_edge(self, which: int) -> None:
        """Move the cursor to the first or the last row."""
        self._put_cursor(0 if which < 0 else len(self._rows) - 1)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is."""
        place = event.y + self.scroll_offset.y - HEADER
        if event.y >= HEADER and 0 <= place < len(self._rows):
            self._put_cursor(place)

    def on_resize(self) -> None:
        """Keep the virtual width in step, and the cursor on the screen."""
        self.virtual_size = Size(self.size.width, len(self._rows) + HEADER)
        self.call_after_refresh(self._show_cursor)

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width = self.size.width
        if y == 0:
            return self._line([name for name, _, _ in COLUMNS], self.get_component_rich_style("table--header"), width)
        place = y - HEADER + self.scroll_offset.y
        if place >= len(self._rows) or self._now is None:
            return Strip.blank(width, self.rich_style)
        row = self._rows[place]
        cells = [
            GLYPHS[row.state],
            short_id(row.operation_id),
            row.state.value,
            row.contract,
            row.remote_state or "",
            progress_words(row),
            span(self._now - row.created_at),
            row.requested_by,
            next_words(row, self._now) or (row.attention.reason if row.attention else row.last_error or ""),
        ]
        style = self.get_component_rich_style(f"table--{kind_of(row)}")
        if row.operation_id == self.cursor_id:
            style += self.get_component_rich_style("table--cursor")
        return self._line(cells, style, width)

    def _line(self, cells: Sequence[str], style: Style, width: int) -> Strip:
        shown = [(cell, size) for cell, (_, size, least) in zip(cells, COLUMNS, strict=True) if width >= least]
        fixed = sum(size for _, size in shown) + len(shown)
        text = " ".join(fitted(cell, size or max(width - fixed, 6)) for cell, size in shown)
        return Strip([Segment(fitted(text, width), style)], width)
