from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from opledger.sim.flavours import FLAVOURS
from opledger.sim.jobs import FINAL_WORDS, Job, Jobs, Order, Wish

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)


def started(personality: str = "ideal", variant: str = "plain", **options: Any) -> Job:
    """A job that was created at time 0."""
    jobs = Jobs(seed=1)
    order = Order(FLAVOURS["v1"], "key", "op_1", "aa", options)
    _, job = jobs.start_or_find(Wish("key", personality, variant), order, 0.0, AT)
    assert job is not None
    return job


def words(job: Job, *times: float) -> list[str]:
    """The job's word at each of these times."""
    return [job.word(time) for time in times]


def test_a_job_goes_from_queued_over_running_to_its_end() -> None:
    """A client sees each of the three words."""
    assert words(started(_seconds=1), 0.0, 0.5, 1.0) == ["queued", "running", "succeeded"]


def test_a_job_may_end_after_so_many_reads_instead() -> None:
    """A test that counts polls must not depend on time."""
    job = started(_polls=2)
    seen = []
    for _ in range(2):
        job.reads += 1
        seen.append(job.word(1000.0))
    assert seen == ["running", "succeeded"]


@pytest.mark.parametrize(
    ("personality", "variant", "end"),
    [("failing", "plain", "failed"), ("expired", "plain", "expired"), ("replaying", "failed", "failed")],
)
def test_jobs_that_end_badly_say_why(personality: str, variant: str, end: str) -> None:
    """An end without a reason would be no test for the reader of reasons."""
    job = started(personality, variant)
    assert job.word(100.0) == end
    assert job.error() is not None


@pytest.mark.parametrize(("personality", "variant"), [("never_ending", "plain"), ("cancel_ignoring", "forever")])
def test_jobs_that_never_end_go_on_running(personality: str, variant: str) -> None:
    """Only a deadline can end the wait for them."""
    job = started(personality, variant)
    assert words(job, 1.0, 1e9) == ["running", "running"]
    assert job.share(1e9) < 1


@pytest.mark.parametrize(
    ("personality", "variant", "verdict", "after"),
    [
        ("ideal", "plain", "accepted", ["cancelling", "cancelled"]),
        ("cancellable", "lossy", "accepted", ["cancelling", "cancelled"]),
        ("cancel_racing", "plain", "accepted", ["succeeded", "succeeded"]),
        ("cancel_ignoring", "forever", "accepted", ["running", "running"]),
        ("cancel_ignoring", "until_end", "accepted", ["running", "succeeded"]),
        ("cancel_refusing", "conflict", "refused", ["running", "running"]),
        ("cancel_refusing", "polite", "refused_politely", ["running", "running"]),
    ],
)
def test_each_personality_takes_a_cancel_its_own_way(
    personality: str, variant: str, verdict: str, after: list[str]
) -> None:
    """What the cancel does and what its answer says are two things."""
    jobs = Jobs(seed=1)
    job = started(personality, variant, _seconds=30)
    assert jobs.cancel(job, 1.0) == verdict
    assert words(job, 1.01, 1.9) == after


def test_a_cancel_after_the_end_changes_nothing() -> None:
    """The end came first."""
    job = started(_seconds=1)
    assert job.word(2.0) == "succeeded"
    assert Jobs(seed=1).cancel(job, 2.0) == "finished"
    assert job.word(9.0) == "succeeded"


def test_a_final_word_stays_even_if_time_is_put_back() -> None:
    """The truth has one end."""
    job = started(_seconds=1)
    assert job.word(5.0) in FINAL_WORDS
    job.skew = -100.0
    assert job.word(5.0) == "succeeded"


def test_the_result_is_the_same_at_every_read_and_has_the_rows_that_were_asked_for() -> None:
    """Otherwise a checksum would prove nothing."""
    job = started(rows=7)
    assert job.result() == job.result()
    assert job.result()[0].count(b"\n") == 8


@pytest.mark.parametrize("options", [{"_seconds": "soon"}, {"_polls": None}, {"rows": float("inf")}, {"rows": []}])
def test_senseless_options_fall_back_to_the_usual(options: dict[str, Any]) -> None:
    """The simulator outlives whatever a client sends."""
    assert started(**options).word(60.0) == "succeeded"


def test_the_same_seed_gives_the_same_ids() -> None:
    """Two runs with one seed can be compared line by line."""
    assert started().id == started().id


def test_a_forgotten_token_starts_a_second_job() -> None:
    """That is what the end of a token's memory means."""
    jobs = Jobs(seed=1)
    order = Order(FLAVOURS["v1"], "key", "op_1", "aa", {})
    wish = jobs.wishes["v1", "key"] = Wish("key", "ideal", "plain")
    first = jobs.start_or_find(wish, order, 0.0, AT)
    assert jobs.start_or_find(wish, order, 0.0, AT) == ("repeated", first[1])
    jobs.forget_tokens()
    outcome, second = jobs.start_or_find(wish, replace(order, body_sha256="bb"), 0.0, AT)
    assert outcome == "started"
    assert second is not first[1]
