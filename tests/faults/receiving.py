"""A receiver process that dies at a chosen batch: ``python -m tests.faults.receiving PORT WHEN NTH``.

It runs the real receiver on a port that the test keeps for it and its successors. WHEN is ``before`` or ``after`` (the
commit), or ``never``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from opledger.config import load_settings
from opledger.edges.secrets import SecretResolver
from opledger.ledger import Ledger
from opledger.ledger.deliveries import Doors
from opledger.receiver import Receiver, listen, serve
from opledger.store import Store


def arm(when: str, nth: int) -> None:
    """Die at the nth batch, before or after it is stored."""
    real, count = Store.take_deliveries, 0

    def taking(self: Store, incoming: Any) -> Any:
        nonlocal count
        count += 1
        if when == "before" and count == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(self, incoming)
        if when == "after" and count == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    Store.take_deliveries = taking  # type: ignore[method-assign]


def said() -> None:
    """Tell the test that connections are taken."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def run(ledger: Ledger, listener: socket.socket) -> None:
    """Serve until SIGTERM."""
    doors, stop = Doors(ledger.settings, SecretResolver(os.environ)), asyncio.Event()
    doors.look()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await serve(Receiver(ledger, doors), listener, stop, said)


def main() -> None:
    """Run it."""
    number, when, nth = sys.argv[1:]
    arm(when, int(nth))
    settings = load_settings({}, os.environ, Path.cwd())
    with Ledger.open(settings=settings) as ledger:
        asyncio.run(run(ledger, listen("127.0.0.1", int(number))))


if __name__ == "__main__":
    main()
