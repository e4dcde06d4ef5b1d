"""``task``: plans that survive their agent. Run, look, work as an agent, answer and decide as a person."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opledger.cli.frame import Run, command

if TYPE_CHECKING:
    from opledger.ledger import Ledger
    from opledger.rules.tasks.ahead import Need
    from opledger.rules.tasks.views import TaskView
    from opledger.tasks.task import Status, Task

HUMAN_NEEDED = 7
_WORDS = {"waiting_human": "waiting for somebody"}
_COMMAND = re.compile(r"(\bopledger task [a-z]+ )PLAN\b")

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan: NAME.plan.toml.", show_default=False)]
StepId = Annotated[str, typer.Argument(metavar="STEP", help="The step's id.", show_default=False)]
By = Annotated[str | None, typer.Option(metavar="WHO", help="Who acts; the operator by default.")]
Reason = Annotated[str, typer.Option(metavar="R", help="Why; it stands in the record for good.")]
Timeout = Annotated[str | None, typer.Option(metavar="D", help="Wait at most so long for operations (30s, 5m, 2h).")]
Output = Annotated[list[str] | None, typer.Option("--output", metavar="K=V", help="What later steps get.")]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Plans of many steps that survive whoever works on them.", rich_markup_mode=None, no_args_is_help=True
    )
    for one in (run_, status, resume, claim, done, answer, decide, note, example):
        command(group)(one)
    app.add_typer(group, name="task")


def run_(run: Run, plan: PlanFile, by: By = None, timeout: Timeout = None) -> int | None:
    """Begin a task, or go on with it. Exit code 7: somebody is needed, 6: --timeout ran out."""
    return _go(run, plan, by, timeout, begun=False)


def resume(run: Run, plan: PlanFile, by: By = None, timeout: Timeout = None) -> int | None:
    """Go on with a task that has begun. The last proof is tried again first."""
    return _go(run, plan, by, timeout, begun=True)


def status(run: Run, plan: PlanFile) -> None:
    """Show how a task stands: steps and proofs, open questions, decisions, who must act. Changes nothing."""
    with run.ledger() as ledger:
        _give(run, plan, _open(ledger, plan).status())


def claim(
    run: Run,
    plan: PlanFile,
    step: StepId,
    by: By = None,
    take_over: Annotated[bool, typer.Option(help="Somebody else claimed it and works on it no more.")] = False,
) -> None:
    """Claim a step for an agent, and print what is to be done and what earlier steps handed on."""
    from opledger.tasks.task import AlreadyDone

    with run.ledger() as ledger:
        task = _open(ledger, plan, by)
        try:
            work = task.claim(step, take_over=take_over)
        except AlreadyDone as settled:
            document = {"task": task.plan.task, "step": step, "settled": True, "outputs": dict(settled.outputs)}
            told = settled.message
            run.give(document, lambda: _clean([told]))
            return
    document = {
        "task": task.plan.task,
        "step": step,
        "settled": False,
        "work": work.work,
        "token": work.token,
        "inputs": list(work.inputs),
        "outputs": {name: dict(given) for name, given in work.outputs.items()},
        "claimed_by": work.claimed_by,
    }
    lines = [
        f"{work.claimed_by} has step {step}: {work.work}",
        f"Its key: {work.token}",
        *(f"Input: {name}" for name in work.inputs),
        *(f"From step {name}: {key} = {value}" for name, given in work.outputs.items() for key, value in given.items()),
        _named(f"When it is done: opledger task done PLAN {step}", plan),
    ]
    run.give(document, lambda: _clean(lines))


def done(run: Run, plan: PlanFile, step: StepId, by: By = None, output: Output = None) -> None:
    """Say that a claimed step is done. Its checks are tried; only if they hold it counts."""
    with run.ledger() as ledger:
        task = _open(ledger, plan, by)
        task.done(step, _outputs(output))
        _give(run, plan, task.status())


def answer(
    run: Run,
    plan: PlanFile,
    step: StepId,
    answer: Annotated[str, typer.Argument(metavar="ANSWER", help="One of the answers.", show_default=False)],
    *,
    reason: Reason,
    by: By = None,
) -> None:
    """Answer a question, as a person. One answer counts."""
    with run.ledger() as ledger:
        task = _open(ledger, plan, by)
        task.answer(step, answer, reason=reason)
        _give(run, plan, task.status())


def decide(
    run: Run,
    plan: PlanFile,
    step: Annotated[str | None, typer.Argument(metavar="[STEP]", help="The step; none for rebuild.")] = None,
    *,
    as_: Annotated[str, typer.Option("--as", metavar="CHOICE", help="repeat, done, skip; rebuild: the progress file.")],
    reason: Reason,
    by: By = None,
    output: Output = None,
) -> None:
    """Decide what no program may decide about a step, or about a broken progress file, as a person."""
    with run.ledger() as ledger:
        task = _open(ledger, plan, by)
        task.decide(step, as_, reason=reason, outputs=_outputs(output))
        _give(run, plan, task.status())


def note(
    run: Run,
    plan: PlanFile,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The remark.", show_default=False)],
    by: By = None,
) -> None:
    """Write a remark into the progress of a task; it changes nothing else."""
    with run.ledger() as ledger:
        task = _open(ledger, plan, by)
        task.note(text)
        _give(run, plan, task.status())


def example(
    run: Run,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to put it; made if missing.")] = Path(),
) -> None:
    """Write an example plan and its programs into a folder; it runs against: opledger sim."""
    from importlib import resources

    from opledger.edges.files import check_target, copy_out
    from opledger.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be made: {error.strerror}") from error
    found = sorted(
        (one for one in (resources.files("opledger") / "sim" / "example").iterdir() if one.is_file()),
        key=lambda one: one.name,
    )
    files = [(folder / one.name, one.read_bytes()) for one in found]
    for path, data in files:
        check_target(path)
        if path.exists() and path.read_bytes() != data:
            raise UsageError(f"{path} is there already and says something else; name another folder")
    for path, data in files:
        copy_out([data], path)
    names = [str(path) for path, _ in files]
    run.give({"files": names}, lambda: _clean(names))


# --- pieces ------------------------------------------------------------------------------------------------------


def _open(ledger: Ledger, plan: Path, by: str | None = None) -> Task:
    from opledger.tasks.task import Task

    return Task.open(plan, ledger, by=by)


def _go(run: Run, plan: Path, by: str | None, timeout: str | None, *, begun: bool) -> int | None:
    from opledger.cli import inputs
    from opledger.tasks.book import ProgressBroken

    limit = inputs.span(timeout, "--timeout", zero=True)
    with run.ledger() as ledger:
        task = _open(ledger, plan, by)
        try:
            need = task.resume(limit) if begun else task.run(limit)
        except ProgressBroken as broken:
            _give(run, plan, task.status())
            run.tell(broken.code, _named(broken.message, plan), who="a person", step=None)
            return HUMAN_NEEDED
        shown = task.status()
        need = _give(run, plan, shown, need)
        if need is None:
            if shown.view.state == "stopped" and not run.flags.as_json:
                print("The task was stopped by an answer.")
            return None
        run.tell("human_needed", f"{task.plan.task}: {need.sentence()}", step=need.step, who=need.who, what=need.what)
        return HUMAN_NEEDED


def _outputs(pairs: Iterable[str] | None) -> Mapping[str, Any]:
    from opledger.cli import inputs

    return inputs.tags(pairs or (), "--output")


def _give(run: Run, plan: Path, found: Status, need: Need | None = None) -> Need | None:
    """Print how a task stands; return who is needed, with the plan's own name in what to type."""
    from opledger.rules.tasks.views import document

    view = found.view
    if need is not None and view.state == "stopped":
        view = replace(view, state="waiting_human")
    who = need or found.need
    if who is not None:
        who = replace(who, what=_named(who.what, plan), how=_named(who.how, plan))
    problem = None if found.problem is None else _named(found.problem, plan)
    run.give(document(view, who, problem), lambda: _lines(view, who, problem))
    return who if need is not None else None


def _named(text: str, plan: Path) -> str:
    """What to type, with the name of the plan as a shell reads it: a path may have spaces, and worse.

    Only in our own commands: what a plan's author wrote stays as it is.
    """
    return _COMMAND.sub(lambda found: f"{found[1]}{shlex.quote(str(plan))}", text)


def _lines(shown: TaskView, need: Need | None, problem: str | None) -> Iterable[str]:
    from opledger.cli import text
    from opledger.rules.plain import clean

    yield clean(
        f"{shown.task} is {_WORDS.get(shown.state, shown.state)} (run {shown.run or 'not begun'}): {shown.title}"
    )
    rows = [
        (clean(one.id), one.kind, one.state, clean(one.title), clean(_proof(one.proof, one.reason)))
        for one in shown.steps
    ]
    yield from text.table(("STEP", "KIND", "STATE", "TITLE", "PROOF"), rows, stretch=4)
    for asked in shown.questions:
        yield clean(f"Question of step {asked.step}: {asked.question} ({' / '.join(asked.answers)})")
    for decided in shown.decisions:
        where = "" if decided.step is None else f" step {decided.step}:"
        yield clean(f"Decided by {decided.by}:{where} {decided.what} ({decided.reason})")
    for remark in shown.notes:
        yield clean(f"Note by {remark.by}: {remark.reason}")
    if problem is not None:
        yield clean(f"Problem: {problem}")
    elif need is not None:
        yield clean(f"Next: {need.sentence()}")


def _proof(proof: Mapping[str, Any], reason: str | None) -> str:
    """The proof of a step in a few words."""
    told = []
    for one in proof.get("checks", ()):
        if "file" in one:
            told.append(f"{one['file']} sha256 {str(one['sha256'])[:12]}")
        elif "operation" in one:
            told.append(f"{str(one['operation'])[-8:]} {one['state']}")
        elif "http" in one:
            told.append(f"{one['http']} {one['status']}")
        else:
            told.append(f"{one['command'][0]} exits 0")
    if not told and proof.get("exit") is not None:
        told.append(f"exit {proof['exit']}")
    return ", ".join(told) or reason or "-"


def _clean(lines: Iterable[str]) -> Iterable[str]:
    from opledger.rules.plain import clean

    return (clean(line) for line in lines)
