"""One SQLite file: how it is made, opened and kept honest.

``synchronous=FULL`` is no taste: with NORMAL, half of all acknowledged commits were lost in replayed power cuts
(reliability.md, F1). It is set and read back on every connection.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from opledger.errors import DatabaseReplaced, StoreUnavailable
from opledger.store import roles, trouble
from opledger.store.statements import Kind
from opledger.store.tables import METADATA

BUSY_MS: Final = 2_000
"""How long one try waits for the write lock. A write is tried several times, so a caller waits longer than this."""

AGAIN_MS: Final = 0.5
"""How long to sleep before asking for the write lock again."""

OLDEST: Final = (3, 37, 0)
"""RETURNING, partial indexes and STRICT behaviour that the store relies on."""

_PRAGMAS: Final = {
    "synchronous": 2,  # FULL
    "foreign_keys": 1,
    "recursive_triggers": 1,  # REPLACE fires the delete trigger too
    "trusted_schema": 0,  # a schema from elsewhere may not call functions with side effects
    "cell_size_check": 1,
}

_READABLE: Final = frozenset({*_PRAGMAS, "data_version", "journal_mode", "query_only", "read_uncommitted"})

_ACTIONS: Final = {
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
}
_MAY: Final = {table: roles.words(table) for table in METADATA.tables}
_MAY_WHILE_ARCHIVING: Final = {table: roles.words(table, archiving=True) for table in METADATA.tables}


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow what opledger does and nothing else: no lost history, no schema changes, no ATTACH, no pragma that sets."""
    return _judge(_MAY, action, first, second)


def _authorize_archiving(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Besides, let go of what a tombstone stands for; that it does, the guards see to."""
    return _judge(_MAY_WHILE_ARCHIVING, action, first, second)


def _judge(may: Mapping[str, frozenset[str]], action: int, first: str | None, second: str | None) -> int:
    if action in _ACTIONS:
        allowed = _ACTIONS[action] in may.get(first or "", ()) and not (
            action == sqlite3.SQLITE_UPDATE and first == "operation" and second in roles.FIXED
        )
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = second is None and first in _READABLE
    elif action == sqlite3.SQLITE_FUNCTION:
        allowed = second != "load_extension"
    else:
        allowed = action in _HARMLESS
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


_HARMLESS: Final = frozenset(
    {sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_RECURSIVE}
)


class SqliteFile:
    """A path, and the ways to connect to it."""

    kind: Kind = "sqlite"
    begin = "BEGIN IMMEDIATE"  # read first and write later is refused at once under load, whatever the timeout (B44)
    begin_reading = "BEGIN"
    commit = "COMMIT"
    commit_and_wake = "COMMIT"  # waiters see the file change

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.name = str(path)
        self._immutable = False
        self._identity: tuple[int, int] | None = None

    def prepare(self, *, create: bool) -> None:
        """Make the file where it may be made.

        Raises StoreUnavailable where there is none and none may be made, or this SQLite is too old.
        """
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old: this Python needs 3.37 or newer")
        try:
            found = self.path.exists()
            if not found and create and not self.read_only:
                self._make()
                found = True
        except OSError as error:
            raise StoreUnavailable(
                f"the database {self.name} cannot be made ({error.strerror}); choose another path"
            ) from error
        if not found:
            raise StoreUnavailable(
                f"there is no database at {self.name}; check the path, or submit something to make one"
            )

    def start(self, cursor: sqlite3.Cursor) -> None:
        """Begin a transaction that writes, and wait for its lock where another process has it.

        SQLite's own wait grows to a tenth of a second, and whoever commits often has the lock again long before it is
        over: beside one busy worker, a submit took up to 1.6 s. Asked twice a millisecond, nobody waits for long.
        Raises sqlite3.OperationalError once it took longer than `BUSY_MS`.
        """
        for left in reversed(range(round(BUSY_MS / AGAIN_MS))):
            try:
                cursor.execute(self.begin)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not left:
                    raise
            time.sleep(AGAIN_MS / 1_000)

    def present(self) -> None:
        """Check that the path still leads to the file that was opened.

        SQLite would go on writing into a file that was removed or replaced, and acknowledge what nobody can find
        again. Raises DatabaseReplaced, or StoreUnavailable where its folder is away, which may pass.
        """
        try:
            status = self.path.stat()
        except OSError as error:
            if self._identity is not None and isinstance(error, FileNotFoundError) and self.path.parent.is_dir():
                raise DatabaseReplaced(
                    f"the database {self.name} was removed or renamed while it was open; put that very file back "
                    "(and what lies beside it, -wal and -shm), or a backup, and start again"
                ) from error
            raise StoreUnavailable(f"the database {self.name} is gone; put it back or restart") from error
        identity = (status.st_dev, status.st_ino)
        if self._identity is None:
            self._identity = identity
        if self._identity != identity:
            raise DatabaseReplaced(
                f"the database {self.name} was replaced by another file while it was open; find out by whom, "
                "bring back the right one, and start again"
            )

    def _make(self) -> None:
        for folder in reversed([self.path.parent, *self.path.parent.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
                folder.chmod(0o700)  # a umask can take bits of our own away
        try:
            number = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileExistsError:
            return  # another process was faster
        try:
            os.fchmod(number, 0o600)  # SQLite gives the files beside it the same mode
        finally:
            os.close(number)
        folder_fd = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder_fd)  # or a power cut could lose the file with everything acknowledged in it
        finally:
            os.close(folder_fd)

    def connect(self, *, writing: bool, guarded: bool = True) -> sqlite3.Connection:
        """A new connection with every setting checked. `guarded=False` is for migrations only."""
        mode = "mode=rw" if not self.read_only else "mode=ro&immutable=1" if self._immutable else "mode=ro"
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{mode}",
            timeout=BUSY_MS / 1_000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            uri=True,
        )
        try:
            self._settle(connection, writing=writing, guarded=guarded)
        except BaseException:
            connection.close()
            raise
        return connection

    def _settle(self, connection: sqlite3.Connection, *, writing: bool, guarded: bool) -> None:
        if not self.read_only:
            # Counts only while the file is empty. Journal rows are a fifth of 4096 bytes long: larger pages waste less.
            connection.execute("PRAGMA page_size=8192")
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(
                    f"the database {self.name} cannot keep a write-ahead log ({mode}); put it on a local disk"
                )
        for pragma, value in _PRAGMAS.items():
            connection.execute(f"PRAGMA {pragma}={value}")
            found = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
            if found != value:
                raise StoreUnavailable(
                    f"SQLite keeps {pragma} at {found} instead of {value}; use another build of SQLite"
                )
        if writing:
            connection.execute("PRAGMA cache_size=-16000")  # 16 MB: the pages that a batch of polls touches
            connection.execute("PRAGMA wal_autocheckpoint=1000")
            connection.execute("PRAGMA journal_size_limit=67108864")
        else:
            connection.execute("PRAGMA query_only=1")
        if guarded:
            # The first use of json_each declares a table inside SQLite; later ones declare nothing.
            connection.execute("SELECT count(*) FROM json_each('[]')").fetchone()
        if writing:
            connection.execute("PRAGMA busy_timeout=0")  # the wait for the lock is that of `start`
        if guarded:
            connection.set_authorizer(_authorize)

    def reading(self) -> Engine:
        """A pool of connections that cannot write."""
        if self.read_only:
            self._choose_mode()
        return create_engine(
            "sqlite://", creator=lambda: self.connect(writing=False), poolclass=QueuePool, pool_reset_on_return=None
        )

    def _choose_mode(self) -> None:
        # A file in write-ahead mode needs its side files even for reading. On a read-only medium they cannot be made;
        # but without a log there is nothing to miss, and the file may be read as it lies.
        try:
            self._probe()
        except sqlite3.OperationalError:
            log = self.path.with_name(self.path.name + "-wal")
            if os.access(self.path.parent, os.W_OK) or (log.exists() and log.stat().st_size > 0):
                raise
            self._immutable = True
            self._probe()

    def _probe(self) -> None:
        connection = self.connect(writing=False)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()

    def migrating(self) -> Engine:
        """Connections without an authorizer, whose transactions hold the write lock from the start."""
        engine = create_engine(
            "sqlite://", creator=lambda: self.connect(writing=True, guarded=False), poolclass=NullPool
        )
        event.listen(engine, "begin", lambda connection: self.start(connection.connection.cursor()))
        return engine

    def writing(self, _engine: Engine) -> sqlite3.Connection:
        """The connection for all writes of this process."""
        return self.connect(writing=True)

    @contextmanager
    def archiving(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Let a connection delete what has a tombstone, for as long as this lasts."""
        connection.set_authorizer(_authorize_archiving)  # SQLite then asks anew for every statement that is kept
        try:
            yield
        finally:
            with suppress(sqlite3.ProgrammingError):  # it was closed
                connection.set_authorizer(_authorize)

    def diagnose(self, error: BaseException, _connection: Any) -> trouble.Trouble | None:
        """What an error of the driver means; None for anything else."""
        return trouble.of_sqlite(error, self.name) if isinstance(error, sqlite3.Error) else None

    def errors(self) -> tuple[type[Exception], ...]:
        """Everything that the driver raises."""
        return (sqlite3.Error,)
