"""What an approver is shown of a request, and what it is compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.model import State
from opledger.rules.review import differences, likeness, most_alike
from tests.core.rules.operations import operation

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def pointers(before: Any, after: Any) -> list[str]:
    """Where two documents differ."""
    return [difference.pointer for difference in differences(before, after)]


def test_each_place_that_differs_is_named_with_both_values() -> None:
    """Changed, added and removed places are told apart; names are escaped as RFC 6901 says."""
    found = differences({"a": {"x/y": 1}, "gone": 0}, {"a": {"x/y": 2}, "new": [1]})
    assert [(one.pointer, one.before, one.after, one.added, one.removed) for one in found] == [
        ("/a/x~1y", 1, 2, False, False),
        ("/new/0", None, 1, True, False),
        ("/gone", 0, None, False, True),
    ]


def test_values_that_python_calls_equal_are_told_apart() -> None:
    """1, 1.0 and true are three values in JSON, and a payout of true is not a payout of 1."""
    assert pointers({"n": 1}, {"n": True}) == ["/n"]
    assert pointers({"n": 1}, {"n": 1.0}) == ["/n"]


@given(JSON)
def test_a_document_is_like_itself(document: Any) -> None:
    """No difference, and a likeness of one."""
    assert differences(document, document) == ()
    assert likeness(document, document) == 1.0


@given(JSON, JSON)
def test_likeness_has_no_direction(one: Any, other: Any) -> None:
    """And it is one only where nothing differs."""
    assert likeness(one, other) == likeness(other, one)
    assert (likeness(one, other) == 1.0) == (differences(one, other) == ())


MINE = operation(State.AWAITING_APPROVAL, operation_id="op_mine", request_fingerprint="sha256:mine")
BODY = {"a": 1, "b": 2, "c": 3, "d": 4}


def test_an_open_operation_with_the_same_wish_is_the_first_to_show() -> None:
    """A duplicate matters more than something that is only much like it."""
    twin = replace(MINE, operation_id="op_twin", state=State.OBSERVING)
    near = replace(MINE, operation_id="op_near", request_fingerprint="sha256:near", state=State.OBSERVING)
    found = most_alike(MINE, BODY, [(near, {**BODY, "d": 5}), (twin, BODY)])
    assert found is not None
    assert (found.operation.operation_id, found.relation) == ("op_twin", "same")


def test_what_differs_little_is_shown_and_what_differs_much_is_not() -> None:
    """Three of four values equal is alike; two of four is another wish."""
    near = replace(MINE, operation_id="op_near", request_fingerprint="sha256:near", state=State.OBSERVING)
    found = most_alike(MINE, BODY, [(near, {**BODY, "d": 5})])
    assert found is not None
    assert [one.pointer for one in found.differences] == ["/d"]
    assert most_alike(MINE, BODY, [(near, {**BODY, "d": 5, "c": 5})]) is None


def test_what_has_ended_is_shown_only_where_it_is_superseded() -> None:
    """A job of last month is no duplicate; one that this request replaces is always compared."""
    old = replace(MINE, operation_id="op_old", request_fingerprint="sha256:old", state=State.FAILED)
    assert most_alike(MINE, BODY, [(old, {**BODY, "d": 5})]) is None
    found = most_alike(replace(MINE, supersedes="op_old"), BODY, [(old, {"x": 1})])
    assert found is not None
    assert found.relation == "supersedes"


def test_it_is_not_compared_with_itself() -> None:
    """An operation is no duplicate of itself."""
    assert most_alike(MINE, BODY, [(MINE, BODY)]) is None
