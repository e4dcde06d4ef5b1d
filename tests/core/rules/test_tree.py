from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import tree
from opledger.rules.tree import Tree, leaf_hash, leaf_of

#: The leaves and roots that Certificate Transparency's own programs are tested with (RFC 6962 and 9162 agree on them).
LEAVES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def recursive(leaves: list[bytes]) -> bytes:
    """RFC 9162 §2.1.1, word by word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + recursive(leaves[:split]) + recursive(leaves[split:])).digest()


@pytest.mark.parametrize("size", range(9))
def test_the_known_roots(size: int) -> None:
    """Anybody's program for such trees must come to the same root."""
    grown = Tree().add(leaf_hash(data) for data in LEAVES[:size])
    assert grown.root.hex() == ROOTS[size]
    assert recursive(LEAVES[:size]).hex() == ROOTS[size]


@given(st.lists(st.integers(0, 40), max_size=6))
def test_however_it_grows_it_is_the_same_tree(parts: list[int]) -> None:
    """Checkpoints add leaves in any portions, from nothing but the right edge."""
    leaves = [bytes([number]) for number in range(sum(parts))]
    grown, at = Tree(), 0
    for part in parts:
        grown = Tree.of(grown.size, grown.packed).add(leaf_hash(data) for data in leaves[at : at + part])
        at += part
        assert grown.root == recursive(leaves[:at])
        assert grown.size == at


@pytest.mark.parametrize(
    ("size", "peaks", "why"),
    [
        (1, b"", "0 peaks are no tree of 1 leaves"),
        (0, bytes(32), "1 peaks are no tree of 0 leaves"),
        (3, bytes(32), "1 peaks are no tree of 3 leaves"),
        (-1, b"", "0 peaks are no tree of -1 leaves"),
        (-1, bytes(32), "1 peaks are no tree of -1 leaves"),
        (2, bytes(31), "31 bytes are no peaks"),
    ],
)
def test_peaks_that_are_no_tree(size: int, peaks: bytes, why: str) -> None:
    """A damaged right edge is refused, and nothing is built upon it."""
    with pytest.raises(ValueError, match=why):
        Tree.of(size, peaks)


def test_a_peak_is_a_hash() -> None:
    """However the tree was made."""
    with pytest.raises(ValueError, match="1 peaks are no tree of 1 leaves"):
        Tree(1, (bytes(31),))


def test_a_leaf_is_bound_to_all_that_it_says() -> None:
    """Kind, operation, seq and hash: none can be exchanged for another, nor parts be shifted between them."""
    one = leaf_of(tree.HEAD, "op_1", 7, bytes(32))
    assert one == leaf_hash(b"opledger/l1" + (4).to_bytes(8, "big") + b"op_1" + (7).to_bytes(8, "big") + bytes(32))
    stone = leaf_of(tree.TOMBSTONE, "op_1", 7, bytes(32))
    assert stone == leaf_hash(b"opledger/t1" + (4).to_bytes(8, "big") + b"op_1" + (7).to_bytes(8, "big") + bytes(32))
    others = [
        stone,
        leaf_of(tree.HEAD, "op_2", 7, bytes(32)),
        leaf_of(tree.HEAD, "op_1", 8, bytes(32)),
        leaf_of(tree.HEAD, "op_1", 7, b"\1" * 32),
    ]
    assert len({one, *others}) == 5


@pytest.mark.parametrize(("name", "seq"), [("op_1", 0), ("op_1", 2**63 - 1), ("op_\ud800", 1)])
def test_whatever_a_row_can_hold_has_its_leaf(name: str, seq: int) -> None:
    """What somebody meddled with too: it is told of by its hash, not by a crash."""
    raw = name.encode("utf-8", "surrogatepass")
    whole = b"opledger/l1" + len(raw).to_bytes(8, "big") + raw + seq.to_bytes(8, "big") + bytes(32)
    assert leaf_of(tree.HEAD, name, seq, bytes(32)) == leaf_hash(whole)


@pytest.mark.parametrize(
    ("kind", "seq", "digest"),
    [(0, 1, bytes(32)), (3, 1, bytes(32)), (1, -1, bytes(32)), (1, 2**63, bytes(32)), (1, 1, b"")],
)
def test_what_is_no_leaf(kind: int, seq: int, digest: bytes) -> None:
    """A row that was meddled with is no leaf at all."""
    with pytest.raises(ValueError, match="there is no leaf"):
        leaf_of(kind, "op_1", seq, digest)
