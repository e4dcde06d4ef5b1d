"""What the demonstration prints: transitions as they happen, a progress line, tables at the end.

Colours and the moving progress line only on a terminal; ``NO_COLOR`` is honoured.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from opledger.edges.clock import Clock
from opledger.rules.model import State
from opledger.rules.shapes import Event

WIDE: Final = 120
"""Columns where nothing says how many there are."""

ARROW: Final = 46
"""Columns that the longest transition takes."""

ROOM: Final = 12
"""Fewer columns are too few for a reason."""

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


_ASKS: Final = frozenset(state.value for state in State if state.needs_human) | {State.CREATE_UNKNOWN.value}
_BY_PEOPLE: Final = frozenset({"Approved", "Rejected", "Withdrawn", "CancelRequested", "Decided"})


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

    def transition(self, operation_id: str, label: str, event: Event, why: str) -> None:
        """Print one transition: when, which operation, from where to where, and on what evidence.

        Where there is no room for the evidence, only what people do, and what asks them to, gets a line for it.
        """
        start = event.from_state or "·"
        end = event.to_state or ""
        arrow = f"{start} → {self._colour(end, end)}"
        head = f"{self._seconds():>6.1f} s  {operation_id[-8:]}  {label:<15} "
        room = self._width() - len(head) - ARROW - len(event.kind) - 2
        said = why if event.kind not in (why, "Submitted") else ""
        if room < ROOM:
            self.say(head + arrow)
            if said and (event.kind in _BY_PEOPLE or end in _ASKS):
                self.note(f"{event.kind}: {said}", ahead=" " * 11)
            return
        # Widths count the words, not the colour codes.
        pad = " " * max(1, ARROW - len(f"{start} → {end}"))
        tail = f": {said if len(said) <= room else said[: room - 1] + '…'}" if said else ""
        self.say(f"{head}{arrow}{pad}{self._dim(event.kind + tail)}")

    def note(self, text: str, *, ahead: str = "") -> None:
        """Print what somebody does or is told, in as many lines as it takes."""
        for line in self._lines(text, ahead or f"{self._seconds():>6.1f} s  ", " " * 11):
            self.say(self._dim(line) if ahead else line)

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
        length = 24 if self._width() >= WIDE else 10
        filled = ended * length // max(total, 1)
        self._wipe()
        self._progress = f"[{'█' * filled}{'░' * (length - filled)}] {line}"
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
        self.say(self._bold(f"  {'the provider …':<26}{'… and where automation came to rest'}"))
        room = self._width() - 54
        for name, does, came, honest in rows:
            mark = " " if honest else "!"
            told = does if len(does) <= room else does[: room - 1] + "…"
            self.say(f"{mark} {name:<26}{came:<25} {self._dim(told)}".rstrip())

    def people(self, did: Sequence[tuple[str, int]]) -> None:
        """Print what people did, and how often."""
        self.say("")
        words = ", ".join(f"{what} ×{times}" if times > 1 else what for what, times in did)
        for line in self._lines(f"people did: {words or 'nothing'}", "", "  "):
            self.say(line)

    def verdict(self, counts: str, problems: Sequence[str], notes: Sequence[str]) -> None:
        """Print what the provider's log says about us."""
        self.say("")
        for line in self._lines(counts, "", "  "):
            self.say(line)
        for note in notes:
            for line in self._lines(f"the provider's own doing: {note}", "  ", "    "):
                self.say(self._dim(line))
        for problem in problems:
            for line in self._lines(f"OUR FAULT: {problem}", "  ", "    "):
                self.say(self._colour(State.FAILED, line))
        passed = "check passed: one job per token where the provider honours tokens, at most one cancel per intent"
        word, state = ("check FAILED", State.FAILED) if problems else ("check passed", State.SUCCEEDED)
        for line in self._lines(word if problems else passed, "", "  "):
            self.say(line.replace(word, self._colour(state, word)))

    def _lines(self, text: str, first: str, rest: str) -> list[str]:
        wrapper = textwrap.TextWrapper(self._width(), initial_indent=first, subsequent_indent=rest)
        wrapper.break_long_words = wrapper.break_on_hyphens = False
        return wrapper.wrap(text)

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began

    def _width(self) -> int:
        return max(shutil.get_terminal_size((WIDE, 24)).columns, 60)

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
