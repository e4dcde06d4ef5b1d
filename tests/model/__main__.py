"""``python -m tests.model``: every order of events in small worlds, and broken designs that must be caught.

``--depth N`` bounds the steps, ``--states N`` the worlds of each scenario, ``--only NAME`` takes one scenario or
design, ``--designs`` runs only the broken designs and ``--worlds`` only the scenarios.
"""

from __future__ import annotations

import argparse
import sys

from tests.model.designs import DESIGNS, run
from tests.model.scenarios import SCENARIOS
from tests.model.search import explore
from tests.model.world import Model
from tests.support.asking import at_least_one, known


def main() -> int:
    """Run what was asked for; 1 where a law was broken or a broken design was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--depth", type=at_least_one, default=10_000)
    parser.add_argument("--states", type=at_least_one, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--designs", action="store_true")
    parser.add_argument("--worlds", action="store_true")
    asked = parser.parse_args()
    designs = [] if asked.worlds else [name for design in DESIGNS for name in (design.scenario, design.name)]
    known(parser, asked.only, [*([] if asked.designs else SCENARIOS), *designs])
    bad = 0
    if not asked.designs:
        bad += _worlds(asked.only, asked.depth, asked.states)
    if not asked.worlds:
        bad += _designs(asked.only, asked.states)
    return min(bad, 1)


def _designs(only: str, states: int) -> int:
    """Search each broken design for harm and print the shortest way to it."""
    missed, wanted = 0, [design for design in DESIGNS if not only or only in (design.name, design.scenario)]
    for number, design in enumerate(wanted, 1):
        found = run(design, states=states)
        verdict = f"{len(found.trace):>2} steps" if found.broken else "MISSED  "
        print(
            f"{number:>3} {verdict} {found.states:>8,} states {design.scenario:9}{design.name}: {found.broken}",
            flush=True,
        )
        for line in found.trace if only else ():
            print(f"             {line}")
        missed += found.broken is None
    if wanted:
        print(f"{len(wanted) - missed} of {len(wanted)} broken designs were caught")
    return missed


def _worlds(only: str, depth: int, states: int) -> int:
    bad = 0
    for scenario in SCENARIOS.values():
        if only and scenario.name != only:
            continue
        found = explore(Model(scenario), depth=depth, states=states)
        rate = found.states / max(found.seconds, 0.001)
        extent = "all" if found.whole else "first"
        print(
            f"{scenario.name:10} {extent:5} {found.states:>9,} states, {found.records:>6,} records, "
            f"depth {found.depth:>3}, {found.seconds:6.1f} CPU s, {rate:8,.0f}/s  {found.broken or 'all laws hold'}",
            flush=True,
        )
        for number, line in enumerate(found.trace, 1):
            print(f"    {number:>3} {line}")
        bad += found.broken is not None
    return bad


if __name__ == "__main__":
    sys.exit(main())
