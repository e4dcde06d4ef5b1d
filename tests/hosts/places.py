"""The folder of one run. What a run that was killed has left is removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.places import in_memory

PREFIX: Final = "opledger-hosts-"


def _root() -> Path:
    return in_memory() or Path(tempfile.gettempdir())


def sweep() -> list[str]:
    """Remove the folders of runs that are over without having removed them; their names."""
    swept = []
    for folder in _root().glob(f"{PREFIX}*"):
        lock = folder / "lock"
        try:
            handle = os.open(lock, os.O_RDWR)
        except FileNotFoundError:
            continue  # of a run that begins, or one that was to be kept
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # of a run that goes on
        else:
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder.name)
        finally:
            os.close(handle)
    return swept


@contextmanager
def run_folder(*, keep: bool = False) -> Iterator[Path]:
    """A folder for this run, held by a lock that ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_root()))
    folder.chmod(0o711)  # the database server runs as another user
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        if keep:
            (folder / "lock").unlink()
        else:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)
