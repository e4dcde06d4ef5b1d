"""``python -m tests.disk faults|power``: a disk that fails, and one that loses power.

``--long`` takes all stories; ``--only NAME`` takes one; ``--seed N`` chooses points and mixtures; ``--jobs N`` works on
several at once. A violation prints one line and the command that repeats it, and makes the exit code 1. Exit code 77
where the SQLite of this Python cannot be reached from outside.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.disk import programme
from tests.disk.stories import STORIES
from tests.disk.vfs import Unreachable, library
from tests.support.asking import at_least_one, known

SKIPPED = 77


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.disk", description=__doc__)
    parser.add_argument("what", choices=("faults", "power"))
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=at_least_one, default=os.cpu_count() or 1)
    parser.add_argument("--images", type=int, help="power: stop after so many (2,000; with --long 100,000)")
    parser.add_argument("--points", type=int, help="faults: points of each story and kind (2; with --long all)")
    parser.add_argument("--at", type=int, help="power: only this point of the trace; faults: only the Nth call")
    parser.add_argument("--kind", default="", help="faults: only this kind")
    parser.add_argument(
        "--calls", default="", help="faults: the Nth call of each of these, or the first: 'database sync,files write'"
    )
    parser.add_argument("--trace", type=Path, help="power: a trace that a violation left")
    parser.add_argument("--break", dest="broken", default="", help="damage the product in memory first")
    asked = parser.parse_args()
    known(parser, asked.only, STORIES)
    try:
        library()
    except Unreachable as error:
        print(f"skipped: {error}")
        return SKIPPED
    run = programme.power if asked.what == "power" else programme.faults
    return run(asked)


if __name__ == "__main__":
    sys.exit(main())
