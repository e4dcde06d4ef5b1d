from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.redact import (
    FRAGMENT,
    LONG,
    MASK,
    Redactor,
    mask_header,
    mask_url,
    redact_pointers,
    secret_name,
)

KEY = "sk-live-4eC39HqLyjWDarjtT1zdp7dc"
AWKWARD = "p/ä\"s&s <w>\\+r=d%~'x"

ENCODERS: dict[str, Callable[[str], str]] = {
    "raw": lambda secret: secret,
    "json": lambda secret: json.dumps(secret)[1:-1],
    "json, capital hex": lambda secret: json.dumps(secret)[1:-1].replace("\\u00e4", "\\u00E4"),
    "json, utf-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "json, slashes escaped": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "url": lambda secret: quote(secret, safe=""),
    "url path": quote,
    "url form": quote_plus,
    "url, as browsers do": lambda secret: quote(secret, safe="!*'()~"),
    "url, small hex": lambda secret: re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
    "url, every byte": lambda secret: "".join(f"%{byte:02X}" for byte in secret.encode()),
    "url, every byte, small hex": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "html": html.escape,
    "html, decimal": lambda secret: html.escape(secret).replace("&#x27;", "&#39;"),
    "python": lambda secret: repr(secret)[1:-1],
    "hex": lambda secret: secret.encode().hex(),
    "capital hex": lambda secret: secret.encode().hex().upper(),
}

SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=24).filter(
    lambda secret: len(secret.encode()) >= 4
)
TEXT = st.text(max_size=40)


# --- known values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("secret", [KEY, AWKWARD])
def test_a_secret_is_found_in_every_form(name: str, secret: str) -> None:
    """A provider echoes credentials in its own encoding: error pages, JSON, debug dumps (I24)."""
    form = ENCODERS[name](secret)
    redactor = Redactor([secret])
    assert redactor.mask_text(f'{{"error": "bad key {form}!"}}') == f'{{"error": "bad key {MASK}!"}}'
    assert redactor.mask_bytes(f"bad key {form}!".encode()) == f"bad key {MASK}!".encode()


@given(st.binary(max_size=7), st.binary(min_size=6, max_size=24), st.binary(max_size=7), st.booleans())
def test_a_secret_is_found_inside_base64(before: bytes, secret: bytes, after: bytes, urlsafe: bool) -> None:
    """Basic authentication puts it behind a user name of any length: three alignments, two alphabets."""
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    whole = encode(before + secret + after).decode()
    start, end = -(-len(before) * 8 // 6), (len(before) + len(secret)) * 8 // 6
    assert whole[start:end] not in Redactor([secret]).mask_text(f"Basic {whole}")
    assert whole[start:end].encode() not in Redactor([secret]).mask_bytes(f"Basic {whole}".encode())


@pytest.mark.parametrize("after", ["", "x", "xx"])
@pytest.mark.parametrize("before", ["", "u", "u:", "us:", "use:"])
def test_all_that_a_secret_decides_in_base64_is_masked(before: str, after: str) -> None:
    """And nothing more: each character that is left is one of a neighbour's."""
    whole = base64.b64encode(f"{before}{KEY}{after}".encode()).decode()
    start, end = -(-len(before) * 8 // 6), (len(before) + len(KEY)) * 8 // 6
    assert Redactor([KEY]).mask_text(f"Basic {whole}") == f"Basic {whole[:start]}{MASK}{whole[end:]}"


@given(st.lists(SECRETS, min_size=1, max_size=3), TEXT, TEXT, st.sampled_from(sorted(ENCODERS)))
def test_masking_twice_changes_nothing_more(secrets: list[str], before: str, after: str, name: str) -> None:
    """An answer passes several sinks, each of which masks; and no secret may be left after the first."""
    redactor = Redactor(secrets)
    text = before + "".join(ENCODERS[name](secret) for secret in secrets) + after
    once = redactor.mask_text(text)
    assert redactor.mask_text(once) == once
    data = redactor.mask_bytes(text.encode("utf-8", "surrogatepass"))
    assert redactor.mask_bytes(data) == data
    for secret in secrets:
        assert secret not in once
        assert secret.encode() not in data


@given(st.text("a*=", min_size=4, max_size=8), st.text("a*?sig=", max_size=30))
def test_a_mask_never_makes_a_secret(secret: str, text: str) -> None:
    """The mask joins what stood around a secret; a secret that looks like the mask must not come out of that."""
    redactor = Redactor([secret])
    assert secret not in redactor.mask_text(text)
    assert secret.encode() not in redactor.mask_bytes(text.encode())


def test_overlapping_secrets_leave_no_rest() -> None:
    """Masking one first would leave the tail of the other."""
    assert Redactor(["alpha-beta", "beta-gamma"]).mask_text("x alpha-beta-gamma y") == f"x {MASK} y"
    assert Redactor(["abab"]).mask_text("-ababab-") == f"-{MASK}-"
    assert Redactor(["aaaa"]).mask_text("-aaaaa-") == f"-{MASK}-"


def test_what_stands_between_secrets_stays() -> None:
    """Each is masked where it stands; two that touch are one mask, which doesn't say how many there were."""
    redactor = Redactor([KEY, "alpha-beta"])
    assert redactor.mask_text(f"{KEY} a {KEY} b alpha-beta c {KEY}") == "*** a *** b *** c ***"
    assert redactor.mask_text(f"x{KEY}{KEY}alpha-betay") == "x***y"


def test_known_secrets_can_be_hidden_alone() -> None:
    """Whoever follows a URL of an answer needs all that we cannot know to be a secret."""
    redactor = Redactor([KEY])
    assert redactor.hide_text(f"https://h/?sig=1&x={KEY}") == "https://h/?sig=1&x=***"
    assert redactor.hide_bytes(f"https://h/?sig=1&x={KEY}".encode()) == b"https://h/?sig=1&x=***"


def test_a_piece_of_a_random_secret_is_found() -> None:
    """Some providers answer "invalid key sk-…7dc", and a text may have been cut through the secret."""
    redactor = Redactor([KEY, "9f86d081884c7d659a2feaa0c55ad015"])
    assert redactor.mask_text("Incorrect key: 4eC39HqLyjWD…") == f"Incorrect key: {MASK}…"
    assert redactor.mask_text("tail WDarjtT1zdp7dc") == f"tail {MASK}"
    assert redactor.mask_text("hex 884c7d65") == f"hex {MASK}"
    assert redactor.mask_text("short 4eC39Hq") == "short 4eC39Hq"
    assert Redactor(["abcdef12-abcdef12"]).mask_text("hex abcdef12") == f"hex {MASK}"


def test_a_piece_that_is_a_word_stays() -> None:
    """Masking "password" or "reports-" wherever it stands would make every record unreadable."""
    redactor = Redactor(
        [
            "reports-password-of-2026",
            "sk-live-password-staging",
            "deadbeefdeadbeef",
            "1234567890123456",
            "OUR-REPORTS-OF-2026",
            "The-Password-For-Staging",
        ]
    )
    text = (
        'reports-1 {"password": null} sk-live-x of-2026 deadbeef 12345678 password-of-2026 REPORTS-OF-2026 The-Password'
    )
    assert redactor.mask_text(text) == text


def test_every_piece_of_a_secret_that_is_not_long_is_found() -> None:
    """Up to `LONG` characters: from the first to the last, and none that is shorter than a piece."""
    secret = "".join(f"aB{number:02}" for number in range(32))
    for whole in (secret, secret[:20]):
        redactor = Redactor([whole])
        starts = range(len(whole) - FRAGMENT + 1)
        assert [redactor.mask_text(whole[at : at + FRAGMENT]) for at in starts] == [MASK] * len(starts)
        assert redactor.mask_text(whole[-FRAGMENT + 1 :]) == whole[-FRAGMENT + 1 :]
    assert len(secret) == LONG
    assert Redactor([secret + "x"]).mask_text(secret[3 : 3 + FRAGMENT]) == secret[3 : 3 + FRAGMENT]


def test_the_pieces_of_a_long_secret_are_few() -> None:
    """A key file of two thousand characters must not slow every poll down; long pieces are found all the same."""
    secret = "".join(f"{n:02x}Zy" for n in range(256)) * 2
    redactor = Redactor([secret])
    assert redactor.mask_text(secret[37:60]) != secret[37:60]
    assert len(redactor._texts) < len(secret) // FRAGMENT + 30


def test_a_long_secret_that_was_cut_is_found() -> None:
    """An event's name, for one, is cut before anybody masks it: no stretch between two pieces may be left to read."""
    secret = (
        "eyJhbGciOiJIUzI1NiJ9."
        + "MLpjN_E8A4rknOh7kgQvmUZKYiCy6AbaCQYAhIcXhsCAIdB89Sr6wnyclVKmtexpDSA3lxl7kettuA1fToZ" * 3
    )
    redactor = Redactor([secret])
    for start in range(len(secret) - 60):
        left = redactor.mask_text(secret[start : start + 60])
        assert max(map(len, left.split(MASK))) < 24


def test_what_is_too_short_is_no_secret() -> None:
    """A secret of one letter would blot out every text."""
    redactor = Redactor(["", "abc", b"\x00\x01"])
    assert redactor.mask_text("abc") == "abc"
    assert redactor.mask_bytes(b"abc\x00\x01") == b"abc\x00\x01"
    assert Redactor(["éé"]).mask_text("éé") == "éé"


def test_one_secret_hides_no_other() -> None:
    """Behind one that is too short, or no text, there may be one that is known."""
    for first in ("abc", b"\xff\xfe\x00\x80key", "key\udcff"):
        assert Redactor([first, KEY]).mask_text(f"a {KEY}") == f"a {MASK}"
    half = "key\udcff"  # as bytes that are no UTF-8 come out of the environment
    assert Redactor([half]).mask_bytes(b"a " + half.encode("utf-8", "surrogatepass")) == b"a ***"


def test_a_binary_secret_is_masked_where_it_can_stand() -> None:
    """A signing key need not be text."""
    redactor = Redactor([b"\xff\xfe\x00\x80key"])
    assert redactor.mask_bytes(b"a\xff\xfe\x00\x80keyb") == b"a***b"
    assert redactor.mask_text("a " + b"\xff\xfe\x00\x80key".hex()) == "a ***"


@given(st.binary(max_size=60))
def test_bytes_without_secrets_stay_as_they_are(data: bytes) -> None:
    """Answers need not be text, and evidence is kept byte for byte."""
    assert Redactor([]).mask_bytes(data) == data or b"***" in Redactor([]).mask_bytes(data)
    assert Redactor([KEY]).mask_bytes(b"\xff\x00" + data.replace(b"=", b"").replace(b"@", b""))[:2] == b"\xff\x00"


def test_a_redactor_does_not_show_its_secrets() -> None:
    """A traceback prints it."""
    assert re.fullmatch(r"Redactor\(\d+ forms\)", repr(Redactor([KEY])))


# --- told by name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://api.example.com/v1/jobs/1?state=done", "https://api.example.com/v1/jobs/1?state=done"),
        ("https://user:pa@ss@api.example.com/x@y", "https://***@api.example.com/x@y"),
        ("https://user@h", "https://***@h"),
        ("//user:pass@h/x", "//***@h/x"),
        ("https://h?at=a@b", "https://h?at=a@b"),
        (
            "https://b/k?X-Amz-Date=20261129T1Z&X-Amz-Expires=3600&X-Amz-Signature=ab%2Fc&X-Amz-Security-Token=zz",
            "https://b/k?X-Amz-Date=20261129T1Z&X-Amz-Expires=3600&X-Amz-Signature=***&X-Amz-Security-Token=***",
        ),
        ("https://b/k?Expires=1&X-Goog-Signature=1f", "https://b/k?Expires=1&X-Goog-Signature=***"),
        ("https://h/?sv=2&se=2026&sig=a%3D", "https://h/?sv=2&se=2026&sig=***"),
        ("https://h/?API_KEY=1;token=2#access_token=3", "https://h/?API_KEY=***;token=***#access_token=***"),
        ("https://h/?key=a=b&x=1", "https://h/?key=***&x=1"),
        ("https://h/?to%6ben=1", "https://h/?to%6ben=***"),
        ("https://h/?token=", "https://h/?token="),
        (
            "https://h/?page_token=1&sort_key=2&idempotency_key=3",
            "https://h/?page_token=1&sort_key=2&idempotency_key=3",
        ),
        (
            '{"u":"https:\\/\\/u:p@h\\/?a=1\\u0026sig=x\\/y","n":1}',
            '{"u":"https:\\/\\/***@h\\/?a=1\\u0026sig=***","n":1}',
        ),
        ("?a\\u003d1\\u0026sig\\u003dxyz", "?a\\u003d1\\u0026sig\\u003d***"),
        ('<a href="https://h/?a=1&amp;sig=x">', '<a href="https://h/?a=1&amp;sig=***">'),
        ("see https://u:p@h/?sig=1 and https://h/?x=1", "see https://***@h/?sig=*** and https://h/?x=1"),
        ("key=value", "key=value"),
        ("", ""),
    ],
)
def test_urls(url: str, masked: str) -> None:
    """A signed URL is a credential for as long as it lives; what only describes it helps support (§9)."""
    assert mask_url(url) == masked
    assert Redactor([]).mask_text(url) == masked
    assert Redactor([]).mask_bytes(url.encode()) == masked.encode()


@given(st.text(st.sampled_from("ab:/\\?&;#=@ '\"%*.sigtokenu0263d"), max_size=60))
def test_masking_a_url_twice_changes_nothing_more(text: str) -> None:
    """Any text may come here, and comes here more than once."""
    once = mask_url(text)
    assert mask_url(once) == once


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("X-Amz-Signature", True),
        ("client_secret", True),
        ("apiKey", True),
        ("Ocp-Apim-Subscription-Key", True),
        ("X-Shopify-Access-Token", True),
        ("password", True),
        ("Idempotency-Key", False),
        ("next_page_token", False),
        ("ClientRequestToken", False),
        ("X-Amz-Expires", False),
        ("", False),
    ],
)
def test_names_of_credentials(name: str, secret: bool) -> None:
    """Page tokens and idempotency keys are what support asks for; they open nothing."""
    assert secret_name(name) is secret


def test_every_name_that_is_known_for_credentials() -> None:
    """In whatever way it is written; some count alone only, some at the end of a longer name too."""
    alone = (
        "access_key Access-Key-ID auth AUTHORIZATION AWSAccessKeyId bearer credentials hmac id_token jwt key passwd pwd"
    )
    alone += " refresh_token sas sig token"
    ends = "access_token api-key auth_key AuthToken credential csrf-token functions-key password private-token secret"
    ends += " security-token sessionToken signature subscription-key user_token vault-token xsrf-token"
    assert [name for name in alone.split() if not secret_name(name) or secret_name(f"my_{name}_x")] == []
    assert [name for name in ends.split() if not secret_name(name) or not secret_name(f"x-my-{name}")] == []


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("Authentication-Info", "nextnonce=x", MASK),
        ("Proxy-Authentication-Info", "nextnonce=x", MASK),
        ("set_cookie", "a=b", MASK),
        ("Authorization", "Bearer x", MASK),
        ("proxy-authorization", "Basic x", MASK),
        ("Cookie", "a=b", MASK),
        ("set-cookie", "a=b; Secure", MASK),
        ("X-API-Key", "x", MASK),
        ("location", "https://u:p@h/?sig=1", "https://***@h/?sig=***"),
        ("retry-after", "20", "20"),
        ("idempotency-key", "idem_x", "idem_x"),
        ("x-request-id", "req_1", "req_1"),
    ],
)
def test_headers(name: str, value: str, masked: str) -> None:
    """Names stay, so that it can be seen what was sent."""
    assert mask_header(name, value) == masked


def test_a_known_secret_is_masked_in_any_header() -> None:
    """A contract may put a credential into a header of any name."""
    headers = {"x-account": f"acct {KEY}", "authorization": f"Bearer {KEY}", "date": "today"}
    assert Redactor([KEY]).mask_headers(headers) == {"x-account": "acct ***", "authorization": MASK, "date": "today"}


# --- told by the contract ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "pointers", "redacted"),
    [
        ({"a": 1, "b": 2}, ["/a"], {"a": "[redacted]", "b": 2}),
        ({"patient": {"name": "x", "id": 1}}, ["/patient/name"], {"patient": {"name": "[redacted]", "id": 1}}),
        ({"a": [{"b": 1}, {"b": 2}]}, ["/a/1/b"], {"a": [{"b": 1}, {"b": "[redacted]"}]}),
        ({"a/b": {"m~n": 1}}, ["/a~1b/m~0n"], {"a/b": {"m~n": "[redacted]"}}),
        ([1, 2, 3, 4], ["/0", "/2"], ["[redacted]", 2, "[redacted]", 4]),
        ({"": {"": 1}}, ["//"], {"": {"": "[redacted]"}}),
        ({"a": None}, ["/a"], {"a": "[redacted]"}),
        ({"a": 1}, [""], "[redacted]"),
        ({"a": 1}, ["/b", "/a/x", "/a/0"], {"a": 1}),
        ([1], ["/1", "/-", "/01", "/x", "/99999999999999999999"], [1]),
        ("text", ["/0"], "text"),
        ({"a": {"b": 1}}, ["/a", "/a/b"], {"a": "[redacted]"}),
        ({"a": 1}, [], {"a": 1}),
    ],
)
def test_places_named_by_the_contract(document: Any, pointers: list[str], redacted: Any) -> None:
    """Only the contract knows which fields are about people."""
    before = json.dumps(document)
    assert redact_pointers(document, pointers) == redacted
    assert redact_pointers(redacted, pointers) == redacted
    assert json.dumps(document) == before


def test_a_header_is_no_place_in_a_document() -> None:
    """A pick of a header must not blot out the whole document by accident."""
    with pytest.raises(ValueError, match="pointer"):
        redact_pointers({"a": 1}, ["header:x"])
    with pytest.raises(ValueError):
        redact_pointers({"a": 1}, ["a"])
