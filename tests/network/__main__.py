"""``python -m tests.network cuts|codes|bombs [--long] [--seed N] [--only WORD]``: what the wire can do to a call.

cuts   the proxy between worker and provider: 600 cuts, toxics and refusals; long: after every byte, every toxic at 20
       offsets, and the bytes of the TLS handshake
codes  every status code, phase and kind of body against the table; long: over real sockets as well
bombs  answers that are made to hurt, in every place; long: also sixteen at once

Ends with 1 where something was wrong, or was not reached.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from tests.network import bombs, codes, cuts, tls
from tests.network.bomber import NAMES, PLACES
from tests.network.cuts import Case, Stand, Tally, stand
from tests.support.asking import known, nothing

REPEAT = "python -m tests.network"


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog=REPEAT, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("cuts", "codes", "bombs"))
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--only", default="", help="cases whose name has this in it, or bombs of this name")
    asked = parser.parse_args()
    if asked.what == "bombs":
        known(parser, asked.only, NAMES)
    elif asked.what == "codes" and asked.only:
        parser.error("codes has no --only: all of it takes seconds")
    began = time.perf_counter()
    faults = {"cuts": _cuts, "codes": _codes, "bombs": _bombs}[asked.what](asked)
    if faults is None:
        return nothing(f"no case has {asked.only!r} in its name")
    again = f"{REPEAT} {asked.what} --seed {asked.seed}{' --long' if asked.long else ''}"
    for fault in faults:
        only = ": ".join(fault.split(": ")[:2]) if asked.what == "cuts" else fault.partition(": ")[0].split(" ")[-1]
        print(f"BROKEN seed {asked.seed} {fault} | {again}" + ("" if asked.what == "codes" else f" --only '{only}'"))
    print(f"{asked.what}: {len(faults)} violations, {time.perf_counter() - began:.0f} s")
    return min(len(faults), 1)


# --- cuts ---------------------------------------------------------------------------------------------------------


def _cuts(asked: argparse.Namespace) -> list[str] | None:
    total = Tally()
    with stand() as here:
        lengths = cuts.sizes(here)
        print(
            f"bytes of request and answer: {', '.join(f'{name} {one}+{two}' for name, (one, two) in lengths.items())}"
        )
        chosen = cuts.every_cut(lengths, both=True) if asked.long else cuts.some_cuts(lengths, 600, asked.seed)
        _several(here, total, chosen, asked.only, "cuts")
        _several(here, total, cuts.spread(lengths, cuts.QUICK, 20 if asked.long else 2), asked.only, "toxics")
        _refused(here, total, asked.only)
        crossed = [Case("status", cuts.CROSSED)] * (40 if asked.long else 4)
        _several(here, total, crossed, asked.only, "crossed answers")
    with stand(lax=True) as here:  # nothing but the framing tells that a result is not whole
        every = [case for case in cuts.every_cut({"result": lengths["result"]}) if case.toxic.framing != "close"]
        _several(here, total, every if asked.long else every[::16], asked.only, "cuts of results without a checksum")
    with stand(idempotent=True) as here:
        every = cuts.every_cut({"cancel": lengths["cancel"]})
        _several(here, total, every if asked.long else every[::16], asked.only, "cuts of cancels that may be repeated")
    with stand(cuts.SHORT) as here:
        hanging = cuts.spread(lengths, cuts.HANGING, 20 if asked.long else 2)
        _several(here, total, hanging, asked.only, "calls that only their deadline ends")
    if asked.only and not total.cases:
        return None
    shakes = tls.run(step=1 if asked.long else 37)
    print(f"TLS: {shakes.cases} handshakes and answers cut, {dict(shakes.fates)}")
    total.faults += shakes.faults
    _tell(total)
    return total.faults + ([] if asked.only else cuts.missed(total))


def _several(here: Stand, total: Tally, chosen: Sequence[Case], only: str, what: str) -> None:
    wanted = [case for case in chosen if cuts.usable(case) and only in str(case)]
    began = time.perf_counter()
    for batch in cuts.batches(wanted):
        total.add(cuts.run(here, batch))
    if wanted:
        print(f"{what}: {len(wanted):,} in {time.perf_counter() - began:.0f} s", flush=True)


def _refused(here: Stand, total: Tally, only: str) -> None:
    for phase in cuts.REFUSED:
        cases = [Case(phase, cuts.HONEST)] * 5
        if only in f"{phase}: refused":
            total.add(cuts.run(here, cases, refused=True))


def _tell(total: Tally) -> None:
    print(f"{total.cases.total():,} operations: {dict(total.cases)}")
    print(f"{len({kind for _, kind in total.kinds})} kinds of trouble, at {_offsets(total):,} different bytes")
    print(
        f"{total.lost:,} answers were not whole, {total.whole:,} were; {total.arrived:,} creates arrived though their "
        f"answer was lost; no call was open for more than {max(total.longest, 0.0):.2f} s beyond its timeout"
    )
    for (exchange, kind), count in sorted(total.told.items()):
        print(f"    {exchange:8} {kind:16} {count:8,}")
    print(f"they ended as {dict(total.states)}")


def _offsets(total: Tally) -> int:
    return sum(map(len, total.cut.values()))


# --- codes and bombs ----------------------------------------------------------------------------------------------


def _codes(asked: argparse.Namespace) -> list[str]:
    found = codes.run()
    print(f"{found.cases:,} answers handed to their readers: {_sorted(found)}")
    faults = found.faults + found.missing()
    if asked.long:
        wire = asyncio.run(codes.over_sockets())
        print(f"{wire.cases:,} answers over sockets: {_sorted(wire)}")
        faults += wire.faults + wire.missing()
    return faults


def _sorted(found: codes.Tally) -> str:
    return ", ".join(f"{phase} {outcome} {count:,}" for (phase, outcome), count in sorted(found.outcomes.items()))


def _bombs(asked: argparse.Namespace) -> list[str]:
    names = [name for name in NAMES if asked.only in (name, "")]
    faults: list[str] = []
    for at_once in (1, 16) if asked.long else (1,):
        for place in PLACES:  # each in a worker of its own, whose memory has seen nothing else
            found = bombs.run(bombs.rounds(names, [place], at_once=at_once))
            print(
                f"{found.bombs} bombs in the place of {place}, {at_once} at once: {found.peak:.1f} MiB above the base "
                f"at most, recorded {max(found.late, 0.0):.2f} s after the deadline at most; {found.outcomes}; ended "
                f"as {found.states}",
                flush=True,
            )
            faults += found.faults
    return faults


if __name__ == "__main__":
    sys.exit(main())
