"""Where the fields of a line of delimited text (CSV) end: only delimiters outside of quotes count."""

from __future__ import annotations

import re
from typing import Final

_DELIMITERS: Final = (b",", b";", b"\t", b"|")
_QUOTED: Final = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"')
_CLOSING: Final = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')


def delimiter_of(part: bytes) -> bytes:
    """Return the most frequent of comma, semicolon, tab and bar outside of quotes; the comma where there is none."""
    return max(_DELIMITERS, key=_QUOTED.sub(b"", part).count)


def scan(part: bytes, delimiter: bytes, *, inside: bool) -> tuple[bool, int]:
    """Say whether a quoted field is open at the end of this line, and how many delimiters stand outside of quotes.

    A quote opens a field only at its start, as Python's csv module has it; two quotes inside are one.
    """
    if b'"' not in part:
        return inside, 0 if inside else part.count(delimiter)
    at = delimiters = 0
    while True:
        if not inside and part.startswith(b'"', at):
            at += 1
            inside = True
        if inside:
            closing = _CLOSING.match(part, at)
            if closing is None:
                return True, delimiters
            at = closing.end()
            inside = False
        found = part.find(delimiter, at)
        if found < 0:
            return False, delimiters
        delimiters += 1
        at = found + 1
