from __future__ import annotations

import csv
import io
import itertools
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opledger.rules import jsontext
from opledger.rules import records as module
from opledger.rules.contract import ResultFormat
from opledger.rules.looks import ErrorRows, Look
from opledger.rules.records import Records, records
from opledger.rules.values import Condition

FORMATS: list[ResultFormat | None] = ["json", "jsonl", "csv", "binary", None]
ODD = st.text(st.sampled_from(list('ab,;"\n\r\t|{}[]1 \\eé\ufeff')), max_size=60).map(str.encode)


def read(form: ResultFormat | None, data: bytes, cuts: list[int] | None = None, row: str | None = None) -> Records:
    """Feed data cut at the given places, and look for rows that carry an error."""
    looks = () if row is None else (ErrorRows(Condition.parse(row, frozenset({"row"}))),)
    reader = records(form, looks)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    for begin, end in itertools.pairwise(places):
        reader.feed(data[begin:end])
    reader.finish()
    for look in looks:
        reader.broken = reader.broken or next(iter(look.problems), None)
        reader.notes += look.notes
    return reader


def seen(reader: Records) -> tuple[str | None, int | None, list[str]]:
    """All that a reader tells."""
    return reader.broken, reader.count, reader.notes


@given(
    st.sampled_from(FORMATS),
    ODD | st.binary(max_size=60),
    st.lists(st.integers(0, 100), max_size=6),
    st.sampled_from([None, 'row.a == "b"', "row.b == 1"]),
)
def test_the_cuts_between_chunks_mean_nothing(
    form: ResultFormat | None, data: bytes, cuts: list[int], row: str | None
) -> None:
    """The network cuts where it likes; the same bytes must always be judged in the same way."""
    whole = read(form, data, row=row)
    assert seen(read(form, data, cuts, row)) == seen(whole)
    assert seen(read(form, data, list(range(len(data))), row)) == seen(whole)


@given(st.text(st.sampled_from(list('ab,"\n\r x')), max_size=40))
def test_csv_rows_are_those_of_the_csv_module(text: str) -> None:
    """People will open the file with such a reader and compare our count."""
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=",") if row]
    reader = records("csv")
    reader.feed(text.encode())
    reader.finish()
    if reader.broken is None:  # the csv module is silent about a quote that is never closed
        assert reader.count == max(len(rows) - 1, 0)


@given(st.lists(st.lists(st.text(st.sampled_from(list('ab,"\n\r é')), max_size=6), min_size=2, max_size=2), min_size=1))
def test_a_csv_that_was_written_properly_has_no_problems(rows: list[list[str]]) -> None:
    """A false alarm on a good file would send a person after nothing."""
    assume(rows[0][0] != rows[0][1] or not rows[0][0])
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    assert seen(read("csv", out.getvalue().encode(), row='row.zz == "never"')) in (
        (None, len(rows) - 1, []),
        (None, len(rows) - 1, ['record 1 (and maybe others) could not be tried against row.zz == "never"']),
    )


@pytest.mark.parametrize(
    ("data", "count", "says"),
    [
        (b"a,b\n1,2\n", 1, None),
        (b"a,b\r\n1,2\r\n3,4", 2, None),
        (b"a,b\r1,2\r3,4\r", 2, None),
        (b'a,b\n"x\n""y"",\n\nz",2\n\n', 1, None),
        (b'a;b\n"x;\ny";2\n', 1, None),
        (b'\xef\xbb\xbf"a";b\n1;2\n', 1, None),
        (b"", 0, None),
        (b'a,b\n1,"2\n3,4\n', 0, "ends inside of a quoted field"),
    ],
)
def test_csv_rows_are_counted(data: bytes, count: int, says: str | None) -> None:
    """The header is no record, a quoted line break ends none, and a cut inside of quotes is seen."""
    reader = read("csv", data)
    assert reader.count == count
    assert (reader.broken or "") == "" if says is None else says in (reader.broken or "")


def test_a_csv_that_looks_odd_is_noted() -> None:
    """Latin-1 exports and ragged rows are common, so they are remarks and no verdicts."""
    assert read("csv", b"a,b\n1\n2\ncaf\xe9,1\n").notes == [
        "row 1 has 1 fields, but the first row has 2",
        "the CSV is not UTF-8",
    ]


@pytest.mark.parametrize(
    ("data", "count", "says"),
    [
        (b'{"a":1}\n{"a":2}\n', 2, None),
        (b'\xef\xbb\xbf{"a":1}\r\n\r\n{"a":2}', 2, None),
        (b'{"a":1}\n{"a":', 2, "line 2: this is not JSON"),
        (b'{"a":1}\n{"a":1,"a":2}\n', 2, "line 2: the key 'a' stands twice"),
        (b'{"a":NaN}\n', 1, "line 1: NaN is not JSON"),
        (b"", 0, None),
    ],
)
def test_json_lines_are_read_one_by_one(data: bytes, count: int, says: str | None) -> None:
    """Each line is an answer of its own, and the first bad one is named."""
    reader = read("jsonl", data)
    assert reader.count == count
    assert reader.broken is None if says is None else says in (reader.broken or "")


@pytest.mark.parametrize(
    ("data", "count", "says"),
    [
        (b"[1, 2, 3]", 3, None),
        (b'{"rows": [1]}', None, None),
        (b"", None, "not JSON"),
        (b"<html>", None, "not JSON"),
        (b"[" * 100 + b"]" * 100, None, "deeper than 64"),
        (b'["\xff"]', None, "not UTF-8"),
    ],
)
def test_a_json_document_is_read_whole(data: bytes, count: int | None, says: str | None) -> None:
    """The items of a list are its records."""
    reader = read("json", data)
    assert reader.count == count
    assert reader.broken is None if says is None else says in (reader.broken or "")


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_a_record_that_carries_an_error_is_found(form: ResultFormat) -> None:
    """A valid file can say in its third row that the work went wrong."""
    rows = [{"id": "1", "error": ""}, {"id": "2", "error": 'boom, "bad"'}]
    if form == "csv":
        out = io.StringIO(newline="")
        csv.writer(out).writerows([["id", "error"], *[list(row.values()) for row in rows]])
        data = out.getvalue().encode()
    elif form == "json":
        data = json.dumps(rows).encode()
    else:
        data = "\n".join(map(json.dumps, rows)).encode()
    reader = read(form, data, row='row.error != ""')
    assert reader.broken == 'record 2 carries an error: row.error != ""'
    assert read(form, data, row='row.error == "never"').broken is None


def test_a_row_is_judged_as_it_is_written() -> None:
    """Line breaks inside of a quoted cell belong to the cell."""
    assert read("csv", b'a,b\n1,"x\n\ny"\n', row='row.b == "x\\n\\ny"').broken is not None


def test_a_condition_that_cannot_be_tried_is_noted_once() -> None:
    """A column that is not there must not fill the record with a million remarks."""
    reader = read("jsonl", b'{"a":1}\n' * 5, row='row.error != ""')
    assert reader.broken is None
    assert len(reader.notes) == 1
    assert "record 1" in reader.notes[0]


def test_what_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of gigabytes on one line must not come to lie in memory."""
    monkeypatch.setattr(module, "MAX_LINE", 20)
    monkeypatch.setattr(module, "MAX_JSON", 20)
    for form in FORMATS:
        reader = records(form, (ErrorRows(Condition.parse("row == 1", frozenset({"row"}))),))
        for _ in range(100):
            reader.feed(b'"' + b"x" * 50)
            assert sum(map(len, getattr(reader, "_pieces", []))) <= 20
            assert len(getattr(reader, "_data", b"")) <= 20
        reader.finish()
    assert seen(read("jsonl", b"1\n" + b"2" * 21 + b"\n3\n")) == (
        None, 3, ["line 2 is longer than 20 bytes and was not looked into"],
    )  # fmt: skip
    assert seen(read("csv", b"a\n" + b"2" * 21 + b"\n3\n"))[1:] == (
        None, ["line 2 is longer than 20 bytes; the rows were not counted"],
    )  # fmt: skip
    assert seen(read("json", b"1" * 21)) == (
        None,
        None,
        ["the JSON is larger than 20 bytes or 400000 values and was not looked into"],
    )
    quoted = read("csv", b'a\n"' + b"xxxxxxxx\n" * 9 + b'"\n', row='row.a == "never"')
    assert seen(quoted) == (None, 1, ["row 1 has more in it than is looked into"])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a,b\n1,2\n3", "the last row is cut: it has 1 of 2 fields and no end of line"),
        (b"a,b\r1,2\r3", "the last row is cut: it has 1 of 2 fields and no end of line"),
        (b"a,b\n1,2\n3,4", None),
        (b"a,b\n1,2\n3\n", None),
        (b"a,b\r1,2\r3\r", None),
        (b"a,b\n1\n3,4", None),
        (b"a,b\n1,2\n3,4,5", None),
    ],
)
def test_a_last_row_that_is_cut_is_found(data: bytes, says: str | None) -> None:
    """A file that ends in the middle of a row came in half, whatever the status code said."""
    for cuts in ([], list(range(len(data)))):
        assert read("csv", data, cuts).broken == says


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\\\[]{},\n é😀'), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


class Kept(Look):
    """Keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[object] = []

    def row(self, row: object, number: int) -> None:
        """Keep one."""
        assert number == len(self.rows) + 1
        self.rows.append(row)


@given(
    st.lists(JSON, max_size=5).map(json.dumps).map(str.encode)
    | st.text(st.sampled_from(list('[]{},:"1 \\\n\ufeff')), max_size=12).map(lambda text: f"[{text}".encode()),
    st.lists(st.integers(0, 100), max_size=8),
    st.booleans(),
)
def test_an_array_that_is_read_item_by_item_is_the_one_that_is_read_whole(
    data: bytes, cuts: list[int], indent: bool
) -> None:
    """The same items, and the same verdict on every text, however it is cut: a large array is no laxer than a small."""
    if indent:
        data = b" \n" + data + b"\t"
    try:
        whole: object = jsontext.loads(data)
    except jsontext.JsonError:
        whole = None
    look = Kept()
    reader = records("json", (look,))
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for begin, end in itertools.pairwise(places):
        reader.feed(data[begin:end])
    reader.finish()
    assert (reader.broken is None) == (whole is not None)
    if whole is not None:
        assert look.rows == whole
        assert reader.count == len(look.rows)


@pytest.mark.parametrize(
    ("head", "twice"),
    [
        (b"id,name,id", "'id'"),
        (b"name,id,name,id", "'id', 'name'"),
        (b"\xef\xbb\xbfid,name,id", "'id'"),
        (b'"id",name,id', "'id'"),
        (b"id,\x1b[31m,id", "'id'"),
        (b"id,\x1b,id,\x1b", "'␛', 'id'"),
    ],
)
def test_columns_of_one_name_are_told_and_never_taken_for_each_other(head: bytes, twice: str) -> None:
    """Which of the two is meant nobody could say: neither is read, and where a row must be read, it is a fault."""
    width = head.count(b",") + 1
    data = head + b"\n" + b",".join(b"%d" % n for n in range(width)) + b"\n"
    said = f"columns stand in the first row more than once: {twice}"
    plain = read("csv", data)
    assert seen(plain) == (None, 1, [said])
    errors = read("csv", data, row='row.id == "0"')
    assert errors.broken is None
    assert (len(errors.notes), "could not be tried" in errors.notes[-1]) == (2, True)
    look = Kept()
    look.needed = True
    needed = records("csv", (look,))
    needed.feed(data)
    needed.finish()
    assert needed.broken == said
    assert look.rows == []


def test_columns_without_a_name_are_nobodys() -> None:
    """Programs that end each line with commas make many of them."""
    reader = read("csv", b"id,,\n1,,\n", row='row.id == "1"')
    assert reader.broken == 'record 1 carries an error: row.id == "1"'
    assert reader.notes == []


def test_a_first_row_that_is_too_much_to_read_breaks_nothing() -> None:
    """Python's csv module gives up on a field of 128 KiB by raising."""
    reader = read("csv", b"x" * 200_000 + b",b\n1,2\n", row='row.b == "2"')
    assert (reader.broken, reader.count) == (None, 1)
    assert reader.notes[0] == "the first row has more in it than is looked into"


def test_an_array_that_nobody_could_read_is_given_up_at_once() -> None:
    """Millions of brackets cost seconds each of a worker's time; it is known after the first ones."""
    reader = records("json", ())
    reader.feed(b"[" * 65)
    assert reader.broken is None
    assert reader._array.broken is None  # type: ignore[attr-defined]
    reader.feed(b"[" * 3_000_000)
    reader.finish()
    assert reader.broken == "the JSON is nested deeper than 64 levels"


def test_an_array_of_any_length_is_read_and_no_more_of_it_kept_than_one_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a gigabyte are arrays, too."""
    monkeypatch.setattr(module, "MAX_JSON", 1000)
    monkeypatch.setattr(module, "MAX_LINE", 100)
    reader = records("json", (Kept(),))
    reader.feed(b"[")
    most = 0
    for _ in range(500):
        for piece in (b'{"a": "' + b"x" * 40, b'[,]"},'):
            reader.feed(piece)
            assert reader._array is not None  # type: ignore[attr-defined]
            most = max(most, reader._array.waiting + len(reader._data))  # type: ignore[attr-defined]
    reader.feed(b'"' + b"y" * 200 + b'"]')
    reader.finish()
    assert (reader.broken, reader.count) == (None, 501)
    assert reader.notes == ["item 501 is larger than 100 bytes or 400000 values; it was not read"]
    assert 0 < most <= 100
