"""Note: a remark on the record, which changes nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from opledger_console.dialogs.deciding import Deciding
from opledger_console.dialogs.heads import Head, head_of
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import Field, Lack
from opledger_console.verdicts import Verdict


class NoteDialog(Deciding):
    """Write a remark."""

    confirm_word = "Add the note"
    harmful = False

    def head(self) -> Head:
        """The operation."""
        return head_of("NOTE", self.operation)

    def fields(self) -> tuple[Field, ...]:
        """The text is what a reason is elsewhere."""
        return (Field("reason", "Note", "what the next person should know"),)

    def lacks(self) -> Sequence[Lack]:
        """The text."""
        return () if self.value("reason") else (Lack("the text of the note", "reason"),)

    def pieces(self) -> Sequence[Piece]:
        """What wants attention now."""
        attention = self.operation.attention
        if attention is None:
            return (Piece("Nothing wants a person here at the moment.", "dim"),)
        return (Piece("It wants a person:"), Piece(attention.reason, "said", 2))

    def effect(self) -> str:
        """A record is for ever."""
        return "It stands in the journal with your name and cannot be removed. Nothing else changes."

    def result(self) -> Verdict:
        """The text as the reason."""
        return Verdict("note", self.operation.operation_id, self.operation.version, self.value("reason"))
