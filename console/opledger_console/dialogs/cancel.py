"""Request cancellation: a wish, which the provider may carry out or not, and what it cannot undo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from opledger.rules.durations import format_duration
from opledger.rules.model import Operation
from opledger_console.dialogs.base import Clock
from opledger_console.dialogs.deciding import Deciding, titled
from opledger_console.dialogs.heads import Head, head_of
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import Field
from opledger_console.verdicts import Verdict
from opledger_console.views import counted

EFFECT: Final = Field("effect", "Expected effect", "optional: what should happen then, and by when")


@dataclass(frozen=True, slots=True)
class CancelSheet:
    """What a cancel of one operation would mean, worked out before the dialog opens."""

    verb: Literal["request cancellation", "withdraw"]
    sends: str | None  #: the call, for people; None where nothing is sent
    promises: str  #: what the provider promises about it
    leaves: str | None
    destroys: tuple[str, ...]
    others: tuple[tuple[str, str, str], ...]  #: id, state and contract of each that the same call stops
    deadline: timedelta | None  #: after this long without a final word a person is asked
    unknown_create: bool  #: nobody knows whether there is a job at all


class CancelDialog(Deciding):
    """Request a cancellation, or take back what was never sent. `sheet` says which of the two it is."""

    keep_word = "Keep it running"
    confirm_word = "Request cancellation"

    def __init__(
        self, operation: Operation, sheet: CancelSheet, now: datetime, *, grace: float = 5.0, clock: Clock | None = None
    ) -> None:
        super().__init__(operation, now, grace=grace, clock=clock)
        self.sheet = sheet
        self.withdraws = sheet.verb == "withdraw"
        if self.withdraws:
            self.keep_word, self.confirm_word = "Keep it", "Withdraw"

    def level(self) -> int:
        """More is asked where something is destroyed, or others are hit."""
        return 3 if self.sheet.destroys or self.sheet.others else 2

    def head(self) -> Head:
        """Never "cancel job": it is a request."""
        return head_of("WITHDRAW" if self.withdraws else "REQUEST CANCELLATION", self.operation)

    def fields(self) -> tuple[Field, ...]:
        """A cancel may say what it is to achieve."""
        reason, *typed = super().fields()
        return (reason, *typed) if self.withdraws else (reason, EFFECT, *typed)

    def pieces(self) -> Sequence[Piece]:
        """What is sent, what it stops, what it leaves and destroys."""
        return tuple(self._pieces())

    def _pieces(self) -> Iterator[Piece]:
        sheet = self.sheet
        if self.withdraws:
            yield Piece(
                "Nothing was ever sent for this operation: it is taken back here, and the provider never hears of it."
            )
            yield Piece("")
        else:
            yield from titled("A request, not a result", tuple(self._request()))
        others = [Piece(f"{one}  {state}  {contract}", "data", 2) for one, state, contract in sheet.others]
        if others:
            yield Piece(
                f"! The same call also stops {counted(len(others), 'other operation')}. Confirming cancels them all:",
                "warn",
            )
            yield from others
            yield Piece("")
        if sheet.destroys:
            yield Piece("! It destroys, for good:", "warn")
            yield from (Piece(what, "said", 2) for what in sheet.destroys)
            yield Piece("")
        yield from titled("It leaves behind", (Piece(sheet.leaves, "said", 2),) if sheet.leaves else ())
        yield from titled("What the provider promises", (Piece(sheet.promises, "said", 2),) if sheet.promises else ())

    def _request(self) -> Iterator[Piece]:
        sheet = self.sheet
        if sheet.unknown_create:
            yield Piece(
                "! Nobody knows whether there is a job. The wish is recorded and sent once a job is found; nothing is "
                "created any more.",
                "warn",
            )
        yield Piece("A worker sends it once. The job may still end by itself, or go on running; costs may go on.")
        if sheet.sends:
            yield Piece("It sends:")
            yield Piece(sheet.sends, "data", 2)
        if sheet.deadline is not None:
            yield Piece(
                f"Only a later status read can say that it worked. Without one within {format_duration(sheet.deadline)}"
                " the operation becomes cancellation_unconfirmed, and a person decides."
            )

    def effect(self) -> str:
        """What cannot be undone."""
        if self.withdraws:
            return "It is withdrawn for good and never sent. To go on, it must be submitted anew."
        return "A worker sends the request, once. What has been sent cannot be called back; the job may not obey it."

    def result(self) -> Verdict:
        """Cancel it, and all that the same call stops."""
        op = self.operation
        return Verdict(
            "cancel",
            op.operation_id,
            op.version,
            self.value("reason"),
            effect=self.value("effect"),
            also=tuple(one for one, _, _ in self.sheet.others),
        )
