"""Files and folders for their owner only, whatever the umask; and a look at those that others can get at.

What was there before keeps its mode: who opened it may have had a reason. `doctor` says so instead.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE: Final = 0o600
FOLDER: Final = 0o700


def make_folder(folder: Path) -> None:
    """Make a folder and whatever is missing above it, each for the owner only, durably. Raises OSError."""
    missing = [folder]
    while not missing[-1].is_dir() and missing[-1] != missing[-1].parent:
        missing.append(missing[-1].parent)
    for place in reversed(missing[:-1] if missing[-1].is_dir() else missing):
        try:
            place.mkdir(mode=FOLDER)
        except FileExistsError:
            if not place.is_dir():
                raise
            continue  # another process was faster, and made it the same way
        place.chmod(FOLDER)  # a umask can take bits of our own away
        sync_folder(place.parent)


def open_file(path: Path, flags: int) -> int:
    """Open a file and return its descriptor, as `os.open`; where `flags` make it, it is for the owner only.

    Links are not followed. Raises OSError.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if flags & os.O_CREAT:
        with suppress(FileExistsError):
            handle = os.open(path, flags | os.O_EXCL, FILE)
            os.fchmod(handle, FILE)
            return handle
        if flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    return os.open(path, flags, FILE)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk: without it a rename may be undone by a power cut. Raises OSError."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _is_own_group(found: os.stat_result) -> bool:
    try:
        owner, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return group.gr_name == owner and set(group.gr_mem) <= {owner}


def open_to_others(files: Iterable[Path], folders: Iterable[Path], shared: Iterable[Path] = ()) -> Iterator[str]:
    """Say which of these others can get at, and the command that ends it. What is not there is left out.

    `folders` are our own; what is `shared`, because somebody else made it, others may read, and not write. The group
    that some systems give every user of their own does not count as others there.
    """
    checked = [(path, 0o077, f"{FILE:o}") for path in files]
    checked += [(path, 0o077, f"{FOLDER:o}") for path in folders]
    checked += [(path, 0o022, "go-w") for path in shared]
    for path, bits, right in dict.fromkeys(checked):
        try:
            found = path.stat()
        except OSError:
            continue  # it is not there, or not ours to look at: whoever opens it says so
        mode = stat.S_IMODE(found.st_mode)
        forbidden = 0o002 if right == "go-w" and _is_own_group(found) else bits
        sticky = right == "go-w" and mode & stat.S_ISVTX  # as in /tmp: nobody can replace what is another's
        if mode & forbidden and not sticky:
            yield f"{path} is open to other users (mode {mode:04o}); run: chmod {right} {shlex.quote(str(path))}"
