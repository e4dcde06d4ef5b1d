"""The archive: operations that have ended go into a file that can be verified, and leave tombstones.

First the file is written, whole and durable, and read back; only then is anything deleted. Whatever happens in between
leaves the ledger as it was, and a file too many. A name that ends in ``.gz`` asks for the file to be compressed: what
many polls have in common then takes no room; ``gzip -d`` gives the file that would have been written without.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from opledger.edges.files import copy_out, digest_of
from opledger.errors import IntegrityBroken, Refused, StoreUnavailable, UsageError
from opledger.ledger import export
from opledger.ledger.auditing import Part, in_pieces, look
from opledger.ledger.reading import Reading
from opledger.rules import human, webhooks
from opledger.rules.journal import Finding, Row
from opledger.rules.model import Actor, ActorKind, to_rfc3339
from opledger.rules.tombstones import Tombstone
from opledger.store import archiving, auditing, rows
from opledger.store.auditing import Slice
from opledger.store.encoding import to_micros

MOST: Final = 20_000
"""Operations that go into one file."""

LONGEST_LINE: Final = 64 * 2**20
"""Bytes of the longest line that is read back; more is nothing that the archive wrote."""

_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be archived."""

    before: datetime
    ids: tuple[str, ...]
    more: bool  #: there is more than goes into one file
    webhooks: bool  #: the time was moved back: of newer ones a webhook may still come


@dataclass(frozen=True, slots=True)
class Done:
    """What was archived."""

    operations: int
    file: Path
    sha256: str
    more: bool

    def shape(self) -> dict[str, Any]:
        """The outcome as ``archive --json`` prints it."""
        return {"archived": self.operations, "file": str(self.file), "sha256": self.sha256, "more": self.more}


def plan(ledger: Reading, before: datetime) -> Plan:
    """Say what can be archived that was closed before a time: its head is in a checkpoint, nothing is left to do.

    Nothing goes whose webhooks may still come again.
    """
    latest = ledger.clock.now() - webhooks.KEEP
    ids = archiving.ripe(ledger.store.database, to_micros(min(before, latest)), most=MOST + 1)
    return Plan(min(before, latest), tuple(ids[:MOST]), len(ids) > MOST, before > latest)


def archive(ledger: Reading, planned: Plan, out: Path, *, reason: str, by: Actor) -> Done:
    """Write the file, verify it, then put up tombstones and delete. Raises Refused, StoreUnavailable, IntegrityBroken.

    Refused for agents, for a file that is there already, and where an operation moved on meanwhile: what was let go
    of by then has its tombstone, and the file.
    """
    because, database = human.reason(reason), ledger.store.database
    check_person(by)
    if out.exists():
        raise UsageError(f"{out} is there already; name a new file")
    if not planned.ids:
        raise Refused("nothing can be archived: nothing that has ended was closed before then and is in a checkpoint")
    lines = export.of(ledger, list(planned.ids), rows_too=True)
    copy_out(compressed(lines) if out.suffix == ".gz" else lines, out)
    read = File(out)
    found = read.look()
    if found.findings:
        one = found.findings[0]
        raise IntegrityBroken(f"nothing was deleted: {one.operation_id} is not whole ({one.kind}: {one.message})")
    now, path = to_micros(ledger.clock.now()), str(out.resolve())
    stones = [
        one._replace(archived_at=now, by=by.name, reason=because, file=path, file_sha256=bytes.fromhex(read.sha256))
        for some in in_pieces(planned.ids, archiving.BATCH)
        for one in archiving.heads(database, some)
    ]
    gone = read.heads()
    if any(gone.get(one.operation_id) != (one.seq, one.head_hash) for one in stones) or len(stones) != len(planned.ids):
        raise Refused("an operation moved on while it was written; nothing was deleted: begin again")
    for some_stones in (stones[at : at + archiving.BATCH] for at in range(0, len(stones), archiving.BATCH)):
        archiving.bury(database, some_stones)
    return Done(len(stones), out, read.sha256, planned.more)


def check_person(by: Actor) -> None:
    """Raise Refused for an agent."""
    if by.kind is not ActorKind.HUMAN:
        raise Refused(f"{by.name} is no person; only a person may archive what the ledger holds")


# --- reading such a file ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class File:
    """A file that the archive wrote. Raises IntegrityBroken for one that is none or was cut or changed in its form.

    UsageError where there is none, StoreUnavailable where it cannot be read.
    """

    path: Path
    sha256: str = ""
    events: dict[str, list[Row]] = field(default_factory=dict)
    kept: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  #: table -> operation -> row

    def __post_init__(self) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError as error:
            raise UsageError(f"there is no archive {self.path}; check the path") from error
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be read: {error.strerror}") from error
        self.sha256 = hashlib.sha256(data).hexdigest()
        try:
            number = 0
            one: dict[str, Any] = {}
            for number, one in enumerate(map(json.loads, _lines(data)), 1):
                if number == 1 and one["format"] != export.FORMAT:
                    break
                if one.get("type") == "event":
                    self.events.setdefault(one["operation_id"], []).append(Row(**_read(one)))
                elif one.get("type") == "row":
                    self.kept.setdefault(one["table"], {})[one["operation_id"]] = _read(one)
            if number < 2 or one != {"type": "end", "lines": number}:
                raise ValueError("it was cut, or is something else")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, OSError, zlib.error) as error:
            raise IntegrityBroken(f"{self.path} is no whole archive of opledger: {error}") from error

    def heads(self) -> dict[str, tuple[int, bytes]]:
        """The last event of each operation: its seq and hash."""
        return {name: (chain[-1].seq, chain[-1].hash) for name, chain in self.events.items()}

    def look(self) -> Part:
        """Verify every chain, record and request in it."""
        return look(
            Slice(
                [[row.get(name) for name in rows.COLUMNS] for row in self.kept.get("operation", {}).values()],
                [event for chain in self.events.values() for event in chain],
                [[row.get(name) for name in export.REQUEST] for row in self.kept.get("request", {}).values()],
                [],
            ),
            {},
        )


def compressed(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Compress as gzip does (RFC 1952), without a name or a time: the same lines give the same file."""
    writer = zlib.compressobj(9, zlib.DEFLATED, 31)
    for line in lines:
        if piece := writer.compress(line):
            yield piece
    yield writer.flush()


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a file, compressed or not. Raises OSError, EOFError, zlib.error or ValueError."""
    if not data.startswith(_GZIP):
        yield from data.splitlines()
        return
    with gzip.GzipFile(fileobj=BytesIO(data)) as file:
        while line := file.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise ValueError("a line in it is longer than any that was written")
            yield line


_HEX: Final = frozenset({"prev_hash", "hash", "head_hash"})
_BASE64: Final = frozenset({"body", "asked"})


def _read(one: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in one.items() if name not in {"type", "table"}}


def _value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, dict):
        return value
    if name in _HEX:
        return bytes.fromhex(value)
    return base64.b64decode(value, validate=True) if name in _BASE64 else value


def verify(ledger: Reading, paths: Sequence[Path]) -> Iterator[Finding]:
    """Compare archives with the tombstones that name them.

    Finds, besides what is wrong with the chains themselves: HASH where the file is no archive or not the one written,
    MISSING_OP where it lacks an operation, REWRITTEN and BEHIND_CHECKPOINT where a chain is not the one that was
    archived, NOTHING_CHECKED where no tombstone names the file or anything in it.
    """
    database = ledger.store.database
    for path in paths:
        try:
            file = File(path)
        except IntegrityBroken as error:
            yield Finding("HASH", None, None, error.message)
            continue
        yield from file.look().findings
        stones = archiving.in_file(database, bytes.fromhex(file.sha256))
        if not stones:
            named = [one for some in in_pieces(list(file.events), 500) for one in auditing.tombstones(database, some)]
            if not named:
                yield Finding("NOTHING_CHECKED", None, None, f"no tombstone names {path} or anything in it")
                continue
            yield Finding("HASH", None, None, f"{path} is not as it was written: its SHA-256 is in no tombstone")
            stones = [one for some in {one.file_sha256 for one in named} for one in archiving.in_file(database, some)]
        heads = file.heads()
        for stone in stones:
            yield from _against(stone, heads.get(stone.operation_id), path)


def unread(ledger: Reading, paths: Sequence[Path]) -> Iterator[Finding]:
    """Name each file that tombstones speak of and that was not given: nobody has looked whether it is there.

    A tombstone hides an operation until its file is looked at, so that one is never passed over without a word.
    """
    given = {digest_of(path)[1] for path in paths if path.is_file()}
    for name, sha256, number in auditing.archives(ledger.store.database):
        if not isinstance(sha256, bytes) or sha256.hex() not in given:
            words = f"{number:,} archived operations lie in {name}, which was not looked at; give it: --archive FILE"
            yield Finding("ARCHIVE_UNREAD", None, None, words)


def _against(stone: Tombstone, head: tuple[int, bytes] | None, path: Path) -> Iterator[Finding]:
    if head is None:
        yield Finding("MISSING_OP", stone.operation_id, None, f"its tombstone says that it lies in {path}")
    elif head[0] < stone.seq:
        words = f"{path} ends at event {head[0]}, and its tombstone says {stone.seq}"
        yield Finding("BEHIND_CHECKPOINT", stone.operation_id, stone.seq, words)
    elif head != (stone.seq, stone.head_hash):
        words = f"in {path} it is another chain than the one that was archived"
        yield Finding("REWRITTEN", stone.operation_id, stone.seq, words)


def told(planned: Plan) -> str:
    """What archiving would do, in a sentence for whoever is to say yes."""
    moved = f" (webhooks may come for {webhooks.KEEP.days} days)" if planned.webhooks else ""
    return (
        f"{len(planned.ids):,} operations that were closed before {to_rfc3339(planned.before)}{moved} would be written "
        "to a file and deleted from the ledger; tombstones stay."
    )
