"""Which version the database's tables have, and how they get the present one.

Opening asks by a plain SELECT; alembic, which takes half a second to import, is loaded only when something must change.

Programs of two versions may work on one ledger while hosts are upgraded one after the other. Beside its version the
database names the oldest schema whose programs may go on (`OLDEST`, written by whoever upgrades). Such a program starts
and runs on tables newer than its own; any other one refuses to start, and stops within seconds where it runs. An
upgrade that would shut out older programs is refused while a worker of one is alive.
"""

from __future__ import annotations

from typing import Any, Final

from opledger.errors import SchemaMismatch, StoreUnavailable
from opledger.store import guards
from opledger.store.share_tables import METADATA  # with all tables
from opledger.store.statements import Kind

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0009", "0010", "0011")
"""Every released schema, oldest first. The last one is what this program reads and writes."""

CURRENT: Final = REVISIONS[-1]
VERSION_TABLE: Final = "opledger_version"
"""Our own name: another program in the same database may use alembic too."""

OLDEST: Final = "0009"
"""The oldest schema whose programs may work on these tables beside this program.

A revision that only adds (tables, indexes, columns that need not be given) leaves it alone. It becomes the new revision
where an older program would misread or spoil what is there: a column that means something else, an event or a state
that it cannot fold, other guards on tables whose guards it knows. Programs before 0007 do not ask for it, and refuse.
"""

ALIVE: Final = 15
"""Seconds for which a sign of life speaks: of a worker that was killed nothing else tells. They come every two."""

PATIENCE: Final = "2s"
"""How long an upgrade on PostgreSQL waits for one lock: who comes after it waits behind it, even to read. A long report
of somebody else would stop every worker for as long as it lasts."""

TRIES: Final = 10
"""How often it then makes way for the others, and begins again."""

_LOCK: Final = 0x6F706C6564676572  # "opledger"


def version(kind: Kind, cursor: Any, name: str) -> str | None:
    """The schema's version, or None for an empty database.

    Raises StoreUnavailable where somebody else's tables stand.
    """
    tables = _tables(kind, cursor)
    if VERSION_TABLE in tables:
        cursor.execute(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
        rows = cursor.fetchall()
        if rows:
            return str(rows[0][0])
    ours = tables & set(METADATA.tables) if kind == "postgresql" else tables - {VERSION_TABLE}
    if ours:
        raise StoreUnavailable(
            f"the database {name} holds other tables ({', '.join(sorted(ours)[:3])}) and no ledger; check the path"
        )
    return None


def _tables(kind: Kind, cursor: Any) -> set[str]:
    if kind == "sqlite":
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    else:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {row[0] for row in cursor.fetchall()}


def oldest(cursor: Any) -> str | None:
    """The oldest schema whose programs may work on these tables; None where nobody has said so."""
    cursor.execute(f"SELECT * FROM {VERSION_TABLE}")  # noqa: S608 - a constant
    names = [column[0] for column in cursor.description]
    rows = cursor.fetchall()
    found = rows[0][names.index("oldest")] if rows and "oldest" in names else None
    return None if found is None else str(found)


def check(found: str | None, name: str, *, may_change: bool, oldest: str | None = None) -> bool:
    """Whether the tables must be made or upgraded before use. `oldest`: see `OLDEST`; a newer schema names it.

    Raises SchemaMismatch where this program cannot use the database as it is, and may not (or cannot) change it.
    """
    if found == CURRENT:
        return False
    if found is not None and found not in REVISIONS:
        if oldest in REVISIONS:
            return False
        raise SchemaMismatch(
            f"the database {name} has schema version {found} and this opledger knows versions up to {CURRENT}: "
            "use the newer opledger that made it (nothing was changed)"
        )
    if may_change:
        return True
    if found is None:
        raise StoreUnavailable(f"the database {name} holds no ledger yet; submit something to make one")
    raise SchemaMismatch(
        f"the database {name} has schema version {found} and this opledger needs {CURRENT}: "
        "open it once for writing to upgrade it"
    )


def stale(kind: Kind, cursor: Any, name: str, *, may_change: bool) -> bool:
    """As `check`, of the database that is asked."""
    found = version(kind, cursor, name)
    newer = found is not None and found not in REVISIONS
    return check(found, name, may_change=may_change, oldest=oldest(cursor) if newer else None)


def migrate(side: Any) -> None:
    """Make or upgrade the tables, in one transaction, under a lock; does nothing if another process was faster.

    Raises SchemaMismatch where this login may not change the schema, and where a worker is alive that could not go on.
    """
    from sqlalchemy.exc import DBAPIError

    for left in reversed(range(TRIES)):
        try:
            _migrate(side)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != "55P03" or not left:
                raise
        else:
            return


def _migrate(side: Any) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.exc import DBAPIError

    engine = side.migrating()
    try:
        with engine.begin() as connection:
            if side.kind == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            cursor = connection.connection.cursor()
            if not stale(side.kind, cursor, side.name, may_change=True):
                return
            _shut_out_nobody(side.kind, cursor, side.name)
            if side.kind == "postgresql":
                cursor.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
            config = Config()
            config.set_main_option("script_location", "opledger.store:migrations")
            config.attributes["connection"] = connection
            command.upgrade(config, CURRENT)
            guards.install(side.kind, connection.exec_driver_sql)
            _name_oldest(side.kind, cursor)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) in {"42501", "25006"}:
            raise SchemaMismatch(
                f"the schema of {side.name} must be brought to version {CURRENT} and this login may not do that: "
                "run `opledger doctor` once with the owner's login (see the README)"
            ) from error
        raise
    finally:
        engine.dispose()


def _shut_out_nobody(kind: Kind, cursor: Any, name: str) -> None:
    """See that no worker is alive which could not go on with the tables as they will be. Raises SchemaMismatch."""
    found = version(kind, cursor, name)
    if found is None or found not in REVISIONS[: REVISIONS.index(OLDEST) if OLDEST in REVISIONS else 0]:
        return
    now = (
        "extract(epoch FROM clock_timestamp()) * 1000000"
        if kind == "postgresql"
        else "(julianday('now') - 2440587.5) * 86400000000"
    )
    cursor.execute(f"SELECT name FROM worker WHERE heartbeat_at > {now} - {ALIVE * 1_000_000} ORDER BY name")  # noqa: S608
    alive = [str(row[0]) for row in cursor.fetchall()]
    if alive:
        raise SchemaMismatch(
            f"the database {name} has schema version {found}, and workers of that older version run on it "
            f"({', '.join(alive[:3])}{', …' if len(alive) > 3 else ''}) which could not go on with version {CURRENT}: "
            f"stop them first. Of one that was killed the last sign of life counts for {ALIVE} seconds"
        )


def _name_oldest(kind: Kind, cursor: Any) -> None:
    cursor.execute(f"SELECT * FROM {VERSION_TABLE}")  # noqa: S608 - a constant
    if "oldest" not in [column[0] for column in cursor.description]:
        cursor.execute(f"ALTER TABLE {VERSION_TABLE} ADD COLUMN oldest VARCHAR(32)")
    cursor.execute(f"UPDATE {VERSION_TABLE} SET oldest = '{OLDEST}'")  # noqa: S608 - constants


def reinstall_guards(side: Any) -> tuple[list[str], list[str]]:
    """Make all guards anew, in one transaction. Returns what was wrong before, and what of that is so still.

    Raises SchemaMismatch for tables of another version: the upgrade makes all guards.
    """
    engine = side.migrating()
    try:
        with engine.begin() as connection:
            cursor = connection.connection.cursor()
            check(version(side.kind, cursor, side.name), side.name, may_change=False)
            were = guards.missing(side.kind, cursor)
            guards.install(side.kind, connection.exec_driver_sql)
            return were, guards.missing(side.kind, cursor)
    finally:
        engine.dispose()
