"""Group commit: one thread owns the store and writes what has gathered in one transaction.

Many drives hand in finished records while one fsync is under way; the next transaction takes them all. Each write
keeps its own fencing check and its own outcome (`Store.record_many`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from opledger.errors import OpledgerError, StoreUnavailable
from opledger.store import Claim, Declined, Recorded, Store, Takings, Write

T = TypeVar("T")
Outcome = Recorded | Declined


@dataclass(slots=True)
class _Job:
    """Writes of one drive, a wish to claim, or a function to run between transactions.

    `future` gets what came of it.
    """

    future: asyncio.Future[Any]
    writes: Sequence[Write] = ()
    claim: Callable[[bool], Claim | None] | None = None
    work: Callable[[], Any] | None = None


Settled = list[tuple[asyncio.Future[Any], Any, BaseException | None]]


class Commits:
    """The only way the worker reaches the store. Start it inside a running event loop; `close` waits for the rest."""

    def __init__(self, store: Store, *, most: int = 400) -> None:
        self._store = store
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="opledger-commits", daemon=True)
        self._thread.start()

    async def record(self, *writes: Write) -> list[Outcome]:
        """Commit the writes, with whatever others have gathered; returns once they are durable.

        Raises StoreUnavailable where the commit failed or its outcome is unknown.
        """
        return await self.hand_in(*writes)

    async def claim(self, ask: Callable[[bool], Claim | None]) -> Takings:
        """Claim in the next transaction, after the writes that go with it.

        `ask` is called on the store's thread, with whether there are writes anyway: then claiming costs no further
        fsync. It returns None where nothing is due.
        """
        claimed: Takings = await self._put(_Job(self._loop.create_future(), claim=ask))
        return claimed

    async def run(self, work: Callable[[], T]) -> T:
        """Run a store function on the store's thread, in its turn."""
        result: T = await self._put(_Job(self._loop.create_future(), work=work))
        return result

    def hand_in(self, *writes: Write) -> asyncio.Future[list[Outcome]]:
        """Do as `record`, without waiting: the future is the caller's to shield, and brings what `record` would."""
        return self._put(_Job(self._loop.create_future(), writes=writes))

    def _put(self, job: _Job) -> asyncio.Future[Any]:
        # The caller may be cancelled while it waits; what was handed in is written all the same.
        self._jobs.put(job)
        return job.future

    def close(self) -> None:
        """Stop after everything handed in so far is done."""
        self._jobs.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            batch = [job]
            ending = False
            while len(batch) < self._most:
                try:
                    further = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if further is None:
                    ending = True
                    break
                batch.append(further)
            settled = self._commit(
                [one for one in batch if one.writes], [one for one in batch if one.claim is not None]
            )
            settled += [self._settle(one) for one in batch if one.work is not None]
            self._loop.call_soon_threadsafe(_deliver, settled)
            if ending:
                return

    def _commit(self, jobs: list[_Job], wishes: list[_Job]) -> Settled:
        """Record what the jobs bring and claim what the wishes ask for: one transaction, one fsync."""
        if not jobs and not wishes:
            return []
        try:
            asks = [ask for wish in wishes if wish.claim is not None and (ask := wish.claim(bool(jobs))) is not None]
            writes = [write for job in jobs for write in job.writes]
            outcomes: list[Outcome] = []
            claimed = Takings()
            if asks:
                outcomes, claimed = self._store.exchange(writes, asks[0])
            elif writes:
                outcomes = self._store.record_many(writes)
        except OpledgerError as error:
            return [(job.future, None, error) for job in (*jobs, *wishes)]
        except Exception as error:  # noqa: BLE001 - handed to everybody who waits, as an uncertain commit
            # Nothing may be concluded from a commit that broke in a way nobody foresaw (I29).
            broken = StoreUnavailable(f"the store broke while committing: {type(error).__name__}: {error}")
            broken.__cause__ = error
            return [(job.future, None, broken) for job in (*jobs, *wishes)]
        settled: Settled = []
        position = 0
        for job in jobs:
            settled.append((job.future, outcomes[position : position + len(job.writes)], None))
            position += len(job.writes)
        for wish in wishes:
            settled.append((wish.future, claimed, None))
            claimed = Takings()
        return settled

    @staticmethod
    def _settle(job: _Job) -> tuple[asyncio.Future[Any], Any, BaseException | None]:
        assert job.work is not None
        try:
            return job.future, job.work(), None
        except Exception as error:  # noqa: BLE001 - raised again where the caller waits
            return job.future, None, error


def _deliver(settled: Settled) -> None:
    for future, value, error in settled:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
