"""Bringing a stream to the disk, and through its checks, without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from opledger.edges.files import Partial

BATCH: Final = 256 * 1024
"""How many bytes are written and checked in one step. A result that is smaller costs one step."""

T = TypeVar("T")


class Sink:
    """Gathers the pieces of one stream and hands them on in batches: first to the file, then to `on_chunk`."""

    def __init__(self, folder: Path, on_chunk: Callable[[bytes], None]) -> None:
        self._partial = Partial(folder)
        self._on_chunk = on_chunk
        self._pieces: list[bytes] = []
        self._size = 0

    async def take(self, piece: bytes) -> None:
        """Take the next piece. Raises what `on_chunk` raises, and StoreUnavailable where the disk refuses."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= BATCH:
            await in_thread(self._write)

    async def finish(self) -> Path:
        """Hand on the rest and return the file. Raises as `take` does."""
        return await in_thread(self._end)

    async def discard(self) -> None:
        """Remove the file."""
        await in_thread(self._partial.discard)

    def _write(self) -> None:
        data, self._pieces, self._size = b"".join(self._pieces), [], 0
        if data:
            self._partial.write(data)
            self._on_chunk(data)

    def _end(self) -> Path:
        self._write()
        return self._partial.close()


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and wait for its end, also when cancelled: nobody may close a file under its writer."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue  # there is still the same end to wait for; the first cancellation goes on below
        raise
