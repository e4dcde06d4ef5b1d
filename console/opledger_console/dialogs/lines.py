"""Content of a dialog, drawn line by line: a body of 100 KB costs no more than the lines that are on the screen.

Everything in it is data. What came from outside stands behind a bar at the left, also where it is wrapped, so that no
text can pass for one of our own headings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from opledger_console.text import block, fitted

Kind = Literal["text", "head", "data", "said", "plus", "minus", "differs", "warn", "dim"]

MARGINS: Final[Mapping[Kind, str]] = {"data": "│ ", "said": "│ ", "differs": "≠ ", "plus": "+ ", "minus": "- "}
"""What stands in front of every line of outside text, also of a wrapped one."""

_EXACT: Final = frozenset({"data", "differs", "plus", "minus"})
"""Cut where the line is full: in these every space counts."""

LEAST: Final = 8
"""Narrower than this nothing is wrapped."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A paragraph. `pick` is what a click on it means; `beside` stands in a second column at its right."""

    text: str
    kind: Kind = "text"
    indent: int = 0
    pick: int | None = None
    beside: Piece | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    cells: tuple[tuple[str, Kind], ...]
    pick: int | None = None


Build = Callable[[int], Sequence[Piece]]
"""The content for a width in terminal cells."""


class Lines(ScrollView, can_focus=True):
    """A scrollable text that is wrapped here and drawn as far as it is seen."""

    DEFAULT_CSS = """
    Lines { height: 1fr; min-height: 1; scrollbar-size-vertical: 1; background: $surface; color: $foreground; }
    Lines:focus { background-tint: $foreground 4%; }
    Lines > .lines--head { text-style: bold; color: $text-primary; }
    Lines > .lines--data { color: $foreground; }
    Lines > .lines--plus { color: $text-success; }
    Lines > .lines--minus { color: $text-error; }
    Lines > .lines--differs { color: $text-warning; text-style: bold; }
    Lines > .lines--warn { color: $text-warning; text-style: bold; }
    Lines > .lines--dim { color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "down", show=False),
        Binding("k", "scroll_up", "up", show=False),
        Binding("g", "scroll_home", "first", show=False),
        Binding("G", "scroll_end", "last", show=False),
        Binding("space", "page_down", "page down", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lines--text", "lines--head", "lines--data", "lines--said", "lines--plus", "lines--minus", "lines--differs",
        "lines--warn", "lines--dim",
    }  # fmt: skip

    class Picked(Message):
        """A paragraph that stands for a choice was clicked."""

        def __init__(self, pick: int) -> None:
            super().__init__()
            self.pick = pick

    def __init__(self, build: Build, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._build = build
        self._lines: tuple[_Line, ...] = ()
        self._width = 0

    @property
    def count(self) -> int:
        """How many lines there are at the present width."""
        return len(self._lines)

    def rebuild(self, width: int | None = None) -> None:
        """Ask for the content anew; the place in it stays where it can."""
        self._width = width or self._width
        if self._width:
            self._lines = tuple(line for piece in self._build(self._width) for line in _wrapped(piece, self._width))
            self.virtual_size = Size(self._width, len(self._lines))
            self.refresh()

    def on_resize(self) -> None:
        """Wrap anew, unless only the height is another one."""
        width = self.scrollable_content_region.width
        if width != self._width:
            self.rebuild(width)

    def on_click(self, event: events.Click) -> None:
        """Report a click on a paragraph that stands for a choice."""
        place = event.y + self.scroll_offset.y
        if 0 <= place < len(self._lines) and (pick := self._lines[place].pick) is not None:
            self.post_message(self.Picked(pick))

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width, place = self.size.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        segments = [
            Segment(text, self.get_component_rich_style(f"lines--{kind}")) for text, kind in self._lines[place].cells
        ]
        return Strip(segments).adjust_cell_length(width, self.rich_style)


def _wrapped(piece: Piece, width: int) -> Iterator[_Line]:
    if piece.beside is None:
        for text in _texts(piece, width):
            yield _Line(((fitted(text, width), piece.kind),), piece.pick)
        return
    half = (width - 1) // 2
    left, right = list(_texts(piece, half)), list(_texts(piece.beside, half))
    for place in range(max(len(left), len(right))):
        one, other = (texts[place] if place < len(texts) else "" for texts in (left, right))
        yield _Line(((fitted(one, half), piece.kind), (" ", "text"), (fitted(other, half), piece.beside.kind)))


def _texts(piece: Piece, width: int) -> Iterator[str]:
    margin = " " * piece.indent + MARGINS.get(piece.kind, "")
    room = max(width - len(margin), LEAST)
    for line in block(piece.text).plain.split("\n"):
        for text in chop_cells(line, room) if piece.kind in _EXACT else _words(line, room):
            yield margin + text
        if not line:
            yield margin


def _words(line: str, room: int) -> Iterator[str]:
    """Wrap at spaces; a word that is too long is cut. Spaces in front stay and indent what follows."""
    if cell_len(line) <= room:
        if line:
            yield line
        return
    front = line[: len(line) - len(line.lstrip(" "))][: room // 2]
    shown = front
    for word in line.split():
        for part in chop_cells(word, max(room - len(front), 1)):
            if shown.strip() and cell_len(shown) + cell_len(part) + 1 > room:
                yield shown
                shown = front
            shown += part if not shown.strip() else f" {part}"
    yield shown
