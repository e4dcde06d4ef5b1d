"""Indexes for people who look at a great many operations; over columns that never change, so that polls pay nothing.

PostgreSQL numbers no rows, so the tail of the journal is found by time: an index of one entry for every 32 pages.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("operation_contract", "operation", ["contract", "created_at"])
    op.create_index("operation_requested", "operation", ["requested_by", "created_at"])
    if op.get_context().dialect.name == "postgresql":
        options = {"pages_per_range": 32, "autosummarize": "on"}
        op.create_index("event_at", "event", ["at"], postgresql_using="brin", postgresql_with=options)
