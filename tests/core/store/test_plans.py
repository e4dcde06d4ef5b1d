"""What a claim costs must not depend on what waits; the databases' own query plans say whether it does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from opledger.store import Store, claims, deliveries, opening, queries, recording
from opledger.store.statements import Kind, Recipe, Tongue, Tx
from opledger.store.values import Filter
from tests.core.store.making import CONTRACT, T0, after, claim, opened
from tests.support.databases import fresh_postgres, fresh_sqlite

HOT: dict[str, Recipe] = {
    "due": claims.due,
    "overdue": claims.overdue,
    "expired": claims.expired,
    "waiting": claims.waiting,
    "first deadline": claims._first_deadline,
    "first expiry": claims._first_expiry,
    "heads": recording.heads,
    "records": recording.records,
    "job holders": recording._job_holders,
    "clashes": opening._like,
    "take": claims._take,
    "give back": claims._give_back,
    "give back all": claims._give_back_all,
    "by suffix": queries._by_suffix,
    "attentions": queries._attentions,
    "named by deliveries": deliveries._named,
    "parked deliveries": deliveries._known_by_now,
}

VALUES: dict[str, Any] = {
    **dict.fromkeys(("now", "most", "lease"), 1),
    **dict.fromkeys(("contract", "owner", "but", "suffix", "after"), "x"),
}


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def big(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Enough rows, of enough contracts, that a scan would show."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        with Store.open(fresh_sqlite(template, tmp_path_factory.mktemp("big"))) as store:
            yield _filled(store)
        return
    with fresh_postgres(request.getfixturevalue("postgres_server")) as url, Store.open(url) as store:
        yield _filled(store)


def _filled(store: Store) -> Store:
    store.pin_contract(CONTRACT)
    for contract in ("reports", "payouts", "renders"):
        opened(store, 300, contract=contract, due=after(3600))
    claim(store, now=after(3600), limit=20)
    return store


def plan_of(store: Store, recipe: Recipe) -> str:
    """The database's own plan for a statement, as text."""

    def work(tx: Tx) -> str:
        if tx.tongue.kind == "postgresql":
            tx.cursor.execute("ANALYZE operation")
            tx.cursor.execute("SET LOCAL enable_seqscan = off")  # the table is small; what matters is what is possible
            prefix = "EXPLAIN "
        else:
            prefix = "EXPLAIN QUERY PLAN "
        statement = tx.prepared(recipe)
        several = tx.tongue.several(["a", "b"])
        values = {**VALUES, **dict.fromkeys(("ids", "jobs", "states", "tasks", "tokens"), several)}
        tx.cursor.execute(prefix + statement.text, statement.values(values))
        return "\n".join(str(row[-1]) for row in tx.cursor.fetchall())

    return store.database.write(work)


@pytest.mark.parametrize("name", HOT)
def test_hot_statements_never_scan_the_operations(big: Store, name: str) -> None:
    """Every one goes through an index; a scan of a partial index that holds only what is wanted is fine."""
    plan = plan_of(big, HOT[name])
    scans = [line for line in plan.splitlines() if "Seq Scan on operation" in line or line.startswith("SCAN op")]
    assert [line for line in scans if "USING" not in line] == [], plan


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("due", "operation_due"),
        ("overdue", "operation_deadline"),
        ("expired", "operation_leased"),
        ("waiting", "operation_due"),
        ("first expiry", "operation_leased"),
        ("job holders", "operation_job"),
        ("by suffix", "operation_short"),
    ],
)
def test_hot_statements_use_the_index_that_was_made_for_them(big: Store, name: str, index: str) -> None:
    """An index nobody uses costs every write for nothing."""
    assert index in plan_of(big, HOT[name])


def steps(store: Store) -> int:
    """How many steps SQLite's machine takes for one claim that finds nothing, and for the look before it."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    def watched(connection: Any) -> None:
        connection.set_progress_handler(tick, 1)

    store.database.with_writer(watched)
    assert claim(store, "w9", full={"renders"}) == []
    store.database.write(lambda tx: claims.next_due(tx, T0, {"payouts"}, {"renders"}))
    store.database.with_writer(lambda connection: connection.set_progress_handler(None, 1))
    return count


def test_a_look_costs_the_same_whatever_waits(sqlite_url: str) -> None:
    """A hundred and two thousand waiting operations: the same number of steps, counted, not timed."""
    with Store.open(sqlite_url) as store:
        store.pin_contract(CONTRACT)
        counts = []
        for number in (100, 1_900):
            for contract in ("reports", "payouts"):
                opened(store, number // 2, contract=contract, due=after(3600))
            opened(store, number, contract="renders", due=after(-3600))  # full: due, and not wanted
            counts.append(steps(store))
        few, many = counts
        assert many <= few * 1.1


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (Filter(), "operation_created"),
        (Filter(states=("observing",)), "operation_state"),
        (Filter(attention_code="gone"), "operation_attention"),
        (Filter(text="job_7"), "operation_job"),
        (Filter(task="t"), "operation_step"),
    ],
)
def test_pages_for_people_start_at_an_index(sqlite_url: str, wanted: Filter, index: str) -> None:
    """The first rows of a million must come at once."""
    with Store.open(sqlite_url) as store:
        values: dict[str, Any] = {}
        statement = queries._listing(store.database.tongue, wanted, (T0, "op_x"), values)
        prepared = store.database.tongue.compile(statement.limit(50))

        def work(tx: Tx) -> str:
            tx.cursor.execute("EXPLAIN QUERY PLAN " + prepared.text, prepared.values(values))
            return "\n".join(row[-1] for row in tx.cursor.fetchall())

        plan = store.database.read(work)
        assert index in plan, plan
        assert "SCAN operation\n" not in plan + "\n"


# --- what PostgreSQL is told; no server is needed to read that --------------------------------------------------

TAKING: dict[str, tuple[Recipe, str]] = {
    "due": (claims.due, "next_action_at"),
    "overdue": (claims.overdue, "deadline_at"),
    "expired": (claims.expired, "lease_expires_at"),
}


def said(recipe: Recipe, kind: Kind = "postgresql") -> str:
    """The text of a statement, on one line, with all parameters written alike."""
    tongue = Tongue(kind)
    text = " ".join(tongue.compile(recipe(tongue)).text.split())
    return re.sub(r"(\?|%s)(::(BIGINT|INTEGER))?", "?", text)


@pytest.mark.parametrize("name", TAKING)
def test_a_claim_waits_for_no_other(name: str) -> None:
    """What another worker is about to take is passed over, so that many of them claim side by side."""
    assert said(TAKING[name][0]).endswith(" FOR UPDATE SKIP LOCKED")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("name", TAKING)
def test_a_claim_reads_the_longest_overdue_first_and_no_more_than_it_takes(name: str, kind: Kind) -> None:
    """Whatever the index, and however many there are."""
    recipe, column = TAKING[name]
    assert f" ORDER BY operation.{column} LIMIT ?" in said(recipe, kind)


def test_numbers_of_every_size_go_as_one_type() -> None:
    """The driver would send a small one as another type than a big one, and the server plan the statement anew."""
    tongue = Tongue("postgresql")
    for recipe, _ in TAKING.values():
        text = tongue.compile(recipe(tongue)).text
        assert re.search(r"%s(?!::)", text) is None, text


def test_the_names_of_providers_are_read_one_after_the_other() -> None:
    """Jumping through the index from one to the next is a recursion, which PostgreSQL must be told."""
    assert said(claims.waiting).startswith("WITH RECURSIVE ")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize(
    ("recipe", "column"), [(claims._first_deadline, "deadline_at"), (claims._pinned, "next_action_at")]
)
def test_of_a_provider_only_the_first_operation_is_read(recipe: Recipe, column: str, kind: Kind) -> None:
    """A look costs the same, whatever waits behind it."""
    assert f" ORDER BY operation.{column} LIMIT ?" in said(recipe, kind)
    tongue = Tongue(kind)
    assert [value for value in tongue.compile(recipe(tongue)).fixed.values() if value] == [1]


def test_records_are_locked_in_the_order_of_their_ids() -> None:
    """Two transactions that lock the same ones must not wait for each other."""
    assert said(recording.heads).endswith(" ORDER BY operation.operation_id FOR UPDATE")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_happened_since_is_told_from_its_beginning(kind: Kind) -> None:
    """The first events after the version that somebody looked at, in the order in which they came."""
    assert " ORDER BY event.seq LIMIT ?" in said(recording._news, kind)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_answer_that_is_there_is_no_error(kind: Kind) -> None:
    """Nor does it matter which of two transactions stored it first."""
    assert said(recording.insert_answer, kind).endswith(" ON CONFLICT DO NOTHING")
