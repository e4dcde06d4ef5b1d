"""Reading a result's records while it streams by: JSON, JSON lines, CSV. Memory stays bounded whatever comes.

However the bytes are cut into chunks, the outcome is the same.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from opledger.rules import jsontext
from opledger.rules.contract import ResultFormat
from opledger.rules.values import Condition, ConditionError

MAX_JSON: Final = 16 * 1024 * 1024
"""The largest JSON document that is read as one. Reading it needs several times its size in memory."""
MAX_LINE: Final = 8 * 1024 * 1024
"""The longest line (and CSV record) that is looked into."""

_BOM: Final = b"\xef\xbb\xbf"
_DELIMITERS: Final = (b",", b";", b"\t", b"|")
_QUOTED: Final = re.compile(rb'"(?:[^"]|"")*+"')
_CLOSING: Final = re.compile(rb'(?:[^"]|"")*+"')


class Records:
    """What stands in a result. This base looks at nothing: it is right for ``binary`` and for an unnamed format.

    `broken` says what is wrong for certain, `notes` what could not be looked into, `count` how many records there are
    where that can be told.
    """

    def __init__(self, error_when: Condition | None = None) -> None:
        self.broken: str | None = None
        self.count: int | None = None
        self.notes: list[str] = []
        self._error_when = error_when

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""

    def finish(self) -> None:
        """Take note that these were all."""

    def _fail(self, why: str) -> None:
        self.broken = self.broken or why

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _judge(self, row: Any, number: int) -> None:
        """Look for the error that the contract says a record may carry."""
        if self._error_when is None or self.broken is not None:
            return
        try:
            if self._error_when.holds({"row": row}):
                self._fail(f"record {number} carries an error: {self._error_when.text}")
        except ConditionError:
            self._note(f"record {number} (and maybe others) could not be tried against {self._error_when.text}")
            self._error_when = None


class JsonDocument(Records):
    """One JSON text. The items of an array at its top are its records; any other document is one record."""

    def __init__(self, error_when: Condition | None = None) -> None:
        super().__init__(error_when)
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Keep the bytes, as long as they are not too many to be read at the end."""
        self._size += len(chunk)
        if self._size > MAX_JSON:
            self._pieces.clear()
        else:
            self._pieces.append(chunk)

    def finish(self) -> None:
        """Read the document."""
        if self._size > MAX_JSON:
            self._note(f"the JSON is larger than {MAX_JSON} bytes and was not looked into")
            return
        data = b"".join(self._pieces)
        self._pieces.clear()
        try:
            document = jsontext.loads(data)
        except jsontext.JsonError as error:
            self._fail(str(error))
            return
        if isinstance(document, list):
            self.count = len(document)
            for number, row in enumerate(document, start=1):
                self._judge(row, number)
        else:
            self._judge(document, 1)


class _Lines(Records):
    """Cuts the bytes into lines at every line feed. A line beyond `MAX_LINE` is not kept."""

    def __init__(self, error_when: Condition | None = None) -> None:
        super().__init__(error_when)
        self.count = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._number = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, and look at every line that ends in them."""
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._take(piece)
            self._end_line()
        self._take(rest)

    def finish(self) -> None:
        """Look at the last line, which may have no line feed."""
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
            self._note(f"line {self._number} is longer than {MAX_LINE} bytes and was not looked into")
        elif not line.strip():
            return
        else:
            self._read(line)
        self.count = (self.count or 0) + 1

    def _read(self, line: bytes) -> None:
        if self.broken is not None:
            return
        try:
            row = jsontext.loads(line)
        except jsontext.JsonError as error:
            self._fail(f"line {self._number}: {error}")
            return
        self._judge(row, (self.count or 0) + 1)


class Csv(_Lines):
    """Rows of a CSV file (RFC 4180, read as Python's csv module reads it); the first row names the columns.

    The delimiter is the most frequent of comma, semicolon, tab and bar in that first row. Blank lines do not count.
    """

    def __init__(self, error_when: Condition | None = None) -> None:
        super().__init__(error_when)
        self._utf8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
        self._delimiter: bytes | None = None
        self._header: list[str] | None = None
        self._width = 0
        self._fields = 1
        self._inside = False
        self._row: list[bytes] = []
        self._row_size = 0

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
            self._note(f"line {self._number} is longer than {MAX_LINE} bytes; the rows were not counted")
            self.count, self._inside = None, False
            return
        for part in line.splitlines() or [b""]:  # a carriage return alone ends a line, too
            self._part(part)

    def _part(self, part: bytes) -> None:
        if not part and not self._inside:
            return
        if self._delimiter is None:
            bare = _QUOTED.sub(b"", part)
            self._delimiter = max(_DELIMITERS, key=bare.count)
        self._inside, fields = _scan(part, self._delimiter, inside=self._inside)
        self._fields += fields
        if self._error_when is not None:
            self._row_size += len(part)
            if self._row_size <= MAX_LINE:
                self._row.append(part)
        if not self._inside:
            self._end_row()

    def _end_row(self) -> None:
        fields, self._fields = self._fields, 1
        if not self._width:
            self._width = fields
            self._header = next(self._cells(), [])
        else:
            self.count = (self.count or 0) + 1
            if fields != self._width:
                self._note_width(fields)
            if self._error_when is not None and self.broken is None:
                self._judge_row()
        self._row.clear()
        self._row_size = 0

    def _note_width(self, fields: int) -> None:
        if not any("first row has" in note for note in self.notes):
            self._note(f"row {self.count} has {fields} fields, but the first row has {self._width}")

    def _judge_row(self) -> None:
        assert self._header is not None
        try:
            cells = next(self._cells(), [])
        except csv.Error:
            cells = None
        if cells is None or self._row_size > MAX_LINE:
            self._note(f"row {self.count} has more in it than is looked into")
            return
        self._judge(dict(zip(self._header, cells, strict=False)), self.count or 0)

    def _cells(self) -> Iterator[list[str]]:
        lines = [part.decode("utf-8", "replace") + "\n" for part in self._row]
        return csv.reader(lines, delimiter=(self._delimiter or b",").decode())


def _scan(part: bytes, delimiter: bytes, *, inside: bool) -> tuple[bool, int]:
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


_READERS: Final[Mapping[ResultFormat, Callable[[Condition | None], Records]]] = {
    "json": JsonDocument,
    "jsonl": JsonLines,
    "csv": Csv,
    "binary": Records,
}


def records(form: ResultFormat | None, error_when: Condition | None) -> Records:
    """Return a reader for a format."""
    return Records() if form is None else _READERS[form](error_when)
