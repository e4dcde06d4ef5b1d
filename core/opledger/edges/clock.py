"""The only reads of wall time, monotonic time, randomness and new ids. Everything else is handed a `Clock`."""

from __future__ import annotations

import random
import secrets
import time
from datetime import UTC, datetime
from typing import Protocol

from ulid import ULID


class Clock(Protocol):
    """What the shell needs to know about time and chance."""

    def now(self) -> datetime:
        """Wall time, UTC, timezone-aware."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; only differences mean anything."""
        ...

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return wall time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds on the monotonic clock."""
        return time.monotonic()

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return random.random()  # noqa: S311 - jitter, not a secret


def new_operation_id(clock: Clock) -> str:
    """Return ``op_`` and a ULID made from the clock's time, so that ids sort by creation."""
    return f"op_{ULID.from_datetime(clock.now())}"


def new_ledger_id(clock: Clock) -> str:
    """Return ``ldg_`` and a ULID: what a ledger is called outside of its database."""
    return f"ldg_{ULID.from_datetime(clock.now())}"


def new_id(prefix: str) -> str:
    """Return a short unguessable id, e.g. ``call_3f9c…`` (80 bits)."""
    return f"{prefix}_{secrets.token_hex(10)}"


def new_trace_id() -> str:
    """Return a W3C trace id: 32 lower-case hex digits, never all zero."""
    return secrets.token_hex(16)
