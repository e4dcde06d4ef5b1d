"""A job that is polled again and again, with the same answer: each poll stays provable, live and in the archive."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from opledger.edges.clock import SystemClock
from opledger.ledger import Ledger, archive, audit, export
from opledger.ledger.audit import Asked
from opledger.rules import journal
from opledger.rules.model import Actor, Means, Operation
from opledger.rules.projection import project
from opledger.store import finding
from opledger.store.packing import pack, unpack
from opledger.store.statements import Tongue
from opledger.store.tables import ANSWER, EVENT
from tests.core.ledgers import BODY, Home, accepted, happens, observed, sent
from tests.support.tampering import Victim, checkpoint, home_key, standalone

POLLS = 60


def waited(ledger: Ledger, *, job: str = "job_1") -> str:
    """An operation that was polled many times with the same answer."""
    op = ledger.submit("jobs", BODY, requested_by="agent-1", tags={"job": job})
    happens(ledger, op, sent(f"call_{job}"), accepted(job, f"call_{job}"))
    happens(ledger, op, *(observed(job=job) for _ in range(POLLS)), body=b'{"state":"running"}')
    return op.operation_id


def kept(ledger: Ledger) -> list[bytes]:
    """What the column holds, of all events in order."""
    from sqlalchemy import ClauseElement, select

    def recipe(_: Tongue) -> ClauseElement:
        return select(EVENT.c.body).order_by(EVENT.c.operation_id, EVENT.c.seq)

    return [bytes(row[0]) for row in ledger.store.database.read(lambda tx: tx.all(recipe))]


def answers(ledger: Ledger) -> int:
    """How many answers are kept."""
    from sqlalchemy import ClauseElement, func, select

    def recipe(_: Tongue) -> ClauseElement:
        return select(func.count()).select_from(ANSWER)

    return int(ledger.store.database.read(lambda tx: tx.all(recipe))[0][0])


def test_every_poll_has_its_own_event(home: Home) -> None:
    """Packed in the column; plain, and exactly what was hashed, for whoever reads it. The record is their fold."""
    with home.ledger() as ledger:
        name = waited(ledger)
        rows = ledger.store.queries.events(name)
        stored = kept(ledger)
        assert [row.kind for row in rows[3:]] == ["Observed"] * POLLS
        assert [unpack(one) for one in stored] == [row.body for row in rows]
        assert stored == [pack(row.body) for row in rows]
        assert sum(map(len, stored[3:])) * 2 < sum(len(row.body) for row in rows[3:])
        assert journal.verify(rows) == []
        again: Operation | None = None
        for row in rows:
            again = project(again, journal.read_body(row.body).entry)
        record = ledger.store.queries.get(name)
        assert again is not None
        assert (again.state, again.remote_means, again.attempts) == (record.state, Means.RUNNING, record.attempts)
        assert record.attempts == again.attempts


@pytest.mark.parametrize("portion", [1, 7, POLLS + 3, 20_000])
def test_a_long_journal_is_searched_in_portions(home: Home, monkeypatch: pytest.MonkeyPatch, portion: int) -> None:
    """However many events are read at once, packed bytes are searched as plain ones were."""
    monkeypatch.setattr(finding, "EVENTS", portion)
    with home.ledger() as ledger:
        name, other = waited(ledger), waited(ledger, job="job_2")
        happens(ledger, name, replace(observed(job="job_1"), call_id="call_late", request_id="req_77"))
        database = ledger.store.database
        for text, where in (("req_77", name), ("call_late", name), ("call_job_2", other)):
            found = finding.find_all(database, text)
            assert [hit.operation.operation_id for hit in found.hits] == [where], text
        assert finding.find_all(database, "req_78").hits == ()


def test_equal_answers_are_kept_once(home: Home) -> None:
    """Of one operation and of two."""
    with home.ledger() as ledger:
        first = waited(ledger)
        once = answers(ledger)
        second = waited(ledger, job="job_2")
        assert (once, answers(ledger)) == (1, 1)
        cited = {
            journal.read_body(row.body).entry.evidence.answer  # type: ignore[attr-defined]
            for name in (first, second)
            for row in ledger.store.queries.events(name)[3:]
        }
        assert len(cited) == 1


def test_a_change_inside_a_long_wait_is_found(home: Home) -> None:
    """By both verifiers, at its place: bytes that are no packing any more, and bytes that were packed anew."""
    victim = Victim(home)
    try:
        rows = victim.chain("a")
        polls = [row for row in rows if row.kind == "Observed"]
        assert all(row.body[:1] == b"\x01" for row in polls)
        for row in polls:
            genuine = unpack(row.body)
            other = genuine.replace(b'"means":"running"', b'"means":"unknown"')
            assert other != genuine
            for forged in (pack(other), other, row.body[:-1], row.body + b"\0", b"\x01"):
                with victim.restored():
                    victim.run(
                        "UPDATE event SET body = ? WHERE operation_id = ? AND seq = ?",
                        forged,
                        row.operation_id,
                        row.seq,
                    )
                    found = victim.product()
                    assert ("HASH", row.operation_id, row.seq) in found
                    assert found == victim.script()
            with victim.restored():
                # The same words in plain: nothing that anybody reads was changed.
                victim.run(
                    "UPDATE event SET body = ? WHERE operation_id = ? AND seq = ?", genuine, row.operation_id, row.seq
                )
                assert victim.product() == victim.script() == set()
    finally:
        victim.close()


# --- the archive ----------------------------------------------------------------------------------------------------


class Later(SystemClock):
    """A clock a month ahead."""

    def now(self) -> datetime:
        """Return the time in a month."""
        return super().now() + timedelta(days=30)


def put_away(home: Home, out: Path) -> list[str]:
    """Let two long waits end, and archive them."""
    with home.ledger() as ledger:
        names = [waited(ledger), waited(ledger, job="job_2")]
        for name, job in zip(names, ("job_1", "job_2"), strict=True):
            happens(ledger, name, observed("failed", Means.FAILED, job))
        checkpoint(ledger)
    with home.ledger(clock=Later()) as ledger:
        archive.archive(ledger, archive.plan(ledger, Later().now()), out, reason="old", by=Actor("ana"))
    return names


def verified(home: Home, *files: Path) -> set[tuple[str, str | None, int | None]]:
    """What the product finds."""
    with home.ledger(read_only=True) as ledger:
        found = audit.run(ledger, Asked(full=True, archives=files))
    return {(one.kind, one.operation_id, one.seq) for one in found.findings}


def test_an_archive_may_be_compressed(home: Home, tmp_path: Path) -> None:
    """By its name. It verifies as it is, and what is in it with the stand-alone verifier; a tenth is left."""
    out = tmp_path / "2026.jsonl.gz"
    names = put_away(home, out)
    plain = gzip.decompress(out.read_bytes())
    assert len(out.read_bytes()) * 8 < len(plain)
    assert verified(home, out) == set()
    read = archive.File(out)
    assert {name: len(chain) for name, chain in read.events.items()} == dict.fromkeys(names, POLLS + 4)
    assert all(journal.verify(chain) == [] for chain in read.events.values())
    (tmp_path / "plain").write_bytes(plain)
    with home_key(home) as key:
        assert standalone(str(tmp_path / "plain"), f"--key={key}") == set()


def test_a_compressed_archive_that_was_changed(home: Home, tmp_path: Path) -> None:
    """Cut, damaged, or made anew around another poll: each is found."""
    out = tmp_path / "2026.jsonl.gz"
    (name, _) = put_away(home, out)
    whole = out.read_bytes()
    for damaged in (whole[:-9], whole[: len(whole) // 2], whole[:20], whole[:9], whole[:400] + b"\0" + whole[401:]):
        out.write_bytes(damaged)
        assert {kind for kind, *_ in verified(home, out)} >= {"HASH"}, len(damaged)
    lines = gzip.decompress(whole).splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines) if b'"seq":30,' in line and name.encode() in line)
    out.write_bytes(gzip.compress(b"".join(lines)))
    assert {kind for kind, *_ in verified(home, out)} == {"HASH"}  # other bytes than the tombstones name
    forged = [*lines[:place], *lines[place + 1 :]]
    forged[-1] = lines[-1].replace(str(len(lines)).encode(), str(len(forged)).encode())
    out.write_bytes(gzip.compress(b"".join(forged)))
    assert ("SEQ", name, 31) in verified(home, out)


@pytest.mark.parametrize(
    "held",
    [b"", b"\x1f\x8b", *(gzip.compress(data, mtime=0) for data in (b"", b"[1]\n", b"{}\n"))],
    ids=["empty", "a mark", "nothing", "no object", "no event"],
)
def test_what_is_no_archive(home: Home, tmp_path: Path, held: bytes) -> None:
    """Is said to be none."""
    from opledger.errors import IntegrityBroken

    path = tmp_path / "x.gz"
    path.write_bytes(held)
    with pytest.raises(IntegrityBroken, match="no whole archive"):
        archive.File(path)


def test_the_export_is_plain(home: Home, tmp_path: Path) -> None:
    """Whoever gets it needs no dictionary."""
    with home.ledger() as ledger:
        waited(ledger)
        checkpoint(ledger)
        (tmp_path / "e").write_bytes(b"".join(export.lines(ledger)))
    with home_key(home) as key:
        assert standalone(str(tmp_path / "e"), f"--key={key}") == set()
