"""A row of figures as block characters: the shape of half an hour in a few cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
NONE: Final = "·"
"""A time in which nothing happened; the lowest block is already something."""


def sparks(values: Sequence[int], width: int, most: int | None = None) -> str:
    """Return `width` characters, oldest first, for figures that are put together where there are more of them.

    The highest block is `most`, or else the greatest of the figures.
    """
    if width <= 0:
        return ""
    together = -(-len(values) // width) or 1
    # From the end: the newest group is whole.
    ends = range(len(values), 0, -together)
    groups = [sum(values[max(end - together, 0) : end]) for end in ends][::-1]
    top = max(most or 0, *groups, 1)
    drawn = "".join(BLOCKS[min(-(-one * len(BLOCKS) // top), len(BLOCKS)) - 1] if one > 0 else NONE for one in groups)
    return drawn.rjust(width, NONE)
