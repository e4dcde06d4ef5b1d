"""``python -m tests.hosts [--only database:silent] [--lease 6] [--long]``: workers cut off.

Exit 1: a violation; 77: there can be no hosts on this machine.

The fake provider's log and the exported history are the judges. Needs Linux, root and iproute2; nothing outside of the
run's own namespaces is touched, and nothing stays behind, however the run ends.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Final

from tests.faults.lab import ROOT
from tests.hosts import lan, places
from tests.hosts.bystander import Bystander
from tests.hosts.cuts import CUTS, REACHED, Cut, Told, cut_off, judge_all
from tests.hosts.rig import Slow, rig
from tests.hosts.worker import PLANTS
from tests.support.beside import SKIPPED

INSIDE: Final = "--inside"


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    parser.add_argument("--only", action="append", choices=[str(cut) for cut in CUTS], help="only this cut")
    parser.add_argument("--lease", type=float, default=6.0, help="seconds that a lease lasts (6)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="how often all cuts are made")
    parser.add_argument("--long", action="store_true", help="three workers, ten rounds, leases of 10 s")
    parser.add_argument(
        "--planted", action="append", choices=PLANTS, help="a fault in the product, which is to be found"
    )
    parser.add_argument(
        "--park", action="store_true", help="leave everything as it is in the end, until somebody ends it"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and export")
    parser.add_argument(INSIDE, type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    if chosen.long:
        chosen.workers, chosen.rounds, chosen.lease = 3, 10, 10.0
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run, print the counters and return the exit code."""
    chosen = _arguments(given)
    if chosen.inside is not None:
        return _run(chosen)
    why = lan.impossible()
    if why is not None:
        print(f"there can be no hosts here: {why}")
        return SKIPPED
    for name in places.sweep():
        print(f"removed what a run that was killed had left: {name}")
    words = sys.argv[1:] if given is None else list(given)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _told_to_end)
    with places.run_folder(keep=chosen.keep) as folder:
        command = [sys.executable, "-m", "tests.hosts", *words, INSIDE, str(folder)]
        child = lan.enclosed(command, cwd=ROOT)
        try:
            code = child.wait()
        finally:
            child.kill()
            child.wait()
    return code


def _told_to_end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _run(chosen: argparse.Namespace) -> int:
    """What happens in the namespaces."""
    told, planted = Told(), tuple(chosen.planted or ())
    cuts = [cut for cut in CUTS if chosen.only is None or str(cut) in chosen.only]
    began = time.monotonic()
    with rig(chosen.inside, chosen.lease, chosen.seed) as made:
        for number in range(chosen.workers):
            made.worker(f"w{number + 1}", planted if number == 0 else ())
        made.signed_on()
        print(f"{chosen.workers} workers are there after {time.monotonic() - began:.1f} s", flush=True)
        try:
            with closing(Bystander(made, planted)) as bystander:
                for turn in range(chosen.rounds):
                    for number, cut in enumerate(cuts):
                        desk = made.desks[(turn + number) % (1 if planted else chosen.workers)]
                        since = time.monotonic() - began
                        line = cut_off(made, desk, cut, told, brief=bool(planted))
                        print(f"  {since:5.1f} s  {line}", flush=True)
                bystander.end(told)
            if not planted:
                judge_all(made, told, thorough=chosen.only is None)
        except (Slow, subprocess.SubprocessError) as error:
            told.wrong.append(str(error))
        code = _report(chosen, told, cuts, time.monotonic() - began)
        if chosen.park:
            print(f"parked {chosen.inside}", flush=True)
            sys.stdin.buffer.read()
    return code


def _report(chosen: argparse.Namespace, told: Told, cuts: Sequence[Cut], seconds: float) -> int:
    only = "".join(f" --only {cut}" for cut in cuts) if chosen.only else ""
    again = f"python -m tests.hosts --seed {chosen.seed} --lease {chosen.lease:g}{only}"
    for line in told.wrong:
        print(f"seed {chosen.seed}: {' '.join(line.split())}  ({again})")
    missed = [name for name in REACHED if not told.counts[name] and not told.wrong]
    for name in missed:
        print(f"seed {chosen.seed}: not reached, {name}  ({again})")
    print("\n".join(f"  {name:40} {count:>6,}" for name, count in sorted(told.counts.items())))
    for what, each in (
        ("handed over after the cut or the kill", told.since_cut),
        ("handed over after a lease's end", told.handed_over),
        ("back after healing", told.back),
    ):
        if each:
            middle = sorted(each)[len(each) // 2]
            print(f"  {what:40} p50 {middle:.2f} s, max {max(each):.2f} s, of {len(each)}")
    for who, after in told.noticed:
        print(f"  a vanished link, noticed by the {who:8} {after:.1f} s")
    print(f"{len(told.wrong)} violations, {seconds:.0f} s", flush=True)
    return 1 if told.wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
