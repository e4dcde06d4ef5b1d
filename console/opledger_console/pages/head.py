"""The head of the operation page: what is so here and there, what happens next and why, and what a person may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from rich.cells import cell_len

from opledger.rules.decide import open_deadline
from opledger.rules.explain import Explanation
from opledger.rules.model import TERMINAL, Deadline, Means, Operation, State
from opledger_console.pages.rows import Cell, Kind, Row, clock, wrapped
from opledger_console.text import fitted
from opledger_console.views import GLYPHS, kind_of, next_words, progress_words, short_id, span

KINDS: Final[dict[str, Kind]] = {"human": "warn", "good": "good", "bad": "bad", "ended": "ended", "busy": "strong"}
LABEL: Final = 6
BAR: Final = 10
"""Cells of a deadline's bar."""

FULL: Final = 7
"""Lines of the shortest head that has everything which matters at night."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the head is drawn from. `explanation` is None, and `unexplained` says why, where it cannot be had."""

    operation: Operation
    explanation: Explanation | None
    unexplained: str | None
    keys: tuple[tuple[str, str], ...]  #: what a person may do here and now: key and word


def rows(head: Head, now: datetime, width: int, height: int) -> tuple[Row, ...]:
    """Return at most `height` lines, the most important ones, in their order."""
    found = list(_ranked(head, now, width))
    kept = sorted(sorted(range(len(found)), key=lambda place: (found[place][0], place))[: max(height, 1)])
    return tuple(found[place][1] for place in kept)


def _ranked(head: Head, now: datetime, width: int) -> Iterator[tuple[int, Row]]:
    """Yield lines with their rank: 0 is shown always, 9 only where there is much room."""
    op, explanation = head.operation, head.explanation
    yield 0, _states(op, width)
    yield 3, Row((("id", "dim", LABEL), (_identity(op, width), "text", 0)))
    yield from _next(op, head, now, width)
    blocked = None if explanation is None else explanation.blocked_by
    plan = None if explanation is None else explanation.next
    if blocked is not None and (plan is None or blocked.reason != plan.because):
        yield 1, Row((("held", "dim", LABEL), (f"{blocked.code}: {blocked.reason}", "warn", 0)))
    if op.attention is not None:
        yield 2, Row((("alert", "warn", LABEL), (_attention(op, now), "warn", 0)))
    bars = _deadlines(op, now)
    if bars:
        yield 2, Row((("due", "dim", LABEL), *bars))
    if op.lease is not None or op.state not in TERMINAL:
        yield 4, Row((("worker", "dim", LABEL), (_lease(op, now), "text", 0)))
    if op.last_error and (op.attention is None or op.last_error != op.attention.reason):
        yield 6, Row((("error", "dim", LABEL), (op.last_error, "bad", 0)))
    keys = "  ".join(f"{key} {words}" for key, words in head.keys) or "nothing, but look"
    choices = ", ".join(option.choice.value for option in explanation.choices) if explanation is not None else ""
    yield 1, Row((("you", "dim", LABEL), (f"{keys}{f'  ({choices})' if choices else ''}", "strong", 0)))
    yield 7, Row((("asked", "dim", LABEL), (_asked(op, now), "text", 0)))


def _states(op: Operation, width: int) -> Row:
    """Draw our state and the provider's beside each other."""
    here = f"{GLYPHS[op.state]} {op.state.value}"
    local: Cell = (here, KINDS[kind_of(op)], min(len(here), max(width // 2, 8)))
    means = f" (means {op.remote_means})" if op.remote_means not in (None, op.remote_state) else ""
    glyph, kind = _there(op)
    word = f"{glyph} {op.remote_state or 'nothing said yet'}{means}"
    progress = progress_words(op)
    job = f"  job {op.remote_job_id or '(none)'}{f'  {progress}' if progress else ''}"
    return Row((("here", "dim", LABEL), local, ("", "dim", 1), ("there", "dim", 5), _tight(word, kind, width // 3),
                (job, "text", 0)))  # fmt: skip


def _tight(text: str, kind: Kind, most: int) -> Cell:
    """Return a cell as wide as its text, but not wider than `most`."""
    shown = fitted(text, max(most, 8)).rstrip()
    return shown, kind, max(cell_len(shown), 1)


def _there(op: Operation) -> tuple[str, Kind]:
    means = op.remote_means
    if means is None:
        return "·", "dim"
    if means is Means.SUCCEEDED:
        return "✓", "good"
    if means in (Means.FAILED, Means.EXPIRED, Means.GONE):
        return "✗", "bad"
    if means in (Means.UNKNOWN, Means.WAITING_HUMAN, Means.PARTIAL):
        return "?", "warn"
    return ("⊘", "ended") if means is Means.CANCELLED else ("▸", "strong")


def _identity(op: Operation, width: int) -> str:
    whole = op.operation_id if width >= 100 else short_id(op.operation_id)
    return f"{whole}  {op.contract}  fingerprint …{op.request_fingerprint[-6:]}  trace {op.trace_id}"


def _next(op: Operation, head: Head, now: datetime, width: int) -> Iterator[tuple[int, Row]]:
    explanation = head.explanation
    if explanation is None:
        yield 1, Row((("next", "dim", LABEL), (head.unexplained or "it cannot be explained", "warn", 0)))
        return
    if explanation.next is not None:
        words = next_words(replace(op, next=explanation.next), now)
        yield 1, Row((("next", "dim", LABEL), (words, "strong", 0)))
    elif op.state in TERMINAL:
        yield 1, Row((("next", "dim", LABEL), ("nothing more happens by itself", "ended", 0)))
    lines = list(wrapped(why_words(explanation.why), max(width - LABEL - 2, 20)))
    for place, line in enumerate(lines[:4]):
        label = "why" if place == 0 else ""
        yield (2 if place == 0 else 5 if place == 1 else 8), Row(((label, "dim", LABEL), (line.cells[0][0], "text", 0)))


_AHEAD: Final = (
    ". Next: ", ". Due now: ", ". Held up: ", ". For now: ", ". Waiting for a person: ", ". Nothing more happens by",
)  # fmt: skip


def why_words(words: str) -> str:
    """Return why it is where it is; what comes next stands in lines of its own, where it counts down."""
    cut = max(words.rfind(mark) for mark in _AHEAD)
    return words if cut < 0 else words[: cut + 1]


def _attention(op: Operation, now: datetime) -> str:
    attention = op.attention
    if attention is None:
        return ""
    if op.acknowledged_by is None:
        taken = "nobody has taken it"
    elif op.acknowledged_until is None:
        taken = f"taken by {op.acknowledged_by}"
    elif op.acknowledged_until > now:
        taken = f"taken by {op.acknowledged_by}, {span(op.acknowledged_until - now)} left"
    else:
        taken = f"{op.acknowledged_by} took it, and that has lapsed"
    return f"{attention.code} for {span(now - attention.since)}; {taken}: {attention.reason}"


def _lease(op: Operation, now: datetime) -> str:
    lease = op.lease
    if lease is None:
        return "no worker holds it"
    if lease.expires_at <= now:
        return f"{lease.owner} held it (epoch {lease.epoch}); the lease lapsed {span(now - lease.expires_at)} ago"
    return f"{lease.owner} holds it (epoch {lease.epoch}), the lease lapses in {span(lease.expires_at - now)}"


def _asked(op: Operation, now: datetime) -> str:
    words = f"by {op.requested_by}, {span(now - op.created_at)} ago at {op.created_at:%Y-%m-%d} {clock(op.created_at)}"
    words += f"; tags {' '.join(f'{name}={value}' for name, value in op.tags.items())}" if op.tags else ""
    words += f"; task {op.task} / {op.step}" if op.task else ""
    return f"{words}; {op.expectation}" if op.expectation else words


# --- deadlines ---------------------------------------------------------------------------------------------------


def deadlines(op: Operation) -> tuple[tuple[Deadline, datetime, datetime], ...]:
    """Return the deadlines that lie ahead of an operation: which, since when it counts, until when; the open first."""
    if op.state in TERMINAL:
        return ()
    limits = {
        Deadline.APPROVAL: (op.approval_deadline, None),
        Deadline.CREATE: (op.create_deadline, op.create_timeout),
        Deadline.RESULT: (op.result_deadline, op.result_timeout),
        Deadline.CANCEL: (op.cancel_deadline, op.cancel_timeout),
        Deadline.COLLECT: (op.collect_deadline, op.collect_timeout),
    }
    running = open_deadline(op)
    wanted: list[Deadline] = [] if running is None else [running[0]]
    if op.state in _WITH_RESULT and Deadline.RESULT not in wanted:
        wanted.append(Deadline.RESULT)
    found = []
    for which in wanted:
        end, length = limits[which]
        if end is not None:
            found.append((which, op.created_at if length is None else end - length, end))
    return tuple(found)


_WITH_RESULT: Final = frozenset(
    {State.CREATE_PENDING, State.CREATE_UNKNOWN, State.RECONCILIATION, State.CANCEL_REQUESTED, State.CANCELLING}
)


def used(begin: datetime, end: datetime, now: datetime) -> float:
    """Return the share of a deadline's time that is used, 0 to 1."""
    length = (end - begin) / timedelta(seconds=1)
    return 1.0 if length <= 0 else min(max((now - begin) / timedelta(seconds=1) / length, 0.0), 1.0)


def bar(share: float, cells: int = BAR) -> str:
    """Draw a share as a bar; full only where all of it is used."""
    filled = cells if share >= 1 else min(int(share * cells), cells - 1)
    return "█" * filled + "░" * (cells - filled)


def _deadlines(op: Operation, now: datetime) -> Sequence[Cell]:
    found = deadlines(op)
    cells: list[Cell] = []
    for place, (which, begin, end) in enumerate(found):
        share = used(begin, end, now)
        left = f"{span(end - now)} left" if end > now else f"passed {span(now - end)} ago"
        words = f"{which.value} {bar(share)} {share:.0%}, {left}"
        kind: Kind = "bad" if share >= 1 else "warn" if share >= 0.8 else "text"
        cells.append((words, kind, 0 if place == len(found) - 1 else len(words) + 2))
    return cells
