"""A golden file: JSON lines in xz. The first says what it is, each other one is a row of the database.

Of an event only its bytes are kept. Its columns are read out of them and its hashes are computed again, here and by
none of the product's code, so that the heads that records and checkpoints name prove the bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
FORMAT: Final = "opledger-golden/1"
EVENT: Final = (
    "operation_id", "seq", "at", "actor", "kind", "from_state", "to_state", "cause", "reason", "remote_job_id", "body",
    "prev_hash", "hash", "format",
)  # fmt: skip
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class Golden:
    """What one release has left: `head` describes it, `tables` are all rows, `archive` the file of an archive."""

    head: dict[str, Any]
    tables: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]
    bodies: list[bytes]
    archive: bytes


def names() -> list[str]:
    """Return the releases of which there are histories."""
    return sorted(path.stem for path in FOLDER.glob("*.xz") if not path.stem.endswith(".levels"))


def path_of(name: str) -> Path:
    """Return the file of a release."""
    return FOLDER / f"{name}.xz"


def write(path: Path, lines: Iterable[dict[str, Any]]) -> int:
    """Write a new file; return its size. Raises FileExistsError for one that is there."""
    text = b"".join(json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n" for line in lines)
    data = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
    with path.open("xb") as file:
        file.write(data)
    return len(data)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file."""
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


def load(name: str) -> Golden:
    """Read the histories of a release."""
    head, *lines = read(path_of(name))
    if head["format"] != FORMAT:
        raise ValueError(f"{name} has the format {head['format']}")
    tables: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = {}
    bodies: list[bytes] = []
    for line in lines:
        if "columns" in line:
            tables[line["table"]] = tuple(line["columns"]), []
        elif "body" in line:
            bodies.append(line["body"].encode())
        elif "row" in line:
            tables[line["table"]][1].append(tuple(map(value_of, line["row"])))
    tables["event"] = EVENT, list(events(bodies))
    archive = base64.b64decode(next(line["archive"] for line in lines if "archive" in line))
    return Golden(head, tables, bodies, archive)


def archived(golden: Golden) -> Golden:
    """Return the histories that went into the archive, as if they still stood in the ledger."""
    documents = [json.loads(line) for line in golden.archive.splitlines()]
    bodies = [base64.b64decode(one["body"]) for one in documents if one.get("type") == "event"]
    columns = golden.tables["operation"][0]
    records = [
        tuple(bytes.fromhex(one[name]) if name == "head_hash" else one.get(name) for name in columns)
        for one in documents
        if one.get("table") == "operation"
    ]
    return Golden(golden.head, {"operation": (columns, records), "event": (EVENT, list(events(bodies)))}, bodies, b"")


def shape_of(value: Any) -> Any:
    """Return a value of a column as JSON holds it."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def value_of(shape: Any) -> Any:
    """Return the value again."""
    return bytes.fromhex(shape["hex"]) if isinstance(shape, dict) else shape


def events(bodies: Iterable[bytes]) -> Iterator[tuple[Any, ...]]:
    """Make the journal rows from the bytes of the events, which stand in order of operation and seq."""
    before: dict[str, bytes] = {}
    for body in bodies:
        said = json.loads(body)
        name, seq = said["operation_id"], said["seq"]
        previous = before.get(name, bytes(32))
        raw = name.encode()
        hashed = hashlib.sha256(
            b"opledger/h1" + len(raw).to_bytes(8, "big") + raw + seq.to_bytes(8, "big") + previous
            + hashlib.sha256(body).digest()
        ).digest()  # fmt: skip
        before[name] = hashed
        at = (datetime.fromisoformat(said["at"]) - _EPOCH) // timedelta(microseconds=1)
        yield (
            name, seq, at, said["actor"]["name"], said["kind"], said["from"], said["to"], said["cause"], said["reason"],
            said["remote_job_id"], body, previous, hashed, said["format"],
        )  # fmt: skip


def fill(path: Path, golden: Golden, only: frozenset[str] | None = None) -> None:
    """Put the rows into a database, as far as it has their tables and columns; `only` these operations, if named."""
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("PRAGMA foreign_keys=0")
        guards = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for guard, _ in guards:  # they let in only what comes step by step
            file.execute(f"DROP TRIGGER {guard}")
        for table, (columns, found) in golden.tables.items():
            there = {row[1] for row in file.execute(f"PRAGMA table_info({table})")}
            kept = [at for at, column in enumerate(columns) if column in there]
            if not there:
                continue
            named = columns.index("operation_id") if only is not None and "operation_id" in columns else None
            into, marks = ", ".join(columns[at] for at in kept), ", ".join("?" * len(kept))
            text = f"INSERT INTO {table} ({into}) VALUES ({marks})"
            for row in found:
                if named is None or row[named] in (only or ()):
                    file.execute(text, [row[at] for at in kept])
        for _, again in guards:
            file.execute(again)
