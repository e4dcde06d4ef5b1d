"""The state machine against the law, cell by cell.

The law below is written from DESIGN §5, not from the table in `states.py`: every state with every kind of evidence,
in every shape of record that a guard could ask about.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pytest

from opledger.errors import IllegalTransition
from opledger.rules import evidence as e
from opledger.rules import states
from opledger.rules.model import (
    Action,
    Approval,
    CancelIntent,
    Choice,
    Deadline,
    Means,
    OpenCall,
    Operation,
    State,
)
from tests.support.records import FINGERPRINT, T0, a_permit, a_record, a_submission

# One line of the law: states | evidence | what must hold | where it leads ("=": the state stays).
# The first line that fits wins; where none fits, the evidence is refused and nothing is written.
LAW: Final = """
-                  | Submitted                | policy asks for approval            | awaiting_approval
-                  | Submitted                |                                     | create_pending

awaiting_approval  | Approved                 | counts & reaches quorum             | create_pending
awaiting_approval  | Approved                 | counts                              | =
awaiting_approval  | Rejected                 |                                     | rejected
awaiting_approval  | ApprovalExpired          |                                     | rejected
awaiting_approval  | Withdrawn                |                                     | withdrawn

create_pending     | Withdrawn                | never sent                          | withdrawn
create_pending     | Withdrawn                | cancel stands & idle & no duplicate | withdrawn
create_pending     | CallSent create          | idle & no cancel                    | =
create_pending     | Accepted                 | answers & names a job & names no other job | accepted
create_pending     | CompletedInline          | answers                             | result_collecting
create_pending     | Refused                  | answers & duplicate accepted        | create_unknown
create_pending     | Refused                  | answers & cancel stands             | withdrawn
create_pending     | Refused                  | answers                             | failed
create_pending     | NotDelivered             | answers                             | =
create_pending     | Throttled                | answers                             | =
create_pending     | CallLost                 | answers                             | create_unknown
create_pending     | Inconclusive             | idle & duplicate accepted & cancel stands | create_unknown
create_pending     | DeadlinePassed create    | idle & duplicate accepted           | create_unknown
create_pending     | DeadlinePassed create    | idle & cancel stands                | withdrawn
create_pending     | DeadlinePassed create    | idle                                | failed
create_pending     | CancelRequested          | sent                                | =

create_unknown     | CallSent reconcile       | idle                                | reconciliation
create_unknown     | Inconclusive             | nothing left to try                 | =
create_unknown     | DeadlinePassed create    |                                     | =
create_unknown     | CancelRequested          |                                     | =
create_unknown     | Decided bind             | names a job                         | accepted
create_unknown     | Decided not-created      |                                     | failed
create_unknown     | Decided resend           |                                     | create_pending
create_unknown     | Decided close            |                                     | resolved

reconciliation     | Accepted                 | answers & names a job & names no other job | accepted
reconciliation     | CompletedInline          | answers                             | result_collecting
reconciliation     | Refused                  | answers & cancel stands             | withdrawn
reconciliation     | Refused                  | answers                             | failed
reconciliation     | ProvenAbsent             | answers & cancel stands             | withdrawn
reconciliation     | ProvenAbsent             | answers                             | create_pending
reconciliation     | Inconclusive             | answers                             | create_unknown
reconciliation     | CancelRequested          |                                     | =

accepted observing | Observed                 | success                             | result_collecting
accepted observing | Observed                 | failure                             | failed
accepted observing | Observed                 | cancellation                        | cancelled
accepted           | Observed                 |                                     | observing
observing          | Observed                 |                                     | =
accepted observing | CancelRequested          |                                     | cancel_requested
accepted observing | DeadlinePassed result    |                                     | result_timed_out

cancel_requested cancelling cancellation_unconfirmed | Observed | success            | result_collecting
cancel_requested cancelling cancellation_unconfirmed | Observed | failure            | failed
cancel_requested cancelling cancellation_unconfirmed | Observed | cancellation       | cancelled
cancel_requested cancelling cancellation_unconfirmed | Observed |                    | =
cancel_requested cancelling | CallSent cancel         | idle                        | =
cancel_requested            | CancelAnswered          | answers                     | cancelling
cancel_requested            | CallLost                | answers                     | cancelling
cancelling                  | CancelAnswered          | answers                     | =
cancelling                  | CallLost                | answers                     | =
cancel_requested cancelling | NotDelivered            | answers                     | =
cancel_requested cancelling | Throttled               | answers                     | =
cancel_requested cancelling | DeadlinePassed cancel   | idle                        | cancellation_unconfirmed
cancellation_unconfirmed    | Decided watch           | names a time                | cancelling
cancellation_unconfirmed    | Decided cancel          |                             | cancel_requested
cancellation_unconfirmed    | Decided close           |                             | resolved

result_timed_out   | Observed                 | success                             | result_collecting
result_timed_out   | Observed                 | failure                             | failed
result_timed_out   | Observed                 | cancellation                        | cancelled
result_timed_out   | Observed                 |                                     | =
result_timed_out   | CancelRequested          |                                     | cancel_requested
result_timed_out   | Decided extend           | names a time                        | observing
result_timed_out   | Decided close            |                                     | resolved

result_collecting  | CallSent collect         | idle                                | =
result_collecting  | CallLost                 | answers                             | =
result_collecting  | Observed                 | success                             | =
result_collecting  | Observed                 | not final                           | =
result_collecting  | ResultAccepted           |                                     | succeeded
result_collecting  | ResultAllItemsFailed     |                                     | failed
result_collecting  | ResultMissing            |                                     | result_unavailable
result_collecting  | ResultInvalid            |                                     | result_validation_failed

result_unavailable result_validation_failed | Observed        |                      | =
result_unavailable result_validation_failed | Decided collect |                      | result_collecting
result_unavailable result_validation_failed | Decided accept  |                      | resolved
result_unavailable result_validation_failed | Decided close   |                      | resolved

contract_violation | CallLost                 | answers                             | =
contract_violation | Observed                 |                                     | =
contract_violation | Decided keep             | names a known job                   | observing
contract_violation | Decided cancel           | names a known job                   | cancel_requested
contract_violation | Decided close            |                                     | resolved

failed             | Decided resume           | has a job                           | observing
failed cancelled   | PartialAttached          | sent                                | =
failed cancelled succeeded resolved withdrawn | Observed | sent                      | =

create_pending create_unknown reconciliation accepted observing         | Violation | sent | contract_violation
cancel_requested cancelling cancellation_unconfirmed result_timed_out   | Violation | sent | contract_violation
result_collecting result_unavailable result_validation_failed           | Violation | sent | contract_violation
contract_violation | Violation                | sent                                | =

every              | Noted                    |                                     | =
every              | Acknowledged             |                                     | =
every              | LeaseTaken               |                                     | =
every              | ReadFailed               | sent                                | =
every              | Notified                 | sent                                | =
"""

CALL: Final = "call_1"
OTHER_CALL: Final = "call_2"
KNOWN: Final = ("job_1", "job_2")


@dataclass(frozen=True, slots=True)
class Cell:
    """One question to the machine."""

    record: Operation | None
    evidence: e.Evidence

    @property
    def op(self) -> Operation:
        """The record; the questions below are only asked where there is one."""
        assert self.record is not None
        return self.record


def _approvers(cell: Cell) -> list[str]:
    return [approval.by for approval in cell.op.approvals]


def _counts(cell: Cell) -> bool:
    ev = cell.evidence
    assert isinstance(ev, e.Approved)
    return ev.fingerprint == FINGERPRINT and ev.by not in _approvers(cell)


def _answers(cell: Cell) -> bool:
    call = cell.op.open_call
    return call is not None and getattr(cell.evidence, "call_id", None) == call.call_id


def _means(*means: str) -> Callable[[Cell], bool]:
    return lambda cell: isinstance(cell.evidence, e.Observed) and cell.evidence.means.value in means


QUESTIONS: Final[dict[str, Callable[[Cell], bool]]] = {
    "policy asks for approval": lambda cell: getattr(cell.evidence, "approvals_needed", 0) > 0,
    "counts": _counts,
    "reaches quorum": lambda cell: len(_approvers(cell)) + 1 >= cell.op.approvals_needed,
    "never sent": lambda cell: cell.op.first_sent_at is None,
    "sent": lambda cell: cell.op.first_sent_at is not None,
    "idle": lambda cell: cell.op.open_call is None,
    "answers": _answers,
    "cancel stands": lambda cell: cell.op.cancel is not None,
    "no cancel": lambda cell: cell.op.cancel is None,
    "duplicate accepted": lambda cell: cell.op.duplicate_accepted,
    "no duplicate": lambda cell: not cell.op.duplicate_accepted,
    "names a job": lambda cell: bool(getattr(cell.evidence, "job_id", None)),
    "names no other job": lambda cell: not cell.op.jobs or getattr(cell.evidence, "job_id", None) in cell.op.jobs,
    "names a known job": lambda cell: getattr(cell.evidence, "job_id", None) in cell.op.jobs,
    "names a time": lambda cell: getattr(cell.evidence, "extend_by", None) is not None,
    "has a job": lambda cell: cell.op.remote_job_id is not None,
    "nothing left to try": lambda cell: getattr(cell.evidence, "exhausted", False),
    "success": _means("succeeded", "partial"),
    "failure": _means("failed", "expired"),
    "cancellation": _means("cancelled"),
    "not final": _means("queued", "running", "waiting_human", "cancelling", "gone", "unknown"),
}

Line = tuple[frozenset[str], tuple[str, ...], tuple[str, ...], str]


def _lines() -> Iterator[Line]:
    for line in LAW.strip().splitlines():
        if not line.strip():
            continue
        where, what, when, to = (part.strip() for part in line.split("|"))
        everywhere = {state.value for state in State} if where == "every" else set(where.split())
        yield frozenset(everywhere), tuple(what.split()), tuple(filter(None, map(str.strip, when.split("&")))), to


LINES: Final = tuple(_lines())


def kind_of(evidence: e.Evidence) -> tuple[str, ...]:
    """Name evidence as the law does: its class, and for three of them the word that tells them apart."""
    if isinstance(evidence, e.Violation):
        return ("Violation",)
    if isinstance(evidence, e.CallSent):
        return ("CallSent", evidence.action.value)
    if isinstance(evidence, e.DeadlinePassed):
        return ("DeadlinePassed", evidence.which.value)
    if isinstance(evidence, e.Decided):
        return ("Decided", evidence.choice.value)
    return (type(evidence).__name__,)


def _index() -> dict[tuple[str, tuple[str, ...]], list[int]]:
    index: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for number, (where, what, _, _) in enumerate(LINES):
        for state in where:
            index.setdefault((state, what), []).append(number)
    return index


INDEX: Final = _index()


def line_of(cell: Cell) -> int | None:
    """The number of the line of the law that decides a cell, or None where the evidence is refused."""
    state = "-" if cell.record is None else cell.record.state.value
    for number in INDEX.get((state, kind_of(cell.evidence)), ()):
        if all(QUESTIONS[question](cell) for question in LINES[number][2]):
            return number
    return None


def expected(cell: Cell) -> str | None:
    """Where the law leads, or None for a refusal."""
    number = line_of(cell)
    if number is None:
        return None
    to = LINES[number][3]
    return cell.op.state.value if to == "=" else to


def answered() -> Iterator[e.Evidence]:
    """Every kind of answer to an effectful call, to the call that is open, to another one, and to none."""
    for call_id in (CALL, OTHER_CALL, None):
        facts: dict[str, Any] = {"call_id": call_id}
        yield e.CallLost(**facts)
        yield e.NotDelivered(**facts)
        yield e.Throttled(**facts)
        yield e.Refused(**facts)
        yield e.Accepted(**facts, job_id="job_1")
        yield e.Accepted(**facts, job_id="job_9")
        yield e.Accepted(**facts)
        yield e.CompletedInline(**facts)
        yield e.Inconclusive(**facts)
        yield e.Inconclusive(**facts, exhausted=True)
        yield e.ProvenAbsent(**facts)
        yield e.CancelAnswered(**facts)
        yield e.ReadFailed(**facts)
        yield e.ResultAccepted(**facts)
        yield e.ResultAllItemsFailed(**facts)
        yield e.ResultMissing(**facts)
        yield e.ResultInvalid(**facts)
        yield e.PartialAttached(**facts)
        yield e.UnfamiliarJobId(**facts)
        yield e.TokenMismatch(**facts)
        yield e.ManyJobs(**facts)
        yield e.IdentityChanged(**facts)
        yield e.FinalStateChanged(**facts)


def all_evidence() -> list[e.Evidence]:
    """Every kind of evidence, in every variant that a guard could tell apart."""
    decided = [
        e.Decided("ana", choice, job, time)
        for choice in Choice
        for job in (None, "job_2", "job_9")
        for time in (None, timedelta(minutes=5))
    ]
    return [
        a_submission(),
        a_submission(approvals_needed=1),
        *(e.Approved(by, mark) for by in ("ana", "jo") for mark in (FINGERPRINT, "sha256:" + "0" * 64)),
        e.Rejected("ana"),
        e.ApprovalExpired(),
        e.Withdrawn("agent-7"),
        *(a_permit(action, OTHER_CALL) for action in Action),
        *answered(),
        *(e.Observed(call_id=CALL, job_id="job_1", means=means) for means in Means),
        e.CancelRequested("req_1", "ana"),
        e.Notified("webhook"),
        *(e.DeadlinePassed(which, T0) for which in Deadline),
        *decided,
        e.Acknowledged("ana"),
        e.Noted("looked at it"),
        e.LeaseTaken("worker-2", 2, "worker-1"),
    ]


EVIDENCE: Final = all_evidence()


def records(state: State) -> Iterator[Operation]:
    """Every shape of a record that a guard could ask about, the impossible ones too."""
    calls = (None, *(OpenCall(CALL, action, T0) for action in Action))
    intents = (None, CancelIntent("req_1", "ana", T0, "too late"))
    for sent, call, intent, duplicate, job in itertools.product(
        (None, T0), calls, intents, (False, True), (None, "job_1")
    ):
        yield a_record(
            state,
            first_sent_at=sent,
            open_call=call,
            cancel=intent,
            duplicate_accepted=duplicate,
            remote_job_id=job,
            jobs=KNOWN,
        )
    yield from (a_record(state, first_sent_at=T0, open_call=call) for call in calls)  # no job is known yet
    for needed, given in ((1, ()), (2, ()), (2, ("ana",)), (3, ("ana",))):
        approvals = tuple(Approval(by, T0, "", FINGERPRINT) for by in given)
        yield a_record(state, approvals_needed=needed, approvals=approvals)


def outcome(cell: Cell) -> str | None:
    """Where the machine leads, or None for a refusal."""
    try:
        return states.advance(cell.record, cell.evidence).value
    except IllegalTransition:
        return None


def test_every_kind_of_evidence_is_asked_about() -> None:
    """A new kind must get its lines in the law, or its refusals go unseen."""
    assert {type(evidence) for evidence in EVIDENCE} == set(e.KINDS.values())


def test_every_question_of_the_law_is_needed() -> None:
    """A misspelt question would raise only in its own cell; an unused one is a line that was lost."""
    assert {question for _, _, when, _ in LINES for question in when} == set(QUESTIONS)
    named = set().union(*(where for where, _, _, _ in LINES)) | {to for _, _, _, to in LINES}
    assert named == {state.value for state in State} | {"-", "="}


@pytest.mark.parametrize("state", State, ids=str)
def test_the_machine_is_the_law(state: State) -> None:
    """Every cell, the refusals included, in every shape of record."""
    wrong = [
        (kind_of(evidence), cell.record, expected(cell), outcome(cell))
        for record in records(state)
        for evidence in EVIDENCE
        if expected(cell := Cell(record, evidence)) != outcome(cell)
    ]
    assert wrong == []


def test_nothing_but_a_submission_begins_an_operation() -> None:
    """A journal that begins in the middle is no journal."""
    for evidence in EVIDENCE:
        cell = Cell(None, evidence)
        assert outcome(cell) == expected(cell)
        assert (outcome(cell) is not None) == isinstance(evidence, e.Submitted)


def test_every_line_of_the_law_is_reached() -> None:
    """A line behind another that always wins would be a promise nobody keeps."""
    cells = [Cell(None, evidence) for evidence in EVIDENCE]
    cells += [Cell(record, evidence) for state in State for record in records(state) for evidence in EVIDENCE]
    reached = {line_of(cell) for cell in cells}
    assert [line for number, line in enumerate(LINES) if number not in reached] == []


VIOLATIONS: Final = (e.UnfamiliarJobId, e.TokenMismatch, e.ManyJobs, e.IdentityChanged, e.FinalStateChanged)
QUIET: Final = frozenset({"awaiting_approval", "succeeded", "failed", "cancelled", "rejected", "withdrawn", "resolved"})


@pytest.mark.parametrize("violation", VIOLATIONS, ids=lambda kind: kind.__name__)
def test_a_violation_stops_everything_that_runs_and_nothing_else(violation: type[e.Violation]) -> None:
    """Promise 4: from every state that had a CallSent and has not ended, whatever else the record says."""
    for state in State:
        for record in records(state):
            runs = record.first_sent_at is not None and state.value not in QUIET
            assert outcome(Cell(record, violation())) == ("contract_violation" if runs else None)


def test_only_a_violation_leads_to_contract_violation() -> None:
    """Nothing else may stop automation for good."""
    arrows = [
        (kind, arrow.to) for cells in states.TRANSITIONS.values() for kind, cell in cells.items() for arrow in cell
    ]
    assert {kind for kind, to in arrows if to is State.CONTRACT_VIOLATION} == set(VIOLATIONS)


def test_a_refusal_names_the_evidence_the_operation_and_its_state() -> None:
    """The sentence goes to a person, who must see what did not fit."""
    record = a_record(State.SUCCEEDED)
    with pytest.raises(IllegalTransition) as refused:
        states.advance(record, e.Decided("ana", Choice.KEEP, "job_1"))
    for word in ("Decided", "keep", record.operation_id, "succeeded", "nothing was written"):
        assert word in refused.value.message


def test_a_refusal_before_the_beginning_says_so() -> None:
    """Without a record there is no id to name."""
    with pytest.raises(IllegalTransition, match="before it exists"):
        states.advance(None, e.Noted("hello"))


def test_the_drawn_arrows_are_the_law_s_arrows() -> None:
    """The diagram may leave out what stays as it is, and nothing else."""
    drawn = {(None if start is None else start.value, end.value) for start, end, _ in states.drawn_arrows()}
    lawful = {
        (None if start == "-" else start, to)
        for where, what, _, to in LINES
        for start in where
        if to not in ("=", start) and what != ("Violation",)
    }
    assert drawn == lawful


def test_the_diagram_has_each_pair_once_and_every_ending() -> None:
    """Mermaid draws a second edge between the same two states over the first."""
    diagram = states.mermaid().splitlines()
    assert diagram[0] == "stateDiagram-v2"
    pairs = [line.split(":")[0].strip() for line in diagram if "-->" in line]
    assert len(pairs) == len(set(pairs))
    for ending in ("succeeded", "failed", "cancelled", "rejected", "withdrawn", "resolved"):
        assert f"    {ending} --> [*]" in diagram
    assert all(
        kind.__name__ in diagram_line for kind in VIOLATIONS for diagram_line in diagram if "any_sent" in diagram_line
    )


def test_an_arrow_without_words_is_unconditional_or_only_asks_for_the_answer() -> None:
    """`drawn_arrows` names what tells two arrows of one cell apart; two without words would look the same."""
    for start, cells in states.TRANSITIONS.items():
        for kind, cell in cells.items():
            moves = [arrow for arrow in cell if arrow.to is not None]
            assert len({(arrow.to, arrow.words) for arrow in moves}) == len(moves), (start, kind)


def test_advance_looks_and_never_touches() -> None:
    """The machine is a question: asking it changes no record."""
    record = a_record(State.OBSERVING, first_sent_at=T0)
    copy = replace(record)
    states.advance(record, e.Observed(means=Means.SUCCEEDED))
    assert record == copy
