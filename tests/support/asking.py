"""What harnesses may be asked for. One that did nothing must not look like one that found nothing."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable
from typing import Final

NOTHING: Final = 2
"""The exit code of a harness that had nothing to do, as for any wrong use."""


def at_least_one(text: str) -> int:
    """Read a number of things to do, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} would do nothing; give a whole number of at least 1")
    return number


def above_zero(text: str) -> float:
    """Read a time to spend, in seconds, for argparse."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r} would do nothing; give a number of seconds above 0")
    return seconds


def known(parser: ArgumentParser, name: str, names: Iterable[str]) -> None:
    """End with exit code 2 where `name` is given and is none of `names`."""
    there = list(dict.fromkeys(names))
    if name and name not in there:
        parser.error(f"there is no {name!r}; there are {', '.join(there)}")


def nothing(what: str) -> int:
    """Say that nothing was done, and return the exit code for it."""
    sys.stderr.write(f"nothing was done: {what}\n")
    return NOTHING
