"""What every command has: ``--json``, ``--db``, ``--debug``, one way out for documents, and one for sentences.

Only typer is imported here; whatever costs more is imported by the command that needs it, so that ``--help`` and
``--version`` answer at once.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TextIO, get_type_hints

import typer

from opledger.cli import loaded

if TYPE_CHECKING:
    from opledger.config import Settings
    from opledger.ledger import Ledger

JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
DbFlag = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="The ledger: sqlite:///PATH or postgresql://…", show_default=False),
]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags that may stand before or after the command."""

    as_json: bool = False
    db: str | None = None
    debug: bool = False

    def over(self, other: Flags | None) -> Flags:
        """Return these flags, with what they leave open taken from `other`."""
        if other is None:
            return self
        return Flags(self.as_json or other.as_json, self.db or other.db, self.debug or other.debug)


@dataclass(frozen=True, slots=True)
class Run:
    """One command under way: its flags, and where its output goes."""

    flags: Flags

    def settings(self) -> Settings:
        """Return flags, environment and files as one set of settings. Raises UsageError for what is wrong there."""
        from pathlib import Path

        from opledger.config import load_settings
        from opledger.errors import ConfigWrong, UsageError

        loaded()
        try:
            return load_settings({"db": self.flags.db}, os.environ, Path.cwd())
        except ConfigWrong as error:
            raise UsageError(error.message) from error

    def ledger(self, *, read_only: bool = False, tested: bool = False) -> Ledger:
        """Open the ledger that flags, environment and files name; `tested`: see `Ledger.open`."""
        from opledger.ledger import Ledger

        return Ledger.open(settings=self.settings(), read_only=read_only, tested=tested)

    def give(self, document: Any, lines: Callable[[], Iterable[str]]) -> None:
        """Print the outcome: `document` for programs, `lines` for people."""
        if self.flags.as_json:
            put_json(document, sys.stdout)
        else:
            put(lines())

    def tell(self, code: str, message: str, **more: Any) -> None:
        """Say on standard error what is wrong, or who must do something: a sentence, or one JSON document."""
        if self.flags.as_json:
            put_json({"error": {"code": code, "message": message, **more}}, sys.stderr)
        else:
            from opledger.rules.plain import clean

            put([clean(message)], sys.stderr)


def put(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines that are fit for a terminal already."""
    for line in lines:
        print(line, file=stream or sys.stdout)


def put_json(document: Any, stream: TextIO) -> None:
    """Print one JSON document in which no character acts on a terminal; in ASCII where the stream takes no more."""
    from opledger.rules.jsontext import dumps_inert

    text = dumps_inert(document, indent=2 if stream.isatty() else None)
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(document)
    print(text, file=stream)


def command(group: typer.Typer, name: str | None = None, *, panel: str | None = None) -> Callable[[Any], Any]:
    """Add a function as a command. It gets a `Run` as first argument, and the common flags come by themselves.

    What it returns is the exit code; None means 0.
    """

    def add(function: Callable[..., int | None]) -> Callable[..., int | None]:
        words = name or function.__name__.removesuffix("_").replace("_", "-")
        group.command(words, rich_help_panel=panel)(_with_flags(function))
        return function

    return add


def _with_flags(function: Callable[..., int | None]) -> Callable[..., int | None]:
    @functools.wraps(function)
    def run(ctx: typer.Context, as_json: bool, db: str | None, debug: bool, **given: Any) -> int | None:
        before = ctx.find_root().obj
        flags = Flags(as_json, db, debug).over(before if isinstance(before, Flags) else None)
        try:
            return function(Run(flags), **given)
        except BrokenPipeError as error:
            raise PipeClosed from error

    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    common = [
        inspect.Parameter("ctx", keyword, annotation=typer.Context),
        inspect.Parameter("as_json", keyword, annotation=JsonFlag, default=False),
        inspect.Parameter("db", keyword, annotation=DbFlag, default=None),
        inspect.Parameter("debug", keyword, annotation=DebugFlag, default=False),
    ]
    mine = [part.replace(kind=keyword, annotation=hints[part.name]) for part in own]
    run.__signature__ = inspect.Signature([*mine, *common])  # type: ignore[attr-defined]
    run.__annotations__ = {part.name: part.annotation for part in (*mine, *common)}
    del run.__dict__["__wrapped__"]
    return run


class PipeClosed(Exception):
    """Whoever read our output has gone; nobody is left to tell."""


def hush() -> None:
    """Let the interpreter's last flush of standard output go nowhere, so that a closed pipe makes no noise."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None
