"""``audit``: whether the history is what was written, and what others need to see for themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opledger.cli.frame import Run, command

if TYPE_CHECKING:
    from opledger.ledger.audit import Progress, Verified
    from opledger.rules.journal import Finding

INTEGRITY = 4
STOPPED = 130

Anchors = Annotated[
    list[Path] | None,
    typer.Option("--anchor", metavar="FILE", help="Compare with this anchor too; several may be given."),
]
Key = Annotated[str | None, typer.Option(metavar="KEY", help="Who must have signed: a key as audit key prints it.")]


def group_of(app: typer.Typer) -> typer.Typer:
    """Make the group, or find it where another part has made it."""
    for one in app.registered_groups:
        if one.name == "audit" and one.typer_instance is not None:
            return one.typer_instance
    group = typer.Typer(
        help="A history that can be trusted: verify it, and give others what they need to do the same.",
        rich_markup_mode=None,
        no_args_is_help=True,
    )
    app.add_typer(group, name="audit")
    return group


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = group_of(app)
    command(group)(verify)
    command(group)(export)
    command(group)(verifier)


def verify(
    run: Run,
    anchor: Anchors = None,
    *,
    key: Key = None,
    archive: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Check this archive against its tombstones too.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Everything, however much there is.")] = False,
    since: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only what came behind checkpoint N.")] = None,
) -> int:
    """Compute every chain, record and checkpoint again, and compare with the anchors. Exit code 4 on any finding.

    A large ledger that was verified here before is verified from there on; --full verifies all of it.
    """
    import os

    from opledger.errors import UsageError
    from opledger.ledger import audit

    if full and since is not None:
        raise UsageError("--full and --since exclude each other")
    asked = audit.Asked(
        anchors=anchor or (),
        archives=archive or (),
        key=key,
        full=full,
        since=since,
        helpers=os.cpu_count() or 1,
    )
    bar = _Bar(shown=sys.stderr.isatty() and not run.flags.as_json)
    with run.ledger(read_only=True) as ledger:
        try:
            found = audit.run(ledger, asked, told=bar.tell)
        finally:
            bar.clear()
    run.give(found.shape(), lambda: lines(found))
    return INTEGRITY if found.count else 0


def lines(found: Verified) -> Iterable[str]:
    """What people read of a verification."""
    from opledger.rules.model import to_rfc3339
    from opledger.rules.plain import clean

    how = found.progress
    if found.since is not None:
        number, at = found.since
        yield f"only what came behind checkpoint {number} of {to_rfc3339(at)}; --full verifies everything"
    yield (
        f"{how.events:,} events of {how.done:,} operations, {found.checkpoints:,} checkpoints"
        f"{f', {found.archived:,} archived' if found.archived else ''}"
        f" in {how.seconds:.1f} s ({how.rate:,.0f} events/s)"
    )
    if found.anchored is not None:
        note, name = found.anchored[0].note, found.anchored[1]
        yield f"anchored up to checkpoint {note.number} of {to_rfc3339(note.at)} ({clean(name)})"
    elif found.checkpoints:
        yield "not anchored: no anchor outside the database holds a checkpoint of it"
    for one in found.notes:
        yield f"note: {clean(one.message)}"
    for one in found.findings:
        yield f"{one.kind}  {_where(one)}{clean(one.message)}"
    if found.count > len(found.findings):
        yield f"and {found.count - len(found.findings):,} more: {', '.join(f'{k} {n:,}' for k, n in found.kinds)}"
    found_all = f"{found.count:,} finding{'' if found.count == 1 else 's'}"
    yield found_all if found.count else "no findings: all as it was written"


def _where(one: Finding) -> str:
    from opledger.rules.plain import clean

    if one.operation_id is None:
        return "" if one.seq is None else f"checkpoint {one.seq}: "
    return f"{clean(one.operation_id)}{'' if one.seq is None else f' event {one.seq}'}: "


class _Bar:
    """One line on a terminal that is written over and over."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown

    def tell(self, progress: Progress) -> None:
        """Say how far it got."""
        if not self._shown:
            return
        share = progress.done / progress.total if progress.total else 0.0
        left = f", {progress.left:,.0f} s left" if progress.left is not None else ""
        bar = "#" * int(share * 20)
        print(
            f"\r[{bar:<20}] {progress.done:,} of {progress.total:,} operations, {progress.rate:,.0f} events/s{left}"
            f"{f', {progress.found:,} findings' if progress.found else ''}\x1b[K",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def export(
    run: Run,
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Only these operations.")] = None,
    *,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Into this file, whole or not at all.")] = None,
) -> None:
    """Write the journal, the checkpoints and their leaves as JSON lines, for the stand-alone verifier and auditors."""
    from opledger.edges.files import copy_out
    from opledger.ledger import export as exporting

    with run.ledger(read_only=True) as ledger:
        written = exporting.lines(ledger, ops or ())
        if out is None:
            for number, line in enumerate(written):
                text = line.decode("ascii")
                # With --json exactly one document: the same lines as one array.
                sys.stdout.write(("," if number else "[") + text.rstrip() if run.flags.as_json else text)
            if run.flags.as_json:
                sys.stdout.write("]\n")
            return
        copy_out(written, out)
    run.give({"file": str(out)}, lambda: [f"written to {out}"])


def verifier(run: Run) -> None:
    """Print the stand-alone verifier: one Python file that shares no code with opledger, to check an export with."""
    from importlib import resources

    source = resources.files("opledger").joinpath("verifier.py").read_text(encoding="utf-8")
    run.give({"source": source}, source.splitlines)
