from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opledger.rules import evidence as e
from opledger.rules.escalation import Severity, Track, TrackState
from opledger.rules.model import Means, Operation
from opledger.store import Listening, Settled, Store
from tests.core.store.making import ANA, T0, after, bound, observed, opened, operation_of, write

ALL = Listening("oncall", None, datetime.max.replace(tzinfo=UTC))


def troubled(store: Store, job: str, *, at: datetime = T0) -> Operation:
    """An operation whose provider says a word that nobody knows."""
    (operation,) = opened(store)
    bound(store, operation, job)
    return operation_of(
        store.record_many([write(operation, observed("odd", Means.UNKNOWN, job_id=job), at=at, due=None)])[0]
    )


def violated(store: Store, job: str) -> Operation:
    """An operation whose provider broke its promises."""
    (operation,) = opened(store)
    bound(store, operation, job)
    evidence = e.UnfamiliarJobId(why="another id", jobs=(job, "other"))
    return operation_of(store.record_many([write(operation, evidence, due=None)])[0])


def begun(store: Store, job: str = "job_1") -> Track:
    """The track of a fresh escalation, due now."""
    operation = troubled(store, job)
    store.begin_notices("oncall", store.untold(ALL), T0)
    (track,) = store.notices_of(operation.operation_id)
    return track


def settled(track: Track, **changes: object) -> Settled:
    """It was told at T0, unless `changes` say otherwise."""
    whole = Settled(track, TrackState.SENT, None, Severity.LOW, 1, 0, T0)
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_an_escalation_is_begun_once_for_each_target(store: Store) -> None:
    """However often and by however many workers the table is swept."""
    operation = troubled(store, "job_1")
    key = (operation.operation_id, "unknown_state", T0)
    assert store.untold(ALL) == [key]
    store.begin_notices("oncall", [key], T0)
    store.begin_notices("oncall", [key], after(9))
    assert store.untold(ALL) == []
    assert store.untold(replace(ALL, target="chat")) == [key]
    (track,) = store.notices_of(operation.operation_id)
    assert track == Track("oncall", *key, first_seen=T0, state=TrackState.PENDING, due_at=T0)


def test_what_needs_nobody_is_not_found(store: Store) -> None:
    """Most records, at any time."""
    operation = troubled(store, "job_1")
    opened(store)
    store.record_many([write(operation, observed("running", job_id="job_1"))])
    assert store.untold(ALL) == []


def test_a_trouble_that_comes_back_is_another_escalation(store: Store) -> None:
    """It is known by since when it stands."""
    operation = troubled(store, "job_1")
    store.begin_notices("oncall", store.untold(ALL), T0)
    store.record_many([write(operation, observed("running", job_id="job_1"))])
    store.record_many([write(operation, observed("odd", Means.UNKNOWN, job_id="job_1"), at=after(60))])
    assert store.untold(ALL) == [(operation.operation_id, "unknown_state", after(60))]


def test_a_target_is_asked_for_its_codes_only(store: Store) -> None:
    """Nobody reads a thousand rows in order to drop them."""
    troubled(store, "job_1")
    bad = violated(store, "job_2")
    some = replace(ALL, codes=frozenset({"contract_violation"}))
    assert [subject for subject, *_ in store.untold(some)] == [bad.operation_id]
    assert store.untold(replace(ALL, codes=frozenset())) == []


def test_an_approval_counts_from_when_its_deadline_is_near(store: Store) -> None:
    """For a target that wants no low ones; one without a deadline is never near."""
    (soon,) = opened(store, approvals_needed=1, approval_timeout=timedelta(minutes=30))
    (late,) = opened(store, approvals_needed=1, approval_timeout=timedelta(hours=3))
    (open_end,) = opened(store, approvals_needed=1)
    near = replace(ALL, approvals_before=T0 + timedelta(hours=1))
    assert [subject for subject, *_ in store.untold(near)] == [soon.operation_id]
    every = {soon.operation_id, late.operation_id, open_end.operation_id}
    assert {subject for subject, *_ in store.untold(ALL)} == every


def test_a_stopped_provider_is_one_escalation_whenever_it_is_stopped(store: Store) -> None:
    """Not one for each operation; stopped again later, it is news again."""
    store.pause_provider("reports", "w1", "401", T0)
    assert store.untold(ALL) == [("provider:reports", "provider_paused", T0)]
    assert store.stopped_providers()["provider:reports"].reason == "calls to reports were stopped by w1: 401"
    store.begin_notices("oncall", store.untold(ALL), T0)
    assert store.untold(ALL) == []
    store.resume_provider("reports", "ana", "rotated", after(5))
    assert (store.untold(ALL), store.stopped_providers()) == ([], {})
    store.pause_provider("reports", "w1", "401", after(9))
    assert store.untold(ALL) == [("provider:reports", "provider_paused", after(9))]
    assert store.untold(replace(ALL, codes=frozenset({"gone"}))) == []


def test_only_one_worker_takes_a_track(store: Store, second: Store) -> None:
    """Two that read it at the same moment must not both send it."""
    track = begun(store)
    assert second.due_notices("oncall", T0) == [track]
    assert store.take_notices([track], "w1", after(120)) == [True]
    assert second.take_notices([track], "w2", after(121)) == [False]
    assert second.due_notices("oncall", after(119)) == []


def test_many_workers_take_each_track_once(store: Store, second: Store) -> None:
    """With real locks, in both directions of a race."""
    for number in range(20):
        troubled(store, f"job_{number}")
    store.begin_notices("oncall", store.untold(ALL), T0)
    tracks = store.due_notices("oncall", T0)
    taken: list[list[bool]] = []
    barrier = threading.Barrier(2)

    def take(side: Store, who: str) -> None:
        barrier.wait()
        taken.append([side.take_notices([track], who, after(120))[0] for track in tracks])

    threads = [threading.Thread(target=take, args=one) for one in ((store, "w1"), (second, "w2"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one != other for one, other in zip(*taken, strict=True)] == [True] * 20


def test_what_a_dead_worker_took_is_due_again(store: Store, second: Store) -> None:
    """At least once; and should the dead one speak after all, its word no longer counts."""
    track = begun(store)
    store.take_notices([track], "w1", after(120))
    (again,) = second.due_notices("oncall", after(120))
    assert again == replace(track, state=TrackState.SENDING, due_at=after(120))
    assert second.take_notices([again], "w2", after(240)) == [True]
    assert store.settle_notices([settled(track)], after(120)) == 0
    assert second.settle_notices([settled(again)], after(240)) == 1
    assert second.due_notices("oncall", after(9_999)) == []


def test_what_became_of_it_is_written_down(store: Store) -> None:
    """Everything that the rules want to know next time."""
    track = begun(store)
    store.take_notices([track], "w1", after(120))
    one = Settled(track, TrackState.FAILED, after(15), Severity.HIGH, 2, 3, after(-9), "refused\u0301")
    assert store.settle_notices([one], after(120)) == 1
    assert store.notices_of(track.subject) == [
        replace(
            track,
            state=TrackState.FAILED,
            due_at=after(15),
            severity=Severity.HIGH,
            rounds=2,
            attempts=3,
            sent_at=after(-9),
            last_error="refused\u0301",
        )
    ]


def test_an_acknowledgement_has_what_was_told_looked_at_again(store: Store) -> None:
    """So that its lapse is noticed; what is still to be told is due anyway."""
    track = begun(store)
    store.review_notices(track.subject, after(5))
    assert store.notices_of(track.subject)[0].due_at == T0
    store.settle_notices([settled(track)])
    store.review_notices(track.subject, after(5))
    assert store.notices_of(track.subject)[0].due_at == after(5)


def test_targets_that_owe_a_success_are_named(store: Store) -> None:
    """`doctor` shows them, with how long it has been going on."""
    track = begun(store)
    assert store.failing_notices(["oncall", "chat"]) == []
    failed = settled(track, state=TrackState.FAILED, due_at=after(15), attempts=3, last_error="no answer")
    store.settle_notices([failed])
    (found,) = store.failing_notices(["oncall", "chat"])
    assert (found.target, found.notices, found.attempts, found.since) == ("oncall", 1, 3, T0)
    assert found.last_error == "no answer"
    assert store.failing_notices(["chat"]) == []
    assert store.failing_notices([]) == []


def test_recording_events_touches_no_outbox(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hot path pays nothing for notices."""
    operation = troubled(store, "job_1")
    seen: list[str] = []
    prepared = type(store.database.tongue).compile

    def spy(tongue: object, construct: object) -> object:
        seen.append(str(construct))
        return prepared(tongue, construct)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store.database.tongue), "compile", spy)
    store.database._known.clear()
    store.record_many([write(operation, e.Acknowledged("ana"), actor=ANA)])
    assert seen
    assert not [text for text in seen if "notice" in text]


@pytest.mark.parametrize("read", [lambda store: store.untold(ALL), lambda store: store.due_notices("oncall", T0)])
def test_a_sweep_of_a_quiet_ledger_writes_nothing(store: Store, read: Callable[[Store], list[object]]) -> None:
    """A write every five seconds would wake every worker and console."""
    begun(store)
    store.settle_notices([settled(track) for track in store.due_notices("oncall", T0)])
    store.database.read_only = True
    assert read(store) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(["unknown_state", "contract_violation", "awaiting_approval", "provider_paused"])))
def test_the_two_ways_to_ask_agree(store: Store, codes: set[str]) -> None:
    """Asking for some codes finds what asking for all finds of them."""
    if not store.queries.attentions():
        troubled(store, "job_1")
        violated(store, "job_2")
        opened(store, approvals_needed=1)
        store.pause_provider("reports", "w1", "401", T0)
    everything = store.untold(ALL)
    assert {code for _, code, _ in everything} == {
        "unknown_state", "contract_violation", "awaiting_approval", "provider_paused",
    }  # fmt: skip
    some = store.untold(replace(ALL, codes=frozenset(codes)))
    assert sorted(some) == sorted(one for one in everything if one[1] in codes)
