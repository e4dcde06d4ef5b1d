from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from opledger.rules.contract import ContractProblem
from opledger.rules.files.contract import ContractInvalid, parse
from tests.core.rules.contract_example import EXAMPLE

GOOD = """\
name = "jobs"
base_url = "https://api.example.com"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
succeeded = ["done"]
failed = ["failed"]
"""
HERE = "#!"


@dataclass(frozen=True)
class Bad:
    """One block of contract_bad.txt."""

    key: str
    word: str
    source: str

    @property
    def line(self) -> int:
        """The line that must be named."""
        (found,) = [number for number, text in enumerate(self.source.splitlines(), 1) if text.endswith(HERE)]
        return found


def block(text: str) -> Bad:
    """Read one block: a heading, and what it changes in GOOD."""
    heading, *changes = text.strip("\n").split("\n")
    key, _, word = heading.partition(" | ")
    lines = GOOD.splitlines()
    at, top = len(lines), 0
    for change in changes:
        sign, rest = change[0], change[1:]
        if sign == "-":
            at = lines.index(rest)
            del lines[at]
        elif sign == "@":
            at = lines.index(rest) + 1
        elif sign == "^":
            lines.insert(top, rest)
            top += 1
        else:
            assert sign in "+>"
            at = len(lines) if sign == ">" else at
            lines.insert(at, rest)
            at += 1
    return Bad("" if key == "-" else key, word, "\n".join(lines) + "\n")


_TEXT = (Path(__file__).parent / "contract_bad.txt").read_text(encoding="utf-8")
CASES = [block(text) for text in _TEXT.split("\n### ")[1:]]


def problems(source: str, **environment: str) -> tuple[ContractProblem, ...]:
    """Everything that is wrong with a contract."""
    with pytest.raises(ContractInvalid) as caught:
        parse(source, name_hint="jobs.toml", environment=environment)
    return caught.value.problems


def test_the_contract_that_the_mistakes_are_made_in_is_good() -> None:
    """Without this, a mistake in the frame would hide behind every expected one."""
    assert parse(GOOD, environment={}).name == "jobs"
    assert len(CASES) > 150


@pytest.mark.parametrize("bad", CASES, ids=[f"{bad.key or 'file'}: {bad.word}" for bad in CASES])
def test_a_mistake_is_reported_alone_under_its_key_and_line(bad: Bad) -> None:
    """Whoever repairs a file needs the place, and no string of follow-up errors that vanish with the first."""
    (problem,) = problems(bad.source)
    assert (problem.key, problem.line) == (bad.key, bad.line)
    assert bad.word in problem.message


STEPS = """\
[[create.steps]]
name = "upload"
method = "POST"
path = "/files"
body = "raw"
query = { a = "b" }
success = [200]
timeout = "30s"
repeat_safe = true
effect = "starts_work"
[create.steps.headers]
X-A = "1"
[create.steps.fields]
"/a" = "b"
[create.steps.capture]
file = "/id"
"""
WHOLE = EXAMPLE + STEPS
OPEN = re.compile(r"\[(?:.*\.)?(?:var|headers|secrets|fields|capture)\]")  # the keys of these are names
HEADERS = [n for n, text in enumerate(WHOLE.splitlines(), 1) if text.startswith("[") and not OPEN.match(text)]
LEAVES = [
    number for number, text in enumerate(WHOLE.splitlines(), 1) if re.match(r"[a-z_\"/-]+ = ", text, re.IGNORECASE)
]


@pytest.mark.parametrize("line", HEADERS)
def test_a_key_that_no_table_knows_is_found_in_every_table(line: int) -> None:
    """A typo must not pass anywhere, not even where this version only reads along."""
    lines = WHOLE.splitlines()
    lines.insert(line, "zzz = 1")
    found = [problem for problem in problems("\n".join(lines)) if problem.key.endswith(".zzz")]
    assert [(problem.line, problem.message) for problem in found] == [(line + 1, "is not a key that is known here")]


@pytest.mark.parametrize("line", LEAVES)
def test_a_value_of_the_wrong_type_is_found_at_every_key(line: int) -> None:
    """No key of the format takes a moment in time, so each must refuse one, on its line."""
    lines = WHOLE.splitlines()
    key = lines[line - 1].partition(" = ")[0].strip('"')
    lines[line - 1] = f"{lines[line - 1].partition(' = ')[0]} = 2026-11-29T10:00:00Z"
    found = [problem for problem in problems("\n".join(lines)) if problem.line == line]
    assert any(key in problem.key and "must" in problem.message for problem in found)


NEEDED = [
    ("create.steps[0].name", STEPS.replace('name = "upload"\n', "")),
    ("create.steps[0].method", STEPS.replace('method = "POST"\n', "")),
    ("create.steps[0].path", STEPS.replace('path = "/files"\n', "")),
    ("resume.method", '[resume]\npath = "/{job_id}"\n'),
    ("resume.path", '[resume]\nmethod = "POST"\n'),
    ("cancel.method", '[cancel]\npath = "/{job_id}"\n'),
    ("status.rules[0].means", "[[status.rules]]\nwhen = 'true'\n"),
    ("result.also[0].url", '[result]\nurl = "/u"\nalso = [{ name = "x" }]\n'),
    ("result.items.id", '[result]\nurl = "/u"\n[result.items]\n'),
    ("webhook.scheme", "[webhook]\n"),
    ("webhook.secret", '[webhook]\nscheme = "standard"\n'),
    ("webhook.signed", '[webhook]\nscheme = "hmac"\nsecret = "env:S"\nsignature = "header:x"\n'),
    ("auth.token_url", '[auth]\nkind = "oauth2_client_credentials"\nsecret = "env:S"\nclient_id = "a"\n'),
]


@pytest.mark.parametrize(("key", "more"), NEEDED)
def test_a_key_that_is_needed_is_missed_in_every_table(key: str, more: str) -> None:
    """Also where this version only reads along: the file must be right on the day it can be driven."""
    found = {problem.key: problem.message for problem in problems(GOOD + more)}
    assert "is missing" in found[key]


def test_all_mistakes_are_reported_at_once_and_in_the_order_of_the_file() -> None:
    """A file is repaired in one go, not in as many runs as it has mistakes."""
    source = GOOD.replace('"POST"', '"GET"').replace('"/state"', '"state"') + "[limits]\nrate = 5\nspeed = 1\n"
    found = problems(source)
    assert [problem.key for problem in found] == ["create.method", "status.state", "limits.rate", "limits.speed"]
    assert [problem.line for problem in found] == [4, 9, 14, 15]
    beside = problems("deadlines = { create = 1, result = 1, cancel = 1 }\n" + GOOD)
    assert [problem.key for problem in beside] == ["deadlines.cancel", "deadlines.create", "deadlines.result"]


def test_the_message_names_file_line_and_key_of_the_first_mistake() -> None:
    """The one sentence on standard error must be enough to find the place."""
    with pytest.raises(ContractInvalid) as caught:
        parse(GOOD.replace('"POST"', '"GET"') + "x = 1\n", name_hint="jobs.toml", environment={})
    assert str(caught.value).startswith(
        "jobs.toml is not a contract that can be used; line 4, create.method: must be one of"
    )
    assert str(caught.value).endswith("(and 1 more)")


@pytest.mark.parametrize("nested", ["[" * 5000, "[" * 90 + "]" * 90])
def test_deep_nesting_is_a_problem_and_no_crash(nested: str) -> None:
    """A hostile or broken file must not end the process with a RecursionError."""
    found = problems(f"{GOOD}[var]\nx = {nested}\n")
    assert found[0].key in ("", "var.x")
    assert any(word in found[0].message for word in ("nested too deeply", "not TOML", "not a list"))


def test_numbers_beyond_reading_are_a_problem() -> None:
    """Python refuses to read integers of more than 4,300 digits, with a plain ValueError."""
    (found,) = problems("name = " + "9" * 5000)
    assert "not TOML" in found.message


def test_bytes_that_are_no_text_are_found_on_their_line() -> None:
    """Files are read with surrogates for such bytes, and none of them may reach a hash or a database."""
    for source in ('name = "a"\ntitle = "\udcff"\n', '\ntitle = "\udcff"\n'):
        (found,) = problems(source)
        assert (found.line, found.message) == (2, "the file is not valid UTF-8")


def test_what_is_missing_at_the_end_is_missed_there() -> None:
    """The last line is named, and not the one that began it."""
    (found,) = problems("name = [\n1,\n")
    assert (found.line, found.message[-23:]) == (3, " at the end of the file")


def test_a_huge_file_is_refused_before_it_is_read() -> None:
    """A contract is a page or two; megabytes are a mistake or an attack."""
    (found,) = problems("# x\n" * 100_000)
    assert "longer than 262144 characters" in found.message
    assert parse(GOOD.ljust(262_144, "\n"), environment={}).name == "jobs"
    (found,) = problems(GOOD.ljust(262_145, "\n"))
    assert "longer than" in found.message


def test_what_may_be_a_secret_is_never_repeated_in_a_message() -> None:
    """People paste keys into the wrong place; error messages end up in logs and tickets."""
    source = GOOD.replace("https://", "https://me:hunter2@") + (
        '[auth]\nkind = "bearer"\nsecret = "hunter2"\n[secrets]\nkey = "hunter2"\n[headers]\nCookie = "hunter2"\n'
    )
    found = problems(source)
    assert len(found) == 4
    assert not any("hunter2" in str(problem) for problem in found)


@pytest.mark.parametrize("value", ["x\r\nY: z", "x\x00", "\udcff"])
def test_an_environment_value_with_control_characters_is_refused(value: str) -> None:
    """What comes from the environment ends up in URLs and headers."""
    (found,) = problems(GOOD + '[var]\na = "${A}"\n', A=value)
    assert (found.key, found.line) == ("var.a", 14)


def test_an_empty_environment_variable_counts_as_not_set() -> None:
    """As in the shell's ${NAME:-default}, so that an exported empty variable does not make an empty host."""
    (found,) = problems(GOOD.replace("https://api.example.com", "${JOBS_URL}"), JOBS_URL="")
    assert "JOBS_URL" in found.message
