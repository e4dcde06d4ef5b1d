"""The judge judged: lies are seen and named, honest histories and the real stack's are believed."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.checker import paper_lies, people_lies, state_lies, wire_lies
from tests.checker.honest import findings_of, judge_many
from tests.checker.lies import TELLS, Lie, told

TOLD_IN = (paper_lies, people_lies, state_lies, wire_lies)
OWN = Path(__file__).parent
BASES = 3
"""Honest histories about which each lie is told."""


@pytest.mark.parametrize("lie", TELLS, ids=lambda lie: lie.name)
def test_a_lie_is_seen_and_named(lie: Lie) -> None:
    """One lie about otherwise honest papers: the invariant that it breaks is named."""
    for seed, export, log in told(lie, BASES):
        named = {finding.invariant for finding in findings_of(export, log)}
        assert lie.invariant in named, f"seed {seed}: {sorted(named)}"


def test_there_are_enough_lies() -> None:
    """Each about histories of its own."""
    assert len(TELLS) * BASES >= 200
    assert {lie.where for lie in TELLS} == {module.__name__ for module in TOLD_IN}


def test_honest_histories_are_believed(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten thousand random walks over the table, and no finding."""
    assert judge_many(7, 10_000) == 0
    assert "all accepted" in capsys.readouterr().out


def test_it_shares_no_code_with_what_it_judges() -> None:
    """It imports the standard library and itself, whatever the product does."""
    for path in OWN.glob("*.py"):
        if path.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                own = name == "tests.checker" or name.startswith("tests.checker.")
                assert own or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"
