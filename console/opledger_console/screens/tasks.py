"""The tasks: operations that belong together because whoever submitted them said so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from opledger.rules.model import TERMINAL
from opledger_console.desk import Desk
from opledger_console.desk.tasks import Member, TaskBook, Tasks
from opledger_console.messages import Opened
from opledger_console.screens.base import LedgerScreen
from opledger_console.text import line
from opledger_console.views import GLYPHS, Column, Row, kind_of, next_words, short_id, span
from opledger_console.widgets.listing import Listing

COLUMNS: Final[tuple[Column, ...]] = (
    ("task", 0, 0),
    ("step", 16, 60),
    ("id", 8, 0),
    ("state", 26, 60),
    ("since", 5, 0),
    ("contract", 14, 110),
    ("by", 14, 150),
    ("next", 40, 130),
)
EMPTY: Final = "no operation belongs to a task; give it one as it is submitted: opledger submit … --task T --step S"


@dataclass(frozen=True, slots=True)
class Question:
    """All tasks; there is nothing to choose."""


class TasksScreen(LedgerScreen):
    """One row an operation, its task's name at the first of them."""

    TITLE_WORDS = "Tasks"
    DEFAULT_CSS = """
    TasksScreen #status { height: 1; color: $text-muted; padding: 0 1; }
    TasksScreen.-away Listing { opacity: 50%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_curly_bracket", "task(1)", "next task", key_display="}", id="tasks.next"),
        Binding("left_curly_bracket", "task(-1)", "task before", key_display="{", id="tasks.before"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._book = TaskBook(desk)
        self._tasks = Tasks()
        self._looked = False

    def body(self) -> Iterable[Widget]:
        """The operations, and how many tasks they are."""
        yield Listing(COLUMNS, empty="", id="tasks")
        yield Static("", id="status", markup=False)

    def on_mount(self) -> None:
        """Keys go to the list."""
        self.query_one(Listing).focus()

    def question(self) -> Question:
        """All of them, always."""
        return Question()

    def gather(self, question: Question) -> Tasks:  # noqa: ARG002 - there is one question
        """Read in a thread."""
        return self._book.read()

    def paint(self, question: Question, found: Tasks) -> None:  # noqa: ARG002 - there is one question
        """Show them."""
        self._tasks, self._looked = found, True
        self._draw()

    def tick(self) -> None:
        """Ages grow."""
        if self._looked:
            self._draw()

    def _draw(self) -> None:
        rows, before = [], None
        for one in self._tasks.members:
            rows.append(self._row(one, begins=one.operation.task != before))
            before = one.operation.task
        self.query_one(Listing).show(rows, empty=EMPTY)
        self.query_one("#status", Static).update(line(self._summary()))

    def _row(self, one: Member, *, begins: bool) -> Row:
        op = one.operation
        now = self.overview.taken_at if self.overview is not None else op.created_at
        cells = (
            op.task or "" if begins else "  ″",
            op.step or "",
            short_id(op.operation_id),
            f"{GLYPHS[op.state]} {op.state}",
            "" if one.since is None else span(now - one.since),
            op.contract,
            op.requested_by,
            next_words(op, now),
        )
        return Row(op.operation_id, cells, kind_of(op))

    def _summary(self) -> str:
        tasks = self._tasks
        names = {one.operation.task for one in tasks.members}
        going = {one.operation.task for one in tasks.members if one.operation.state not in TERMINAL}
        words = f"{len(names):,} tasks, {len(going):,} with open operations, {len(tasks.members):,} operations"
        return words + (f"; looked for among the newest {tasks.searched:,} operations only" if tasks.partial else "")

    def action_task(self, by: int) -> None:
        """Go to the first operation of the next task, or of the one before."""
        rows = self._tasks.members
        first = [
            place for place, one in enumerate(rows) if not place or rows[place - 1].operation.task != one.operation.task
        ]
        here = self.query_one(Listing).place or 0
        there = (
            [place for place in first if place > here][:1]
            if by > 0
            else [place for place in first if place < here][-1:]
        )
        for place in there:
            self.query_one(Listing).go_to(rows[place].operation.operation_id)

    @on(Listing.Picked)
    def _picked(self, message: Listing.Picked) -> None:
        self.post_message(Opened(message.key))
