from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.errors import Refused
from opledger.rules import items as module
from opledger.rules.contract import Also, Contract, Create, Items, Result
from opledger.rules.items import Outcomes, key_of, sent_keys
from opledger.rules.model import ItemSummary
from opledger.rules.results import Checker, Whole, judge
from opledger.rules.values import Condition, Pick, Template

FAILED = Condition.parse("item.error != null", frozenset({"item", "operation"}))
ITEMS = Items(Pick.parse("/id"), failed_when=FAILED, reason=Pick.parse("/error"), sent=Pick.parse("/rows"))
CONTRACT = Contract(
    name="batches",
    digest="0",
    base_url="https://api.example.com",
    create=Create("POST", Template("/x")),
    source="",
    result=Result(format="jsonl", items=ITEMS),
)


def row(key: Any, error: str | None = None) -> dict[str, Any]:
    """One record of a result."""
    return {"id": key, "error": error}


def told(*files: Iterable[dict[str, Any]], sent: Iterable[str] | None = None, items: Items = ITEMS) -> Outcomes:
    """The outcomes over some files."""
    read = []
    for rows in files:
        outcomes = Outcomes(items, None if sent is None else frozenset(sent))
        look = outcomes.look()
        for number, one in enumerate(rows, start=1):
            look.row(one, number)
        read.append(outcomes)
    return Outcomes.joined(read)


# --- what is sent -------------------------------------------------------------------------------------------------


def test_the_keys_of_what_is_sent_are_those_of_its_items() -> None:
    """Texts and whole numbers; a raw body has an item on each line."""
    assert sent_keys(CONTRACT, {"rows": [{"id": "a"}, {"id": 7}]}) == frozenset({"a", "7"})
    assert sent_keys(CONTRACT, {"rows": []}) == frozenset()
    assert sent_keys(CONTRACT, '{"id": "a"}\n\n{"id": "b"}\n') == frozenset({"a", "b"})
    other = replace(
        CONTRACT, result=replace(CONTRACT.result or Result(), items=replace(ITEMS, sent_id=Pick.parse("/k")))
    )
    assert sent_keys(other, {"rows": [{"id": "a", "k": "b"}]}) == frozenset({"b"})


def test_nothing_is_asked_of_a_body_whose_contract_knows_no_items() -> None:
    """Or does not say where they stand."""
    assert sent_keys(replace(CONTRACT, result=None), {"rows": [{}]}) is None
    assert sent_keys(replace(CONTRACT, result=Result(items=replace(ITEMS, sent=None))), {"rows": [{}]}) is None


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"rows": [{"id": "a"}, {"id": "b"}, {"id": "a"}]}, "the same key: a; give each"),
        ({"rows": [{"id": 7}, {"id": "7"}]}, "the same key: 7; give each"),
        ({"rows": [{"id": str(n % 50)} for n in range(100)]}, "and 40 more; give each"),
        ({"rows": [{"id": "a"}, {"name": "b"}]}, "item 2 of the body has no key at /id"),
        ({"rows": [{"id": True}]}, "item 1 of the body has no key"),
        ({"rows": [{"id": ""}]}, "item 1 of the body has no key"),
        ({"rows": {"id": "a"}}, "no list of items at /rows"),
        ({}, "no list of items at /rows"),
        (None, "no list of items at /rows"),
        ("not json", "no list of items at /rows"),
        ({"rows": [{"id": "\x1b[2J"}, {"id": "\x1b[2J"}]}, "the same key: ␛[2J; give each"),
    ],
)
def test_b29_items_that_could_not_be_told_apart_are_refused(asked: Any, says: str) -> None:
    """Before anything is written: afterwards nobody could say which outcome is whose."""
    with pytest.raises(Refused) as caught:
        sent_keys(CONTRACT, asked)
    assert says in caught.value.message


# --- what comes back ----------------------------------------------------------------------------------------------

KEYS = [f"k{number}" for number in range(8)]
RECORDS = st.lists(st.tuples(st.sampled_from([*KEYS, "stranger", None]), st.sampled_from([None, "busy"])), max_size=12)


def facts(outcomes: Outcomes) -> Any:
    """What must not depend on the order; of an item with two outcomes neither is believed."""
    summary = outcomes.summary()
    named = frozenset(problem.partition(":")[0] for problem in outcomes.problems())
    if any("more than once" in name for name in named):
        return (summary.total, named)
    return (summary.total, named, summary.failed, frozenset(summary.failed_refs), outcomes.reason())


@given(RECORDS, st.randoms(use_true_random=False), st.integers(0, 12), st.booleans())
def test_b29_neither_order_nor_the_cut_between_files_means_anything(
    records: list[tuple[str | None, str | None]], chance: Any, cut: int, known: bool
) -> None:
    """Items are joined by their key: shuffled, and cut into two files at any place, the outcome is the same."""
    rows = [row(key, error) for key, error in records]
    sent = KEYS if known else None
    mixed = list(rows)
    chance.shuffle(mixed)
    assert facts(told(mixed[:cut], mixed[cut:], sent=sent)) == facts(told(rows, sent=sent))


@given(st.lists(st.sampled_from(KEYS), unique=True), st.sets(st.sampled_from(KEYS)))
def test_counts_add_up(present: list[str], bad: set[str]) -> None:
    """Every item that is there has succeeded or failed, and every one that is not is missing."""
    outcomes = told([row(key, "busy" if key in bad else None) for key in present], sent=KEYS)
    failed = [key for key in present if key in bad]
    assert outcomes.summary() == ItemSummary(len(present), len(present) - len(failed), len(failed), tuple(failed))
    missing = sorted(set(KEYS) - set(present))
    expected = (f"items missing from the result: {', '.join(missing)}",) if missing else ()
    assert outcomes.problems() == expected
    assert outcomes.reason() == ("busy" if failed else "")


def test_every_kind_of_stray_is_listed_and_the_lists_are_short() -> None:
    """A file that is wrong all through must not fill the record."""
    rows = [row("a"), row("a", "busy"), *(row(f"x{number}") for number in range(30)), row(None), row(1.5)]
    problems = told(rows, sent=["a", "b"]).problems()
    assert problems == (
        "items missing from the result: b",
        "items in the result that were never sent: x0, x1, x2, x3, x4, x5, x6, x7, x8, x9 and 20 more",
        "items that stand in the result more than once: a",
        "records without a key: record 33, record 34",
    )


def test_an_item_that_stands_in_two_files_is_not_counted_twice() -> None:
    """Success and error under one key: which of them is true?"""
    for sent in (["a", "b"], None):
        outcomes = told([row("a"), row("b")], [row("a", "busy")], sent=sent)
        assert outcomes.count == 2
        (problem,) = outcomes.problems()
        assert problem.startswith("items that stand in the result more than once: ")


def test_what_failed_is_named_up_to_a_limit_and_counted_beyond_it() -> None:
    """The record is no place for a million keys."""
    outcomes = told([row(f"k{number}", f"reason {number}") for number in range(500)])
    assert outcomes.failed == 500
    assert outcomes.summary().failed_refs == tuple(f"k{number}" for number in range(100))
    assert len(outcomes._reasons) == 50


def test_memory_is_bounded_where_it_is_not_known_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated keys are found among the first ones; that the others were not looked at is said."""
    monkeypatch.setattr(module, "MOST_KEYS", 10)
    outcomes = told([row(f"k{number}") for number in range(30)], [])
    assert (outcomes.count, len(outcomes._seen)) == (30, 10)
    assert outcomes.notes == ["repeated items were looked for among the first 10 only"]
    assert told([row("k1")] * 2).problems() == ("items that stand in the result more than once: k1",)


def test_what_was_sent_bounds_what_is_kept() -> None:
    """A flood of keys that were never sent leaves nothing but its number."""
    outcomes = told([row(f"x{number}") for number in range(5000)], sent=["a"])
    assert (len(outcomes._seen), outcomes.count) == (0, 0)
    assert "and 4990 more" in outcomes.problems()[1]


def test_a_condition_that_cannot_be_tried_is_noted_once_and_does_not_hold() -> None:
    """As everywhere: what cannot be evaluated does not hold, and that is said."""
    outcomes = told([{"id": "a"}, {"id": "b"}])
    assert (outcomes.failed, len(outcomes.notes)) == (0, 1)
    assert "item 1 (and maybe others) could not be tried" in outcomes.notes[0]


def test_the_reason_that_is_told_is_the_most_common_one() -> None:
    """Also where it is no text."""
    rows = [row("a", "busy"), row("b", "broken"), row("c", "broken"), row("d")]
    assert told(rows).reason() == "broken"
    assert told([{"id": "a", "error": {"code": 7}}]).reason() == '{"code":7}'


@pytest.mark.parametrize(
    ("value", "key"),
    [("a", "a"), (7, "7"), (10**30, "1" + "0" * 30), ("", None), (True, None), (1.0, None), (None, None)],
)
def test_a_key_is_a_text_or_a_whole_number(value: Any, key: str | None) -> None:
    """Nothing that could be written in two ways."""
    assert key_of(value) == key


# --- the verdict over all files -----------------------------------------------------------------------------------

ERRORS = Also("errors", Pick.parse("/errors"), optional=True)


def whole(
    files: dict[str, bytes], *, contract: Contract = CONTRACT, document: Any = None, partial: bool = False,
    sent: Iterable[str] | None = None, also: Also = ERRORS,
) -> Whole:  # fmt: skip
    """Check files, and judge them together."""
    verdicts, read = {}, []
    for name, data in files.items():
        items = contract.result.items if contract.result is not None else None
        assert items is not None
        outcomes = Outcomes(items, None if sent is None else frozenset(sent))
        checker = Checker(contract, document, {}, outcomes=outcomes, also=also if name else None, partial=partial)
        checker.feed(data)
        verdicts[name] = checker.finish()
        read.append(outcomes)
    return judge(contract, document, verdicts, read, partial=partial)


OK, BAD = b'{"id":"a","error":null}\n', b'{"id":"b","error":"busy"}\n'


def test_b27_the_files_of_a_result_are_judged_together() -> None:
    """Some failed: a success with counts. All failed: a failure that says why. None at all: nothing to judge."""
    mixed = whole({"": OK, "errors": BAD}, sent="ab")
    assert mixed == Whole(True, (), ItemSummary(2, 1, 1, ("b",)))
    failed = whole({"errors": BAD}, sent="b")
    assert failed == Whole(True, (), ItemSummary(1, 0, 1, ("b",)), True, "all 1 items failed, most of them so: busy")
    empty = whole({"": b""}, sent="")
    assert (empty.ok, empty.items, empty.all_failed) == (True, ItemSummary(0, 0, 0), False)


def test_an_item_that_stands_in_two_files_is_told_with_both() -> None:
    """Whoever asks the provider must say where; a key that nobody sent is not kept, but its files are."""
    both = whole({"": OK, "errors": OK}, sent="a")
    says = "items that stand in the result more than once"
    assert both.problems == (f"{says}: a (in the result and in errors)",)
    unsent = whole({"": OK, "errors": OK})
    assert unsent.problems == (f"{says}: an item that is in the result and in errors",)


def test_an_optional_file_that_is_broken_is_a_remark_beside_a_result() -> None:
    """Without one, it is all there is, and cannot be spared."""
    contract = replace(CONTRACT, result=replace(CONTRACT.result or Result(), also=(ERRORS,)))
    beside = whole({"": OK, "errors": b"{"}, sent="a", contract=contract)
    assert beside.ok
    assert beside.problems[0].startswith("errors: the result, read as jsonl: line 1: this is not JSON")
    alone = whole({"errors": b"{"}, contract=contract)
    assert not alone.ok


def test_every_record_of_a_file_of_failures_has_failed() -> None:
    """Where the contract says so: such records often carry nothing by which it could be told."""
    plain = replace(CONTRACT, result=replace(CONTRACT.result or Result(), items=replace(ITEMS, failed_when=None)))
    found = whole({"": OK, "errors": b'{"id":"b"}\n'}, contract=plain, also=replace(ERRORS, failed=True))
    assert found.items == ItemSummary(2, 1, 1, ("b",))


def test_what_is_wrong_with_one_file_is_told_with_its_name() -> None:
    """And makes the whole invalid."""
    broken = whole({"": OK, "errors": b"{"}, sent="a")
    assert not broken.ok
    assert broken.problems[0].startswith("errors: the result, read as jsonl: line 1: this is not JSON")


def test_a_total_that_is_not_reached_makes_a_result_invalid_and_a_partial_one_remarkable() -> None:
    """What a job left behind that did not succeed is not expected to be all."""
    stated = replace(ITEMS, total=Pick.parse("/total"))
    contract = replace(CONTRACT, result=replace(CONTRACT.result or Result(), items=stated))
    says = "the result has 1 items; /total says 2"
    assert whole({"": OK}, contract=contract, document={"total": 2}).problems == (says,)
    assert not whole({"": OK}, contract=contract, document={"total": 2}).ok
    assert whole({"": OK}, contract=contract, document={"total": 2}, partial=True).ok
    missing = whole({"": OK}, sent="ab", partial=True)
    assert (missing.ok, missing.problems) == (True, ("items missing from the result: b",))


def test_items_that_could_not_be_looked_into_are_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is too large to be read may hold nothing but failures."""
    monkeypatch.setattr("opledger.rules.records.MAX_LINE", 10)
    found = whole({"": OK}, sent="a")
    assert not found.ok
    assert "longer than 10 bytes and was not looked into" in found.problems[0]


def test_items_inside_of_a_document_are_found_where_the_contract_says() -> None:
    """Not every provider writes a list at the top."""
    inner = replace(CONTRACT, result=Result(format="json", items=replace(ITEMS, at=Pick.parse("/data"))))
    found = whole({"": b'{"data": [{"id": "a", "error": null}]}'}, contract=inner, sent="a")
    assert found == Whole(True, (), ItemSummary(1, 1, 0))
    lost = whole({"": b'{"date": []}'}, contract=inner, sent="a")
    assert "there is no list at /data" in lost.problems[0]
