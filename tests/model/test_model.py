"""The short form: every small world some steps deep, and every broken design whose harm is near.

``make model`` goes on from here: a million worlds of each scenario, and the designs with long traces.
"""

from __future__ import annotations

import pytest

from opledger.rules.states import TRANSITIONS
from tests.model.designs import DESIGNS, Design, run
from tests.model.scenarios import SCENARIOS, Scenario
from tests.model.search import explore
from tests.model.world import Model

STATES = 6_000  #: of each scenario
NEAR = [design for design in DESIGNS if not design.slow]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda one: one.name)
def test_all_laws_hold_in_every_small_world(scenario: Scenario) -> None:
    found = explore(Model(scenario), states=STATES)
    assert found.broken is None, "\n".join([found.broken or "", *found.trace])
    assert found.whole or found.states >= STATES


@pytest.mark.parametrize("design", NEAR, ids=lambda one: one.name)
def test_a_broken_design_is_caught(design: Design) -> None:
    found = run(design, states=60_000)
    assert found.broken is not None, f"{found.states} worlds, and nobody noticed that {design.name}"
    assert found.trace


def test_there_are_enough_broken_designs() -> None:
    assert len({design.name for design in DESIGNS}) == len(DESIGNS) >= 40


def test_patches_are_taken_back() -> None:
    # In their order too: the README's diagram is printed in it, in whichever test comes next.
    before = {state: list(row) for state, row in TRANSITIONS.items()}
    for design in DESIGNS:
        with design.patch():
            pass
    assert {state: list(row) for state, row in TRANSITIONS.items()} == before
    for design in NEAR[:3] + NEAR[-3:]:
        run(design, states=500)
    assert explore(Model(SCENARIOS["resend"]), states=500).broken is None


def test_the_same_search_finds_the_same() -> None:
    twice = [explore(Model(SCENARIOS["both"]), states=2_000) for _ in range(2)]
    assert len({(found.states, found.depth, found.records) for found in twice}) == 1
