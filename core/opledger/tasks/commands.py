"""Starting programs: words and no shell, a time limit, and an end for everything that they started.

A program inherits an open lock, so that whoever comes after a runner that was killed can tell that it still runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

from opledger.edges.clock import Clock
from opledger.rules import jsontext
from opledger.rules.redact import Redactor
from opledger.tasks.papers import Lock

KEPT: Final = 64 * 1024
"""Bytes of each output that are kept: its end."""

SHOWN: Final = 2_000
"""Characters of an output that stand in a record."""

GRACE: Final = 5.0
"""Seconds between asking a program to end and ending it."""

LOOK: Final = 0.5


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a program. `code` is None where it was never started, or was ended for taking too long."""

    code: int | None
    out: bytes = b""
    err: bytes = b""
    why: str | None = None

    @property
    def ok(self) -> bool:
        """It exited 0."""
        return self.code == 0

    def sentence(self, redactor: Redactor) -> str:
        """Say how it ended, with the last line that it printed."""
        how = self.why or (
            f"it exited {self.code}" if (self.code or 0) >= 0 else f"signal {-(self.code or 0)} ended it"
        )
        lines = [line for line in shown(self.err or self.out, redactor).splitlines() if line.strip()]
        return f"{how}: {lines[-1].strip()[:300]}" if lines else how

    def outputs(self) -> Mapping[str, Any]:
        """The JSON object on the last line of standard output, if there is one."""
        lines = self.out.strip().splitlines()
        if not lines or not lines[-1].lstrip().startswith(b"{"):
            return {}
        try:
            found = jsontext.loads(lines[-1])
        except jsontext.JsonError:
            return {}
        return found if isinstance(found, dict) else {}


def shown(output: bytes, redactor: Redactor) -> str:
    """The end of an output as it may be kept: masked first, then cut."""
    return redactor.mask_text(output.decode("utf-8", "replace"))[-SHOWN:]


def run(
    argv: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    limit: timedelta,
    *,
    clock: Clock,
    going: Callable[[], None] = lambda: None,
    lock: Lock | None = None,
) -> Ran:
    """Run a program to its end, or to the end of its time.

    `going` is asked every now and then, and ends the program by raising.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - the plan's author names the program; no shell sees the words
            list(argv),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if lock is None else (lock.descriptor,),
        )
    except (OSError, ValueError) as error:
        return Ran(None, why=f"{argv[0]} cannot be started ({getattr(error, 'strerror', None) or error})")
    readers = [_Reader(stream) for stream in (process.stdout, process.stderr) if stream is not None]
    why = None
    try:
        ends = clock.monotonic() + limit.total_seconds()
        while True:
            left = ends - clock.monotonic()
            if left <= 0:
                why = f"it took longer than {limit.total_seconds():g} seconds and was ended"
                break
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(left, LOOK))
                break
            going()
    finally:
        _end(process)
        for reader in readers:
            reader.join(GRACE)
    out, err = (reader.kept() for reader in readers)
    return Ran(None if why else process.returncode, out, err, why)


class _Reader(threading.Thread):
    """Reads a pipe to its end, so that the program never blocks, and keeps the last of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(name="task-output", daemon=True)
        self._stream = stream
        self._kept = b""
        self.start()

    def run(self) -> None:
        with self._stream as stream, suppress(OSError, ValueError):
            while piece := os.read(stream.fileno(), KEPT):
                self._kept = (self._kept + piece)[-KEPT:]

    def kept(self) -> bytes:
        return self._kept


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started in its session; does nothing where they have ended."""
    for number, grace in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
