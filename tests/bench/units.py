"""The unit costs of this machine, measured in a short run; each in a process of its own that prints one JSON object.

``python -m tests.bench.units drive URL COUNT`` (operations, from submit to result), ``record`` (commits of so many
polls), ``point`` (very many open operations, for a while). ``--db`` names a PostgreSQL database.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from opledger.checkpoints.maker import Checkpointer
from opledger.cli import GARBAGE
from opledger.edges.clock import new_id
from opledger.ledger import Ledger, archive, export
from opledger.rules import evidence as e
from opledger.rules.model import Action, Actor, ActorKind, Means, Plan
from opledger.service import make_worker, serve
from opledger.store import Write
from tests.bench.capacity import Costs, Kind
from tests.bench.contestants import cpu_seconds, open_ledger, run_async, submit
from tests.bench.processes import server_cpu, session_of
from tests.bench.provider import Provider

Figures = dict[str, float]
WORKER: Final = Actor("bench", ActorKind.WORKER)

POLLS: Final = ("event", "event_key", "sqlite_autoindex_event_1", "event_at")
ANSWERS: Final = ("answer", "answer_key", "sqlite_autoindex_answer_1")
LEAVES: Final = ("leaf", "leaf_key")


# --- looking at a database from outside -----------------------------------------------------------------------------


def sizes(path: Path, url: str | None) -> dict[str, int]:
    """Bytes of each table and index."""
    if url is None:
        with sqlite3.connect(path) as file:
            found = file.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
        file.close()
        return dict(found)
    with session_of(url) as session:
        session.execute("VACUUM FULL operation")  # what dies in seconds here is used again where a ledger lives on
        rows = session.execute(
            "SELECT relname, pg_relation_size(oid) FROM pg_class "
            "WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'i')"
        )
        return {name: int(size) for name, size in rows.fetchall()}


def log_position(url: str) -> int:
    """How many bytes of log the server has written."""
    with session_of(url) as session:
        found = session.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        return int(found[0])


def _used(found: dict[str, int], names: tuple[str, ...]) -> int:
    return sum(found.get(name, 0) for name in names)


# --- measured runs --------------------------------------------------------------------------------------------------


def drive(folder: Path, base_url: str, count: int, url: str | None) -> Figures:
    """Operations from submit to result, and one checkpoint over all of them: CPU, bytes, log."""
    with open_ledger(folder, base_url, url) as ledger:
        before = sizes(folder / "ledger.db", url)
        log, server, cpu, wall = _outside(url)
        submit(ledger, count)
        worker = make_worker(ledger.store, results=folder / "results", name="bench")
        run_async(serve(worker, asyncio.Event(), until_idle=True))
        used = [now - then for now, then in zip(_outside(url), (log, server, cpu, wall), strict=True)]
        if ledger.store.queries.counts() != {"succeeded": count}:
            raise SystemExit(f"not all succeeded: {ledger.store.queries.counts()}")
        Checkpointer(ledger.store.database, ledger.settings.audit, ledger.clock).finish()
    after = sizes(folder / "ledger.db", url)
    grown = {name: (size - before.get(name, 0)) / count for name, size in after.items()}
    leaves, answers = _used(grown, LEAVES), _used(grown, ANSWERS)  # type: ignore[arg-type]
    return {
        "log": used[0] / count, "server": used[1] / count, "cpu": used[2] / count, "wall": used[3],
        "bytes": sum(grown.values()) - leaves - answers, "leaf": leaves, "answers": answers,
    }  # fmt: skip


def _outside(url: str | None) -> tuple[float, float, float, float]:
    log, server = (0.0, 0.0) if url is None else (float(log_position(url)), server_cpu(url))
    return log, server, cpu_seconds(), time.perf_counter()


def _model(ledger: Ledger, folder: Path, base_url: str) -> str:
    """One operation that is being observed, made by a worker as all are."""
    submit(ledger, 1)
    worker = make_worker(ledger.store, results=folder / "results", name="bench")

    async def until_seen() -> None:
        stop = asyncio.Event()
        running = asyncio.ensure_future(serve(worker, stop))
        for _ in range(6000):
            if ledger.store.queries.counts().get("accepted"):
                break
            await asyncio.sleep(0.01)
        stop.set()
        await running

    run_async(until_seen())
    (op,) = ledger.list(states=["accepted"])
    return op.operation_id


def crowd(folder: Path, model: str, count: int, begin: int, interval: float) -> None:
    """Copy the operation's rows, each copy due at another time within an interval; past the guards."""
    from tests.bench.crowd import _copy_table

    number = "n.value"
    own_id = f"printf('op_%020d%06d', {number} / 1000000, {number} % 1000000)"
    changed = {
        "operation_id": own_id,
        "short_id": f"substr({own_id}, -8)",
        "remote_job_id": f"'job_c' || {number}",
        "idempotency_token": f"'idem_c' || {number}",
        "trace_id": f"printf('%032x', {number})",
        "next_action_at": f"{begin} + ({number} * {int(interval * 1e6)}) / {count}",
    }
    file = sqlite3.connect(folder / "ledger.db")
    guards = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        file.execute(f'DROP TRIGGER "{name}"')
    for table in ("operation", "request", "event"):
        _copy_table(file, table, model, count, changed)
    for _, sql in guards:
        file.execute(sql)
    file.commit()
    file.close()


def point(folder: Path, base_url: str, count: int, url: str | None) -> Figures:
    """A worker over `count` open operations of an SQLite file, for a while: polls, CPU, bytes of a poll, lateness."""
    interval, seconds = 100.0, 7.0
    with open_ledger(folder, base_url, None, gap=f"{interval:.0f}s") as ledger:
        model = _model(ledger, folder, base_url)
    with open_ledger(folder, base_url, None, gap=f"{interval:.0f}s") as ledger:
        clock = ledger.clock
        began = clock.now() + timedelta(seconds=2)
        crowd(folder, model, count, int(began.timestamp() * 1e6), interval)
        before = sizes(folder / "ledger.db", None)
        worker = make_worker(ledger.store, results=folder / "results", name="bench")
        polls = 0

        async def work() -> tuple[float, float]:
            nonlocal polls
            stop = asyncio.Event()
            running = asyncio.ensure_future(serve(worker, stop))
            await asyncio.sleep(max(0.0, (began - clock.now()).total_seconds()))
            cpu = cpu_seconds()
            seen = ledger.store.database.events
            wall = time.perf_counter()
            await asyncio.sleep(seconds)
            used = cpu_seconds() - cpu, time.perf_counter() - wall
            polls = ledger.store.database.events - seen
            stop.set()
            await running
            return used

        cpu, wall = _run(work())
        late = _late(folder, count, int(began.timestamp() * 1e6), interval)
        grown = _used(sizes(folder / "ledger.db", None), POLLS) - _used(before, POLLS)
    return {
        "polls": polls / wall, "asked": count / interval, "cpu": cpu / wall, "bytes": grown / max(1, polls),
        "late_p50_ms": late[len(late) // 2] * 1000, "late_p99_ms": late[len(late) * 99 // 100] * 1000,
    }  # fmt: skip


def _late(folder: Path, count: int, begin: int, interval: float) -> list[float]:
    """Seconds from when each copy was due until its poll was on record, in order."""
    file = sqlite3.connect(folder / "ledger.db")
    found = file.execute(
        "SELECT CAST(substr(operation_id, 4) AS INTEGER), at FROM event WHERE seq > 1 AND operation_id LIKE 'op_0000%'"
    ).fetchall()
    file.close()
    return sorted((at - begin - number * int(interval * 1e6) // count) / 1e6 for number, at in found) or [0.0]


def _run(main: Any) -> Any:
    found: list[Any] = []

    async def keep() -> None:
        found.append(await main)

    run_async(keep())
    return found[0]


def record(folder: Path, base_url: str, count: int, url: str | None) -> Figures:
    """What a commit costs, what one more poll in it adds, what claiming one adds, and a look when nothing is due.

    By CPU where that is what it takes: the machine is shared, and waiting for a core is no cost of ours.
    """
    with open_ledger(folder, base_url, url, gap="1h") as ledger:
        submit(ledger, 200)
        ids = [op.operation_id for op in ledger.list(limit=200)]
        clock = ledger.clock
        for name in ids:
            number = new_id("job")
            said = (
                e.CallSent("call_1", Action.CREATE, "POST", base_url, 1, may_create=True),
                e.Accepted(call_id="call_1", status=202, job_id=number),
                e.Observed(job_id=number, remote_state="running", means=Means.RUNNING),
            )
            for one in said:
                ledger.store.record_many([_write(ledger, name, one, clock.now())])
        known = {op.operation_id: op for op in ledger.list(limit=200)}

        def commit(size: int) -> float:
            began = time.perf_counter()
            found = ledger.store.record_many(
                [
                    _write(ledger, name, _seen(known[name].remote_job_id), clock.now(), known[name])
                    for name in ids[:size]
                ]
            )
            took = time.perf_counter() - began
            known.update((one.operation.operation_id, one.operation) for one in found if one.operation is not None)
            return took

        # The quickest, because the machine is shared: what was slower waited for somebody else.
        cpu = cpu_seconds()
        single = [commit(1) for _ in range(count)]
        alone, cpu = min(single), (cpu_seconds() - cpu) / count
        began = cpu_seconds()
        times = max(8, count // 5)
        for _ in range(times):
            commit(100)
        row = max(1e-6, ((cpu_seconds() - began) / times - cpu) / 99)
        looks = [_timed(lambda: ledger.store.look(clock.now(), ())) for _ in range(count)]
        (long, polls), (short, fewer) = (_archived(ledger, name) for name in (ids[0], ids[-1]))
        idle = float(_run(_resting(make_worker(ledger.store, results=folder / "results", name="bench"))))
        due = clock.now() + timedelta(days=1)
        began = cpu_seconds()
        for _ in range(4):
            ledger.store.claim("bench", limit=50, lease=timedelta(seconds=30), now=due)
        claim = (cpu_seconds() - began) / 200
    return {
        "commit": max(1e-6, alone - row), "commit_cpu": max(1e-6, cpu - row), "row": row, "look": min(looks),
        "claim": claim, "idle": idle, "archived": (long - short) / (polls - fewer),
    }  # fmt: skip


def _archived(ledger: Ledger, name: str) -> tuple[int, int]:
    """How many bytes the compressed archive of an operation has, and how many events are in it."""
    lines = export.of(ledger, [name], rows_too=True)
    return sum(map(len, archive.compressed(lines))), len(ledger.store.queries.events(name))


async def _resting(worker: Any, seconds: float = 4.0) -> float:
    """The share of a core that a worker takes while nothing is due."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(serve(worker, stop))
    await asyncio.sleep(1)
    cpu, wall = cpu_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    used = (cpu_seconds() - cpu) / (time.perf_counter() - wall)
    stop.set()
    await running
    return used


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _seen(job: str | None) -> e.Observed:
    return e.Observed(
        call_id=new_id("call"), status=200, answer="0" * 64, job_id=job, remote_state="running", means=Means.RUNNING,
        progress={"completed": 1, "total": 5},
    )  # fmt: skip


def _write(ledger: Ledger, name: str, evidence: e.Evidence, at: Any, basis: Any = None) -> Write:
    later = at + timedelta(hours=1)
    return Write(
        name, evidence, WORKER, at, "call:call_1", lambda _: Plan("observe", later, "backoff 1 h"), basis=basis
    )


RUNS: Final = {"drive": drive, "record": record, "point": point}


def measured(name: str, provider: Provider, count: int, url: str | None = None) -> Figures:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.units", name, provider.base_url, str(count)]
    finished = subprocess.run(
        command if url is None else [*command, "--db", url], check=True, capture_output=True, text=True
    )
    figures: Figures = json.loads(finished.stdout)
    return figures


def costs(kind: Kind, fresh: Callable[[], str | None], wake: float, *, count: int = 250) -> Costs:
    """Measure one database. Costs of a poll are the difference of runs with few and with many polls."""
    few, many = 2, 8
    found = []
    for polls in (few, many):
        with Provider(polls=polls) as provider:
            found.append(measured("drive", provider, count, fresh()))
    with Provider() as provider:
        writing = measured("record", provider, 60, fresh())
    one, other = found

    def each(name: str) -> tuple[float, float]:
        slope = max(0.0, (other[name] - one[name]) / (many - few))
        return slope, max(0.0, one[name] - few * slope)

    (poll_cpu, cpu), (poll_server, server) = each("cpu"), each("server")
    (poll_bytes, size), (poll_log, log) = each("bytes"), each("log")
    answers = (other["answers"] - one["answers"]) / (many - few)
    return Costs(
        kind=kind, idle=writing["idle"], wake=wake, poll_cpu=poll_cpu, operation_cpu=cpu, server_poll_cpu=poll_server,
        server_operation_cpu=server, commit=writing["commit"], commit_cpu=writing["commit_cpu"],
        row=writing["row"] + poll_server, claim=writing["claim"], look=writing["look"], poll_bytes=poll_bytes,
        answer_bytes=max(0.0, answers - ANSWER), operation_bytes=size, leaf_bytes=other["leaf"],
        archived_bytes=writing["archived"], log_poll=poll_log,
        log_operation=log,
    )  # fmt: skip


def points(counts: Sequence[int], rounds: int = 2) -> list[Figures]:
    """Run `point` for each of these numbers, in turns; of each the round that took the least CPU for a poll."""
    found: list[list[Figures]] = [[] for _ in counts]
    for _ in range(rounds):
        for place, count in enumerate(counts):
            with Provider(polls=10**9) as provider:
                found[place].append(measured("point", provider, count))
    return [min(some, key=lambda one: one["cpu"] / one["polls"]) for some in found]


def wake(costs_of_file: Costs, seen: Figures) -> float:
    """CPU of a worker that wakes up for one poll, by a run in which polls come one by one."""
    alone = (seen["cpu"] - costs_of_file.idle) / seen["polls"]
    return max(0.0, alone - costs_of_file.poll_cpu - 2 * costs_of_file.commit_cpu)


ANSWER: Final = 95.0
"""Bytes of an answer of the bench's provider."""


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("base_url")
    parser.add_argument("count", type=int)
    parser.add_argument("--db")
    chosen = parser.parse_args()
    gc.set_threshold(GARBAGE)  # as the command line does for a worker
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as folder:
        figures = RUNS[chosen.name](Path(folder), chosen.base_url, chosen.count, chosen.db)
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
