"""What is left of an operation that was archived, and the digest by which a leaf of the tree holds it."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, NamedTuple

from opledger.rules import jsontext

DOMAIN: Final = b"opledger/tombstone1"


class Tombstone(NamedTuple):
    """One row of the table, its columns in order; `archived_at` in microseconds since 1970, hashes as 32 bytes."""

    operation_id: str
    seq: int
    head_hash: bytes
    state: str
    contract: str
    idempotency_token: str | None
    remote_job_id: str | None
    task: str | None
    step: str | None
    archived_at: int
    by: str
    reason: str
    file: str
    file_sha256: bytes

    def shape(self) -> dict[str, Any]:
        """The row as JSON holds it: bytes as hex."""
        return {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in zip(self._fields, self, strict=True)
        }

    def digest(self) -> bytes:
        """SHA-256 over the domain ``opledger/tombstone1`` and all columns: compact JSON, keys sorted, UTF-8.

        Raises ValueError for what the database may hold and no tombstone of ours has.
        """
        return sha256(DOMAIN + jsontext.dumps(self.shape())).digest()
