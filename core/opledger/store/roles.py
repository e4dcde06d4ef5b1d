"""Three PostgreSQL roles, so that nobody who runs a worker can rewrite history (reliability.md, F11).

The owner makes and upgrades the tables. The worker (agents, workers, consoles) adds to the journal and can never change
or remove a row of it; of a record it may change only the columns of the projection that move. The reader only reads.
"""

from __future__ import annotations

from typing import Final

from opledger.store.guards import APPEND_ONLY, POSTGRES_FUNCTIONS
from opledger.store.schema import VERSION_TABLE
from opledger.store.tables import METADATA, OPERATION

_FIXED: Final = frozenset(
    {
        "operation_id", "short_id", "contract", "request_fingerprint", "idempotency_token", "trace_id", "requested_by",
        "task", "step", "supersedes", "created_at", "create_timeout", "result_timeout", "cancel_timeout",
        "collect_timeout",
    }
)  # fmt: skip
"""Columns of a record that are written once, at submit."""

_APPENDED: Final = (
    "event", "request", "answer", "contract", "ledger", "leaf", "checkpoint", "acknowledgement", "tombstone",
    "task_record",
)  # fmt: skip
_KEPT: Final = ("operation", "worker", "provider", "notice", "delivery", "refusal", "anchored", "task_lease")


def roles_sql(owner: str, worker: str, reader: str) -> str:
    """SQL that makes the three roles and grants them what they need, in the current database and schema.

    Run it as a superuser (or as the owner, where the roles exist), after the tables were made. It may be run again at
    any time. Passwords are set apart: ``ALTER ROLE … PASSWORD …``.
    """
    tables = sorted(METADATA.tables)
    everything = ", ".join(tables)
    moving = ", ".join(column.name for column in OPERATION.columns if column.name not in _FIXED)
    owner_, worker_, reader_ = (_quoted(role) for role in (owner, worker, reader))
    statements = [_create(role) for role in (owner, worker, reader)]
    statements += [f"ALTER TABLE {table} OWNER TO {owner_}" for table in (*tables, VERSION_TABLE)]
    statements += [
        *(f"ALTER FUNCTION {name}() OWNER TO {owner_}" for name in POSTGRES_FUNCTIONS),
        f"REVOKE ALL ON {everything}, {VERSION_TABLE} FROM PUBLIC, {worker_}, {reader_}",
        f"REVOKE UPDATE, DELETE, TRUNCATE ON {', '.join(APPEND_ONLY)} FROM {owner_}",
        f"GRANT SELECT ON {everything}, {VERSION_TABLE} TO {worker_}, {reader_}",
        f"GRANT INSERT ON {', '.join((*_APPENDED, *_KEPT))} TO {worker_}",
        f"GRANT UPDATE ({moving}) ON operation TO {worker_}",
        f"GRANT UPDATE, DELETE ON worker, delivery, anchored TO {worker_}",
        f"GRANT UPDATE ON provider, notice, refusal, task_lease TO {worker_}",
        f"DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO {worker_}, {reader_}', current_schema()); END $$",
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
