from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from opledger.errors import StoreUnavailable
from opledger.store import Store
from opledger.store.postgres import PostgresServer
from tests.core.store.making import claim, fence_of, noted, opened, opening, sent, write
from tests.support.databases import admin


def drain(store: Store, **how: Any) -> None:
    """See everything that was written so far."""
    while store.wait_for_change(0.02, **how):
        pass


def test_the_first_wait_returns_at_once(store: Store) -> None:
    """Nobody knows what was missed before; better one look too many."""
    assert store.wait_for_change(30)


def test_nothing_written_is_no_change(store: Store) -> None:
    """Reading and an idle claim wake nobody who waits for news."""
    drain(store)
    store.queries.counts()
    assert not store.wait_for_change(0.02)


def test_a_write_of_another_process_is_seen(store: Store, second: Store) -> None:
    """Submit, approve and cancel wake the worker (issue, point 5)."""
    (operation,) = opened(store)
    for others_only in (False, True):
        drain(store, others_only=others_only)
        second.record_many([write(operation, noted())])
        assert store.wait_for_change(30, others_only=others_only)


def test_a_write_before_the_wait_is_seen(store: Store, second: Store) -> None:
    """Between two waits the watcher was busy; what came then must not be lost."""
    drain(store)
    second.open_many([opening()])
    second.open_many([opening()])
    assert store.wait_for_change(30)


def test_the_own_writes_count_only_where_they_are_asked_for(store: Store) -> None:
    """An agent waits for the worker in its own process; the worker need not be told what it wrote itself."""
    drain(store)
    drain(store, others_only=True)
    opened(store)
    assert not store.wait_for_change(0.02, others_only=True)
    assert store.wait_for_change(30)


def test_a_waiting_thread_wakes_up(store: Store, second: Store) -> None:
    """The write comes while somebody waits."""
    woken: list[bool] = []
    ready = threading.Event()

    def wait() -> None:
        drain(store)
        ready.set()
        woken.append(store.wait_for_change(30))

    thread = threading.Thread(target=wait)
    thread.start()
    assert ready.wait(30)
    second.open_many([opening()])
    thread.join(30)
    assert woken == [True]


def test_a_stopped_watcher_returns(store: Store) -> None:
    """A worker that is told to stop must not wait out its time."""
    drain(store)
    stop = threading.Event()
    stop.set()
    assert not store.wait_for_change(30, stop)


def test_threads_watch_each_for_itself(store: Store, second: Store) -> None:
    """What one thread has seen is news to another."""
    seen: list[bool] = []
    drain(store)
    second.open_many([opening()])
    assert store.wait_for_change(30)

    def look() -> None:
        seen.append(store.wait_for_change(30))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(30)
    assert seen == [True]


def test_released_leases_are_news(store: Store, second: Store) -> None:
    """A worker that signs off hands over at once."""
    opened(store)
    (claimed,) = claim(second)
    drain(store)
    second.release("w1", [(claimed.operation.operation_id, fence_of(claimed).epoch)])
    assert store.wait_for_change(30)
    claim(second)
    drain(store)
    second.farewell("w1")
    assert store.wait_for_change(30)


def test_a_refused_batch_is_no_news(store: Store, second: Store) -> None:
    """Nothing was written, so nobody need look."""
    (operation,) = opened(store)
    second.record_many([write(operation, sent())])
    drain(store)
    second.record_many([write(operation, sent())])
    assert not store.wait_for_change(0.02)


@pytest.mark.postgres
def test_a_broken_watch_says_so_and_starts_again(postgres_url: str) -> None:
    """The server was restarted: one error, then a new session, and one look at what was missed."""
    with Store.open(postgres_url) as store:
        drain(store)
        with admin(postgres_url) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store.wait_for_change(30)
        assert store.wait_for_change(30)
        assert not store.wait_for_change(0.02)


@pytest.mark.postgres
def test_a_server_that_goes_while_a_watch_connects_is_one_that_is_away(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy asks a new server who it is, and wraps what breaks then: whoever watches must not die of it."""
    with Store.open(postgres_url) as store:
        side = store.database.side
        assert isinstance(side, PostgresServer)
        connect = side.connect

        def going() -> Any:
            monkeypatch.setattr(side, "connect", connect)
            engine = side._engine(poolclass=NullPool)
            lost = psycopg.OperationalError("server closed the connection unexpectedly")

            def initialize(_: Any) -> None:
                raise OperationalError("select current_schema()", None, lost)

            monkeypatch.setattr(engine.dialect, "initialize", initialize)
            return engine.raw_connection()

        monkeypatch.setattr(side, "connect", going)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store.wait_for_change(30)
        assert store.wait_for_change(30)


@pytest.mark.postgres
def test_threads_that_have_ended_keep_no_session(postgres_url: str) -> None:
    """An agent that waits on a new thread for each operation would use up what the server allows."""
    with Store.open(postgres_url) as store:
        waiters = threading.Barrier(5)

        def wait() -> None:
            store.wait_for_change(0.02)
            waiters.wait(60)  # all at a time, so that no thread is taken for another one

        for _ in range(3):
            threads = [threading.Thread(target=wait) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        store.wait_for_change(0.02)
        with admin(postgres_url) as session:
            listening = "query LIKE 'LISTEN%' AND datname = current_database()"
            found = None
            for _ in range(6_000):  # the server takes its time over a session that was closed
                found = session.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {listening}").fetchone()
                if found == (1,):
                    break
                threading.Event().wait(0.01)
            assert found == (1,)


def test_a_vanished_file_says_so(sqlite_url: str) -> None:
    """Somebody removed the ledger under us: an error, not an endless wait."""
    from pathlib import Path

    with Store.open(sqlite_url) as store:
        path = Path(store.database.name)
        path.rename(path.with_suffix(".gone"))
        with pytest.raises(StoreUnavailable, match="cannot be opened"):
            store.wait_for_change(1)


def test_closing_while_somebody_waits_ends_the_wait(sqlite_url: str) -> None:
    """The one who closes is another thread: the wait ends, and SQLite is not closed under a statement."""
    store = Store.open(sqlite_url)
    store.wait_for_change(0.01)
    ended: list[object] = []

    def wait() -> None:
        try:
            while not ended:
                ended.extend([] if store.wait_for_change(30) else ["ended"])
        except StoreUnavailable as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not any(thread is not threading.current_thread() for thread in threading.enumerate()):
        pass
    store.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert ended
