"""`Task`: a plan, opened. What the commands do, and what an agent's own program does in their place.

with Task.open("monthly.plan.toml", by="agent-7") as task:
    need = task.run()                       # None: it has ended
    with task.step("review") as step:       # intent first; the checks when the block ends; then the completion
        write_review(step.outputs["convert"]["rows"])
        step.hand_on(words=812)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from opledger.errors import Refused, UsageError
from opledger.ledger import Ledger, Span
from opledger.ledger.reading import span
from opledger.rules import human
from opledger.rules.explain import waits_for_person
from opledger.rules.tasks import ahead as rules
from opledger.rules.tasks import deciding, templates
from opledger.rules.tasks.ahead import Need
from opledger.rules.tasks.plan import Agent, Plan, Step, Submit
from opledger.rules.tasks.records import Kind, Record
from opledger.rules.tasks.story import PlanChanged, Stand, Story, Verdict
from opledger.rules.tasks.views import TaskView, outline_of, view
from opledger.tasks import runner
from opledger.tasks.book import Book, Draft, ProgressBroken
from opledger.tasks.doing import Patience, checker_of, intent, missing, person, token_of
from opledger.tasks.keeper import Keeper
from opledger.tasks.masking import redactor_of
from opledger.tasks.reading import operation_of, runner_of


class AlreadyDone(Refused):
    """The step is settled already; `outputs` are what it handed on. Nothing is to be done again."""

    code: ClassVar[str] = "already_done"

    def __init__(self, message: str, outputs: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.outputs = outputs


@dataclass(slots=True)
class Work:
    """A claimed step: what to do, under which key, and what earlier steps handed on (by step, then name)."""

    step: str
    work: str
    token: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, Mapping[str, Any]]
    claimed_by: str
    handed_on: dict[str, Any] = field(default_factory=dict)

    def hand_on(self, **outputs: Any) -> None:
        """Say what later steps get: JSON values."""
        self.handed_on.update(outputs)


@dataclass(frozen=True, slots=True)
class Status:
    """How a task stands: the view, who must act next (if anybody), and what is wrong (if anything)."""

    view: TaskView
    need: Need | None = None
    problem: str | None = None


class Task:
    """One plan and its progress. Raises UsageError, PlanInvalid; every method also StoreUnavailable, ProgressBroken."""

    def __init__(self, ledger: Ledger, plan: Path, by: str | None = None, *, owns: bool = False) -> None:
        actor = ledger.settings.operator if by is None else by
        self._book = Book(ledger, plan, actor, redactor_of(ledger.settings))
        self._ledger = ledger
        self._owns = owns

    @classmethod
    def open(cls, plan: Path | str, ledger: Ledger | str | None = None, *, by: str | None = None) -> Self:
        """Open a plan on a ledger, on the ledger at a URL, or on the one that settings name. `by`: who acts."""
        opened = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        try:
            return cls(opened, Path(plan), by, owns=not isinstance(ledger, Ledger))
        except BaseException:
            if not isinstance(ledger, Ledger):
                opened.close()
            raise

    def close(self) -> None:
        """Close the ledger, if this task opened it."""
        if self._owns:
            self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def plan(self) -> Plan:
        """The plan as it was read."""
        return self._book.plan

    @property
    def archive(self) -> Path:
        """The folder of this run: after its end, plan, progress and ``summary.md``."""
        return self._book.papers.runs / self._book.run

    # --- looking ------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """Say how the task stands; reads and changes nothing. A broken progress file is a `problem`, and so is a plan
        that was changed under what is done.
        """
        book, problem, need = self._book, None, None
        try:
            story = book.look()
        except ProgressBroken as broken:
            story, problem = book.known(), broken.message
            need = Need(None, "a person", broken.message, "decide: opledger task decide PLAN --as rebuild --reason R")
        else:
            try:
                need = self._need(rules.ahead(book.plan, story, verified=story.settled), story)
            except PlanChanged as changed:
                problem = changed.message
        who = runner_of(self._ledger, book.plan.task)
        if who is not None and problem is None:
            need = None  # what looks lost or open is being done; who decided about it now would be refused
        shown = view(book.plan.task, story, outline_of(book.plan), runner=who, plan=book.plan)
        if problem is not None and shown.state == "waiting_human":
            shown = replace(shown, state="stopped")
        elif need is not None and problem is None and shown.state == "stopped" and story.began is not None:
            shown = replace(shown, state="waiting_human")
        return Status(shown, need, problem)

    def outcome(self, step_id: str) -> Mapping[str, Any] | None:
        """Return what a step handed on; None where it is not settled yet."""
        deciding.step_of(self.plan, step_id)
        settled = self._book.look().of(step_id).settled
        return None if settled is None else settled.outputs

    # --- going on -----------------------------------------------------------------------------------------------

    def run(self, timeout: Span | None = None) -> Need | None:
        """Begin or go on: verify the last proof, then do what is next. Return who is needed; None at the end.

        `timeout` bounds the waiting for operations (WaitTimedOut; nothing is lost). Raises AlreadyRun, PlanChanged,
        LeaseLost, and what a step raises.
        """
        length = span(timeout, "the timeout", least=timedelta(0))
        clock = self._ledger.clock
        return runner.run(self._book, Patience(None if length is None else clock.monotonic() + length.total_seconds()))

    def resume(self, timeout: Span | None = None) -> Need | None:
        """As `run`, for a task that has begun already. Raises Refused for one that has not."""
        if not self._book.known().records and self._book.papers.read_progress() is None:
            raise Refused(
                f"task {self.plan.task} has not begun here, or in this ledger; begin it: opledger task run PLAN"
            )
        return self.run(timeout)

    # --- an agent's work ----------------------------------------------------------------------------------------

    def claim(self, step_id: str, *, take_over: bool = False) -> Work:
        """Claim a step for an agent: the intent is on record when this returns. Raises AlreadyDone, Refused."""
        with self._keeper() as keeper:
            return self._claim(keeper, step_id, take_over=take_over)

    def done(self, step_id: str, outputs: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Say that a claimed step is done: its checks are tried, and only then is it on record.

        Return what the step handed on; of a step that is settled already, what it handed on then. Raises Refused where
        a check does not hold.
        """
        with self._keeper() as keeper:
            settled = self._book.open().of(step_id).settled
            if settled is not None:
                return settled.outputs
            return self._done(keeper, step_id, outputs or {})

    @contextmanager
    def step(self, step_id: str, *, take_over: bool = False) -> Iterator[Work]:
        """Do an agent's step in this process: claim, the block, checks, completion.

        Nobody else runs the task meanwhile. An exception of the block is recorded as a failure where the step may be
        repeated; else the intent stands, and a person is asked. Raises AlreadyDone before the block where the step is
        settled, Refused where it is not next or a check does not hold after the block.
        """
        with self._keeper() as keeper:
            work = self._claim(keeper, step_id, take_over=take_over)
            step = deciding.step_of(self.plan, step_id)
            try:
                yield work
            except Exception as error:
                if step.repeatable:
                    why = f"{type(error).__name__}: {error}"[:2_000]
                    self._book.add(lambda _: Draft(Kind.FAILED, step, {"raised": True}, reason=why), keeper.fence)
                raise
            self._done(keeper, step_id, work.handed_on)

    def _claim(self, keeper: Keeper, step_id: str, *, take_over: bool) -> Work:
        book, step = self._book, deciding.step_of(self.plan, step_id)
        if not isinstance(step.action, Agent):
            raise Refused(f"step {step_id} is no work for an agent; the task does it by: opledger task run PLAN")
        book.open()
        settled = book.story.of(step_id).settled
        if settled is not None:
            raise AlreadyDone(f"step {step_id} was settled by {settled.actor}; nothing is to be done", settled.outputs)
        runner.reach(book, keeper, step)
        lacking = missing(book, step)
        if lacking is not None:
            raise Refused(lacking.sentence())

        def judge(story: Story) -> Draft:
            deciding.claiming(story, book.actor, step, take_over=take_over)
            return intent(book, step)

        standing = book.story.of(step_id)
        deciding.claiming(book.story, book.actor, step, take_over=take_over)
        if standing.stand is not Stand.BEGUN or standing.began is None or standing.began.actor != book.actor.name:
            book.add(judge, keeper.fence)
        given = book.story.outputs
        return Work(
            step_id,
            templates.fill_text(step.action.work, given),
            token_of(self.plan, step),
            tuple(templates.fill_text(name, given) for name in step.inputs),
            given,
            book.actor.name,
        )

    def _done(self, keeper: Keeper, step_id: str, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        book, step = self._book, deciding.step_of(self.plan, step_id)
        deciding.proving(book.story, book.actor, step)
        runner.reach(book, keeper, step)
        held = checker_of(book).try_all(step, book.story.outputs, going=keeper.check)
        if not held.ok:
            raise Refused(f"step {step_id} is not done: {held.why}")
        proof = {"checks": list(held.proofs)}
        record = book.add(lambda _: Draft(Kind.COMPLETED, step, proof, dict(outputs)), keeper.fence)
        return record.outputs

    # --- people -------------------------------------------------------------------------------------------------

    def answer(self, step_id: str, answer: str, *, reason: str) -> Record:
        """Answer a question. Raises Refused for agents, for a second answer, and for what is no answer."""
        because = human.reason(reason)

        def judge(story: Story) -> Draft:
            step = deciding.answering(self.plan, story, self._book.actor, step_id, answer)
            return Draft(Kind.ANSWER, step, outputs={"answer": answer}, reason=because)

        return self._book.add(judge)

    def decide(
        self,
        step_id: str | None,
        verdict: Verdict | str,
        *,
        reason: str,
        outputs: Mapping[str, Any] | None = None,
    ) -> Record:
        """Decide what no program may: repeat, done or skip of a step, or ``rebuild`` of the progress file (no step).

        Raises Refused for agents and for what cannot be decided, AlreadyRun while the task is run.
        """
        if verdict not in list(Verdict):
            raise UsageError(f"{verdict!r} is no decision; there are: {', '.join(Verdict)}")
        because, decided = human.reason(reason), Verdict(verdict)
        if (decided is Verdict.REBUILD) is not (step_id is None):
            raise UsageError("rebuild is about the progress file and takes no step; every other decision takes one")
        deciding.a_person(self._book.actor, "decide about a task")
        with self._keeper():
            if step_id is None:
                return self._book.rebuild(because)
            self._book.open()

            def judge(story: Story) -> Draft:
                step: Step = deciding.deciding(self.plan, story, self._book.actor, str(step_id), decided)
                before = story.of(step.id).settled
                kept = dict(before.outputs) if before is not None and decided is Verdict.DONE else {}
                return Draft(Kind.DECISION, step, {"decided": str(decided)}, {**kept, **(outputs or {})}, because)

            return self._book.add(judge)

    def note(self, text: str) -> Record:
        """Write a remark down; it changes nothing else."""
        remark = human.reason(text)
        return self._book.add(lambda _: Draft(Kind.NOTE, reason=remark))

    def _need(self, found: rules.Next, story: Story) -> Need | None:
        """Who is needed, as far as that can be said without trying anything."""
        if isinstance(found, Need):
            return found
        if isinstance(found, rules.LookFor):
            return rules.unknown(found.step, found.began)
        if isinstance(found, rules.Begin) and isinstance(found.step.action, Agent):
            return rules.work(found.step, found.step.action, None, story)
        if isinstance(found, rules.Begin):
            standing = story.of(found.step.id)
            if standing.stand is Stand.FAILED and standing.failed is not None:
                return rules.failed(found.step, standing.failed)
        if isinstance(found, rules.GoOn) and isinstance(found.step.action, Submit):
            op = operation_of(self._ledger, self.plan.task, found.step.id)
            return person(found.step, op) if op is not None and waits_for_person(op) else None
        return None

    def _keeper(self) -> Keeper:
        book, settings = self._book, self._ledger.settings
        return Keeper(
            self._ledger.store,
            book.papers,
            book.clock,
            task=book.plan.task,
            run=book.run,
            lease=settings.worker.lease,
        )
