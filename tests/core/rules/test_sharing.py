"""The arithmetic of what all workers share: never more than allowed, in any order of things; and somebody gets it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opledger.rules import sharing
from opledger.rules.sharing import AHEAD, BURST_SECONDS, FRESH, SECOND, TENURE, Me, Rival, moments, pace, share

RATES = st.one_of(
    st.floats(0.001, 2.0),
    st.floats(1.0, 200.0),
    st.sampled_from([1 / 60, 0.5, 1.0, 4 / 3, 1.5, 2.0, 50.0]),
)


# --- the rate ----------------------------------------------------------------------------------------------------


@given(
    rate=RATES,
    asked=st.lists(
        st.tuples(
            st.integers(0, 3 * SECOND),  # time since the one before
            st.integers(0, 6 * SECOND),  # how long the answer is expected to take: each worker its own
            st.integers(1, 60),  # how many are wanted
            st.lists(st.floats(0, 1), min_size=1, max_size=7),  # how late they leave, in parts of what is allowed
            st.booleans(),  # the worker dies with what it has booked
        ),
        max_size=30,
    ),
)
def test_no_window_holds_more_than_the_rate_and_the_burst(
    rate: float, asked: list[tuple[int, int, int, list[float], bool]]
) -> None:
    """Whoever asks, in any order, with whatever delays and deaths: rate * t and one second's worth, never more."""
    beat, tat, now = pace(rate), 0, 0
    sent: list[int] = []
    for since, lead, most, lateness, dies in asked:
        now += since
        tat = sharing.settled(beat, tat, now)
        booked, tat = moments(beat, tat, now + min(lead, sharing.MOST_LEAD), most)
        if not dies:
            late = (lateness * len(booked))[: len(booked)]
            sent += [moment + int(beat.late * part) for moment, part in zip(booked, late, strict=True)]
    sent.sort()
    declared = max(1.0, rate * BURST_SECONDS)
    for first, began in enumerate(sent):
        for last in range(first, len(sent)):
            window = (sent[last] - began + 2) / SECOND  # moments are whole microseconds
            assert last - first + 1 <= rate * window + declared + 1e-6


@given(rate=RATES)
def test_the_rate_is_used_but_for_a_tenth(rate: float) -> None:
    """One worker that asks whenever it may gets what the contract allows, or nine tenths of a slow rate and more."""
    beat, tat, now, got = pace(rate), 0, 0, 0
    end = int(max(60, 40 / rate) * SECOND)
    while now < end:
        booked, tat = moments(beat, tat, now, 1000)
        got += len(booked)
        now += max(sharing.reopens(beat, tat, now), 1000)
    assert got >= 0.9 * rate * end / SECOND - 2


@given(rate=RATES, ahead=st.integers(0, 10**16), now=st.integers(10**15, 10**16))
def test_a_clock_that_was_put_back_stops_nobody_for_long(rate: float, ahead: int, now: int) -> None:
    """Whatever the bucket says, there is a moment within the time of one call, and of what may have been booked."""
    beat = pace(rate)
    wait = sharing.reopens(beat, sharing.settled(beat, now + ahead, now), now)
    assert wait <= beat.every + sharing.MOST_LEAD + AHEAD


@given(rate=RATES, at=st.integers(0, SECOND), most=st.integers(0, 50))
def test_moments_come_in_order_and_within_reach(rate: float, at: int, most: int) -> None:
    """Booked no further ahead than a worker would wait."""
    booked, _ = moments(pace(rate), 0, at, most)
    assert booked == sorted(booked)
    assert len(booked) <= most
    assert all(at <= moment <= at + AHEAD for moment in booked)


@pytest.mark.parametrize(("bookable", "hungry", "mine"), [(10, 0, 10), (10, 1, 5), (9, 1, 5), (1, 3, 1), (0, 2, 0)])
def test_moments_are_shared_with_those_that_wait(bookable: int, hungry: int, mine: int) -> None:
    """One that asks leaves as much to each of those that could not have any."""
    assert sharing.portion(bookable, hungry) == mine


# --- the places --------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """A worker's share as the database has it."""

    slots: int
    since: int | None
    wants: int | None
    expires: int


@dataclass
class Model:
    """A database and its workers, as simple as they can be; their steps come in any order."""

    most: int
    now: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    leases: dict[str, list[int]] = field(default_factory=dict)  #: when the leases of its operations end
    limit: dict[str, int] = field(default_factory=dict)

    def open(self, owner: str) -> int:
        """What a worker may have open: a call ends before the lease of its operation does."""
        return sum(end > self.now for end in self.leases.get(owner, []))

    def ask(self, owner: str, *, wants: bool, used: int = 0, alive: int = 1) -> None:
        """Settle a share, as the store does in one transaction."""
        self.rows = {name: row for name, row in self.rows.items() if row.expires > self.now}
        mine = self.rows.get(owner)
        rivals = [Rival(name, row.slots, row.wants, row.since) for name, row in self.rows.items() if name != owner]
        rivals += [Rival(name, self.open(name)) for name in self.leases if name != owner and name not in self.rows]
        since = mine.since if mine else None
        waiting = mine.wants if mine and not mine.slots and mine.wants is not None else self.now
        hungry = waiting if wants else None
        seated = self.open(owner)
        got = share(self.most, Me(owner, seated, max(used, seated), hungry, since), rivals, self.now, alive=alive)
        began = (since if since is not None else self.now) if got.slots else None
        self.rows[owner] = Row(got.slots, began, hungry, self.now + FRESH)
        self.limit[owner] = got.limit

    def begin(self, owner: str, lease: int) -> bool:
        """Begin a call where the share is fresh and has room."""
        row = self.rows.get(owner)
        if row is None or row.expires <= self.now or self.open(owner) >= self.limit[owner]:
            return False
        self.leases.setdefault(owner, []).append(self.now + lease)
        return True

    def end(self, owner: str) -> None:
        """End its oldest call."""
        live = [end for end in self.leases.get(owner, []) if end > self.now]
        self.leases[owner] = live[1:]


WORKERS = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(WORKERS), st.integers(0, 1)),
        st.tuples(st.just("work"), st.sampled_from(WORKERS), st.integers(0, 1)),
        st.tuples(st.just("begin"), st.sampled_from(WORKERS), st.integers(1, 5 * SECOND)),
        st.tuples(st.just("end"), st.sampled_from(WORKERS), st.just(0)),
        st.tuples(st.just("crash"), st.sampled_from(WORKERS), st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.integers(0, 2 * SECOND)),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(most=st.integers(1, 7), steps=STEPS, alive=st.integers(1, 4))
def test_never_more_is_open_than_the_contract_allows(most: int, steps: list[tuple[str, str, int]], alive: int) -> None:
    """Workers ask, begin, end and die in any order; whatever has a lease counts, and no sum is ever too large."""
    model, dead = Model(most), set()
    for what, owner, number in steps:
        if owner in dead:
            continue
        match what:
            case "ask":
                model.ask(owner, wants=bool(number), alive=alive)
            case "work":  # what a claim is: asked, and begun what may be
                model.ask(owner, wants=bool(number), alive=alive)
                while model.begin(owner, SECOND // 2 + number * 4 * SECOND):
                    pass
            case "begin":
                while model.begin(owner, number):
                    pass
            case "end":
                model.end(owner)
            case "crash":
                dead.add(owner)  # its leases and its row stay as they are
            case _:
                model.now += number
        assert sum(model.open(name) for name in WORKERS) <= most


@given(most=st.integers(1, 9), count=st.integers(1, 3), ahead=st.integers(0, 3))
def test_whoever_is_alone_gets_everything_at_once(most: int, count: int, ahead: int) -> None:
    """Without others, and after any number of askings; also right after others have gone."""
    model = Model(most)
    for _ in range(count):
        model.ask("a", wants=False)
        assert model.limit["a"] == most
    model.now += ahead * FRESH
    model.ask("b", wants=True)
    assert model.limit["b"] == (most if ahead else 0)


@given(most=st.integers(1, 12), offset=st.integers(0, 2))
def test_all_that_want_some_get_the_same(most: int, offset: int) -> None:
    """The first one had everything; once its calls have ended the parts differ by one at most, and add up."""
    model = Model(most)
    model.ask("a", wants=True)
    while model.begin("a", 60 * SECOND):
        pass
    for turn in range(6):
        for owner in WORKERS[offset:] + WORKERS[:offset]:
            model.ask(owner, wants=True)
        if turn == 1:
            model.leases["a"] = []
        model.now += FRESH // 4
    limits = [model.limit[owner] for owner in WORKERS]
    assert sum(limits) == most
    assert max(limits) - min(limits) <= 1


@given(most=st.integers(1, 2), order=st.permutations(WORKERS))
def test_each_has_its_turn_where_there_is_too_little_for_all(most: int, order: list[str]) -> None:
    """Three workers, one or two places: within a few tenures everybody has had one."""
    model, served = Model(most), set()
    while model.now < 5 * TENURE:
        for owner in order:
            model.ask(owner, wants=True)
            if model.begin(owner, FRESH // 8):
                served.add(owner)
        model.now += FRESH // 4
    assert served == set(WORKERS)


@given(most=st.integers(2, 9), used=st.integers(0, 3))
def test_what_is_not_used_is_given_to_who_wants_it(most: int, used: int) -> None:
    """One worker uses little and wants no more, another one wants all: it gets all but that, and one to grow by."""
    assume(used + 1 <= most // 2)
    model = Model(most)
    model.ask("a", wants=False)
    for _ in range(4):
        model.ask("b", wants=True)
        model.ask("a", wants=False, used=used)
        model.now += FRESH // 4
    assert model.limit["a"] == used + 1
    assert model.limit["b"] == most - used - 1


def test_two_workers_that_begin_together_both_get_some() -> None:
    """As many as are alive share what nobody has asked for yet."""
    model = Model(10)
    model.ask("a", wants=False, alive=2)
    model.ask("b", wants=False, alive=2)
    assert model.limit == {"a": 5, "b": 5}
