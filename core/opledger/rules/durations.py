"""Durations, sizes and rates as people write them in contracts, flags and settings.

All are a whole number and a unit, without a space: ``30s``, ``2GiB``, ``50/s``. There is one way to say each thing, so
fractions (``1.5h``), compounds (``1h30m``), signs and bare numbers are refused with a sentence that shows the way.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

LONGEST: Final = timedelta(days=36_500)  #: a century; any time we meet plus this is still a time
LARGEST: Final = 2**63 - 1

_UNITS: Final = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_SIZES: Final = {
    "B": 1,
    "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4,
}  # fmt: skip
_PERIODS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}

_NUMBER_AND_WORD: Final = re.compile(r"([0-9]{1,19})(/?)([A-Za-z]*)")


def parse_duration(text: str) -> timedelta:
    """Read ``500ms``, ``30s``, ``2m``, ``1h`` or ``7d``. Zero is allowed: ``0s`` means "at once".

    Raises ValueError for anything else, and for more than a century.
    """
    number, slash, word = _split(text)
    if number is None or slash or word not in _UNITS:
        raise ValueError(
            f"{_quoted(text)} is not a duration: write a whole number and a unit without a space, "
            "such as 500ms, 30s, 90m, 1h or 7d"
        )
    if number > LONGEST // _UNITS[word]:
        raise ValueError(f"{_quoted(text)} is longer than a century ({LONGEST.days}d)")
    return number * _UNITS[word]


def write_duration(duration: timedelta) -> str:
    """Write a duration in the largest unit that keeps it exact, as `parse_duration` reads it.

    Raises ValueError for a negative duration or a fraction of a millisecond.
    """
    if duration < timedelta(0):
        raise ValueError("a negative duration cannot be written")
    for word, unit in _UNITS.items():
        if duration and duration % unit == timedelta(0):
            return f"{duration // unit}{word}"
    if duration:
        raise ValueError("a fraction of a millisecond cannot be written as a duration")
    return "0s"


def format_duration(duration: timedelta) -> str:
    """Write a duration for people: ``350 ms``, ``3.7 s``, ``12 s``, ``2 m 05 s``, ``3 h 07 m``, ``2 d 04 h``.

    At most two units, cut and not rounded, so that a wait is never said to be over before it is.
    """
    if duration < timedelta(0):
        return "-" + format_duration(-duration)
    milliseconds = duration // timedelta(milliseconds=1)
    seconds = milliseconds // 1000
    if milliseconds == 0:
        return "<1 ms" if duration else "0 s"
    if seconds == 0:
        return f"{milliseconds} ms"
    if seconds < 10:
        tenths = milliseconds // 100 % 10
        return f"{seconds}.{tenths} s" if tenths else f"{seconds} s"
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} m {seconds % 60:02} s"
    hours = minutes // 60
    if hours < 24:
        return f"{hours} h {minutes % 60:02} m"
    return f"{hours // 24} d {hours % 24:02} h"


def parse_size(text: str) -> int:
    """Read ``512B``, ``10kB``, ``5MB``, ``64KiB``, ``2GiB`` … as bytes.

    Raises ValueError for anything else (``KB`` too: it is read both ways) and for more than 2^63 - 1 bytes.
    """
    number, slash, word = _split(text)
    if number is None or slash or word not in _SIZES:
        raise ValueError(
            f"{_quoted(text)} is not a size: write a whole number and a unit without a space, "
            f"one of {', '.join(_SIZES)}"
        )
    size = number * _SIZES[word]
    if size > LARGEST:
        raise ValueError(f"{_quoted(text)} is larger than any file can be")
    return size


def parse_rate(text: str) -> float:
    """Read ``50/s``, ``600/min`` (or ``600/m``), ``100/h`` or ``1000/d`` as calls a second.

    Raises ValueError for anything else, and for zero: whoever wants no calls pauses the provider.
    """
    number, slash, word = _split(text)
    if number is None or not slash or word not in _PERIODS:
        raise ValueError(f"{_quoted(text)} is not a rate: write a whole number and a period, such as 50/s or 600/min")
    if number == 0:
        raise ValueError(f"{_quoted(text)} would never send anything; pause the provider instead")
    return number / _PERIODS[word]


def _split(text: str) -> tuple[int | None, str, str]:
    found = _NUMBER_AND_WORD.fullmatch(text)
    return (None, "", "") if found is None else (int(found[1]), found[2], found[3])


def _quoted(text: str) -> str:
    return f"{text[:40]!a}"
