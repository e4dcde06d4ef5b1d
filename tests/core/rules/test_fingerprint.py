from __future__ import annotations

import hashlib
import json
import re
import struct
import unicodedata
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.fingerprint import canonical, fingerprint, token_for

SAFE = 2**53 - 1
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def values(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON values with the given numbers in them."""
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, TEXT),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
        max_leaves=20,
    )


@given(values(st.one_of(st.integers(-SAFE, SAFE), FLOATS)))
def test_it_is_rfc_8785_where_rfc_8785_speaks(value: Any) -> None:
    """An auditor with any other implementation must get our bytes."""
    assert canonical(value) == rfc8785.dumps(value)


@given(values(st.one_of(st.integers(), FLOATS)))
def test_reading_it_back_gives_the_same_bytes(value: Any) -> None:
    """A request stored as canonical JSON must have the fingerprint of the request it was."""
    assert canonical(json.loads(canonical(value))) == canonical(value)


# Numbers and sort order from RFC 8785, appendix B and section 3.2.3.
@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_floats_as_the_standard_lists_them(bits: str, text: str) -> None:
    """The one part of canonical JSON that is easy to get wrong."""
    assert canonical(struct.unpack(">d", bytes.fromhex(bits))[0]) == text.encode()


def test_keys_are_ordered_by_utf_16_code_units() -> None:
    """The standard's own example: an emoji comes before U+FB33, though its code point is larger."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    order = list(json.loads(canonical(dict.fromkeys(keys, 0))))
    assert order == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (1, 1.0),
        (json.loads("1e0"), json.loads("1.0")),
        (-0.0, 0),
        ((1, 2), [1, 2]),
    ],
)
def test_one_meaning_has_one_text(one: Any, other: Any) -> None:
    """A legal retry must not meet "different input" because a dictionary was built in another order (B48)."""
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": None}, {}),
        (1, True),
        (0, False),
        ("1", 1),
        (2**53, 2**53 + 1),
        (9007199254740993, 9007199254740992.0),
        (unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")),
        ([1, [2]], [[1], 2]),
        ("", None),
    ],
)
def test_two_meanings_have_two_texts(one: Any, other: Any) -> None:
    """Look-alikes are shown to a person; merging them would lose one wish (B48)."""
    assert canonical(one) != canonical(other)


def test_big_integers_keep_their_digits() -> None:
    """The one extension of RFC 8785: an id of nineteen digits is not rounded."""
    assert canonical([2**53 + 1, -(10**30)]) == f"[9007199254740993,-{10**30}]".encode()


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [float("-inf")], {1: 2}, {"a": {None: 1}}, "\ud800", {"\udfff": 1}, b"x", {1, 2}],
)
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    """A fingerprint over something that cannot be sent would stand for nothing."""
    with pytest.raises(ValueError):
        canonical(value)


def test_depth_is_bounded_as_it_is_for_reading() -> None:
    """What we accept to send, we must be able to read back."""
    value: Any = 1
    for _ in range(64):
        value = [value]
    canonical(value)
    with pytest.raises(ValueError, match="deeper than 64"):
        canonical({"a": value})


def test_the_fingerprint_is_over_one_canonical_document() -> None:
    """Anybody with the request can recompute the fingerprint from the documented rule."""
    whole = canonical({"contract": "reports", "method": "POST", "url": "https://x/v1?a=1", "body": {"b": [1, "é"]}})
    made = fingerprint("reports", "POST", "https://x/v1?a=1", canonical({"b": [1.0, "é"]}))
    assert made == "sha256:" + hashlib.sha256(whole).hexdigest()


def test_a_known_fingerprint_stays_what_it_is() -> None:
    """Stored fingerprints are compared before every send: a changed rule would stop every open operation."""
    assert fingerprint("reports", "POST", "https://api.example.com/v1/reports", b'{"account":"acct_218"}') == (
        "sha256:b267cadafc2f30843eebfddf7cde447d3ca03d15f1410c510e42bc98009342d7"
    )


def test_every_part_of_the_wish_counts() -> None:
    """Another provider, method, address or body, or none at all, is another operation."""
    wishes = [
        ("a", "POST", "https://x", b"{}"),
        ("b", "POST", "https://x", b"{}"),
        ("a", "PUT", "https://x", b"{}"),
        ("a", "POST", "https://y", b"{}"),
        ("a", "POST", "https://x", b"[]"),
        ("a", "POST", "https://x", b"null"),
        ("a", "POST", "https://x", None),
    ]
    assert len({fingerprint(*wish) for wish in wishes}) == len(wishes)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(16, 300))
def test_a_token_fits_and_needs_no_escaping(operation_id: str, task: str, max_length: int) -> None:
    """A token travels in headers, queries and bodies, and providers cut or refuse what is too long."""
    operation_id, task = (text.encode("utf-8", "replace").decode() for text in (operation_id, task))
    for token in (
        token_for(operation_id, "sha256:0", max_length=max_length),
        token_for(operation_id, "sha256:0", task=task, step="s", max_length=max_length),
    ):
        assert re.fullmatch(r"idem_[a-z2-7]+", token)
        assert len(token) == min(max_length, 57)


def test_a_known_token_stays_what_it_is() -> None:
    """The provider remembers the token, not the rule: after an upgrade the same step must have the same one."""
    assert token_for("op_1", "sha256:f") == "idem_2mldf4f62xysogxhrmfzqc54q4aocufjy6pk75exkjwn4qckqeea"
    assert (
        token_for("op_1", "sha256:f", task="t", step="s") == "idem_isqc3pe6fuuid2tdug2vbkdyuwrih5npwfbi4vren3fcw6a2ee7a"
    )


def test_a_step_has_one_token_whichever_operation_carries_it() -> None:
    """An agent that lost its memory asks again under a new operation id; the provider must see one wish."""
    assert token_for("op_1", "f", task="t", step="s") == token_for("op_2", "f", task="t", step="s")


def test_different_origins_never_share_a_token() -> None:
    """Parts that join to the same text are still different parts (I2)."""
    tokens = [
        token_for("op_1", "f"),
        token_for("op_2", "f"),
        token_for("op_1", "g"),
        token_for("op_1", "f", task="t", step="s"),
        token_for("op_1", "f", task="ts", step=""),
        token_for("op_1", "f", task="", step="ts"),
        token_for("op_1", "f", task="t", step="z"),
        token_for("op_1", "g", task="t", step="s"),
    ]
    assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize(
    ("task", "step", "max_length", "says"),
    [(None, None, 15, "too short"), ("t", None, 255, "both"), (None, "s", 255, "both")],
)
def test_an_unsafe_token_is_refused(task: str | None, step: str | None, max_length: int, says: str) -> None:
    """A token that two operations could share is worse than none."""
    with pytest.raises(ValueError, match=says):
        token_for("op_1", "f", task=task, step=step, max_length=max_length)
