from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import notes
from opledger.rules.notes import Note, NoteInvalid, read, read_verifier_key, sign_off, verifier_key

ORIGIN = "opledger/ldg_01JC0000000000000000000000"
NOTE = Note(
    origin=ORIGIN,
    size=1042,
    root=bytes(range(32)),
    number=17,
    at=datetime(2026, 5, 4, 10, 11, 12, 345, tzinfo=UTC),
    operations=1000,
    events=20180,
    epoch=12,
    previous=b"\xab" * 32,
)
WHOLE = sign_off(NOTE.text(), ORIGIN, b"\1\2\3\4", bytes(64))


def test_what_a_note_looks_like() -> None:
    """It is read by other programs and by people: every byte is laid down."""
    expected = (
        "opledger/ldg_01JC0000000000000000000000\n"
        "1042\n"
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
        "number 17\n"
        "at 2026-05-04T10:11:12.000345Z\n"
        "operations 1000\n"
        "events 20180\n"
        "epoch 12\n"
        f"previous {'ab' * 32}\n"
        "\n"
        f"— {ORIGIN} AQIDBA{'A' * 85}=\n"
    )
    assert expected == WHOLE


@pytest.mark.parametrize("acknowledged", [None, b"\xcd" * 32])
def test_a_note_is_read_as_it_was_written(acknowledged: bytes | None) -> None:
    """With all that it says, and the text that was signed."""
    note = replace(NOTE, acknowledged=acknowledged)
    signed = read(sign_off(note.text(), ORIGIN, b"abcd", b"s" * 64))
    assert (signed.note, signed.text, signed.key_id, signed.signature) == (note, note.text(), b"abcd", b"s" * 64)
    assert signed.hash == notes.hash_of(signed.whole)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1042", "01042"),
        ("1042", "-1"),
        ("1042", "\N{ARABIC-INDIC DIGIT ONE}"),
        ("1042\n", ""),
        ("number 17", "number 017"),
        ("number 17", "number  17"),
        ("number 17\n", ""),
        ("number 17\n", "number 17\nnumber 17\n"),
        ("operations 1000\nevents 20180", "events 20180\noperations 1000"),
        ("epoch 12\n", "epoch 12\nmore 1\n"),
        ("10:11:12.000345Z", "10:11:12Z"),
        ("10:11:12.000345Z", "25:11:12.000345Z"),
        ("10:11:12.000345Z", "10:11:12.000345+00:00"),
        ("previous ab", "previous AB"),
        ("previous ab", "previous a"),
        ("AAECAwQF", "AAEC"),
        ("AAECAwQF", "AA*CAwQF"),
        ("HB0eHx8=", "HB0eHx8"),
        ("Hh8=", "Hh9="),  # the last bits of base64 mean nothing, and are zero
        ("opledger/ldg_01JC", "opledger/ldg_01IL"),
        ("opledger/", "other/"),
        ("\n\n", "\n"),
        ("\n", "\r\n"),
        ("— ", "- "),
        ("— opledger/ldg_01JC", "— opledger/ldg_02JC"),
        ("AQIDBA", "AQIDBAAA"),
        ("AQIDBA", "*QIDBA"),
        ("AAA=\n", "AAA=\n\n"),
        ("AAA=\n", "AAA="),
        ("AAA=\n", "AAB=\n"),
        ("number 17\n", "number 17 \n"),
        ("acknowledged", "acknowledged"),
    ],
)
def test_what_is_no_note(before: str, after: str) -> None:
    """Whatever differs by a byte is another text: two spellings of one note would have two hashes."""
    changed = WHOLE.replace(before, after)
    if changed == WHOLE:
        changed = WHOLE.replace(f"{'ab' * 32}\n", f"{'ab' * 32}\nacknowledged xy\n")
    with pytest.raises(NoteInvalid):
        read(changed)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("\n\n", "\n", "no blank line before its signature"),
        (NOTE.text().split("\n", 2)[2], "", "ends before its root"),
        (NOTE.text().split("\n", 3)[3], "", "other lines than an opledger checkpoint"),
        ("1042", "01042", "the size of the note is no number"),
        ("number 17", "number x", "the number of the note is no number"),
        ("operations 1000", "operations x", "the operations of the note is no number"),
        ("events 20180", "events x", "the events of the note is no number"),
        ("epoch 12", "epoch x", "the epoch of the note is no number"),
        ("previous ab", "previous x", "^previous in the note is no hash"),
        (f"{'ab' * 32}\n", f"{'ab' * 32}\nacknowledged xy\n", "^acknowledged in the note is no hash"),
        ("12.000345Z", "12.345Z", "the time in the note is no time"),
        ("AAECAwQF", "AA*ECAwQF", "base64 in it that cannot be read"),
        ("AAECAwQF", "AAEC", "the root of the note is no hash"),
        ("— ", "- ", "no signature of its own ledger"),
        ("AAA=\n", "AAA=", "no signature of its own ledger"),
        ("AQIDBA", "AQIDBAAAAA", "not the length of one"),
        ("AAA=\n", "AAB=\n", "not written as opledger writes it"),
    ],
)
def test_it_says_what_is_wrong_with_a_note(before: str, after: str, why: str) -> None:
    """Somebody has to find out how it came to that."""
    assert WHOLE.count(before) == 1
    with pytest.raises(NoteInvalid, match=why):
        read(WHOLE.replace(before, after))


def test_a_note_that_never_ends_is_not_read() -> None:
    """An anchor is a file that anybody may have written to."""
    with pytest.raises(NoteInvalid, match="longer than 8192 characters"):
        read(WHOLE.ljust(8193, "x"))
    with pytest.raises(NoteInvalid, match="own ledger"):
        read(WHOLE.ljust(8192, "x"))


def test_a_text_that_is_no_utf_8_has_a_hash_too() -> None:
    """It was found where a note should be."""
    assert notes.hash_of("\ud800") not in (notes.hash_of("\ud801"), notes.hash_of(""))


@given(st.data())
def test_any_change_of_a_note_is_seen_or_is_another_note(data: st.DataObject) -> None:
    """Nothing in a note is outside of what its hash covers, and nothing is read that would be written otherwise."""
    at = data.draw(st.integers(0, len(WHOLE) - 1))
    changed = WHOLE[:at] + data.draw(st.characters()) + WHOLE[at + data.draw(st.integers(0, 1)) :]
    try:
        signed = read(changed)
    except NoteInvalid:
        return
    assert sign_off(signed.note.text(), signed.note.origin, signed.key_id, signed.signature) == changed
    assert changed == WHOLE or signed.hash != read(WHOLE).hash


def test_a_key_as_others_are_given_it() -> None:
    """The form of C2SP signed notes: Go's sumdb/note reads it."""
    public = bytes(range(32))
    text = verifier_key(ORIGIN, public)
    name, key_id, key = text.split("+", 2)
    assert (name, len(key_id), key[:2]) == (ORIGIN, 8, "AQ")
    assert read_verifier_key(text) == (ORIGIN, public)


def test_a_known_key_has_its_known_id() -> None:
    """The example of golang.org/x/mod/sumdb/note."""
    name, public = read_verifier_key("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    assert name == "PeterNeumann"
    assert notes.key_id(name, public).hex() == "c74f20a3"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a+b",
        "a+00000000+AQ==",
        "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        verifier_key("PeterNeumann", bytes(31)),
        "\ud800+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    ],
)
def test_what_is_no_key(text: str) -> None:
    """A key that was copied wrongly must not read as one that no note is signed with."""
    with pytest.raises(NoteInvalid):
        read_verifier_key(text)
