"""Handing a stored result over: only after its bytes were found to be what the record says, once more.

Memory stays bounded however large a result is. What lies in an object store is first brought to this machine, so that
nothing of it is handed over before all of it is known to be right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from opledger.edges.files import Gone, Partial, ResultFolder, read_progress
from opledger.edges.stores import ResultStore, open_store
from opledger.errors import ConfigWrong, IntegrityBroken, Refused, StoreUnavailable
from opledger.rules.model import Operation, State, StoredFile

PIECE: Final = 1024 * 1024
"""Bytes that are read and hashed in one step."""

Progress = Callable[[int, int], None]
"""Is told how many bytes of how many were looked at."""


@dataclass(slots=True)
class CheckedResult:
    """A stored result whose bytes are what the record says. Use it in a ``with`` statement, or close it.

    `path` is a file on this machine with exactly these bytes: the stored one itself, which must not be changed, or a
    copy out of an object store, which goes with `close`.
    """

    operation: Operation
    file: StoredFile  #: as the record has it; its name is "" for the result itself
    path: Path
    _open: BinaryIO
    _copy: Partial | None = None

    def stream(self) -> BinaryIO:
        """Return the open file at its beginning. It is the one that was looked at, whatever becomes of its name."""
        self._open.seek(0)
        return self._open

    def pieces(self, progress: Progress | None = None) -> Iterator[bytes]:
        """Yield the bytes, looked at once more; at the end raises IntegrityBroken if they changed meanwhile."""
        return _hashed(self.stream(), self.file, _says(self.operation, self.file), progress)

    def remark(self) -> str | None:
        """Return what whoever gets these bytes must know of them, or None."""
        op, result = self.operation, self.operation.result
        if result is not None and not result.validated:
            return f"this result did not pass its checks: {'; '.join(result.problems) or 'it was taken as it is'}"
        if op.state is not State.SUCCEEDED:
            return f"the operation is {op.state}: this is what the provider had by then"
        return None

    def close(self) -> None:
        """Close the file, and remove it where it is a copy."""
        self._open.close()
        if self._copy is not None:
            self._copy.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def checked(op: Operation, store: ResultStore, also: str | None, progress: Progress | None) -> CheckedResult:
    """Find the stored result of an operation and look at every byte of it.

    `also` names one of the further files of the result. Raises Refused where there is none, IntegrityBroken where it
    is gone or its bytes are not those that were stored, StoreUnavailable where the store is out of reach.
    """
    file = _stored(op, also)
    says = _says(op, file)
    try:
        source = store.open(file.location)
    except Gone:
        raise IntegrityBroken(
            f"{says} is not there any more, though its store is: somebody removed it; restore it from a copy, "
            f"its sha256 is {file.sha256}"
        ) from None
    except Refused:
        raise Refused(f"{says} is not in {store.where}; set OPLEDGER_RESULTS to the store where it was put") from None
    if isinstance(store, ResultFolder):
        found = CheckedResult(op, file, Path(file.location), source)
        try:
            for _ in found.pieces(progress):
                pass
        except BaseException:
            found.close()
            raise
        return found
    return _fetched(op, file, source, store.temporary(), progress)


def _fetched(
    op: Operation,
    file: StoredFile,
    source: BinaryIO,
    folder: Path,
    progress: Progress | None,
) -> CheckedResult:
    copy = Partial(folder)
    try:
        with source:
            for piece in _hashed(source, file, _says(op, file), progress):
                copy.write(piece)
        path = copy.close()
        return CheckedResult(op, file, path, path.open("rb"), copy)
    except BaseException:
        copy.discard()
        raise


def _hashed(source: BinaryIO, file: StoredFile, says: str, progress: Progress | None) -> Iterator[bytes]:
    digest, done = hashlib.sha256(), 0
    while done <= file.size:
        try:
            piece = source.read(PIECE)
        except OSError as error:
            raise StoreUnavailable(f"{says} cannot be read: {error.strerror or error}") from error
        if not piece:
            break
        digest.update(piece)
        done += len(piece)
        if progress is not None:
            progress(done, file.size)
        yield piece
    if done > file.size:
        raise IntegrityBroken(
            f"{says} is not what was stored: it has more than the {file.size} bytes that are recorded"
        )
    if done != file.size or digest.hexdigest() != file.sha256:
        raise IntegrityBroken(
            f"{says} is not what was stored: it has {done} bytes and the sha256 {digest.hexdigest()}, recorded are "
            f"{file.size} and {file.sha256}; it was changed since"
        )


def _says(op: Operation, file: StoredFile) -> str:
    return f"the result of {op.operation_id} at {file.location}"


def _stored(op: Operation, also: str | None) -> StoredFile:
    result = op.result
    if result is None:
        raise Refused(f"{op.operation_id} has no result: {_why_none(op)}")
    names = ", ".join(file.name for file in result.also)
    if also is not None:
        found = next((file for file in result.also if file.name == also), None)
        if found is None:
            raise Refused(f"{op.operation_id} has no further file {also[:80]!r}; there are: {names or 'none'}")
        return found
    if result.location is None or result.sha256 is None:
        raise Refused(
            f"{op.operation_id} has no result: the provider made none"
            + (f"; there are further files, ask for them with --also: {names}" if names else "")
        )
    return StoredFile("", result.location, result.size, result.sha256, result.content_type)


def _why_none(op: Operation) -> str:
    last = f" ({op.last_error})" if op.last_error else ""
    if op.state is State.RESULT_UNAVAILABLE:
        return f"it could not be had{last}; opledger choices tells what a person may do"
    if op.state.terminal:
        return f"it is {op.state}{last}"
    return f"it is {op.state}, so there is none yet; opledger explain tells what it waits for"


def under_way(op: Operation, setting: str, now: datetime) -> str | None:
    """Say how far the download of a result is, where a worker on this machine has got on with it just now."""
    if op.lease is None or op.state.needs_human:
        return None
    try:
        found = read_progress(open_store(setting).scratch, op.operation_id, now)
    except ConfigWrong:
        return None  # doctor says so
    if found is None:
        return None
    done, total = found
    return f"Of the result {size_words(done)}{f' of {size_words(total)}' if total else ''} are here."


def size_words(count: int) -> str:
    """Say a number of bytes as people do: ``312 MB``, ``2.0 GB``."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{count} bytes" if unit == "bytes" else f"{size:.{1 if size < 9.95 else 0}f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
