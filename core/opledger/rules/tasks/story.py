"""Many records as one standing for each step, and whether a plan still fits what has been done under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from opledger.errors import Refused
from opledger.rules.model import to_rfc3339
from opledger.rules.tasks.plan import Agent, Ask, Command, Plan, Step, Submit
from opledger.rules.tasks.records import Kind, Record


class Stand(StrEnum):
    """How far a step is."""

    OPEN = "open"
    BEGUN = "begun"  #: an intent without a completion
    ASKED = "asked"
    FAILED = "failed"
    SETTLED = "settled"


class Verdict(StrEnum):
    """What a person may decide about a step, or about the progress file."""

    REPEAT = "repeat"
    DONE = "done"
    SKIP = "skip"
    REBUILD = "rebuild"


SHOWN: Final = 300
"""Characters of a step's wording that a refusal shows."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one step is, and the records that say so."""

    stand: Stand = Stand.OPEN
    began: Record | None = None
    settled: Record | None = None
    failed: Record | None = None
    verified: Record | None = None

    @property
    def last(self) -> Record | None:
        """The record that its standing follows from."""
        return self.settled or self.failed or self.began

    @property
    def fingerprint(self) -> str | None:
        """What the step was when it was last begun or settled."""
        last = self.settled or self.began or self.failed
        return None if last is None else last.fingerprint

    @property
    def never_sent(self) -> bool:
        """True where the ledger refused the step's operation, so that there is none."""
        return self.stand is Stand.FAILED and self.failed is not None and self.failed.proof.get("submitted") is False

    @property
    def by_decision(self) -> bool:
        """True where a person settled it: there is no proof to try again."""
        return self.settled is not None and self.settled.kind is Kind.DECISION

    @property
    def word(self) -> str:
        """The state as people and programs see it: done, verified, intent, open or waiting."""
        if self.stand is Stand.SETTLED:
            return "verified" if self.verified is not None else "done"
        return {Stand.OPEN: "open", Stand.BEGUN: "intent"}.get(self.stand, "waiting")


@dataclass(frozen=True, slots=True)
class Story:
    """What the records of a task say. `began` and `ended` are the notes at both ends of the run."""

    records: tuple[Record, ...] = ()
    steps: Mapping[str, Standing] = field(default_factory=dict)
    began: Record | None = None
    ended: Record | None = None

    @property
    def run(self) -> str | None:
        """The id of the run; None before it has begun."""
        return self.records[0].run if self.records else None

    @property
    def outcome(self) -> str | None:
        """How the run ended: done or stopped; None while it has not."""
        return None if self.ended is None else str(self.ended.proof["ended"])

    def of(self, step_id: str) -> Standing:
        """How far a step is."""
        return self.steps.get(step_id, _OPEN)

    @property
    def outputs(self) -> dict[str, Mapping[str, Any]]:
        """What each settled step handed on."""
        return {step: standing.settled.outputs for step, standing in self.steps.items() if standing.settled is not None}

    @property
    def settled(self) -> tuple[str, ...]:
        """The steps that are settled, in the order in which they were begun."""
        return tuple(step for step, standing in self.steps.items() if standing.stand is Stand.SETTLED)


_OPEN: Final = Standing()


def tell(records: Iterable[Record]) -> Story:
    """Fold records, in order, into a story."""
    found = tuple(records)
    steps: dict[str, Standing] = {}
    began = ended = None
    for record in found:
        if record.step is not None:
            steps[record.step] = _after(steps.get(record.step, _OPEN), record)
            if record.kind is Kind.DECISION:
                ended = None  # what a person decides anew goes on
        elif record.kind is Kind.NOTE and "began" in record.proof:
            began = record
        elif record.kind is Kind.NOTE and "ended" in record.proof:
            ended = record
    return Story(found, steps, began, ended)


def _after(before: Standing, record: Record) -> Standing:
    if record.kind is Kind.INTENT:
        return Standing(Stand.BEGUN, began=record)
    if record.kind is Kind.QUESTION:
        return Standing(Stand.ASKED, began=record)
    if record.kind is Kind.FAILED:
        return Standing(Stand.FAILED, began=before.began, failed=record)
    if record.kind in (Kind.COMPLETED, Kind.ANSWER):
        return Standing(Stand.SETTLED, began=before.began, settled=record)
    if record.kind is Kind.VERIFIED:
        return replace(before, verified=record)
    if record.kind is Kind.DECISION:
        if record.proof.get("decided") == Verdict.REPEAT:
            return _OPEN
        return Standing(Stand.SETTLED, began=before.began, settled=record)
    return before


# --- a plan that was changed -------------------------------------------------------------------------------------


class PlanChanged(Refused):
    """The plan does not fit what was done under it; the message names the steps. Nothing was done."""

    code: ClassVar[str] = "plan_changed"


def check_plan(plan: Plan, story: Story) -> None:
    """Raise PlanChanged where steps that are begun or settled are gone, moved or reworded in the plan."""
    if story.began is not None and story.began.proof["began"] != plan.task:
        raise PlanChanged(f"the plan is of task {plan.task!r} and the progress of {story.began.proof['began']!r}")
    told = [
        trouble
        for step_id, standing in story.steps.items()
        if standing.stand is not Stand.OPEN
        for trouble in _troubles(plan.step(step_id), step_id, standing)
    ]
    if not told:
        settled = story.settled
        if plan.ids[: len(settled)] != settled:
            late = [step for step in plan.ids[: len(settled)] if step not in settled]
            what = f"{', '.join(late)} now stands before" if late else "the order was changed of"
            told = [f"{what} {', '.join(settled)}, which {'is' if len(settled) == 1 else 'are'} settled"]
    if told:
        raise PlanChanged(
            f"the plan of {plan.task} was changed under what was done already: {'; '.join(told)}. Put it back, or add "
            "steps at the end; a person may also decide about a step: opledger task decide"
        )


def _troubles(step: Step | None, step_id: str, standing: Standing) -> Iterable[str]:
    last = standing.last
    assert last is not None
    when = f"{'settled' if standing.stand is Stand.SETTLED else standing.stand} at {to_rfc3339(last.at)}"
    if step is None:
        yield f"step {step_id} ({when}) is gone"
        return
    if standing.fingerprint == step.fingerprint or _may_be_mended(step, standing):
        return
    was = str(standing.began.proof.get("does", "")) if standing.began is not None else ""
    yield f"step {step_id} ({when}) said {_cut(was) or 'something else'} and now says {_cut(step.does)}"


def _may_be_mended(step: Step, standing: Standing) -> bool:
    """True where nothing outside can be left of the step: it failed, and would be begun anew."""
    if standing.never_sent:
        return True
    return standing.stand is Stand.FAILED and step.repeatable and isinstance(step.action, Command | Agent)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def kind_of(step: Step) -> str:
    """The word for what a step does: submit, run, agent or ask."""
    return {Submit: "submit", Command: "run", Agent: "agent", Ask: "ask"}[type(step.action)]
