"""What a worker may have open at each provider, and when a provider has failed too often."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opledger.rules import sharing
from opledger.rules.contract import Contract, Limits
from opledger.rules.files.contract import parse
from opledger.sim.contracts import contract_text
from opledger.store import Grant, Want
from opledger.worker.limits import AGAIN, FRESH, SLOW_START, SOON, Turn
from opledger.worker.limits import Limits as Counted

T0 = datetime(2026, 11, 30, tzinfo=UTC)
BASE = parse(contract_text("v1", "http://127.0.0.1:1"), environment={})


def contract(**limits: Any) -> Contract:
    """A contract with these limits."""
    return replace(BASE, limits=replace(Limits(), **limits))


NAME = BASE.name


def got(limits: Counted, now: float, limit: int, *, moments: int = 0, opens: float = 0.0, due: bool = True) -> Want:
    """Ask at `now` and be given so much; returns what was asked for."""
    with limits.claiming():
        (want,) = limits.wants(now, {NAME} if due else ())
        told = tuple(T0 + timedelta(seconds=now) for _ in range(moments))
        grant = Grant(limit, told, timedelta(seconds=opens))
        limits.granted({NAME: grant}, now, lambda moment: (moment - T0).total_seconds())
    return want


def begun(limits: Counted, count: int, moment: float | None = None) -> list[Turn]:
    """So many operations, claimed with a place."""
    turns = [Turn(NAME) for _ in range(count)]
    for turn in turns:
        limits.began(turn, moment)
    return turns


def rooms(limits: Counted, now: float) -> int:
    """How many operations might be begun."""
    (want,) = limits.wants(now, {NAME})
    return want.room


def test_a_share_is_used_without_asking_while_it_is_fresh() -> None:
    """Asked for when it is half over; what is open is within it, and what has ended makes room."""
    limits = Counted()
    limits.know(contract(concurrency=4))
    assert got(limits, 0, 4) == Want(NAME, 4, 4, asks=True)
    one, *_ = begun(limits, 3)
    assert limits.wants(0.1, {NAME}) == (Want(NAME, 4, 1, seated=3, used=3, asks=False, limit=4),)
    limits.ended(one, 0.2)
    (later,) = limits.wants(0.6, {NAME})
    assert (later.asks, later.room, later.seated, later.used) == (True, 2, 2, 3)
    (idle,) = limits.wants(0.6, ())
    assert (idle.asks, idle.room) == (False, 2)  # nothing is due: nothing is asked for
    (over,) = limits.wants(2, ())
    assert (over.asks, over.room, over.limit) == (False, 0, 0)


def test_who_has_too_little_asks_again_a_little_later() -> None:
    """Not with every look, which come with every commit of others; and it says that it wants more."""
    limits = Counted()
    limits.know(contract(concurrency=4))
    got(limits, 0, 1)
    begun(limits, 1)
    limits.note({NAME}, 0.01)
    assert limits.full(0.01) == {NAME}
    assert limits.next_room(0.01) == AGAIN - 0.01
    assert limits.next_room(0.01, begins=False) is None  # a worker that is full looks when something of its own ends
    assert limits.full(AGAIN) == set()
    (want,) = limits.wants(AGAIN, {NAME})
    assert (want.asks, want.wants, want.room) == (True, True, 3)


def test_who_has_all_that_there_is_waits_for_its_own_operations() -> None:
    """Nothing is to be had from others: no look before one of them ends."""
    limits = Counted()
    limits.know(contract(concurrency=2))
    got(limits, 0, 2)
    begun(limits, 2)
    limits.note({NAME}, 0.3)
    assert limits.full(0.3) == {NAME}
    assert limits.next_room(0.3) is None


def test_a_share_that_was_found_gone_is_asked_for_again() -> None:
    """The database says that it is another one's by now, whatever our clock thinks."""
    limits = Counted()
    limits.know(contract(concurrency=2))
    got(limits, 0, 2)
    got(limits, 0.1, 0)
    assert limits.wants(0.2, {NAME})[0].asks


def test_where_others_are_asking_it_asks_again_soon() -> None:
    """And less and less often: whoever asks may stand still."""
    limits = Counted()
    limits.know(contract(concurrency=2))
    now, waits = 0.0, []
    for _ in range(8):
        with limits.claiming():
            assert limits.wants(now, {NAME})[0].asks
            limits.granted({NAME: Grant(0, busy=True)}, now, lambda _: 0.0)
        limits.note({NAME}, now)
        assert limits.full(now) == {NAME}
        waits.append(limits.next_room(now) or 0)
        now += waits[-1]
    assert waits[0] <= 2 * SOON
    assert waits[-1] == pytest.approx(AGAIN)


def test_a_rate_is_asked_for_with_every_claim_until_it_is_used_up() -> None:
    """What is booked is told with what was claimed; then it is known when there is more."""
    limits = Counted()
    limits.know(contract(concurrency=100, rate=10.0))
    assert got(limits, 0, 100, opens=0.4).pace == sharing.pace(10.0)
    begun(limits, 3, moment=0.1)
    limits.note({NAME}, 0.2)
    assert limits.full(0.2) == {NAME}
    assert limits.next_room(0.2) == pytest.approx(0.2)
    assert limits.full(0.4) == set()
    assert limits.wants(0.4, {NAME})[0].asks


def test_a_call_needs_its_place_and_its_moment() -> None:
    """A moment that has passed is lost; whoever waits for another one gets it in its turn."""
    limits = Counted()
    limits.know(contract(concurrency=9, rate=1.0))
    got(limits, 0, 9)
    (turn,) = begun(limits, 1, moment=1.0)
    late = sharing.pace(1.0).late / sharing.SECOND
    assert limits.may_call(turn, 1.0 + late - 0.001)
    assert not limits.may_call(turn, 1.0 + late + 0.001)
    limits.wait(turn)
    assert limits.waits(2.0)
    want = got(limits, 2.0, 9, moments=1)
    assert (want.asks, want.moments, want.seated) == (True, 1, 1)
    limits.serve(2.0)
    assert turn.told.is_set()
    assert limits.may_call(turn, 2.0)


def test_what_was_claimed_without_a_place_waits_for_one() -> None:
    """It comes before what is new, gets what has ended, and nothing while a claim counts on the same places."""
    limits = Counted()
    limits.know(contract(concurrency=1))
    got(limits, 0, 1)
    (first,) = begun(limits, 1)
    second = Turn(NAME)
    limits.wait(second)
    assert rooms(limits, 0.1) == 0
    limits.serve(0.1)
    assert not second.seated
    with limits.claiming():
        limits.ended(first, 0.2)
        assert not second.seated
    limits.serve(FRESH + 0.1)
    assert not second.seated  # the share is old: it may be another one's by now
    limits.serve(0.2)
    assert second.seated
    assert second.told.is_set()


def test_a_place_is_given_up_with_a_lease_that_ran_out() -> None:
    """Renewed too late: others may have been given the place, so it must be had anew."""
    limits = Counted()
    limits.know(contract(concurrency=1))
    got(limits, 0, 1)
    (turn,) = begun(limits, 1)
    limits.unseat(turn)
    assert not limits.may_call(turn, 0.1)
    assert rooms(limits, 0.1) == 1


def test_after_a_pause_a_provider_is_met_slowly() -> None:
    """Whatever became overdue during a pause does not fall on the provider all at once."""
    limits = Counted()
    limits.know(contract(concurrency=100))
    limits.pauses({NAME}, 0)
    limits.pauses(set(), 50)
    assert rooms(limits, 50) == 1
    assert rooms(limits, 50 + SLOW_START / 2) == 50
    assert rooms(limits, 50 + SLOW_START) == 100
    assert limits.next_room(50 + SLOW_START) is None


def test_what_is_missing_here_is_left_to_others_for_a_while() -> None:
    """A worker without the secret starts nothing of that contract, and tries again later."""
    limits = Counted()
    limits.know(contract(concurrency=5))
    limits.skip(NAME, 0, 30)
    assert rooms(limits, 29) == 0
    assert limits.full(29) == {NAME}
    assert rooms(limits, 30) == 5


def test_who_got_no_answer_tries_one_call_at_a_time() -> None:
    """A provider that does not answer here is not met with all that is due, each time it is tried again."""
    limits = Counted()
    limits.know(contract(concurrency=5))
    limits.careful(NAME, on=True)
    assert rooms(limits, 0) == 1
    limits.careful(NAME, on=False)
    assert rooms(limits, 0) == 5
