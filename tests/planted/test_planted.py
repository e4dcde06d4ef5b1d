"""Ten cheap bugs, each found by its harness; all patches are taken back; and what is no bug is not found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from opledger.rules import decide, projection
from opledger.rules.states import TRANSITIONS
from tests.planted import tampers
from tests.planted.bug import Bug, Found, Look, hunt
from tests.planted.bugs import BUGS
from tests.planted.looks import seeds, states, tampering
from tests.simulation.world import forget_template

QUICK = [bug for bug in BUGS if bug.quick]
FEW = 30.0
"""Seconds of CPU for one of them; each takes one or two."""


@pytest.fixture(scope="module", autouse=True)
def _swept() -> Iterator[None]:
    yield
    tampers.forget_template()
    forget_template()


@pytest.mark.parametrize("bug", QUICK, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    found = hunt(bug, bug.looks[0], FEW)
    assert found.what is not None, f"{found.where}: nobody noticed"


def test_there_are_enough_and_one_for_every_issue() -> None:
    """Sixty, and one for each of F12 to F17 at least; ten of them here."""
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 60
    assert {f"F{number}" for number in range(12, 18)} <= {bug.issue for bug in BUGS}
    assert len(QUICK) == 10


def _product() -> dict[str, Any]:
    """Every name of every module and class of the product, and the tables in their order."""
    found: dict[str, Any] = {}
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("opledger"):
            continue
        for one, value in vars(module).items():
            found[f"{name}.{one}"] = id(value)
            if isinstance(value, type) and value.__module__.startswith("opledger"):
                found |= {f"{name}.{one}.{own}": id(thing) for own, thing in vars(value).items()}
    found["transitions"] = [(state, [*row.items()]) for state, row in TRANSITIONS.items()]
    found["deciders"], found["handlers"] = [*decide._DECIDERS.items()], [*projection._HANDLERS.items()]
    return found


def test_patches_change_the_product_and_are_taken_back() -> None:
    """Exactly: what another test finds is what was there, in its order."""
    before = _product()
    for bug in BUGS:
        with bug.patch():
            assert (_product() == before) is (bug.patch is nullcontext), bug.name
    after = _product()
    assert after == before, [name for name in before if before[name] != after.get(name)]


@pytest.mark.parametrize(
    "look", [seeds(operations=4), states("approval", most=2_000), tampering()], ids=lambda look: look.harness
)
def test_a_product_without_a_bug_is_not_blamed(look: Look) -> None:
    found = look.search(nullcontext, 1.0)
    assert found.what is None, found


def test_what_shows_as_something_else_is_no_proof() -> None:
    """A patch that breaks the product everywhere proves nothing about the law that it is to break."""

    def search(*_: Any) -> Found:
        return Found("I21: it hangs", "seed 0", 0.1, frozenset({"I21"}))

    look = Look("simulation", search, ("I4",))
    assert hunt(Bug("any", (look,)), look).what is None
    assert hunt(Bug("any", (look,)), Look("simulation", search, ("I21",))).what is not None
