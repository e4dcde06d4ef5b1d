"""A ledger with checkpoints whose guards are gone, for tests that change it as its owner could; put back in between.

`Victim` works on both databases. What it says of a tamper comes from both verifiers: the product, and the stand-alone
script over an export.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import psycopg

import opledger
from opledger.checkpoints.maker import Checkpointer
from opledger.ledger import Ledger, audit, export
from opledger.ledger.audit import Asked, Verified
from opledger.rules import journal
from opledger.rules.journal import Row
from opledger.store.packing import unpack
from tests.core.ledgers import RUNNING, VIOLATED, Home, happens, observed

Found = set[tuple[str, str | None, int | None]]

TABLES: Final = (
    "event", "request", "operation", "anchored", "leaf", "checkpoint", "acknowledgement", "tombstone", "ledger",
    "answer", "contract",
)  # fmt: skip
VERIFIER: Final = Path(opledger.__file__).parent / "verifier.py"


def checkpoint(ledger: Ledger) -> None:
    """Write a checkpoint over all that has moved, as a worker would."""
    Checkpointer(ledger.store.database, ledger.settings.audit, ledger.clock).finish()


def told(home: Home) -> dict[str, str]:
    """Write a history into an empty ledger: name of an operation -> its id.

    `a` and `b` are anchored twice, `c` once, each with events behind the last checkpoint; `d` is in none.
    """
    with home.ledger() as ledger:
        ids = {}
        for number, name in enumerate("abc"):
            op = ledger.submit("jobs", {"rows": number}, requested_by=f"agent-{name}", tags={"n": name})
            ids[name] = op.operation_id
            job = [one if not hasattr(one, "job_id") else _renamed(one, f"job_{name}") for one in RUNNING]
            happens(ledger, op, *job)
            if name == "b":
                checkpoint(ledger)
        for name in "ab":
            seen = observed("running", job=f"job_{name}"), observed(job=f"job_{name}")
            happens(ledger, ids[name], *seen, body=b'{"state":"running"}')
        checkpoint(ledger)
        for name in "abc":
            happens(ledger, ids[name], observed(job=f"job_{name}"), observed("busy", job=f"job_{name}"))
        ids["d"] = ledger.submit("jobs", {"rows": 9}, requested_by="agent-d").operation_id
        happens(ledger, ids["d"], *VIOLATED)
    return ids


def _renamed(evidence: Any, job: str) -> Any:
    from dataclasses import replace

    return replace(evidence, job_id=job)


class Victim:
    """A ledger that is tampered with, looked at and put back, many times."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.ids = told(home)
        self._session = _session(home.url)
        self.kind = "sqlite" if home.url.startswith("sqlite") else "postgresql"
        self._saved: dict[str, list[Any]] = {}
        (ledger_id,) = self.all("SELECT ledger_id FROM ledger")[0]
        named = [str(one).replace("{ledger}", ledger_id) for one in home.settings().audit.anchors]
        self.anchors = {Path(one): Path(one).read_bytes() for one in named}
        self._drop_guards()
        self.save()
        self.ledger = Ledger.open(settings=home.settings(), read_only=True)
        with home_key(home) as key:
            self.key = key

    def close(self) -> None:
        """Close everything."""
        self.ledger.close()
        self._session.close()

    def _drop_guards(self) -> None:
        if self.kind == "sqlite":
            for (name,) in self.all("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
                self.run(f'DROP TRIGGER "{name}"')
            self.run("PRAGMA foreign_keys=0")
            return
        for name, table in self.all(
            "SELECT tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "WHERE NOT tgisinternal AND c.relnamespace = current_schema()::regnamespace"
        ):
            self.run(f'DROP TRIGGER "{name}" ON "{table}"')
        self.run("ALTER TABLE request DROP CONSTRAINT request_operation_id_fkey")
        self.run("ALTER TABLE operation DROP CONSTRAINT operation_contract_digest_fkey")

    def save(self) -> None:
        """From now on this is what `restored` puts back."""
        self._saved = {table: self.all(f"SELECT * FROM {table}") for table in TABLES}

    def run(self, statement: str, *values: Any) -> int:
        """Run one statement with the rights of the owner; `?` stands for a value. Returns how many rows it changed."""
        text = statement if self.kind == "sqlite" else statement.replace("?", "%s")
        return int(self._session.execute(text, values).rowcount)

    def all(self, statement: str, *values: Any) -> list[Any]:
        """All rows of a query."""
        text = statement if self.kind == "sqlite" else statement.replace("?", "%s")
        return list(self._session.execute(text, values).fetchall())

    def columns(self, table: str) -> list[str]:
        """The columns of a table."""
        return [one[0] for one in self._session.execute(f"SELECT * FROM {table}").description]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Put everything back afterwards."""
        try:
            yield
        finally:
            self._session.execute("BEGIN")
            for table in TABLES:
                self.run(f"DELETE FROM {table}")
            for table in reversed(TABLES):
                rows = self._saved[table]
                if rows:
                    marks = ", ".join("?" * len(rows[0]))
                    for row in rows:
                        self.run(f"INSERT INTO {table} VALUES ({marks})", *row)
            self._session.execute("COMMIT")
            for path, data in self.anchors.items():
                path.write_bytes(data)

    def chain(self, name: str) -> list[Row]:
        """The events of one operation as they are stored."""
        return [
            Row(*row) for row in self.all("SELECT * FROM event WHERE operation_id = ? ORDER BY seq", self.ids[name])
        ]

    def rehash(self, name: str, since: int) -> None:
        """Compute hashes anew from one event on, and let the record name the new head: the most that can be done."""
        rows = self.chain(name)
        previous = rows[since - 2].hash.hex() if since > 1 else journal.GENESIS
        for row in rows[since - 1 :]:
            digest = journal.link(previous, row.operation_id, row.seq, unpack(row.body))
            self.run(
                "UPDATE event SET prev_hash = ?, hash = ? WHERE operation_id = ? AND seq = ?",
                bytes.fromhex(previous), bytes.fromhex(digest), row.operation_id, row.seq,
            )  # fmt: skip
            previous = digest
        self.run(
            "UPDATE operation SET head_hash = ?, head_seq = ? WHERE operation_id = ?",
            bytes.fromhex(previous), rows[-1].seq, rows[-1].operation_id,
        )  # fmt: skip

    # --- looking ------------------------------------------------------------------------------------------------

    def verified(self, **asked: Any) -> Verified:
        """What the product says."""
        asked = {"full": True, "key": self.key, **asked}
        return audit.run(self.ledger, Asked(**asked))

    def product(self, **asked: Any) -> Found:
        """Kind, operation and seq of everything that the product finds."""
        return {(one.kind, one.operation_id, one.seq) for one in self.verified(**asked).findings}

    def script(self, *more: str) -> Found:
        """What the stand-alone verifier finds, with the anchors of the settings."""
        path = self.home.root / "export.jsonl"
        path.write_bytes(b"".join(export.lines(self.ledger)))
        anchors = [f"--anchor={path}" for path in self.anchors]
        return standalone(str(path), f"--key={self.key}", *anchors, *more)


@contextlib.contextmanager
def home_key(home: Home) -> Iterator[str]:
    """The verifier key of a ledger, as `opledger audit key` prints it."""
    from opledger.checkpoints.keys import signer

    with home.ledger(read_only=True) as ledger:
        yield signer(ledger.store.database, ledger.settings.audit, ledger.clock).verifier


def standalone(*arguments: str) -> Found:
    """Run the stand-alone verifier in this process, as fresh as in one of its own."""
    spec = importlib.util.spec_from_file_location("verifier_under_test", VERIFIER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = io.StringIO()
    code: Any = None
    with (
        mock.patch.object(sys, "argv", ["verifier.py", *arguments, "--json"]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            module.main()
        except SystemExit as end:
            code = end.code
    found = {(one["kind"], one["operation_id"], one["seq"]) for one in map(json.loads, out.getvalue().splitlines())}
    assert code == (4 if found else 0), (code, out.getvalue())
    return found


def _session(url: str) -> Any:
    if url.startswith("sqlite"):
        session = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
        session.execute("PRAGMA busy_timeout=60000")
        return session
    return psycopg.connect(url, autocommit=True)


def flipped(value: Any, place: float = 0.5) -> Any:
    """Another value of the same type: one bit of bytes, one letter of a text, one more for a number."""
    if isinstance(value, bytes):
        at = min(int(len(value) * place), len(value) - 1)
        return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    if isinstance(value, str):
        at = min(int(len(value) * place), len(value) - 1)
        return value[:at] + ("x" if value[at] != "x" else "y") + value[at + 1 :] if value else "x"
    if isinstance(value, int):
        return value + 1
    return "something"


def kinds(found: Sequence[Any] | Found) -> set[str]:
    """The kinds alone."""
    return {one[0] if isinstance(one, tuple) else one.kind for one in found}


def sha256(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()
