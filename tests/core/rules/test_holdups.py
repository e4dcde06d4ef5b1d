"""What an operation that is due waits for, put into words from one look at the shares of its contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.rules import holdups, sharing
from opledger.rules.explain import Explanation, explain
from opledger.rules.holdups import MOST_AHEAD, Blocked, Holder, Standing
from opledger.rules.model import Lease, Operation, Plan, State
from tests.core.rules.operations import CANCEL, NOON, contract, operation

SECOND = sharing.SECOND
CLOCK = 1_000 * SECOND
"""The clock of the database; that of who looks says noon."""

THREE = contract(CANCEL + "[limits]\nconcurrency = 3\n")
SLOW = contract(CANCEL + '[limits]\nconcurrency = 3\nrate = "6/m"\n')
EMPTY = Standing((), 0, CLOCK)
DUE = operation(
    State.CREATE_PENDING,
    next=Plan("create", NOON - timedelta(seconds=7), "submitted"),
    create_deadline=NOON + timedelta(hours=1),
)


def taken(*holders: Holder, **how: Any) -> Standing:
    """A look at the shares."""
    return Standing(holders, how.pop("tat", 0), CLOCK, **how)


def booked(seconds: float, **how: Any) -> Standing:
    """A look at a rate whose next moment comes in so many seconds."""
    assert SLOW.limits.rate is not None
    return Standing((), CLOCK + round(seconds * SECOND) + sharing.pace(SLOW.limits.rate).burst, CLOCK, **how)


def explained(standing: Standing, op: Operation = DUE, terms: Any = THREE, **how: Any) -> Explanation:
    """An explanation at noon."""
    return explain(op, terms, NOON, events=(), standing=standing, **how)


def test_taken_places_are_named_with_who_has_them() -> None:
    """Which limit of which contract, how many there are, and who has how many of them."""
    found = holdups.limit(THREE, taken(Holder("w-1", 1, 1), Holder("w-2", 2)), NOON)
    assert found == Blocked(
        "limit_concurrency",
        "it waits for a place at jobs: all 3 places that it allows are taken (limits.concurrency, over all workers), "
        "by 2 workers: w-2 (2), w-1 (1); a place is free when one of these calls ends",
    )


def test_a_free_place_holds_up_nothing() -> None:
    """Of a share only what is in use is taken: whose share it is would have begun this."""
    for free in (EMPTY, taken(Holder("w-1", 2, 2)), taken(Holder("w-1", 1, 3)), taken(Holder("w-1", 0, 3))):
        assert holdups.limit(THREE, free, NOON) is None
        assert explained(free) == explain(DUE, THREE, NOON, events=())


def test_operations_beyond_a_share_take_no_place() -> None:
    """A worker may hold more than it may send for: those wait for a place themselves."""
    assert holdups.limit(THREE, taken(Holder("w-1", 5, 2)), NOON) is None


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (0, "one of these calls ends"),
        (1, "ends; one operation has been due for longer and comes first"),
        (7, "ends; 7 operations have been due for longer and come first"),
        (MOST_AHEAD, "ends; 10000 or more operations have been due for longer and come first"),
    ],
)
def test_who_comes_first_is_counted(ahead: int, words: str) -> None:
    """Somebody who waits wants to know how long the line is."""
    found = holdups.limit(THREE, taken(Holder("w-1", 3), ahead=ahead), NOON)
    assert found is not None
    assert found.reason.endswith(words)


def test_many_workers_are_counted_and_few_named() -> None:
    """A sentence must stay one."""
    found = holdups.limit(THREE, taken(*(Holder(f"w-{n}", 1) for n in range(5))), NOON)
    assert found is not None
    assert "by 5 workers: w-0 (1), w-1 (1), w-2 (1), …;" in found.reason
    one = holdups.limit(THREE, taken(Holder("w-1", 3)), NOON)
    assert one is not None
    assert "by worker w-1 (3);" in one.reason


def test_a_moment_of_a_rate_is_named_with_its_time() -> None:
    """Six a minute: the next moment is in four seconds; with two ahead, ours comes two moments later."""
    found = holdups.limit(SLOW, booked(4), NOON)
    assert found is not None
    assert (found.code, found.until) == ("limit_rate", NOON + timedelta(seconds=4))
    assert "a call every 10 s (limits.rate, over all workers)" in found.reason
    assert "2026-11-29T12:00:04" in found.reason
    later = holdups.limit(SLOW, booked(4, ahead=2), NOON)
    assert later is not None
    assert later.until is not None
    assert timedelta(seconds=24) <= later.until - NOON <= timedelta(seconds=27)
    assert holdups.limit(SLOW, booked(0), NOON) is None
    assert holdups.limit(THREE, booked(4), NOON) is None


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (10, "10 calls a second"),
        (2.5, "2.5 calls a second"),
        (1.5, "1.5 calls a second"),
        (1, "a call a second"),
        (0.25, "a call every 4 s"),
    ],
)
def test_rates_are_said_as_people_say_them(rate: float, words: str) -> None:
    """No fractions of calls."""
    assert holdups.rate_words(rate) == words


def test_an_explanation_says_what_a_due_operation_waits_for() -> None:
    """Why and until when: in the sentence, as what holds it up, and as the time of what comes next."""
    full = explained(taken(Holder("w-1", 3)))
    assert full.blocked_by is not None
    assert full.blocked_by.code == "limit_concurrency"
    assert "Held up: it waits for a place at jobs" in full.why
    assert full.next is not None
    assert full.next.at == DUE.next.at  # type: ignore[union-attr]
    slow = explained(booked(4, ahead=1), terms=SLOW)
    assert slow.blocked_by is not None
    assert slow.next is not None
    assert slow.next.at == slow.blocked_by.until
    assert f"its turn comes at about {slow.blocked_by.until:%Y-%m-%dT%H:%M:%S}" in slow.why


def test_other_hold_ups_come_first() -> None:
    """Without a worker, with a paused provider or with nothing due, no limit is to blame."""
    full = taken(Holder("w-1", 3))
    dead = explained(full, workers_alive=False).blocked_by
    assert dead is not None
    assert dead.code == "no_worker"
    paused = explained(full, paused="outage").blocked_by
    assert paused is not None
    assert paused.code == "provider_paused"
    waits = replace(DUE, next=Plan("create", NOON + timedelta(minutes=1), "throttled"))
    assert explained(full, waits).blocked_by is None
    ended = operation(State.SUCCEEDED, first_sent_at=NOON, remote_job_id="job_7")
    assert explained(full, ended).blocked_by is None


def test_a_deadline_waits_for_no_place() -> None:
    """It passes whatever the provider allows."""
    late = replace(DUE, create_deadline=NOON)
    assert explained(taken(Holder("w-1", 3)), late).blocked_by is None


def test_what_a_worker_has_in_hand_is_not_called_held_up() -> None:
    """Its worker may be at the call or wait for the moment: both are said, as far as they can be known."""
    held = replace(DUE, lease=Lease("w-1", 1, NOON + timedelta(seconds=20)))
    assert explained(taken(Holder("w-1", 3)), held).blocked_by is None
    slow = explained(booked(14), held, SLOW)
    assert slow.blocked_by is None
    assert "w-1 has it in hand and sends when it may: jobs allows a call every 10 s" in slow.why
    assert "2026-11-29T12:00:14" in slow.why
    assert "in hand" not in explained(booked(0.1), held, SLOW).why


def test_where_all_leave_it_to_others_nobody_does_it() -> None:
    """Who tries again first, when, and why; and no limit is to blame then."""
    soon, later = NOON + timedelta(seconds=9), NOON + timedelta(seconds=90)
    both = holdups.unreached("jobs", [("w-2", later, "timed out"), ("w-1", soon, "no route to host")])
    assert both.reason == (
        "each of the 2 workers that are alive leaves jobs to others; w-1 tries again at 2026-11-29T12:00:09.000000Z: "
        "no route to host"
    )
    found = explained(taken(Holder("w-1", 3)), unreached=both)
    assert found.blocked_by == both
    assert found.next is not None
    assert found.next.at == soon
    one = holdups.unreached("jobs", [("w-1", soon, "no route to host")])
    assert one.reason.startswith("the only worker that is alive leaves jobs to others")


def test_the_first_to_try_again_is_named_whatever_it_is_called() -> None:
    """By the time, not by the name or by what is wrong with it."""
    soon, later = NOON + timedelta(seconds=9), NOON + timedelta(seconds=90)
    found = holdups.unreached("jobs", [("w-1", later, "a"), ("w-2", soon, "b")])
    assert (found.code, found.until) == ("no_worker_reaches", soon)
    assert "w-2 tries again" in found.reason


def test_workers_are_named_by_how_much_they_have_and_then_by_name() -> None:
    """Three fit into the sentence; who has nothing is not in it."""
    alike = taken(Holder("w-3", 1), Holder("w-2", 1), Holder("w-1", 1), Holder("w-0", 0))
    found = holdups.limit(THREE, alike, NOON)
    assert found is not None
    assert "by 3 workers: w-1 (1), w-2 (1), w-3 (1); a place" in found.reason


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (1, "the one place that it allows at a time is taken"),
        (2, "all 2 places that it allows are taken"),
    ],
)
def test_places_are_counted_as_people_count(most: int, words: str) -> None:
    """One place is not "all 1 places"."""
    terms = contract(CANCEL + f"[limits]\nconcurrency = {most}\n")
    found = holdups.limit(terms, taken(Holder("w-1", most)), NOON)
    assert found is not None
    assert words in found.reason


def test_a_rate_that_allows_several_at_once_is_waited_for_only_where_they_are_used_up() -> None:
    """What may be sent ahead of its time is not booked up by what was sent so."""
    quick = contract(CANCEL + '[limits]\nrate = "50/s"\n')
    assert quick.limits.rate is not None
    burst = sharing.pace(quick.limits.rate).burst
    assert burst > 0
    assert holdups.next_moment(quick, taken(tat=CLOCK + burst), NOON) is None
    assert holdups.next_moment(quick, taken(tat=CLOCK + burst + 1), NOON) == NOON + timedelta(microseconds=1)
