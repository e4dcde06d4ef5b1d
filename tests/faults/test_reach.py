"""Two worker processes at one provider, one of which is cut off from it; and a provider that answers neither."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opledger.edges.http import Http
from opledger.rules import reach
from opledger.rules.calls import Failure, Fate
from opledger.rules.model import Operation, State
from tests.faults.lab import PATIENCE, Lab
from tests.faults.victim import Order, child

BUDGET = {"concurrency = 50": 'concurrency = 50\nerror_budget = 8\nerror_window = "1s"'}


def cut_off(order: Order, pipe: Any) -> None:
    """A worker whose host has no way to the provider as long as a file stands there; the database it reaches."""
    real, cut = Http.send, Path(order.folder) / "cut"

    async def send(self: Http, request: Any) -> Any:
        if cut.exists():
            return Failure(Fate.NOT_DELIVERED, "no route to host")
        return await real(self, request)

    Http.send = send  # type: ignore[method-assign]
    reach.FIRST_ASIDE = reach.SECOND  # type: ignore[misc]
    child(order, pipe)


def waits(lab: Lab, holds: Callable[[], bool], what: str, meanwhile: Callable[[], Any] | None = None) -> None:
    """Wait until something is so, and do something again and again meanwhile."""
    clock = lab.ledger.clock
    end = clock.monotonic() + PATIENCE
    while not holds():
        assert clock.monotonic() < end, f"{what}: {lab.ledger.store.reach()}, {lab.ledger.store.paused()}"
        if meanwhile is not None:
            meanwhile()
        lab.ledger.store.wait_for_change(0.2)


def asides(lab: Lab) -> dict[str, str]:
    """The workers that leave the provider to others, by the name that they were started with, and why."""
    found = lab.ledger.store.workers()
    return {life.name.rpartition("-")[0]: one.why for life in found for one in life.asides}


def test_a_worker_that_is_cut_off_leaves_it_to_the_other_one(both: Lab) -> None:
    """Nothing is paused, everything gets done, people are told; and when its network is mended it works again."""
    both.contract(changes=BUDGET)
    (both.folder / "cut").touch()
    cut = both.worker(name="cut", target=cut_off, lease=20)
    well = both.worker(name="well", lease=20)
    both.present(2)
    operations: list[Operation] = []

    def more() -> None:
        # Not faster than they get done: on a slow machine there would be no end of them.
        if sum(both.show(operation).state is not State.SUCCEEDED for operation in operations) < 12:
            operations.extend(both.submit() for _ in range(4))

    waits(both, lambda: bool(asides(both)), "nobody stands aside", more)
    ((name, why),) = asides(both).items()
    assert name == "cut"
    assert "while other workers reach it (well-" in why
    assert "no route to host" in why
    said = [check for check in both.ledger.doctor() if not check.ok and "leaves sim to other workers" in check.message]
    assert [check.name.rpartition("-")[0] for check in said] <= ["worker cut"]
    for operation in operations:
        both.until_state(operation, State.SUCCEEDED)
    assert both.ledger.store.paused() == {}

    (both.folder / "cut").unlink()
    well.signal(signal.SIGTERM)
    assert well.ends() == 0
    operations.append(both.until_state(both.submit(), State.SUCCEEDED))
    waits(both, lambda: both.ledger.store.reach() == [], "it is not forgotten")
    cut.signal(signal.SIGTERM)
    assert cut.ends() == 0
    started = [entry["client_ref"] for entry in both.wire("create") if entry["started"]]
    assert len(started) == len(set(started)) == len(operations)
    both.honest()


def test_a_provider_that_answers_neither_of_them_is_paused(both: Lab) -> None:
    """One escalation that says that both workers failed; and then no call is made any more."""
    both.contract(changes=BUDGET, result="3h")
    crew = [both.worker(name=name, lease=20) for name in ("ann", "bob")]
    both.present(2)
    operations = [both.submit(_seconds=7200) for _ in range(12)]
    for operation in operations:
        both.until_state(operation, State.OBSERVING)
    both.sim.control(answer_next=[{"kind": "status", "status": 500, "body": {}}] * 3000)
    waits(both, lambda: bool(both.ledger.store.paused()), "it is not paused")
    (reason,) = both.ledger.store.paused().values()
    assert reason.startswith("error budget: ")
    assert "for 2 workers, and none succeeded for any" in reason
    for worker in crew:
        worker.signal(signal.SIGTERM)
    assert [worker.ends() for worker in crew] == [0, 0]
    assert {both.show(operation).state for operation in operations} == {State.OBSERVING}
    both.honest()
