from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from opledger.errors import ConfigWrong, StoreUnavailable, UnknownOperation
from opledger.rules import decide
from opledger.rules import evidence as e
from opledger.rules.model import Action, Means, State
from opledger.store import Store
from opledger.worker.drive import Drive
from opledger.worker.hand import Dropped, Held
from opledger.worker.known import Known
from tests.core.worker.conftest import Bench


async def begun(bench: Bench, count: int = 1, *, timeout: float = 10, **match: str) -> int:  # noqa: ASYNC109
    """Wait until so much has arrived at the provider, while the worker of this process goes on."""
    return await asyncio.to_thread(lambda: bench.sim.wait_for(count, timeout=timeout, **match))


async def test_a_fresh_worker_keeps_the_concurrency_of_a_contract_it_has_not_read_yet(bench: Bench) -> None:
    """The limits stand in the contract, which a worker learns with its first operation: that must not be a flood."""
    bench.contract(changes={"concurrency = 50": "concurrency = 2"})
    bench.sim.control(hold="create")
    for _ in range(8):
        bench.submit(_polls=1)
    stop = asyncio.Event()
    running = asyncio.ensure_future(bench.hire().run(stop))
    assert await begun(bench, 2, kind="create", held="true") == 2
    assert await begun(bench, 3, timeout=0.7, kind="create") == 2
    bench.sim.control(release=True)
    assert await begun(bench, 8, kind="result") == 8
    stop.set()
    await running
    bench.honest()


async def test_once_does_all_that_is_due_whatever_the_limits(bench: Bench) -> None:
    """One look goes in as many rounds as the contract's concurrency makes of it, and polls nothing that must wait."""
    changes = {"concurrency = 50": "concurrency = 2", 'first = "50ms"': 'first = "1h"', 'max = "400ms"': 'max = "1h"'}
    bench.contract(changes=changes, result="3h")
    operations = [bench.submit() for _ in range(5)]
    await bench.hire().run(asyncio.Event(), once=True)
    assert {bench.show(operation).state for operation in operations} == {State.ACCEPTED}
    assert [entry["kind"] for entry in bench.sim.log()] == ["create"] * 5


async def test_a_call_ends_before_the_lease_does(bench: Bench) -> None:
    """The contract would wait for a minute; a lease of one second cuts the call, and its fate is unknown (I12)."""
    bench.contract(changes={'timeout = "3s"': 'timeout = "60s"'}, create="90s")
    bench.sim.control(hold="create")
    operation = bench.submit(_polls=1)
    running = asyncio.ensure_future(bench.idle(bench.hire(lease=timedelta(seconds=1))))
    assert await begun(bench, kind="create", held="true") == 1
    assert await begun(bench, kind="create", fault="client gone while held") == 1
    bench.sim.control(release=True)
    await running
    assert bench.show(operation).state is State.SUCCEEDED
    assert "CallLost" in bench.kinds(operation)
    assert len(bench.jobs(operation)) == 1


async def test_a_secret_that_is_missing_here_stops_nobody_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent without credentials, and the record says why; a worker that has them goes on, unpaused."""
    operations = [bench.submit(_polls=1) for _ in range(3)]
    monkeypatch.delenv("SIM_TOKEN")
    await bench.hire().run(asyncio.Event(), once=True)
    assert bench.sim.log() == []
    assert {bench.show(operation).state for operation in operations} == {State.CREATE_PENDING}
    assert bench.ledger.store.paused() == {}
    assert any("SIM_TOKEN" in (bench.show(operation).last_error or "") for operation in operations)
    monkeypatch.setenv("SIM_TOKEN", "loopback-only-token")
    await bench.idle()
    assert {bench.show(operation).state for operation in operations} == {State.SUCCEEDED}
    bench.honest()


async def test_a_deadline_of_a_paused_provider_is_kept(bench: Bench) -> None:
    """A deadline needs no call: it passes also while calls are stopped, and nothing is sent."""
    bench.contract(changes={'timeout = "3s"': 'timeout = "100ms"'}, create="200ms")
    operation = bench.submit()
    bench.ledger.pause_provider("sim", reason="maintenance")
    await bench.idle()
    assert bench.show(operation).state is State.FAILED
    assert bench.sim.log() == []


async def test_what_cannot_be_driven_is_not_tried_again_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record whose contract cannot be read would be claimed as fast as the machine can: its lease is kept instead."""
    operation = bench.submit()

    def unreadable(*_: Any) -> Any:
        raise ConfigWrong("this version cannot read that contract")

    monkeypatch.setattr(Known, "contract", unreadable)
    worker = bench.hire()
    stop = asyncio.Event()
    running = asyncio.ensure_future(worker.run(stop))
    await asyncio.to_thread(bench.until, operation, lambda op: op.lease is not None)
    for _ in range(20):
        worker.wake()
        await worker._commits.run(lambda: None)
    lease = bench.show(operation).lease
    assert lease is not None
    assert lease.epoch == 1
    stop.set()
    await running
    assert bench.show(operation).lease is None


async def test_a_full_disk_for_results_backs_off_and_shows(bench: Bench) -> None:
    """The result stays at the provider; it is not asked for in a loop, and goes on once there is room."""
    bench.contract(changes={'first = "50ms"': 'first = "300ms"'}, collect="30s")
    operation = bench.submit(_polls=1)
    bench.results.write_text("a file stands where the folder should be")
    stop = asyncio.Event()
    running = asyncio.ensure_future(bench.hire().run(stop))
    found = await asyncio.to_thread(bench.until, operation, lambda op: op.attention is not None)
    assert found.state is State.RESULT_COLLECTING
    assert found.attention is not None and found.attention.code == "storage"
    assert len(bench.wire("status")) == 1
    bench.results.unlink()
    assert (await asyncio.to_thread(bench.until_state, operation, State.SUCCEEDED)).result is not None
    stop.set()
    await running


async def test_a_fault_of_ours_stops_the_worker_loudly(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that breaks the rules' code is not polled on with; the lease is given back for those who know better."""
    operation = bench.submit()

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(decide, "decide", broken)
    for how in ({"once": True}, {"until_idle": True}, {}):
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(bench.hire().run(asyncio.Event(), **how), 20)
        assert bench.show(operation).lease is None
        assert bench.ledger.store.workers() == []


async def test_a_database_that_cannot_be_used_at_the_start_is_told_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once running a worker waits for its database; but who starts one must hear that it cannot work."""

    def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the database is away")

    worker = bench.hire()
    monkeypatch.setattr(Store, "heartbeat", away)
    with pytest.raises(StoreUnavailable):
        await worker.run(asyncio.Event())


async def test_a_worker_that_has_signed_off_gives_no_more_signs_of_life(bench: Bench) -> None:
    """A heartbeat that comes a moment too late would leave a dead worker among the living for a day."""
    worker = bench.hire(name="gone")
    await worker.run(asyncio.Event(), once=True)
    await asyncio.wait_for(worker.heartbeat(), 5)
    assert bench.ledger.store.workers() == []


async def test_one_read_on_demand(bench: Bench) -> None:
    """A single read under a lease of its own: recorded, and the lease given back; refused where another holds it."""
    changes = {'first = "50ms"': 'first = "1h"', 'max = "400ms"': 'max = "1h"'}
    bench.contract(changes=changes, result="3h")
    operation = bench.submit(_seconds=60)
    with pytest.raises(UnknownOperation):
        await bench.hire().read_once(operation.operation_id)
    await bench.hire().run(asyncio.Event(), once=True)
    found = await bench.hire(name="reader").read_once(operation.operation_id)
    assert found is not None
    assert (found.state, found.lease) == (State.OBSERVING, None)
    assert bench.kinds(operation)[-1] == "Observed"
    now = bench.ledger.clock.now()
    lease = bench.hire().lease
    assert bench.ledger.store.claim_one(operation.operation_id, "somebody", lease, now) is not None
    assert await bench.hire().read_once(operation.operation_id) is None
    assert len(bench.wire("status")) == 1


# --- two workers, one token, two jobs (I3): what the model of tests/model found -----------------------------------


async def overtaken(bench: Bench) -> tuple[Drive, Drive]:
    """Two drives of one operation: the first has sent its create and lost its lease, the second is looking it up."""
    operation_id = bench.submit(_polls=1).operation_id
    drives: list[Drive] = []
    for name in ("first", "second"):
        worker = bench.hire(name=name)
        worker._equip()
        now, store = bench.ledger.clock.now(), bench.ledger.store
        for last in drives:
            store.release(last.shop.name, [(operation_id, last.held.epoch)])
        claimed = store.claim_one(operation_id, worker.name, timedelta(minutes=5), now)
        assert claimed is not None and claimed.operation.lease is not None
        drives.append(Drive(worker._shop, claimed, Held(claimed.operation.lease.epoch, float("inf"))))
        if name == "first":
            await drives[0].record(a_call("call_1", Action.CREATE), "call:call_1", live=True)
    first, second = drives
    await second.record(e.CallLost(call_id="call_1"), "recovery")
    await second.record(a_call("call_2", Action.RECONCILE), "call:call_2", live=True)
    return first, second


def a_call(call_id: str, action: Action) -> e.CallSent:
    """A permit to send the create, or to send it again."""
    strategy = "resend" if action is Action.RECONCILE else None
    return e.CallSent(call_id, action, "POST", "/jobs", 1, strategy=strategy, may_create=True)


async def test_another_job_than_a_late_answer_brought_is_never_taken(bench: Bench) -> None:
    """The second worker read its answer with a copy of the record that did not show the first one's yet."""
    first, second = await overtaken(bench)
    with pytest.raises(Dropped):
        await first.record(e.Accepted(call_id="call_1", job_id="job_1"), "call:call_1")
    with pytest.raises(Dropped):
        await second.record(e.Accepted(call_id="call_2", job_id="job_2", how="resend"), "call:call_2")
    found = bench.ledger.store.get(first.op.operation_id)
    assert (found.state, found.jobs, found.remote_job_id) == (State.CONTRACT_VIOLATION, ("job_1", "job_2"), None)


async def test_a_broken_promise_that_is_heard_of_too_late_stops_the_operation(bench: Bench) -> None:
    """An overtaken worker learnt of a second job: as a remark alone, the operation would go on with the first one."""
    first, second = await overtaken(bench)
    await second.record(e.Accepted(call_id="call_2", job_id="job_1", how="resend"), "call:call_2")
    with pytest.raises(Dropped):
        await first.record(
            e.UnfamiliarJobId(call_id="call_1", why="job_2 after job_1", jobs=("job_1", "job_2")), "call:call_1"
        )
    found = bench.ledger.store.get(first.op.operation_id)
    assert (found.state, found.jobs) == (State.CONTRACT_VIOLATION, ("job_1", "job_2"))


async def test_a_job_that_is_heard_of_after_the_end_is_told(bench: Bench) -> None:
    """Its violation stops nothing any more and is refused; the answer itself is kept all the same, and shown."""
    first, second = await overtaken(bench)
    await second.record(e.Accepted(call_id="call_2", job_id="job_1", how="resend"), "call:call_2")
    await second.record(e.Observed("call_3", job_id="job_1", remote_state="failed", means=Means.FAILED), "call:call_3")
    with pytest.raises(Dropped):
        await first.record(e.Accepted(call_id="call_1", job_id="job_2"), "call:call_1")
    found = bench.ledger.store.get(first.op.operation_id)
    assert (found.state, found.jobs) == (State.FAILED, ("job_1", "job_2"))
    assert found.attention is not None and found.attention.code == "final_state_contradicted"
