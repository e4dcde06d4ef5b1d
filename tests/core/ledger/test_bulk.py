from __future__ import annotations

from typing import Any

import pytest

from opledger import Ledger
from opledger.errors import UsageError
from opledger.ledger.bulk import Decision, Outcome, Target, carry_out, freeze, preview
from opledger.rules.model import Means, State
from tests.core.ledgers import BODY, LOST, RUNNING, Home, happens, observed

TWO = """
[[policy]]
when = 'operation.body.rows > 3'
approvals = 2
"""


def states(outcomes: list[Outcome]) -> list[str | None]:
    """Where each operation stands; None where it was refused."""
    return [None if one.error or not one.operation else one.operation.state.value for one in outcomes]


def targets(ledger: Ledger, ids: tuple[str, ...], decision: Decision) -> list[Target]:
    """The frozen set as it was previewed."""
    found = preview(ledger, ids, decision)
    return [Target(one.operation_id, one.operation.version if one.operation else None) for one in found]


def test_a_set_is_frozen_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes in while somebody reads the preview was never looked at; and every page belongs to the set."""
    monkeypatch.setattr("opledger.ledger.bulk.PAGE", 2)
    with home.ledger() as ledger:
        ids = [ledger.submit("jobs", BODY, tags={"batch": "7"}).operation_id for _ in range(5)]
        ledger.submit("jobs", BODY, tags={"batch": "8"})
        frozen = freeze(ledger, tags={"batch": "7"})
        late = ledger.submit("jobs", BODY, tags={"batch": "7"}).operation_id
        assert frozen == tuple(reversed(ids))
        done = list(carry_out(ledger, targets(ledger, frozen, Decision("cancel", "x")), Decision("cancel", "x")))
        assert states(done) == ["withdrawn"] * 5
        assert ledger.show(late).state is State.CREATE_PENDING


def test_nobody_means_every_operation(ledger: Ledger) -> None:
    """A filter that was forgotten must not cancel the whole ledger."""
    ledger.submit("jobs", BODY)
    with pytest.raises(UsageError, match="which operations"):
        freeze(ledger)


def test_a_preview_says_what_would_be_and_writes_nothing(home: Home) -> None:
    """The same rules judge it that judge the act."""
    with home.ledger(TWO) as ledger:
        waits = ledger.submit("jobs", BODY, requested_by="agent-7")
        half = ledger.submit("jobs", BODY, requested_by="agent-7")
        ledger.approve(half.operation_id, reason="fine", by="jo")
        runs = happens(ledger, ledger.submit("jobs", {"rows": 1}), *RUNNING)
        before = [ledger.show(one.operation_id) for one in (waits, half, runs)]
        names = [one.operation_id for one in before]

        def told(decision: Decision) -> list[tuple[bool, str]]:
            return [(one.eligible, one.because) for one in preview(ledger, [*names, "op_nobody"], decision)]

        assert told(Decision("approve", "ok")) == [
            (True, "approval 1 of 2: it goes on waiting"),
            (True, "approval 2 of 2: it may then be sent"),
            (False, f"{runs.operation_id} needs no approval and is observing; there is nothing to approve"),
            (False, "there is no operation op_nobody in this ledger; check the id"),
        ]
        assert [one for one, _ in told(Decision("approve", "ok", by="agent-9"))] == [False] * 4
        assert told(Decision("reject", "no"))[0][1] == "it is rejected and never sent"
        cancels = told(Decision("cancel", "no"))
        assert cancels[0] == (True, "nothing was sent yet: it is withdrawn")
        assert cancels[2][1].startswith("a cancel is recorded and sent once")
        found = preview(ledger, names, Decision("cancel", "no"))
        assert [one.to for one in found] == [State.WITHDRAWN, State.WITHDRAWN, State.CANCEL_REQUESTED]
        assert [ledger.show(name) for name in names] == before


def test_a_choice_is_previewed_with_its_consequence(ledger: Ledger) -> None:
    """And a choice that is no word at all is nobody's outcome."""
    op = happens(ledger, ledger.submit("jobs", BODY), *LOST)
    (one,) = preview(ledger, [op.operation_id], Decision("resolve", "x", choice="close"))
    assert one.eligible
    assert one.because.startswith("Nobody will know whether it was created.")
    (other,) = preview(ledger, [op.operation_id], Decision("resolve", "x", choice="bind"))
    assert (other.eligible, "--job" in other.because) == (False, True)
    with pytest.raises(UsageError):
        preview(ledger, [op.operation_id], Decision("resolve", "x", choice="maybe"))


def test_what_changed_since_the_look_is_skipped_and_named(home: Home) -> None:
    """Each record is checked again in the moment of the act."""
    with home.ledger(TWO) as ledger:
        one, two = (ledger.submit("jobs", BODY, requested_by="agent-7").operation_id for _ in range(2))
        decision = Decision("reject", "too big")
        looked = targets(ledger, (one, two), decision)
        ledger.note(one, "wait, I am looking at this", by="jo")
        done = list(carry_out(ledger, looked, decision))
        assert states(done) == [None, "rejected"]
        assert done[0].error is not None
        assert done[0].error.code == "changed"
        assert "Noted by jo" in done[0].error.message


def test_a_status_read_in_between_changes_nothing(ledger: Ledger) -> None:
    """A worker polls all the time; only a state or a person's word makes a preview untrue."""
    op = happens(ledger, ledger.submit("jobs", BODY), *RUNNING)
    done = happens(ledger, ledger.submit("jobs", BODY), *RUNNING[:1])
    decision = Decision("cancel", "too slow")
    looked = targets(ledger, (op.operation_id, done.operation_id), decision)
    happens(ledger, op, observed("running"), observed("running"))
    happens(ledger, done, RUNNING[1].__class__(call_id="call_1", job_id="job_8"))
    outcomes = list(carry_out(ledger, looked, decision))
    assert states(outcomes) == ["cancel_requested", None]
    assert outcomes[1].error is not None
    assert "create_pending -> accepted" in outcomes[1].error.message


@pytest.mark.parametrize(
    ("decision", "ends"),
    [
        (Decision("approve", "fine", by="ana"), "awaiting_approval"),
        (Decision("reject", "too big", by="ana"), "rejected"),
        (Decision("cancel", "not needed", by="ana"), "withdrawn"),
    ],
)
def test_the_same_run_again_goes_on_where_it_stopped(file_home: Home, decision: Decision, ends: str) -> None:
    """What was decided so before is done, and nothing is written twice; another reason is another decision."""
    with file_home.ledger(TWO) as ledger:
        ids = [ledger.submit("jobs", BODY, requested_by="agent-7").operation_id for _ in range(3)]
        decision.on(ledger, ids[0])
        done = list(carry_out(ledger, [Target(name) for name in ids], decision))
        assert states(done) == [ends] * 3
        assert [one.done for one in done] == [True, False, False]
        assert len(ledger.events(ids[0])) == 2
        other = Decision(decision.verb, "something else", by="ana")
        assert all(one.error is not None for one in carry_out(ledger, [Target(name) for name in ids], other))
        found = preview(ledger, ids, decision)
        assert [(one.eligible, one.done) for one in found] == [(False, True)] * 3


def test_a_choice_made_before_is_done_only_if_it_is_the_same(ledger: Ledger) -> None:
    """Closing is not binding, and one job is not another."""
    op = happens(ledger, ledger.submit("jobs", BODY), *LOST)
    bind = Decision("resolve", "found it", choice="bind", job="job_9")
    how: list[dict[str, Any]] = [{}, {"job": "job_8"}, {"choice": "not-created", "job": None}]
    bind.on(ledger, op.operation_id)
    done = []
    for change in how:
        again = Decision("resolve", "found it", choice=change.get("choice", "bind"), job=change.get("job", "job_9"))
        done += [one.done for one in carry_out(ledger, [Target(op.operation_id)], again)]
    assert done == [True, False, False]


def test_one_refusal_stops_nobody(ledger: Ledger) -> None:
    """Also an id that nobody has is only its own refusal, though all are cancelled together."""
    runs = happens(ledger, ledger.submit("jobs", BODY), *RUNNING).operation_id
    ended = ledger.submit("jobs", BODY)
    happens(ledger, ended, *[RUNNING[0], RUNNING[1].__class__(call_id="call_1", job_id="job_2")])
    happens(ledger, ended, observed("failed", Means.FAILED, job="job_2"))
    names = ["op_nobody", ended.operation_id, runs]
    done = list(carry_out(ledger, [Target(name) for name in names], Decision("cancel", "x")))
    assert states(done) == [None, None, "cancel_requested"]
    assert [one.operation_id for one in done] == names
