"""The bytes of events, packed: they come back bit for bit, and every change to what is kept is seen."""

from __future__ import annotations

import zlib
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.store.packing import DICTIONARY, LONGEST, MARK, pack, unpack

POLL = (
    b'{"actor":{"host":"vm","kind":"worker","name":"bench-257b5d","process":"20163@20261130T200139Z"},'
    b'"at":"2026-11-30T20:01:55.006143Z","cause":"call:call_d3ea547e970f82994a6a","data":{"answer":'
    b'"fb3a715cae1646af31184c0c018d87ecd9cf8d5b29f2889a3e9f73b67def8ddb","call_id":"call_d3ea547e970f82994a6a",'
    b'"job_id":"job_8","means":"running","progress":{"completed":2,"total":5},"remote_state":"running","status":200},'
    b'"format":1,"from":null,"kind":"Observed","next":{"at":"2026-11-30T20:01:55.056143Z","because":'
    b'"backoff 50 ms after 1 poll","kind":"observe"},"operation_id":"op_01M8Q0RYFS3286ESBH7GT7NESM","reason":null,'
    b'"remote_job_id":"job_8","seq":5,"to":null}'
)


KEPT = (
    "0100befb3a715cae1646af31184c0c018d87ecd9cf8d5b29f2889a3e9f73b67def8ddbc38cf9b25cdc719f949a979ca16b64"
    "6a9e649a82920e8c0c0ccd8c49490ca67a0606668626c6d813438a716aa2a98979aaa5b9419a8591a5a549a2592271090487"
    "4e9460b02025d51851a5bc2033cd0043c914164a38ea0758a201a71992924c50a45bb0b19185996bb09387b97b88b99f6bb0"
    "2f51c908147ee084648a94900056296d6b"
)
"""How `POLL` was kept by the first version that packed."""


def test_what_was_packed_once_can_be_read_for_ever() -> None:
    """The dictionary is part of every ledger; another one needs another mark."""
    assert sha256(DICTIONARY).hexdigest() == "518cdd8e12c1c696cd0e4730c0a767643efc34635d58f2ad2bfcf969c6354373"
    assert unpack(bytes.fromhex(KEPT)) == POLL


def test_a_poll_takes_less_than_a_third() -> None:
    """Which is what this is for."""
    assert len(pack(POLL)) * 3 < len(POLL)


pieces = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b'"' + b"0af9" * 16 + b'"', b'"call:call_', b'"remote_state":"running"', b"{", b"\x01", b'""']),
    st.integers(0, len(DICTIONARY)).map(lambda at: DICTIONARY[at : at + 90]),
)


@given(st.lists(pieces, max_size=12).map(b"".join))
def test_every_body_comes_back(body: bytes) -> None:
    """Also bytes that are no event; `MARK` begins no body."""
    assert unpack(pack(b"{" + body)) == b"{" + body


@pytest.mark.parametrize("size", [0, 1, LONGEST - 1, LONGEST, LONGEST + 1, 10 * LONGEST])
def test_long_and_short(size: int) -> None:
    """What is too long is kept as it is."""
    body = b"{" + b"a" * size
    assert unpack(pack(body)) == body
    assert (pack(body) == body) == (len(body) > LONGEST or len(body) < 6)


def test_each_bit_counts() -> None:
    """A bit that is another makes other bytes, also where it would unpack to the same."""
    kept = pack(POLL)
    for place in range(len(kept) * 8):
        damaged = bytearray(kept)
        damaged[place // 8] ^= 1 << place % 8
        assert unpack(bytes(damaged)) != POLL, place
    for cut in range(len(kept)):
        assert unpack(kept[:cut]) != POLL
        assert unpack(kept[:cut] + b"\0" + kept[cut:]) != POLL


@given(st.binary(max_size=80))
def test_what_somebody_else_wrote_is_left_as_it_is(found: bytes) -> None:
    """Whoever verifies finds that its hash fits nothing."""
    assert unpack(MARK + found) == MARK + found


def test_a_bomb_is_not_unpacked() -> None:
    """No more than the longest body is ever made of it, also where its checksum was made to fit."""
    writer = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = b"\0\0" + writer.compress(bytes(50_000_000)) + writer.flush()
    bomb = MARK + packed + zlib.crc32(packed).to_bytes(4, "big")
    assert unpack(bomb) is bomb


def test_columns_of_another_type_are_left_alone() -> None:
    """SQLite keeps whatever is put into a column."""
    for found in (None, 1, "text", 1.5):
        assert unpack(found) is found
