from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.contract import Contract, Create, Result
from opledger.rules.results import Checker, Verdict, may_be_empty, read_digest
from opledger.rules.values import Pick, Template

DATA = b"id,name\n1,a\n2,b\n"
SHA256 = hashlib.sha256(DATA)
CONTRACT = Contract(
    name="reports", digest="0", base_url="https://api.example.com", create=Create("POST", Template("/x")), source=""
)


def check(
    data: bytes = DATA, headers: Mapping[str, str] | None = None, document: Any = None, step: int = 5, **rules: Any
) -> Verdict:
    """Check data against rules; the texts among them are picks."""
    picked: dict[str, Any] = {
        key: Pick.parse(value) if key in ("size", "checksum", "count") else value for key, value in rules.items()
    }
    checker = Checker(replace(CONTRACT, result=Result(**picked)), document, headers or {})
    for at in range(0, len(data), step):
        checker.feed(data[at : at + step])
    return checker.finish()


def b64(digest: Any) -> str:
    """A digest as most headers write it."""
    return base64.b64encode(digest.digest()).decode()


def test_a_good_result_has_no_problems() -> None:
    """Everything that the contract names fits, and what was found is told."""
    headers = {"content-type": "Text/CSV; charset=utf-8", "x-checksum-sha256": SHA256.hexdigest().upper()}
    verdict = check(
        headers=headers,
        document={"bytes": str(len(DATA)), "records": 2.0},
        content_type=("text/csv",), size="/bytes", checksum="header:x-checksum-sha256", checksum_algorithm="sha256",
        count="/records", strict=True, format="csv",
    )  # fmt: skip
    assert verdict == Verdict(
        ok=True, problems=(), sha256=SHA256.hexdigest(), size=len(DATA), content_type="Text/CSV; charset=utf-8",
        count=2, checksum_failed=False, checksum_compared=True,
    )  # fmt: skip


def test_a_contract_without_rules_takes_anything() -> None:
    """A provider whose result is whatever it is: the hash is still ours."""
    verdict = Checker(CONTRACT, None, {}).finish()
    assert verdict == Verdict(True, (), hashlib.sha256(b"").hexdigest(), 0, None, None, False)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-checksum-sha256", SHA256.hexdigest()),
        ("x-checksum-sha256", b64(SHA256)),
        ("x-checksum-sha256", "sha256:" + SHA256.hexdigest()),
        ("content-digest", f"sha-256=:{b64(SHA256)}:"),
        ("content-digest", f"md5=:AAAA:, sha-256=:{b64(SHA256)}:;q=1, sha-512=:{b64(hashlib.sha512(DATA))}:"),
        ("repr-digest", f"sha-512=:{b64(hashlib.sha512(DATA))}:"),
        ("digest", f"SHA-256={b64(SHA256)},unixsum=30637"),
        ("content-md5", b64(hashlib.md5(DATA))),
        ("etag", f'"{hashlib.md5(DATA).hexdigest()}"'),
    ],
)
def test_every_way_to_write_a_checksum_is_understood(header: str, value: str) -> None:
    """Providers agree on nothing here; a checksum that is not compared protects nobody."""
    good = check(headers={header: value}, checksum=f"header:{header}", strict=True)
    assert (good.ok, good.problems, good.checksum_failed) == (True, (), False)
    bad = check(DATA + b"x", headers={header: value}, checksum=f"header:{header}")
    assert (bad.ok, bad.checksum_failed) == (False, True)
    assert "as the answer says" in bad.problems[0]


def test_the_status_answer_can_hold_the_checksum() -> None:
    """Many providers give it beside the result's URL."""
    good = check(document={"md5": hashlib.md5(DATA).hexdigest()}, checksum="/md5", checksum_algorithm="md5")
    assert (good.ok, good.problems) == (True, ())
    wrong = check(document={"md5": hashlib.md5(b"").hexdigest()}, checksum="/md5", checksum_algorithm="md5")
    assert wrong.checksum_failed


@pytest.mark.parametrize(
    ("value", "algorithm", "listed"),
    [
        ("crc32c=AAAAAA==", None, False),
        ("", None, False),
        (SHA256.hexdigest(), "sha512", False),
        ("0123456789abcdef0123456789abcdef-5", None, False),
        ("sha-256=:!!!:", None, True),
        ("crc32=:AAAA:", None, True),
        (SHA256.hexdigest(), None, True),
    ],
)
def test_a_checksum_that_cannot_be_read_is_none(value: str, algorithm: str | None, listed: bool) -> None:
    """A guess would call good results broken; S3's ETag of a multipart upload is the classic."""
    assert read_digest(value, algorithm, listed=listed) is None


@given(st.text(max_size=80), st.sampled_from([None, "sha256", "md5", "sha384"]), st.booleans())
def test_no_checksum_text_breaks_the_reader(value: str, algorithm: str | None, listed: bool) -> None:
    """A provider can write anything there."""
    found = read_digest(value, algorithm, listed=listed)
    assert found is None or len(found[1]) == hashlib.new(found[0]).digest_size


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"size": "header:content-length"}, "the size was not compared: the answer has no header:content-length"),
        ({"size": "/size"}, "the size was not compared: /size is 'many', which is no number"),
        ({"checksum": "/sha"}, "the checksum was not compared: the answer has no /sha"),
        ({"checksum": "/size"}, "the checksum was not compared: /size is 'many', which cannot be read"),
        ({"count": "/count", "format": "csv"}, "the count was not compared: the answer has no /count"),
        ({"content_type": ("text/csv",)}, "the content type was not compared: the answer has none"),
    ],
)
def test_what_the_answer_leaves_out_is_noted_or_fatal(rules: dict[str, Any], says: str) -> None:
    """The contract decides with `strict` how much a missing proof is worth."""
    document = {"size": "many"}
    assert (check(document=document, **rules).ok, check(document=document, **rules).problems) == (True, (says,))
    strict = check(document=document, strict=True, **rules)
    assert (strict.ok, strict.problems) == (False, (says,))


PACKED = gzip.compress(DATA, mtime=0)
OF_WIRE, OF_DATA = hashlib.sha256(PACKED), SHA256


@pytest.mark.parametrize(
    ("header", "digest", "fits"),
    [
        ("content-digest", OF_WIRE, True),
        ("content-digest", OF_DATA, False),  # RFC 9530 §2: over the content, as it was packed
        ("repr-digest", OF_WIRE, True),  # RFC 9530 §3, RFC 9110 §8.1: a representation has its coding
        ("repr-digest", OF_DATA, True),  # as one sends who packs on the way
        ("repr-digest", hashlib.sha256(b"another"), False),
        ("digest", OF_WIRE, True),
        ("digest", OF_DATA, True),
        ("x-checksum-sha256", OF_DATA, True),
        ("x-checksum-sha256", OF_WIRE, False),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_the_digests_of_a_packed_answer_are_over_what_they_speak_of(
    header: str, digest: Any, fits: bool, step: int
) -> None:
    """A server that compresses although it was asked not to is checked like any other."""
    value = f"sha-256=:{b64(digest)}:" if header.endswith("digest") else digest.hexdigest()
    headers = {"content-encoding": "gzip", "content-length": str(len(PACKED)), header: value}
    result = Result(
        checksum=Pick.parse(f"header:{header}"),
        checksum_algorithm=None if header.endswith("digest") else "sha256",
        size=Pick.parse("header:content-length"),
        strict=True,
    )
    checker = Checker(replace(CONTRACT, result=result), None, headers)
    assert checker.wants_wire
    for at in range(0, len(PACKED), step):
        checker.feed_wire(PACKED[at : at + step])
    checker.feed(DATA)
    verdict = checker.finish()
    assert (verdict.ok, verdict.checksum_failed, verdict.size) == (fits, not fits, len(DATA))
    assert len(verdict.problems) == (not fits)
    assert verdict.sha256 == SHA256.hexdigest()


def test_a_packed_answer_that_is_shorter_than_it_says_is_told_apart() -> None:
    """Its length is that of the packed bytes; and an etag may be of them, too."""
    headers = {"content-encoding": "gzip", "content-length": "3", "etag": f'"{SHA256.hexdigest()}"'}
    result = Result(size=Pick.parse("header:content-length"), checksum=Pick.parse("header:etag"))
    checker = Checker(replace(CONTRACT, result=result), None, headers)
    checker.feed_wire(PACKED)
    checker.feed(DATA)
    assert [problem.partition(";")[0] for problem in checker.finish().problems] == [
        f"the packed result has {len(PACKED)} bytes",
        "the checksum was not compared: header:etag may speak of the packed answer (gzip)",
    ]
    assert not Checker(CONTRACT, None, {"content-encoding": "identity"}).wants_wire


@pytest.mark.parametrize(
    ("rules", "document", "headers", "may"),
    [
        ({}, None, {}, False),
        ({"empty": True}, None, {}, True),
        ({"count": "/n"}, {"n": 0}, {}, True),
        ({"count": "/n"}, {"n": "0"}, {}, True),
        ({"count": "/n"}, {"n": 3}, {}, False),
        ({"count": "/n"}, {"n": False}, {}, False),
        ({"count": "/n"}, {"n": None}, {}, False),
        ({"count": "/n"}, {}, {}, False),
        ({"size": "/n"}, {"n": 0}, {}, True),
        ({"count": "header:x-rows"}, {}, {"x-rows": "0"}, True),
        ({"size": "header:content-length"}, {}, {"content-length": "0"}, False),
    ],
)
def test_a_result_without_a_byte_is_one_where_somebody_says_so(
    rules: dict[str, Any], document: Any, headers: dict[str, str], may: bool
) -> None:
    """Else it is one that is still to come; an announced length of 0 is only that of the answer."""
    picked: dict[str, Any] = {
        key: Pick.parse(value) if isinstance(value, str) else value for key, value in rules.items()
    }
    assert may_be_empty(replace(CONTRACT, result=Result(**picked)), document, headers) is may
    assert not may_be_empty(CONTRACT, document, headers)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"content_type": ("text/csv", "application/json")}, "the content type is 'text/html', not text/csv or"),
        ({"size": "/size"}, f"the result has {len(DATA)} bytes; /size says 3"),
        ({"max_size": 3}, f"the result has {len(DATA)} bytes; the contract takes 3 at most"),
        ({"count": "/size", "format": "csv"}, "the result has 2 records; /size says 3"),
        ({"format": "json"}, "the result, read as json: this is not JSON"),
        ({"format": "jsonl"}, "the result, read as jsonl: line 1: this is not JSON"),
    ],
)
def test_what_is_wrong_makes_the_result_invalid(rules: dict[str, Any], says: str) -> None:
    """A login page with status 200, half a file, the wrong file: none of them is a success."""
    verdict = check(headers={"content-type": "text/html"}, document={"size": 3}, **rules)
    assert not verdict.ok
    assert verdict.problems[0].startswith(says)
    assert not verdict.checksum_failed


def test_records_that_cannot_be_counted_are_a_remark() -> None:
    """A count beside a ZIP file is no reason to refuse it, even strictly."""
    verdict = check(document={"n": 3}, count="/n", format="binary", strict=True)
    assert verdict.ok
    assert verdict.problems == ("the count was not compared: the records of this result cannot be counted",)


@pytest.mark.parametrize(("given", "ok"), [("text/csv", True), ("TEXT/plain;a=b", True), ("application/x", False)])
def test_a_content_type_may_be_a_family(given: str, ok: bool) -> None:
    """``text/*`` in a contract means every text."""
    assert check(headers={"content-type": given}, content_type=("text/*",)).ok is ok


@pytest.mark.parametrize("value", [True, 1.5, None, "-1", "1e3", "\u0661", [], "9" * 30])
def test_a_count_is_a_whole_number(value: Any) -> None:
    """True equals 1 in Python, and must not here."""
    verdict = check(b"1\n", document={"n": value}, count="/n", format="jsonl")
    assert verdict.ok
    assert "was not compared" in verdict.problems[0]


@given(
    st.binary(max_size=80),
    st.integers(1, 90),
    st.sampled_from(["json", "jsonl", "csv", "binary", None]),
    st.sampled_from([None, "content-digest", "x-sum"]),
    st.booleans(),
)
def test_the_cuts_between_chunks_mean_nothing(
    data: bytes, step: int, form: Any, header: str | None, strict: bool
) -> None:
    """The same bytes get the same verdict however they came."""
    rules: dict[str, Any] = {"format": form, "strict": strict, "count": "/n", "size": "/n"}
    if header is not None:
        rules["checksum"] = f"header:{header}"
    headers = {"x-sum": hashlib.sha1(data).hexdigest(), "content-digest": f"sha-256=:{b64(SHA256)}:"}
    whole = check(data, headers, {"n": 1}, step=1000, **rules)
    assert check(data, headers, {"n": 1}, step=step, **rules) == whole
    assert whole.sha256 == hashlib.sha256(data).hexdigest()
    assert whole.size == len(data)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_last_line_without_an_end_is_told_where_nothing_shows_that_it_is_whole(form: Any) -> None:
    """A stream that ends where the connection ended may have been cut in the middle of a number."""
    data = b'{"v":1}\n12' if form == "jsonl" else b"id,error\n1,\n2345,"
    assert any("may" in said or "no end" in said for said in check(data, format=form).problems)
    assert check(data + b"\n", format=form).problems == ()
    assert check(data, headers={"content-length": str(len(data))}, format=form).problems == ()
    digest = hashlib.sha256(data).hexdigest()
    named: dict[str, Any] = {"checksum": "header:x-sum", "checksum_algorithm": "sha256"}
    compared = check(data, headers={"x-sum": digest}, format=form, **named)
    assert (compared.problems, compared.checksum_compared) == ((), True)
    assert not check(data, format=form, **named).checksum_compared
