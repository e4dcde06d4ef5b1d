"""A receiver over a ledger with one operation whose job runs, on both databases where a test asks for `home`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger import Ledger
from tests.core.ledgers import Home
from tests.core.rules.operations import CANCEL, JOBS
from tests.fakes.hooks import WEBHOOK, ReceiverThread
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)


def with_webhooks(root: Path, url: str) -> Home:
    """A home whose contract receives webhooks."""
    home = Home(root, url)
    home.contract(JOBS + CANCEL + WEBHOOK)
    return home


@pytest.fixture
def both(tmp_path: Path, database_url: str) -> Iterator[Ledger]:  # noqa: F811
    """An open ledger, once on each database."""
    with with_webhooks(tmp_path, database_url).ledger() as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path, sqlite_url: str) -> Home:  # noqa: F811
    """A home on SQLite."""
    return with_webhooks(tmp_path, sqlite_url)


@pytest.fixture
def ledger(home: Home) -> Iterator[Ledger]:
    """An open ledger on SQLite."""
    with home.ledger() as opened:
        yield opened


@pytest.fixture
def receiver(ledger: Ledger) -> Iterator[ReceiverThread]:
    """A receiver over it."""
    with ReceiverThread(ledger) as running:
        yield running
