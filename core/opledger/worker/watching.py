"""Waking the loop whenever another process wrote to the ledger, from a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading

from opledger.errors import StoreUnavailable
from opledger.store import Store

log = logging.getLogger("opledger.worker")


def wake_on_change(store: Store, wake: asyncio.Event, stop: threading.Event) -> threading.Thread:
    """Return the thread, not yet started, that sets `wake` on the running loop at every change, until `stop`."""
    loop = asyncio.get_running_loop()
    return threading.Thread(target=_watch, args=(store, loop, wake, stop), name="opledger-watch", daemon=True)


def _watch(store: Store, loop: asyncio.AbstractEventLoop, wake: asyncio.Event, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            changed = store.wait_for_change(1.0, stop, others_only=True)
        except StoreUnavailable as error:
            log.debug("cannot watch for changes: %s", error)  # the loop itself says that the database is away
            stop.wait(1.0)
            continue
        if changed and not stop.is_set():
            try:
                loop.call_soon_threadsafe(wake.set)
            except RuntimeError:  # the loop has just been closed: there is nobody left to wake
                return
