"""One clock, one provider and one event loop for all scenarios; a fresh ledger for each, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.edges.clock import SystemClock
from tests.fakes.clock import HandClock
from tests.fakes.sim import SimThread
from tests.scenarios.stage import Loop, Stage
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)


@pytest.fixture(scope="session")
def hand_clock() -> HandClock:
    """The time of ledger, worker and provider. It stands still until a scenario moves it, and never goes back."""
    return HandClock(SystemClock().now())


@pytest.fixture(scope="session")
def provider(hand_clock: HandClock) -> Iterator[SimThread]:
    """The provider, with real sockets, and jobs that run by the clock of the scenarios."""
    with SimThread(seed=11, clock=hand_clock) as sim:
        yield sim


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """The event loop of the workers."""
    with Loop() as running:
        yield running


@pytest.fixture
def stage(tmp_path: Path, database_url: str, provider: SimThread, hand_clock: HandClock, loop: Loop) -> Iterator[Stage]:  # noqa: F811
    """An empty ledger, once on each database, and a worker that does one turn when told."""
    provider.control(reset=True)
    with Stage(tmp_path, database_url, provider, hand_clock, loop) as made:
        yield made
    provider.control(release=True)


@pytest.fixture
def file_stage(
    tmp_path: Path,
    sqlite_url: str,  # noqa: F811
    provider: SimThread,
    hand_clock: HandClock,
    loop: Loop,
) -> Iterator[Stage]:
    """An empty ledger in a file, for variants of a scenario that runs on both databases elsewhere."""
    provider.control(reset=True)
    with Stage(tmp_path, sqlite_url, provider, hand_clock, loop) as made:
        yield made
    provider.control(release=True)
