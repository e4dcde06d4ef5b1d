"""``escalations ack``: what wants a person, the most urgent first, and saying that somebody is on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from opledger.cli.deciding import Reason, each
from opledger.cli.frame import Run, command
from opledger.cli.submitting import Ops

if TYPE_CHECKING:
    from datetime import datetime

    from opledger.ledger import Ledger
    from opledger.rules.escalation import Escalation
    from opledger.rules.model import Operation


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(escalations)
    command(app)(ack)


def escalations(
    run: Run,
    contract: Annotated[str | None, typer.Option(metavar="C", help="Only this contract.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="At most so many.")] = 200,
) -> None:
    """List what wants a person, the most urgent first. What somebody has acknowledged stands last."""
    from opledger.rules import shapes

    with run.ledger() as ledger:
        found = ledger.escalations(contract)[:limit]
        now = ledger.clock.now()
        run.give([shapes.escalated(one, now) for one in found], lambda: _lines(found, now))


def ack(
    run: Run,
    ops: Ops,
    reason: Reason,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="D", help="For how long (30m, 2h); else until the attention ends.")
    ] = None,
) -> int:
    """Say that somebody has seen it and works on it. Notices about it fall silent until that lapses."""
    from opledger.cli import inputs
    from opledger.errors import Refused

    length = inputs.span(for_, "--for")

    def acknowledge(ledger: Ledger, op: str) -> Operation:
        seen = ledger.show(op)
        if seen.attention is None:
            raise Refused(
                f"{seen.operation_id} is {seen.state} and needs no attention; there is nothing to acknowledge"
            )
        until = None if length is None else ledger.clock.now() + length
        return ledger.acknowledge(seen.operation_id, reason=reason, until=until)

    return each(run, ops, acknowledge)


def _lines(found: Sequence[Escalation], now: datetime) -> Iterable[str]:
    from opledger.cli import text
    from opledger.rules.plain import clean

    if not found:
        yield "Nothing wants a person."
        return

    def taken(one: Escalation) -> str:
        if not one.acknowledged(now):
            return "-"
        left = "" if one.acknowledged_until is None else f", {text.span(one.acknowledged_until - now)}"
        return clean(f"{one.acknowledged_by}{left}")

    rows = [
        (
            one.severity.value,
            clean(one.code),
            clean(one.contract) if one.operation_id is None else text.short(one.operation_id),
            text.span(now - one.since),
            text.relative(one.deadline, now),
            taken(one),
        )
        for one in found
    ]
    heads = ("SEVERITY", "CODE", "ID", "SINCE", "DEADLINE", "TAKEN BY")
    head, *lines = text.table(heads, rows, stretch=5)
    yield head
    for one, line in zip(found, lines, strict=True):
        yield line
        yield from text.wrapped(clean(one.reason, limit=400), "      ")
