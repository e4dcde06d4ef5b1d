"""The reliability programme in one go: every harness, two beside each other, and a table of how each ended.

``make faults`` is the short form, ``make soak`` the long one. Each harness is a command of its own, which is printed
when it begins: whoever wants to repeat one, or only one, types that.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import Final

from tests.support.beside import Beside, Job


@dataclass(frozen=True)
class Harness:
    """One harness, and the words that make its two forms."""

    name: str
    what: str
    short: tuple[str, ...] | None  #: None: it takes too long for minutes
    long: tuple[str, ...] = ("--long",)
    jobs: int = 0  #: it takes --jobs: so many processes for each processor that it has; more than one where they wait
    timed: bool = False
    alone: bool = False


HARNESSES: Final = (
    # In the order in which they begin: the long ones first, or one of them would be all that is left at the end.
    Harness("disk faults", "a disk that fails at a chosen call", ("--points", "1"), jobs=3),
    Harness("chaos", "real processes killed at random", ("--seconds", "20", "--deadline", "20s"), timed=True),
    Harness("network cuts", "wires that break at a chosen byte", (), timed=True),
    Harness("simulation", "the full stack under seeds, in virtual time", ("--seeds", "80", "--partial"), jobs=1),
    Harness("crashes", "SIGKILL at the points of the stories", ("--every", "3"), jobs=1),
    Harness("disk power", "power cut at every write", (), jobs=1),
    Harness("hosts", "one of several hosts is cut off", ("--only", "database:mute", "--only", "both:down"), timed=True),
    Harness("model", "every order of events in small worlds", ("--worlds", "--states", "20000"), ()),
    Harness("fuzz", "parsers under mutated inputs", ("--seconds", "1")),
    Harness("planted", "bugs planted in the product, which must be found", ("--harness", "tamper"), ()),
    Harness("checker", "honest histories that must be accepted", ("--good", "5000"), ("--good", "1000000")),
    Harness("golden", "histories of every release", ("check",), ("check",)),
    Harness("network codes", "every status code in every phase", ()),
    Harness("network bombs", "answers that are made to exhaust us", None, alone=True),
    Harness("mutation", "small changes of the product that a test must notice", None, alone=True),
)
"""`timed`: what it judges by are seconds. Beside it runs what keeps one processor busy, and no other such one.

`alone`: it measures what the whole machine has to give, or takes what is slow for what hangs.
"""


def job(harness: Harness, *, long: bool, processors: int) -> Job:
    """The command of one harness, which is to keep so many processors busy."""
    package, *rest = harness.name.split()
    words = [*rest, *((harness.long if long else harness.short) or ())]
    if harness.jobs:
        words += ["--jobs", str(harness.jobs * processors)]
    argv = (sys.executable, "-m", f"tests.{package}", *words)
    return Job(harness.name, harness.what, argv, harness.timed, harness.alone)


def main(words: list[str] | None = None) -> int:
    """Run them; exit code 1 where one of them found something, or missed what it must reach."""
    processors = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="python -m tests.programme", description=__doc__)
    parser.add_argument("--long", action="store_true", help="the long form: hours")
    parser.add_argument("--only", action="append", default=[], help="a harness, by the beginning of its name")
    parser.add_argument(
        "--at-once", type=int, default=min(2, processors), metavar="N", help="harnesses that run beside each other"
    )
    asked = parser.parse_args(words)
    wanted = [one for one in HARNESSES if asked.long or asked.only or one.short is not None]
    chosen = [one for one in wanted if not asked.only or any(map(one.name.startswith, asked.only))]
    if not chosen:
        parser.error(f"there is no such harness; there are: {', '.join(one.name for one in HARNESSES)}")
    at_once = max(1, min(asked.at_once, len(chosen)))
    each = max(1, processors // at_once)
    return Beside(at_once).run([job(one, long=asked.long, processors=each) for one in chosen])


if __name__ == "__main__":
    sys.exit(main())
