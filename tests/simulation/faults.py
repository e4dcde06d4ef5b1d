"""What may go wrong, and how often: each seed switches on a random part of it, and sets each part's rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

NETWORK: Final = (
    "refused", "request lost", "answer lost", "answer late", "duplicate", "5xx before", "5xx after", "429", "cut",
    "html", "401",
)  # fmt: skip
"""Of calls: at most one of them strikes a call."""

PROCESS: Final = (
    "killed before send", "killed after send", "killed before commit", "killed after commit", "killed anywhere",
    "stalled before send", "stalled anywhere", "stalled at the permit",
)  # fmt: skip
STORE: Final = ("store busy", "commit uncertain")
TIME: Final = ("clock ahead", "clock back")
HOOKS: Final = ("hook twice", "hook late", "hook early", "hook lost", "hook forged", "hook stale")
PEOPLE: Final = ("same id, other body", "two at once", "cancel at the permit")
LATER: Final = ("told to end", "told to end in a call", "commit slow", "told late")
"""Drawn last, so that the others strike as they did before there were these: see `WITHOUT_LATER`."""
ALL: Final = (*NETWORK, *PROCESS, *STORE, *TIME, *HOOKS, *PEOPLE, *LATER)

_MOST: Final = {
    "401": 0.004,
    "killed before commit": 0.01,
    "killed after commit": 0.01,
    "killed before send": 0.03,
    "killed after send": 0.03,
    "stalled before send": 0.03,
    "stalled at the permit": 0.03,
    "store busy": 0.03,
    "commit uncertain": 0.02,
    "told to end in a call": 0.03,
    "commit slow": 0.01,
    "told late": 0.01,
}
_USUAL: Final = 0.12


@dataclass(frozen=True)
class Focus:
    """What a run is about, where it is not to be drawn from everything: to find one bug sooner."""

    personalities: tuple[str, ...] = ()
    flavours: tuple[str, ...] = ()
    faults: Mapping[str, float] = field(default_factory=dict)  #: rates of these, whatever the seed says
    cancels: float = 0.3  #: how many operations somebody cancels


WITHOUT_LATER: Final = Focus(faults=dict.fromkeys(LATER, 0.0))
"""For seeds that found something when there were no such faults: everything happens in them as it did then."""


@dataclass
class Swarm:
    """The faults of one seed."""

    rates: dict[str, float] = field(default_factory=dict)
    struck: dict[str, int] = field(default_factory=dict)
    on: bool = True

    @classmethod
    def of(cls, random: Random) -> Swarm:
        """Draw which faults there are, and how often they strike."""
        share = random.choice((0.0, 0.2, 0.35, 0.5))
        rates = {}
        for name in ALL:
            drawn, often = random.random(), random.random()
            if drawn < share:
                rates[name] = _MOST.get(name, _USUAL) * (0.2 + 0.8 * often)
        return cls(rates)

    def strikes(self, name: str, random: Random) -> bool:
        """Tell whether it strikes now."""
        rate = self.rates.get(name)
        if not rate or not self.on or random.random() >= rate:
            return False
        self.struck[name] = self.struck.get(name, 0) + 1
        return True

    def of_call(self, random: Random) -> str | None:
        """Draw what strikes a call."""
        if not self.on:
            return None
        point = random.random()
        for name in NETWORK:
            point -= self.rates.get(name, 0.0)
            if point < 0:
                self.struck[name] = self.struck.get(name, 0) + 1
                return name
        return None
