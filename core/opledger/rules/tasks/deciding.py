"""What people and agents may say about a step, and why not."""

from __future__ import annotations

from opledger.errors import Refused, UsageError
from opledger.rules.model import Actor, ActorKind, to_rfc3339
from opledger.rules.tasks import ahead
from opledger.rules.tasks.plan import Agent, Ask, Plan, Step, Submit
from opledger.rules.tasks.story import Stand, Standing, Story, Verdict


def step_of(plan: Plan, step_id: str) -> Step:
    """Return a step of a plan. Raises UsageError for one that it does not have."""
    step = plan.step(step_id)
    if step is None:
        raise UsageError(f"{plan.task} has no step {step_id!r}; it has: {', '.join(plan.ids)}")
    return step


def a_person(who: Actor, verb: str) -> None:
    """Raise Refused for an agent."""
    if who.kind is not ActorKind.HUMAN:
        raise Refused(f"{who.name} is an agent; only a person may {verb}")


def answering(plan: Plan, story: Story, who: Actor, step_id: str, answer: str) -> Step:
    """Return the step that an answer settles. Raises Refused; the answer to one question counts once."""
    step = step_of(plan, step_id)
    if not isinstance(step.action, Ask):
        raise Refused(f"step {step_id} asks no question")
    a_person(who, f"answer step {step_id}")
    standing = story.of(step_id)
    if standing.settled is not None:
        first = standing.settled
        what = first.outputs.get("answer") or first.proof.get("decided")
        raise Refused(
            f"step {step_id} was answered with {what!r} by {first.actor} at {to_rfc3339(first.at)}; one answer counts"
        )
    if standing.stand is not Stand.ASKED:
        raise Refused(f"step {step_id} has not been asked yet; the task comes to it by: opledger task run PLAN")
    if standing.began is not None and standing.began.fingerprint != step.fingerprint:
        raise Refused(f"the question of step {step_id} was changed since it was asked; put it back")
    if answer not in step.action.answers:
        raise Refused(f"{answer!r} is no answer to step {step_id}; there are: {', '.join(step.action.answers)}")
    return step


def claiming(story: Story, who: Actor, step: Step, *, take_over: bool) -> None:
    """Raise Refused where an agent may not work on a step now."""
    standing = story.of(step.id)
    if standing.failed is not None and not step.repeatable:
        raise Refused(ahead.failed(step, standing.failed).sentence())
    if standing.stand is not Stand.BEGUN or standing.began is None:
        return
    if not step.repeatable:
        raise Refused(ahead.unknown(step, standing.began).sentence())
    if standing.began.actor != who.name and not take_over:
        raise Refused(
            f"step {step.id} was claimed by {standing.began.actor} at {to_rfc3339(standing.began.at)}; whoever knows "
            "that nobody works on it any more may take it over: --take-over"
        )


def proving(story: Story, who: Actor, step: Step) -> None:
    """Raise Refused where somebody may not say that a step is done."""
    if not isinstance(step.action, Agent):
        raise Refused(f"step {step.id} is no work for an agent; the task does it by: opledger task run PLAN")
    began = story.of(step.id).began
    if began is not None and began.actor != who.name and who.kind is ActorKind.AGENT:
        raise Refused(f"step {step.id} was claimed by {began.actor} at {to_rfc3339(began.at)}, not by {who.name}")


def deciding(plan: Plan, story: Story, who: Actor, step_id: str, verdict: Verdict) -> Step:
    """Return the step that a decision is about. Raises Refused for what cannot be decided."""
    step = step_of(plan, step_id)
    a_person(who, f"decide about step {step_id}")
    standing = story.of(step_id)
    if standing.stand is Stand.SETTLED:
        _about_settled(plan, story, step, standing, verdict)
        return step
    first = next(one for one in plan.steps if story.of(one.id).stand is not Stand.SETTLED)
    if first.id != step_id and standing.stand is Stand.OPEN:
        raise Refused(f"step {step_id} is not reached yet; next is step {first.id}")
    if verdict is Verdict.REPEAT:
        if isinstance(step.action, Submit) and not standing.never_sent:
            raise Refused(
                f"step {step_id} has one operation, which stands: decide about that (opledger choices), or settle the "
                "step (done or skip) and add another step to the plan"
            )
        if standing.stand in (Stand.OPEN, Stand.ASKED):
            raise Refused(f"step {step_id} is {standing.stand}; there is nothing to repeat")
    if verdict is Verdict.DONE and isinstance(step.action, Ask):
        raise Refused(f"step {step_id} is a question; answer it: opledger task answer PLAN {step_id} ANSWER --reason R")
    return step


def _about_settled(plan: Plan, story: Story, step: Step, standing: Standing, verdict: Verdict) -> None:
    changed = standing.fingerprint != step.fingerprint
    if verdict is Verdict.DONE and changed:
        return  # what was done stands for the step as it is worded now
    if verdict is Verdict.REPEAT and isinstance(step.action, Submit):
        raise Refused(f"step {step.id} has one operation, which stands; add another step to the plan")
    if verdict is Verdict.REPEAT and story.settled[-1] == step.id:
        return
    settled = standing.settled
    when = "" if settled is None else f" by {settled.actor} at {to_rfc3339(settled.at)}"
    raise Refused(
        f"step {step.id} was settled{when}; only the last settled step can be repeated ({story.settled[-1]} of "
        f"{plan.task}), and a step that was reworded be called done"
    )
