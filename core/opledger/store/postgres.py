"""A PostgreSQL database: how it is reached, and what every session is told."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from opledger.store import trouble
from opledger.store.statements import Kind

CHANNEL: Final = "opledger"
"""The NOTIFY channel on which every commit that others may wait for is announced."""

_SESSION: Final = (
    "-c synchronous_commit=on "  # acknowledged means durable, whatever the server's default (F1)
    "-c statement_timeout=30s -c lock_timeout=5s -c idle_in_transaction_session_timeout=60s "
    "-c default_transaction_isolation=read\\ committed"
)

TCP: Mapping[str, int] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""How soon we give up a session whose other end is silent: seconds, the last one milliseconds. A URL may say otherwise.

A link that vanishes sends no word. Left to TCP, a statement waits a quarter of an hour for its answer, and a listener
for ever. Eleven seconds are more than a switch or a failover of the network takes, and a fraction of a lease.
"""

SERVER_TCP: str = (
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000"
)
"""The same for the server's end: the session of a host that has gone keeps its row locks until the server notices."""

PAUSED: Final = "20s"
"""How long the writing session may stand still within a transaction: less than a lease lasts, so that the row locks of
a process that was stopped are gone before its lease is. Readers lock nothing, and may take their time over a snapshot.
"""

SERVICE: Final = "service=opledger"
"""Says in a URL that libpq finds the password in its service file, under this name."""

_SECRETS: Final = frozenset({"password", "sslpassword"})


def plain_url(url: URL) -> str:
    """Return a URL that may be written down: where it had a password, it names a service of libpq in its place."""
    kept = {key: value for key, value in url.query.items() if key not in _SECRETS}
    if url.password is not None or len(kept) < len(url.query):
        name, _, value = SERVICE.partition("=")
        kept.setdefault(name, value)
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, kept)
    return plain.render_as_string(hide_password=False)


def _detached(engine: Engine) -> Any:
    """A session that no longer belongs to its pool."""
    fairy = engine.raw_connection()
    fairy.detach()
    return fairy.dbapi_connection


class PostgresServer:
    """A URL, and the ways to connect to it."""

    kind: Kind = "postgresql"
    begin = "BEGIN"
    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    commit = "COMMIT"
    commit_and_wake = f"NOTIFY {CHANNEL}; COMMIT"

    def __init__(self, url: URL, *, read_only: bool) -> None:
        self.url = url.set(drivername="postgresql+psycopg")
        self.read_only = read_only
        shown = {key: "***" if key in _SECRETS else value for key, value in url.query.items()}
        self.name = url.set(query=shown).render_as_string(hide_password=True)

    def prepare(self, *, create: bool) -> None:
        """Nothing: the database is made by its administrator."""

    def start(self, cursor: Any) -> None:
        """Begin a transaction that writes; its locks come with its statements."""
        cursor.execute(self.begin)

    def present(self) -> None:
        """Nothing: a session knows its database."""

    def _engine(self, **how: Any) -> Engine:
        session = _SESSION + SERVER_TCP + (" -c default_transaction_read_only=on" if self.read_only else "")
        arguments = {"options": session, "application_name": "opledger", "autocommit": True, **self._tcp()}
        return create_engine(self.url, connect_args=arguments, **how)

    def _tcp(self) -> dict[str, int]:
        return {name: value for name, value in TCP.items() if name not in self.url.query}

    def reading(self) -> Engine:
        """A pool of sessions, each tried before it is used."""
        return self._engine(pool_pre_ping=True)

    def migrating(self) -> Engine:
        """Sessions of their own, for schema changes."""
        return create_engine(self.url, connect_args=self._tcp(), poolclass=NullPool)

    def writing(self, engine: Engine) -> Any:
        """The session for all writes of this process."""
        session = _detached(engine)
        try:
            session.execute(f"SET idle_in_transaction_session_timeout = '{PAUSED}'")
        except BaseException:
            session.close()
            raise
        return session

    def connect(self) -> Any:
        """A session outside the pool, for listening. The caller closes it."""
        return _detached(self._engine(poolclass=NullPool))

    def archiving(self, _connection: Any) -> AbstractContextManager[None]:
        """Nothing: what a login may delete is said by its role."""
        return nullcontext()

    def diagnose(self, error: BaseException, connection: Any) -> trouble.Trouble | None:
        """What an error of the driver means; None for anything else."""
        import psycopg

        error = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        if not isinstance(error, psycopg.Error):
            return None
        closed = bool(getattr(connection, "closed", False))
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return trouble.of_postgres(error, self.name, closed=closed, lost=lost)

    def errors(self) -> tuple[type[Exception], ...]:
        """Everything that the driver raises, and what SQLAlchemy makes of it while it gets to know a new server."""
        import psycopg

        return (psycopg.Error, DBAPIError)
