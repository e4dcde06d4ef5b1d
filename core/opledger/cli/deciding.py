"""``review approve reject cancel resolve``: what people decide, each with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opledger.cli import bulk
from opledger.cli.frame import Run, command
from opledger.cli.looking import Op

if TYPE_CHECKING:
    from opledger.ledger import Ledger
    from opledger.rules.model import Operation

Sign = Annotated[
    bool,
    typer.Option("--sign", help="Sign each with your SSH key: one of ~/.ssh or of the agent, or the file named here."),
]
Key = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Sign with this key; a .pub for one in an agent.", show_default=False),
]
Reason = Annotated[str, typer.Option(metavar="R", help="Why; it stands in the journal for good.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(review)
    command(app)(approve)
    command(app)(reject)
    command(app)(cancel)
    command(app)(resolve)


def review(run: Run, op: Op) -> None:
    """Show what an approver is to look at: what will be sent, what is promised, and what is much like it."""
    from opledger.rules import review as rules

    with run.ledger() as ledger:
        document = ledger.review(op)
    run.give(document, lambda: rules.lines(document))


def approve(
    run: Run,
    ops: bulk.Ops = None,
    *,
    reason: Reason,
    state: bulk.States = None,
    contract: bulk.OfContract = None,
    tag: bulk.Tags = None,
    attention: bulk.Attention = False,
    yes: bulk.Yes = False,
    dry_run: bulk.DryRun = False,
    if_version: bulk.IfVersion = None,
    sign: Sign = False,
    key: Key = None,
) -> int:
    """Approve requests, so that they may be sent. Refused for whoever requested them."""
    from opledger.ledger.bulk import Decision

    named, file = _key_among(ops or (), key) if sign else (ops or (), key)
    which = bulk.Which(named, state or (), contract, tag or (), attention, yes, dry_run, if_version)
    decision = Decision("approve", reason)
    if not sign and file is None:
        return bulk.decide(run, which, decision)
    from opledger.ledger.signing import signing

    return bulk.decide(run, which, decision, lambda ledger: replace(decision, sign=signing(ledger, key_file=file)))


def _key_among(ops: Sequence[str], key: Path | None) -> tuple[Sequence[str], Path | None]:
    """Take the key file out of the operations: ``--sign FILE`` reads like a flag with a value."""
    files = [] if key is not None else [name for name in ops if not name.startswith("op_") and Path(name).is_file()]
    if len(files) != 1:
        return ops, key
    return [name for name in ops if name != files[0]], Path(files[0])


def reject(
    run: Run,
    ops: bulk.Ops = None,
    *,
    reason: Reason,
    state: bulk.States = None,
    contract: bulk.OfContract = None,
    tag: bulk.Tags = None,
    attention: bulk.Attention = False,
    yes: bulk.Yes = False,
    dry_run: bulk.DryRun = False,
    if_version: bulk.IfVersion = None,
) -> int:
    """Refuse requests; they are never sent."""
    from opledger.ledger.bulk import Decision

    which = bulk.Which(ops or (), state or (), contract, tag or (), attention, yes, dry_run, if_version)
    return bulk.decide(run, which, Decision("reject", reason))


def cancel(
    run: Run,
    ops: bulk.Ops = None,
    *,
    reason: Reason,
    effect: Annotated[str, typer.Option(metavar="TEXT", help="What you expect to happen.")] = "",
    state: bulk.States = None,
    contract: bulk.OfContract = None,
    tag: bulk.Tags = None,
    attention: bulk.Attention = False,
    yes: bulk.Yes = False,
    dry_run: bulk.DryRun = False,
    if_version: bulk.IfVersion = None,
) -> int:
    """Record the wish to cancel; a worker sends it once. What was never sent is withdrawn."""
    from opledger.ledger.bulk import Decision

    which = bulk.Which(ops or (), state or (), contract, tag or (), attention, yes, dry_run, if_version)
    return bulk.decide(run, which, Decision("cancel", reason, effect=effect))


def resolve(
    run: Run,
    ops: bulk.Ops = None,
    *,
    as_: Annotated[str, typer.Option("--as", metavar="CHOICE", help="One of: opledger choices OP.")],
    reason: Reason,
    job: Annotated[str | None, typer.Option(metavar="ID", help="The job's id at the provider.")] = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="D", help="For how long (30m, 2h).")] = None,
    state: bulk.States = None,
    contract: bulk.OfContract = None,
    tag: bulk.Tags = None,
    attention: bulk.Attention = False,
    yes: bulk.Yes = False,
    dry_run: bulk.DryRun = False,
    if_version: bulk.IfVersion = None,
) -> int:
    """Decide what no program may decide."""
    from opledger.cli import inputs
    from opledger.ledger.bulk import Decision

    length = inputs.span(for_, "--for")
    which = bulk.Which(ops or (), state or (), contract, tag or (), attention, yes, dry_run, if_version)
    return bulk.decide(run, which, Decision("resolve", reason, choice=as_, job=job, extend_by=length))


def each(run: Run, ops: Sequence[str], decide: Callable[[Ledger, str], Operation]) -> int:
    """Decide one operation after the other, each with its own outcome; the first refusal gives the exit code."""
    from opledger.cli import text
    from opledger.errors import Refused, UsageError
    from opledger.rules import shapes
    from opledger.rules.plain import clean

    with run.ledger() as ledger:
        if len(ops) == 1:
            done = decide(ledger, ops[0])
            run.give(shapes.record(done), lambda: text.record(done, ledger.clock.now()))
            return 0
        outcomes: list[tuple[str, Operation | Refused]] = []
        for name in dict.fromkeys(ops):
            try:
                outcomes.append((name, decide(ledger, name)))
            except UsageError:
                raise
            except Refused as error:
                outcomes.append((name, error))

    def item(name: str, outcome: Operation | Refused) -> dict[str, Any]:
        if isinstance(outcome, Refused):
            error = {"code": outcome.code, "message": outcome.message}
            return {"operation_id": name, "ok": False, "error": error}
        return {"operation_id": outcome.operation_id, "ok": True, "record": shapes.record(outcome)}

    def lines() -> Iterable[str]:
        for _, outcome in outcomes:
            if isinstance(outcome, Refused):
                yield f"refused: {clean(outcome.message)}"
            else:
                yield f"{clean(outcome.operation_id)} is {text.state_word(outcome.state)}"

    run.give([item(*outcome) for outcome in outcomes], lines)
    return 3 if any(isinstance(outcome, Refused) for _, outcome in outcomes) else 0
