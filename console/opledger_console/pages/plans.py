"""Tasks with a plan, in words: a row for the task and for each step, and what is to be said of one of them.

Everything in a plan, a proof or an output was written by agents, programs and providers: it is data, and drawn as such.
Pure formatting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from opledger.rules.jsontext import dumps_inert
from opledger.rules.model import Operation
from opledger.rules.tasks.ahead import Need
from opledger.rules.tasks.views import Decided, Question, StepView, TaskView
from opledger_console.text import line
from opledger_console.views import GLYPHS, Row, TimeStyle, counted, kind_of, next_words, short_id, span, stamp

SETTLED: Final = frozenset({"done", "verified"})

LONGEST: Final = 600
"""Characters that are shown of one question, reason or goal."""

VALUE: Final = 200
"""Characters that are shown of one part of a proof, or of one output."""

PARTS: Final = 40
"""So many parts of a proof, outputs, decisions and notes are shown each, the newest ones."""

_TASK_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "running": ("▸ running", "busy"),
    "waiting_human": ("? waits for somebody", "human"),
    "done": ("✓ done", "good"),
    "stopped": ("■ stopped", "ended"),
}
_STEP_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "done": ("✓ done", "good"),
    "verified": ("✓ verified", "good"),
    "open": ("· open", "ended"),
    "intent": ("▸ begun", "busy"),
    "waiting": ("✗ failed", "bad"),
}


@dataclass(frozen=True, slots=True)
class PlanLook:
    """A task as its records in the ledger tell it.

    `plan` is the plan's file, where it stands in the folder in which the console runs; only there its progress file is
    looked at, and only then `problem` and `need` are known. `unreadable` says why the records cannot be read.
    """

    view: TaskView
    records: int
    ended: bool = False  #: the run is over, one way or the other
    runs_until: datetime | None = None
    plan: str | None = None
    problem: str | None = None
    need: Need | None = None
    rebuilt: tuple[Decided, str] | None = None  #: who last had the progress file written anew, and what was wrong
    unreadable: str | None = None
    briefs: Mapping[str, str] = field(default_factory=dict)  #: of each step, made where it is read: many rows take time

    def question(self, step: str) -> Question | None:
        """Return the open question of a step."""
        return next((one for one in self.view.questions if one.step == step), None)

    def lost(self, now: datetime) -> bool:
        """True where the last look saw a runner whose lease has run out since."""
        return self.view.state == "running" and self.runs_until is not None and self.runs_until <= now


@dataclass(frozen=True, slots=True)
class AnswerSheet:
    """What a person is shown before they answer a question. `stops`: the answers that end the task."""

    plan: str
    task: str
    step: str
    asked_at: datetime
    question: str
    answers: tuple[str, ...]
    stops: tuple[str, ...]


def task_key(task: str) -> str:
    """Return the key of the row of a task; no operation has it."""
    return f"task {task}"


def step_key(task: str, step: str) -> str:
    """Return the key of the row of a step; no operation has it."""
    return f"step {len(task)} {task} {step}"


# --- rows ----------------------------------------------------------------------------------------------------------


def rows_of(look: PlanLook, operations: Mapping[str, Operation], now: datetime) -> Iterator[Row]:
    """Yield the row of a task, and one for each step. `operations` are those of its steps, by step."""
    view = look.view
    words, kind = state_of(look, now)
    settled = sum(one.state in SETTLED for one in view.steps)
    since = "" if view.last_at is None else stamp(view.last_at, now, TimeStyle.RELATIVE)
    summary = f"{settled} of {counted(len(view.steps), 'step')}"
    yield Row(task_key(view.task), (view.task, summary, "", words, since, "", view.runner or "", _next(look)), kind)
    for one in view.steps:
        yield _step_row(look, one, operations.get(one.id), now)


def state_of(look: PlanLook, now: datetime) -> tuple[str, str]:
    """Return the state of a task in words with a sign, and its colour class."""
    if look.unreadable is not None:
        return "! unreadable", "bad"
    if look.problem is not None:
        return "! needs a person", "human"
    if look.lost(now):
        return "! its runner is gone", "human"
    if look.view.state == "stopped" and not look.ended:
        return "‖ nobody runs it", "human"
    return _TASK_WORDS.get(look.view.state, (look.view.state, "plain"))


def _step_row(look: PlanLook, one: StepView, op: Operation | None, now: datetime) -> Row:
    words, kind = step_words(look, one)
    moving = op is not None and one.state not in SETTLED and one.state != "waiting"
    if op is not None and moving:
        words, kind = f"{GLYPHS[op.state]} {op.state}", kind_of(op)
    told = next_words(op, now) if op is not None and moving else look.briefs.get(one.id, "")
    since = "" if one.at is None else stamp(one.at, now, TimeStyle.RELATIVE)
    name = short_id(op.operation_id) if op is not None else ""
    what = op.contract if op is not None else one.kind
    return Row(step_key(look.view.task, one.id), ("  ″", one.id, name, words, since, what, one.by or "", told), kind)


def step_words(look: PlanLook, one: StepView) -> tuple[str, str]:
    """Return the state of a step in words with a sign, and its colour class."""
    if look.question(one.id) is not None:
        return "? asked", "human"
    waits = look.view.waits_for
    if waits is not None and waits[0] == one.id and one.state == "open":
        return f"? waits for {waits[1]}", "human"
    if waits is not None and waits[0] == one.id and one.state == "intent":
        return ("▸ claimed", "busy") if waits[1] == "an agent" else ("‽ begun, outcome unknown", "human")
    return _STEP_WORDS.get(one.state, (one.state, "plain"))


def _next(look: PlanLook) -> str:
    if look.unreadable is not None or look.problem is not None:
        return look.unreadable or look.problem or ""
    waits = look.view.waits_for
    if waits is not None and look.view.state == "waiting_human":
        return f"step {waits[0]} waits for {waits[1]}"
    return look.view.title


def briefs_of(view: TaskView) -> dict[str, str]:
    """Return the few words that stand in the row of each step: its question, reason, proof or title."""
    questions = {asked.step: asked.question for asked in view.questions}
    return {one.id: questions.get(one.id) or _brief(one) for one in view.steps}


def _brief(one: StepView) -> str:
    if one.kind == "ask" and "answer" in one.outputs:
        return f"answered {_value(one.outputs['answer'])}: {one.reason or ''}"
    return one.reason or "; ".join(proofs_of(one.proof)) or one.title


# --- proofs --------------------------------------------------------------------------------------------------------


def proofs_of(proof: Mapping[str, Any]) -> list[str]:
    """Return a proof in sentences, one for each check; what has another shape than a check is shown as it is."""
    checks = proof.get("checks")
    told = [_check(one) for one in checks] if isinstance(checks, list | tuple) else []
    for name, value in proof.items():
        if name != "checks" and value not in (None, "", [], {}):
            told.append(f"{name} {_value(value)}")
    return told


def _check(one: Any) -> str:
    if not isinstance(one, Mapping):
        return _value(one)
    if "file" in one:
        parsed = f", holds {_value(one['parses'])}" if one.get("parses") else ""
        return f"file {_value(one['file'])}{parsed}, sha256 {_value(one.get('sha256'))[:16]}…"
    if "operation" in one:
        return f"operation {_value(one['operation'])[-8:]} is {_value(one.get('state'))}"
    if "http" in one:
        return f"{_value(one['http'])} answered {_value(one.get('status'))} to {_value(one.get('path'))}"
    if "command" in one:
        return f"command exits {_value(one.get('exit'))}: {_argv(one['command'])}"
    return _value(one)


def _argv(words: Any) -> str:
    return " ".join(map(_value, words)) if isinstance(words, list | tuple) else _value(words)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else dumps_inert(value)
    return text if len(text) <= VALUE else f"{text[:VALUE]}…"


# --- one of them, told -----------------------------------------------------------------------------------------------


def task_told(look: PlanLook, now: datetime) -> Text:
    """Say how a task stands: who runs it, what it waits for, its progress file, questions, decisions, notes."""
    view, text = look.view, Text()
    text.append(f"{state_of(look, now)[0]}  ", style="bold")
    text.append_text(line(view.task, limit=80, style="bold"))
    text.append_text(line(f"  {view.title}" if view.title != view.task else "", limit=LONGEST))
    _pair(text, "goal", view.goal)
    run = f"{view.run or '–'}, {counted(look.records, 'record')}"
    began = "" if view.began_at is None else f", begun {_when(view.began_at)}"
    _pair(text, "run", f"{run}{began}")
    _pair(text, "runs it", _runner(look, now))
    if look.unreadable is not None:
        _pair(text, "unreadable", look.unreadable, style="bold")
    for sentence in _waits(look):
        _pair(text, "waits", sentence)
    for asked in view.questions:
        _asked(text, look, asked)
    _pair(text, "progress file", _file(look))
    for heading, told in (("decided", view.decisions), ("note", view.notes)):
        shown = told[-PARTS:]
        for one in reversed(shown):
            _pair(text, heading, _decided(one))
        if len(told) > len(shown):
            _pair(text, heading, f"and {len(told) - len(shown):,} before: opledger task status PLAN")
    return text


def step_told(look: PlanLook, one: StepView, op: Operation | None, now: datetime) -> Text:
    """Say all there is about one step: state, proof, outputs, by whom and when, and what to do where it waits."""
    text = Text()
    text.append(f"{step_words(look, one)[0]}  ", style="bold")
    text.append_text(line(f"{look.view.task} / {one.id}", limit=120, style="bold"))
    text.append_text(line(f"  {one.kind}: {one.title}", limit=LONGEST))
    if one.at is not None:
        _pair(text, "last", f"{_when(one.at)}, {span(now - one.at)} ago, by {one.by or 'nobody'}")
    _pair(text, "reason", one.reason or "")
    asked = look.question(one.id)
    if asked is not None:
        _asked(text, look, asked)
    elif look.view.waits_for is not None and look.view.waits_for[0] == one.id:
        for sentence in _waits(look):
            _pair(text, "waits", sentence)
    if op is not None:
        words = next_words(op, now)
        _pair(
            text, "operation", f"{short_id(op.operation_id)} {op.state}{f'; {words}' if words else ''}; Enter opens it"
        )
    for sentence in proofs_of(one.proof)[:PARTS] if asked is None else ():
        _pair(text, "proof" if one.state in SETTLED else "on record", sentence)
    for name, value in list(one.outputs.items())[:PARTS]:
        _pair(text, "output", f"{name} = {_value(value)}")
    for decided in [told for told in look.view.decisions if told.step == one.id][-PARTS:]:
        _pair(text, "decided", _decided(decided))
    return text


def operation_told(op: Operation, now: datetime) -> Text:
    """Say how an operation of a task without a plan of its own stands."""
    text = Text(f"{GLYPHS[op.state]} {op.state}  ", style="bold")
    text.append_text(line(f"{short_id(op.operation_id)}  {op.task or ''} / {op.step or ''}", limit=200))
    _pair(text, "next", next_words(op, now))
    _pair(text, "plan", "none in this ledger: whoever submitted it only named a task; Enter opens the operation")
    return text


def _pair(text: Text, label: str, value: str, style: str = "") -> None:
    if value:
        text.append(f"\n{label}: ", style="bold")
        text.append_text(line(value, limit=LONGEST, style=style))


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def _decided(one: Decided) -> str:
    where = "" if one.step is None else f"step {one.step}: "
    return f"{where}{one.what}, by {one.by} at {_when(one.at)}: {one.reason}"


def _runner(look: PlanLook, now: datetime) -> str:
    view = look.view
    if view.runner is None:
        how = named("; go on with: opledger task resume PLAN", look) if view.state == "stopped" else ""
        return "" if look.ended else f"nobody{how}"
    until = "" if look.runs_until is None else f" until {look.runs_until:%H:%M:%S}Z, unless it goes on"
    if look.lost(now):
        return f"nobody any more: the lease of {view.runner} has run out; go on with: opledger task resume PLAN"
    return f"{view.runner}{until}"


def _waits(look: PlanLook) -> Iterable[str]:
    view = look.view
    if look.ended or look.problem is not None:
        return
    if view.waits_for is not None and look.question(view.waits_for[0]) is not None:
        return  # the question itself is told
    if look.need is not None:
        yield named(look.need.sentence(), look)
        return
    if view.waits_for is None:
        return
    step, who = view.waits_for
    if who == "an agent":
        yield f"step {step} waits for {who}: opledger task claim PLAN {step}"
    else:
        yield f"step {step} waits for {who}, who decides: opledger task decide PLAN {step} --as CHOICE --reason R"


def _asked(text: Text, look: PlanLook, asked: Question) -> None:
    _pair(text, f"question of step {line(asked.step, limit=60).plain}", asked.question)
    _pair(text, "answers", " / ".join(asked.answers))
    _pair(text, "asked", _when(asked.asked_at))
    here = "v answers it here, or: " if look.plan is not None else ""
    _pair(text, "to answer", f"{here}{named(command_for(asked), look)}")


def command_for(asked: Question) -> str:
    """Return the command that answers a question, with words for what a person puts in."""
    return f"opledger task answer PLAN {asked.step} ANSWER --reason R"


def named(words: str, look: PlanLook) -> str:
    """Put the plan's file, where it is known, into what is to be typed."""
    return words if look.plan is None else words.replace(" PLAN", f" {look.plan}")


def _file(look: PlanLook) -> str:
    rebuilt = ""
    if look.rebuilt is not None:
        told, wrong = look.rebuilt
        rebuilt = f"; written anew from the ledger at {_when(told.at)} for {told.by}, because it {wrong}"
    if look.problem is not None:
        return f"{named(look.problem, look)}{rebuilt}"
    if look.plan is not None:
        return f"whole: {look.plan} and its progress file fit what the ledger knows{rebuilt}"
    if look.ended:
        return f"archived with its plan and summary under {look.view.run}{rebuilt}"
    return f"not looked at: it is not in the folder of this console; there: opledger task status PLAN{rebuilt}"


def waiting(looks: Sequence[PlanLook], now: datetime) -> int:
    """How many tasks stand still until a person does something."""
    return sum(state_of(look, now)[1] == "human" for look in looks)
