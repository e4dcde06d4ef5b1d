"""``python -m tests.fuzz [TARGET …]``: inputs that nobody thought of, for everything that reads what others wrote.

``--seconds`` of CPU for each target (30), ``--long`` for ten minutes each, ``--seed``; ``--input HEX`` runs one input
and shows where it breaks. ``--keep`` writes what reached new lines, and what was found, into the corpus.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz import engine
from tests.fuzz.ground import Target, corpus, keep
from tests.fuzz.targets import TARGETS
from tests.support.asking import above_zero, nothing

LONG = 600.0
KEPT = 40
"""Most inputs of one target that the corpus holds."""


def main() -> int:
    """Fuzz; 1 where a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=above_zero, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--input", metavar="HEX")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    if unknown := [name for name in asked.target if name not in TARGETS]:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    wanted = [TARGETS[name] for name in asked.target or TARGETS]
    if asked.input is not None:
        return _one(wanted[0], b"" if asked.input == "-" else bytes.fromhex(asked.input))
    began, bad, total = time.monotonic(), 0, 0
    for target in wanted:
        report = engine.run(target, seed=asked.seed, seconds=LONG if asked.long else asked.seconds, told=_say)
        print(report.line(), flush=True)
        for finding in report.findings:
            print(finding.line(), flush=True)
        bad += len(report.findings)
        total += report.executions
        if asked.keep:
            _keep(target, report)
    if not total:
        return nothing("no input was tried in the time that was given")
    print(f"{total:,} executions of {len(wanted)} targets in {time.monotonic() - began:.0f} s, {bad} findings")
    return min(bad, 1)


def _say(report: engine.Report) -> None:
    print(f"  … {report.executions:,} executions, {len(report.kept)} new inputs", file=sys.stderr, flush=True)


def _one(target: Target, data: bytes) -> int:
    print(repr(data))
    what = engine.judge(target, data)
    print(what or "all laws hold")
    return int(what is not None)


def _keep(target: Target, report: engine.Report) -> None:
    """Keep the smallest set of inputs that reaches all that was reached, and what was found."""
    before = corpus(target.name)
    found = list(dict.fromkeys([*before["found"], *(one.data for one in report.findings)]))
    watch, kept = engine.Watch(target.paths()), []
    for data in [*target.starts, *found, *sorted([*before["kept"], *report.kept], key=len)]:
        watch.fresh = 0
        with watch.watching():
            engine.judge(target, data)
        if watch.fresh and data not in target.starts and data not in found:
            kept.append(data)
    keep(target.name, kept[:KEPT], found)


if __name__ == "__main__":
    sys.exit(main())
