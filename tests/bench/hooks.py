"""Webhooks: deliveries a second that are accepted durably, and how long one takes to its 2xx at 200 a second.

The receiver is the real command in a process of its own; the sender keeps its connections open, signs everything before
the clock starts, and sends each delivery once. Every delivery is about a job that runs, so that each one is also told
to its operation in the same commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from opledger.config import load_settings
from opledger.ledger import Ledger
from opledger.rules.wishes import Wish
from tests.bench.provider import contract_text
from tests.core.ledgers import accepted, happens, observed, sent
from tests.fakes.hooks import SECRET, WEBHOOK, event, signed

OPERATIONS: Final = 100
LINES: Final = 64
PACE: Final = 200
POLLED: Final = 50  #: jobs that are polled while webhooks come
GAP: Final = 0.5  #: seconds between two polls of one job


def contest(count: int, rounds: int, url: str | None = None) -> None:
    """Print what was measured: medians over the rounds."""
    flat, paced, memory = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="opledger-bench-") as folder:
            rate, latencies, grown = _round(Path(folder), count, url)
        flat.append(rate)
        paced.append(latencies)
        memory.append(grown)
    print(f"\nwebhooks, {rounds} rounds (median)", flush=True)
    print(f"{f'accepted durably, {LINES} connections':<46}{statistics.median(flat):>14.0f}/s")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        found = statistics.median(_share(one, share) for one in paced)
        print(f"{f'to the 2xx at {PACE}/s, {name}':<46}{found * 1000:>13.1f} ms")
    print(f"{'memory added by it all':<46}{statistics.median(memory):>12.1f} MiB")


def punctual(seconds: float = 10.0) -> None:
    """Print how late a worker's status reads are, without and with a flood of webhooks on the same database.

    The deliveries are of jobs that nobody knows, so that none of them brings a read forward: what is left is what they
    take away. The provider is in this process and notes when each read came.
    """
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as folder:
        quiet, flooded, rate = asyncio.run(_punctual(Path(folder), seconds))
    print(
        f"\npolls of {POLLED} jobs, each due {GAP * 1000:.0f} ms after the last answer: how late they were", flush=True
    )
    print(f"{'':<46}{'p50':>16}{'p99':>16}{'most':>16}")
    for label, late in (("without webhooks", quiet), (f"in a flood of {rate:.0f} webhooks/s", flooded)):
        figures = (_share(late, 0.5), _share(late, 0.99), max(late))
        print(f"{label:<46}" + "".join(f"{figure * 1000:>13.0f} ms" for figure in figures), flush=True)


class _Polled:
    """A provider whose jobs run for ever; notes how long after the last answer each status read came."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.warm = asyncio.Event()
        self._answered: dict[str, float] = {}
        self._count = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
                await reader.readexactly(length)
                target = head.split(" ")[1]
                now = time.perf_counter()
                if target in self._answered:
                    self.late.append(max(0.0, now - self._answered[target] - GAP))
                if len(self.late) >= 5 * POLLED:
                    self.warm.set()
                self._count += length > 0
                job = f"job_p{self._count}" if length else target.rpartition("/")[2]
                body = json.dumps({"id": job, "state": "queued" if length else "running"}).encode()
                writer.write(b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\n" % (202 if length else 200))
                writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
                self._answered[target] = time.perf_counter()
        writer.close()


async def _punctual(folder: Path, seconds: float) -> tuple[list[float], list[float], float]:
    polled = _Polled()
    server = await asyncio.start_server(polled.talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (folder / "contracts").mkdir()
    text = contract_text(f"http://127.0.0.1:{port}", gap=f"{GAP * 1000:.0f}ms", concurrency=100)
    (folder / "contracts" / "bench.toml").write_text(text + WEBHOOK)
    environment = {
        "OPLEDGER_DB": f"sqlite:///{folder / 'ledger.db'}",
        "OPLEDGER_CONTRACTS": str(folder / "contracts"),
        "HOOK_SECRET": SECRET,
    }
    settings = load_settings({"operator": "bench"}, environment, folder, folder, folder)
    with Ledger.open(settings=settings) as ledger:
        ledger.submit_many([Wish("bench", {"n": number}, requested_by="bench") for number in range(POLLED)])
    program = [sys.executable, "-m", "opledger.cli"]
    how: dict[str, Any] = {"env": {**os.environ, **environment}, "cwd": folder, "stdout": asyncio.subprocess.PIPE}
    receiver = await asyncio.create_subprocess_exec(*program, "webhooks", "serve", "--port", "0", "--json", **how)
    worker = await asyncio.create_subprocess_exec(*program, "--json", "worker", **how)
    assert receiver.stdout is not None
    try:
        address = json.loads(await receiver.stdout.readline())["address"]
        await asyncio.wait_for(polled.warm.wait(), 60)
        quiet: list[float] = []
        flooded: list[float] = []
        polled.late = quiet
        await asyncio.sleep(seconds)
        requests = _requests(address, "flood", 40_000, "stranger")
        polled.late = flooded
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await _flat(address, requests)
        return quiet, flooded, (40_000 - len(requests)) / seconds
    finally:
        for child in (receiver, worker):
            child.send_signal(signal.SIGTERM)
            await child.wait()
        server.close()


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _round(folder: Path, count: int, url: str | None) -> tuple[float, list[float], float]:
    (folder / "contracts").mkdir()
    text = contract_text("http://127.0.0.1:9", gap="1h", concurrency=100)
    (folder / "contracts" / "bench.toml").write_text(text + WEBHOOK)
    environment = {
        "OPLEDGER_DB": url or f"sqlite:///{folder / 'ledger.db'}",
        "OPLEDGER_CONTRACTS": str(folder / "contracts"),
        "HOOK_SECRET": SECRET,
    }
    _observed(folder, environment)
    command = [sys.executable, "-m", "opledger.cli", "webhooks", "serve", "--port", "0", "--json"]
    child = subprocess.Popen(command, env={**os.environ, **environment}, cwd=folder, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        address = json.loads(child.stdout.readline())["address"]
        before = _resident(child.pid)
        rate = asyncio.run(_flat(address, _requests(address, "flat", count)))
        latencies = asyncio.run(_paced(address, _requests(address, "paced", PACE * 10)))
        grown = _resident(child.pid) - before
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(30)
        child.stdout.close()
    return rate, latencies, grown


def _observed(folder: Path, environment: dict[str, str]) -> None:
    """Write operations down whose jobs run."""
    settings = load_settings({"operator": "bench"}, environment, folder, folder, folder)
    with Ledger.open(settings=settings) as ledger:
        wishes = [Wish("bench", {"n": number}, requested_by="bench") for number in range(OPERATIONS)]
        for number, operation in enumerate(ledger.submit_many(wishes)):
            if isinstance(operation, Exception):
                raise operation
            happens(ledger, operation, sent(), accepted(f"job_{number}"), observed(job=f"job_{number}"))


def _requests(address: str, name: str, count: int, job: str = "job") -> list[bytes]:
    now = time.time()
    made = []
    for number in range(count):
        body = event("job.progress", id=f"{job}_{number % OPERATIONS}", note="x" * 400)
        headers = {"host": urlsplit(address).netloc, "content-length": str(len(body))}
        headers |= signed(body, f"{name}_{number}", now)
        lines = ["POST /webhooks/bench HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items()), "", ""]
        made.append("\r\n".join(lines).encode() + body)
    return made


class _Line:
    """One open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: str) -> _Line:
        parts = urlsplit(address)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def send(self, request: bytes) -> None:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await self._reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 202"):
            raise RuntimeError(f"{head[:40]!r} {body!r}")

    def close(self) -> None:
        self._writer.close()


async def _flat(address: str, requests: list[bytes]) -> float:
    lines = [await _Line.open(address) for _ in range(LINES)]

    async def drain(line: _Line) -> None:
        while requests:
            await line.send(requests.pop())

    count, began = len(requests), time.perf_counter()
    await asyncio.gather(*map(drain, lines))
    took = time.perf_counter() - began
    for line in lines:
        line.close()
    return count / took


async def _paced(address: str, requests: list[bytes]) -> list[float]:
    """Send on time, whatever the answers do; how long each took counts from when it was due."""
    free = [await _Line.open(address) for _ in range(LINES)]
    latencies: list[float] = []
    began = time.perf_counter()

    async def one(request: bytes, due: float) -> None:
        line = free.pop() if free else await _Line.open(address)
        await line.send(request)
        latencies.append(time.perf_counter() - due)
        free.append(line)

    tasks = []
    for number, request in enumerate(requests):
        due = began + number / PACE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(request, due)))
    await asyncio.gather(*tasks)
    for line in free:
        line.close()
    return latencies


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
