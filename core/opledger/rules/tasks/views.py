"""A task as people and programs see it: frozen values, made from its records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opledger.rules.model import to_rfc3339
from opledger.rules.tasks.ahead import Need
from opledger.rules.tasks.plan import Plan
from opledger.rules.tasks.records import Kind, Record
from opledger.rules.tasks.story import Stand, Standing, Story, kind_of


@dataclass(frozen=True, slots=True)
class Outline:
    """A step as far as it must be known to be shown."""

    id: str
    title: str
    kind: str  #: submit, run, agent or ask
    repeatable: bool


@dataclass(frozen=True, slots=True)
class StepView:
    """One step: its state (done, verified, intent, open, waiting), and the record that it follows from."""

    id: str
    title: str
    kind: str
    state: str
    proof: Mapping[str, Any]
    outputs: Mapping[str, Any]
    by: str | None
    at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """A question that nobody has answered yet."""

    step: str
    question: str
    answers: tuple[str, ...]
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class Decided:
    """What a person decided or answered."""

    step: str | None
    what: str
    by: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task. `state`: running, waiting_human, done or stopped; `waits_for`: the step and who must act, if anybody."""

    task: str
    run: str | None
    state: str
    title: str
    goal: str
    steps: tuple[StepView, ...]
    questions: tuple[Question, ...]
    decisions: tuple[Decided, ...]
    notes: tuple[Decided, ...]
    waits_for: tuple[str, str] | None
    runner: str | None
    began_at: datetime | None
    last_at: datetime | None


def outline_of(plan: Plan) -> tuple[Outline, ...]:
    """The steps of a plan."""
    return tuple(Outline(step.id, step.title, kind_of(step), step.repeatable) for step in plan.steps)


def outline_from(story: Story) -> tuple[Outline, ...]:
    """The steps as the last beginning names them."""
    if story.began is None:
        return ()
    return tuple(
        Outline(str(one["id"]), str(one["title"]), str(one["kind"]), bool(one["repeatable"]))
        for one in story.began.proof["steps"]
    )


def view(
    task: str, story: Story, outline: Sequence[Outline], *, runner: str | None, plan: Plan | None = None
) -> TaskView:
    """Show a task. `runner`: who runs it now; `plan`: where it is at hand, and may be newer than the records."""
    began = {} if story.began is None else story.began.proof
    waits = None if story.outcome is not None else _waits_for(story, outline)
    if runner is not None:
        state = "running"
    elif story.outcome is not None:
        state = story.outcome
    else:
        state = "waiting_human" if waits is not None and story.began is not None else "stopped"
    return TaskView(
        task=task,
        run=story.run,
        state=state,
        title=str(began.get("title", task)) if plan is None else plan.title,
        goal=str(began.get("goal", "")) if plan is None else plan.goal,
        steps=tuple(_step(one, story.of(one.id)) for one in outline),
        questions=tuple(_questions(story)),
        decisions=tuple(_told(record) for record in story.records if record.kind in (Kind.DECISION, Kind.ANSWER)),
        notes=tuple(_told(record) for record in story.records if record.kind is Kind.NOTE and not record.proof),
        waits_for=waits,
        runner=runner,
        began_at=story.records[0].at if story.records else None,
        last_at=story.records[-1].at if story.records else None,
    )


def _waits_for(story: Story, outline: Sequence[Outline]) -> tuple[str, str] | None:
    """The step that is next, and who must act before it goes on; None where a program goes on by itself."""
    for one in outline:
        standing = story.of(one.id)
        if standing.stand is Stand.SETTLED:
            continue
        if one.kind == "agent" and standing.stand is not Stand.FAILED:
            return one.id, "an agent"
        lost = standing.stand is Stand.BEGUN and not one.repeatable
        if standing.stand in (Stand.ASKED, Stand.FAILED) or lost:
            return one.id, "a person"
        return None
    return None


def _step(one: Outline, standing: Standing) -> StepView:
    last = standing.last
    if last is None:
        return StepView(one.id, one.title, one.kind, standing.word, {}, {}, None, None, None)
    return StepView(
        one.id, one.title, one.kind, standing.word, last.proof, last.outputs, last.actor, last.at, last.reason
    )


def _questions(story: Story) -> list[Question]:
    return [
        Question(step, str(asked.proof["question"]), tuple(asked.proof["answers"]), asked.at)
        for step, standing in story.steps.items()
        if standing.stand is Stand.ASKED and (asked := standing.began) is not None
    ]


def _told(record: Record) -> Decided:
    what = record.proof.get("decided") or record.outputs.get("answer") or str(record.kind)
    return Decided(record.step, str(what), record.actor, record.at, record.reason or "")


def document(shown: TaskView, need: Need | None = None, problem: str | None = None) -> dict[str, Any]:
    """The JSON shape of ``task status``. `need` says who must act and what for, `problem` what is wrong with it."""
    return {
        "task": shown.task,
        "run": shown.run,
        "state": shown.state,
        "title": shown.title,
        "goal": shown.goal,
        "steps": [
            {
                "id": one.id,
                "title": one.title,
                "kind": one.kind,
                "state": one.state,
                "proof": dict(one.proof) or None,
                "outputs": dict(one.outputs),
                "by": one.by,
                "at": None if one.at is None else to_rfc3339(one.at),
                "reason": one.reason,
            }
            for one in shown.steps
        ],
        "questions": [
            {
                "step": one.step,
                "question": one.question,
                "answers": list(one.answers),
                "asked_at": to_rfc3339(one.asked_at),
            }
            for one in shown.questions
        ],
        "decisions": [_decided(one) for one in shown.decisions],
        "notes": [_decided(one) for one in shown.notes],
        "needs": None if need is None else {"step": need.step, "who": need.who, "what": need.what, "how": need.how},
        "problem": problem,
        "runner": shown.runner,
    }


def _decided(one: Decided) -> dict[str, Any]:
    return {"step": one.step, "decided": one.what, "by": one.by, "at": to_rfc3339(one.at), "reason": one.reason}
