"""The line in which a screen says something: what was done, why a key does nothing, what could not be read.

Textual's own notices lie on top of whatever is in front, also of a dialog's foot with the buttons and the sentence that
says what cannot be undone. This one has room of its own, and only on its screen.
"""

from __future__ import annotations

from textual.timer import Timer
from textual.widgets import Static

from opledger_console.text import block


class NoticeLine(Static):
    """Hidden while there is nothing to say; at most three lines."""

    DEFAULT_CSS = """
    NoticeLine { display: none; height: auto; max-height: 3; padding: 0 1; background: $primary 25%; }
    NoticeLine.-said { display: block; }
    NoticeLine.-warning { background: $warning 25%; }
    NoticeLine.-error { background: $error 25%; text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._timer: Timer | None = None

    def tell(self, words: object, severity: str, timeout: float) -> None:
        """Show words, which may hold outside text, for so many seconds."""
        if self._timer is not None:
            self._timer.stop()
        sign = {"warning": "! ", "error": "‼ "}.get(severity, "")
        self.update(block(f"{sign}{words}"))
        self.set_classes(f"-said -{severity}")
        self._timer = self.set_timer(timeout, self.clear)

    def clear(self) -> None:
        """Say nothing any more."""
        self.set_classes("")
        self.update("")
