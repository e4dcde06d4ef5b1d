"""Whose trouble it is that calls fail: judged by what all workers have told."""

from __future__ import annotations

from typing import Any

import pytest

from opledger.rules.reach import (
    APART,
    OBJECTION,
    REMEMBERED,
    SECOND,
    Budget,
    Judged,
    Row,
    Tally,
    Verdict,
    aside_for,
    judge,
)

NOW = 1_000_000 * SECOND
BUDGET = Budget(10, 60 * SECOND)


def ago(seconds: float) -> int:
    """A moment that many seconds before now."""
    return NOW - round(seconds * SECOND)


def failing(owner: str, failures: int, since: float, *, worked: float | None = None, last: float = 0) -> Tally:
    """A worker whose last calls failed, told from the first on."""
    return Tally(owner, Row(failures, ago(since)), ago(since), None if worked is None else ago(worked), ago(last))


def fine(owner: str, worked: float) -> Tally:
    """A worker whose last call succeeded."""
    return Tally(owner, worked_at=ago(worked), at=ago(worked))


def verdict(mine: Tally, *others: Tally, own: Row | None = None, **how: Any) -> Verdict:
    """What `mine` is to do."""
    row = own or mine.row
    assert row is not None
    how.setdefault("alive", 1 + len(others))
    return judge(how.pop("budget", BUDGET), row, mine, others, NOW, **how).verdict


# --- alone ------------------------------------------------------------------------------------------------------


def test_alone_enough_failures_over_some_time_pause() -> None:
    """Nobody else can tell; a hiccup of seconds and a few failures are not enough."""
    assert verdict(failing("a", 10, 60)) is Verdict.PAUSE
    assert verdict(failing("a", 9, 600)) is Verdict.GO_ON
    assert verdict(failing("a", 500, 59)) is Verdict.GO_ON
    judged = judge(BUDGET, Row(10, ago(60)), failing("a", 10, 60), (), NOW, alive=1)
    assert judged.why == "10 calls in a row failed over 60 s, and none succeeded"


def test_a_budget_of_nothing_is_no_budget() -> None:
    """0 switches both the pause and the standing aside off."""
    none = Budget(0, 0)
    assert verdict(failing("a", 10_000, 6000), budget=none) is Verdict.GO_ON
    assert verdict(failing("a", 10_000, 6000), fine("b", 1), budget=none) is Verdict.GO_ON


def test_what_the_dead_have_told_is_forgotten() -> None:
    """A worker that was killed an hour ago is no witness, and its failures are not counted."""
    gone = failing("z", 500, 4000, last=REMEMBERED / SECOND + 1)
    assert verdict(failing("a", 9, 600), gone, alive=1) is Verdict.GO_ON
    assert verdict(failing("a", 9, 600), failing("z", 500, 4000, last=30), alive=1) is Verdict.PAUSE


# --- a worker that is cut off -----------------------------------------------------------------------------------


def test_who_fails_while_others_succeed_stands_aside() -> None:
    """The provider is well; something between this worker and it is not."""
    found = judge(BUDGET, Row(40, ago(300)), failing("a", 40, 300), (fine("b", 2),), NOW, alive=2)
    assert found.verdict is Verdict.STAND_ASIDE
    assert found.why == "40 calls in a row failed over 300 s here, while other workers reach it (b 2 s ago)"
    assert found.worked_at == ago(2)


def test_it_stands_aside_before_the_whole_window_is_over() -> None:
    """Nobody else waits for it, so ten seconds are enough; a shorter window is."""
    seconds = APART / SECOND
    assert verdict(failing("a", 40, seconds), fine("b", 1)) is Verdict.STAND_ASIDE
    assert verdict(failing("a", 40, seconds - 1), fine("b", 1)) is Verdict.GO_ON
    assert verdict(failing("a", 9, seconds), fine("b", 1)) is Verdict.GO_ON
    assert verdict(failing("a", 40, 2), fine("b", 1), budget=Budget(10, SECOND)) is Verdict.STAND_ASIDE


def test_a_success_before_the_failures_says_nothing() -> None:
    """The provider may have died since."""
    assert verdict(failing("a", 9, 60), fine("b", 61)) is Verdict.GO_ON


@pytest.mark.parametrize("workers", [2, 5])
def test_one_that_fails_pauses_nothing_for_the_others(workers: int) -> None:
    """However long and often it fails: all that succeed object, and of those that only once did, one is enough."""
    others = [fine("b", 1), *(fine(f"w{n}", 5000) for n in range(workers - 2))]
    for failures, since in ((10, 60), (1000, 100), (100_000, 5000)):
        assert verdict(failing("a", failures, since), *others) is Verdict.STAND_ASIDE


def test_where_nobody_else_has_called_it_is_left_to_the_others_first() -> None:
    """They find out; only where none of them did does this worker's word count, at its next failure."""
    assert verdict(failing("a", 40, 300), alive=2) is Verdict.STAND_ASIDE
    assert verdict(failing("a", 41, 340), alive=2, asides=1) is Verdict.PAUSE
    assert verdict(failing("a", 9, 340), alive=2, asides=1) is Verdict.GO_ON


# --- a provider that is down ------------------------------------------------------------------------------------


def test_the_failures_of_all_are_counted_together() -> None:
    """Ten workers need not fail ten times each."""
    found = judge(BUDGET, Row(5, ago(70)), failing("a", 5, 70), (failing("b", 6, 65),), NOW, alive=2)
    assert found.verdict is Verdict.PAUSE
    assert found.why == "11 calls in a row failed over 70 s for 2 workers, and none succeeded for any"
    assert verdict(failing("a", 4, 70), failing("b", 5, 65)) is Verdict.GO_ON
    assert verdict(failing("a", 5, 50), failing("b", 6, 55)) is Verdict.GO_ON


def test_failures_before_a_success_are_nobodys_any_longer() -> None:
    """Another worker succeeded ten seconds ago: only what failed after that counts, whoever it was."""
    old = failing("a", 500, 300)
    assert verdict(failing("b", 3, 9, worked=10), old) is Verdict.GO_ON
    assert verdict(failing("b", 3, 70, worked=80), old) is Verdict.GO_ON
    assert verdict(failing("b", 10, 70, worked=80), old, alive=2) is Verdict.STAND_ASIDE


def test_others_have_time_to_object() -> None:
    """They say with their next sign of life that they reach it; until then nothing is stopped for them."""
    seconds = OBJECTION / SECOND
    window = Budget(10, SECOND)
    early = [Tally(owner, Row(8, ago(60)), ago(seconds - 1), None, NOW) for owner in "ab"]
    assert verdict(*early, budget=window) is Verdict.GO_ON
    told = [Tally(owner, Row(8, ago(60)), ago(seconds), None, NOW) for owner in "ab"]
    assert verdict(*told, budget=window) is Verdict.PAUSE


def test_one_or_two_failures_make_no_witness() -> None:
    """Somebody whose call failed once may be unlucky."""
    assert verdict(failing("a", 40, 300), failing("b", 2, 20)) is Verdict.STAND_ASIDE
    assert verdict(failing("a", 40, 300), failing("b", 3, 20)) is Verdict.PAUSE
    assert verdict(failing("b", 1, 2), failing("a", 40, 300)) is Verdict.GO_ON


def test_who_stood_aside_while_the_provider_died_is_no_objection() -> None:
    """B succeeded after A's calls had begun to fail, and fails now itself: nobody reaches it any longer."""
    mine = failing("a", 4, 70)  # since B's success
    own = Row(400, ago(4000))
    assert verdict(mine, failing("b", 8, 65, worked=80), own=own) is Verdict.PAUSE
    assert verdict(mine, fine("b", 80), own=own) is Verdict.STAND_ASIDE


def test_each_time_it_is_left_for_longer() -> None:
    """Half a minute first, five minutes at most."""
    assert [aside_for(n) // SECOND for n in (0, 1, 2, 3, 4, 1000)] == [30, 60, 120, 240, 300, 300]


# --- to the letter ----------------------------------------------------------------------------------------------


def test_the_lengths_are_those_that_people_are_told() -> None:
    """The manual names them, and two workers of different versions must agree on them."""
    assert (SECOND, OBJECTION, APART, REMEMBERED) == (10**6, 5 * 10**6, 10 * 10**6, 60 * 10**6)
    assert (Row(), Tally("a").at, Judged(Verdict.GO_ON).why) == (Row(0, 0), 0, "")


def test_a_worker_fails_whose_last_success_was_before() -> None:
    """A success in the very moment of the first failure came after it: both are of the same look."""
    assert [Tally("a", Row(1, 5), worked_at=at).failing for at in (None, 4, 5, 6)] == [True, True, False, False]
    assert not Tally("a", worked_at=4).failing


def judged(mine: Tally, *others: Tally, **how: Any) -> Judged:
    """The whole verdict on `mine`."""
    assert mine.row is not None
    how.setdefault("alive", 1 + len(others))
    return judge(how.pop("budget", BUDGET), how.pop("own", mine.row), mine, others, NOW, **how)


OLD = fine("z", 4000)
"""Somebody who succeeded long ago, and has called nobody since."""
FRESH = Tally("a", Row(40, ago(300)), ago(1))


@pytest.mark.parametrize(
    ("verdict", "mine", "others", "how"),
    [
        (Verdict.GO_ON, failing("a", 40, 300), (OLD,), {"budget": Budget(0, 0)}),
        (Verdict.GO_ON, failing("a", 9, 300), (OLD,), {}),
        (Verdict.PAUSE, failing("a", 40, 300), (OLD,), {"alive": 1}),
        (Verdict.GO_ON, FRESH, (OLD,), {}),
        (Verdict.PAUSE, failing("a", 40, 300), (OLD, failing("b", 3, 20)), {}),
        (Verdict.GO_ON, failing("b", 1, 2), (OLD, failing("a", 40, 300)), {}),
        (Verdict.PAUSE, failing("a", 40, 300), (OLD,), {"asides": 1}),
        (Verdict.STAND_ASIDE, failing("a", 40, 300), (OLD,), {}),
    ],
)
def test_every_verdict_brings_the_last_success_of_anybody(
    verdict: Verdict, mine: Tally, others: tuple[Tally, ...], how: dict[str, Any]
) -> None:
    """A worker forgets by it what failed before, so that it is not told of again."""
    found = judged(mine, *others, **how)
    assert (found.verdict, found.worked_at) == (verdict, ago(4000))


def test_each_verdict_says_why() -> None:
    """The sentence stands in the doctor, in the console and in explain."""
    assert judged(failing("a", 41, 340), alive=2, asides=1).why == (
        "41 calls in a row failed over 340 s, none succeeded, and no other worker reached it when it was left to them"
    )
    assert judged(failing("a", 40, 300), fine("b", 301)).why == (
        "40 calls in a row failed over 300 s here, and no other worker has called it meanwhile: it is left to them"
    )
    # What happened in the same moment came after.
    assert judged(failing("a", 40, 300), fine("b", 300)).why.endswith("while other workers reach it (b 300 s ago)")


def test_who_reached_it_last_is_named() -> None:
    """Whoever looks into it begins with that host; workers that never reached it are passed over."""
    never = failing("d", 1, 2)
    found = judged(failing("a", 40, 300), never, fine("b", 9), fine("c", 2), never)
    assert found.why.endswith("while other workers reach it (c 2 s ago)")
    assert found.worked_at == ago(2)
    assert judged(failing("a", 40, 300), fine("b", -3)).why.endswith("(b 0 s ago)")


def test_what_failed_before_anybody_succeeded_is_not_counted() -> None:
    """Neither before the other's success, nor in its very moment."""
    assert judged(failing("a", 500, 300), failing("b", 3, 9, worked=10)).verdict is Verdict.GO_ON
    assert judged(failing("a", 500, 300, worked=300), alive=1).verdict is Verdict.GO_ON
    nothing = judge(BUDGET, Row(40, ago(300)), Tally("a"), (), NOW, alive=1)
    assert nothing == Judged(Verdict.GO_ON)


def test_what_was_told_a_minute_ago_still_counts() -> None:
    """To the second; after that nobody stands behind it."""
    told = failing("z", 500, 4000, last=REMEMBERED / SECOND)
    assert verdict(failing("a", 9, 600), told, alive=1) is Verdict.PAUSE


def test_nobody_objects_to_what_nobody_was_told() -> None:
    """The others' time to object begins when they can know of it."""
    assert judged(Tally("a", Row(40, ago(300))), alive=2).verdict is Verdict.GO_ON
