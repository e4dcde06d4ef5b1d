"""Rows of a page: one for each line of the screen, in cells with a meaning each; and how long texts become rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from rich.cells import cell_len, chop_cells

from opledger.rules import jsontext
from opledger_console.text import block
from opledger_console.views import span

Kind = Literal["text", "strong", "head", "dim", "data", "warn", "good", "bad", "ended", "plus", "minus", "mark"]
Cell = tuple[str, Kind, int]
"""Text, what it means, and its width in terminal cells (0: the rest of the line, for the last one)."""

Key = tuple[str, int]
"""What can be opened and closed: a sort of thing, and the seq of the event that it goes by."""

SHOWN: Final = 64 * 1024
"""Most bytes of one outside text that are shown."""

BAR: Final = "│ "
LEAST: Final = 8
"""Narrower than this nothing is wrapped."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `seq` is the event it tells of, `last` the last one where it tells of several."""

    cells: tuple[Cell, ...] = ()
    seq: int | None = None
    last: int | None = None
    opens: Key | None = None


def row(text: str, kind: Kind = "text", *, seq: int | None = None) -> Row:
    """Return a line of one text."""
    return Row(((text, kind, 0),), seq)


def wrapped(text: str, width: int, kind: Kind = "text", *, indent: int = 0, seq: int | None = None) -> Iterator[Row]:
    """Break text of any length into lines. What came from outside (`data`) stands behind a bar, line by line."""
    margin = " " * indent + (BAR if kind in ("data", "plus", "minus") else "")
    room = max(width - len(margin), LEAST)
    for line in block(text).plain.split("\n"):
        pieces = chop_cells(line, room) if margin.endswith(BAR) else _words(line, room)
        for piece in pieces or [""]:
            yield Row(((margin + piece, kind, 0),), seq)


def _words(line: str, room: int) -> list[str]:
    """Wrap at spaces; a word that is too long is cut."""
    found: list[str] = []
    shown = ""
    for word in line.split():
        for part in chop_cells(word, room):
            if shown and cell_len(shown) + cell_len(part) + 1 > room:
                found.append(shown)
                shown = ""
            shown += f" {part}" if shown else part
    return [*found, shown] if shown else found


def pairs(facts: Mapping[str, Any], width: int, *, indent: int = 0, seq: int | None = None) -> Iterator[Row]:
    """Return named facts, the value wrapped behind its name; what is None is left out."""
    known = {name[:24]: value for name, value in facts.items() if value is not None}
    longest = max(map(len, known), default=0)
    for name, value in known.items():
        label = " " * indent + name.ljust(max(longest, 12))
        room = max(width - len(label) - 1, LEAST)
        lines = [piece for line in block(str(value)).plain.split("\n") for piece in chop_cells(line, room) or [""]]
        for place, text in enumerate(lines or [""]):
            shown = label if place == 0 else " " * len(label)
            yield Row(((shown, "dim", len(label)), (text, "text", 0)), seq)


# --- outside text ------------------------------------------------------------------------------------------------

_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


def laid_out(text: str) -> str:
    """Return JSON with a value on each line, every token as it came: no digit, escape or key order is changed.

    What is not JSON is returned as it is.
    """
    try:
        jsontext.loads(text)
    except jsontext.JsonError:
        return text
    out: list[str] = []
    depth = 0
    tokens = _TOKENS.findall(text)
    for place, part in enumerate(tokens):
        empty = place + 1 < len(tokens) and tokens[place + 1] in "]}"
        if part in "{[":
            depth += 1
            out.append(part if empty else part + "\n" + "  " * depth)
        elif part in "}]":
            depth -= 1
            opened = place > 0 and tokens[place - 1] in "{["
            out.append(part if opened else "\n" + "  " * depth + part)
        elif part == ",":
            out.append(",\n" + "  " * depth)
        else:
            out.append(": " if part == ":" else part)
    return "".join(out)


def capped(text: str, size: int | None = None) -> tuple[str, str | None]:
    """Return at most 64 KB of a text, and a sentence about the rest; `size` is how many bytes there were once."""
    raw = text.encode("utf-8", "replace")
    full = len(raw) if size is None else max(size, len(raw))
    if len(raw) > SHOWN:
        text = raw[:SHOWN].decode("utf-8", "ignore")
        return text, f"first {amount(SHOWN)} of {amount(full)}"
    return text, f"first {amount(len(raw))} of {amount(full)}; no more is kept" if full > len(raw) else None


def body_rows(
    text: str, width: int, *, size: int | None = None, indent: int = 0, seq: int | None = None
) -> Iterator[Row]:
    """Return outside text as rows: JSON a value a line, at most 64 KB, and a word about what is not shown."""
    if not text:
        yield row(" " * indent + "(empty)", "dim", seq=seq)
        return
    shown, rest = capped(text, size)
    if rest is not None:
        yield row(" " * indent + rest, "warn", seq=seq)
    laid, _ = capped(laid_out(shown))  # many small values take more room on lines of their own
    yield from wrapped(laid, width, "data", indent=indent, seq=seq)


# --- small words -------------------------------------------------------------------------------------------------


def amount(size: int) -> str:
    """Return a number of bytes: ``812 B``, ``64 KB``, ``4.1 MB``."""
    if size < 1024:
        return f"{size} B"
    if size < 1024 * 1024:
        return f"{size / 1024:.3g} KB"
    return f"{size / 1024 / 1024:.1f} MB" if size < 1024**3 else f"{size / 1024**3:.1f} GB"


def clock(at: datetime) -> str:
    """Return the time of day; ``Z`` where it is UTC."""
    # Ten times as fast as strftime, and there are many.
    return f"{at.hour:02}:{at.minute:02}:{at.second:02}{'Z' if at.tzinfo is UTC else ''}"


def exact(at: datetime) -> str:
    """Return a point in time to the microsecond, in UTC whatever zone the page is in."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z"


def gap(before: datetime | None, at: datetime) -> tuple[str, Kind]:
    """Return the time since the line before; where clocks disagree it is nothing, and marked."""
    if before is None:
        return "", "dim"
    if at < before:
        return "skew", "warn"
    length = at - before
    return f"+{took(length) if length < timedelta(seconds=10) else span(length)}", "dim"


def took(length: timedelta) -> str:
    """Return how long a call took: ``84ms``, ``1.3s``, ``7m``; where clocks disagree, that it is not known."""
    seconds = length.total_seconds()
    if seconds < 0:
        return "skew"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s".replace(".0s", "s") if seconds < 120 else span(length)
