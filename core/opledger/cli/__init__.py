"""The command line: one small module a command group.

program     the whole command, and how an error becomes a sentence and an exit code
frame       the flags that every command has, and where output goes
inputs      flags into values: bodies, durations, tags
text        records and events as lines for people
submitting, looking, deciding, running, results, contracts, providers, health
            the commands
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

GARBAGE: Final = 10_000
"""How many more objects are made than freed before Python looks for cycles among them. With its own 700, a fifth of a
worker's CPU (1.95 s for 1,000 polls, and 1.6 with this) goes into looking through what was loaded for good. Far
more would let a worker keep the bodies of failed transfers for long, which hang on such cycles."""

LOADING: Final = 300_000
"""The same while a command loads its modules: nothing of them is garbage, and they are some 220,000 objects. Looking
through these took a fifteenth of a short command's time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without `arguments`, what the process was started with."""
    import gc
    import sys

    gc.set_threshold(LOADING)
    try:
        from opledger.cli.program import run

        return run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 130


def loaded() -> None:
    """Look for garbage as a process should that may stay: for whatever goes on once its modules are there."""
    import gc

    gc.set_threshold(GARBAGE)
