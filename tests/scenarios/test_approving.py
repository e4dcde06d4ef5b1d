"""Approvals: nothing on the wire before, exactly what was approved after, and two people at once. B50 and B52."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from opledger import Ledger
from opledger.edges.place import here
from opledger.errors import OpledgerError, Refused
from opledger.rules.model import Operation, State
from opledger.store import Changed, restore_guards
from tests.scenarios.stage import Stage

ONE = "[[policy]]\nwhen = 'operation.body.rows > 2'\nexpires = \"4h\"\n"
TWO = ONE + "approvals = 2\n"


def asked(stage: Stage, policy: str = ONE, **body: Any) -> Operation:
    """An operation that waits for approval."""
    stage.policies(policy)
    operation = stage.submit(**body)
    assert operation.state is State.AWAITING_APPROVAL
    return operation


def test_nothing_is_on_the_wire_before_the_quorum(stage: Stage) -> None:
    """One of two approvals is none; the second one lets it go, once."""
    operation = asked(stage, TWO)
    stage.run(600)
    stage.ledger.approve(operation.operation_id, reason="fine", by="ana")
    with pytest.raises(Refused, match="Ana has approved"):
        stage.ledger.approve(operation.operation_id, reason="fine", by="Ana")
    stage.run(600)
    assert stage.wire() == []
    stage.ledger.approve(operation.operation_id, reason="fine too", by="jo")
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.wire("create")) == 1
    stage.honest()


@pytest.mark.parametrize("given", [0, 1])
def test_what_is_not_approved_in_time_is_never_sent(stage: Stage, given: int) -> None:
    """It lapses also where half of the approvals were there, and where no worker ran at the time."""
    operation = asked(stage, TWO)
    if given:
        stage.ledger.approve(operation.operation_id, reason="fine", by="ana")
    stage.passes(4 * 3600 + 1)
    with pytest.raises(Refused):
        stage.ledger.approve(operation.operation_id, reason="fine", by="jo")
    stage.run()
    stage.on(operation)
    assert stage.show(operation).state is State.REJECTED
    (lapsed,) = [one for one in stage.ledger.events(operation.operation_id) if one.kind == "ApprovalExpired"]
    assert lapsed.actor_kind == "policy"
    assert stage.wire() == []


def test_every_event_says_where_its_actor_was(stage: Stage) -> None:
    """The operator's desk, and the worker's machine and process (issue 6, "Who")."""
    operation = asked(stage, ONE)
    stage.ledger.approve(operation.operation_id, reason="fine", by="ana")
    stage.run()
    events = stage.ledger.events(operation.operation_id)
    assert {event.actor_kind for event in events} == {"agent", "human", "worker"}
    assert {(event.host, event.process) for event in events} == {tuple(here())}


def test_a_rejected_request_is_never_sent(stage: Stage) -> None:
    """And whoever comes later hears who decided."""
    operation = asked(stage)
    stage.ledger.reject(operation.operation_id, reason="too dear", by="jo")
    stage.on(operation)
    assert stage.wire() == []
    with pytest.raises(Refused, match="rejected by jo"):
        stage.ledger.approve(operation.operation_id, reason="fine", by="ana")


@pytest.mark.parametrize("verdicts", [("approve", "reject"), ("approve", "approve"), ("reject", "cancel")])
def test_of_two_deciders_at_once_one_wins_and_the_other_hears_who(stage: Stage, verdicts: tuple[str, str]) -> None:
    """Each has a connection of their own, and both press the key in the same moment."""
    operation = asked(stage)
    start = threading.Barrier(2)
    outcomes: dict[str, Operation | OpledgerError] = {}

    def decide(name: str, verdict: str) -> None:
        with Ledger.open(settings=stage.ledger.settings, clock=stage.clock) as ledger:
            start.wait(20)
            try:
                outcomes[name] = getattr(ledger, verdict)(operation.operation_id, reason="my view", by=name)
            except OpledgerError as error:
                outcomes[name] = error

    people = [threading.Thread(target=decide, args=pair) for pair in zip(("ana", "jo"), verdicts, strict=True)]
    for person in people:
        person.start()
    for person in people:
        person.join(30)
    won = {name for name, outcome in outcomes.items() if isinstance(outcome, Operation)}
    (loser,) = set(outcomes) - won
    (winner,) = won
    assert isinstance(outcomes[loser], Refused)
    if verdicts[1] != "cancel" or loser == "ana":
        assert winner in str(outcomes[loser])
    decisions = [kind for kind in stage.kinds(operation) if kind in ("Approved", "Rejected", "Withdrawn")]
    assert len(decisions) == 1
    stage.run()
    sent = decisions == ["Approved"]
    assert len(stage.wire("create")) == (1 if sent else 0)
    assert stage.show(operation).state is {
        "Approved": State.SUCCEEDED, "Rejected": State.REJECTED, "Withdrawn": State.WITHDRAWN,
    }[decisions[0]]  # fmt: skip


CHANGES = {
    "asked": "UPDATE request SET asked = CAST(replace(CAST(asked AS TEXT), 'acct_218', 'acct_666') AS BLOB)",
    "body": "UPDATE request SET body = CAST(replace(CAST(body AS TEXT), 'acct_218', 'acct_666') AS BLOB)",
    "url": "UPDATE request SET url = replace(url, '/v1/jobs', '/guarded/jobs')",
    "method": "UPDATE request SET method = 'PUT'",
    "headers": "UPDATE request SET headers = replace(headers, 'idem_', 'idem-')",
    "another header": "UPDATE request SET headers = replace(headers, '[[', '[[\"X-Account\",\"acct_666\"],[')",
    "content_type": "UPDATE request SET content_type = 'text/plain'",
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_a_request_that_was_changed_after_the_approval_is_not_sent(stage: Stage, what: str) -> None:
    """Somebody takes the guard away and edits the stored request: what leaves is what was approved, or nothing."""
    operation = asked(stage)
    stage.ledger.approve(operation.operation_id, reason="fine", by="ana")
    statement = CHANGES[what]
    if not stage.url.startswith("sqlite") and "CAST" in statement:
        statement = (
            f"UPDATE request SET {what} = "
            f"convert_to(replace(convert_from({what}, 'UTF8'), 'acct_218', 'acct_666'), 'UTF8')"
        )
    before = stage.ledger.store.request_of(operation.operation_id)
    on = "" if stage.url.startswith("sqlite") else " ON request"
    stage.sql(f"DROP TRIGGER request_no_update{on}")
    stage.sql(statement)
    restore_guards(stage.url)  # and puts the guard back, so that nothing shows
    assert stage.ledger.store.request_of(operation.operation_id) != before
    stage.run(60)
    assert stage.wire() == []
    (reason,) = stage.ledger.store.paused().values()
    assert operation.operation_id in reason
    assert "is not sent" in reason
    stage.ledger.resume_provider("sim", reason="let us see")
    stage.run(60)
    assert stage.wire() == []
    stage.ledger.cancel(operation.operation_id, reason="take it back")
    assert stage.show(operation).state is State.WITHDRAWN


def test_an_approval_does_not_carry_over_to_another_body(stage: Stage) -> None:
    """The near-identical operation needs an approval of its own."""
    operation = asked(stage)
    stage.ledger.approve(operation.operation_id, reason="fine", by="ana")
    other = stage.submit(rows=4, wish={"supersedes": operation.operation_id})
    assert other.state is State.AWAITING_APPROVAL
    stage.run()
    assert stage.wire("create", other) == []


# --- B52 the row under the cursor changed -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["approve", "reject", "cancel"])
def test_b52_a_decision_on_a_record_that_moved_on_does_nothing_and_says_so(stage: Stage, verb: str) -> None:
    """Actions are tied to the operation and the version that was looked at, not to a row on a screen."""
    operation = asked(stage)
    others = [stage.submit(rows=3 + number) for number in range(3)]
    stage.ledger.note(operation.operation_id, "wait, is this right?", by="jo")
    act = getattr(stage.ledger, verb)
    with pytest.raises(Changed, match=r"Noted by jo.*look again"):
        act(operation.operation_id, reason="fine", by="ana", expected_version=operation.version)
    assert {stage.show(op).state for op in (operation, *others)} == {State.AWAITING_APPROVAL}
    stage.run(60)
    assert stage.wire() == []
    act(operation.operation_id, reason="fine", by="ana", expected_version=stage.show(operation).version)
    assert stage.show(operation).state is not State.AWAITING_APPROVAL
    assert {stage.show(op).state for op in others} == {State.AWAITING_APPROVAL}


def test_b52_a_cancel_of_a_job_that_has_ended_meanwhile_does_nothing(stage: Stage) -> None:
    """Between the look and the key press the job finished."""
    operation = stage.until_state(stage.submit(_seconds=30), State.OBSERVING)
    stage.run()
    with pytest.raises(Refused):
        stage.ledger.cancel(operation.operation_id, reason="stop", expected_version=operation.version)
    assert stage.wire("cancel") == []


# --- B50 square brackets in the data killed the screen ----------------------------------------------------------------

HOSTILE = [
    "[0]",
    "[/path]",
    "[bold red]x",
    "[@click=app.quit]go[/]",
    "[unclosed",
    "back\\slash\\",
    "\x1b[31mred",
    "\u202ertl",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_b50_outside_text_is_data_everywhere(file_stage: Stage, text: str) -> None:
    """As account, reason, status word and error: kept as it came, and every view of it can be made."""
    stage = file_stage
    operation = stage.until_state(stage.submit(account=text, _seconds=3600), State.OBSERVING)
    document = {"state": text, "error": {"code": text, "message": text}}
    stage.sim.control(job={"id": operation.remote_job_id, "document": document})
    stage.until(operation, lambda op: op.remote_state is not None and op.remote_state not in ("queued", "running"))
    found = stage.show(operation)
    assert (found.state, found.remote_state) == (State.OBSERVING, text)
    stage.ledger.note(operation.operation_id, text)
    stage.ledger.cancel(operation.operation_id, reason=text)
    assert stage.ledger.explain(operation.operation_id) is not None
    assert stage.ledger.packet(operation.operation_id)
    assert stage.ledger.body_of(found)["account"] == text
    stage.sim.control(job={"id": operation.remote_job_id, "state": "cancelled"})
    stage.run()
    assert len(stage.wire("cancel")) == 1


def test_b50_a_hostile_provider_is_driven_to_the_honest_end(stage: Stage) -> None:
    """Escape bytes, markup in the job id, huge and wrong-typed values, NaN and duplicate keys."""
    operation = stage.submit("hostile", _polls=12)
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert "[@click=app.quit]" in str(found.remote_job_id)
    stage.honest()
