"""``python -m tests.checker EXPORT LOG [--contract FILE]… [--idle]``: judge a history against the provider's log.

Exit code 0: nothing found; 1: findings, one line each; 2: a paper cannot be read. ``--good N`` instead makes N honest
histories and judges them all, from ``--seed``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.checker.judging import UNSEEN, check
from tests.checker.papers import read_facts


def main(arguments: list[str] | None = None) -> int:
    """Judge, print and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("export", nargs="?", type=Path, help="what `opledger audit export` wrote")
    parser.add_argument("log", nargs="?", type=Path, help="the provider's log, as JSON lines")
    parser.add_argument("--contract", action="append", default=[], type=Path, help="a contract file, for its promises")
    parser.add_argument("--idle", action="store_true", help="workers ran until there was nothing left to do")
    parser.add_argument("--apart", type=float, default=0.0, metavar="S", help="seconds between the two clocks, at most")
    parser.add_argument("--good", type=int, metavar="N", help="judge N honest histories that are made up")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.good is not None and given.good < 1:
        parser.error(f"{given.good} histories would judge nothing; give a number of at least 1")
    if given.good is not None:
        from tests.checker.honest import judge_many

        return judge_many(given.seed, given.good)
    if given.export is None or given.log is None:
        parser.error("give an EXPORT and a LOG, or --good N")
    try:
        facts = dict(read_facts(path.read_text()) for path in given.contract)
        with given.export.open("rb") as export, given.log.open("rb") as log:
            findings = check(export, log, facts, idle=given.idle, apart=given.apart)
    except (OSError, ValueError, KeyError) as error:
        print(f"cannot be judged: {error}", file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    counted = Counter(finding.invariant for finding in findings)
    print(f"{len(findings)} findings: {dict(sorted(counted.items()))}", file=sys.stderr)
    for invariant, why in UNSEEN.items():
        if not (invariant == "I4" and facts):
            print(f"{invariant} was not judged: {why}", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
