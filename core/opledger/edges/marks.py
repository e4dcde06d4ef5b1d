"""What a later attempt, or a worker that was started again, needs to go on with a transfer that broke off.

Beside the file on its way lies a *mark*: how much of it is known to be right, by its SHA-256, and the head of the
answer that began it. A mark is a help and no promise: where it is torn, missing or wrong, the transfer begins anew. So
nothing here is brought to the disk in a hurry; a power cut shows in the hash.

A file on its way is locked by the process that writes it, until that process closes it or dies. So a worker that was
frozen, and thaws after another one took its place, never writes into the file of the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from opledger.edges.private import open_file

MARK_EVERY: Final = 8 * 1024 * 1024
"""Bytes between two marks: at most so many come a second time after a kill."""

_PIECE: Final = 256 * 1024
_LARGEST: Final = 256 * 1024
_FILE: Final = re.compile(r"[A-Za-z0-9_]{1,64}\.part")
_PRIVATE: Final = frozenset({"set-cookie", "set-cookie2", "authentication-info", "www-authenticate", "location"})


@dataclass(frozen=True, slots=True)
class Label:
    """Which file of which operation, and where it is read from.

    Of the URL only origin and path count: a signed address has another query every time. That it is the same thing is
    for its validator to say.
    """

    operation_id: str
    name: str  #: of a further file; "" for the result itself
    job: str | None
    url: str

    @property
    def key(self) -> str:
        """What stands for all of it; no address is written down, for it may have a key in it."""
        parts = urlsplit(self.url)
        told = json.dumps([self.operation_id, self.name, self.job, parts.scheme, parts.netloc.lower(), parts.path])
        return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """What an earlier transfer left, locked for us. It has `received` bytes, right or not."""

    path: Path
    file: BinaryIO
    status: int
    headers: Mapping[str, str]
    received: int
    sha256: str

    def pieces(self) -> Iterator[bytes]:
        """Yield what is here, and stand at its end."""
        self.file.seek(0)
        while piece := self.file.read(_PIECE):
            yield piece


class Marks:
    """The mark of one transfer. `digest` gives the SHA-256 of what was taken so far. Best effort: it never fails."""

    def __init__(self, folder: Path, label: Label, digest: Callable[[], str]) -> None:
        self._path = folder / f"{label.operation_id}.{label.name or 'result'}.rest"
        self._folder = folder
        self._key = label.key
        self._digest = digest

    def note(self, file: Path, received: int, status: int, headers: Mapping[str, str]) -> None:
        """Write down that so many bytes are in the file, and right."""
        document = {
            "key": self._key,
            "file": file.name,
            "received": received,
            "sha256": self._digest(),
            "status": status,
            "headers": {name: value for name, value in headers.items() if name not in _PRIVATE},
        }
        with suppress(OSError):
            new = file.with_suffix(".mark")  # the name of a file is its own, so nobody else writes this one
            with os.fdopen(open_file(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as out:
                json.dump(document, out)
            new.replace(self._path)

    def forget(self) -> None:
        """Remove the mark."""
        with suppress(OSError):
            self._path.unlink()

    def find(self) -> Found | None:
        """Return what is here of the same transfer; None where there is nothing, or somebody else has it open."""
        try:
            document = json.loads(_read(self._path))
        except (OSError, ValueError, RecursionError):
            return None
        if not _is_fit(document) or document["key"] != self._key:
            return None
        path, received = self._folder / document["file"], document["received"]
        try:
            handle = open_file(path, os.O_RDWR | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            here = os.fstat(handle)
            if not stat.S_ISREG(here.st_mode) or here.st_nlink != 1 or here.st_size < received:
                raise OSError
            lock(handle)
            os.ftruncate(handle, received)
            file = os.fdopen(handle, "r+b")
        except OSError:
            os.close(handle)
            return None
        return Found(path, file, document["status"], document["headers"], received, document["sha256"])


def lock(handle: int) -> None:
    """Lock a file for as long as it is open. Raises OSError where somebody else has it, or locks are not known."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read(path: Path) -> bytes:
    with os.fdopen(open_file(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read(_LARGEST)


def _is_fit(document: Any) -> bool:
    """Tell whether this is a mark as `Marks.note` writes it."""
    if not isinstance(document, dict):
        return False
    headers, file = document.get("headers"), document.get("file")
    return (
        isinstance(file, str)
        and _FILE.fullmatch(file) is not None
        and all(type(document.get(name)) is int for name in ("received", "status"))
        and document["received"] > 0
        and all(isinstance(document.get(name), str) for name in ("key", "sha256"))
        and isinstance(headers, dict)
        and all(isinstance(value, str) for value in headers.values())
    )
