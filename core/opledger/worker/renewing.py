"""Renewing the leases of all drives of a worker at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from opledger.errors import StoreUnavailable
from opledger.worker.hand import Hand, Workshop

log = logging.getLogger("opledger.worker")


async def renew_all(shop: Workshop, drives: Mapping[asyncio.Task[None], Hand]) -> None:
    """Renew all leases; a drive whose lease is lost, or would end before the next try, is stopped."""
    held = {drive.op.operation_id: (task, drive) for task, drive in drives.items() if not drive.released}
    if not held:
        return
    before = shop.clock.monotonic()
    keys = [(operation_id, drive.held.epoch) for operation_id, (_, drive) in held.items()]
    try:
        kept = await shop.commits.run(lambda: shop.store.renew(shop.name, keys, shop.lease, shop.clock.now()))
    except StoreUnavailable as error:
        log.warning("leases could not be renewed: %s", error)
        for task, drive in held.values():
            if drive.held.ends < before + shop.lease.total_seconds() / 4:
                drive.held.lost = True
                task.cancel()
        return
    for operation_id, (task, drive) in held.items():
        if operation_id in kept:
            shop.turns.renewed(drive, before)
        elif not drive.released and not task.done():
            drive.held.lost = True
            task.cancel()
