"""Four PostgreSQL roles, so that nobody who runs a worker can rewrite history (reliability.md, F11).

The owner makes and upgrades the tables. The worker (agents, workers, the receiver of webhooks) adds to the journal and
can never change or remove a row of it; of a record it may change only the columns of the projection that move. The
operator (people, in command line and console) may besides say that a restored backup shall go on, and archive: put up
tombstones, after which the guards let go of what they stand for. The reader only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opledger.store.guards import POSTGRES_FUNCTIONS, REVOKED
from opledger.store.schema import VERSION_TABLE
from opledger.store.tables import METADATA, OPERATION

FIXED: Final = frozenset(
    {
        "operation_id", "short_id", "contract", "request_fingerprint", "idempotency_token", "trace_id", "requested_by",
        "task", "step", "supersedes", "created_at", "create_timeout", "result_timeout", "cancel_timeout",
        "collect_timeout",
    }
)  # fmt: skip
"""Columns of a record that are written once, at submit."""

_MOVING: Final = ", ".join(column.name for column in OPERATION.columns if column.name not in FIXED)

WORKER: Final[Mapping[str, str]] = {
    "acknowledgement": "",
    "allowance": "INSERT, UPDATE",
    "anchored": "INSERT, UPDATE, DELETE",
    "answer": "INSERT",
    "checkpoint": "INSERT",
    "contract": "INSERT",
    "delivery": "INSERT, UPDATE, DELETE",
    "event": "INSERT",
    "leaf": "INSERT",
    "ledger": "INSERT",
    "notice": "INSERT, UPDATE",
    "operation": f"INSERT, UPDATE ({_MOVING})",
    "provider": "INSERT, UPDATE",
    "reach": "INSERT, UPDATE, DELETE",
    "refusal": "INSERT, UPDATE",
    "request": "INSERT",
    "share": "INSERT, UPDATE, DELETE",
    "task_lease": "INSERT, UPDATE",
    "task_record": "INSERT",
    "tombstone": "",
    "worker": "INSERT, UPDATE, DELETE",
}
"""What a worker may do with each table besides reading it. A new table needs its line here."""

OPERATOR: Final[Mapping[str, str]] = {
    "acknowledgement": "INSERT",
    "event": "DELETE",
    "operation": "DELETE",
    "request": "DELETE",
    "tombstone": "INSERT",
}
"""What an operator may do that a worker may not. The guards let only what has a tombstone be deleted."""


def words(table: str, *, archiving: bool = False) -> frozenset[str]:
    """Return which of INSERT, UPDATE and DELETE this program does with a table; for SQLite, which knows no logins."""
    more = OPERATOR.get(table, "") if archiving or OPERATOR.get(table) == "INSERT" else ""
    return frozenset(word for word in ("INSERT", "UPDATE", "DELETE") if word in f"{WORKER[table]} {more}")


def roles_sql(owner: str, worker: str, operator: str, reader: str) -> str:
    """SQL that makes the four roles and grants them what they need, in the current database and schema.

    Run it as a superuser (or as the owner, where the roles exist), after the tables were made. It may be run again at
    any time, and must be after an upgrade that made tables. Passwords are set apart: ``ALTER ROLE … PASSWORD …``.
    Raises ValueError for a name that cannot be one here, or that is given twice.
    """
    roles = (owner, worker, operator, reader)
    for role in roles:
        if roles.count(role) > 1:
            raise ValueError(f"{role!r} is given for two roles")
    tables = sorted(METADATA.tables)
    everything = ", ".join((*tables, VERSION_TABLE))
    owner_, worker_, operator_, reader_ = (_quoted(role) for role in roles)
    others = f"{worker_}, {operator_}, {reader_}"
    statements = [_create(role) for role in roles]
    statements += [f"ALTER TABLE {table} OWNER TO {owner_}" for table in (*tables, VERSION_TABLE)]
    statements += [f"ALTER FUNCTION {name}() OWNER TO {owner_}" for name in POSTGRES_FUNCTIONS]
    statements += [
        f"REVOKE ALL ON {everything} FROM PUBLIC, {others}",
        f"REVOKE UPDATE, DELETE, TRUNCATE ON {', '.join(REVOKED)} FROM {owner_}",
        f"GRANT SELECT ON {everything} TO {others}",
    ]
    for table in tables:
        if WORKER[table]:
            statements.append(f"GRANT {WORKER[table]} ON {table} TO {worker_}, {operator_}")
        if table in OPERATOR:
            statements.append(f"GRANT {OPERATOR[table]} ON {table} TO {operator_}")
    statements += [
        f"DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO {others}', current_schema()); END $$",
        f"DO $$ BEGIN EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO {owner_}', current_schema()); END $$",
    ]
    return ";\n".join(statements) + ";\n"


def _quoted(role: str) -> str:
    """A role as an SQL identifier. Raises ValueError for one that cannot be (or would break out of a string)."""
    if not role or "\0" in role or "'" in role or "$" in role or "%" in role:
        raise ValueError(f"{role!r} cannot be the name of a role here")
    return '"' + role.replace('"', '""') + '"'


def _create(role: str) -> str:
    return (
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') "
        f"THEN CREATE ROLE {_quoted(role)} LOGIN; END IF; END $$"
    )
