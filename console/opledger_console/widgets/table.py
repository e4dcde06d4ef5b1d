"""The list of operations: a window of at most a thousand rows around the cursor, drawn line by line.

The cursor, and every mark, is an operation's id, never a row number: rows may move, and they move with their
operation. What makes the list hold still under live updates (measured with 10,000 changes a second apart):

- arrivals enter only while the list follows its top; else they are counted, and `g` shows them;
- whatever is added or dropped above the cursor moves the scroll position by as much, at once;
- a row that has left the filter stays, dimmed, until the cursor leaves it;
- a changed row repaints its own line and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from opledger.rules.model import Operation
from opledger_console.messages import Chosen, MoreWanted, Opened
from opledger_console.pages import columns
from opledger_console.text import fitted
from opledger_console.views import TimeStyle, kind_of

HEADER: Final = 1
MOST: Final = 1_000
"""Rows that are held at once."""
NEAR: Final = 80
"""More rows are asked for when the cursor comes so near to an end of what is held."""

_Painted = tuple[tuple[str, ...], str, bool, bool, bool]


class OperationsTable(ScrollView, can_focus=True):
    """Operations in the order they were given in."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="list.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="list.up"),
        Binding("pagedown", "page(1)", "page down", show=False, id="list.page_down"),
        Binding("pageup", "page(-1)", "page up", show=False, id="list.page_up"),
        Binding("enter", "open", "open", show=False, id="list.open"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--header", "table--cursor", "table--dim",
        "table--human", "table--good", "table--bad", "table--ended", "table--busy",
    }  # fmt: skip
    DEFAULT_CSS = """
    OperationsTable { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    OperationsTable > .table--header { text-style: bold; color: $text-muted; background: $panel; }
    OperationsTable > .table--cursor { text-style: reverse; }
    OperationsTable > .table--dim { text-style: dim italic; }
    OperationsTable > .table--human { color: $text-warning; text-style: bold; }
    OperationsTable > .table--good { color: $text-success; }
    OperationsTable > .table--bad { color: $text-error; }
    OperationsTable > .table--ended { color: $text-muted; }
    OperationsTable > .table--busy { color: $foreground; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._rows: list[Operation] = []
        self._places: dict[str, int] = {}
        self._now: datetime | None = None
        self._painted: dict[str, _Painted] = {}
        self._left: set[str] = set()  #: rows that no longer match
        self._asked: set[bool] = set()  #: directions in which more is on its way
        self._more = {True: False, False: False}  #: is there more above (True), below (False)?
        self.marks: set[str] = set()
        self.cursor_id: str | None = None
        self.follows = True  #: the view stays at the top, and what arrives enters
        self.held = False  #: frozen: no row comes or goes
        self.names: tuple[str, ...] = ()
        self.wide = False
        self.style_of_time = TimeStyle.RELATIVE

    # --- what it holds ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Operation]:
        """The rows it holds, in order."""
        return self._rows

    @property
    def chosen(self) -> Operation | None:
        """The operation under the cursor, as it was read last."""
        place = self._places.get(self.cursor_id or "")
        return None if place is None else self._rows[place]

    @property
    def more_above(self) -> bool:
        """True where rows were dropped above; then nothing can be added there without reading."""
        return self._more[True]

    @property
    def strays(self) -> int:
        """How many rows are shown although they no longer belong to the list."""
        return len(self._left)

    def visible_ids(self) -> tuple[str, ...]:
        """The ids on the screen and a little around it: what must be read again to be live."""
        top = max(self.scroll_offset.y - 2, 0)
        return tuple(op.operation_id for op in self._rows[top : top + self.size.height + 3])

    def reset(self, rows: Sequence[Operation], now: datetime, *, more: bool, cursor: str | None = None) -> None:
        """Show a new list from its top; the cursor goes to `cursor` if that is in it, else to the first row."""
        self._rows, self._now = list(rows), now
        self._more, self._asked, self._left = {True: False, False: more}, set(), set()
        self._painted.clear()
        self._index()
        self.follows = cursor is None or self._places.get(cursor, 0) == 0
        self.scroll_to(y=0, animate=False, immediate=True, force=True)
        self._put_cursor(self._places.get(cursor or "", 0), told=True)
        self.refresh()

    def extend(self, rows: Sequence[Operation], *, more: bool, backwards: bool) -> None:
        """Add a page at an end; what that makes too many goes at the other end."""
        self._asked.discard(backwards)
        self._more[backwards] = more
        new = [op for op in rows if op.operation_id not in self._places]
        if backwards:
            self._rows[:0] = new
            self._index()
            self._shift(len(new))
            if len(self._rows) > MOST:
                del self._rows[MOST:]
                self._more[False] = True
        else:
            self._rows += new
            over = len(self._rows) - MOST
            if over > 0:
                del self._rows[:over]
                self._more[True] = True
                self.follows = False
                self._index()
                self._shift(-over)
        self._index()
        self.refresh()

    def arrive(self, rows: Sequence[Operation]) -> None:
        """Let new rows in at the top, where the view stays; the cursor stays with its operation."""
        new = [op for op in rows if op.operation_id not in self._places]
        if not new:
            return
        self._rows[:0] = new
        if len(self._rows) > MOST:
            del self._rows[MOST:]
            self._more[False] = True
        self._index()
        place = self._places.get(self.cursor_id or "")
        if place is None:
            self._put_cursor(0, told=True)
        elif place + HEADER >= self.size.height - 1:
            self.follows = False  # it would leave the screen
            self._show_cursor()
        self.refresh()

    def update_rows(
        self, fresh: Mapping[str, Operation], asked: Iterable[str], now: datetime, still: Callable[[Operation], bool]
    ) -> None:
        """Take new readings of rows; `still` says whether one belongs to the list. Rows that are gone stay, dimmed."""
        self._now = now
        for operation_id in asked:
            place, op = self._places.get(operation_id), fresh.get(operation_id)
            if place is None:
                continue
            if op is not None:
                self._rows[place] = op
            if op is None or not still(op):
                self._left.add(operation_id)
            else:
                self._left.discard(operation_id)
        if not self.held:
            self._sweep()
        self.repaint()

    def _sweep(self) -> None:
        """Drop rows that have left the list; not the one under the cursor, and none that is marked."""
        kept = self.marks | {self.cursor_id or ""}
        gone = {one for one in self._left if one not in kept and one in self._places}
        if not gone:
            return
        here = self._place()
        above = sum(self._places[one] < here for one in gone)
        self._rows = [op for op in self._rows if op.operation_id not in gone]
        self._left -= gone
        self._index()
        self._shift(-above)
        self.refresh()

    def repaint(self) -> None:
        """Draw again those lines on the screen that would look different now."""
        top = self.scroll_offset.y
        changed = []
        for y in range(HEADER, self.size.height):
            place = y - HEADER + top
            if place >= len(self._rows):
                break
            row = self._rows[place]
            if self._painted.get(row.operation_id) != self._look_of(row):
                changed.append(Region(0, y, self.size.width, 1))
        if changed:
            self.refresh(*changed)

    def _index(self) -> None:
        self._places = {row.operation_id: place for place, row in enumerate(self._rows)}
        self.virtual_size = Size(self.size.width, len(self._rows) + HEADER)

    def _shift(self, by: int) -> None:
        """Move the view by as many lines as were added (or, below nothing, dropped) above it."""
        if by and not (self.follows and self.scroll_offset.y == 0):
            self.scroll_to(y=max(self.scroll_offset.y + by, 0), animate=False, immediate=True, force=True)

    # --- the cursor ---------------------------------------------------------------------------------------------

    def _place(self) -> int:
        return self._places.get(self.cursor_id or "", 0)

    def _put_cursor(self, place: int, *, told: bool = False) -> None:
        before = self.cursor_id
        if not self._rows:
            self.cursor_id = None
        else:
            self.cursor_id = self._rows[max(0, min(place, len(self._rows) - 1))].operation_id
        if before != self.cursor_id or told:
            self.post_message(Chosen(self.cursor_id))
        self._show_cursor()
        self.repaint()
        self._ask_for_more()

    def _show_cursor(self) -> None:
        place = self._places.get(self.cursor_id or "")
        if place is not None:
            room = max(self.size.height - HEADER, 1)
            top = self.scroll_offset.y
            wanted = min(max(top, place - room + 1), place)
            if wanted != top:
                self.scroll_to(y=wanted, animate=False, immediate=True, force=True)

    def _ask_for_more(self) -> None:
        place = self._place()
        for backwards, near in ((True, place < NEAR), (False, place >= len(self._rows) - NEAR)):
            if near and self._more[backwards] and backwards not in self._asked:
                self._asked.add(backwards)
                self.post_message(MoreWanted(backwards))

    def give_up_more(self) -> None:
        """Forget that more was asked for: the answer will not come."""
        self._asked.clear()

    def leave_top(self) -> None:
        """Hold the rows where they are: a person has begun to look at them."""
        self.follows = False

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self._moved(self._place() + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by a page."""
        self._moved(self._place() + by * max(self.size.height - HEADER - 1, 1))

    def _moved(self, place: int) -> None:
        self.leave_top()
        self._put_cursor(place)
        if not self.held:
            self._sweep()

    def put_cursor_on(self, operation_id: str) -> bool:
        """Move the cursor to an operation, if it is among the rows."""
        if operation_id not in self._places:
            return False
        self._put_cursor(self._places[operation_id])
        return True

    def last(self) -> None:
        """Move the cursor to the last row there is here."""
        self._moved(len(self._rows) - 1)

    def action_open(self) -> None:
        """Open the operation under the cursor."""
        if self.cursor_id is not None:
            self.post_message(Opened(self.cursor_id))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; where it is already, open."""
        place = event.y + self.scroll_offset.y - HEADER
        if event.y >= HEADER and 0 <= place < len(self._rows):
            if self._rows[place].operation_id == self.cursor_id:
                self.action_open()
            else:
                self._moved(place)

    def on_resize(self) -> None:
        """Keep the virtual width in step, and the cursor on the screen."""
        self._painted.clear()
        self.virtual_size = Size(self.size.width, len(self._rows) + HEADER)
        self.call_after_refresh(self._show_cursor)

    # --- marks --------------------------------------------------------------------------------------------------

    def toggle_mark(self) -> None:
        """Mark the operation under the cursor, or take its mark away."""
        if self.cursor_id is not None:
            self.marks ^= {self.cursor_id}
            self.repaint()

    def mark_to_cursor(self) -> None:
        """Mark everything between the nearest mark above (or else below) and the cursor."""
        here = self._place()
        marked = [self._places[one] for one in self.marks if one in self._places]
        above, below = [p for p in marked if p < here], [p for p in marked if p > here]
        start = max(above) if above else min(below) if below else here
        self.marks |= {op.operation_id for op in self._rows[min(start, here) : max(start, here) + 1]}
        self.repaint()

    def invert_marks(self) -> None:
        """Mark what is not marked and the other way round, among the rows that are held."""
        self.marks ^= {op.operation_id for op in self._rows}
        self.repaint()

    def unmark(self) -> bool:
        """Take all marks away; False where there were none."""
        had = bool(self.marks)
        self.marks.clear()
        self.repaint()
        return had

    # --- drawing ------------------------------------------------------------------------------------------------

    def dress(self, *, names: Sequence[str], wide: bool, style: TimeStyle) -> None:
        """Choose columns and how times are written."""
        self.names, self.wide, self.style_of_time = tuple(names), wide, style
        self._painted.clear()
        self.refresh()

    def _columns(self) -> tuple[tuple[columns.Column, int], ...]:
        return columns.chosen(self.names, self.size.width - 2, wide=self.wide, style=self.style_of_time)

    def _look_of(self, row: Operation) -> _Painted:
        assert self._now is not None
        shown = self._columns()
        cells = tuple(column.words(row, self._now, self.style_of_time) for column, _ in shown)
        one = row.operation_id
        return cells, kind_of(row), one == self.cursor_id, one in self.marks, one in self._left

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width = self.size.width
        shown = self._columns()
        if y < HEADER:
            style = self.get_component_rich_style("table--header")
            return self._line("  ", [column.name for column, _ in shown], shown, style, width)
        place = y - HEADER + self.scroll_offset.y
        if place >= len(self._rows) or self._now is None:
            return Strip.blank(width, self.rich_style)
        row = self._rows[place]
        look = self._painted[row.operation_id] = self._look_of(row)
        cells, kind, here, marked, left = look
        style = self.get_component_rich_style(f"table--{kind}")
        if left:
            style += self.get_component_rich_style("table--dim")
        if here:
            style += self.get_component_rich_style("table--cursor")
        mark = ("▌" if here else " ") + ("●" if marked else "~" if left else " ")
        return self._line(mark, cells, shown, style, width)

    def _line(
        self,
        mark: str,
        cells: Sequence[str],
        shown: Sequence[tuple[columns.Column, int]],
        style: Style,
        width: int,
    ) -> Strip:
        text = mark + " ".join(fitted(cell, size) for cell, (_, size) in zip(cells, shown, strict=True))
        return Strip([Segment(fitted(text, width), style)], width)
