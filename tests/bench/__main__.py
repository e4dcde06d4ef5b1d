"""``make bench``: what opledger costs, against a hand-written loop over the same HTTP transport, in one run.

Each figure is the median of several rounds; contestants take turns, because the machine is shared and drifts. Quote
ratios. Every contestant runs in a process of its own; the provider is a raw server in another one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import audit, collect, contestants, hooks, memory, model, peers, scale
from tests.bench.provider import Provider

Figures = dict[str, float]

PARTS = ["polls", "submit", "beside", "waiting", "late", "crowd", "two", "audit", "collect", "webhooks", "memory"]


def contest(name: str, base_url: str, count: int, *more: str) -> Figures:
    """Run one contestant once."""
    command = [sys.executable, "-m", "tests.bench.contestants", name, base_url, str(count), *more]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: Figures = json.loads(finished.stdout)
    return figures


def medians(runs: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def say(*columns: Any) -> None:
    """Print one line of a table."""
    first, *others = columns
    print(f"{first:<46}" + "".join(f"{column:>16}" for column in others), flush=True)


def polls(count: int, rounds: int, databases: Sequence[tuple[str, str | None]]) -> None:
    """The poll workload: N operations, five polls each with 50 ms between them, then the result."""
    print(f"\npoll workload, N = {count}, {rounds} rounds (median)")
    say("", "polls/s", "CPU s/1000 polls", "of the loop", "bytes/op")
    runs: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        with Provider() as provider:
            runs.setdefault("hand-written loop", []).append(contest("hand", provider.base_url, count))
        for label, url in databases:
            with Provider() as provider:
                more = [] if url is None else ["--db", _fresh(url)]
                runs.setdefault(label, []).append(contest("ours", provider.base_url, count, *more))
    hand = medians(runs["hand-written loop"])
    for label, measured in runs.items():
        figures = medians(measured)
        ratio = statistics.median(
            base["wall"] / run["wall"] for base, run in zip(runs["hand-written loop"], measured, strict=True)
        )
        size = f"{figures['bytes']:.0f}" if "bytes" in figures else ""
        say(
            label,
            f"{5 * count / figures['wall']:.0f}",
            f"{figures['cpu'] / (5 * count) * 1000:.2f}",
            f"{ratio:.2f}",
            size,
        )
    assert hand["wall"] > 0


_databases = iter(range(1, 10_000))


def _fresh(server: str) -> str:
    """Make an empty database on the server and return its URL."""
    import psycopg
    from sqlalchemy.engine import make_url

    name = f"bench_{next(_databases)}"
    with psycopg.connect(server, autocommit=True) as session:
        session.execute(f'drop database if exists "{name}"'.encode())
        session.execute(f'create database "{name}"'.encode())
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def beside_others(count: int, rounds: int, rivals: Sequence[str], *, postgres: bool) -> None:
    """The poll workload side by side with other engines."""

    def ours(name: str, base_url: str, number: int, url: str | None) -> Figures:
        return contest(name, base_url, number, *([] if url is None else ["--db", url]))

    if not postgres:
        peers.contest(count, rounds, rivals, ours, None, _fresh)
        return
    from tests.support.server import private_postgres

    with private_postgres() as server:
        peers.contest(count, rounds, rivals, ours, server, _fresh)


def two_workers(count: int, rounds: int, databases: Sequence[tuple[str, str | None]]) -> None:
    """One worker and two on the same work, beside the hand-written loop, which has one process."""

    def alone() -> float:
        with Provider() as provider:
            return contest("hand", provider.base_url, count)["wall"]

    print(f"\none worker and two, N = {count}, {rounds} rounds (median)")
    say("", "polls/s", "CPU s/1000", "server s/1000", "times as fast", "of the loop")
    runs: dict[str, list[tuple[float, list[Figures]]]] = {}
    for _ in range(rounds):
        for label, server in databases:
            fresh = partial(_url, server)
            runs.setdefault(label, []).append(
                (alone(), [scale.together(fresh, partial(_fill, count), n) for n in (1, 2)])
            )
    for label, measured in runs.items():
        for place, workers in enumerate(("one worker", "two workers")):
            figures = medians([found[place] for _, found in measured])
            faster = statistics.median(found[0]["wall"] / found[place]["wall"] for _, found in measured)
            ratio = statistics.median(loop / found[place]["wall"] for loop, found in measured)
            per = 5 * count / 1000
            say(
                f"{label}, {workers}",
                f"{5 * count / figures['wall']:.0f}",
                f"{figures['workers'] / per:.2f}",
                f"{figures['server'] / per:.2f}" if figures["server"] else "",
                f"{faster:.2f}",
                f"{ratio:.2f}",
            )


def _url(server: str | None, folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}" if server is None else _fresh(server)


def beside_workers(count: int, databases: Sequence[tuple[str, str | None]]) -> None:
    """How long single submits take while workers write to the same database without a pause."""
    print(f"\nsubmits beside busy workers, N = {count}")
    say("", "p50", "p99", "the longest")
    for label, server in databases:
        for workers in (1, 2):
            times: list[float] = []
            scale.together(partial(_url, server), partial(_fill, count), workers, partial(_submit_some, times))
            times.sort()
            p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
            figures = (f"{seconds * 1000:.1f} ms" for seconds in (p50, p99, times[-1]))
            say(f"{label}, {workers} worker{'s' if workers > 1 else ''}", *figures)


def _fill(count: int, folder: Path, base_url: str, url: str) -> None:
    with contestants.open_ledger(folder, base_url, url) as ledger:
        contestants.submit(ledger, count)


def _submit_some(times: list[float], folder: Path, base_url: str, url: str) -> None:
    """One submit every 20 ms, for five seconds: fewer than workers are busy with 2,000 operations."""
    with contestants.open_ledger(folder, base_url, url) as ledger:
        end = time.perf_counter() + 5
        while time.perf_counter() < end:
            began = time.perf_counter()
            ledger.submit("bench", {"n": -len(times) - 1})
            times.append(time.perf_counter() - began)
            time.sleep(0.02)


def submits(rounds: int) -> None:
    """Durable submits."""
    print(f"\nsubmit, {rounds} rounds (median)")
    with Provider() as provider:
        figures = medians([contest("submit", provider.base_url, 3000) for _ in range(rounds)])
    say("alone, p50 · p99", f"{figures['alone_p50_ms']:.2f} ms", f"{figures['alone_p99_ms']:.2f} ms")
    say("in batches of 500", f"{figures['batched_per_s']:.0f}/s")


def waits(counts: Sequence[int]) -> None:
    """What waiting operations cost a worker that has nothing to do."""
    print("\nwaiting operations")
    say("", "look at table", "claim, none due", "idle CPU", "worker adds")
    with Provider() as provider:
        for count in counts:
            figures = contest("waiting", provider.base_url, count)
            say(
                f"{count:,}",
                f"{figures['look_us']:.0f} us",
                f"{figures['claim_us']:.0f} us",
                f"{figures['idle_cpu_percent']:.1f} %",
                f"{figures['rss'] - figures['rss_before']:.1f} MiB",
            )


def modelled(*, postgres: bool) -> bool:
    """Unit costs, and what they mean for loads. False where the model is far from what was measured."""
    if not postgres:
        return model.report(None)
    from tests.support.server import private_postgres

    with private_postgres() as server:
        return model.report(lambda: _fresh(server))


@contextmanager
def databases(*, postgres: bool) -> Iterator[Sequence[tuple[str, str | None]]]:
    """What is measured on: a file, and an own PostgreSQL server."""
    file: tuple[str, str | None] = ("opledger, SQLite FULL", None)
    if not postgres:
        yield [file]
        return
    from tests.support.server import private_postgres

    with private_postgres() as server:
        yield [file, ("opledger, PostgreSQL", server)]


def main() -> None:
    """Run what was asked for; everything without arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "model", "peers", []], help="default: all but these two")
    parser.add_argument("--count", type=int, nargs="*", default=[500, 2000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--result-mib", type=int, default=512, help="size of the result that is collected")
    parser.add_argument("--stream-mib", type=int, default=2048, help="size of a result that memory is measured with")
    parser.add_argument("--deliveries", type=int, default=5000, help="webhooks that are sent as fast as they are taken")
    parser.add_argument("--events", type=int, default=300_000, help="events of the ledger that is verified")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--open-jobs", type=int, default=10_000, help="of late")
    parser.add_argument("--crowds", type=int, nargs="*", default=[1_000, 100_000, 1_000_000], help="of crowd")
    parser.add_argument("--keep", type=Path, help="where the ledgers of crowd are made, and found again")
    parser.add_argument("--rivals", nargs="*", default=[], help="of peers: only these, such as dbos")
    chosen = parser.parse_args()
    parts = chosen.parts or PARTS
    if {"polls", "two", "beside"} & set(parts):
        with databases(postgres=not chosen.no_postgres) as each:
            for count in chosen.count if "polls" in parts else ():
                polls(count, chosen.rounds, each)
            if "two" in parts:
                two_workers(max(chosen.count), chosen.rounds, each)
            if "beside" in parts:
                beside_workers(max(chosen.count), each)
    if "peers" in parts:
        beside_others(chosen.count[0], chosen.rounds, chosen.rivals, postgres=not chosen.no_postgres)
    if "submit" in parts:
        submits(chosen.rounds)
    if "waiting" in parts:
        waits([1_000, 100_000])
    if "late" in parts:
        scale.punctuality(contest, say, chosen.open_jobs)
    if "crowd" in parts:
        scale.crowds(contest, say, chosen.crowds, chosen.keep)
    if "audit" in parts:
        audit.contest(chosen.events, chosen.rounds)
    if "collect" in parts:
        collect.contest(chosen.result_mib, chosen.rounds)
    if "webhooks" in parts:
        hooks.contest(chosen.deliveries, chosen.rounds)
        hooks.punctual()
    if "model" in parts and not modelled(postgres=not chosen.no_postgres):
        raise SystemExit(1)
    if "memory" in parts and not memory.contest(list(memory.LOADS), chosen.stream_mib):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
