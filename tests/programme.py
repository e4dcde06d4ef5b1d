"""The reliability programme in one go: every harness, one after the other, and a table of how each ended.

``make faults`` is the short form, ``make soak`` the long one. Each harness is a command of its own, which is printed
before it runs: whoever wants to repeat one, or only one, types that.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from opledger.edges.clock import SystemClock

SKIPPED: Final = 77
"""The exit code of a harness that this machine has not what it needs for; it has said what."""


@dataclass(frozen=True)
class Harness:
    """One harness, and the words that make its two forms."""

    name: str
    what: str
    short: tuple[str, ...] | None  #: None: it takes too long for minutes
    long: tuple[str, ...] = ("--long",)


HARNESSES: Final = (
    Harness("model", "every order of events in small worlds", ("--worlds", "--states", "20000"), ()),
    Harness("simulation", "the full stack under seeds, in virtual time", ("--seeds", "80", "--partial")),
    Harness("checker", "honest histories that must be accepted", ("--good", "5000"), ("--good", "1000000")),
    Harness("crashes", "SIGKILL at the points of the stories", ("--every", "3")),
    Harness("disk power", "power cut at every write", ()),
    Harness("disk faults", "a disk that fails at a chosen call", ("--points", "1")),
    Harness("network cuts", "wires that break at a chosen byte", ()),
    Harness("network codes", "every status code in every phase", ()),
    Harness("network bombs", "answers that are made to exhaust us", None),
    Harness("fuzz", "parsers under mutated inputs", ("--seconds", "1")),
    Harness("planted", "bugs planted in the product, which must be found", ("--harness", "tamper"), ()),
    Harness("golden", "histories of every release", ("check",), ("check",)),
    Harness("mutation", "small changes of the product that a test must notice", None, ("--long",)),
    Harness("chaos", "real processes killed at random", ("--seconds", "20")),
    Harness("hosts", "one of several hosts is cut off", ("--only", "database:mute", "--only", "both:down")),
)


def command(harness: Harness, *, long: bool) -> list[str]:
    """The words that run one harness."""
    package, *rest = harness.name.split()
    return [sys.executable, "-m", f"tests.{package}", *rest, *((harness.long if long else harness.short) or ())]


def main(words: list[str] | None = None) -> int:
    """Run them; exit code 1 where one of them found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.programme", description=__doc__)
    parser.add_argument("--long", action="store_true", help="the long form: hours")
    parser.add_argument("--only", action="append", default=[], help="a harness, by the beginning of its name")
    asked = parser.parse_args(words)
    wanted = [one for one in HARNESSES if asked.long or asked.only or one.short is not None]
    chosen = [one for one in wanted if not asked.only or any(map(one.name.startswith, asked.only))]
    if not chosen:
        parser.error(f"there is no such harness; there are: {', '.join(one.name for one in HARNESSES)}")
    clock = SystemClock()
    ends: list[tuple[str, int, float]] = []
    for harness in chosen:
        argv = command(harness, long=asked.long)
        print(f"\n== {harness.name}: {harness.what}\n$ {shlex.join(['python', *argv[1:]])}", flush=True)
        begun = clock.monotonic()
        code = subprocess.run(argv, check=False).returncode
        ends.append((harness.name, code, clock.monotonic() - begun))
    print(f"\n{'harness':<16}{'end':<12}{'seconds':>8}")
    for name, code, seconds in ends:
        end = {0: "held", SKIPPED: "skipped"}.get(code, f"FAILED ({code})")
        print(f"{name:<16}{end:<12}{seconds:>8.1f}")
    print(f"{'all':<28}{sum(seconds for *_, seconds in ends):>8.1f}")
    return int(any(code not in (0, SKIPPED) for _, code, _ in ends))


if __name__ == "__main__":
    sys.exit(main())
