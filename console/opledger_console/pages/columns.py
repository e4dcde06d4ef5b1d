"""The columns of the operations list: what each says, how wide it is, and from which terminal width on it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Final

from opledger.rules.model import Operation
from opledger_console.views import GLYPHS, TimeStyle, next_words, progress_words, short_id, stamp


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `width` 0 takes what is left; `least` is the terminal width from which on it is shown by itself."""

    name: str
    width: int
    least: int
    words: Callable[[Operation, datetime, TimeStyle], str]
    grows: int = 0  #: how many more cells it may take where there is room


def _ahead(op: Operation, now: datetime, _: TimeStyle) -> str:
    return next_words(op, now) or (op.attention.reason if op.attention else op.last_error or "")


ALL: Final[tuple[Column, ...]] = (
    Column("state", 26, 0, lambda op, *_: f"{GLYPHS[op.state]} {op.state.value}"),
    Column("id", 8, 0, lambda op, *_: short_id(op.operation_id)),
    Column("contract", 12, 0, lambda op, *_: op.contract, grows=6),
    Column("job", 14, 140, lambda op, *_: op.remote_job_id or "", grows=12),
    Column("remote", 11, 100, lambda op, *_: op.remote_state or "", grows=5),
    Column("done", 9, 110, lambda op, *_: progress_words(op)),
    Column("age", 5, 0, lambda op, now, style: stamp(op.created_at, now, style)),
    Column("tries", 5, 150, lambda op, *_: str(sum(astuple(op.attempts)))),
    Column("by", 12, 120, lambda op, *_: op.requested_by, grows=8),
    Column("tags", 18, 180, lambda op, *_: " ".join(f"{name}={value}" for name, value in op.tags.items()), grows=20),
    Column("next", 0, 0, _ahead),
)
WIDE: Final = 20
"""Cells that the last column keeps while every other column is wanted."""

NAMES: Final = tuple(column.name for column in ALL)


def chosen(
    names: Sequence[str], width: int, *, wide: bool, style: TimeStyle = TimeStyle.RELATIVE
) -> tuple[tuple[Column, int], ...]:
    """Return the columns that are shown, each with its width; the one without a width gets what is left.

    `names` are those that the settings ask for, in their order; none: what the width has room for. `wide` leaves the
    long sentence about what comes next less room and shows every column that fits beside it.
    """
    by_name = {column.name: column for column in ALL}
    if names:
        shown = [by_name[name] for name in names if name in by_name]
    else:
        shown = [column for column in ALL if column.least <= width or (wide and column.width)]
        # The least wanted goes first until the rest has room.
        for column in sorted(shown, key=lambda column: -column.least):
            if sum(one.width + 1 for one in shown) + (WIDE if wide else 0) > width and column.least:
                shown.remove(column)
    if style is not TimeStyle.RELATIVE:
        shown = [replace(column, width=8) if column.name == "age" else column for column in shown]
    fixed = sum(column.width for column in shown) + len(shown)
    spare = max(width - fixed - (WIDE if wide else 50), 0)
    sized: list[tuple[Column, int]] = []
    for column in shown:
        extra = min(column.grows, spare) if column.width else 0
        spare -= extra
        sized.append((column, column.width + extra))
    taken = sum(size for _, size in sized) + len(sized)
    return tuple((column, size or max(width - taken, 6)) for column, size in sized)
