"""Notices: what each target has been told of each escalation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BYTE_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "notice",
        sa.Column("subject", BYTE_ORDERED, nullable=False),
        sa.Column("code", BYTE_ORDERED, nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("target", BYTE_ORDERED, nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("severity", sa.Text(), nullable=True),
        sa.Column("rounds", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("subject", "code", "since", "target", name="notice_key"),
    )
    planned = sa.text("due_at IS NOT NULL")
    op.create_index("notice_due", "notice", ["target", "due_at"], sqlite_where=planned, postgresql_where=planned)
