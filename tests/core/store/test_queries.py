from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opledger.errors import Refused, UnknownOperation
from opledger.rules import evidence as e
from opledger.rules import journal
from opledger.rules.model import Operation
from opledger.store import Filter, Page, Store
from tests.core.store.making import T0, after, bound, no_plan, noted, opened, opening, write


def shown(store: Store, **wanted: Any) -> set[str]:
    """The ids that a filter finds."""
    return {operation.operation_id for operation in store.queries.list(Filter(**wanted)).operations}


def ids(*operations: Operation) -> set[str]:
    """The ids of operations."""
    return {operation.operation_id for operation in operations}


def test_a_record_is_found_by_its_id_or_not_at_all(store: Store) -> None:
    """An unknown id is the caller's mistake, said in a sentence."""
    (operation,) = opened(store)
    assert store.get(operation.operation_id) == operation
    for name in ("op_nobody", "", "op\0", "op\ud800", "' OR 1=1 --"):
        with pytest.raises(UnknownOperation):
            store.get(name)


def test_many_records_come_in_the_order_asked_for(store: Store) -> None:
    """Those that are not there are left out; those asked for twice come twice."""
    one, two = opened(store, 2)
    asked = [two.operation_id, "op_nobody", one.operation_id, two.operation_id]
    assert store.queries.get_many(asked) == [two, one, two]
    assert store.queries.get_many([]) == []


def test_the_last_eight_characters_are_enough(store: Store) -> None:
    """People see and type the end of an id, in either case."""
    (record,) = opened(store, operation_id="op_01J7Q5X4D4PA3DK0F5Q2V8W9AB")
    opened(store, operation_id="op_01J7Q5X4D4PA3DK0F5Q2V8W9AC")
    for text in ("Q2V8W9AB", "q2v8w9ab", record.operation_id):
        assert store.queries.find(text) == record
    for text in ("2V8W9AB", "XQ2V8W9AB", "nobody", "op\0ascdf", "\ud800aaaaaaa"):
        with pytest.raises(UnknownOperation):
            store.queries.find(text)


def test_an_ambiguous_end_is_refused_with_all_it_could_mean(store: Store) -> None:
    """Acting on the wrong one of two is worse than asking again."""
    opened(store, operation_id="op_1_ABCDEFGH")
    opened(store, operation_id="op_2_ABCDEFGH")
    with pytest.raises(Refused, match="op_1_ABCDEFGH, op_2_ABCDEFGH"):
        store.queries.find("ABCDEFGH")


def test_the_journal_is_read_in_order_and_from_anywhere(store: Store) -> None:
    """A follower asks only for what it has not seen."""
    (operation,) = opened(store)
    store.record_many([write(operation, noted(str(number))) for number in range(5)])
    rows = store.queries.events(operation.operation_id)
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6]
    assert store.queries.events(operation.operation_id, 4) == rows[4:]
    assert store.queries.events(operation.operation_id, limit=2) == rows[:2]
    assert store.queries.events("op_nobody") == store.queries.events("op\0") == []
    assert journal.verify(rows) == []


def test_all_chains_are_read_for_verifying(store: Store) -> None:
    """Each record comes with its own journal, in pages, none left out."""
    records = opened(store, 7)
    store.record_many([write(record, noted()) for record in records[:3]])
    found = list(store.queries.chains(step=3))
    assert [record.operation_id for record, _ in found] == sorted(ids(*records))
    for record, rows in found:
        assert rows[-1].seq == record.head_seq
        assert rows[-1].hash.hex() == record.head_hash


def test_pages_are_newest_first_and_miss_nothing(store: Store) -> None:
    """Paging is by key, so that rows that arrive meanwhile shift nothing; equal times are told apart by id."""
    records = [opened(store, at=after(number // 3))[0] for number in range(10)]
    expected = sorted(records, key=lambda one: (one.created_at, one.operation_id), reverse=True)
    seen: list[Operation] = []
    after_: object = None
    for _ in range(4):
        page = store.queries.list(limit=3, after=after_)  # type: ignore[arg-type]
        seen += page.operations
        opened(store, at=after(99))
        after_ = page.after
    assert seen == expected
    assert after_ is None


def test_a_page_that_is_just_full_is_the_last(store: Store) -> None:
    """No empty page follows."""
    opened(store, 2)
    assert store.queries.list(limit=2).after is None
    assert store.queries.list(limit=1).after is not None
    assert store.queries.list(Filter(contract="none")) == Page((), None)


def test_operations_are_found_by_what_they_are(store: Store) -> None:
    """Each filter by itself, and several together."""
    plain, tagged = opened(store)[0], opened(store, tags={"team": "a'b", "x": "1"}, requested_by="jo")[0]
    step = opened(store, task="t", step="s", contract="payouts", tags={"team": "c"})[0]
    waiting = opened(store, approvals_needed=1)[0]
    store.record_many([write(plain, e.Withdrawn("ana"), plan=no_plan)])
    assert shown(store, states=("withdrawn",)) == ids(plain)
    assert shown(store, states=("withdrawn", "awaiting_approval")) == ids(plain, waiting)
    assert shown(store, contract="payouts") == ids(step)
    assert shown(store, attention=True) == shown(store, attention_code="awaiting_approval") == ids(waiting)
    assert shown(store, attention_code="gone") == set()
    assert shown(store, tags={"team": "a'b"}) == shown(store, tags={"team": "a'b", "x": "1"}) == ids(tagged)
    assert shown(store, tags={"team": "a'b", "x": "2"}) == shown(store, tags={"none": "1"}) == set()
    assert shown(store, task="t") == ids(step)
    assert shown(store, requested_by="jo") == ids(tagged)
    assert shown(store, contract="reports", requested_by="agent-7", states=("create_pending",)) == set()


def test_one_box_finds_ids_job_ids_and_trace_ids(store: Store) -> None:
    """What a person pastes is looked for wherever it could stand."""
    (one,) = opened(store, operation_id="op_01J7Q5X4D4PA3DK0F5Q2V8W9AB", trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    opened(store)
    bound(store, one, "job_7ad2%_")
    for text in (one.operation_id, "op_01J7Q", "Q2V8W9AB", "q2v8w9ab", "job_7ad2%_", "job_7", "4bf92f3577b34"):
        assert shown(store, text=text) == ids(one)
    for text in ("%", "_", "ob_7", "job_8", "x\0", "\ud800", "' OR 1=1 --"):
        assert shown(store, text=text) == set()


def test_counts_say_how_much_there_is_of_each(store: Store) -> None:
    """For the console's overview."""
    first, *_ = opened(store, 3)
    opened(store, approvals_needed=1, contract="payouts")
    assert store.queries.counts() == {"create_pending": 3, "awaiting_approval": 1}
    assert store.queries.attentions() == {"awaiting_approval": 1}
    assert store.queries.open_by_contract() == {"reports": 3, "payouts": 1}
    store.record_many([write(first, e.Withdrawn("ana"), plan=no_plan)])
    assert store.queries.open_by_contract() == {"reports": 2, "payouts": 1}


def test_reads_work_on_a_ledger_that_may_only_be_read(store: Store, database_url: str) -> None:
    """An auditor's console writes nothing, and still sees everything that is committed."""
    (operation,) = opened(store)
    with Store.open(database_url, read_only=True) as reader:
        assert reader.get(operation.operation_id) == operation
        record = bound(store, operation, "j1")
        assert reader.get(operation.operation_id) == record
        assert reader.queries.list().operations == (record,)
        assert len(reader.queries.events(operation.operation_id)) == 3
        assert reader.queries.counts() == {"accepted": 1}
        assert reader.next_due(T0) == T0
        assert reader.workers() == []


def test_an_old_wish_is_listed_by_when_it_was_made(store: Store) -> None:
    """Times before others come after them, whatever the order of writing."""
    late, early = replace(opening(), at=after(5)), replace(opening(), at=after(1))
    store.open_many([late, early])
    assert [o.operation_id for o in store.queries.list().operations] == [late.operation_id, early.operation_id]
