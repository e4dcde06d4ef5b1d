"""One worker's part of what each contract allows.

Concurrency and rate come from the contract, hold over all workers, and are shared out in the database as part of the
claims (`rules.sharing`, `store.shares`); here is what this worker has of them. After a pause a provider is not met
with all overdue work at once: what may be open grows to its full size over `SLOW_START` seconds. Times are monotonic
seconds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.rules import sharing
from opledger.rules.contract import Contract
from opledger.store import Grant, Want

AGAIN: Final = 0.25
"""Seconds until a worker whose share was too small asks again."""

SOON: Final = 0.005
"""Seconds until it asks again where others were just asking; twice as long each time."""

POLITE: Final = 0.05
"""Seconds by which a worker lets others go first."""

FRESH: Final = sharing.FRESH / sharing.SECOND

SLOW_START: Final = 10.0
"""Seconds after the end of a pause until a provider gets all that its contract allows."""


At = Callable[[datetime], float]


@dataclass(slots=True, eq=False)
class Turn:
    """What one operation may do at its provider: whether it has a place, and the moment at which it may send."""

    contract: str
    seated: bool = False
    begins: float | None = None
    ends: float = 0.0
    told: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Part:
    """Our part of what one contract allows."""

    limit: int = 0
    ends: float = 0.0  #: until when it may be used without asking
    asked: float = -AGAIN
    again: float = 0.0  #: until when others are left to settle theirs
    misses: int = 0
    opens: float = 0.0  #: when there is another moment to ask for
    seated: int = 0
    used: int = 0  #: most of them since we last asked
    starved: bool = False  #: there is work for which there is nothing
    short: bool = False  #: so it was at some time since we last asked
    queue: list[Turn] = field(default_factory=list)

    @property
    def standing(self) -> int:
        """How many wait for a place."""
        return sum(not turn.seated for turn in list(self.queue)) if self.queue else 0

    @property
    def thirsty(self) -> int:
        """How many have a place and wait for a moment."""
        return sum(turn.seated and turn.begins is None for turn in list(self.queue)) if self.queue else 0


class Unread(dict[str, int]):
    """How many operations of a contract to claim; one of a contract not read yet, to learn its limits by."""

    def get(self, contract: str, default: Any = None) -> Any:  # noqa: ARG002 - we know better than any default
        """Return the most of a contract."""
        return super().get(contract, 1)


class Limits:
    """Counts what is open, and what may be."""

    def __init__(self) -> None:
        self._asking = False  #: a claim is under way that counts on the places that are free
        self._asked = 0.0
        self._wanted: tuple[Want, ...] = ()
        self._lead = 0.0  #: seconds that a claim lately took
        self._parts: dict[str, _Part] = defaultdict(_Part)
        self._contracts: dict[str, Contract] = {}
        self._paused: frozenset[str] = frozenset()
        self._resumed: dict[str, float] = {}
        self._careful: set[str] = set()
        self._skipped: dict[str, float] = {}

    def know(self, contract: Contract) -> None:
        """Take the limits of a contract that operations are claimed for."""
        self._contracts[contract.name] = contract
        self._parts[contract.name]

    def unknown(self, names: Collection[str]) -> list[str]:
        """Return which of these contracts have not been read yet."""
        return [name for name in names if name not in self._contracts]

    def pauses(self, paused: Collection[str], now: float) -> frozenset[str]:
        """Take note of which providers are paused now; those that no longer are start slowly, and are returned."""
        resumed = self._paused.difference(paused)
        self._resumed.update(dict.fromkeys(resumed, now))
        self._paused = frozenset(paused)
        return resumed

    def skip(self, contract: str, now: float, seconds: float) -> None:
        """Start nothing more of this contract here for a while."""
        self._skipped[contract] = now + seconds

    def careful(self, contract: str, *, on: bool) -> None:
        """Have no more than one call open at a provider that answered none of the last ones; or as many as ever."""
        (self._careful.add if on else self._careful.discard)(contract)

    # --- what is asked for ----------------------------------------------------------------------------------

    def full(self, now: float) -> set[str]:
        """Return the contracts of which nothing may be begun now, and of which it is of no use to ask for more."""
        known = list(self._contracts.values())
        return {one.name for one in known if self._blocked(one, now) and not self._of_use(one, now)}

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """While a claim is under way, nobody else gets the places that it counts on."""
        self._wanted, self._asking = (), True
        try:
            yield
        finally:
            self._asking = False

    def note(self, due: Collection[str], now: float) -> None:
        """Take note of which contracts have work."""
        for contract in list(self._contracts.values()):
            part = self._parts[contract.name]
            part.starved = contract.name in due and self._blocked(contract, now)
            part.short = part.short or part.starved

    def wants(self, now: float, due: Collection[str]) -> tuple[Want, ...]:
        """Return what to ask for in a claim that is made now. `due`: the contracts that have work."""
        self._asked = now
        self._wanted = tuple(self._want(contract, now, due) for contract in list(self._contracts.values()))
        return self._wanted

    def waits(self, now: float) -> bool:
        """Tell whether something that was begun waits for its turn, and it is of use to ask for that now."""
        return any(self._parts[one.name].queue and self._of_use(one, now) for one in list(self._contracts.values()))

    def next_room(self, now: float, *, begins: bool = True) -> float | None:
        """Return in how many seconds it is of use to ask for more of what is held back, or None.

        Where nothing new may be begun, only what was begun and waits for its turn counts.
        """
        waits = [1.0 for resumed in self._resumed.values() if now < resumed + SLOW_START]
        for contract in self._contracts.values():
            part = self._parts[contract.name]
            if not part.queue and not (begins and part.starved):
                continue
            if now < part.again:
                waits.append(part.again - now)
                continue
            if contract.limits.rate is not None and now < part.opens and not part.standing:
                waits.append(part.opens - now)
            elif part.queue or self._left(contract, now):  # else what ends here makes room, and wakes us
                waits.append(part.asked + AGAIN - now)
        return max(min(waits), 0.001) if waits else None

    def granted(self, grants: Mapping[str, Grant], now: float, at: At) -> None:
        """Take what the claim under way has brought. `at` turns a time of day into one of ours."""
        asked = self._asked
        if self._wanted:
            self._lead = max(now - asked, self._lead * 0.7)
        for want in self._wanted:
            grant, part = grants.get(want.contract), self._parts[want.contract]
            if grant is not None and not want.asks and grant.limit < want.limit:
                part.ends = 0.0  # it was found to have run out
            if grant is None or not want.asks:
                continue
            if grant.busy:
                part.misses += 1
                part.again = now + min(AGAIN, SOON * 2**part.misses)
                continue
            part.misses = 0
            part.limit, part.asked, part.ends, part.short = grant.limit, asked, asked + FRESH, False
            part.used, part.opens = part.seated, asked + grant.opens.total_seconds()
            thirsty = [turn for turn in part.queue if turn.seated and turn.begins is None]
            for turn, moment in zip(thirsty, grant.moments, strict=False):
                self._book(turn, at(moment))
            if grant.moments:
                self._be_polite(want.contract)

    # --- what goes on ---------------------------------------------------------------------------------------

    def began(self, turn: Turn, moment: float | None = None) -> None:
        """Count an operation that was claimed with a place, and with a moment where the contract has a rate."""
        self._seat(turn)
        if moment is not None:
            self._book(turn, moment)
            self._be_polite(turn.contract)

    def ended(self, turn: Turn, now: float) -> None:
        """Count it out again."""
        self.leave(turn)
        self.unseat(turn)
        self.serve(now)

    def unseat(self, turn: Turn) -> None:
        """Take its place from an operation: its lease ran out meanwhile, and others may have been given the place."""
        if turn.seated:
            turn.seated = False
            self._parts[turn.contract].seated -= 1

    def wait(self, turn: Turn) -> None:
        """Have an operation wait for its turn, behind those that do."""
        queue = self._parts[turn.contract].queue
        if turn not in queue:
            queue.append(turn)

    def leave(self, turn: Turn) -> None:
        """Have it wait no longer."""
        queue = self._parts[turn.contract].queue
        if turn in queue:
            queue.remove(turn)

    def may_call(self, turn: Turn, now: float) -> bool:
        """Tell whether an operation has its place, and a moment that has not passed; one that has is lost."""
        if turn.begins is not None and now > turn.ends:
            turn.begins = None
        contract = self._contracts.get(turn.contract)
        return turn.seated and (contract is None or contract.limits.rate is None or turn.begins is not None)

    def dismiss(self) -> None:
        """Wake all that wait: the worker ends."""
        for part in self._parts.values():
            for turn in part.queue:
                turn.told.set()

    def serve(self, now: float) -> None:
        """Give free places to those that wait, first come first served; not while a claim is about to fill them."""
        for part in self._parts.values() if not self._asking else ():
            for turn in list(part.queue):
                if not turn.seated and now < part.ends and part.seated < part.limit:
                    self._seat(turn)
                if self.may_call(turn, now):
                    turn.told.set()

    # --- pieces ---------------------------------------------------------------------------------------------

    def _left(self, contract: Contract, now: float) -> int:
        """How many more operations might be begun here, whatever our share is."""
        if now < self._skipped.get(contract.name, 0.0):
            return 0
        most, resumed = contract.limits.concurrency, self._resumed.get(contract.name)
        if contract.name in self._careful:
            most = 1
        if resumed is not None:
            if now < resumed + SLOW_START:
                most = max(1, int(most * (now - resumed) / SLOW_START))
            else:
                self._resumed.pop(contract.name, None)
        part = self._parts[contract.name]
        return max(0, most - part.seated - part.standing)

    def _free(self, contract: Contract, now: float) -> int:
        """How many of them our share has places for; as long as there is none, any."""
        part, left = self._parts[contract.name], self._left(contract, now)
        return max(0, min(left, part.limit - part.seated - part.standing)) if now < part.ends else left

    def _blocked(self, contract: Contract, now: float) -> bool:
        part = self._parts[contract.name]
        early = contract.limits.rate is not None and now < part.opens
        return early or now < part.again or self._free(contract, now) == 0

    def _of_use(self, contract: Contract, now: float) -> bool:
        """Tell whether it is of use to ask for more: what we have is old, or was too little a while ago."""
        part, paced = self._parts[contract.name], contract.limits.rate is not None
        again = now >= part.asked + AGAIN
        if now < part.again:
            return False
        if paced and now < part.opens:
            return part.standing > 0 and again
        if paced and part.thirsty:
            return True
        if self._left(contract, now) == 0 and not part.queue:
            return False
        if now < part.ends and (self._free(contract, now) == 0 or part.standing):
            return again
        return paced or now >= part.ends - FRESH / 2

    def _want(self, contract: Contract, now: float, due: Collection[str]) -> Want:
        name, rate, part = contract.name, contract.limits.rate, self._parts[contract.name]
        has_work, fresh, free = name in due, now < part.ends, self._free(contract, now)
        asks = (has_work or bool(part.queue)) and self._of_use(contract, now)
        return Want(
            name,
            contract.limits.concurrency,
            self._left(contract, now) if asks else free if fresh and rate is None else 0,
            seated=part.seated,
            queued=part.standing,
            used=part.used,
            wants=part.standing > 0 or (has_work and ((fresh and free == 0) or part.short)),
            pace=None if rate is None else sharing.pace(rate),
            moments=part.thirsty,
            lead=timedelta(seconds=self._lead),
            asks=asks,
            limit=part.limit if fresh else 0,
        )

    def _seat(self, turn: Turn) -> None:
        part = self._parts[turn.contract]
        turn.seated = True
        part.seated += 1
        part.used = max(part.used, part.seated)

    def _book(self, turn: Turn, moment: float) -> None:
        rate = self._contracts[turn.contract].limits.rate
        if rate is not None:
            turn.begins, turn.ends = moment, moment + sharing.pace(rate).late / sharing.SECOND

    def _be_polite(self, contract: str) -> None:
        """Who has just got a moment of a slow rate asks for the next one after those that have not."""
        rate = self._contracts[contract].limits.rate
        if rate is not None and sharing.pace(rate).every > sharing.AHEAD:
            part = self._parts[contract]
            part.opens = max(part.opens, part.asked + POLITE)
