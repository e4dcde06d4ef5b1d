"""What the demonstration prints: transitions as they happen, a progress line, tables at the end.

Colours and the moving progress line only on a terminal; ``NO_COLOR`` is honoured.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from opledger.edges.clock import Clock
from opledger.rules.model import State
from opledger.rules.shapes import Event

_RESET: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_BOLD: Final = "\x1b[1m"
_COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys((State.SUCCEEDED,), "\x1b[32m"),
    **dict.fromkeys((State.FAILED, State.REJECTED), "\x1b[31m"),
    **dict.fromkeys((State.CANCELLED, State.WITHDRAWN, State.RESOLVED), "\x1b[36m"),
    **dict.fromkeys(
        (
            State.CREATE_UNKNOWN,
            State.CONTRACT_VIOLATION,
            State.CANCELLATION_UNCONFIRMED,
            State.RESULT_TIMED_OUT,
            State.RESULT_UNAVAILABLE,
            State.RESULT_VALIDATION_FAILED,
            State.AWAITING_APPROVAL,
        ),
        "\x1b[1;33m",
    ),
    **dict.fromkeys((State.CANCEL_REQUESTED, State.CANCELLING, State.RECONCILIATION), "\x1b[35m"),
}


class Screen:
    """A terminal, or a plain stream of lines."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._began = clock.monotonic()
        self._live = stream.isatty()
        self._coloured = self._live and not os.environ.get("NO_COLOR")
        self._progress = ""
        self._told = -1

    def say(self, line: str) -> None:
        """Print a line above the progress line."""
        self._wipe()
        self._stream.write(line + "\n")
        self._redraw()

    def transition(self, operation_id: str, personality: str, event: Event, why: str) -> None:
        """Print one transition: when, which operation, from where to where, and on what evidence."""
        start = event.from_state or "·"
        end = event.to_state or ""
        arrow = f"{start} → {self._colour(end, end)}"
        # Widths count the words, not the colour codes.
        pad = " " * max(1, 46 - len(f"{start} → {end}"))
        line = f"{self._seconds():>6.1f} s  {operation_id[-8:]}  {personality:<15} {arrow}{pad}{self._dim(event.kind)}"
        width = self._width() - len(f"{self._seconds():>6.1f} s  {operation_id[-8:]}  {personality:<15} ") - 46
        room = width - len(event.kind) - 2
        if room > 12 and why and why != event.kind:
            line += self._dim(f": {why if len(why) <= room else why[: room - 1] + '…'}")
        self.say(line)

    def progress(self, ended: int, total: int, people: int) -> None:
        """Move the progress line; without a terminal, print one whenever a tenth more has ended."""
        waiting = f" · {people} wait for a person" if people else ""
        line = f"{ended} of {total} ended · {total - ended - people} under way{waiting} · {self._seconds():.0f} s"
        if not self._live:
            tenth = ended * 10 // max(total, 1)
            if tenth > self._told:
                self._told = tenth
                self._stream.write(f"---- {line}\n")
                self._stream.flush()
            return
        filled = ended * 24 // max(total, 1)
        self._wipe()
        self._progress = f"[{'█' * filled}{'░' * (24 - filled)}] {line}"
        self._redraw()

    def close(self) -> None:
        """Take the progress line away."""
        self._wipe()
        self._progress = ""

    def table(self, rows: Sequence[tuple[State, int, str]]) -> None:
        """Print the closing table: state, how many, one line why."""
        self.say("")
        self.say(self._bold(f"{'state':<26}{'count':>5}  why"))
        room = self._width() - 33
        for state, count, why in rows:
            pad = " " * (26 - len(state))
            self.say(
                f"{self._colour(state, state)}{pad}{count:>5}  {why if len(why) <= room else why[: room - 1] + '…'}"
            )

    def personalities(self, rows: Sequence[tuple[str, str, str, bool]]) -> None:
        """Print what each personality of the provider did, and where the worker alone brought its operations."""
        self.say("")
        self.say(self._bold(f"{'the provider …':<25} {'… and where automation came to rest':<36}"))
        room = max(self._width() - 58, 20)
        for name, does, came, honest in rows:
            mark = " " if honest else "!"
            told = does if len(does) <= room else does[: room - 1] + "…"
            self.say(f"{mark} {name:<24}{came:<30}{self._dim(told)}")

    def verdict(self, counts: str, problems: Sequence[str], notes: Sequence[str]) -> None:
        """Print what the provider's log says about us."""
        self.say("")
        self.say(f"{counts}")
        for note in notes:
            self.say(self._dim(f"  the provider's own doing: {note}"))
        for problem in problems:
            self.say(self._colour(State.FAILED, f"  OUR FAULT: {problem}"))
        if not problems:
            self.say(
                self._colour(State.SUCCEEDED, "check passed")
                + ": one job per token where the provider honours tokens, at most one cancel per intent"
            )
        else:
            self.say(self._colour(State.FAILED, "check FAILED"))

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began

    def _width(self) -> int:
        return shutil.get_terminal_size((120, 24)).columns if self._live else 120

    def _colour(self, state: str, text: str) -> str:
        colour = _COLOURS.get(state, "") if self._coloured else ""
        return f"{colour}{text}{_RESET}" if colour else text

    def _dim(self, text: str) -> str:
        return f"{_DIM}{text}{_RESET}" if self._coloured else text

    def _bold(self, text: str) -> str:
        return f"{_BOLD}{text}{_RESET}" if self._coloured else text

    def _wipe(self) -> None:
        if self._live and self._progress:
            self._stream.write("\r\x1b[2K")

    def _redraw(self) -> None:
        if self._live and self._progress:
            self._stream.write(self._progress[: self._width() - 1])
        self._stream.flush()
