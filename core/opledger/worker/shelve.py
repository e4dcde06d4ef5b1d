"""What may take long, under a lease that is renewed for as long as it takes; handing a file to the store of results."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from opledger.edges.streams import in_thread
from opledger.errors import DatabaseReplaced, StoreUnavailable
from opledger.worker.hand import Dropped, Hand, margin_of

log = logging.getLogger("opledger.worker")

T = TypeVar("T")

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
    return await under_lease(drive, in_thread(keep), unwanted)


async def under_lease(drive: Hand, work: Coroutine[Any, Any, T], unwanted: threading.Event | None = None) -> T:
    """Do something that may take long, and renew the lease while it lasts. Raises Dropped where that is lost.

    `unwanted` is set where nobody waits for it any longer, for what cannot be cancelled. When this returns or raises,
    the work is over.
    """
    doing = asyncio.ensure_future(work)
    begun: list[asyncio.Future[Any]] = [doing]
    try:
        await asyncio.wait(begun, timeout=drive.shop.lease.total_seconds() / 3)  # mostly it is over by then
        if not doing.done():
            keeper = asyncio.ensure_future(keep_lease(drive))
            begun.append(keeper)
            await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                await keeper  # raises Dropped: the lease went meanwhile
        return doing.result()
    finally:
        if unwanted is not None:
            unwanted.set()
        for one in begun:
            one.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


async def keep_lease(drive: Hand) -> None:
    """Renew the lease, now and for ever. Raises Dropped where it is lost, or ends before the database has answered.

    What goes on meanwhile may not outlast the lease, and a database whose link has vanished says neither yes nor no.
    """
    lease = drive.shop.lease.total_seconds()
    while True:
        left = drive.held.ends - margin_of(lease) - drive.shop.clock.monotonic()
        try:
            async with asyncio.timeout(left):
                await _renewed(drive)
        except TimeoutError:
            raise Dropped("the lease could not be renewed before it ended") from None
        await asyncio.sleep(lease / 3)


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
