"""A bounded queue in front of the store, so that a flood costs one commit a batch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from opledger.errors import DatabaseReplaced, OpledgerError, SchemaMismatch, StoreUnavailable
from opledger.ledger.deliveries import Arrival
from opledger.rules.webhooks import Kind, Refusal
from opledger.store import Taken

log = logging.getLogger("opledger.receiver")

LARGEST: Final = 1024 * 1024  #: bytes of one body
WITHIN: Final = 10.0  #: seconds in which a body must have arrived, and in which its headers must
WAITING: Final = 1_000  #: most deliveries that are being read or wait to be stored
HELD: Final = 32 * 1024 * 1024  #: most bytes of bodies in memory
BATCH: Final = 200  #: most deliveries of one transaction

Outcome = Taken | Refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken, and for how long it may take."""

    largest: int = LARGEST
    within: float = WITHIN
    waiting: int = WAITING
    held: int = HELD
    batch: int = BATCH


class Intake:
    """A bounded queue before the store: what arrives while one batch is written makes up the next one."""

    def __init__(self, take: Callable[[Sequence[Arrival]], list[Outcome]], limits: Limits) -> None:
        self._take = take
        self._limits = limits
        self._queue: deque[tuple[Arrival, asyncio.Future[Outcome]]] = deque()
        self._more = asyncio.Event()
        self.open = 0  #: deliveries between their first byte and their answer
        self.held = 0  #: bytes of their bodies
        self.broken: str | None = None  #: why the last batch could not be stored
        self.lost: DatabaseReplaced | SchemaMismatch | None = None  #: another database than ours: nobody may go on

    @property
    def full(self) -> bool:
        """Whether there is no room for another delivery."""
        return self.open >= self._limits.waiting or self.held >= self._limits.held

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Count one delivery from its first byte to its answer."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def put(self, arrival: Arrival) -> Outcome:
        """Wait until a delivery is durable, or is known not to be."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.append((arrival, future))
        self._more.set()
        return await future

    async def run(self) -> None:
        """Store what arrives, batch by batch, until cancelled."""
        while True:
            await self._more.wait()
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._limits.batch))]
            if not self._queue:
                self._more.clear()
            outcomes = await asyncio.to_thread(self._store, [arrival for arrival, _ in batch])
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():  # whoever waited may have gone
                    future.set_result(outcome)

    def _store(self, arrivals: Sequence[Arrival]) -> Sequence[Outcome]:
        """On a thread: store a batch. What cannot be stored with the others is tried by itself."""
        try:
            outcomes = self._take(arrivals)
            self.broken = None
        except StoreUnavailable as error:
            if isinstance(error, DatabaseReplaced):
                self.lost = error
            log.error("%d deliveries were not stored: %s", len(arrivals), error)
            self.broken = error.message
            return [Refusal(Kind.UNAVAILABLE, error.message)] * len(arrivals)
        except OpledgerError as error:
            if len(arrivals) > 1:
                return [outcome for arrival in arrivals for outcome in self._store([arrival])]
            log.error("a delivery to %s was not stored: %s", arrivals[0].contract.name, error)
            return [Refusal(Kind.UNAVAILABLE, error.message)]
        return outcomes
