"""Handing a whole file to the store of results, for as long as that takes."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Final

from opledger.edges.streams import in_thread
from opledger.errors import DatabaseReplaced, StoreUnavailable
from opledger.worker.hand import Dropped, Hand, margin_of

log = logging.getLogger("opledger.worker")

AGAIN: Final = 0.2
"""Seconds until a lease that could not be renewed is tried again."""


async def shelve(drive: Hand, path: Path, suffix: str) -> str:
    """Keep a file of this operation under a renewed lease, and return its location.

    A move takes no time; an upload may take minutes. Where the lease goes meanwhile, or the worker is told to stop, it
    is called off. Raises Dropped where the lease is lost, StoreUnavailable where the store fails; the file is then
    where it was.
    """
    unwanted = threading.Event()

    def keep() -> str:
        return drive.shop.results.keep(path, drive.op.operation_id, suffix, going=lambda: not unwanted.is_set())

    await drive.fresh_lease()
    keeper = asyncio.ensure_future(keep_lease(drive))
    keeping = asyncio.ensure_future(in_thread(keep))
    try:
        await asyncio.wait({keeper, keeping}, return_when=asyncio.FIRST_COMPLETED)
        if not keeping.done():
            await keeper  # raises Dropped: the lease went while the upload ran
        return keeping.result()
    finally:
        unwanted.set()
        keeper.cancel()
        await asyncio.gather(keeper, keeping, return_exceptions=True)


async def keep_lease(drive: Hand) -> None:
    """Renew the lease for ever. Raises Dropped where it is lost, or ends before the database has answered.

    What goes on meanwhile may not outlast the lease, and a database whose link has vanished says neither yes nor no.
    """
    lease = drive.shop.lease.total_seconds()
    while True:
        await asyncio.sleep(lease / 3)
        left = drive.held.ends - margin_of(lease) - drive.shop.clock.monotonic()
        try:
            async with asyncio.timeout(left):
                await _renewed(drive)
        except TimeoutError:
            raise Dropped("the lease could not be renewed before it ended") from None


async def _renewed(drive: Hand) -> None:
    """Renew it, again and again where the database is away."""
    while True:
        try:
            await drive.renew()
        except DatabaseReplaced:
            raise
        except StoreUnavailable as error:
            log.debug("the lease of %s could not be renewed yet: %s", drive.op.operation_id, error)
            await asyncio.sleep(AGAIN)
        else:
            return
