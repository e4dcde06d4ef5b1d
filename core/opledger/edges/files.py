"""Files that survive a power cut, and the folder where results are kept.

A result's *location* is the plain absolute path of its file, without a scheme: what a person can paste into a shell.
Every function here is synchronous and may block; whoever runs an event loop calls it in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from opledger.edges.marks import lock
from opledger.edges.private import FILE, make_folder, open_file, sync_folder
from opledger.errors import ConfigWrong, Refused, StoreUnavailable, UsageError

NOTE_EVERY: Final = 3.0
"""Seconds between two notes of how far a download is."""

_PARTIAL: Final = ".partial"
_PROGRESS: Final = ".progress"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{3,128}")
_SUFFIX: Final = re.compile(r"(?:\.[A-Za-z0-9_-]{1,32}){0,3}")


class Gone(Refused):
    """A result was stored, and the place where it was stored answers that it is not there any more."""

    code: ClassVar[str] = "result_gone"


class Stopped(StoreUnavailable):
    """Keeping a result was broken off because it was no longer wanted; the store has nothing of it."""


class ResultFolder:
    """Results as files: ``<root>/<last two of the id>/<operation id><suffix>``, written once and never changed.

    Everything is made for the owner only (folders 0700, files 0600). A failing disk raises StoreUnavailable; what was
    kept before stays as it was.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.expanduser().absolute()

    @classmethod
    def from_setting(cls, text: str) -> ResultFolder:
        """Read the setting OPLEDGER_RESULTS. Raises ConfigWrong for what is no folder."""
        if "://" in text:
            raise ConfigWrong("OPLEDGER_RESULTS names an object store where the path of a folder is needed")
        if not text.strip():
            raise ConfigWrong("OPLEDGER_RESULTS is empty; give the path of a folder")
        return cls(Path(text))

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        return self._root

    @property
    def where(self) -> str:
        """The folder as people write it."""
        return str(self._root)

    @property
    def scratch(self) -> Path:
        """Where `temporary` is, or will be."""
        return self._root / _PARTIAL

    def temporary(self) -> Path:
        """Return the folder for files that are not whole yet. It is on the same file system as the kept ones."""
        with _storage(self._root):
            return _private(self._private_root() / _PARTIAL)

    def sweep(self, older_than: datetime) -> int:
        """Remove unfinished files last written before `older_than` (crashes leave them). Return how many."""
        return sweep_folder(self.temporary(), older_than)

    def check(self) -> None:
        """Raise StoreUnavailable where a result could not be kept now."""
        self.temporary()

    def keep(self, path: Path, operation_id: str, suffix: str = "", *, going: Callable[[], bool] | None = None) -> str:
        """Move a whole file from `temporary` to its place, durably, and return its location.

        Written once: where the same content stands already, its location is returned; where another content does,
        both stay, and this one gets a name with its hash. `path` is gone afterwards. Raises Stopped where `going`
        says no, ValueError for an id or a suffix that is not fit for a file name.
        """
        go_on(going)
        name = file_name(operation_id, suffix)
        with _storage(self._root):
            folder = _private(self._private_root() / operation_id[-2:])
            _make_durable(path)
            place = folder / name
            placed = _placed(path, place)
            if not placed:
                place = folder / f"{operation_id}.{_digest(path)[:16]}{suffix}"
                placed = _placed(path, place)
            if placed:
                sync_folder(folder)
                remove_spare(path)
                return str(place)
        raise StoreUnavailable(f"the result of {operation_id} cannot be kept: two other files stand at its place")

    def keep_bytes(self, data: bytes, operation_id: str, suffix: str = "") -> str:
        """Keep a result that is in memory; otherwise as `keep`."""
        return write_partial(self.temporary(), data, lambda path: self.keep(path, operation_id, suffix))

    def open(self, location: str) -> BinaryIO:
        """Open a kept result for reading.

        Raises Gone where it is not there any more though its folder is, Refused where it lies outside this folder,
        StoreUnavailable where the whole folder is away (a disk that is not mounted) or the file cannot be read.
        """
        path = Path(location)
        if not path.is_absolute() or not path.parent.resolve().is_relative_to(self._root.resolve()):
            raise Refused(f"{location} is not in the folder of results {self._root}")
        try:
            # Whatever somebody has put there instead, a link, a pipe, is not followed and not waited for.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return os.fdopen(handle, "rb")
            os.close(handle)
            raise Gone(f"what lies at {location} now is not the file that was stored")
        except FileNotFoundError:
            if not self._root.is_dir():
                raise StoreUnavailable(f"the folder of results {self._root} is not there") from None
            raise Gone(f"no result is stored at {location} any more") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Gone(f"what lies at {location} now is a link, and not the file that was stored") from error
            raise StoreUnavailable(f"the result {location} cannot be read: {error.strerror}") from error

    def _private_root(self) -> Path:
        if not self._root.is_dir():
            make_folder(self._root)
        return self._root


class Partial:
    """A file on its way: made at the first write, under a name that nobody else has, for the owner only.

    Not for two threads at once. A failing disk raises StoreUnavailable.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._path: Path | None = None

    @classmethod
    def again(cls, path: Path, file: BinaryIO) -> Partial:
        """Go on with a file that was left; it is open, and locked."""
        partial = cls(path.parent)
        partial._path, partial._file = path, file
        return partial

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with _storage(self._folder):
            self._opened().write(data)

    def flush(self) -> Path:
        """Hand everything to the system, so that it outlives this process; return the path."""
        with _storage(self._folder):
            self._opened().flush()
        assert self._path is not None
        return self._path

    def close(self) -> Path:
        """End the file and return its path; it is there even if nothing was written."""
        with _storage(self._folder):
            self._opened().close()
        assert self._path is not None
        return self._path

    def discard(self) -> None:
        """Remove the file, whatever has become of it. Does nothing where it was moved away or never made."""
        if self._file is not None:
            with suppress(OSError):  # a full disk may refuse the last bytes; they are not wanted
                self._file.close()
        if self._path is not None:
            remove_spare(self._path)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            number, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            self._path = Path(name)
            os.fchmod(number, FILE)  # a umask can take bits of our own away
            self._file = os.fdopen(number, "wb")
            with suppress(OSError):  # a file system without locks: then nobody goes on with what is left there
                lock(number)
        return self._file


def go_on(going: Callable[[], bool] | None) -> None:
    """Raise Stopped where whoever wanted a result kept does not want it any more."""
    if going is not None and not going():
        raise Stopped("keeping the result was broken off")


def file_name(operation_id: str, suffix: str) -> str:
    """Return the name of a result. Raises ValueError for an id or a suffix that is not fit for a file name."""
    if not _ID.fullmatch(operation_id) or not _SUFFIX.fullmatch(suffix):
        raise ValueError("an operation id or suffix that is not fit for a file name")
    return f"{operation_id}{suffix}"


def private_folder(folder: Path) -> Path:
    """Make a folder for the owner only, where it is not there yet. Raises StoreUnavailable."""
    with _storage(folder):
        make_folder(folder)
    return folder


def remove_spare(path: Path) -> None:
    """Remove a file that nobody needs any more. Where the disk refuses, it is left behind, and swept later."""
    with suppress(OSError):
        path.unlink()


def sweep_folder(folder: Path, older_than: datetime) -> int:
    """Remove the files in a folder that were last written before `older_than`. Return how many."""
    removed = 0
    with _storage(folder):
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # another worker sweeps too
                if path.stat().st_mtime < older_than.timestamp():
                    path.unlink()
                    removed += 1
    return removed


def note_progress(folder: Path, operation_id: str, done: int, total: int | None) -> None:
    """Leave a note for other processes on this machine: so many bytes of so many are here. Best effort."""
    with suppress(OSError):
        note = open_file(folder / f"{operation_id}{_PROGRESS}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(note, "wb") as file:
            file.write(b"%d %d\n" % (done, total or 0))


def forget_progress(folder: Path, operation_id: str) -> None:
    """Remove the note, if there is one."""
    with suppress(OSError):
        (folder / f"{operation_id}{_PROGRESS}").unlink()


def read_progress(folder: Path, operation_id: str, now: datetime) -> tuple[int, int | None] | None:
    """Return (bytes here, bytes in all or None) of a download that goes on on this machine; None for every other.

    A note that nobody has renewed for a while was left behind by a crash.
    """
    path = folder / f"{operation_id}{_PROGRESS}"
    try:
        if abs(now.timestamp() - path.stat().st_mtime) > 5 * NOTE_EVERY:
            return None
        with path.open("rb") as file:
            found = re.fullmatch(rb"([0-9]{1,19}) ([0-9]{1,19})\n", file.read(64))
    except OSError:
        return None
    return None if found is None else (int(found.group(1)), int(found.group(2)) or None)


def write_partial(folder: Path, data: bytes, use: Callable[[Path], str]) -> str:
    """Write a file of its own and hand it to `use`; nothing is left behind where that fails."""
    partial = Partial(folder)
    try:
        partial.write(data)
        return use(partial.close())
    finally:
        partial.discard()


def digest_of(path: Path) -> tuple[int, str]:
    """Return a file's size and SHA-256. Raises StoreUnavailable where it cannot be read."""
    with _storage(path):
        return path.stat().st_size, _digest(path)


def copy_out(pieces: Iterable[bytes], path: Path) -> None:
    """Write a new file, whole or not at all, in the place of a regular file or of none.

    Raises UsageError for anything else that stands there (a folder, a device, a pipe, a link): what a link leads to is
    not what was named. Raises StoreUnavailable where the disk refuses, and whatever `pieces` raises; nothing is left.
    """
    check_target(path)
    _write_whole(pieces, path)


def check_target(path: Path) -> None:
    """Raise UsageError where `copy_out` would not write."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}") from None
        return
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    if stat.S_ISLNK(kind):
        raise UsageError(f"{path} is a link; name the file that you mean")
    if stat.S_ISDIR(kind):
        raise UsageError(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(kind):
        raise UsageError(f"{path} is no regular file; leave it out, and send standard output there")


def write_out(path: Path, data: bytes) -> None:
    """Write what a person asked for into a file they named.

    A regular file is replaced as a whole; through a link, the file it leads to. Anything else (a device, a pipe) is
    written to, and stays what it is. Raises StoreUnavailable where it cannot be written.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file():
        with _storage(path), path.open("wb") as stream:
            stream.write(data)
        return
    atomic_write(path, data)


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file so that after any crash either the old or the new content is there, whole. Mode 0600.

    Raises StoreUnavailable where the disk refuses; the old content then stands.
    """
    _write_whole([data], path)


def _write_whole(pieces: Iterable[bytes], path: Path) -> None:
    partial = Partial(path.parent)
    try:
        for piece in pieces:
            partial.write(piece)
        with _storage(path.parent):
            written = partial.close()
            _make_durable(written)
            written.replace(path)  # a link that has come there meanwhile is replaced, and not followed
            sync_folder(path.parent)
    finally:
        partial.discard()


@contextmanager
def _storage(place: Path) -> Iterator[None]:
    """Say which folder failed, in place of a bare OSError."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"files in {place} cannot be written: {error.strerror or error}") from error


def _private(folder: Path) -> Path:
    if not folder.is_dir():
        make_folder(folder)
    return folder


def _make_durable(path: Path) -> None:
    """Bring a file's bytes to the disk, for the owner only."""
    with path.open("rb") as file:
        os.fchmod(file.fileno(), FILE)
        os.fsync(file.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _placed(path: Path, place: Path) -> bool:
    """Put a whole file at `place`; False where another content stands there. Nothing is ever replaced."""
    try:
        place.hardlink_to(path)
    except FileExistsError:
        return _is_same(path, place)
    except OSError:  # a file system without hard links
        if place.exists():
            return _is_same(path, place)
        path.rename(place)
    return True


def _is_same(path: Path, place: Path) -> bool:
    if path.stat().st_size != place.stat().st_size or _digest(path) != _digest(place):
        return False
    _make_durable(place)  # a crash may have come between its own naming and its own fsync of the folder
    return True
