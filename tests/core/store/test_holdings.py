"""What workers hold: counted from the index of leases, and told in the time of whoever asks."""

from __future__ import annotations

from datetime import timedelta

from opledger.store import Store, directory
from opledger.store.statements import Tx
from tests.core.store.making import LEASE, T0, after, claim, expire, opened


def test_it_is_known_who_holds_how_much_and_until_when(store: Store) -> None:
    """Whoever looks at a dead worker wants to know what it left, and when others may take it."""
    opened(store, 5)
    first = claim(store, "w1", limit=2)
    claim(store, "w2", now=after(10), limit=1)
    now = after(10)
    held = store.holdings(now)
    assert {name: one.leases for name, one in held.items()} == {"w1": 2, "w2": 1}
    # By the server's clock on PostgreSQL, where the two claims came right after each other.
    assert timedelta(0) < held["w1"].first_lapses - now <= LEASE
    assert held["w2"].first_lapses == held["w2"].last_lapses
    assert abs(held["w2"].last_lapses - now - LEASE) < timedelta(seconds=5)
    expire(store, first[0].operation)
    lapsed = store.holdings(now)["w1"]
    assert lapsed.first_lapses < now < lapsed.last_lapses
    store.release("w1", [(one.operation.operation_id, one.operation.lease.epoch) for one in first])  # type: ignore[union-attr]
    assert set(store.holdings(now)) == {"w2"}


def test_nobody_holds_anything_at_first(store: Store) -> None:
    """No row, no worker."""
    opened(store, 3)
    assert store.holdings(T0) == {}


def test_only_the_index_of_leases_is_read(sqlite_url: str) -> None:
    """Of a million operations a few hundred are leased; the others must cost nothing."""
    with Store.open(sqlite_url) as store:

        def plan(tx: Tx) -> str:
            statement = tx.prepared(directory._holdings)
            tx.cursor.execute("EXPLAIN QUERY PLAN " + statement.text, statement.values({"now": 1}))
            return "\n".join(str(row[-1]) for row in tx.cursor.fetchall())

        assert "operation_leased" in store.database.read(plan)
