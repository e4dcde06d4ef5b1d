"""A small ledger with checkpoints that is changed with all rights, in many ways: both verifiers must say so, and agree.

`tests.support.tampering` has the ledger, and `tests/core/ledger/test_audit_tampering.py` all the ways there are; these
are enough to hold a verifier to each of the findings of reliability.md §5.7.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from opledger.ledger import audit
from opledger.rules import journal
from opledger.store import open_database
from opledger.store.packing import unpack
from tests.core.ledgers import Home
from tests.support.databases import fresh_sqlite
from tests.support.tampering import Victim, flipped, kinds

Tamper = Callable[[Victim], None]


def _edited(column: str, table: str = "event") -> Tamper:
    def tamper(victim: Victim) -> None:
        (value,) = victim.all(f"SELECT {column} FROM {table} WHERE operation_id = ? AND seq = 2", victim.ids["a"])[0]
        victim.run(
            f"UPDATE {table} SET {column} = ? WHERE operation_id = ? AND seq = 2", flipped(value), victim.ids["a"]
        )

    return tamper


def _record(column: str) -> Tamper:
    def tamper(victim: Victim) -> None:
        (value,) = victim.all(f"SELECT {column} FROM operation WHERE operation_id = ?", victim.ids["a"])[0]
        victim.run(f"UPDATE operation SET {column} = ? WHERE operation_id = ?", flipped(value), victim.ids["a"])

    return tamper


def _gone(victim: Victim) -> None:
    victim.run("DELETE FROM event WHERE operation_id = ? AND seq = 3", victim.ids["a"])


def _cut(victim: Victim) -> None:
    """Down to before what a checkpoint saw, and the record put to what it was then."""
    victim.run("DELETE FROM event WHERE operation_id = ? AND seq > 2", victim.ids["c"])
    victim.run("UPDATE operation SET head_seq = 2 WHERE operation_id = ?", victim.ids["c"])
    victim.rehash("c", 2)


def _rewritten(victim: Victim) -> None:
    """The same length, another word, and all hashes anew."""
    for row in victim.chain("a"):
        body = unpack(row.body).replace(b"agent-a", b"agent-z")
        victim.run(
            "UPDATE event SET body = ?, actor = ? WHERE operation_id = ? AND seq = ?",
            body, row.actor.replace("agent-a", "agent-z"), row.operation_id, row.seq,
        )  # fmt: skip
    victim.rehash("a", 1)


def _moved(victim: Victim) -> None:
    last = victim.chain("d")[-1].seq
    victim.run(
        "UPDATE event SET operation_id = ?, seq = 99 WHERE operation_id = ? AND seq = ?",
        victim.ids["a"], victim.ids["d"], last,
    )  # fmt: skip


def _operation_gone(victim: Victim) -> None:
    for table in ("event", "request", "operation"):
        victim.run(f"DELETE FROM {table} WHERE operation_id = ?", victim.ids["c"])


def _last_checkpoint_gone(victim: Victim) -> None:
    (number, size) = victim.all("SELECT number, size FROM checkpoint ORDER BY number DESC LIMIT 2")[1]
    victim.run("DELETE FROM checkpoint WHERE number > ?", number)
    victim.run("DELETE FROM leaf WHERE number >= ?", size)


def _checkpoint_changed(victim: Victim) -> None:
    victim.run("UPDATE checkpoint SET note = replace(note, 'opledger', 'opledgers') WHERE number = 2")


def _checkpoint_signed_by_nobody(victim: Victim) -> None:
    (note,) = victim.all("SELECT note FROM checkpoint WHERE number = 1")[0]
    text, signature = note.rsplit(" ", 1)
    other = ("A" if signature[20] != "A" else "B").join((signature[:20], signature[21:]))
    victim.run("UPDATE checkpoint SET note = ? WHERE number = 1", f"{text} {other}")


def _first_checkpoint_gone(victim: Victim) -> None:
    victim.run("DELETE FROM checkpoint WHERE number = 1")


def _leaf_changed(victim: Victim) -> None:
    (value,) = victim.all("SELECT hash FROM leaf WHERE number = 0")[0]
    victim.run("UPDATE leaf SET hash = ? WHERE number = 0", flipped(value))


def _everything_gone(victim: Victim) -> None:
    for table in ("event", "request", "operation", "anchored", "leaf", "checkpoint", "answer"):
        victim.run(f"DELETE FROM {table}")


def _answer_changed(victim: Victim) -> None:
    victim.run("UPDATE answer SET body = ?", b'{"state":"failed_"}')


def _downgraded(victim: Victim) -> None:
    victim.run("UPDATE event SET format = 0 WHERE operation_id = ? AND seq = 2", victim.ids["a"])


TAMPERS: Final[dict[str, tuple[Tamper, str]]] = {
    "an event's bytes": (_edited("body"), "HASH"),
    "an event's hash": (_edited("hash"), "HASH"),
    "an event's link": (_edited("prev_hash"), "LINK"),
    "an event's actor": (_edited("actor"), "COLUMN"),
    "an event's cause": (_edited("cause"), "COLUMN"),
    "an event's reason": (_edited("reason"), "COLUMN"),
    "an event's time": (_edited("at"), "COLUMN"),
    "an event's kind": (_edited("kind"), "COLUMN"),
    "an event's job": (_edited("remote_job_id"), "COLUMN"),
    "an event's end": (_edited("to_state"), "COLUMN"),
    "a record's state": (_record("state"), "PROJECTION"),
    "a record's job": (_record("remote_job_id"), "PROJECTION"),
    "a record's requester": (_record("requested_by"), "PROJECTION"),
    "an event that is gone": (_gone, "SEQ"),
    "a tail that is cut": (_cut, "BEHIND_CHECKPOINT"),
    "a chain that is written anew": (_rewritten, "REWRITTEN"),
    "an event that is moved": (_moved, "MOVED"),
    "an operation that is gone": (_operation_gone, "MISSING_OP"),
    "the last checkpoint that is gone": (_last_checkpoint_gone, "ANCHOR_AHEAD"),
    "a checkpoint that is gone": (_first_checkpoint_gone, "CHECKPOINT_GAP"),
    "a checkpoint's text": (_checkpoint_changed, "CHECKPOINT_SIG"),
    "a checkpoint's signature": (_checkpoint_signed_by_nobody, "CHECKPOINT_SIG"),
    "a leaf": (_leaf_changed, "CHECKPOINT_CHAIN"),
    "an answer's bytes": (_answer_changed, "PROJECTION"),
    "an older format": (_downgraded, "FORMAT_DOWNGRADE"),
    "everything": (_everything_gone, "ANCHOR_AHEAD"),
}
"""What is done, and what it must be called."""

ALONE: Final = frozenset({"a record's requester", "an answer's bytes"})
"""What only the product can see: an export does not have it."""


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="opledger-planted-"))
    open_database(f"sqlite:///{folder / 'ledger.db'}").close()
    return folder


def forget_template() -> None:
    """Remove what was made once for all looks."""
    if _template.cache_info().currsize:
        shutil.rmtree(_template(), ignore_errors=True)
        _template.cache_clear()


@contextmanager
def _victim() -> Iterator[Victim]:
    with tempfile.TemporaryDirectory(prefix="opledger-planted-") as name:
        root = Path(name)
        victim = Victim(Home(root, fresh_sqlite(_template() / "ledger.db", root)))
        try:
            yield victim
        finally:
            victim.close()


def missed() -> tuple[str | None, str]:
    """Write a ledger, tamper with it, look; says what was not seen as it is (None: all was), and at which tamper."""
    journal._named.cache_clear()
    with _victim() as victim:
        product, script = victim.product(), victim.script()
        if product or script:
            return f"an honest ledger is blamed: {sorted(map(str, product | script))[:2]}", "nothing changed"
        for name, (tamper, kind) in TAMPERS.items():
            with victim.restored():
                tamper(victim)
                product, script = victim.product(), victim.script()
            if kind not in kinds(product):
                return f"{kind} is not found: {sorted(kinds(product))}", name
            if product != script and name not in ALONE:
                return f"two verifiers disagree: {sorted(map(str, product ^ script))[:2]}", name
        with tempfile.TemporaryDirectory(prefix="opledger-planted-") as other:
            empty = Home(Path(other), fresh_sqlite(_template() / "ledger.db", Path(other)))
            with empty.ledger(read_only=True) as ledger:
                found = kinds(audit.run(ledger, audit.Asked(full=True)).findings)
        if "NOTHING_CHECKED" not in found:
            return f"nothing was checked, and that is called fine: {sorted(found)}", "an empty ledger"
    return None, f"{len(TAMPERS) + 1} tampers"


__all__ = ["TAMPERS", "forget_template", "missed"]
