"""``opledger worker`` on one of the hosts, with the faults that ``HOSTS_PLANTED`` names put into it first."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from opledger.cli import main
from opledger.store import postgres
from opledger.worker import shelve


def _keeps_on_without_a_lease() -> None:
    """As a worker does that takes a renewal without an answer for one that will come."""

    async def for_ever(drive: Any) -> None:
        await asyncio.Event().wait()

    shelve.keep_lease = for_ever


def _waits_as_long_as_the_kernel() -> None:
    """As a program does that leaves it to TCP to find out that nobody is there: that takes a quarter of an hour."""
    postgres.TCP = {"connect_timeout": 130}
    postgres.SERVER_TCP, postgres.PAUSED = "", "1h"  # type: ignore[misc]


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    "keeps on without a lease": _keeps_on_without_a_lease,
    "waits as long as the kernel": _waits_as_long_as_the_kernel,
}


def plant() -> None:
    """Put in the faults that the environment names."""
    for planted in filter(None, os.environ.get("HOSTS_PLANTED", "").split(",")):
        PLANTS[planted]()


if __name__ == "__main__":
    plant()
    sys.exit(main(["worker", *sys.argv[1:]]))
