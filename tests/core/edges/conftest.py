"""The HTTP edge under test, closed at the end of each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from tests.core.edges.wire import StillClock

SECRET = "s3cr3t-VALUE/with+odd=chars"


@pytest.fixture
def secrets() -> SecretResolver:
    """Secrets of a made-up environment."""
    return SecretResolver({"TOKEN": SECRET, "OTHER": "0ther-Secret-9"}, clock=StillClock())


@pytest.fixture
async def http(secrets: SecretResolver) -> AsyncIterator[Http]:
    """The edge as the worker has it."""
    edge = Http(StillClock(), secrets)
    yield edge
    await edge.aclose()
