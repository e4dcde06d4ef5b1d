"""Damages to the product, made in memory, that the harness must catch."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from opledger.edges import files, private
from opledger.errors import StoreUnavailable
from opledger.store import sqlite, trouble
from opledger.store.engine import Database
from tests.disk.events import What
from tests.disk.faults import Kind


def _synchronous(level: int) -> Callable[[], None]:
    def damage() -> None:
        sqlite._PRAGMAS["synchronous"] = level

    return damage


def _bytes_not_synced() -> None:
    def nothing(path: Path) -> None:
        """Leave the bytes where they are."""

    files._make_durable = nothing


def _folders_not_synced() -> None:
    def nothing(folder: Path) -> None:
        """Leave the names where they are."""

    for module in (private, files):
        setattr(module, "sync_folder", nothing)  # noqa: B010 - both have the name, and only one exports it


def _full_disk_ignored() -> None:
    """Whoever keeps a result takes what the disk took of it."""
    for name in ("flush", "close"):
        real = getattr(files.Partial, name)

        def ended(self: files.Partial, real: Any = real) -> Path:
            try:
                real(self)
            except StoreUnavailable:
                self._file = None
            assert self._path is not None
            return self._path

        setattr(files.Partial, name, ended)


def _commit_ignored() -> None:
    """Whoever writes is told that all is well, whatever became of the commit."""
    real = Database._commit

    def commit(self: Database, cursor: Any, tx: Any) -> None:
        try:
            real(self, cursor, tx)
        except StoreUnavailable:
            return

    Database._commit = commit  # type: ignore[method-assign]


def _nothing_said() -> None:
    """Who cannot go on keeps to himself why."""

    def silent(error: sqlite3.Error, name: str) -> trouble.Trouble:
        return trouble.Trouble(trouble.Remedy.GIVE_UP, "it did not work")

    trouble.of_sqlite = silent


POWER: Final[Mapping[str, Callable[[], None]]] = {
    "normal": _synchronous(1),
    "off": _synchronous(0),
    "bytes": _bytes_not_synced,
    "folders": _folders_not_synced,
}
"""For the power cuts."""

_WRITE: Final[frozenset[What]] = frozenset({"write"})
_LOG: Final = ".db-wal"
FAULTS: Final[Mapping[str, tuple[Callable[[], None], Kind]]] = {
    "full": (_full_disk_ignored, Kind("full", errno.ENOSPC, only=_WRITE, named=".part")),
    "commit": (_commit_ignored, Kind("eio", errno.EIO, only=_WRITE, named=_LOG)),
    "silence": (_nothing_said, Kind("full", errno.ENOSPC, only=_WRITE, named=_LOG)),
}
"""For failing calls, each with the first call that shows it."""
