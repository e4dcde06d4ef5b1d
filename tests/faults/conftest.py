"""One simulated provider, in a process of its own, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opledger.sim.process import SimProcess
from tests.faults.lab import Lab
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)
from tests.support.server import private_server


@pytest.fixture(scope="module")
def own_server() -> Iterator[Any]:
    """A PostgreSQL server of our own, which can be stopped without spoiling other tests."""
    with private_server() as server:
        yield server


@pytest.fixture(scope="package")
def provider() -> Iterator[SimProcess]:
    """The provider's process."""
    with SimProcess(seed=3) as sim:
        yield sim


@pytest.fixture
def sim(provider: SimProcess) -> Iterator[SimProcess]:
    """A provider that has heard of nothing yet."""
    provider.control(reset=True)
    yield provider
    provider.control(release=True)


@pytest.fixture
def lab(sim: SimProcess, tmp_path: Path, sqlite_url: str) -> Iterator[Lab]:  # noqa: F811
    """An empty ledger in an SQLite file."""
    with Lab(tmp_path, sqlite_url, sim) as made:
        yield made


@pytest.fixture
def both(sim: SimProcess, tmp_path: Path, database_url: str) -> Iterator[Lab]:  # noqa: F811
    """An empty ledger, once on SQLite and once on PostgreSQL."""
    with Lab(tmp_path, database_url, sim) as made:
        yield made


@pytest.fixture
def server_lab(sim: SimProcess, tmp_path: Path, postgres_url: str) -> Iterator[Lab]:  # noqa: F811
    """An empty ledger on PostgreSQL."""
    with Lab(tmp_path, postgres_url, sim) as made:
        yield made
