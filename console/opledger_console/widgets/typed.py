"""A line to type in that obeys nothing of what is pasted into it."""

from __future__ import annotations

from textual.widgets import Input

from opledger_console.text import line


class Typed(Input):
    """A field that shows what is pasted or completed without obeying it; Textual's own hands escapes on."""

    def validate_value(self, value: str) -> str:
        """Make it inert as it comes in."""
        return line(value).plain
