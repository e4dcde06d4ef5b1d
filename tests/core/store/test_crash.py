"""Processes that die in the middle: a batch is there as a whole or not at all, and what was acknowledged is there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from opledger.store import Claim, Store
from opledger.store.engine import Database
from opledger.store.statements import Tx
from tests.core.store.making import (
    CONTRACT,
    LEASE,
    T0,
    accepted,
    after,
    assert_whole,
    claim,
    noted,
    opened,
    opening,
    sent,
    write,
)

pytestmark = pytest.mark.processes


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a child process; the signal that ended it, or 0."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0
    return 0


def die_at(step: int) -> None:
    """From now on this process is killed at the `step`-th statement, or just before or after a commit."""
    left = [step]

    def counted(real: Any) -> Any:
        def call(*args: Any, **values: Any) -> Any:
            _count(left)
            return real(*args, **values)

        return call

    for name in ("all", "run", "many"):
        setattr(Tx, name, counted(getattr(Tx, name)))
    commit = Database._commit

    def committing(*args: Any) -> None:
        _count(left)
        commit(*args)
        _count(left)

    setattr(Database, "_commit", committing)  # noqa: B010 - in a child that is about to be killed


def _count(left: list[int]) -> None:
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_killed_at_any_step_leaves_all_or_nothing(store: Store, database_url: str) -> None:
    """Every statement of a batch of records, new operations and claims is the last one once."""
    records = opened(store, 3)
    ids = [record.operation_id for record in records]
    store.record_many([write(record, sent()) for record in records])
    step, outcomes = 0, []
    while True:
        step += 1

        def work(number: int = step) -> None:
            with Store.open(database_url) as mine:
                die_at(number)
                writes = [write(record, noted(f"{number}")) for record in records]
                mine.exchange(writes, Claim(f"w{number}", 10, LEASE, T0))
                mine.open_many([opening(1_000 + number), opening(2_000 + number)])

        before = store.get(ids[0]).version
        total = sum(store.queries.counts().values())
        killed = in_child(work)
        versions = {store.get(one).version for one in ids}
        leases = {getattr(store.get(one).lease, "owner", None) for one in ids}
        added = sum(store.queries.counts().values()) - total
        assert len(versions) == len(leases) == 1
        assert added in (0, 2)
        recorded = versions == {before + 1}
        assert recorded or (versions == {before} and added == 0)
        assert recorded == (leases == {f"w{step}"})
        assert_whole(store, *ids)
        outcomes.append((recorded, added == 2))
        free(store)
        if not killed:
            break
    # Both transactions were cut before and after their commits, and the last child lived.
    assert outcomes == sorted(outcomes)
    assert outcomes[-1] == (True, True)
    assert {(False, False), (True, False), (True, True)} == set(outcomes)
    assert step > 8


def free(store: Store) -> None:
    """Give back every lease, whoever holds it."""

    def work(tx: Tx) -> None:
        tx.cursor.execute("UPDATE operation SET lease_owner = NULL, lease_expires_at = NULL")

    store.database.write(work)


def test_what_was_acknowledged_is_there_after_a_kill(store: Store, database_url: str) -> None:
    """The child says after each commit how far it is, and is killed at some moment while it goes on."""
    records = opened(store, 5)
    for wanted in (1, 4, 9):
        reader, writer = os.pipe()
        start = store.get(records[0].operation_id).version
        pid = os.fork()
        if pid == 0:
            try:
                with Store.open(database_url) as mine:
                    while True:
                        mine.record_many([write(record, noted()) for record in records])
                        os.write(writer, b".")
            finally:
                os._exit(1)
        os.close(writer)
        acknowledged = 0
        while acknowledged < wanted:
            acknowledged += len(os.read(reader, 1))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        acknowledged += len(os.read(reader, 10_000))
        os.close(reader)
        versions = {store.get(record.operation_id).version for record in records}
        assert len(versions) == 1
        assert versions <= {start + acknowledged, start + acknowledged + 1}
    assert_whole(store, *(record.operation_id for record in records))


def test_the_leases_of_a_killed_worker_are_taken_over(store: Store, database_url: str) -> None:
    """The permit of the dead is found open: its fate is unknown, and the next worker knows whose it was."""
    (operation,) = opened(store)

    def work() -> None:
        with Store.open(database_url) as mine:
            (claimed,) = claim(mine, "dead")
            lease = claimed.operation.lease
            assert lease is not None
            mine.record_many([write(claimed.operation, sent(), due=after(1))])
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(work) == signal.SIGKILL
    assert claim(store, "w2", now=after(2)) == []

    def expire(tx: Tx) -> None:
        tx.cursor.execute("UPDATE operation SET lease_expires_at = 1")

    store.database.write(expire)
    (taken,) = claim(store, "w2", now=after(2))
    assert taken.taken_from == "dead"
    assert taken.operation.open_call is not None
    store.record_many([write(operation, accepted("j1"))])
    assert_whole(store, operation.operation_id)
    assert CONTRACT.digest == taken.operation.contract_digest
