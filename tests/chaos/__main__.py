"""``python -m tests.chaos [--seconds 60] [--seed N] [--database sqlite|postgresql] [--long]``; exit 1: a violation."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from types import FrameType
from typing import Any, Final

from tests.chaos.planted import PLANTS
from tests.chaos.run import run
from tests.chaos.schedule import LONG, Plan

ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _told_to_end(number: int, frame: FrameType | None) -> None:
    for one in ENDS:
        signal.signal(one, signal.SIG_IGN)  # what was started is stopped first, however impatient anybody is
    sys.exit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    """Run, print the counters and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long blows fall (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--long", action="store_true", help="an hour")
    parser.add_argument("--skew", type=float, default=0.0, help="seconds by which workers' clocks are wrong")
    parser.add_argument("--deadline", help="of creates and results (60s): with it end the jobs that nothing else ends")
    parser.add_argument("--planted", choices=PLANTS, help="a fault in the product, to see that it is found")
    parser.add_argument("--keep", action="store_true", help="keep the folder with ledger, logs and export")
    given = parser.parse_args(arguments)
    for one in ENDS:
        signal.signal(one, _told_to_end)
    plan = Plan(seed=given.seed, database=given.database, skew=given.skew, planted=given.planted)
    longer: dict[str, Any] = LONG if given.long else {}
    plan = replace(plan, **longer)
    if given.seconds is not None:
        plan = replace(plan, seconds=given.seconds)
    if given.deadline is not None:
        plan = replace(plan, deadline=given.deadline)
    print(f"chaos on {plan.database}, seed {plan.seed}, {plan.seconds:g} s")
    outcome = run(plan, keep=given.keep)
    again = f"python -m tests.chaos --seconds {plan.seconds:g} --seed {plan.seed} --database {plan.database}"
    again += f"{' --long' if given.long else ''}{f' --skew {plan.skew:g}' if plan.skew else ''}"
    again += f" --deadline {plan.deadline}" if given.deadline else ""
    for line in outcome.wrong:
        print(f"seed {plan.seed}: {' '.join(line.split())}  ({again})")
    print("\n".join(outcome.lines()))
    missed = outcome.missed() if plan.planted is None else []
    for line in missed:
        print(f"seed {plan.seed}: not reached, {line}  ({again})")
    if outcome.wrong or given.keep:
        print(f"kept: {outcome.folder}")
    print(f"{len(outcome.wrong)} violations")
    return 1 if outcome.wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
