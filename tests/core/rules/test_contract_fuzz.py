from __future__ import annotations

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.files.contract import ContractInvalid, parse
from tests.core.rules.contract_example import EXAMPLE, driven


def read(source: str) -> None:
    """Parse; every failure must be the one error that a contract file may raise, with problems that have places."""
    problems = None
    try:
        parse(source, environment={})
    except ContractInvalid as invalid:
        problems = invalid.problems
    if problems is not None:
        assert problems
        assert all(problem.line is not None and problem.line >= 1 for problem in problems)


@given(st.text(max_size=200))
def test_any_text_is_a_contract_or_a_list_of_problems(source: str) -> None:
    """A file that somebody dropped into the folder must not end the process in a traceback."""
    read(source)


_MARKS = ['"', "'", '"""', "'''", *"[]{}.,=\n#\\\x00\ré", "[[", "]]", "\ud800", "\U0001f600"]
_BITS = ["-1", "0", "1e9", "nan", "true", "2026-11-29", "2026-11-29T00:00:00Z", "[1, [2]]", "{ a = 1 }"]
_TEXTS = ["none", "/a", "~", "{job_id}", "${X}", "30s", "body.x", "body.a.exists(i, i)", "header:x|(", "list"]
_NAMES = ["name", "create", "status", "states", "result", "cancel", "idempotency", "when"]
WORDS = [*_MARKS, *_BITS, *_TEXTS, *(f'"{text}"' for text in _TEXTS), *_NAMES]


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_any_damage_to_a_contract_is_survived(seed: int, cuts: int) -> None:
    """Half-saved and merged files: lines lost, doubled, moved, and pieces of TOML in the wrong places."""
    chance = random.Random(seed)
    lines = EXAMPLE.splitlines()
    for _ in range(cuts):
        at = chance.randrange(len(lines))
        how = chance.randrange(5)
        if how == 0:
            del lines[at]
        elif how == 1:
            lines.insert(chance.randrange(len(lines)), lines[at])
        elif how == 2:
            lines[at] = f"{lines[at].partition('=')[0]}= {chance.choice(WORDS)}"
        elif how == 3:
            spot = chance.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:spot] + chance.choice(WORDS) + lines[at][spot:]
        else:
            lines[at], lines[-1] = lines[-1], lines[at]
    read("\n".join(lines))


_KEYS = st.sampled_from(sorted({*re.findall(r"(?m)^([a-z_]+) = ", EXAMPLE), *_NAMES, "rules", "x y"}))
_ATOMS = st.booleans() | st.integers(-5, 10**6) | st.floats() | st.sampled_from(["", "a\nb", *_TEXTS])
_VALUES = st.recursive(
    _ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=8
)


def toml(value: object) -> str:
    """Write a value as TOML, tables inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {toml(item)}' for key, item in value.items()) + " }"
    return str(value)


@given(st.dictionaries(_KEYS, _VALUES, max_size=8))
def test_any_value_may_stand_at_any_key(document: dict[str, object]) -> None:
    """Every key can hold every type in a file that a person or a program wrote; none may surprise the reader."""
    read("\n".join(f'"{key}" = {toml(value)}' for key, value in document.items()))


@given(st.sampled_from(sorted(set(re.findall(r"(?m)^([a-z_]+) = ", EXAMPLE)))), _VALUES)
def test_any_value_may_stand_in_a_whole_contract(key: str, value: object) -> None:
    """The checks that compare keys with each other must live with whatever the rest of the file says."""
    read(re.sub(rf"(?m)^{key} = .*$", lambda _: f"{key} = {toml(value)}", driven()))
