"""Help."""

from __future__ import annotations

from textual.screen import ModalScreen, Screen


class HelpScreen(ModalScreen[None]):
    """Help."""

    def __init__(self, about: Screen[object]) -> None:
        super().__init__()
        self.about = about
