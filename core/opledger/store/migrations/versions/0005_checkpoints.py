"""Signed checkpoints: what the ledger is called, the leaves of its tree, the notes; acknowledgements and tombstones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BYTE_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _tree()
    _papers()
    if op.get_context().dialect.name == "postgresql":
        # Where a worker's login has been given its rights by the script of roles, it goes on after the upgrade. Who may
        # acknowledge and archive is for that script to say.
        op.execute(_GRANTS)


def _tree() -> None:
    op.create_table(
        "ledger",
        sa.Column("one", ROW_NUMBER, autoincrement=False, nullable=False),
        sa.Column("ledger_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("one", name="ledger_key"),
    )
    op.create_table(
        "leaf",
        sa.Column("number", ROW_NUMBER, autoincrement=False, nullable=False),
        sa.Column("operation_id", BYTE_ORDERED, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="leaf_key"),
    )
    op.create_table(
        "anchored",
        sa.Column("operation_id", BYTE_ORDERED, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("leaf", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", name="anchored_key"),
    )
    op.create_table(
        "checkpoint",
        sa.Column("number", ROW_NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("operations", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.LargeBinary(), nullable=False),
        sa.Column("peaks", sa.LargeBinary(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="checkpoint_key"),
    )
    op.create_index("checkpoint_size", "checkpoint", ["size"])


def _papers() -> None:
    op.create_table(
        "acknowledgement",
        sa.Column("abandoned_to", ROW_NUMBER, autoincrement=False, nullable=False),
        sa.Column("abandoned_from", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("abandoned_to", name="acknowledgement_key"),
    )
    op.create_table(
        "tombstone",
        sa.Column("operation_id", BYTE_ORDERED, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.LargeBinary(), nullable=False),
        sa.Column("state", BYTE_ORDERED, nullable=False),
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("idempotency_token", BYTE_ORDERED, nullable=True),
        sa.Column("remote_job_id", BYTE_ORDERED, nullable=True),
        sa.Column("task", BYTE_ORDERED, nullable=True),
        sa.Column("step", BYTE_ORDERED, nullable=True),
        sa.Column("archived_at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("file_sha256", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", name="tombstone_key"),
    )
    for name, columns, where in (
        ("tombstone_token", ["idempotency_token", "contract"], "idempotency_token IS NOT NULL"),
        ("tombstone_job", ["remote_job_id", "contract"], "remote_job_id IS NOT NULL"),
        ("tombstone_step", ["task", "step"], "task IS NOT NULL"),
    ):
        only = sa.text(where)
        op.create_index(name, "tombstone", columns, sqlite_where=only, postgresql_where=only)
    op.create_index("tombstone_archived", "tombstone", ["archived_at"])


_GRANTS = """
DO $$
DECLARE
    role record;
    names text := 'ledger, leaf, anchored, checkpoint, acknowledgement, tombstone';
BEGIN
    FOR role IN
        SELECT r.rolname AS name, bool_or(a.privilege_type = 'INSERT') AS adds
        FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.oid = to_regclass('event') AND a.grantee <> c.relowner AND a.privilege_type IN ('SELECT', 'INSERT')
        GROUP BY r.rolname
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', names, role.name);
        IF role.adds THEN
            EXECUTE format('GRANT INSERT ON ledger, leaf, anchored, checkpoint TO %I', role.name);
            EXECUTE format('GRANT UPDATE, DELETE ON anchored TO %I', role.name);
        END IF;
    END LOOP;
END $$
"""
