from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from opledger.errors import IllegalTransition, LeaseLost, Refused, StoreUnavailable, UnknownOperation
from opledger.rules import evidence as e
from opledger.rules import journal
from opledger.rules.model import Action, Means, Operation, Plan, State
from opledger.store import Answer, Changed, Claim, Declined, Fence, JobIdTaken, Recorded, Store, archiving, recording
from opledger.store.encoding import to_micros
from opledger.store.statements import Tx
from tests.core.store.making import (
    ANA,
    LEASE,
    T0,
    accepted,
    after,
    assert_whole,
    bound,
    claim,
    expire,
    fence_of,
    no_plan,
    noted,
    observed,
    opened,
    operation_of,
    refusal_of,
    sent,
    write,
)


def test_an_event_and_its_record_are_written_together(store: Store) -> None:
    """What `record_many` returns is what anybody reads afterwards."""
    (operation,) = opened(store)
    (outcome,) = store.record_many([write(operation, sent(), due=after(5))])
    assert outcome == Recorded(store.get(operation.operation_id), 2)
    assert operation_of(outcome).next is not None
    assert [row.kind for row in store.queries.events(operation.operation_id)] == ["Submitted", "CallSent"]
    assert_whole(store, operation.operation_id)


def test_nothing_to_write_is_no_transaction(store: Store) -> None:
    """A worker without news must not be made to wait for the disk."""
    assert store.record_many([]) == []


def test_writes_of_one_batch_build_on_each_other(store: Store) -> None:
    """Several events of one operation in one batch are one chain and one row."""
    (operation,) = opened(store)
    writes = [write(operation, sent()), write(operation, accepted("j1")), write(operation, observed(), due=after(9))]
    before = store.database.events
    outcomes = store.record_many(writes)
    assert store.database.events == before + 3  # checkpoints are made by how many there were
    assert [outcome.seq for outcome in outcomes if isinstance(outcome, Recorded)] == [2, 3, 4]
    record = store.get(operation.operation_id)
    assert (record.state, record.version, record.head_seq) == (State.OBSERVING, 4, 4)
    assert_whole(store, operation.operation_id)


def test_the_history_names_the_states_only_where_they_change(store: Store) -> None:
    """The transition history is the events with `to_state` set (DESIGN §3)."""
    (operation,) = opened(store)
    record = bound(store, operation, "j1")
    store.record_many([write(record, observed()), write(record, observed())])
    arrows = [(row.from_state, row.to_state) for row in store.queries.events(operation.operation_id)]
    assert arrows == [
        (None, "create_pending"),
        (None, None),
        ("create_pending", "accepted"),
        ("accepted", "observing"),
        (None, None),
    ]


def test_a_declined_write_never_spoils_others(store: Store) -> None:
    """Group commit would be a trap if one operation's refusal took five hundred others with it."""
    one, two, three = opened(store, 3)
    outcomes = store.record_many(
        [
            write(one, sent()),
            write(two, accepted("j2"), due=after(1)),  # no create was sent
            write("op_nobody", noted()),
            write(three, sent()),
            write(one, observed()),  # not accepted yet
            write(one, accepted("j1")),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [Recorded, Declined, Declined, Recorded, Declined, Recorded]
    assert isinstance(refusal_of(outcomes[1]), IllegalTransition)
    assert isinstance(refusal_of(outcomes[2]), UnknownOperation)
    assert isinstance(refusal_of(outcomes[4]), IllegalTransition)
    assert store.get(one.operation_id).state is State.ACCEPTED
    assert store.get(two.operation_id) == two
    assert_whole(store, one.operation_id, two.operation_id, three.operation_id)


def test_a_declined_write_shows_the_record_as_it_stands(store: Store) -> None:
    """Whoever is refused must be able to say what is true instead, without another read."""
    (operation,) = opened(store)
    outcomes = store.record_many([write(operation, sent()), write(operation, observed())])
    declined = outcomes[1]
    assert isinstance(declined, Declined)
    assert declined.operation == store.get(operation.operation_id)


def test_of_what_nobody_has_there_is_no_record_to_show(store: Store) -> None:
    """The id is the likeliest mistake."""
    (known,) = opened(store)
    (outcome, other) = store.record_many([write("op_nobody", noted()), write("op_none", noted(), basis=known)])
    assert isinstance(refusal_of(other), UnknownOperation)
    assert str(refusal_of(outcome)) == "there is no operation op_nobody in this ledger; check the id"
    assert isinstance(outcome, Declined)
    assert outcome.operation is None


# --- fencing ----------------------------------------------------------------------------------------------------


def test_five_stale_writes_of_a_ghost_are_refused(store: Store, second: Store) -> None:
    """B38: after a take-over under the same name, the old attempt may change nothing, five ways tried."""
    (operation,) = opened(store)
    (old,) = claim(store, "w1")
    ghost = fence_of(old)
    expire(store, operation)
    (new,) = claim(second, "w1", now=after(31))
    living = fence_of(new)
    assert living.epoch > ghost.epoch
    record = bound(second, new.operation, "j1", fence=living)
    held = [(operation.operation_id, ghost.epoch)]

    assert store.renew("w1", held, LEASE, after(31)) == set()  # heartbeat
    late = [
        write(operation, observed(), fence=ghost, basis=old.operation),  # poll
        write(operation, e.CallSent("c9", Action.CANCEL, "POST", "https://x.test", 1), fence=ghost, live=True),
        write(operation, e.ResultAccepted(), fence=ghost, release=True),  # final write
    ]
    for outcome in store.record_many(late):
        assert isinstance(refusal_of(outcome), LeaseLost)
    assert store.release("w1", held) == set()  # release

    assert store.get(operation.operation_id) == record
    assert second.renew("w1", [(operation.operation_id, living.epoch)], LEASE, after(31)) == {operation.operation_id}
    assert_whole(store, operation.operation_id)


def test_a_write_after_the_own_release_is_refused(store: Store) -> None:
    """A lease that was given back is gone, though nobody took it over."""
    opened(store)
    (claimed,) = claim(store)
    fence = fence_of(claimed)
    (released,) = store.record_many([write(claimed.operation, sent(), fence=fence, release=True)])
    assert operation_of(released).lease is None
    (late,) = store.record_many([write(claimed.operation, accepted("j1"), fence=fence)])
    assert isinstance(refusal_of(late), LeaseLost)
    assert "now nobody, take-over 1" in str(refusal_of(late))
    claim(store, "w2")
    (later,) = store.record_many([write(claimed.operation, accepted("j1"), fence=fence)])
    assert "now w2, take-over 2" in str(refusal_of(later))


def test_within_one_batch_a_release_ends_the_lease(store: Store) -> None:
    """The order of writes counts inside a batch too."""
    opened(store)
    (claimed,) = claim(store)
    fence = fence_of(claimed)
    writes = [
        write(claimed.operation, sent(), fence=fence, release=True),
        write(claimed.operation, accepted("j1"), fence=fence),
    ]
    outcomes = store.record_many(writes)
    assert isinstance(refusal_of(outcomes[1]), LeaseLost)
    assert "now nobody" in str(refusal_of(outcomes[1]))
    assert store.get(claimed.operation.operation_id).state is State.CREATE_PENDING


def test_whoever_holds_no_lease_gives_none_back(store: Store) -> None:
    """A person's write ends no worker's hold, whatever it says."""
    opened(store)
    (claimed,) = claim(store)
    (outcome,) = store.record_many([write(claimed.operation, noted(), actor=ANA, release=True)])
    assert operation_of(outcome).lease == claimed.operation.lease
    assert store.get(claimed.operation.operation_id).lease == claimed.operation.lease


@pytest.mark.parametrize("holder", [True, False], ids=["by its holder", "from outside"])
def test_what_has_ended_and_waits_for_nothing_keeps_no_lease(store: Store, holder: bool) -> None:
    """Nobody would ever take it over: after the death of its holder the lease would stand there for good."""
    opened(store)
    (claimed,) = claim(store)
    fence = fence_of(claimed) if holder else None
    sending = write(claimed.operation, sent(), fence=fence_of(claimed))
    ending = write(claimed.operation, e.Refused(call_id="c1", status=422, why="no"), fence=fence, plan=lambda _: None)
    outcomes = store.record_many([sending, ending])
    assert operation_of(outcomes[1]).state is State.FAILED
    assert operation_of(outcomes[1]).lease is None
    assert store.get(claimed.operation.operation_id).lease is None
    assert store.release("w1", [(claimed.operation.operation_id, fence_of(claimed).epoch)]) == set()


def test_what_has_ended_keeps_its_lease_while_something_is_planned(store: Store) -> None:
    """The output of a failed job is still fetched, under the lease of whoever recorded the failure."""
    opened(store)
    (claimed,) = claim(store)
    fence = fence_of(claimed)
    writes = [
        write(claimed.operation, sent(), fence=fence),
        write(claimed.operation, e.Refused(call_id="c1", status=422, why="no"), fence=fence),
    ]
    outcomes = store.record_many(writes)
    assert operation_of(outcomes[1]).state is State.FAILED
    assert operation_of(outcomes[1]).lease is not None


def test_a_late_answer_is_taken_while_nobody_else_acts(store: Store) -> None:
    """A lease that ran out but was not taken over still fences: the answer in hand is worth keeping."""
    (operation,) = opened(store)
    (claimed,) = claim(store)
    store.record_many([write(operation, sent(), fence=fence_of(claimed))])
    expire(store, operation)
    (outcome,) = store.record_many([write(operation, accepted("j1"), fence=fence_of(claimed))])
    assert operation_of(outcome).state is State.ACCEPTED


def test_a_permit_needs_a_lease_that_has_not_run_out(store: Store) -> None:
    """I12: nothing may be sent on a lease that another worker may take at any moment."""
    (operation,) = opened(store)
    (claimed,) = claim(store)
    expire(store, operation)
    (outcome,) = store.record_many([write(operation, sent(), fence=fence_of(claimed), live=True)])
    assert isinstance(refusal_of(outcome), LeaseLost)
    assert len(store.queries.events(operation.operation_id)) == 1


def test_a_permit_on_a_living_lease_is_recorded(store: Store) -> None:
    """The other side of the same coin."""
    (operation,) = opened(store)
    (claimed,) = claim(store)
    (outcome,) = store.record_many([write(operation, sent(), fence=fence_of(claimed), live=True)])
    assert operation_of(outcome).open_call is not None


def test_a_release_holds_whatever_else_comes_with_it(store: Store) -> None:
    """A person's note in the same batch must not give the lease back to a worker that no longer wants it."""
    opened(store)
    (claimed,) = claim(store)
    writes = [
        write(claimed.operation, sent(), fence=fence_of(claimed), release=True),
        write(claimed.operation, noted(), actor=ANA),
    ]
    outcomes = store.record_many(writes)
    assert operation_of(outcomes[1]).lease is None
    assert store.get(claimed.operation.operation_id) == operation_of(outcomes[1])


def test_a_holder_that_plans_nothing_yet_still_holds(store: Store) -> None:
    """It goes on under the same lease; only what has ended is let go of by itself."""
    opened(store)
    (claimed,) = claim(store)
    fence = fence_of(claimed)
    (first,) = store.record_many([write(claimed.operation, sent(), fence=fence, plan=no_plan)])
    assert operation_of(first).lease == claimed.operation.lease
    (then,) = store.record_many([write(claimed.operation, accepted("j1"), fence=fence)])
    assert operation_of(then).state is State.ACCEPTED


def test_a_permit_is_judged_by_the_clock_of_the_database(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has one: a worker whose own clock is wrong must neither send too late nor be refused in time."""
    opened(store)
    (claimed,) = claim(store)
    assert claimed.operation.lease is not None
    end = to_micros(claimed.operation.lease.expires_at)

    def permit(clock: int, worker: float) -> Recorded | Declined:
        monkeypatch.setattr(Tx, "clock", lambda _: clock)
        how: dict[str, Any] = {"fence": fence_of(claimed), "at": after(worker)}
        outcomes = store.record_many(
            [write(claimed.operation, noted(), **how), write(claimed.operation, sent(), live=True, **how)]
        )
        assert isinstance(outcomes[0], Recorded)
        return outcomes[1]

    assert isinstance(refusal_of(permit(end, -7200)), LeaseLost)
    assert operation_of(permit(end - 1, 10**8)).open_call is not None


def test_of_a_lease_that_was_given_back_nothing_stays(store: Store) -> None:
    """Neither its holder nor its end; its number stays, so that no later one is the same."""
    recorded, released, ended, left = opened(store, 4)
    held = {claimed.operation.operation_id: fence_of(claimed) for claimed in claim(store, "w1", limit=3)}
    claim(store, "w2")
    store.record_many([write(recorded, sent(), fence=held[recorded.operation_id], release=True)])
    store.release("w1", [(released.operation_id, 1)])
    store.farewell("w2")
    store.record_many([write(ended, e.Withdrawn("ana"), actor=ANA, plan=no_plan)])

    def work(tx: Tx) -> list[Any]:
        tx.cursor.execute("SELECT operation_id, lease_owner, lease_expires_at, lease_epoch FROM operation ORDER BY 1")
        return [tuple(row) for row in tx.cursor.fetchall()]

    assert store.database.read(work) == [
        (record.operation_id, None, None, 1) for record in (recorded, released, ended, left)
    ]


def test_a_person_writes_past_a_lease(store: Store) -> None:
    """A cancel must not wait for the worker; the worker keeps its lease and sees the new record."""
    (operation,) = opened(store)
    bound(store, operation, "j1")
    (claimed,) = claim(store)
    wish = e.CancelRequested("r1", "ana")
    (outcome,) = store.record_many([write(operation, wish, actor=ANA, cause="human_request:r1", reason="too dear")])
    record = operation_of(outcome)
    assert record.state is State.CANCEL_REQUESTED
    event = journal.read_body(store.queries.events(operation.operation_id)[-1].body)
    assert (event.entry.actor, event.entry.cause, event.entry.reason) == (ANA, "human_request:r1", "too dear")
    assert record.lease == claimed.operation.lease
    (stale,) = store.record_many(
        [write(operation, observed(), fence=fence_of(claimed), basis=claimed.operation, due=after(60))]
    )
    assert operation_of(stale).state is State.CANCEL_REQUESTED
    assert_whole(store, operation.operation_id)


# --- versions and copies ----------------------------------------------------------------------------------------


def test_a_record_that_moved_on_declines_an_old_view(store: Store) -> None:
    """Two operators decide at once: the first wins, the second is told what happened."""
    (operation,) = opened(store)
    store.record_many([write(operation, sent()), write(operation, noted(), actor=ANA)])
    (outcome,) = store.record_many([write(operation, noted(), expected_version=1)])
    error = refusal_of(outcome)
    assert isinstance(error, Changed)
    assert "since you looked (CallSent by w1, Noted by ana) and is now create_pending" in str(error)
    (good,) = store.record_many([write(operation, noted(), expected_version=3)])
    assert operation_of(good).version == 4
    store.record_many([write(operation, noted()) for _ in range(4)])
    (much,) = store.record_many([write(operation, noted(), expected_version=2)])
    assert str(refusal_of(much)).count(" by ") == 5  # the first ones are enough to see who it was
    (never,) = store.record_many([write(operation, noted(), expected_version=99)])
    assert "since you looked (another write)" in str(refusal_of(never))


def test_expected_versions_see_the_writes_before_them_in_the_batch(store: Store) -> None:
    """Of two decisions in one batch on one version only the first holds."""
    (operation,) = opened(store)
    first, other = (write(operation, noted(text), expected_version=1) for text in ("one", "two"))
    outcomes = store.record_many([first, other])
    assert isinstance(outcomes[0], Recorded)
    assert isinstance(refusal_of(outcomes[1]), Changed)


def test_a_stale_copy_is_not_believed(store: Store, second: Store) -> None:
    """The writer's copy spares a read only while it still is the truth."""
    (operation,) = opened(store)
    operation_of(second.record_many([write(operation, sent())])[0])
    (outcome,) = store.record_many([write(operation, accepted("j1"), basis=operation)])
    assert operation_of(outcome).state is State.ACCEPTED
    assert_whole(store, operation.operation_id)


def test_a_copy_of_another_history_is_not_believed(store: Store) -> None:
    """As old as the record and not the same: so it is after a backup was restored."""
    (operation,) = opened(store)
    other = replace(operation, head_hash="0" * 64, idempotency_token="idem_other")
    (outcome,) = store.record_many([write(operation, sent(), basis=other)])
    assert operation_of(outcome).idempotency_token == operation.idempotency_token
    assert_whole(store, operation.operation_id)


def test_a_true_copy_gives_the_same_record(store: Store) -> None:
    """With and without a copy the outcome is the same."""
    one, two = opened(store, 2)
    with_copy, without = store.record_many([write(one, sent(), basis=one), write(two, sent())])
    assert operation_of(with_copy).open_call == operation_of(without).open_call
    assert_whole(store, one.operation_id, two.operation_id)


def test_a_true_copy_spares_the_read(store: Store) -> None:
    """A busy worker has the record in hand; reading it once more for every poll is half of what a poll costs."""
    one, two = opened(store, 2)
    store.record_many([write(two, noted())])
    writes = [write(one, sent(), basis=one), write(two, sent(), basis=two)]
    seats = store.database.write(lambda tx: recording.sit(tx, writes))
    assert seats[one.operation_id].found is one
    assert seats[two.operation_id].found == store.get(two.operation_id)


def test_the_statement_of_a_write_is_compiled_once(store: Store) -> None:
    """Compiling costs more than running it. Its values are given in this order: the columns, then what guards them."""

    def work(tx: Tx) -> None:
        found = recording._update(tx, ("version", "state"))
        assert found.names == ("version", "state", "old_id", "old_version", "old_epoch")
        assert recording._update(tx, ("version", "state")) is found
        assert recording._update(tx, ("version",)).names == ("version", "old_id", "old_version", "old_epoch")

    store.database.read(work)


def test_a_plan_is_made_for_the_record_as_it_will_be(store: Store) -> None:
    """What is to be done next follows from what was just learnt."""
    (operation,) = opened(store)
    asked: list[Operation] = []

    def plan(record: Operation) -> Plan:
        asked.append(record)
        return Plan("observe", after(7), "the test says so")

    store.record_many([write(operation, sent())])
    (outcome,) = store.record_many([write(operation, accepted("j1"), plan=plan)])
    (record,) = asked
    assert (record.state, record.remote_job_id) == (State.ACCEPTED, "j1")
    assert operation_of(outcome).next == Plan("observe", after(7), "the test says so")


def test_a_record_that_changes_under_its_lock_is_not_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write names the version and the take-over that it was judged by; should a lock hold nobody, it is found."""
    (operation,) = opened(store)
    real = recording.sit

    def sit(tx: Tx, writes: Any) -> Any:
        seats = real(tx, writes)
        tx.cursor.execute("UPDATE operation SET lease_epoch = lease_epoch + 1")
        return seats

    with monkeypatch.context() as broken:
        broken.setattr(recording, "sit", sit)
        with pytest.raises(StoreUnavailable, match="changed under its lock"):
            store.record_many([write(operation, sent())])
    assert store.get(operation.operation_id) == operation
    assert_whole(store, operation.operation_id)


# --- what a transaction says of itself --------------------------------------------------------------------------


def test_a_transaction_tells_what_it_wrote(store: Store) -> None:
    """Others are woken, events are counted, and should the answer to a commit be lost, its first event proves it."""
    one, two = opened(store, 2)

    def noted_by(tx: Tx) -> tuple[Any, ...]:
        assert recording.record(tx, []) == []
        recording.record(tx, [write(two, observed())])  # declined
        before = tx.wakes, tx.events, tx.proof
        recording.record(tx, [write(two, sent()), write(one, sent()), write(two, noted())])
        return before, tx.wakes, tx.events, tx.proof

    before, wakes, events, proof = store.database.write(noted_by)
    assert before == (False, 0, None)
    assert (wakes, events) == (True, 3)
    (row,) = store.queries.events(two.operation_id)[1:2]
    assert proof == (two.operation_id, 2, bytes(row.hash))


# --- job ids ----------------------------------------------------------------------------------------------------


def sent_to(store: Store, count: int) -> list[Operation]:
    """Operations whose create was sent."""
    return [operation_of(outcome) for outcome in store.record_many([write(o, sent()) for o in opened(store, count)])]


def test_a_job_id_belongs_to_one_operation(store: Store) -> None:
    """I3, F13: a provider that hands out an id twice must not get two records for one job."""
    one, two, three = sent_to(store, 3)
    store.record_many([write(one, accepted("j1"))])
    held = {claimed.operation.operation_id: fence_of(claimed) for claimed in claim(store)}
    outcomes = store.record_many(
        [write(two, accepted("j1")), write(three, accepted("j3"), fence=held[three.operation_id])]
    )
    error = refusal_of(outcomes[0])
    assert isinstance(error, JobIdTaken)
    assert error.other_operation_id == one.operation_id
    assert operation_of(outcomes[1]).lease is not None
    assert store.get(three.operation_id) == operation_of(outcomes[1])
    assert store.get(two.operation_id).remote_job_id is None
    assert_whole(store, one.operation_id, two.operation_id, three.operation_id)


def test_a_job_id_that_comes_twice_in_one_batch_is_declined_the_second_time(store: Store) -> None:
    """Both answers may arrive within one fsync."""
    one, two = sent_to(store, 2)
    outcomes = store.record_many([write(one, accepted("j1")), write(two, accepted("j1"))])
    error = refusal_of(outcomes[1])
    assert isinstance(error, JobIdTaken)
    assert error.other_operation_id == one.operation_id
    assert store.get(one.operation_id).remote_job_id == "j1"


def test_the_rest_of_a_chain_is_judged_without_the_declined_write(store: Store) -> None:
    """What follows a declined binding in the same batch must not stand on it."""
    one, two = sent_to(store, 2)
    store.record_many([write(one, accepted("j1"))])
    outcomes = store.record_many([write(two, accepted("j1")), write(two, observed()), write(two, noted())])
    assert [type(outcome) for outcome in outcomes] == [Declined, Declined, Recorded]
    assert store.get(two.operation_id).state is State.CREATE_PENDING
    assert_whole(store, two.operation_id)


def test_a_job_of_an_archived_operation_stays_taken(store: Store) -> None:
    """What stands for it after it was archived still says whose job that was."""
    gone = [bound(store, operation, job) for operation, job in zip(opened(store, 2), ("j1", "j2"), strict=True)]
    store.record_many([write(record, observed("broke", Means.FAILED), plan=no_plan) for record in gone])
    stones = archiving.heads(store.database, [record.operation_id for record in gone])
    archiving.bury(store.database, [stone._replace(by="ana", reason="old", file="a.jsonl") for stone in stones])
    one, two = sent_to(store, 2)
    held = store.database.read(lambda tx: tx.all(recording._job_holders, jobs=tx.tongue.several({"j1", "j3"})))
    assert [tuple(row) for row in held] == [("reports", "j1", gone[0].operation_id)]  # not whatever was ever archived
    outcomes = store.record_many([write(one, accepted("j1")), write(two, accepted("j3"))])
    error = refusal_of(outcomes[0])
    assert isinstance(error, JobIdTaken)
    assert error.other_operation_id == gone[0].operation_id
    assert operation_of(outcomes[1]).remote_job_id == "j3"


def test_what_is_judged_anew_for_a_taken_job_is_judged_alike(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in which a job id is declined still fences, counts versions and looks at the clock for all the others."""
    one, two, three, four = opened(store, 4)
    store.record_many([write(one, sent()), write(one, accepted("j1")), write(two, sent()), write(three, noted())])
    held = {claimed.operation.operation_id: claimed.operation.lease for claimed in claim(store)}
    lease = held[four.operation_id]
    assert lease is not None
    monkeypatch.setattr(Tx, "clock", lambda _: to_micros(lease.expires_at))
    outcomes = store.record_many(
        [
            write(two, accepted("j1")),
            write(three, noted(), expected_version=1),
            write(four, sent(), fence=Fence(lease.owner, lease.epoch), live=True, at=after(-(10**6))),
        ]
    )
    assert [type(refusal_of(outcome)) for outcome in outcomes] == [JobIdTaken, Changed, LeaseLost]


def test_job_ids_of_other_providers_do_not_clash(store: Store) -> None:
    """`1` is a popular job id, and nothing is judged a second time for it."""
    (one,) = opened(store)
    (two,) = opened(store, contract="payouts")
    assert bound(store, one, "1").remote_job_id == "1"
    asked: list[Operation] = []
    store.record_many([write(two, sent())])
    (outcome,) = store.record_many([write(two, accepted("1"), plan=asked.append)])
    assert operation_of(outcome).remote_job_id == "1"
    assert len(asked) == 1


def test_a_job_id_is_looked_up_when_it_is_bound_and_not_at_every_poll(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of polls a minute bring the id that is known already."""
    looked: list[Any] = []
    real = recording._taken

    def taken(tx: Tx, jobs: Any) -> Any:
        looked.append(dict(jobs))
        return real(tx, jobs)

    monkeypatch.setattr(recording, "_taken", taken)
    (operation,) = opened(store)
    store.record_many([write(operation, sent())])
    assert looked == []
    store.record_many([write(operation, accepted("j1"))])
    assert looked == [{("reports", "j1"): operation.operation_id}]
    store.record_many([write(operation, observed()), write(operation, noted())])
    assert len(looked) == 1


def test_two_processes_bind_one_job_id_at_once(store: Store, second: Store) -> None:
    """The look before the write can miss a commit of the same moment; the unique index cannot."""
    one, two = sent_to(store, 2)
    barrier = threading.Barrier(2)
    outcomes: dict[str, Recorded | Declined] = {}

    def bind(through: Store, operation: Operation) -> None:
        barrier.wait()
        (outcomes[operation.operation_id],) = through.record_many([write(operation, accepted("j1"))])

    threads = [threading.Thread(target=bind, args=pair) for pair in ((store, one), (second, two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(outcome).__name__ for outcome in outcomes.values()) == ["Declined", "Recorded"]
    assert_whole(store, one.operation_id, two.operation_id)


# --- answers and awkward values ---------------------------------------------------------------------------------


def test_an_answer_is_stored_once_however_often_it_comes(store: Store) -> None:
    """Identical poll answers cost one row (DESIGN §3)."""
    (operation,) = opened(store)
    record = bound(store, operation, "j1")
    answer = Answer.of(b'{"state": "running"}', "application/json")
    evidence = observed(answer=answer.sha256)
    for _ in range(3):
        store.record_many([write(record, evidence, answer=answer), write(record, evidence, answer=answer)])
    assert store.answer(answer.sha256) == answer
    assert store.answer("00" * 32) is None
    assert store.answer("no hash") is None


def test_a_cut_answer_says_so(store: Store) -> None:
    """The size is what came, the hash is over what is kept."""
    (operation,) = opened(store)
    answer = Answer.of(b"abc", None, size=70_000)
    store.record_many([write(operation, noted(), answer=answer)])
    assert store.answer(answer.sha256) == Answer(answer.sha256, b"abc", None, 70_000, truncated=True)


def test_the_answer_of_a_declined_write_is_not_kept(store: Store) -> None:
    """What is not cited by any event would be rubbish nobody ever removes."""
    (operation,) = opened(store)
    answer = Answer.of(b"early")
    store.record_many([write(operation, observed(), answer=answer)])
    assert store.answer(answer.sha256) is None


@pytest.mark.parametrize(
    "evidence",
    [
        accepted("j\0"),
        accepted("j\ud800"),
        accepted("j" * 5_000),
        noted("\ud800"),
        observed("running", progress={"share": float("nan")}),
    ],
    ids=["nul", "half a pair", "too long for an index", "half a pair in the body", "not a number"],
)
def test_a_value_that_cannot_be_stored_spoils_only_its_own_write(store: Store, evidence: e.Evidence) -> None:
    """A hostile provider must not be able to fail the batch its answer travels in."""
    one, two = opened(store, 2)
    if isinstance(evidence, e.Observed):
        bound(store, one, "j1")
    else:
        store.record_many([write(one, sent())])
    before = store.get(one.operation_id)
    outcomes = store.record_many([write(one, evidence), write(two, sent())])
    refusal = refusal_of(outcomes[0])
    assert isinstance(refusal, Refused)
    assert str(refusal).startswith(f"the {evidence.kind} of {one.operation_id} cannot be stored: ")
    assert isinstance(outcomes[1], Recorded)
    assert store.get(one.operation_id) == before
    assert_whole(store, one.operation_id)


def test_big_numbers_and_strange_texts_come_back_as_they_were(store: Store) -> None:
    """Integers beyond 2^53 keep their digits, and text is not normalised."""
    (operation,) = opened(store)
    record = bound(store, operation, "jöb 🙂")
    progress = {
        "completed": 2**53 + 1,
        "total": 10**30,
        "share": 0.1,
        "word": "e\u0301 é 🙂",
        "deep": [1, None, {"a": True}],
    }
    (outcome,) = store.record_many([write(record, observed("läuft 🙂", progress=progress))])
    assert store.get(operation.operation_id) == operation_of(outcome)
    assert store.get(operation.operation_id).progress == progress
    body = store.queries.events(operation.operation_id)[-1].body
    assert json.loads(body)["data"]["progress"]["completed"] == 2**53 + 1
    assert_whole(store, operation.operation_id)


def test_an_error_of_the_planner_stops_everything(store: Store) -> None:
    """A bug is not an outcome: nothing is written, and it is heard."""
    one, two = opened(store, 2)

    def broken(_: Operation) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.record_many([write(two, sent()), write(one, sent(), plan=broken)])
    assert store.get(two.operation_id) == two
    assert operation_of(store.record_many([write(two, sent())])[0]).version == 2


def test_a_record_without_a_plan_is_never_due(store: Store) -> None:
    """Terminal records and those that wait for a person leave the worker alone."""
    (operation,) = opened(store)
    store.record_many([write(operation, e.Withdrawn("ana"), plan=no_plan)])
    assert claim(store, now=after(10**6)) == []
    assert store.next_due(T0) is None


def test_exchange_records_and_claims_in_one_transaction(store: Store) -> None:
    """One fsync serves what was learnt and what comes next, and the claim sees what was recorded."""
    opened(store, 2)
    (first,) = claim(store, limit=1)
    done = write(first.operation, sent(), fence=fence_of(first), release=True, due=after(-5))
    outcomes, claimed = store.exchange([done], Claim("w1", 10, LEASE, T0))
    assert isinstance(outcomes[0], Recorded)
    assert len(claimed) == 2
    assert claimed[0].operation.operation_id == first.operation.operation_id
