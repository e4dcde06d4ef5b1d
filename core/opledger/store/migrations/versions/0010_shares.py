"""What a contract allows at a time and in a second is shared by all workers: who has how much of it now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

BYTE_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "allowance",
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("tat", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("contract", name="allowance_key"),
    )
    op.create_table(
        "share",
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("owner", BYTE_ORDERED, nullable=False),
        sa.Column("slots", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("wants_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("contract", "owner", name="share_key"),
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
        EXECUTE format('GRANT SELECT ON allowance, share TO %I', role.name);
        IF role.adds THEN
            EXECUTE format('GRANT INSERT, UPDATE ON allowance, share TO %I', role.name);
            EXECUTE format('GRANT DELETE ON share TO %I', role.name);
        END IF;
    END LOOP;
END $$
"""
