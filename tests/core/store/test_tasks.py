from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opledger.errors import LeaseLost
from opledger.rules.tasks.records import Kind, Record, write
from opledger.store import Store, tasks
from tests.core.store.test_schema import raw

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def record(seq: int = 1, run: str = "run_1", **more: Any) -> Record:
    """A record of a step."""
    return Record(seq, NOW, "agent-7", run, "create", Kind.INTENT, place="here", **more)


def append(store: Store, one: Record, fence: tuple[str, int] | None = None) -> None:
    """Write it."""
    store.database.write(lambda tx: tasks.append(tx, "monthly", one, write(one), store_now(), fence))


def store_now() -> datetime:
    """The time of this machine, which on SQLite counts for leases too."""
    return datetime.now(UTC)


def claim(store: Store, owner: str, dead: int | None = None) -> tasks.TaskLease:
    """Ask for the lease."""
    return store.database.write(
        lambda tx: tasks.claim(tx, "monthly", "run_1", owner, "here", LEASE, now=store_now(), dead=dead)
    )


def test_lines_come_back_byte_for_byte(store: Store) -> None:
    """A progress file is compared with these bytes, so nothing may be written anew."""
    lines = [write(record(1)), write(record(2, reason="żółć \u202e \x1b[31m"))]
    for seq, one in enumerate((record(1), record(2, reason="żółć \u202e \x1b[31m")), 1):
        assert one.seq == seq
        append(store, one)
    assert store.database.read(lambda tx: tasks.lines(tx, "monthly")) == lines
    assert store.database.read(lambda tx: tasks.lines(tx, "monthly", 1)) == lines[1:]
    (head,) = store.database.read(lambda tx: tasks.heads(tx, 10))
    assert (head.task, head.run, head.records, head.last_at) == ("monthly", "run_1", 2, NOW)


def test_a_number_is_given_once(store: Store) -> None:
    """Two who decided upon the same story must not both be believed."""
    append(store, record(1))
    for seq in (1, 3):
        with pytest.raises(tasks.TaskMoved, match="has 1 records by now"):
            append(store, record(seq))
    with pytest.raises(tasks.TaskMoved, match="run_1"):
        append(store, record(2, run="run_2"))


def test_one_runner_at_a_time_and_a_late_one_is_refused(store: Store) -> None:
    """The lease is what keeps two runners apart, and its epoch what stops the one that was asleep."""
    first = claim(store, "first")
    assert (first.owner, first.epoch, first.held) == ("first", 1, True)
    assert claim(store, "second").owner == "first"
    append(store, record(1), ("first", 1))
    second = claim(store, "second", dead=1)
    assert (second.owner, second.epoch) == ("second", 2)
    with pytest.raises(LeaseLost, match="second"):
        append(store, record(2), ("first", 1))
    assert not store.database.write(lambda tx: tasks.renew(tx, "monthly", "first", 1, LEASE, store_now()))
    assert store.database.write(lambda tx: tasks.renew(tx, "monthly", "second", 2, LEASE, store_now()))
    store.database.write(lambda tx: tasks.release(tx, "monthly", "first", 1))
    assert claim(store, "third").owner == "second"
    store.database.write(lambda tx: tasks.release(tx, "monthly", "second", 2))
    assert claim(store, "third").epoch == 3
    lease = store.database.read(lambda tx: tasks.lease_of(tx, "monthly", store_now()))
    assert lease is not None and lease.held and lease.owner == "third"
    assert store.database.read(lambda tx: tasks.lease_of(tx, "nothing", store_now())) is None


def test_an_expired_lease_is_taken_over(store: Store, database_url: str) -> None:
    """A runner that died on another machine is waited for only so long."""
    claim(store, "first")
    with raw(database_url) as run:
        run("UPDATE task_lease SET expires_at = 1")
    with pytest.raises(LeaseLost):
        append(store, record(1), ("first", 1))
    assert claim(store, "second").owner == "second"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE task_record SET actor = 'mallory'",
        "DELETE FROM task_record",
        "INSERT OR REPLACE INTO task_record SELECT * FROM task_record",
        "TRUNCATE task_record",
    ],
)
def test_records_only_grow(store: Store, database_url: str, statement: str) -> None:
    """What a task has done cannot be taken back by clumsy SQL."""
    if "OR REPLACE" in statement and database_url.startswith("postgresql"):
        pytest.skip("SQLite's own")
    if statement.startswith("TRUNCATE") and database_url.startswith("sqlite"):
        pytest.skip("PostgreSQL's own")
    append(store, record(1))
    with raw(database_url) as run, pytest.raises(Exception, match=r"only grows|permission denied"):
        run(statement)
    assert len(store.database.read(lambda tx: tasks.lines(tx, "monthly"))) == 1


def test_the_program_itself_may_not_change_records(store: Store) -> None:
    """Not even by mistake."""

    def change(tx: Any) -> None:
        tx.cursor.execute("UPDATE task_record SET actor = 'x'")

    append(store, record(1))
    with pytest.raises(Exception, match=r"only grows|never runs"):
        store.database.write(change)
