from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.durations import (
    LONGEST,
    format_duration,
    parse_duration,
    parse_rate,
    parse_size,
    write_duration,
)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("2m", timedelta(minutes=2)),
        ("1h", timedelta(hours=1)),
        ("7d", timedelta(days=7)),
        ("0s", timedelta(0)),
        ("007s", timedelta(seconds=7)),
        ("36500d", LONGEST),
    ],
)
def test_durations_that_are_read(text: str, duration: timedelta) -> None:
    """The five units of the contract language, and zero for "at once"."""
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "-1s", "+1s", "1.5h", "1h30m", "1 h", " 1h", "1h ", "1h\n", "1H", "1M", "1w", "1/s", "٣s", "1e3s"],
)
def test_durations_that_are_refused_with_the_way_to_say_it(text: str) -> None:
    """A duration that is half understood is a deadline at the wrong time; the message shows what would be right."""
    with pytest.raises(ValueError, match="write a whole number and a unit") as caught:
        parse_duration(text)
    assert ascii(text) in str(caught.value)


@pytest.mark.parametrize("text", ["36501d", "9999999999999999999ms", "9999999999999999999d"])
def test_a_duration_that_no_clock_can_add_is_refused(text: str) -> None:
    """A deadline beyond the calendar would fail when it is computed, far from the typing error."""
    with pytest.raises(ValueError, match="century"):
        parse_duration(text)


def test_an_endless_number_is_refused_before_it_is_read() -> None:
    """Reading a million digits takes quadratic time, and the message must not repeat them."""
    with pytest.raises(ValueError, match="not a duration") as caught:
        parse_duration("9" * 1_000_000 + "s")
    assert len(str(caught.value)) < 200


def test_the_longest_duration_fits_the_calendar() -> None:
    """The bound is there so that now plus any duration is a time."""
    assert (datetime(2026, 11, 29, tzinfo=UTC) + LONGEST).year == 2126


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(hours=24), "1d"),
        (timedelta(minutes=90), "90m"),
        (timedelta(seconds=1.5), "1500ms"),
        (timedelta(0), "0s"),
    ],
)
def test_durations_are_written_in_the_largest_exact_unit(duration: timedelta, text: str) -> None:
    """A guarantee report says "24h" in the contract's own language, never rounded."""
    assert write_duration(duration) == text


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_what_is_written_is_read(milliseconds: int) -> None:
    """No duration changes on its way through a file."""
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(write_duration(duration)) == duration


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), timedelta(microseconds=1500)])
def test_what_cannot_be_written_is_refused(duration: timedelta) -> None:
    """A duration that the language cannot say must not be written as another one."""
    with pytest.raises(ValueError, match="cannot be written"):
        write_duration(duration)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0 s"),
        (timedelta(microseconds=20), "<1 ms"),
        (timedelta(milliseconds=350), "350 ms"),
        (timedelta(milliseconds=999.9), "999 ms"),
        (timedelta(seconds=1), "1 s"),
        (timedelta(seconds=3.79), "3.7 s"),
        (timedelta(seconds=9.99), "9.9 s"),
        (timedelta(seconds=10.99), "10 s"),
        (timedelta(seconds=59.99), "59 s"),
        (timedelta(seconds=60), "1 m 00 s"),
        (timedelta(minutes=2, seconds=5), "2 m 05 s"),
        (timedelta(minutes=59, seconds=59.9), "59 m 59 s"),
        (timedelta(hours=1), "1 h 00 m"),
        (timedelta(hours=3, minutes=7, seconds=59), "3 h 07 m"),
        (timedelta(hours=23, minutes=59), "23 h 59 m"),
        (timedelta(hours=24), "1 d 00 h"),
        (timedelta(days=2, hours=4), "2 d 04 h"),
        (timedelta(days=400), "400 d 00 h"),
        (timedelta(minutes=-2), "-2 m 00 s"),
    ],
)
def test_durations_for_people(duration: timedelta, text: str) -> None:
    """Two units are enough to act on, and no boundary shows "60 s" or "24 h"."""
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("512B", 512),
        ("10kB", 10_000),
        ("5MB", 5_000_000),
        ("3GB", 3 * 10**9),
        ("1TB", 10**12),
        ("64KiB", 65_536),
        ("1MiB", 2**20),
        ("2GiB", 2 * 2**30),
        ("4TiB", 4 * 2**40),
    ],
)
def test_sizes_that_are_read(text: str, size: int) -> None:
    """Decimal and binary units are told apart by their names."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "12", "2 GiB", "-1B", "1.5GiB", "2gib", "10KB", "1b", "1/B", "1PiB"])
def test_sizes_that_are_refused(text: str) -> None:
    """KB is read as 1000 by some and as 1024 by others; a limit must be one number."""
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_a_size_beyond_any_file_is_refused() -> None:
    """The database keeps sizes in 64 bits."""
    assert parse_size(f"{2**63 - 1}B") == 2**63 - 1
    with pytest.raises(ValueError, match="larger than any file"):
        parse_size(f"{2**63}B")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50/s", 50.0), ("600/min", 10.0), ("600/m", 10.0), ("1800/h", 0.5), ("86400/d", 1.0)],
)
def test_rates_that_are_read(text: str, rate: float) -> None:
    """All become calls a second."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "50", "/s", "50s", "50/", "50 / s", "-1/s", "0.5/s", "50/sec", "50/S", "5//s"])
def test_rates_that_are_refused(text: str) -> None:
    """A misread rate either hammers a provider or stalls."""
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text)


def test_a_rate_of_zero_is_refused() -> None:
    """It would stall silently; pausing says who and why."""
    with pytest.raises(ValueError, match="pause the provider"):
        parse_rate("0/s")
