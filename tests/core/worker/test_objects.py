"""Results that go into an object store: the real worker, a real provider, a real S3 server, all on loopback."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.config import sqlite_path
from opledger.edges import stores
from opledger.rules.model import State
from tests.core.worker.conftest import Bench
from tests.support.objects import KEY, S3, SECRET, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    """One S3 server for all tests here."""
    with s3_server() as running:
        yield running


@pytest.fixture
def shelf(server: S3, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose results go into a bucket."""
    for name, value in {**server.environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    server.empty()
    url = f"s3://{server.bucket}/team"
    bench.environment["OPLEDGER_RESULTS"] = url
    bench.results = url  # type: ignore[assignment]  # the lab's helpers for folders are not used here
    return bench


def scratch(tmp_path: Path) -> list[str]:
    """What is left on this machine of what was on its way."""
    return [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]


async def test_a_result_goes_into_the_bucket_and_comes_back(shelf: Bench, server: S3, tmp_path: Path) -> None:
    """The record says where, in words that open no door; not one credential is in the database."""
    operation = shelf.submit(_polls=1, rows=5)
    await shelf.idle()
    found = shelf.show(operation)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    assert found.result.location == f"s3://{server.bucket}/{server.objects()[0]}"
    assert found.result.location.startswith(
        f"s3://{server.bucket}/team/{found.operation_id[-2:]}/{found.operation_id}."
    )
    with await asyncio.to_thread(shelf.ledger.result, found.operation_id) as handed:
        assert len(handed.stream().read()) == found.result.size
    assert (scratch(tmp_path), server.uploads()) == ([], [])
    shelf.ledger.close()
    path = sqlite_path(shelf.url)
    assert path is not None
    with sqlite3.connect(path) as connection:
        dumped = "\n".join(connection.iterdump())
    connection.close()
    assert found.operation_id in dumped
    assert not any(word in dumped for word in (KEY, SECRET, "Signature"))


async def test_a_bucket_that_is_away_costs_no_read_of_the_result(
    shelf: Bench, server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is not asked for what cannot be put anywhere; it shows, and goes on when the store is back."""
    shelf.contract(changes={'first = "50ms"': 'first = "300ms"'}, collect="60s")
    operation = shelf.submit(_polls=1)
    monkeypatch.setattr(stores, "RETRIES", 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    stop = asyncio.Event()
    running = asyncio.ensure_future(shelf.hire().run(stop))
    found = await asyncio.to_thread(shelf.until, operation, lambda op: op.attention is not None)
    stop.set()
    await running
    assert (found.state, found.attention and found.attention.code) == (State.RESULT_COLLECTING, "storage")
    assert SECRET not in (found.last_error or "")
    assert "cannot be reached" in (found.last_error or "")
    assert shelf.wire("result") == []
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    await shelf.idle()
    assert shelf.show(operation).state is State.SUCCEEDED
    assert scratch(tmp_path) == []


async def test_an_upload_that_fails_is_tried_again_with_a_new_read(
    shelf: Bench, server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be put away does not fill this machine meanwhile, and is never called a success."""
    shelf.contract(collect="60s")
    real = stores.ObjectResults._upload
    failed: list[Path] = []

    def failing(self: stores.ObjectResults, path: Path, *more: object) -> None:
        if not failed:
            failed.append(path)
            raise OSError(5, "Input/output error")
        real(self, path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(stores.ObjectResults, "_upload", failing)
    operation = shelf.submit(_polls=1)
    await shelf.idle()
    assert shelf.show(operation).state is State.SUCCEEDED
    assert len(failed) == 1
    assert len(shelf.wire("result")) == 2
    assert (scratch(tmp_path), len(server.objects())) == ([], 1)
