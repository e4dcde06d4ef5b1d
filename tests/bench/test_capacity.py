"""The capacity model: its laws, and that the simulated schedule agrees with its formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench import capacity, schedule
from tests.bench.capacity import Costs, Load, Site

FILE = Costs(
    kind="sqlite", poll_cpu=1.6e-3, operation_cpu=6e-3, server_poll_cpu=0, server_operation_cpu=0, idle=0.02,
    commit=150e-6, commit_cpu=100e-6, wake=300e-6, row=60e-6, claim=20e-6, look=30e-6, poll_bytes=500, answer_bytes=80,
    operation_bytes=5000, leaf_bytes=80, archived_bytes=100, log_poll=0, log_operation=0,
)  # fmt: skip
SERVER = replace(
    FILE, kind="postgresql", server_poll_cpu=0.5e-3, server_operation_cpu=3e-3, log_poll=3000, log_operation=20_000
)
HOUR = Load(open=10_000, interval=60, life=3600)


def test_what_ten_thousand_jobs_ask_for() -> None:
    """By hand: 10,000 / 60 polls a second, and 60 polls and one operation in the life of each."""
    found = capacity.needs(HOUR, FILE)
    assert found.polls == pytest.approx(166.67, rel=1e-3)
    assert found.cpu == pytest.approx(0.02 + 166.67 * (1.6e-3 + 300e-6 + 2 * 100e-6) + 2.778 * 6e-3, rel=1e-3)
    assert found.workers == 1
    assert found.in_flight == pytest.approx(50, rel=1e-3)
    assert found.bytes_operation == pytest.approx(5000 + 4 * 80 + 60 * (500 + 80 + 0.2 * 380), rel=1e-6)
    assert found.bytes_day == pytest.approx(found.bytes_operation * 240_000, rel=1e-6)


loads = st.builds(
    Load,
    open=st.integers(1, 10**9),
    interval=st.floats(1, 86_400),
    life=st.floats(60, 10**7),
    changing=st.floats(0, 1),
    answer=st.floats(0, 1e6),
    result=st.floats(0, 1e9),
    latency=st.floats(0, 60),
)


@given(loads, st.sampled_from([FILE, SERVER]), st.integers(2, 10))
def test_more_asks_for_more(load: Load, costs: Costs, times: int) -> None:
    """Everything that flows grows in proportion; an operation's own bytes do not change with how many there are."""
    one, many = capacity.needs(load, costs), capacity.needs(replace(load, open=load.open * times), costs)
    for name in ("polls", "rows", "server_cores", "in_flight", "log", "dead_rows", "bytes_day", "results_day"):
        assert getattr(many, name) == pytest.approx(getattr(one, name) * times)
    assert many.bytes_operation == one.bytes_operation
    assert many.workers >= one.workers
    assert one.cpu <= many.cpu * 1.0000001
    assert many.cpu <= one.cpu * times * 1.0000001


@given(loads, st.sampled_from([FILE, SERVER]), st.integers(1, 64))
def test_walls_do_not_depend_on_how_much_is_asked_for(load: Load, costs: Costs, workers: int) -> None:
    """They are rates in a mix; the first is the lowest; more workers and more shards move none of them nearer."""
    site = Site(workers=workers)
    found = capacity.walls(load, costs, site)
    again = capacity.walls(replace(load, open=load.open * 3), costs, site)
    assert [one.polls for one in again] == pytest.approx([one.polls for one in found])
    assert capacity.first_wall(load, costs, site).polls == min(one.polls for one in found)
    for bigger in (replace(site, workers=workers + 1), replace(site, shards=2)):
        moved = {one.name: one.polls for one in capacity.walls(load, costs, bigger)}
        assert all(moved[one.name] >= one.polls for one in found)


@given(st.floats(1, 5000))
def test_a_batch_is_what_comes_during_a_commit(rate: float) -> None:
    """At the rate and with the batch, the writer is busy all the time and not longer."""
    found = capacity.batch(rate, FILE)
    if math.isfinite(found) and found > 1:
        assert rate * (FILE.commit + found * (FILE.row + FILE.claim)) == pytest.approx(found)
    assert found >= 1


def test_shards_are_as_many_as_the_rate_asks_for() -> None:
    """None for a load that one server carries."""
    assert capacity.spread(HOUR, SERVER, Site()) == 1
    many = replace(HOUR, open=10**8)
    shards = capacity.spread(many, SERVER, Site())
    first = capacity.first_wall(many, SERVER, Site(workers=10_000, shards=shards, disk=1e18))
    assert first.polls >= many.polls
    fewer = capacity.walls(many, SERVER, Site(workers=10_000, shards=shards - 1, disk=1e18))
    assert fewer[0].polls < many.polls


# --- the schedule ---------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.integers(1, 10**8), st.integers(2, 60), st.floats(0.3, 3), st.floats(0, 0.9), st.integers(0, 99),
)  # fmt: skip
def test_no_operation_is_lost_or_polled_too_often(
    open_: int, interval: int, load: float, jitter: float, seed: int
) -> None:
    """`run` counts all of them after every step; and no more is polled than workers can, or than is due."""
    rate = open_ / interval * load
    found = schedule.run(open_, interval, rate, seconds=3 * interval, jitter=jitter, seed=seed)
    assert found.polls <= rate * 3 * interval + 1
    assert found.polls <= open_ * (3 / (1 - jitter) + 1)


@pytest.mark.parametrize("open_", [1_000_000, 100_000_000])
@pytest.mark.parametrize("share", [0.5, 0.8, 1.25, 2.0])
def test_the_formula_for_lateness(open_: int, share: float) -> None:
    """Enough workers: hardly anything waits. Too few: lateness and queue are what the formula says."""
    interval = 100.0
    rate = open_ / interval / share
    found = schedule.run(open_, interval, rate, seconds=1200, warm=600)
    late, waits = capacity.lateness(open_, interval, rate), capacity.queue(open_, interval, rate)
    if share < 1:
        assert found.mean <= 2
        assert found.waiting <= 3 * open_ / interval
        assert found.rate == pytest.approx(open_ / interval, rel=0.02)
    else:
        assert found.mean == pytest.approx(late, rel=0.1)
        assert found.waiting == pytest.approx(waits, rel=0.1)
        assert found.rate == pytest.approx(rate, rel=0.01)


def test_a_hundred_million_cost_what_a_thousand_cost() -> None:
    """The steps are what is counted; nothing is made for an operation."""
    sizes = [sum(map(len, (run.late, run.queues))) for run in (_short(1_000), _short(100_000_000))]
    assert sizes[1] <= sizes[0] + 10


def _short(open_: int) -> schedule.Outcome:
    return schedule.run(open_, 60, open_ / 50, seconds=300)


def test_the_same_seed_gives_the_same() -> None:
    """And another one something else."""
    one, two, other = (schedule.run(10**6, 60, 17_000, seconds=300, seed=seed) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_losing_operations_is_noticed() -> None:
    """The simulation looks at itself: a wheel that forgets some of what was polled ends it."""
    forgets = schedule.Wheel.again

    def broken(self: schedule.Wheel, polled: int) -> None:
        forgets(self, polled - 1 if polled else 0)

    with mock.patch.object(schedule.Wheel, "again", broken), pytest.raises(AssertionError, match="are left in step 0"):
        schedule.run(1000, 10, 200, seconds=30)


def test_a_quantile_of_nothing() -> None:
    """Is refused."""
    with pytest.raises(ValueError, match="nothing was polled"):
        schedule.Outcome().quantile(0.5)
