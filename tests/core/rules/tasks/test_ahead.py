from __future__ import annotations

from typing import Any

import pytest

from opledger.errors import Refused, UsageError
from opledger.rules.model import Actor, ActorKind
from opledger.rules.tasks.ahead import Begin, End, Ended, GoOn, LookFor, Need, Verify, ahead
from opledger.rules.tasks.deciding import answering, claiming, deciding, proving
from opledger.rules.tasks.plan import Plan
from opledger.rules.tasks.story import PlanChanged, Verdict
from opledger.rules.tasks.summary import summary
from opledger.rules.tasks.views import document, outline_from, outline_of, view
from tests.core.rules.tasks.telling import ALL, CONVERT, CREATE, PUBLISH, REVIEW, TELL, plan, settled, story

PLAN = plan()
ANA = Actor("ana")
AGENT = Actor("agent-7", ActorKind.AGENT)


def decided(what: str) -> tuple[Any, ...]:
    """A person's decision about the notice."""
    return ("tell", "decision", {"proof": {"decided": what}})


UNTIL_PUBLISH = settled("create", "convert", "tell", "review")
ASKED = ("publish", "question", {"proof": {"question": "Publish?", "answers": ["yes", "no"]}})


def after(*facts: tuple[Any, ...], on: Plan = PLAN, verified: tuple[str, ...] | None = None) -> Any:
    """What is next after these facts; every proof was seen to hold unless `verified` says which."""
    told = story(on, *facts)
    return ahead(on, told, verified=on.ids if verified is None else verified)


def word(found: Any) -> tuple[str, str | None]:
    """The kind of a next thing, and its step."""
    step = getattr(found, "step", None)
    return type(found).__name__, getattr(step, "id", step)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ((), ("Begin", "create")),
        ((("create", "intent"),), ("GoOn", "create")),
        ((("create", "intent"), ("create", "failed")), ("GoOn", "create")),
        (settled("create"), ("Begin", "convert")),
        ((*settled("create"), ("convert", "intent")), ("GoOn", "convert")),
        ((*settled("create"), ("convert", "intent"), ("convert", "failed")), ("Begin", "convert")),
        ((*settled("create", "convert"), ("tell", "intent")), ("LookFor", "tell")),
        ((*settled("create", "convert"), ("tell", "intent"), ("tell", "failed")), ("Need", "tell")),
        ((*settled("create", "convert"), ("tell", "intent"), decided("repeat")), ("Begin", "tell")),
        ((*settled("create", "convert"), ("tell", "intent"), decided("skip")), ("Need", "review")),
        (settled("create", "convert", "tell"), ("Need", "review")),
        ((*settled("create", "convert", "tell"), ("review", "intent")), ("Need", "review")),
        (UNTIL_PUBLISH, ("Begin", "publish")),
        ((*UNTIL_PUBLISH, ASKED), ("Need", "publish")),
        ((*UNTIL_PUBLISH, ASKED, ("publish", "answer", {"outputs": {"answer": "yes"}})), ("End", None)),
    ],
)  # fmt: skip
def test_what_is_next(facts: tuple[tuple[Any, ...], ...], expected: tuple[str, str | None]) -> None:
    """An intent without completion is gone on with only where nothing is doubled by it."""
    assert word(after(*facts)) == expected


def test_the_last_proof_is_tried_before_anything_is_built_on_it() -> None:
    """Progress is never trusted alone; one that fails gives way to the one before."""
    assert word(after(*settled("create", "convert"), verified=())) == ("Verify", "convert")
    assert word(after(*settled("create", "convert"), verified=("convert",))) == ("Begin", "tell")
    undone = (*settled("create", "convert"), ("convert", "failed", {"proof": {"unproven": True}}))
    assert word(after(*undone, verified=())) == ("Verify", "create")
    assert word(after(*undone, verified=("create",))) == ("Begin", "convert")


def test_what_a_person_settled_has_no_proof_to_try() -> None:
    """There is nothing to try again."""
    facts = (*settled("create", "convert"), ("tell", "intent"), ("tell", "decision", {"proof": {"decided": "done"}}))
    assert word(after(*facts, verified=())) == ("Need", "review")


def test_answers_end_a_task() -> None:
    """An answer in stop_on stops it, every other one goes on; an end is written once."""
    no = (*UNTIL_PUBLISH, ASKED, ("publish", "answer", {"outputs": {"answer": "no"}}))
    assert after(*no) == End("stopped", "step publish was answered with no")
    assert after(*no, (None, "note", {"proof": {"ended": "stopped"}})) == Ended("stopped")
    yes = (*UNTIL_PUBLISH, ASKED, ("publish", "answer", {"outputs": {"answer": "yes"}}))
    ended = (*yes, (None, "note", {"proof": {"ended": "done"}}))
    assert after(*ended) == Ended("done")
    longer = plan(*ALL, TELL.replace('"tell"', '"again"'))
    assert word(after(*ended, on=longer)) == ("Begin", "again")


def test_needs_say_who_and_what_and_how() -> None:
    """A person at 03:00 must not have to read the plan."""
    need = after(*UNTIL_PUBLISH, ASKED)
    assert isinstance(need, Need)
    assert need.sentence() == (
        "step publish needs a person: Publish? (yes / no); answer it: "
        "opledger task answer PLAN publish ANSWER --reason R"
    )
    lost = after(*settled("create", "convert"), ("tell", "intent", {"proof": {"token": "idem_x"}}))
    assert isinstance(lost, LookFor)


# --- a changed plan ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (
            (CREATE.replace("acct_218", "acct_219"), *ALL[1:]),
            r"step create \(settled at .*acct_218.*now says.*acct_219",
        ),
        ((CREATE, CONVERT.replace("convert.py", "other.py"), *ALL[2:]), "step convert .settled"),
        ((CREATE, TELL, REVIEW, PUBLISH), "step convert .* is gone"),
        ((TELL, CREATE, CONVERT, REVIEW, PUBLISH), "tell now stands before create, convert, which are settled"),
        ((CONVERT.replace("{step.create.location}", "x"), CREATE, TELL, REVIEW, PUBLISH), "step convert"),
    ],
)
def test_a_plan_changed_under_what_is_done_is_refused(steps: tuple[str, ...], told: str) -> None:
    """It names the steps, and shows what they said and say now."""
    facts = [*settled("create", "convert")]
    facts[0] = ("create", "intent", {"proof": {"does": PLAN.steps[0].does}})
    with pytest.raises(PlanChanged, match=told):
        ahead(plan(*steps), story(PLAN, *facts))


def test_what_is_ahead_may_be_changed() -> None:
    """Titles, steps that were not begun, new steps at the end, and a command that failed and is mended."""
    facts = settled("create", "convert")
    for steps in (
        (CREATE + 'title = "x"\n', CONVERT, REVIEW),
        (CREATE, CONVERT, TELL.replace("notify", "other"), REVIEW, PUBLISH),
        (*ALL, TELL.replace('"tell"', '"again"')),
    ):
        ahead(plan(*steps), story(PLAN, *facts), verified=PLAN.ids)
    failed = (*settled("create"), ("convert", "intent"), ("convert", "failed"))
    mended = plan(CREATE, CONVERT.replace("convert.py", "mended.py"))
    assert word(ahead(mended, story(PLAN, *failed), verified=("create",))) == ("Begin", "convert")


@pytest.mark.parametrize("step", ["create", "tell"])
def test_a_step_that_was_begun_may_not_be_reworded(step: str) -> None:
    """Its effect may be out there under the first wording."""
    before = settled("create", "convert") if step == "tell" else ()
    reworded = plan(CREATE.replace("acct_218", "acct_1"), CONVERT, TELL.replace("notify", "other"), REVIEW, PUBLISH)
    on = plan(CREATE, CONVERT, TELL.replace("notify", "other"), REVIEW, PUBLISH) if step == "tell" else reworded
    with pytest.raises(PlanChanged, match=f"step {step} .begun"):
        ahead(on, story(PLAN, *before, (step, "intent")))


def test_the_progress_of_another_task_is_refused() -> None:
    """A plan file that was given a new task id has no progress yet."""
    told = story(PLAN, (None, "note", {"proof": {"began": "another", "steps": []}}))
    with pytest.raises(PlanChanged, match="'monthly' and the progress of 'another'"):
        ahead(PLAN, told)


# --- people and agents -------------------------------------------------------------------------------------------


def test_an_answer_counts_once_and_is_a_persons() -> None:
    """Agents cannot answer; the first answer stands and is named."""
    told = story(PLAN, *UNTIL_PUBLISH, ASKED)
    assert answering(PLAN, told, ANA, "publish", "yes").id == "publish"
    with pytest.raises(Refused, match="agent-7 is an agent; only a person"):
        answering(PLAN, told, AGENT, "publish", "yes")
    with pytest.raises(Refused, match="no answer to step publish; there are: yes, no"):
        answering(PLAN, told, ANA, "publish", "maybe")
    with pytest.raises(Refused, match="asks no question"):
        answering(PLAN, told, ANA, "tell", "yes")
    with pytest.raises(UsageError, match="no step 'x'; it has: create"):
        answering(PLAN, told, ANA, "x", "yes")
    with pytest.raises(Refused, match="has not been asked yet"):
        answering(PLAN, story(PLAN), ANA, "publish", "yes")
    once = story(PLAN, *UNTIL_PUBLISH, ASKED, ("publish", "answer", {"outputs": {"answer": "yes"}}))
    for again in ("yes", "no"):
        with pytest.raises(Refused, match=r"was answered with 'yes' by ana at .*; one answer counts"):
            answering(PLAN, once, ANA, "publish", again)


def test_decisions_are_a_persons_and_about_what_is_open() -> None:
    """What is settled stays settled, except the last step; an operation is never made twice."""
    lost = story(PLAN, *settled("create", "convert"), ("tell", "intent"))
    for verdict in (Verdict.REPEAT, Verdict.DONE, Verdict.SKIP):
        assert deciding(PLAN, lost, ANA, "tell", verdict).id == "tell"
    with pytest.raises(Refused, match="only a person may decide"):
        deciding(PLAN, lost, AGENT, "tell", Verdict.DONE)
    with pytest.raises(Refused, match="only the last settled step"):
        deciding(PLAN, lost, ANA, "create", Verdict.SKIP)
    with pytest.raises(Refused, match="one operation, which stands"):
        deciding(PLAN, lost, ANA, "create", Verdict.REPEAT)
    assert deciding(PLAN, lost, ANA, "convert", Verdict.REPEAT).id == "convert"
    with pytest.raises(Refused, match="not reached yet; next is step tell"):
        deciding(PLAN, lost, ANA, "review", Verdict.SKIP)
    with pytest.raises(Refused, match="nothing to repeat"):
        deciding(PLAN, story(PLAN, *settled("create")), ANA, "convert", Verdict.REPEAT)
    with pytest.raises(Refused, match="answer it"):
        deciding(PLAN, story(PLAN, *UNTIL_PUBLISH, ASKED), ANA, "publish", Verdict.DONE)
    reworded = plan(CREATE.replace("acct_218", "acct_1"), *ALL[1:])
    assert deciding(reworded, story(PLAN, *settled("create")), ANA, "create", Verdict.DONE).id == "create"


def test_one_agent_at_a_time_has_a_step() -> None:
    """A second one takes over only by saying so, and never what may not be repeated."""
    review = PLAN.steps[3]
    begun = story(PLAN, ("review", "intent", {"actor": "agent-7"}))
    claiming(begun, AGENT, review, take_over=False)
    other = Actor("agent-8", ActorKind.AGENT)
    with pytest.raises(Refused, match=r"was claimed by agent-7 .*--take-over"):
        claiming(begun, other, review, take_over=False)
    claiming(begun, other, review, take_over=True)
    with pytest.raises(Refused, match="was claimed by agent-7"):
        proving(begun, other, review)
    proving(begun, ANA, review)
    once = plan(REVIEW + "repeatable = false\n").steps[0]
    with pytest.raises(Refused, match="nobody knows whether it happened"):
        claiming(begun, AGENT, once, take_over=True)


# --- what people see ---------------------------------------------------------------------------------------------


def test_a_view_is_made_from_the_records_alone() -> None:
    """The console has no plan: the first record tells what it needs."""
    steps = [{"id": s.id, "title": s.title, "kind": "run", "repeatable": s.repeatable} for s in PLAN.steps]
    began = (None, "note", {"proof": {"began": "monthly", "title": "T", "goal": "G", "plan": "p", "steps": steps}})
    told = story(PLAN, began, *UNTIL_PUBLISH, ASKED, (None, "note", {"reason": "look here"}))
    shown = view("monthly", told, outline_from(told), runner=None)
    assert (shown.state, shown.title, shown.run) == ("waiting_human", "T", "run_1")
    assert [one.state for one in shown.steps] == ["done", "done", "done", "done", "waiting"]
    assert [(one.step, one.question, one.answers) for one in shown.questions] == [
        ("publish", "Publish?", ("yes", "no"))
    ]
    assert [one.reason for one in shown.notes] == ["look here"]
    assert shown.waits_for == ("publish", "a person")
    assert view("monthly", told, outline_of(PLAN), runner="somebody").state == "running"
    assert view("monthly", story(PLAN), outline_of(PLAN), runner=None).state == "stopped"
    shape = document(shown)
    assert {"task", "run", "state", "steps", "questions", "decisions"} <= set(shape)
    assert {"id", "title", "state", "proof"} <= set(shape["steps"][0])


def test_the_summary_has_every_step_and_its_proof() -> None:
    """And outside text does nothing in it."""
    bad = {"proof": {"exit": 0, "output": "`x` <script> \x1b[31m\n# not a heading"}, "outputs": {"rows": 5}}
    facts = (
        (None, "note", {"proof": {"began": "monthly", "steps": []}}),
        *settled("create"),
        ("convert", "intent"),
        ("convert", "completed", bad),
        (None, "note", {"proof": {"ended": "done"}, "reason": "every step is settled"}),
    )
    text = summary(PLAN, story(PLAN, *facts))
    for number, step in enumerate(PLAN.steps, 1):
        assert f"### {number}. " in text and f"({step.id}, " in text
    assert "outcome: done: every step is settled" in text
    assert "- output rows: `5`" in text
    assert "- never begun" in text
    assert "\x1b" not in text
    assert "\n# not" not in text
    assert isinstance(after(), Begin) and isinstance(after(("create", "intent")), GoOn | Verify)
