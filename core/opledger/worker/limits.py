"""How much one worker may have open at each provider, and when a provider has failed too often.

Concurrency and rate come from the contract. After a pause, and after the worker starts, a provider is not met with all
overdue work at once: what may be open grows to its full size over `SLOW_START` seconds. Times are monotonic seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules.contract import Contract

BURST_SECONDS: Final = 1.0
"""How many seconds' worth of calls may be made at once after a quiet time."""

SKIPPED: Final = 30.0
"""Seconds for which a contract is left to other workers, once something it needs was missing on this machine."""

SLOW_START: Final = 10.0
"""Seconds after the end of a pause until a provider gets all that its contract allows."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    since: float = 0.0


class Room(dict[str, int]):
    """How many more operations each contract may have open; one of a contract not read yet, to learn its limits by."""

    def get(self, contract: str, default: Any = None) -> Any:  # noqa: ARG002 - we know better than any default
        """Return the room of a contract."""
        return super().get(contract, 1)


class Limits:
    """Counts what is open, what the rate allows, and what failed in a row."""

    def __init__(self) -> None:
        self._open: dict[str, int] = defaultdict(int)
        self._buckets: dict[str, _Bucket] = {}
        self._contracts: dict[str, Contract] = {}
        self._paused: frozenset[str] = frozenset()
        self._resumed: dict[str, float] = {}
        self._trouble: dict[str, _Trouble] = {}
        self._skipped: dict[str, float] = {}

    def know(self, contract: Contract) -> None:
        """Take the limits of a contract that operations are claimed for."""
        self._contracts[contract.name] = contract

    def pauses(self, paused: Collection[str], now: float) -> None:
        """Take note of which providers are paused now; those that no longer are start slowly."""
        for contract in self._paused.difference(paused):
            self._resumed[contract] = now
            self._trouble.pop(contract, None)
        self._paused = frozenset(paused)

    def skip(self, contract: str, now: float) -> None:
        """Start nothing more of this contract here for a while."""
        self._skipped[contract] = now + SKIPPED

    def room(self, now: float) -> dict[str, int]:
        """Return, for each known contract, how many more operations may be started now."""
        return {name: self._room(contract, now) for name, contract in self._contracts.items()}

    def next_room(self, now: float) -> float | None:
        """Return in how many seconds a contract that is held back by its rate has room again, or None."""
        waits = [
            (1 - self._tokens(contract, now)) / contract.limits.rate
            for contract in self._contracts.values()
            if contract.limits.rate and self._tokens(contract, now) < 1
        ]
        waits += [1.0 for resumed in self._resumed.values() if now < resumed + SLOW_START]
        return max(min(waits), 0.001) if waits else None

    def started(self, contract: str, now: float) -> None:
        """Count an operation whose call may now be made."""
        self._open[contract] += 1
        known = self._contracts.get(contract)
        if known is not None and known.limits.rate:
            self._tokens(known, now)
            self._buckets[contract].tokens -= 1

    def ended(self, contract: str) -> None:
        """Count it out again."""
        self._open[contract] -= 1

    def worked(self, contract: str) -> None:
        """Forget failures: the provider answered something that makes sense."""
        self._trouble.pop(contract, None)

    def failed(self, contract: Contract, now: float) -> str | None:
        """Count a call that brought no usable answer; return why the provider is to be paused, once it is.

        Many failures in a row over some time, without one good answer between them, are the provider's trouble and not
        an operation's: one escalation then, instead of one for each operation (`limits.error_budget`).
        """
        trouble = self._trouble.setdefault(contract.name, _Trouble(since=now))
        trouble.failures += 1
        budget, window = contract.limits.error_budget, contract.limits.error_window.total_seconds()
        if budget == 0 or trouble.failures < budget or now < trouble.since + window:
            return None
        del self._trouble[contract.name]
        return f"{trouble.failures} calls in a row failed over {now - trouble.since:.0f} s, and none succeeded"

    def _room(self, contract: Contract, now: float) -> int:
        if now < self._skipped.get(contract.name, 0.0):
            return 0
        most = contract.limits.concurrency
        resumed = self._resumed.get(contract.name)
        if resumed is not None:
            if now < resumed + SLOW_START:
                most = max(1, int(most * (now - resumed) / SLOW_START))
            else:
                del self._resumed[contract.name]
        free = most - self._open[contract.name]
        return max(0, min(free, int(self._tokens(contract, now)))) if contract.limits.rate else max(0, free)

    def _tokens(self, contract: Contract, now: float) -> float:
        rate = contract.limits.rate or 0.0
        most = max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.setdefault(contract.name, _Bucket(most, now))
        bucket.tokens = min(most, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        return bucket.tokens
