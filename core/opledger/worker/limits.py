"""How much one worker may have open at each provider: concurrency and rate, from the contract."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from opledger.rules.contract import Contract

BURST_SECONDS = 1.0
"""How many seconds' worth of calls may be made at once after a quiet time."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Limits:
    """Counts what is open and what the rate allows. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._open: dict[str, int] = defaultdict(int)
        self._buckets: dict[str, _Bucket] = {}
        self._contracts: dict[str, Contract] = {}

    def know(self, contract: Contract) -> None:
        """Take the limits of a contract that operations are claimed for."""
        self._contracts[contract.name] = contract

    def room(self, now: float) -> dict[str, int]:
        """Return, for each known contract, how many more operations may be started now."""
        return {name: self._room(contract, now) for name, contract in self._contracts.items()}

    def next_room(self, now: float) -> float | None:
        """Return in how many seconds a contract that is full by its rate has room again, or None."""
        waits = [
            (1 - self._tokens(contract, now)) / contract.limits.rate
            for contract in self._contracts.values()
            if contract.limits.rate and self._tokens(contract, now) < 1
        ]
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

    def _room(self, contract: Contract, now: float) -> int:
        free = contract.limits.concurrency - self._open[contract.name]
        return max(0, min(free, int(self._tokens(contract, now)))) if contract.limits.rate else max(0, free)

    def _tokens(self, contract: Contract, now: float) -> float:
        rate = contract.limits.rate or 0.0
        most = max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.setdefault(contract.name, _Bucket(most, now))
        bucket.tokens = min(most, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        return bucket.tokens
