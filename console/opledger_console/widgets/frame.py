"""The frame of every screen: one line that says where we are, one that says what wants a person."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from opledger_console.text import line
from opledger_console.views import GLYPHS, STRIP, Overview


class FrameLine(Static):
    """Screen, ledger, operator, mode, worker, clock. What is wrong comes first: the end may be cut off."""

    DEFAULT_CSS = """
    FrameLine { height: 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, where: str, operator: str) -> None:
        super().__init__(markup=False)
        self._where = where
        self._operator = operator

    def show(self, title: str, overview: Overview | None, away: str | None) -> None:
        """Draw the line; `away` is why the database cannot be read, while it cannot."""
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        text.append(f" {title} ", style="bold reverse")
        text.append(" ")
        if away is not None:
            text.append(" DATABASE AWAY ", style="bold reverse")
            since = f" what you see was true at {overview.taken_at:%H:%M:%S}Z;" if overview is not None else ""
            text.append(f"{since} ")
            text.append_text(line(away, limit=120))
        elif overview is None:
            text.append("opening the ledger …", style="dim")
        else:
            text.append(f"{overview.taken_at:%H:%M:%S}Z ")
            loud = overview.mode == "READ-ONLY" or not any(worker.alive for worker in overview.workers)
            text.append(f" {overview.mode} ", style="bold reverse" if overview.mode == "READ-ONLY" else "bold")
            text.append(" ")
            text.append_text(line(overview.driver, limit=50, style="bold" if loud else ""))
        text.append("  ")
        text.append_text(line(self._operator, limit=20))
        text.append(" at ", style="dim")
        text.append_text(line(self._where, limit=40))
        self.update(text)


class AttentionStrip(Static):
    """What wants a person, by kind, with counts; calm when nothing does."""

    DEFAULT_CSS = """
    AttentionStrip { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._overview: Overview | None = None

    def show(self, overview: Overview) -> None:
        """Draw what there is, and only that: in 80 columns every count must fit."""
        self._overview = overview
        known = {code.value for code, _ in STRIP}
        waiting = [(GLYPHS[code], words, overview.attentions.get(code, 0)) for code, words in STRIP]
        waiting.append(("‖", "provider paused", len(overview.paused)))
        others = sum(count for code, count in overview.attentions.items() if code not in known)
        waiting.append(("!", "look", others))
        shown = [one for one in waiting if one[2]]
        if not shown:
            self.update(Text(" no operation waits for a person", style="dim"))
            return
        # Words where they fit; the glyphs of the list where they do not. A count is never cut off.
        full = [f" {words} {count} " for _, words, count in shown]
        brief = [f" {glyph} {words.split()[0]} {count} " for glyph, words, count in shown]
        least = [f" {glyph} {count} " for glyph, _, count in shown]
        room = self.size.width or 80
        parts = next((one for one in (full, brief) if sum(map(cell_len, one)) + len(one) + 8 <= room), least)
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        for part in parts:
            text.append(" ")
            text.append(part, style="bold reverse")
        text.append("  ! next", style="dim")
        self.update(text)

    def on_resize(self) -> None:
        """What fits has changed."""
        if self._overview is not None:
            self.show(self._overview)
