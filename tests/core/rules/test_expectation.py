from __future__ import annotations

from dataclasses import replace

import pytest

from opledger.errors import UsageError
from opledger.rules import wishes
from opledger.rules.contract import Result
from opledger.rules.evidence import ResultAccepted, ResultInvalid
from opledger.rules.expectation import (
    Summary,
    check,
    condition_of,
    kind,
    nothing_to_fetch,
    parse,
    problems,
    tried,
    tried_inline,
    unmet,
    word,
)
from opledger.rules.files import contract as contract_file
from opledger.rules.model import ItemSummary, Operation, State, StoredResult
from opledger.rules.results import Verdict, Whole
from opledger.rules.wishes import Wish
from tests.support.contracts import a_contract
from tests.support.records import a_record

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
    """Nothing is tried of a record that has it, and nothing fails over it, whatever a later version refuses."""
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
    said = unmet(parse(text), summary.facts(), "the requester")
    assert said == found or (found is not None and said is not None and found.endswith((": ", "(")) and found in said)


def test_contract_and_requester_are_both_heard() -> None:
    """Each by itself, the contract first: it speaks for every job."""
    assert problems("count > 40", parse("size > 4096"), FULL) == (
        "what the contract expects does not hold: size > 4096 (size: 2048)",
        "what the requester expects does not hold: count > 40 (count: 30)",
    )
    assert problems("count > 20", parse("size > 1024"), FULL) == ()
    assert problems(None, None, BARE) == ()


def held(op: Operation, whole: Whole, verdict: Verdict | None, expect: str | None = None) -> Whole:
    """Try an expectation on a judged result."""
    contract = a_contract()
    if expect is not None:
        contract = replace(contract, result=replace(contract.result or Result(), expect=parse(expect)))
    return tried(op, contract, whole, verdict)


VERDICT = Verdict(True, (), "0" * 64, 2048, "text/csv", 12, checksum_failed=False)
WANTS = a_record(State.RESULT_COLLECTING, expectation="count >= 28")


def test_a_whole_result_that_is_less_than_was_wanted_is_not_accepted() -> None:
    """It is stored and checked, and a person decides; what was remarked of it before stays said."""
    whole = held(WANTS, Whole(True, ("a remark",)), VERDICT, "size > 4096")
    assert not whole.ok
    assert whole.problems == (
        "what the contract expects does not hold: size > 4096 (size: 2048)",
        "what the requester expects does not hold: count >= 28 (count: 12)",
        "a remark",
    )
    enough = replace(VERDICT, count=28)
    assert held(WANTS, Whole(True, ()), enough) == Whole(True, ())


def test_items_are_counted_where_records_cannot_be() -> None:
    """Also where there is no file but that of the errors."""
    items = ItemSummary(30, 28, 2)
    assert held(WANTS, Whole(True, (), items), replace(VERDICT, count=None)).ok
    assert held(WANTS, Whole(True, (), items), None).ok
    assert not held(WANTS, Whole(True, ()), None).ok


def test_a_job_whose_items_all_failed_has_failed_whatever_was_expected() -> None:
    """It is no question for a person."""
    whole = Whole(True, (), ItemSummary(3, 0, 3), all_failed=True, why="all 3 items failed")
    assert held(WANTS, whole, VERDICT) is whole


@pytest.mark.parametrize(
    ("content", "short"),
    [
        (b"[1, 2, 3]", ()),
        (b"[1]", ("what the requester expects does not hold: count > 2 (count: 1)",)),
        (b"{}", ("what the requester expects could not be tried: count > 2 (count cannot be told of this result)",)),
        (
            b"<html>",
            ("what the requester expects could not be tried: count > 2 (count cannot be told of this result)",),
        ),
    ],
)
def test_a_result_inside_an_answer_is_held_against_it_too(content: bytes, short: tuple[str, ...]) -> None:
    """The items of a list are its records."""
    op = a_record(State.RESULT_COLLECTING, expectation="cel:count > 2")
    assert tried_inline(op, a_contract(), content, "application/json") == short
    stored = StoredResult("/r/x", len(content), "0" * 64, None, validated=not short, problems=short)
    said = nothing_to_fetch(replace(op, result=stored))
    assert said == (
        ResultInvalid(why=short[0], problems=short, result=stored) if short else ResultAccepted(result=stored)
    )


def test_a_success_without_any_result_does_not_meet_an_expectation_of_one() -> None:
    """A remark asks for nothing."""
    assert isinstance(nothing_to_fetch(WANTS), ResultInvalid)
    assert nothing_to_fetch(replace(WANTS, expectation="a CSV")) == ResultAccepted(result=None)


def test_a_record_of_another_version_breaks_nothing() -> None:
    """What this version cannot read as a condition is said, and a person decides."""
    short = problems("cel:count >=", None, FULL)
    assert len(short) == 1
    assert short[0].startswith("what the requester expects could not be tried: the condition does not compile")
    assert [word(text) for text in ("cel:x y", "count > 1", "a CSV")] == [
        "cannot be tried",
        "tried on the result",
        "kept as a remark, not checked",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a CSV", "ten rows", "10 rows", "count is 28", "at least 28 items", "2026-11", "true", "28", "Berlin-Mitte",
        "either/or", "good (really)", "report.pdf", "the size of each file", "items: see ticket 7",
        "it <3 you", "a -> b",
        "==== Report ====", "A & B", "R&D | sales", "price = 5 EUR", "yes!", "why? because", "<b>bold</b>", "",
        "five rows [@click=app.quit]", 'she said "count >= 28" and left', "remark:count >= 28", "remark: cuont > 5",
        "the nightly export, late because of the migration", "все строки", "x" * 4000,
    ],
)  # fmt: skip
def test_a_plain_sentence_is_kept_as_a_remark(text: str) -> None:
    """Words for people are not refused for a stroke in them."""
    check(text)
    assert kind(text) == ("remark" if text else None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("coutn >= 28", "uses 'coutn'; only content_type, count, items, size can be used here"),
        ("rows > 28", "uses 'rows'"),
        ("count >= ", "does not compile"),
        ("count => 28", "does not compile"),
        ("count = 28", "does not compile"),
        ("count > 28 rows", "does not compile"),
        ("28 < count rows", "does not compile"),
        ("count >= 28 and items.failed == 0", "does not compile"),
        ("items.failed == 0 && coutn > 1", "uses 'coutn'"),
        ("content_typ.startsWith('text/')", "uses 'content_typ'"),
        ("content_type.startswith('text/')", "no such function"),
        ("content_type.startsWith('text/'", "does not compile"),
        ("count", "can never hold"),
        ("items.failed", "can never hold"),
        ("count + 1", "can never hold"),
        ("items.succeded > 1", "of items there are total, succeeded and failed"),
        ("cel:items.nothing > 3", "on any result"),
        ("count >= 'x'", "No such overload"),
        ("count.startsWith('2')", "on any result"),
        ("content_type.matches('[')", "not a valid regex"),
        ("1 == 1", "speaks of none of content_type, count, items, size"),
        ("'count' == 'count'", "speaks of none of"),
    ],
)
def test_what_only_looks_like_a_condition_is_refused(text: str, why: str) -> None:
    """Kept as a remark it would never be tried, and its requester would believe that it was."""
    with pytest.raises(ValueError, match=r"; correct it, or write remark: in front") as told:
        check(text)
    assert why in str(told.value)


@pytest.mark.parametrize(
    "text", ["count / items.failed > 2", "100 / (count - 1) > 2", "has(items.nothing) || count > 1"]
)
def test_what_can_be_tried_on_some_result_is_taken(text: str) -> None:
    """Dividing by nothing is a fact of one result, and no slip."""
    check(text)


def test_how_an_expectation_is_taken_is_told_to_programs() -> None:
    """A slip that another version let through counts as checked: its result will not pass."""
    assert [kind(text) for text in (None, "", "count > 1", "cel:count > 1", "cel:x y", "a CSV")] == [
        None, None, "checked", "checked", "checked", "remark",
    ]  # fmt: skip


SMALL = """\
name = "jobs"
base_url = "https://api.example.com/"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
succeeded = ["done"]
[result]
url = "/u"
"""


def test_a_contract_names_what_it_expects() -> None:
    """Read and refused as every other condition of a contract: with its key, its line and what is wrong."""
    found = contract_file.parse(SMALL + 'expect = "count >= 28"', environment={}).result
    assert found is not None
    assert found.expect == parse("count >= 28")
    for wrong in ('"coutn >= 28"', '"count"', '"count >="', "28"):
        with pytest.raises(contract_file.ContractInvalid, match=r"line 14, result\.expect"):
            contract_file.parse(f"{SMALL}expect = {wrong}", environment={})


def test_a_wish_with_a_slip_is_refused_before_anything_is_written() -> None:
    """The agent that made it is there to mend it; whoever finds it after the job is not."""
    wish = Wish("jobs", {"rows": 3}, requested_by="agent-7")
    for text in ("cel:count >= 28", "count >= 28", "remark:coutn >= 28", "a CSV"):
        wishes.check(replace(wish, expectation=text))
    for text in ("cel:coutn >= 28", "coutn >= 28"):
        with pytest.raises(UsageError, match=r"the expectation cannot be tried: .*'coutn'; only content_type, count"):
            wishes.check(replace(wish, expectation=text))
