"""Records, steps and explanations as lines for people. What comes from outside goes through `clean`; no markup.

Tables are as wide as the terminal, or 80 columns where there is none. Colour only on a terminal and without NO_COLOR.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import typer

from opledger.rules import expectation, jsontext
from opledger.rules.explain import Explanation
from opledger.rules.model import TERMINAL, Operation, State, to_rfc3339
from opledger.rules.plain import clean
from opledger.rules.shapes import Event

_GOOD = frozenset({State.SUCCEEDED})
_BAD = frozenset({State.FAILED, State.CONTRACT_VIOLATION, State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED})

Row = Sequence[str]
STATE_COLUMN = 2


def short(operation_id: str) -> str:
    """Return the part of an id that people see: the last eight characters."""
    return clean(operation_id[-8:])


def coloured() -> bool:
    """Tell whether standard output is a terminal that wants colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def state_word(state: State, text: str | None = None) -> str:
    """Return a state (or `text` in its place), coloured by what it asks of the reader."""
    word = state.value if text is None else text
    if not coloured():
        return word
    if state in _GOOD:
        return typer.style(word, fg="green")
    if state in _BAD:
        return typer.style(word, fg="red")
    if state.needs_human or state is State.CREATE_UNKNOWN:
        return typer.style(word, fg="yellow")
    return typer.style(word, dim=True) if state in TERMINAL else word


def span(length: timedelta) -> str:
    """Write a length of time in at most two units: ``3d 4h``, ``12m 5s``, ``0s``. Negative ones begin with ``-``."""
    seconds = int(abs(length).total_seconds())
    sign = "-" if length < timedelta(0) and seconds else ""
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if n]
    return sign + (" ".join(parts[:2]) or "0s")


def relative(at: datetime | None, now: datetime) -> str:
    """Write when something is due as seen from now."""
    if at is None:
        return "-"
    return f"in {span(at - now)}" if at > now else "now"


def table(
    heads: Row, rows: Sequence[Row], *, stretch: int, paint: Callable[[int, int, str], str] | None = None
) -> Iterable[str]:
    """Lay out rows in columns that fit the terminal; column `stretch` gives up space first. Cells must be clean.

    `paint` may colour a finished cell, given its row, its column and its text.
    """
    from rich.cells import cell_len, set_cell_size

    widths = _widths(heads, [[cell_len(text) for text in row] for row in (heads, *rows)], stretch)

    def cell(text: str, width: int) -> str:
        if cell_len(text) > width:
            return set_cell_size(text, width - 1) + "…"
        return set_cell_size(text, width)

    for number, row in enumerate((heads, *rows), -1):
        cells = [cell(text, width) for text, width in zip(row, widths, strict=True)]
        if paint is not None and number >= 0:
            cells = [paint(number, column, text) for column, text in enumerate(cells)]
        yield "  ".join(cells).rstrip()


def _widths(heads: Row, lengths: Sequence[Sequence[int]], stretch: int) -> list[int]:
    """Give each column what it needs; where that is too much, the widest give way, `stretch` first."""
    widths = [max(column) for column in zip(*lengths, strict=True)]
    least = [max(len(head), min(8, width)) for head, width in zip(heads, widths, strict=True)]
    excess = sum(widths) + 2 * (len(heads) - 1) - shutil.get_terminal_size((80, 24)).columns
    for i in sorted(range(len(heads)), key=lambda i: (i != stretch, -widths[i])):
        give = max(min(excess, widths[i] - least[i]), 0)
        widths[i] -= give
        excess -= give
    return widths


def wrapped(text: str, indent: str = "") -> Iterable[str]:
    """Break a sentence into lines that fit the terminal; a long word stays whole, so that it can be copied."""
    room = max(shutil.get_terminal_size((80, 24)).columns, 40)
    wrapper = textwrap.TextWrapper(room, initial_indent=indent, subsequent_indent=indent)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.wrap(clean(text))


def listing(operations: Sequence[Operation], now: datetime) -> Iterable[str]:
    """Return the table of `list`; a ``!`` marks what wants a person's attention."""
    if not operations:
        yield "No operations."
        return
    rows = [
        (
            short(op.operation_id),
            "!" if op.attention is not None else "",
            op.state.value,
            clean(op.contract),
            clean(op.remote_state or "-"),
            f"{op.next.kind} {relative(op.next.at, now)}" if op.next is not None else "-",
            span(now - op.created_at),
        )
        for op in operations
    ]
    heads = ("ID", "!", "STATE", "CONTRACT", "REMOTE", "NEXT", "AGE")

    def paint(number: int, column: int, text: str) -> str:
        return state_word(operations[number].state, text) if column == STATE_COLUMN else text

    yield from table(heads, rows, stretch=4, paint=paint)


def record(op: Operation, now: datetime) -> Iterable[str]:
    """Return one record as lines of name and value, with only what is known."""
    yield f"{clean(op.operation_id)}  {state_word(op.state)}"
    lease = op.lease
    pairs: list[tuple[str, str | None]] = [
        ("contract", op.contract),
        ("requested by", op.requested_by),
        ("expectation", f"{op.expectation} ({expectation.word(op.expectation)})" if op.expectation else None),
        ("created", f"{to_rfc3339(op.created_at)} ({span(now - op.created_at)} ago)"),
        ("remote job", op.remote_job_id),
        ("remote state", _remote(op)),
        ("progress", ", ".join(f"{k} {v}" for k, v in op.progress.items()) if op.progress else None),
        ("next", f"{op.next.kind} {relative(op.next.at, now)}: {op.next.because}" if op.next else None),
        ("attention", f"{op.attention.code} since {to_rfc3339(op.attention.since)}: {op.attention.reason}"
         if op.attention else None),
        ("approvals", f"{len(op.approvals)} of {op.approvals_needed}" if op.approvals_needed else None),
        ("last error", op.last_error),
        ("attempts", _attempts(op)),
        *((f"{which} deadline", to_rfc3339(at)) for which, at in _deadlines(op)),
        ("result", _result(op)),
        ("worker", f"{lease.owner} until {to_rfc3339(lease.expires_at)}" if lease else None),
        ("tags", " ".join(f"{k}={v}" for k, v in op.tags.items()) or None),
        ("supersedes", op.supersedes),
        ("task step", f"{op.task} / {op.step}" if op.task else None),
        ("fingerprint", op.request_fingerprint),
        ("token", op.idempotency_token),
        ("trace id", op.trace_id),
    ]  # fmt: skip
    for name, value in pairs:
        if value:
            yield f"  {name:<18}{clean(value)}"


def _remote(op: Operation) -> str | None:
    if op.remote_state is None:
        return None
    means = f" (means {op.remote_means})" if op.remote_means not in (None, op.remote_state) else ""
    return f"{op.remote_state}{means}"


def _attempts(op: Operation) -> str | None:
    names = ("create", "reconcile", "observe", "cancel", "collect")
    return ", ".join(f"{name} {getattr(op.attempts, name)}" for name in names if getattr(op.attempts, name)) or None


def _deadlines(op: Operation) -> Iterable[tuple[str, datetime]]:
    if op.state in TERMINAL:
        return
    for which in ("approval", "create", "result", "cancel", "collect"):
        at = getattr(op, f"{which}_deadline")
        if at is not None:
            yield which, at


def _result(op: Operation) -> str | None:
    result = op.result
    if result is None:
        return None
    checked = "checked" if result.validated else "not checked"
    items = result.items
    counted = f", {items.succeeded} of {items.total} items succeeded" if items is not None else ""
    problems = f"; problems: {'; '.join(result.problems)}" if result.problems else ""
    also = f"; further files: {', '.join(one.name for one in result.also)}" if result.also else ""
    return f"{result.location or '(none)'} ({result.size} bytes, {checked}{counted}){also}{problems}"


def explanation(found: Explanation) -> Iterable[str]:
    """Return an explanation in sentences."""
    op = found.operation
    yield f"{clean(op.operation_id)} is {state_word(op.state)}."
    yield from wrapped(found.why)
    if found.evidence:
        numbers = ", ".join(str(seq) for seq in found.evidence)
        yield f"Evidence: event {numbers}; see: opledger events {short(op.operation_id)}"
    if found.choices:
        yield "A person may decide:"
        yield from choices(found.choices, op)


def choices(options: Iterable[Any], op: Operation) -> Iterable[str]:
    """Return what a person may decide, each with what must be so, what follows, what is sent and what stays."""
    empty = True
    for option in options:
        empty = False
        needs = "".join(f" --{need} …" for need in option.needs)
        yield f"  --as {option.choice}{needs}  leads to {option.to}"
        yield from wrapped(f"Only if: {option.precondition}", "      ")
        yield from wrapped(option.consequence, "      ")
        yield from wrapped(f"Sends: {option.sends}" if option.sends else "Sends nothing.", "      ")
        yield from wrapped(f"Cannot be undone: {option.undoable}", "      ")
        if option.jobs:
            yield from wrapped(f"Jobs: {', '.join(option.jobs)}", "      ")
    if empty:
        from opledger.rules.choices import too_early

        wait = too_early(op)
        yield from wrapped(
            f"Nothing can be decided yet: {wait}."
            if wait
            else f"Nothing is to be decided about {short(op.operation_id)} in {op.state}."
        )


def steps(events: Sequence[Event]) -> Iterable[str]:
    """Return the transitions, each with who caused it, by which evidence, and why."""
    for event in events:
        start = event.from_state or "(new)"
        yield f"{event.seq:>4}  {to_rfc3339(event.at)}  {start} -> {_end(event)}"
        yield f"      {event.kind} by {clean(event.actor)} because of {clean(event.cause)}"
        if event.reason:
            yield from wrapped(f"Reason: {event.reason}", "      ")


def _end(event: Event) -> str:
    word = event.to_state or ""
    return state_word(State(word)) if word in frozenset(State) else clean(word)


def journal(events: Sequence[Event]) -> Iterable[str]:
    """Return every event of one operation with its data."""
    for event in events:
        change = f"  {event.from_state or '(new)'} -> {_end(event)}" if event.to_state is not None else ""
        where = "" if event.host is None else f" on {clean(event.host)}"
        where += "" if event.process is None else f" ({clean(event.process)})"
        yield f"{event.seq:>4}  {to_rfc3339(event.at)}  {event.kind} by {clean(event.actor)}{where}{change}"
        yield from wrapped(f"because of {event.cause}{': ' + event.reason if event.reason else ''}", "      ")
        for name, value in (event.data or {}).items():
            shown = value if isinstance(value, str) else jsontext.dumps_inert(value)
            yield f"      {clean(name)} = {clean(shown, limit=400)}"
        yield f"      hash {event.hash[:16]}… after {event.prev_hash[:16]}…"


def guarantees(report: Mapping[str, Any]) -> Iterable[str]:
    """Return what a contract lets us promise: one line a promise, then every gap."""
    for part in ("create", "cancel", "result", "webhooks"):
        yield f"{part}:"
        for name, value in report[part].items():
            shown = value if isinstance(value, str) else jsontext.dumps_inert(value)
            yield from wrapped(f"{name}: {shown}", "  ")
    yield "gaps:" if report["gaps"] else "gaps: none"
    for gap in report["gaps"]:
        yield from wrapped(f"- {gap}", "  ")
