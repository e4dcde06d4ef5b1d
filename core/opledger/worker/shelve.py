"""Handing a whole file to the store of results, for as long as that takes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from opledger.edges.streams import in_thread
from opledger.worker.hand import Hand


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
    """Renew the lease for ever. Raises Dropped where it is lost."""
    while True:
        await asyncio.sleep(drive.shop.lease.total_seconds() / 3)
        await drive.renew()
