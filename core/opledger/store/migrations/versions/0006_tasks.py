"""Agent tasks: their records, append-only as the journal is, and the leases of their runners."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BYTE_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "task_record",
        sa.Column("task", BYTE_ORDERED, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("run", BYTE_ORDERED, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("step", BYTE_ORDERED, nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task", "seq", name="task_record_key"),
    )
    op.create_table(
        "task_lease",
        sa.Column("task", BYTE_ORDERED, nullable=False),
        sa.Column("run", BYTE_ORDERED, nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("place", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("task", name="task_lease_key"),
    )
    if op.get_context().dialect.name == "postgresql":
        # Where a worker's login has been given its rights by the script of roles, it goes on after the upgrade.
        op.execute(_GRANTS)


_GRANTS = """
DO $$
DECLARE
    role record;
BEGIN
    FOR role IN
        SELECT r.rolname AS name, bool_or(a.privilege_type = 'INSERT') AS adds
        FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.oid = to_regclass('event') AND a.grantee <> c.relowner AND a.privilege_type IN ('SELECT', 'INSERT')
        GROUP BY r.rolname
    LOOP
        EXECUTE format('GRANT SELECT ON task_record, task_lease TO %I', role.name);
        IF role.adds THEN
            EXECUTE format('GRANT INSERT ON task_record, task_lease TO %I', role.name);
            EXECUTE format('GRANT UPDATE ON task_lease TO %I', role.name);
        END IF;
    END LOOP;
END $$
"""
