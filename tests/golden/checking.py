"""What must hold of golden histories under the present code. Each check returns what is wrong, in words."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from opledger.errors import IllegalTransition
from opledger.ledger import Ledger, audit, export
from opledger.ledger.audit import Asked
from opledger.rules import journal
from opledger.rules.model import Operation, from_rfc3339
from opledger.rules.projection import project
from opledger.rules.tasks import records
from opledger.store import rows, schema
from opledger.store.engine import open_database
from tests.fakes.clock import HandClock
from tests.golden import kept, making
from tests.support.tampering import standalone

_LEASE = {"lease_owner", "lease_expires_at", "lease_epoch"}


def check(name: str, folder: Path) -> list[str]:
    """Check all that a release has left."""
    golden = kept.load(name)
    return [
        *folded(golden),
        *folded(kept.archived(golden)),
        *task_records(golden),
        *whole(golden, folder),
        *levels(name, golden, folder),
    ]


def folded(golden: kept.Golden) -> Iterator[str]:
    """Every event is read and written as the same bytes, and the journal comes to the record that was stored."""
    columns, found = golden.tables["operation"]
    stored = {row[columns.index("operation_id")]: dict(zip(columns, row, strict=True)) for row in found}
    for name, chain in groupby(golden.tables["event"][1], itemgetter(0)):
        again = _record(name, list(chain))
        if isinstance(again, str):
            yield again
            continue
        try:
            made = dict(zip(rows.COLUMNS, rows.new_row(again), strict=True))
        except ValueError as error:
            yield f"{name}: its record cannot be written any more: {error}"
            continue
        for column, value in stored.pop(name, {}).items():
            if column not in _LEASE and column not in made:
                yield f"{name}: the column {column} is gone"
            elif column not in _LEASE and not _same(made[column], value):
                yield f"{name}: {column} is {made[column]!r}, and was {value!r}"
    yield from (f"{name}: it has no journal" for name in stored)


def _record(name: str, chain: list[tuple[Any, ...]]) -> Operation | str:
    record: Operation | None = None
    for row in chain:
        body, where = row[10], f"{name}, event {row[1]} ({row[4]})"
        try:
            said = journal.read_body(body)
            written = journal.body_of(said.entry, said.from_state, said.to_state, said.remote_job_id, said.plan)
            if written != body:
                return f"{where}: it is written as other bytes now: {written!r}"
            record = rows.sealed(project(record, said.entry), said.plan, row[1], row[12].hex(), None)
        except (ValueError, IllegalTransition) as error:
            return f"{where}: {error}"
        if (said.to_state or record.state) is not record.state:
            return f"{where}: it leads to {record.state} now, and led to {said.to_state}"
    assert record is not None
    return record


def _same(one: Any, other: Any) -> bool:
    if one == other:
        return True
    try:
        return json.loads(one) == json.loads(other)
    except (TypeError, ValueError):
        return False


def task_records(golden: kept.Golden) -> Iterator[str]:
    """Every record of a task is read and written as the same bytes."""
    columns, found = golden.tables["task_record"]
    for row in found:
        line = row[columns.index("body")]
        try:
            if records.write(records.read(line)) != line:
                yield f"a record of a task is written otherwise now: {line!r}"
        except ValueError as error:
            yield f"a record of a task {error}: {line!r}"


def whole(golden: kept.Golden, folder: Path) -> Iterator[str]:
    """In a new database they verify, here and by the stand-alone verifier, and are exported as they were."""
    path = folder / "ledger.db"
    open_database(f"sqlite:///{path}").close()
    kept.fill(path, golden)
    (folder / "archive.jsonl").write_bytes(golden.archive)
    clock = HandClock(from_rfc3339(golden.head["exported_at"]))
    with Ledger.open(settings=making.settings(folder, f"sqlite:///{path}"), read_only=True, clock=clock) as ledger:
        found = audit.run(
            ledger, Asked(full=True, key=golden.head["verifier_key"], archives=[folder / "archive.jsonl"])
        )
        yield from (f"{one.kind} {one.operation_id} {one.seq}: {one.message}" for one in found.findings)
        data = b"".join(export.lines(ledger))
        for record in ledger.list():
            ledger.show(record.operation_id)
    if hashlib.sha256(data).hexdigest() != golden.head["export_sha256"]:
        yield "the export has other bytes than it had"
    (folder / "export.jsonl").write_bytes(data)
    said = standalone(str(folder / "export.jsonl"), f"--key={golden.head['verifier_key']}")
    yield from (f"the stand-alone verifier: {one}" for one in sorted(said, key=str))


def levels(name: str, golden: kept.Golden, folder: Path) -> Iterator[str]:
    """A database of every schema until then is upgraded, and nothing in it is lost or changed."""
    for level in kept.read(kept.FOLDER / f"{name}.levels.xz"):
        yield from (f"schema {level['schema']}: {one}" for one in upgraded(level, folder))


def upgraded(level: dict[str, Any], folder: Path) -> Iterator[str]:
    """Open a database of an older schema, which upgrades it, and compare every row with what it had."""
    path = folder / f"{level['schema']}.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA foreign_keys=0")
        file.executescript(level["sql"])
    before = _all(path)
    with Ledger.open(settings=making.settings(folder, f"sqlite:///{path}")) as ledger:
        shown = [ledger.show(one.operation_id) for one in ledger.list()]
        found = audit.run(ledger, Asked(full=True))
    after = _all(path)
    if len(shown) != level["operations"]:
        yield f"{len(shown)} operations are shown of {level['operations']}"
    if after[schema.VERSION_TABLE][0]["version_num"] != schema.CURRENT:
        yield f"it has not become schema {schema.CURRENT}"
    for table in sorted(before.keys() - {schema.VERSION_TABLE}):
        columns = before[table][0].keys() if before[table] else ()
        now = [{column: row.get(column) for column in columns} for row in after[table]]
        if sorted(map(repr, now)) != sorted(repr(dict(row)) for row in before[table]):
            yield f"rows of {table} were lost or changed"
    wanted = {"CHECKPOINT_CHAIN", "CHECKPOINT_SIG", "MISSING_OP"}  # of the whole ledger, of which here is a part
    yield from (f"{one.kind} {one.operation_id}: {one.message}" for one in found.findings if one.kind not in wanted)


def _all(path: Path) -> dict[str, list[dict[str, Any]]]:
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        tables = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [dict(row) for row in file.execute(f"SELECT * FROM {table}")] for table in tables}
