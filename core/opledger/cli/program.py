"""The whole command, and how an error becomes one sentence and an exit code.

0  done
1  unexpected (with a traceback only under --debug)
2  usage: a flag, a body, a duration or a file that cannot be read
3  refused by a rule, or an unknown operation, contract or setting
4  an integrity finding
5  the database or the provider is out of reach
6  --timeout ran out
7  a human is needed
130 interrupted from the keyboard · 141 whoever read our output has gone
"""

from __future__ import annotations

import copy
import errno
import functools
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from opledger import errors
from opledger.cli import (
    archive,
    audit,
    checkpoints,
    contracts,
    deciding,
    doctor,
    escalations,
    keys,
    looking,
    providers,
    results,
    running,
    settings,
    submitting,
    tasks,
    webhooks,
)
from opledger.cli.frame import DbFlag, DebugFlag, Flags, JsonFlag, PipeClosed, Run, hush

UNEXPECTED, USAGE, REFUSED, INTEGRITY, OUT_OF_REACH, TIMED_OUT, HUMAN_NEEDED = range(1, 8)
PIPE_CLOSED = 141
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

EXIT_CODES: tuple[tuple[type[Exception], int, str | None], ...] = (
    (errors.UsageError, USAGE, None),
    (errors.Refused, REFUSED, None),
    (errors.ConfigWrong, REFUSED, None),
    (errors.LeaseLost, REFUSED, None),
    (errors.ProviderBroke, OUT_OF_REACH, None),
    (errors.DatabaseReplaced, INTEGRITY, None),
    (errors.StoreUnavailable, OUT_OF_REACH, None),
    (errors.IntegrityBroken, INTEGRITY, None),
    (TimeoutError, TIMED_OUT, "timeout"),
)
"""The first class that fits decides the exit code; a word stands in for classes without a code of their own."""

app = typer.Typer(
    name="opledger",
    help="A durable ledger for long-running jobs on other people's HTTP APIs.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    as_json: JsonFlag = False,
    db: DbFlag = None,
    debug: DebugFlag = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """A durable ledger for long-running jobs on other people's HTTP APIs."""
    ctx.obj = Flags(as_json, db, debug)
    if version:
        from opledger import __version__

        Run(ctx.obj).give({"version": __version__}, lambda: [f"opledger {__version__}"])
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        if as_json:
            raise errors.UsageError("a command is missing; opledger --help lists them")
        print(ctx.get_help(), file=sys.stderr)
        raise typer.Exit(USAGE)


for part in (
    submitting,
    looking,
    deciding,
    escalations,
    running,
    results,
    contracts,
    providers,
    doctor,
    archive,
    audit,
    checkpoints,
    keys,
    settings,
    tasks,
    webhooks,
):
    part.add_to(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; nothing is raised."""
    # Usage errors come before the flags are parsed, so the words themselves must tell how to print them.
    flags = Flags(as_json="--json" in arguments, debug="--debug" in arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    interrupted = _Interrupted()
    try:
        interrupted.watch()
        code = get_command(_part(_named(arguments))).main(
            args=list(arguments), prog_name="opledger", standalone_mode=False
        )
        sys.stdout.flush()
    except (PipeClosed, BrokenPipeError):
        hush()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the boundary: whatever it is becomes a sentence and an exit code
        code = 0 if interrupted.seen else report(_told(error), flags)
    finally:
        interrupted.restore()
    if interrupted.seen:
        raise KeyboardInterrupt
    return code or 0


def _named(arguments: Sequence[str]) -> str | None:
    """Return the word where a command is named; None where something stands before it that is about all commands."""
    words = iter(arguments)
    for word in words:
        if word == "--db":
            next(words, None)
        elif word not in ("--json", "--debug") and not word.startswith("--db="):
            return word
    return None


@functools.cache
def _part(name: str | None) -> typer.Typer:
    """Return the program with only the command of this name, or else all of it, as help and wrong words need it.

    To make the options of all fifty commands takes a twentieth of the time of a short one.
    """
    one = [command for command in app.registered_commands if command.name == name]
    if not one:
        return app
    part = copy.copy(app)
    part.registered_commands, part.registered_groups = one, []
    return part


def _told(error: Exception) -> Exception:
    """Say of standard output that cannot take what is printed what it is: a full disk, and no fault of this program.

    Whatever else is written has said which file it was long before.
    """
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _FULL:
        return error
    hush()
    return errors.StoreUnavailable(
        f"standard output cannot be written: {error.strerror}; what stands there is not whole, and is not to be used"
    )


_DEAF: Final = frozenset(
    {"_authorize", "_authorize_archiving", "__del__", "cb", "_finalize_fairy", "_close_connection"}
)
"""Functions that are called where nobody hears what they raise, or where its trace is logged before anybody does.

`cb` lets go of the lock of an import; the last two are SQLAlchemy's pool, which takes a connection back or closes it.
"""


class _Interrupted:
    """Remembers that Ctrl-C was pressed.

    Pressed where Python throws exceptions away (SQLite asks our authorizer, something is finalised), a
    KeyboardInterrupt would be lost, or come back as a database error that somebody waits out, or be printed with its
    trace by a pool of connections: it is raised a moment later instead.
    """

    def __init__(self) -> None:
        self.seen = False
        self._before: Any = None
        self._alarm: Any = None

    def watch(self) -> None:
        """Take the place of Python's own handler, where that is in place."""
        if threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._before = signal.signal(signal.SIGINT, self._press)
            self._alarm = signal.signal(signal.SIGALRM, self._press)

    def restore(self) -> None:
        """Put Python's handler back."""
        if self._before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._alarm)
            signal.signal(signal.SIGINT, self._before)

    def _press(self, _: int, frame: FrameType | None) -> None:
        self.seen = True
        while frame is not None:
            if frame.f_code.co_name in _DEAF:
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                return
            frame = frame.f_back
        raise KeyboardInterrupt


def report(error: Exception, flags: Flags) -> int:
    """Print an error as one sentence (or one JSON document) on standard error and return its exit code."""
    out = Run(flags)
    if isinstance(error, typer.BadParameter.__mro__[1]):  # click's UsageError, which typer keeps in a private module
        out.tell(errors.UsageError.code, _usage(error))
        return USAGE
    for kind, code, word in EXIT_CODES:
        if isinstance(error, kind):
            out.tell(word or str(getattr(error, "code", "error")), str(error))
            return code
    return _unexpected(error, out)


def _usage(error: Any) -> str:
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "opledger"
    return f"{message}; see: {where} --help"


def _unexpected(error: Exception, out: Run) -> int:
    from opledger.edges.masking import hide_known

    message = hide_known(f"opledger met an error that it did not expect ({type(error).__name__}: {error})")
    if not out.flags.debug:
        out.tell("unexpected", f"{message}; run it again with --debug to see where, and report it")
        return UNEXPECTED
    import traceback

    trace = [hide_known(part) for part in traceback.format_exception(error)]
    if out.flags.as_json:
        out.tell("unexpected", message, traceback=trace)
    else:
        from opledger.rules.plain import clean

        print(clean("".join(trace), newlines=True), end="", file=sys.stderr)
    return UNEXPECTED
