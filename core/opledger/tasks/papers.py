"""The files of a task: ``NAME.plan.toml``, beside it ``NAME.progress.jsonl`` and the folder ``NAME.runs/``.

Every file is written under a temporary name in ``NAME.runs/.new``, brought to the disk and then moved to its place, so
that at any moment the old or the new content is there, whole, and a crash leaves nothing in the plan's own folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from opledger.edges.files import atomic_write, private_folder, sweep_folder
from opledger.edges.private import sync_folder
from opledger.errors import StoreUnavailable, UsageError

PLAN: Final = ".plan.toml"
LARGEST: Final = 64 * 1024 * 1024
"""Bytes of the largest progress file that is read."""


class Lock:
    """A lock that the system gives back when its holder dies, however it dies."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path, *, wait: bool = False, make: bool = False) -> Self | None:
        """Lock a folder (or, with `make`, a file); None where somebody else has it and we do not `wait`.

        Raises StoreUnavailable where it cannot be opened.
        """
        try:
            flags = os.O_RDWR | os.O_CREAT if make else os.O_RDONLY
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise StoreUnavailable(f"{path} cannot be locked: {error.strerror}") from error
        return cls(descriptor)

    def free(self) -> None:
        """Give it back."""
        with suppress(OSError):
            os.close(self.descriptor)


def _at_once(path: str, flags: int) -> int:
    """Open a file for reading without waiting: a pipe that nobody writes to is empty, and holds up nobody."""
    return os.open(path, flags | os.O_NONBLOCK)


class Papers:
    """Where the files of one plan are. `place` stands for this machine and this folder, and tells nobody their name."""

    def __init__(self, plan: Path) -> None:
        self.plan = plan.absolute()
        self.folder = self.plan.parent
        self.name = self.plan.name.removesuffix(PLAN) if self.plan.name.endswith(PLAN) else self.plan.stem
        self.progress = self.folder / f"{self.name}.progress.jsonl"
        self.runs = self.folder / f"{self.name}.runs"
        where = f"{os.uname().nodename}\0{self.folder.resolve()}\0{self.name}"
        self.place = hashlib.sha256(where.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def read_plan(self) -> str:
        """The text of the plan. Bytes that are no UTF-8 become lone surrogates, which the parser refuses.

        Raises UsageError where there is none.
        """
        try:
            with open(self.plan, "rb", opener=_at_once) as file:
                return (file.read() or b"").decode("utf-8", "surrogateescape")
        except OSError as error:
            raise UsageError(f"the plan {self.plan} cannot be read: {error.strerror}; name a file {PLAN}") from error

    def read_progress(self) -> bytes | None:
        """The bytes of the progress file; None where there is none. Raises StoreUnavailable."""
        try:
            with open(self.progress, "rb", opener=_at_once) as file:
                return file.read(LARGEST) or b""
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            return b""
        except OSError as error:
            raise StoreUnavailable(f"{self.progress} cannot be read: {error.strerror}") from error

    def run_folder(self, run: str) -> Path:
        """The folder of one run, made where it is missing. Raises StoreUnavailable."""
        return private_folder(self.runs / run)

    def put(self, path: Path, data: bytes) -> None:
        """Write a file, whole or not at all. Raises StoreUnavailable where the disk refuses."""
        new = private_folder(self.runs / ".new") / path.name
        atomic_write(new, data)
        try:
            new.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written: {error.strerror}") from error

    def keep_aside(self, now: datetime) -> Path:
        """Move a broken progress file aside, and return where it is now. Raises StoreUnavailable."""
        stamp = now.strftime("%Y%m%dT%H%M%S.%fZ")
        aside = self.progress.with_name(f"{self.progress.name}.broken-{stamp}")
        try:
            self.progress.rename(aside)
            sync_folder(self.folder)
        except OSError as error:
            raise StoreUnavailable(f"{self.progress} cannot be moved aside: {error.strerror}") from error
        return aside

    def sweep(self, now: datetime) -> None:
        """Remove what crashes have left half-written. Only for whoever has the runner's lock."""
        sweep_folder(private_folder(self.runs / ".new"), now)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep all others on this machine from writing about tasks of this folder. Short: they wait for it."""
        lock = Lock.take(self.folder, wait=True)
        try:
            yield
        finally:
            if lock is not None:
                lock.free()

    def lock_runner(self) -> Lock | None:
        """Be the only runner on this machine; None where there is one already."""
        return Lock.take(private_folder(self.runs))
