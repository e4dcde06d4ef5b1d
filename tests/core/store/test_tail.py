from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import BigInteger, ClauseElement, bindparam, select

from opledger.rules.model import EPOCH, Operation
from opledger.store import Store, recording
from opledger.store import tail as tails
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tail import Tail
from tests.core.store.making import CONTRACT, T0, after, no_plan, noted, opened, planned, write
from tests.support.databases import admin

Key = tuple[str, int]


def keys(found: Tail) -> list[Key]:
    """Which events came, in their order."""
    return [(one.operation_id, one.event.seq) for one in found.events]


def note(store: Store, operation: Operation, seconds: float, times: int = 1) -> None:
    """Add events to an operation, each at its own moment, a millisecond apart."""
    writes = [write(operation, noted(), at=after(seconds + number / 1_000)) for number in range(times)]
    store.record_many(writes)


def everything(store: Store) -> set[Key]:
    """Every event of the ledger."""
    return {(row.operation_id, row.seq) for _, rows in store.queries.chains() for row in rows}


def test_the_newest_events_come_first_and_then_what_is_new(store: Store) -> None:
    """A follower sees each event once, oldest first, with whose it is."""
    one = opened(store, at=after(0))[0]
    other = opened(store, at=after(1), contract="payouts", requested_by="jo")[0]
    first = store.queries.tail()
    assert keys(first) == [(one.operation_id, 1), (other.operation_id, 1)]
    assert [(shown.contract, shown.requested_by) for shown in first.events] == [
        ("reports", "agent-7"),
        ("payouts", "jo"),
    ]
    assert first.events[0].event.kind == "Submitted"
    assert first.events[0].event.data is not None
    nothing = store.queries.tail(first.mark)
    assert (nothing.events, nothing.missed) == ((), False)
    note(store, one, 2)
    note(store, other, 3)
    then = store.queries.tail(nothing.mark)
    assert keys(then) == [(one.operation_id, 2), (other.operation_id, 2)]
    assert not first.missed
    assert not then.missed
    assert keys(store.queries.tail(then.mark)) == []


def test_an_empty_ledger_is_followed_from_its_first_event(store: Store) -> None:
    """A console that was open before anything happened misses nothing."""
    empty = store.queries.tail()
    assert (empty.events, empty.missed) == ((), False)
    assert store.queries.earlier(empty.start).events == ()
    (one,) = opened(store)
    assert keys(store.queries.tail(empty.mark)) == [(one.operation_id, 1)]


def test_of_too_many_the_newest_are_shown_and_the_gap_is_said(store: Store) -> None:
    """A burst does not fill the screen's memory, and nobody is told that it was small."""
    (one,) = opened(store)
    mark = store.queries.tail().mark
    note(store, one, 1, times=7)
    found = store.queries.tail(mark, limit=3)
    assert keys(found) == [(one.operation_id, seq) for seq in (6, 7, 8)]
    assert found.missed
    assert keys(store.queries.tail(found.mark)) == []
    assert not store.queries.tail(mark, limit=7).missed
    assert keys(store.queries.earlier(found.start, limit=2)) == [(one.operation_id, 4), (one.operation_id, 5)]


def test_the_first_look_is_never_a_gap(store: Store) -> None:
    """What was before is asked for, not missed."""
    (one,) = opened(store)
    note(store, one, 1, times=5)
    assert not store.queries.tail(limit=2).missed


def test_going_back_reaches_the_beginning_and_shows_nothing_twice(store: Store) -> None:
    """However far apart the events lie, and also where many have the same time."""
    records = opened(store, 3)
    for number, record in enumerate(records * 3):
        note(store, record, 10.0 ** (number - 2))
    found = store.queries.tail(limit=4)
    seen = keys(found)
    while found.events:
        found = store.queries.earlier(found.start, limit=4)
        seen = keys(found) + seen
    assert len(seen) == len(set(seen)) == 12
    assert set(seen) == everything(store)


def test_the_next_call_is_told_from_other_plans(store: Store) -> None:
    """Lateness is measured against a planned call; a deadline or a wait for a person is none."""
    (one,) = opened(store)
    store.record_many(
        [
            write(one, noted(), at=after(1), plan=planned(after(5))),
            write(one, noted(), at=after(2), plan=planned(after(6), "deadline")),
            write(one, noted(), at=after(3), plan=planned(None, "human")),
            write(one, noted(), at=after(4), plan=no_plan),
        ]
    )
    assert [shown.due_next for shown in store.queries.tail().events] == [T0, after(5), None, None, None]


def test_damaged_bytes_still_stand_in_the_tail() -> None:
    """What somebody broke must show, not break the screen."""
    bodies = [
        b"",
        b"\xff",
        b"[]",
        b'{"next":3}',
        b'{"next":{"kind":"observe","at":7}}',
        b'{"next":{"kind":[],"at":""}}',
    ]
    assert [tails._due(body) for body in bodies] == [None] * len(bodies)


def test_a_foolish_limit_is_put_right(store: Store) -> None:
    """Nothing, or everything at once, is never what somebody meant."""
    opened(store, 3)
    assert len(store.queries.tail(limit=0).events) == 1
    assert len(store.queries.tail(limit=10**30).events) == 3


def test_an_event_whose_record_is_gone_is_shown(store: Store, database_url: str) -> None:
    """Taking a record away by hand must not hide its journal."""
    (one,) = opened(store)
    removal = "DELETE FROM request; DELETE FROM operation"
    if store.database.kind == "sqlite":
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(f"DROP TRIGGER request_no_delete; DROP TRIGGER operation_no_delete; {removal}")
    else:
        with admin(database_url) as session:
            session.execute("ALTER TABLE request DISABLE TRIGGER ALL; ALTER TABLE operation DISABLE TRIGGER ALL")
            session.execute(removal)
    (shown,) = store.queries.tail().events
    assert (shown.operation_id, shown.contract, shown.requested_by) == (one.operation_id, "", "")


class Held:
    """A write on another connection whose commit waits to be let go."""

    def __init__(self, store: Store, operation: Operation, at: datetime) -> None:
        self._written, self._go = threading.Event(), threading.Event()
        wanted = write(operation, noted("late"), at=at)

        def work(tx: Tx) -> None:
            recording.record(tx, [wanted])
            self._written.set()
            assert self._go.wait(20)

        self._thread = threading.Thread(target=lambda: store.database.write(work))
        self._thread.start()
        assert self._written.wait(20)

    def commit(self) -> None:
        """Let it go and wait until it is committed."""
        self._go.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def server(postgres_url: str) -> Iterator[tuple[Store, Store]]:
    """A ledger on PostgreSQL, opened twice."""
    with Store.open(postgres_url) as one, Store.open(postgres_url) as two:
        one.pin_contract(CONTRACT)
        yield one, two


@pytest.mark.postgres
def test_a_commit_that_becomes_visible_late_is_shown_once(server: tuple[Store, Store]) -> None:
    """Two workers commit in another order than their events have: none is lost, none comes again."""
    store, second = server
    slow, fast = opened(store, 2)
    mark = store.queries.tail().mark
    held = Held(second, slow, after(1))
    try:
        note(store, fast, 5)
        found = store.queries.tail(mark)
        assert keys(found) == [(fast.operation_id, 2)]
    finally:
        held.commit()
    late = store.queries.tail(found.mark)
    assert keys(late) == [(slow.operation_id, 2)]
    assert late.mark.place == found.mark.place
    assert keys(store.queries.tail(late.mark)) == []
    assert (slow.operation_id, 2) not in keys(store.queries.earlier(found.start))


@pytest.mark.postgres
def test_what_came_too_late_for_the_tail_is_found_by_going_back(server: tuple[Store, Store]) -> None:
    """The tail looks back for so long only; the journal has the event all the same."""
    store, second = server
    slow, fast = opened(store, 2)
    mark = store.queries.tail().mark
    held = Held(second, slow, after(1))
    try:
        note(store, fast, 1 + tails.OVERLAP / 1e6 + 1)
        found = store.queries.tail(mark)
    finally:
        held.commit()
    assert keys(store.queries.tail(found.mark)) == []
    assert (slow.operation_id, 2) in keys(store.queries.earlier(found.start))


@pytest.mark.postgres
def test_a_clock_that_runs_ahead_hides_nothing(server: tuple[Store, Store]) -> None:
    """One machine with a wrong clock must not stop everybody's tail until that time has come."""
    store, _ = server
    wrong, right = opened(store, 2)
    (moment,) = store.database.read(lambda tx: tx.all(tails._moment))
    now = EPOCH + timedelta(microseconds=moment[1])
    store.record_many([write(wrong, noted(), at=now + timedelta(days=1))])
    found = store.queries.tail()
    store.record_many([write(right, noted(), at=now)])
    assert keys(store.queries.tail(found.mark)) == [(right.operation_id, 2)]


@pytest.mark.postgres
def test_a_database_that_was_put_back_is_followed_anew(server: tuple[Store, Store]) -> None:
    """A restored server counts its transactions from an earlier number; the old mark would hide all that is new."""
    store, _ = server
    (one,) = opened(store)
    mark = store.queries.tail().mark
    ahead = replace(mark, snapshot="900000:900000:", place=(mark.place[0] + 10**9, "", 0))
    found = store.queries.tail(ahead)
    assert keys(found) == [(one.operation_id, 1)]
    assert found.missed
    assert found.mark.place < ahead.place


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("xmax", "low", "whole"),
    [
        (9, 5, 5),
        (9, 9, 9),
        (2**32 + 9, 5, 2**32 + 5),
        (2**32 + 9, 2**32 - 1, 2**32 - 1),
        (5 * 2**32 + 9, 10, 4 * 2**32 + 10),
    ],
)
def test_half_a_transaction_number_is_made_whole(server: tuple[Store, Store], xmax: int, low: int, whole: int) -> None:
    """After 2**32 transactions the numbers in the rows begin again."""

    def recipe(_: Tongue) -> ClauseElement:
        return select(tails._whole(bindparam("low", type_=BigInteger)))

    assert server[0].database.read(lambda tx: tx.all(recipe, low=low, xmax=xmax)) == [(whole,)]


def plan_of(store: Store, recipe: Recipe, **values: Any) -> str:
    """The database's own plan for a statement, as text."""

    def work(tx: Tx) -> str:
        statement = tx.prepared(recipe)
        prefix = "EXPLAIN QUERY PLAN "
        if tx.tongue.kind == "postgresql":
            prefix = "EXPLAIN "
            tx.cursor.execute("SET LOCAL enable_seqscan = off")  # the table is empty; what matters is what is possible
        tx.cursor.execute(prefix + statement.text, statement.values(values))
        return "\n".join(str(row[-1]) for row in tx.cursor.fetchall())

    return store.database.read(work, snapshot=True)


@pytest.mark.parametrize("recipe", [tails._rows_after, tails._rows_before])
def test_on_sqlite_the_tail_goes_by_row_number(sqlite_url: str, recipe: Recipe) -> None:
    """Neither the journal nor the records are ever read as a whole."""
    with Store.open(sqlite_url) as store:
        plan = plan_of(store, recipe, after=1, before=1, most=10)
    assert "SEARCH event USING INTEGER PRIMARY KEY" in plan
    assert "SCAN event" not in plan
    assert "SCAN operation" not in plan


@pytest.mark.postgres
@pytest.mark.parametrize("recipe", [tails._since, tails._unseen, tails._before])
def test_on_postgresql_the_tail_goes_by_time(server: tuple[Store, Store], recipe: Recipe) -> None:
    """The index by time costs an insert nothing, and says which pages cannot hold what is looked for."""
    values = {"floor": 1, "at": 2, "late": 1, "seq": 1, "operation_id": "op", "snapshot": "9:9:", "xmax": 9, "most": 10}
    assert "Bitmap Index Scan on event_at" in plan_of(server[0], recipe, **values)
