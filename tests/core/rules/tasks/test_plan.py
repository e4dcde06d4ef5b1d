from __future__ import annotations

from datetime import timedelta

import pytest

from opledger.rules.model import State
from opledger.rules.tasks.plan import LIMIT, Agent, Ask, Command, PlanInvalid, Submit, parse
from opledger.rules.tasks.proofs import CommandCheck, FileCheck, HttpCheck, OperationCheck
from tests.core.rules.tasks.telling import CONVERT, CREATE, HEAD, PUBLISH, REVIEW, TELL, plan

HTTP = 'check = {{ http = {{ contract = "r", path = "{}", when = "{}" }} }}'


def problems(source: str) -> list[tuple[str, int | None, str]]:
    """What is wrong with a plan: key, line and message."""
    with pytest.raises(PlanInvalid) as raised:
        parse(source, name_hint="x.plan.toml")
    assert raised.value.message.startswith("x.plan.toml is not a plan that can be used; ")
    return [(one.key, one.line, one.message) for one in raised.value.problems]


def test_the_example_of_the_interface_reads() -> None:
    """Every action, with what it is checked by."""
    found = plan()
    assert (found.task, found.title, found.goal) == ("monthly", "Monthly", "A report")
    assert found.ids == ("create", "convert", "tell", "review", "publish")
    create, convert, tell, review, publish = found.steps
    assert create.action == Submit("reports", {"account": "acct_218"})
    assert create.checks == (OperationCheck(State.SUCCEEDED),)
    assert convert.action == Command(("python", "convert.py", "{step.create.location}"))
    assert convert.checks == (FileCheck("out.csv", "csv"),)
    assert (convert.repeatable, tell.repeatable) == (True, False)
    assert convert.timeout == LIMIT
    assert review.action == Agent("Read out.csv")
    assert publish.action == Ask("Publish?", ("yes", "no"), ("no",))


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ('["python", "verify.py"]', (CommandCheck(("python", "verify.py")),)),
        ('{ command = ["true"] }', (CommandCheck(("true",)),)),
        ('[{ file = "a" }, { command = ["true"] }]', (FileCheck("a"), CommandCheck(("true",)))),
        ('[{ file = "a" }, ["true"]]', (FileCheck("a"), CommandCheck(("true",)))),
        (f'{{ file = "a", sha256 = "{"A" * 64}" }}', (FileCheck("a", None, "a" * 64),)),
    ],
)
def test_checks_come_in_several_forms(check: str, expected: object) -> None:
    """An argv list, a table, or a list of either."""
    assert plan(f'[[step]]\nid = "a"\nrun = ["x"]\ncheck = {check}\n').steps[0].checks == expected


def test_an_http_check_compiles_its_condition() -> None:
    """A condition that cannot be tried is found when the plan is read."""
    check = '{ http = { contract = "reports", path = "/r/{step.create.job_id}", when = "body.state == \'sent\'" } }'
    (found,) = plan(CREATE, f'[[step]]\nid = "a"\nrun = ["x"]\ncheck = {check}\n').steps[1].checks
    assert isinstance(found, HttpCheck) and found.when.holds({"body": {"state": "sent"}})


@pytest.mark.parametrize(
    ("source", "key", "line", "message"),
    [
        ("", "task", 1, "is missing"),
        ("task = 3\n" + TELL, "task", 1, "must be a text"),
        (HEAD, "step", 1, "is missing"),
        (HEAD + "step = []", "step", 4, "holds no step"),
        (HEAD + TELL + TELL, "step[1].id", 11, "so is the id of an earlier step"),
        (HEAD + '[[step]]\nid = "a b"\nrun = ["x"]', "step[0].id", 5, "letters, digits"),
        (HEAD + '[[step]]\nrun = ["x"]', "step[0].id", 4, "is missing"),
        (HEAD + '[[step]]\nid = "a"', "step[0]", 4, "exactly one of submit, run, agent and ask; it has none"),
        (HEAD + TELL + 'agent = "x"', "step[0]", 5, "it has run and agent"),
        (HEAD + '[[step]]\nid = "a"\nrun = "ls -l"', "step[0].run", 6, "no shell"),
        (HEAD + '[[step]]\nid = "a"\nrun = []', "step[0].run", 6, "a list of texts"),
        (HEAD + '[[step]]\nid = "a"\nagent = "work"', "step[0].check", 4, "counts only when it can be checked"),
        (HEAD + PUBLISH + 'check = ["true"]', "step[0].check", 8, "says nothing here"),
        (HEAD + PUBLISH.replace('["no"]', '["never"]'), "step[0].ask.stop_on", 7, "'never', which is no answer"),
        (HEAD + TELL + 'check = { operation = "succeeded" }', "step[0].check", 9, "the step submits none"),
        (HEAD + CREATE + 'check = { operation = "observing" }', "step[0].check.operation", 8, "must be one of"),
        (HEAD + CREATE + "repeatable = false", "step[0].repeatable", 8, "happen once anyway"),
        (HEAD + CONVERT, "step[0].run", 7, "'create', which is no earlier step"),
        (HEAD + REVIEW.replace("out.csv", "{step.oops}"), "step[0].agent", 7, "is no {step.ID.NAME}"),
        (HEAD + TELL + "retry = 3", "step[0].retry", 9, "is not a key that is known here"),
        (HEAD + TELL + 'timeout = "soon"', "step[0].timeout", 9, "is not a duration"),
        (HEAD + TELL + 'check = { file = "a", parses = "cvs" }', "step[0].check.parses", 9, 'did you mean "csv"'),
        (HEAD + TELL + HTTP.format("x", "true"), "step[0].check.http.path", 9, "begin with one /"),
        (HEAD + TELL + HTTP.format("/", "nobody"), "step[0].check.http.when", 9, "nobody"),
        (HEAD + TELL + "check = { }", "step[0].check", 9, "it has none"),
        ("task = \n", "", 1, "this is not TOML"),
    ],
)  # fmt: skip
def test_mistakes_have_key_and_line(source: str, key: str, line: int, message: str) -> None:
    """Whoever wrote the plan must find the place."""
    found = problems(source)
    assert any(one[0] == key and one[1] == line and message in one[2] for one in found), found


def test_all_mistakes_are_told_at_once() -> None:
    """Nobody mends a file one error at a time."""
    assert len(problems(HEAD + '[[step]]\nid = "a"\nrun = "x"\nretry = 1\n[[step]]\nid = "a"\nask = {}')) >= 4


def test_the_fingerprint_is_what_a_step_does() -> None:
    """A title and a time limit are words for people and machines; everything else makes another step."""
    first = plan(TELL).steps[0].fingerprint
    assert plan(TELL + 'title = "Tell them"\ntimeout = "1h"\n').steps[0].fingerprint == first
    for change in ('inputs = ["a"]', 'check = ["true"]'):
        assert plan(TELL + change).steps[0].fingerprint != first
    assert plan(TELL.replace("notify", "tell")).steps[0].fingerprint != first
    assert plan(TELL.replace("repeatable = false", "")).steps[0].fingerprint != first


def test_other_braces_are_ordinary() -> None:
    """Commands and bodies are full of them."""
    found = plan('[[step]]\nid = "a"\nrun = ["sh", "${HOME}", "{}", "{x.y}"]\ntimeout = "5s"\n').steps[0]
    assert found.action == Command(("sh", "${HOME}", "{}", "{x.y}"))
    assert found.timeout == timedelta(seconds=5)
