"""URL -> `Database`: a writer that commits in whole transactions, and a pool of readers.

One connection per process writes, under a lock, so that a batch is one transaction and one fsync. A transaction is a
function of a `Tx`; it is run again as a whole when another process was in the way. After an uncertain commit nothing
is returned before the database itself has said, on a new connection, whether the commit went through (I29).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import ClauseElement, Engine, bindparam, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from opledger.errors import ConfigWrong, IntegrityBroken, OpledgerError, StoreUnavailable
from opledger.store import guards, schema, selftest
from opledger.store.postgres import PostgresServer, plain_url
from opledger.store.selftest import Tried
from opledger.store.sqlite import SqliteFile
from opledger.store.statements import Prepared, Tongue, Tx
from opledger.store.tables import EVENT, OPERATION
from opledger.store.trouble import Remedy, Trouble

T = TypeVar("T")
Work = Callable[[Tx], T]

TRIES: Final = 5
"""How often a write is tried as a whole. On SQLite each try waits two seconds for the lock."""


def open_database(url: str, *, read_only: bool = False, create: bool = True) -> Database:
    """Open a ledger's database, and make or upgrade its tables where that is needed and allowed.

    `url` is ``sqlite:///relative``, ``sqlite:////absolute`` or ``postgresql://…``. With `create=False` nothing is
    made. A read-only database is only read, whatever its state.
    Raises ConfigWrong for another kind of URL, StoreUnavailable where the database cannot be used, SchemaMismatch
    where another version of opledger made it, and IntegrityBroken where its guards were removed or changed.
    """
    side = _side(url, read_only=read_only)
    side.prepare(create=create)
    database = Database(side)
    try:
        database.start(create=create)
    except BaseException:
        database.close()
        raise
    return database


def restore_guards(url: str) -> list[str]:
    """Make the journal's guards anew, after somebody has found out why they were gone; what was wrong with them.

    Needs the owner's login on PostgreSQL. Raises StoreUnavailable and ConfigWrong as `open_database` does, and
    IntegrityBroken where triggers or rules of somebody else are in the way, which are left for a person to remove.
    """
    side = _side(url, read_only=False)
    side.prepare(create=False)
    try:
        were, left = schema.reinstall_guards(side)
    except DBAPIError as error:
        cause = error.orig or error
        trouble = side.diagnose(cause, None)
        if trouble is None:
            raise
        raise StoreUnavailable(trouble.sentence) from error
    if left:
        raise IntegrityBroken(
            f"the guards of the journal in {side.name} were made anew, and {', '.join(left)}: remove that "
            "with the tools of the database, as its owner"
        )
    return were


def without_secrets(url: str) -> str | None:
    """Return a PostgreSQL URL that may be written down, see `postgres.plain_url`; None for SQLite.

    Raises ConfigWrong for another kind of URL.
    """
    side = _side(url, read_only=True)
    return None if isinstance(side, SqliteFile) else plain_url(side.url)


def _side(url: str, *, read_only: bool) -> SqliteFile | PostgresServer:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigWrong(
            "OPLEDGER_DB (or --db) is no database URL; write sqlite:///path or postgresql://host/name"
        ) from None
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite":
        return SqliteFile(_path(parsed), read_only=read_only)
    if backend in {"postgresql", "postgres"}:
        return PostgresServer(parsed, read_only=read_only)
    raise ConfigWrong(f"opledger cannot use a {backend} database; write sqlite:///path or postgresql://host/name")


def _path(url: URL) -> Path:
    if not url.database or url.database == ":memory:":
        raise ConfigWrong("a database in memory would forget what it promised; name a file: sqlite:///path")
    return Path(url.database)


class Database:
    """An open database. Safe to use from several threads; close it when done."""

    def __init__(self, side: SqliteFile | PostgresServer) -> None:
        self.side = side
        self.kind = side.kind
        self.name = side.name
        self.read_only = side.read_only
        self.tongue = Tongue(side.kind)
        self.events = 0  #: journal rows that this process has written
        self._known: dict[Any, Prepared] = {}
        self._lock = threading.Lock()
        self._writer: Any = None
        self._readers: Engine | None = None

    def start(self, *, create: bool) -> None:
        """Connect, and see that tables and guards are as they must be. Called once, by `open_database`."""
        with self._readable():
            self._readers = self.side.reading()
            may_change = create and not self.read_only
            if self._on_reader(lambda cursor: self._stale(cursor, may_change=may_change)):
                schema.migrate(self.side)
            if not self.read_only:
                self._check_guards()

    def self_test(self) -> Tried:
        """Try what must not work on this database and with this login, without changing anything.

        Raises IntegrityBroken where something of it works, StoreUnavailable where it cannot be tried.
        """
        with self._readable():
            self._check_guards()
            side = self.side
            tried = selftest.try_file(side) if isinstance(side, SqliteFile) else self._on_reader(selftest.try_server)
            if tried.open:
                whom = "this program" if tried.login is None else f"the login {tried.login}"
                raise IntegrityBroken(
                    f"the history in {self.name} is not safe from {whom}, which could run {'; '.join(tried.open[:3])} "
                    "(it was undone): find out who altered rights or guards; `opledger doctor --roles` prints the "
                    "rights that each login should have"
                )
            return tried

    def _check_guards(self) -> None:
        gone = self._on_reader(lambda cursor: guards.missing(self.kind, cursor))
        if gone:
            raise IntegrityBroken(
                f"the guards of the journal in {self.name} were removed or changed ({', '.join(gone)}): find out by "
                "whom, see with `opledger audit verify --full` what was changed meanwhile, then make them anew, with "
                "the owner's login: opledger doctor --guards"
            )

    def _stale(self, cursor: Any, *, may_change: bool) -> bool:
        return schema.stale(self.kind, cursor, self.name, may_change=may_change)

    def check_version(self) -> None:
        """See that nobody has upgraded the tables to what this program cannot use. Raises SchemaMismatch."""
        with self._readable():
            self._on_reader(lambda cursor: self._stale(cursor, may_change=False))

    def close(self) -> None:
        """Close all connections. The database can't be used afterwards."""
        with self._lock:
            self._drop_writer()
            if self._readers is not None:
                self._readers.dispose()
                self._readers = None

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction that holds its locks from the start, and commit it durably.

        `work` may run several times; it must not touch anything but its `Tx`. When this returns, what it wrote is on
        disk; when it raises, nothing of it is, or (after a lost connection) nobody knows and the message says so.
        Raises StoreUnavailable, and whatever `work` raises.
        """
        if self.read_only:
            raise StoreUnavailable(f"the database {self.name} was opened for reading only; nothing was written")
        with self._lock:
            for left in reversed(range(TRIES)):
                try:
                    return self._once(work)
                except Exception as error:
                    trouble = self._diagnose(error, self._writer)
                    if trouble is None:
                        raise
                    unreachable = trouble.remedy is Remedy.RECONNECT and self._writer is None
                    if trouble.remedy is not Remedy.AGAIN:
                        self._drop_writer()
                    if trouble.remedy is Remedy.GIVE_UP or unreachable or left == 0:
                        raise StoreUnavailable(trouble.sentence) from error
        raise AssertionError("unreachable")  # pragma: no cover

    def archive(self, work: Work[T]) -> T:
        """As `write`, and `work` may also delete what a tombstone stands for; the guards refuse everything else."""

        def let_go(tx: Tx) -> T:
            with self.side.archiving(tx.cursor.connection):  # type: ignore[attr-defined]
                return work(tx)

        return self.write(let_go)

    def with_writer(self, ask: Callable[[Any], T]) -> T:
        """Ask something of the writing connection between two transactions. Raises StoreUnavailable."""
        with self._readable(), self._lock:
            if self._writer is None:
                self._writer = self.side.writing(self._ready())
            return ask(self._writer)

    @property
    def writer_pid(self) -> int | None:
        """The server process behind the writing connection; None on SQLite, and while there is none."""
        info = getattr(self._writer, "info", None)
        return None if info is None else info.backend_pid

    def _once(self, work: Work[T]) -> T:
        self.side.present()
        if self._writer is None:
            self._writer = self.side.writing(self._ready())
        cursor = self._writer.cursor()
        try:
            self._begin(cursor)
            tx = Tx(cursor, self.tongue, self._known)
            try:
                result = work(tx)
            except BaseException:
                self._roll_back(cursor)
                raise
            self._commit(cursor, tx)
            self.events += tx.events
            return result
        finally:
            self._close(cursor)

    def _begin(self, cursor: Any) -> None:
        try:
            self.side.start(cursor)
        except Exception:
            raise
        except BaseException:  # somebody pressed Ctrl-C: it may have begun all the same
            self._roll_back(cursor)
            raise

    def _close(self, cursor: Any) -> None:
        # Before its connection: an SQLite connection that is closed under a cursor keeps its locks.
        with contextlib.suppress(*self.side.errors()):
            cursor.close()

    def _commit(self, cursor: Any, tx: Tx) -> None:
        try:
            cursor.execute(self.side.commit_and_wake if tx.wakes else self.side.commit)
        except BaseException as error:
            trouble = self._diagnose(error, self._writer)
            self._close(cursor)
            self._drop_writer()  # whatever it thinks of its state, nobody may build on it
            if trouble is None or trouble.remedy is Remedy.AGAIN:
                raise
            unsure = f"{trouble.sentence}; it broke during a commit, so read the records again before acting on them"
            if trouble.remedy is Remedy.GIVE_UP or tx.proof is None:
                raise StoreUnavailable(unsure) from error
            if not self._landed(tx.proof, unsure):
                raise  # certainly not stored: the whole transaction may be tried again

    def _landed(self, proof: tuple[str, int, bytes], unsure: str) -> bool:
        """Ask on a new connection whether a commit whose answer was lost went through."""
        operation_id, seq, digest = proof
        try:
            self._writer = self.side.writing(self._ready())
            cursor = self._writer.cursor()
            self.side.start(cursor)
            tx = Tx(cursor, self.tongue, self._known)
            # The lock waits for the old session, should it still be at work on that commit.
            tx.all(_lock_operation, operation_id=operation_id)
            found = tx.one(_hash_of, operation_id=operation_id, seq=seq)
            cursor.execute("ROLLBACK")
            cursor.close()
        except BaseException as error:
            trouble = self._diagnose(error, self._writer)
            self._drop_writer()
            if trouble is None:
                raise
            raise StoreUnavailable(unsure) from error
        return found is not None and bytes(found[0]) == digest

    def _roll_back(self, cursor: Any) -> None:
        try:
            cursor.execute("ROLLBACK")
        except self.side.errors():
            self._close(cursor)
            self._drop_writer()

    def _drop_writer(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(*self.side.errors()):
                self._writer.close()
            self._writer = None

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run `work`, which only reads, on a pooled connection.

        With `snapshot=True` all its statements see the database at one moment. Raises StoreUnavailable, and whatever
        `work` raises.
        """

        def reading(cursor: Any) -> T:
            if not snapshot:
                return work(Tx(cursor, self.tongue, self._known))
            cursor.execute(self.side.begin_reading)
            try:
                return work(Tx(cursor, self.tongue, self._known))
            finally:
                cursor.execute("ROLLBACK")

        with self._readable():
            return self._on_reader(reading)

    def _ready(self) -> Engine:
        if self._readers is None:
            raise StoreUnavailable(f"the database {self.name} is closed")
        return self._readers

    def _on_reader(self, work: Callable[[Any], T]) -> T:
        self.side.present()
        connection = self._ready().raw_connection()
        try:
            cursor = connection.cursor()
            try:
                return work(cursor)
            finally:
                cursor.close()
        except OpledgerError:
            raise
        except BaseException:
            connection.invalidate()  # it may be in the middle of a statement
            raise
        finally:
            connection.close()

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise StoreUnavailable(f"all connections to {self.name} are busy; try again") from error
        except Exception as error:
            trouble = self._diagnose(error, None)
            if trouble is None:
                raise
            raise StoreUnavailable(trouble.sentence) from error

    def _diagnose(self, error: BaseException, connection: Any) -> Trouble | None:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        return self.side.diagnose(cause, connection)


def _lock_operation(_: Tongue) -> ClauseElement:
    id_ = OPERATION.c.operation_id
    return select(id_).where(id_ == bindparam("operation_id")).with_for_update()


def _hash_of(_: Tongue) -> ClauseElement:
    return select(EVENT.c.hash).where(
        EVENT.c.operation_id == bindparam("operation_id"), EVENT.c.seq == bindparam("seq")
    )
