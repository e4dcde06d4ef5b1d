"""Flags into values: bodies, durations, tags. Whatever cannot be read is a `UsageError` that says what to write."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from opledger.errors import UsageError

_JSON_START = re.compile(r"[\[{\"]")
_JSON_WORD = re.compile(r"true|false|null|-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def body(text: str | None) -> Any:
    """Read ``--body``: JSON as it stands, ``-`` for standard input, else the name of a file with JSON in it.

    JSON begins with ``{``, ``[`` or ``"``, or is a number, true, false or null.
    """
    if text is None:
        return None
    if text == "-":
        return _json(sys.stdin.buffer.read(), "standard input")
    stripped = text.strip()
    if _JSON_START.match(stripped) or _JSON_WORD.fullmatch(stripped):
        return _json(text, "--body")
    try:
        return _json(Path(text).read_bytes(), text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"--body {text}: the file cannot be read ({why}); name a JSON file, - for standard input, or write JSON"
        ) from error


def _json(raw: bytes | str, where: str) -> Any:
    from opledger.rules.jsontext import JsonError, loads

    try:
        return loads(raw)
    except JsonError as error:
        raise UsageError(f"{where} does not hold JSON that can be sent: {error}; mend it and submit again") from error


def span(text: str | None, flag: str, *, zero: bool = False) -> timedelta | None:
    """Read a duration flag; None where it was not given. A duration of nothing is refused unless `zero` allows it."""
    if text is None:
        return None
    from opledger.rules.durations import parse_duration

    try:
        value = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error
    if value <= timedelta(0) and not zero:
        raise UsageError(f"{flag} {text}: a duration of nothing makes no sense here; give more than 0")
    return value


def tags(pairs: Iterable[str], flag: str = "--tag") -> dict[str, str]:
    """Read ``--tag KEY=VALUE`` flags, or others that are written so; the same key twice is refused."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} {pair}: write KEY=VALUE")
        if key in found:
            raise UsageError(f"{flag} {pair}: the key {key} was given before; each key takes one value")
        found[key] = value
    return found
