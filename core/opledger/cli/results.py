"""``result``: hand a stored result over."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opledger.cli.frame import Run, command
from opledger.cli.looking import Op

if TYPE_CHECKING:
    from opledger.ledger.results import CheckedResult

LARGE = 32_000_000
"""Bytes from which on it is shown how far the look at them is."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(result)


def result(
    run: Run,
    op: Op,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there.")] = None,
    also: Annotated[str | None, typer.Option(metavar="NAME", help="A further file of the result.")] = None,
) -> None:
    """Hand a result over, after a look at every byte of it. To --out, or to standard output if that is no terminal."""
    from opledger.edges.files import check_target, copy_out
    from opledger.edges.stores import check_lasting

    target = None if out is None or str(out) == "-" else out
    if target is not None:
        check_target(target)  # before gigabytes are read for nothing
    shown = _Shown(run)
    check_lasting(run.settings().results)
    with run.ledger(read_only=True) as ledger:
        found = ledger.result(op, also=also, progress=shown)
    with found:
        if target is not None:
            _check_elsewhere(target, found)
            copy_out(found.pieces(shown), target)
        elif not run.flags.as_json and not sys.stdout.isatty():
            shown.clear()
            _pour(found.pieces())
        shown.clear()
        remark = found.remark()
        if remark is not None and not run.flags.as_json:
            from opledger.cli.frame import put
            from opledger.rules.plain import clean

            put([clean(f"{found.operation.operation_id}: {remark}")], sys.stderr)
        if run.flags.as_json or target is not None or sys.stdout.isatty():
            run.give(_document(found, target), lambda: _lines(found, target))


def _pour(pieces: Iterator[bytes]) -> None:
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _check_elsewhere(target: Path, found: CheckedResult) -> None:
    """Raise UsageError where a copy would take the place of the stored result itself."""
    from opledger.errors import UsageError

    if target.exists() and target.samefile(found.path):
        raise UsageError(f"{target} is the stored result itself; name another file")


def _document(found: CheckedResult, target: Path | None) -> dict[str, Any]:
    file, whole = found.file, found.operation.result
    return {
        "operation_id": found.operation.operation_id,
        "state": str(found.operation.state),
        "also": file.name or None,
        "location": file.location,
        "size": file.size,
        "sha256": file.sha256,
        "content_type": file.content_type,
        "validated": whole is not None and whole.validated,
        "problems": [] if whole is None else list(whole.problems),
        "file": None if target is None else str(target),
    }


def _lines(found: CheckedResult, target: Path | None) -> Iterable[str]:
    from opledger.cli import text
    from opledger.ledger.results import size_words

    what = ", ".join(word for word in (size_words(found.file.size), found.file.content_type) if word)
    if target is not None:
        yield from text.wrapped(f"The result ({what}) stands in {target}. Its bytes are those that were stored.")
        return
    yield from text.wrapped(f"The result ({what}) lies here; its bytes are those that were stored:")
    yield from text.wrapped(found.file.location)
    yield from text.wrapped(
        "A terminal is no place for it: give --out FILE, or send standard output into a file or a program."
    )


class _Shown:
    """One line on standard error that says how far the look at a large result is; only for people."""

    def __init__(self, run: Run) -> None:
        from opledger.edges.clock import SystemClock

        self._clock = SystemClock()
        self._on = sys.stderr.isatty() and not run.flags.as_json
        self._next = 0.0
        self._width = 0

    def __call__(self, done: int, total: int) -> None:
        """Say it, a few times a second."""
        now = self._clock.monotonic()
        if not self._on or total < LARGE or now < self._next:
            return
        from opledger.ledger.results import size_words

        self._next = now + 0.2
        self._put(f"{size_words(done)} of {size_words(total)} looked at")

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            self._put("")

    def _put(self, text: str) -> None:
        sys.stderr.write(f"\r{text:<{self._width}}" + ("" if text else "\r"))
        sys.stderr.flush()
        self._width = len(text)
