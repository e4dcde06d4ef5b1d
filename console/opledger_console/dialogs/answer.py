"""Answer: a person answers the question of a task. One answer counts, and nothing is chosen beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from opledger.rules.human import LONGEST_REASON
from opledger_console.dialogs.base import Clock, Dialog
from opledger_console.dialogs.deciding import REASON
from opledger_console.dialogs.heads import Head
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import Alternatives, Field, Lack
from opledger_console.pages.plans import AnswerSheet
from opledger_console.text import line
from opledger_console.verdicts import TaskAnswer

NONE: Final = "none yet"

ROOM: Final = 44
"""Cells that the answers may take in one line together; longer ones are chosen by their number."""


class AnswerDialog(Dialog[TaskAnswer]):
    """Answers one question, as it was asked when it was looked at."""

    confirm_word = "Answer"
    harmful = False

    def __init__(self, sheet: AnswerSheet, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.sheet = sheet
        words = [line(one).plain for one in sheet.answers]
        short = sum(len(word) + 2 for word in words) <= ROOM
        self._words = words if short else [str(number) for number in range(1, len(words) + 1)]

    def head(self) -> Head:
        """The step and its task."""
        return Head("ANSWER", f"step {self.sheet.step}", f"of task {self.sheet.task}")

    def extra(self) -> Iterator[Widget]:
        """Which answer."""
        label = Static(Content("Answer"), classes="label", markup=False)
        yield Horizontal(label, Alternatives([NONE, *self._words], id="answers"), classes="field wide")

    def fields(self) -> tuple[Field, ...]:
        """Why."""
        return (REASON,)

    def lacks(self) -> Sequence[Lack]:
        """An answer, and why."""
        found = [] if self._chosen() is not None else [Lack("an answer (left and right choose)")]
        size = len(self.value("reason"))
        if not size:
            found.append(Lack("a reason", "reason"))
        elif size > LONGEST_REASON:
            found.append(Lack(f"a shorter reason: {size:,} characters, at most {LONGEST_REASON:,}", "reason"))
        return found

    def _chosen(self) -> str | None:
        row = next(iter(self.query(Alternatives)), None)
        return None if row is None or row.chosen == 0 else self.sheet.answers[row.chosen - 1]

    def action_next_field(self) -> None:
        """Go to the answers first, while there is none: they are no field to type in."""
        row = self.query_one(Alternatives)
        if not self.deaf and self._chosen() is None and self.focused is not row:
            self.set_focus(row)
        else:
            super().action_next_field()

    def pieces(self) -> Sequence[Piece]:
        """The question and every answer, whole."""
        found = [Piece("The task asks:"), Piece(self.sheet.question, "said", 2), Piece("The answers:")]
        for number, answer in enumerate(self.sheet.answers, 1):
            found += [Piece(f"{number} {answer}", "said", 2)]
            if answer in self.sheet.stops:
                found += [Piece("this one ends the task: no further step is done", "warn", 4)]
        return found

    def effect(self) -> str:
        """One answer counts."""
        if self._chosen() in self.sheet.stops:
            return "This answer ends the task: no further step is done. It stands on record with your name."
        return "It stands on record with your name, and no second answer counts. It starts nothing by itself."

    def result(self) -> TaskAnswer:
        """The answer as the plan words it."""
        sheet, chosen = self.sheet, self._chosen()
        assert chosen is not None  # nothing is handed back while it is missing
        return TaskAnswer(sheet.plan, sheet.task, sheet.step, sheet.asked_at, chosen, self.value("reason"))
