"""A provider whose answers are made to hurt. Each operation meets one of them once, and honest answers from then on.

A create's body says what is sent and in whose place: ``{"bomb": NAME, "place": PLACE, "n": N}``. When a bomb goes off
is written to a file, one line each, since only this side knows when the call began.
"""

from __future__ import annotations

import gzip
import json
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.support.wire import requests

MIB: Final = 1024 * 1024
PLACES: Final = ("create", "status", "list", "result")
ENDS: Final = 60.0
"""Seconds after which an endless answer ends: the worker has died, or has forgotten it."""

Say = Callable[[bytes], None]
Bomb = Callable[[Say], None]

_OK: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_CHUNKED: Final = _OK + b"transfer-encoding: chunked\r\n\r\n"


def _sized(body: bytes, *headers: str) -> Bomb:
    lines = "".join(f"{line}\r\n" for line in (*headers, f"content-length: {len(body)}"))
    return lambda say: say(_OK + lines.encode() + b"\r\n" + body)


def _for_ever(head: bytes, block: bytes, pause: float = 0.0) -> Bomb:
    def send(say: Say) -> None:
        ends = time.monotonic() + ENDS
        say(head)
        while time.monotonic() < ends:
            say(block)
            time.sleep(pause)

    return send


def _gigabyte(say: Say) -> None:
    say(_OK + b"content-length: %d\r\n\r\n" % (1024 * MIB))
    for _ in range(1024):
        say(b" " * MIB)


def _zstd(blocks: int) -> bytes:
    """One frame of blocks of 128 KiB, four bytes each: the same byte again and again (RFC 8878 §3.1.1.2)."""
    block = (1 << 1 | (128 * 1024) << 3).to_bytes(3, "little") + b" "
    last = (1 | 1 << 1 | (128 * 1024) << 3).to_bytes(3, "little") + b" "
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * (blocks - 1) + last


def _packed(blocks: int, wrapping: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, wrapping)
    return b"".join(packer.compress(b" " * MIB) for _ in range(blocks)) + packer.flush()


def _keys(number: int) -> bytes:
    return b"{" + ",".join(f'"k{key}":0' for key in range(number)).encode() + b"}"


def _member(packer: Callable[[bytes], bytes], mib: int) -> bytes:
    return packer(b" " * mib * MIB)


def recipes() -> dict[str, Callable[[], Bomb]]:
    """How each of them is made, by name."""
    return {
        "gzip": lambda: _sized(_member(gzip.compress, 16) * 64, "content-encoding: gzip"),
        "gzip-members": lambda: _sized(gzip.compress(b"") * 50_000, "content-encoding: gzip"),
        "gzip-nested": lambda: _sized(gzip.compress(_member(gzip.compress, 16) * 4), "content-encoding: gzip, gzip"),
        "gzip-in-gzip": lambda: _sized(gzip.compress(_member(gzip.compress, 96)), "content-encoding: gzip"),
        "deflate": lambda: _sized(_packed(96, 15), "content-encoding: deflate"),
        "deflate-raw": lambda: _sized(_packed(96, -15), "content-encoding: deflate"),
        "br": lambda: _sized(b"\xcf\xff\xff\x7f\xf8\x27\x00\xe2\xb1\x40\x20\xfe" * 4096, "content-encoding: br"),
        "zstd": lambda: _sized(_zstd(8192), "content-encoding: zstd"),
        "keys": lambda: _sized(_keys(1_000_000)),
        "keys-within": lambda: _sized(_keys(90_000)),
        "deep": lambda: _sized(b"[" * 100_000),
        "deep-closed": lambda: _sized(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
        "digits": lambda: _sized(b'{"id": ' + b"9" * 1_000_000 + b"}"),
        "exponent": lambda: _sized(b'{"id": 1e' + b"9" * 1000 + b"}"),
        "escapes": lambda: _sized(b'{"id": "' + b"\\u0000" * 160_000 + b'"}'),
        "gigabyte": lambda: _gigabyte,
        "endless": lambda: _for_ever(_CHUNKED, b"%x\r\n%s\r\n" % (65536, b" " * 65536)),
        "drip": lambda: _for_ever(_CHUNKED, b"1\r\n \r\n", 0.01),
        "drip-gigabyte": lambda: _for_ever(_OK + b"content-length: %d\r\n\r\n" % (1024 * MIB), b" ", 0.01),
        "drip-known": lambda: _for_ever(_OK + b"content-length: 900000\r\n\r\n", b" ", 0.01),
        "tiny-chunks": lambda: _for_ever(_CHUNKED, b"1\r\n \r\n" * 4096),
        "chunk-size": lambda: _for_ever(_CHUNKED, b"0" * 4096),
        "chunk-extension": lambda: _for_ever(_CHUNKED + b"1;", b"x" * 4096),
        "trailers": lambda: _for_ever(_CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-trailer: " + b"x" * 1000 + b"\r\n"),
        "status-line": lambda: _for_ever(b"HTTP/1.1 200 ", b"x" * 65536),
        "header": lambda: _for_ever(_OK + b"x-long: ", b"x" * 65536),
        "headers": lambda: _for_ever(_OK, b"x-many: 1\r\n" * 1000),
        "header-once": lambda: _sized(b"{}", "x-long: " + "x" * MIB),
        "headers-once": lambda: _sized(b"{}", *(f"x-{number}: 1" for number in range(100_000))),
        "continues": lambda: _for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        "hints": lambda: _for_ever(b"", b"HTTP/1.1 103 Early Hints\r\nlink: <" + b"x" * 8000 + b">\r\n\r\n"),
    }


NAMES: Final = (
    "gzip", "gzip-members", "gzip-nested", "gzip-in-gzip", "deflate", "deflate-raw", "br", "zstd", "keys",
    "keys-within", "deep", "deep-closed", "digits", "exponent", "escapes", "gigabyte", "endless", "drip",
    "drip-gigabyte", "drip-known", "tiny-chunks", "chunk-size", "chunk-extension", "trailers", "status-line",
    "header", "headers", "header-once", "headers-once", "continues", "hints",
)  # fmt: skip


class Provider:
    """Answers create, status, list and result requests; a job is named after its bomb and where that goes off."""

    def __init__(self, log: Path, names: Iterable[str]) -> None:
        known = recipes()
        assert tuple(known) == NAMES
        self._bombs = {name: known[name]() for name in names}
        self._log = log
        self._used: set[str] = set()
        self._jobs: dict[str, str] = {}  #: by our reference
        self._lock = threading.Lock()

    def talk(self, connection: socket.socket) -> None:
        """Answer on one connection until it ends."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as asked, suppress(OSError):  # the worker has had enough
            for _, target, body in requests(asked):
                if not self._answer(connection.sendall, target, body):
                    return

    def _answer(self, say: Say, target: str, body: bytes) -> bool:
        if body:
            asked = json.loads(body)
            job, place = f"{asked['place']}.{asked['bomb']}.{asked['n']}", "create"
            self._jobs[asked["ref"]] = job
        elif "?" in target:
            job, place = self._jobs[target.partition("ref=")[2]], "list"
        else:
            job = target.split("/")[2]
            place = "result" if target.endswith("/result") else "status"
        wanted, bomb, *_ = (*job.split("."), "")
        # A list is only asked for where the answer to the create was lost.
        if place == "create" and wanted == "list" and self._first(f"lost {job}"):
            return False
        if place == wanted and self._first(job):
            with self._log.open("a") as log:
                log.write(json.dumps({"job": job, "at": time.time()}) + "\n")
            self._bombs[bomb](say)
            return False
        ref = next(ref for ref, one in self._jobs.items() if one == job)
        state = {"id": job, "ref": ref, "state": "succeeded" if place in ("status", "result") else "queued"}
        document: Any = {"data": [state]} if place == "list" else state
        self._whole(say, json.dumps(document).encode())
        return True

    def _first(self, key: str) -> bool:
        with self._lock:
            known = key in self._used
            self._used.add(key)
        return not known

    def _whole(self, say: Say, body: bytes) -> None:
        _sized(body)(say)


def _connections(server: socket.socket) -> Iterator[socket.socket]:
    while True:
        yield server.accept()[0]


def serve(log: Path, names: Iterable[str]) -> None:
    """Serve until input ends."""
    provider = Provider(log, names)
    server = socket.create_server(("127.0.0.1", 0), backlog=256)

    def accept() -> None:
        for connection in _connections(server):
            threading.Thread(target=provider.talk, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdout.write(f"{server.getsockname()[1]}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2:])
