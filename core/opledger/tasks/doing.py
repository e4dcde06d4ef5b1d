"""One step: submit an operation, run a command, ask a person. Intent first, completion only when the checks held."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opledger.edges.files import private_folder
from opledger.errors import ConfigWrong, Refused
from opledger.ledger import Ledger, WaitTimedOut
from opledger.ledger.health import ALIVE
from opledger.rules import fingerprint
from opledger.rules.explain import waits_for_person
from opledger.rules.model import Operation, State
from opledger.rules.questions import QUESTIONS
from opledger.rules.tasks import ahead, templates
from opledger.rules.tasks.ahead import Need
from opledger.rules.tasks.plan import Agent, Ask, Command, Plan, Step, Submit
from opledger.rules.tasks.records import Kind, Record
from opledger.rules.tasks.story import Stand, Story
from opledger.tasks import commands, outputs
from opledger.tasks.book import Book, Draft
from opledger.tasks.checks import Checker, Held
from opledger.tasks.keeper import Keeper
from opledger.tasks.papers import Lock
from opledger.tasks.reading import operation_of

SLICE: Final = 1.0
"""Seconds between two looks at an operation that is waited for."""

NO_WORKER: Final = 15.0
"""Seconds after which a task says that no worker is there to do an operation."""


class Moved(Refused):
    """Somebody decided about the step while it was done; what was decided stands."""

    code = "task_moved"


@dataclass(frozen=True, slots=True)
class Patience:
    """Until when, on the monotonic clock, operations are waited for; None: as long as it takes."""

    until: float | None = None

    def left(self, now: float) -> float:
        """Seconds that are left."""
        return float("inf") if self.until is None else self.until - now


def token_of(plan: Plan, step: Step) -> str:
    """The key of a step: the same on every machine and at every attempt, and another one for another wording."""
    return fingerprint.token_for("", step.fingerprint, task=plan.task, step=step.id)


def environment_of(book: Book, step: Step) -> dict[str, str]:
    """What a command of a step is given: everything that we have, and who it is for."""
    # Behind everything else: a plan says "python", and where no such program is there, ours will do.
    path = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent))))
    return {
        **os.environ,
        "PATH": path,
        "OPLEDGER_TASK": book.plan.task,
        "OPLEDGER_STEP": step.id,
        "OPLEDGER_RUN": book.run,
        "OPLEDGER_STEP_TOKEN": token_of(book.plan, step),
    }


def checker_of(book: Book) -> Checker:
    """What tries the checks of a plan."""
    ledger: Ledger = book.ledger
    return Checker(
        book.papers.folder,
        ledger,
        lambda step: environment_of(book, step),
        book.redactor,
        lambda step: operation_of(ledger, book.plan.task, step.id),
    )


def missing(book: Book, step: Step) -> Need | None:
    """Say what a step needs and has not: a file, or something that an earlier step did not hand on."""
    try:
        for name in step.inputs:
            path = templates.fill_text(name, book.story.outputs)
            if not outputs.is_there(book.papers.folder / path, folder=True):
                how = "put it there and run again: opledger task resume PLAN"
                return Need(step.id, "a person", f"its input {path} is not there", how)
        templates.fill(_texts(step), book.story.outputs)
    except templates.NothingThere as error:
        how = "look at the plan, and at what that step handed on: opledger task status PLAN"
        return Need(step.id, "a person", str(error), how)
    return None


def intent(book: Book, step: Step, **more: Any) -> Draft:
    """The record that stands before an effect: what will be done, and under which key."""
    proof = {"does": step.does[:WORDING], "token": token_of(book.plan, step), **more}
    return Draft(Kind.INTENT, step, proof)


WORDING: Final = 4_000
"""Characters of a step's wording that an intent keeps."""


class Doer:
    """Does the steps of one plan, under the lease of its keeper."""

    def __init__(self, book: Book, keeper: Keeper, patience: Patience) -> None:
        self.book = book
        self.keeper = keeper
        self.patience = patience
        self.checker = checker_of(book)

    # --- what `ahead` asks for ----------------------------------------------------------------------------------

    def begin(self, step: Step) -> Need | None:
        """Begin a step and do it; return who is needed, or None where it is settled."""
        story = self.book.story
        action = step.action
        if isinstance(action, Agent):
            return ahead.work(step, action, None, story)
        lacking = missing(self.book, step)
        if lacking is not None:
            return lacking
        if isinstance(action, Ask):
            proof = {"question": templates.fill_text(action.question, story.outputs), "answers": list(action.answers)}
            self._add(Draft(Kind.QUESTION, step, proof))
            return ahead.question(step, action, story)
        if isinstance(action, Submit):
            self._add(intent(self.book, step))
            return self._submit(step, action)
        files = self._prepare(step, story.of(step.id).began)
        record = self._add(intent(self.book, step, files=files))
        return self._command(step, action, record)

    def go_on(self, step: Step, began: Record) -> Need | None:
        """Go on with a step that was begun by a runner that is no more."""
        if isinstance(step.action, Submit):
            return self._submit(step, step.action)
        assert isinstance(step.action, Command)
        with self._alone(step):
            self._prepare(step, began)
        return self._command(step, step.action, began)

    def look_for(self, step: Step, began: Record) -> Need | None:
        """Look whether a step that may not be repeated has happened after all."""
        with self._alone(step):
            pass
        if step.checks:
            held = self.checker.try_all(step, self.book.story.outputs, going=self.keeper.check)
            if held.ok:
                proof = {"checks": list(held.proofs), "token": began.proof.get("token"), "found": True}
                self._add(Draft(Kind.COMPLETED, step, proof, reason="it was looked for, and it had happened"))
                return None
        return ahead.unknown(step, began)

    def verify(self, step: Step) -> Held:
        """Try the proof of a settled step again."""
        settled = self.book.story.of(step.id).settled
        if isinstance(step.action, Ask) or settled is None:
            return Held()
        return self.checker.try_all(step, self.book.story.outputs, before=settled.proof, going=self.keeper.check)

    # --- operations ---------------------------------------------------------------------------------------------

    def _submit(self, step: Step, action: Submit) -> Need | None:
        try:
            op = self._submitted(step, action)
        except (Refused, ConfigWrong) as error:
            if operation_of(self.book.ledger, self.book.plan.task, step.id) is None:
                self._failed(step, {"submitted": False}, error.message)  # so the step may be mended
            raise
        found = self._wait(step, op)
        if isinstance(found, Need):
            return found
        held = self.checker.try_all(step, self.book.story.outputs, going=self.keeper.check)
        proof = {"operation_id": found.operation_id, "state": str(found.state), "checks": list(held.proofs)}
        if held.ok:
            self._add(Draft(Kind.COMPLETED, step, proof, _outputs_of(found)))
            return None
        return self._failed(step, {"operation_id": found.operation_id, "state": str(found.state)}, held.why or "")

    def _submitted(self, step: Step, action: Submit) -> Operation:
        return self.book.ledger.submit(
            action.contract,
            templates.fill(action.body, self.book.story.outputs),
            requested_by=self.book.actor.name,
            expectation=action.expect,
            tags=dict(action.tags),
            create_deadline=action.create_deadline,
            result_deadline=action.result_deadline,
            task=self.book.plan.task,
            step=step.id,
        )

    def _wait(self, step: Step, op: Operation) -> Operation | Need:
        """Wait until an operation has ended. Raises WaitTimedOut where our patience ends first."""
        ledger, alone_since = self.book.ledger, None
        while True:
            self.keeper.check()
            now = ledger.clock.monotonic()
            left = self.patience.left(now)
            try:
                op = ledger.wait(op.operation_id, max(0.0, min(SLICE, left)))
            except WaitTimedOut:
                if left <= SLICE:
                    raise
            if op.state.terminal:
                return op
            if waits_for_person(op):
                return person(step, op)
            alive = any(ledger.clock.now() - life.heartbeat < ALIVE for life in ledger.store.workers())
            alone_since = None if alive else (alone_since or now)
            if alone_since is not None and now - alone_since >= NO_WORKER:
                what = f"no worker is alive to do {op.operation_id}, which is {op.state}"
                return Need(step.id, "an operator", what, "start one: opledger worker")

    # --- commands -----------------------------------------------------------------------------------------------

    def _command(self, step: Step, action: Command, began: Record) -> Need | None:
        story = self.book.story
        argv = [templates.fill_text(word, story.outputs) for word in action.argv]
        with self._alone(step) as lock:
            ran = commands.run(
                argv,
                self.book.papers.folder,
                environment_of(self.book, step),
                step.timeout,
                clock=self.book.clock,
                going=self.keeper.check,
                lock=lock,
            )
        redactor = self.book.redactor
        proof: dict[str, Any] = {
            "exit": ran.code,
            "output": commands.shown(ran.out, redactor),
            "error": commands.shown(ran.err, redactor),
            "token": began.proof.get("token"),
        }
        if not ran.ok:
            return self._failed(step, proof, ran.sentence(redactor))
        held = self.checker.try_all(step, story.outputs, going=self.keeper.check)
        if not held.ok:
            return self._failed(step, proof, held.why or "")
        self._add(Draft(Kind.COMPLETED, step, {**proof, "checks": list(held.proofs)}, ran.outputs()))
        return None

    def _alone(self, step: Step) -> _Alone:
        return _Alone(self.book, step, self.keeper)

    def _prepare(self, step: Step, began: Record | None) -> Mapping[str, str | None]:
        """Put the step's files back as they were before its first attempt, or remember how they are."""
        papers = self.book.papers
        kept = papers.run_folder(self.book.run) / f"{step.id}.files"
        if began is not None and "files" in began.proof:
            files: Mapping[str, str | None] = began.proof["files"]
            if files:
                outputs.put_back(papers.folder, private_folder(kept), files)
            return files
        own = self._own_files(step)
        return outputs.remember(papers.folder, private_folder(kept), own) if own else {}

    def _own_files(self, step: Step) -> list[str]:
        """The files that a step makes: those that it checks, and that are neither its inputs nor an earlier step's."""
        given = self.book.story.outputs
        others = {templates.fill_text(name, given) for name in step.inputs}
        for earlier in self.book.plan.steps:
            if earlier.id == step.id:
                break
            others |= {templates.fill_text(name, given) for name in earlier.files}
        return [name for name in (templates.fill_text(name, given) for name in step.files) if name not in others]

    # --- records ------------------------------------------------------------------------------------------------

    def _add(self, draft: Draft) -> Record:
        """Write a record under our lease, if the step still stands where it stood."""
        before = self.book.story.of(draft.step.id).stand if draft.step is not None else None
        self.keeper.check()

        def judge(story: Story) -> Draft:
            if draft.step is not None and story.of(draft.step.id).stand is not before:
                raise Moved(f"step {draft.step.id} was decided about while it was done; what was decided stands")
            return draft

        return self.book.add(judge, self.keeper.fence)

    def _failed(self, step: Step, proof: Mapping[str, Any], why: str) -> Need:
        standing = self.book.story.of(step.id)
        last = standing.failed
        if standing.stand is Stand.FAILED and last is not None and (last.reason, last.proof) == (why, proof):
            return ahead.failed(step, last)
        return ahead.failed(step, self._add(Draft(Kind.FAILED, step, proof, reason=why)))


class _Alone:
    """Waits until no command of a step runs any more, whoever started it, and holds its lock."""

    def __init__(self, book: Book, step: Step, keeper: Keeper) -> None:
        self._path = private_folder(book.papers.runs / ".locks") / f"{book.run}.{step.id}"
        self._step = step
        self._clock = book.clock
        self._keeper = keeper
        self._lock: Lock | None = None

    def __enter__(self) -> Lock:
        ends = self._clock.monotonic() + self._step.timeout.total_seconds() + commands.GRACE
        while (lock := Lock.take(self._path, make=True)) is None:
            self._keeper.check()
            if self._clock.monotonic() >= ends:
                raise Refused(
                    f"the command of step {self._step.id} that an earlier runner started still runs; end it, then run "
                    "the task again"
                )
            self._keeper.pause(commands.LOOK)
        self._lock = lock
        return lock

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.free()


def _texts(step: Step) -> Any:
    """Everything in a step's action that places may stand in."""
    action = step.action
    if isinstance(action, Submit):
        return action.body
    if isinstance(action, Command):
        return list(action.argv)
    return action.question if isinstance(action, Ask) else action.work


def _outputs_of(op: Operation) -> dict[str, Any]:
    result = op.result
    return {
        "operation_id": op.operation_id,
        "job_id": op.remote_job_id,
        "location": None if result is None else result.location,
        "sha256": None if result is None else result.sha256,
    }


def person(step: Step, op: Operation) -> Need:
    """Say who must decide about the operation of a step."""
    who, how = "an operator", f"opledger choices {op.operation_id}, then opledger resolve"
    if op.state is State.AWAITING_APPROVAL:
        who, how = "an approver", f"opledger approve {op.operation_id} --reason R"
    return Need(step.id, who, f"{op.operation_id} is {op.state}: {QUESTIONS[op.state]}", how)
