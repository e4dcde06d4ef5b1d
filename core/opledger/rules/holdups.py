"""What holds up an operation that is due: a place or a moment at its provider, both of which all workers share.

The workers settle these among themselves (`rules.sharing`); here the shares of one moment are put into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from opledger.rules import sharing
from opledger.rules.contract import Contract
from opledger.rules.model import to_rfc3339

MOST_AHEAD: Final = 10_000
"""How many operations that come first are counted at most."""

NAMED: Final = 3
"""How many workers are named; of more than that it is said how many there are."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What one worker has of a contract: operations under leases, and the places of its share while that lasts."""

    owner: str
    held: int
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The shares of a contract at one moment, as the workers' common clock has it (microseconds)."""

    holders: tuple[Holder, ...]
    tat: int  #: until when the rate is used up
    clock: int
    ahead: int = 0  #: operations of the contract that have been due for longer, `MOST_AHEAD` at most


@dataclass(frozen=True, slots=True)
class Blocked:
    """What must change before an operation moves: a short code, a sentence, and until when, where that is known."""

    code: str
    reason: str
    until: datetime | None = None


def limit(contract: Contract, standing: Standing, now: datetime) -> Blocked | None:
    """Say which limit of its contract an operation waits for that is due and that no worker has begun."""
    places = _places(contract, standing)
    return places if places is not None else _moment(contract, standing, now)


def next_moment(contract: Contract, standing: Standing, now: datetime) -> datetime | None:
    """Return when the next call may be booked at the contract's rate; None where it may be now."""
    if contract.limits.rate is None:
        return None
    pace = sharing.pace(contract.limits.rate)
    wait = sharing.settled(pace, standing.tat, standing.clock) - pace.burst - standing.clock
    return now + timedelta(microseconds=wait) if wait > 0 else None


def unreached(contract: str, asides: Sequence[tuple[str, datetime, str]]) -> Blocked:
    """Say that each worker which is alive leaves a provider to others; given as (worker, until when, why)."""
    owner, until, why = min(asides, key=lambda one: one[1])
    whose = "the only worker that is alive" if len(asides) == 1 else f"each of the {len(asides)} workers that are alive"
    return Blocked(
        "no_worker_reaches",
        f"{whose} leaves {contract} to others; {owner} tries again at {to_rfc3339(until)}: {why}",
        until,
    )


def rate_words(rate: float) -> str:
    """Write a rate, given in calls a second, as people say it."""
    return f"{rate:g} calls a second" if rate > 1 else f"a call every {1 / rate:g} s" if rate < 1 else "a call a second"


def _places(contract: Contract, standing: Standing) -> Blocked | None:
    most = contract.limits.concurrency
    # Of a share only what is in use: what is left of it is somebody's who would have begun this.
    used = [(one.owner, one.held if one.slots is None else min(one.held, one.slots)) for one in standing.holders]
    used = [(owner, count) for owner, count in used if count]
    if sum(count for _, count in used) < most:
        return None
    places = "the one place that it allows at a time is" if most == 1 else f"all {most} places that it allows are"
    return Blocked(
        "limit_concurrency",
        f"it waits for a place at {contract.name}: {places} taken (limits.concurrency, over all workers), by "
        f"{_whose(used)}; a place is free when one of these calls ends{_behind(standing.ahead)}",
    )


def _moment(contract: Contract, standing: Standing, now: datetime) -> Blocked | None:
    first, rate = next_moment(contract, standing, now), contract.limits.rate
    if first is None or rate is None:
        return None
    turn = first + timedelta(microseconds=standing.ahead * sharing.pace(rate).every)
    return Blocked(
        "limit_rate",
        f"it waits for a moment at {contract.name}, which allows {rate_words(rate)} (limits.rate, over all workers): "
        f"the next one that nobody has booked is at {to_rfc3339(first)}{_behind(standing.ahead)}",
        turn,
    )


def _whose(used: Sequence[tuple[str, int]]) -> str:
    ranked = sorted(used, key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{owner} ({count})" for owner, count in ranked[:NAMED])
    if len(ranked) == 1:
        return f"worker {named}"
    return f"{len(ranked)} workers: {named}{', …' if len(ranked) > NAMED else ''}"


def _behind(ahead: int) -> str:
    if ahead == 0:
        return ""
    many = f"{ahead} or more operations" if ahead >= MOST_AHEAD else f"{ahead} operations"
    words = (
        "one operation has been due for longer and comes" if ahead == 1 else f"{many} have been due for longer and come"
    )
    return f"; {words} first"
