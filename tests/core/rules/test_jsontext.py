from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.jsontext import JsonError, dumps, dumps_inert, loads
from opledger.rules.plain import MARKS, inert

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


@given(VALUES)
def test_what_we_write_we_read(value: Any) -> None:
    """A stored answer must mean the same when it is read again."""
    assert loads(dumps(value)) == value


@given(st.one_of(st.binary(max_size=60), st.text(st.characters(codec=None), max_size=60)))
def test_no_bytes_bring_another_error(data: bytes | str) -> None:
    """A provider can send anything; the reader knows one way to say no."""
    try:
        loads(data)
    except JsonError:
        return


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"[1] [2]", "not JSON"),
        (b"01", "not JSON"),
        (b'"a\nb"', "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'{"a":1'.decode().encode("utf-16"), "not UTF-8"),
        (b"NaN", "NaN is not JSON"),
        (b"[Infinity]", "Infinity is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
        (b"1e999", "too large"),
        (b"[-1e999]", "too large"),
        (b'{"b":1,"a":2,"a":3}', "'a' stands twice"),
        (b'[{"x":{"\\u0061":1,"a":1}}]', "'a' stands twice"),
        (b'"\\ud800"', "surrogate"),
        (b'"\\uDFFF x"', "surrogate"),
        (b'{"\\udc00":1}', "surrogate"),
        ('"\ud800"', "surrogate"),
    ],
)
def test_what_is_refused(data: bytes | str, says: str) -> None:
    """Each of these is read differently by different programs, so none of them is evidence."""
    with pytest.raises(JsonError, match=says):
        loads(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"9007199254740993", 9007199254740993),
        (b'{"id":123456789012345678901234567890}', {"id": 123456789012345678901234567890}),
        (b'"\\ud83d\\ude00 \\\\ud800"', "😀 \\ud800"),
        (b"\xef\xbb\xbf[1]", [1]),
        (b' \t\r\n{"a": [true, false, null]} ', {"a": [True, False, None]}),
        (b"[1.5, 1e3, -0.0]", [1.5, 1000.0, 0.0]),
        ("é".join('""'), "é"),
    ],
)
def test_what_is_read(data: bytes | str, value: Any) -> None:
    """Exact integers, joined surrogate pairs and a byte order mark are everyday answers."""
    assert loads(data) == value


@pytest.mark.parametrize(("left", "right"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_depth_is_counted_exactly(left: bytes, right: bytes) -> None:
    """Sixty-four levels are read, one more is not, and brackets inside strings are no levels."""
    times = 64 // (left.count(b"[") + left.count(b"{"))
    fits = left * times + b'"' + b"[{" * 100 + b'\\"[["' + right * times
    loads(fits)
    with pytest.raises(JsonError, match="deeper than 64"):
        loads(b"[" + fits + b"]")
    with pytest.raises(JsonError, match="deeper than 64"):
        loads(left * (times + 1) + b"1" + right * (times + 1))


@pytest.mark.parametrize("data", [b"[" * 1_000_000, b'{"a":' * 300_000, b'"' + b'\\"' * 500_000 + b"[" * 100])
def test_a_bomb_is_refused_and_not_a_crash(data: bytes) -> None:
    """Deep nesting or endless escapes must neither exhaust the stack nor take quadratic time."""
    with pytest.raises(JsonError):
        loads(data)


def test_the_depth_limit_is_the_caller_s() -> None:
    """A contract file may be shallower than an answer."""
    assert loads(b"[[1]]", max_depth=2) == [[1]]
    with pytest.raises(JsonError, match="deeper than 1"):
        loads(b"[[1]]", max_depth=1)


@pytest.mark.parametrize("number", ["9" * 4301, "-" + "9" * 4301, "0." + "1" * 4300, "1e" + "0" * 4300])
def test_endless_numbers_are_refused(number: str) -> None:
    """Reading a number of a million digits takes quadratic time."""
    with pytest.raises(JsonError, match="more than 4300 digits"):
        loads(f"[{number}]")


def test_long_numbers_up_to_the_limit_are_exact() -> None:
    """The limit is on the digits, not on the text around them, and a sign is no digit."""
    assert loads(f"[{'9' * 4300}, {'-' + '9' * 4300}, 1.5]") == [int("9" * 4300), -int("9" * 4300), 1.5]
    assert loads("[12345, 1.25]", max_digits=5) == [12345, 1.25]
    with pytest.raises(JsonError, match="more than 5 digits"):
        loads("[123456]", max_digits=5)


def test_a_number_beyond_the_interpreter_s_limit_is_refused() -> None:
    """A caller who asks for more digits than Python reads gets our error, not Python's."""
    with pytest.raises(JsonError, match="cannot be read"):
        loads("9" * 5000, max_digits=10_000)


def test_written_bytes_do_not_depend_on_the_order_of_keys() -> None:
    """Bytes are hashed; two dictionaries that are equal must give equal bytes."""
    assert dumps({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'.encode()
    assert dumps({"b": 1, "a": 2}) == dumps({"a": 2, "b": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}, "\ud800", {"\udfff": 1}])
def test_what_cannot_be_written_is_refused(value: Any) -> None:
    """We do not send what we would refuse to read."""
    with pytest.raises(ValueError):
        dumps(value)


def test_inert_json_keeps_the_order_of_keys() -> None:
    """People read the id first."""
    assert dumps_inert({"b": 1, "a": [True]}) == '{"b": 1, "a": [true]}'
    assert dumps_inert({"é\x9b": 1}, indent=1) == '{\n "é\\u009b": 1\n}'


def test_inert_json_escapes_what_acts_or_hides() -> None:
    """A job named by a stranger is printed to a terminal by every list command."""
    shown = dumps_inert({"name": "\x1b[2J\x7f\x9b\u202e\u200b\U000e0041\ud800"})
    assert shown == '{"name": "\\u001b[2J\\u007f\\u009b\\u202e\\u200b\\udb40\\udc41\\ud800"}'


@given(VALUES, st.sampled_from([None, 2]))
def test_inert_json_is_inert_and_still_the_same_value(value: Any, indent: int | None) -> None:
    """A program that reads the output gets what is in the ledger; a terminal gets nothing to obey."""
    shown = dumps_inert(value, indent=indent)
    assert json.loads(shown) == value
    assert all(char == "\n" or inert(char) for char in shown)


def test_inert_json_refuses_nan() -> None:
    """Standard output with --json is exactly one JSON document."""
    with pytest.raises(ValueError):
        dumps_inert([float("nan")])


@pytest.mark.parametrize(
    ("data", "says"), [("NaN", "NaN is not JSON"), ("1e999", "too large"), ('{"a":1,"a":2}', "'a' stands twice")]
)
def test_a_long_text_is_read_no_less_strictly(data: str, says: str) -> None:
    """It is read by another reader, which also counts digits."""
    with pytest.raises(JsonError, match=says):
        loads("[" + " " * 5_000 + data + "]")


def test_a_caller_who_allows_any_depth_still_gets_no_crash() -> None:
    """Where Python's own stack ends, the answer is the same as at a limit of ours."""
    with pytest.raises(JsonError, match="nested too deeply"):
        loads(b"[" * 100_000, max_depth=1_000_000)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\x7f", '"\\u007f"'),
        ("\u0301", '"\\u0301"'),
        ("a\u0301", '"a\u0301"'),
        ("\u0301a", '"\\u0301a"'),
        ("a" + "\u0301" * (MARKS + 2) + "b", '"a' + "\u0301" * MARKS + "\\u0301" * 2 + 'b"'),
        (["\u0301x\u0301", "\u0302"], '["\\u0301x\u0301", "\\u0302"]'),
    ],
)
def test_accents_that_stand_too_high_are_written_out(value: Any, shown: str) -> None:
    """They would cover the lines above; what is written out is read back as it was."""
    assert dumps_inert(value) == shown
    assert loads(shown) == value
