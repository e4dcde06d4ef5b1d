"""Ledgers to test: `home` runs a test on both databases, `file_home` and `ledger` on SQLite only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger import Ledger
from tests.core.ledgers import Home
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)


@pytest.fixture
def home(tmp_path: Path, database_url: str) -> Home:  # noqa: F811
    """A home on each database."""
    return Home(tmp_path, database_url)


@pytest.fixture
def file_home(tmp_path: Path, sqlite_url: str) -> Home:  # noqa: F811
    """A home on SQLite, for what does not depend on the database."""
    return Home(tmp_path, sqlite_url)


@pytest.fixture
def ledger(file_home: Home) -> Iterator[Ledger]:
    """An open ledger on SQLite."""
    with file_home.ledger() as opened:
        yield opened
