from __future__ import annotations

import pytest

from opledger.errors import UsageError
from opledger.sim.personalities import PERSONALITIES, draw, draw_variant, fraction, parse_faults, plan


@pytest.mark.parametrize("seed", [0, 1, 7, 2026])
def test_a_plan_of_forty_has_every_personality(seed: int) -> None:
    """The demonstration promises to show every way to misbehave, whatever its seed."""
    assert {name for name, _ in plan(seed, 40)} == set(PERSONALITIES)


def test_a_plan_chooses_its_personalities_in_the_body() -> None:
    """Any client can send the plan's bodies; the simulator needs no other word."""
    for name, body in plan(3, 60):
        assert body["_personality"] == name
        assert body["_variant"] in PERSONALITIES[name].variants


def test_a_long_plan_has_every_variant() -> None:
    """Room that is left goes to the variants that the seed did not choose first."""
    shown = {(name, body["_variant"]) for name, body in plan(5, 60)}
    assert shown == {(name, variant) for name, about in PERSONALITIES.items() for variant in about.variants}


def test_a_plan_shows_what_takes_two_operations_twice() -> None:
    """One operation alone cannot show that an id is given out twice."""
    names = [name for name, _ in plan(5, 40)]
    for about in PERSONALITIES.values():
        assert names.count(about.name) >= about.together


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_a_plan_has_as_many_jobs_as_were_asked_for(count: int) -> None:
    """`demo` counts on it for its progress line."""
    assert len(plan(1, count)) == count


def test_the_same_seed_makes_the_same_plan_and_another_seed_another() -> None:
    """A run that failed must be repeatable by its seed."""
    assert plan(4, 50) == plan(4, 50)
    assert plan(4, 50) != plan(5, 50)


@pytest.mark.parametrize(
    ("spec", "weights"),
    [
        ("none", {"ideal": 1.0}),
        ("", {"ideal": 1.0}),
        ("lossy", {"lossy": 1.0}),
        ("ideal=6, lossy,slow=0.5", {"ideal": 6.0, "lossy": 1.0, "slow": 0.5}),
        ("all", dict.fromkeys(PERSONALITIES, 1.0)),
    ],
)
def test_faults_are_read_as_weights(spec: str, weights: dict[str, float]) -> None:
    """`--faults` is typed by people."""
    assert parse_faults(spec) == weights


@pytest.mark.parametrize(
    ("spec", "word"),
    [("lossie", "lossie"), ("lossy=much", "much"), ("lossy=0", "0"), ("lossy=-1", "-1"), ("slow=inf", "inf")],
)
def test_a_bad_fault_spec_is_a_usage_error_that_shows_the_word(spec: str, word: str) -> None:
    """A typing error must not run as a provider that behaves well."""
    with pytest.raises(UsageError, match=word):
        parse_faults(spec)


def test_draws_follow_the_weights() -> None:
    """Three to one means about three to one, and nothing else is ever drawn."""
    drawn = [draw({"lossy": 3.0, "slow": 1.0}, 9, number) for number in range(2000)]
    assert set(drawn) == {"lossy", "slow"}
    assert 0.7 < drawn.count("lossy") / len(drawn) < 0.8


def test_every_variant_is_drawn_by_some_key() -> None:
    """A variant that no seed reaches is never tried."""
    for name, about in PERSONALITIES.items():
        assert {draw_variant(name, 0, number) for number in range(200)} == set(about.variants)


def test_parts_of_a_fraction_are_kept_apart() -> None:
    """Seed 1 with job 23 and seed 12 with job 3 must not be twins."""
    assert fraction(1, 23) != fraction(12, 3)


def test_every_personality_says_where_an_honest_client_may_end() -> None:
    """The demonstration compares its closing table with this."""
    for about in PERSONALITIES.values():
        assert about.variants
        assert all(about.ends.values())
        assert "\n" not in about.does
