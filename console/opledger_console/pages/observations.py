"""What the provider said of the job, read by read: a plot of the progress, the gaps between the polls, a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from opledger.rules.shapes import Event
from opledger_console.pages.events import fact, progress_of, progress_words, told, word_of
from opledger_console.pages.rows import Cell, Key, Row, clock, gap, row, took
from opledger_console.pages.timeline import details

READS: Final = frozenset({"Observed", "ReadFailed"})
EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
HIGH: Final = 3
"""Lines of the plot."""


def rows(events: Sequence[Event], opened: Collection[Key], width: int) -> tuple[Row, ...]:
    """Return the reads, oldest first, under the plot and a line about the polls."""
    # A hop by another kind of event may be the answer of a read, too, but then the timeline tells of it.
    reads = [event for event in events if event.kind in READS]
    if not reads:
        return (row("the job has not been looked at yet", "dim"),)
    return (*plot(reads, width), row(summary(reads), "dim"), *_table(reads, opened, width))


def summary(reads: Sequence[Event]) -> str:
    """Return how often and how regularly was asked."""
    failed = sum(event.kind == "ReadFailed" for event in reads)
    gaps = [later.at - earlier.at for earlier, later in pairwise(reads)]
    words = [f"read {len(reads)} time{'' if len(reads) == 1 else 's'}"]
    if gaps:
        words.append(f"every {took(min(gaps))} … {took(max(gaps))}, median {took(sorted(gaps)[len(gaps) // 2])}")
    if failed:
        words.append(f"{failed} told nothing")
    return "; ".join(words)


def _table(reads: Sequence[Event], opened: Collection[Key], width: int) -> Iterator[Row]:
    yield Row((("time", "dim", 9), ("since", "dim", 6), ("word", "dim", 24), ("done", "dim", 12), ("next", "dim", 0)))
    before: datetime | None = None
    for event in reads:
        since, skewed = gap(before, event.at)
        key = ("event", event.seq)
        front: tuple[Cell, ...] = ((clock(event.at), "dim", 9), (since, skewed, 6))
        if event.kind == "ReadFailed":
            yield Row((*front, (f"told nothing: {told(event)}", "warn", 0)), event.seq, opens=key)
        else:
            hint = fact(event, "hint") or fact(event, "error") or ""
            cells: tuple[Cell, ...] = (
                *front,
                (word_of(event), "text", 24),
                (progress_words(event), "text", 12),
                (hint, "dim", 0),
            )
            yield Row(cells, event.seq, opens=key)
        if key in opened:
            yield from details(event, width, skewed=skewed == "warn")
        before = event.at


def plot(reads: Sequence[Event], width: int) -> tuple[Row, ...]:
    """Draw progress over time with block characters; nothing where the provider states none in numbers."""
    points = [(event.at, found[0] / found[1]) for event in reads if (found := progress_of(event)) is not None]
    across = min(max(width - 8, 8), 160)
    if len(points) < 2:
        return ()
    begin, end = min(at for at, _ in points), max(at for at, _ in points)
    length = (end - begin).total_seconds() or 1.0
    shares: list[float | None] = [None] * across
    for at, share in points:
        shares[round((at - begin).total_seconds() / length * (across - 1))] = min(max(share, 0.0), 1.0)
    filled: list[float] = []
    for known in shares:
        filled.append(known if known is not None else filled[-1] if filled else 0.0)
    lines = []
    for level in range(HIGH - 1, -1, -1):
        eighths = [min(max(round(share * HIGH * 8) - level * 8, 0), 8) for share in filled]
        label = "100% " if level == HIGH - 1 else "  0% " if level == 0 else "     "
        lines.append(Row(((label, "dim", 5), ("".join(EIGHTHS[part] for part in eighths), "good", 0))))
    left, right = clock(begin), f"{clock(end)} {progress_words(reads[-1])}".strip()
    between = " " * max(across - len(left) - len(right), 1)
    return (*lines, Row((("", "dim", 5), (f"{left}{between}{right}", "dim", 0))))
