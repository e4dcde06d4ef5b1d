"""What is next in a task: one function over plan and story. The runner obeys it, and people read the same words."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from opledger.rules.model import to_rfc3339
from opledger.rules.tasks import templates
from opledger.rules.tasks.plan import Agent, Ask, Command, Plan, Step, Submit
from opledger.rules.tasks.records import Record
from opledger.rules.tasks.story import Stand, Standing, Story, check_plan


@dataclass(frozen=True, slots=True)
class Verify:
    """Try the proof of a settled step again before anything is built on it."""

    step: Step


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a step: write the intent (or the question), then do it."""

    step: Step


@dataclass(frozen=True, slots=True)
class GoOn:
    """A step was begun and may go on or be done again: nothing is doubled by that."""

    step: Step
    began: Record


@dataclass(frozen=True, slots=True)
class LookFor:
    """A step that may not be repeated was begun, and nobody knows whether it happened: look, and never repeat."""

    step: Step
    began: Record


@dataclass(frozen=True, slots=True)
class Need:
    """Somebody must act: who, and what for. `how` is what to type."""

    step: str | None
    who: str
    what: str
    how: str

    def sentence(self) -> str:
        """Say it in one sentence."""
        where = "" if self.step is None else f"step {self.step} "
        return f"{where}needs {self.who}: {self.what}; {self.how}"


@dataclass(frozen=True, slots=True)
class End:
    """Nothing is left to do: write the end of the run, `done` or `stopped`."""

    outcome: str
    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has ended already."""

    outcome: str


Next = Verify | Begin | GoOn | LookFor | Need | End | Ended


def ahead(plan: Plan, story: Story, *, verified: Collection[str] = ()) -> Next:
    """Return what is next. `verified` are the steps whose proof this process has seen hold.

    Raises PlanChanged where the plan does not fit what was done.
    """
    check_plan(plan, story)
    if story.outcome == "stopped" or (story.outcome is not None and len(story.settled) == len(plan.steps)):
        return Ended(story.outcome)  # a plan that was lengthened since goes on
    if story.settled:
        last = plan.step(story.settled[-1])
        if last is not None and last.id not in verified and not story.of(last.id).by_decision:
            return Verify(last)
    for step in plan.steps:
        standing = story.of(step.id)
        if standing.stand is Stand.SETTLED:
            stop = _stops(step, standing)
            if stop is not None:
                return stop
            continue
        return _of_step(step, standing, story)
    return End("done", "every step is settled")


def _of_step(step: Step, standing: Standing, story: Story) -> Next:
    action, began = step.action, standing.began
    if isinstance(action, Ask):
        return Begin(step) if began is None else question(step, action, story)
    if isinstance(action, Submit):
        # The ledger has one operation for a step, however often it is submitted.
        return Begin(step) if began is None or standing.never_sent else GoOn(step, began)
    if standing.stand is Stand.FAILED and standing.failed is not None:
        return Begin(step) if step.repeatable else failed(step, standing.failed)
    if isinstance(action, Command):
        if began is None:
            return Begin(step)
        return GoOn(step, began) if step.repeatable else LookFor(step, began)
    return work(step, action, began, story)


def _stops(step: Step, standing: Standing) -> End | None:
    answer = None if standing.settled is None else standing.settled.outputs.get("answer")
    if isinstance(step.action, Ask) and answer in step.action.stop_on:
        return End("stopped", f"step {step.id} was answered with {answer}")
    return None


# --- who is needed, and what for ---------------------------------------------------------------------------------


def filled(text: str, story: Story) -> str:
    """A text of the plan with what earlier steps handed on, as far as they did."""
    try:
        return templates.fill_text(text, story.outputs)
    except templates.NothingThere:
        return text


def question(step: Step, ask: Ask, story: Story) -> Need:
    """A person must answer."""
    return Need(
        step.id,
        "a person",
        f"{filled(ask.question, story)} ({' / '.join(ask.answers)})",
        f"answer it: opledger task answer PLAN {step.id} ANSWER --reason R",
    )


def work(step: Step, agent: Agent, began: Record | None, story: Story) -> Need:
    """An agent must work, or say that it is done."""
    if began is None:
        how = f"claim it: opledger task claim PLAN {step.id}"
    else:
        how = f"{began.actor} claimed it at {to_rfc3339(began.at)}; when it is done: opledger task done PLAN {step.id}"
    return Need(step.id, "an agent", filled(agent.work, story), how)


def failed(step: Step, record: Record) -> Need:
    """A person must decide about a step that did not come out."""
    choices = "done or skip" if isinstance(step.action, Submit) else "repeat, done or skip"
    how = f"decide ({choices}): opledger task decide PLAN {step.id} --as CHOICE --reason R"
    if isinstance(step.action, Submit):
        how = f"look at its operation, or {how}"
    elif step.repeatable:
        how = f"mend it and run again (opledger task resume PLAN), or {how}"
    return Need(step.id, "a person", f"it failed: {record.reason or 'no reason is recorded'}", how)


def unknown(step: Step, began: Record) -> Need:
    """A person must find out whether a step that may not be repeated has happened."""
    token = began.proof.get("token", "")
    return Need(
        step.id,
        "a person",
        f"it was begun by {began.actor} at {to_rfc3339(began.at)} and nobody knows whether it happened; it may not be "
        f"repeated by a program (its key: {token})",
        f"find out, then decide (repeat, done or skip): opledger task decide PLAN {step.id} --as CHOICE --reason R",
    )
