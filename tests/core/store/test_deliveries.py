from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from opledger.rules import evidence as e
from opledger.store import Answer, Incoming, Match, Store
from tests.core.store.making import T0, after, assert_whole, bound, opened, operation_of, sent, write

BODY = b'{"id":"evt_1"}'


def incoming(key: str = "id:evt_1", *matches: Match, contract: str = "reports", **changes: Any) -> Incoming:
    """A delivery as it would be stored."""
    values: dict[str, Any] = {
        "delivery_id": f"dlv_{contract}_{key}",
        "contract": contract,
        "key": key,
        "received_at": T0,
        "event_type": "job.done",
        "job_id": None,
        "token": None,
        "answer": Answer.of(BODY, "application/json", size=100),
    }
    return Incoming(**{**values, **changes, "matches": matches})


def told(operation: Any, delivery: str = "dlv_x") -> Match:
    """An operation that is to be told of a delivery."""
    notified = e.Notified("webhook", delivery)
    return Match(operation.operation_id, write(operation.operation_id, notified, due=after(1)))


def test_a_delivery_counts_once_and_its_operation_is_told_in_the_same_commit(store: Store) -> None:
    """The same event comes dozens of times over a day, in one batch, again, and from two receivers (B35)."""
    (operation,) = opened(store)
    bound(store, operation, "job_1", due=after(600))
    one = incoming("id:1", told(operation))
    twin = incoming("id:1", told(operation), delivery_id="dlv_twin")
    found = store.take_deliveries([one, twin, incoming("id:1", contract="other")])
    assert [(taken.stored, taken.operations) for taken in found] == [
        (True, (operation.operation_id,)),
        (False, ()),
        (True, ()),
    ]
    assert [taken.stored for taken in store.take_deliveries([twin])] == [False]
    kinds = [row.kind for row in store.queries.events(operation.operation_id)]
    assert kinds.count("Notified") == 1
    after_it = store.get(operation.operation_id).next
    assert after_it is not None and after_it.at == after(1)
    (kept,) = store.deliveries(operation_id=operation.operation_id)
    assert (kept.key, kept.operation_id, kept.matched_at) == ("id:1", operation.operation_id, T0)
    assert_whole(store, operation.operation_id)


def test_two_receivers_at_once_store_it_once(store: Store, second: Store) -> None:
    """A sender that repeats itself meets any of them."""
    (operation,) = opened(store)
    bound(store, operation, "job_1")
    outcomes: list[bool] = []

    def take(side: Store, name: str) -> None:
        for number in range(10):
            batch = [incoming(f"id:{number}", told(operation), delivery_id=f"{name}_{number}")]
            outcomes.extend(taken.stored for taken in side.take_deliveries(batch))

    threads = [threading.Thread(target=take, args=pair) for pair in ((store, "a"), (second, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == [False] * 10 + [True] * 10
    assert [row.kind for row in store.queries.events(operation.operation_id)].count("Notified") == 10


def test_what_matches_nothing_is_parked_until_its_job_is_known(store: Store, second: Store) -> None:
    """The notice came before our own create had its answer (B37), by job id and by token."""
    by_job, by_token = opened(store, 2)
    parked = [
        incoming("id:1", job_id="job_1"),
        incoming("id:2", token=by_token.operation_id),
        incoming("id:3", token=by_token.idempotency_token),
        incoming("id:4", job_id="job_1", contract="other"),
    ]
    assert [taken.operations for taken in store.take_deliveries(parked)] == [(), (), (), ()]
    assert store.parked_deliveries() == []
    assert store.parked_counts() == {"other": (1, T0), "reports": (3, T0)}
    bound(store, by_job, "job_1")
    assert [(one.delivery.key, one.operation_id, one.answer) for one in store.parked_deliveries()] == [
        ("id:1", by_job.operation_id, Answer.of(BODY, "application/json", size=100))
    ]
    operation_of(store.record_many([write(by_token, sent())])[0])  # from here on something may run
    found = {
        one.delivery.delivery_id: [told(by_job if one.delivery.job_id else by_token)]
        for one in store.parked_deliveries()
    }
    assert len(found) == 3
    assert store.match_deliveries(found, after(5)) == 3
    assert second.match_deliveries(found, after(5)) == 0  # another sweeper had seen the same
    kinds = [row.kind for row in store.queries.events(by_token.operation_id)]
    assert kinds == ["Submitted", "CallSent", "Notified", "Notified"]
    assert store.parked_counts() == {"other": (1, T0)}
    assert [kept.matched_at for kept in store.deliveries(operation_id=by_job.operation_id)] == [after(5)]


def test_an_operation_that_was_never_sent_is_not_told(store: Store) -> None:
    """Nothing of it can run yet: the delivery waits, and the record stays as it is."""
    (operation,) = opened(store)
    (taken,) = store.take_deliveries([incoming("id:1", told(operation), token=operation.operation_id)])
    assert (taken.stored, taken.operations) == (True, ())
    assert store.get(operation.operation_id).version == operation.version
    assert [kept.key for kept in store.deliveries(parked=True)] == ["id:1"]


def test_a_delivery_about_what_has_ended_is_stored_and_changes_nothing(store: Store) -> None:
    """Old news a day later (B35)."""
    (operation,) = opened(store)
    ended = bound(store, operation, "job_1")
    (taken,) = store.take_deliveries([incoming("id:1", Match(operation.operation_id, None))])
    assert taken.operations == (operation.operation_id,)
    assert store.get(operation.operation_id) == ended


def test_names_lead_to_operations_of_any_contract(store: Store) -> None:
    """So that a delivery about somebody else's operation is seen to be that."""
    first, second = opened(store, 2)
    bound(store, first, "job_1")
    found = store.named(["job_1", "job_9"], [second.operation_id, str(second.idempotency_token), "x\0y"])
    assert {(one.operation_id, one.contract, one.job_id) for one in found} == {
        (first.operation_id, "reports", "job_1"),
        (second.operation_id, "reports", None),
    }
    assert store.named([], []) == []


def test_old_deliveries_are_swept(store: Store) -> None:
    """They are kept for as long as a sender may repeat them, and no longer."""
    store.take_deliveries([incoming("id:1"), incoming("id:2", received_at=after(60))])
    assert store.sweep_deliveries(after(60)) == 1
    assert [kept.key for kept in store.deliveries()] == ["id:2"]
    assert [taken.stored for taken in store.take_deliveries([incoming("id:1")])] == [True]


def test_refusals_are_counted(store: Store) -> None:
    """People see who knocks with a wrong key, and since when."""
    store.count_refusals({("reports", "signature"): 3, ("", "unknown_contract"): 1}, T0)
    store.count_refusals({("reports", "signature"): 2}, T0 + timedelta(hours=1))
    found = [(one.contract, one.kind, one.times, one.first_at, one.last_at) for one in store.refusals()]
    assert found == [
        ("", "unknown_contract", 1, T0, T0),
        ("reports", "signature", 5, T0, T0 + timedelta(hours=1)),
    ]


def test_a_broken_batch_leaves_nothing(store: Store) -> None:
    """What is not committed is not acknowledged, so it comes again."""
    bad = incoming("id:2", job_id="a\0b")
    try:
        store.take_deliveries([incoming("id:1"), bad])
    except ValueError:
        pass
    else:
        raise AssertionError("a text that no row can hold was stored")
    assert store.deliveries() == []
