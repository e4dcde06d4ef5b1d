"""What people decide in the console reaches the ledger once, bound to what they saw, or is refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from opledger.errors import Refused, StoreUnavailable, UsageError
from opledger.rules import evidence as e
from opledger.rules.model import Operation, State
from opledger_console.desk import Desk, child, deeds
from opledger_console.verdicts import Verdict
from tests.core.ledgers import LOST, Home, accepted, happens, observed, sent

APPROVAL = """
[[policy]]
when = 'operation.body.rows < 10'
approvals = 2
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger of the test's own."""
    return Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    """A desk at which ana sits."""
    desk = Desk(home.settings(APPROVAL), read_only=False, drive=False)
    yield desk
    desk.close()


def wish(desk: Desk, rows: int = 5) -> Operation:
    """Submit something; under ten rows it needs two approvals."""
    return desk.ledger.submit("jobs", {"rows": rows}, requested_by="agent-7")


def running(desk: Desk) -> Operation:
    """Something that runs."""
    return happens(desk.ledger, wish(desk, 20), sent(), accepted(), observed())


def test_an_approval_is_bound_to_what_was_shown(desk: Desk) -> None:
    """The first of two leaves it waiting, and says so; another fingerprint approves nothing."""
    op = wish(desk)
    shown, review = deeds.review_of(desk, op.operation_id)
    assert review["fingerprint"] == op.request_fingerprint
    other = Verdict("approve", op.operation_id, shown.version, "ok", fingerprint="sha256:" + "0" * 64)
    assert deeds.carry_out_one(desk, other).done is False
    done = deeds.carry_out_one(
        desk, Verdict("approve", op.operation_id, shown.version, "ok", fingerprint=review["fingerprint"])
    )
    assert (done.done, "1 of 2" in done.words) == (True, True)
    assert len(desk.ledger.show(op.operation_id).approvals) == 1


def test_an_approval_that_must_be_signed_is_shown_and_refused_with_the_command(home: Home) -> None:
    """Ssh-keygen asks at a terminal; the console has ours. It says what to run instead."""
    toml = "[audit]\nallowed_signers = 'signers'\n" + APPROVAL + "signed = true\n"
    desk = Desk(home.settings(toml), read_only=False, drive=False)
    (home.root / "signers").write_text("# nobody yet\n")
    (home.root / "signers").chmod(0o600)
    try:
        op = wish(desk)
        shown, review = deeds.review_of(desk, op.operation_id)
        assert review["signed"]
        deed = deeds.carry_out_one(
            desk, Verdict("approve", op.operation_id, shown.version, "ok", fingerprint=review["fingerprint"])
        )
        assert deed.done is False
        assert f"opledger approve {op.operation_id}" in deed.words
        (ahead,) = deeds.prospects(desk, [op.operation_id], "approve")
        assert (ahead.eligible, "--sign" in ahead.because) == (False, True)
        assert desk.ledger.show(op.operation_id) == op
    finally:
        desk.close()


def test_a_record_that_moved_is_not_decided(desk: Desk) -> None:
    """Somebody was faster: nothing is written, and the sentence says what happened."""
    op = wish(desk)
    desk.ledger.reject(op.operation_id, reason="no", by="jo")
    deed = deeds.carry_out_one(desk, Verdict("reject", op.operation_id, op.version, "not needed"))
    assert deed.done is False
    assert "jo" in deed.words
    assert "jo" in (deeds.moved(desk, op.operation_id, op.version) or "")


def test_a_cancel_holds_although_a_worker_looked_meanwhile(desk: Desk) -> None:
    """A busy job is read all the time; that is no reason to ask the operator again."""
    op = running(desk)
    facts = deeds.cancel_facts(desk, op.operation_id)
    assert (facts.withdraws, facts.sends is not None, facts.others) == (False, True, ())
    happens(desk.ledger, op, observed("still running"))
    assert deeds.moved(desk, op.operation_id, op.version) is None
    deed = deeds.carry_out_one(desk, Verdict("cancel", op.operation_id, op.version, "stop it", effect="it ends"))
    assert deed.done is True
    assert "cancellation requested" in deed.words
    assert desk.ledger.show(op.operation_id).state is State.CANCEL_REQUESTED


def test_what_was_never_sent_is_withdrawn(desk: Desk) -> None:
    """And the words say that nothing ever left."""
    op = wish(desk, 20)
    assert deeds.cancel_facts(desk, op.operation_id).withdraws
    deed = deeds.carry_out_one(desk, Verdict("cancel", op.operation_id, op.version, "not wanted"))
    assert "withdrawn" in deed.words


def test_the_same_decision_twice_is_one(desk: Desk) -> None:
    """Two presses, two threads: the second finds it done, and says so."""
    op = running(desk)
    verdict = Verdict("cancel", op.operation_id, op.version, "stop it")
    assert deeds.carry_out_one(desk, verdict).done is True
    again = deeds.carry_out_one(desk, verdict)
    events = [event.kind for event in desk.ledger.events(op.operation_id)]
    assert events.count("CancelRequested") == 1
    assert "before" in again.words


def test_a_violation_shows_what_contradicts(desk: Desk) -> None:
    """Both answers, each with its title; the choices are those of the ledger."""
    op = happens(desk.ledger, wish(desk, 20), sent(), accepted())
    happens(desk.ledger, op, e.IdentityChanged(why="answered for another", jobs=("job_7", "job_8")))
    found = deeds.choices_of(desk, op.operation_id)
    assert [option.choice.value for option in found.options] == ["keep", "cancel", "close"]
    assert len(found.answers) == 2
    deed = deeds.carry_out_one(
        desk, Verdict("resolve", op.operation_id, found.operation.version, "seen", choice="keep", job="job_7")
    )
    assert deed.done is True
    assert desk.ledger.show(op.operation_id).state is State.OBSERVING


def test_an_unknown_create_is_resolved_or_acknowledged(desk: Desk) -> None:
    """An acknowledgement lapses; a note and a read change nothing else."""
    op = happens(desk.ledger, wish(desk, 20), *LOST)
    for verdict in (
        Verdict("acknowledge", op.operation_id, op.version, "on it", until=timedelta(hours=1)),
        Verdict("note", op.operation_id, None, "asked support"),
    ):
        assert deeds.carry_out_one(desk, verdict).done is True
    after = desk.ledger.show(op.operation_id)
    assert (after.state, after.acknowledged_by) == (State.CREATE_UNKNOWN, "ana")
    closed = Verdict("resolve", op.operation_id, after.version, "nobody needs it", choice="close")
    assert deeds.carry_out_one(desk, closed).done is True
    assert desk.ledger.show(op.operation_id).state is State.RESOLVED


def test_a_provider_is_paused_and_resumed_by_name(desk: Desk) -> None:
    """Twice is refused, in words."""
    wish(desk)
    assert deeds.carry_out_one(desk, Verdict("pause", "jobs", None, "maintenance")).done is True
    assert deeds.carry_out_one(desk, Verdict("pause", "jobs", None, "maintenance")).done is False
    assert deeds.carry_out_one(desk, Verdict("resume", "jobs", None, "over")).done is True


def test_an_agent_decides_nothing(home: Home) -> None:
    """The rule is the ledger's: an operator with an agent's name is refused, whatever the screen offers."""
    desk = Desk(home.settings(APPROVAL, operator="agent-7"), read_only=False, drive=False)
    try:
        op = wish(desk)
        deed = deeds.carry_out_one(desk, Verdict("approve", op.operation_id, op.version, "me"))
        assert deed.done is False
        assert "agent" in deed.words
    finally:
        desk.close()


def test_read_only_refuses_everything(home: Home, desk: Desk) -> None:
    """Also what no key leads to."""
    op = wish(desk)
    looking = Desk(home.settings(APPROVAL), read_only=True, drive=True)
    try:
        assert looking.overview().mode == "READ-ONLY"
        for ask in (deeds.review_of, deeds.cancel_facts, deeds.choices_of):
            with pytest.raises(Refused, match="read-only"):
                ask(looking, op.operation_id)
        with pytest.raises(Refused, match="read-only"):
            deeds.carry_out_one(looking, Verdict("note", op.operation_id, None, "x"))
    finally:
        looking.close()
    assert desk.ledger.show(op.operation_id).version == op.version


def test_nothing_to_decide_is_said(desk: Desk) -> None:
    """A key that was pressed on something that has moved on says what it is now."""
    op = running(desk)
    for ask in (deeds.review_of, deeds.choices_of):
        with pytest.raises(Refused, match="observing"):
            ask(desk, op.operation_id)
    ended = wish(desk, 30)
    desk.ledger.cancel(ended.operation_id, reason="no")
    with pytest.raises(Refused):
        deeds.cancel_facts(desk, ended.operation_id)


def test_who_may_not_approve_hears_it_before_anything_is_shown(home: Home) -> None:
    """The requester under four eyes, and who has approved already."""
    desk = Desk(home.settings(APPROVAL, operator="ana"), read_only=False, drive=False)
    try:
        op = desk.ledger.submit("jobs", {"rows": 5}, requested_by="ana")
        with pytest.raises(Refused, match="four eyes"):
            deeds.review_of(desk, op.operation_id)
        other = wish(desk)
        desk.ledger.approve(other.operation_id, reason="fine")
        with pytest.raises(Refused, match="already"):
            deeds.review_of(desk, other.operation_id)
        assert deeds.review_of(desk, other.operation_id, "reject")[0].state is State.AWAITING_APPROVAL
    finally:
        desk.close()


def test_a_reason_that_fills_a_disk_is_refused(desk: Desk) -> None:
    """Events are never removed: a pasted log is no reason."""
    op = wish(desk, 20)
    with pytest.raises(UsageError, match="for good"):
        desk.ledger.note(op.operation_id, "x" * 100_000)


def test_a_worker_that_ends_at_once_is_told_with_its_last_words(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not "starting" for ever: nothing is driven, and why."""
    monkeypatch.setattr(child, "AGAIN", timedelta())
    desk = Desk(home.settings(), read_only=False, drive=True)
    desk._child = child.ChildWorker(replace(desk.settings, database=f"sqlite:///{home.root}"))
    try:
        assert desk.overview().driver == "starting a worker"
        process = desk._child._process
        assert process is not None
        assert process.wait(30) != 0
        said = desk.overview().driver
        assert said.startswith("NO WORKER: the one started here ended (exit 5")
    finally:
        desk.close()


def test_of_many_the_one_under_way_is_in_doubt_when_the_database_goes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost answer is no "no": what was decided stays, the one under way is not known, the rest was not begun."""
    first, second, third = (wish(desk, rows) for rows in (21, 22, 23))
    real, calls = desk.ledger.cancel, []

    def cancel(operation: str, **how: object) -> Operation:
        calls.append(operation)
        done = real(operation, **how)  # type: ignore[arg-type]
        if len(calls) == 2:
            raise StoreUnavailable("it broke during a commit")
        return done

    monkeypatch.setattr(desk.ledger, "cancel", cancel)
    targets = [(op.operation_id, op.version) for op in (first, second, third)]
    outcomes = deeds.carry_out_many(desk, targets, "cancel", "not wanted", lambda _: None)
    assert outcomes[0].error is None
    assert "nobody knows whether it was recorded" in str(outcomes[1].error)
    assert "not begun" in str(outcomes[2].error)
    assert desk.ledger.show(second.operation_id).state is State.WITHDRAWN  # as it happened to be
    assert desk.ledger.show(third.operation_id).state is State.CREATE_PENDING
