"""What a checkpoint costs must depend on what moved, and not on how much there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opledger.store import checkpointing
from opledger.store import checkpoints as table
from opledger.store.statements import Recipe, Tx
from tests.core.checkpoints.world import World
from tests.core.store.making import CONTRACT, noted, opened, write

STATEMENTS: dict[str, Recipe] = {
    "known": checkpointing._known,
    "fence": checkpointing._fence,
    "buried": checkpointing._buried,
    "leaf count": checkpointing._leaf_count,
    "number": checkpointing._number,
    "hash of": table._hash_of,
    "after": table._after,
    "covering": table._covering,
    "covered": table._covered,
    "seen": table._seen,
}
VALUES: dict[str, Any] = {"since": 1, "most": 5, "number": 1, "operation_id": "x", "mark": 1}


@pytest.mark.parametrize("name", [*STATEMENTS, "moved"])
def test_no_statement_goes_through_a_whole_table(world: World, name: str) -> None:
    """Each goes through a key or an index: the journal has millions of rows, and leaves are as many."""
    kind = world.store.database.kind
    own = checkpointing._fresh if kind == "sqlite" else checkpointing._recent
    recipe = STATEMENTS.get(name, own)

    def work(tx: Tx) -> str:
        if kind == "postgresql":
            tx.cursor.execute(
                "SET LOCAL enable_seqscan = off"
            )  # the tables are empty; what matters is what is possible
        statement = tx.prepared(recipe)
        prefix = "EXPLAIN QUERY PLAN " if kind == "sqlite" else "EXPLAIN "
        values = {**VALUES, "ids": tx.tongue.several(["a", "b"])}
        tx.cursor.execute(prefix + statement.text, statement.values(values))
        return "\n".join(str(row[-1]) for row in tx.cursor.fetchall())

    plan = world.store.database.write(work)
    scans = [line for line in plan.splitlines() if "Seq Scan" in line or line.startswith("SCAN ")]
    assert [line for line in scans if "json_each" not in line and "acknowledgement" not in line] == [], plan


def test_a_checkpoint_costs_the_same_however_much_there_is(sqlite_url: str, tmp_path: Path) -> None:
    """The same number of steps of SQLite over a hundred operations as over two thousand: counted, not timed."""
    with World(sqlite_url, tmp_path) as world:
        world.store.pin_contract(CONTRACT)
        operations = opened(world.store, 100)
        few = _steps(world, operations[:10])
        opened(world.store, 1_900)
        many = _steps(world, operations[:10])
        assert many <= few * 1.2


def _steps(world: World, operations: list[Any]) -> int:
    """How many steps one checkpoint over ten heads takes, looking and writing."""
    worker = world.worker()
    worker.run()
    world.store.record_many([write(one, noted()) for one in operations])
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    database = world.store.database
    database.with_writer(lambda connection: connection.set_progress_handler(tick, 1))
    readers: list[Any] = []

    def watch(tx: Tx) -> None:
        connection = tx.cursor.connection  # type: ignore[attr-defined]
        connection.set_progress_handler(tick, 1)
        readers.append(connection)

    database.read(watch)
    before = world.newest()
    count = 0
    worker.run()
    total = count
    for connection in readers:
        connection.set_progress_handler(None, 1)
    database.with_writer(lambda connection: connection.set_progress_handler(None, 1))
    assert world.newest() == before + 1
    assert total > 100
    return total
