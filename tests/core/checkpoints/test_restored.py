"""A backup is restored: it must not go on by itself, and must go on cleanly once a person has said so."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url

from opledger.checkpoints import givingup, report, standing
from opledger.checkpoints.givingup import Forgotten
from opledger.checkpoints.maker import Checkpointer
from opledger.edges.clock import SystemClock
from opledger.errors import ConfigWrong, IntegrityBroken, LeaseLost, Refused, StoreUnavailable, UsageError
from opledger.ledger.audit import remember
from opledger.rules import notes
from opledger.rules.model import Actor, ActorKind
from opledger.store import checkpoints as table
from opledger.store.checkpointing import _give_up
from tests.core.checkpoints.world import World
from tests.core.store.making import CONTRACT, claim, fence_of, opened, refusal_of, sent, write
from tests.support.databases import admin, with_database

ANA = Actor("ana", ActorKind.HUMAN)
_copies = itertools.count(1)

Restore = Callable[[], World]


def backup(world: World) -> Restore:
    """Make a backup of the database; what is returned puts it in the place of the database."""
    if world.url.startswith("sqlite"):
        path = Path(make_url(world.url).database or "")
        copy = world.folder / f"backup-{next(_copies)}.db"
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)

        def restore() -> World:
            world.store.close()
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            shutil.copy(copy, path)
            return World(world.url, world.folder)

        return restore
    name, server = f"opledger_backup_{next(_copies)}", with_database(world.url, "postgres")
    world.store.close()
    with admin(server) as session:
        session.execute(f'DROP DATABASE IF EXISTS "{name}"')
        session.execute(f'CREATE DATABASE "{name}" TEMPLATE "{make_url(world.url).database}"')
    world.store = World(world.url, world.folder).store
    world._stack.enter_context(world.store)

    def restore_server() -> World:
        copy = f"{name}_{next(_copies)}"
        with admin(server) as session:
            session.execute(f'DROP DATABASE IF EXISTS "{copy}"')
            session.execute(f'CREATE DATABASE "{copy}" TEMPLATE "{name}"')
        return World(with_database(world.url, copy), world.folder)

    return restore_server


def go_on(world: World, times: int = 1) -> None:
    """Something happens, and a worker writes a checkpoint."""
    for _ in range(times):
        opened(world.store)
        world.worker().run()


def acknowledged(world: World, who: Actor = ANA, reason: str = "the disk died", **changes: object) -> givingup.Given:
    """A person says that it goes on."""
    found = replace(givingup.forgotten(world.store.database, world.audit), **changes)  # type: ignore[arg-type]
    return givingup.acknowledge(world.store.database, world.audit, who, reason, SystemClock().now(), found)


def test_a_restored_backup_does_not_start(world: World) -> None:
    """What was sent since would be sent again; the sentence names both sides, and what to do."""
    go_on(world, 2)
    restore = backup(world)
    world.worker().start()
    go_on(world, 3)
    with restore() as old:
        worker = old.worker()
        with pytest.raises(IntegrityBroken) as caught:
            worker.start()
        said = caught.value.message
        assert "is older than its anchor" in said
        assert "ends at checkpoint 2 of 2" in said
        assert "holds checkpoint 5 of 2" in said
        assert "opledger audit acknowledge --reason" in said
        assert any(not line.ok and line.message == said for line in report.lines(old.store.database, old.audit))
        assert [finding.split()[0] for finding in old.findings()] == ["ANCHOR_AHEAD"]
        # Even a worker that was running does not write behind what it does not know.
        for _ in range(4):
            opened(old.store)
            worker.run()
        assert old.newest() == 6
        assert old.kept() == [1, 2, 3, 4, 5]


def test_a_backup_that_has_gone_on_does_not_start_either(world: World) -> None:
    """Another history with the same numbers: worse than one that is only too short."""
    go_on(world, 2)
    restore = backup(world)
    go_on(world, 1)
    with restore() as old:
        opened(old.store, 2)
        old.worker(anchors=()).run()  # somebody has taken the anchor away for a while
        with pytest.raises(IntegrityBroken, match="has another checkpoint 3 than that anchor"):
            old.worker().start()
        opened(old.store)
        old.worker(anchors=()).run()
        with pytest.raises(IntegrityBroken, match="has another checkpoint 3 than that anchor"):
            old.worker().start()
        acknowledged(old)
        old.worker().start()
        assert old.notes()[-1].note.acknowledged is not None
        go_on(old)
        assert old.newest() == 6
        assert old.kept() == [1, 2, 3, 4, 5, 6]
        assert old.findings() == []


def test_a_short_history_of_its_own_is_given_up_with_the_rest(world: World) -> None:
    """The backup wrote a checkpoint, the lost database wrote three: numbers go on behind all of them."""
    go_on(world, 2)
    restore = backup(world)
    go_on(world, 3)
    with restore() as old:
        opened(old.store, 2)
        old.worker(anchors=()).run()
        one = acknowledged(old).acknowledged
        assert (one.abandoned_from, one.abandoned_to) == (3, 5)
        go_on(old)
        assert [signed.note.number for signed in old.notes()] == [1, 2, 3, 6, 7]
        assert old.kept() == [1, 2, 3, 4, 5, 6, 7]
        assert old.findings() == []


def test_after_an_acknowledgement_it_goes_on(world: World) -> None:
    """Fences jump, numbers go on behind what was given up, and no anchor ever holds two notes of one number."""
    go_on(world, 2)
    (operation,) = opened(world.store)
    restore = backup(world)
    (lost,) = claim(world.store, "before", limit=1)
    go_on(world, 3)
    with restore() as old:
        (held,) = claim(old.store, "w1", limit=1)
        given = acknowledged(old)
        one = given.acknowledged
        assert (one.abandoned_from, one.abandoned_to, one.by, one.reason) == (3, 5, "ana", "the disk died")
        assert given.operations == 3
        for stale in (fence_of(held), fence_of(lost)):
            (outcome,) = old.store.record_many([write(held.operation, sent(), fence=stale)])
            assert isinstance(refusal_of(outcome), LeaseLost)
        (again,) = [new for new in claim(old.store, "w2") if new.operation.operation_id == operation.operation_id]
        assert fence_of(again).epoch > table.JUMP
        old.worker().start()
        (first, second, third) = old.notes()
        assert (third.note.number, third.note.previous) == (6, second.hash)
        assert third.note.acknowledged == one.digest()
        assert old.findings() == []
        assert third.note.epoch >= fence_of(again).epoch - 1
        assert old.kept() == [1, 2, 3, 4, 5, 6]
        texts = list(old.anchor.notes())
        assert len({notes.read(text).note.number for text in texts}) == len(texts)
        assert first.whole == texts[0]
        go_on(old)
        assert old.notes()[-1].note.acknowledged is None
        assert old.findings() == []
        with pytest.raises(Refused, match="nothing to acknowledge"):
            givingup.forgotten(old.store.database, old.audit)


def test_a_checkpoint_comes_with_an_acknowledgement_though_nothing_moved(world: World) -> None:
    """It is what the acknowledgement counts by, in the database and in the anchor, before any worker starts."""
    go_on(world)
    restore = backup(world)
    go_on(world)
    with restore() as old:
        acknowledged(old)
        assert old.kept() == [1, 2, 3]
        old.worker().run()
        old.worker().run()
        assert [signed.note.number for signed in old.notes()] == [1, 3]
        assert old.findings() == []


def test_who_dies_behind_an_acknowledgement_has_said_it_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is committed with its checkpoint, and no anchor has that yet: the next worker starts, and brings it there."""
    go_on(world)
    restore = backup(world)
    go_on(world)
    with restore() as old:
        with monkeypatch.context() as dying:
            dying.setattr(Checkpointer, "anchor", lambda _: None)
            acknowledged(old)
        assert old.kept() == [1, 2]
        worker = old.worker()
        worker.start()
        worker.run()
        assert old.kept() == [1, 2, 3]
        assert old.findings() == []


def test_without_the_key_nothing_is_given_up(world: World) -> None:
    """What nobody signed could have been written by anybody who has the database."""
    go_on(world)
    restore = backup(world)
    go_on(world)
    with restore() as old:
        (key,) = (old.folder / "keys").glob("*.key")
        away = key.rename(old.folder / "away.key")
        with pytest.raises(ConfigWrong, match=r"has not the key .* run this where the key is"):
            acknowledged(old)
        with pytest.raises(IntegrityBroken):
            old.worker().start()
        away.rename(key)
        acknowledged(old)
        old.worker().start()


def test_a_row_that_nobody_signed_acknowledges_nothing(world: World) -> None:
    """Put into the table by somebody who has the database and not the key: workers stay away, verification names it."""
    go_on(world)
    restore = backup(world)
    go_on(world, 2)
    with restore() as old:
        forged = (3, 2, 1, "ana", "the disk died", 9, bytes(32))
        old.store.database.write(lambda tx: tx.many(tx.prepared(_give_up), [forged]))
        with pytest.raises(IntegrityBroken, match="is older than its anchor"):
            old.worker().start()
        opened(old.store)
        old.worker(anchors=()).run()
        found = sorted(one.split(":")[0] for one in old.findings())
        assert found == ["ANCHOR_AHEAD None 3", "CHECKPOINT_SIG None 3", "FORK None 2"]
        # A person goes on all the same, behind that; what was forged stays, and stays a finding.
        one = acknowledged(old).acknowledged
        assert (one.abandoned_from, one.abandoned_to) == (2, 4)
        old.worker().start()
        go_on(old)
        assert [one.split(":")[0] for one in old.findings()] == ["CHECKPOINT_SIG None 3"]


def test_the_same_backup_again(world: World) -> None:
    """Restored twice: the second time more is given up, the first acknowledgement too."""
    go_on(world)
    restore = backup(world)
    go_on(world, 2)
    with restore() as old:
        acknowledged(old)
        go_on(old)
        assert old.kept() == [1, 2, 3, 4, 5]
    with restore() as older:
        with pytest.raises(IntegrityBroken):
            older.worker().start()
        one = acknowledged(older).acknowledged
        assert (one.abandoned_from, one.abandoned_to) == (2, 5)
        assert older.kept() == [1, 2, 3, 4, 5, 6]
        go_on(older)
        assert older.findings() == []


def test_a_database_that_becomes_older_while_it_is_used(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A server that lacks the newest takes over, or a backup is put under a running worker: it must not go on."""
    go_on(world)
    restore = backup(world)
    worker = world.worker()
    for _ in range(2):
        opened(world.store)
        worker.run()
    assert worker.lost is None
    with restore() as old:
        worker._database = old.store.database
        opened(old.store)
        worker.run()
        assert worker.lost is not None
        assert "has become older while it was used: it ends at checkpoint 1 and had 3" in worker.lost.message
        assert worker.lost.message in caplog.text
        assert old.newest() == 1  # nothing is signed on top of that


def test_a_backup_from_before_the_first_checkpoint(world: World) -> None:
    """It has not even a name; its anchor has."""
    restore = backup(world)
    go_on(world)
    with restore() as old, pytest.raises(ConfigWrong, match=r"belongs to opledger/ldg_.*which has no checkpoint yet"):
        old.worker().start()


def test_only_a_person_acknowledges_and_says_why(world: World) -> None:
    """An agent that could do so would send everything again by itself."""
    go_on(world)
    restore = backup(world)
    go_on(world)
    with restore() as old:
        for kind in (ActorKind.AGENT, ActorKind.WORKER, ActorKind.POLICY):
            with pytest.raises(Refused, match="only a person"):
                acknowledged(old, Actor("agent-7", kind))
        with pytest.raises(UsageError, match="--reason is empty"):
            acknowledged(old, reason=" ")
        with pytest.raises(Refused, match="changed meanwhile"):
            acknowledged(old, first=1)
        with pytest.raises(IntegrityBroken):
            old.worker().start()
        acknowledged(old)
        with pytest.raises(Refused, match="nothing to acknowledge"):
            acknowledged(old)


def test_an_anchor_out_of_reach_may_know_more(world: World) -> None:
    """Before something is given up, everything that can be known is looked at. A start is possible without."""
    go_on(world)
    restore = backup(world)
    go_on(world)
    away = world.folder / "mount"
    away.touch()
    with restore() as old:
        old.audit = replace(old.audit, anchors=(old.anchor.path, away / "second.anchor"))
        with pytest.raises(IntegrityBroken):
            old.worker().start()
        with pytest.raises(StoreUnavailable, match="it may know of more than the others"):
            givingup.forgotten(old.store.database, old.audit)
        old.worker(anchors=(away / "second.anchor",)).start()


def test_the_anchor_that_knows_most_counts(world: World) -> None:
    """One was out of reach for a while; what it holds is a beginning of what the other does."""
    url = f"memory://anchors/{uuid4().hex}"
    world.audit = replace(world.audit, anchors=(world.anchor.path, url))
    go_on(world, 2)
    restore = backup(world)
    go_on(world, 1)
    world.audit = replace(world.audit, anchors=(url,))
    go_on(world, 2)
    with restore() as old:
        old.audit = replace(old.audit, anchors=(old.anchor.path, url))
        with pytest.raises(IntegrityBroken, match=r"memory://anchors/.*holds checkpoint 5"):
            old.worker().start()
        found: Forgotten = givingup.forgotten(old.store.database, old.audit)
        assert (found.first, found.last.note.number) == (3, 5)
        assert "Checkpoints 3 to 5" in givingup.meaning(found)
        acknowledged(old)
        look = standing.look(old.store.database, old.audit)
        assert [place.newest.note.number for place in look.places if place.newest is not None] == [6, 6]


def test_what_was_verified_here_is_an_anchor_too(world: World) -> None:
    """The anchor beside the file came back with the backup; what this user has verified did not, and counts."""
    go_on(world)
    anchor = world.anchor.path.read_bytes()
    restore = backup(world)
    go_on(world, 2)
    newest = table.newest(world.store.database)
    ledger = table.ledger(world.store.database)
    assert newest is not None and ledger is not None
    memory = world.audit.verified(ledger.ledger_id)
    remember(memory, newest.note, newest.at)
    with restore() as old:
        old.anchor.path.write_bytes(anchor)
        with pytest.raises(IntegrityBroken, match=r"what was verified on this machine before.* holds checkpoint 3"):
            old.worker().start()
        assert any(not line.ok and str(memory) in line.message for line in report.lines(old.store.database, old.audit))
        assert [one.split(":")[0] for one in old.findings()] == ["ANCHOR_AHEAD None 3"]
        one = acknowledged(old).acknowledged
        assert (one.abandoned_from, one.abandoned_to) == (2, 3)
        old.worker().start()
        go_on(old)
        assert old.findings() == []
        assert old.kept() == [1, 4, 5]
        found = old.anchored()
        assert found is not None and found.anchor == str(old.anchor.path)  # it is no place outside
        memory.write_text("{torn")
        old.worker().start()


def test_an_anchor_of_another_ledger_is_left_alone(world: World, tmp_path: Path) -> None:
    """A mixed-up path must not put two histories into one file."""
    go_on(world)
    before = world.anchor.path.read_bytes()
    with World(f"sqlite:///{tmp_path / 'other.db'}", tmp_path) as other:
        other.store.pin_contract(CONTRACT)
        with pytest.raises(ConfigWrong, match="belongs to opledger/ldg_"):
            other.worker().start()
        opened(other.store)
        other.worker(anchors=()).run()
        with pytest.raises(ConfigWrong, match=r"belongs to opledger/ldg_.* and not to opledger/ldg_"):
            other.worker().start()
        opened(other.store)
        other.worker().run()
    assert world.anchor.path.read_bytes() == before


def test_a_forged_note_in_the_anchor_stops_nobody(world: World) -> None:
    """Who can write to the anchor and has not the key cannot make a worker stand still."""
    go_on(world)
    (signed,) = world.notes()
    note = replace(signed.note, number=99, previous=signed.hash)
    world.anchor.append([(99, notes.sign_off(note.text(), note.origin, signed.key_id, signed.signature))])
    world.worker().start()
    go_on(world)
    assert world.kept() == [1, 99, 2]
