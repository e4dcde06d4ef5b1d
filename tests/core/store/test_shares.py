"""What a contract allows at a time and in a second, shared by all workers of one database."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from opledger.edges.clock import SystemClock
from opledger.rules import sharing
from opledger.rules.sharing import FRESH, SECOND, pace
from opledger.store import Claim, Claimed, Store, Takings, Want, claims, shares
from opledger.store.statements import Tx
from tests.core.store.making import LEASE, T0, after, claim, expire, opened
from tests.core.store.making import fence_of as fence


def want(concurrency: int = 4, contract: str = "reports", **how: Any) -> Want:
    """A want of somebody who has begun nothing and would begin anything."""
    return Want(contract, concurrency, how.pop("room", concurrency), **how)


def ask(store: Store, owner: str, *wants: Want, now: datetime = T0, limit: int = 100, **how: Any) -> Takings:
    """Claim with these wants."""
    _, taken = store.exchange([], Claim(owner, limit, LEASE, now, wants=wants, **how))
    return taken


def limit(taken: Takings, contract: str = "reports") -> int:
    """How many calls a worker may have open."""
    return taken.grants[contract].limit


def give_back(store: Store, owner: str, taken: list[Claimed]) -> None:
    """End what was begun; the operations are due again."""
    store.release(owner, [(one.operation.operation_id, fence(one).epoch) for one in taken])


def until(store: Store, work: Callable[[datetime], bool]) -> None:
    """Try again and again as time passes: ours where it is ours to turn, else the server's."""
    clock = SystemClock()
    end = clock.monotonic() + 60
    for step in range(1_000_000):
        if work(after(step / 10) if store.database.kind == "sqlite" else T0):
            return
        assert clock.monotonic() < end, "it did not come about"


# --- places -----------------------------------------------------------------------------------------------------


def test_whoever_is_alone_takes_everything_at_once(store: Store) -> None:
    """One transaction brings the share and what is begun within it."""
    opened(store, 6)
    taken = ask(store, "w1", want(4))
    assert (len(taken), limit(taken)) == (4, 4)
    assert all(one.seated and one.moment is None for one in taken)


def test_two_workers_together_never_have_more_than_the_contract_allows(store: Store) -> None:
    """The second one gets nothing while the first one has all; and its part as soon as that has ended something."""
    opened(store, 8)
    first = ask(store, "w1", want(4))
    second = ask(store, "w2", want(4, wants=True))
    assert (len(second), limit(second)) == (0, 0)
    still = ask(store, "w1", want(4, seated=4, used=4, wants=True))
    assert (len(still), limit(still)) == (0, 2)  # it begins nothing more until it has less than its part
    give_back(store, "w1", first[:3])
    less = ask(store, "w1", want(4, seated=1, used=4, wants=True))
    assert (len(less), limit(less)) == (1, 2)
    assert len(ask(store, "w2", want(4, wants=True))) == 2


def test_a_dead_worker_holds_what_it_had_begun_and_no_more(store: Store) -> None:
    """Places that were not in use come back after a second, those that were with the leases of their operations."""
    opened(store, 2)
    begun = ask(store, "w1", want(4))
    assert (len(begun), limit(begun)) == (2, 4)
    opened(store, 8)
    got: list[Claimed] = []

    def tried(now: datetime) -> bool:
        got.extend(ask(store, "w2", want(4, seated=len(got), wants=True), now=now))
        return bool(got)

    until(store, tried)
    assert len(got) == 2
    expire(store, *(one.operation for one in begun))
    now = T0 if store.database.kind == "postgresql" else after(5)
    assert limit(ask(store, "w2", want(4, seated=2, used=2, wants=True), now=now)) == 4


def test_leases_of_those_that_know_of_no_shares_count(store: Store) -> None:
    """A worker of an older version, or one call that a person asked for: what it holds, others may not have."""
    opened(store, 9)
    claim(store, "old", limit=3)
    assert len(ask(store, "w1", want(4))) == 1


def test_a_claim_that_comes_too_late_finds_its_share_gone(store: Store) -> None:
    """Whoever takes the places of a share that ran out removes it first; then its owner begins nothing on it."""
    opened(store, 3)
    ask(store, "w1", want(4, room=0))
    standing = want(4, asks=False, limit=4)
    opened(store, 1)
    assert len(ask(store, "w1", want(4, room=1, asks=False, limit=4))) == 1

    def tried(now: datetime) -> bool:
        return limit(ask(store, "w2", want(4, room=0, wants=True), now=now)) == 3

    until(store, tried)
    late = ask(store, "w1", standing)
    assert (len(late), limit(late)) == (0, 0)


def test_whoever_signs_off_leaves_its_share(store: Store) -> None:
    """Nobody waits for a second after an orderly stop."""
    opened(store, 9)
    ask(store, "w1", want(4))
    store.farewell("w1")
    assert len(ask(store, "w2", want(4))) == 4


def test_the_living_share_what_nobody_wants_more_of(store: Store) -> None:
    """A worker that is alive and has not asked yet finds its part."""
    now = store.database.read(lambda tx: tx.clock())
    at = T0 if now is None else datetime.fromtimestamp(now / SECOND, T0.tzinfo)
    for name in ("w1", "w2"):
        store.heartbeat(name, "host", 1, at)
    opened(store, 9)
    assert [len(ask(store, name, want(4))) for name in ("w1", "w2")] == [2, 2]


def test_deadlines_are_kept_without_a_place(store: Store) -> None:
    """What needs no call waits for no place; it is not seated, and counts as little as it calls."""
    opened(store, 4)
    ask(store, "w1", want(4))
    opened(store, 1, create_timeout=timedelta(seconds=-1))
    opened(store, 1)
    (overdue,) = ask(store, "w2", want(4, wants=True))
    assert not overdue.seated


def test_each_contract_has_limits_of_its_own(store: Store) -> None:
    """What one provider allows has nothing to do with another one."""
    opened(store, 5)
    opened(store, 5, contract="payouts")
    taken = ask(store, "w1", want(2), want(3, contract="payouts"))
    assert sorted(one.operation.contract for one in taken) == ["payouts"] * 3 + ["reports"] * 2


def test_the_backlog_of_one_provider_holds_up_no_other(store: Store) -> None:
    """A hundred and twenty operations that have been due for an hour, and two that are due now: these come at once."""
    opened(store, 120, due=after(-3600))
    opened(store, 2, contract="payouts")
    wants = (want(400), want(400, contract="payouts"))
    taken = ask(store, "w1", *wants, limit=10)
    assert [one.operation.contract for one in taken].count("payouts") == 2
    assert len(taken) == 10
    opened(store, 1, contract="payouts")
    busy = (want(400, seated=8, used=8), want(400, contract="payouts", seated=2, used=2))
    (one,) = ask(store, "w1", *busy, limit=1)
    assert one.operation.contract == "payouts"


def hammer(store: Store, name: str, state: dict[str, int], lock: threading.Lock, enough: int) -> None:
    """Claim and give back as a worker does, by luck, until all together have begun enough, or a minute is over.

    `state` has what is open and the most that ever was.
    """
    luck, mine = random.Random(name), list[Claimed]()
    allowed, fresh = 0, 0.0
    clock = SystemClock()
    end = clock.monotonic() + 60
    while state["begun"] < enough and (before := clock.monotonic()) < end:
        asks = before >= fresh - luck.random() * 2
        room = max(0, (5 if asks else allowed) - len(mine))
        wanted = want(
            5, room=room, seated=len(mine), used=len(mine), wants=luck.random() < 0.7, asks=asks, limit=allowed
        )
        taken = ask(store, name, wanted, now=clock.now(), limit=luck.randint(1, 5))
        if asks:
            allowed, fresh = limit(taken), before + FRESH / SECOND
        with lock:
            state["open"] += len(taken)
            state["begun"] += len(taken)
            state["most"] = max(state["most"], state["open"])
        mine += taken
        luck.shuffle(mine)
        ended = [mine.pop() for _ in range(luck.randint(0, len(mine)))]
        with lock:
            state["open"] -= len(ended)
        give_back(store, name, ended)
    with lock:
        state["open"] -= len(mine)
    give_back(store, name, mine)


def test_workers_that_hammer_one_contract_stay_within_it(store: Store, database_url: str) -> None:
    """Four at once, each by luck: never more than five operations are begun at a time."""
    clock = SystemClock()
    opened(store, 40, due=clock.now() - timedelta(seconds=1), at=clock.now())
    state, lock = {"open": 0, "most": 0, "begun": 0}, threading.Lock()
    stores = [Store.open(database_url) for _ in range(4)]
    crowd = [
        threading.Thread(target=hammer, args=(one, f"w{number}", state, lock, 100)) for number, one in enumerate(stores)
    ]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    for one in stores:
        one.close()
    assert 2 <= state["most"] <= 5
    assert state["begun"] >= 100


def test_a_worker_that_stands_still_holds_up_nothing_but_the_places(store: Store, second: Store) -> None:
    """Stopped within a transaction: others record what they have at once, and begin what belongs to other providers."""
    if store.database.kind == "sqlite":
        pytest.skip("a file has one lock for everything")
    opened(store, 2)
    opened(store, 2, contract="payouts")
    wants = (want(4), want(4, contract="payouts"))
    ask(store, "w0", *wants, limit=0)  # whoever is the first ever makes what is locked
    store.farewell("w0")
    begun: list[Takings] = []

    def stands_still(tx: Tx) -> None:
        claims.claim(tx, Claim("w1", 1, LEASE, T0, paused={"payouts"}, wants=wants[:1]))
        begun.append(ask(second, "w2", *wants))

    store.database.write(stands_still)
    (taken,) = begun
    assert [one.operation.contract for one in taken] == ["payouts"] * 2
    assert (taken.grants["reports"].busy, taken.grants["payouts"].busy) == (True, False)
    assert limit(ask(second, "w2", *wants)) == 0  # by now it is seen what the other one has


# --- moments ----------------------------------------------------------------------------------------------------


def test_two_workers_book_their_moments_from_one_bucket(store: Store) -> None:
    """Whoever asks, together they get no more than the rate and its burst; and each gets its part."""
    beat = pace(20)
    opened(store, 40)
    booked: dict[str, list[int]] = {"w1": [], "w2": []}
    turns = itertools.cycle(["w1 w2", "w2 w1"])  # after a pause the first has what came together

    def tried(now: datetime) -> bool:
        for owner in next(turns).split():
            moments = booked[owner]
            for one in ask(store, owner, want(100, pace=beat, wants=True), now=now):
                assert one.moment is not None
                moments.append(round(one.moment.timestamp() * SECOND))
        return sum(map(len, booked.values())) == 40

    until(store, tried)
    every = sorted(moment for moments in booked.values() for moment in moments)
    for first, began in enumerate(every):
        for last in range(first, len(every)):
            assert last - first <= (every[last] - began + beat.burst) / beat.every
    assert all(booked.values())


def test_those_that_wait_come_before_what_is_new(store: Store) -> None:
    """One moment is left; an operation that was begun gets it, and nothing new is claimed for want of one."""
    beat = pace(0.5)
    opened(store, 2)
    taken = ask(store, "w1", want(9, pace=beat, moments=1, seated=1))
    assert (len(taken), len(taken.grants["reports"].moments)) == (0, 1)
    assert taken.grants["reports"].opens > timedelta(seconds=1)
    again = ask(store, "w1", want(9, pace=beat, moments=1, seated=1))
    assert (len(again), again.grants["reports"].moments) == (0, ())


def test_without_asking_no_moment_is_taken(store: Store) -> None:
    """A contract with a rate is claimed only where moments are asked for."""
    opened(store, 2)
    ask(store, "w1", want(9, room=0, pace=pace(50)))
    assert ask(store, "w1", want(9, room=0, pace=pace(50), asks=False, limit=9)) == []


# --- that it can fail -------------------------------------------------------------------------------------------


def broken_rivals(*_: Any) -> list[sharing.Rival]:
    """Nobody else is seen."""
    return []


def test_workers_that_see_no_others_are_found_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge of these tests is not blind."""
    monkeypatch.setattr(shares, "_rivals", broken_rivals)
    with pytest.raises(AssertionError):
        test_two_workers_together_never_have_more_than_the_contract_allows(store)
    with pytest.raises(AssertionError):
        test_leases_of_those_that_know_of_no_shares_count(store)


# --- what people are told of it ---------------------------------------------------------------------------------


def test_the_shares_of_a_moment_can_be_read(store: Store) -> None:
    """Who has how many places, until when the rate is used up, and how many have been due for longer."""
    line = [operation for wait in (9, 8, 7, 6, 5) for operation in opened(store, due=after(-wait))]
    assert [one.operation.operation_id for one in ask(store, "w1", want(2, pace=pace(0.1)))] == [line[0].operation_id]
    claim(store, "old", limit=1)
    standing = store.standing(line[-1], T0)
    assert standing is not None
    assert [(one.owner, one.held, one.slots is None) for one in standing.holders] == [
        ("old", 1, True),
        ("w1", 1, False),
    ]
    assert standing.tat >= standing.clock + 9 * SECOND
    assert standing.ahead == 2
    assert store.standing(line[-1], after(-5.5)) is None  # it was not due yet


def test_nothing_is_known_of_a_contract_that_nobody_has_claimed_for(store: Store) -> None:
    """No share, no bucket, no lease."""
    (operation,) = opened(store)
    standing = store.standing(operation, T0)
    assert standing is not None
    assert (standing.holders, standing.tat, standing.ahead) == ((), 0, 0)
