"""What very many operations cost: how late polls become, what a worker pays for what only waits, and what two bring.

``python -m tests.bench late crowd two``. Each measured process is a contestant of its own, as everywhere here.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from opledger.rules.calls import Answer, Failure, Request
from opledger.rules.model import State
from opledger.service import make_worker, serve
from opledger.store import Store
from opledger.worker import Worker
from opledger.worker.hand import Hand
from tests.bench import crowd
from tests.bench.processes import server_cpu
from tests.bench.provider import Provider

Figures = dict[str, float]
Say = Callable[..., None]

DELAY: Final = 0.3
"""Seconds that each answer takes where lateness is measured."""

ASKED: Final = 500
"""Polls a second that are due there."""


# --- in the measured process ---------------------------------------------------------------------------------------


def late(open_ledger: Any, submit: Any, run_async: Any, folder: Path, base_url: str, count: int) -> Figures:
    """How long after its due time each poll leaves, with `count` open jobs and answers that take their time."""
    gap = count / ASKED
    with open_ledger(folder, base_url, None, gap=f"{gap * 1000:.0f}ms", concurrency=100_000) as ledger:
        submit(ledger, count)
        worker = make_worker(ledger.store, results=folder / "results", name="bench", concurrency=1_000)
        lateness: list[float] = []
        cpu: list[float] = []
        look = Hand.look

        async def timed(hand: Hand, request: Request) -> Answer | Failure:
            assert hand.op.next is not None and hand.op.next.at is not None
            lateness.append((worker.clock.now() - hand.op.next.at).total_seconds())
            return await look(hand, request)

        setattr(Hand, "look", timed)  # noqa: B010 - where a status read leaves, once it has its turn

        async def main() -> None:
            stop = asyncio.Event()
            running = asyncio.ensure_future(serve(worker, stop))
            while ledger.store.queries.counts().get(State.CREATE_PENDING, 0):  # noqa: ASYNC110 - it is in a database
                await asyncio.sleep(1)
            await asyncio.sleep(gap)  # what was late because of the creates is over
            lateness.clear()
            cpu.append(time.process_time())
            await asyncio.sleep(gap + 10)
            cpu.append(time.process_time())
            stop.set()
            await running

        run_async(main())
    ranked = sorted(lateness)
    return {
        "polls": len(ranked) / (gap + 10),
        "cpu": (cpu[1] - cpu[0]) / (gap + 10),
        "p50_ms": ranked[len(ranked) // 2] * 1000,
        "p99_ms": ranked[int(len(ranked) * 0.99)] * 1000,
    }


async def rest(worker: Worker, seconds: float) -> None:
    """Let a worker run for a while that has nothing to do."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(serve(worker, stop))
    await asyncio.sleep(seconds)
    stop.set()
    await running


def crowded(run_async: Any, rss: Callable[[], float], folder: Path, count: int) -> Figures:
    """What it costs a worker that `count` operations are there and none is due: to start, to look, to rest; memory."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    ahead = int((time.time() + 3_600) * 1e6)
    with sqlite3.connect(folder / "ledger.db") as connection:
        # The newest ones are due soon: put them off as well. Straight in the file, since this is a bench.
        connection.execute("UPDATE operation SET next_action_at = ? WHERE next_action_at < ?", (ahead, ahead))
    connection.close()
    before, began = rss(), time.perf_counter()
    with Store.open(url, tested=True) as store:
        worker = make_worker(store, results=folder / "results", name="bench")

        async def first() -> None:
            stop = asyncio.Event()
            await worker.run(stop, once=True)

        run_async(first())
        started = time.perf_counter() - began
        looks = 200
        began = time.perf_counter()
        for _ in range(looks):
            store.look(worker.clock.now(), ())
        looked = (time.perf_counter() - began) / looks
        resting = make_worker(store, results=folder / "results", name="bench")

        cpu, wall = time.process_time(), time.perf_counter()
        run_async(rest(resting, 10))
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        return {
            "start_ms": started * 1000,
            "look_us": looked * 1e6,
            "idle_percent": share * 100,
            "rss_before": before,
            "rss": rss(),
        }


def drive(open_ledger: Any, run_async: Any, folder: Path, base_url: str, url: str) -> Figures:
    """One worker of several: says that it is ready, waits for the word, and drives until nothing is due."""
    with open_ledger(folder, base_url, url) as ledger:
        worker = make_worker(ledger.store, results=folder / "results")
        print("ready", flush=True)
        sys.stdin.readline()
        began, cpu = time.perf_counter(), time.process_time()
        run_async(serve(worker, asyncio.Event(), until_idle=True))
        found = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
        counts = {str(state): number for state, number in ledger.store.queries.counts().items()}
        if set(counts) != {"succeeded"}:
            raise SystemExit(f"not all succeeded: {counts}")
        return found


# --- in the process that measures ----------------------------------------------------------------------------------


class Timer:
    """How late a thread wakes up that only sleeps: below that nobody can be, on a machine that others use too."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            began = time.perf_counter()
            if self._over.wait(0.01):
                return
            self.late.append(time.perf_counter() - began - 0.01)


def punctuality(contest: Callable[..., Figures], say: Say, count: int) -> None:
    """Print how late polls are."""
    print(f"\nlateness of polls: {count:,} open jobs, answers take {DELAY * 1000:.0f} ms, {ASKED} polls/s are due")
    with Provider(polls=1_000_000, delay=DELAY) as provider, Timer() as timer:
        figures = contest("late", provider.base_url, count)
    say("", "polls/s", "p50", "p99", "of a core")
    say(
        "due to sent",
        f"{figures['polls']:.0f}",
        f"{figures['p50_ms']:.0f} ms",
        f"{figures['p99_ms']:.0f} ms",
        f"{figures['cpu']:.0%}",
    )
    ranked = sorted(timer.late)
    half, most = ranked[len(ranked) // 2], ranked[len(ranked) * 99 // 100]
    say("a process that only sleeps, meanwhile", "", f"{half * 1000:.1f} ms", f"{most * 1000:.1f} ms")


def crowds(contest: Callable[..., Figures], say: Say, counts: Sequence[int], keep: Path | None) -> None:
    """Print what a worker pays for what waits."""
    print("\na worker and operations that only wait")
    say("", "start", "look at table", "idle CPU", "worker adds")
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as scratch:
        for count in counts:
            folder = (keep or Path(scratch)) / f"ledger-{count}"
            if not (folder / "ledger.db").exists():
                crowd.fill(folder, count)
            figures = contest("crowd", "-", count, "--folder", str(folder))
            say(
                f"{count:,}",
                f"{figures['start_ms']:.0f} ms",
                f"{figures['look_us']:.0f} us",
                f"{figures['idle_percent']:.1f} %",
                f"{figures['rss'] - figures['rss_before']:.1f} MiB",
            )


def together(
    fresh: Callable[[Path], str],
    prepare: Callable[[Path, str, str], None],
    workers: int,
    beside: Callable[[Path, str, str], None] = lambda *_: None,
) -> Figures:
    """Have some workers drive one ledger, and do something `beside` them in this process.

    How long until nothing is due, and whose CPU it took: theirs, and that of the database server where there is one.
    """
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as scratch, Provider() as provider:
        folder, url = Path(scratch), fresh(Path(scratch))
        prepare(folder, provider.base_url, url)
        command = [sys.executable, "-m", "tests.bench.contestants", "drive", provider.base_url, "0"]
        children = [
            subprocess.Popen(
                [*command, "--db", url, "--folder", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(workers)
        ]
        found: list[Figures] = []

        def whole(child: subprocess.Popen[str]) -> None:
            assert child.stdout is not None
            found.append(json.loads(child.stdout.read()))

        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        served = _served(url)
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        readers = [threading.Thread(target=whole, args=(child,)) for child in children]
        for reader in readers:
            reader.start()
        beside(folder, provider.base_url, url)
        for reader in readers:
            reader.join()
        for child in children:
            assert child.wait() == 0
        return {
            "wall": max(one["wall"] for one in found),
            "workers": sum(one["cpu"] for one in found),
            "server": _served(url) - served,
        }


def _served(url: str) -> float:
    return server_cpu(url) if url.startswith("postgresql") else 0.0
