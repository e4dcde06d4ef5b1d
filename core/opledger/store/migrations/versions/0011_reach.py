"""How each worker fares with each provider is known to all: that only fails for one is not the provider's trouble."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

BYTE_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "reach",
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("owner", BYTE_ORDERED, nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=True),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("told_at", sa.BigInteger(), nullable=True),
        sa.Column("worked_at", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("aside_since", sa.BigInteger(), nullable=True),
        sa.Column("aside_until", sa.BigInteger(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("contract", "owner", name="reach_key"),
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
        EXECUTE format('GRANT SELECT ON reach TO %I', role.name);
        IF role.adds THEN
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON reach TO %I', role.name);
        END IF;
    END LOOP;
END $$
"""
