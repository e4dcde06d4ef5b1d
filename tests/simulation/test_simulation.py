"""A few seeds of the full stack, the same in every process, and bugs that they must find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opledger.rules import decide
from opledger.store import claims
from opledger.worker.hand import Hand
from tests.simulation.counts import CELLS, Counts, arrows
from tests.simulation.faults import WITHOUT_LATER
from tests.simulation.planted import BUGS, Bug, planted
from tests.simulation.run import EVERYTHING, run

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(2)
BROKE = (433, 651, 749, 1251, 1350, 2196, 9385, 10432)  #: seeds that have found faults of the product, or of the judge
BROKE_SINCE = (13330, 16903, 30791, 31364)  #: with the faults that were added later
_DIGESTS = "from tests.simulation.run import run; print([run(seed, operations=4).digest for seed in (3, 4)])"


def test_no_seed_breaks_an_invariant() -> None:
    counts = Counts()
    for seed in SEEDS:
        outcome = run(seed)
        assert not outcome.problems, [f"seed {seed}: {one.number}: {one.words}" for one in outcome.problems]
        counts.add(outcome)
    assert counts.operations == 20 * len(SEEDS)
    assert counts.total > 30 * counts.operations
    assert len(counts.states) >= 5
    assert len(counts.faults) >= 3


@pytest.mark.parametrize("seed", [*BROKE, *BROKE_SINCE])
def test_what_was_found_once_is_not_found_again(seed: int) -> None:
    """A resend that gave way too early; twice a clock set ahead; a second job behind a deadline."""
    assert not run(seed, focus=WITHOUT_LATER if seed in BROKE else EVERYTHING).problems


def test_the_same_seed_is_the_same_in_every_process() -> None:
    """Three processes, three orders of hashes, one trace."""
    told = set()
    for hashes in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", _DIGESTS]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        told.add(done.stdout)
    assert len(told) == 1


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.quick], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    found = planted(bug.patch, first=bug.first, seeds=4, operations=10, focus=bug.focus)
    assert found.problem is not None
    assert found.numbers & bug.breaks, f"found as {sorted(found.numbers)}: {found.problem.words}"


def test_what_was_planted_is_taken_back() -> None:
    before = (Hand.permitted, Hand.send, decide.may_resend, claims.expired)
    for bug in BUGS:
        with bug.patch():
            pass
    assert (Hand.permitted, Hand.send, decide.may_resend, claims.expired) == before


def test_what_was_not_reached_is_told() -> None:
    """A run that tried nothing is red: every arrow, every cell and every fault is missing."""
    missed = Counts().missed(least=1)
    assert len(missed) > len(arrows()) + sum(map(len, CELLS.values()))
