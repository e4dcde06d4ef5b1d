r"""Making outside text inert: what a provider, an agent or a file says can be looked at and does nothing (I27).

Terminals obey control characters, bidirectional controls reorder what people read, and invisible characters make two
texts look alike. `clean` turns each of them into something visible. Markup is not its concern: the result is plain
text, and whoever shows it must show it literally.

A backslash in the text stays as it is, so a written-out ``\u202e`` and a real U+202E look the same afterwards.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final, NewType

SafeText = NewType("SafeText", str)
"""Text that has been through `clean`. Only such text may reach a widget, a terminal or a log."""

MARKS: Final = 4
"""How many accents may stand on one letter; scripts in use need at most four, stacks of twenty cover other lines."""

_HIDING: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Zl", "Zp"})
_STACKING: Final = frozenset({"Mn", "Me"})
_REPLACEMENT: Final = "\ufffd"

# Letters and marks that draw nothing: the Default_Ignorable_Code_Point property (Unicode, DerivedCoreProperties.txt)
# as far as the general category does not tell. They carry hidden text and make different names look equal.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)

_KEPT: Final = 4096


class Shapes(dict[int, str]):
    """Code point -> what is shown for it, worked out once for each that occurs; fit for `str.translate`.

    Bounded: a text that uses every code point there is must not fill the memory.
    """

    def __init__(self, shape: Callable[[str], str]) -> None:
        super().__init__()
        self._shape = shape

    def __missing__(self, point: int) -> str:
        shape = self._shape(chr(point))
        if len(self) < _KEPT:
            self[point] = shape
        return shape


def inert(char: str) -> bool:
    """True where a character, looked at on its own, neither acts nor hides."""
    category = unicodedata.category(char)
    return category != "Cs" and category not in _HIDING and _INVISIBLE.match(char) is None


def shape_of(char: str) -> str:
    """Return what is shown for one character: itself where it is inert, else a picture or a visible escape."""
    if inert(char):
        return char
    point = ord(char)
    if point < 0x20:
        return chr(0x2400 + point)
    if point == 0x7F:
        return "\u2421"
    if 0xD800 <= point <= 0xDFFF:
        return _REPLACEMENT
    return escape(point)


def escape(point: int) -> str:
    r"""Write a code point as ``\u202e`` or ``\U000e0041``."""
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


_SHAPES: Final = Shapes(shape_of)


def clean(text: str, *, limit: int | None = None, newlines: bool = False) -> SafeText:
    r"""Return `text` with everything visible and nothing acting.

    C0 controls and DEL become control pictures (``␛``), lone surrogates U+FFFD, and C1, bidirectional, zero-width,
    tag, private and unassigned characters ``\u....`` or ``\U........``. Accents beyond the fourth on one letter,
    and accents on nothing, are written out the same way. With `newlines`, line feeds stay.

    With `limit`, the text is cut so that at most so many characters are shown, and ``…(+N)`` behind them says how many
    of the characters of `text` are not. Cleaning twice changes nothing more. Raises ValueError for a negative limit.
    """
    if (limit is None or len(text) <= limit) and text.isascii() and text.isprintable():
        return SafeText(text)
    if limit is None:
        return SafeText("".join(_pieces(text, newlines=newlines)))
    if limit < 0:
        raise ValueError(f"a limit of {limit} characters makes no sense; give 0 or more")
    return _cut(text, limit, newlines=newlines)


def _cut(text: str, limit: int, *, newlines: bool) -> SafeText:
    shown: list[str] = []
    size = 0
    for piece in _pieces(text[:limit], newlines=newlines):
        size += len(piece)
        if size > limit:
            break
        shown.append(piece)
    left_out = len(text) - len(shown)
    return SafeText("".join(shown) + (f"…(+{left_out})" if left_out else ""))


def _pieces(text: str, *, newlines: bool) -> list[str]:
    """Return what is shown for each character of `text`, in order."""
    pieces = [_SHAPES[ord(char)] for char in text]
    if newlines:
        pieces = ["\n" if char == "\n" else piece for char, piece in zip(text, pieces, strict=True)]
    if not text.isascii():
        _limit_marks(text, pieces)
    return pieces


def _limit_marks(text: str, pieces: list[str]) -> None:
    """Write out, in `pieces`, the accents that have no letter or stand too high."""
    for index in tall(text, "\n"):
        pieces[index] = escape(ord(text[index]))


def tall(text: str, nothing: str) -> Iterator[int]:
    """Yield where in `text` accents stand too high, or on nothing: at the start, or behind one of these characters."""
    stacked = MARKS
    for index, char in enumerate(text):
        if char >= "\u0300" and unicodedata.category(char) in _STACKING:
            stacked += 1
            if stacked > MARKS:
                yield index
        else:
            stacked = MARKS if char in nothing else 0
