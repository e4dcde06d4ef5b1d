from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from opledger.errors import BodyConflict, ConfigWrong, Refused
from opledger.rules.model import State
from opledger.store import Opening, Recorded, Store, TokenTaken
from tests.core.store.making import (
    T0,
    after,
    assert_whole,
    noted,
    opened,
    opening,
    operation_of,
    refusal_of,
    request,
    sent,
    write,
)


def test_a_new_operation_is_one_record_one_event_and_one_request(store: Store) -> None:
    """After this the process may die: everything the create needs is durable (promise 1)."""
    wish = opening(7, tags={"month": "2026-11"}, task="t", step="s", supersedes="op_old", due=after(3))
    (outcome,) = store.open_many([wish])
    record = operation_of(outcome)
    assert outcome == Recorded(store.get(record.operation_id), 1)
    assert (record.state, record.version, record.lease) == (State.CREATE_PENDING, 1, None)
    assert (record.tags, record.task, record.step, record.supersedes) == ({"month": "2026-11"}, "t", "s", "op_old")
    assert store.request_of(record.operation_id) == request(7)
    assert_whole(store, record.operation_id)


def test_a_request_keeps_every_byte(store: Store) -> None:
    """The exact bytes are resent as stored; headers may repeat and keep their order (I2)."""
    strange = replace(
        request(), body=bytes(range(256)), asked=b"{}", fingerprint_url="https://x.test/{id}", content_type=None
    )
    wish = replace(opening(), request=strange)
    store.open_many([wish])
    assert store.request_of(wish.operation_id) == strange


def test_the_same_wish_twice_is_one_operation(store: Store) -> None:
    """An agent that lost its memory submits again and gets what is there, moved on or not."""
    wish = opening(1)
    store.open_many([wish])
    store.record_many([write(wish.operation_id, sent())])
    (again,) = store.open_many([replace(wish, at=after(60))])
    assert again == Recorded(store.get(wish.operation_id), 1, existing=True)
    assert operation_of(again).version == 2
    assert len(store.queries.events(wish.operation_id)) == 2


def test_the_same_wish_twice_in_one_batch_is_one_operation(store: Store) -> None:
    """Two agents may hand in the same step within one fsync."""
    wish = opening(1)
    first, again = store.open_many([wish, wish])
    assert again == Recorded(operation_of(first), 1, existing=True)
    assert len(store.queries.events(wish.operation_id)) == 1


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "later"])
def test_the_same_id_with_another_body_is_refused(store: Store, together: bool) -> None:
    """The first one stands, and the refusal names it."""
    wish = opening(1)
    other = opening(2, operation_id=wish.operation_id)
    outcomes = store.open_many([wish, other]) if together else [*store.open_many([wish]), *store.open_many([other])]
    assert isinstance(outcomes[0], Recorded)
    error = refusal_of(outcomes[1])
    assert isinstance(error, BodyConflict)
    assert wish.operation_id in str(error)
    assert store.get(wish.operation_id) == operation_of(outcomes[0])


def test_the_same_fingerprint_under_another_contract_is_another_request(store: Store) -> None:
    """A fingerprint covers the contract, but a stored one is only compared, never trusted alone."""
    wish = opening(1)
    outcomes = store.open_many([wish, opening(1, operation_id=wish.operation_id, contract="payouts")])
    assert isinstance(refusal_of(outcomes[1]), BodyConflict)


def test_a_task_step_is_one_operation_whatever_its_id(store: Store) -> None:
    """The same step asked again returns the recorded outcome (DESIGN §8), under whatever new id it was tried."""
    first = opening(1, task="t", step="s", operation_id="op_first")
    again = opening(1, task="t", step="s", operation_id="op_again")
    other = opening(2, task="t", step="s", operation_id="op_other")
    outcomes = store.open_many([first, again, other, opening(3, task="t", step="s2"), opening(4, task="t2", step="s")])
    assert outcomes[1] == Recorded(operation_of(outcomes[0]), 1, existing=True)
    error = refusal_of(outcomes[2])
    assert isinstance(error, BodyConflict)
    assert "step s of task t" in str(error)
    assert "op_first" in str(error)
    assert isinstance(outcomes[3], Recorded)
    assert isinstance(outcomes[4], Recorded)


def test_a_token_belongs_to_one_operation(store: Store) -> None:
    """I2: a token is never used for two bodies, even if a caller computes it badly."""
    one = opening(1, token="idem_x")
    two = opening(2, token="idem_x")
    elsewhere = opening(3, token="idem_x", contract="payouts")
    outcomes = store.open_many([one, two, elsewhere, opening(4, token=None), opening(5, token=None)])
    error = refusal_of(outcomes[1])
    assert isinstance(error, TokenTaken)
    assert one.operation_id in str(error)
    assert all(isinstance(outcome, Recorded) for outcome in outcomes[2:])
    (later,) = store.open_many([opening(6, token="idem_x")])
    assert isinstance(refusal_of(later), TokenTaken)


def test_an_operation_needs_its_contract_in_the_ledger(store: Store) -> None:
    """Without the pinned text nobody could drive it after the file is edited."""
    (outcome,) = store.open_many([opening(1, contract_digest="sha256:" + "0" * 64)])
    assert isinstance(refusal_of(outcome), ConfigWrong)


def test_a_wish_that_cannot_be_stored_spoils_only_itself(store: Store) -> None:
    """One agent's NUL is not the other agents' problem."""
    bad, good = opening(1, task="t\0", step="s"), opening(2)
    outcomes = store.open_many([bad, good])
    assert isinstance(refusal_of(outcomes[0]), Refused)
    assert store.get(good.operation_id) == operation_of(outcomes[1])


def test_an_approval_waits_without_deadlines(store: Store) -> None:
    """Nothing runs out but the approval while a person thinks."""
    (record,) = opened(store, approvals_needed=1, approval_timeout=after(60) - T0)
    assert record.state is State.AWAITING_APPROVAL
    assert record.approval_deadline == after(60)
    assert record.create_deadline is None
    assert store.get(record.operation_id) == record
    assert operation_of(store.record_many([write(record, noted())])[0]).attention is not None


def test_many_processes_submit_one_wish(store: Store, second: Store) -> None:
    """Whoever is first, all get the same operation; tried often, because the gap that matters is narrow."""
    for number in range(25):
        wish = opening(number, task=f"t{number}", step="s")
        barrier = threading.Barrier(4)
        outcomes: list[object] = []

        def submit(
            through: Store,
            name: str,
            wish: Opening = wish,
            barrier: threading.Barrier = barrier,
            outcomes: list[object] = outcomes,
        ) -> None:
            barrier.wait()
            outcomes.extend(through.open_many([replace(wish, operation_id=name)]))

        pairs = [(store, f"op_a{number}"), (second, f"op_b{number}")] * 2
        threads = [threading.Thread(target=submit, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        records = [outcome for outcome in outcomes if isinstance(outcome, Recorded)]
        assert len(records) == 4, outcomes
        assert sum(not outcome.existing for outcome in records) == 1
        assert len({outcome.operation.operation_id for outcome in records}) == 1
        assert sum(store.queries.counts().values()) == number + 1
