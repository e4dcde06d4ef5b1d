"""Two worker processes at one provider, whose log says what was open at a time, and how much came in a second."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from opledger.edges.clock import SystemClock
from opledger.rules.model import Operation, State
from tests.faults.lab import PATIENCE, Hand, Lab

LATER = {'first = "50ms"': 'first = "1h"', 'max = "400ms"': 'max = "1h"'}
"""After its create an operation is not polled within the test."""

SLACK = 2.0
"""Seconds by which a busy machine may bring requests closer together than they were sent."""


def held_by(lab: Lab) -> dict[str, int]:
    """How many operations each worker holds under leases that last, by the name that it was started with."""
    clock = lab.ledger.clock
    found = lab.ledger.store.holdings(clock.now())
    now = clock.now()  # after it was read: what still lasts, lasted then
    return {name.rpartition("-")[0]: one.leases for name, one in found.items() if one.first_lapses > now}


def crew(lab: Lab, **how: Any) -> dict[str, Hand]:
    """Two workers that have signed on."""
    workers = {name: lab.worker(name=name, **how) for name in ("ann", "bob")}
    lab.present(2)
    return workers


def dismiss(*workers: Hand) -> None:
    """Stop them in good order."""
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.ends() for worker in workers] == [0] * len(workers)


def assert_said(lab: Lab, operations: Sequence[Operation]) -> None:
    """Each of the five that wait says for what, and who has it; the three that are under way do not."""
    ledger = lab.ledger
    found = [ledger.explain(operation.operation_id) for operation in operations]
    holders = {one.operation.lease.owner for one in found if one.operation.lease is not None}
    waiting = [one for one in found if one.operation.lease is None]
    assert (len(waiting), len(holders) > 0) == (5, True)
    for one in waiting:
        assert one.blocked_by is not None, one.why
        assert one.blocked_by.code == "limit_concurrency"
        assert "all 3 places that it allows are taken" in one.why
        assert all(owner in one.why for owner in holders)
    assert [one.blocked_by for one in found if one.operation.lease is not None] == [None] * 3


def test_two_workers_have_no_more_open_than_one_may(both: Lab) -> None:
    """Three at a time; when one worker is killed, the other one has its places once their leases have run out."""
    changes = {"concurrency = 50": "concurrency = 3", 'timeout = "3s"': 'timeout = "60s"'}
    both.contract(changes={**changes, **LATER}, result="3h")
    both.sim.control(hold="create")
    workers = crew(both, lease=6)
    operations = [both.submit() for _ in range(8)]
    assert both.sim.wait_for(3, timeout=PATIENCE, kind="create", held="true") == 3
    assert both.sim.wait_for(4, timeout=1.0, kind="create") == 3
    held = held_by(both)
    assert sum(held.values()) == 3
    assert_said(both, operations)

    victim = max(held, key=lambda name: held[name])
    workers[victim].signal(signal.SIGKILL)
    workers[victim].ends()
    (survivor,) = workers.keys() - {victim}
    clock, before = SystemClock(), 0
    end = clock.monotonic() + PATIENCE
    while before < 3:
        now = held_by(both)
        assert sum(now.values()) <= 3
        before = now.get(survivor, 0)
        assert clock.monotonic() < end, f"it has not got them: {now}"
        both.ledger.store.wait_for_change(0.2)
    both.sim.control(release=True)
    for operation in operations:
        both.until_state(operation, State.ACCEPTED)
        assert len(both.jobs(operation)) == 1
    dismiss(workers[survivor])
    both.honest()


def test_two_workers_send_no_more_in_a_second_than_one_may(both: Lab) -> None:
    """Ten a second, and ten at once: eighty creates take seven seconds, however many workers want to send them.

    Were it ten for each of the two, they would take three.
    """
    both.contract(changes={"concurrency = 50": 'concurrency = 50\nrate = "10/s"', **LATER}, result="3h")
    operations = [both.submit() for _ in range(80)]
    workers = crew(both, lease=20)
    assert both.sim.wait_for(80, timeout=PATIENCE, kind="create") == 80
    times = sorted(datetime.fromisoformat(entry["time"]).timestamp() for entry in both.wire("create"))
    for first, began in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= 10 * (times[last] - began + SLACK) + 10
    for operation in operations:
        both.until_state(operation, State.ACCEPTED)
    dismiss(*workers.values())
    both.honest()
