"""The contestant: a hand-written loop over the same HTTP transport, recording as little as it can get away with.

One asyncio process, a bounded number of requests in flight over httpx with the aiohttp transport, and one thread that
takes finished observations from a queue and writes as many as are there in one transaction (SQLite, WAL, FULL). No
permits, no chain, no evidence, no leases, no answers: the ceiling that a Python client over this transport can reach.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import sqlite3
import threading
from pathlib import Path
from typing import Any

import httpx
import httpx_aiohttp

POLL_GAP = 0.05


class Writer:
    """Group commit in its simplest form."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[asyncio.Future[None], str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def write(self, statement: str, values: tuple[Any, ...]) -> None:
        """Return once the statement is durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((future, statement, values))
        await future

    def close(self) -> None:
        """Write the rest and stop."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=full")
        connection.execute("create table job (id integer primary key, remote text, state text)")
        connection.execute("create table seen (job integer, at integer, state text, done integer, body text)")
        while True:
            job = self._jobs.get()
            batch = []
            while job is not None:
                batch.append(job)
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            if batch:
                connection.execute("begin immediate")
                for _, statement, values in batch:
                    connection.execute(statement, values)
                connection.execute("commit")
                self._loop.call_soon_threadsafe(_settle, [future for future, _, _ in batch])
            if job is None:
                connection.close()
                return


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def run(base_url: str, count: int, folder: Path, in_flight: int = 200) -> None:
    """Submit `count` jobs, poll each until it has succeeded, fetch and keep its result."""
    writer = Writer(folder / "loop.db")
    slots = asyncio.Semaphore(in_flight)
    transport = httpx_aiohttp.AiohttpTransport(limits=httpx.Limits(max_connections=in_flight))
    async with httpx.AsyncClient(transport=transport, base_url=base_url, timeout=30) as client:

        async def call(method: str, path: str, **more: Any) -> httpx.Response:
            async with slots:
                return await client.request(method, path, **more)

        async def drive(number: int) -> None:
            await writer.write("insert into job values (?, null, 'new')", (number,))
            answer = (await call("POST", "/jobs", json={"n": number}, headers={"Idempotency-Key": f"k{number}"})).json()
            job = answer["id"]
            await writer.write("update job set remote = ?, state = 'accepted' where id = ?", (job, number))
            state, polls = "running", 0
            while state != "succeeded":
                await asyncio.sleep(POLL_GAP)
                response = await call("GET", f"/jobs/{job}")
                seen = response.json()
                state, polls = seen["state"], polls + 1
                await writer.write(
                    "insert into seen values (?, ?, ?, ?, ?)",
                    (number, polls, state, seen["progress"]["completed"], response.text),
                )
            result = (await call("GET", f"/jobs/{job}/result")).content
            await asyncio.to_thread(_keep, folder / f"{number}.json", result)
            digest = hashlib.sha256(result).hexdigest()
            await writer.write("update job set state = ? where id = ?", (json.dumps({"sha256": digest}), number))

        await asyncio.gather(*(drive(number) for number in range(count)))
    writer.close()


def _keep(path: Path, content: bytes) -> None:
    import os

    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
