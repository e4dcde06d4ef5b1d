"""The tables of agent tasks, beside those of the ledger in `tables`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, LargeBinary, Table, Text
from sqlmodel import Field

from opledger.store.tables import METADATA, Base, ByteOrdered

__all__ = ["METADATA", "TASK_LEASE", "TASK_RECORD", "TaskLeaseRow", "TaskRecordRow"]


class TaskRecordRow(Base, table=True):
    """One line of a progress file, byte for byte, and its parts as columns. Only ever added."""

    __tablename__ = "task_record"

    task: str = Field(sa_type=ByteOrdered, primary_key=True)
    seq: int = Field(sa_type=BigInteger, primary_key=True)
    run: str = Field(sa_type=ByteOrdered)
    at: int = Field(sa_type=BigInteger)
    actor: str = Field(sa_type=Text)
    step: str | None = Field(sa_type=ByteOrdered)
    kind: str = Field(sa_type=Text)
    place: str = Field(sa_type=Text)  #: at which progress file it was written
    body: bytes = Field(sa_type=LargeBinary)


class TaskLeaseRow(Base, table=True):
    """Who runs a task; the row is made with the first record, and locked for every further one."""

    __tablename__ = "task_lease"

    task: str = Field(sa_type=ByteOrdered, primary_key=True)
    run: str = Field(sa_type=ByteOrdered)
    owner: str | None = Field(sa_type=Text)
    place: str | None = Field(sa_type=Text)
    epoch: int = Field(sa_type=BigInteger)
    expires_at: int | None = Field(sa_type=BigInteger)


TASK_RECORD: Final[Table] = METADATA.tables["task_record"]
TASK_LEASE: Final[Table] = METADATA.tables["task_lease"]
