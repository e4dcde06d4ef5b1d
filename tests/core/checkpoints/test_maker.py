from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from opledger.checkpoints import keys, report, standing
from opledger.checkpoints.maker import ROWS
from opledger.edges.anchors import FileAnchor
from opledger.edges.clock import SystemClock
from opledger.edges.signing import make_key
from opledger.store import Store, checkpointing
from tests.core.checkpoints.world import World
from tests.core.store.making import CONTRACT, T0, bound, claim, expire, opened
from tests.support.databases import admin

SECOND = timedelta(seconds=1)


def heads(store: Store) -> dict[str, int]:
    """The newest event of every operation."""
    return {one.operation_id: one.head_seq for one in store.queries.list(limit=10_000).operations}


def test_what_moved_is_signed_once(world: World) -> None:
    """Every head that moved is a leaf of the next checkpoint, with what the note says of the whole."""
    worker = world.worker()
    worker.start()
    worker.run()
    assert (world.newest(), world.kept()) == (0, [])  # nothing happened: no name, no key, no file
    assert not (world.folder / "keys").exists()
    first, second = opened(world.store, 2)
    worker.run()
    worker.run()
    bound(world.store, first, "j1")
    worker.run()
    (one, two) = world.notes()
    assert (one.note.size, one.note.operations, one.note.events) == (2, 2, 2)
    seqs = heads(world.store)
    assert (two.note.size, two.note.operations, two.note.events) == (3, 2, sum(seqs.values()))
    assert seqs[second.operation_id] == 1 < seqs[first.operation_id]
    assert world.kept() == [1, 2]
    assert world.findings() == []


def test_the_highest_fence_is_in_the_note(world: World) -> None:
    """After a restored backup fences must go beyond every one that was ever given."""
    operations = opened(world.store, 3)
    for number in range(4):
        assert len(claim(world.store, f"w{number}")) == 3
        expire(world.store, *operations)
    world.worker().run()
    opened(world.store)
    world.worker().run()
    assert [signed.note.epoch for signed in world.notes()] == [4, 4]


def test_it_is_due_after_so_many_rows_or_so_much_time(world: World) -> None:
    """64 rows or 5 seconds, and never while nothing may be written."""
    clock = Hands()
    worker = world.worker()
    worker._clock = clock
    assert worker.due  # a start
    worker.run()
    clock.at += 0.3
    assert not worker.due
    opened(world.store, ROWS - 1)
    assert not worker.due
    opened(world.store)
    assert worker.due
    worker.run()
    assert not worker.due
    clock.at += 4.9
    assert not worker.due
    clock.at += 0.2
    assert worker.due
    with worker._lock:
        assert not worker.due


def test_where_much_happens_checkpoints_take_a_small_part_of_the_time(world: World) -> None:
    """A slow disk must not be kept busy with checkpoints: each is followed by fifty times its length."""
    clock = Hands(step=0.01)
    worker = world.worker()
    worker._clock = clock
    opened(world.store, ROWS)
    worker.run()
    opened(world.store, ROWS)
    assert not worker.due
    clock.at += 5
    assert worker.due


class Hands:
    """A clock whose hands are moved; each look takes `step`."""

    def __init__(self, step: float = 0.0) -> None:
        self.at, self.step = 1_000.0, step

    def monotonic(self) -> float:
        """Seconds."""
        self.at += self.step
        return self.at

    def now(self) -> datetime:
        """Wall time."""
        return T0

    def random(self) -> float:
        """No chance."""
        return 0.5


def test_a_large_ledger_is_taken_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgraded ledger has years to sign; no transaction may hold the write lock for long."""
    operations = opened(world.store, 25)
    for number, one in enumerate(operations[:10]):
        bound(world.store, one, f"j{number}")
    moved = checkpointing.moved
    monkeypatch.setattr(checkpointing, "moved", lambda *a, **how: moved(*a, **{**how, "most": 7}))
    world.worker().run()
    found = world.notes()
    assert len(found) >= 4
    assert found[-1].note.operations == 25
    assert found[-1].note.events == sum(heads(world.store).values())
    assert world.kept() == [signed.note.number for signed in found]
    assert world.findings() == []


def test_an_anchor_that_was_away_catches_up(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An outage of an anchor stops nothing, is said once, and leaves no gap behind."""
    away = world.folder / "mount"
    away.touch()  # a file where a folder should be
    second = FileAnchor(away / "second.anchor")
    worker = world.worker(anchors=(second.path, world.anchor.path))
    for _ in range(3):
        opened(world.store)
        worker.run()
    assert world.kept() == [1, 2, 3]
    assert [record.message for record in caplog.records if "second.anchor" in record.message] == [
        f"not anchored: the anchor {second.path} cannot be read: Not a directory"
    ]
    found = standing.look(world.store.database, replace(world.audit, anchors=(second.path, world.anchor.path)))
    assert found.anchored is not None and found.anchored.anchor == world.anchor.name
    away.unlink()
    opened(world.store)
    worker.run()
    assert list(second.notes()) == list(world.anchor.notes())
    assert world.kept() == [1, 2, 3, 4]


def test_a_torn_line_in_the_anchor_is_made_good(world: World) -> None:
    """A machine died while it appended: the note comes again, whole."""
    for _ in range(2):
        opened(world.store)
        world.worker().run()
    data = world.anchor.path.read_bytes()
    world.anchor.path.write_bytes(data[:-100])
    world.worker().start()
    opened(world.store)
    world.worker().run()
    assert world.kept() == [1, 2, 3]
    assert world.anchor.path.read_bytes().startswith(data[:-100])
    assert world.findings() == []


def test_an_anchor_that_is_gone_is_written_anew(world: World) -> None:
    """Somebody cleaned up. Everything the table has is brought back."""
    for _ in range(3):
        opened(world.store)
        world.worker().run()
    world.anchor.path.unlink()
    world.worker().start()
    world.worker().run()
    assert world.kept() == [1, 2, 3]


def test_many_workers_write_one_chain(world: World) -> None:
    """Each looks, one is faster, the others look again: no number twice, nothing left out."""
    stores = [world.another() for _ in range(3)]
    workers = [world.worker(store) for store in stores]
    barrier = threading.Barrier(len(stores))

    def work(number: int) -> None:
        barrier.wait()
        for _ in range(8):
            opened(stores[number], 2)
            workers[number].run()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.worker().finish()
    found = world.notes()
    assert [signed.note.number for signed in found] == list(range(1, len(found) + 1))
    assert found[-1].note.operations == 48
    assert sorted(world.kept()) == list(range(1, len(found) + 1))
    assert len(list((world.folder / "keys").iterdir())) == 1
    assert world.findings() == []


def test_of_two_that_looked_at_the_same_moment_one_writes(world: World) -> None:
    """The number of the newest checkpoint is compared again under the lock."""
    opened(world.store)
    first, second = world.worker(), world.worker(world.another())
    moved = checkpointing.moved(world.store.database)
    made = keys.signer(world.store.database, world.audit, first._clock)
    assert first._write(made, moved)
    assert not second._write(made, moved)
    assert [signed.note.number for signed in world.notes()] == [1]


@pytest.mark.postgres
def test_what_becomes_visible_late_is_found(postgres_url: str, tmp_path: Path) -> None:
    """A transaction that was under way during a checkpoint is in the next one; a very long one at the next sweep."""
    with World(postgres_url, tmp_path) as world:
        world.store.pin_contract(CONTRACT)
        worker = world.worker()
        opened(world.store, at=T0 + 60 * SECOND)
        worker.run()
        opened(world.store, at=T0 + 52 * SECOND)
        worker.run()
        assert world.notes()[-1].note.operations == 2
        opened(world.store, at=T0)
        worker.run()
        assert world.notes()[-1].note.operations == 2
        worker.finish()
        assert world.notes()[-1].note.operations == 3


@pytest.mark.postgres
def test_a_clock_that_is_ahead_hides_nothing(postgres_url: str, tmp_path: Path) -> None:
    """One worker believes in the year 2199: what the others write is found all the same."""
    with World(postgres_url, tmp_path) as world:
        world.store.pin_contract(CONTRACT)
        worker = world.worker()
        opened(world.store, at=T0.replace(year=2199))
        worker.run()
        opened(world.store, at=SystemClock().now())
        worker.run()
        assert world.notes()[-1].note.operations == 2


# --- the key ------------------------------------------------------------------------------------------------------


def test_a_machine_without_the_key_says_so_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It must not sign with another key, nor stop working."""
    opened(world.store)
    world.worker().run()
    elsewhere = world.worker(keys=world.folder / "other")
    elsewhere.start()
    opened(world.store)
    for _ in range(3):
        elsewhere.run()
    assert len([one for one in caplog.records if "has not the key that signs" in one.message]) == 1
    assert not (world.folder / "other").exists()
    assert (world.newest(), world.kept()) == (1, [1])
    lines = list(report.lines(world.store.database, replace(world.audit, keys=world.folder / "other")))
    assert any("this machine writes no checkpoints" in line.message and line.ok for line in lines)
    world.worker().run()
    assert world.notes()[-1].note.operations == 2


def test_another_key_does_not_sign(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A key at the right place that is not the ledger's would break the chain of trust."""
    opened(world.store)
    world.worker().run()
    (path,) = (world.folder / "keys").iterdir()
    path.unlink()
    make_key(path)
    opened(world.store)
    world.worker().run()
    assert "is another key than the one that signs" in caplog.text
    assert world.newest() == 1
    assert any(line.name == "signing key" and not line.ok for line in report.lines(world.store.database, world.audit))


def test_a_key_that_others_may_read_does_not_sign(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Who could read it could have signed; doctor says what to do."""
    opened(world.store)
    world.worker().run()
    (path,) = (world.folder / "keys").iterdir()
    path.chmod(0o644)
    opened(world.store)
    world.worker().run()
    assert "open to other users" in caplog.text
    assert world.newest() == 1


def test_the_key_may_lie_where_the_settings_say(world: World) -> None:
    """One that an administrator brings, or one for a service."""
    opened(world.store)
    world.worker(key=world.folder / "own" / "sign.pem").run()
    assert (world.folder / "own" / "sign.pem").exists()
    assert not (world.folder / "keys").exists()
    assert world.kept() == [1]


# --- what was tampered with ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE checkpoint SET peaks = previous",
        "UPDATE checkpoint SET root = previous",
        "UPDATE checkpoint SET note = replace(note, 'events', 'event')",
        "UPDATE checkpoint SET events = events + 1",
        "UPDATE checkpoint SET number = 7",
        "DELETE FROM leaf WHERE number = 1",
        "DELETE FROM checkpoint",
    ],
)
def test_nothing_is_signed_on_top_of_what_was_altered(
    world: World, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the next checkpoint would vouch for what somebody has made of the last one."""
    opened(world.store, 2)
    world.worker().run()
    past_the_guards(world, change)
    opened(world.store)
    world.worker().run()
    assert "no checkpoint:" in caplog.text
    assert "opledger audit verify" in caplog.text
    assert world.kept() == [1]
    assert world.findings() != []


def past_the_guards(world: World, statement: str) -> None:
    """Change something as the owner of the database can."""
    if world.url.startswith("postgresql"):
        with admin(world.url) as session:
            for table_ in ("leaf", "checkpoint"):
                session.execute(f"ALTER TABLE {table_} DISABLE TRIGGER ALL")
            session.execute(statement)
            for table_ in ("leaf", "checkpoint"):
                session.execute(f"ALTER TABLE {table_} ENABLE ALWAYS TRIGGER {table_}_no_change")
                session.execute(f"ALTER TABLE {table_} ENABLE ALWAYS TRIGGER {table_}_no_truncate")
        return
    path = make_url(world.url).database or ""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('leaf', 'checkpoint')"
        ).fetchall()
        for name, _ in rows:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement)
        for _, sql in rows:
            connection.execute(sql)


def test_a_mark_that_was_changed_hides_nothing_for_good(world: World) -> None:
    """No note holds it: whoever may write to the table could say that the last rows of the journal were seen."""
    opened(world.store)
    world.worker().run()
    opened(world.store)
    last = "(SELECT max(rowid) FROM event)" if world.url.startswith("sqlite") else "9000000000000000000"
    past_the_guards(world, f"UPDATE checkpoint SET mark = {last}")
    world.worker().run()  # as every five minutes, and when a worker ends
    assert [signed.note.size for signed in world.notes()] == [1, 2]
    assert world.findings() == []


# --- packets ------------------------------------------------------------------------------------------------------


def test_an_operation_knows_the_checkpoint_that_holds_it(world: World) -> None:
    """Support, or a court, gets it with the packet."""
    first, second = opened(world.store, 2)
    assert report.of_operation(world.store.database, first.operation_id) is None
    world.worker().run()
    bound(world.store, second, "j1")
    world.worker().run()
    one, two = world.notes()
    held = report.of_operation(world.store.database, first.operation_id)
    assert held is not None and (held["number"], held["seq"], held["note"]) == (1, 1, one.whole)
    later = report.of_operation(world.store.database, second.operation_id)
    assert later is not None and (later["number"], later["seq"]) == (2, heads(world.store)[second.operation_id])
    assert later["note"] == two.whole
