"""A page of rows, drawn line by line and only what is on the screen, with the cursor on an event.

The cursor goes by the seq of its event, never by a row number: rows may come above it or be opened, and it stays where
it is, on the same line of the screen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from opledger_console.pages.rows import Key, Row
from opledger_console.text import fitted


class Sheet(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows. It has the keys for moving and opening, and acts on nothing."""

    DEFAULT_CSS = """
    Sheet { height: 1fr; min-height: 1; overflow-x: hidden; scrollbar-size-vertical: 1; color: $foreground;
            scrollbar-gutter: stable; }
    Sheet > .sheet--text { color: $foreground; }
    Sheet > .sheet--data { color: $foreground; }
    Sheet > .sheet--strong { color: $foreground; text-style: bold; }
    Sheet > .sheet--head { color: $text-primary; text-style: bold; }
    Sheet > .sheet--dim { color: $text-muted; }
    Sheet > .sheet--ended { color: $text-muted; text-style: bold; }
    Sheet > .sheet--warn { color: $text-warning; text-style: bold; }
    Sheet > .sheet--mark { color: $text-warning; text-style: bold; }
    Sheet > .sheet--good { color: $text-success; }
    Sheet > .sheet--bad { color: $text-error; text-style: bold; }
    Sheet > .sheet--plus { color: $text-success; }
    Sheet > .sheet--minus { color: $text-error; }
    Sheet > .sheet--cursor { text-style: reverse; }
    Sheet > .sheet--resting { text-style: underline; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "sheet--text", "sheet--data", "sheet--strong", "sheet--head", "sheet--dim", "sheet--ended", "sheet--warn",
        "sheet--mark", "sheet--good", "sheet--bad", "sheet--plus", "sheet--minus", "sheet--cursor", "sheet--resting",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("pagedown,space", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("home,g", "edge(-1)", "first", show=False),
        Binding("end,G", "edge(1)", "last", show=False),
        Binding("enter", "open", "open or close", show=False),
    ]

    @dataclass
    class Marked(Message):
        """Somebody moved the cursor to another event."""

        seq: int | None

    @dataclass
    class Toggled(Message):
        """Somebody wants to see more of a row, or less."""

        key: Key

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._rows: tuple[Row, ...] = ()
        self._seqs: list[int] = []  #: the seq of each row that begins an event, ascending
        self._firsts: list[int] = []  #: and where it stands
        self._at = 0
        self.drawn = 0  #: how many lines were drawn since the start

    # --- what is shown ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows, in order."""
        return self._rows

    @property
    def seq(self) -> int | None:
        """The event under the cursor; None on a page that is not about events."""
        place = self._anchor(self._at)
        return None if place is None else self._seqs[place]

    def show(
        self, rows: Sequence[Row], *, seq: int | None = None, follow: bool = False, top: int | None = None
    ) -> None:
        """Show these rows. The cursor goes to `seq` or what is nearest before it; with `follow` to the newest.

        Where `seq` is what it stands on already, it stays on the same line of the screen. `top` is the row to begin
        with, for a page that is another one than before.
        """
        held = self._anchor(self._at)
        kept = None if held is None else (self._seqs[held], self._at - self._firsts[held])
        line = self._at - self.scroll_offset.y
        if rows is not self._rows:
            self._rows = tuple(rows)
            self._index()
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._rows))
        if not self._seqs:
            self._at = 0
        elif follow:
            self._at = self._firsts[-1]
        elif kept is not None and seq == kept[0]:
            self._at = self._find(*kept)
        else:
            self._at = self._find(seq if seq is not None else self._seqs[0], 0)
        if top is not None:
            self._scroll(top)
        elif self._seqs and not follow and kept is not None and seq == kept[0]:
            self._scroll(self._at - line)
        self.reveal()
        self.refresh()

    def _index(self) -> None:
        self._seqs, self._firsts = [], []
        for place, row in enumerate(self._rows):
            if row.seq is not None and (not self._seqs or row.seq > self._seqs[-1]):
                self._seqs.append(row.seq)
                self._firsts.append(place)

    def _find(self, seq: int, offset: int) -> int:
        place = max(bisect_right(self._seqs, seq) - 1, 0)
        first = self._firsts[place]
        after = self._firsts[place + 1] if place + 1 < len(self._firsts) else len(self._rows)
        return min(first + offset, after - 1) if self._seqs[place] == seq else first

    def _anchor(self, at: int) -> int | None:
        """Return the number of the event that the row at this place belongs to."""
        place = bisect_right(self._firsts, at) - 1
        return None if not self._firsts else max(place, 0)

    # --- moving -------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Move the cursor, or the text where there is nothing to stand on."""
        if not self._seqs:
            self._scroll(self.scroll_offset.y + by)
        else:
            self._put(self._at + by)

    def action_page(self, by: int) -> None:
        """Move by a page; one line of it stays."""
        self.action_move(by * max(self.size.height - 1, 1))

    def action_edge(self, which: int) -> None:
        """Go to the first or the last row."""
        if not self._seqs:
            self._scroll(0 if which < 0 else len(self._rows))
        else:
            self._put(0 if which < 0 else len(self._rows) - 1)

    def action_open(self) -> None:
        """Open or close what is under the cursor; within something opened, that."""
        key = self.key
        if key is not None:
            self.post_message(self.Toggled(key))

    @property
    def key(self) -> Key | None:
        """What Enter opens or closes."""
        if not self._seqs:
            return None
        for place in range(self._at, self._firsts[self._anchor(self._at) or 0] - 1, -1):
            if self._rows[place].opens is not None:
                return self._rows[place].opens
        return None

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a click on the row under the cursor opens it."""
        place = event.y + self.scroll_offset.y
        if not self._seqs or not 0 <= place < len(self._rows):
            return
        if place == self._at:
            self.action_open()
        else:
            self._put(place)

    def _put(self, place: int) -> None:
        before = self.seq
        self._at = max(0, min(place, len(self._rows) - 1))
        self.reveal()
        self.refresh()
        if self.seq != before:
            self.post_message(self.Marked(self.seq))

    def reveal(self) -> None:
        """Scroll no further than it takes to see the cursor."""
        height, top = self.size.height, self.scroll_offset.y
        if self._seqs and height:
            self._scroll(min(max(top, self._at - height + 1), self._at))

    def lift(self) -> None:
        """Make room below the cursor, for what was opened there."""
        if self._at - self.scroll_offset.y > self.size.height // 3:
            self._scroll(self._at - self.size.height // 3)

    def _scroll(self, top: int) -> None:
        if top != self.scroll_offset.y:
            self.scroll_to(y=max(top, 0), animate=False, immediate=True, force=True)

    def on_resize(self) -> None:
        """Keep the virtual width in step, and the cursor on the screen."""
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._rows))
        self.call_after_refresh(self.reveal)

    def on_focus(self) -> None:
        """The cursor looks different where keys do something."""
        self.refresh()

    def on_blur(self) -> None:
        """The cursor looks different where keys do nothing."""
        self.refresh()

    # --- drawing ------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        self.drawn += 1
        width, place = self.scrollable_content_region.width, y + self.scroll_offset.y
        if place >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        row = self._rows[place]
        over = None
        if self._seqs and place == self._at and self.can_focus:
            over = self.get_component_rich_style("sheet--cursor" if self.has_focus else "sheet--resting")
        segments, room = [], width
        for text, kind, size in row.cells:
            cells = min(size or room, room)
            if cells <= 0:
                break
            style = self.get_component_rich_style(f"sheet--{kind}")
            shown = fitted(text, cells)
            room -= cell_len(shown)
            # A cell that is followed by another one keeps a blank between them.
            if size and room > 0:
                shown += " "
                room -= 1
            segments.append(Segment(shown, style if over is None else style + over))
        blank = self.get_component_rich_style("sheet--text")
        segments.append(Segment(" " * max(room, 0), blank if over is None else blank + over))
        return Strip(segments).adjust_cell_length(width, self.rich_style)


class HeadSheet(Sheet, can_focus=False):
    """Rows that only stand there: as many lines as it has rows."""

    DEFAULT_CSS = """
    HeadSheet { height: auto; overflow: hidden; scrollbar-gutter: auto; }
    """

    def stand(self, rows: Sequence[Row]) -> None:
        """Show these rows in as many lines."""
        self.styles.height = max(len(rows), 1)
        self.show(rows)
