"""Reading a result's records while it streams by: JSON, JSON lines, CSV. Memory stays bounded whatever comes.

However the bytes are cut into chunks, the outcome is the same.
"""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from opledger.rules import delimited, jsontext
from opledger.rules.arrays import ArrayItems
from opledger.rules.contract import ResultFormat
from opledger.rules.looks import Look
from opledger.rules.plain import clean
from opledger.rules.values import Pick

MAX_JSON: Final = 6 * 1024 * 1024
"""The largest JSON document that is read as one (not an array). That needs several times its size in memory."""
MAX_VALUES: Final = 400_000
"""Most values in a JSON document, or in one line, that is read: each takes up to a hundred bytes of memory."""
MAX_LINE: Final = 4 * 1024 * 1024
"""The longest line (and CSV record) that is looked into."""

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\n\r"
_LOOKAHEAD: Final = 64 * 1024  #: white space in front of a document beyond which nobody looks for an array


class Records:
    """What stands in a result. This base looks at nothing: it is right for ``binary`` and for an unnamed format.

    `broken` says what is wrong with the format for certain, `notes` what could not be looked into, `count` how many
    records there are where that can be told. `at` says where the records stand in a JSON document.
    """

    def __init__(self, looks: Sequence[Look] = (), at: Pick | None = None) -> None:
        self.broken: str | None = None
        self.count: int | None = None
        self.notes: list[str] = []
        self._looks = tuple(looks)
        self._at = at

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""

    def finish(self) -> None:
        """Take note that these were all."""

    def _fail(self, why: str) -> None:
        self.broken = self.broken or why

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _unseen(self, text: str) -> None:
        """Note what could not be looked into; it cannot be taken on trust where something is needed from it."""
        if any(look.needed for look in self._looks):
            self._fail(text)
        else:
            self._note(text)

    def _row(self, row: Any, number: int) -> None:
        for look in self._looks:
            look.row(row, number)


class JsonDocument(Records):
    """One JSON text. The items of an array at its top are its records; any other document is one record.

    An array is read item by item, as long as nobody wants to see the document as a whole.
    """

    def __init__(self, looks: Sequence[Look] = (), at: Pick | None = None) -> None:
        super().__init__(looks, at)
        self._data = bytearray()
        self._size = 0
        self._values = 0
        self._by_item = at is None and not any(look.whole for look in self._looks)
        self._array: ArrayItems | None = None

    def feed(self, chunk: bytes) -> None:
        """Keep the bytes, as long as they are not too many to be read at the end."""
        if self._array is not None:
            if self.broken is None:
                self._array.feed(chunk)
            return
        self._size += len(chunk)
        self._values += _values_in(chunk)
        if self._too_large():
            self._data.clear()
            return
        self._data += chunk
        begun = bytes(self._data[:_LOOKAHEAD]).removeprefix(_BOM).lstrip(_SPACE) if self._by_item else b""
        if begun and not _BOM.startswith(begun):
            self._by_item = False  # it is known now what this document is
            if begun.startswith(b"["):
                self._open_array()

    def finish(self) -> None:
        """Read the document, or see that the array came to its end."""
        if self._array is not None:
            self._array.finish()
            if self._array.broken is not None:
                self._fail(self._array.broken)
            if self.broken is not None:
                self.count = None
            return
        if self._too_large():
            self._unseen(f"the JSON is larger than {MAX_JSON} bytes or {MAX_VALUES} values and was not looked into")
            return
        data = bytes(self._data)
        self._data.clear()
        try:
            document = jsontext.loads(data)
        except jsontext.JsonError as error:
            self._fail(str(error))
            return
        for look in self._looks:
            look.document(document)
        rows = document if self._at is None else self._at.of(document, {})
        if isinstance(rows, list):
            self.count = len(rows)
            for number, row in enumerate(rows, start=1):
                self._row(row, number)
        elif self._at is not None:
            self._fail(f"there is no list at {self._at.text}")
        else:
            self._row(document, 1)

    def _open_array(self) -> None:
        self._array = ArrayItems(self._item, MAX_LINE)
        self.count = 0
        data = bytes(self._data)
        self._data.clear()
        self.feed(data[data.index(b"[") + 1 :])

    def _item(self, item: bytes | None) -> None:
        """Read one item of an array."""
        self.count = (self.count or 0) + 1
        if self.broken is not None:
            return
        if item is None or _values_in(item) > MAX_VALUES:
            self._unseen(f"item {self.count} is larger than {MAX_LINE} bytes or {MAX_VALUES} values; it was not read")
            return
        try:
            row = jsontext.loads(item.decode())
        except UnicodeDecodeError:
            self._fail(f"item {self.count} of the JSON is not UTF-8")
            return
        except jsontext.JsonError as error:
            self._fail(f"item {self.count} of the JSON: {error}")
            return
        self._row(row, self.count)

    def _too_large(self) -> bool:
        return self._size > MAX_JSON or self._values > MAX_VALUES


class _Lines(Records):
    """Cuts the bytes into lines at every line feed. A line beyond `MAX_LINE` is not kept.

    `unended`: the last line has no line feed.
    """

    def __init__(self, looks: Sequence[Look] = (), at: Pick | None = None) -> None:
        super().__init__(looks, at)
        self.count = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._number = 0
        self._ending = False
        self.unended = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, and look at every line that ends in them."""
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._take(piece)
            self._end_line()
        self._take(rest)

    def finish(self) -> None:
        """Look at the last line, which may have no line feed."""
        self._ending = True
        self.unended = self._size > 0
        if self._size:
            self._end_line()

    def _take(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MAX_LINE:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _end_line(self) -> None:
        self._number += 1
        line = b"".join(self._pieces) if self._size <= MAX_LINE else None
        self._pieces.clear()
        self._size = 0
        if line is not None and self._number == 1:
            line = line.removeprefix(_BOM)
        self._line(line)

    def _line(self, line: bytes | None) -> None:
        """Look at one line, without its line feed; None for one that is too long."""
        raise NotImplementedError


class JsonLines(_Lines):
    """One JSON text on each line; blank lines do not count."""

    def _line(self, line: bytes | None) -> None:
        if line is None:
            self._unseen(f"line {self._number} is longer than {MAX_LINE} bytes and was not looked into")
        elif not line.strip():
            return
        else:
            self._read(line)
        self.count = (self.count or 0) + 1

    def _read(self, line: bytes) -> None:
        if self.broken is not None:
            return
        if _values_in(line) > MAX_VALUES:
            self._unseen(f"line {self._number} has more than {MAX_VALUES} values and was not looked into")
            return
        try:
            row = jsontext.loads(line)
        except jsontext.JsonError as error:
            self._fail(f"line {self._number}: {error}")
            return
        self._row(row, (self.count or 0) + 1)


class Csv(_Lines):
    """Rows of a CSV file (RFC 4180, read as Python's csv module reads it); the first row names the columns.

    The delimiter is the most frequent of comma, semicolon, tab and bar in that first row. Blank lines do not count. Of
    columns that have one name none is read, and where a record must be looked into, such a file cannot be accepted.
    """

    def __init__(self, looks: Sequence[Look] = (), at: Pick | None = None) -> None:
        super().__init__(looks, at)
        self._utf8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
        self._delimiter: bytes | None = None
        self._header: list[str] | None = None
        self._twice: frozenset[str] = frozenset()  #: columns whose name stands in the first row more than once
        self._width = 0
        self._fields = 1
        self._inside = False
        self._parts: list[bytes] = []
        self._row_size = 0
        self._open_end = False  #: this is the last row, and no line break ends it

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, and look at every row that ends in them."""
        self._check_text(chunk, final=False)
        super().feed(chunk)

    def finish(self) -> None:
        """Look at the last row."""
        self._check_text(b"", final=True)
        super().finish()
        if self._utf8 is None:
            self._note("the CSV is not UTF-8")
        if self._inside:
            self._fail("the CSV ends inside of a quoted field")

    def _check_text(self, chunk: bytes, *, final: bool) -> None:
        if self._utf8 is None:
            return
        try:
            self._utf8.decode(chunk, final)
        except UnicodeDecodeError:
            self._utf8 = None

    def _line(self, line: bytes | None) -> None:
        if self.count is None:
            return
        if line is None:
            self._unseen(f"line {self._number} is longer than {MAX_LINE} bytes; the rows were not counted")
            self.count, self._inside = None, False
            return
        *parts, last = line.splitlines() or [b""]  # a carriage return alone ends a line, too
        for part in parts:
            self._part(part)
        self._open_end = self._ending and not line.endswith(b"\r")
        self._part(last)

    def _part(self, part: bytes) -> None:
        if not part and not self._inside:
            return
        if self._delimiter is None:
            self._delimiter = delimited.delimiter_of(part)
        self._inside, fields = delimited.scan(part, self._delimiter, inside=self._inside)
        self._fields += fields
        if self._looks or not self._width:
            self._row_size += len(part)
            if self._row_size <= MAX_LINE:
                self._parts.append(part)
        if not self._inside:
            self._end_row()

    def _end_row(self) -> None:
        fields, self._fields = self._fields, 1
        if not self._width:
            self._width = fields
            self._read_header()
        else:
            self.count = (self.count or 0) + 1
            if fields < self._width and self._open_end:
                self._fail(f"the last row is cut: it has {fields} of {self._width} fields and no end of line")
            elif fields != self._width:
                self._note_width(fields)
            if self._looks and self.broken is None:
                self._look_at_row()
        self._parts.clear()
        self._row_size = 0

    def _read_header(self) -> None:
        """Take the names of the columns. Of two with one name nobody could say which is meant: neither is read."""
        try:
            self._header = next(self._cells(), []) if self._row_size <= MAX_LINE else None
        except csv.Error:
            self._header = None
        if self._header is None:
            self._header = []
            self._unseen("the first row has more in it than is looked into")
            return
        counted = Counter(self._header)
        self._twice = frozenset(name for name, times in counted.items() if name and times > 1)
        if self._twice:
            named = ", ".join(repr(clean(name, limit=80)) for name in sorted(self._twice)[:10])
            self._unseen(f"columns stand in the first row more than once: {named}")

    def _note_width(self, fields: int) -> None:
        if not any("first row has" in note for note in self.notes):
            self._note(f"row {self.count} has {fields} fields, but the first row has {self._width}")

    def _look_at_row(self) -> None:
        assert self._header is not None
        try:
            cells = next(self._cells(), [])
        except csv.Error:
            cells = None
        if cells is None or self._row_size > MAX_LINE:
            self._unseen(f"row {self.count} has more in it than is looked into")
            return
        named = zip(self._header, cells, strict=False)
        self._row({name: cell for name, cell in named if name not in self._twice}, self.count or 0)

    def _cells(self) -> Iterator[list[str]]:
        lines = [part.decode("utf-8", "replace") + "\n" for part in self._parts]
        return csv.reader(lines, delimiter=(self._delimiter or b",").decode())


def _values_in(data: bytes) -> int:
    """How many values some JSON can hold at most: it is they, not the bytes, that fill the memory."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


_READERS: Final[Mapping[ResultFormat, type[Records]]] = {
    "json": JsonDocument,
    "jsonl": JsonLines,
    "csv": Csv,
    "binary": Records,
}


def records(form: ResultFormat | None, looks: Sequence[Look] = (), at: Pick | None = None) -> Records:
    """Return a reader for a format; `at` says where the records stand in a JSON document."""
    return Records(looks) if form is None else _READERS[form](looks, at)
