"""``submit`` and ``wait``: writing work down, and waiting until it has ended or needs a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opledger.cli.frame import Run, command

if TYPE_CHECKING:
    from opledger.ledger import Ledger
    from opledger.rules.model import Operation

HUMAN_NEEDED, TIMED_OUT = 7, 6

Ops = Annotated[
    list[str], typer.Argument(metavar="OP...", help="Operation ids, or their last eight or more characters.")
]
Timeout = Annotated[str | None, typer.Option(metavar="D", help="Give up waiting after so long (30s, 5m, 2h).")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(submit)
    command(app)(wait)


def submit(
    run: Run,
    contract: Annotated[str, typer.Argument(help="Which provider contract to use.")],
    *,
    body: Annotated[str | None, typer.Option(metavar="FILE|-|JSON", help="The request's body.")] = None,
    id_: Annotated[str | None, typer.Option("--id", metavar="OP", help="The operation's id: op_ and letters.")] = None,
    by: Annotated[str | None, typer.Option(metavar="WHO", help="Who asks for it; the operator by default.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A tag; may be given several times.")] = None,
    expect: Annotated[str | None, typer.Option(metavar="TEXT", help="Tried: 'count >= 28'; or a remark.")] = None,
    create_deadline: Annotated[
        str | None, typer.Option(metavar="D", help="How long it may take to be accepted.")
    ] = None,
    result_deadline: Annotated[str | None, typer.Option(metavar="D", help="How long it may take to finish.")] = None,
    supersedes: Annotated[str | None, typer.Option(metavar="OP", help="The operation that this one replaces.")] = None,
    task: Annotated[str | None, typer.Option(metavar="T", help="The task it belongs to.")] = None,
    step: Annotated[str | None, typer.Option(metavar="S", help="The step of the task.")] = None,
    wait_: Annotated[bool, typer.Option("--wait", help="Wait until it has ended or needs a person.")] = False,
    timeout: Timeout = None,
) -> int | None:
    """Write an operation down. A worker sends it; this command sends nothing."""
    from opledger.cli import inputs
    from opledger.errors import UsageError
    from opledger.ledger import WaitTimedOut

    if timeout is not None and not wait_:
        raise UsageError("--timeout says how long to wait; give --wait too")
    limit = inputs.span(timeout, "--timeout", zero=True)
    asked = inputs.body(body)
    deadlines = [
        inputs.span(text, flag)
        for text, flag in ((create_deadline, "--create-deadline"), (result_deadline, "--result-deadline"))
    ]
    with run.ledger() as ledger:
        op = ledger.submit(
            contract,
            asked,
            requested_by=by,
            operation_id=id_,
            tags=inputs.tags(tag or ()),
            expectation=expect,
            create_deadline=deadlines[0],
            result_deadline=deadlines[1],
            supersedes=supersedes,
            task=task,
            step=step,
        )
        if not wait_:
            _give(run, ledger, [op], many=False)
            return None
        try:
            op = ledger.wait(op.operation_id, limit)
        except WaitTimedOut as error:
            # The operation is written down whatever becomes of the waiting, so its record is the outcome.
            _give(run, ledger, error.operations, many=False)
            run.tell("timeout", str(error), operation_id=op.operation_id)
            return TIMED_OUT
        _give(run, ledger, [op], many=False)
        return _needs_human(run, [op])


def wait(run: Run, ops: Ops, timeout: Timeout = None) -> int | None:
    """Wait until operations have ended or need a person. Exit code 7: a person, 6: --timeout ran out."""
    from opledger.cli import inputs
    from opledger.ledger import WaitTimedOut

    limit = inputs.span(timeout, "--timeout", zero=True)
    with run.ledger() as ledger:
        ids, errors = _resolve(ledger, ops)
        try:
            found = ledger.wait_all(ids, limit)
        except WaitTimedOut as error:
            if len(ops) == 1:
                raise
            _give(run, ledger, error.operations, many=True, errors=errors)
            run.tell("timeout", str(error))
            return TIMED_OUT
        _give(run, ledger, found, many=len(ops) > 1, errors=errors)
    code = _needs_human(run, found)
    return 3 if errors and code is None else code


def _resolve(ledger: Ledger, ops: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the ids to wait for and, where several were asked for, the errors of those that are not there."""
    from opledger.errors import Refused

    ids: list[str] = []
    errors: dict[str, Any] = {}
    for text in ops:
        try:
            ids.append(ledger.show(text).operation_id)
        except Refused as error:
            if len(ops) == 1:
                raise
            errors[text] = {"code": error.code, "message": error.message}
    return ids, errors


def _give(
    run: Run, ledger: Ledger, found: Sequence[Operation], *, many: bool, errors: dict[str, Any] | None = None
) -> None:
    from opledger.cli import text
    from opledger.rules import shapes
    from opledger.rules.plain import clean

    missing = errors or {}
    if many:
        document: Any = [
            *({"operation_id": op.operation_id, "ok": True, "record": shapes.record(op)} for op in found),
            *({"operation_id": name, "ok": False, "error": error} for name, error in missing.items()),
        ]
    else:
        document = shapes.record(found[0])

    def lines() -> Iterable[str]:
        for op in found:
            yield from text.record(op, ledger.clock.now())
        for error in missing.values():
            yield clean(error["message"])

    run.give(document, lines)


def _needs_human(run: Run, found: Sequence[Operation]) -> int | None:
    """Say who is needed and what for; return the exit code."""
    from opledger.rules.explain import waits_for_person
    from opledger.rules.questions import QUESTIONS

    waiting = [op for op in found if waits_for_person(op)]
    if not waiting:
        return None
    first = waiting[0]
    verb = "approve or reject" if first.approvals_needed and first.state == "awaiting_approval" else "resolve"
    who = "an approver" if verb != "resolve" else "an operator"
    message = f"{first.operation_id} needs {who} ({verb} it): {QUESTIONS[first.state]}"
    if len(waiting) > 1:
        message += f"; so do {', '.join(op.operation_id for op in waiting[1:])}"
    run.tell("human_needed", message, operation_ids=[op.operation_id for op in waiting])
    return HUMAN_NEEDED
