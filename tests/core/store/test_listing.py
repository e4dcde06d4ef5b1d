from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from opledger.errors import Refused
from opledger.rules import evidence as e
from opledger.rules import filters
from opledger.rules.filters import Key, Term, Wanted, matches, parse
from opledger.rules.model import Means, Operation, Plan
from opledger.store import Store, listing
from opledger.store.listing import Search
from opledger.store.rows import deadline_of
from opledger.store.statements import Tx
from opledger.store.values import Sort, Window
from tests.core.store.making import ANA, CONTRACT, after, bound, claim, no_plan, observed, opened, write
from tests.support.databases import fresh_postgres, fresh_sqlite

NOW = after(600)

EVERY_TERM = (
    "state:create_pending", "state:open", "state:ended,observing", "state:waiting", "state:busy",
    "contract:reports", "contract:payouts,renders", "contract:none", "by:ana", "by:agent-7,ana", "by:none",
    "task:t1", "task:t1,t2", "tag:team", "tag:team=a'b", "tag:team=c", "tag:x=1,team=c", "tag:none", 'tag:"quo\\"te"',
    "code:awaiting_approval", "code:unknown_state,awaiting_approval", "code:none", "needs:me", "needs:nobody",
    "needs:me,nobody", "remote:running", "remote:queued,odd", "remote:none", "job:job_1", "job:job", "job:job_1,job",
    "trace:000", "trace:none", "op_", "op_LISTED07", "LISTED07", "listed07", "job_1", "none", "age>9m", "age<9m",
    "age>0s", "age<0s", "due<5m", "due>5m", "due<1h", "deadline<40m", "deadline>40m", "deadline<9d",
)  # fmt: skip

UNKNOWN = ('by:"\0"', "by:\ud800,ana", '"\ud800"', 'tag:"\0"')


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Sixty operations of every kind, with times that many of them share; nobody writes to it."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        with Store.open(fresh_sqlite(template, tmp_path_factory.mktemp("listing"))) as store:
            yield _filled(store)
        return
    with fresh_postgres(request.getfixturevalue("postgres_server")) as url, Store.open(url) as store:
        yield _filled(store)


def _filled(store: Store) -> Store:
    store.pin_contract(CONTRACT)
    tags: list[dict[str, str]] = [{}, {"team": "a'b", "x": "1"}, {"team": "c"}, {"x": 'team":"c'}, {'quo"te': "é"}]
    for number in range(60):
        (operation,) = opened(
            store,
            operation_id=f"op_LISTED{number:02}",
            at=after(60 * (number // 7)),
            due=after(600 + 100 * (number // 5)),
            contract=("reports", "payouts", "renders", "rare")[min(number % 7, 3)],
            requested_by=("agent-7", "ana", "jo")[number % 3],
            tags=tags[number % 5],
            task=f"t{number % 4}" if number % 4 else None,
            step=f"s{number}" if number % 4 else None,
            approvals_needed=1 if number % 11 == 0 else 0,
        )
        if number % 11:
            _moved(store, operation, number)
    claim(store, now=after(900), limit=9)
    return store


def _moved(store: Store, operation: Operation, number: int) -> None:
    due = after(600 + 100 * (number // 5))
    if number % 6 == 0:
        store.record_many([write(operation, e.Withdrawn("ana"), plan=no_plan, actor=ANA)])
    elif number % 6 in {1, 2, 3}:
        record = bound(store, operation, f"job_{number}", due=due, at=after(number // 9))
        if number % 6 > 1:
            means = Means.RUNNING if number % 6 == 2 else Means.UNKNOWN
            store.record_many([write(record, observed(("running", "odd")[number % 2], means), due=due, at=after(30))])


@pytest.fixture(params=["as shipped", "few rows are many"])
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits that this ledger reaches the searches take the ways that a million rows make them take."""
    if request.param != "as shipped":
        monkeypatch.setattr(listing, "DRIVEN", 5)
        monkeypatch.setattr(listing, "AHEAD", 4)


ORDERS: dict[Sort, Callable[[Operation], Any]] = {
    Sort.NEWEST: lambda op: op.created_at,
    Sort.OLDEST: lambda op: op.created_at,
    Sort.DEADLINE: deadline_of,
    Sort.NEXT: lambda op: None if op.next is None else op.next.at,
    Sort.STATE: lambda op: op.created_at,
}


def expected(store: Store, wanted: Wanted, sort: Sort) -> list[Operation]:
    """What a list must show, worked out in plain Python from all records."""
    at = ORDERS[sort]
    shown = [op for op in everything(store) if at(op) is not None and matches(op, wanted, NOW)]
    shown.sort(key=lambda op: (at(op), op.operation_id), reverse=sort in {Sort.NEWEST, Sort.STATE})
    if sort is Sort.STATE:
        shown.sort(key=lambda op: op.state)
    return shown


@functools.cache
def everything(store: Store) -> tuple[Operation, ...]:
    """All records, read in the simplest way there is, and once: nobody writes to this ledger."""
    return store.queries.list(limit=1000).operations


def paged(store: Store, wanted: Wanted, sort: Sort, limit: int) -> list[Operation]:
    """All pages from the beginning, one behind the other."""
    seen: list[Operation] = []
    window = Window((), more=True)
    while window.more:
        start = store.queries.key_of(seen[-1], sort) if seen else None
        window = store.queries.window(wanted, sort, now=NOW, start=start, limit=limit)
        assert window.searched_to is None
        assert len(window.operations) == limit or not window.more
        seen += window.operations
    return seen


@pytest.mark.parametrize("sort", Sort)
@pytest.mark.parametrize("bounds", ["few rows are many"], indirect=True)
@pytest.mark.usefixtures("bounds")
def test_every_term_in_every_order_finds_what_it_means(ledger: Store, sort: Sort) -> None:
    """The database and `matches` say the same, also with a minus before the term."""
    found = 0
    for text in (*EVERY_TERM, *UNKNOWN):
        for sign in ("", "!"):
            wanted = parse(sign + text)
            right = expected(ledger, wanted, sort)
            window = ledger.queries.window(wanted, sort, now=NOW, limit=60)
            shown = [op.operation_id for op in window.operations]
            found += len(shown)
            assert shown == [op.operation_id for op in right], sign + text
            assert (window.more, window.searched_to is None) == (False, True), sign + text
    assert found > 1000


@pytest.mark.parametrize("sort", Sort)
@pytest.mark.parametrize(
    "text", ["", "state:open", "!contract:payouts", "tag:team", "due<1h", "needs:nobody by:ana,jo"]
)
@pytest.mark.parametrize("bounds", ["few rows are many"], indirect=True)
@pytest.mark.usefixtures("bounds")
def test_pages_go_both_ways_by_key(ledger: Store, sort: Sort, text: str) -> None:
    """Forwards nothing is missed or seen twice where times are equal; backwards come the rows right before."""
    wanted = parse(text)
    right = expected(ledger, wanted, sort)
    assert len(right) > 3
    assert paged(ledger, wanted, sort, 4) == right
    for position in (0, 1, 5, len(right) // 2, len(right) - 1):
        if position < len(right):
            start = ledger.queries.key_of(right[position], sort)
            back = ledger.queries.window(wanted, sort, now=NOW, start=start, backwards=True, limit=3)
            assert list(back.operations) == right[max(0, position - 3) : position]
            assert back.more is (position > 3)
            assert ledger.queries.newer(wanted, sort, start, now=NOW) == position
            assert ledger.queries.newer(wanted, sort, start, now=NOW, most=2) == min(position, 2)


TERMS = st.one_of(
    st.sampled_from(EVERY_TERM).map(lambda text: parse(text).terms[0]),
    st.builds(
        Term,
        st.sampled_from(filters.SPANS),
        st.just(()),
        st.booleans(),
        st.sampled_from(["<", ">"]),
        st.integers(0, 60).map(lambda minutes: timedelta(minutes=minutes)),
    ),
)


def together(text: str) -> list[tuple[Term, bool]]:
    """The terms of a filter, as the property below takes them."""
    return [(term, False) for term in parse(text).terms]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(terms=together("contract:reports !contract:reports due<5m"), sort=Sort.NEWEST, place=3, backwards=False)
@example(terms=together("contract:reports contract:payouts"), sort=Sort.NEXT, place=3, backwards=False)
@example(terms=together("by:ana !by:ana code:gone !code:gone deadline<5m"), sort=Sort.OLDEST, place=3, backwards=True)
@given(
    terms=st.lists(st.tuples(TERMS, st.booleans()), min_size=1, max_size=4),
    sort=st.sampled_from(Sort),
    place=st.integers(0, 59),
    backwards=st.booleans(),
)
@pytest.mark.usefixtures("bounds")
def test_terms_together_find_what_they_mean(
    ledger: Store, terms: list[tuple[Term, bool]], sort: Sort, place: int, *, backwards: bool
) -> None:
    """Which indexes are used depends on all terms together; what is found must not."""
    chosen = {(term.key, number) if term.key is not Key.TEXT else (term.key, 0): (term, turn)
              for number, (term, turn) in enumerate(terms)}  # fmt: skip
    wanted = Wanted(
        tuple(
            Term(term.key, term.values, term.negated is not turn, term.than, term.span)
            for term, turn in chosen.values()
        )
    )
    right = expected(ledger, wanted, sort)
    anywhere = [op for op in everything(ledger) if ORDERS[sort](op) is not None]
    start = ledger.queries.key_of(anywhere[place % len(anywhere)], sort)
    keys = {op.operation_id: ledger.queries.key_of(op, sort) for op in right}
    whole = expected(ledger, Wanted(), sort)
    positions = {op.operation_id: number for number, op in enumerate(whole)}
    here = positions[str(start[-1])]
    if backwards:
        right = [op for op in right if positions[op.operation_id] < here][-5:]
    else:
        right = [op for op in right if positions[op.operation_id] > here][:5]
    window = ledger.queries.window(wanted, sort, now=NOW, start=start, backwards=backwards, limit=5)
    assert [op.operation_id for op in window.operations] == [op.operation_id for op in right]
    assert ledger.queries.count(wanted, now=NOW) == len(expected(ledger, wanted, Sort.NEWEST))
    assert len(keys) == len(expected(ledger, wanted, sort))


def test_a_set_is_frozen_newest_first(ledger: Store) -> None:
    """What is done to all of them is done to exactly these."""
    right = [op.operation_id for op in expected(ledger, parse("contract:reports"), Sort.NEWEST)]
    assert ledger.queries.ids(parse("contract:reports"), now=NOW, most=1000) == tuple(right)
    assert ledger.queries.ids(parse("contract:reports"), now=NOW, most=3) == tuple(right[:3])
    assert ledger.queries.ids(parse("contract:none"), now=NOW, most=3) == ()


def test_counts_are_capped(ledger: Store) -> None:
    """Nobody needs to know whether there are a hundred thousand or two."""
    assert ledger.queries.count(Wanted(), now=NOW) == 60
    assert ledger.queries.count(Wanted(), now=NOW, most=7) == 7
    assert ledger.queries.count(parse("!contract:none"), now=NOW, most=7) == 7
    assert ledger.queries.count(parse("tag:team"), now=NOW, most=7) == 7
    assert ledger.queries.count(parse("by:none"), now=NOW) == 0


def test_an_operation_without_a_place_in_a_sort_is_refused(ledger: Store) -> None:
    """Paging from a row that the sort does not show would begin anywhere."""
    ended = expected(ledger, parse("state:withdrawn"), Sort.NEWEST)[0]
    for sort in (Sort.DEADLINE, Sort.NEXT):
        with pytest.raises(Refused, match="has no place"):
            ledger.queries.key_of(ended, sort)


@pytest.mark.parametrize("sort", Sort)
def test_what_no_index_knows_is_searched_among_the_newest_and_said(
    ledger: Store, monkeypatch: pytest.MonkeyPatch, sort: Sort
) -> None:
    """A search through a million rows for a tag would stop everything; a search that stops early must say so."""
    monkeypatch.setattr(listing, "SEARCHED", 20)
    monkeypatch.setattr(listing, "DRIVEN", 5)
    monkeypatch.setattr(listing, "AHEAD", 1)
    newest = expected(ledger, Wanted(), Sort.NEWEST)
    since = newest[19].created_at
    for text in ("tag:team", "remote:running,odd", "!by:ana", "needs:nobody", "op_ tag:team"):
        wanted = parse(text)
        right = [op for op in expected(ledger, wanted, sort) if op.created_at >= since]
        window = ledger.queries.window(wanted, sort, now=NOW, limit=60)
        assert list(window.operations) == right
        assert window.searched_to == since
        if sort is Sort.NEWEST:
            assert ledger.queries.count(wanted, now=NOW) == len(right)
            assert ledger.queries.ids(wanted, now=NOW, most=99) == tuple(op.operation_id for op in right)


def test_what_has_ended_is_not_searched_for_deadlines(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list that says it may not be complete would make somebody look for what cannot be."""
    for limit in ("SEARCHED", "DRIVEN", "AHEAD"):
        monkeypatch.setattr(listing, limit, 2)
    window = ledger.queries.window(parse("state:ended tag:team"), Sort.DEADLINE, now=NOW)
    assert window == Window((), more=False, searched_to=None)


def test_a_source_may_reach_further_back_than_the_newest(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of a rare contract are spread over more operations than the newest ten; all five are looked at."""
    monkeypatch.setattr(listing, "SEARCHED", 6)
    monkeypatch.setattr(listing, "DRIVEN", 5)
    wanted = parse("by:ana !tag:none")
    mine = expected(ledger, parse("by:ana"), Sort.NEWEST)
    window = ledger.queries.window(wanted, Sort.NEWEST, now=NOW, limit=60)
    assert window.searched_to == mine[4].created_at
    assert list(window.operations) == [op for op in mine if op.created_at >= mine[4].created_at]


def test_an_age_moves_what_is_searched(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is older than an hour the newest are searched, not those of the last minute."""
    monkeypatch.setattr(listing, "SEARCHED", 8)
    monkeypatch.setattr(listing, "DRIVEN", 5)
    wanted = parse("age>7m !tag:none")
    old = expected(ledger, parse("age>7m"), Sort.NEWEST)
    window = ledger.queries.window(wanted, Sort.NEWEST, now=NOW, limit=60)
    assert window.searched_to == old[7].created_at
    assert list(window.operations) == [op for op in old if op.created_at >= old[7].created_at]
    assert len(window.operations) >= 8


def test_a_sort_by_deadline_looks_ahead_before_it_goes_by_age(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What most operations are is found in order, whatever its age, and the window is complete."""
    monkeypatch.setattr(listing, "SEARCHED", 3)
    monkeypatch.setattr(listing, "DRIVEN", 3)
    monkeypatch.setattr(listing, "AHEAD", 20)
    wanted = parse("!tag:none")
    for sort in (Sort.DEADLINE, Sort.NEXT):
        window = ledger.queries.window(wanted, sort, now=NOW, limit=10)
        assert list(window.operations) == expected(ledger, wanted, sort)[:10]
        assert window.searched_to is None
        assert window.more


def test_leased_operations_stand_among_those_by_next_action(ledger: Store) -> None:
    """A worker's lease takes a row out of the index of what is due, and not out of the list."""
    leased = [op for op in everything(ledger) if op.lease is not None]
    assert len(leased) == 9
    shown = ledger.queries.window(parse("due<1h"), Sort.NEXT, now=NOW).operations
    assert {op.operation_id for op in leased} <= {op.operation_id for op in shown}
    assert all(isinstance(op.next, Plan) for op in shown)


@pytest.mark.parametrize(
    ("text", "sort", "index"),
    [
        ("", Sort.NEWEST, "operation_created"),
        ("", Sort.OLDEST, "operation_created"),
        ("", Sort.STATE, "operation_state"),
        ("", Sort.DEADLINE, "operation_deadline"),
        ("", Sort.NEXT, "operation_due"),
        ("", Sort.NEXT, "operation_leased"),
        ("state:failed", Sort.NEWEST, "operation_state"),
        ("contract:reports", Sort.NEWEST, "operation_contract"),
        ("by:ana", Sort.NEWEST, "operation_requested"),
        ("code:gone", Sort.NEWEST, "operation_attention"),
        ("needs:me", Sort.NEWEST, "operation_attention"),
        ("task:t1", Sort.NEWEST, "operation_step"),
        ("job:job_1", Sort.NEWEST, "operation_job"),
        ("trace:00", Sort.NEWEST, "operation_trace"),
        ("LISTED07", Sort.NEWEST, "operation_short"),
        ("due<5m", Sort.NEWEST, "operation_due"),
        ("deadline<5m", Sort.NEWEST, "operation_deadline"),
        ("contract:reports tag:x", Sort.NEWEST, "operation_contract"),
        ("state:failed contract:reports by:ana tag:x", Sort.NEWEST, "operation_state"),
    ],
)
def test_every_window_is_read_through_the_index_that_was_meant(
    sqlite_url: str, text: str, sort: Sort, index: str
) -> None:
    """The database may not choose another way: with a million rows it would choose without knowing better."""
    with Store.open(sqlite_url) as store:
        store.pin_contract(CONTRACT)
        opened(store, 3, approvals_needed=1)
        plans: list[str] = []
        store.database.read(lambda tx: Search(_explaining(tx, plans), parse(text), NOW).ids(sort, most=50))
    lines = "\n".join(plans)
    assert index in plans[-1], lines
    assert "SCAN operation\n" not in lines + "\n", lines


def _explaining(tx: Tx, plans: list[str]) -> Tx:
    """The same transaction, which asks for the plan of each statement before it runs it."""

    class Explaining:
        def __init__(self) -> None:
            self.rowcount = 0

        def execute(self, text: Any, values: Any = (), /) -> Any:
            tx.cursor.execute("EXPLAIN QUERY PLAN " + text, values)
            plans.append("\n".join(row[-1] for row in tx.cursor.fetchall()))
            return tx.cursor.execute(text, values)

        def executemany(self, text: Any, rows: Any, /) -> Any:
            raise AssertionError

        def fetchall(self) -> list[Any]:
            return tx.cursor.fetchall()

    return Tx(Explaining(), tx.tongue, tx.known)


@pytest.mark.parametrize("text", ["job:job_1,job", "job:job,job_1", "trace:000,00", "op_LISTED0", "task:t1,t2"])
def test_what_several_values_mean_comes_once(ledger: Store, text: str) -> None:
    """Each value has its own way through an index; a row that lies on two of them is one row."""
    right = expected(ledger, parse(text), Sort.NEWEST)
    assert right
    assert list(ledger.queries.window(parse(text), Sort.NEWEST, now=NOW).operations) == right
    assert ledger.queries.count(parse(text), now=NOW) == len(right)
