"""A text to read: what has changed, an error, a packet."""

from __future__ import annotations

from collections.abc import Sequence

from opledger_console.dialogs.base import Clock, Dialog
from opledger_console.dialogs.heads import Head
from opledger_console.dialogs.lines import Piece


class TextPanel(Dialog[None]):
    """Show `body`, which may be any text from outside. `title` is ours; `about` (an id, a name) may be outside text."""

    keep_word = "Close"

    def __init__(self, title: str, body: str | Sequence[Piece], *, about: str = "", clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.heading, self.about = title, about
        self.body = (Piece(body, "data"),) if isinstance(body, str) else tuple(body)

    def head(self) -> Head:
        """The title."""
        return Head(self.heading, self.about)

    def pieces(self) -> Sequence[Piece]:
        """The text."""
        return self.body
