"""What workers tell of providers, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from opledger.rules.reach import SECOND, Budget, Row, Tally, Verdict
from opledger.store import Store
from opledger.store.encoding import to_micros
from opledger.store.reach import Report
from opledger.store.values import Aside
from tests.core.store.making import T0, after

BUDGET = Budget(10, 60 * SECOND)


def failing(owner: str, failures: int = 40, contract: str = "reports") -> Report:
    """What a worker tells whose calls have failed for five minutes."""
    since = to_micros(after(-300))
    return Report(contract, Tally(owner, Row(failures, since), since, None, to_micros(T0)))


def alive(store: Store, *names: str, at: datetime = T0) -> None:
    """Signs of life."""
    for name in names:
        store.heartbeat(name, "host", 1, at)


def judged(store: Store, mine: Report, *, asides: int = 0) -> Verdict:
    """Tell and ask."""
    assert mine.tally.row is not None
    return store.judge_reach(mine, mine.tally.row, BUDGET, T0, asides=asides).verdict


def test_what_is_told_can_be_read(store: Store) -> None:
    """Everything, as it was told last."""
    assert store.reach() == []
    aside = Aside("reports", after(-300), after(30), "no route to host")
    well = Report("jobs", Tally("w2", worked_at=5, at=to_micros(T0)))
    told = [failing("w1", 3), replace(failing("w2"), aside=aside), well]
    store.tell_reach(told, T0)
    store.tell_reach([failing("w1", 4)], T0)
    assert sorted(store.reach(), key=repr) == sorted([failing("w1", 4), *told[1:]], key=repr)
    store.forget_reach("w2", "jobs")
    assert [one.contract for one in store.reach()] == ["reports", "reports"]


def test_a_verdict_is_of_all_that_was_told(store: Store) -> None:
    """Alone it is the provider; among others it is this worker, until a second one says the same."""
    assert judged(store, failing("w1")) is Verdict.PAUSE
    alive(store, "w1", "w2")
    assert judged(store, failing("w1")) is Verdict.STAND_ASIDE
    assert judged(store, failing("w1"), asides=1) is Verdict.PAUSE
    store.tell_reach([Report("other", failing("w2").tally)], T0)
    assert judged(store, failing("w1")) is Verdict.STAND_ASIDE
    store.tell_reach([failing("w2", 3)], T0)
    assert judged(store, failing("w1")) is Verdict.PAUSE
    store.tell_reach([Report("reports", Tally("w2", worked_at=to_micros(T0), at=to_micros(T0)))], T0)
    assert judged(store, failing("w1")) is Verdict.STAND_ASIDE


def test_only_the_living_count(store: Store) -> None:
    """A worker that gave no sign of life for seconds cannot be left anything to."""
    alive(store, "w1")
    alive(store, "w2", at=after(-60))
    assert store.workers_alive("w1", T0) == 1
    assert judged(store, failing("w1")) is Verdict.PAUSE
    alive(store, "w2")
    assert store.workers_alive("w1", T0) == 2
    assert store.workers_alive("w3", T0) == 3


def test_workers_are_listed_with_what_they_leave_to_others(store: Store) -> None:
    """For people: who, which provider, until when, and why."""
    alive(store, "w1", "w2")
    aside = Aside("reports", after(-300), after(30), "no route to host")
    store.tell_reach([replace(failing("w1"), aside=aside), failing("w2")], T0)
    first, second = store.workers()
    assert (first.asides, second.asides) == ((aside,), ())
    assert first.aside("reports", after(29)) == aside
    assert first.aside("reports", after(30)) is None
    assert first.aside("other", T0) is None


def test_it_is_forgotten_when_its_time_is_over(store: Store) -> None:
    """When a worker signs off, when a person lets calls be made again, and after a day in any case."""
    store.tell_reach([failing("w1"), failing("w2"), failing("w1", contract="other")], T0)
    store.farewell("w1")
    assert [one.tally.owner for one in store.reach()] == ["w2"]
    store.pause_provider("reports", "w2", "error budget", T0)
    assert len(store.reach()) == 1
    store.resume_provider("reports", "ana", "they mended it", T0)
    assert store.reach() == []
    store.tell_reach([failing("w3")], T0)
    store.tell_reach([failing("w4", contract="other")], T0 + timedelta(days=2))
    assert store.reach() == []
