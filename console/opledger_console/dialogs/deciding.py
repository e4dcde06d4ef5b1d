"""Dialogs about one operation: a reason, and what must be typed where harm may come of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from opledger.rules.durations import format_duration
from opledger.rules.human import LONGEST_REASON
from opledger.rules.model import Operation
from opledger_console.dialogs.base import Clock, Dialog
from opledger_console.dialogs.heads import TAIL
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import Field, Lack
from opledger_console.text import line
from opledger_console.verdicts import Verdict

REASON: Final = Field("reason", "Reason", "why, in a few words; it stays on the record")
TYPED: Final = Field("typed", "Type to confirm", f"the last {TAIL} characters of the operation's id")


class Deciding(Dialog[Verdict]):
    """Decides one operation as it stood at `now`."""

    def __init__(self, operation: Operation, now: datetime, *, grace: float = 0.0, clock: Clock | None = None) -> None:
        super().__init__(grace=grace, clock=clock)
        self.operation = operation
        self.now = now

    def level(self) -> int:
        """The step of the ladder: 2 asks for a reason, 3 for the end of the id as well."""
        return 2

    def fields(self) -> tuple[Field, ...]:
        """The reason, and the confirmation where the ladder asks for one."""
        return (REASON, TYPED) if self.level() >= 3 else (REASON,)

    def lacks(self) -> Sequence[Lack]:
        """The reason, and the end of the id."""
        return tuple(self._lacks())

    def _lacks(self) -> Iterator[Lack]:
        if not self.value("reason"):
            yield Lack("a reason", "reason")
        elif len(self.value("reason")) > LONGEST_REASON:
            size = len(self.value("reason"))
            yield Lack(f"a shorter reason: {size:,} characters, at most {LONGEST_REASON:,}", "reason")
        if self.level() >= 3 and self.value("typed").casefold() != self.tail.casefold():
            yield Lack(f"the last {TAIL} characters of the id", "typed")

    @property
    def tail(self) -> str:
        """What is to be typed: the end of the id as it is shown in the head."""
        return line(self.operation.operation_id).plain[-TAIL:]


def due(at: datetime | None, now: datetime) -> str:
    """Say how long it is to a time, and the time: ``in 12 m 05 s (14:02:11Z)``."""
    if at is None:
        return "never"
    left = at - now
    when = f"{at:%Y-%m-%d %H:%M:%S}Z"
    return f"in {format_duration(left)} ({when})" if left > timedelta(0) else f"ALREADY ({when})"


def titled(title: str, pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield a section, if there is anything in it, and an empty line after it."""
    if pieces:
        yield Piece(title, "head")
        yield from pieces
        yield Piece("")
