"""Very many operations, quickly: one is submitted for real in each of some states, the others are copies of its rows.

The copies have ids, job ids and tokens of their own, and only the first event each; the newest ones have whole
journals, because those are the ones that people open. As a script: ``python -m tests.bench.crowd FOLDER COUNT``, or
``… FOLDER --stir RATE`` to record so many changes a second until standard input closes.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from pathlib import Path
from typing import Final

from opledger.edges.clock import SystemClock
from opledger.ledger import Ledger
from opledger.rules import evidence as e
from opledger.rules.model import Means, Operation
from opledger.store import Write
from tests.core.ledgers import BODY, WORKER, Home, accepted, happens, observed, sent

NEWEST: Final = 400
"""Operations with a whole journal."""


def home(folder: Path) -> Home:
    """The ledger in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return Home(folder, f"sqlite:///{folder / 'ledger.db'}")


def _models(ledger: Ledger) -> list[str]:
    """Submit one operation for each kind of row that the crowd is made of."""
    running = ledger.submit("jobs", BODY, requested_by="agent-1", tags={"team": "red"})
    happens(ledger, running, sent("call_m1"), accepted("job_m1", "call_m1"), observed(job="job_m1"))
    waiting = ledger.submit("jobs", {"rows": 1}, requested_by="agent-2", tags={"team": "blue"})
    done = ledger.submit("jobs", {"rows": 2}, requested_by="agent-3")
    happens(ledger, done, sent("call_m3"), accepted("job_m3", "call_m3"))
    happens(ledger, done, observed("failed", Means.FAILED, "job_m3"))
    return [running.operation_id, done.operation_id, done.operation_id, done.operation_id, waiting.operation_id]


def fill(folder: Path, count: int) -> Home:
    """Make a ledger of `count` operations."""
    place = home(folder)
    with place.ledger() as ledger:
        models = _models(ledger)
        now = int(SystemClock().now().timestamp() * 1e6)
    _copy(folder / "ledger.db", models, count - 3 - NEWEST, now)
    with place.ledger() as ledger:
        for number in range(NEWEST):
            op = ledger.submit("jobs", {"rows": 10 + number}, requested_by=f"agent-{number % 9}")
            call, job = f"call_n{number}", f"job_n{number}"
            if number % 40 == 7:
                happens(ledger, op, sent(call), e.CallLost(call_id=call, why="the connection broke"))
            else:
                happens(ledger, op, sent(call), accepted(job, call), observed(job=job))
    return place


def _copy(path: Path, models: list[str], count: int, now: int) -> None:
    """Copy the rows of the models, past the guards: this is no ledger that anybody will verify."""
    database = sqlite3.connect(path)
    try:
        database.executescript("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY; PRAGMA cache_size=-200000;")
        guards = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            database.execute(f'DROP TRIGGER "{name}"')
        for share, model in enumerate(models):
            part = count // len(models) + (1 if share < count % len(models) else 0)
            number = f"(n.value * {len(models)} + {share})"
            for table in ("operation", "request", "event"):
                _copy_table(database, table, model, part, _changed(number, now))
        for _, sql in guards:
            database.execute(sql)
        database.commit()
        database.execute("PRAGMA journal_mode=WAL")
    finally:
        database.close()


def _changed(number: str, now: int) -> dict[str, str]:
    """How the copies differ from their model, column by column."""
    own_id = f"printf('op_%020d%06d', {number} / 1000000, {number} % 1000000)"
    return {
        "operation_id": own_id,
        "short_id": f"substr({own_id}, -8)",
        "remote_job_id": f"CASE WHEN remote_job_id IS NULL THEN NULL ELSE 'job_c' || {number} END",
        "idempotency_token": f"CASE WHEN idempotency_token IS NULL THEN NULL ELSE 'idem_c' || {number} END",
        "trace_id": f"printf('%032x', {number})",
        "requested_by": f"'agent-' || ({number} % 50)",
        # One every two seconds, back into the past.
        "created_at": f"{now} - 4000000 - ({number} * 2000000)",
        "next_action_at": f"CASE WHEN next_action_at IS NULL THEN NULL ELSE {now} + 3600000000 + {number} END",
    }


def _copy_table(database: sqlite3.Connection, table: str, model: str, part: int, changed: dict[str, str]) -> None:
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(name, f'm."{name}"') for name in names)
    first = " AND m.seq = 1" if table == "event" else ""
    database.execute(
        f"WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n WHERE value < ?) "
        f"INSERT INTO {table} SELECT {values} FROM n, {table} m WHERE m.operation_id = ?{first}",
        (part - 1, model),
    )


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def stir(place: Home, rate: int) -> None:
    """Record `rate` changes a second on the newest operations, and one new operation for every twenty changes."""
    ended, clock = threading.Event(), SystemClock()
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    with place.ledger() as ledger:
        newest = ledger.list(states=["observing"], limit=100)
        print("stirring", flush=True)
        step, count = 0.1, 0
        while not ended.wait(step):
            writes = []
            for _ in range(round(rate * step)):
                op = newest[count % len(newest)]
                count += 1
                writes.append(_change(op, clock, count))
            ledger.store.record_many(writes)
            if count % 20 == 0:
                ledger.submit("jobs", {"rows": 5000 + count}, requested_by="agent-9")


def _change(op: Operation, clock: SystemClock, count: int) -> Write:
    seen = e.Observed(
        job_id=op.remote_job_id, remote_state=f"step {count % 100}", means=Means.RUNNING,
        progress={"completed": count % 100, "total": 100},
    )  # fmt: skip
    return Write(op.operation_id, seen, WORKER, clock.now(), f"call:call_s{count}", lambda after: after.next)


def main() -> None:
    """Fill, or stir."""
    folder, what = Path(sys.argv[1]), sys.argv[2:]
    if what[0] == "--stir":
        stir(home(folder), int(what[1]))
    else:
        fill(folder, int(what[0]))


if __name__ == "__main__":
    main()
