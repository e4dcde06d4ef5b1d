from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fakes.sim import SimThread


class Client:
    """A client that believes everything: it sends what a test says and returns what comes back."""

    def __init__(self, sim: SimThread) -> None:
        self.sim = sim
        # No certificates are loaded: that would cost more than the test.
        self.http = httpx.Client(base_url=sim.base_url, headers=sim.headers, timeout=10, verify=False)
        self._count = 0

    def create(
        self, personality: str | None = None, variant: str | None = None, *, key: str | None = None, **body: Any
    ) -> httpx.Response:
        """Send a create; options of the simulation go as `_seconds=…` and so on."""
        if key is None:
            self._count += 1
            key = f"key-{self._count}"
        body.setdefault("client_ref", f"op_{key}")
        if personality is not None:
            body["_personality"] = personality
        if variant is not None:
            body["_variant"] = variant
        return self.http.post("/v1/jobs", json=body, headers={"idempotency-key": key})

    def started(self, personality: str, variant: str | None = None, **body: Any) -> str:
        """Create a job whose create answer is usable, and return its id."""
        return str(self.create(personality, variant, **body).json()["id"])

    def status(self, job: str) -> httpx.Response:
        """Read the status once."""
        return self.http.get(f"/v1/jobs/{quote(job, safe='')}")

    def finish(self, job: str) -> None:
        """Let so much time pass that the job has ended."""
        self.sim.control(advance={"job": job, "seconds": 1000})

    def result(self, job: str) -> httpx.Response:
        """Ask the status for the result's address, and read it."""
        return self.http.get(self.status(job).json()["result_url"])


@pytest.fixture(scope="package")
def running() -> Iterator[SimThread]:
    """One simulator for all tests of this folder."""
    with SimThread(seed=11) as sim:
        yield sim


@pytest.fixture
def sim(running: SimThread) -> Iterator[SimThread]:
    """A simulator without leftovers from another test."""
    yield running
    running.control(reset=True)


@pytest.fixture
def client(sim: SimThread) -> Iterator[Client]:
    """A client with the right credentials."""
    client = Client(sim)
    with client.http:
        yield client
