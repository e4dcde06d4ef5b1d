"""Cutting a JSON array into its items while it streams by, so that a large one need not lie in memory as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from opledger.rules.jsontext import MAX_DEPTH

_SPACE: Final = b" \t\n\r"
_OUTSIDE: Final = re.compile(rb'["\[\]{},]')
_INSIDE: Final = re.compile(rb'["\\]')


class ArrayItems:
    """Takes the bytes behind the opening bracket of a JSON array and hands its items on, each as it is written.

    An item that is longer than `limit` is handed on as None. What stands inside of an item is not looked at beyond
    strings and brackets: whoever reads it finds what is wrong. `broken` says what is wrong with the array itself.
    """

    def __init__(self, on_item: Callable[[bytes | None], None], limit: int) -> None:
        self.broken: str | None = None
        self._on_item = on_item
        self._limit = limit
        self._piece = bytearray()
        self._size = 0
        self._depth = 0
        self._inside = False  #: of a string
        self._escaped = False
        self._ended = False
        self._items = 0

    @property
    def waiting(self) -> int:
        """How many bytes are kept."""
        return len(self._piece)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        at = start = 0
        while self.broken is None and at < len(chunk):
            if self._ended:
                if chunk[at:].strip(_SPACE):
                    self.broken = "there is more behind the end of the JSON array"
                return
            if self._inside:
                at = self._string(chunk, at)
                continue
            found = _OUTSIDE.search(chunk, at)
            if found is None:
                break
            at = found.end()
            if self._ends_item(found.group()):
                self._take(chunk[start : at - 1])
                self._item()
                start = at
        if self.broken is None and not self._ended:
            self._take(chunk[start:])

    def finish(self) -> None:
        """Take note that these were all."""
        if self.broken is None and not self._ended:
            self.broken = "the JSON array ends in the middle"

    def _string(self, chunk: bytes, at: int) -> int:
        """Go on inside of a string; returns where it ends, or where the chunk does."""
        if self._escaped:
            self._escaped = False
            return at + 1
        found = _INSIDE.search(chunk, at)
        if found is None:
            return len(chunk)
        if found.group() == b'"':
            self._inside = False
        else:
            self._escaped = True
        return found.end()

    def _ends_item(self, mark: bytes) -> bool:
        """Follow one mark outside of strings, and tell whether it is the end of an item of this array."""
        if mark == b'"':
            self._inside = True
        elif mark in b"[{":
            self._depth += 1
            if self._depth > MAX_DEPTH:  # nobody could read it, and every bracket of millions costs time
                self.broken = f"the JSON is nested deeper than {MAX_DEPTH} levels"
        elif mark in b"]}" and self._depth:
            self._depth -= 1
        elif mark == b"]":
            self._ended = True
            return True
        elif mark == b"}":
            self.broken = "the JSON array has a brace that nothing opens"
        else:
            return not self._depth
        return False

    def _take(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._piece += piece
        else:
            self._piece.clear()

    def _item(self) -> None:
        item = bytes(self._piece).strip(_SPACE) if self._size <= self._limit else None
        self._piece.clear()
        self._size = 0
        if item == b"":
            if self._items or not self._ended:
                self.broken = "the JSON array has a comma without an item"
            return
        self._items += 1
        self._on_item(item)
