from __future__ import annotations

import pytest

from opledger.rules import evidence as e
from opledger.rules.model import Operation
from opledger.store import Store, finding
from tests.core.store.making import accepted, after, bound, noted, observed, opened, sent, write

ID = "op_01J7Q5X4D4PA3DK0F5Q2V8W9AB"


def by(store: Store, text: str) -> dict[str, str]:
    """The ids that a search finds, and by what."""
    found = store.queries.find_all(text)
    assert found.complete
    return {hit.operation.operation_id: hit.by for hit in found.hits}


@pytest.fixture
def one(store: Store) -> Operation:
    """An operation with everything that it can be found by, among others that have as much."""
    for number in range(3):
        bound(store, opened(store, trace_id=f"a{number}" * 16)[0], f"other_{number}")
    record = opened(
        store, operation_id=ID, trace_id="5f" * 16, token="tok%_'x", fingerprint="sha256:" + "ab12cd" * 10 + "beef"
    )
    bound(store, record[0], "job_7421x")
    read = observed(call_id="call_1", request_id='req "ä"/9')
    store.record_many([write(ID, read), write(ID, e.CancelRequested("wish_3", "ana"))])
    return store.get(ID)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (ID, "operation id"),
        (ID.lower(), "operation id"),
        (ID.upper(), "operation id"),
        (ID[:9].lower(), "beginning of the operation id"),
        (f"  {ID}\n", "operation id"),
        (ID[:9], "beginning of the operation id"),
        ("Q2V8W9AB", "end of the operation id"),
        ("q2v8w9ab", "end of the operation id"),
        ("3DK0F5Q2V8W9AB", "end of the operation id"),
        ("3dk0f5q2v8w9ab", "end of the operation id"),
        ("W9AB", "end of the operation id"),
        ("w9ab", "end of the operation id"),
        ("job_7421x", "remote job id"),
        ("job_7421", "beginning of the remote job id"),
        ("5f" * 16, "trace id"),
        ("5F" * 16, "trace id"),
        ("5f5f5f5f", "beginning of the trace id"),
        ("tok%_'x", "idempotency token"),
        ("sha256:" + "ab12cd" * 10 + "beef", "request fingerprint"),
        ("AB12CD" * 10 + "BEEF", "request fingerprint"),
        ("cdbeef", "request fingerprint"),
        ("12cdbeef", "request fingerprint"),
        ('req "ä"/9', "provider request id in event 4"),
        ("call_1", "call id in event 4"),
        ("wish_3", "request id in event 5"),
    ],
)
def test_anything_that_names_an_operation_finds_it(store: Store, one: Operation, text: str, what: str) -> None:
    """Support quotes whatever it has; nobody should have to know which column that is."""
    assert by(store, text) == {one.operation_id: what}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "%",
        "_",
        "tok%",
        "job_",
        "5f5f",
        "cdbee",
        "9AB",
        "2cdxbeef",
        "\0",
        ID + "\0",
        "\ud800",
        "' OR 1=1 --",
        '","request_id":"',
        "\\",
        "x" * 1_000_000,
        "ä" * 600,
        "req",
        "agent-7",
        "running",
        "\U0010ffff",
        "{}",
    ],
)
def test_what_names_nothing_finds_nothing(store: Store, one: Operation, text: str) -> None:
    """Signs that mean something to a database, halves of ids, and names of people are just texts."""
    assert by(store, text) == {}


def test_a_request_id_in_an_answer_that_came_too_late_is_found(store: Store) -> None:
    """It was kept in a note, because its writer had lost the lease."""
    (one,) = opened(store)
    late = e.to_data(observed(call_id="call_9", request_id="req-late"))
    store.record_many([write(one, e.Noted("too late", "Observed", late))])
    assert by(store, "req-late") == {one.operation_id: "provider request id in event 2"}


def test_a_job_that_is_no_longer_the_bound_one_is_found(store: Store) -> None:
    """A second job of one request is exactly what somebody will ask about."""
    (one,) = opened(store)
    bound(store, one, "job_first")
    wrong = e.UnfamiliarJobId(call_id="c2", why="another job", jobs=("job_first", "jöb_second"))
    store.record_many([write(one, wrong)])
    assert by(store, "jöb_second") == {one.operation_id: "earlier job id"}
    assert by(store, "job_first") == {one.operation_id: "remote job id"}


def test_words_of_a_provider_are_no_ids(store: Store) -> None:
    """A provider may name its fields as it likes; only the places where ids stand are looked at."""
    (one,) = opened(store)
    bound(store, one, "job_1")
    store.record_many([write(one, observed(progress={"my_id": "here", "request_id": "here"}))])
    assert by(store, "here") == {}
    assert finding._what(b'{"data":[]}', "here", 1) is finding._what(b"\xff", "here", 1) is finding._what(b"3", "", 1)


def test_an_index_spares_the_search(store: Store, one: Operation) -> None:
    """What everybody looks for must not read everything; and nothing is told of it."""
    told: list[tuple[int, int]] = []
    found = store.queries.find_all("job_7421x", told=lambda *step: told.append(step), stop=lambda: True)
    assert (len(found.hits), found.complete, found.searched, told) == (1, True, 0, [])


@pytest.fixture
def many(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    """Seven operations in slices of three, two of them made at one moment, each read under the same request id."""
    monkeypatch.setattr(finding, "SLICE", 3)
    records = [opened(store, at=after(number // 2))[0] for number in range(7)]
    for number, record in enumerate(records):
        bound(store, record, f"job_{number}")
        store.record_many([write(record, e.ReadFailed(call_id="c", request_id="req-1"), at=after(60))])
    return records


def test_a_search_goes_from_the_newest_in_slices_and_says_how_far_it_is(store: Store, many: list[Operation]) -> None:
    """Each operation is looked at once, and what happened last is what people ask about."""
    told: list[tuple[int, int]] = []
    found = store.queries.find_all("req-1", told=lambda *step: told.append(step))
    newest = sorted(many, key=lambda record: (record.created_at, record.operation_id), reverse=True)
    assert [hit.operation.operation_id for hit in found.hits] == [record.operation_id for record in newest]
    assert told == [(3, 7), (6, 7), (7, 7)]
    assert (found.complete, found.searched) == (True, 7)


def test_a_search_can_be_stopped_between_slices(store: Store, many: list[Operation]) -> None:
    """What was found so far is shown, and that it is not all."""
    answers = iter([False, True])
    found = store.queries.find_all("req-1", stop=lambda: next(answers))
    assert (len(found.hits), found.complete, found.searched) == (3, False, 3)


def test_of_too_many_hits_the_newest_are_shown(store: Store, many: list[Operation]) -> None:
    """And it says that there are more; a number that is just reached is all."""
    found = store.queries.find_all("req-1", most=2)
    assert (len(found.hits), found.complete, found.searched) == (2, False, 3)
    found = store.queries.find_all("req-1", most=7)
    assert (len(found.hits), found.complete) == (7, True)
    found = store.queries.find_all("op_", most=2)
    assert (len(found.hits), found.complete) == (2, False)


def test_several_operations_may_end_alike(store: Store) -> None:
    """A search shows them all; acting on one of them asks for the whole id."""
    opened(store, operation_id="op_1_ABCDEFGH")
    opened(store, operation_id="op_2_ABCDEFGH")
    assert set(by(store, "ABCDEFGH")) == {"op_1_ABCDEFGH", "op_2_ABCDEFGH"}
    assert set(by(store, "2_ABCDEFGH")) == {"op_2_ABCDEFGH"}


def test_the_same_job_id_of_two_providers_is_two_operations(store: Store) -> None:
    """Small providers count from one."""
    for contract in ("reports", "payouts"):
        bound(store, opened(store, contract=contract)[0], "1")
    assert list(by(store, "1").values()) == ["remote job id", "remote job id"]


def test_two_values_in_one_record_name_it_once(store: Store) -> None:
    """A list with the same operation twice would look like two."""
    (one,) = opened(store, token="same")
    store.record_many([write(one, sent()), write(one, accepted("same")), write(one, noted())])
    assert by(store, "same") == {one.operation_id: "remote job id"}
