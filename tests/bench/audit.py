"""Verifying: events a second, of chains and leaves alone and with every record computed again, here and in processes.

The ledger has ten events in each operation, in bodies of about 400 bytes, and lies in the cache of the system.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import SystemClock
from opledger.ledger import slices, verifying
from opledger.rules import evidence as e
from opledger.rules.files.contract import digest_of
from opledger.rules.model import Action, Means
from opledger.store import Recorded, Store, Write
from tests.core.store.making import CONTRACT, WORKER, after, no_plan, opening, request

EVENTS: Final = 10
BATCH: Final = 500
PINNED: Final = replace(CONTRACT, digest=digest_of(CONTRACT.source, CONTRACT.environment))
"""As a contract is pinned by its text, which is verified as well."""


def contest(events: int, rounds: int, url: str | None = None) -> None:
    """Print what was measured: medians over the rounds."""
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as folder:
        found = url or f"sqlite:///{Path(folder) / 'ledger.db'}"
        written = make(found, events // EVENTS)
        print(f"\nverifying {written:,} events, {rounds} rounds (median), {os.cpu_count()} cores", flush=True)
        for name, helpers, records in (
            ("chains and leaves, one process", 1, False),
            ("chains and leaves, all cores", os.cpu_count() or 1, False),
            ("and every record, one process", 1, True),
            ("and every record, all cores", os.cpu_count() or 1, True),
        ):
            runs = [_round(found, helpers, records=records) for _ in range(rounds)]
            wall, cpu = (statistics.median(rates) for rates in zip(*runs, strict=True))
            each = "" if helpers > 1 else f"{cpu:>14,.0f} for each second of CPU"
            print(f"{name:<46}{wall:>14,.0f} events/s{each}", flush=True)


def _checks() -> list[Any]:
    return []


def _round(url: str, helpers: int, *, records: bool) -> tuple[float, float]:
    clock = SystemClock()
    pool = slices.processes(url, helpers, _checks) if helpers > 1 else None
    with Store.open(url, read_only=True) as store:
        begun = time.process_time()
        found = verifying.verify(store, clock, trust=lambda _: None, records=records, helpers=pool)
        used = time.process_time() - begun
    assert not found.kinds, found.findings[:3]
    return found.progress.rate, found.progress.events / used


def make(url: str, operations: int) -> int:
    """Write a ledger; how many events it has."""
    with Store.open(url) as store:
        store.pin_contract(PINNED)
        for first in range(0, operations, BATCH):
            _write(store, first, min(BATCH, operations - first))
    return operations * EVENTS


def _write(store: Store, first: int, count: int) -> None:
    numbers = range(first + 1, first + count + 1)
    new = [
        opening(one, contract_digest=PINNED.digest, body_sha256=hashlib.sha256(request(one).body).hexdigest())
        for one in numbers
    ]
    store.open_many(new)
    ids = [one.operation_id for one in new]

    def polled(name: str, call: str, word: str, means: Means) -> e.Evidence:
        return e.Observed(call_id=call, job_id=f"job{name}", remote_state=word, means=means, status=200)

    said: list[Callable[[str, str], e.Evidence]] = [
        lambda _, call: e.CallSent(call, Action.CREATE, "POST", "https://api.example.com/jobs", 1, may_create=True),
        lambda name, call: e.Accepted(call_id=call.replace("_2", "_1"), job_id=f"job{name}"),
        *(lambda name, call: polled(name, call, "running", Means.RUNNING) for _ in range(EVENTS - 4)),
        lambda name, call: polled(name, call, "failed", Means.FAILED),
    ]
    for seconds, say in enumerate(said, start=1):
        calls = {name: f"call_{seconds}{hashlib.sha256(name.encode()).hexdigest()[:19]}" for name in ids}
        writes = [
            Write(name, say(name, calls[name]), WORKER, after(seconds), f"call:{calls[name]}", no_plan) for name in ids
        ]
        for outcome in store.record_many(writes):
            assert isinstance(outcome, Recorded), outcome
