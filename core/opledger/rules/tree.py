"""The tree over all leaves of a ledger: RFC 9162 §2.1, SHA-256, with a domain of its own for leaves and for nodes.

Only the right edge is kept (its peaks: the roots of the full subtrees, largest first), so that leaves are added at a
cost that does not depend on how many there are already. A leaf is the head of an operation's chain, or the tombstone
of an operation that was archived.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

HEAD: Final = 1
TOMBSTONE: Final = 2
"""Kinds of leaves."""

EMPTY: Final = sha256(b"").digest()
"""The root of a tree without leaves."""

_DOMAINS: Final = {HEAD: b"\x00opledger/l1", TOMBSTONE: b"\x00opledger/t1"}
"""What a leaf begins with, behind the byte that tells leaves from nodes."""

_MOST: Final = 1 << 63


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf with these bytes (RFC 9162 §2.1.1)."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node over two others."""
    return sha256(b"\x01" + left + right).digest()


def leaf_of(kind: int, operation_id: str, seq: int, digest: bytes) -> bytes:
    """Return the hash of the leaf of an operation: of its head (`HEAD`) or of its tombstone (`TOMBSTONE`).

    Raises ValueError for another kind, and for a number or a digest that does not fit.
    """
    domain = _DOMAINS.get(kind)
    if domain is None or len(digest) != 32 or not 0 <= seq < _MOST:
        raise ValueError(f"there is no leaf of kind {kind} with seq {seq} and a digest of {len(digest)} bytes")
    name = operation_id.encode("utf-8", "surrogatepass")  # what was tampered with may be no UTF-8
    return sha256(b"".join((domain, len(name).to_bytes(8), name, seq.to_bytes(8), digest))).digest()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of `size` leaves, known by its peaks. Raises ValueError where their number does not fit the size."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.peaks) != self.size.bit_count() or any(len(peak) != 32 for peak in self.peaks):
            raise ValueError(f"{len(self.peaks)} peaks are no tree of {self.size} leaves")

    @classmethod
    def of(cls, size: int, peaks: bytes) -> Tree:
        """Read what `packed` wrote. Raises ValueError where it does not fit."""
        if len(peaks) % 32:
            raise ValueError(f"{len(peaks)} bytes are no peaks of a tree")
        return cls(size, tuple(peaks[at : at + 32] for at in range(0, len(peaks), 32)))

    @property
    def packed(self) -> bytes:
        """The peaks as bytes, largest first."""
        return b"".join(self.peaks)

    @property
    def root(self) -> bytes:
        """The hash of the whole tree."""
        if not self.peaks:
            return EMPTY
        found = self.peaks[-1]
        for peak in self.peaks[-2::-1]:
            found = node_hash(peak, found)
        return found

    def add(self, leaves: Iterable[bytes]) -> Tree:
        """Return the tree with more leaves, given by their hashes."""
        size, peaks = self.size, list(self.peaks)
        for leaf in leaves:
            found, full = leaf, size
            while full & 1:
                found = sha256(b"\x01" + peaks.pop() + found).digest()
                full >>= 1
            peaks.append(found)
            size += 1
        return Tree(size, tuple(peaks))
