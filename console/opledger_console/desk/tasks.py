"""Reads for the tasks: which operations belong to a task. Blocks; for threads.

No index knows of tasks, so the newest operations are gone through once, and from then on the journal says which ones
have changed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from opledger.rules.model import Operation
from opledger.rules.shapes import event_of
from opledger.store import Filter
from opledger.store.tail import Mark
from opledger_console.desk import Desk

SEARCHED: Final = 5_000
"""How many of the newest operations are gone through for tasks."""

PAGE: Final = 500
RECENT: Final = 200
FURTHEST: Final = 5_000
"""How many events back the last change of a state is looked for."""


@dataclass(frozen=True, slots=True)
class Member:
    """An operation of a task. `since`: when it came into its state, as far as its last events tell."""

    operation: Operation
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Tasks:
    """The operations with a task, by task, newest task first; `partial`: there are more operations than looked at."""

    members: tuple[Member, ...] = ()
    searched: int = 0
    partial: bool = False


@dataclass
class TaskBook:
    """What is known of tasks so far. One thread at a time."""

    desk: Desk
    _known: dict[str, Member] = field(default_factory=dict)
    _mark: Mark | None = None
    _searched: int = 0
    _partial: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> Tasks:
        """Return the tasks as they are now. Raises StoreUnavailable."""
        with self._lock:
            queries = self.desk.ledger.store.queries
            news = queries.tail(self._mark, limit=PAGE)
            if self._mark is None or news.missed:
                self._read_all()
            else:
                ids = list(dict.fromkeys(one.operation_id for one in news.events))
                for op in queries.get_many(ids) if ids else ():
                    self._keep(op)
            # Marked last: what failed to be read is asked for again.
            self._mark = news.mark
            return Tasks(_ordered(self._known), self._searched, self._partial)

    def _read_all(self) -> None:
        self._known.clear()
        self._searched, after = 0, None
        while self._searched < SEARCHED and not self.desk.closing.is_set():
            page = self.desk.ledger.store.queries.list(Filter(), limit=PAGE, after=after)
            for op in page.operations:
                self._keep(op)
            self._searched += len(page.operations)
            after = page.after
            if after is None:
                break
        self._partial = after is not None

    def _keep(self, op: Operation) -> None:
        if op.task is not None:
            self._known[op.operation_id] = Member(op, self._since(op))

    def _since(self, op: Operation) -> datetime | None:
        before = self._known.get(op.operation_id)
        if before is not None and before.operation.state is op.state and before.since is not None:
            return before.since
        # Backwards: most have changed lately, and of those that have not each poll is an event.
        last, least = op.head_seq, max(op.head_seq - FURTHEST, 0)
        while last > least:
            first = max(last - RECENT, least)
            rows = self.desk.ledger.store.queries.events(op.operation_id, first, limit=last - first)
            found = next((event_of(row).at for row in reversed(rows) if row.to_state is not None), None)
            if found is not None:
                return found
            last = first
        return None


def _ordered(known: dict[str, Member]) -> tuple[Member, ...]:
    """Put tasks in the order of their newest operation, and the steps of each in the order they were made."""
    newest: dict[str, datetime] = {}
    for one in known.values():
        task = one.operation.task or ""
        newest[task] = max(newest.get(task, one.operation.created_at), one.operation.created_at)
    by_step = sorted(known.values(), key=lambda one: (one.operation.created_at, one.operation.operation_id))
    return tuple(
        one for task in sorted(newest, key=lambda task: (newest[task], task), reverse=True) for one in by_step
        if one.operation.task == task
    )  # fmt: skip
