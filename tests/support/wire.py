"""Requests as they come over a socket, for providers whose answers are made byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO


def requests(asked: IO[bytes]) -> Iterator[tuple[str, str, bytes]]:
    """Read the requests of one connection until it ends: method, target and body of each."""
    while True:
        head = [asked.readline()]
        while head[-1].strip():
            head.append(asked.readline())
        if not head[0]:
            return
        sizes = [int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length")]
        method, target, _ = head[0].decode().split(" ", 2)
        yield method, target, asked.read(sum(sizes))
