"""A real terminal without a window: a pseudo-terminal with a program on it, and a screen that its bytes are drawn on.

The screen understands what a VT100 does (pyte). Everything the program writes goes through it, so what a test sees is
what a person would, and bytes that act on a terminal act here, too.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyte

from opledger.edges.clock import SystemClock

PATIENCE: Final = 30.0
"""Seconds after which something that should have shown long ago is given up."""

KEYS: Final[Mapping[str, bytes]] = {
    "down": b"\x1b[B",
    "up": b"\x1b[A",
    "left": b"\x1b[D",
    "right": b"\x1b[C",
    "pagedown": b"\x1b[6~",
    "pageup": b"\x1b[5~",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "enter": b"\r",
    "escape": b"\x1b",
    "tab": b"\t",
    "backtab": b"\x1b[Z",
    "space": b" ",
    "backspace": b"\x7f",
    "ctrl+c": b"\x03",
    "ctrl+p": b"\x10",
}

# What pyte does not know and a terminal ignores: private modes of the kitty protocol, window queries.
_IGNORED: Final = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p|\x1b\[[0-9;]*t")


class Terminal:
    """A program on a pseudo-terminal of a given size."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] = (80, 24),
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self.clock = SystemClock()
        self.raw = bytearray()
        self.read_at = 0.0
        master, slave = pty.openpty()
        self._master = master
        self._set_size(*size)
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what a person does -------------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        """Press keys, by name or by what they type."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key.encode()))

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._master, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Drag the window to another size."""
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)
        os.kill(self.process.pid, signal.SIGWINCH)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    # --- what a person sees -------------------------------------------------------------------------------------

    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def line(self, number: int) -> str:
        """One line of it."""
        return str(self.screen.display[number])

    def read(self, timeout: float) -> bool:
        """Take what the program has written; False where it wrote nothing in time, or has ended."""
        ready, _, _ = select.select([self._master], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # how a pseudo-terminal says that nobody is at its other end
            return False
        self.read_at = self.clock.monotonic()
        self.raw += data
        self._stream.feed(_IGNORED.sub(b"", data))
        return bool(data)

    def rest(self, quiet: float = 0.3) -> str:
        """Wait until nothing has been written for `quiet` seconds, or until a live screen has gone on for five times as
        long; return what stands on the screen.
        """
        end = self.clock.monotonic() + 5 * quiet
        while self.read(quiet) and self.clock.monotonic() < end:
            pass
        return self.text()

    def until(self, seen: str | Callable[[str], bool], patience: float = PATIENCE) -> str:
        """Wait until a text stands on the screen, or something is true of it; fails with what stood there instead."""
        holds = seen if callable(seen) else lambda text: seen in text
        end = self.clock.monotonic() + patience
        while not holds(text := self.text()):
            left = end - self.clock.monotonic()
            assert left > 0, f"waited {patience} s for {seen!r}; on the screen:\n{text}"
            if not self.read(min(left, 0.5)) and self.process.poll() is not None:
                assert holds(self.text()), f"ended with {self.process.returncode} without {seen!r}:\n{self.text()}"
        return text

    def until_ended(self, patience: float = PATIENCE) -> int:
        """Wait for the program's end and return its exit code."""
        end = self.clock.monotonic() + patience
        while self.process.poll() is None:
            assert self.clock.monotonic() < end, f"it did not end:\n{self.text()}"
            self.read(0.1)
        while self.read(0.1):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End it, hard where it does not end by itself."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)
