"""The tables, as SQLModel classes. Rows never leave this package: people and rules get `Operation` and friends.

Times are whole microseconds since 1970-01-01T00:00Z, which both databases hold exactly. Text that is compared or
ordered is ordered by code point on both. Hot paths use the Core tables (`EVENT`, `OPERATION` …), never an ORM session.

Two things that the columns do not say:

- `event` is a plain rowid table on SQLite although its key is (operation_id, seq). Measured with nine events an
  operation: clustering by key (WITHOUT ROWID) costs twice the time and a tenth more space, because every poll then
  dirties a page of its own instead of sharing the last one.
- `operation_due` holds only unleased rows and `operation_leased` only leased ones, so that a claim reads the rows it
  takes and nothing that waits.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Index, Integer, LargeBinary, MetaData, SmallInteger, Table, Text, text
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

NAMING = {
    "ix": "%(table_name)s_%(column_0_N_name)s",
    "uq": "%(table_name)s_%(column_0_N_name)s_unique",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "pk": "%(table_name)s_key",
}
"""A name for every constraint, so that migrations can find it again on both databases."""

ByteOrdered = Text().with_variant(Text(collation="C"), "postgresql")
"""Text in code point order: what SQLite does anyway, and what Python's own sort does."""


DUE = "lease_owner IS NULL AND next_action_at IS NOT NULL"
"""The rows that a worker may take some time without anybody giving up a lease."""


class Base(SQLModel, registry=registry(metadata=MetaData(naming_convention=NAMING))):
    """Our own metadata, so that a program that uses SQLModel itself does not mix its tables with ours."""

    model_config = {"defer_build": True}  #: no validators, which nobody calls: they would slow every start


def _index(name: str, *columns: str, where: str | None = None, unique: bool = False) -> Index:
    """An index over `columns`, on both databases only of the rows for which `where` holds; see `whole`."""
    condition = None if where is None else text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition)


class EventRow(Base, table=True):
    """One thing that happened. Rows are only ever added; guards in the database refuse everything else."""

    __tablename__ = "event"
    # Only where rows have no numbers of their own; of the order of the pages, so that an insert pays next to nothing.
    __table_args__ = (Index("event_at", "at").ddl_if(dialect="postgresql"),)

    operation_id: str = Field(sa_type=ByteOrdered, primary_key=True)
    seq: int = Field(sa_type=BigInteger, primary_key=True)
    at: int = Field(sa_type=BigInteger)
    actor: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    from_state: str | None = Field(sa_type=Text)
    to_state: str | None = Field(sa_type=Text)
    cause: str = Field(sa_type=Text)
    reason: str | None = Field(sa_type=Text)
    remote_job_id: str | None = Field(sa_type=Text)
    body: bytes = Field(sa_type=LargeBinary)
    prev_hash: bytes = Field(sa_type=LargeBinary)
    hash: bytes = Field(sa_type=LargeBinary)
    format: int = Field(sa_type=SmallInteger)


class OperationRow(Base, table=True):
    """The projection of one operation's events; `facts` holds, as compact JSON, what nobody searches by."""

    __tablename__ = "operation"
    __table_args__ = (
        _index("operation_due", "contract", "next_action_at", where=DUE),
        _index("operation_leased", "lease_expires_at", "next_action_at", where="lease_owner IS NOT NULL"),
        _index("operation_deadline", "contract", "deadline_at", where="deadline_at IS NOT NULL"),
        _index("operation_job", "remote_job_id", "contract", where="remote_job_id IS NOT NULL", unique=True),
        _index("operation_token", "idempotency_token", "contract", where="idempotency_token IS NOT NULL", unique=True),
        _index("operation_step", "task", "step", where="task IS NOT NULL", unique=True),
        _index("operation_attention", "attention_code", "created_at", where="attention_code IS NOT NULL"),
        _index("operation_state", "state", "created_at"),
        _index("operation_created", "created_at"),
        _index("operation_contract", "contract", "created_at"),
        _index("operation_requested", "requested_by", "created_at"),
        _index("operation_short", "short_id"),
        _index("operation_trace", "trace_id"),
    )

    operation_id: str = Field(sa_type=ByteOrdered, primary_key=True)
    short_id: str = Field(sa_type=ByteOrdered)  #: the last eight characters, which is what people see and type
    contract: str = Field(sa_type=ByteOrdered)
    contract_digest: str = Field(sa_type=Text, foreign_key="contract.digest")
    request_fingerprint: str = Field(sa_type=Text)
    idempotency_token: str | None = Field(sa_type=ByteOrdered)
    trace_id: str = Field(sa_type=ByteOrdered)
    requested_by: str = Field(sa_type=ByteOrdered)
    task: str | None = Field(sa_type=ByteOrdered)
    step: str | None = Field(sa_type=ByteOrdered)
    supersedes: str | None = Field(sa_type=Text)
    tags: str | None = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)

    state: str = Field(sa_type=ByteOrdered)
    remote_job_id: str | None = Field(sa_type=ByteOrdered)
    remote_state: str | None = Field(sa_type=Text)
    remote_means: str | None = Field(sa_type=Text)
    last_error: str | None = Field(sa_type=Text)

    create_timeout: int = Field(sa_type=BigInteger)
    result_timeout: int = Field(sa_type=BigInteger)
    cancel_timeout: int = Field(sa_type=BigInteger)
    collect_timeout: int = Field(sa_type=BigInteger)

    first_sent_at: int | None = Field(sa_type=BigInteger)
    last_sent_at: int | None = Field(sa_type=BigInteger)
    accepted_at: int | None = Field(sa_type=BigInteger)
    observed_at: int | None = Field(sa_type=BigInteger)
    create_deadline: int | None = Field(sa_type=BigInteger)
    result_deadline: int | None = Field(sa_type=BigInteger)
    cancel_deadline: int | None = Field(sa_type=BigInteger)
    collect_deadline: int | None = Field(sa_type=BigInteger)
    approval_deadline: int | None = Field(sa_type=BigInteger)
    attention_since: int | None = Field(sa_type=BigInteger)
    next_action_at: int | None = Field(sa_type=BigInteger)

    deadline_at: int | None = Field(sa_type=BigInteger)  #: the deadline that counts in the present state
    next_action: str | None = Field(sa_type=Text)
    next_because: str | None = Field(sa_type=Text)
    attention_code: str | None = Field(sa_type=ByteOrdered)

    facts: str = Field(sa_type=Text)

    lease_owner: str | None = Field(sa_type=ByteOrdered)
    lease_expires_at: int | None = Field(sa_type=BigInteger)
    lease_epoch: int = Field(sa_type=BigInteger)

    version: int = Field(sa_type=BigInteger)
    head_seq: int = Field(sa_type=BigInteger)
    head_hash: bytes = Field(sa_type=LargeBinary)


class RequestRow(Base, table=True):
    """The create request, written once at submit and resent as stored; apart, so that polls do not rewrite it."""

    __tablename__ = "request"

    operation_id: str = Field(sa_type=ByteOrdered, primary_key=True, foreign_key="operation.operation_id")
    method: str = Field(sa_type=Text)
    url: str = Field(sa_type=Text)
    headers: str = Field(sa_type=Text)
    content_type: str | None = Field(sa_type=Text)
    body: bytes = Field(sa_type=LargeBinary)
    asked: bytes | None = Field(sa_type=LargeBinary)  #: NULL: the same as `body`
    fingerprint_url: str | None = Field(sa_type=Text)  #: NULL: the same as `url`


class AnswerRow(Base, table=True):
    """A provider's answer, stored once however often it came."""

    __tablename__ = "answer"

    sha256: bytes = Field(sa_type=LargeBinary, primary_key=True)
    content_type: str | None = Field(sa_type=Text)
    size: int = Field(sa_type=BigInteger)
    truncated: int = Field(sa_type=SmallInteger)
    body: bytes = Field(sa_type=LargeBinary)


class ContractRow(Base, table=True):
    """The text of every contract version that an operation was ever submitted under."""

    __tablename__ = "contract"

    digest: str = Field(sa_type=Text, primary_key=True)
    name: str = Field(sa_type=ByteOrdered)
    source: str = Field(sa_type=Text)
    environment: str = Field(sa_type=Text)


class WorkerRow(Base, table=True):
    """A worker and its last sign of life."""

    __tablename__ = "worker"

    name: str = Field(sa_type=ByteOrdered, primary_key=True)
    host: str = Field(sa_type=Text)
    pid: int = Field(sa_type=BigInteger)
    started_at: int = Field(sa_type=BigInteger)
    heartbeat_at: int = Field(sa_type=BigInteger)
    lateness: int = Field(sa_type=BigInteger)  #: microseconds between due and sent, as the worker measured it


class ProviderRow(Base, table=True):
    """Whether calls to a provider are stopped, by whom and why. No row: never paused."""

    __tablename__ = "provider"

    contract: str = Field(sa_type=ByteOrdered, primary_key=True)
    state: str = Field(sa_type=Text)  #: open or paused
    by: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)
    since: int = Field(sa_type=BigInteger)


class NoticeRow(Base, table=True):
    """What one target has been told of one escalation: an outbox that is swept, never written by the hot path."""

    __tablename__ = "notice"
    __table_args__ = (_index("notice_due", "target", "due_at", where="due_at IS NOT NULL"),)

    subject: str = Field(sa_type=ByteOrdered, primary_key=True)  #: an operation id, or provider:NAME
    code: str = Field(sa_type=ByteOrdered, primary_key=True)
    since: int = Field(sa_type=BigInteger, primary_key=True)
    target: str = Field(sa_type=ByteOrdered, primary_key=True)  #: a name; its URL is a secret and stands nowhere here
    first_seen: int = Field(sa_type=BigInteger)
    state: str = Field(sa_type=Text)
    due_at: int | None = Field(sa_type=BigInteger)  #: when to look again; while it is being sent, when that lapses
    severity: str | None = Field(sa_type=Text)
    rounds: int = Field(sa_type=BigInteger)
    attempts: int = Field(sa_type=BigInteger)
    sent_at: int | None = Field(sa_type=BigInteger)
    last_error: str | None = Field(sa_type=Text)
    claimed_by: str | None = Field(sa_type=Text)


class DeliveryRow(Base, table=True):
    """A webhook's delivery, kept so that it counts once however often it comes; without an operation it is parked."""

    __tablename__ = "delivery"
    __table_args__ = (
        _index("delivery_once", "contract", "dedupe_key", unique=True),
        _index("delivery_received", "received_at"),
        _index("delivery_parked", "received_at", where="operation_id IS NULL"),
        _index("delivery_operation", "operation_id", where="operation_id IS NOT NULL"),
    )

    delivery_id: str = Field(sa_type=ByteOrdered, primary_key=True)
    contract: str = Field(sa_type=ByteOrdered)
    dedupe_key: str = Field(sa_type=ByteOrdered)
    received_at: int = Field(sa_type=BigInteger)
    event_type: str | None = Field(sa_type=Text)
    job_id: str | None = Field(sa_type=ByteOrdered)
    token: str | None = Field(sa_type=ByteOrdered)
    operation_id: str | None = Field(sa_type=ByteOrdered)
    matched_at: int | None = Field(sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)  #: bytes that came
    body_sha256: bytes = Field(sa_type=LargeBinary)  #: over `body`
    body: bytes | None = Field(sa_type=LargeBinary)  #: NULL once an event cites it: then it is an answer


class RefusalRow(Base, table=True):
    """How often deliveries were refused for one reason; of contracts that nobody knows all together."""

    __tablename__ = "refusal"

    contract: str = Field(sa_type=ByteOrdered, primary_key=True)
    kind: str = Field(sa_type=ByteOrdered, primary_key=True)
    times: int = Field(sa_type=BigInteger)
    first_at: int = Field(sa_type=BigInteger)
    last_at: int = Field(sa_type=BigInteger)


# --- checkpoints -------------------------------------------------------------------------------------------------
# Of a table that only grows the key is the only unique index: REPLACE removes, past every trigger, what another one
# clashes with.

RowNumber = BigInteger().with_variant(Integer, "sqlite")
"""A key that counts: on SQLite the row's own number, which needs no index besides."""


class LedgerRow(Base, table=True):
    """What this ledger is called outside. One row, made by the first worker that writes a checkpoint."""

    __tablename__ = "ledger"

    one: int = Field(sa_type=RowNumber, primary_key=True)  #: always 1
    ledger_id: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    public_key: str = Field(sa_type=Text)  #: of the first key, as base64; only compared, never trusted


class LeafRow(Base, table=True):
    """A leaf of the tree: how far the chain of one operation had come, or that it was archived. Only ever added."""

    __tablename__ = "leaf"

    number: int = Field(sa_type=RowNumber, primary_key=True)  #: from 0
    operation_id: str = Field(sa_type=ByteOrdered)
    seq: int = Field(sa_type=BigInteger)
    hash: bytes = Field(sa_type=LargeBinary)  #: of the event with that seq, or of the tombstone
    kind: int = Field(sa_type=SmallInteger)  #: 1 a head, 2 a tombstone


class AnchoredRow(Base, table=True):
    """The newest leaf of an operation: what the checkpointer goes by. Nobody who verifies trusts it."""

    __tablename__ = "anchored"

    operation_id: str = Field(sa_type=ByteOrdered, primary_key=True)
    seq: int = Field(sa_type=BigInteger)
    leaf: int = Field(sa_type=BigInteger)


class CheckpointRow(Base, table=True):
    """A signed note over all leaves so far, and its parts as columns. Only ever added."""

    __tablename__ = "checkpoint"
    __table_args__ = (_index("checkpoint_size", "size"),)

    number: int = Field(sa_type=RowNumber, primary_key=True)  #: from 1
    at: int = Field(sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)  #: leaves
    operations: int = Field(sa_type=BigInteger)
    events: int = Field(sa_type=BigInteger)  #: journal rows that the leaves cover
    epoch: int = Field(sa_type=BigInteger)  #: highest fence that was seen
    root: bytes = Field(sa_type=LargeBinary)
    previous: bytes = Field(sa_type=LargeBinary)  #: hash of the note before; 32 zero bytes in front of the first
    note: str = Field(sa_type=Text)
    hash: bytes = Field(sa_type=LargeBinary)  #: SHA-256 of the note
    key_id: bytes = Field(sa_type=LargeBinary)
    peaks: bytes = Field(sa_type=LargeBinary)  #: right edge of the tree, so that leaves can be added without the others
    mark: int = Field(sa_type=BigInteger)  #: SQLite: row number of the last journal row seen; PostgreSQL: its time


class AcknowledgementRow(Base, table=True):
    """A person has said that the database is older than its anchors, and that it shall go on. Only ever added."""

    __tablename__ = "acknowledgement"

    abandoned_to: int = Field(sa_type=RowNumber, primary_key=True)  #: number of the newest checkpoint that is given up
    abandoned_from: int = Field(sa_type=BigInteger)
    at: int = Field(sa_type=BigInteger)
    by: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)
    epoch: int = Field(sa_type=BigInteger)  #: highest fence of what is given up
    hash: bytes = Field(sa_type=LargeBinary)  #: of the newest note that is given up


class TombstoneRow(Base, table=True):
    """What is left of an operation that was archived. Only ever added; it must name the head of a chain."""

    __tablename__ = "tombstone"
    __table_args__ = (
        _index("tombstone_token", "idempotency_token", "contract", where="idempotency_token IS NOT NULL"),
        _index("tombstone_job", "remote_job_id", "contract", where="remote_job_id IS NOT NULL"),
        _index("tombstone_step", "task", "step", where="task IS NOT NULL"),
        _index("tombstone_archived", "archived_at"),
    )

    operation_id: str = Field(sa_type=ByteOrdered, primary_key=True)
    seq: int = Field(sa_type=BigInteger)
    head_hash: bytes = Field(sa_type=LargeBinary)
    state: str = Field(sa_type=ByteOrdered)
    contract: str = Field(sa_type=ByteOrdered)
    idempotency_token: str | None = Field(sa_type=ByteOrdered)
    remote_job_id: str | None = Field(sa_type=ByteOrdered)
    task: str | None = Field(sa_type=ByteOrdered)
    step: str | None = Field(sa_type=ByteOrdered)
    archived_at: int = Field(sa_type=BigInteger)
    by: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)
    file: str = Field(sa_type=Text)
    file_sha256: bytes = Field(sa_type=LargeBinary)


METADATA: MetaData = Base.metadata
EVENT: Table = METADATA.tables["event"]
OPERATION: Table = METADATA.tables["operation"]
REQUEST: Table = METADATA.tables["request"]
ANSWER: Table = METADATA.tables["answer"]
CONTRACT: Table = METADATA.tables["contract"]
WORKER: Table = METADATA.tables["worker"]
PROVIDER: Table = METADATA.tables["provider"]
NOTICE: Table = METADATA.tables["notice"]
DELIVERY: Table = METADATA.tables["delivery"]
REFUSAL: Table = METADATA.tables["refusal"]
LEDGER: Table = METADATA.tables["ledger"]
LEAF: Table = METADATA.tables["leaf"]
ANCHORED: Table = METADATA.tables["anchored"]
CHECKPOINT: Table = METADATA.tables["checkpoint"]
ACKNOWLEDGEMENT: Table = METADATA.tables["acknowledgement"]
TOMBSTONE: Table = METADATA.tables["tombstone"]


def whole() -> MetaData:
    """The tables with what only PostgreSQL is to know of their indexes: for whoever makes or compares a schema.

    Nobody else needs it, and SQLAlchemy loads the dialect, with all its drivers, for the mere naming of it.
    """
    for table in METADATA.tables.values():
        for index in table.indexes:
            if index.name == "event_at":
                index.dialect_kwargs["postgresql_using"] = "brin"
            else:
                index.dialect_kwargs["postgresql_where"] = index.dialect_kwargs["sqlite_where"]
    return METADATA
