from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.errors import UsageError
from opledger.rules import filters
from opledger.rules.durations import LONGEST
from opledger.rules.filters import FilterWrong, Key, Term, Wanted, complete, matches, parse, text_of
from opledger.rules.model import Attention, Plan, State
from tests.core.rules.operations import NOON, operation

ANY = st.text(st.one_of(st.characters(codec=None), st.sampled_from(' ",:<>!-\\=\t')), min_size=1, max_size=12)
STATES = st.sampled_from([*filters.GROUPS, *(state.value for state in State)])
SPANS = st.integers(0, LONGEST // timedelta(milliseconds=1)).map(lambda number: timedelta(milliseconds=number))
FREE = [key for key in Key if key not in {*filters.SPANS, Key.TEXT, Key.STATE, Key.NEEDS}]


def several(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Values of one term: some, none of them twice."""
    return st.lists(values, min_size=1, max_size=3, unique=True).map(tuple)


NAMED = ANY.filter(lambda value: not value.startswith("="))
TERMS = st.one_of(
    st.builds(Term, st.just(Key.STATE), several(STATES), st.booleans()),
    st.builds(Term, st.just(Key.NEEDS), several(st.sampled_from(filters.NEEDS)), st.booleans()),
    st.builds(Term, st.sampled_from(FREE), several(NAMED), st.booleans()),
    st.builds(Term, st.sampled_from(filters.SPANS), st.just(()), st.booleans(), st.sampled_from(["<", ">"]), SPANS),
)
WORDS = st.builds(Term, st.just(Key.TEXT), ANY.map(lambda word: (word,)), st.booleans())
WANTED = st.builds(
    lambda terms, word: Wanted(tuple(dict.fromkeys([*terms, *word]))),
    st.lists(TERMS, max_size=5),
    st.lists(WORDS, max_size=1),
)


@given(WANTED)
def test_what_is_written_is_read_back_as_the_same(wanted: Wanted) -> None:
    """A view is saved as its text; the one that comes back must be the one that was saved."""
    assert parse(text_of(wanted)) == wanted
    assert {wanted: 1}[parse(text_of(wanted))] == 1


@given(st.text(st.one_of(st.characters(codec=None), st.sampled_from(' ",:<>!-\\=')), max_size=40))
def test_any_text_is_read_or_refused_at_a_place_in_it(text: str) -> None:
    """Typing goes through every half-finished text there is; none may end the console."""
    wanted, wrong = read(text)
    if wanted is not None:
        assert parse(text_of(wanted)) == wanted
    else:
        assert wrong is not None
        assert 0 <= wrong.at < len(text)
        assert wrong.message.startswith(f"at character {wrong.at + 1}: ")


def read(text: str) -> tuple[Wanted | None, FilterWrong | None]:
    """The filter, or what is wrong with it."""
    try:
        return parse(text), None
    except FilterWrong as wrong:
        return None, wrong


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        ("  ", ()),
        ("state:open", (Term(Key.STATE, ("open",)),)),
        ("State:OPEN,failed", (Term(Key.STATE, ("open", "failed")),)),
        ("!state:failed -by:ana", (Term(Key.STATE, ("failed",), True), Term(Key.BY, ("ana",), True))),
        ("provider:x actor:y", (Term(Key.CONTRACT, ("x",)), Term(Key.BY, ("y",)))),
        ('by:"a b, c",d', (Term(Key.BY, ("a b, c", "d")),)),
        (r'by:"a\"b\\c"', (Term(Key.BY, ('a"b\\c',)),)),
        ('tag:team="a b"', (Term(Key.TAG, ("team=a b",)),)),
        ("tag:team tag:x=1", (Term(Key.TAG, ("team",)), Term(Key.TAG, ("x=1",)))),
        ("age>2h due<5m !deadline<1h", (
            Term(Key.AGE, (), False, ">", timedelta(hours=2)),
            Term(Key.DUE, (), False, "<", timedelta(minutes=5)),
            Term(Key.DEADLINE, (), True, "<", timedelta(hours=1)),
        )),
        ("Q2V8W9AB", (Term(Key.TEXT, ("Q2V8W9AB",)),)),
        ('"projects:7"', (Term(Key.TEXT, ("projects:7",)),)),
        ('!"-x"', (Term(Key.TEXT, ("-x",), True),)),
        ("state:open state:open", (Term(Key.STATE, ("open",)),)),
    ],
)  # fmt: skip
def test_the_language(text: str, terms: tuple[Term, ...]) -> None:
    """Each form once, so that a change of the language is seen here."""
    assert parse(text).terms == terms


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("stat:open", 0, "did you mean state?"),
        ("by:ana stat:open", 7, "did you mean state?"),
        ("state:opne", 6, "did you mean open?"),
        ("state:open,faild", 11, "did you mean failed?"),
        ("needs:you", 6, "there are me, nobody"),
        ("projects:7", 0, "stands in quotes"),
        ("state:", 5, "state:open"),
        ("by:a,,b", 4, "needs a value"),
        ('by:""', 3, "needs a value"),
        ("age:2h", 3, "age>2h"),
        ("age>2", 4, "is not a duration"),
        ("age>", 3, "is not a duration"),
        ("state>open", 5, "state:"),
        (":x", 0, "a key is missing"),
        ("!", 0, "!state:failed"),
        ("tag:=x", 4, "tag:name=value"),
        ('by:"ana', 3, "no end"),
        ("one two", 4, "a second word"),
        ("by:a " * 51, 250, "more than 50 terms"),
        ("by:" + "a," * 50 + "a", 2, "more than 50 values"),
    ],
)
def test_a_mistake_is_named_where_it_is_with_what_would_be_right(text: str, at: int, says: str) -> None:
    """Nobody on call reads a manual for a filter."""
    with pytest.raises(FilterWrong) as wrong:
        parse(text)
    assert isinstance(wrong.value, UsageError)
    assert says in wrong.value.message
    assert wrong.value.at == at


OP = operation(
    operation_id="op_01J7Q5X4D4PA3DK0F5Q2V8W9AB",
    tags={"team": "growth", "x": ""},
    task="t1",
    remote_job_id="job_7",
    remote_state="running",
    attention=Attention("gone", NOON, "the test says so"),
    next=Plan("observe", NOON + timedelta(minutes=5), "the test says so"),
    result_deadline=NOON + timedelta(hours=1),
)


@pytest.mark.parametrize(
    "text",
    [
        "state:observing", "state:open", "state:busy", "state:failed,observing", "contract:jobs", "by:agent-7",
        "task:t1", "tag:team", "tag:team=growth", "tag:x=", "tag:no,team", "code:gone", "needs:me",
        "needs:me,nobody", "remote:running", "job:job_7", "job:jo", "trace:000", "op_01J7Q", "Q2V8W9AB", "q2v8w9ab",
        "job", "0000",
        "age>9m", "age<11m", "due<6m", "due>4m", "deadline<2h", "deadline>59m", "state:open by:agent-7",
    ],
)  # fmt: skip
def test_each_term_finds_what_it_means_and_its_negation_does_not(text: str) -> None:
    """The meaning that the database must share, and that a minus before each single term turns round."""
    now = NOON + timedelta(minutes=10)
    moved = {"next": Plan("observe", now + timedelta(minutes=5), ""), "result_deadline": now + timedelta(hours=1)}
    facts: dict[str, Any] = {name: getattr(OP, name) for name in OP.__slots__}
    facts |= moved
    op = operation(facts.pop("state"), **facts)
    wanted = parse(text)
    assert matches(op, wanted, now)
    for term in wanted.terms:
        negated = Term(term.key, term.values, not term.negated, term.than, term.span)
        assert not matches(op, Wanted((negated,)), now)


@pytest.mark.parametrize(
    "text",
    [
        "state:ended", "state:waiting", "contract:job", "by:agent", "task:t", "tag:growth", "tag:team=grow", "code:go",
        "needs:nobody", "remote:run", "job:ob_7", "trace:01", "2V8W9AB", "p_01", "state:open by:ana", "age>0s",
        "due<5m", "due>5m", "deadline<1h", "deadline>1h",
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_found(text: str) -> None:
    """Names are whole names, and a limit itself is neither above nor below."""
    assert not matches(OP, parse(text), NOON)


def test_what_is_not_there_is_neither_near_nor_far() -> None:
    """An operation without a deadline has none under an hour, and the negation finds it."""
    bare = operation(State.SUCCEEDED)
    for text in ("due<1d", "due>0s", "deadline<1d", "deadline>0s", "task:t", "tag:x", "code:gone", "remote:x", "job:x"):
        assert not matches(bare, parse(text), NOON)
        assert matches(bare, parse(f"!{text}"), NOON)


WORDS_KNOWN = {
    "contract": ["payouts", "reports"],
    "by": ["ana", "jo b"],
    "tag": ["team=growth"],
    "task": [],
    "code": ["gone"],
}


@pytest.mark.parametrize(
    ("text", "cursor", "offered"),
    [
        ("sta", 3, ("state:",)),
        ("by:ana !sta", 11, ("by:ana !state:",)),
        ("state:failed,wi", 15, ("state:failed,withdrawn",)),
        ("state:fail", 10, ("state:failed", "state:result_validation_failed")),
        ("state:observ", 12, ("state:observing",)),
        ("contract:re by:ana", 11, ("contract:reports by:ana",)),
        ("provider:p", 10, ("provider:payouts", "provider:reports")),
        ('by:"jo', 6, ('by:"jo b"',)),
        ("by:ana,a", 8, ()),
        ("needs:", 6, ("needs:me", "needs:nobody")),
        ("ag", 2, ("age>10m", "age>1h", "age>1d", "age<10m", "age<1h")),
        ("nonsense:x", 10, ()),
        ("task:x", 6, ()),
        ("contract:reports", 16, ()),
    ],
)
def test_the_term_under_the_cursor_is_completed(text: str, cursor: int, offered: tuple[str, ...]) -> None:
    """Offers are whole lines, and never the line that stands there already."""
    assert complete(text, cursor, WORDS_KNOWN) == offered


@given(st.text(st.sampled_from('state:contract!-,"= >a'), max_size=20), st.integers(0, 20))
def test_completing_never_fails_and_leaves_other_terms_alone(text: str, cursor: int) -> None:
    """It runs at every key."""
    for offer in complete(text, min(cursor, len(text)), WORDS_KNOWN):
        assert offer != text


def test_everything_is_offered_at_an_empty_place() -> None:
    """A newcomer learns the keys by asking for them."""
    offers = complete("", 0, {})
    assert {"state:", "provider:", "tag:", "age>1h"} <= set(offers)
    for offer in offers:
        parse(offer + {"state": "open", "needs": "me"}.get(offer[:-1], "x") if offer.endswith(":") else offer)
