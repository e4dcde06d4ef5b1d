from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opledger.edges.clock import SystemClock
from opledger.edges.files import Stopped, go_on
from opledger.errors import DatabaseReplaced, StoreUnavailable
from opledger.rules.model import State
from opledger.worker import progress
from opledger.worker import shelve as shelving
from opledger.worker.hand import Dropped, Hand, Held
from opledger.worker.shelve import shelve
from tests.core.worker.conftest import Bench


class Slow:
    """A store that takes for ever, and asks now and then whether it is still wanted."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended: BaseException | None = None

    def keep(self, path: Path, operation_id: str, suffix: str, *, going: Callable[[], bool]) -> str:
        """Upload until nobody wants it any more."""
        self.began.set()
        try:
            for _ in range(10_000):
                go_on(going)
                threading.Event().wait(0.002)
        except Stopped as stopped:
            self.ended = stopped
            raise
        return "for nothing"


def hand(store: Slow, lease: float, renew: Any, ends: float | None = None) -> Hand:
    """As much of a drive as is needed here."""

    async def fresh() -> None:
        pass

    clock = SystemClock()
    shop = SimpleNamespace(results=store, lease=timedelta(seconds=lease), clock=clock)
    operation, held = SimpleNamespace(operation_id="op_1"), Held(1, clock.monotonic() + (ends or lease))
    drive = SimpleNamespace(shop=shop, op=operation, held=held, fresh_lease=fresh, renew=renew)
    return cast("Hand", drive)


async def test_an_upload_is_called_off_when_the_worker_stops(tmp_path: Path) -> None:
    """Otherwise a deploy would wait for gigabytes, or be killed in the middle of them."""

    async def renew() -> None:
        pass

    store = Slow()
    task = asyncio.ensure_future(shelve(hand(store, 60, renew), tmp_path / "x", ".csv"))
    await asyncio.to_thread(store.began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(store.ended, Stopped)


async def test_an_upload_is_called_off_when_the_lease_is_lost(tmp_path: Path) -> None:
    """Somebody else acts for the operation now; what this one would still put there nobody would know of."""

    async def renew() -> None:
        raise Dropped("the lease could not be renewed")

    store = Slow()
    with pytest.raises(Dropped):
        await shelve(hand(store, 0.03, renew), tmp_path / "x", ".csv")
    assert isinstance(store.ended, Stopped)


async def test_an_upload_is_called_off_before_the_lease_ends_without_an_answer(tmp_path: Path) -> None:
    """A link to the database that vanished says neither yes nor no, and another worker will take over."""

    async def renew() -> None:
        await asyncio.Event().wait()

    store = Slow()
    with pytest.raises(Dropped, match="before it ended"):
        await asyncio.wait_for(shelve(hand(store, 0.3, renew), tmp_path / "x", ".csv"), 60)
    assert isinstance(store.ended, Stopped)


async def test_a_lease_is_renewed_again_where_the_database_was_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart of the server is no reason to throw away what an hour has brought; one that was replaced is."""
    tries = 0

    async def renew() -> None:
        nonlocal tries
        tries += 1
        raise StoreUnavailable("away") if tries < 3 else DatabaseReplaced("gone")

    monkeypatch.setattr(shelving, "AGAIN", 0.001)
    store = Slow()
    with pytest.raises(DatabaseReplaced):
        await asyncio.wait_for(shelve(hand(store, 0.03, renew, ends=60), tmp_path / "x", ".csv"), 60)
    assert tries == 3


async def test_a_download_can_be_watched(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far it is stands in the log while it lasts; afterwards no note of it is left."""
    monkeypatch.setattr(progress, "NOTE_EVERY", 0)
    operation = bench.submit(_polls=1, rows=500)
    with caplog.at_level(logging.INFO, "opledger.worker"):
        await bench.idle()
    found = bench.show(operation)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    size = found.result.size
    told = [record.getMessage() for record in caplog.records if "collecting" in record.getMessage()]
    assert told[-1] == f"{operation.operation_id}: collecting, {size} bytes of {size} are here"
    assert list(bench.results.rglob("*.progress")) == []
