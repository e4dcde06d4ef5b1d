"""A plan file (``NAME.plan.toml``) as frozen values, read as strictly as a contract: every mistake with key and line.

What a step does is its *fingerprint*: action, checks, inputs, whether it may be repeated. Its title is only a word for
people and may change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any, ClassVar, Final

from opledger.errors import ConfigWrong
from opledger.rules import fingerprint
from opledger.rules.contract import ContractProblem
from opledger.rules.files import converters as v
from opledger.rules.files.reader import Table, Unfit, document
from opledger.rules.model import State
from opledger.rules.tasks import templates
from opledger.rules.tasks.proofs import Check, FileCheck, OperationCheck, argv, proofs

ACTIONS: Final = ("submit", "run", "agent", "ask")
LIMIT: Final = timedelta(minutes=10)
"""How long a command may take where the plan does not say."""

MOST_STEPS: Final = 500
_STEP_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class PlanInvalid(ConfigWrong):
    """A plan file cannot be used. `problems` holds all that is wrong with it, in the order of the file."""

    code: ClassVar[str] = "plan_invalid"

    def __init__(self, file: str, problems: tuple[ContractProblem, ...]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{file} is not a plan that can be used; {problems[0]}{more}")
        self.file = file
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Submit:
    """An operation: the same as ``submit --task T --step S``."""

    contract: str
    body: Any = None
    expect: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    create_deadline: timedelta | None = None
    result_deadline: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments; no shell sees them."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Agent:
    """Work for an agent outside, in words."""

    work: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a person. An answer in `stop_on` ends the task."""

    question: str
    answers: tuple[str, ...]
    stop_on: tuple[str, ...] = ()


Action = Submit | Command | Agent | Ask


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `inputs` are files that must be there before it begins."""

    id: str
    title: str
    action: Action
    checks: tuple[Check, ...]
    inputs: tuple[str, ...]
    repeatable: bool
    timeout: timedelta
    does: str  #: what it does, as JSON: what the fingerprint is made of, for people to compare
    fingerprint: str

    @property
    def files(self) -> tuple[str, ...]:
        """The files that its checks look at, before places in them are filled."""
        return tuple(dict.fromkeys(check.path for check in self.checks if isinstance(check, FileCheck)))


@dataclass(frozen=True, slots=True)
class Plan:
    """A task: what it is for, and its steps in order."""

    task: str
    title: str
    goal: str
    steps: tuple[Step, ...]
    digest: str  #: of the file, byte for byte

    def step(self, step_id: str) -> Step | None:
        """Return the step of this id, or None."""
        return next((step for step in self.steps if step.id == step_id), None)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the steps, in order."""
        return tuple(step.id for step in self.steps)


def parse(source: str, *, name_hint: str = "<plan>") -> Plan:
    """Read a plan. Raises PlanInvalid with all problems."""
    parsed, problems = document(source)
    if parsed is None:
        raise PlanInvalid(name_hint, problems.all())
    root = Table(parsed, (), problems)
    root.require("task", "step")
    task = root.value("task", "", _task)
    title = root.value("title", task, v.prose)
    goal = root.value("goal", "", v.prose)
    steps: list[Step] = []
    known: list[str] = []
    tables = root.tables("step")
    if "step" in parsed and not tables:
        root.problem("step", "holds no step; a task has at least one")
    if len(tables) > MOST_STEPS:
        root.problem("step", f"holds more than {MOST_STEPS} steps")
    for table in tables[:MOST_STEPS]:
        step = _step(table, known)
        if step is not None:
            steps.append(step)
    root.done()
    if problems.all():
        raise PlanInvalid(name_hint, problems.all())
    return Plan(task, title, goal, tuple(steps), f"sha256:{hashlib.sha256(source.encode()).hexdigest()}")


def _task(raw: Any) -> str:
    name = v.text(raw)
    if len(name) > 200 or not name.isprintable() or not name.strip():
        raise Unfit("must be a short printable name")
    return name


def _step(table: Table, known: list[str]) -> Step | None:
    """Read one step, and note its id among those `known`; None where its action cannot be read."""
    table.require("id")
    step_id = table.value("id", "", _step_id)
    if step_id in known:
        table.problem("id", f"is {step_id!r}, and so is the id of an earlier step; each step has its own")
    title = table.value("title", step_id, v.prose)
    action = _action(table)
    inputs = table.values("inputs", (), v.text)
    repeatable = table.value("repeatable", True, v.flag)
    timeout = table.value("timeout", LIMIT, v.duration)
    checks = _checks(table, action)
    table.done()
    for key in ("submit", "run", "agent", "ask", "check", "inputs"):
        _places(table, key, known)
    if step_id:
        known.append(step_id)
    if action is None:
        return None
    if "repeatable" in table.data and isinstance(action, Submit | Ask):
        table.problem("repeatable", "says nothing here: an operation and a question happen once anyway")
    does = {key: value for key, value in table.data.items() if key not in ("id", "title", "timeout")}
    try:
        canonical = fingerprint.canonical(_plain(does))
    except ValueError as error:
        table.problem(None, f"cannot be written down: {error}")
        return None
    mark = f"sha256:{hashlib.sha256(b'opledger/step/1' + canonical).hexdigest()}"
    return Step(step_id, title, action, checks, inputs, repeatable, timeout, canonical.decode(), mark)


def _step_id(raw: Any) -> str:
    text = v.text(raw)
    if _STEP_ID.fullmatch(text) is None:
        raise Unfit("must be up to 64 letters, digits, - and _, and begin with a letter or digit")
    return text


def _plain(value: Any) -> Any:
    """Return a TOML value as JSON: times as text."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime | date | time) else value


def _places(table: Table, key: str, known: Iterable[str]) -> None:
    """Note places that no earlier step can fill."""
    try:
        for step, _ in templates.places(table.data.get(key)):
            if step not in known:
                table.problem(key, f"asks for something of step {step!r}, which is no earlier step")
    except ValueError as error:
        table.problem(key, str(error))


# --- actions -----------------------------------------------------------------------------------------------------


def _action(table: Table) -> Action | None:
    given = [name for name in ACTIONS if name in table.data]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "has none"
        table.problem(None, f"needs exactly one of submit, run, agent and ask; it {found}")
    submit, ask = table.table("submit"), table.table("ask")
    words = table.value("run", None, argv)
    work = table.value("agent", None, v.prose)
    if len(given) != 1:
        return None
    if submit is not None:
        return _submit(submit)
    if ask is not None:
        return _ask(ask)
    if words is not None:
        return Command(words)
    return None if work is None else Agent(work)


def _submit(table: Table) -> Submit:
    table.require("contract")
    read = Submit(
        contract=table.value("contract", "", v.text),
        body=table.value("body", None, _body),
        expect=table.value("expect", None, v.prose),
        tags=table.mapping("tags", v.text),
        create_deadline=table.value("create_deadline", None, v.duration),
        result_deadline=table.value("result_deadline", None, v.duration),
    )
    table.done()
    return read


def _body(raw: Any) -> Any:
    plain = _plain(raw)
    try:
        fingerprint.canonical(plain)
    except ValueError as error:
        raise Unfit(f"cannot be sent as JSON: {error}") from error
    return plain


def _ask(table: Table) -> Ask:
    table.require("question", "answers")
    answers = table.values("answers", (), v.text)
    stop_on = table.values("stop_on", (), v.text)
    if len(set(answers)) != len(answers):
        table.problem("answers", "names one answer twice")
    for answer in stop_on:
        if answer not in answers:
            table.problem("stop_on", f"names {answer!r}, which is no answer")
    read = Ask(table.value("question", "", v.prose), answers, stop_on)
    table.done()
    return read


def _checks(table: Table, action: Action | None) -> tuple[Check, ...]:
    if isinstance(action, Ask):
        if table.value("check", None, lambda given: given) is not None:
            table.problem("check", "says nothing here: a question is done when a person has answered it")
        return ()
    found = proofs(table)
    if isinstance(action, Agent) and not found:
        table.problem("check", "is missing: work of an agent counts only when it can be checked")
    of_operation = any(isinstance(check, OperationCheck) for check in found)
    if of_operation and isinstance(action, Command | Agent):
        table.problem("check", "looks at an operation, and the step submits none")
    if isinstance(action, Submit) and not of_operation:
        return (OperationCheck(State.SUCCEEDED), *found)
    return found
