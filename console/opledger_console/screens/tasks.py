"""The tasks: plans with their steps and proofs, and operations that belong together because somebody said so.

What has a plan is told from its records in the ledger; what only bears a task's name is listed below that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import ClassVar, Final

from rich.text import Text
from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from opledger.errors import OpledgerError, StoreUnavailable
from opledger.rules import human
from opledger.rules.model import TERMINAL, ActorKind, Operation
from opledger.rules.tasks.views import Question
from opledger_console.desk import Desk, plans
from opledger_console.desk.plans import PlanBook
from opledger_console.desk.tasks import Member, TaskBook, Tasks
from opledger_console.dialogs.answer import AnswerDialog
from opledger_console.dialogs.panel import TextPanel
from opledger_console.messages import LedgerAway, Opened
from opledger_console.pages.plans import (
    AnswerSheet,
    PlanLook,
    command_for,
    named,
    operation_told,
    rows_of,
    step_key,
    step_told,
    task_key,
    task_told,
    waiting,
)
from opledger_console.screens.base import LedgerScreen
from opledger_console.text import line
from opledger_console.verdicts import TaskAnswer
from opledger_console.views import GLYPHS, Column, Row, counted, kind_of, next_words, short_id, span
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
EMPTY: Final = (
    "no operation belongs to a task; give it one as it is submitted: opledger submit … --task T --step S; or run a "
    "plan: opledger task run PLAN"
)
AGAIN: Final = 5
"""After so many seconds without a change it is looked again: leases run out and files change by themselves."""


@dataclass(frozen=True, slots=True)
class Everything:
    """All tasks; there is nothing to choose."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The tasks with a plan, the operations that bear a task's name, and when that was so."""

    plans: tuple[PlanLook, ...]
    tasks: Tasks
    taken_at: datetime


@dataclass
class SheetReady(Message):
    """A question has been read again, and can be answered."""

    sheet: AnswerSheet


@dataclass
class AnswerDone(Message):
    """What became of an answer. `heading`: nothing was done, or nobody knows."""

    words: str
    heading: str | None = None


class TasksScreen(LedgerScreen):
    """One row for a task, one for each step or operation of it, and the one under the cursor told."""

    TITLE_WORDS = "Tasks"
    DEFAULT_CSS = """
    TasksScreen #tasks { height: 1fr; min-height: 3; }
    TasksScreen #status { height: 1; color: $text-muted; padding: 0 1; }
    TasksScreen #told {
        height: 1fr; min-height: 4; padding: 0 1; border-top: solid $panel; scrollbar-size-vertical: 1;
    }
    TasksScreen.-short #told, TasksScreen.-unplanned #told { display: none; }
    TasksScreen.-away Listing { opacity: 50%; }
    TasksScreen.-away #told { text-opacity: 60%; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_curly_bracket", "task(1)", "next task", key_display="}", id="tasks.next"),
        Binding("left_curly_bracket", "task(-1)", "task before", key_display="{", id="tasks.before"),
        Binding("v", "answer", "answer", id="tasks.answer"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._book = TaskBook(desk)
        self._plans = PlanBook(desk)
        self._found = Picture((), Tasks(), datetime.min.replace(tzinfo=UTC))
        self._steps: dict[str, tuple[PlanLook, str | None]] = {}
        self._operations: dict[str, Operation] = {}
        self._firsts: tuple[str, ...] = ()
        self._looked = False
        self._busy = False
        self._dialog: AnswerDialog | None = None
        self._ticks = 0

    def body(self) -> Iterable[Widget]:
        """The tasks, how many there are, and what is under the cursor."""
        yield Listing(COLUMNS, empty="", id="tasks")
        yield Static("", id="status", markup=False)
        with VerticalScroll(id="told"):
            yield Static("", id="words", markup=False)

    def on_mount(self) -> None:
        """Keys go to the list."""
        self.add_class("-unplanned")
        self.query_one(Listing).focus()

    # --- looking ------------------------------------------------------------------------------------------------

    def question(self) -> Everything:
        """All of them, always."""
        return Everything()

    def gather(self, question: Everything) -> Picture:  # noqa: ARG002 - there is one question
        """Read in a thread."""
        return Picture(self._plans.read(), self._book.read(), self.desk.now())

    def paint(self, question: Everything, found: Picture) -> None:  # noqa: ARG002 - there is one question
        """Show them."""
        self._found, self._looked, self._ticks = found, True, 0
        self.set_class(not found.plans, "-unplanned")
        self._draw()
        self._watch_dialog()

    def tick(self) -> None:
        """Ages grow; and now and then what changes without a word is looked at again."""
        if self._looked:
            self._draw()
        self._ticks += 1
        if self._ticks >= AGAIN and self.away is None:
            self._ticks = 0
            self.action_look()

    def _now(self) -> datetime:
        taken = self._found.taken_at
        return taken if self.overview is None else max(taken, self.overview.taken_at)

    # --- drawing ------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        now = self._now()
        self._steps, self._operations = {}, {}
        members = {
            str(task): tuple(found)
            for task, found in groupby(self._found.tasks.members, key=lambda one: one.operation.task)
        }
        groups = [self._planned(look, members.pop(look.view.task, ()), now) for look in self._found.plans]
        groups += [self._bare(found) for found in members.values()]
        groups.sort(key=lambda one: one[0], reverse=True)  # stable: what is of one time stays as it was read
        self._firsts = tuple(rows[0].key for _, rows in groups)
        self.query_one(Listing).show([row for _, rows in groups for row in rows], empty=EMPTY)
        self.query_one("#status", Static).update(line(self._summary(now)))
        self._tell(now)

    def _planned(self, look: PlanLook, mine: Sequence[Member], now: datetime) -> tuple[datetime, list[Row]]:
        """The rows of a task with a plan, and when something was written about it last."""
        view = look.view
        ids = {one.id for one in view.steps}
        by_step = {str(one.operation.step): one.operation for one in mine if one.operation.step in ids}
        rows = list(rows_of(look, by_step, now))
        self._steps[task_key(view.task)] = (look, None)
        for one in view.steps:
            key = step_key(view.task, one.id)
            self._steps[key] = (look, one.id)
            if one.id in by_step:
                self._operations[key] = by_step[one.id]
        others = [one for one in mine if by_step.get(str(one.operation.step)) is not one.operation]
        rows += [self._row(one, begins=False) for one in others]
        times = [view.last_at, *(one.operation.created_at for one in mine)]
        return max((at for at in times if at is not None), default=now), rows

    def _bare(self, members: tuple[Member, ...]) -> tuple[datetime, list[Row]]:
        """The rows of operations that only bear a task's name, and when the newest of them was made."""
        rows = [self._row(one, begins=not place) for place, one in enumerate(members)]
        return max(one.operation.created_at for one in members), rows

    def _row(self, one: Member, *, begins: bool) -> Row:
        op = one.operation
        self._operations[op.operation_id] = op
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

    def _summary(self, now: datetime) -> str:
        tasks, looks = self._found.tasks, self._found.plans
        names = {one.operation.task for one in tasks.members} | {look.view.task for look in looks}
        going = {one.operation.task for one in tasks.members if one.operation.state not in TERMINAL}
        words = f"{len(names):,} tasks, {len(going):,} with open operations, {len(tasks.members):,} operations"
        if looks:
            wait, ended = waiting(looks, now), sum(look.ended for look in looks)
            words = f"{counted(len(looks), 'plan')}, {wait:,} waiting, {ended:,} ended; {words}"
        if len(looks) == plans.MOST:
            words += f"; the {plans.MOST:,} plans that were written about last"
        return words + (f"; looked for among the newest {tasks.searched:,} operations only" if tasks.partial else "")

    def _told(self, now: datetime) -> Text:
        key = self.query_one(Listing).key or ""
        op = self._operations.get(key)
        if key not in self._steps:
            return Text("") if op is None else operation_told(op, now)
        look, step = self._steps[key]
        one = next((one for one in look.view.steps if one.id == step), None)
        return task_told(look, now) if one is None else step_told(look, one, op, now)

    def _tell(self, now: datetime) -> None:
        self.query_one("#words", Static).update(self._told(now))

    # --- the cursor ---------------------------------------------------------------------------------------------

    def action_task(self, by: int) -> None:
        """Go to the first row of the next task, or of the one before."""
        listing = self.query_one(Listing)
        places = {row.key: place for place, row in enumerate(listing.rows)}
        here = listing.place or 0
        first = [places[key] for key in self._firsts if key in places]
        there = (
            [place for place in first if place > here][:1]
            if by > 0
            else [place for place in first if place < here][-1:]
        )
        for place in there:
            listing.go_to(listing.rows[place].key)

    @on(Listing.Moved)
    def _moved(self) -> None:
        if self._looked:
            self._tell(self._now())
            self.query_one("#told").scroll_home(animate=False)
        self.refresh_bindings()

    @on(Listing.Picked)
    def _picked(self, message: Listing.Picked) -> None:
        op = self._operations.get(message.key)
        if op is not None:
            self.post_message(Opened(op.operation_id))
        elif message.key in self._steps:
            look, step = self._steps[message.key]
            heading, about = ("TASK", look.view.task) if step is None else ("STEP", f"{look.view.task} / {step}")
            self.app.push_screen(TextPanel(heading, self._told(self._now()).plain, about=about))

    # --- answering ----------------------------------------------------------------------------------------------

    def _asked(self) -> tuple[PlanLook, Question] | None:
        """The question under the cursor: of the step, or of the task the first one that is open."""
        found = self._steps.get(self.query_one(Listing).key or "")
        if found is None:
            return None
        look, step = found
        asked = look.question(step) if step is not None else next(iter(look.view.questions), None)
        return None if asked is None else (look, asked)

    def why_not(self, action: str) -> str | None:
        """Say why no question can be answered here and now."""
        if action != "answer":
            return super().why_not(action)
        found = self._asked() if self.is_mounted else None
        if found is None:
            return "there is no open question here"
        if self.desk.read_only:
            return "this console is read-only"
        if self.away is not None:
            return f"the database is away: {self.away}"
        who = human.actor(self.desk.settings.operator)
        if who.kind is ActorKind.AGENT:
            return f"{who.name} is an agent; only a person may answer"
        look, asked = found
        if look.plan is None:
            return f"its plan is not in the folder of this console; there: {command_for(asked)}"
        return named(look.problem, look) if look.problem is not None else None

    def action_answer(self) -> None:
        """Read the question once more, and ask for the answer."""
        found = self._asked()
        if found is not None and found[0].plan is not None and not self._busy and self._dialog is None:
            self._busy = True
            self._read_sheet(found[0].plan, found[1])

    @work(thread=True, group="sheet", exit_on_error=False)
    def _read_sheet(self, plan: str, asked: Question) -> None:
        try:
            self.post_message(SheetReady(plans.sheet_of(self.desk, plan, asked.step, asked.asked_at)))
        except OpledgerError as error:
            self.post_message(AnswerDone(error.message, "THE QUESTION CANNOT BE ANSWERED"))

    @on(SheetReady)
    def _show_dialog(self, message: SheetReady) -> None:
        self._busy = False
        if self.is_current:
            self._dialog = AnswerDialog(message.sheet)
            self.app.push_screen(self._dialog, self._answered)

    def _watch_dialog(self) -> None:
        """Where the question was answered elsewhere, or asked anew, nothing can be confirmed any more."""
        if self._dialog is None:
            return
        sheet = self._dialog.sheet
        look, _ = self._steps.get(task_key(sheet.task), (None, None))
        asked = None if look is None else look.question(sheet.step)
        if asked is None or asked.asked_at != sheet.asked_at:
            self._dialog.record_moved(f"the question of step {sheet.step} is not open any more")

    def _answered(self, given: TaskAnswer | None) -> None:
        self._dialog = None
        if given is None:
            self.say("nothing was done", timeout=3)
            return
        self._busy = True
        self.say(f"recording: the answer to step {given.step} …", timeout=120)
        self._carry_out(given)

    @work(thread=True, group="deed", exit_on_error=False)
    def _carry_out(self, given: TaskAnswer) -> None:
        try:
            self.post_message(AnswerDone(plans.answer(self.desk, given)))
        except StoreUnavailable as error:
            # The answer to a commit can be lost like any other.
            self.post_message(LedgerAway(error.message))
            words = f"{error.message}; look whether it was recorded before answering again"
            self.post_message(AnswerDone(words, "NOBODY KNOWS WHETHER IT WAS RECORDED"))
        except OpledgerError as error:
            self.post_message(AnswerDone(error.message, "NOTHING WAS DONE"))

    @on(AnswerDone)
    def _tell_answer(self, message: AnswerDone) -> None:
        self._busy = False
        if message.heading is None:
            self.say(message.words)
        else:
            self.say("", timeout=0.1)
            self.app.push_screen(TextPanel(message.heading, message.words))
        self.action_look()
