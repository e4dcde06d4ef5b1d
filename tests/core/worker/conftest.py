"""A worker inside the test's own process, with a real ledger and a real provider on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opledger.service import make_worker
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.store import Store
from opledger.worker import Worker
from tests.fakes.sim import SimThread
from tests.faults.lab import Lab
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)


class Bench(Lab):
    """A lab whose workers run here."""

    def hire(self, **how: Any) -> Worker:
        """A worker that does not run yet; its store is closed with the bench."""
        store = Store.open(self.url)
        self.stores.append(store)
        return make_worker(store, results=self.results, **how)

    async def idle(self, worker: Worker | None = None) -> None:
        """Run a worker until nothing will become due without a person."""
        await asyncio.wait_for((worker or self.hire()).run(asyncio.Event(), until_idle=True), 30)

    stores: list[Store]


@pytest.fixture(scope="package")
def provider() -> Iterator[SimThread]:
    """One provider for all tests of this folder."""
    with SimThread(seed=4) as sim:
        yield sim


@pytest.fixture
def bench(
    provider: SimThread,
    tmp_path: Path,
    sqlite_url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bench]:
    """An empty ledger, and a provider that has heard of nothing yet."""
    monkeypatch.setenv("SIM_TOKEN", DEFAULT_TOKEN)
    provider.control(reset=True)
    with Bench(tmp_path, sqlite_url, provider) as made:
        made.stores = []
        yield made
        for store in made.stores:
            store.close()
    provider.control(release=True)
