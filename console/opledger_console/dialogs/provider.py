"""Pause a provider, or resume it: for every worker and every operation of that contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from opledger_console.dialogs.base import Clock, Dialog
from opledger_console.dialogs.deciding import REASON
from opledger_console.dialogs.heads import Head
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import Field, Lack
from opledger_console.text import line
from opledger_console.verdicts import Verdict
from opledger_console.views import counted


class ProviderDialog(Dialog[Verdict]):
    """`open_operations`: how many are open under the contract; `why_paused`: what its pause says, if there is one."""

    def __init__(
        self,
        name: str,
        verb: Literal["pause", "resume"],
        open_operations: int,
        why_paused: str | None,
        *,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock=clock)
        self.provider, self.verb = name, verb
        self.open_operations, self.why_paused = open_operations, why_paused
        self.confirm_word = "Pause" if verb == "pause" else "Resume"

    def head(self) -> Head:
        """The provider."""
        return Head(f"{self.verb.upper()} PROVIDER", line(self.provider, limit=40).plain)

    def fields(self) -> tuple[Field, ...]:
        """Why."""
        return (REASON,)

    def lacks(self) -> Sequence[Lack]:
        """The reason."""
        return () if self.value("reason") else (Lack("a reason", "reason"),)

    def pieces(self) -> Sequence[Piece]:
        """What it stops or lets go on."""
        many = (
            f"{counted(self.open_operations, 'operation')} {'is' if self.open_operations == 1 else 'are'} open there."
        )
        if self.verb == "pause":
            return (
                Piece(many),
                Piece("No call is made to it any more, not even a status read or a cancel; deadlines go on running."),
            )
        why = (Piece("It was paused because:"), Piece(self.why_paused, "said", 2)) if self.why_paused else ()
        return (Piece(many), *why, Piece("All that has waited becomes due at once, within the provider's rate."))

    def effect(self) -> str:
        """How to undo it."""
        if self.verb == "pause":
            return "Every worker stops calling this provider until somebody resumes it. Jobs there go on running."
        return "Every worker calls this provider again. What is sent then cannot be called back."

    def result(self) -> Verdict:
        """Of a provider there is no version."""
        return Verdict(self.verb, self.provider, None, self.value("reason"))
