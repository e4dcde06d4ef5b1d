from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import repeat

import pytest

from opledger import Ledger
from opledger.config import UnknownContract
from opledger.errors import ConfigWrong, DatabaseReplaced, Refused, StoreUnavailable, UnknownOperation, UsageError
from opledger.ledger import WaitTimedOut, reading
from opledger.rules import evidence as e
from opledger.rules.model import Operation, State
from opledger.rules.reach import Tally
from opledger.store.encoding import to_micros
from opledger.store.reach import Report
from opledger.store.values import Aside
from tests.core.ledgers import BODY, FAILED, LOST, RUNNING, VIOLATED, Home, happens, observed, sent
from tests.fakes.clock import HandClock

# --- looking ---------------------------------------------------------------------------------------------------------


def test_the_last_characters_name_an_operation(ledger: Ledger) -> None:
    """People see eight characters and may type more."""
    op = ledger.submit("jobs", BODY)
    for text in (op.operation_id, op.operation_id[-8:], op.operation_id[-8:].lower(), op.operation_id[-12:]):
        assert ledger.show(text) == op
    for text in ("", "op_", op.operation_id[-7:], "!" + op.operation_id[-8:], op.operation_id[:-1]):
        with pytest.raises(UnknownOperation):
            ledger.show(text)


def test_an_ending_that_several_share_is_refused(ledger: Ledger) -> None:
    """Deciding about the wrong one would be worse than typing more."""
    for name in ("op_one_12345678", "op_two_12345678"):
        ledger.submit("jobs", BODY, operation_id=name)
    with pytest.raises(Refused, match=r"op_one_12345678.*op_two_12345678"):
        ledger.show("12345678")
    assert ledger.show("two_12345678").operation_id == "op_two_12345678"


def test_history_is_the_events_that_changed_the_state(ledger: Ledger) -> None:
    """Everything else stays in the journal."""
    op = happens(ledger, ledger.submit("jobs", BODY, requested_by="agent-7"), *RUNNING, observed(), *FAILED[-1:])
    steps = [(event.from_state, event.to_state, event.kind) for event in ledger.history(op.operation_id)]
    assert steps == [
        (None, "create_pending", "Submitted"),
        ("create_pending", "accepted", "Accepted"),
        ("accepted", "observing", "Observed"),
        ("observing", "failed", "Observed"),
    ]
    whole = ledger.events(op.operation_id)
    assert [event.seq for event in whole] == [1, 2, 3, 4, 5, 6]
    assert [event.prev_hash for event in whole[1:]] == [event.hash for event in whole[:-1]]
    assert whole[-1].hash == op.head_hash


def test_pages_go_on_behind_an_operation(ledger: Ledger) -> None:
    """Newest first, and nothing twice."""
    ids = [ledger.submit("jobs", {"rows": n}).operation_id for n in range(5)]
    first = ledger.list(limit=2)
    second = ledger.list(limit=2, after=first[-1].operation_id)
    third = ledger.list(limit=2, after=second[-1].operation_id)
    assert [op.operation_id for op in (*first, *second, *third)] == ids[::-1]
    with pytest.raises(UsageError):
        ledger.list(states=["running"])
    with pytest.raises(UsageError):
        ledger.list(limit=0)


def test_an_explanation_knows_workers_and_pauses(file_home: Home) -> None:
    """The two commonest reasons why nothing moves."""
    with file_home.ledger() as ledger:
        op = ledger.submit("jobs", BODY)
        assert ledger.explain(op.operation_id).blocked_by is not None
        ledger.store.heartbeat("w1", "host", 1, ledger.clock.now())
        assert ledger.explain(op.operation_id).blocked_by is None
        ledger.pause_provider("jobs", reason="they have an outage")
        found = ledger.explain(op.operation_id)
        assert found.blocked_by is not None
        assert found.blocked_by.code == "provider_paused"
        assert "outage" in found.blocked_by.reason
        ledger.resume_provider("jobs", reason="over")
        assert ledger.explain(op.operation_id).blocked_by is None


def test_an_explanation_knows_who_leaves_a_provider_to_others(file_home: Home) -> None:
    """It is due, workers are alive, and none of them has a way to the provider; the doctor names each of them."""
    with file_home.ledger() as ledger:
        op, now = ledger.submit("jobs", BODY), ledger.clock.now()
        aside = Aside("jobs", now, now + timedelta(minutes=1), "no route to host")
        for name in ("w1", "w2"):
            ledger.store.heartbeat(name, "host-9", 1, now)
        ledger.store.tell_reach([Report("jobs", Tally("w1", at=to_micros(now)), aside)], now)
        assert ledger.explain(op.operation_id).blocked_by is None
        (wrong,) = [check for check in ledger.doctor() if "no route" in check.message]
        assert (wrong.name, wrong.ok) == ("worker w1", False)
        assert "look at its host, host-9" in wrong.message
        ledger.store.tell_reach([Report("jobs", Tally("w2", at=to_micros(now)), aside)], now)
        found = ledger.explain(op.operation_id)
        assert found.blocked_by is not None
        assert (found.blocked_by.code, found.blocked_by.until) == ("no_worker_reaches", aside.until)
        assert "no route to host" in found.why


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_waiting_ends_when_another_process_ends_the_operation(home: Home) -> None:
    """An agent waits in one process while a worker works in another."""
    with home.ledger() as mine, home.ledger() as worker:
        op = mine.submit("jobs", BODY)
        other = threading.Thread(target=happens, args=(worker, op, *FAILED))
        other.start()
        assert mine.wait(op.operation_id, timeout=60).state is State.FAILED
        other.join()


@pytest.mark.parametrize(("story", "state"), [(LOST, State.CREATE_UNKNOWN), (VIOLATED, State.CONTRACT_VIOLATION)])
def test_waiting_ends_when_a_person_is_needed(ledger: Ledger, story: tuple[e.Evidence, ...], state: State) -> None:
    """Waiting on would be for ever."""
    op = happens(ledger, ledger.submit("jobs", BODY), *story)
    assert ledger.wait(op.operation_id, timeout=0).state is state


def test_waiting_goes_on_while_automation_does(ledger: Ledger) -> None:
    """An unknown create with a look-up ahead needs nobody yet."""
    op = happens(ledger, ledger.submit("jobs", BODY), *LOST[:2])
    with pytest.raises(WaitTimedOut, match="create_unknown") as caught:
        ledger.wait(op.operation_id, timeout=0)
    assert caught.value.operations == (op,)


def test_several_are_waited_for_together(file_home: Home) -> None:
    """The slowest decides, and the time to wait is for all of them."""
    with file_home.ledger(clock=HandClock(datetime.now(UTC))) as ledger:
        done = happens(ledger, ledger.submit("jobs", BODY), *FAILED)
        open_ = ledger.submit("jobs", {"rows": 6})
        assert ledger.wait_all([done.operation_id], 0) == (done,)
        with pytest.raises(WaitTimedOut) as caught:
            ledger.wait_all([done.operation_id, open_.operation_id], "0s")
        assert caught.value.operations == (done, open_)
        with pytest.raises(UnknownOperation):
            ledger.wait_all([done.operation_id, "op_nobody"])


def goes_away(monkeypatch: pytest.MonkeyPatch, ledger: Ledger, errors: Iterable[StoreUnavailable]) -> list[str]:
    """Have the database go once it was asked which operation is meant; returns how each question is answered."""
    real, left, seen = ledger.store.queries.get_many, iter(errors), list[str]()

    def flaky(ids: list[str]) -> list[Operation]:
        error = next(left, None) if seen else None
        seen.append("here" if error is None else "away")
        if error is not None:
            raise error
        return real(ids)

    monkeypatch.setattr(ledger.store.queries, "get_many", flaky)
    return seen


def test_waiting_outlasts_a_restart_of_the_database(file_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that waits for an hour must not have to know that somebody restarted a server meanwhile."""
    monkeypatch.setattr(reading, "AGAIN", 0.001)
    with file_home.ledger() as ledger:
        op = happens(ledger, ledger.submit("jobs", BODY), *FAILED)
        seen = goes_away(monkeypatch, ledger, [StoreUnavailable("away")] * 3)
        assert ledger.wait(op.operation_id, timeout=60) == op
        assert seen == ["here", "away", "away", "away", "here"]


@pytest.mark.parametrize(
    ("timeout", "patience", "error"),
    [
        (None, 0.0, StoreUnavailable("away")),
        (0, 60.0, StoreUnavailable("away")),
        (None, 60.0, DatabaseReplaced("gone")),
    ],
    ids=["away for too long", "the time is over", "another file lies there"],
)
def test_waiting_for_a_database_ends_too(
    file_home: Home,
    monkeypatch: pytest.MonkeyPatch,
    timeout: float | None,
    patience: float,
    error: StoreUnavailable,
) -> None:
    """Whoever asked is told that the database is away, instead of being left alone with it."""
    monkeypatch.setattr(reading, "AWAY", patience)
    with file_home.ledger() as ledger:
        op = ledger.submit("jobs", BODY)
        seen = goes_away(monkeypatch, ledger, repeat(error))
        with pytest.raises(type(error)):
            ledger.wait(op.operation_id, timeout=timeout)
        assert seen == ["here", "away"]


def test_a_read_that_was_asked_for_is_waited_for(file_home: Home) -> None:
    """`read` must not return what was known before."""
    with file_home.ledger() as ledger, file_home.ledger() as worker:
        op = happens(ledger, ledger.submit("jobs", BODY), *RUNNING)
        asked = ledger.ask_for_read(op.operation_id)
        assert asked.next is not None
        assert asked.next.at is not None
        assert asked.next.at <= ledger.clock.now()
        kinds = {"Observed", "ReadFailed"}
        assert ledger.last_event(op.operation_id, kinds, after_seq=asked.head_seq) is None
        with pytest.raises(WaitTimedOut, match="no worker"):
            ledger.wait_for_event(op.operation_id, kinds, after_seq=asked.head_seq, timeout=timedelta(microseconds=1))
        other = threading.Thread(target=happens, args=(worker, op, observed()))
        other.start()
        found = ledger.wait_for_event(op.operation_id, kinds, after_seq=asked.head_seq, timeout=60)
        other.join()
        assert found.head_seq == asked.head_seq + 1


# --- providers, health, opening --------------------------------------------------------------------------------------


def test_providers_are_paused_by_people_with_reasons(home: Home) -> None:
    """All calls to one provider stop, and everybody can see why."""
    with home.ledger() as ledger:
        ledger.submit("jobs", BODY)
        done = ledger.pause_provider("jobs", reason="outage", by="jo")
        assert (done.state, done.by, done.reason, done.open_operations) == ("paused", "jo", "outage", 1)
        with pytest.raises(Refused, match=r"by jo.*outage"):
            ledger.pause_provider("jobs", reason="again")
        with pytest.raises(Refused, match="agent"):
            ledger.resume_provider("jobs", reason="fine", by="agent-7")
        assert ledger.resume_provider("jobs", reason="over", by="ana").state == "open"
        with pytest.raises(Refused, match="not paused"):
            ledger.resume_provider("jobs", reason="over")
        with pytest.raises(UnknownContract):
            ledger.pause_provider("nowhere", reason="x")
        assert {provider.contract for provider in ledger.providers()} >= {"jobs", "airflow"}


def test_a_healthy_ledger_is_said_to_be(ledger: Ledger) -> None:
    """On a fresh machine nothing is wrong."""
    checks = {check.name: check for check in ledger.doctor()}
    assert all(check.ok for check in checks.values())
    assert {"database", "schema", "clocks", "contracts", "workers"} <= set(checks)


def test_what_is_wrong_is_found(file_home: Home) -> None:
    """A broken contract, work without a worker, a late worker, and a clock that goes wrong."""
    file_home.contract('name = "broken"\n', "broken")
    with file_home.ledger() as ledger:
        ledger.submit("jobs", BODY)
        wrong = {check.name for check in ledger.doctor() if not check.ok}
        assert wrong == {"contract broken", "workers"}
        ledger.store.heartbeat("w1", "h", 1, ledger.clock.now(), lateness=timedelta(seconds=20))
        assert {check.name for check in ledger.doctor() if not check.ok} == {"contract broken", "worker w1"}
    with file_home.ledger(clock=HandClock(datetime(2026, 1, 1, tzinfo=UTC))) as early:
        assert "clocks" in {check.name for check in early.doctor() if not check.ok}


def test_a_read_only_ledger_is_only_read(file_home: Home) -> None:
    """A console for onlookers changes nothing, whatever is pressed."""
    with file_home.ledger() as ledger:
        op = ledger.submit("jobs", BODY)
    with file_home.ledger(read_only=True) as looker:
        assert looker.list() == (op,)
        assert looker.explain(op.operation_id).operation == op
        for act in (
            lambda: looker.submit("jobs", BODY),
            lambda: looker.cancel(op.operation_id, reason="x"),
            lambda: looker.pause_provider("jobs", reason="x"),
        ):
            with pytest.raises(StoreUnavailable):
                act()


def test_a_ledger_opens_by_its_url_alone(file_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Ledger.open(url)` is all that an agent has to write."""
    monkeypatch.setenv("OPLEDGER_CONTRACTS", str(file_home.root / "contracts"))
    with Ledger.open(file_home.url) as ledger:
        op = ledger.submit("jobs", BODY)
    monkeypatch.setenv("OPLEDGER_DB", file_home.url)
    with Ledger.open() as ledger:
        assert ledger.show(op.operation_id) == op
    with pytest.raises(ConfigWrong):
        Ledger.open("mysql://somewhere/x")


def test_what_was_never_sent_cannot_be_read(ledger: Ledger) -> None:
    """Asking for a read of nothing is refused by the state machine, not by a crash."""
    op = ledger.submit("jobs", BODY)
    with pytest.raises(Refused):
        ledger.ask_for_read(op.operation_id)
    with pytest.raises(Refused, match="never sent"):
        ledger.check_readable(op)
    sent_out = happens(ledger, op, sent())
    ledger.check_readable(sent_out)
    ledger.pause_provider("jobs", reason="outage")
    with pytest.raises(Refused, match="outage"):
        ledger.check_readable(sent_out)
