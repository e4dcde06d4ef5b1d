from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opledger.rules.contract import Poll
from opledger.rules.durations import LONGEST
from opledger.rules.schedule import (
    ABSURD,
    AT_ONCE,
    LAST_LOOK,
    LEAST_GAP,
    backoff,
    http_date,
    next_poll,
    read_hint,
    retry_after,
    retry_after_ms,
    seconds,
)
from opledger.rules.values import Pick

NOW = datetime(2026, 11, 29, 14, 22, 11, tzinfo=UTC)
POLL = Poll()
S = timedelta(seconds=1)

MOMENTS = st.integers(-36 * 365 * 86_400, 33 * 365 * 86_400).map(lambda off: NOW + timedelta(seconds=off))
JITTER = st.floats(0, 1, exclude_max=True)
POLLS = st.builds(
    Poll,
    first=st.timedeltas(timedelta(milliseconds=10), timedelta(minutes=5)),
    factor=st.floats(1, 10),
    max=st.timedeltas(S, timedelta(hours=1)),
    max_silence=st.one_of(st.none(), st.timedeltas(S, timedelta(hours=1))),
)


def imf(moment: datetime) -> str:
    """The date as HTTP writes it today, by the standard library's hand."""
    return format_datetime(moment, usegmt=True)


# --- dates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
)
def test_the_three_forms_of_the_standard_are_one_date(text: str) -> None:
    """RFC 9110 §5.6.7: a recipient must read all three."""
    assert http_date(text, NOW) == datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mon, 06 Nov 1994 08:49:37 GMT",  # it was a Sunday
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Fri, 31 Dec 9999 23:59:60 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "1994-11-06T08:49:37Z",
        "Sun, 06 Nov 1994 08:49:37 GMT\n",
        "Sun, ٠٦ Nov 1994 08:49:37 GMT",
    ],
)
def test_anything_else_is_no_date(text: str) -> None:
    """A date that is guessed at is a poll at the wrong time (B17)."""
    assert http_date(text, NOW) is None


@pytest.mark.parametrize(
    ("near", "text", "year"),
    [
        (2026, "Friday, 01-Jan-27 00:00:00 GMT", 2027),
        (2026, "Wednesday, 01-Jan-76 00:00:00 GMT", 2076),
        (2026, "Saturday, 01-Jan-77 00:00:00 GMT", 1977),
        (2090, "Wednesday, 01-Jan-10 00:00:00 GMT", 2110),
    ],
)
def test_two_digits_of_a_year_are_never_more_than_fifty_years_ahead(near: int, text: str, year: int) -> None:
    """RFC 9110 §5.6.7 says which century is meant."""
    assert http_date(text, datetime(near, 6, 1, tzinfo=UTC)) == datetime(year, 1, 1, tzinfo=UTC)


def test_a_leap_second_is_a_date() -> None:
    """The grammar has it, the calendar of Python has not."""
    assert http_date("Sat, 31 Dec 2016 23:59:60 GMT", NOW) == datetime(2017, 1, 1, tzinfo=UTC)


@given(MOMENTS)
def test_every_date_is_read(moment: datetime) -> None:
    """All months, weekdays and hours, against the standard library's writer."""
    assert http_date(imf(moment), NOW) == moment
    assert http_date(moment.strftime("%a %b %e %H:%M:%S %Y"), NOW) == moment


# --- hints ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("20", 20 * S),
        (" 20\t", 20 * S),
        ("0", 0 * S),
        ("20261231", 20_261_231 * S),
        ("9" * 5000, LONGEST),
        ("1000000000000000", LONGEST),
        ("-3", None),
        ("+3", None),
        ("1.5", None),
        ("120junk", None),
        ("1e3", None),
        ("٣", None),
        ("", None),
        (" ", None),
        (",", None),
        ("soon", None),
        ("120, 60", 120 * S),
        ("60,120", 120 * S),
        ("120junk, 30", 30 * S),
        ("Sun, 29 Nov 2026 14:22:41 GMT", 30 * S),
        ("Sunday, 29-Nov-26 14:22:41 GMT", 30 * S),
        ("Sun Nov 29 14:22:41 2026", 30 * S),
        ("Sun, 29 Nov 2026 14:20:00 GMT", 0 * S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST),
        ("Sun, 29 Nov 2026 14:22:41 GMT, 10", 30 * S),
        ("40, Sun, 29 Nov 2026 14:22:41 GMT", 40 * S),
        ("Sun, 29 Nov 2026 14:22:41 GMT, Sun, 29 Nov 2026 14:23:11 GMT", 60 * S),
        ("Sun, 40", None),
        ("Sunday", None),
    ],
)
def test_retry_after(value: str, wait: timedelta | None) -> None:
    """Digits are seconds, a strict date is a date, two headers give the later one, the rest says nothing (B17)."""
    assert retry_after(value, NOW, None) == wait


@given(MOMENTS, st.timedeltas(timedelta(days=-1), timedelta(days=1)), st.integers(0, 10**6))
def test_a_wrong_server_clock_does_no_harm(answered_at: datetime, off: timedelta, asked: int) -> None:
    """A date is measured against the answer's own Date header, ten minutes off or a day (B17)."""
    theirs = (answered_at + off).replace(microsecond=0)
    assert retry_after(imf(theirs + asked * S), answered_at, imf(theirs)) == asked * S


@pytest.mark.parametrize("date_header", [None, "", "yesterday", "-1", "2026-11-29T14:22:11Z"])
def test_without_a_date_header_our_own_clock_counts(date_header: str | None) -> None:
    """A broken Date header must not make the hint worthless."""
    assert retry_after("Sun, 29 Nov 2026 14:22:41 GMT", NOW, date_header) == 30 * S


@given(st.text(max_size=50), st.one_of(st.none(), st.text(max_size=50)), MOMENTS)
def test_no_header_is_an_error(value: str, date_header: str | None, answered_at: datetime) -> None:
    """A provider's nonsense must not stop a poll loop."""
    for wait in (retry_after(value, answered_at, date_header), retry_after_ms(value), seconds(value)):
        assert wait is None or timedelta(0) <= wait <= LONGEST


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.text("abc-. ", max_size=5))
def test_no_valid_value_is_polled_before(values: list[int], junk: str) -> None:
    """Where a proxy and a server both speak, neither may be hurried."""
    assert retry_after(", ".join([*map(str, values), junk]), NOW, None) == max(values) * S


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("500", 500),
        ("1234.5", 1234.5),
        ("0", 0),
        ("100, 250", 250),
        ("-1", None),
        ("", None),
        ("1s", None),
        (".5", None),
        ("5.", None),
    ],
)
def test_retry_after_ms(value: str, wait: float | None) -> None:
    """The unofficial header that several providers send beside the official one."""
    assert retry_after_ms(value) == (None if wait is None else timedelta(milliseconds=wait))


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        (5, 5.0),
        (1.5, 1.5),
        ("5", 5.0),
        (" 2.5 ", 2.5),
        (0, 0.0),
        (10**400, LONGEST.total_seconds()),
        (float("inf"), LONGEST.total_seconds()),
        ("9" * 400, LONGEST.total_seconds()),
        (-1, None),
        (float("nan"), None),
        (True, None),
        (None, None),
        ("", None),
        ("-1", None),
        ("1e3", None),
        ("5 s", None),
        ([5], None),
        ({"s": 5}, None),
    ],
)
def test_seconds_in_a_body(value: object, wait: float | None) -> None:
    """A body says seconds as a number or as text; what is neither says nothing."""
    assert seconds(value) == (None if wait is None else timedelta(seconds=wait))


HINTS = ("header:retry-after-ms", "header:retry-after", "/poll_after_seconds", "/next/pollMs", "header:x-wait")


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "20"}, {}, (20.0, "Retry-After: 20")),
        ({"retry-after-ms": "500"}, {}, (0.5, "retry-after-ms: 500")),
        ({"retry-after-ms": "250, 500"}, {}, (0.5, "retry-after-ms: 250, 500")),
        ({"retry-after": "5"}, {"poll_after_seconds": 5}, (5.0, "Retry-After: 5")),
        ({"retry-after-ms": "500", "retry-after": "1"}, {}, (1.0, "Retry-After: 1")),
        ({"retry-after": "-3"}, {"poll_after_seconds": 5}, (5.0, "poll_after_seconds: 5")),
        ({"retry-after": "2"}, {"poll_after_seconds": "7.5"}, (7.5, "poll_after_seconds: 7.5")),
        ({}, {"next": {"pollMs": 1500}}, (1.5, "pollMs: 1.5")),
        ({}, {"next": {"pollMs": "1500"}}, (1.5, "pollMs: 1500")),
        ({}, {"next": {"pollMs": None}}, None),
        ({"x-wait": "3"}, None, (3.0, "x-wait: 3")),
        ({"retry-after": "soon"}, [], None),
        ({}, {}, None),
        ({"retry-after": "7\x1b[2J, 9"}, {}, (9.0, "Retry-After: 7␛[2J, 9")),
        (
            {"retry-after": "Sun, 29 Nov 2026 15:00:20 GMT", "date": "Sun, 29 Nov 2026 15:00:00 GMT"},
            {},
            (20.0, "Retry-After: Sun, 29 Nov 2026 15:00:20 GMT"),
        ),
    ],
)
def test_the_hint_of_an_answer(headers: dict[str, str], body: Any, expected: tuple[float, str] | None) -> None:
    """The longest valid hint of all the places the contract names, in the provider's own words, made inert."""
    found = read_hint(map(Pick.parse, HINTS), body, headers, NOW)
    assert found == (None if expected is None else (expected[0] * S, expected[1]))


# --- our own waits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "jitter", "wait"),
    [(0, 0.5, 2.0), (1, 0.5, 4.0), (2, 0.5, 8.0), (2, 0.0, 4.0), (0, 0.0, 1.0), (5, 0.0, 32.0), (5, 0.5, 60.0)],
)
def test_backoff_doubles(step: int, jitter: float, wait: float) -> None:
    """The middle of the range is 2, 4, 8 s …, and the cap is a cap."""
    assert backoff(2 * S, 2.0, 60 * S, step, jitter) == wait * S


@given(
    st.timedeltas(timedelta(0), timedelta(days=1)),
    st.floats(0, 1e6),
    st.timedeltas(timedelta(0), timedelta(days=30)),
    st.one_of(st.integers(-5, 40), st.just(10**9)),
    JITTER,
)
def test_backoff_bounds(base: timedelta, factor: float, cap: timedelta, step: int, jitter: float) -> None:
    """Every wait lies between half and one and a half of its nominal length, and no step overflows."""
    wait = backoff(base, factor, cap, step, jitter)
    assert timedelta(0) <= wait <= cap
    if step <= 40:
        nominal = base.total_seconds() * factor ** max(step, 0)
        slack = 1e-6 + nominal * 1e-9
        assert wait.total_seconds() <= nominal * 1.5 + slack
        assert wait.total_seconds() >= min(nominal * 0.5, cap.total_seconds()) - slack


@given(POLLS, st.integers(0, 50), JITTER)
def test_backoff_never_shrinks_with_the_steps(poll: Poll, step: int, jitter: float) -> None:
    """With the same chance, a later wait is not shorter than an earlier one."""
    waits = [backoff(poll.first, poll.factor, poll.max, s, jitter) for s in (step, step + 1)]
    assert waits[0] <= waits[1]


def plan(poll: Poll = POLL, **given: Any) -> tuple[timedelta, str]:
    """The wait from NOW and its reason."""
    defaults = {"now": NOW, "step": 0, "jitter": 0.5, "hint": None, "hint_words": None, "deadlines": ()}
    at, because = next_poll(poll, **{**defaults, **given})
    return at - NOW, because


def test_the_reason_is_a_sentence_for_the_record() -> None:
    """The console and `explain` print it as it stands."""
    assert plan(hint=20 * S, hint_words="Retry-After: 20") == (20 * S, "Retry-After: 20")
    assert plan(hint=20 * S) == (20 * S, "the provider asks to wait 20 s")
    assert plan() == (2 * S, "backoff 2 s")
    assert plan(step=1) == (4 * S, "backoff 4 s after 1 poll")
    assert plan(step=3) == (16 * S, "backoff 16 s after 3 polls")


def test_a_hint_is_honoured_exactly() -> None:
    """Neither jitter nor the contract's own maximum changes what the provider asked for."""
    assert plan(hint=timedelta(hours=2), jitter=0.0)[0] == timedelta(hours=2)
    assert plan(hint=timedelta(milliseconds=120), jitter=0.9)[0] == timedelta(milliseconds=120)


def test_a_hint_of_zero_is_no_hot_loop() -> None:
    """A date in the past means now, still with our minimum gap (B17)."""
    assert plan(hint=timedelta(0))[0] == AT_ONCE
    assert plan(Poll(first=timedelta(milliseconds=200)), hint=timedelta(0))[0] == timedelta(milliseconds=200)
    assert plan(Poll(first=timedelta(milliseconds=1)), hint=timedelta(0))[0] == LEAST_GAP
    assert plan(hint=timedelta(milliseconds=1))[0] == LEAST_GAP
    assert plan(hint=timedelta(milliseconds=1), minimum_gap=3 * S)[0] == 3 * S


def test_an_absurd_hint_is_cut() -> None:
    """20261231 is meant as a date and read as seconds; a job is not left alone for months."""
    wait, because = plan(hint=20_261_231 * S, hint_words="Retry-After: 20261231")
    assert wait == ABSURD
    assert because == "Retry-After: 20261231; that is absurd, cut to 30 d 00 h"
    assert plan(hint=ABSURD) == (ABSURD, "the provider asks to wait 30 d 00 h")


def test_a_read_happens_before_the_deadline() -> None:
    """A hint beyond the deadline would let a finished job time out unseen."""
    deadline = NOW + timedelta(hours=1)
    wait, because = plan(hint=timedelta(days=2), hint_words="Retry-After: 172800", deadlines=[deadline])
    assert wait == timedelta(hours=1) - LAST_LOOK
    assert because == "Retry-After: 172800; brought forward, to look once more before the deadline"
    assert plan(hint=timedelta(days=2), deadlines=[deadline, NOW + 10 * S])[0] == 8 * S
    assert plan(step=9, deadlines=[NOW + 30 * S])[0] == 28 * S


def test_a_hint_that_ends_before_the_deadline_stays_exact() -> None:
    """The deadline shortens only what would miss it."""
    for wait in (50 * S, 58 * S):
        asked = f"the provider asks to wait {wait.seconds} s"
        assert plan(hint=wait, deadlines=[NOW + 60 * S]) == (wait, asked)


def test_a_deadline_that_has_passed_bounds_nothing() -> None:
    """A watch that goes on after a deadline must not poll in the past."""
    assert plan(hint=20 * S, deadlines=[NOW, NOW - S])[0] == 20 * S


def test_the_last_look_is_not_repeated_without_end() -> None:
    """Each look shortly before the deadline leaves a shorter rest; only a few of them are taken."""
    for step in (0, 5):
        now, deadline, looks = NOW, NOW + timedelta(hours=1), 0
        while now < deadline:
            looks += 1
            now, _ = next_poll(
                POLL, now=now, step=step, jitter=0, hint=timedelta(days=9), hint_words=None, deadlines=[deadline]
            )
        assert 2 <= looks <= (5 if step == 0 else 3)


def test_a_job_with_a_very_short_deadline_is_looked_at() -> None:
    """Before the first read every deadline gets one, however near it is."""
    assert plan(deadlines=[NOW + S])[0] == 0.8 * S


def test_silence_is_kept_short_where_the_provider_gives_up() -> None:
    """Some providers drop a job that nobody polls; that bound is stronger than their own hint."""
    poll = Poll(max_silence=timedelta(minutes=5))
    wait, because = plan(poll, hint=timedelta(hours=1), hint_words="Retry-After: 3600")
    assert wait == timedelta(minutes=4)
    assert because == "Retry-After: 3600; shortened, the provider gives up after 5 m 00 s without a poll"
    assert plan(poll, hint=timedelta(minutes=4)) == (timedelta(minutes=4), "the provider asks to wait 4 m 00 s")


@given(
    POLLS,
    MOMENTS,
    st.integers(0, 10**6),
    JITTER,
    st.one_of(st.none(), st.timedeltas(timedelta(0), LONGEST)),
    st.lists(st.timedeltas(timedelta(days=-1), timedelta(days=60)), max_size=3),
)
def test_bounds_of_every_plan(
    poll: Poll, now: datetime, step: int, jitter: float, hint: timedelta | None, ahead: list[timedelta]
) -> None:
    """Never in the past, never earlier than a valid hint but for a deadline or a silence, never beyond either."""
    deadlines = [now + wait for wait in ahead]
    at, because = next_poll(poll, now=now, step=step, jitter=jitter, hint=hint, hint_words=None, deadlines=deadlines)
    assert because
    assert at >= now + LEAST_GAP
    silence = LONGEST if poll.max_silence is None else poll.max_silence
    assert at - now < silence
    assert at - now <= (max(poll.max, LEAST_GAP) if hint is None else max(hint, AT_ONCE))
    for deadline in deadlines:
        if deadline > now + 1.25 * AT_ONCE:
            assert at < deadline
    if hint is not None and at - now < min(hint, ABSURD):
        missed = any(now < deadline <= now + hint + LAST_LOOK for deadline in deadlines)
        assert missed or hint > silence * 0.8


@given(st.one_of(st.text(max_size=30), st.integers().map(str)), POLLS, JITTER)
def test_from_header_to_plan_a_valid_value_is_never_polled_early(text: str, poll: Poll, jitter: float) -> None:
    """The whole way, with any text: what is valid is waited for, what is not falls back to backoff."""
    assume(poll.max_silence is None)
    wait = retry_after(text, NOW, None)
    at, _ = next_poll(poll, now=NOW, step=0, jitter=jitter, hint=wait, hint_words=None, deadlines=())
    if wait is not None:
        assert at >= NOW + min(wait, ABSURD)
    elif text.strip(" \t").isascii() and text.strip(" \t").isdigit():
        raise AssertionError("digits are seconds")
