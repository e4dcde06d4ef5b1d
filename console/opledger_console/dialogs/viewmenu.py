"""Saved views: which filter and order to show."""

from __future__ import annotations

from opledger_console.dialogs.base import Head
from opledger_console.dialogs.copymenu import CopyMenu


class ViewMenu(CopyMenu):
    """Hand back the name of the chosen view."""

    def head(self) -> Head:
        """What it does."""
        return Head("VIEWS", "press a digit")

    def effect(self) -> str:
        """How there come to be more."""
        return "The list shows that filter and order; [ goes back. :save NAME keeps what is shown now."

    def _choose(self, place: int) -> None:
        if 0 <= place < len(self.values):
            self._finish(self.values[place][0])
