from __future__ import annotations

import pytest

from opledger.rules.tasks.templates import NothingThere, fill, fill_text, places

OUTPUTS = {"create": {"rows": 5, "location": "/r/1.csv", "deep": {"a": [1]}}}


def test_places_are_filled() -> None:
    """A text that is one place becomes the value itself; everything around one makes a text of it."""
    assert fill_text("{step.create.location} {step.create.rows}", OUTPUTS) == "/r/1.csv 5"
    body = {"n": "{step.create.rows}", "t": ["x{step.create.rows}"], "plain": "{}", "left": 3}
    assert fill(body, OUTPUTS) == {"n": 5, "t": ["x5"], "plain": "{}", "left": 3}
    assert fill("{step.create.deep}", OUTPUTS) == {"a": [1]}
    assert fill_text("{step.create.deep}", OUTPUTS) == '{"a":[1]}'


@pytest.mark.parametrize("text", ["{step.create.nothing}", "{step.other.rows}"])
def test_what_was_not_handed_on_is_told(text: str) -> None:
    """Nothing is filled with an empty text."""
    with pytest.raises(NothingThere, match="handed on no"):
        fill(text, OUTPUTS)


def test_places_are_found_and_slips_too() -> None:
    """A slip of the pen must not reach a command as it stands."""
    assert list(places({"a": ["{step.x.y} {step.z.w}"], "b": 3})) == [("x", "y"), ("z", "w")]
    for slip in ("{step.x}", "{step.x.y.z}", "{step. x.y}", "{step.x.y"):
        with pytest.raises(ValueError, match=r"is no \{step\.ID\.NAME\}"):
            list(places(slip))


def test_what_is_filled_in_is_not_read_again() -> None:
    """An output that looks like a place stays what it is."""
    assert fill_text("{step.a.b}", {"a": {"b": "{step.a.c}", "c": "no"}}) == "{step.a.c}"
