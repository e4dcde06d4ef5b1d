from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import cel_names
from opledger.rules.values import MISSING, Condition, ConditionError, Pick, Template, follow


def anything(name: str) -> bool:
    """Allow every name in a template."""
    return bool(name)


ANSWER = frozenset({"status", "headers", "body", "operation"})

# RFC 6901 §5
DOCUMENT = json.loads(
    '{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\\\j": 5, "k\\"l": 6, " ": 7, "m~n": 8}'
)


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3),
        ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8),
    ],
)  # fmt: skip
def test_pointers_work_as_in_the_standard(pointer: str, value: object) -> None:
    """The examples of RFC 6901 §5: contracts are written by people who know them."""
    assert Pick.parse(pointer).of(DOCUMENT, {}) == value


@pytest.mark.parametrize("pointer", ["/foo/2", "/foo/-", "/foo/01", "/foo/x", "/nope", "/foo/0/x", "/foo/²", "/foo/-1"])
def test_a_place_that_is_not_there_is_missing_and_not_null(pointer: str) -> None:
    """A null job id and no job id are different answers."""
    assert Pick.parse(pointer).of(DOCUMENT, {}) is MISSING


def test_an_index_of_thousands_of_digits_is_missing() -> None:
    """Python refuses to convert it, and a provider's shape must not end in a traceback."""
    assert follow([1], ("9" * 5000,)) is MISSING


@pytest.mark.parametrize(
    ("text", "headers", "value"),
    [
        ("header:Location", {"location": "/jobs/7"}, "/jobs/7"),
        ("header:Location", {}, MISSING),
        ("header:location|jobs/([0-9]+)", {"location": "/jobs/7?x"}, "7"),
        ("header:location|[0-9]+", {"location": "/jobs/7"}, "7"),
        ("header:location|[0-9]+", {"location": "/jobs/x"}, MISSING),
        ("header:x|a|b", {"x": "-b-"}, "b"),
    ],
)
def test_headers_are_picked_by_name_and_pattern(text: str, headers: dict[str, str], value: object) -> None:
    """Some providers name the job only in a Location header."""
    assert Pick.parse(text).of(None, headers) == value


@pytest.mark.parametrize(
    "text", ["job_id", "a/b", "/a~", "/a~2", "header:", "header:a b", "header:a|(", "header:a|x{99999999999}"]
)
def test_a_bad_pick_is_refused(text: str) -> None:
    """It is found when the contract is loaded, not when the first answer comes."""
    with pytest.raises(ValueError):
        Pick.parse(text)


@given(st.lists(st.text(max_size=5), max_size=4))
def test_any_chain_of_keys_can_be_pointed_at(tokens: list[str]) -> None:
    """Escaping and unescaping must be inverse, whatever a provider calls its fields."""
    document: Any = "here"
    for token in reversed(tokens):
        document = {token: document}
    pointer = "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)
    assert Pick.parse(pointer).of(document, {}) == "here"


def test_a_template_lists_and_fills_its_names() -> None:
    """Paths are built from values of ours and of the provider, percent-encoded as one segment."""
    template = Template.parse("/v1/{var.account}/jobs/{job_id}", anything)
    assert template.names == ("var.account", "job_id")
    assert (
        template.fill({"var.account": "a b", "job_id": "x/../y?z#ü"}, encode=True)
        == "/v1/a%20b/jobs/x%2F..%2Fy%3Fz%23%C3%BC"
    )
    assert template.fill({"var.account": "a b", "job_id": "x/y"}) == "/v1/a b/jobs/x/y"


@pytest.mark.parametrize("value", [".", ".."])
def test_a_value_that_would_change_the_path_is_refused(value: str) -> None:
    """A job id of two dots would turn the cancel of a job into a call about its parent."""
    with pytest.raises(ValueError, match="path"):
        Template.parse("/jobs/{job_id}", anything).fill({"job_id": value}, encode=True)


@pytest.mark.parametrize("text", ["{", "}", "{}", "{A}", "{a b}", "{{job_id}}", "{var.}"])
def test_a_stray_brace_is_refused(text: str) -> None:
    """A mistyped name must not be sent as it stands."""
    with pytest.raises(ValueError, match="brace"):
        Template.parse(text, anything)


def test_a_value_is_never_filled_in_twice() -> None:
    """A provider that names a job {token} must not be told our token."""
    assert Template.parse("{job_id}", anything).fill({"job_id": "{token}", "token": "x"}) == "{token}"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("status in [202, 404]", True),
        ("status == 404 && !has(body.error)", True),
        ("body.done + body.failed == body.total", True),
        ('headers["x-left"] == "0"', True),
        ('"x-nope" in headers', False),
        ("body.items.exists(i, i.ok)", True),
        ("body.items.filter(i, i.n > 1).size() == 1", True),
        ("body.items.exists(a, body.items.exists(b, a.n < b.n))", True),
        ('body.text.contains("i.x") && body.text.matches("^a")', True),
        ("type(body.items) == list && type(body.text) == string", True),
        ("status == 404 || body.nope == 1", True),
        ("has(body.nope) && body.nope.deeper == 1", False),
    ],
)
def test_conditions_say_what_they_say(text: str, holds: bool) -> None:
    """The shapes of condition that real providers need, from their descriptions."""
    body = {"done": 2, "failed": 1, "total": 3, "items": [{"n": 1, "ok": False}, {"n": 2, "ok": True}], "text": "a i.x"}
    values = {"status": 404, "headers": {"x-left": "0"}, "body": body, "operation": {}}
    assert Condition.parse(text, ANSWER).holds(values) is holds


@pytest.mark.parametrize(
    "text",
    [
        "body.nope == 1", "body.text.nope == 1", "body.text + 1 == 2", "body.n / 0 == 1", "status", "body.n",
        "body.items[9] == 1", 'body.text.matches("(")',
    ],
)  # fmt: skip
def test_a_condition_that_cannot_be_evaluated_says_so_in_one_way(text: str) -> None:
    """Whatever an answer looks like, a condition on it may only hold, not hold, or raise ConditionError."""
    with pytest.raises(ConditionError):
        Condition.parse(text, ANSWER).holds({"status": 200, "headers": {}, "body": {"text": "a", "n": 1, "items": []}})


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "compile"),
        ("body.x ==", "column"),
        ("(" * 500 + "1", "compile"),
        ("has(body)", "has"),
        ("i.x", "'i'"),
        ("i.x && body.a.exists(i, i.x)", "'i'"),
        ("body.a.exists(i, i.x) && body.b.exists(j, i.x)", "'i'"),
        ("body.a.exists(i, i.x, body)", "exists()"),
        ("all(i, i.x)", "'i'"),
        ("body.foo(1)", "foo()"),
        ("foo(body)", "foo()"),
        ("body.exists(1)", "exists()"),
        ("item.x == 1", "'item'"),
        ("1 + 1", "never hold"),
        ("1 / 0 == 1", "never hold"),
        ('"status"', "never hold"),
        ("true || " * 1000 + "true", "longer"),
    ],
)
def test_a_condition_that_could_never_work_is_refused(text: str, word: str) -> None:
    """A typo in a rule that nobody evaluates for months must be found when the contract is loaded."""
    with pytest.raises(ValueError) as caught:
        Condition.parse(text, ANSWER)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("body.items.exists(i, i.x)", {"body"}),
        ("body.exists(i, i.a.exists(j, i.b == j.c)) && j", {"body", "j"}),
        ("i.exists(i, i)", {"i"}),
        ("'a.exists(' + b", {"b"}),
        ('r"\\" + a', {"a"}),
        ("'''it's x''' + a // and y\n+ b", {"a", "b"}),
        ('"x" .size() + "y".size()', set()),
        ("[a, b][0].c + {d: e}.f", {"a", "b", "d", "e"}),
        ("0x1F + 1e5 + 2u + a1", {"a1"}),
        ("f(x).y(z)", {"x", "z"}),
    ],
)
def test_free_names_are_those_that_no_macro_binds(text: str, names: set[str]) -> None:
    """Strings, comments, members and macro variables are no names of the expression."""
    assert cel_names.free_names(text) == names


@given(st.text("abi.()[]{}\"'\\,&|=!<1 \n/rexists", max_size=30))
def test_any_text_is_a_condition_or_a_value_error(text: str) -> None:
    """The CEL library is compiled code; whatever a file holds, only ValueError may come out."""
    try:
        condition = Condition.parse(text, ANSWER)
    except ValueError:
        return
    try:
        condition.holds({"status": 200, "headers": {}, "body": {}, "operation": {}})
    except ConditionError:
        return


def test_conditions_are_equal_by_their_text() -> None:
    """Contracts are compared; the compiled program has no equality of its own."""
    assert Condition.parse("status == 1", ANSWER) == Condition.parse("status == 1", ANSWER)
