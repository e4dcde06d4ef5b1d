"""What has ended can go into a file: verified before anything is deleted, with tombstones that hold its place."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from opledger.edges.clock import SystemClock
from opledger.errors import IntegrityBroken, Refused, UnknownOperation, UsageError
from opledger.ledger import Ledger, archive, audit
from opledger.ledger.audit import Asked
from opledger.rules.model import Actor, ActorKind, Means
from opledger.store.archiving import Archived
from tests.core.ledgers import BODY, RUNNING, Home, accepted, happens, observed, sent
from tests.support.tampering import checkpoint, flipped, home_key, kinds, standalone

ANA = Actor("ana")


class Later(SystemClock):
    """A clock a month ahead."""

    def now(self) -> datetime:
        """Return the time in a month."""
        return super().now() + timedelta(days=30)


def ended(ledger: Ledger, number: int, **how: str) -> str:
    """An operation that has been cancelled before it was sent, and so has ended."""
    op = ledger.submit("jobs", {"rows": number}, requested_by="agent-1", **how)  # type: ignore[arg-type]
    ledger.cancel(op.operation_id, by="ana", reason="not needed")
    return op.operation_id


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where the archive goes."""
    return tmp_path / "2026.archive"


def put_away(home: Home, out: Path, *, by: Actor = ANA) -> archive.Done:
    """Archive everything that can be."""
    with home.ledger(clock=Later()) as ledger:
        planned = archive.plan(ledger, Later().now())
        return archive.archive(ledger, planned, out, reason="a year old", by=by)


def verify(home: Home, **asked: object) -> audit.Verified:
    """Verify as the command does."""
    with home.ledger(read_only=True) as ledger:
        return audit.run(ledger, Asked(full=True, **asked))  # type: ignore[arg-type]


def test_what_has_ended_goes_and_the_rest_stays(home: Home, out: Path) -> None:
    """And everything still verifies: before and after the next checkpoint, with the file and without."""
    with home.ledger() as ledger:
        gone = [ended(ledger, 1), ended(ledger, 2)]
        kept = ledger.submit("jobs", BODY, requested_by="agent-1").operation_id
        happens(ledger, kept, *RUNNING)
        checkpoint(ledger)
        unseen = ended(ledger, 3)
    done = put_away(home, out)
    assert (done.operations, done.more) == (2, False)
    assert out.stat().st_mode & 0o777 == 0o600
    with home.ledger() as ledger:
        assert {op.operation_id for op in ledger.list()} == {kept, unseen}
        for operation_id in gone:
            with pytest.raises(
                Archived, match=r"was archived at .* by ana \(a year old\): it had ended .*/2026.archive"
            ):
                ledger.show(operation_id)
            with pytest.raises(Archived):
                ledger.show(operation_id[-8:])
        with pytest.raises(UnknownOperation):
            ledger.show("op_01JC0000000000000000000000")
    for again in range(2):
        found = verify(home, archives=[out])
        assert found.findings == (), again
        assert (found.archived, found.progress.done) == (2, 2)
        assert "ARCHIVE_UNREAD" not in {one.kind for one in found.notes}
        with home.ledger() as ledger:
            checkpoint(ledger)
    unread = [one.message for one in verify(home).notes if one.kind == "ARCHIVE_UNREAD"]
    assert [words.partition(" archived")[0] for words in unread] == ["2"]
    with home_key(home) as key:
        assert standalone(str(out), f"--key={key}") == set()


def test_what_it_was_called_stays_taken(home: Home, out: Path) -> None:
    """Its id, the step of a task, the job: nothing new may pass for it."""
    with home.ledger() as ledger:
        by_step = ended(ledger, 1, task="t", step="s")
        op = ledger.submit("jobs", {"rows": 2}, requested_by="agent-1")
        happens(ledger, op, sent(), accepted("job_1"), observed("gone", Means.FAILED, "job_1"))
        checkpoint(ledger)
    assert put_away(home, out).operations == 2
    with home.ledger() as ledger:
        with pytest.raises(Archived, match=f"operation id {by_step} was archived"):
            ledger.submit("jobs", {"rows": 1}, requested_by="agent-1", operation_id=by_step)
        with pytest.raises(Archived, match="step s of task t was archived"):
            ledger.submit("jobs", {"rows": 1}, requested_by="agent-1", task="t", step="s")
        other = ledger.submit("jobs", {"rows": 2}, requested_by="agent-1")
        with pytest.raises(AssertionError, match=r"gave job job_1 to .* before"):
            happens(ledger, other, sent(), accepted("job_1"))


def test_only_what_is_finished_and_in_a_checkpoint(home: Home, out: Path) -> None:
    """Nothing goes that a webhook may still be about, nor what no checkpoint has seen."""
    with home.ledger() as ledger:
        ended(ledger, 1)
        with pytest.raises(Refused, match="nothing can be archived"):
            put_away(home, out)
        checkpoint(ledger)
        planned = archive.plan(ledger, ledger.clock.now())
        assert (planned.ids, planned.webhooks) == ((), True)
        assert "webhooks may come for 7 days" in archive.told(planned)


def test_only_a_person_and_never_over_a_file(home: Home, out: Path) -> None:
    """An agent may not; a file that is there is not replaced."""
    with home.ledger() as ledger:
        ended(ledger, 1)
        checkpoint(ledger)
    with pytest.raises(Refused, match="only a person may archive"):
        put_away(home, out, by=Actor("agent-7", ActorKind.AGENT))
    out.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        put_away(home, out)
    assert out.read_text() == "mine"


def test_a_file_that_was_changed_is_found(home: Home, out: Path) -> None:
    """By its hash, and by the chain that was changed; a file that was cut, or of another ledger, is none."""
    with home.ledger() as ledger:
        first, second = ended(ledger, 1), ended(ledger, 2)
        checkpoint(ledger)
    put_away(home, out)
    whole = out.read_text().splitlines()
    documents = [json.loads(line) for line in whole]

    def written(changed: list[dict[str, object]]) -> set[tuple[str, str | None, int | None]]:
        changed = [*changed[:-1], {**changed[-1], "lines": len(changed)}]
        out.write_text("".join(json.dumps(one) + "\n" for one in changed))
        return {(one.kind, one.operation_id, one.seq) for one in verify(home, archives=[out]).findings}

    assert written([{**one, "actor": "eve"} if one.get("seq") == 2 and one.get("type") == "event"
                    and one["operation_id"] == first else one for one in documents]) == {
        ("HASH", None, None), ("COLUMN", first, 2),
    }  # fmt: skip
    assert written([one for one in documents if one.get("operation_id") != second]) == {
        ("HASH", None, None), ("MISSING_OP", second, None),
    }  # fmt: skip
    cut = [one for one in documents if not (one.get("seq") == 2 and one.get("operation_id") == first)]
    assert ("BEHIND_CHECKPOINT", first, 2) in written(cut)
    out.write_text("\n".join(whole[:-1]) + "\n")
    assert {("HASH", None, None)} == {
        (one.kind, one.operation_id, one.seq) for one in verify(home, archives=[out]).findings
    }
    out.write_bytes("\n".join(whole).encode().replace(b'"', b"'", 1))  # one byte, and it is no JSON any more
    assert [one.kind for one in verify(home, archives=[out]).findings] == ["HASH"]
    with pytest.raises(UsageError, match="there is no archive"):
        verify(home, archives=[out.with_name("elsewhere")])


def test_what_is_not_whole_stays(file_home: Home, out: Path) -> None:
    """The file is read back before anything is deleted: evidence of a change must not be archived away."""
    import sqlite3

    with file_home.ledger() as ledger:
        gone = ended(ledger, 1)
        checkpoint(ledger)
    session = sqlite3.connect(file_home.url.removeprefix("sqlite:///"), isolation_level=None)
    guards = session.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        session.execute(f'DROP TRIGGER "{name}"')
    session.execute("UPDATE event SET actor = 'eve' WHERE seq = 2")
    for _, sql in guards:
        session.execute(sql)
    session.close()
    with pytest.raises(IntegrityBroken, match=r"nothing was deleted: .* is not whole .COLUMN"):
        put_away(file_home, out)
    with file_home.ledger() as ledger:
        assert ledger.show(gone).operation_id == gone


def test_a_tombstone_that_was_changed_is_found(file_home: Home, out: Path) -> None:
    """Every column of it stands in a leaf; one that is gone is an operation that is gone. Both verifiers agree."""
    import sqlite3

    with file_home.ledger() as ledger:
        gone = ended(ledger, 1, task="t", step="s")
        checkpoint(ledger)
    put_away(file_home, out)
    with file_home.ledger() as ledger:
        checkpoint(ledger)
    with home_key(file_home) as key:
        pass
    session = sqlite3.connect(file_home.url.removeprefix("sqlite:///"), isolation_level=None)
    for (name,) in session.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        session.execute(f'DROP TRIGGER "{name}"')
    (row,) = session.execute("SELECT * FROM tombstone").fetchall()
    columns = [one[0] for one in session.execute("SELECT * FROM tombstone").description]
    marks = ", ".join("?" * len(columns))

    def both() -> set[tuple[str, str | None, int | None]]:
        from opledger.ledger import export

        product = {(one.kind, one.operation_id, one.seq) for one in verify(file_home).findings}
        with file_home.ledger(read_only=True) as ledger:
            path = file_home.root / "export.jsonl"
            path.write_bytes(b"".join(export.lines(ledger)))
        assert standalone(str(path), f"--key={key}") == product
        return product

    assert both() == set()
    for column, value in zip(columns, row, strict=True):
        other = flipped(value)
        session.execute(f"UPDATE tombstone SET {column} = ?", (other,))
        expected = {"operation_id": "MISSING_OP", "seq": "REWRITTEN"}.get(column, "REWRITTEN")
        assert expected in kinds(both()), column
        session.execute("DELETE FROM tombstone")
        session.execute(f"INSERT INTO tombstone VALUES ({marks})", row)
    session.execute("DELETE FROM tombstone")
    assert both() == {("MISSING_OP", gone, None)}
    session.close()
