"""The frame of every screen: one line that says where we are, one that says what wants a person."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from opledger_console.text import line
from opledger_console.views import STRIP, Snapshot


class FrameLine(Static):
    """Ledger, operator, mode, worker, clock."""

    def show(self, where: str, operator: str, mode: str, snapshot: Snapshot | None, away: str | None) -> None:
        """Draw the line; `away` is why the database cannot be read, while it cannot."""
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        text.append(" opledger ", style="bold reverse")
        text.append(" ")
        text.append_text(line(where, limit=40))
        text.append("  ")
        text.append_text(line(operator, limit=20))
        text.append(f"  {mode}", style="bold" if mode == "READ-ONLY" else "")
        if away is not None:
            text.append("  DATABASE AWAY ", style="bold reverse")
            text.append_text(line(away, limit=80))
        elif snapshot is not None:
            text.append("  ")
            text.append_text(line(snapshot.worker, limit=50))
        if snapshot is not None:
            text.append(f"  {snapshot.taken_at:%H:%M:%S}Z", style="dim")
        self.update(text)


class AttentionStrip(Static):
    """What wants a person, by kind, with counts; calm when nothing does."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw what there is, and only that: in 80 columns every count must fit."""
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        waiting = [(words, snapshot.attentions.get(code, 0)) for code, words in STRIP]
        waiting.append(("provider paused", len(snapshot.paused)))
        for words, count in waiting:
            if count:
                text.append(f" {words} {count} ", style="bold reverse")
                text.append(" ")
        if not text:
            text.append(" nothing waits for a person", style="dim")
        self.update(text)
