"""The first schema: journal, projection, requests, answers, contracts, workers, providers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BYTE_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "contract",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", BYTE_ORDERED, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="contract_key"),
    )
    op.create_table(
        "operation",
        sa.Column("operation_id", BYTE_ORDERED, nullable=False),
        sa.Column("short_id", BYTE_ORDERED, nullable=False),
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("contract_digest", sa.Text(), nullable=False),
        sa.Column("request_fingerprint", sa.Text(), nullable=False),
        sa.Column("idempotency_token", BYTE_ORDERED, nullable=True),
        sa.Column("trace_id", BYTE_ORDERED, nullable=False),
        sa.Column("requested_by", BYTE_ORDERED, nullable=False),
        sa.Column("task", BYTE_ORDERED, nullable=True),
        sa.Column("step", BYTE_ORDERED, nullable=True),
        sa.Column("supersedes", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("state", BYTE_ORDERED, nullable=False),
        sa.Column("remote_job_id", BYTE_ORDERED, nullable=True),
        sa.Column("remote_state", sa.Text(), nullable=True),
        sa.Column("remote_means", sa.Text(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("create_timeout", sa.BigInteger(), nullable=False),
        sa.Column("result_timeout", sa.BigInteger(), nullable=False),
        sa.Column("cancel_timeout", sa.BigInteger(), nullable=False),
        sa.Column("collect_timeout", sa.BigInteger(), nullable=False),
        sa.Column("first_sent_at", sa.BigInteger(), nullable=True),
        sa.Column("last_sent_at", sa.BigInteger(), nullable=True),
        sa.Column("accepted_at", sa.BigInteger(), nullable=True),
        sa.Column("observed_at", sa.BigInteger(), nullable=True),
        sa.Column("create_deadline", sa.BigInteger(), nullable=True),
        sa.Column("result_deadline", sa.BigInteger(), nullable=True),
        sa.Column("cancel_deadline", sa.BigInteger(), nullable=True),
        sa.Column("collect_deadline", sa.BigInteger(), nullable=True),
        sa.Column("approval_deadline", sa.BigInteger(), nullable=True),
        sa.Column("attention_since", sa.BigInteger(), nullable=True),
        sa.Column("next_action_at", sa.BigInteger(), nullable=True),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("next_action", sa.Text(), nullable=True),
        sa.Column("next_because", sa.Text(), nullable=True),
        sa.Column("attention_code", BYTE_ORDERED, nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("lease_owner", BYTE_ORDERED, nullable=True),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_epoch", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("head_seq", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", name="operation_key"),
        sa.ForeignKeyConstraint(["contract_digest"], ["contract.digest"], name="operation_contract_digest_fkey"),
    )
    _partial_index(
        "operation_attention", "operation", ["attention_code", "created_at"], "attention_code IS NOT NULL", unique=False
    )
    op.create_index("operation_created", "operation", ["created_at"])
    _partial_index(
        "operation_deadline", "operation", ["contract", "deadline_at"], "deadline_at IS NOT NULL", unique=False
    )
    _partial_index(
        "operation_due",
        "operation",
        ["contract", "next_action_at"],
        "lease_owner IS NULL AND next_action_at IS NOT NULL",
        unique=False,
    )
    _partial_index(
        "operation_job", "operation", ["remote_job_id", "contract"], "remote_job_id IS NOT NULL", unique=True
    )
    _partial_index(
        "operation_leased",
        "operation",
        ["lease_expires_at", "next_action_at"],
        "lease_owner IS NOT NULL",
        unique=False,
    )
    op.create_index("operation_short", "operation", ["short_id"])
    op.create_index("operation_state", "operation", ["state", "created_at"])
    _partial_index("operation_step", "operation", ["task", "step"], "task IS NOT NULL", unique=True)
    _partial_index(
        "operation_token", "operation", ["idempotency_token", "contract"], "idempotency_token IS NOT NULL", unique=True
    )
    op.create_index("operation_trace", "operation", ["trace_id"])
    op.create_table(
        "request",
        sa.Column("operation_id", BYTE_ORDERED, nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("asked", sa.LargeBinary(), nullable=True),
        sa.Column("fingerprint_url", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("operation_id", name="request_key"),
        sa.ForeignKeyConstraint(["operation_id"], ["operation.operation_id"], name="request_operation_id_fkey"),
    )
    op.create_table(
        "event",
        sa.Column("operation_id", BYTE_ORDERED, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("remote_job_id", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("prev_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("format", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "seq", name="event_key"),
    )
    op.create_table(
        "answer",
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("truncated", sa.SmallInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="answer_key"),
    )
    op.create_table(
        "worker",
        sa.Column("name", BYTE_ORDERED, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("lateness", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="worker_key"),
    )
    op.create_table(
        "provider",
        sa.Column("contract", BYTE_ORDERED, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("contract", name="provider_key"),
    )


def _partial_index(name: str, table: str, columns: list[str], where: str, *, unique: bool) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
