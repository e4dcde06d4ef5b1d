"""``python -m opledger.sim``: the misbehaving provider as a process of its own.

The first line on standard output is one JSON object, ``{"base_url": …, "elsewhere": …, "pid": …}``, written once
connections are accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from opledger.errors import OpledgerError, UsageError
from opledger.sim.app import Settings
from opledger.sim.contracts import DEFAULT_TOKEN, write_contracts
from opledger.sim.personalities import parse_faults
from opledger.sim.server import Running, serve


def main(arguments: list[str] | None = None) -> int:
    """Run the simulator and return the exit code: 0 after SIGTERM, 2 for bad arguments, 3 for a port in use."""
    parser = argparse.ArgumentParser(prog="python -m opledger.sim", description="A provider that misbehaves.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 (default) takes any free one")
    parser.add_argument("--seed", type=int, default=0, help="chooses personalities and durations")
    parser.add_argument("--faults", default="none", metavar="SPEC", help="none, all, or e.g. ideal=6,lossy,slow=2")
    parser.add_argument("--contracts", type=Path, metavar="DIR", help="write the contract files there")
    parser.add_argument("--stdin", action="store_true", help="stop when standard input ends")
    chosen = parser.parse_args(arguments)

    def ready(running: Running) -> None:
        if chosen.contracts is not None:
            write_contracts(chosen.contracts, running.base_url, elsewhere=running.elsewhere)
        line = {"base_url": running.base_url, "elsewhere": running.elsewhere, "pid": os.getpid()}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    try:
        settings = Settings(
            seed=chosen.seed, faults=parse_faults(chosen.faults), token=os.environ.get("SIM_TOKEN") or DEFAULT_TOKEN
        )
        until = sys.stdin.buffer.read if chosen.stdin else None
        asyncio.run(serve(settings, port=chosen.port, ready=ready, until=until))
    except OpledgerError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2 if isinstance(error, UsageError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
