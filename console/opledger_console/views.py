"""What the screens show: frozen snapshots, and pure formatting. No widget, no ledger, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from opledger.rules.explain import Explanation, waits_for_person
from opledger.rules.model import TERMINAL, Operation, State
from opledger.rules.shapes import Event

SHORT: Final = 8
"""People see the last characters of an id: ids that are made together share their first ones."""

GLYPHS: Final[Mapping[State, str]] = {
    State.AWAITING_APPROVAL: "?",
    State.CREATE_PENDING: "·",
    State.CREATE_UNKNOWN: "‽",
    State.RECONCILIATION: "⌕",
    State.ACCEPTED: "→",
    State.OBSERVING: "▸",
    State.CANCEL_REQUESTED: "⊗",
    State.CANCELLING: "⊗",
    State.CANCELLATION_UNCONFIRMED: "⊠",
    State.RESULT_TIMED_OUT: "◷",
    State.RESULT_COLLECTING: "↓",
    State.RESULT_UNAVAILABLE: "∅",
    State.RESULT_VALIDATION_FAILED: "≠",
    State.CONTRACT_VIOLATION: "‼",
    State.SUCCEEDED: "✓",
    State.FAILED: "✗",
    State.CANCELLED: "⊘",
    State.REJECTED: "✗",
    State.WITHDRAWN: "↶",
    State.RESOLVED: "■",
}

STRIP: Final[tuple[tuple[State, str], ...]] = (
    (State.AWAITING_APPROVAL, "approve"),
    (State.CREATE_UNKNOWN, "unknown create"),
    (State.CONTRACT_VIOLATION, "violation"),
    (State.CANCELLATION_UNCONFIRMED, "cancel unconfirmed"),
    (State.RESULT_TIMED_OUT, "timed out"),
    (State.RESULT_UNAVAILABLE, "result missing"),
    (State.RESULT_VALIDATION_FAILED, "result wrong"),
)
"""The attention strip, in order of urgency."""


Column = tuple[str, int, int]
"""Of a list: name, width in cells (0: what is left), and the least width from which on it is shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a list. `cells` are outside text, one for each column; they are made inert where they are drawn."""

    key: str
    cells: tuple[str, ...]
    kind: str = "plain"  #: its colour: human, good, bad, ended, busy, plain
    dim: bool = False


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker and its last sign of life."""

    name: str
    host: str
    pid: int
    heartbeat: datetime
    lateness: timedelta  #: between due and sent, as the worker measured it last
    alive: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """What the frame of every screen says: the ledger as a whole, at one moment."""

    taken_at: datetime
    counts: Mapping[str, int]  #: operations by state; with very many it may be some seconds old
    attentions: Mapping[str, int]
    paused: Mapping[str, str]
    workers: tuple[WorkerView, ...]
    driver: str  #: who drives, in words
    mode: str  #: drives, watches, READ-ONLY

    @property
    def total(self) -> int:
        """How many operations the ledger holds."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Detail:
    """One operation, explained."""

    operation: Operation
    explanation: Explanation
    history: tuple[Event, ...]
    taken_at: datetime


def counted(number: int, noun: str) -> str:
    """Return a number of things: ``1 approval``, ``2 approvals``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def short_id(operation_id: str) -> str:
    """Return what people call an operation."""
    return operation_id[-SHORT:]


def kind_of(op: Operation) -> str:
    """Return the colour class of an operation: human, good, bad, ended, busy."""
    if waits_for_person(op):
        return "human"
    if op.state is State.SUCCEEDED:
        return "good"
    if op.state in (State.FAILED, State.REJECTED):
        return "bad"
    return "ended" if op.state in TERMINAL else "busy"


def span(length: timedelta) -> str:
    """Return a duration in at most five characters: ``12s``, ``7m``, ``3h``, ``41d``; less than nothing is ``0s``."""
    seconds = max(int(length.total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, slots=True)
class Look:
    """What an operations list shows, as people type it: a filter and an order."""

    text: str = ""
    sort: str = "newest"


class TimeStyle(StrEnum):
    """How points in time are written."""

    RELATIVE = "relative"  #: how long ago
    UTC = "UTC"
    LOCAL = "local"  #: in the zone of this machine


def stamp(at: datetime, now: datetime, style: TimeStyle) -> str:
    """Return a point in time in at most eight characters; a date where it was not today.

    A time that lies ahead although it cannot is written as now, with a mark: the clocks of two machines differ.
    """
    if style is TimeStyle.RELATIVE:
        return span(now - at) if at <= now + timedelta(seconds=2) else "0s!"
    shown, today = (at, now) if style is TimeStyle.UTC else (at.astimezone(), now.astimezone())
    return f"{shown:%H:%M:%S}" if shown.date() == today.date() else f"{shown:%d%b%H:%M}"[:8]


def next_words(op: Operation, now: datetime) -> str:
    """Return what happens next and when: ``observe in 12s: Retry-After: 20``."""
    plan = op.next
    if plan is None:
        return ""
    if plan.kind == "human":
        return f"waits for you{f', until {plan.at:%H:%M}' if plan.at else ''}: {plan.because}"
    when = "" if plan.at is None else f" in {span(plan.at - now)}" if plan.at > now else " now"
    return f"{plan.kind}{when}: {plan.because}"


def progress_words(op: Operation) -> str:
    """Return progress as the provider states it."""
    if not op.progress:
        return ""
    done, total = op.progress.get("completed"), op.progress.get("total")
    if isinstance(done, int | float) and isinstance(total, int | float) and total:
        return f"{done:g}/{total:g}"
    return str(done if done is not None else "")
