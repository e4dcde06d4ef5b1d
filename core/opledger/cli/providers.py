"""``provider list|pause|resume``: stopping and starting all calls to one provider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opledger.cli.deciding import Reason
from opledger.cli.frame import Run, command

if TYPE_CHECKING:
    from opledger.store import Provider

Name = Annotated[str, typer.Argument(help="The contract's name.")]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="Stop and start all calls to one provider.", rich_markup_mode=None, no_args_is_help=True)
    command(group)(list_)
    command(group)(pause)
    command(group)(resume)
    app.add_typer(group, name="provider")


def list_(run: Run) -> None:
    """List providers, and whether calls to them are stopped."""
    with run.ledger() as ledger:
        found = ledger.providers()
        run.give([_shape(one) for one in found], lambda: _lines(found))


def pause(run: Run, name: Name, reason: Reason) -> None:
    """Stop all calls to one provider, in every worker."""
    with run.ledger() as ledger:
        found = ledger.pause_provider(name, reason=reason)
        run.give(_shape(found), lambda: _lines([found]))


def resume(run: Run, name: Name, reason: Reason) -> None:
    """Allow calls to one provider again."""
    with run.ledger() as ledger:
        found = ledger.resume_provider(name, reason=reason)
        run.give(_shape(found), lambda: _lines([found]))


def _shape(found: Provider) -> dict[str, Any]:
    from opledger.rules.shapes import moment

    return {
        "contract": found.contract,
        "state": found.state,
        "by": found.by,
        "reason": found.reason,
        "since": moment(found.since),
        "open_operations": found.open_operations,
    }


def _lines(found: Iterable[Provider]) -> Iterable[str]:
    from opledger.cli import text
    from opledger.rules.model import to_rfc3339
    from opledger.rules.plain import clean

    rows = [
        (
            clean(one.contract),
            one.state,
            str(one.open_operations),
            "-" if one.since is None else clean(f"{one.by} at {to_rfc3339(one.since)[:16]}Z: {one.reason}"),
        )
        for one in found
    ]
    return text.table(("PROVIDER", "CALLS", "OPEN", "BY, SINCE, WHY"), rows, stretch=3)
