"""What was archived gets a leaf of its own, and row numbers that are given again hide nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy.engine import make_url

from opledger.rules import tree
from opledger.rules.tombstones import Tombstone
from opledger.store import auditing, checkpointing
from tests.core.checkpoints.world import World
from tests.core.store.making import opened
from tests.support.databases import admin


def bury(world: World, *operation_ids: str) -> None:
    """Archive operations, as the database's guards let it be done."""
    columns = ", ".join(Tombstone._fields)
    what = (
        f"INSERT INTO tombstone ({columns}) SELECT operation_id, head_seq, head_hash, state, contract, "
        "idempotency_token, remote_job_id, task, step, {now}, 'ana', 'old', 'a.jsonl', head_hash "
        "FROM operation WHERE operation_id = {id}"
    )
    tables = ("event", "request", "operation")
    if world.url.startswith("postgresql"):
        with admin(world.url) as session:
            for one in operation_ids:
                session.execute(what.format(now="extract(epoch FROM now())::bigint * 1000000", id="%s"), (one,))
                for table in tables:
                    session.execute(f"DELETE FROM {table} WHERE operation_id = %s", (one,))
        return
    with closing(sqlite3.connect(make_url(world.url).database or "", isolation_level=None)) as connection:
        for one in operation_ids:
            connection.execute(what.format(now="strftime('%s') * 1000000", id="?"), (one,))
            for table in tables:
                connection.execute(f"DELETE FROM {table} WHERE operation_id = ?", (one,))


@pytest.mark.parametrize("most", [3, 5_000])
def test_an_archived_operation_gets_a_last_leaf_and_hides_no_new_one(
    world: World, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives the numbers of removed last rows again: what is written then lies below the mark."""
    moved = checkpointing.moved
    monkeypatch.setattr(checkpointing, "moved", lambda *a, **how: moved(*a, **{**how, "most": most}))
    operations = opened(world.store, 12)
    worker = world.worker()
    worker.run()
    gone = [one.operation_id for one in operations[4:]]
    bury(world, *gone)
    opened(world.store, 11)  # more than were removed: the last number is beyond the mark again
    worker.run()
    worker.run()
    papers = auditing.papers(world.store.database)
    leaves = list(auditing.leaves(world.store.database, 0, papers.last_leaf))
    buried = [leaf for leaf in leaves if leaf.kind == tree.TOMBSTONE]
    assert sorted(leaf.operation_id for leaf in buried) == sorted(gone)
    for leaf in buried:
        (stone,) = auditing.tombstones(world.store.database, [leaf.operation_id])
        assert (leaf.seq, leaf.hash) == (1, stone.digest())
    assert len([leaf for leaf in leaves if leaf.kind == tree.HEAD]) == 23
    assert world.notes()[-1].note.events == 23
    assert world.findings() == []
    worker.finish()
    assert len(leaves) == world.notes()[-1].note.size
