"""Quit: asked only where something is typed that would be lost."""

from __future__ import annotations

from collections.abc import Sequence

from opledger_console.dialogs.base import Dialog
from opledger_console.dialogs.heads import Head
from opledger_console.dialogs.lines import Piece


class QuitDialog(Dialog[bool]):
    """Hand back True to quit."""

    keep_word = "Stay"
    confirm_word = "Quit"
    harmful = False

    def head(self) -> Head:
        """The question."""
        return Head("QUIT?", "")

    def pieces(self) -> Sequence[Piece]:
        """What is lost and what is not."""
        return (
            Piece("Something is typed and not sent; it is lost."),
            Piece("Operations go on: quitting cancels nothing at any provider."),
        )

    def result(self) -> bool:
        """Quit."""
        return True
