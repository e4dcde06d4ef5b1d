"""The progress of one task, in the two places where it stands: the ledger, and the file beside the plan.

The ledger is written first. So the file may lack the last record, which is mended by itself; every other difference
stops the task, and the file is kept aside. Nothing here trusts one of the two alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from opledger.edges.clock import Clock, new_id
from opledger.errors import IntegrityBroken, Refused
from opledger.ledger import Ledger
from opledger.rules import human
from opledger.rules.model import Actor
from opledger.rules.redact import Redactor
from opledger.rules.tasks.plan import Plan, Step, parse
from opledger.rules.tasks.records import Kind, Record, Unreadable, compare, read, read_all, write
from opledger.rules.tasks.story import Story, kind_of, tell
from opledger.store.tasks import TaskMoved
from opledger.tasks.papers import Papers

TRIES: Final = 20


class ProgressBroken(Refused):
    """The progress file is torn, lost or changed, and a person must decide. Nothing was done."""

    code: ClassVar[str] = "progress_broken"

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


@dataclass(frozen=True, slots=True)
class Draft:
    """A record before it has its number and its time."""

    kind: Kind
    step: Step | None = None
    proof: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None


Judge = Callable[[Story], Draft]


class Book:
    """What is known of one task, and the only hand that adds to it. Raises PlanInvalid and UsageError."""

    def __init__(self, ledger: Ledger, plan: Path, actor: str, redactor: Redactor) -> None:
        self.ledger = ledger
        self.clock: Clock = ledger.clock
        self.papers = Papers(plan)
        self.actor: Actor = human.actor(actor)
        self.redactor = redactor
        source = self.papers.read_plan()
        self.plan: Plan = parse(source, name_hint=str(plan))
        self.source = source.encode()
        self.story = Story()
        self._lines: list[bytes] = []
        self._new_run = new_id("run")

    @property
    def run(self) -> str:
        """The id of the run, which is the ledger's as soon as it has one."""
        if self.story.run is not None:
            return self.story.run
        lease = self.ledger.store.tasks.lease(self.plan.task, self.clock.now())
        return self._new_run if lease is None else lease.run

    @property
    def lines(self) -> bytes:
        """The progress file as it should be."""
        return b"".join(self._lines)

    def look(self) -> Story:
        """Read both places and change neither. Raises ProgressBroken."""
        with self.papers.writing():  # between the two reads a runner may write to both
            self.story = self._read(mend=False)
        return self.story

    def known(self) -> Story:
        """What the ledger knows, whatever the file says."""
        self.story = self._read_ledger()
        return self.story

    def open(self) -> Story:
        """Read both places, and bring the file up to date. A broken one is moved aside. Raises ProgressBroken."""
        with self.papers.writing():
            try:
                self.story = self._read(mend=True)
            except ProgressBroken as broken:
                # Where the ledger knows no step either, a file that is gone would look like a first run the next time.
                if self.papers.progress.exists() and self._read_ledger().steps:
                    aside = self.papers.keep_aside(self.clock.now())
                    message = f"{broken.message} (it is kept as {aside.name})"
                    raise ProgressBroken(message, broken.why) from broken
                raise
        return self.story

    def add(self, judge: Judge, fence: tuple[str, int] | None = None) -> Record:
        """Write down what `judge` makes of the story as it stands; it is asked again where that has moved on.

        The ledger has it when this returns, and the file too. Raises what `judge` raises, ProgressBroken, LeaseLost
        (the fence is stale) and StoreUnavailable. What a runner has done goes into the ledger also where the file was
        broken meanwhile.
        """
        for _ in range(TRIES):
            with self.papers.writing():
                broken: ProgressBroken | None = None
                try:
                    self.story = self._read(mend=True)
                except ProgressBroken as error:
                    if fence is None:
                        raise
                    broken, self.story = error, self._read_ledger()
                record = self._record(judge(self.story))
                try:
                    self._write(record, fence, file=broken is None)
                except TaskMoved:
                    continue
                if broken is not None:
                    raise broken
                return record
        raise Refused(f"task {self.plan.task} changes too fast to be written about; try again")

    def rebuild(self, reason: str) -> Record:
        """Write the file anew from what the ledger knows, because a person decided so. Raises Refused."""
        with self.papers.writing():
            self.story = self._read_ledger()
            data = self._data()
            compared = compare(data, self._lines, self.papers.place)
            if compared.broken is None:
                raise Refused(f"the progress file of {self.plan.task} is in order; there is nothing to rebuild")
            aside = self.papers.keep_aside(self.clock.now()).name if data is not None else None
            proof = {"decided": "rebuild", "because": compared.broken, "aside": aside, "records": len(self._lines)}
            record = self._record(Draft(Kind.DECISION, proof=proof, reason=reason))
            self._write(record, None)
            return record

    def masked(self, value: Any) -> Any:
        """Return a JSON value without known secrets."""
        if isinstance(value, str):
            return self.redactor.mask_text(value)
        if isinstance(value, Mapping):
            return {key: self.masked(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked(inner) for inner in value]
        return value

    # --- pieces -------------------------------------------------------------------------------------------------

    def _has_secret(self, value: Any) -> bool:
        if isinstance(value, str):
            return self.redactor.mask_text(value) != value
        if isinstance(value, Mapping):
            return any(self._has_secret(inner) for inner in value.values())
        return isinstance(value, list | tuple) and any(self._has_secret(inner) for inner in value)

    def _read(self, *, mend: bool) -> Story:
        story = self._read_ledger()
        compared = compare(self._data(), self._lines, self.papers.place)
        if compared.broken is not None:
            again = "" if story.steps else ". The task would then begin anew, with everything that it does outside"
            raise ProgressBroken(
                f"the progress file {self.papers.progress.name} {compared.broken}. Nothing was done. A person may have "
                "it written anew from the ledger, which knows "
                f"{len(self._lines)} records: opledger task decide PLAN --as rebuild --reason R{again}",
                compared.broken,
            )
        if compared.behind and mend:
            self.papers.put(self.papers.progress, self.lines)
        return story

    def _read_ledger(self) -> Story:
        self._lines = self.ledger.store.tasks.lines(self.plan.task)
        try:
            return tell(read(line) for line in self._lines)
        except Unreadable as error:
            raise IntegrityBroken(
                f"a record of task {self.plan.task} in the ledger {error}: it was changed by hand; look at the database"
            ) from error

    def _data(self) -> bytes | None:
        """The progress file, unless it is that of an earlier task which has ended and is archived."""
        data = self.papers.read_progress()
        if data is None or any(self._lines[:1] == [line] for line in data.splitlines(keepends=True)[:1]):
            return data
        try:
            old = tell(read_all(data))
        except Unreadable:
            return data
        if old.outcome is None or old.began is None or old.began.proof["began"] == self.plan.task:
            return data
        archived = self.papers.runs / str(old.run) / self.papers.progress.name
        return None if archived.is_file() and archived.read_bytes() == data else data

    def _record(self, draft: Draft) -> Record:
        outputs, proof = self.masked(draft.outputs), self.masked(draft.proof)
        withheld = [name for name, value in draft.outputs.items() if self._has_secret(value)]
        if withheld and draft.kind is not Kind.ANSWER:
            # With stars in it, it would go on as if it were the value: to a program, or into what is sent.
            outputs = {name: value for name, value in outputs.items() if name not in withheld}
            proof = {**proof, "withheld": withheld}
        return Record(
            seq=len(self._lines) + 1,
            at=self.clock.now(),
            actor=self.actor.name,
            run=self.run,
            step=None if draft.step is None else draft.step.id,
            kind=draft.kind,
            proof=proof,
            outputs=outputs,
            reason=None if draft.reason is None else self.masked(draft.reason),
            fingerprint=None if draft.step is None else draft.step.fingerprint,
            place=self.papers.place,
        )

    def _write(self, record: Record, fence: tuple[str, int] | None, *, file: bool = True) -> None:
        try:
            line = write(record)
        except ValueError as error:
            raise Refused(f"what was to be written about {self.plan.task} cannot be kept: {error}") from error
        self.ledger.store.tasks.append(self.plan.task, record, line, self.clock.now(), fence)
        self._lines.append(line)
        self.story = tell((*self.story.records, read(line)))
        if file:
            self.papers.put(self.papers.progress, self.lines)


def beginning(plan: Plan) -> Draft:
    """The first record of a run, and one more whenever the plan was changed: what the task is, for who has no plan."""
    steps = [
        {"id": step.id, "title": step.title, "kind": kind_of(step), "repeatable": step.repeatable}
        for step in plan.steps
    ]
    proof = {"began": plan.task, "title": plan.title, "goal": plan.goal, "plan": plan.digest, "steps": steps}
    return Draft(Kind.NOTE, proof=proof, reason="the plan as it stands")
