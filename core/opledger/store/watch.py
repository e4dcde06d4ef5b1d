"""Waiting until another connection has written, without asking the tables.

SQLite tells by a counter (`PRAGMA data_version`), which is looked at every few milliseconds; PostgreSQL tells by
NOTIFY. A watch remembers what it has seen: a change between two waits ends the second one at once.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import Any, Final

from opledger.errors import StoreUnavailable
from opledger.store import trouble
from opledger.store.engine import Database
from opledger.store.postgres import CHANNEL, PostgresServer
from opledger.store.sqlite import SqliteFile

LOOK: Final = 0.02
"""Seconds between two looks at SQLite's counter: 3 µs each, a sixth of a thousandth of a core."""

SLICE: Final = 0.25
"""Seconds that a wait for PostgreSQL lasts before `stop` is looked at again."""


class FileWatch:
    """Watches an SQLite file."""

    def __init__(self, database: Database, side: SqliteFile, *, others_only: bool) -> None:
        self._database = database
        self._side = side
        self._others_only = others_only
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        # Whoever closes the store is another thread than the one that waits; SQLite crashes the process where a
        # connection is closed under a statement.
        self._using = threading.RLock()
        self._closed = False

    def wait(self, timeout: float, stop: threading.Event) -> bool:
        """True once something was written since the last wait; False after `timeout` seconds or when `stop` is set."""
        for _ in range(max(1, round(timeout / LOOK))):
            if self._changed():
                return True
            if stop.wait(LOOK) or self._closed:
                return False
        return self._changed()

    def _changed(self) -> bool:
        seen, self._seen = self._seen, self._counter()
        # A new watch cannot know what it missed; better one look too many.
        return seen != self._seen

    def _counter(self) -> int:
        """A number that changes with every commit of another connection than the one that is asked."""
        if self._others_only:
            return self._database.with_writer(_data_version)
        with self._using:
            if self._closed:
                raise StoreUnavailable(f"{self._side.name} was closed here while somebody waited for it")
            try:
                if self._connection is None:
                    self._connection = self._side.connect(writing=False)
                return _data_version(self._connection)
            except sqlite3.Error as error:
                self._drop()
                raise StoreUnavailable(trouble.of_sqlite(error, self._side.name).sentence) from error

    def close(self) -> None:
        """Close the connection for good; a thread that waits stops waiting."""
        with self._using:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection, self._seen = None, None


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


class ServerWatch:
    """Watches a PostgreSQL database."""

    def __init__(self, database: Database, side: PostgresServer, *, others_only: bool) -> None:
        self._database = database
        self._side = side
        self._others_only = others_only
        self._connection: Any = None

    def wait(self, timeout: float, stop: threading.Event) -> bool:
        """True once something was written since the last wait; False after `timeout` seconds or when `stop` is set."""
        try:
            if self._connection is None:
                self._connection = self._side.connect()
                self._connection.execute(f"LISTEN {CHANNEL}")
                return True  # whatever was written before we listened
            slices = max(1, round(timeout / SLICE))
            for _ in range(slices):
                if stop.is_set():
                    return False
                if self._told(timeout / slices):
                    return True
        except self._side.errors() as error:
            found = self._side.diagnose(error, self._connection)
            self.close()
            raise StoreUnavailable(str(error) if found is None else found.sentence) from error
        return False

    def _told(self, seconds: float) -> bool:
        news = [*self._connection.notifies(timeout=seconds, stop_after=1)]
        news += self._connection.notifies(timeout=0)  # one look is enough for all that came meanwhile
        return any(not self._others_only or one.pid != self._database.writer_pid for one in news)

    def close(self) -> None:
        """Close the session."""
        if self._connection is not None:
            with contextlib.suppress(*self._side.errors()):
                self._connection.close()
            self._connection = None


Watch = FileWatch | ServerWatch


def watch(database: Database, *, others_only: bool) -> Watch:
    """A watch for the database at hand; with `others_only`, of what was written past it."""
    side = database.side
    if isinstance(side, SqliteFile):
        return FileWatch(database, side, others_only=others_only)
    return ServerWatch(database, side, others_only=others_only)
