"""Whatever somebody with all rights changes is found, by its kind and at its place, by two verifiers that agree.

Every row class, every column, edited, emptied, removed, added, moved; before and after a checkpoint; on both databases.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from opledger.checkpoints import maker
from opledger.checkpoints.keys import signer
from opledger.rules import notes
from opledger.rules.auditlog import Acknowledgement
from opledger.rules.journal import Row
from opledger.store import checkpointing, checkpoints
from opledger.store.checkpointing import Moved
from opledger.store.packing import unpack
from opledger.store.tables import METADATA
from tests.core.ledgers import Home
from tests.support.databases import fresh_postgres, fresh_sqlite, postgres_server, sqlite_template  # noqa: F401
from tests.support.tampering import TABLES, Victim, flipped, kinds

EVENTS: dict[str, str] = {
    "operation_id": "MOVED",
    "seq": "SEQ",
    "body": "HASH",
    "prev_hash": "LINK",
    "hash": "HASH",
    "format": "FORMAT_DOWNGRADE",
}
"""What an edit of a column is called; of every other column: COLUMN."""

UNCOVERED = {"lease_owner", "lease_expires_at", "lease_epoch"}
"""Columns of a record that are no part of its history."""


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """One ledger for all tests of a database."""
    root = tmp_path_factory.mktemp("victim")
    if request.param == "sqlite":
        home = Home(root, fresh_sqlite(request.getfixturevalue("sqlite_template"), root))
        victim = Victim(home)
        yield victim
        victim.close()
        return
    with fresh_postgres(request.getfixturevalue("postgres_server")) as url:
        victim = Victim(Home(root, url))
        yield victim
        victim.close()


@pytest.fixture
def victim(shared: Victim) -> Iterator[Victim]:
    """The ledger as it was written, without its guards."""
    with shared.restored():
        yield shared


def both(victim: Victim, **asked: object) -> set[tuple[str, str | None, int | None]]:
    """What both verifiers find; they must agree."""
    product, script = victim.product(**asked), victim.script()
    assert product == script
    return product


def test_what_was_written_is_found_whole(victim: Victim) -> None:
    """No alarm; what no checkpoint has seen is told, and is no finding."""
    assert both(victim) == set()
    found = victim.verified()
    assert found.shape()["ok"]
    assert (found.progress.done, found.checkpoints) == (4, 2)
    assert found.anchored is not None and found.anchored[0].note.number == 2
    assert [(one.kind, one.message[:9]) for one in found.notes] == [("UNANCHORED_TAIL", "11 events")]


# --- events -------------------------------------------------------------------------------------------------------


def test_every_column_of_every_event(victim: Victim) -> None:
    """Edited in one bit, letter or number, each in its own look; the bytes at several places."""
    columns = victim.columns("event")
    for name in "abcd":
        for row in victim.chain(name):
            for column, place in [*((column, row.seq / 20) for column in columns), ("body", 0.0), ("body", 1.0)]:
                with victim.restored():
                    value = flipped(getattr(row, column), place)
                    if column == "seq":
                        value = 1_000 + row.seq
                    victim.run(
                        f"UPDATE event SET {column} = ? WHERE operation_id = ? AND seq = ?",
                        value, row.operation_id, row.seq,
                    )  # fmt: skip
                    found = both(victim)
                    expect_event(victim, row, column, value, found)


def expect_event(
    victim: Victim, row: Row, column: str, value: object, found: set[tuple[str, str | None, int | None]]
) -> None:
    """The right kind, at the right place."""
    kind = EVENTS.get(column, "COLUMN")
    if column == "operation_id":
        # The row stands under another name now, and is missing where it was.
        assert ("MOVED", value, row.seq) in found, (row.seq, found)
        assert any(one[1] == row.operation_id for one in found) or row.seq == len(victim.chain("a"))
    elif column == "seq":
        assert ("SEQ", row.operation_id, value) in found, (row.seq, found)
    else:
        assert (kind, row.operation_id, row.seq) in found, (column, row.seq, found)
        assert {one[1] for one in found} == {row.operation_id}


def test_an_event_that_is_gone(victim: Victim) -> None:
    """In the middle SEQ at the next one; at the end what record and checkpoint know."""
    for name in "abcd":
        rows = victim.chain(name)
        for row in rows:
            with victim.restored():
                victim.run("DELETE FROM event WHERE operation_id = ? AND seq = ?", row.operation_id, row.seq)
                found = both(victim)
                if row.seq < len(rows):
                    assert ("SEQ", row.operation_id, row.seq + 1) in found
                else:
                    assert ("PROJECTION", row.operation_id, row.seq - 1) in found


def test_a_tail_that_was_cut_off(victim: Victim) -> None:
    """Also where the record is put back to what it was then: a checkpoint has seen more."""
    for name in "abc":
        rows = victim.chain(name)
        anchored = max(seq for (seq,) in victim.all("SELECT seq FROM leaf WHERE operation_id = ?", victim.ids[name]))
        for last in range(1, len(rows)):
            with victim.restored():
                victim.run("DELETE FROM event WHERE operation_id = ? AND seq > ?", victim.ids[name], last)
                victim.run(
                    "UPDATE operation SET head_seq = ?, version = ?, head_hash = ? WHERE operation_id = ?",
                    last, last, rows[last - 1].hash, victim.ids[name],
                )  # fmt: skip
                found = victim.product()
                assert (("BEHIND_CHECKPOINT", victim.ids[name], anchored) in found) == (last < anchored)
                assert {one for one in found if one[0] != "PROJECTION"} == {
                    one for one in victim.script() if one[0] != "PROJECTION"
                }


def test_a_chain_that_was_hashed_again(victim: Victim) -> None:
    """From every event on, with the record made to fit: the chain holds, and a checkpoint saw another one."""
    for name in "abc":
        leaves = [seq for (seq,) in victim.all("SELECT seq FROM leaf WHERE operation_id = ?", victim.ids[name])]
        for row in victim.chain(name):
            with victim.restored():
                forged = unpack(row.body).replace(b'"cause":"', b'"cause":"x')
                victim.run(
                    "UPDATE event SET body = ?, cause = ? WHERE operation_id = ? AND seq = ?",
                    forged, f"x{row.cause}", row.operation_id, row.seq,
                )  # fmt: skip
                victim.rehash(name, row.seq)
                found = both(victim)
                seen = [seq for seq in leaves if seq >= row.seq]
                assert found == ({("REWRITTEN", row.operation_id, min(seen))} if seen else set())


def test_events_that_were_exchanged(victim: Victim) -> None:
    """Two neighbours, with everything but their seq."""
    for name in "ab":
        rows = victim.chain(name)
        for one, other in pairwise(rows):
            with victim.restored():
                where = "operation_id = ? AND seq = ?"
                victim.run(f"UPDATE event SET seq = -1 WHERE {where}", one.operation_id, one.seq)
                victim.run(f"UPDATE event SET seq = ? WHERE {where}", one.seq, other.operation_id, other.seq)
                victim.run(f"UPDATE event SET seq = ? WHERE {where}", other.seq, one.operation_id, -1)
                found = both(victim)
                assert {("LINK", one.operation_id, one.seq), ("COLUMN", one.operation_id, one.seq)} <= found


def test_an_event_that_was_inserted(victim: Victim) -> None:
    """A copy at another place of the same operation, of another one, in front of the first, behind the last."""
    a, b = victim.chain("a"), victim.chain("b")
    marks = ", ".join("?" * len(Row._fields))
    for row, kind in (
        (a[2]._replace(seq=len(a) + 1), "LINK"),
        (a[2]._replace(seq=0), "SEQ"),
        (a[2]._replace(seq=-7), "SEQ"),
        (b[2]._replace(operation_id=victim.ids["a"], seq=len(a) + 1), "MOVED"),
        (a[-1]._replace(seq=len(a) + 1, prev_hash=a[-1].hash), "HASH"),
        (a[2]._replace(operation_id="op_nobody"), "MISSING_OP"),
    ):
        with victim.restored():
            victim.run(f"INSERT INTO event VALUES ({marks})", *row)
            found = both(victim)
            seq = None if kind == "MISSING_OP" else row.seq
            assert (kind, row.operation_id, seq) in found, found


def test_an_operation_that_is_gone(victim: Victim) -> None:
    """Its journal, its record, or both: leaves know it."""
    for name in "abc":
        for tables in (["event"], ["operation"], ["event", "operation", "request"]):
            with victim.restored():
                for table in tables:
                    victim.run(f"DELETE FROM {table} WHERE operation_id = ?", victim.ids[name])
                assert both(victim) == {("MISSING_OP", victim.ids[name], None)}


def test_everything_gone(victim: Victim) -> None:
    """Nothing to check is a finding of its own."""
    for table in ("event", "request", "operation", "leaf", "checkpoint", "ledger"):
        victim.run(f"DELETE FROM {table}")
    assert "NOTHING_CHECKED" in kinds(victim.product(key=None))
    assert "NOTHING_CHECKED" in kinds(victim.script()) | {"NOTHING_CHECKED"}


def test_a_ledger_that_forgot_its_name_still_has_its_anchors(victim: Victim) -> None:
    """Name, checkpoints and leaves gone: who has the key finds the anchors; without it, the one beside the database."""
    for table in ("leaf", "anchored", "checkpoint", "ledger"):
        victim.run(f"DELETE FROM {table}")
    ahead = ("ANCHOR_AHEAD", None, 2)
    assert ahead in victim.product()
    assert ahead in victim.script()
    # Where one folder has the anchors of many ledgers, nobody can tell which was this one's.
    assert victim.product(key=None) == ({ahead} if victim.kind == "sqlite" else set())
    for path in victim.anchors:
        path.unlink()
    assert victim.product(key=None) == set()  # nothing outside is left that could know


# --- records and requests -----------------------------------------------------------------------------------------


def test_every_column_of_every_record(victim: Victim) -> None:
    """PROJECTION; the stand-alone verifier sees those that a chain alone says something about."""
    columns = victim.columns("operation")
    seen = {"state", "remote_job_id", "version", "head_seq", "head_hash"}
    for name in "ad":
        (row,) = victim.all("SELECT * FROM operation WHERE operation_id = ?", victim.ids[name])
        for column, value in zip(columns, row, strict=True):
            if column in {"operation_id", *UNCOVERED}:
                continue
            with victim.restored():
                other = flipped(value)
                if column == "facts":
                    other = value.replace("{", '{"backoff":77,' if name == "a" else "{ ", 1)
                elif value is None and column.endswith(("_at", "_deadline", "_since")):
                    other = 7
                victim.run(f"UPDATE operation SET {column} = ? WHERE operation_id = ?", other, victim.ids[name])
                found = victim.product()
                assert kinds(found) == {"PROJECTION"}, column
                assert {one[1] for one in found} == {victim.ids[name]}
                assert victim.script() == (found if column in seen else set()), column


def test_a_request_that_is_not_what_was_submitted(victim: Victim) -> None:
    """It is what a worker sends."""
    other = 'headers = \'[["X-Account","evil"]]\''
    content = "content_type = 'text/plain'"
    for change in ("method = 'PUT'", "url = 'https://evil.example/jobs'", "body = ?", other, "headers = '{'", content):
        with victim.restored():
            values = [b"{}"] if "?" in change else []
            victim.run(f"UPDATE request SET {change} WHERE operation_id = ?", *values, victim.ids["a"])
            assert both(victim) == {("PROJECTION", victim.ids["a"], 1)}
    for change in ("asked = ?", "fingerprint_url = 'https://api.example.com/other'"):  # an export has neither
        with victim.restored():
            values = [b'{"rows":77}'] if "?" in change else []
            victim.run(f"UPDATE request SET {change} WHERE operation_id = ?", *values, victim.ids["a"])
            assert victim.product() == {("PROJECTION", victim.ids["a"], 1)}, change
    victim.run("DELETE FROM request WHERE operation_id = ?", victim.ids["a"])
    assert both(victim) == {("PROJECTION", victim.ids["a"], 1)}


def test_a_second_name_is_none(victim: Victim) -> None:
    """A worker's role may add the one row that names a ledger, and another row beside it must change nothing."""
    database = victim.ledger.store.database
    before = checkpoints.ledger(database)
    victim.run("INSERT INTO ledger VALUES (0, 'ldg_01M8PED6SQ2PB5NPA88JS0JTH7', 1, 'eA==')")
    victim.run("UPDATE ledger SET created_at = created_at WHERE one = 1")  # PostgreSQL then has it behind the other
    assert checkpoints.ledger(database) == before
    assert both(victim) == set()


def test_evidence_that_is_not_what_came(victim: Victim) -> None:
    """PROJECTION at the event that cites the answer; an export holds its hash only."""
    answers = victim.all("SELECT sha256, body FROM answer ORDER BY sha256")
    first = min("ab", key=victim.ids.__getitem__)
    cited = [one for one in victim.chain(first) if unpack(one.body).count(answers[0][0].hex().encode())]
    here = {("PROJECTION", victim.ids[first], cited[0].seq)}
    for change, values in (
        ("UPDATE answer SET body = ? WHERE sha256 = ?", [b'{"state":"succeeded"}', answers[0][0]]),
        ("UPDATE answer SET sha256 = ? WHERE sha256 = ?", [bytes(32), answers[0][0]]),
        ("DELETE FROM answer WHERE sha256 = ?", [answers[0][0]]),
    ):
        with victim.restored():
            assert victim.run(change, *values) == 1
            assert victim.product() == here, change
    assert both(victim) == set()


def test_a_contract_that_is_not_what_was_pinned(victim: Victim) -> None:
    """PROJECTION at each operation that rests on it, named once for each contract."""
    first = {("PROJECTION", min(victim.ids.values()), 1)}
    for change in ("source = source || '#'", 'environment = \'{"A":"b"}\'', "name = 'other'", "source = '['"):
        with victim.restored():
            assert victim.run(f"UPDATE contract SET {change}") == 1
            assert victim.product() == first, change
    victim.run("DELETE FROM contract")
    assert victim.product() == first


def test_what_no_column_should_hold(victim: Victim) -> None:
    """Texts that are no UTF-8, and bytes, break neither verifier, wherever they stand."""
    if victim.kind != "sqlite":
        pytest.skip("PostgreSQL keeps its types")
    for table in TABLES:
        for column in victim.columns(table):
            for value in ("CAST(x'6fff' AS TEXT)", *(["x'00'"] if table in SMALL else [])):
                # A key that is a number takes neither.
                with victim.restored(), contextlib.suppress(sqlite3.IntegrityError):
                    explained(victim)
                    some = f"rowid = (SELECT min(rowid) FROM {table})"
                    assert victim.run(f"UPDATE {table} SET {column} = {value} WHERE {some}") == 1
                    victim.product()
                    victim.product(key=None)
                    victim.script()


SMALL = {"acknowledgement", "ledger", "request", "tombstone"}


def explained(victim: Victim) -> None:
    """Archive an operation and give numbers up, as somebody would who has all rights."""
    victim.run(
        "INSERT INTO tombstone SELECT operation_id, head_seq, head_hash, state, contract, NULL, NULL, NULL, NULL, 1, "
        "'ana', 'old', 'a.archive', x'00' FROM operation WHERE operation_id = ?", victim.ids["c"],
    )  # fmt: skip
    for table in ("event", "request", "operation"):
        victim.run(f"DELETE FROM {table} WHERE operation_id = ?", victim.ids["c"])
    victim.run("INSERT INTO acknowledgement VALUES (4, 3, 1, 'ana', 'restored', 9, x'00')")


# --- leaves and checkpoints ---------------------------------------------------------------------------------------


def test_every_column_of_every_leaf(victim: Victim) -> None:
    """The root of the checkpoint that has it no longer fits."""
    columns = victim.columns("leaf")
    sizes = [row[0] for row in victim.all("SELECT size FROM checkpoint ORDER BY number")]
    for row in victim.all("SELECT * FROM leaf ORDER BY number"):
        number = next(place for place, size in enumerate(sizes, start=1) if row[0] < size)
        for column, value in zip(columns, row, strict=True):
            with victim.restored():
                other = 100 if column == "number" else flipped(value)
                victim.run(f"UPDATE leaf SET {column} = ? WHERE number = ?", other, row[0])
                assert ("CHECKPOINT_CHAIN", None, number) in both(victim), (column, row[0])


def test_leaves_that_were_removed_added_or_exchanged(victim: Victim) -> None:
    """Named is the first checkpoint that shows it."""
    (last,) = victim.all("SELECT max(number) FROM leaf")[0]
    for statements, number in (
        (["DELETE FROM leaf WHERE number = 0"], 1),
        ([f"DELETE FROM leaf WHERE number = {last}"], 2),
        (["DELETE FROM leaf"], 1),
        ([f"INSERT INTO leaf SELECT {last + 1}, operation_id, seq, hash, kind FROM leaf WHERE number = 0"], 2),
        (["UPDATE leaf SET number = -1 WHERE number = 0", "UPDATE leaf SET number = 0 WHERE number = 1",
          "UPDATE leaf SET number = 1 WHERE number = -1"], 1),
        (["INSERT INTO leaf SELECT -1, operation_id, seq, hash, kind FROM leaf WHERE number = 0"], 1),
    ):  # fmt: skip
        with victim.restored():
            for statement in statements:
                victim.run(statement)
            assert both(victim) == {("CHECKPOINT_CHAIN", None, number)}, statements


def test_every_column_of_every_checkpoint(victim: Victim) -> None:
    """Each stands in the note, is the note, or follows from the leaves; `mark` is the checkpointer's own."""
    columns = victim.columns("checkpoint")
    for row in victim.all("SELECT * FROM checkpoint ORDER BY number"):
        for column, value in zip(columns, row, strict=True):
            if column == "mark":
                continue
            for place in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0) if column == "note" else (0.5,):
                with victim.restored():
                    other = 50 if column == "number" else flipped(value, place)
                    victim.run(f"UPDATE checkpoint SET {column} = ? WHERE number = ?", other, row[0])
                    found = both(victim)
                    kind = {"peaks": "CHECKPOINT_CHAIN", "number": "CHECKPOINT_GAP"}.get(column, "CHECKPOINT_SIG")
                    assert (kind, None, row[0]) in found, (column, found)


def test_a_checkpoint_that_is_gone(victim: Victim) -> None:
    """In the middle a gap; at the end the anchor holds it; with its leaves too."""
    with victim.restored():
        victim.run("DELETE FROM checkpoint WHERE number = 1")
        assert ("CHECKPOINT_GAP", None, 1) in both(victim)
    with victim.restored():
        victim.run("DELETE FROM checkpoint WHERE number = 2")
        assert {("ANCHOR_AHEAD", None, 2), ("CHECKPOINT_CHAIN", None, 1)} == both(victim)
    (size,) = victim.all("SELECT size FROM checkpoint WHERE number = 1")[0]
    victim.run("DELETE FROM checkpoint WHERE number = 2")
    victim.run("DELETE FROM leaf WHERE number >= ?", size)
    assert {("ANCHOR_AHEAD", None, 2)} == both(victim)


def test_checkpoints_with_another_key(victim: Victim) -> None:
    """Whoever signs everything anew with a key of their own, and names it in the database, is found by the real one."""
    from opledger.edges.signing import make_key

    key = make_key(victim.home.root / "forged.key")
    previous = notes.GENESIS
    for row in victim.all("SELECT number, note FROM checkpoint ORDER BY number"):
        note = replace(notes.read(row[1]).note, previous=previous)
        whole = key.sign(note.text(), note.origin)
        previous = notes.hash_of(whole)
        victim.run(
            "UPDATE checkpoint SET note = ?, hash = ?, previous = ?, key_id = ? WHERE number = ?",
            whole, previous, note.previous, notes.key_id(note.origin, key.public), row[0],
        )  # fmt: skip
    import base64

    victim.run("UPDATE ledger SET public_key = ?", base64.b64encode(key.public).decode())
    found = both(victim)
    assert {("CHECKPOINT_SIG", None, None), ("CHECKPOINT_SIG", None, 1), ("CHECKPOINT_SIG", None, 2)} <= found
    (victim.home.root / "forged.key").unlink()


def test_a_ledger_under_another_name(victim: Victim) -> None:
    """Or under none: the notes are of another one then."""
    for statement in ("UPDATE ledger SET ledger_id = 'ldg_01JC0000000000000000000000'", "DELETE FROM ledger"):
        with victim.restored():
            victim.run(statement)
            assert "CHECKPOINT_SIG" in kinds(victim.product(key=None))


def given_up(victim: Victim) -> Acknowledgement:
    """Give up checkpoints 3 to 5, as a person with the key does."""
    database, audit = victim.ledger.store.database, victim.ledger.settings.audit
    newest = checkpoints.newest(database)
    assert newest is not None
    given = Acknowledgement(5, 3, 17, "ana", "the disk died", 9, bytes(32))
    made = signer(database, audit, victim.ledger.clock)
    draft = maker.drafted(made, Moved(newest, epoch=newest.epoch, mark=newest.mark), victim.ledger.clock.now(), given)
    for table, row in (("acknowledgement", given), ("checkpoint", checkpointing._row(draft))):
        columns = [column.name for column in METADATA.tables[table].columns]
        marks = ", ".join("?" * len(columns))
        victim.run(f"INSERT INTO {table} ({', '.join(_quoted(columns))}) VALUES ({marks})", *row)
    return given


def _quoted(names: list[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def test_every_column_of_an_acknowledgement(victim: Victim) -> None:
    """The signed checkpoint behind it names all of it: what was given up, when, by whom and why."""
    given, memory = given_up(victim), victim.ledger.settings.audit.keys.parent / "verified"
    try:
        assert both(victim) == set()
        assert "ACKNOWLEDGED" in kinds(victim.verified().notes)
        victim.save()
        shutil.rmtree(memory)  # of this ledger verified with number 6 in it, which is no part of it for the others
        for column, value in given._asdict().items():
            with victim.restored():
                other = 7 if column == "abandoned_to" else 1 if column == "abandoned_from" else flipped(value)
                victim.run(f'UPDATE acknowledgement SET "{column}" = ?', other)
                to = 7 if column == "abandoned_to" else 5
                assert both(victim) == {("CHECKPOINT_GAP", None, 3), ("CHECKPOINT_SIG", None, to)}, column
        with victim.restored():
            victim.run("DELETE FROM acknowledgement")
            assert both(victim) == {("CHECKPOINT_GAP", None, 3)}
        with victim.restored():
            victim.run("DELETE FROM checkpoint WHERE number = 6")
            assert both(victim) == {("CHECKPOINT_SIG", None, 5)}
    finally:
        victim.run("DELETE FROM acknowledgement")
        victim.run("DELETE FROM checkpoint WHERE number = 6")
        victim.save()
        shutil.rmtree(memory, ignore_errors=True)


def test_an_acknowledgement_that_nobody_signed_hides_nothing(victim: Victim, tmp_path: Path) -> None:
    """A row put in by somebody without the key covers neither what was cut off nor another history in an anchor."""
    with victim.restored():
        victim.run("DELETE FROM checkpoint WHERE number = 2")
        victim.run("INSERT INTO acknowledgement VALUES (2, 1, 1, 'ana', 'restored', 9, ?)", bytes(32))
        found = both(victim)
        assert {("CHECKPOINT_SIG", None, 2), ("ANCHOR_AHEAD", None, 2)} <= found
    made = signer(victim.ledger.store.database, victim.ledger.settings.audit, victim.ledger.clock)
    (text,) = victim.all("SELECT note FROM checkpoint WHERE number = 1")[0]
    other = replace(notes.read(text).note, events=1)
    path = tmp_path / "other.anchor"
    path.write_text(json.dumps({"note": made.key.sign(other.text(), other.origin)}) + "\n")
    victim.run("INSERT INTO acknowledgement VALUES (1, 1, 1, 'ana', 'restored', 9, ?)", bytes(32))
    expected = {("CHECKPOINT_SIG", None, 1), ("FORK", None, 1)}
    assert victim.product(anchors=[path]) == expected == victim.script(f"--anchor={path}")


FORGED = (
    "UPDATE anchored SET seq = 1000000",
    "UPDATE anchored SET leaf = 1000000",
    "UPDATE anchored SET seq = 1000000, leaf = (SELECT max(number) FROM leaf)",
    "UPDATE anchored SET seq = 0, leaf = 0",
    "UPDATE anchored SET seq = -5, leaf = -5",
    "DELETE FROM anchored",
    "UPDATE checkpoint SET mark = 1000000",
    "UPDATE checkpoint SET mark = -7",
    "UPDATE checkpoint SET mark = 9223372036854775807",
)


@pytest.mark.parametrize("forged", FORGED)
def test_what_only_the_checkpointer_goes_by_hides_nothing(victim: Victim, forged: str) -> None:
    """A worker's role may write it: all is found as without, also of what came since a checkpoint only."""
    seq = len(victim.chain("a"))
    tamper = "UPDATE event SET actor = 'eve' WHERE operation_id = ? AND seq = ?", victim.ids["a"], seq
    for asked in ({}, {"since": 2, "full": False}):
        with victim.restored():
            victim.run(forged)
            alone = victim.product(**asked)
            assert {one[0] for one in alone} <= {"PROJECTION"}
            assert victim.script() == set()
            assert victim.run(*tamper) == 1
            assert victim.product(**asked) == {*alone, ("COLUMN", victim.ids["a"], seq)}
    with victim.restored():
        victim.run(forged)
        astray = "anchored" in forged and "DELETE" not in forged
        assert (kinds(victim.product()) == {"PROJECTION"}) == astray


# --- anchors ------------------------------------------------------------------------------------------------------


def test_a_second_history_under_the_same_key(victim: Victim, tmp_path: Path) -> None:
    """Two notes, both signed, with one number: FORK, told by the anchor that has the other one."""
    made = signer(victim.ledger.store.database, victim.ledger.settings.audit, victim.ledger.clock)
    (text,) = victim.all("SELECT note FROM checkpoint WHERE number = 2")[0]
    other = replace(notes.read(text).note, events=1)
    path = tmp_path / "other.anchor"
    path.write_text(json.dumps({"note": made.key.sign(other.text(), other.origin)}) + "\n")
    assert victim.product(anchors=[path]) == {("FORK", None, 2)} == victim.script(f"--anchor={path}")
    path.write_text(json.dumps({"note": text.replace("events", "event5")}) + "\n{torn")
    assert victim.product(anchors=[path]) == {("CHECKPOINT_SIG", None, None)} == victim.script(f"--anchor={path}")


# --- what only an owner of the tables can do -----------------------------------------------------------------------


@pytest.fixture
def unbound(victim: Victim) -> Iterator[Victim]:
    """The same with a journal that has no key and no types: rows may stand twice, and hold what they like."""
    names = ", ".join(Row._fields)
    if victim.kind == "sqlite":
        victim.run("ALTER TABLE event RENAME TO event_kept")
        victim.run(f"CREATE TABLE event ({names})")
        victim.run("INSERT INTO event SELECT * FROM event_kept")
        yield victim
        victim.run("DROP TABLE event")
        victim.run("ALTER TABLE event_kept RENAME TO event")
        return
    victim.run("ALTER TABLE event DROP CONSTRAINT event_key")
    yield victim
    victim.run("DELETE FROM event")
    victim.run("ALTER TABLE event ADD CONSTRAINT event_key PRIMARY KEY (operation_id, seq)")


def test_a_row_that_stands_twice(unbound: Victim) -> None:
    """SEQ, at every place."""
    for name in "ad":
        for row in unbound.chain(name):
            marks = ", ".join("?" * len(row))
            unbound.run(f"INSERT INTO event VALUES ({marks})", *row)
            assert both(unbound) == {("SEQ", row.operation_id, row.seq)}
            where = "operation_id = ? AND seq = ?"
            unbound.run(f"DELETE FROM event WHERE {where}", row.operation_id, row.seq)
            unbound.run(f"INSERT INTO event VALUES ({marks})", *row)
    assert both(unbound) == set()


def test_values_of_another_type(unbound: Victim) -> None:
    """SQLite keeps whatever is put into a column: it is found, and nothing breaks."""
    if unbound.kind != "sqlite":
        pytest.skip("PostgreSQL keeps its types")
    for row in unbound.chain("a"):
        for column in Row._fields:
            for value in (b"\xff", "text", 7, 7.5, None, -1, 2**62):
                if type(value) is type(getattr(row, column)):
                    continue
                where = "operation_id = ? AND seq = ?"
                unbound.run(f"UPDATE event SET {column} = ? WHERE {where}", value, row.operation_id, row.seq)
                if (unbound.chain("a") + [None] * 9)[row.seq - 1] == row:
                    continue  # it was None before
                assert both(unbound) != set(), (row.seq, column, value)
                unbound.run("DELETE FROM event")
                unbound.run("INSERT INTO event SELECT * FROM event_kept")
