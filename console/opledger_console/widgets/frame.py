"""The frame of every screen: one line that says where we are, one that says what wants a person."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from opledger_console.text import line
from opledger_console.views import STRIP, Overview


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

    def show(self, overview: Overview) -> None:
        """Draw what there is, and only that: in 80 columns every count must fit."""
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        waiting = [(words, overview.attentions.get(code, 0)) for code, words in STRIP]
        known = {code.value for code, _ in STRIP}
        waiting.append(("provider paused", len(overview.paused)))
        waiting.append(("look", sum(count for code, count in overview.attentions.items() if code not in known)))
        for words, count in waiting:
            if count:
                text.append(" ")
                text.append(f" {words} {count} ", style="bold reverse")
        if text:
            text.append("  ! next", style="dim")
        else:
            text.append(" nothing waits for a person", style="dim")
        self.update(text)
