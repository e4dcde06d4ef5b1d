"""When a job is looked at next, and why, in one sentence (DESIGN §6, invariant I20).

What the provider asks for is honoured exactly; without a valid hint the wait is a capped exponential backoff with
jitter. Chance comes in as a number and the time as a value: the same inputs give the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from opledger.rules import plain
from opledger.rules.contract import Poll
from opledger.rules.durations import LONGEST, format_duration
from opledger.rules.values import Pick

LEAST_GAP: Final = timedelta(milliseconds=50)  #: no two polls of one job are closer, whatever anybody asks for
AT_ONCE: Final = timedelta(seconds=1)  #: what a hint of zero means, unless the contract's first wait is shorter
LAST_LOOK: Final = timedelta(seconds=2)  #: how long before a deadline the last read starts (a fifth of a short wait)
ABSURD: Final = timedelta(days=30)  #: a longer hint is a mistake
PATIENCE: Final = 0.8  #: the share of a provider's `max_silence` that we dare to be silent

_ZERO: Final = timedelta(0)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT_DAYS: Final = tuple(day[:3] for day in _DAYS)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY: Final = rf"(?P<day>{'|'.join(_SHORT_DAYS)})"
_LONG_DAY: Final = rf"(?P<day>{'|'.join(_DAYS)})"
_MONTH: Final = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DATES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_DAY}, (?P<date>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",  # IMF-fixdate
        rf"{_LONG_DAY}, (?P<date>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",  # RFC 850
        rf"{_DAY} {_MONTH} (?P<date>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})",  # asctime
    )
)
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_DIGITS: Final = re.compile(r"[0-9]+")


# --- what the provider asks for ---------------------------------------------------------------------------------------


def http_date(text: str, near: datetime) -> datetime | None:
    """Read a date of HTTP (RFC 9110 §5.6.7) in any of its three forms; None for anything else.

    Strict: GMT only, the weekday must be that of the date. `near` tells the century of the old two-digit years.
    """
    found = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    if found is None:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:
        latest = near.year + 50
        year = latest - (latest - year) % 100
    leap = found["second"] == "60"
    try:
        moment = datetime(
            year,
            _MONTHS.index(found["month"]) + 1,
            int(found["date"]),
            int(found["hour"]),
            int(found["minute"]),
            59 if leap else int(found["second"]),
            tzinfo=UTC,
        )
        moment += timedelta(seconds=leap)
    except (ValueError, OverflowError):  # the 31st of February, hour 25, a second past the last year
        return None
    return moment if _SHORT_DAYS[(moment - timedelta(seconds=leap)).weekday()] == found["day"][:3] else None


def retry_after(value: str, answered_at: datetime, date_header: str | None) -> timedelta | None:
    """Read a Retry-After header (RFC 9110 §10.2.3) as the wait from the answer on; None where it says nothing.

    Digits are seconds. Else it must be a date of HTTP, which is measured against the answer's own Date header, so that
    a server clock that is wrong does no harm, or against `answered_at` where that header is missing or unreadable; a
    date in the past is zero. Several values (two headers, joined by a comma) give the longest valid one: none of them
    is polled before. At most a century is returned; see `ABSURD`.
    """
    sent = None if date_header is None else http_date(date_header.strip(" \t"), answered_at)
    base = answered_at if sent is None else sent

    def read(text: str) -> timedelta | None:
        if _DIGITS.fullmatch(text):
            return _bounded(float(text))
        date = http_date(text, answered_at)
        return None if date is None else min(max(date - base, _ZERO), LONGEST)

    return _longest(value, read)


def retry_after_ms(value: str) -> timedelta | None:
    """Read a ``retry-after-ms`` header: milliseconds, with or without a fraction. Else as `retry_after`."""
    return _longest(value, lambda text: _bounded(float(text) / 1000) if _DECIMAL.fullmatch(text) else None)


def seconds(value: object) -> timedelta | None:
    """Read a hint of seconds from a body: a number that is not negative, or such a number as text; else None."""
    if isinstance(value, str):
        text = value.strip(" \t")
        return _bounded(float(text)) if _DECIMAL.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:  # NaN is not
        return None
    return _bounded(value)


def read_hint(
    hints: Iterable[Pick], body: Any, headers: Mapping[str, str], answered_at: datetime
) -> tuple[timedelta, str] | None:
    """Return how long the answer asks to wait, and its own words for it, or None where it asks for nothing valid.

    `hints` are the places the contract names, `headers` has lower-case names. The header ``retry-after`` is read as the
    standard says; a name that ends in ``ms`` holds milliseconds; everything else holds seconds. Where several are
    valid the longest is taken: a poll may be later than asked, never earlier.
    """
    best: tuple[timedelta, str] | None = None
    for pick in hints:
        value = pick.of(body, headers)  # what is missing is neither text nor number, and so no hint
        name = pick.header or (pick.pointer or ("",))[-1]
        wait = _read_value(name, value, headers, answered_at)
        if wait is not None and (best is None or wait > best[0]):
            shown = plain.clean(value, limit=40) if isinstance(value, str) else f"{wait / timedelta(seconds=1):g}"
            best = wait, f"{'Retry-After' if name == 'retry-after' else plain.clean(name, limit=40)}: {shown}"
    return best


def _read_value(name: str, value: object, headers: Mapping[str, str], answered_at: datetime) -> timedelta | None:
    if name == "retry-after" and isinstance(value, str):
        return retry_after(value, answered_at, headers.get("date"))
    if re.search(r"(?i:[-_]ms)$|Ms$", name):
        if isinstance(value, str):
            return retry_after_ms(value)
        wait = seconds(value)
        return None if wait is None else wait / 1000
    return seconds(value)


def _longest(value: str, read: Callable[[str], timedelta | None]) -> timedelta | None:
    """Return the longest valid one of the values that a header line holds.

    The comma after a weekday belongs to the date and separates nothing.
    """
    pieces = [piece.strip(" \t") for piece in value.split(",")]
    for index in range(len(pieces) - 1, 0, -1):
        if pieces[index - 1] in _SHORT_DAYS or pieces[index - 1] in _DAYS:
            pieces[index - 1 : index + 1] = [f"{pieces[index - 1]}, {pieces[index]}"]
    return max((wait for piece in pieces if (wait := read(piece)) is not None), default=None)


def _bounded(wait: float) -> timedelta:
    """Return seconds as a duration of at most a century, without overflow for any number that is not negative."""
    return timedelta(seconds=min(wait, LONGEST.total_seconds()))


# --- what we do -------------------------------------------------------------------------------------------------------


def backoff(base: timedelta, factor: float, cap: timedelta, step: int, jitter: float) -> timedelta:
    """Return one wait: uniform between 0.5 and 1.5 times ``base * factor ** step``, and never above `cap`.

    `step` counts the waits before this one, `jitter` is a number in [0, 1). Any step is allowed, none overflows.
    """
    try:
        wait = base.total_seconds() * factor ** max(step, 0) * (0.5 + jitter)
    except OverflowError:
        return cap
    return timedelta(seconds=wait) if wait < cap.total_seconds() else cap


def next_poll(
    poll: Poll,
    *,
    now: datetime,
    step: int,
    jitter: float,
    hint: timedelta | None,
    hint_words: str | None,
    deadlines: Sequence[datetime],
    minimum_gap: timedelta = LEAST_GAP,
) -> tuple[datetime, str]:
    """Return when to look again and why.

    A hint is honoured exactly: the poll is never earlier, but for three bounds. A read happens shortly before each of
    `deadlines` that is still ahead; a provider's `max_silence` is never reached; and a hint beyond `ABSURD` is cut. A
    hint of zero (or a date in the past) means `AT_ONCE`. Without a hint it is `backoff`. No two polls are closer than
    `minimum_gap`.
    """
    if hint is None:
        wait = backoff(poll.first, poll.factor, poll.max, step, jitter)
        because = f"backoff {format_duration(wait)}"
        if step > 0:
            because += f" after {step} poll{'' if step == 1 else 's'}"
    else:
        wait = hint if hint > _ZERO else min(AT_ONCE, poll.first)
        because = hint_words or f"the provider asks to wait {format_duration(hint)}"
        if wait > ABSURD:
            wait = ABSURD
            because += f"; that is absurd, cut to {format_duration(ABSURD)}"
    wait = max(wait, minimum_gap)
    if poll.max_silence is not None and wait > poll.max_silence * PATIENCE:
        wait = poll.max_silence * PATIENCE
        because += f"; shortened, the provider gives up after {format_duration(poll.max_silence)} without a poll"
    look = last_look(now, deadlines, minimum_gap if step <= 0 else max(minimum_gap, min(AT_ONCE, poll.first)))
    if look is not None and wait > look:
        wait = look
        because += "; brought forward, to look once more before the deadline"
    return now + wait, because


def last_look(now: datetime, deadlines: Sequence[datetime], least: timedelta) -> timedelta | None:
    """Return the wait until the last read before the nearest deadline, or None where none is ahead.

    A deadline so near that the read would follow within `least` has had its last look: the read just made.
    """
    looks = [ahead - min(LAST_LOOK, ahead / 5) for deadline in deadlines if (ahead := deadline - now) > _ZERO]
    return min((look for look in looks if look >= least), default=None)
