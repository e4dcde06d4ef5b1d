"""The tables of what all workers share of a contract's limits and know of its provider, beside those of the ledger."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Table, Text
from sqlmodel import Field

from opledger.store.tables import Base, ByteOrdered
from opledger.store.task_tables import METADATA

__all__ = ["ALLOWANCE", "METADATA", "REACH", "SHARE", "AllowanceRow", "ReachRow", "ShareRow"]


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


class ReachRow(Base, table=True):
    """How one worker fares with one provider that somebody has trouble with. No row: all is well, or unknown."""

    __tablename__ = "reach"

    contract: str = Field(sa_type=ByteOrdered, primary_key=True)
    owner: str = Field(sa_type=ByteOrdered, primary_key=True)
    failures: int | None = Field(sa_type=BigInteger)  #: in a row, since anybody's last success
    since: int | None = Field(sa_type=BigInteger)
    told_at: int | None = Field(sa_type=BigInteger)  #: since when others can know of them
    worked_at: int | None = Field(sa_type=BigInteger)
    at: int = Field(sa_type=BigInteger)
    aside_since: int | None = Field(sa_type=BigInteger)
    aside_until: int | None = Field(sa_type=BigInteger)  #: until when it leaves the provider to the others
    why: str | None = Field(sa_type=Text)


ALLOWANCE: Final[Table] = METADATA.tables["allowance"]
SHARE: Final[Table] = METADATA.tables["share"]
REACH: Final[Table] = METADATA.tables["reach"]
