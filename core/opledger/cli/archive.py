"""``archive``: operations that have ended go into a file, and leave tombstones."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opledger.cli.frame import Run, command

if TYPE_CHECKING:
    from datetime import datetime

HUMAN_NEEDED = 7


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(archive)


def archive(
    run: Run,
    *,
    closed_before: Annotated[
        str, typer.Option(metavar="D", help="A date, a time with its zone, or an age such as 90d.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="A new file; it is all that is left of them.")],
    reason: Annotated[str, typer.Option(metavar="R", help="Why; it stands in every tombstone.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Move operations that have ended into a file, verified before anything is deleted. For people only."""
    from opledger.edges.place import acting
    from opledger.ledger import archive as archives
    from opledger.rules import human
    from opledger.rules.plain import clean

    with run.ledger() as ledger:
        who = acting(human.actor(ledger.settings.operator))
        archives.check_person(who)
        human.reason(reason)
        planned = archives.plan(ledger, _moment(closed_before, ledger.clock.now()))
        if planned.ids and not yes:
            if run.flags.as_json or not sys.stdin.isatty():
                run.tell("human_needed", f"{archives.told(planned)} If you mean that, give --yes")
                return HUMAN_NEEDED
            print(clean(archives.told(planned)), file=sys.stderr)
            if not typer.confirm("Archive them?", err=True):
                run.tell("human_needed", "nothing was written")
                return HUMAN_NEEDED
        done = archives.archive(ledger, planned, out, reason=reason, by=who)
    more = ["there is more; run it again with another file"] if done.more else []
    run.give(
        done.shape(),
        lambda: [
            f"{done.operations:,} operations are in {clean(str(done.file))}, SHA-256 {done.sha256}",
            "keep that file: opledger audit verify --archive FILE checks it against the tombstones",
            *more,
        ],
    )
    return 0


def _moment(text: str, now: datetime) -> datetime:
    """Read a date (its beginning, UTC), a time with its zone, or an age. Raises UsageError."""
    from opledger.errors import UsageError
    from opledger.rules.durations import parse_duration
    from opledger.rules.model import from_rfc3339

    with contextlib.suppress(ValueError, OverflowError):
        return now - parse_duration(text)
    try:
        return from_rfc3339(f"{text}T00:00:00Z" if len(text) == 10 else text)
    except ValueError as error:
        raise UsageError("--closed-before: give a date (2026-05-01), a time with its zone, or an age (90d)") from error
