"""A list of rows, drawn line by line and only what is on the screen, with the cursor on a row's key.

The cursor is never a row number: rows may come, go and change places under it, and it stays with its row. Where that
row is gone, the one that took its place gets the cursor, and `Moved` says so: a key must not do to the one what was
meant for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from opledger_console.text import fitted
from opledger_console.views import Column, Row

HEADER: Final = 1
NARROWEST: Final = 6
"""Cells that the column which takes the rest has at least."""


class Listing(ScrollView, can_focus=True):
    """Rows under a line of column names. It has the keys for moving and opening, and acts on nothing."""

    DEFAULT_CSS = """
    Listing { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    Listing > .listing--header { text-style: bold; color: $text-muted; background: $panel; }
    Listing > .listing--empty { color: $text-muted; }
    Listing > .listing--cursor { text-style: reverse; }
    Listing > .listing--resting { text-style: underline; }
    Listing > .listing--human { color: $text-warning; }
    Listing > .listing--good { color: $text-success; }
    Listing > .listing--bad { color: $text-error; text-style: bold; }
    Listing > .listing--ended { color: $text-muted; }
    Listing > .listing--busy { color: $foreground; }
    Listing > .listing--plain { color: $foreground; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "listing--header", "listing--empty", "listing--cursor", "listing--resting", "listing--human", "listing--good",
        "listing--bad", "listing--ended", "listing--busy", "listing--plain",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="list.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="list.up"),
        Binding("pagedown", "page(1)", "page down", show=False, id="list.page_down"),
        Binding("pageup", "page(-1)", "page up", show=False, id="list.page_up"),
        Binding("home,g", "edge(-1)", "first", show=False, id="rows.first"),
        Binding("end,G", "edge(1)", "last", show=False, id="rows.last"),
        Binding("enter", "open", "open", show=False, id="list.open"),
    ]

    @dataclass
    class Moved(Message):
        """The cursor stands on another row; None where there is none.

        `instead_of` is the row that it stood on, where that one is gone and nobody moved the cursor.
        """

        listing: Listing
        key: str | None
        instead_of: str | None = None

        @property
        def control(self) -> Listing:
            """The list."""
            return self.listing

    @dataclass
    class Picked(Message):
        """Somebody wants to see a row: Enter, or a second click."""

        listing: Listing
        key: str

        @property
        def control(self) -> Listing:
            """The list."""
            return self.listing

    def __init__(self, columns: Sequence[Column], *, empty: str = "", id: str | None = None) -> None:  # noqa: A002
        """Take the columns, and what stands there while there are no rows."""
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.key: str | None = None
        self._empty = empty
        self._rows: tuple[Row, ...] = ()
        self._places: dict[str, int] = {}
        self._clicked: str | None = None

    # --- what is shown ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows, in order."""
        return self._rows

    @property
    def place(self) -> int | None:
        """Where the cursor is now; only for drawing and for moving on."""
        return self._places.get(self.key) if self.key is not None else None

    def show(self, rows: Sequence[Row], *, empty: str | None = None) -> None:
        """Show these rows; the cursor stays on its row, and that one on its line. Keys must differ."""
        held, seen = self.place, self._in_view()
        old, self._rows = self._rows, tuple(rows)
        self._places = {row.key: place for place, row in enumerate(self._rows)}
        lost = self.key if self.key not in self._places else None
        if lost is not None or self.key is None:
            self.key = self._rows[min(held or 0, len(self._rows) - 1)].key if self._rows else None
        if empty is not None and empty != self._empty:
            self._empty = empty
            self.refresh()
        if len(old) != len(self._rows):
            self.virtual_size = Size(self.size.width, len(self._rows) + HEADER)
        self._refresh_changed(old)
        self._follow(held, seen=seen)
        if lost is not None or (held is None and self.key is not None):
            self.post_message(self.Moved(self, self.key, lost))

    def _follow(self, held: int | None, *, seen: bool) -> None:
        """Keep the cursor's row on the line where it was; at the top, let what is new come in above it."""
        place, top = self.place, self.scroll_offset.y
        if place is None or not seen:
            return
        if top > 0 and held is not None and place != held:
            self._scroll(top + place - held)
        self.reveal()

    def _refresh_changed(self, old: Sequence[Row]) -> None:
        """Draw again only the lines on the screen that say something else now."""
        top = self.scroll_offset.y
        for line in range(max(self.size.height - HEADER, 0)):
            place = top + line
            before = old[place] if place < len(old) else None
            after = self._rows[place] if place < len(self._rows) else None
            if before != after or (not self._rows and line == 0):
                self._refresh_place(place)

    def _refresh_place(self, place: int | None) -> None:
        if place is not None:
            self.refresh(Region(0, place - self.scroll_offset.y + HEADER, self.size.width, 1))

    # --- the cursor ---------------------------------------------------------------------------------------------

    def go_to(self, key: str) -> bool:
        """Put the cursor on a row; False where it is not there."""
        place = self._places.get(key)
        if place is None:
            return False
        self._put(place)
        return True

    def action_move(self, by: int) -> None:
        """Move the cursor by so many rows."""
        self._put((self.place or 0) + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by pages; one line of the page before stays."""
        self._put((self.place or 0) + by * max(self._lines - 1, 1))

    def action_edge(self, which: int) -> None:
        """Move the cursor to the first or the last row."""
        self._put(0 if which < 0 else len(self._rows) - 1)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.key is not None:
            self.post_message(self.Picked(self, self.key))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click on the same row opens it, wherever that row is now."""
        place = event.y - HEADER + self.scroll_offset.y
        if event.y < HEADER or not 0 <= place < len(self._rows):
            return
        key = self._rows[place].key
        if key == self.key == self._clicked:
            self.action_open()
        else:
            self._put(place)
            self._clicked = key

    def _put(self, place: int) -> None:
        if not self._rows:
            return
        before, key = self.place, self._rows[max(0, min(place, len(self._rows) - 1))].key
        self._clicked = None
        if key != self.key:
            self.key = key
            self._refresh_place(before)
            self._refresh_place(self.place)
            self.post_message(self.Moved(self, key))
        self.reveal()

    @property
    def _lines(self) -> int:
        """How many rows fit."""
        return max(self.size.height - HEADER, 1)

    def _in_view(self) -> bool:
        place, top = self.place, self.scroll_offset.y
        return place is None or top <= place < top + self._lines

    def reveal(self) -> None:
        """Scroll no further than it takes to see the cursor."""
        place, top = self.place, self.scroll_offset.y
        if place is not None and self.size.height:
            self._scroll(min(max(top, place - self._lines + 1), place))

    def _scroll(self, top: int) -> None:
        if top != self.scroll_offset.y:
            self.scroll_to(y=max(top, 0), animate=False, immediate=True, force=True)

    def on_focus(self) -> None:
        """The cursor looks different where keys do something."""
        self._refresh_place(self.place)

    def on_blur(self) -> None:
        """The cursor looks different where keys do nothing."""
        self._refresh_place(self.place)

    def on_resize(self) -> None:
        """Keep the virtual width in step, and the cursor on the screen."""
        self.virtual_size = Size(self.size.width, len(self._rows) + HEADER)
        self.call_after_refresh(self.reveal)

    # --- drawing ------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width = self.scrollable_content_region.width  # what is beside the scroll bar, where there is one
        if y < HEADER:
            names = [name for name, _, _ in self.columns]
            header = self.get_component_rich_style("listing--header")
            return self._strip(" " + self._laid_out(names, width), header, width)
        place = y - HEADER + self.scroll_offset.y
        if place >= len(self._rows):
            words = self._empty if not self._rows and y == HEADER else ""
            return self._strip(words, self.get_component_rich_style("listing--empty"), width)
        row = self._rows[place]
        style = self.get_component_rich_style(f"listing--{row.kind}")
        if row.dim:
            style += Style(dim=True)
        if row.key == self.key:
            style += self.get_component_rich_style("listing--cursor" if self.has_focus else "listing--resting")
        # A bar as well: not every terminal shows what is reversed, and no picture of text does.
        mark = "▌" if row.key == self.key else " "
        return self._strip(mark + self._laid_out(row.cells, width), style, width)

    def _laid_out(self, cells: Sequence[str], width: int) -> str:
        shown = [(cell, size) for cell, (_, size, least) in zip(cells, self.columns, strict=True) if width >= least]
        fixed = sum(size for _, size in shown) + len(shown)
        return " ".join(fitted(cell, size or max(width - fixed, NARROWEST)) for cell, size in shown)

    def _strip(self, words: str, style: Style, width: int) -> Strip:
        return Strip([Segment(fitted(words, width), style)], width)
