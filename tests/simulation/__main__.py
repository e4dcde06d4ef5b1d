"""``python -m tests.simulation``: many seeds of the full stack, judged; ``replay SEED`` prints one of them.

``--seeds N`` and ``--from SEED`` say which, ``--long`` takes as many as bring a million operations, ``--jobs N`` works
in so many processes. With ``--state FILE`` a run can be ended by Ctrl-C or SIGTERM (exit 130, 143) and goes on when the
same command is given again. Exit 1 where an invariant was broken, or where something was to be reached and was not.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from tests.simulation import longform
from tests.simulation.counts import Counts
from tests.simulation.run import OPERATIONS, run
from tests.simulation.world import Outcome, forget_template, template, use_template
from tests.support.asking import at_least_one

SHORT: Final = 500
LONG: Final = 1_000_000 // OPERATIONS
LEAST: Final = {False: 1, True: 100}
"""How often each cell must have been hit: in the short form, and in the long one."""


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=at_least_one)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--jobs", type=at_least_one, default=2)
    parser.add_argument("--partial", action="store_true", help="do not ask for what only many seeds reach")
    parser.add_argument("--state", type=Path, help="keep there what was reached, and go on from it")
    parser.add_argument("what", nargs="*", help="replay SEED")
    asked = parser.parse_args()
    if asked.what:
        return replay(int(asked.what[-1])) if asked.what[0] == "replay" else parser.error("replay SEED")
    seeds = asked.seeds or (LONG if asked.long else SHORT)
    if asked.state is not None:
        return keep_on(asked, seeds)
    counts, began = Counts(), time.monotonic()
    for outcome in outcomes(range(asked.first, asked.first + seeds), asked.jobs):
        counts.add(outcome)
        for one in outcome.problems[:5]:
            print(
                f"seed {outcome.seed}: {one.number}: {one.words}   (python -m tests.simulation replay {outcome.seed})"
            )
        if counts.seeds % 50 == 0:
            print(f"  {counts.seeds} seeds, {counts.operations:,} operations, {counts.problems} broken", flush=True)
    print(f"{time.monotonic() - began:.0f} s by the clock on the wall")
    return told(counts, counts.problems, asked)


def told(counts: Counts, problems: int, asked: argparse.Namespace) -> int:
    """Say what was reached, and whether that is well."""
    for line in counts.lines():
        print(line)
    missed = [] if asked.partial else counts.missed(least=LEAST[asked.long])
    for name in missed:
        print(f"never reached: {name}")
    print(f"{problems} violations" + (f", {len(missed)} things never reached" if missed else ""))
    return 1 if problems or missed else 0


def keep_on(asked: argparse.Namespace, seeds: int) -> int:
    """Go on with what a file says, until it is through or somebody wants it to end."""
    try:
        state = longform.read(asked.state, asked.first)
    except longform.StateWrong as error:
        print(error, file=sys.stderr)
        return 2
    ended = longform.go_on(
        asked.state, state, seeds, lambda which: outcomes(which, asked.jobs), now=longform.revision()
    )
    for line in state.lines():
        print(line)
    if ended is not None:
        print(f"ended by signal {ended} after {state.done:,} seeds; the same command goes on")
        return 128 + ended
    return told(state.total(), len(state.open), asked)


def outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    """Run the seeds, in this process or in several."""
    try:
        if jobs < 2:
            yield from map(run, seeds)
            return
        how: dict[str, Any] = {
            "mp_context": get_context("spawn"),
            "initializer": use_template,
            "initargs": (str(template()),),
        }
        with ProcessPoolExecutor(jobs, **how) as pool:
            # What asks for an end reaches the whole group: this process acts on it, and those that begin here inherit
            # that they don't.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            try:
                found = pool.map(run, seeds, chunksize=4)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            yield from found
    finally:
        forget_template()


def replay(seed: int) -> int:
    """Print everything that happens under a seed."""
    outcome = run(seed, keep=True)
    forget_template()
    for line in outcome.lines:
        print(line)
    print(f"trace {outcome.digest}, {outcome.steps.total} steps, {outcome.seconds:.2f} CPU s")
    for one in outcome.problems:
        print(f"BROKEN {one.number}: {one.words}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
