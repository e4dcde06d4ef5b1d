"""Indexes for people who look at a great many operations; over columns that never change, so that polls pay nothing."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("operation_contract", "operation", ["contract", "created_at"])
    op.create_index("operation_requested", "operation", ["requested_by", "created_at"])
