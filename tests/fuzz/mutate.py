"""How an input becomes another one. Everything is drawn from one `random.Random`, so that a seed tells it again."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

LARGEST: Final = 20 * 1024
"""Bytes of an input; what is longer is cut. What goes wrong with much more is a matter of limits, which have tests."""

_NUMBERS: Final = (
    b"0", b"-1", b"1", b"00", b"1.0", b"1e3", b"1e999", b"-0", b"127", b"255", b"256", b"2147483648", b"4294967296",
    b"9007199254740993", b"9223372036854775808", b"1" * 25, b"9" * 400, b"0.1", b"NaN", b"Infinity", b"\xd9\xa1",
)  # fmt: skip
_BYTES: Final = (
    b"\x00", b"\n", b"\r", b"\t", b" ", b'"', b"'", b"\\", b"\x1b[2J", b"\x7f", b"\x9b", b"\xff",
    b"\xc0\x80", b"\xe2\x80\xae",
    b"\xe2\x80\x8b", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf0\x9f\x98\x80", b"\xcc\x81", b"\xe3\x80\x82",
    b"\xc2\x85", b"\xe2\x80\xa8",
    b"\\ud800", b"\\u0000", b"%00", b"%2f", b"${X}", b"{body}", b"//", b"..", b"@", b":", b",", b";",
    b"=", b"#", b"[", b"]",
    b"{", b"}", b"<", b">", b"|", b"!", b"-", b"~", b"/",
)  # fmt: skip
_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1.0, 1e300, 2**53 + 1, 10**30, "", " ", "0", "a", ".", "..", "\0", "\x1b", "\u202e", "é",
    [], {}, [[]], {"": {}}, [1, "1", 1.5], "2026-11-29T12:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
)  # fmt: skip
_TOKEN: Final = re.compile(rb"[A-Za-z_]+|[0-9]+|\s+|[^A-Za-z0-9_\s]")
_NUMBER: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")

Step = Callable[["Mutator", bytes], bytes]


class Mutator:
    """Draws inputs. `words` is what the target's own source and people know of its language."""

    def __init__(self, luck: random.Random, words: Sequence[bytes], shapes: Sequence[str]) -> None:
        self.luck = luck
        self._words = [*words, *_BYTES, *_NUMBERS]
        self._steps = [step for shape in ("bytes", *shapes) for step in _STEPS[shape]]
        self.pool: list[bytes] = []  #: the other inputs, for splicing

    def of(self, data: bytes) -> bytes:
        """Return another input, some steps away."""
        for _ in range(1 << self.luck.choice((0, 0, 0, 1, 1, 2, 3))):
            data = self.luck.choice(self._steps)(self, data)
        return data[:LARGEST]

    def word(self) -> bytes:
        """Return a word."""
        return self.luck.choice(self._words)

    def other(self) -> bytes:
        """Return another input."""
        return self.luck.choice(self.pool) if self.pool else b""

    def span(self, data: bytes | Sequence[Any]) -> tuple[int, int]:
        """Return the ends of a piece, more often a short one."""
        start = self.luck.randrange(len(data) + 1)
        length = self.luck.choice((1, 1, 2, 4, 8, 32, len(data)))
        return start, min(len(data), start + self.luck.randrange(length + 1))


# --- bytes -------------------------------------------------------------------------------------------------------


def _flip(m: Mutator, data: bytes) -> bytes:
    if not data:
        return m.word()
    at = m.luck.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << m.luck.randrange(8))]) + data[at + 1 :]


def _set(m: Mutator, data: bytes) -> bytes:
    at = m.luck.randrange(len(data) + 1)
    return data[:at] + bytes([m.luck.randrange(256)]) + data[at + 1 :]


def _cut(m: Mutator, data: bytes) -> bytes:
    start, stop = m.span(data)
    return data[:start] + data[stop:]


def _double(m: Mutator, data: bytes) -> bytes:
    start, stop = m.span(data)
    return data[:stop] + data[start:stop] * m.luck.choice((1, 1, 2, 8, 100)) + data[stop:]


def _put(m: Mutator, data: bytes) -> bytes:
    at = m.luck.randrange(len(data) + 1)
    return data[:at] + m.word() + data[at:]


def _over(m: Mutator, data: bytes) -> bytes:
    start, stop = m.span(data)
    return data[:start] + m.word() + data[stop:]


def _splice(m: Mutator, data: bytes) -> bytes:
    other = m.other()
    (start, stop), (first, last) = m.span(data), m.span(other)
    return data[:start] + other[first:last] + data[stop:]


def _cross(m: Mutator, data: bytes) -> bytes:
    other = m.other()
    return data[: m.luck.randrange(len(data) + 1)] + other[m.luck.randrange(len(other) + 1) :]


def _case(m: Mutator, data: bytes) -> bytes:
    start, stop = m.span(data)
    return data[:start] + data[start:stop].swapcase() + data[stop:]


# --- words and numbers -------------------------------------------------------------------------------------------


def _token(m: Mutator, data: bytes) -> bytes:
    tokens = _TOKEN.findall(data)
    if not tokens:
        return m.word()
    at, how = m.luck.randrange(len(tokens)), m.luck.randrange(5)
    if how == 0:
        del tokens[at]
    elif how == 1:
        tokens.insert(at, tokens[m.luck.randrange(len(tokens))])
    elif how == 2:
        others = _TOKEN.findall(m.other())
        tokens[at] = m.luck.choice(others) if others else m.word()
    elif how == 3:
        tokens[at] = m.word()
    else:
        also = m.luck.randrange(len(tokens))
        tokens[at], tokens[also] = tokens[also], tokens[at]
    return b"".join(tokens)


def _number(m: Mutator, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _put(m, data)
    one = m.luck.choice(found)
    text, near = m.luck.choice(_NUMBERS), m.luck.choice((-1, 1, 2, 60))
    if m.luck.random() < 0.5 and len(one[0]) < 40 and b"." not in one[0]:
        text = str(int(one[0]) + near).encode()
    return data[: one.start()] + text + data[one.end() :]


# --- lines -------------------------------------------------------------------------------------------------------


def _line(m: Mutator, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at, how = m.luck.randrange(len(lines)), m.luck.randrange(6)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(m.luck.randrange(len(lines) + 1), lines[at])
    elif how == 2:
        also = m.luck.randrange(len(lines))
        lines[at], lines[also] = lines[also], lines[at]
    elif how == 3:
        lines.insert(at, m.luck.choice(m.other().split(b"\n")))
    elif how == 4:
        lines[at] = m.luck.choice(m.other().split(b"\n"))
    else:
        name, sign, _ = lines[at].partition(m.luck.choice((b"=", b":", b" ")))
        lines[at] = name + sign + b" " + m.luck.choice((m.word(), b'"' + m.word() + b'"'))
    return b"\n".join(lines)


# --- JSON --------------------------------------------------------------------------------------------------------


def _json(m: Mutator, data: bytes) -> bytes:
    """Change one place of a JSON document, wherever in the input it stands: the rest, or one of the lines."""
    start = m.luck.choice([at for at in (data.find(b"{"), data.find(b"["), data.rfind(b"\n{") + 1) if at >= 0] or [0])
    stop = data.find(b"\n", start) if m.luck.random() < 0.5 else len(data)
    stop = len(data) if stop < 0 else stop
    try:
        document = json.loads(data[start:stop])
    except (ValueError, RecursionError):
        return m.luck.choice((_token, _put, _number))(m, data)
    other: Any = None
    if m.luck.random() < 0.3:
        try:
            other = json.loads(m.other()[start:])
        except (ValueError, RecursionError):
            other = None
    try:
        text = json.dumps(_changed(m, document, other), ensure_ascii=m.luck.random() < 0.5)
        changed = text.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return data
    if m.luck.random() < 0.1:  # a key that stands twice
        changed = changed.replace(b"{", b'{"id": 1, "id": 2, ', 1)
    return data[:start] + changed + data[stop:]


def _changed(m: Mutator, document: Any, other: Any) -> Any:
    places = _places(document)
    holder, key = m.luck.choice(places)
    if holder is None:
        return _fresh(m, document, other)
    how = m.luck.randrange(6)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[m.word().decode("utf-8", "replace")] = holder.pop(key)
    elif how == 2 and len(places) > 2:
        theirs, name = m.luck.choice(places[1:])
        if key in (holder if isinstance(holder, dict) else range(len(holder))):
            holder[key] = theirs[name]
        holder[key] = json.loads(json.dumps(holder[key]))  # a copy: no document holds itself
    else:
        holder[key] = _fresh(m, holder[key], other)
    return document


def _fresh(m: Mutator, old: Any, other: Any) -> Any:
    how = m.luck.randrange(7)
    if how == 0:
        return m.word().decode("utf-8", "surrogateescape")
    if how == 1 and isinstance(old, str):
        return _put(m, old.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")
    if how == 1 and isinstance(old, int | float):
        return m.luck.choice((str(old), float(old) if abs(old) < 1e300 else 0, -old, old + 1, bool(old)))
    if how == 2:
        deep: Any = old
        for _ in range(m.luck.choice((1, 2, 63, 64, 65, 70))):
            deep = [deep] if m.luck.random() < 0.5 else {"a": deep}
        return deep
    if how == 3 and other is not None:
        return other
    if how == 4:
        return [old] * m.luck.choice((0, 1, 2, 20))
    return m.luck.choice(_VALUES)


def _places(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = [(None, None)]
    todo = [document]
    while todo:
        one = todo.pop()
        pairs = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, value in pairs:
            found.append((one, key))
            todo.append(value)
    return found


_STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "bytes": (_flip, _set, _cut, _double, _put, _over, _splice, _cross, _case),
    "words": (_token, _token, _token, _number, _number, _put),
    "lines": (_line, _line, _line, _line),
    "json": (_json, _json, _json, _json, _json, _json),
}
