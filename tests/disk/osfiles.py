"""The other files of the product (results, anchors, keys, notes of progress), told apart call by call.

Wraps what `opledger.edges` asks of `os`, in a process that is going to be thrown away: nothing is ever put back.
"""

from __future__ import annotations

import fcntl
import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.disk.events import Call, Watcher

T = TypeVar("T")


class Files:
    """The calls on files below one folder; those of the database are told by SQLite itself."""

    def __init__(self, root: Path, watcher: Watcher, lock: Any = None) -> None:
        self._root = os.path.realpath(root) + os.sep
        self._watcher = watcher
        self._lock = lock or threading.RLock()

    def install(self) -> None:
        """Stand in front of `os` from now on."""
        self._wrap_open()
        self._wrap_fdopen()
        real_write, real_sync, real_truncate = os.write, os.fsync, os.ftruncate
        os.write = lambda number, data: self.write(number, data, real_write)
        os.fsync = lambda fd: self._sync(fd if isinstance(fd, int) else fd.fileno(), real_sync)
        os.ftruncate = lambda number, size: self.truncate(number, size, real_truncate)
        self._wrap_two("replace", "rename")
        self._wrap_two("rename", "rename")
        self._wrap_two("link", "link")
        self._wrap_one("unlink", "delete")
        self._wrap_one("remove", "delete")
        self._wrap_one("mkdir", "mkdir")

    # --- what is asked ------------------------------------------------------------------------------------------

    def write(self, number: int, data: Any, perform: Callable[[int, Any], int]) -> int:
        """Write to a descriptor."""
        name = self._of(number)
        if name is None:
            return perform(number, data)
        with self._lock:
            appends = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND
            at = os.fstat(number).st_size if appends else os.lseek(number, 0, os.SEEK_CUR)
            whole = bytes(data)
            refusal = self._watcher.before(Call("write", name, whole, at))
            if refusal is not None:
                part = int(len(whole) * refusal.share)
                if part:  # a disk that is nearly full takes a part without a word
                    done = perform(number, whole[:part])
                    if not refusal.number:
                        os.kill(os.getpid(), signal.SIGKILL)
                    self._watcher.after(Call("write", name, whole[:done], at))
                    return done
                raise _error(refusal.number, name)
            done = perform(number, data)
            self._watcher.after(Call("write", name, whole[:done], at))
            return done

    def truncate(self, number: int, size: int, perform: Callable[[int, int], Any]) -> Any:
        """Cut or lengthen the file behind a descriptor."""
        name = self._of(number)
        return (
            perform(number, size)
            if name is None
            else self._told(Call("truncate", name, at=size), perform, number, size)
        )

    def _sync(self, number: int, perform: Callable[[int], None]) -> None:
        name = self._of(number, folders=True)
        if name is None:
            perform(number)
            return
        what = "syncdir" if os.path.isdir(self._root + name) else "sync"
        self._told(Call(what, name), perform, number)  # type: ignore[arg-type]

    def _told(self, call: Call, perform: Callable[..., T], *arguments: Any, **named: Any) -> T:
        with self._lock:
            refusal = self._watcher.before(call)
            if refusal is not None:
                raise _error(refusal.number, call.name)
            result = perform(*arguments, **named)
            self._watcher.after(call)
            return result

    # --- the wrappers -------------------------------------------------------------------------------------------

    def _wrap_open(self) -> None:
        real = os.open

        def opening(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
            name = self._name(path)
            if name is None or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return real(path, flags, mode, **more)
            made = bool(flags & os.O_CREAT) and not os.path.lexists(path)
            with self._lock:
                number = self._told(Call("open", name, made=made), real, path, flags, mode, **more)
                if flags & os.O_TRUNC and not made:
                    self._watcher.after(Call("truncate", name))
                return number

        os.open = opening

    def _wrap_fdopen(self) -> None:
        real, outer = os.fdopen, self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                return outer.write(self.fileno(), data, lambda _, piece: super(Raw, self).write(piece) or 0)

            def truncate(self, size: int | None = None) -> int:
                to = self.tell() if size is None else size
                return int(outer.truncate(self.fileno(), to, lambda _, end: super(Raw, self).truncate(end)))

        def fdopening(number: int, mode: str = "r", buffering: int = -1, **more: Any) -> Any:
            if mode in ("r", "rb") or self._of(number) is None:
                return real(number, mode, buffering, **more)
            raw = Raw(number, mode.replace("b", ""))
            if buffering == 0:
                return raw
            whole: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return whole if "b" in mode else io.TextIOWrapper(whole, **more)

        os.fdopen = fdopening  # type: ignore[assignment]

    def _wrap_one(self, name: str, what: Any) -> None:
        real = getattr(os, name)

        def called(path: Any, *arguments: Any, **named: Any) -> Any:
            found = self._name(path)
            if found is None:
                return real(path, *arguments, **named)
            return self._told(Call(what, found), real, path, *arguments, **named)

        setattr(os, name, called)

    def _wrap_two(self, name: str, what: Any) -> None:
        real = getattr(os, name)

        def called(source: Any, target: Any, *arguments: Any, **named: Any) -> Any:
            old, new = self._name(source), self._name(target)
            if old is None or new is None:
                return real(source, target, *arguments, **named)
            return self._told(Call(what, old, to=new), real, source, target, *arguments, **named)

        setattr(os, name, called)

    # --- names --------------------------------------------------------------------------------------------------

    def _of(self, number: int, *, folders: bool = False) -> str | None:
        try:
            path = os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)")
        except OSError:
            return None
        if folders and path + os.sep == self._root:
            return ""
        return self._inside(path)

    def _name(self, path: Any) -> str | None:
        if isinstance(path, int):
            return None
        folder, last = os.path.split(os.path.abspath(os.fsdecode(path)))
        return self._inside(os.path.join(os.path.realpath(folder), last))

    def _inside(self, path: str) -> str | None:
        # The database file is made by the product itself, and written by SQLite.
        return path[len(self._root) :] if path.startswith(self._root) else None


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
