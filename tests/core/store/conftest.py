"""Every test here that asks for `store` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opledger.store import Store
from tests.core.store.making import CONTRACT
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:  # noqa: F811
    """An empty ledger in which the contract of `making` is pinned."""
    with Store.open(database_url) as opened:
        opened.pin_contract(CONTRACT)
        yield opened


@pytest.fixture
def second(store: Store, database_url: str) -> Iterator[Store]:  # noqa: F811
    """Another process's view of the same ledger."""
    with Store.open(database_url) as opened:
        yield opened
