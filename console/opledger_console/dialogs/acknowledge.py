"""Acknowledge: a person has seen it and works on it; reminders fall silent for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from opledger_console.dialogs.deciding import Deciding, due
from opledger_console.dialogs.heads import Head, head_of
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import Alternatives
from opledger_console.verdicts import Verdict

UNTIL: Final[tuple[tuple[str, timedelta | None], ...]] = (
    ("30m", timedelta(minutes=30)),
    ("1h", timedelta(hours=1)),
    ("4h", timedelta(hours=4)),
    ("8h", timedelta(hours=8)),
    ("until it ends", None),
)


class AcknowledgeDialog(Deciding):
    """Take something upon oneself, with a time after which it comes back."""

    confirm_word = "Acknowledge"
    harmful = False

    def head(self) -> Head:
        """The operation."""
        return head_of("ACKNOWLEDGE", self.operation)

    def extra(self) -> Iterator[Widget]:
        """For how long."""
        label = Static(Content("For how long"), classes="label", markup=False)
        yield Horizontal(label, Alternatives([word for word, _ in UNTIL], id="until", chosen=1), classes="field wide")

    def pieces(self) -> Sequence[Piece]:
        """What wants attention, and who has it already."""
        op = self.operation
        found = [Piece("Nothing wants a person here: this is a mere remark.", "dim")]
        if op.attention is not None:
            since = f"{op.attention.since:%Y-%m-%d %H:%M:%S}Z"
            found = [Piece(f"It wants a person since {since}:"), Piece(op.attention.reason, "said", 2)]
        if op.acknowledged_by is not None:
            found += [Piece("acknowledged already by:"), Piece(op.acknowledged_by, "said", 2)]
            found += [Piece(f"which lapses {due(op.acknowledged_until, self.now)}", "text", 2)]
        return found

    def effect(self) -> str:
        """It decides nothing."""
        return "Reminders fall silent for that long. Nothing is decided: the operation goes on waiting."

    def result(self) -> Verdict:
        """With the time."""
        op, chosen = self.operation, self.query_one(Alternatives).chosen
        return Verdict("acknowledge", op.operation_id, op.version, self.value("reason"), until=UNTIL[chosen][1])
