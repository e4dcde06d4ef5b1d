"""The files that a step makes. Before a step is repeated they are put back as they were when it first began.

So a command that appends does not append twice, and one that was killed half-way leaves nothing that could be taken
for its result. Nothing is removed for good: what was half-made is moved into the folder of the run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from opledger.edges.files import copy_out, digest_of
from opledger.errors import StoreUnavailable


def is_there(path: Path, *, folder: bool = False) -> bool:
    """It is a file, or with `folder` anything. What can have no such name, or is shut off, is not there."""
    try:
        return path.exists() if folder else path.is_file()
    except OSError:
        return False


def remember(folder: Path, kept: Path, files: Iterable[str]) -> dict[str, str | None]:
    """Copy the files that are there into `kept`; return each file's SHA-256, or None where it is not there.

    Raises StoreUnavailable.
    """
    found: dict[str, str | None] = {}
    for number, name in enumerate(files):
        path = folder / name
        if not is_there(path):
            found[name] = None
            continue
        try:
            with path.open("rb") as source:
                copy_out(iter(lambda: source.read(1 << 20), b""), _copy(kept, number, name))
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be copied: {error.strerror}") from error
        found[name] = digest_of(_copy(kept, number, name))[1]
    return found


def put_back(folder: Path, kept: Path, files: Mapping[str, str | None]) -> None:
    """Bring files back to what `remember` found; what is there now is moved into `kept`. Raises StoreUnavailable."""
    for number, (name, before) in enumerate(files.items()):
        path = folder / name
        try:
            if is_there(path):
                if before is not None and digest_of(path)[1] == before:
                    continue
                shutil.move(path, _free(kept, number, name))
            if before is not None:
                with _copy(kept, number, name).open("rb") as source:
                    copy_out(iter(lambda: source.read(1 << 20), b""), path)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be put back: {error.strerror or error}") from error


def _copy(kept: Path, number: int, name: str) -> Path:
    return kept / f"before-{number}-{Path(name).name}"


def _free(kept: Path, number: int, name: str) -> Path:
    attempt = 1
    while (place := kept / f"half-made-{number}-{attempt}-{Path(name).name}").exists():
        attempt += 1
    return place
