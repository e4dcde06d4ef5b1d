from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.plain import MARKS, Shapes, clean, inert

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
HOSTILE_TEXT = st.text(
    st.one_of(
        st.characters(categories=["Cc", "Cf", "Cs", "Mn", "Me", "Zl", "Zp", "Co"]),
        st.sampled_from("ab \n\t\x1b\x7f\x9b\u200b\u202e\u2066\ufeff\u3164\ufe0f\U000e0041\ud800\udfff\u0301"),
    ),
    max_size=60,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("op_01J7Q5X4D4PA3DK0F5Q2V8W9AB", "op_01J7Q5X4D4PA3DK0F5Q2V8W9AB"),
        ("", ""),
        ("Zoë 日本語 שלום 👍", "Zoë 日本語 שלום 👍"),
        ("\x1b[2J", "␛[2J"),
        ("\x1b]52;c;cm0gLXJm\x07", "␛]52;c;cm0gLXJm␇"),
        ("a\x00b\x1fc\x7f", "a␀b␟c␡"),
        ("\x9b31m", "\\u009b31m"),
        ("invoice\u202egpj.exe", "invoice\\u202egpj.exe"),
        ("pay\u200bout", "pay\\u200bout"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("a\U000e0041", "a\\U000e0041"),
        ("\ue000\uffff", "\\ue000\\uffff"),
        ("x\ud800y", "x\ufffdy"),
        ("soft\u00adhyphen", "soft\\u00adhyphen"),
        ("hangul\u3164filler", "hangul\\u3164filler"),
        ("vs\ufe0f", "vs\\ufe0f"),
        ("[@click=app.quit]x[/] [/path] \\", "[@click=app.quit]x[/] [/path] \\"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    """Each class of dangerous character has one visible form; everything else, markup included, stays literal."""
    assert clean(text) == shown


def test_four_accents_stand_and_the_rest_is_written_out() -> None:
    """A stack of accents would cover the lines above, and dropping it would hide that it was there."""
    assert clean("e" + "\u0301" * 6 + "x\u0301") == "e" + "\u0301" * MARKS + "\\u0301" * 2 + "x\u0301"


def test_an_accent_on_nothing_is_written_out() -> None:
    """At the start of a text or a line it would sit on whatever the screen shows before it."""
    assert clean("\u0301a\n\u0301", newlines=True) == "\\u0301a\n\\u0301"


def test_line_feeds_stay_only_on_wish() -> None:
    """In one line of a table a line feed forges rows; in a packet it is layout. A carriage return never is."""
    assert clean("a\r\nb") == "a␍␊b"
    assert clean("a\r\nb", newlines=True) == "a␍\nb"


def test_the_cut_says_how_much_is_missing() -> None:
    """A silently cut text reads like a whole one."""
    assert clean("abcdef", limit=6) == "abcdef"
    assert clean("abcdefg", limit=6) == "abcdef…(+1)"
    assert clean("x" * 1_000_000, limit=3) == "xxx…(+999997)"
    assert clean("ab", limit=0) == "…(+2)"


def test_an_escape_is_never_cut_in_half() -> None:
    """Half an escape would show another character than the one that was there."""
    assert clean("ab\u202ecd", limit=4) == "ab…(+3)"
    assert clean("\u202e", limit=5) == "…(+1)"


def test_a_negative_limit_is_refused() -> None:
    """It would cut from the wrong end."""
    with pytest.raises(ValueError, match="makes no sense"):
        clean("a\nb", limit=-1)


def test_every_single_character_comes_out_inert() -> None:
    """No code point of Unicode may slip through: all of them, one by one."""
    for start in range(0, 0x110000, 0x100):
        shown = clean("a".join(map(chr, range(start, start + 0x100))))
        assert all(map(inert, set(shown))), hex(start)


@given(st.one_of(ANY_TEXT, HOSTILE_TEXT), st.booleans(), st.one_of(st.none(), st.integers(0, 80)))
def test_the_result_can_neither_act_nor_hide(text: str, newlines: bool, limit: int | None) -> None:
    """The promise a terminal relies on: no control, format or separator character is left (I27)."""
    shown = clean(text, newlines=newlines, limit=limit)
    categories = {unicodedata.category(char) for char in shown if not (newlines and char == "\n")}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    shown.encode()


@given(st.one_of(ANY_TEXT, HOSTILE_TEXT), st.booleans())
def test_cleaning_twice_changes_nothing_more(text: str, newlines: bool) -> None:
    """Two rooms that both clean must not garble each other's work."""
    once = clean(text, newlines=newlines)
    assert clean(once, newlines=newlines) == once


@given(st.one_of(ANY_TEXT, HOSTILE_TEXT), st.integers(0, 80))
def test_the_cut_keeps_its_bound_and_its_count(text: str, limit: int) -> None:
    """What is shown fits, and shown plus missing is the whole text."""
    whole = clean(text)
    shown = clean(text, limit=limit)
    head, mark, rest = shown.partition("…(+")
    if not mark:
        assert shown == whole
        return
    missing = int(rest.removesuffix(")"))
    assert len(head) <= limit
    assert head == clean(text[: len(text) - missing])


def test_remembered_shapes_are_bounded() -> None:
    """A hostile text with every code point must not stay in memory for ever."""
    shapes = Shapes(lambda char: char)
    for point in range(10_000):
        assert shapes[point] == chr(point)
    assert len(shapes) < 10_000
