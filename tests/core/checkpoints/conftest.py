"""Every test here that asks for `world` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.checkpoints.world import World
from tests.core.store.making import CONTRACT
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[World]:  # noqa: F811
    """A ledger with nothing in it, a folder for keys and an anchor."""
    with World(database_url, tmp_path) as world:
        world.store.pin_contract(CONTRACT)
        yield world
