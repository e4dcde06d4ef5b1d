"""The tabs of a page in one line; a click on one opens it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static


class TabLine(Static):
    """Names, one of them chosen. Where there is no room for all of them, those around the chosen one."""

    DEFAULT_CSS = """
    TabLine { height: 1; background: $panel; }
    """

    @dataclass
    class Clicked(Message):
        """Somebody clicked on a tab."""

        tab: str

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._tabs: tuple[tuple[str, str], ...] = ()
        self._chosen = ""
        self._notes = ("", "")
        self._places: list[tuple[int, int, str]] = []

    def show(self, tabs: Sequence[tuple[str, str]], chosen: str, note: str = "", brief: str = "") -> None:
        """Draw tabs (name and word), the chosen one, and a note behind them, in brief where there is little room."""
        if (tuple(tabs), chosen, (note, brief)) != (self._tabs, self._chosen, self._notes):
            self._tabs, self._chosen, self._notes = tuple(tabs), chosen, (note, brief)
            self._draw()

    def on_resize(self) -> None:
        """Draw as many as fit."""
        self._draw()

    def _draw(self) -> None:
        text, self._places = Text(no_wrap=True, overflow="ellipsis", end=""), []
        names = [name for name, _ in self._tabs]
        place = names.index(self._chosen) if self._chosen in names else 0
        first = 0
        while first < place and sum(len(words) + 2 for _, words in self._tabs[first : place + 1]) > self.size.width - 2:
            first += 1
        if first:
            text.append("<", style="dim")
        for name, words in self._tabs[first:]:
            start = text.cell_len
            text.append(f" {words} ", style="bold reverse" if name == self._chosen else "")
            self._places.append((start, text.cell_len, name))
        room = self.size.width - text.cell_len - 2
        note = next((words for words in self._notes if words and len(words) <= room), None)
        if note is not None:
            text.append(f"  {note}", style="dim")
        self.update(text)

    def on_click(self, event: events.Click) -> None:
        """Open the tab that was clicked."""
        for start, end, name in self._places:
            if start <= event.x < end:
                self.post_message(self.Clicked(name))
