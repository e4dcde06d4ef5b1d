"""``python -m tests.planted``: plant every bug in the product, and see what it costs until a harness finds it.

Each is looked for by the cheapest harness that is named for it; ``--every`` asks all of those. ``--only WORDS`` takes
the bugs with these words in their name, ``--harness NAME`` one harness, ``--seconds N`` of CPU for each look at most.
Exit 1 where a bug stays unfound.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median

from tests.planted import tampers
from tests.planted.bug import BUDGET, Bug, Look, hunt
from tests.planted.bugs import BUGS
from tests.simulation.world import forget_template


def main() -> int:
    """Look for what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS")
    parser.add_argument("--harness", default="", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=BUDGET, metavar="N")
    parser.add_argument("--every", action="store_true", help="by all harnesses that should find it")
    parser.add_argument("--list", action="store_true", help="name the bugs, and who should find them")
    asked = parser.parse_args()
    wanted = [(bug, look) for bug in BUGS if asked.only in bug.name for look in _looks(bug, asked)]
    if not wanted:
        parser.error("there is no such bug, or that harness is not named for it; see --list")
    if asked.list:
        for bug in dict.fromkeys(bug for bug, _ in wanted):
            print(f"{bug.issue:4} {bug.name}: {', '.join(look.harness for look in bug.looks)}")
        return 0
    try:
        return _hunted(wanted, asked.seconds)
    finally:
        forget_template()
        tampers.forget_template()


def _looks(bug: Bug, asked: argparse.Namespace) -> tuple[Look, ...]:
    looks = tuple(look for look in bug.looks if asked.harness in ("", look.harness))
    return looks if asked.every else looks[:1]


def _hunted(wanted: list[tuple[Bug, Look]], seconds: float) -> int:
    costs: list[tuple[float, str]] = []
    missed: list[str] = []
    for bug, look in wanted:
        found = hunt(bug, look, seconds)
        words = "not found" if found.what is None else "found"
        issue = f" [{bug.issue}]" if bug.issue else ""
        print(
            f"{words:9} {found.seconds:7.1f} CPU s  {look.harness:10} {bug.name}{issue}: {found.where}: "
            f"{(found.what or 'nobody noticed')[:150]}",
            flush=True,
        )
        if found.what is None:
            missed.append(f"{bug.name} ({look.harness}); repeat: python -m tests.planted --only '{bug.name}'")
        else:
            costs.append((found.seconds, bug.name))
    if costs:
        worst = max(costs)
        print(
            f"{len(costs)} of {len(wanted)} looks found their bug ({len({bug.name for bug, _ in wanted})} bugs): "
            f"median {median(cost for cost, _ in costs):.1f} CPU s, worst {worst[0]:.1f} CPU s ({worst[1]}), "
            f"{sum(cost for cost, _ in costs):.0f} CPU s in all"
        )
    for one in missed:
        print(f"NOT FOUND {one}")
    return min(len(missed), 1)


if __name__ == "__main__":
    sys.exit(main())
