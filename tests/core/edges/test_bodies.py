from __future__ import annotations

import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.edges.bodies import MAX_HEADER_BYTES, MAX_HEADERS, STEP, Unpacker, Unusable, header_map

DATA = st.binary(max_size=300) | st.integers(0, 200_000).map(bytes)
CODINGS = st.sampled_from(["identity", "gzip", "deflate", "raw"])


def packed(data: bytes, coding: str) -> bytes:
    """Pack as servers do; two members for gzip, which is one body."""
    if coding == "gzip":
        return gzip.compress(data[:10], mtime=0) + gzip.compress(data[10:], mtime=0)
    if coding == "identity":
        return data
    return zlib.compress(data, wbits=-15 if coding == "raw" else 15)


def unpacked(wire: bytes, coding: str, cuts: list[int], limit: int) -> bytes:
    """Unpack bytes cut at the given places."""
    unpacker = Unpacker({"content-encoding": coding.replace("raw", "deflate")}, limit)
    places = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    pieces = [piece for a, b in itertools.pairwise(places) for piece in unpacker.feed(wire[a:b])]
    unpacker.finish()
    assert coding == "identity" or all(len(piece) <= STEP for piece in pieces)
    assert unpacker.size == sum(map(len, pieces))
    return b"".join(pieces)


@given(DATA, CODINGS, st.lists(st.integers(0, 10_000), max_size=5))
def test_what_was_packed_is_unpacked_however_it_was_cut(data: bytes, coding: str, cuts: list[int]) -> None:
    """The network cuts where it likes, and steps never grow beyond their bound."""
    wire = packed(data, coding)
    assert unpacked(wire, coding, cuts, max(len(data), len(wire))) == data


def test_a_step_that_ends_at_its_bound_is_not_the_end() -> None:
    """The last bytes can wait inside of zlib when all input is taken."""
    for size in range(STEP - 5, STEP + 300):
        assert unpacked(packed(bytes(size), "raw"), "raw", [], 10**6) == bytes(size)


@given(DATA, CODINGS, st.lists(st.integers(0, 10_000), max_size=3))
def test_one_byte_over_the_limit_is_too_much(data: bytes, coding: str, cuts: list[int]) -> None:
    """The limit is counted on the wire and unpacked, so that neither kind of bomb goes through."""
    wire = packed(data, coding)
    limit = max(len(data), len(wire)) - 1
    if limit >= 0:
        with pytest.raises(Unusable, match=f"larger than {limit} bytes"):
            unpacked(wire, coding, cuts, limit)


@given(st.binary(min_size=1, max_size=200), st.sampled_from(["gzip", "deflate", "raw"]), st.integers(1, 300))
def test_a_cut_packing_is_never_whole(data: bytes, coding: str, cut: int) -> None:
    """A packing knows its own end; without it the rest is missing."""
    wire = packed(data, coding)
    shorter = wire[: -(cut % len(wire)) or len(wire) - 1]
    if coding == "gzip" and shorter == gzip.compress(data[:10], mtime=0):
        return  # exactly the first member, which is a whole body by itself
    if shorter:
        with pytest.raises(Unusable):
            unpacked(shorter, coding, [], 10**6)


@given(st.binary(max_size=100), st.sampled_from(["gzip", "deflate"]))
def test_no_bytes_bring_another_error(data: bytes, coding: str) -> None:
    """A server can send anything under any name."""
    try:
        unpacked(data, coding, [], 1000)
    except Unusable:
        return


def test_bytes_after_the_end_are_refused() -> None:
    """They are not a part of the answer, and somebody put them there."""
    for coding, wbits in (("deflate", 15), ("raw", -15), ("gzip", 31)):
        with pytest.raises(Unusable):
            unpacked(zlib.compress(b"abc", wbits=wbits) + b"more", coding, [], 1000)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip;q=1", "chunked", "x"])
def test_unknown_packings_are_refused(coding: str) -> None:
    """Their bytes would be read as the answer itself."""
    with pytest.raises(Unusable, match="not known"):
        Unpacker({"content-encoding": coding}, 100)


@pytest.mark.parametrize("length", ["101", "9" * 4000, "101, 101"])
def test_an_announced_length_is_believed(length: str) -> None:
    """What is announced as too large need not be read first."""
    with pytest.raises(Unusable, match="larger than 100 bytes"):
        Unpacker({"content-length": length}, 100)


def test_headers_are_joined_and_lowered() -> None:
    """Names have no case, and repeated ones are one list."""
    raw = [(b"X-A", b"1"), (b"x-a", b" 2 "), (b"X-B", b"caf\xe9"), (b"X-C", "é".encode()), (b"X-\xff", b"")]
    assert header_map(raw) == {"x-a": "1, 2", "x-b": "café", "x-c": "é", "x-ÿ": ""}


def test_headers_have_bounds() -> None:
    """Header bombs cost memory and are stored with the answer."""
    header_map([(b"x", b"y")] * MAX_HEADERS)
    with pytest.raises(Unusable, match="headers"):
        header_map([(b"x", b"y")] * (MAX_HEADERS + 1))
    header_map([(b"x", b"y" * (MAX_HEADER_BYTES - 1))])
    with pytest.raises(Unusable, match="headers"):
        header_map([(b"x", b"y" * MAX_HEADER_BYTES)])


def test_headers_that_disagree_about_the_length_are_refused() -> None:
    """Two programs on the way could see two different answers in one stream."""
    header_map([(b"content-length", b"5"), (b"Content-Length", b"5")])
    header_map([(b"transfer-encoding", b"chunked")])
    for raw in (
        [(b"content-length", b"5"), (b"Content-Length", b"6")],
        [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")],
    ):
        with pytest.raises(Unusable, match="disagree"):
            header_map(raw)
