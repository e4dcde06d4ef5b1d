"""Forking a child that does one thing, and waiting for its end."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

PATIENCE: Final = 90.0
"""Real seconds after which a child hangs."""

BROKE: Final = 70
"""Exit code of a child that ended with an exception."""

_PR_SET_PDEATHSIG: Final = 1


def dies_with_parent() -> None:
    """Let the system end this process when its parent ends, however that came (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def in_child(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a child; returns 0, a negative number for the signal that ended it, or `BROKE`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = BROKE
        try:
            dies_with_parent()
            sink = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it was, it is told in the log and by the code
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stderr.flush()
            os._exit(code)
    return _wait(pid)


def _wait(pid: int) -> int:
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle], [], [], PATIENCE)
        if not ready:
            os.kill(pid, signal.SIGABRT)
    finally:
        os.close(handle)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
