"""What a request takes to prove who we are, each thing fetched only once at a time, and what is new after a refusal."""

from __future__ import annotations

import asyncio
from typing import Final

from opledger.edges.clock import Clock
from opledger.edges.secrets import SecretResolver
from opledger.edges.tokens import Ask, Token, Tokens
from opledger.errors import ConfigWrong, SecretWrong
from opledger.rules.contract import Auth

KEPT_BACK: Final = 0.2
"""Seconds before the end of a call by which it must be known whether a secret has changed: its answer is worth more."""


class Keys:
    """Secrets and access tokens of one event loop."""

    def __init__(self, clock: Clock, secrets: SecretResolver, ask: Ask) -> None:
        self._secrets = secrets
        self._locks: dict[str, asyncio.Lock] = {}
        self.tokens: Final = Tokens(clock, self, ask)

    async def aclose(self) -> None:
        """Stop what is being fetched."""
        await self.tokens.aclose()

    def purse(self) -> Purse:
        """Return what one request takes its secrets from."""
        return Purse(self)

    async def secret(self, reference: str) -> tuple[str, int]:
        """Resolve a secret outside of the event loop, each only once at a time: a command may take seconds.

        Returns it, and how many times it was resolved by then. Raises SecretWrong.
        """
        value = self._secrets.cached(reference)
        if value is None:
            async with self._locks.setdefault(reference, asyncio.Lock()):
                value = self._secrets.cached(reference)
                if value is None:
                    try:
                        value = await asyncio.to_thread(self._secrets.resolve, reference)
                    except ConfigWrong as error:
                        raise SecretWrong(error.message) from error
        return value, self._secrets.times(reference)

    def times(self, reference: str) -> int:
        """Return how many times a secret was resolved."""
        return self._secrets.times(reference)

    async def changed(self, reference: str, value: str, times: int) -> bool:
        """Tell whether a secret is another one than it was when it was used. False where it cannot be had."""
        self._secrets.forget(reference, times)
        try:
            return (await self.secret(reference))[0] != value
        except SecretWrong:
            return False

    def learn(self, source: tuple[object, ...], *values: str) -> None:
        """Know values that are to be masked from now on."""
        self._secrets.learn(source, *values)


class Purse:
    """What one request takes, remembered so that a refusal can be looked into."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._kept: dict[str, tuple[str, int]] = {}
        self._read: set[str] = set()
        self._token: Token | None = None

    async def secret(self, reference: str) -> str:
        """Return what a reference stands for. Raises SecretWrong."""
        before = self._keys.times(reference)
        value, times = await self._keys.secret(reference)
        if times != before:
            self._read.add(reference)
        elif reference not in self._read:
            self._kept[reference] = value, times
        return value

    async def access_token(self, auth: Auth, origin: str) -> str:
        """Return an access token for this origin. Raises ConfigWrong, and NotSent where none can be had now."""
        tokens = self._keys.tokens
        before = tokens.number
        token = await tokens.get(auth, origin)
        # One that was made for this call, or while it waited, is no old one: if it is refused, so are we.
        self._token = token if token.number <= before else None
        return token.value

    async def renewed(self, ends: float | None) -> bool:
        """Tell, after a 401, whether the next call would take something else than this one did.

        An access token that was kept is dropped. Secrets that were kept are read again: they may have been rotated.
        What was read for this very call is not: a command that prints something else each time would never be given
        up. What takes longer than until `ends` (loop time, the end of the call) has not changed.
        """
        renewed = self._token is not None
        if self._token is not None:
            self._keys.tokens.drop(self._token)
        try:
            async with asyncio.timeout_at(None if ends is None else ends - KEPT_BACK):
                for reference, (value, times) in self._kept.items():
                    renewed = await self._keys.changed(reference, value, times) or renewed
        except TimeoutError:
            return renewed
        return renewed
