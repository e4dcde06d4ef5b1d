from __future__ import annotations

import pytest

from opledger.rules.expectation import Summary, condition_of, parse, problems, unmet
from opledger.rules.model import ItemSummary

FULL = Summary(2048, "text/csv; charset=utf-8", 30, ItemSummary(30, 28, 2, ("a", "b")))
BARE = Summary(2048)


@pytest.mark.parametrize(
    "text",
    [
        "count >= 28",
        "cel:count >= 28",
        "cel: count >= 28",
        "count >= 28 && items.failed == 0",
        "count in [28, 30]",
        "has(items.failed)",
        "content_type.startsWith('text/')",
        "!(size < 10)",
        "size(content_type) > 3",
        "items.nothing > 3",
    ],
)
def test_a_text_that_reads_as_a_condition_is_one(text: str) -> None:
    """With the prefix or without; a requester must not have to learn a second way to say it."""
    assert condition_of(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "a CSV",
        "ten rows",
        "10 rows",
        "count",
        "size",
        "items",
        "count is 28",
        "count > 5 rows",
        "count-size",
        "x > 5",
        "a == b",
        "true",
        "1 == 1",
        "'count' == 'count'",
        "2026-11",
        "rows >= 28",
        "CEL:count",
        "x" * 4000,
        "five rows [@click=app.quit]",
    ],
)
def test_any_other_text_is_a_remark(text: str | None) -> None:
    """Words for people stay words for people: nothing is tried, nothing fails over them."""
    assert condition_of(text) is None
    assert problems(text, None, BARE) == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cel:", "does not compile"),
        ("cel:coutn >= 28", "uses 'coutn'"),
        ("cel:count >=", "does not compile"),
        ("cel:count", "can never hold"),
        ("cel:a CSV", "does not compile"),
        ("cel:count.foo() > 1", "no such function"),
    ],
)
def test_with_the_prefix_a_slip_is_refused(text: str, why: str) -> None:
    """Who says that it is a condition wants it tried; a typo must not turn it into a remark."""
    with pytest.raises(ValueError, match=why):
        condition_of(text)


@pytest.mark.parametrize(
    ("text", "summary", "found"),
    [
        ("count >= 28", FULL, None),
        ("items.failed <= 2", FULL, None),
        ("content_type.startsWith('text/csv')", FULL, None),
        ("count > 30", FULL, "what the requester expects does not hold: count > 30 (count: 30)"),
        (
            "items.failed == 0 && size > 1",
            FULL,
            (
                "what the requester expects does not hold: items.failed == 0 && size > 1 "
                "(items: 30 total, 28 succeeded, 2 failed; size: 2048)"
            ),
        ),
        (
            "count >= 28",
            BARE,
            "what the requester expects could not be tried: count >= 28 (count cannot be told of this result)",
        ),
        (
            "count >= 28 && items.failed == 0",
            BARE,
            (
                "what the requester expects could not be tried: count >= 28 && items.failed == 0 "
                "(count and items cannot be told of this result)"
            ),
        ),
        ("size > 1 || count > 1", BARE, None),
        ("!has(items.failed) || items.failed == 0", FULL, "what the requester expects does not hold: "),
        ("items.nothing > 3", FULL, "what the requester expects could not be tried: items.nothing > 3 ("),
    ],
)
def test_what_does_not_hold_is_said_with_its_figures(text: str, summary: Summary, found: str | None) -> None:
    """The person who decides sees what was expected and what came; what cannot be tried is not guessed."""
    said = unmet(parse(text), summary, "the requester")
    assert said == found or (found is not None and said is not None and found.endswith((": ", "(")) and found in said)


def test_contract_and_requester_are_both_heard() -> None:
    """Each by itself, the contract first: it speaks for every job."""
    assert problems("count > 40", parse("size > 4096"), FULL) == (
        "what the contract expects does not hold: size > 4096 (size: 2048)",
        "what the requester expects does not hold: count > 40 (count: 30)",
    )
    assert problems("count > 20", parse("size > 1024"), FULL) == ()
    assert problems(None, None, BARE) == ()
