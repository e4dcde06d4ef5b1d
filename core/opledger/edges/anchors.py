"""Places outside of the database that keep signed checkpoints: a file, an object store, syslog, journald.

Who cuts off, rewrites or restores the database cannot do the same to these, if they are well chosen: then a comparison
shows it. An anchor only ever gets more notes. Everything here is synchronous and may block.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from opledger.edges.private import make_folder, open_file, sync_folder
from opledger.errors import StoreUnavailable

TAIL: Final = 1024 * 1024
"""Bytes at the end of a file in which the newest note is looked for."""

SYSLOG: Final = Path("/dev/log")
JOURNAL: Final = Path("/run/systemd/journal/socket")

NEAR: Final = 32 * 1024
"""Bytes at the end of a file in which a note is looked for that another worker may just have written."""

_LEDGER: Final = "{ledger}"
_AUTH_NOTICE: Final = 4 * 8 + 5
"""Syslog's facility for security messages, and a severity that is worth a note."""


class Anchor(Protocol):
    """A place that keeps notes. Every method raises StoreUnavailable where it is out of reach."""

    @property
    def name(self) -> str:
        """The place as people write it, without secrets."""

    @property
    def reads(self) -> bool:
        """False where what was written cannot be read back from here."""

    def latest(self, near: int) -> Sequence[str]:
        """Return some of the newest notes, the newest last. `near`: the number of about the newest that is expected."""

    def notes(self) -> Iterator[str]:
        """Yield all notes in the order in which they were kept, also what is no note."""

    def append(self, kept: Sequence[tuple[int, str]]) -> None:
        """Keep notes, given with their numbers, in the order of those; durable when it returns.

        What is kept already is not kept again, and never replaced.
        """


def open_anchor(setting: Path | str, ledger_id: str) -> Anchor:
    """Open an anchor as ``[audit] anchors`` names it; nothing is asked of it yet.

    A path may have ``{ledger}`` in it, which becomes the ledger's id. Raises ConfigWrong for what is no such place.
    """
    if isinstance(setting, Path):
        return FileAnchor(Path(str(setting).replace(_LEDGER, ledger_id)))
    scheme, _, rest = setting.partition(":")
    if scheme == "syslog":
        return SyslogAnchor(Path(rest) if rest else SYSLOG)
    if scheme == "journald":
        return JournalAnchor(Path(rest) if rest else JOURNAL)
    from opledger.edges.objects import ObjectAnchor

    return ObjectAnchor.from_url(setting, ledger_id)


def _write(handle: int, data: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part without a word, and says so at the next."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def is_of_one(path: Path) -> bool:
    """Whether a file is the anchor of one ledger, whatever that is called."""
    return _LEDGER not in str(path)


def open_anchors(settings: Sequence[Path | str], ledger_id: str) -> list[Anchor]:
    """Open all anchors that are configured. Raises ConfigWrong as `open_anchor`."""
    return [open_anchor(setting, ledger_id) for setting in settings]


class FileAnchor:
    """A file with one JSON line for each note: ``{"note": "…"}``, for its owner only.

    A line that a crash tore is passed over, and the next one begins anew.
    """

    reads: Final[bool] = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name: Final = str(path)

    def latest(self, near: int) -> list[str]:  # noqa: ARG002 - the end of the file is the newest
        """Return the notes at the end of the file."""
        with self._told("read"), self._reading() as file:
            if file is None:
                return []
            return _last(file, TAIL)

    def notes(self) -> Iterator[str]:
        """Yield what stands in every line; a line that cannot be read yields nothing."""
        with self._told("read"), self._reading() as file:
            for line in file or ():
                if (text := _text(line)) is not None:
                    yield text

    def append(self, kept: Sequence[tuple[int, str]]) -> None:
        """Write those that are newer than all at the end of the file; see `Anchor.append`."""
        if not kept:
            return
        with self._told("written"):
            is_new = not self.path.exists()
            if is_new:
                make_folder(self.path.parent)
            handle = open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            self._plain(handle)
            with os.fdopen(handle, "r+b", buffering=0) as file:
                fcntl.flock(handle, fcntl.LOCK_EX)  # another worker of this machine may be at it
                there = frozenset(_last(file, NEAR))
                lines = b"".join(_line(note) for _, note in kept if note not in there)
                if lines:
                    _write(handle, (b"" if _ends_well(handle) else b"\n") + lines)
                    os.fsync(handle)
            if is_new:
                sync_folder(self.path.parent)

    @contextmanager
    def _reading(self) -> Iterator[BinaryIO | None]:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        self._plain(handle)
        with os.fdopen(handle, "rb") as file:
            yield file

    def _plain(self, handle: int) -> None:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StoreUnavailable(f"the anchor {self.name} is not a plain file")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(f"the anchor {self.name} cannot be {what}: {error.strerror}") from error


class _SocketAnchor:
    """Something that listens on a socket of this machine and takes one datagram for each note."""

    reads: Final[bool] = False
    kind: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name: Final = f"{self.kind}:" if path in (SYSLOG, JOURNAL) else f"{self.kind}:{path}"

    def latest(self, near: int) -> list[str]:  # noqa: ARG002 - nothing can be read here
        """Return nothing: what was written cannot be read back from here."""
        return []

    def notes(self) -> Iterator[str]:
        """Yield nothing."""
        yield from ()

    def append(self, kept: Sequence[tuple[int, str]]) -> None:
        """Send each note; see `Anchor.append`."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(5)
                line.connect(str(self.path))
                for number, note in kept:
                    line.send(self._message(number, note))
        except OSError as error:
            raise StoreUnavailable(
                f"the anchor {self.name} does not take checkpoints ({error.strerror or 'it does not answer'})"
            ) from error

    def _message(self, number: int, note: str) -> bytes:
        raise NotImplementedError


class SyslogAnchor(_SocketAnchor):
    """The system log of this machine: one line for each note."""

    kind = "syslog"

    def _message(self, number: int, note: str) -> bytes:  # noqa: ARG002 - it stands in the note
        return f"<{_AUTH_NOTICE}>opledger[{os.getpid()}]: ".encode() + _line(note).rstrip()


class JournalAnchor(_SocketAnchor):
    """The journal of systemd, by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): the note is a field."""

    kind = "journald"

    def _message(self, number: int, note: str) -> bytes:
        data = note.encode()
        return (
            f"MESSAGE=opledger checkpoint {number}\nPRIORITY=5\nSYSLOG_IDENTIFIER=opledger\n"
            f"OPLEDGER_CHECKPOINT={number}\nOPLEDGER_NOTE\n"
        ).encode() + (len(data).to_bytes(8, "little") + data + b"\n")


def _line(note: str) -> bytes:
    return json.dumps({"note": note}, ensure_ascii=False).encode() + b"\n"


def _text(line: bytes) -> str | None:
    """Return the note in a line; None for a line that was torn, or is none of ours."""
    if not line.startswith(b"{"):
        return None
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict) and isinstance(found.get("note"), str):
            return str(found["note"])
    return None


def _last(file: BinaryIO, back: int) -> list[str]:
    """Return the notes in so many bytes at the end of a file; where there is none, in more of it."""
    end = file.seek(0, os.SEEK_END)
    while True:
        start = max(end - back, 0)
        file.seek(start)
        lines = _read(file, end - start).split(b"\n")
        found = [text for line in lines[start > 0 :] if (text := _text(line)) is not None]
        if found or start == 0:
            return found
        back *= 4


def _read(file: BinaryIO, count: int) -> bytes:
    """Read exactly so much of a file, which may be unbuffered; less where it ends."""
    pieces = []
    while count > 0 and (piece := file.read(count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _ends_well(handle: int) -> bool:
    """Say whether a file is empty or ends with a whole line."""
    size = os.fstat(handle).st_size
    return size == 0 or os.pread(handle, 1, size - 1) == b"\n"
