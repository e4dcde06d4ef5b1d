"""Reads for tasks with a plan: what the ledger's records say, and of plans in this folder the progress file as well.

Also the one deed that there is: a person's answer to a question. Blocks; for threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from opledger.errors import IntegrityBroken, OpledgerError, Refused, StoreUnavailable
from opledger.ledger import Ledger
from opledger.rules.tasks.ahead import Need
from opledger.rules.tasks.plan import Ask
from opledger.rules.tasks.records import Kind, Record
from opledger.rules.tasks.story import Verdict, tell
from opledger.rules.tasks.views import Decided, Question, TaskView, outline_from, view
from opledger.store.tasks import TaskHead
from opledger.tasks import Task
from opledger.tasks.papers import PLAN, Papers
from opledger.tasks.reading import read_records
from opledger_console.desk import Desk
from opledger_console.pages.plans import AnswerSheet, PlanLook, briefs_of
from opledger_console.verdicts import TaskAnswer

MOST: Final = 200
"""How many tasks are shown, those that were written about last."""

FILES: Final = 200
"""How many plans of a folder are looked at."""

SPARING: Final = 20
"""Looking at plans and progress files may take one part in so many of the time, while nothing seems to change."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A task as it was read, with what it was read from: the same records say the same."""

    head: TaskHead
    look: PlanLook
    places: frozenset[str]


@dataclass(frozen=True, slots=True)
class _File:
    """What was found at a plan and its progress file. `again` is when it is worth another look, however it seems."""

    seen: tuple[object, ...]
    again: float
    problem: str | None
    need: Need | None


@dataclass
class PlanBook:
    """What is known of tasks with a plan. `folder` is where plans are looked for. Safe to use from several threads."""

    desk: Desk
    folder: Path | None = None
    _known: dict[str, _Known] = field(default_factory=dict)
    _files: dict[Path, _File] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> tuple[PlanLook, ...]:
        """Return the tasks as they are now, the one that was written about last first. Raises StoreUnavailable."""
        with self._lock:
            ledger = self.desk.ledger
            found = {head.task: self._task(ledger, head) for head in ledger.store.tasks.heads(MOST)}
            self._known = found
            if all(one.look.ended for one in found.values()):
                return tuple(one.look for one in found.values())
            here = self._plans()
            return tuple(self._with_file(ledger, one, here) for one in found.values())

    def _task(self, ledger: Ledger, head: TaskHead) -> _Known:
        before = self._known.get(head.task)
        if before is not None and before.head == head:
            if before.look.ended or before.look.unreadable is not None:
                return before
            return replace(before, look=self._run(ledger, before.look))
        try:
            records = read_records(ledger, head.task)
        except IntegrityBroken as error:
            # The others are shown all the same.
            nothing = TaskView(head.task, head.run, "stopped", head.task, "", (), (), (), (), None, None, None, None)
            return _Known(head, PlanLook(nothing, head.records, unreadable=error.message), frozenset())
        story = tell(records)
        shown = view(head.task, story, outline_from(story), runner=None)
        ended, told = story.outcome is not None, briefs_of(shown)
        look = PlanLook(shown, len(records), ended=ended, rebuilt=_rebuilt(records), briefs=told)
        return _Known(head, self._run(ledger, look), frozenset(one.place for one in records))

    def _run(self, ledger: Ledger, look: PlanLook) -> PlanLook:
        """Add who runs the task at this moment."""
        if look.ended:
            return look
        lease = ledger.store.tasks.lease(look.view.task, ledger.clock.now())
        if lease is not None and lease.held:
            shown = replace(look.view, state="running", runner=lease.owner)
            return replace(look, view=shown, runs_until=lease.expires_at)
        waits = look.view.waits_for is not None and bool(look.view.steps)
        shown = replace(look.view, state="waiting_human" if waits else "stopped", runner=None)
        return replace(look, view=shown, runs_until=None)

    # --- plans in this folder -----------------------------------------------------------------------------------

    def _plans(self) -> dict[str, Path]:
        """The plans in the folder of the console, by the mark that their records carry."""
        try:
            folder = Path.cwd() if self.folder is None else self.folder
            paths = sorted(folder.glob(f"*{PLAN}"))[:FILES]
            return {Papers(path).place: path for path in paths}
        except OSError:
            return {}  # a folder that cannot be read has no plan for us

    def _with_file(self, ledger: Ledger, one: _Known, here: dict[str, Path]) -> PlanLook:
        path = next((here[place] for place in sorted(one.places) if place in here), None)
        if path is None or one.look.ended or one.look.unreadable is not None:
            return one.look
        clock = ledger.clock
        seen = (one.head, one.look.view.runner, *map(_stamp, (path, Papers(path).progress)))
        known, begun = self._files.get(path), clock.monotonic()
        if known is None or known.seen != seen or begun >= known.again:
            problem, need = self._status(ledger, path, one.head.task)
            took = clock.monotonic() - begun
            known = self._files[path] = _File(seen, begun + SPARING * took, problem, need)
        name = path.name if self.folder is None else str(path)
        return replace(one.look, plan=name, problem=known.problem, need=known.need)

    def _status(self, ledger: Ledger, path: Path, task: str) -> tuple[str | None, Need | None]:
        """What is wrong with a plan or its progress file, and who is needed."""
        try:
            opened = Task.open(path, ledger, by=self.desk.settings.operator)
            if opened.plan.task != task:
                return f"the plan {path.name} is of task {opened.plan.task} by now", None
            found = opened.status()
        except StoreUnavailable as error:
            ledger.store.tasks.heads(1)  # where the database does not answer either, this says so: it is not the file
            return error.message, None
        except OpledgerError as error:
            return error.message, None
        return found.problem, found.need


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes whenever a file is written; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _rebuilt(records: Sequence[Record]) -> tuple[Decided, str] | None:
    for one in reversed(records):
        if one.kind is Kind.DECISION and one.proof.get("decided") == Verdict.REBUILD:
            told = Decided(None, str(Verdict.REBUILD), one.actor, one.at, one.reason or "")
            return told, str(one.proof.get("because") or "was broken")
    return None


def sheet_of(desk: Desk, plan: Path | str, step: str, asked_at: datetime) -> AnswerSheet:
    """Return what a person is shown before they answer. Raises Refused where the question is not open any more."""
    desk.check_writable()
    task = Task.open(plan, desk.ledger, by=desk.settings.operator)
    asked = _open_question(task, step, asked_at)
    found = task.plan.step(step)
    stops = found.action.stop_on if found is not None and isinstance(found.action, Ask) else ()
    return AnswerSheet(str(plan), task.plan.task, step, asked_at, asked.question, asked.answers, tuple(stops))


def answer(desk: Desk, given: TaskAnswer) -> str:
    """Answer a question as the operator, and say in words what became of it.

    The question must be the one that was looked at. Raises Refused where it is not, for agents, and for a second
    answer; UsageError, ProgressBroken and StoreUnavailable as the command does.
    """
    desk.check_writable()
    task = Task.open(given.plan, desk.ledger, by=desk.settings.operator)
    _open_question(task, given.step, given.asked_at)
    task.answer(given.step, given.answer, reason=given.reason)
    return f"step {given.step} is answered: {given.answer}; the task goes on with: opledger task resume {given.plan}"


def _open_question(task: Task, step: str, asked_at: datetime) -> Question:
    found = task.status()
    if found.problem is not None:
        raise Refused(found.problem)
    asked = next((one for one in found.view.questions if one.step == step), None)
    if asked is None:
        raise Refused(f"the question of step {step} is not open any more; look at the task again")
    if asked.asked_at != asked_at:
        raise Refused(f"step {step} was asked anew meanwhile; look at the question again")
    return asked
