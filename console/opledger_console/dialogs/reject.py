"""Reject: the request never leaves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from opledger.rules.model import Operation
from opledger.rules.shapes import Json
from opledger_console.dialogs.approve import review_pieces
from opledger_console.dialogs.base import Clock
from opledger_console.dialogs.deciding import Deciding
from opledger_console.dialogs.heads import Head, head_of
from opledger_console.dialogs.lines import Piece
from opledger_console.verdicts import Verdict


class RejectDialog(Deciding):
    """Refuse a request that waits for approval. It shows the same as the approval does."""

    keep_word = "Not now"
    confirm_word = "Reject"

    def __init__(self, operation: Operation, review: Json, now: datetime, *, clock: Clock | None = None) -> None:
        super().__init__(operation, now, clock=clock)
        self.review = review

    def head(self) -> Head:
        """The operation."""
        return head_of("REJECT", self.operation)

    def pieces(self) -> Sequence[Piece]:
        """What was asked for."""
        return review_pieces(self.review, self.operation, self.now)

    def effect(self) -> str:
        """It is final."""
        return "The request is refused and never sent. That is final: to go on, it must be submitted anew."

    def result(self) -> Verdict:
        """Reject it at this version."""
        return Verdict("reject", self.operation.operation_id, self.operation.version, self.value("reason"))
