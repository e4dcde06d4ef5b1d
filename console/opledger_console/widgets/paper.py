"""A long text of our own, wrapped once for a width and drawn line by line: a thousand lines cost what is seen of them.

Textual's Markdown takes seconds for this much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from opledger_console.text import line as inert

WIDEST: Final = 100
"""Longer lines than this are hard to read, however wide the terminal is."""

LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph. `label` stands before the text, in as many cells as `hang` says; wrapped lines begin below it."""

    text: str
    kind: str = "text"  #: title, head, text, dim, off
    label: str = ""
    indent: int = 0
    hang: int = 0


@dataclass(frozen=True, slots=True)
class _Line:
    front: str
    text: str
    kind: str
    paragraph: int


class Paper(ScrollView, can_focus=True):
    """Paragraphs. Whoever shows it has the keys for moving in it."""

    DEFAULT_CSS = """
    Paper { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; padding: 0 1; }
    Paper > .paper--title { text-style: bold reverse; }
    Paper > .paper--head { text-style: bold; color: $text-primary; }
    Paper > .paper--text { color: $foreground; }
    Paper > .paper--label { text-style: bold; }
    Paper > .paper--dim { color: $text-muted; }
    Paper > .paper--off { color: $text-muted; text-style: strike; }
    Paper > .paper--found { text-style: reverse; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "paper--title", "paper--head", "paper--text", "paper--label", "paper--dim", "paper--off", "paper--found",
    }  # fmt: skip

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._paragraphs: tuple[Paragraph, ...] = ()
        self._lines: tuple[_Line, ...] = ()
        self._firsts: tuple[int, ...] = ()
        self._wrapped_for = 0
        self._wish: int | None = None  #: where to go once there is a width
        self.found: int | None = None  #: the paragraph that was looked for

    def show(self, paragraphs: Sequence[Paragraph]) -> None:
        """Show these, from the top."""
        self._paragraphs = tuple(paragraphs)
        self._wrap()

    def on_resize(self) -> None:
        """Wrap anew for another width; the paragraph at the top stays there."""
        if self._width != self._wrapped_for:
            top = self.paragraph_at_top
            self._wrap()
            self.go_to(self._wish if self._wish is not None else top)
            self._wish = None

    @property
    def _width(self) -> int:
        return max(min(self.scrollable_content_region.width, WIDEST), LEAST)

    def _wrap(self) -> None:
        lines: list[_Line] = []
        firsts: list[int] = []
        self._wrapped_for = self._width
        for number, one in enumerate(self._paragraphs):
            firsts.append(len(lines))
            lines += _wrapped(one, number, self._wrapped_for)
        self._lines, self._firsts = tuple(lines), tuple(firsts)
        self.virtual_size = Size(self._wrapped_for, len(lines))
        self.refresh()

    # --- places -------------------------------------------------------------------------------------------------

    @property
    def paragraph_at_top(self) -> int:
        """The paragraph in the first line of the screen."""
        top = int(self.scroll_offset.y)
        return self._lines[top].paragraph if top < len(self._lines) else 0

    def go_to(self, paragraph: int) -> None:
        """Bring a paragraph to the top, as far as there is text below it."""
        if not self.size.width:
            self._wish = paragraph
        elif paragraph < len(self._firsts):
            self.scroll_to(y=self._firsts[paragraph], animate=False, immediate=True, force=True)

    def look_for(self, text: str, *, by: int = 1, again: bool = False) -> bool:
        """Go to the next paragraph that contains a text, round the end; False where none does."""
        wanted, count = text.lower(), len(self._paragraphs)
        start = self.found if again and self.found is not None else self.paragraph_at_top - (0 if again else by)
        for step in range(1, count + 1):
            at = (start + by * step) % count
            one = self._paragraphs[at]
            if wanted and wanted in f"{one.label} {one.text}".lower():
                self.found = at
                self.go_to(max(at - 1, 0))
                self.refresh()
                return True
        return False

    def action_line(self, by: int) -> None:
        """Scroll by lines."""
        self.scroll_relative(y=by, animate=False, immediate=True, force=True)

    def action_screen(self, by: int) -> None:
        """Scroll by screens; one line of the screen before stays."""
        self.action_line(by * max(self.size.height - 1, 1))

    def action_edge(self, which: int) -> None:
        """Go to the first line or the last."""
        self.scroll_to(y=0 if which < 0 else len(self._lines), animate=False, immediate=True, force=True)

    # --- drawing ------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        place = y + int(self.scroll_offset.y)
        width = self.size.width
        if place >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        one = self._lines[place]
        style = self.get_component_rich_style(f"paper--{one.kind}")
        label = self.get_component_rich_style("paper--label") if one.kind == "text" else style
        if one.paragraph == self.found:
            style += Style(reverse=True)
        return Strip([Segment(one.front, label), Segment(one.text, style)]).adjust_cell_length(width, self.rich_style)


def _wrapped(one: Paragraph, number: int, width: int) -> list[_Line]:
    margin = " " * one.indent
    # The reason why a key is off may name an operation or a provider: outside text.
    text, label = inert(one.text).plain, inert(one.label).plain
    hang = min(one.hang, width // 2)
    room = max(width - one.indent - hang, LEAST)
    if hang:
        front = f"{margin}{label:<{hang}}"
        texts = wrap(text, room) or [""]
        if len(label) >= hang and label:
            return [_Line(f"{margin}{label}", "", one.kind, number)] + [
                _Line(margin + " " * hang, part, one.kind, number) for part in texts
            ]
        rest = [_Line(margin + " " * hang, part, one.kind, number) for part in texts[1:]]
        return [_Line(front, texts[0], one.kind, number), *rest]
    parts = wrap(f"{label} {text}" if label else text, room) or [""]
    first = _Line(margin, parts[0], one.kind, number)
    if label and parts[0].startswith(label):
        first = _Line(margin + label, parts[0][len(label) :], one.kind, number)
    return [first, *(_Line(margin, part, one.kind, number) for part in parts[1:])]
