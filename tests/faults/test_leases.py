from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from opledger.rules.model import Operation, State
from tests.faults.lab import Hand, Lab
from tests.faults.victim import Strike

pytestmark = pytest.mark.processes


def test_the_lease_of_a_dead_worker_is_taken_over_and_that_is_recorded(both: Lab) -> None:
    """Whoever takes over says whom it succeeds; what the dead one was permitted to send counts as unknown."""
    operation = both.submit(_polls=2)
    dead = both.worker(Strike(at="after record CallSent.create"), name="first", lease=1)
    assert dead.ends() == -signal.SIGKILL
    before = both.show(operation).lease
    assert before is not None
    both.finish(name="second")
    taken = next(event for event in both.ledger.events(operation.operation_id) if event.kind == "LeaseTaken")
    assert taken.data is not None
    assert taken.data["previous_owner"] == before.owner
    assert taken.data["epoch"] == before.epoch + 1
    assert taken.actor.startswith("second-")
    assert taken.at >= before.expires_at - timedelta(seconds=0.5)
    assert both.kinds(operation)[3:5] == ["CallLost", "CallSent"]
    assert both.show(operation).state is State.SUCCEEDED
    assert len(both.jobs(operation)) == 1
    both.honest()


@pytest.mark.parametrize("count", [2, 4])
def test_many_workers_on_one_database(both: Lab, count: int) -> None:
    """All start together and wake together; each create and each poll is made once, by whoever got it (B40)."""
    workers = [both.worker(name=f"worker-{number}", lease=10, tick=60) for number in range(count)]
    both.present(count)
    operations: list[Operation] = []
    actors: set[str] = set()
    while len(actors) < 2:  # on a busy machine one may have done the first twenty before another looks
        assert len(operations) < 400, "one did it all; nothing was proved"
        batch = [both.submit(_polls=3) for _ in range(20)]
        ended = both.ledger.wait_all([operation.operation_id for operation in batch], "60s")
        assert {operation.state for operation in ended} == {State.SUCCEEDED}
        operations += batch
        told = [event.actor for operation in batch for event in both.ledger.events(operation.operation_id)]
        actors.update(actor for actor in told if actor.startswith("worker-"))
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.ends() for worker in workers] == [0] * count
    for operation in operations:
        assert [len(both.wire(kind, operation)) for kind in ("create", "status", "result")] == [1, 3, 1]
    assert len(both.kept()) == len(operations)
    both.honest()


def ghost(lab: Lab, effect: str) -> Hand:
    """A worker that freezes at an effect, with a lease that does not outlast that."""
    return lab.worker(Strike("stop", at=effect), name="worker", lease=1, until_idle=True)


GHOSTS = {
    # where attempt 1 wakes: how many creates and cancels may then have arrived
    "after record CallSent.create": 1,  # only the successor's
    "before send POST": 2,  # a permit that was checked a moment before; the token makes one job of both
    "after send POST": 2,  # the successor's resend
    "before record Accepted": 2,
    "before record Observed": 1,
    "before keep": 1,
    "before record ResultAccepted": 1,
}


@pytest.mark.parametrize("effect", GHOSTS)
def test_a_ghost_wakes_after_its_lease(both: Lab, effect: str) -> None:
    """Paused past its lease and taken over by one of its name: it may append what it saw, and nothing else (B38)."""
    operation = both.submit(_polls=2)
    worker = ghost(both, effect)
    worker.freezes(effect)
    both.finish(name="worker")
    before = both.show(operation)
    journal = both.ledger.events(operation.operation_id)
    assert before.state is State.SUCCEEDED
    assert "LeaseTaken" in [event.kind for event in journal]

    worker.signal(signal.SIGCONT)
    assert worker.ends() == 0, worker.tail()

    after = both.show(operation)
    late = both.ledger.events(operation.operation_id)[len(journal) :]
    assert (after.state, after.remote_job_id, after.result) == (before.state, before.remote_job_id, before.result)
    assert {event.kind for event in late} <= {"Noted"}
    kept = [(event.data or {}).get("late_kind") for event in late]
    if effect.startswith("before record"):
        assert kept == [effect.removeprefix("before record ")]
    if effect == "after record CallSent.create":
        assert kept == ["NotDelivered"]  # its permit was never used, and now the journal says so
    assert len(both.wire("create", operation)) <= GHOSTS[effect]
    assert len(both.jobs(operation)) == 1
    assert len(both.kept()) == 1
    both.honest()


@pytest.mark.parametrize(
    "effect", ["after record CallSent.cancel", "before send DELETE", "before record CancelAnswered"]
)
def test_a_ghost_wakes_with_a_cancel_in_hand(lab: Lab, effect: str) -> None:
    """The permit to cancel was given before the pause; whatever the successor did, one cancel is the most."""
    lab.contract(changes={'timeout = "2s"': 'timeout = "1s"'}, cancel="3s")
    operation = lab.submit("cancellable", "prompt")
    worker = ghost(lab, effect)
    lab.until_state(operation, State.OBSERVING)
    lab.ledger.cancel(operation.operation_id, reason="ordered twice")
    worker.freezes(effect)
    sent = len(lab.wire("cancel", operation))
    lab.finish(name="worker")
    found = lab.show(operation)
    assert found.state is (State.CANCELLED if sent else State.CANCELLATION_UNCONFIRMED)
    assert len(lab.wire("cancel", operation)) == sent

    worker.signal(signal.SIGCONT)
    assert worker.ends() == 0, worker.tail()

    assert lab.show(operation).state is found.state
    assert len(lab.wire("cancel", operation)) <= 1
    if effect == "after record CallSent.cancel":
        assert lab.wire("cancel", operation) == []
    lab.honest()


def test_a_ghost_wakes_with_a_create_in_flight(both: Lab) -> None:
    """Its answer came while it was paused; on waking it wants to renew a lease that is another's by now."""
    both.sim.control(hold="create")
    operation = both.submit(_polls=2)
    worker = both.worker(name="worker", lease=2, until_idle=True)
    assert both.sim.wait_for(kind="create", held="true") == 1
    worker.freeze()
    both.sim.control(release=True)
    both.finish(name="worker")
    before = both.show(operation)
    assert before.state is State.SUCCEEDED
    worker.signal(signal.SIGCONT)
    assert worker.ends() == 0, worker.tail()
    after = both.show(operation)
    assert (after.state, after.remote_job_id, after.result) == (before.state, before.remote_job_id, before.result)
    late = both.ledger.events(operation.operation_id)[before.head_seq :]
    assert [event.kind for event in late] == ["Noted"]
    assert len(both.wire("create", operation)) == 2
    assert len(both.jobs(operation)) == 1
    both.honest()


def test_what_waits_holds_no_lease_and_is_not_handed_out_again(both: Lab) -> None:
    """The next poll is an hour away and the lease is a second: two workers leave it alone all the same (B40)."""
    both.contract(changes={'first = "50ms"': 'first = "1h"', 'max = "400ms"': 'max = "1h"'}, result="3h")
    operation = both.submit()
    for _ in range(2):
        both.worker(lease=1, tick=0.1)
    both.until(operation, lambda op: op.state is State.ACCEPTED and op.lease is None)
    assert both.sim.wait_for(kind="status", count=1, timeout=2.5) == 0
    found = both.show(operation)
    assert (found.lease, found.state) == (None, State.ACCEPTED)
    assert "LeaseTaken" not in both.kinds(operation)


def test_a_transfer_that_outlasts_the_lease_renews_it(both: Lab) -> None:
    """A download of several lease lengths stays with the worker that began it, though another one is there (B40)."""
    both.sim.control(hold="result")
    operation = both.submit(_polls=1)
    for _ in range(2):
        both.worker(lease=1, tick=0.1)
    assert both.sim.wait_for(kind="result", held="true") == 1
    assert both.sim.wait_for(kind="result", count=2, timeout=3) == 1
    both.sim.control(release=True)
    assert both.until(operation, lambda op: op.state.terminal).state is State.SUCCEEDED
    assert "LeaseTaken" not in both.kinds(operation)
    assert len(both.wire("result", operation)) == 1


WRONG_CLOCKS = [3600.0, -3600.0]


@pytest.mark.postgres
@pytest.mark.parametrize("skew", WRONG_CLOCKS)
def test_a_worker_whose_clock_is_wrong_works_all_the_same(server_lab: Lab, skew: float) -> None:
    """Its host is an hour off: nothing is due too late, and no deadline passes too early."""
    operation = server_lab.submit("lossy", _polls=2)
    worker = server_lab.worker(skew=skew, until_idle=True)
    assert worker.ends() == 0
    assert server_lab.show(operation).state is State.SUCCEEDED
    assert len(server_lab.jobs(operation)) == 1
    server_lab.honest()


@pytest.mark.postgres
@pytest.mark.parametrize("skew", WRONG_CLOCKS)
@pytest.mark.parametrize("wrong", ["the dead one", "the successor"])
def test_take_over_across_a_wrong_clock(server_lab: Lab, skew: float, wrong: str) -> None:
    """Leases are counted by the server's clock: a take-over comes when they run out there, not an hour later."""
    operation = server_lab.submit(_polls=2)
    first, second = (skew, 0.0) if wrong == "the dead one" else (0.0, skew)
    dead = server_lab.worker(Strike(at="after record CallSent.create"), lease=1, skew=first)
    assert dead.ends() == -signal.SIGKILL
    server_lab.finish(20, skew=second)
    assert server_lab.show(operation).state is State.SUCCEEDED
    assert "LeaseTaken" in server_lab.kinds(operation)
    assert len(server_lab.jobs(operation)) == 1
    server_lab.honest()


@pytest.mark.postgres
@pytest.mark.parametrize("skew", WRONG_CLOCKS)
def test_a_wrong_clock_does_not_end_the_lease_of_another(server_lab: Lab, skew: float) -> None:
    """A worker an hour ahead must not think that everybody's lease has run out."""
    server_lab.contract(changes={'timeout = "3s"': 'timeout = "60s"'}, create="90s")
    server_lab.sim.control(hold="create")
    operation = server_lab.submit(_polls=2)
    holder = server_lab.worker(lease=30, name="holder")
    assert server_lab.sim.wait_for(kind="create", held="true") == 1
    other = server_lab.worker(lease=30, name="other", skew=skew, tick=0.1)
    assert server_lab.sim.wait_for(kind="create", count=2, timeout=2) == 1
    assert other.alive
    server_lab.sim.control(release=True)
    found = server_lab.until(operation, lambda op: op.state.terminal)
    assert found.state is State.SUCCEEDED
    assert "LeaseTaken" not in server_lab.kinds(operation)
    assert len(server_lab.wire("create", operation)) == 1
    assert holder.alive
    server_lab.honest()
