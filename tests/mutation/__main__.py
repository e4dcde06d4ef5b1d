"""``python -m tests.mutation``: change the product a little, again and again; each change must turn a test red.

``--only NAME,…`` takes these modules, ``--every N`` each N-th change of them, ``--at NUMBER`` one change, which it
shows. ``--long`` takes all modules; without it, those that the night run holds to their goal. Exit 1 where a change
stays unnoticed that `survivors.toml` doesn't name, and where a module is below its goal.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.mutation import survivors
from tests.mutation.change import Mutant
from tests.mutation.ground import Ground
from tests.mutation.modules import MODULES, Module
from tests.support.asking import at_least_one, nothing

SKIPPED = 77
"""As in `tests.support.beside`: this machine has not what it takes."""


def main(words: list[str] | None = None) -> int:
    """Change what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME,…")
    parser.add_argument("--every", type=at_least_one, default=1, metavar="N")
    parser.add_argument("--at", default="", metavar="NUMBER,…")
    parser.add_argument("--within", default="", metavar="FUNCTION", help="the changes of one function or class")
    parser.add_argument("--long", action="store_true")
    asked = parser.parse_args(words)
    if sys.platform != "linux":
        print("this needs Linux: it watches its processes by /proc and pidfd", file=sys.stderr)
        return SKIPPED
    names = [name for name in asked.only.split(",") if name]
    known = {module.name: module for module in MODULES}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {', '.join(unknown)} here; there are {', '.join(known)}")
    chosen = [known[name] for name in names] or [module for module in MODULES if asked.long or module.night]
    numbers = {int(number) for number in asked.at.split(",") if number}

    def wanted(mutant: Mutant) -> bool:
        if numbers:
            return mutant.number in numbers
        return mutant.number % asked.every == 0 and mutant.function.startswith(asked.within)

    print(
        f"{'module':24} {'changes':>8} {'killed':>7} {'by time':>8} {'alive':>6} {'score':>8} {'CPU s':>7}", flush=True
    )
    sampled = bool(numbers) or asked.every > 1 or bool(asked.within)
    return max([_one(module, wanted, sampled=sampled) for module in chosen])


def _one(module: Module, wanted: Callable[[Mutant], bool], *, sampled: bool) -> int:
    began = time.monotonic()
    tests = [f"tests/{one}" for one in module.tests]
    ground = Ground(f"opledger.{module.name}", module.path, tests, wanted, script=module.script)
    found = ground.run(lambda line: print(f"  … {line}", file=sys.stderr, flush=True))
    if not ground.mutants:
        return nothing(f"no change of {module.name} is meant by that")
    if found.broken:
        print(f"{module.name:24} BROKEN {found.broken}", flush=True)
        return 1
    by_number = {one.number: one for one in ground.mutants}
    alive = [by_number[number] for number in sorted([*found.survived, *found.unreached])]
    count = len(ground.mutants) - found.same
    score = 100 * (count - len(alive)) / max(count, 1)
    counts = f"{count:8} {found.killed:7} {found.timed_out:8} {len(alive):6} {score:6.1f} % {found.cpu:7.0f}"
    print(f"{module.name:24} {counts}", flush=True)
    unknown, stale = survivors.compare(module.name, alive)
    print(f"  {time.monotonic() - began:.0f} s; {len(alive) - len(unknown)} of those alive are explained", flush=True)
    for mutant in unknown:
        never = " (no test runs it)" if mutant.number in found.unreached else ""
        print(
            f"  ALIVE {module.name}:{mutant.lines.start} {mutant.function or 'module'}: {mutant.kind}: {mutant.words}"
            f"{never}; repeat: python -m tests.mutation --only {module.name} --at {mutant.number}",
            flush=True,
        )
    if not sampled:
        for line in stale:
            print(f"  no longer alive, or no longer there: {line}", flush=True)
        if score < module.goal:
            print(f"  BELOW {module.goal} %", flush=True)
    return int(bool(unknown) or (not sampled and score < module.goal))


if __name__ == "__main__":
    sys.exit(main())
