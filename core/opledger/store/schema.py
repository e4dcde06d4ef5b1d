"""Which version the database's tables have, and how they get the present one.

Opening asks by a plain SELECT; alembic, which takes half a second to import, is loaded only when something must change.
"""

from __future__ import annotations

from typing import Any, Final

from opledger.errors import SchemaMismatch, StoreUnavailable
from opledger.store import guards
from opledger.store.statements import Kind
from opledger.store.task_tables import METADATA  # with the tables of tasks

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""Every released schema, oldest first. The last one is what this program reads and writes."""

CURRENT: Final = REVISIONS[-1]
VERSION_TABLE: Final = "opledger_version"
"""Our own name: another program in the same database may use alembic too."""

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


def check(found: str | None, name: str, *, may_change: bool) -> bool:
    """Whether the tables must be made or upgraded before use.

    Raises SchemaMismatch where this program cannot use the database as it is, and may not (or cannot) change it.
    """
    if found == CURRENT:
        return False
    if found is not None and found not in REVISIONS:
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


def migrate(side: Any) -> None:
    """Make or upgrade the tables, in one transaction, under a lock; does nothing if another process was faster.

    Raises SchemaMismatch where this login may not change the schema.
    """
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.exc import DBAPIError

    engine = side.migrating()
    try:
        with engine.begin() as connection:
            if side.kind == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            cursor = connection.connection.cursor()
            if not check(version(side.kind, cursor, side.name), side.name, may_change=True):
                return
            config = Config()
            config.set_main_option("script_location", "opledger.store:migrations")
            config.attributes["connection"] = connection
            command.upgrade(config, CURRENT)
            guards.install(side.kind, connection.exec_driver_sql)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) in {"42501", "25006"}:
            raise SchemaMismatch(
                f"the schema of {side.name} must be brought to version {CURRENT} and this login may not do that: "
                "run `opledger doctor` once with the owner's login (see the README)"
            ) from error
        raise
    finally:
        engine.dispose()


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
