"""``python -m tests.golden make NAME`` and ``python -m tests.golden check [NAME]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.golden import checking, kept, making, walk


def main() -> int:
    """Make or check; 1 where something is not as it was."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("what", choices=("make", "check"))
    parser.add_argument("name", nargs="?")
    asked = parser.parse_args()
    if asked.what == "make":
        return _make(asked.name or parser.error("a release needs a name, such as 0.1.0"))
    bad = 0
    for name in [asked.name] if asked.name else kept.names():
        with tempfile.TemporaryDirectory(prefix="opledger-golden-") as folder:
            wrong = checking.check(name, Path(folder))
        golden = kept.load(name)
        print(
            f"{name}: {len(golden.tables['operation'][1])} histories, {len(golden.bodies)} events, {len(wrong)} wrong"
        )
        for one in wrong[:20]:
            print(f"BROKEN {name}: {one} | python -m tests.golden check {name}")
        bad += len(wrong)
    return min(bad, 1)


def _make(name: str) -> int:
    try:
        size, reached = making.make(name)
    except FileExistsError as error:
        print(f"{error.args[0]} is there; what a release has written is never written anew", file=sys.stderr)
        return 1
    lost = walk.missing(reached)
    print(
        f"{name}: {size:,} bytes, {reached.arrows.total():,} events, "
        f"{sum('.' not in kind for kind in reached.kinds)} kinds, "
        f"{len(reached.ends)} states at the end, {len(reached.arrows)} arrows"
    )
    for one in lost:
        print(f"MISSED {one}")
    return min(len(lost), 1)


if __name__ == "__main__":
    sys.exit(main())
