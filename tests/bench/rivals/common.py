"""What the programs of all rivals share: the provider's three calls over the transport that opledger reads with."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import httpx_aiohttp

GAP: Final = 0.05
"""Seconds between two polls of one operation."""

IN_FLIGHT: Final = 200


class Provider:
    """The bench provider, with bounded connections."""

    def __init__(self, base_url: str) -> None:
        transport = httpx_aiohttp.AiohttpTransport(limits=httpx.Limits(max_connections=IN_FLIGHT))
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url, timeout=60)

    async def create(self, number: int) -> str:
        """Begin a job; its id."""
        answer = await self._client.post("/jobs", json={"n": number}, headers={"Idempotency-Key": f"k{number}"})
        return str(answer.json()["id"])

    async def poll(self, job: str) -> dict[str, Any]:
        """Read a job's status."""
        seen: dict[str, Any] = (await self._client.get(f"/jobs/{job}")).json()
        return seen

    async def fetch(self, job: str) -> str:
        """Read a job's result."""
        return (await self._client.get(f"/jobs/{job}/result")).text

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


@dataclass(frozen=True, slots=True)
class Given:
    """What a rival's program is told."""

    base_url: str
    count: int
    folder: Path
    database: str  #: "" where it needs none


def cpu_seconds() -> float:
    """User and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Watch:
    """Counts from when the work begins: what it takes to import and to set up is not counted."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), cpu_seconds()

    def figures(self) -> dict[str, float]:
        """Wall and CPU seconds since then."""
        return {"wall": time.perf_counter() - self._wall, "cpu": cpu_seconds() - self._cpu}


def given() -> Given:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("count", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--db", default="")
    chosen = parser.parse_args()
    return Given(chosen.base_url, chosen.count, chosen.folder, chosen.db)


def tell(figures: dict[str, float], done: int, count: int) -> None:
    """Print the figures; end with an error unless all operations are durably done."""
    if done != count:
        raise SystemExit(f"only {done} of {count} operations are durably done")
    json.dump(figures, sys.stdout)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run on uvloop, as opledger does where it is installed."""
    import uvloop

    async def whole() -> None:
        await main()

    uvloop.run(whole())
