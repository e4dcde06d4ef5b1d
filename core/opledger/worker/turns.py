"""Waiting for a turn: for a place among the open calls of a contract, and for a moment to send at.

Places and moments come with the claims, so that an operation hardly ever waits here: only for its second call under one
lease where the contract has a rate, where a deadline had it claimed without a place, or where it came too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from opledger.worker.limits import Limits, Turn


class Dropped(Exception):
    """The drive ends here: the lease is lost, or the record moved on under another hand. Nothing more is sent."""


EARLY: Final = 0.002
"""Seconds that are not worth to sleep for."""


@dataclass(slots=True)
class Held:
    """A lease as its holder sees it: `ends` is on our own monotonic clock, counted from before the claim."""

    epoch: int
    ends: float
    lost: bool = False


class Waiter(Protocol):
    """Who waits for a turn: an operation under a lease."""

    turn: Turn
    held: Held

    async def renew(self) -> None:
        """Extend the lease. Raises Dropped where it is no longer ours."""
        ...


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of all operations of one worker. Without limits everybody has one."""

    limits: Limits | None
    monotonic: Callable[[], float]
    wake: Callable[[], None]
    lease: timedelta
    leaving: Callable[[], bool]
    paused: Callable[[str], str | None]

    async def take(self, hand: Waiter) -> None:
        """Wait until an operation may send its next request. It keeps that turn until `spend`.

        The lease is renewed while it waits. Raises Dropped where that is lost, the provider was paused meanwhile or
        the worker is told to stop.
        """
        turn, limits = hand.turn, self.limits
        if limits is None:
            return
        while True:
            now = self.monotonic()
            if not limits.may_call(turn, now):
                await self._wait(hand, limits, turn)
            elif turn.begins is not None and turn.begins > now + EARLY:
                await self._sleep(hand, turn, turn.begins - now)
            else:
                return

    def renewed(self, hand: Waiter, asked: float) -> None:
        """Count a lease anew, from when that was asked for. One that had run out has lost its place at the provider.

        Nobody counted it any longer, and another worker may have the place.
        """
        if self.limits is not None and self.monotonic() > hand.held.ends:
            self.limits.unseat(hand.turn)
        hand.held.ends = asked + self.lease.total_seconds()

    def spend(self, hand: Waiter) -> None:
        """Use up the moment: the request leaves now."""
        hand.turn.begins = None

    async def _wait(self, hand: Waiter, limits: Limits, turn: Turn) -> None:
        self._check(turn)
        turn.told.clear()
        limits.wait(turn)
        try:
            limits.serve(self.monotonic())
            if not turn.told.is_set():
                self.wake()
                await self._sleep(hand, turn, self.lease.total_seconds())
        finally:
            limits.leave(turn)

    async def _sleep(self, hand: Waiter, turn: Turn, seconds: float) -> None:
        """Sleep until the turn is told of, or has come, or until the lease must be renewed."""
        until_renewal = hand.held.ends - self.lease.total_seconds() / 2 - self.monotonic()
        turn.told.clear()
        try:
            async with asyncio.timeout(max(min(seconds, until_renewal), 0)):
                await turn.told.wait()
        except TimeoutError:
            if until_renewal < seconds:
                await hand.renew()
        self._check(turn)

    def _check(self, turn: Turn) -> None:
        if self.leaving():
            raise Dropped("this worker was told to stop")
        if self.paused(turn.contract) is not None:
            raise Dropped(f"calls to {turn.contract} were paused")
