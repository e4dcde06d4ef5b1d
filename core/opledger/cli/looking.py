"""``show list history events explain choices packet``: reading the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from opledger.cli.frame import Run, command

Op = Annotated[str, typer.Argument(help="The operation's id, or its last eight or more characters.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(show)
    command(app)(list_)
    command(app)(history)
    command(app)(events)
    command(app)(explain)
    command(app)(choices)
    command(app)(packet)


def show(run: Run, op: Op) -> None:
    """Show one record."""
    from opledger.cli import text
    from opledger.rules import shapes

    with run.ledger() as ledger:
        found = ledger.show(op)
        run.give(shapes.record(found), lambda: text.record(found, ledger.clock.now()))


def list_(
    run: Run,
    *,
    state: Annotated[list[str] | None, typer.Option(metavar="S", help="Only this state; several may be given.")] = None,
    contract: Annotated[str | None, typer.Option(metavar="C", help="Only this contract.")] = None,
    attention: Annotated[bool, typer.Option(help="Only what wants a person's attention.")] = False,
    tag: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Only with this tag.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="OP", help="Go on behind this operation.")] = None,
) -> None:
    """List operations, newest first."""
    from opledger.cli import inputs, text
    from opledger.rules import shapes

    with run.ledger() as ledger:
        found = ledger.list(
            states=state or (),
            contract=contract,
            attention=attention,
            tags=inputs.tags(tag or ()),
            limit=limit,
            after=after,
        )
        now = ledger.clock.now()
        run.give([shapes.record(one) for one in found], lambda: text.listing(found, now))


def history(run: Run, op: Op) -> None:
    """Show every change of state, and why."""
    from opledger.cli import text
    from opledger.rules import shapes

    with run.ledger() as ledger:
        found = ledger.history(op)
        run.give([shapes.transition(event) for event in found], lambda: text.steps(found))


def events(run: Run, op: Op) -> None:
    """Show the whole journal of one operation."""
    from opledger.cli import text
    from opledger.rules import shapes

    with run.ledger() as ledger:
        found = ledger.events(op)
        run.give([shapes.journal_event(event) for event in found], lambda: text.journal(found))


def explain(run: Run, op: Op) -> None:
    """Say why it is where it is, and what happens next. Also when, and what a person may do, with the evidence."""
    from opledger.cli import text
    from opledger.rules import shapes

    with run.ledger() as ledger:
        found = ledger.explain(op)
        run.give(shapes.explanation(found), lambda: text.explanation(found))


def choices(run: Run, op: Op) -> None:
    """Show what a person may decide about an operation now."""
    from opledger.cli import text
    from opledger.rules import shapes

    with run.ledger() as ledger:
        record = ledger.show(op)
        found = ledger.choices(record.operation_id)

        def lines() -> Iterable[str]:
            return text.choices(found, record)

        run.give([shapes.option(one) for one in found], lines)


def packet(
    run: Run,
    op: Op,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there instead of printing it.")] = None,
) -> None:
    """Print the escalation packet for a provider's support, sanitised: Markdown, or JSON with --json."""
    from opledger.edges.files import write_out
    from opledger.rules.jsontext import dumps_inert
    from opledger.rules.packet import markdown

    with run.ledger() as ledger:
        document = ledger.packet(op)
    if out is None or str(out) == "-":
        run.give(document, lambda: markdown(document).splitlines())
        return
    text = dumps_inert(document, indent=2) + "\n" if run.flags.as_json else markdown(document)
    write_out(out, text.encode())
    run.give({"operation_id": document["operation_id"], "file": str(out)}, lambda: [f"The packet stands in {out}."])
