"""Headers and bodies from outside, held within bounds (reliability.md F8, I26): nothing here touches a socket."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

STEP: Final = 64 * 1024
"""Most bytes that come out of one step of unpacking."""
MAX_HEADERS: Final = 200
MAX_HEADER_BYTES: Final = 64 * 1024

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_CODINGS: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


class Unusable(Exception):
    """An answer that cannot be used. The message is a part of a sentence, in our own words."""


class TooLarge(Unusable):
    """An answer beyond the limit, on the wire or unpacked."""


def header_map(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by lower-case name; repeated ones are joined by ", " (RFC 9110 §5.3).

    Values are read as UTF-8 where they are, else as Latin-1, so that every byte can be read. Raises Unusable for more
    or larger headers than any honest answer has, and where two headers disagree about where the body ends: two programs
    on the way could cut the stream at different places (RFC 9112 §6.3).
    """
    headers: dict[str, str] = {}
    size = 0
    for count, (key, content) in enumerate(raw, start=1):
        size += len(key) + len(content)
        if count > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise Unusable(f"the answer has over {MAX_HEADERS} headers, or over {MAX_HEADER_BYTES} bytes of them")
        name = key.decode("latin-1").lower()
        value = _text(content)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    lengths = {length.strip() for length in headers.get("content-length", "").split(",")}
    if len(lengths) > 1 or ("transfer-encoding" in headers and "content-length" in headers):
        raise Unusable("the headers of the answer disagree about its length")
    return headers


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError:
        return content.decode("latin-1").strip()


class Unpacker:
    """Takes the wire bytes of one body and gives the body, in steps, never more than `limit` bytes of either.

    We ask for ``identity``; a server that compresses all the same is understood (gzip, deflate; RFC 9110 §8.4.1), but
    only in one layer.
    """

    def __init__(self, headers: Mapping[str, str], limit: int, before: int = 0) -> None:
        """`before` bytes of the body came with an earlier answer.

        Raises Unusable for a coding that is not known, or a length beyond the limit that is announced.
        """
        self.size = before
        self._wire = before
        self._limit = limit
        coding = headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity", *_CODINGS):
            raise Unusable("the answer is packed in a way that was not asked for and is not known")
        self._coding = _CODINGS.get(coding)
        self._inflate: zlib._Decompress | None = None
        self._head = b""
        announced = headers.get("content-length", "").split(",")[0].strip()
        if announced.isdecimal() and before + int(announced[:20]) > limit:
            raise self._too_large()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give what these wire bytes hold, piece by piece. Raises Unusable over the limit and for damaged packing."""
        self._wire += len(data)
        if self._wire > self._limit:
            raise self._too_large()
        for piece in [data] if self._coding is None else self._inflated(data):
            self.size += len(piece)
            if self.size > self._limit:
                raise self._too_large()
            if piece:
                yield piece

    def finish(self) -> None:
        """Check that the packing came to its own end. Raises Unusable where it was cut."""
        if self._head or (self._inflate is not None and not self._inflate.eof):
            raise Unusable("the packed answer ends in the middle")

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the answer is larger than {self._limit} bytes")

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            self._head += data
            if len(self._head) < 2:  # two bytes tell the wrappings of "deflate" apart
                return
            data, self._head = self._head, b""
            self._inflate = zlib.decompressobj(self._wrapping(data))
        try:
            yield from self._steps(data)
        except zlib.error as error:
            raise Unusable("the packed answer is damaged") from error

    def _steps(self, data: bytes) -> Iterator[bytes]:
        assert self._inflate is not None
        while True:
            if self._inflate.eof:
                if not data:
                    return
                if self._coding != "gzip":
                    raise Unusable("the packed answer has bytes after its end")
                self._inflate = zlib.decompressobj(_GZIP)  # several members are one body (RFC 1952 §2.2)
            piece = self._inflate.decompress(data, STEP)
            yield piece
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if not data and not self._inflate.eof and len(piece) < STEP:
                return

    def _wrapping(self, head: bytes) -> int:
        """Return what zlib calls the wrapping. Servers send "deflate" with the zlib header (as told) and without."""
        if self._coding == "gzip":
            return _GZIP
        return _ZLIB if head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0 else _RAW
