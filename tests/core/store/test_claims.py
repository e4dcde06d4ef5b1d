from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.rules import evidence as e
from opledger.rules.model import Deadline, Means, State
from opledger.store import Claim, Store, claims
from opledger.store.encoding import to_micros
from opledger.store.statements import Tx
from tests.core.store.making import (
    ANA,
    CONTRACT,
    LEASE,
    T0,
    accepted,
    after,
    bound,
    claim,
    expire,
    fence_of,
    observed,
    opened,
    operation_of,
    sent,
    write,
)


def ids(found: list) -> list[str]:
    """The operations of some claims or records, in order."""
    return [getattr(one, "operation", one).operation_id for one in found]


# --- what is due ------------------------------------------------------------------------------------------------


def test_what_is_due_is_claimed_longest_overdue_first(store: Store) -> None:
    """Being late hurts the longest waiting most."""
    third, first, second_, future = (opened(store, due=after(s))[0] for s in (-1, -9, -5, 1))
    assert ids(claim(store)) == ids([first, second_, third])
    assert store.get(future.operation_id).lease is None


def test_the_longest_overdue_of_all_providers_come_first(store: Store) -> None:
    """Each provider's list is in order by itself; a claim that takes only some must take the oldest of all."""
    c, a, e_ = (opened(store, due=after(s), contract="payouts")[0] for s in (-3, -9, -1))
    d, b = (opened(store, due=after(s))[0] for s in (-2, -5))
    assert ids(claim(store, limit=3)) == ids([a, b, c])
    assert ids(claim(store, limit=3)) == ids([d, e_])


def test_a_claim_is_a_lease_with_a_new_epoch(store: Store) -> None:
    """The epoch is the fencing number; the record itself does not change by being claimed."""
    (operation,) = opened(store)
    (claimed,) = claim(store, "w1")
    lease = claimed.operation.lease
    assert lease is not None
    assert (lease.owner, lease.epoch, claimed.taken_from) == ("w1", 1, None)
    assert store.get(operation.operation_id) == claimed.operation
    assert claimed.operation.version == operation.version


def test_an_operation_is_due_at_its_very_time(store: Store) -> None:
    """A poll that is planned for now is not one tick late."""
    opened(store, due=after(5))
    assert claim(store, now=after(5) - timedelta(microseconds=1)) == []
    assert len(claim(store, now=after(5))) == 1


def test_a_claim_takes_no_more_than_asked(store: Store) -> None:
    """A worker takes what it can drive, and leaves the rest to others."""
    opened(store, 5)
    assert len(claim(store, limit=3)) == 3
    assert len(claim(store, "w2", limit=3)) == 2
    assert claim(store, "w3") == []
    opened(store)
    assert claim(store, "w3", limit=0) == []


def test_a_held_operation_is_not_claimed_again(store: Store) -> None:
    """I10: at most one unexpired lease, whoever asks, even the holder."""
    opened(store)
    claim(store, "w1")
    assert claim(store, "w1") == []
    assert claim(store, "w2", now=after(29)) == []


def test_a_released_operation_waits_for_its_next_time(store: Store) -> None:
    """B40: waiting holds no lease, only a stored next time."""
    opened(store)
    (claimed,) = claim(store)
    store.record_many([write(claimed.operation, sent(), fence=fence_of(claimed), release=True, due=after(6 * 3600))])
    assert claim(store, "w2", now=after(3600)) == []
    (again,) = claim(store, "w2", now=after(6 * 3600))
    assert (again.taken_from, fence_of(again).epoch) == (None, 2)


def test_a_lease_that_ran_out_is_taken_over_and_named(store: Store) -> None:
    """Whoever takes over must know that somebody died at work: a permit without an outcome means unknown."""
    (operation,) = opened(store)
    (old,) = claim(store, "w1")
    if store.database.kind == "sqlite":  # the callers' clock is the shared one
        assert claim(store, "w2", now=T0 + LEASE - timedelta(microseconds=1)) == []
        (new,) = claim(store, "w2", now=T0 + LEASE)
    else:
        expire(store, operation)
        (new,) = claim(store, "w2")
    assert new.taken_from == "w1"
    assert fence_of(new).epoch == fence_of(old).epoch + 1


def test_a_take_over_waits_for_the_next_time_too(store: Store) -> None:
    """A dead worker's lease makes nothing due that is not."""
    (operation,) = opened(store)
    (claimed,) = claim(store)
    store.record_many([write(operation, sent(), fence=fence_of(claimed), due=after(60))])
    expire(store, operation)
    assert claim(store, "w2", now=after(59)) == []
    assert claim(store, "w2", now=after(60))[0].taken_from == "w1"


def test_epochs_only_rise(store: Store) -> None:
    """A number that came twice would let a ghost pass (B38)."""
    (operation,) = opened(store)
    epochs = []
    for turn in range(4):
        (claimed,) = claim(store, f"w{turn % 2}")
        epochs.append(fence_of(claimed).epoch)
        if turn % 2:
            store.release(f"w{turn % 2}", [(operation.operation_id, epochs[-1])])
        else:
            expire(store, operation)
    assert epochs == [1, 2, 3, 4]


# --- paused, full, room -----------------------------------------------------------------------------------------


def test_a_full_provider_does_not_stand_in_the_way_of_others(store: Store) -> None:
    """Ten thousand operations of a provider at its limit must not hide one of another."""
    opened(store, 20, due=after(-100))
    (other,) = opened(store, contract="payouts")
    assert ids(claim(store, limit=5, full={"reports"})) == ids([other])


def test_room_limits_one_provider_only(store: Store) -> None:
    """Limits come from contracts; a contract that is not named has none."""
    opened(store, 5, due=after(-100))
    opened(store, 5, contract="payouts")
    claimed = claim(store, limit=8, room={"reports": 2})
    assert Counter(c.operation.contract for c in claimed) == {"reports": 2, "payouts": 5}


@pytest.mark.parametrize("room", [0, -3])
def test_no_room_means_none(store: Store, room: int) -> None:
    """A limit that was lowered while calls are open gives a negative room."""
    opened(store, 2)
    assert claim(store, room={"reports": room}) == []


def test_room_holds_for_take_overs_too(store: Store) -> None:
    """A dead worker's operations count against the same limit."""
    records = opened(store, 4)
    claim(store, "w1", limit=2)
    expire(store, *(c for c in records if store.get(c.operation_id).lease))
    assert len(claim(store, "w2", room={"reports": 3})) == 3
    assert claim(store, "w3", full={"reports"}) == []


def test_a_dead_workers_operation_comes_before_what_is_due_later(store: Store) -> None:
    """Where there is room for one, the longest overdue is taken, whether somebody held it or not."""
    (old,) = opened(store, due=after(-9))
    claim(store, "w1")
    expire(store, old)
    opened(store, due=after(-5))
    assert ids(claim(store, "w2", room={"reports": 1})) == ids([old])


def test_of_a_paused_provider_only_deadlines_are_due(store: Store) -> None:
    """Deadlines are enforced whatever is paused; calls are not made."""
    waiting, overdue = opened(store, 2)
    bound(store, waiting, "j1", due=after(-1))
    create_deadline = overdue.create_deadline
    assert create_deadline is not None
    now = create_deadline + timedelta(seconds=1)
    assert ids(claim(store, now=now, paused={"reports"})) == ids([overdue])
    assert ids(claim(store, now=now)) == ids([waiting])


def test_a_paused_operation_is_due_at_the_very_time_of_its_deadline(store: Store) -> None:
    """That is when its plan has it come up, and nobody may be awake for nothing then."""
    (record,) = opened(store, due=after(120))
    assert record.create_deadline == after(120)
    assert claim(store, now=after(120) - timedelta(microseconds=1), paused={"reports"}) == []
    (other,) = opened(store, contract="payouts")
    assert ids(claim(store, now=after(120), paused={"reports"})) == ids([other, record])


def test_a_paused_take_over_waits_for_its_deadline(store: Store) -> None:
    """The same rule holds for leases that ran out."""
    (operation,) = opened(store)
    claim(store, "w1")
    expire(store, operation)
    assert claim(store, "w2", paused={"reports"}) == []
    assert claim(store, "w2", paused={"reports"}, now=after(120))[0].taken_from == "w1"


# --- one operation, renewing, giving back -----------------------------------------------------------------------


def test_one_operation_can_be_taken_before_it_is_due(store: Store) -> None:
    """`read OP` looks now; but not while a worker holds it."""
    (operation,) = opened(store, due=after(3600))
    claimed = store.claim_one(operation.operation_id, "cli", LEASE, T0)
    assert claimed is not None
    assert claimed.operation.lease is not None
    assert store.claim_one(operation.operation_id, "w1", LEASE, T0) is None
    assert store.claim_one("op_nobody", "w1", LEASE, T0) is None
    expire(store, operation)
    again = store.claim_one(operation.operation_id, "w1", LEASE, T0)
    assert again is not None
    assert again.taken_from == "cli"
    if store.database.kind == "sqlite":  # the callers' clock is the shared one
        assert store.claim_one(operation.operation_id, "w2", LEASE, T0 + LEASE - timedelta(microseconds=1)) is None
        assert store.claim_one(operation.operation_id, "w2", LEASE, T0 + LEASE) is not None


def test_renewing_extends_only_what_is_held(store: Store) -> None:
    """The answer tells a worker which drives must stop at once."""
    one, two, three = opened(store, 3)
    held = [(c.operation.operation_id, fence_of(c).epoch) for c in claim(store)]
    store.release("w1", [held[1]])
    expire(store, three)
    claim(store, "w2")
    assert store.renew("w1", [*held, ("op_nobody", 1)], timedelta(minutes=5), T0) == {one.operation_id}
    lease = store.get(one.operation_id).lease
    assert lease is not None
    assert store.get(two.operation_id).lease is not None
    if store.database.kind == "sqlite":
        assert lease.expires_at == T0 + timedelta(minutes=5)
    assert store.renew("w1", [], LEASE, T0) == set()


def test_a_renewed_lease_is_not_taken(store: Store) -> None:
    """Long work renews (B40)."""
    (operation,) = opened(store)
    (claimed,) = claim(store)
    expire(store, operation)
    assert store.renew("w1", [(operation.operation_id, fence_of(claimed).epoch)], LEASE, after(31))
    assert claim(store, "w2", now=after(32)) == []


def test_renewing_and_releasing_leave_every_other_lease_alone(store: Store) -> None:
    """Neither the rest of one's own nor another's: a dead worker's lease that somebody renews is never taken over."""
    opened(store, 3)
    mine, also_mine = claim(store, "w1", limit=2)
    (others,) = claim(store, "w2")
    before = [store.get(one.operation.operation_id).lease for one in (also_mine, others)]
    name, epoch = mine.operation.operation_id, fence_of(mine).epoch
    assert store.renew("w1", [(name, epoch)], timedelta(hours=1), T0) == {name}
    assert store.renew("w1", [(name, epoch + 1), (others.operation.operation_id, 1)], LEASE, T0) == set()
    assert [store.get(one.operation.operation_id).lease for one in (also_mine, others)] == before
    assert store.release("w1", [(name, epoch), (others.operation.operation_id, 1)]) == {name}
    assert store.get(name).lease is None
    assert [store.get(one.operation.operation_id).lease for one in (also_mine, others)] == before


def test_a_farewell_gives_back_all_of_ones_own_leases_and_no_other(store: Store) -> None:
    """Whoever comes next takes them at once, and from nobody: the worker did not die at work."""
    opened(store, 3)
    mine = claim(store, "w1", limit=2)
    (others,) = claim(store, "w2")
    before = store.get(others.operation.operation_id).lease
    store.farewell("w1")
    assert [store.get(name).lease for name in ids(mine)] == [None, None]
    assert store.get(others.operation.operation_id).lease == before
    assert [(c.operation.operation_id, c.taken_from) for c in claim(store, "w3")] == [
        (name, None) for name in ids(mine)
    ]


def test_releasing_frees_at_once(store: Store) -> None:
    """A worker that is told to stop hands over without anybody waiting for its leases."""
    records = opened(store, 3)
    held = [(c.operation.operation_id, fence_of(c).epoch) for c in claim(store)]
    assert store.release("w1", held) == set(ids(records))
    assert store.release("w1", held) == set()
    assert store.release("w1", []) == set()
    assert [c.taken_from for c in claim(store, "w2")] == [None] * 3


def test_leases_on_a_server_are_counted_by_its_own_clock(store: Store) -> None:
    """Two hosts whose clocks differ by a day must not steal each other's work (DESIGN §3)."""
    if store.database.kind == "sqlite":
        pytest.skip("one SQLite file is one machine: the callers' clock is the shared one")
    opened(store, due=after(-(10**6)))
    (claimed,) = claim(store, "w1", now=after(-86_400))
    lease = claimed.operation.lease
    assert lease is not None
    (moment,) = store.database.read(lambda tx: [tx.clock()])
    assert moment is not None
    assert abs(lease.expires_at.timestamp() * 1e6 - moment - 30e6) < 25e6
    assert claim(store, "w2", now=after(10 * 365 * 86_400)) == []


def test_one_operation_is_taken_by_the_clock_of_the_database(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has one: whoever asks with a clock of their own that is wrong gets no lease that stands."""
    (operation,) = opened(store)
    (claimed,) = claim(store)
    assert claimed.operation.lease is not None
    end = to_micros(claimed.operation.lease.expires_at)
    monkeypatch.setattr(Tx, "clock", lambda _: end - 1)
    assert store.claim_one(operation.operation_id, "w2", LEASE, after(10**8)) is None
    monkeypatch.setattr(Tx, "clock", lambda _: end)
    assert store.claim_one(operation.operation_id, "w2", LEASE, after(-(10**8))) is not None


def test_others_are_woken_where_something_was_given_back_and_only_then(store: Store) -> None:
    """One that waits for the end of a lease takes it at once; and nobody is woken for nothing."""
    opened(store, 2)
    one, two = claim(store)
    woken: list[bool] = []

    def work(tx: Tx) -> None:
        claims.renew(tx, "w1", [(one.operation.operation_id, 1)], LEASE, T0)
        claims.release(tx, "w1", [(one.operation.operation_id, 2)])
        claims.release_all(tx, "w2")
        woken.append(tx.wakes)
        claims.release(tx, "w1", [(one.operation.operation_id, 1)])
        woken.append(tx.wakes)
        claims.release_all(tx, "w2")
        woken.append(tx.wakes)

    def farewell(tx: Tx) -> None:
        claims.release_all(tx, "w1")
        woken.append(tx.wakes)

    store.database.write(work)
    assert woken == [False, True, True]
    store.database.write(farewell)
    assert woken[3:] == [True]
    assert store.get(two.operation.operation_id).lease is None


# --- what a claim costs -----------------------------------------------------------------------------------------


class Spy:
    """A cursor that counts the statements which read what is due, and which of the contracts they ask for."""

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor
        self.looks = 0
        self.read: list[str] = []

    def execute(self, text: str, values: Any = ()) -> Any:
        """Count it and run it."""
        self.looks += "RECURSIVE" in text
        if "SELECT operation.next_action_at, operation.operation_id FROM" in " ".join(text.split()):
            self.read.append(values[0])
        return self.cursor.execute(text, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cursor, name)


def test_a_claim_reads_only_of_providers_that_have_something_for_it(store: Store) -> None:
    """Of those that are full, or where nothing is due, not a row is visited; without room nothing is looked for."""
    opened(store, contract="payouts")
    opened(store, contract="renders", due=after(9))
    opened(store)

    def spied(tx: Tx, ask: Claim) -> tuple[int, list[str]]:
        spy = Spy(tx.cursor)
        claims.claim(Tx(spy, tx.tongue, tx.known), ask)
        return spy.looks, spy.read

    ask = Claim("w1", 10, LEASE, T0, full={"payouts"})
    assert store.database.write(lambda tx: spied(tx, replace(ask, limit=0))) == (0, [])
    assert store.database.write(lambda tx: spied(tx, ask)) == (1, ["reports"])
    assert store.database.write(lambda tx: spied(tx, replace(ask, full=(), paused={"payouts"}))) == (1, ["payouts"])
    assert store.database.write(lambda tx: spied(tx, replace(ask, full=(), now=after(9)))) == (
        1,
        ["payouts", "renders"],
    )


# --- many workers -----------------------------------------------------------------------------------------------


def test_no_operation_is_ever_handed_to_two_workers(store: Store, second: Store) -> None:
    """Four threads over two connections take two hundred operations; each goes to exactly one."""
    records = opened(store, 200)
    taken: dict[str, list[str]] = {name: [] for name in ("w1", "w2", "w3", "w4")}
    barrier = threading.Barrier(4)

    def work(name: str, through: Store) -> None:
        barrier.wait()
        empty = 0
        while empty < 3:  # rows that another has locked but not yet taken are skipped, not waited for
            got = ids(claim(through, name, limit=7))
            taken[name] += got
            empty = 0 if got else empty + 1

    pairs = [("w1", store), ("w2", second), ("w3", store), ("w4", second)]
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [operation_id for got in taken.values() for operation_id in got]
    assert sorted(everything) == sorted(ids(records))
    for name, got in taken.items():
        leases = [store.get(operation_id).lease for operation_id in got]
        assert all(lease is not None and (lease.owner, lease.epoch) == (name, 1) for lease in leases)


# --- when to look again -----------------------------------------------------------------------------------------


def test_the_next_look_is_the_earliest_planned_time(store: Store) -> None:
    """The worker sleeps until then and not a moment longer."""
    assert store.next_due(T0) is None
    opened(store, due=after(9))
    opened(store, due=after(5), contract="payouts")
    assert store.next_due(T0) == after(5)
    assert store.next_due(T0, full={"payouts"}) == after(9)
    assert store.next_due(T0, full={"payouts", "reports"}) is None


def test_of_a_paused_provider_the_next_look_is_a_deadline(store: Store) -> None:
    """A pause must neither spin the worker nor lose a deadline."""
    (record,) = opened(store, due=after(1))
    assert store.next_due(T0, paused={"reports"}) == record.create_deadline == after(120)
    opened(store, due=after(1), create_timeout=timedelta(seconds=50))
    opened(store, due=after(1), create_timeout=timedelta(seconds=70))
    assert store.next_due(T0, paused={"reports"}) == after(50)


def test_a_lease_makes_its_end_the_next_look(store: Store) -> None:
    """Should its holder die, somebody must be awake when the lease ends."""
    opened(store)
    claim(store)
    due = store.next_due(T0)
    assert due is not None
    if store.database.kind == "sqlite":
        assert due == T0 + LEASE
    else:
        assert timedelta(0) < due - T0 <= LEASE


def test_the_ends_of_leases_are_told_apart_by_provider(store: Store) -> None:
    """One that is full has nothing for this worker; the other's lease may still run out."""
    opened(store)
    opened(store, contract="payouts")
    assert len(claim(store)) == 2
    assert store.next_due(T0, full={"reports"}) is not None
    assert store.next_due(T0, full={"payouts"}) is not None
    assert store.next_due(T0, full={"reports", "payouts"}) is None


def test_a_look_says_when_and_of_which_providers_there_is_work(store: Store) -> None:
    """Those that are paused too: somebody asks each of them now and then whether it still is."""
    assert store.look(T0) == (None, frozenset())
    opened(store, due=after(9), contract="payouts")
    (late,) = opened(store, due=after(-1))
    assert store.look(T0) == (after(-1), frozenset({"reports"}))
    assert store.look(T0, {"reports"}) == (after(9), frozenset({"reports"}))
    assert store.look(after(9), {"reports", "payouts"}) == (late.create_deadline, frozenset({"reports", "payouts"}))
    claim(store)
    assert store.look(T0)[1] == frozenset()
    expire(store, late)
    assert store.look(T0)[1] == {"reports"}
    assert store.look(after(-1))[1] == {"reports"}


def test_a_provider_is_known_by_the_version_that_its_first_operation_is_pinned_to(store: Store) -> None:
    """Its pause and its limits are read from there, where no file of the contract is left."""
    assert store.pinned("reports") is None
    newer = replace(CONTRACT, digest="sha256:" + "d" * 64)
    store.pin_contract(newer)
    opened(store, due=after(9), contract_digest=newer.digest)
    assert store.pinned("reports") == newer.digest
    opened(store, due=after(5))
    assert store.pinned("reports") == CONTRACT.digest
    assert store.pinned("payouts") is None


def test_a_leased_operation_that_waits_is_looked_at_when_it_is_due(store: Store) -> None:
    """A stale lease on a record that waits for hours must not spin anybody."""
    (operation,) = opened(store)
    (claimed,) = claim(store)
    store.record_many([write(operation, sent(), fence=fence_of(claimed), due=after(7_000))])
    expire(store, operation)
    assert store.next_due(after(60)) == after(7_000)


def test_a_stale_lease_of_a_paused_provider_wakes_nobody_before_a_deadline(store: Store) -> None:
    """Nobody may take it: a worker that looked all the same did so two thousand times a second."""
    (operation,) = opened(store, due=after(-1))
    claim(store)
    expire(store, operation)
    assert claim(store, paused={"reports"}) == []
    assert store.next_due(after(60), paused={"reports"}) == operation.create_deadline
    assert store.next_due(after(60), full={"reports"}) is None
    store.pause_provider("reports", "ana", "their night", T0)
    assert store.idle_horizon(after(60)) == operation.create_deadline


def test_idle_means_that_nothing_happens_without_a_person(store: Store) -> None:
    """`worker --until-idle` waits for polls and deadlines, not for approvals."""
    assert store.idle_horizon() is None
    opened(store, approvals_needed=1, approval_timeout=timedelta(hours=1), due=after(3600))
    assert store.idle_horizon(T0) is None
    assert store.next_due(T0) == after(3600)
    (polled,) = opened(store, due=after(60))
    assert store.idle_horizon(T0) == after(60)
    store.pause_provider("reports", "ana", "their night", T0)
    assert store.idle_horizon(T0) == polled.create_deadline
    bound(store, polled, "j1", due=None)
    assert store.idle_horizon(T0) is None


def test_a_dead_workers_lease_is_waited_for(store: Store) -> None:
    """What a dead worker held becomes due by itself when its lease ends."""
    (operation,) = opened(store)
    claim(store)
    assert store.idle_horizon(T0) is not None
    horizon, lease = store.idle_horizon(), store.get(operation.operation_id).lease
    assert horizon is not None  # whoever has no clock at hand asks by that of the database
    assert lease is not None
    assert abs(horizon - lease.expires_at) < timedelta(seconds=20)


@pytest.mark.parametrize(
    ("drive", "deadline"),
    [
        ([], "create_deadline"),
        ([sent()], "create_deadline"),
        ([sent(), e.CallLost(call_id="c1")], "create_deadline"),
        ([sent(), accepted("j")], "result_deadline"),
        ([sent(), accepted("j"), observed()], "result_deadline"),
        ([sent(), accepted("j"), e.CancelRequested("r", "ana")], "cancel_deadline"),
        ([sent(), accepted("j"), observed("done", Means.SUCCEEDED)], "collect_deadline"),
        ([sent(), accepted("j"), observed("broke", Means.FAILED)], None),
    ],
)
def test_the_deadline_that_counts_is_that_of_the_state(
    store: Store, drive: list[e.Evidence], deadline: str | None
) -> None:
    """Five separate timers, of which one is running at a time."""
    (record,) = opened(store, due=after(-1))
    if drive:
        record = operation_of(store.record_many([write(record, one, due=after(-1), actor=ANA) for one in drive])[-1])
    expected = None if deadline is None else getattr(record, deadline)
    assert store.next_due(T0, paused={"reports"}) == expected
    if deadline is None:
        assert record.state is State.FAILED


def test_an_unknown_create_without_a_way_out_has_no_deadline(store: Store) -> None:
    """Once a person is needed, no timer runs any more."""
    (record,) = opened(store)
    lost = [sent(), e.CallLost(call_id="c1"), e.DeadlinePassed(Deadline.CREATE, after(120))]
    store.record_many([write(record, one) for one in lost])
    assert store.get(record.operation_id).exhausted
    assert store.next_due(T0, paused={"reports"}) is None
    assert len(claim(store)) == 1
    assert store.next_due(T0, paused={"reports"}) is None
    expire(store, record)
    assert claim(store, "w2", paused={"reports"}) == []
