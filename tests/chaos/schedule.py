"""What is done to the processes, and when: drawn from a seed, and written down before anything happens."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

What = Literal["kill", "pause", "terminate", "restart", "crash", "deafen", "revoke"]

WORKERS: Final = 3


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing that is done: at which second, to which worker, for how long."""

    at: float
    what: What
    worker: int = 0
    seconds: float = 0.0
    ripe: bool = False  #: only once the worker has got something done


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. Rates are seconds between two blows of a kind, on the average; None: there are none."""

    seconds: float = 60.0
    seed: int = 1
    database: Literal["sqlite", "postgresql"] = "sqlite"
    rate: float = 6.0  #: operations a second
    orders: int = 0  #: given at once, however slow the machine is
    only: str | None = None  #: the one personality that there is
    kills: float = 1.0
    pauses: float = 2.5
    longest: float = 6.0  #: of a pause, in seconds
    restarts: float = 8.0  #: of the database server
    lease: float = 4.0
    deadline: str = "60s"  #: of the create and of the result
    quick: bool = False  #: no job that ends only by a deadline
    skew: float = 0.0  #: seconds by which the clocks of workers may be wrong; only a database server mends that
    planted: str | None = None  #: a fault in the product, to see that this finds it


LONG: Final = {"seconds": 3600.0, "kills": 1.1, "pauses": 3.2, "longest": 20.0, "rate": 8.0}


def draw(plan: Plan) -> list[Blow]:
    """Return all blows of a run, in order; the same plan gives the same."""
    rng = random.Random(f"chaos-{plan.seed}")
    blows: list[Blow] = []

    def every(mean: float, first: float = 0.0) -> list[float]:
        moments, now = [], first
        while (now := now + rng.expovariate(1 / mean)) < plan.seconds:
            moments.append(now)
        return moments

    for at in every(plan.kills):
        what: What = "terminate" if rng.random() < 0.08 else "kill"
        blows.append(Blow(at, what, rng.randrange(WORKERS), ripe=rng.random() < 0.8))
    for at in every(plan.pauses):
        blows.append(Blow(at, "pause", rng.randrange(WORKERS), rng.uniform(1.0, plan.longest)))
    for at in every(9.0, 2.0):
        blows.append(Blow(at, "deafen"))
    for at in every(15.0, 3.0):
        blows.append(Blow(at, "revoke", seconds=rng.uniform(0.2, 1.0)))
    if plan.database == "postgresql":
        # Not so irregular that a run of a minute could do without one or the other.
        at, crashes = 0.0, rng.random() < 0.5
        while (at := at + rng.uniform(0.25, 1.75) * plan.restarts) < plan.seconds:
            blows.append(Blow(at, "crash" if crashes else "restart", seconds=rng.uniform(0.0, 2.0)))
            crashes = not crashes
    return sorted(blows, key=lambda blow: blow.at)
