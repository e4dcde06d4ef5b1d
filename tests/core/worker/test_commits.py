from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from opledger.errors import LeaseLost, StoreUnavailable
from opledger.rules import evidence as e
from opledger.rules.model import Actor, ActorKind, Operation
from opledger.store import Claim, Declined, Fence, Recorded, Store, Takings, Write
from opledger.worker.commits import Commits
from tests.core.worker.conftest import Bench


class Slow(Store):
    """A store whose next transaction waits for a sign, so that others gather behind it."""

    gate: threading.Event
    entered: threading.Event
    batches: list[int]
    fails: dict[int, Exception]  #: by number of the transaction, from 1

    def record_many(self, writes: Sequence[Write]) -> list[Recorded | Declined]:
        """Count, wait, and write."""
        self.passes(len(writes))
        return super().record_many(writes)

    def exchange(self, writes: Sequence[Write], ask: Claim) -> tuple[list[Recorded | Declined], Takings]:
        """Count, wait, write and claim."""
        self.passes(len(writes))
        return super().exchange(writes, ask)

    def passes(self, count: int) -> None:
        """One transaction begins."""
        self.batches.append(count)
        self.entered.set()
        assert self.gate.wait(20)
        if len(self.batches) in self.fails:
            raise self.fails[len(self.batches)]


@pytest.fixture
def store(bench: Bench) -> Slow:
    """A store that waits for nothing yet."""
    opened = Slow.open(bench.url)
    bench.stores.append(opened)
    opened.gate, opened.entered = threading.Event(), threading.Event()
    opened.gate.set()
    opened.batches, opened.fails = [], {}
    return opened


@pytest.fixture
async def commits(store: Slow) -> AsyncIterator[Commits]:
    """The thread that commits."""
    made = Commits(store)
    yield made
    store.gate.set()
    made.close()


def note(bench: Bench, operation: Operation, text: str = "seen", fence: Fence | None = None) -> Write:
    """A remark about an operation."""
    return Write(
        operation.operation_id,
        e.Noted(text),
        Actor("w", ActorKind.WORKER),
        bench.ledger.clock.now(),
        "test",
        plan=lambda op: op.next,
        fence=fence,
    )


async def gathered(bench: Bench, store: Slow, commits: Commits, *coming: Any) -> tuple[asyncio.Future[Any], Any]:
    """Hand in one write, and while that is under way all of `coming`; returns the first and the others."""
    store.gate.clear()
    store.entered.clear()
    first = asyncio.ensure_future(commits.record(note(bench, bench.submit())))
    await asyncio.to_thread(store.entered.wait, 20)
    others = [asyncio.ensure_future(one) for one in coming]
    for _ in range(3):
        await asyncio.sleep(0)  # each has handed in what it has
    store.gate.set()
    return first, asyncio.gather(*others, return_exceptions=True)


async def test_what_gathers_during_a_commit_goes_out_in_one_transaction(
    bench: Bench, store: Slow, commits: Commits
) -> None:
    """Twenty drives hand in while one fsync is under way; the next one serves them all, each with its own outcome."""
    operations = [bench.submit() for _ in range(20)]
    stale = note(bench, operations[7], fence=Fence("nobody", 3))
    writes = [stale if number == 7 else note(bench, op) for number, op in enumerate(operations)]
    first, others = await gathered(bench, store, commits, *(commits.record(write) for write in writes))
    (outcome,) = await first
    assert isinstance(outcome, Recorded)
    outcomes = [one for (one,) in await others]
    assert store.batches == [1, 20]
    assert [type(one) for number, one in enumerate(outcomes) if number != 7] == [Recorded] * 19
    assert isinstance(outcomes[7], Declined)
    assert isinstance(outcomes[7].error, LeaseLost)
    assert [one.operation.operation_id for number, one in enumerate(outcomes) if number != 7] == [
        operation.operation_id for number, operation in enumerate(operations) if number != 7
    ]


async def test_a_claim_shares_the_transaction_of_the_writes(bench: Bench, store: Slow, commits: Commits) -> None:
    """Writes that go out anyway carry the claim along; without writes it has a transaction of its own."""
    operation = bench.submit()
    asked: list[bool] = []

    def ask(writing: bool) -> Claim:
        asked.append(writing)
        return Claim("w", 10, timedelta(seconds=30), bench.ledger.clock.now())

    first, others = await gathered(bench, store, commits, commits.record(note(bench, operation)), commits.claim(ask))
    await first
    (recorded,), claimed = await others
    assert isinstance(recorded, Recorded)
    assert operation.operation_id in {one.operation.operation_id for one in claimed}
    assert store.batches == [1, 1]
    assert await commits.claim(ask) == []
    assert asked == [True, False]


async def test_a_claim_that_wants_nothing_costs_no_transaction(bench: Bench, store: Slow, commits: Commits) -> None:
    """Most looks find nothing due."""
    bench.submit()
    assert await commits.claim(lambda _: None) == []
    assert store.batches == []


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("a bug in the store")])
async def test_a_commit_that_breaks_is_told_to_all_of_it_and_spoils_nothing_after(
    bench: Bench, store: Slow, commits: Commits, error: Exception
) -> None:
    """Whatever broke: nobody may take it for done, and the next commit is a new one."""
    operations = [bench.submit() for _ in range(3)]
    store.fails = {2: error}
    first, others = await gathered(
        bench, store, commits, *(commits.record(note(bench, operation)) for operation in operations)
    )
    assert isinstance((await first)[0], Recorded)
    assert [type(outcome) for outcome in await others] == [StoreUnavailable] * 3
    for operation in operations:
        (outcome,) = await commits.record(note(bench, operation))
        assert isinstance(outcome, Recorded)


async def test_a_function_that_breaks_is_told_to_its_caller_only(bench: Bench, store: Slow, commits: Commits) -> None:
    """Reads run on the same thread, between transactions; one that fails is nobody else's business."""
    operation = bench.submit()

    def broken() -> None:
        raise ZeroDivisionError

    outcomes = await asyncio.gather(
        commits.run(broken), commits.record(note(bench, operation)), commits.run(lambda: 7), return_exceptions=True
    )
    assert isinstance(outcomes[0], ZeroDivisionError)
    assert isinstance(outcomes[1], list)
    assert outcomes[2] == 7


async def test_a_write_goes_on_where_its_caller_is_cancelled(bench: Bench, store: Slow, commits: Commits) -> None:
    """A commit that is under way must not become half-known."""
    operation = bench.submit()
    first, others = await gathered(bench, store, commits)
    await first
    await others
    store.gate.clear()
    store.entered.clear()
    task = asyncio.ensure_future(commits.record(note(bench, operation, "written all the same")))
    await asyncio.to_thread(store.entered.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.gate.set()
    await commits.run(lambda: None)
    assert bench.kinds(operation)[-1] == "Noted"


async def test_closing_ends_what_was_handed_in(bench: Bench, store: Slow) -> None:
    """Whatever was handed in before the end is durable when the thread has gone."""
    operations = [bench.submit() for _ in range(5)]
    commits = Commits(store)
    tasks = [asyncio.ensure_future(commits.record(note(bench, operation))) for operation in operations]
    await asyncio.sleep(0)
    await asyncio.to_thread(commits.close)
    await asyncio.gather(*tasks)
    assert all(bench.kinds(operation)[-1] == "Noted" for operation in operations)
