"""A short run of the chaos, and faults that it must find."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.planted import PLANTS
from tests.chaos.run import REACHED, Outcome, run
from tests.chaos.schedule import Plan, draw

pytestmark = pytest.mark.processes

by_luck = pytest.mark.skipif(
    not os.environ.get("CHAOS"), reason="real time and luck: `make chaos` does it for a minute; CHAOS=1 does it here"
)
QUICK = Plan(deadline="15s", quick=True, longest=3.0)


def test_a_plan_is_drawn_from_its_seed() -> None:
    """The same blows for the same seed, others for another; on a server the database is struck, too."""
    assert draw(Plan(seed=4)) == draw(Plan(seed=4)) != draw(Plan(seed=5))
    kinds = {blow.what for blow in draw(Plan(seed=4, database="postgresql"))}
    assert kinds == {"kill", "pause", "terminate", "restart", "crash", "deafen", "revoke"}


def test_a_run_that_met_less_than_its_share_is_red() -> None:
    """A minute must have met everything, and a third of one a third: what comes once a minute may be lacking."""
    outcome = Outcome(Plan(seconds=60))
    assert {line.rpartition(":")[0] for line in outcome.missed()} == set(REACHED)
    outcome.counts.update(REACHED)
    assert outcome.missed() == []
    third = Outcome(Plan(seconds=20), counts=Counter({"kills": 1, "pauses": 1, "wire: jobs started": 5}))
    assert [line.rpartition(":")[0] for line in third.missed()] == [
        "leases taken over", "calls that nobody answers for", "wire: jobs started",
    ]  # fmt: skip


@by_luck
def test_killed_and_stopped_at_random() -> None:
    """Nothing is broken and all comes to an end, however often workers die and stand still meanwhile."""
    outcome = run(replace(QUICK, seconds=10, seed=11, rate=4, kills=0.8, lease=2.0, orders=30))
    assert outcome.wrong == []
    counts = outcome.counts
    assert counts["kills"] >= 3
    assert counts["pauses"] >= 1
    assert counts["operations"] == counts["orders"] >= 30
    assert counts["leases taken over"] >= 3
    assert counts["wire: jobs started"] >= 15
    assert outcome.states["succeeded"] >= 8


@by_luck
@pytest.mark.parametrize("planted", PLANTS)
def test_a_fault_in_the_product_is_found(planted: str) -> None:
    """A worker that does what no worker may."""
    outcome = run(replace(QUICK, seconds=0.1, seed=2, orders=6, only="lossy", kills=1e6, pauses=1e6, planted=planted))
    assert {line.split()[0] for line in outcome.wrong} & {"I5", "I7", "I16"}
    assert outcome.folder is not None
    shutil.rmtree(outcome.folder)
