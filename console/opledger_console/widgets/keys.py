"""The footer: the keys that do something here, made from the bindings. What is off just now is dimmed.

Textual's own footer builds a widget for each key anew whenever one of them changes; here that happens at each step of
the cursor, and one line of text does it.
"""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.screen import Screen
from textual.widgets import Static


class KeysLine(Static):
    """One line of keys; a click on one presses it."""

    DEFAULT_CSS = """
    KeysLine { height: 1; dock: bottom; text-wrap: nowrap; text-overflow: ellipsis; background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._places: list[tuple[int, int, str]] = []
        self._drawn: tuple[tuple[str, str, bool, str], ...] = ()

    def on_mount(self) -> None:
        """Follow the bindings of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, self._follow)

    def _follow(self, screen: Screen[object]) -> None:
        if screen is self.screen:
            self.draw()

    def draw(self) -> None:
        """Draw the line again where a key came, went, or was switched on or off."""
        shown: dict[str, tuple[str, str, bool, str]] = {}
        for key, active in self.screen.active_bindings.items():
            binding = active.binding
            if binding.show and binding.description and binding.action not in shown:
                shown[binding.action] = (self.app.get_key_display(binding), binding.description, active.enabled, key)
        keys = tuple(shown.values())
        if keys == self._drawn:
            return
        self._drawn = keys
        text, self._places = Text(no_wrap=True, overflow="ellipsis", end=""), []
        for display, words, enabled, key in keys:
            start = text.cell_len
            text.append(f" {display}", style="bold" if enabled else "dim")
            text.append(" ")
            text.append(words, style="" if enabled else "dim strike")
            self._places.append((start, text.cell_len, key))
            text.append(" ")
        self.update(text)

    def on_click(self, event: events.Click) -> None:
        """Press the key that was clicked."""
        for start, end, key in self._places:
            if start <= event.x < end:
                self.app.simulate_key(key)
