"""The end of a terminal: an SSH session that drops, a window that is closed, a polite signal.

Textual reads on from a terminal that has gone, and takes a whole core for it (measured). The console ends instead, and
with it the worker that it started.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from textual.app import App


def hung_up() -> bool:
    """Tell whether the terminal on standard input has gone."""
    poll = select.poll()
    try:
        poll.register(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0, select.POLLHUP)
        return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError):  # closed: gone as well
        return True


LONGEST = 5.0
"""Seconds that leaving may take once the terminal has gone; then the process ends, whatever still waits."""


def leave_hard(code: int, last: Callable[[], None]) -> None:
    """See to it that this process ends soon: `last` is done first, and nothing else is waited for.

    When a session ends, the kernel wakes the process after the hang-up (SIGCONT), and Textual then begins to draw anew
    on a terminal that is gone, and waits for it for ever (measured).
    """
    signal.signal(signal.SIGCONT, signal.SIG_IGN)

    def end() -> None:
        last()
        os._exit(code)

    timer = threading.Timer(LONGEST, end)
    timer.daemon = True
    timer.start()


@contextmanager
def ending_well(app: App[Any], last: Callable[[], None]) -> Iterator[None]:
    """Let SIGHUP and SIGTERM end the app as quitting does, so that the terminal is left as it was found."""
    before = {}

    def end(number: int, _: Any) -> None:
        leave_hard(128 + number, last)
        loop = getattr(app, "_loop", None)
        if loop is not None:
            loop.call_soon_threadsafe(app.exit, 128 + number)
        else:
            raise SystemExit(128 + number)

    for number in (signal.SIGHUP, signal.SIGTERM):
        before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
