"""Time and hands: deadlines that passed while nobody worked, clocks that jump, and many workers on one operation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest

from opledger.rules import evidence as e
from opledger.rules.calls import Request
from opledger.rules.model import State
from opledger.worker.hand import Hand, margin_of
from tests.scenarios.stage import LEASE, Stage


@pytest.mark.parametrize("leap", [3600, 86400 * 365 * 10], ids=["an hour", "ten years"])
def test_a_clock_that_leaps_ahead_resends_nothing(stage: Stage, leap: float) -> None:
    """The token's memory is over by our clock: whether or not that is true, no create leaves under it."""
    stage.contract("header", create="3h")
    stage.sim.control(answer_next=[{"kind": "create", "status": 500, "body": {}}] * 3)
    operation = stage.submit(flavour="header", _seconds=30)
    stage.until(operation, lambda op: op.attempts.reconcile == 1)
    creates = len(stage.wire("create"))
    stage.passes(leap)
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.exhausted) == (State.CREATE_UNKNOWN, True)
    assert len(stage.wire("create")) == creates


def test_a_clock_that_leaps_ahead_costs_at_most_one_poll_and_no_second_cancel(stage: Stage) -> None:
    """What became due by the leap is done once."""
    polled = stage.until_state(stage.submit(_seconds=7200, wish={"result_deadline": "100d"}), State.OBSERVING)
    wanted = stage.until_state(stage.submit("never_ending"), State.OBSERVING)
    stage.ledger.cancel(wanted.operation_id, reason="ordered twice")
    stage.turn()
    before = len(stage.wire("status", polled))
    stage.passes(3600)
    stage.turn()
    assert len(stage.wire("status", polled)) == before + 1
    assert len(stage.wire("cancel", wanted)) == 1
    assert stage.show(wanted).state is State.CANCELLATION_UNCONFIRMED


def test_many_workers_and_one_operation(stage: Stage) -> None:
    """Six workers look at once, each turn: one create, one cancel, and never two reads at a time."""
    operation = stage.submit("cancellable", _seconds=7200)
    workers = [stage.another_worker() for _ in range(6)]
    with ThreadPoolExecutor(len(workers)) as pool:
        for _ in range(5):
            list(pool.map(stage.turn, workers))
            stage.passes(20)

        def until(state: State, passes: float) -> None:
            end = monotonic() + 60
            while stage.show(operation).state is not state and monotonic() < end:
                # Who has no place at the provider gets one within a second: on a server a real one.
                list(pool.map(stage.turn, workers))
                stage.passes(passes)

        until(State.OBSERVING, 20)
        stage.ledger.cancel(operation.operation_id, reason="ordered twice")
        until(State.CANCELLED, 0.2)
    assert stage.show(operation).state is State.CANCELLED
    calls = stage.calls()
    assert (calls.count("create"), calls.count("cancel")) == (1, 1)
    times = [entry["time"] for entry in stage.wire("status")]
    assert len(times) == len(set(times))
    stage.honest()


def test_every_deadline_is_kept_that_passed_while_nobody_worked(stage: Stage) -> None:
    """Approval, create, result and cancel: each ends by itself, without a call, in the first turn."""
    stage.policies("[[policy]]\nwhen = 'operation.body.rows > 100'\nexpires = \"1h\"\n")
    stage.contract("none")
    unapproved = stage.submit(rows=101)
    observed = stage.until_state(stage.submit(_seconds=86400), State.OBSERVING)
    cancelling = stage.until_state(stage.submit("never_ending"), State.OBSERVING)
    stage.ledger.cancel(cancelling.operation_id, reason="ordered twice")
    stage.turn()
    unsent = stage.submit(_seconds=60)
    before = stage.calls()
    stage.passes(86400)
    stage.turn()
    assert stage.calls() == before
    states = [stage.show(op).state for op in (unapproved, observed, cancelling, unsent)]
    assert states == [State.REJECTED, State.RESULT_TIMED_OUT, State.CANCELLATION_UNCONFIRMED, State.FAILED]


def test_a_cancel_and_a_finish_in_one_moment_are_told_in_order(stage: Stage) -> None:
    """The read that says succeeded is under way when the cancel is asked for: the honest end, in the order it came."""
    operation = stage.until_state(stage.submit(_seconds=60), State.OBSERVING)
    stage.passes(120)
    stage.sim.control(hold="status")
    under_way = stage.begin()
    assert stage.sim.wait_for(kind="status", held="true", client_ref=operation.operation_id) == 1
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.sim.control(release=True)
    under_way.result(20)
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert found.cancel is not None
    kinds = stage.kinds(operation)
    assert kinds.index("CancelRequested") < len(kinds) - 2
    assert len(stage.wire("cancel")) <= 1
    stage.honest()


# --- a store that takes its time --------------------------------------------------------------------------------------


def slowly(stage: Stage, work: Callable[..., Any], begun: list[float]) -> Callable[..., Any]:
    """Let five seconds pass after work of the store is done and before its caller hears of it."""

    def slow(*what: Any) -> Any:
        begun.append(stage.clock.monotonic())
        done = work(*what)
        stage.passes(5)
        return done

    return slow


@pytest.mark.parametrize("work", ["exchange", "renew"], ids=["claimed", "renewed"])
def test_a_lease_is_counted_from_before_it_was_given(stage: Stage, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """The row says when it ends; a holder that counted from the answer on would write and send beyond that (I12)."""
    begun: list[float] = []
    ends: list[float] = []
    send = Hand.send

    async def sent(hand: Hand, *what: Any, **more: Any) -> Any:
        if work == "renew":
            await hand.renew()
        ends.append(hand.held.ends)
        return await send(hand, *what, **more)

    monkeypatch.setattr(Hand, "send", sent)
    stage.submit()
    monkeypatch.setattr(stage.worker.store, work, slowly(stage, getattr(stage.worker.store, work), begun))
    stage.turn()
    assert ends[0] <= begun[0] + LEASE.total_seconds()


def test_a_call_is_cut_to_what_a_slow_permit_left_of_the_lease(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call lasts longer than its lease, also where the permit's commit took most of it (I12)."""
    stage.contract(changes={'timeout = "3s"': 'timeout = "60s"'}, create="5m")
    seen: list[tuple[float, float]] = []
    record, send = Hand.record, Hand.send

    async def slow(hand: Hand, evidence: e.Evidence, *what: Any, **more: Any) -> Any:
        after = await record(hand, evidence, *what, **more)
        if isinstance(evidence, e.CallSent):
            stage.passes(LEASE.total_seconds() - 30)
        return after

    async def sent(hand: Hand, request: Request, *what: Any, **more: Any) -> Any:
        seen.append((request.timeout.total_seconds(), hand.held.ends - hand.shop.clock.monotonic()))
        return await send(hand, request, *what, **more)

    monkeypatch.setattr(Hand, "record", slow)
    monkeypatch.setattr(Hand, "send", sent)
    stage.submit()
    stage.turn()
    (timeout, left), *_ = seen
    assert timeout <= left - margin_of(LEASE.total_seconds()) + 0.001
