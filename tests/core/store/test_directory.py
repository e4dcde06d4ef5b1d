from __future__ import annotations

from datetime import timedelta

import pytest

from opledger.errors import UnknownOperation
from opledger.store import Provider, Store, WorkerLife
from tests.core.store.making import CONTRACT, T0, after, claim, opened


def test_a_pinned_contract_is_kept_word_for_word(store: Store) -> None:
    """An operation is driven by the text it was approved under, whatever the file says today."""
    store.pin_contract(CONTRACT)  # again: nothing happens
    assert store.contract_source(CONTRACT.digest) == (CONTRACT.source, CONTRACT.environment)
    assert store.contract_source("sha256:none") is None


@pytest.mark.parametrize("name", ["op_nobody", "op\0", "op\ud800"])
def test_there_is_no_request_of_nobody(store: Store, name: str) -> None:
    """Whatever is asked for, the answer is a sentence."""
    with pytest.raises(UnknownOperation, match="check the id"):
        store.request_of(name)


def test_workers_are_known_by_their_signs_of_life(store: Store) -> None:
    """`started` is when it first was heard of, the rest is its latest word."""
    store.heartbeat("w1", "host", 4711, T0)
    store.heartbeat("w2", "host", 4712, T0, started=after(-60))
    store.heartbeat("w1", "host", 4711, after(2), lateness=timedelta(milliseconds=3))
    assert store.workers() == [
        WorkerLife("w1", "host", 4711, T0, after(2), timedelta(milliseconds=3)),
        WorkerLife("w2", "host", 4712, after(-60), T0, timedelta(0)),
    ]


def test_the_dead_are_forgotten_after_a_day(store: Store) -> None:
    """Every start has a name of its own; the list must not grow for ever."""
    store.heartbeat("w1", "host", 1, T0)
    store.heartbeat("w2", "host", 2, after(86_400))
    assert [life.name for life in store.workers()] == ["w1", "w2"]
    store.heartbeat("w2", "host", 2, after(86_402))
    assert [life.name for life in store.workers()] == ["w2"]


def test_a_worker_that_signs_off_leaves_nothing_behind(store: Store) -> None:
    """Its leases are free at once, and the list shows only the living."""
    opened(store, 2)
    store.heartbeat("w1", "host", 1, T0)
    claim(store, "w1", limit=1)
    claim(store, "w2", limit=1)
    store.farewell("w1")
    assert store.workers() == []
    assert [claimed.taken_from for claimed in claim(store, "w3")] == [None]


def test_a_provider_is_paused_once(store: Store) -> None:
    """The first reason stands, so that a worker's automatic pause cannot hide an operator's."""
    assert store.paused() == {}
    assert store.pause_provider("reports", "ana", "their night", T0)
    assert not store.pause_provider("reports", "w1", "401", after(1))
    assert store.paused() == {"reports": "their night"}
    assert store.providers() == [Provider("reports", "paused", "ana", "their night", T0)]


def test_a_provider_is_resumed_once(store: Store) -> None:
    """Who opened it again, and why, stays to be seen."""
    assert not store.resume_provider("reports", "jo", "nothing to do", T0)
    store.pause_provider("reports", "ana", "their night", T0)
    assert store.resume_provider("reports", "jo", "morning", after(5))
    assert not store.resume_provider("reports", "jo", "again", after(6))
    assert store.paused() == {}
    assert store.providers() == [Provider("reports", "open", "jo", "morning", after(5))]
    assert store.pause_provider("reports", "ana", "once more", after(7))


def test_every_provider_is_listed_with_what_is_open(store: Store) -> None:
    """Also those that were never paused, and those without operations."""
    opened(store, 2)
    store.pause_provider("payouts", "ana", "audit", T0)
    opened(store, 1, contract="payouts")
    assert store.providers() == [
        Provider("payouts", "paused", "ana", "audit", T0, open_operations=1),
        Provider("reports", "open", open_operations=2),
    ]
