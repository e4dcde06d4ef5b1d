"""Deliveries of webhooks, each once; and how often which kind was refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

BYTE_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "delivery",
        sa.Column("delivery_id", BYTE_ORDERED, nullable=False),
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("dedupe_key", BYTE_ORDERED, nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=True),
        sa.Column("job_id", BYTE_ORDERED, nullable=True),
        sa.Column("token", BYTE_ORDERED, nullable=True),
        sa.Column("operation_id", BYTE_ORDERED, nullable=True),
        sa.Column("matched_at", sa.BigInteger(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("body_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("delivery_id", name="delivery_key"),
    )
    op.create_index("delivery_once", "delivery", ["contract", "dedupe_key"], unique=True)
    op.create_index("delivery_received", "delivery", ["received_at"])
    for name, column, where in (
        ("delivery_parked", "received_at", "operation_id IS NULL"),
        ("delivery_operation", "operation_id", "operation_id IS NOT NULL"),
    ):
        only = sa.text(where)
        op.create_index(name, "delivery", [column], sqlite_where=only, postgresql_where=only)
    op.create_table(
        "refusal",
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("kind", BYTE_ORDERED, nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("contract", "kind", name="refusal_key"),
    )
