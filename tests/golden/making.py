"""A ledger of golden histories, made by the present version: the same name gives the same file, to the byte."""

from __future__ import annotations

import base64
import hashlib
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from opledger.checkpoints.maker import Checkpointer
from opledger.config import Settings, load_settings
from opledger.ledger import Ledger, archive, export
from opledger.rules import notes
from opledger.rules.files.contract import parse
from opledger.rules.model import Actor, ActorKind, to_rfc3339
from opledger.rules.tasks import records
from opledger.store import guards, rows, schema
from opledger.store.engine import open_database
from opledger.store.packing import unpack
from tests.core.rules.operations import CANCEL, JOBS
from tests.fakes.clock import HandClock
from tests.golden import kept, walk

HISTORIES: Final = 224
MOST: Final = 300 * 1024
"""Bytes of the largest file that is kept in the repository."""

PLACE: Final = Path("/tmp/opledger-golden")
"""Where the archive is written: tombstones name the file, so that the place is a part of the histories."""

LATER: Final = walk.T0 + timedelta(days=400)
ARCHIVED: Final = 24
BODY: Final = walk.REQUEST.body
ANSWERS: Final = tuple(f'{{"id":"job_7","n":{number}}}'.encode() for number in range(3))
PERSON: Final = Actor("ana", ActorKind.HUMAN)


def settings(folder: Path, url: str) -> Settings:
    """Return the settings of a ledger in a folder, with nothing of this machine in them."""
    (folder / "opledger.toml").write_text(f'[audit]\nkey = "{folder / "key"}"\nanchors = []\n', "utf-8")
    return load_settings({"db": url}, {"HOME": str(folder)}, folder, folder / "none", folder / "none")


def make(name: str) -> tuple[int, walk.Reached]:
    """Write the histories of a release, and databases of every schema until now. Raises FileExistsError."""
    for path in (kept.path_of(name), kept.FOLDER / f"{name}.levels.xz"):
        if path.exists():
            raise FileExistsError(path)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    try:
        reached = walk.Reached()
        lines = list(_lines(name, reached))
        size = kept.write(kept.path_of(name), lines)
        kept.write(kept.FOLDER / f"{name}.levels.xz", _levels(kept.load(name)))
        if size > MOST:
            raise ValueError(f"the file has {size:,} bytes; {MOST:,} is the most")
        return size, reached
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


def _lines(name: str, reached: walk.Reached) -> Iterator[dict[str, Any]]:
    luck, path = random.Random(f"golden {name}"), PLACE / "ledger.db"
    contract = parse(JOBS + CANCEL, environment={})
    open_database(f"sqlite:///{path}").close()
    clock, key = HandClock(), _key(name)
    told = settings(PLACE, f"sqlite:///{path}")
    hashed = hashlib.sha256(BODY).hexdigest()
    answers = [hashlib.sha256(body).hexdigest() for body in ANSWERS]
    made: list[tuple[Any, list[walk.Row]]] = []
    while len(made) < HISTORIES or (walk.missing(reached) and len(made) < 2 * HISTORIES):
        made.append(walk.history(luck, contract, len(made), hashed, answers, reached))
    with closing(sqlite3.connect(path)) as file, file:
        ledger_id = "ldg_01KB" + "".join(luck.choice(walk._LETTERS) for _ in range(22))
        file.execute("INSERT INTO ledger VALUES (1, ?, ?, ?)", (ledger_id, 0, base64.b64encode(key).decode()))
        file.execute("INSERT INTO contract VALUES (?, ?, ?, '{}')", (contract.digest, contract.name, contract.source))
        for body in ANSWERS:
            given = (hashlib.sha256(body).digest(), "application/json", len(body), 0, body)
            file.execute(
                "INSERT INTO answer (sha256, content_type, size, truncated, body) VALUES (?, ?, ?, ?, ?)", given
            )
    for part in range(4):
        _write(path, made[part::4], contract.name)
        with Ledger.open(settings=told, clock=clock) as ledger:
            Checkpointer(ledger.store.database, told.audit, clock).finish()
        clock.pass_by(60)
    clock.pass_by((LATER - clock.now()).total_seconds())
    with Ledger.open(settings=told, clock=clock) as ledger:
        _tasks(ledger, clock)
        planned = archive.plan(ledger, LATER - timedelta(days=300))
        archive.archive(
            ledger, replace(planned, ids=planned.ids[:ARCHIVED]), PLACE / "archive.jsonl", reason="old", by=PERSON
        )
        Checkpointer(ledger.store.database, told.audit, clock).finish()
        whole = b"".join(export.lines(ledger))
    yield {
        "format": kept.FORMAT,
        "name": name,
        "schema": schema.CURRENT,
        "exported_at": to_rfc3339(clock.now()),
        "export_sha256": hashlib.sha256(whole).hexdigest(),
        "verifier_key": notes.verifier_key(f"opledger/{ledger_id}", key),
        "arrows": len(reached.arrows),
    }
    yield {"archive": base64.b64encode((PLACE / "archive.jsonl").read_bytes()).decode()}
    yield from _tables(path)


def _key(name: str) -> bytes:
    """Write the key that signs, which is of no use elsewhere; return its public half."""
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"golden {name}".encode()).digest())
    data = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (PLACE / "key").touch(0o600)
    (PLACE / "key").write_bytes(data)
    return private.public_key().public_bytes_raw()


def _write(path: Path, made: list[tuple[Any, list[walk.Row]]], contract: str) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for record, events in made:
            row = rows.new_row(record)
            file.execute(f"INSERT INTO operation VALUES ({', '.join('?' * len(row))})", row)
            url = "https://api.example.com/jobs"
            request = (record.operation_id, "POST", url, "[]", "application/json", BODY, None, None)
            file.execute("INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?)", request)
            file.executemany(f"INSERT INTO event VALUES ({', '.join('?' * len(kept.EVENT))})", events)
        first = made[0][0]
        taken = ("dlv_" + first.operation_id[-8:], contract, "id:evt", 1, "job.done", None, None, first.operation_id)
        file.execute(
            "INSERT OR IGNORE INTO delivery (delivery_id, contract, dedupe_key, received_at, event_type, job_id, "
            "token, operation_id, matched_at, size, body_sha256, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 2, 2, ?, ?)",
            (*taken, hashlib.sha256(b"{}").digest(), b"{}"),
        )


def _tasks(ledger: Ledger, clock: HandClock) -> None:
    for number, kind in enumerate((records.Kind.NOTE, *records.Kind), 1):
        record = records.Record(
            seq=number,
            at=clock.now(),
            actor="ana",
            run="run_golden",
            step=None if number == 1 else "fetch",
            kind=kind,
            proof={"began": "golden"},
            outputs={"é\u202e": [1.5, None]},
            reason=walk.WORDS[number % len(walk.WORDS)] or None,
            fingerprint="sha256:1",
            place="here",
        )
        ledger.store.tasks.append("golden", record, records.write(record), clock.now())


def _tables(path: Path) -> Iterator[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as file:
        for (body,) in file.execute("SELECT body FROM event ORDER BY operation_id, seq"):
            yield {"body": unpack(body).decode()}
        found = file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (table,) in found:
            if table in {"event", schema.VERSION_TABLE} or table.startswith("sqlite_"):
                continue
            reading = file.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
            yield {"table": table, "columns": [one[0] for one in reading.description]}
            for row in reading:
                yield {"table": table, "row": [kept.shape_of(value) for value in row]}


# --- databases of every schema ---------------------------------------------------------------------------------------


def _levels(golden: kept.Golden) -> Iterator[dict[str, Any]]:
    """Yield a database of each schema that was ever released, as SQL, with a few operations in it."""
    columns, found = golden.tables["operation"]
    by_state = {row[columns.index("state")]: row[columns.index("operation_id")] for row in found}
    for revision in schema.REVISIONS:
        path = PLACE / f"{revision}.db"
        migrated(path, revision)
        kept.fill(path, golden, frozenset(by_state.values()))
        with closing(sqlite3.connect(path)) as file:
            yield {"schema": revision, "operations": len(by_state), "sql": "\n".join(file.iterdump())}


def migrated(path: Path, revision: str) -> None:
    """Make an empty database of an older schema, as the migrations of today make it."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            config = Config()
            config.set_main_option("script_location", "opledger.store:migrations")
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            if revision == schema.CURRENT:
                guards.install("sqlite", connection.exec_driver_sql)
    finally:
        engine.dispose()
