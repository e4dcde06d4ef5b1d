"""A worker whose calls to a provider fail: what it tells, when it asks, and what it does then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.rules import evidence as e
from opledger.rules.contract import Limits
from opledger.rules.files.contract import parse
from opledger.rules.model import Action, Means
from opledger.sim.contracts import contract_text
from opledger.store import Store
from opledger.worker.limits import Limits as Counted
from opledger.worker.reach import ASK_EVERY, SKIPPED, Reach
from tests.fakes.clock import HandClock

BASE = parse(contract_text("v1", "http://127.0.0.1:1"), environment={})
CONTRACT = replace(BASE, limits=replace(Limits(), error_budget=5, error_window=timedelta(seconds=20)))
NAME = CONTRACT.name
FAILED = e.ReadFailed(action=Action.OBSERVE, why="no route to host")
GOOD = e.Observed(remote_state="running", means=Means.RUNNING)


class Crew:
    """Workers of one ledger, as far as they know of providers."""

    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, HandClock()
        self.limits: dict[str, Counted] = {}

    def hire(self, name: str) -> Reach:
        """One more worker, alive."""
        self.limits[name] = Counted()
        self.limits[name].know(CONTRACT)
        self.alive(name)
        return Reach(name, self.store, self.clock, self.limits[name])

    def alive(self, *names: str) -> None:
        """A sign of life."""
        for name in names:
            self.store.heartbeat(name, "host", 1, self.clock.now())

    def fails(self, one: Reach, times: int = 1, seconds: float = 1.0) -> str | None:
        """Let calls fail, and have it judged where it is time; why the provider is to be paused."""
        for _ in range(times):
            self.clock.pass_by(seconds)
            self.alive(*self.limits)
            if one.fared(CONTRACT, FAILED) and (why := asyncio.run(one.judge(NAME, "no route to host", run))):
                return why
        return None

    def room(self, name: str) -> int:
        """How many operations a worker would begin now."""
        limits, now = self.limits[name], self.clock.monotonic()
        return 0 if limits.full(now) else limits.wants(now, {NAME})[0].room


async def run(work: Callable[[], Any]) -> Any:
    """The store's thread, here and now."""
    return work()


@pytest.fixture
def crew(database_url: str) -> Iterator[Crew]:
    """Nobody yet."""
    with Store.open(database_url) as store:
        yield Crew(store)


def test_one_that_is_alone_has_it_paused(crew: Crew) -> None:
    """Enough failures over the window; the reason says how many, for how long, and what the last one was."""
    one = crew.hire("w1")
    why = crew.fails(one, 100)
    assert why == "error budget: 21 calls in a row failed over 20 s, and none succeeded; the last: no route to host"


def test_a_good_answer_forgives_all_failures(crew: Crew) -> None:
    """A provider that answers now and then is slow or flaky, not gone. What was told is removed."""
    one = crew.hire("w1")
    for _ in range(10):
        assert crew.fails(one, 15) is None
        one.fared(CONTRACT, GOOD)
    assert len(crew.store.reach()) == 1
    one.beat()
    assert crew.store.reach() == []


def test_answers_that_make_sense_are_no_failures(crew: Crew) -> None:
    """Not there yet, gone, throttled; a look-up that was answered."""
    one = crew.hire("w1")
    fine = [
        e.ReadFailed(action=Action.OBSERVE, why="x", code="gone"),
        e.Inconclusive(call_id="c", why="x", strategy="list", status=200),
    ]
    crew.clock.pass_by(1000)
    assert not any(one.fared(CONTRACT, evidence) for evidence in fine * 100)


def test_nothing_is_told_while_all_is_well(crew: Crew) -> None:
    """A failure now and then is nobody's business, and costs no write."""
    one, two = crew.hire("w1"), crew.hire("w2")
    one.fared(CONTRACT, GOOD)
    assert not one.fared(CONTRACT, FAILED)
    assert not one.fared(CONTRACT, FAILED)
    two.fared(CONTRACT, GOOD)
    one.beat()
    two.beat()
    assert crew.store.reach() == []


def test_it_asks_once_a_second_at_most(crew: Crew) -> None:
    """A thousand failures a second are one question."""
    one = crew.hire("w1")
    crew.fails(one, 10)
    asked = sum(one.fared(CONTRACT, FAILED) for _ in range(1000))
    assert asked == 0
    crew.clock.pass_by(ASK_EVERY)
    assert one.fared(CONTRACT, FAILED)


def test_one_that_is_cut_off_leaves_it_to_the_others_and_comes_back(crew: Crew) -> None:
    """It begins nothing there for a while, then one call at a time; with the first answer all is as before."""
    one, two = crew.hire("w1"), crew.hire("w2")
    assert crew.fails(one, 5) is None
    two.fared(CONTRACT, GOOD)
    two.beat()
    assert one.aside(NAME) is None
    assert crew.fails(one, 10) is None
    told = one.aside(NAME)
    assert told is not None
    assert "while other workers reach it (w2" in told
    assert "no route to host" in told
    assert crew.room("w1") == 0
    assert crew.room("w2") > 1
    one.beat()
    aside = crew.store.workers()[0].aside(NAME, crew.clock.now())
    assert aside is not None
    assert crew.store.workers()[1].asides == ()

    crew.clock.pass_by(31)
    crew.alive("w1", "w2")
    one.beat()
    assert one.aside(NAME) is None
    assert crew.room("w1") == 1
    assert crew.fails(one) is None
    assert one.aside(NAME) is not None
    crew.clock.pass_by(31)
    assert one.aside(NAME) is not None  # twice as long
    crew.clock.pass_by(31)
    crew.alive("w1", "w2")
    one.beat()
    one.fared(CONTRACT, GOOD)
    assert crew.room("w1") > 1
    one.beat()
    two.beat()
    assert crew.store.reach() == []
    assert crew.store.paused() == {}


def test_where_all_fail_it_is_paused_once_both_have_said_so(crew: Crew) -> None:
    """The failures of both are counted, and neither had to spend the whole budget."""
    one, two = crew.hire("w1"), crew.hire("w2")
    said = [why for _ in range(30) for each in (one, two) if (why := crew.fails(each, seconds=0.5)) is not None]
    assert "for 2 workers, and none succeeded for any" in said[0]


def test_a_worker_that_is_left_alone_goes_on_at_once(crew: Crew) -> None:
    """There is nobody any longer whom it could leave it to."""
    one, two = crew.hire("w1"), crew.hire("w2")
    crew.fails(one, 5)
    two.fared(CONTRACT, GOOD)
    two.beat()
    crew.fails(one, 10)
    assert one.aside(NAME) is not None
    crew.store.farewell("w2")
    one.beat()
    assert one.aside(NAME) is None
    assert crew.room("w1") == 1


def test_after_a_pause_all_begins_anew(crew: Crew) -> None:
    """What failed before a person let calls be made again counts no longer."""
    one = crew.hire("w1")
    assert crew.fails(one, 15) is None
    one.resumed(NAME)
    crew.store.resume_provider(NAME, "ana", "mended", crew.clock.now())
    assert crew.fails(one, 15) is None


def test_what_is_missing_here_is_left_to_others_and_told(crew: Crew) -> None:
    """A worker without the secret begins nothing, says why, and tries again later."""
    one = crew.hire("w1")
    crew.hire("w2")
    one.missing(CONTRACT, "SIM_TOKEN is not set")
    assert crew.room("w1") == 0
    one.beat()
    aside = crew.store.workers()[0].aside(NAME, crew.clock.now())
    assert aside is not None
    assert aside.why == "SIM_TOKEN is not set"
    crew.clock.pass_by(SKIPPED.total_seconds())
    crew.alive("w1", "w2")
    one.beat()
    assert crew.room("w1") > 1
    assert crew.store.reach() == []
