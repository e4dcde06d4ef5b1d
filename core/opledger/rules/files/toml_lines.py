"""On which line each key of a TOML text stands.

Python's TOML reader gives values without their places, and an error that names no line is hard to act on. `locate`
walks a text that the reader has already accepted, so it has no errors of its own to report.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

Path = tuple[str | int, ...]
"""Keys from the root of a document; numbers count the items of an array from 0."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|\#[^\n]*)*")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""")
_STRING: Final = re.compile(
    r"""
      \"{3} (?: \\. | [^\\] )*? \"{3} \"{0,2}
    | '{3} .*? '{3} '{0,2}
    | " (?: \\. | [^"\\\n] )* "
    | ' [^'\n]* '
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE: Final = re.compile(r"[^,\]}#\n]*")


def locate(source: str) -> dict[Path, int]:
    """Return the line (from 1) of every table, key and array item of a valid TOML text.

    A key given twice in parts (``[a]`` after ``[a.b]``) has the line where it is first mentioned. Raises
    RecursionError for arrays and inline tables nested too deeply.
    """
    walker = _Walker(source)
    walker.document()
    return walker.lines


class _Walker:
    def __init__(self, source: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = source
        self._at = 0
        self._line = 1
        self._counted = 0  # how far the line breaks have been counted
        self._items: dict[Path, int] = {}  # arrays of tables -> how many so far

    def document(self) -> None:
        prefix: Path = ()
        while self._skip_blank():
            if self._text.startswith("[[", self._at):
                self._at += 2
                prefix = self._next_item(self._dotted())
                self._at = self._text.index("]]", self._at) + 2
            elif self._text[self._at] == "[":
                self._at += 1
                prefix = self._resolve(self._dotted())
                self._mark(prefix)
                self._at = self._text.index("]", self._at) + 1
            else:
                self._pair(prefix)

    def _resolve(self, keys: Path) -> Path:
        """Turn a header's keys into a path: a key that names an array of tables means its latest item."""
        path: Path = ()
        for key in keys:
            path += (key,)
            self._mark(path)
            if path in self._items:
                path += (self._items[path] - 1,)
        return path

    def _next_item(self, keys: Path) -> Path:
        array = (*self._resolve(keys[:-1]), keys[-1])
        self._mark(array)
        index = self._items.get(array, 0)
        self._items[array] = index + 1
        self._mark((*array, index))
        return (*array, index)

    def _pair(self, prefix: Path) -> None:
        path = prefix
        for key in self._dotted():
            path += (key,)
            self._mark(path)
        self._skip_blank()
        self._at += 1  # the equals sign
        self._value(path)

    def _dotted(self) -> Path:
        keys: Path = ()
        while True:
            self._skip_blank()
            found = _KEY.match(self._text, self._at)
            if found is None:
                return keys
            self._at = found.end()
            word = found.group()
            keys += (tomllib.loads(f"key = {word}")["key"] if word[0] in "\"'" else word,)
            self._skip_blank()
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip_blank()
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            found = _STRING.match(self._text, self._at) or _BARE.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while self._skip_blank() and self._text[self._at] != "]":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._mark((*path, index))
            self._value((*path, index))
            index += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._skip_blank() and self._text[self._at] != "}":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)
        self._at += 1

    def _skip_blank(self) -> bool:
        """Move over space, line breaks and comments; False at the end of the text."""
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _mark(self, path: Path) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        self.lines.setdefault(path, self._line)
