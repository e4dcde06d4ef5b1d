"""The tables of what all workers share of a contract's limits, beside those of the ledger and of tasks."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Table
from sqlmodel import Field

from opledger.store.tables import Base, ByteOrdered
from opledger.store.task_tables import METADATA

__all__ = ["ALLOWANCE", "METADATA", "SHARE", "AllowanceRow", "ShareRow"]


class AllowanceRow(Base, table=True):
    """What a contract with limits allows: its row is locked by whoever settles shares of it, and holds the bucket."""

    __tablename__ = "allowance"

    contract: str = Field(sa_type=ByteOrdered, primary_key=True)
    tat: int = Field(sa_type=BigInteger)  #: until when the rate is used up: `rules.sharing`


class ShareRow(Base, table=True):
    """The open calls of a contract that one worker may have now. Gone within seconds where nobody renews it."""

    __tablename__ = "share"

    contract: str = Field(sa_type=ByteOrdered, primary_key=True)
    owner: str = Field(sa_type=ByteOrdered, primary_key=True)
    slots: int = Field(sa_type=BigInteger)
    since: int | None = Field(sa_type=BigInteger)  #: since when it has any
    wants_at: int | None = Field(sa_type=BigInteger)  #: since when it wants more
    expires_at: int = Field(sa_type=BigInteger)


ALLOWANCE: Final[Table] = METADATA.tables["allowance"]
SHARE: Final[Table] = METADATA.tables["share"]
