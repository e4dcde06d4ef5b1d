"""Whose trouble it is that calls to a provider fail: the provider's, or that of the one worker that makes them.

An error budget is spent by all workers together. That a provider answers nobody is a fact about it, and all calls to it
are stopped. That it answers others, and only not this worker, is a fact about this worker's host (its network, its
certificates, its address): it leaves the provider to the others, and tries again after a while. What the others know
they have told in the database (`store.reach`). All times are whole microseconds of the time that the workers share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

SECOND: Final = 1_000_000

WITNESS: Final = 3
"""How many calls in a row must fail before a worker says so, and is believed."""

OBJECTION: Final = 5 * SECOND
"""How long the others have to say that they do reach the provider: more than two signs of life."""

APART: Final = 10 * SECOND
"""For how long calls must fail before it counts that others succeed. Nobody but this worker waits for it."""

FIRST_ASIDE: Final = 30 * SECOND
LONGEST_ASIDE: Final = 300 * SECOND
"""For how long a worker leaves a provider to the others: twice as long each time, up to this."""

REMEMBERED: Final = 60 * SECOND
"""For how long failures are counted that nothing came after; and for the contract's window, where that is longer."""


@dataclass(frozen=True, slots=True)
class Row:
    """Calls that failed one after the other, and since when."""

    failures: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """How one worker fares with one provider: what failed since anybody's last success, and its own last success."""

    owner: str
    row: Row | None = None
    told_at: int | None = None  #: since when others can know of the row
    worked_at: int | None = None
    at: int = 0  #: of the last call that is counted here

    @property
    def failing(self) -> bool:
        """True where nothing succeeded after what failed."""
        return self.row is not None and (self.worked_at is None or self.worked_at < self.row.since)


class Verdict(Enum):
    """What a worker is to do whose calls fail."""

    GO_ON = "go on"
    STAND_ASIDE = "stand aside"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict, why, and when anybody last succeeded; failures before that are nobody's any longer."""

    verdict: Verdict
    why: str = ""
    worked_at: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """How many calls may fail in a row and for how long at least; 0 calls: any number."""

    calls: int
    window: int


def judge(
    budget: Budget, own: Row, mine: Tally, others: Sequence[Tally], now: int, *, alive: int, asides: int = 0
) -> Judged:
    """Say what a worker is to do. `own` is what failed since its own last success, `mine` what since anybody's.

    `alive`: how many workers there are, with this one. `asides`: how often it has left the provider to the others
    since its last success. With others alive, a provider is paused only once a second worker has failed as well, or
    where this one has let the others try and none of them has said anything: else this worker makes room for them.
    """
    worked = max((one.worked_at for one in others if one.worked_at is not None), default=None)
    if budget.calls == 0:
        return Judged(Verdict.GO_ON, worked_at=worked)
    if worked is not None and _others_reach(own, others) and _long_enough(own, budget.calls, APART, budget, now):
        name = max(others, key=lambda one: one.worked_at or 0).owner
        why = f"{_failed(own, now)} here, while other workers reach it ({name} {_seconds(now - worked)} ago)"
        return Judged(Verdict.STAND_ASIDE, why, worked)
    latest = max(worked or 0, mine.worked_at or 0)
    recent = now - max(budget.window, REMEMBERED)
    told = [mine, *(one for one in others if one.failing and one.at >= recent)]
    counted = [(one, one.row) for one in told if one.row is not None and one.row.since > latest]
    together = Row(sum(row.failures for _, row in counted), min((row.since for _, row in counted), default=now))
    if together.failures < budget.calls or now < together.since + budget.window:
        return Judged(Verdict.GO_ON, worked_at=worked)
    if alive <= 1:
        return Judged(Verdict.PAUSE, f"{_failed(together, now)}, and none succeeded", worked)
    heard = min(one.told_at or now for one, _ in counted)
    if now < heard + OBJECTION:
        return Judged(Verdict.GO_ON, worked_at=worked)
    enough = min(WITNESS, budget.calls)
    witnesses = [one.owner for one, row in counted if row.failures >= enough]
    if len(witnesses) > 1:
        why = f"{_failed(together, now)} for {len(witnesses)} workers, and none succeeded for any"
        return Judged(Verdict.PAUSE, why, worked)
    if witnesses != [mine.owner]:
        return Judged(Verdict.GO_ON, worked_at=worked)
    if asides:
        why = f"{_failed(together, now)}, none succeeded, and no other worker reached it when it was left to them"
        return Judged(Verdict.PAUSE, why, worked)
    why = f"{_failed(together, now)} here, and no other worker has called it meanwhile: it is left to them"
    return Judged(Verdict.STAND_ASIDE, why, worked)


def aside_for(asides: int) -> int:
    """Return for how long a worker stands aside that has done so `asides` times since its last success."""
    return int(min(FIRST_ASIDE * 2 ** min(asides, 10), LONGEST_ASIDE))


def _others_reach(own: Row, others: Sequence[Tally]) -> bool:
    """Tell whether somebody has succeeded since our calls fail, and has not failed since."""
    return any(one.worked_at is not None and one.worked_at >= own.since and not one.failing for one in others)


def _long_enough(row: Row, calls: int, length: int, budget: Budget, now: int) -> bool:
    return row.failures >= calls and now >= row.since + min(length, budget.window)


def _failed(row: Row, now: int) -> str:
    return f"{row.failures} calls in a row failed over {_seconds(now - row.since)}"


def _seconds(length: int) -> str:
    return f"{max(length, 0) / SECOND:.0f} s"
