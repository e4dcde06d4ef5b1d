"""``python -m tests.crashes``: tell the stories, each time with another death, on all processors.

Without options the ten core stories at every point; with ``--long`` all of them, and all pairs on the core stories. A
pair is a death, and another one in the recovery from it; of two neighbouring points between which nothing outside was
touched only one is taken, unless ``--every-pair`` is given. Exit code 1: something is wrong, or was not reached.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from tests.crashes.broken import BROKEN
from tests.crashes.lane import Place
from tests.crashes.report import Run, prove
from tests.crashes.stories import STORIES
from tests.support.asking import at_least_one


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; returns the exit code."""
    asked = _parse(arguments)
    if asked.list:
        print("\n".join(f"{story.name}{' (core)' if story.core else ''}" for story in STORIES.values()))
        return 0
    wanted = asked.only or [story.name for story in STORIES.values() if story.core or asked.long]
    unknown = sorted(set(wanted) - set(STORIES))
    if unknown:
        print(f"there is no story {unknown[0]!r}; --list names them", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the lanes clean up behind themselves
    if asked.prove:
        return prove(asked.jobs)
    stories = [STORIES[name] for name in wanted]
    run = Run(stories, asked.jobs, every=asked.every, every_pair=asked.every_pair, broken=asked.broken)
    if asked.at is not None:
        return run.once(_places(asked.at))
    return run.all(pairs=asked.pairs or asked.long or asked.every_pair, chosen=bool(asked.only))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this story; may be repeated")
    parser.add_argument("--long", action="store_true", help="all stories, and all pairs on the core stories")
    parser.add_argument("--pairs", action="store_true", help="pairs, too: on the core stories, or on those of --only")
    parser.add_argument("--every-pair", action="store_true", help="also of points between which nothing happens")
    parser.add_argument("--every", type=at_least_one, default=1, metavar="N", help="only every Nth point: a sample")
    parser.add_argument("--at", metavar="PLACES", help="die at this point (number or name), or at these: 7,12")
    parser.add_argument("--broken", choices=sorted(BROKEN), help="plant a fault first")
    parser.add_argument("--prove", action="store_true", help="plant every fault, and see that it is found")
    parser.add_argument(
        "--jobs", type=at_least_one, default=len(os.sched_getaffinity(0)), metavar="N", help="lanes at a time"
    )
    parser.add_argument("--list", action="store_true", help="name the stories")
    return parser.parse_args(arguments)


def _places(text: str) -> list[Place]:
    return [int(place) if place.isdigit() else place for place in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
