"""Running the worker as a service: periodic ticks, lease renewal, heartbeats, sweeps, signals.

APScheduler only ticks (F9): it holds nothing about any operation, its jobs coalesce, and a missed one costs nothing,
because what is due stands in the table.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from opledger.checkpoints.maker import Checkpointer
from opledger.config import Settings
from opledger.edges.stores import check_lasting, open_store
from opledger.errors import SchemaMismatch, StoreUnavailable
from opledger.notices import Notices
from opledger.store import Store
from opledger.worker import Worker

log = logging.getLogger("opledger.service")

HEARTBEAT = timedelta(seconds=2)
SWEEP = timedelta(minutes=10)
NOTICES = timedelta(seconds=5)
CHECKPOINTS = timedelta(seconds=0.25)
"""How often it is asked whether a checkpoint is due; that costs nothing while none is."""


def make_worker(
    store: Store,
    *,
    results: str | Path,
    name: str | None = None,
    lease: timedelta = timedelta(seconds=30),
    concurrency: int = 200,
    tick: timedelta = timedelta(seconds=1),
) -> Worker:
    """Return a worker with a store of results. Raises ConfigWrong where the setting names none."""
    return Worker(store, results=open_store(str(results)), name=name, lease=lease, concurrency=concurrency, tick=tick)


def run_worker(
    settings: Settings,
    *,
    name: str | None = None,
    until_idle: bool = False,
    once: bool = False,
    parent: int | None = None,
) -> int:
    """Open the ledger and run a worker in this process until it is told to stop; returns the exit code 0.

    `parent`: it also stops once it is no longer a child of that process, however that came. Raises StoreUnavailable
    where the database cannot be used, IntegrityBroken where it is older than one of its anchors, ConfigWrong where
    results cannot be stored, an anchor is not fit, or where notices are asked for and apprise is not installed.
    """
    check_lasting(settings.results)
    with Store.open(settings.database, tested=True) as store:
        asked = settings.worker
        worker = make_worker(
            store,
            results=settings.results,
            name=name,
            lease=asked.lease,
            concurrency=asked.concurrency,
            tick=asked.tick,
        )
        notices = Notices.from_settings(store, settings, worker.name, worker.clock)
        checkpoints = Checkpointer(store.database, settings.audit, worker.clock)
        checkpoints.start()
        run_until_signalled(
            worker, until_idle=until_idle, once=once, notices=notices, checkpoints=checkpoints, parent=parent
        )
    return 0


async def serve(
    worker: Worker,
    stop: asyncio.Event,
    *,
    until_idle: bool = False,
    once: bool = False,
    notices: Notices | None = None,
    checkpoints: Checkpointer | None = None,
    parent: int | None = None,
) -> None:
    """Run the worker under a scheduler until told to stop (or idle, or after one look).

    With `parent`, it also stops once that process is no longer the one that started this one. With `notices`, people
    outside are told of what needs them; a worker that ends by itself does so once more. With `checkpoints`, the
    history is signed and anchored while it runs, and once more when it ends. Raises SchemaMismatch, once it has
    stopped, where the tables were upgraded meanwhile to what this version cannot use.
    """
    scheduler = AsyncIOScheduler(job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None})

    pulse = _Pulse(worker, stop)

    async def renew() -> None:
        await worker.renew()

    async def look_at_parent() -> None:
        if parent is not None and os.getppid() != parent:
            log.warning("the process that started this worker has ended; so does the worker")
            stop.set()

    async def sweep() -> None:
        try:
            await asyncio.to_thread(worker.sweep)
        except StoreUnavailable as error:
            log.warning("what broken transfers left was not swept: %s", error)

    scheduler.add_job(worker.wake, "interval", seconds=worker.tick_every.total_seconds())
    scheduler.add_job(renew, "interval", seconds=max(worker.lease.total_seconds() / 3, 0.05))
    scheduler.add_job(pulse.beat, "interval", seconds=HEARTBEAT.total_seconds())
    if parent is not None:
        scheduler.add_job(look_at_parent, "interval", seconds=HEARTBEAT.total_seconds())
    scheduler.add_job(sweep, "interval", seconds=SWEEP.total_seconds())
    if notices is not None:
        scheduler.add_job(_tell, "interval", [notices], seconds=NOTICES.total_seconds())
    logging.getLogger("apscheduler.executors.default").addFilter(_is_told)
    running = asyncio.ensure_future(worker.run(stop, until_idle=until_idle, once=once))
    # The scheduler starts once the worker has its thread: the first await of `run` has set it up.
    await asyncio.sleep(0)
    scheduler.start()
    sealing = None if checkpoints is None else _sealing(checkpoints, stop)
    try:
        await running
        if notices is not None and not stop.is_set():
            await _tell(notices)
    finally:
        scheduler.shutdown(wait=False)
        if notices is not None:
            notices.stop()
        if checkpoints is not None and sealing is not None:
            sealing.cancel()
            await asyncio.to_thread(checkpoints.finish)
    pulse.check()
    if checkpoints is not None and checkpoints.lost is not None:
        raise checkpoints.lost


@dataclass(slots=True)
class _Pulse:
    """Signs of life. A worker whose tables were upgraded to what it cannot use is told to stop at the next one."""

    worker: Worker
    stop: asyncio.Event
    upgraded: SchemaMismatch | None = None

    async def beat(self) -> None:
        try:
            await self.worker.heartbeat()
        except SchemaMismatch as error:
            self.upgraded = error
            self.stop.set()
        except StoreUnavailable as error:
            log.warning("no heartbeat: %s", error)

    def check(self) -> None:
        if self.upgraded is not None:
            raise self.upgraded


def _is_told(record: logging.LogRecord) -> bool:
    """Say whether a record of the scheduler is of interest: that a job was called off with its worker is no error."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


async def _tell(notices: Notices) -> None:
    try:
        await asyncio.to_thread(notices.tick)
    except StoreUnavailable as error:
        log.warning("no notices: %s", error)


def _sealing(checkpoints: Checkpointer, stop: asyncio.Event) -> asyncio.Task[None]:
    """Write checkpoints as they become due, until it is cancelled. One that is under way then still comes to its end.

    Stops the worker where the database has become older while it was used.

    No job of the scheduler: a checkpoint may take longer than the time between two looks.
    """

    async def seal() -> None:
        while True:
            await asyncio.sleep(CHECKPOINTS.total_seconds())
            if checkpoints.due:
                await asyncio.to_thread(checkpoints.run)
            if checkpoints.lost is not None:
                stop.set()
                return

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("no more checkpoints while this worker runs: %s", error, exc_info=error)

    task = asyncio.ensure_future(seal())
    task.add_done_callback(ended)
    return task


def run_until_signalled(
    worker: Worker,
    *,
    until_idle: bool = False,
    once: bool = False,
    notices: Notices | None = None,
    checkpoints: Checkpointer | None = None,
    parent: int | None = None,
    ready: Callable[[], None] | None = None,
) -> None:
    """Run in this process until SIGTERM or SIGINT; both stop the worker and cancel no job.

    Uses uvloop where it is installed.
    """

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if ready is not None:
            ready()
        await serve(
            worker, stop, until_idle=until_idle, once=once, notices=notices, checkpoints=checkpoints, parent=parent
        )

    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
