"""A server that crashes under everybody, and calls that are given up while the database works on them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opledger.config import load_settings
from opledger.edges.clock import SystemClock
from opledger.errors import OpledgerError
from opledger.ledger import Ledger
from opledger.rules.model import Operation, State
from opledger.sim.hooks import WEBHOOK_SECRET, webhook_text
from opledger.sim.process import SimProcess
from opledger.store import Store
from opledger.worker.commits import Commits
from opledger_console.desk import Desk
from tests.core.store.making import CONTRACT, noted, opened, sent, write
from tests.faults.lab import PATIENCE, Lab
from tests.faults.test_receiver import Door
from tests.support.databases import admin

pytestmark = pytest.mark.processes
STANDING = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' AND datname = %s"


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a fact."""
    clock = SystemClock()
    end = clock.monotonic() + PATIENCE
    while not holds():
        assert clock.monotonic() < end, what
        threading.Event().wait(0.01)


def crash(server: Any) -> None:
    """As ``pg_ctl stop -m immediate``: no session is told, nothing is written down."""
    pid = server.get_pid()
    os.kill(pid, signal.SIGQUIT)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the server ends")


def settled(url: str, *stores: Store) -> None:
    """No connection is still out of its pool, and no session stands in the middle of a transaction."""
    for store in stores:
        pool: Any = store.database._ready().pool
        assert pool.checkedout() == 0, pool.status()
    with admin(url) as session:
        assert session.execute(STANDING, (session.info.dbname,)).fetchone() == (0,)


class Follower:
    """Does something again and again on a thread, as the console does, and remembers how often it worked."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.looks, self.away, self.ending = desk, 0, 0, threading.Event()
        self.thread = threading.Thread(target=self._follow)
        self.thread.start()

    def _follow(self) -> None:
        while not self.ending.is_set():
            try:
                self.desk.overview()
                self.desk.wait_for_change(0.2)
                self.looks += 1
            except OpledgerError:
                self.away += 1
                self.ending.wait(0.05)

    def looks_on(self) -> None:
        """Wait until it has seen the ledger again."""
        seen = self.looks
        until(lambda: self.looks >= seen + 3, "the console sees the ledger")

    def close(self) -> None:
        """Stop looking."""
        self.ending.set()
        self.thread.join()


@pytest.mark.postgres
def test_everybody_carries_on_after_a_crash_of_the_server(own_server: Any, sim: SimProcess, tmp_path: Path) -> None:
    """Worker, receiver, an agent that waits and a console: none is started anew, and none holds on to a session."""
    url = own_server.get_uri()
    with Lab(tmp_path, url, sim) as lab:
        name = lab.contract(changes={'timeout = "3s"': 'timeout = "30s"'})
        path = lab.contracts / f"{name}.toml"
        path.write_text(path.read_text() + webhook_text("standard", "env:HOOK_SECRET"))
        lab.environment["HOOK_SECRET"] = WEBHOOK_SECRET
        settings = load_settings({"operator": "olga"}, {**os.environ, **lab.environment}, lab.folder)
        door, desk = Door(lab), Desk(settings, read_only=False, drive=False)
        with (
            closing(door.socket),
            closing(desk),
            closing(Follower(desk)) as console,
            Ledger.open(url, settings=settings) as agent,
            door.receiver() as receiver,
        ):
            worker = lab.worker(lease=30, tick=600.0)  # it looks only when it is woken
            lab.present()
            console.looks_on()
            lab.sim.control(hold="create")
            operations = [lab.submit(_polls=2) for _ in range(3)]
            assert lab.sim.wait_for(kind="create", held="true", count=3) == 3
            waited: list[Operation] = []
            waiting = threading.Thread(
                target=lambda: waited.extend(agent.wait_all([one.operation_id for one in operations], timeout="2m"))
            )
            waiting.start()
            until(lambda: bool(agent.store._watches), "the agent waits")
            crash(own_server)
            lab.sim.control(release=True)  # the answers find nobody who could keep them
            assert door.send(1, "job_of_nobody") == 503
            own_server.ensure_postgres_running()
            waiting.join(2 * PATIENCE)
            assert [one.state for one in waited] == [State.SUCCEEDED] * 3
            console.looks_on()
            assert console.away > 0
            job = waited[0].remote_job_id
            assert job is not None
            assert [door.send(number, job) for number in (2, 3)] == [202, 202]
            assert {one.key for one in lab.ledger.store.deliveries()} >= {"id:msg_2", "id:msg_3"}
            assert agent.wait(lab.submit(_polls=1).operation_id, timeout=PATIENCE).state is State.SUCCEEDED
            assert worker.alive
            assert receiver.poll() is None
            assert len(lab.wire("create")) == 4
            worker.signal(signal.SIGTERM)
            assert worker.ends() == 0, worker.tail()
            console.close()
            settled(url, agent.store, desk.ledger.store, lab.ledger.store)
        lab.honest()


async def test_a_store_call_that_nobody_waits_for_any_more_is_seen_to_its_end(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive is called off while its record waits for a lock: what it handed in is written, and nothing stays open."""
    with Store.open(database_url) as store, Store.open(database_url) as other:
        store.pin_contract(CONTRACT)
        (operation,) = opened(store)
        commits = Commits(store)
        locked, free, recording = threading.Event(), threading.Event(), threading.Event()
        record_many = store.record_many

        def record(writes: Any) -> Any:
            recording.set()
            return record_many(writes)

        monkeypatch.setattr(store, "record_many", record)

        def hold(tx: Any) -> None:
            tx.cursor.execute("UPDATE operation SET version = version")
            locked.set()
            assert free.wait(PATIENCE)

        holding = threading.Thread(target=other.database.write, args=(hold,))
        holding.start()
        assert await asyncio.to_thread(locked.wait, PATIENCE)
        calls = [
            asyncio.ensure_future(commits.record(write(operation, sent()))),
            asyncio.ensure_future(commits.run(lambda: store.get(operation.operation_id))),
        ]
        assert await asyncio.to_thread(recording.wait, PATIENCE)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert all(call.cancelled() for call in calls)
        free.set()
        await asyncio.to_thread(holding.join)
        (outcome,) = await commits.record(write(operation, noted()))
        assert outcome.operation is not None
        assert outcome.operation.version == 3  # the first one was written, too
        await asyncio.to_thread(commits.close)
        if database_url.startswith("postgresql"):
            settled(database_url, store, other)
