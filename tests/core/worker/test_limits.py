"""What a worker may have open at each provider, and when a provider has failed too often."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from opledger.rules.contract import Contract, Limits
from opledger.rules.files.contract import parse
from opledger.sim.contracts import contract_text
from opledger.worker.limits import SKIPPED, SLOW_START
from opledger.worker.limits import Limits as Counted

BASE = parse(contract_text("v1", "http://127.0.0.1:1"), environment={})


def contract(**limits: Any) -> Contract:
    """A contract with these limits."""
    return replace(BASE, limits=replace(Limits(), **limits))


def test_concurrency_is_what_is_open_at_a_time() -> None:
    """Operations that have ended make room again."""
    limits, one = Counted(), contract(concurrency=2)
    limits.know(one)
    limits.started(one.name, 0)
    limits.started(one.name, 0)
    assert limits.room(0) == {one.name: 0}
    limits.ended(one.name)
    assert limits.room(0) == {one.name: 1}


def test_a_rate_gives_a_second_s_worth_at_once_and_then_one_at_a_time() -> None:
    """Two a second: two at once, then one every half second."""
    limits, one = Counted(), contract(concurrency=100, rate=2.0)
    limits.know(one)
    assert limits.room(0) == {one.name: 2}
    limits.started(one.name, 0)
    limits.started(one.name, 0)
    assert limits.room(0) == {one.name: 0}
    assert limits.next_room(0) == 0.5
    assert limits.room(0.49) == {one.name: 0}
    assert limits.room(0.5) == {one.name: 1}


def test_after_a_pause_a_provider_is_met_slowly() -> None:
    """Whatever became overdue during a pause does not fall on the provider all at once."""
    limits, one = Counted(), contract(concurrency=100)
    limits.know(one)
    limits.pauses({one.name}, 0)
    limits.pauses(set(), 50)
    assert limits.room(50) == {one.name: 1}
    assert limits.room(50 + SLOW_START / 2) == {one.name: 50}
    assert limits.room(50 + SLOW_START) == {one.name: 100}
    assert limits.next_room(50 + SLOW_START) is None


def test_many_failures_over_some_time_spend_the_budget_once() -> None:
    """One escalation for the provider, with how many failed and for how long; then the count begins anew."""
    limits, one = Counted(), contract(error_budget=3, error_window=timedelta(seconds=10))
    assert limits.failed(one, 0) is None
    assert limits.failed(one, 1) is None
    assert limits.failed(one, 2) is None  # enough of them, but a hiccup of two seconds
    assert limits.failed(one, 10) == "4 calls in a row failed over 10 s, and none succeeded"
    assert limits.failed(one, 11) is None


def test_one_good_answer_forgives_all_failures() -> None:
    """A provider that answers now and then is slow or flaky, not gone."""
    limits, one = Counted(), contract(error_budget=2, error_window=timedelta(0))
    assert limits.failed(one, 0) is None
    limits.worked(one.name)
    assert limits.failed(one, 1) is None
    assert limits.failed(one, 2) is not None


def test_a_budget_of_nothing_is_no_budget() -> None:
    """0 switches the automatic pause off."""
    limits, one = Counted(), contract(error_budget=0, error_window=timedelta(0))
    assert all(limits.failed(one, moment) is None for moment in range(1000))


def test_what_is_missing_here_is_left_to_others_for_a_while() -> None:
    """A worker without the secret starts nothing of that contract, and tries again later."""
    limits, one = Counted(), contract(concurrency=5)
    limits.know(one)
    limits.skip(one.name, 0)
    assert limits.room(SKIPPED - 1) == {one.name: 0}
    assert limits.room(SKIPPED) == {one.name: 5}
