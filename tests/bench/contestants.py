"""One measured run in a process of its own: ``python -m tests.bench.contestants NAME …`` prints one JSON object."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from opledger.cli import GARBAGE
from opledger.config import load_settings
from opledger.ledger import Ledger
from opledger.rules.wishes import Wish
from opledger.service import make_worker, serve
from tests.bench import loop, scale
from tests.bench.provider import contract_text

LONG_WAIT = "1h"


def cpu_seconds() -> float:
    """User and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mib() -> float:
    """Resident memory of this process now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def open_ledger(folder: Path, base_url: str, url: str | None, *, gap: str = "50ms", concurrency: int = 1000) -> Ledger:
    """Open a ledger in a folder, with the bench contract."""
    (folder / "contracts").mkdir(exist_ok=True)
    text = contract_text(base_url, gap=gap, concurrency=concurrency)
    (folder / "contracts" / "bench.toml").write_text(text)
    environment = {"OPLEDGER_CONTRACTS": str(folder / "contracts"), "OPLEDGER_RESULTS": str(folder / "results")}
    database = url or f"sqlite:///{folder / 'ledger.db'}"
    settings = load_settings({"db": database, "operator": "bench"}, environment, folder, folder, folder)
    return Ledger.open(database, settings=settings)


def submit(ledger: Ledger, count: int, batch: int = 500) -> None:
    """Submit `count` operations in batches."""
    for start in range(0, count, batch):
        wishes = [Wish("bench", {"n": n}, requested_by="bench") for n in range(start, min(count, start + batch))]
        for outcome in ledger.submit_many(wishes):
            if isinstance(outcome, Exception):
                raise outcome


def measured(work: Callable[[], None]) -> dict[str, float]:
    """Run `work`; return wall and CPU seconds."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def run_async(main: Any) -> None:
    """Run on uvloop where it is installed, as the service does."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def hand_written(folder: Path, base_url: str, count: int, url: str | None) -> dict[str, float]:
    """The hand-written loop."""
    return measured(lambda: run_async(loop.run(base_url, count, folder)))


def ours(folder: Path, base_url: str, count: int, url: str | None) -> dict[str, float]:
    """Our worker, with everything on: submit, create, five polls, result, until all have succeeded."""
    with open_ledger(folder, base_url, url) as ledger:

        def work() -> None:
            submit(ledger, count)
            worker = make_worker(ledger.store, results=folder / "results", name="bench")
            run_async(serve(worker, asyncio.Event(), until_idle=True))

        figures = measured(work)
        counts = {str(state): number for state, number in ledger.store.queries.counts().items()}
        if counts != {"succeeded": count}:
            raise SystemExit(f"not all succeeded: {counts}")
    if url is None:
        figures["bytes"] = (folder / "ledger.db").stat().st_size / count
    figures["rss"] = resident_mib()
    return figures


def submitting(folder: Path, base_url: str, count: int, url: str | None) -> dict[str, float]:
    """Durable submits: one by one, and in batches."""
    with open_ledger(folder, base_url, url) as ledger:
        ledger.submit("bench", {"n": -1})
        times = []
        for n in range(min(count, 300)):
            began = time.perf_counter()
            ledger.submit("bench", {"n": n})
            times.append(time.perf_counter() - began)
        batched = measured(lambda: submit(ledger, count))
    times.sort()
    return {
        "alone_p50_ms": times[len(times) // 2] * 1000,
        "alone_p99_ms": times[int(len(times) * 0.99)] * 1000,
        "batched_per_s": count / batched["wall"],
    }


def waiting(folder: Path, base_url: str, count: int, url: str | None) -> dict[str, float]:
    """What a look at the table costs while `count` operations wait, and what the worker's memory is then."""
    with open_ledger(folder, base_url, url, gap=LONG_WAIT) as ledger:
        submit(ledger, count, batch=5000)
        # Far-off due times, as after a first poll, without polling them all.
        park(folder, ledger.clock.now() + timedelta(hours=1))
        store, clock = ledger.store, ledger.clock

        def look() -> None:
            for _ in range(200):
                store.look(clock.now(), ())

        def claim() -> None:
            for _ in range(200):
                store.claim("bench", limit=100, lease=timedelta(seconds=30), now=clock.now())

        look()
        claim()
        looked, claimed = measured(look), measured(claim)
        before = resident_mib()
        worker = make_worker(store, results=folder / "results", name="bench")
        resting = measured(lambda: run_async(scale.rest(worker, 5)))
    return {
        "look_us": looked["wall"] / 200 * 1e6,
        "claim_us": claimed["wall"] / 200 * 1e6,
        "idle_cpu_percent": resting["cpu"] / resting["wall"] * 100,
        "rss_before": before,
        "rss": resident_mib(),
    }


def park(folder: Path, ahead: datetime) -> None:
    """Give every operation a due time far ahead, as a poll would; straight in the file, since this is a bench."""
    micros = int(ahead.timestamp() * 1e6)
    with sqlite3.connect(folder / "ledger.db") as connection:
        connection.execute("update operation set next_action_at = ?", (micros,))
    connection.close()


def late(folder: Path, base_url: str, count: int, url: str | None) -> dict[str, float]:
    """See `scale.late`."""
    return scale.late(open_ledger, submit, run_async, folder, base_url, count)


def crowded(folder: Path, base_url: str, count: int, url: str | None) -> dict[str, float]:
    """See `scale.crowded`."""
    return scale.crowded(run_async, resident_mib, folder, count)


def drive(folder: Path, base_url: str, count: int, url: str | None) -> dict[str, float]:
    """See `scale.drive`."""
    assert url is not None
    return scale.drive(open_ledger, run_async, folder, base_url, url)


CONTESTANTS: dict[str, Callable[[Path, str, int, str | None], dict[str, float]]] = {
    "hand": hand_written,
    "ours": ours,
    "submit": submitting,
    "waiting": waiting,
    "late": late,
    "crowd": crowded,
    "drive": drive,
}


def main() -> None:
    """Run one contestant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("base_url")
    parser.add_argument("count", type=int)
    parser.add_argument("--db")
    parser.add_argument("--folder", type=Path, help="use what is in there, instead of an empty folder")
    chosen = parser.parse_args()
    gc.set_threshold(GARBAGE)  # as the command line does for a worker; the hand-written loop has the good of it, too
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as scratch:
        folder = chosen.folder or Path(scratch)
        figures = CONTESTANTS[chosen.name](folder, chosen.base_url, chosen.count, chosen.db)
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
