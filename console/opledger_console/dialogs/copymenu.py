"""Copy: which value of an operation goes to the terminal's clipboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual import events

from opledger_console.dialogs.base import Clock, Dialog
from opledger_console.dialogs.heads import Head
from opledger_console.dialogs.lines import Lines, Piece


class CopyMenu(Dialog[str]):
    """Hand back the chosen value, exactly as it is. Labels are ours, values are data; digits and clicks choose."""

    def __init__(self, values: tuple[tuple[str, str], ...], *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.values = values

    def head(self) -> Head:
        """What it does."""
        return Head("COPY", "press a digit")

    def pieces(self) -> Sequence[Piece]:
        """Label and value of each."""
        return tuple(self._pieces())

    def _pieces(self) -> Iterator[Piece]:
        for place, (label, value) in enumerate(self.values):
            yield Piece(f"{place + 1}  {label}" if place < 9 else f"   {label}", "head", pick=place)
            yield Piece(value[:200] + ("…" if len(value) > 200 else ""), "data", 3, place)

    def effect(self) -> str:
        """It is the terminal that copies."""
        return "The value is sent to the terminal, which may or may not take it into its clipboard."

    def on_key(self, event: events.Key) -> None:
        """A digit chooses."""
        if not self.deaf and event.key.isascii() and event.key.isdecimal():
            # Else it would go on to the screen below, which is in front by then, and mean something there.
            event.stop()
            self._choose(int(event.key) - 1)

    def on_lines_picked(self, event: Lines.Picked) -> None:
        """A click chooses."""
        if not self.deaf:
            self._choose(event.pick)

    def _choose(self, place: int) -> None:
        if 0 <= place < len(self.values):
            self._finish(self.values[place][1])
