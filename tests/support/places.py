"""Where tests keep their files: in memory where there is enough, since a ledger waits for the disk again and again.

What they do with files is the same there. That data survives a power cut is shown elsewhere, on a disk that is played.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 4 << 30
"""Bytes that must be free. Containers often have 64 MiB there, and let no program in it run."""


def in_memory() -> Path | None:
    """A folder on a file system in memory, or None where there is none that tests can live in."""
    if not os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
        return None
    if os.statvfs(SHARED_MEMORY).f_flag & os.ST_NOEXEC or shutil.disk_usage(SHARED_MEMORY).free < ENOUGH:
        return None
    return SHARED_MEMORY
