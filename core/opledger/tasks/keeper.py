"""Who runs a task: one lease in the ledger for all machines, and one lock that tells the living from the dead on this.

A lease that was taken here and whose lock is free belongs to a runner that died: nobody need wait for its end. Of a
lease from elsewhere nobody can tell; if it is renewed, its holder lives.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from opledger.edges.clock import Clock, new_id
from opledger.errors import LeaseLost, OpledgerError, Refused
from opledger.store import Store
from opledger.store.tasks import TaskLease, holder
from opledger.tasks.papers import Lock, Papers

LOOK: Final = 0.5
"""Seconds between two looks at a lease from elsewhere."""


class AlreadyRun(Refused):
    """Somebody else runs this task now."""

    code = "already_run"


class Keeper:
    """The right to run one task, for as long as the ``with`` statement lasts. Raises AlreadyRun at its beginning."""

    def __init__(self, store: Store, papers: Papers, clock: Clock, *, task: str, run: str, lease: timedelta) -> None:
        self.task = task
        self.run = run
        self._store, self._papers, self._clock, self._lease = store, papers, clock, lease
        self.owner = f"{papers.place}/{new_id('runner')}"
        self._epoch = 0
        self._ends = 0.0
        self._lock: Lock | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="task-lease", daemon=True)

    @property
    def fence(self) -> tuple[str, int]:
        """What every write of this runner carries."""
        return (self.owner, self._epoch)

    def check(self) -> None:
        """Raise LeaseLost where this runner may not act any more."""
        if self._clock.monotonic() >= self._ends:
            raise LeaseLost(f"the lease of task {self.task} could not be renewed in time; run it again")

    def pause(self, seconds: float) -> None:
        """Wait a little."""
        self._stop.wait(seconds)

    def __enter__(self) -> Self:
        self._lock = self._papers.lock_runner()
        if self._lock is None:
            raise AlreadyRun(f"task {self.task} is run by another process on this machine; wait for it, or end it")
        try:
            self._acquire()
            self._papers.sweep(self._clock.now())
        except BaseException:
            self._lock.free()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self._store.tasks.release(self.task, self.owner, self._epoch)
        except OpledgerError:
            if error is None:
                raise
        finally:
            if self._lock is not None:
                self._lock.free()

    def _acquire(self) -> None:
        seen: TaskLease | None = None
        dead: int | None = None
        while True:
            begun = self._clock.monotonic()
            found = self._store.tasks.claim(
                self.task, self.run, self.owner, self._papers.place, self._lease, now=self._clock.now(), dead=dead
            )
            if found.owner == self.owner:
                self._epoch, self.run = found.epoch, found.run
                self._ends = begun + self._lease.total_seconds()
                return
            if found.place == self._papers.place:
                dead = found.epoch  # we hold the lock that it held
                continue
            if seen is not None and (seen.epoch, seen.expires_at) != (found.epoch, found.expires_at):
                raise AlreadyRun(f"task {self.task} is run by {holder(found)}, on another machine or in another folder")
            seen = found
            self._stop.wait(LOOK)

    def _renew(self) -> None:
        length = self._lease.total_seconds()
        while not self._stop.wait(length / 4):
            begun = self._clock.monotonic()
            try:
                if not self._store.tasks.renew(self.task, self.owner, self._epoch, self._lease, self._clock.now()):
                    self._ends = 0.0
                    return
            except OpledgerError:
                continue  # tried again; where it does not come back in time, `check` says so
            self._ends = begun + length
