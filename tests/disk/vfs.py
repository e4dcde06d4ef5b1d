"""A default VFS in front of the platform's own, inside of the very SQLite that the module `sqlite3` uses.

Only five calls come through here: open, write, sync, truncate, delete. The file object is SQLite's own; its table of
methods is a copy in which three of them are ours. So locks, shared memory and reads stay as they are.
See https://www.sqlite.org/vfs.html and sqlite3.h for the two structures.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sqlite3
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, Final

from tests.disk.events import Call, Watcher


class Unreachable(Exception):
    """The SQLite of this Python cannot be got at from outside; the message says why."""


_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)

_VFS_REST: Final = (
    *("xAccess", "xFullPathname", "xDlOpen", "xDlError", "xDlSym", "xDlClose", "xRandomness", "xSleep"),
    *("xCurrentTime", "xGetLastError", "xCurrentTimeInt64", "xSetSystemCall", "xGetSystemCall", "xNextSystemCall"),
)
_IO_REST: Final = (
    *("xFileSize", "xLock", "xUnlock", "xCheckReservedLock", "xFileControl", "xSectorSize"),
    *("xDeviceCharacteristics", "xShmMap", "xShmLock", "xShmBarrier", "xShmUnmap", "xFetch", "xUnfetch"),
)


class _Vfs(ctypes.Structure):
    """``sqlite3_vfs``, version 3."""

    _fields_ = (
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", c_void_p),
        ("xDelete", c_void_p),
        *((name, c_void_p) for name in _VFS_REST),
    )


class _Methods(ctypes.Structure):
    """``sqlite3_io_methods``, version 3."""

    _fields_ = (
        ("iVersion", c_int),
        ("xClose", c_void_p),
        ("xRead", c_void_p),
        ("xWrite", c_void_p),
        ("xTruncate", c_void_p),
        ("xSync", c_void_p),
        *((name, c_void_p) for name in _IO_REST),
    )


class _File(ctypes.Structure):
    """``sqlite3_file``: what follows belongs to the VFS below."""

    _fields_ = (("pMethods", c_void_p),)


def library() -> Any:
    """The loaded library that the module `sqlite3` calls. Raises Unreachable."""
    if not sys.platform.startswith("linux"):
        raise Unreachable("only Linux says in /proc which libraries a process has loaded")
    with closing(sqlite3.connect(":memory:")) as connection:
        source = str(connection.execute("SELECT sqlite_source_id()").fetchone()[0])
    seen = []
    for place in _candidates():
        try:
            found = ctypes.CDLL(place)
            found.sqlite3_vfs_find.restype = c_void_p
            found.sqlite3_libversion.restype = found.sqlite3_sourceid.restype = c_char_p
            told = found.sqlite3_libversion().decode(), found.sqlite3_sourceid().decode()
        except (OSError, AttributeError):
            continue
        if told == (sqlite3.sqlite_version, source):
            return found
        seen.append(f"{place} is {told[0]}")
    others = f" ({'; '.join(seen)})" if seen else ""
    raise Unreachable(f"SQLite {sqlite3.sqlite_version} of this Python is linked in and shows no symbols{others}")


def _candidates() -> Iterator[str | None]:
    import _sqlite3

    mapped = dict.fromkeys(line.split(maxsplit=5)[5].strip() for line in _maps() if line.count(" ") > 4 and "/" in line)
    yield from (path for path in mapped if "sqlite3" in Path(path).name and ".so" in path)
    own = getattr(_sqlite3, "__file__", None)
    if own is not None:
        yield own
    yield None  # the program itself


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


_INSTALLED: Final[list[Any]] = []


class Layer:
    """The VFS that tells a watcher of every call to files below one folder. Lives as long as the process."""

    def __init__(self, root: Path, watcher: Watcher) -> None:
        self._root = os.path.realpath(root) + os.sep
        self._watcher = watcher
        self.lock = threading.RLock()
        self._sqlite = library()
        found = self._sqlite.sqlite3_vfs_find(None)
        if not found:
            raise Unreachable("this SQLite has no VFS")
        self._below = found
        real = _Vfs.from_address(found)
        self._real_open, self._real_delete = _OPEN(real.xOpen), _DELETE(real.xDelete)
        self._tables: dict[int, tuple[_Methods, _Methods]] = {}
        self._names: dict[int, tuple[str, _Methods]] = {}  #: of open files, by the address of the file object
        self._unsynced: set[int] = set()  #: journals whose folder is brought to the disk with their first sync
        self._kept: list[Any] = [_OPEN(_loud(self._open)), _DELETE(_loud(self._delete))]
        self._kept += [_WRITE(_loud(self._write)), _TRUNCATE(_loud(self._truncate)), _SYNC(_loud(self._sync))]
        self._vfs = _Vfs()
        if real.iVersion < 3:
            raise Unreachable(f"the VFS of SQLite {sqlite3.sqlite_version} is of version {real.iVersion}, not 3")
        ctypes.memmove(ctypes.byref(self._vfs), found, ctypes.sizeof(_Vfs))
        self._vfs.zName = b"watched"
        self._vfs.pNext = None
        self._vfs.xOpen = ctypes.cast(self._kept[0], c_void_p)
        self._vfs.xDelete = ctypes.cast(self._kept[1], c_void_p)
        self.opened = 0

    def install(self) -> None:
        """Become the default VFS of this process. Raises Unreachable where `sqlite3` does not go through it."""
        _INSTALLED.append(self)  # SQLite keeps pointers into it, so it must never be collected
        if self._sqlite.sqlite3_vfs_register(ctypes.byref(self._vfs), 1) != 0:
            raise Unreachable("SQLite did not take another VFS")
        with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "probe")) as probe:
            probe.execute("CREATE TABLE t (x)")
        if not self.opened:
            self._sqlite.sqlite3_vfs_unregister(ctypes.byref(self._vfs))
            raise Unreachable("the module sqlite3 does not use the library that was found")

    # --- the callbacks ------------------------------------------------------------------------------------------

    def _open(self, _: int, path: int | None, file: int, flags: int, out: Any) -> int:
        self.opened += 1
        name = None if path is None else self._name(ctypes.string_at(path))
        if name is None:
            return self._real_open(self._below, path, file, flags, out)
        with self.lock:
            is_made = bool(flags & _CREATE) and not os.path.exists(self._root + name)
            call = Call("open", name, made=is_made, room="database")
            refusal = self._watcher.before(call)
            if refusal is not None:
                _File.from_address(file).pMethods = None
                return _CANTOPEN
            code = self._real_open(self._below, path, file, flags, out)
            if code == 0:
                self._replace_methods(file, name)
                if flags & (_MAIN_JOURNAL | _WAL | _SUPER_JOURNAL):
                    self._unsynced.add(file)
                self._watcher.after(call)
            return code

    def _replace_methods(self, file: int, name: str) -> None:
        found = _File.from_address(file).pMethods
        if found not in self._tables:
            real = _Methods.from_address(found)
            ours = _Methods()
            ctypes.memmove(ctypes.byref(ours), found, ctypes.sizeof(_Methods))
            ours.xWrite, ours.xTruncate, ours.xSync = (ctypes.cast(one, c_void_p) for one in self._kept[2:])
            self._tables[found] = (real, ours)
        real, ours = self._tables[found]
        _File.from_address(file).pMethods = ctypes.addressof(ours)
        self._names[file] = (name, real)

    def _write(self, file: int, data: int, size: int, offset: int) -> int:
        name, real = self._names[file]
        write = _WRITE(real.xWrite)
        with self.lock:
            call = Call("write", name, ctypes.string_at(data, size), offset, room="database")
            refusal = self._watcher.before(call)
            if refusal is not None:
                part = int(size * refusal.share)
                if part:
                    write(file, data, part, offset)
                if not refusal.number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return _FULL if refusal.number == errno.ENOSPC else _IOERR_WRITE
            return self._told(call, write(file, data, size, offset))

    def _truncate(self, file: int, size: int) -> int:
        name, real = self._names[file]
        with self.lock:
            call = Call("truncate", name, at=size, room="database")
            if self._watcher.before(call) is not None:
                return _IOERR_TRUNCATE
            return self._told(call, _TRUNCATE(real.xTruncate)(file, size))

    def _sync(self, file: int, flags: int) -> int:
        name, real = self._names[file]
        with self.lock:
            call = Call("sync", name, room="database")
            if self._watcher.before(call) is not None:
                return _IOERR_FSYNC
            code = self._told(call, _SYNC(real.xSync)(file, flags))
            if code == 0 and file in self._unsynced:
                self._unsynced.discard(file)
                self._watcher.after(Call("syncdir", os.path.dirname(name), room="database"))
            return code

    def _delete(self, _: int, path: bytes, sync_folder: int) -> int:
        name = self._name(path)
        if name is None:
            return self._real_delete(self._below, path, sync_folder)
        with self.lock:
            call = Call("delete", name, room="database")
            if self._watcher.before(call) is not None:
                return _IOERR_DELETE
            code = self._told(call, self._real_delete(self._below, path, sync_folder))
            if code == 0 and sync_folder:
                self._watcher.after(Call("syncdir", os.path.dirname(name), room="database"))
            return code

    def _told(self, call: Call, code: int) -> int:
        if code == 0:
            self._watcher.after(call)
        return code

    def _name(self, path: bytes) -> str | None:
        found = os.path.realpath(os.fsdecode(path))
        return found[len(self._root) :] if found.startswith(self._root) else None


def _loud(callback: Callable[..., int]) -> Callable[..., int]:
    """End the process where a callback of ours breaks: ctypes would pass on a 0, which means "done"."""

    def called(*arguments: Any) -> int:
        try:
            return callback(*arguments)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(98)

    return called


_CREATE: Final = 0x4
_MAIN_JOURNAL: Final = 0x800
_SUPER_JOURNAL: Final = 0x4000
_WAL: Final = 0x80000
_IOERR: Final = 10
_FULL: Final = 13
_CANTOPEN: Final = 14
_IOERR_WRITE: Final = _IOERR | 3 << 8
_IOERR_FSYNC: Final = _IOERR | 4 << 8
_IOERR_TRUNCATE: Final = _IOERR | 6 << 8
_IOERR_DELETE: Final = _IOERR | 10 << 8
