"""Tasks as frozen values, from the ledger alone: no plan, no progress file, nothing that could act. Blocks."""

from __future__ import annotations

from opledger.errors import IntegrityBroken
from opledger.ledger import Ledger
from opledger.rules.model import Operation
from opledger.rules.tasks.records import Record, Unreadable, read
from opledger.rules.tasks.story import Story, tell
from opledger.rules.tasks.views import TaskView, outline_from, view
from opledger.store import Filter

__all__ = ["TaskView", "read_records", "read_task", "read_tasks"]


def read_tasks(ledger: Ledger, most: int = 200) -> tuple[TaskView, ...]:
    """Return the tasks, the one that was written about last first. Raises StoreUnavailable, IntegrityBroken."""
    found = [read_task(ledger, head.task) for head in ledger.store.tasks.heads(most)]
    return tuple(one for one in found if one is not None)


def read_task(ledger: Ledger, task: str) -> TaskView | None:
    """Return one task; None where it was never begun."""
    records = read_records(ledger, task)
    if not records:
        return None
    story: Story = tell(records)
    return view(task, story, outline_from(story), runner=runner_of(ledger, task))


def read_records(ledger: Ledger, task: str) -> tuple[Record, ...]:
    """Return every record of a task, in order."""
    try:
        return tuple(read(line) for line in ledger.store.tasks.lines(task))
    except Unreadable as error:
        raise IntegrityBroken(f"a record of task {task} in the ledger {error}: it was changed by hand") from error


def runner_of(ledger: Ledger, task: str) -> str | None:
    """Who runs a task now, by its lease; None where nobody does."""
    lease = ledger.store.tasks.lease(task, ledger.clock.now())
    return lease.owner if lease is not None and lease.held else None


def operation_of(ledger: Ledger, task: str, step: str) -> Operation | None:
    """Return the operation of a step, or None."""
    after = None
    while True:
        page = ledger.store.queries.list(Filter(task=task), after=after)
        found = next((op for op in page.operations if op.step == step), None)
        if found is not None or page.after is None:
            return found
        after = page.after
