"""How the workers of one database share what a contract allows: places for open calls, and moments to send at.

Places: a worker has a share of them for about a second, in which it may begin calls without asking; beyond that second
only what it has begun counts, for as long as the leases of those operations last. Moments: a bucket kept as one time
(GCRA, ITU-T I.371: the "theoretical arrival time"), out of which moments are booked a little ahead. One that is not
used in its time is lost. All times are whole microseconds of the clock that the workers share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final

SECOND: Final = 1_000_000

BURST_SECONDS: Final = 1.0
"""How many seconds' worth of calls may be made at once after a quiet time; one call at least."""

LATE: Final = 0.25
"""Seconds after its moment for which a call may still be sent. What that adds to a burst is taken off it beforehand."""

AHEAD: Final = SECOND // 2
"""How far ahead moments are booked, so that no round trip stands between two of them."""

MOST_LEAD: Final = 5 * SECOND
"""Most time that a booking is given to reach who asked for it."""

FRESH: Final = SECOND
"""How long a share of the places lasts. After a crash, places that were not in use are held up for no longer."""

TENURE: Final = 5 * SECOND
"""How long a place is kept where there are fewer than workers that want one; then it is another one's turn."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another worker: how many calls it may have open now, and since when it wants more and gets none."""

    owner: str
    held: int
    wants: int | None = None
    since: int | None = None  #: when it got its first place, where it has some


@dataclass(frozen=True, slots=True)
class Me:
    """The worker that asks. `seated` is open here, and `used` the most that was since it last asked."""

    owner: str
    seated: int
    used: int
    wants: int | None = None
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What a worker gets: it begins no call beyond `limit`, and is counted with `slots` while its share is fresh."""

    slots: int
    limit: int


def share(most: int, me: Me, rivals: Sequence[Rival], now: int, *, alive: int = 1) -> Share:
    """Share `most` places: all that are free to whoever alone wants them, else the same to all who want some.

    Never more than the others leave, so that the sum over all workers stays within `most`. A worker that has more than
    its part begins nothing new until it has not. Where nobody wants more than he has, each takes as much as `alive`
    workers could; where another one does, who does not keeps what he uses, and one to grow by.
    """
    left = max(0, most - sum(rival.held for rival in rivals))
    hungry = [rival for rival in rivals if rival.wants is not None]
    if not hungry:
        part = left if me.wants is not None else min(left, max(-(-most // alive), me.used + 1))
        return Share(min(left, max(part, me.seated)), part)
    part = _part(most, me, rivals, hungry, now)
    if me.wants is None:
        part = min(part, me.used + 1)
    slots = min(left, max(part, me.seated))
    return Share(slots, min(part, slots))


def _part(most: int, me: Me, rivals: Sequence[Rival], hungry: Sequence[Rival], now: int) -> int:
    """My equal part of what the sated ones leave; what cannot be divided goes by turns."""
    pool = max(0, most - sum(rival.held for rival in rivals if rival.wants is None))
    each, over = divmod(pool, len(hungry) + 1)
    mine = _turn(me, now)
    return each + (sum(_turn(rival, now) < mine for rival in hungry) < over)


def _turn(one: Rival | Me, now: int) -> tuple[int, int, str]:
    """Who comes first: whoever has just begun its turn, then who waits longest, then who has had its turn."""
    if one.since is None:
        return 1, now if one.wants is None else one.wants, one.owner
    return (0 if now < one.since + TENURE else 2), one.since, one.owner


@dataclass(frozen=True, slots=True)
class Pace:
    """A rate as the bucket keeps it: a moment every so often, as much as `burst` before its time, `late` after it."""

    every: int
    burst: int
    late: int


def pace(rate: float) -> Pace:
    """Return the pace of a rate, given in calls a second.

    What is sent from a booked moment on until `late` after it never exceeds ``rate * t + max(1, rate *
    BURST_SECONDS)`` in any time t: the burst is smaller by what lateness can add. A rate of about one a second and less
    has no burst to take that off, and its moments are further apart instead, by a tenth at most.
    """
    declared = max(1.0, rate * BURST_SECONDS)
    late = LATE
    at_once = declared - rate * late
    if at_once < 1:
        late = min(LATE, 0.1 / rate)
        at_once = declared - rate * late
    if at_once >= 1:
        every = ceil(SECOND / rate)
        return Pace(every, floor((at_once - 1) * SECOND / rate), floor(late * SECOND))
    every = ceil(max(1 / rate, (2 - declared) / rate + late) * SECOND)
    return Pace(every, 0, floor(late * SECOND))


def settled(pace: Pace, tat: int, now: int) -> int:
    """Return the bucket's time where it can be right; one from beyond all bookings is of a clock that was put back."""
    furthest = now + MOST_LEAD + AHEAD + pace.burst + pace.every
    return tat if tat <= furthest else now + pace.burst


def moments(pace: Pace, tat: int, at: int, most: int) -> tuple[list[int], int]:
    """Book up to `most` moments, from `at` until `AHEAD` after it; return them and the bucket's new time."""
    booked: list[int] = []
    while len(booked) < most:
        moment = max(at, tat - pace.burst)
        if moment > at + AHEAD:
            break
        booked.append(moment)
        tat = max(tat, moment) + pace.every
    return booked, tat


def portion(bookable: int, hungry: int) -> int:
    """Return how many moments one of several takes at a time, where so many others want some, too."""
    return -(-bookable // (hungry + 1))


def reopens(pace: Pace, tat: int, at: int) -> int:
    """Return in how many microseconds from `at` it is time to ask for the next moment: well before it comes."""
    return max(0, tat - pace.burst - AHEAD // 2 - at)
