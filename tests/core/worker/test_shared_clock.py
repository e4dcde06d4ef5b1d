"""What time it is, as a database server tells it to somebody who may stand still while asking."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from opledger.worker.shared_clock import SharedClock
from tests.fakes.clock import HandClock

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def asked(clock: SharedClock, own: HandClock, *, before: float, after: float, ahead: timedelta) -> None:
    """Ask a server whose clock is ahead of ours; it answers so long after it was asked, and before we hear of it."""
    began = own.monotonic()
    own.pass_by(before)
    told = own.now() + ahead
    own.pass_by(after)
    clock.learn(told, began, own.monotonic())


def test_a_question_that_took_long_does_not_set_the_clock() -> None:
    """Stopped for six seconds in the middle of the question: half of that is how wrong the clock would be."""
    own = HandClock(NOON)
    clock, ahead = SharedClock(own), timedelta(hours=1)
    asked(clock, own, before=0.001, after=0.001, ahead=ahead)
    assert abs(clock.now() - own.now() - ahead) < timedelta(milliseconds=1)
    asked(clock, own, before=0.001, after=6.0, ahead=ahead)
    assert abs(clock.now() - own.now() - ahead) < timedelta(milliseconds=2)


def test_the_first_answer_is_taken_and_a_better_one_mends_it() -> None:
    """Something must be believed at first, however unsure it is."""
    own = HandClock(NOON)
    clock, ahead = SharedClock(own), timedelta(hours=1)
    asked(clock, own, before=0.0, after=4.0, ahead=ahead)
    assert timedelta(seconds=1) < abs(clock.now() - own.now() - ahead) < timedelta(seconds=3)
    asked(clock, own, before=0.01, after=0.01, ahead=ahead)
    assert abs(clock.now() - own.now() - ahead) < timedelta(milliseconds=1)


def test_a_slow_line_is_believed_in_the_end_and_a_good_answer_at_once() -> None:
    """Clocks part, so that what was known well becomes unsure with time; and a server may be set to another time."""
    own = HandClock(NOON)
    clock = SharedClock(own)
    asked(clock, own, before=0.001, after=0.001, ahead=timedelta(0))
    asked(clock, own, before=0.01, after=0.01, ahead=timedelta(hours=1))
    assert abs(clock.now() - own.now() - timedelta(hours=1)) < timedelta(milliseconds=1)
    own.pass_by(3 * 3600)
    asked(clock, own, before=0.4, after=0.4, ahead=timedelta(hours=2))
    assert abs(clock.now() - own.now() - timedelta(hours=2)) < timedelta(milliseconds=1)


def test_without_a_server_it_is_our_own_time() -> None:
    """As with a file of one's own."""
    own = HandClock(NOON)
    clock = SharedClock(own)
    assert clock.now() == own.now()
    asked(clock, own, before=0.001, after=0.001, ahead=timedelta(hours=1))
    clock.learn(None, 0.0, 1.0)
    assert clock.now() == own.now()


def test_a_clock_that_is_set_ahead_is_noticed_and_one_that_goes_is_not() -> None:
    """By so much less has passed since than the time of day says; for what came later it is nothing."""
    own = HandClock(NOON)
    clock = SharedClock(own)
    before = clock.now()
    own.pass_by(3600)
    assert clock.now() - before == timedelta(hours=1)
    own.jump(90)
    own.pass_by(5)
    after = clock.now()
    assert (clock.ahead_since(before), clock.ahead_since(after)) == (timedelta(seconds=90), timedelta(0))
    own.jump(-600)  # more has passed then, and whoever waits has waited longer
    assert clock.now() < after
    assert clock.ahead_since(before) == timedelta(seconds=90)


def test_a_server_that_is_set_ahead_is_noticed_too() -> None:
    """Its next answer is not what the last one and our own clock make of it."""
    own = HandClock(NOON)
    clock = SharedClock(own)
    asked(clock, own, before=0.01, after=0.01, ahead=timedelta(0))
    before = clock.now()
    own.pass_by(10)
    asked(clock, own, before=0.01, after=0.01, ahead=timedelta(minutes=5))
    assert abs(clock.ahead_since(before) - timedelta(minutes=5)) < timedelta(milliseconds=1)
    assert clock.ahead_since(clock.now()) == timedelta(0)
