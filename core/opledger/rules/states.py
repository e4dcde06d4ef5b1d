"""The state machine, all of it (DESIGN §5). No other code works out a next state.

Two rules. Everything that affects states stands in this file; and a state changes only by evidence, whose *type* is
the key of the table. A missing cell is a refusal: `advance` raises and nothing is written. A cell may hold several
arrows, told apart by named guards; they are tried in order.

WARNING for readers of the diagram: arrows that leave the state as it is (counters, notes, failed reads) are in the
table but not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from opledger.errors import IllegalTransition
from opledger.rules import evidence as e
from opledger.rules.model import (
    FAILURE_MEANS,
    FINAL_MEANS,
    SUCCESS_MEANS,
    TERMINAL,
    Action,
    Choice,
    Deadline,
    Means,
    Operation,
    State,
)

S = State
Guard = Callable[[Operation | None, e.Evidence], bool]


@dataclass(frozen=True, slots=True)
class Arrow:
    """One arrow out of a cell: where it leads (None: the state stays), when it is taken, and its name in words."""

    to: State | None
    guard: Guard | None = None
    words: str = ""


# --- guards: small questions about the record and the evidence ---------------------------------------------------


def _op(operation: Operation | None) -> Operation:
    if operation is None:  # pragma: no cover - only Submitted starts without a record
        raise IllegalTransition("evidence came for an operation that does not exist")
    return operation


def _asks_approval(_: Operation | None, ev: e.Evidence) -> bool:
    return isinstance(ev, e.Submitted) and ev.approvals_needed > 0


def _counts_towards_quorum(operation: Operation | None, ev: e.Evidence) -> bool:
    op = _op(operation)
    return (
        isinstance(ev, e.Approved)
        and ev.fingerprint == op.request_fingerprint
        and all(approval.by != ev.by for approval in op.approvals)
    )


def _reaches_quorum(operation: Operation | None, ev: e.Evidence) -> bool:
    op = _op(operation)
    return _counts_towards_quorum(op, ev) and len(op.approvals) + 1 >= op.approvals_needed


def _call(action: Action) -> Guard:
    def permitted(operation: Operation | None, ev: e.Evidence) -> bool:
        return isinstance(ev, e.CallSent) and ev.action is action and _op(operation).open_call is None

    return permitted


def _may_create(operation: Operation | None, ev: e.Evidence) -> bool:
    # A standing cancel intent forbids a further create (DESIGN §5).
    return _call(Action.CREATE)(operation, ev) and _op(operation).cancel is None


def _answers(operation: Operation | None, ev: e.Evidence) -> bool:
    """The evidence answers the call that is open; an answer to no call, or to another one, is refused."""
    call = _op(operation).open_call
    return call is not None and isinstance(ev, e.Answered) and ev.call_id == call.call_id


def _binds(operation: Operation | None, ev: e.Evidence) -> bool:
    # Its reader's copy may be older than a late answer that brought another job: two under one token are none (I3).
    known = _op(operation).jobs
    mine = not known or (isinstance(ev, e.Accepted) and ev.job_id in known)
    return isinstance(ev, e.Accepted) and bool(ev.job_id) and mine and _answers(operation, ev)


def _answers_wanted(operation: Operation | None, ev: e.Evidence) -> bool:
    return _answers(operation, ev) and _op(operation).cancel is None


def _answers_cancelled(operation: Operation | None, ev: e.Evidence) -> bool:
    return _answers(operation, ev) and _op(operation).cancel is not None


def _answers_after_duplicate(operation: Operation | None, ev: e.Evidence) -> bool:
    # A person let a possible duplicate be sent: a refusal of that one says nothing about the first.
    return _answers(operation, ev) and _op(operation).duplicate_accepted


def _never_sent(operation: Operation | None, _: e.Evidence) -> bool:
    return not _op(operation).sent


def _sent(operation: Operation | None, _: e.Evidence) -> bool:
    return _op(operation).sent


def _provably_nowhere(operation: Operation | None, _: e.Evidence) -> bool:
    op = _op(operation)
    return op.open_call is None and not op.duplicate_accepted


def _wanted_back_provably_nowhere(operation: Operation | None, ev: e.Evidence) -> bool:
    return _provably_nowhere(operation, ev) and _op(operation).cancel is not None


def _never_sent_or_wanted_back(operation: Operation | None, ev: e.Evidence) -> bool:
    return _never_sent(operation, ev) or _wanted_back_provably_nowhere(operation, ev)


def _idle_after_duplicate(operation: Operation | None, _: e.Evidence) -> bool:
    op = _op(operation)
    return op.open_call is None and op.duplicate_accepted


def _wanted_back_after_duplicate(operation: Operation | None, ev: e.Evidence) -> bool:
    return _idle_after_duplicate(operation, ev) and _op(operation).cancel is not None


def _no_open_call(operation: Operation | None, _: e.Evidence) -> bool:
    return _op(operation).open_call is None


def _deadline(which: Deadline, also: Guard | None = None) -> Guard:
    def passed(operation: Operation | None, ev: e.Evidence) -> bool:
        return isinstance(ev, e.DeadlinePassed) and ev.which is which and (also is None or also(operation, ev))

    return passed


def _means(*readings: frozenset[Means]) -> Guard:
    wanted = frozenset().union(*readings)

    def seen(_: Operation | None, ev: e.Evidence) -> bool:
        return isinstance(ev, e.Observed) and ev.means in wanted

    return seen


def _not_final(_: Operation | None, ev: e.Evidence) -> bool:
    return isinstance(ev, e.Observed) and ev.means not in FINAL_MEANS


def _decided(choice: Choice, *, needs_job: bool = False, needs_time: bool = False) -> Guard:
    def chosen(_: Operation | None, ev: e.Evidence) -> bool:
        return (
            isinstance(ev, e.Decided)
            and ev.choice is choice
            and (not needs_job or bool(ev.job_id))
            and (not needs_time or ev.extend_by is not None)
        )

    return chosen


def _keeps_known_job(operation: Operation | None, ev: e.Evidence) -> bool:
    return isinstance(ev, e.Decided) and ev.choice is Choice.KEEP and ev.job_id in _op(operation).jobs


def _cancels_known_job(operation: Operation | None, ev: e.Evidence) -> bool:
    return isinstance(ev, e.Decided) and ev.choice is Choice.CANCEL and ev.job_id in _op(operation).jobs


def _resumes(operation: Operation | None, ev: e.Evidence) -> bool:
    # Only a job can be resumed: a create that was refused left none.
    return _decided(Choice.RESUME)(operation, ev) and _op(operation).remote_job_id is not None


def _unsure(_: Operation | None, ev: e.Evidence) -> bool:
    return isinstance(ev, e.Inconclusive) and ev.exhausted


# --- the table ---------------------------------------------------------------------------------------------------

Table = dict[State | None, dict[type[e.Evidence], tuple[Arrow, ...]]]

STAYS: Final = (Arrow(None),)

_SEEN: Final = (
    Arrow(S.RESULT_COLLECTING, _means(SUCCESS_MEANS), "terminal success"),
    Arrow(S.FAILED, _means(FAILURE_MEANS), "terminal failure or expiry"),
    Arrow(S.CANCELLED, _means(frozenset({Means.CANCELLED})), "terminal cancellation"),
)

TRANSITIONS: Final[Table] = {
    None: {
        e.Submitted: (
            Arrow(S.AWAITING_APPROVAL, _asks_approval, "policy asks for approval"),
            Arrow(S.CREATE_PENDING),
        ),
    },
    S.AWAITING_APPROVAL: {
        e.Approved: (
            Arrow(S.CREATE_PENDING, _reaches_quorum, "quorum reached"),
            Arrow(None, _counts_towards_quorum),
        ),
        e.Rejected: (Arrow(S.REJECTED),),
        e.ApprovalExpired: (Arrow(S.REJECTED),),
        e.Withdrawn: (Arrow(S.WITHDRAWN),),
    },
    S.CREATE_PENDING: {
        e.CallSent: (Arrow(None, _may_create),),
        e.Accepted: (Arrow(S.ACCEPTED, _binds),),
        e.CompletedInline: (Arrow(S.RESULT_COLLECTING, _answers),),
        e.Refused: (
            Arrow(S.CREATE_UNKNOWN, _answers_after_duplicate, "after a possible duplicate was accepted"),
            Arrow(S.WITHDRAWN, _answers_cancelled, "cancel wanted"),
            Arrow(S.FAILED, _answers),
        ),
        e.NotDelivered: (Arrow(None, _answers),),
        e.Throttled: (Arrow(None, _answers),),
        e.CallLost: (Arrow(S.CREATE_UNKNOWN, _answers),),
        e.Inconclusive: (Arrow(S.CREATE_UNKNOWN, _wanted_back_after_duplicate, "cancel wanted before the resend"),),
        e.DeadlinePassed: (
            Arrow(
                S.CREATE_UNKNOWN,
                _deadline(Deadline.CREATE, _idle_after_duplicate),
                "create deadline, a possible duplicate was accepted",
            ),
            Arrow(
                S.WITHDRAWN,
                _deadline(Deadline.CREATE, _wanted_back_provably_nowhere),
                "create deadline, provably undelivered, cancel wanted",
            ),
            Arrow(S.FAILED, _deadline(Deadline.CREATE, _provably_nowhere), "create deadline, provably undelivered"),
        ),
        e.Withdrawn: (Arrow(S.WITHDRAWN, _never_sent_or_wanted_back, "provably not accepted"),),
        e.CancelRequested: (Arrow(None, _sent),),
    },
    S.CREATE_UNKNOWN: {
        e.CallSent: (Arrow(S.RECONCILIATION, _call(Action.RECONCILE), "reconcile"),),
        e.Inconclusive: (Arrow(None, _unsure),),
        e.DeadlinePassed: (Arrow(None, _deadline(Deadline.CREATE)),),
        e.CancelRequested: STAYS,
        e.Decided: (
            Arrow(S.ACCEPTED, _decided(Choice.BIND, needs_job=True), "bind"),
            Arrow(S.FAILED, _decided(Choice.NOT_CREATED), "not-created"),
            Arrow(S.CREATE_PENDING, _decided(Choice.RESEND), "resend"),
            Arrow(S.RESOLVED, _decided(Choice.CLOSE), "close"),
        ),
    },
    S.RECONCILIATION: {
        e.Accepted: (Arrow(S.ACCEPTED, _binds),),
        e.CompletedInline: (Arrow(S.RESULT_COLLECTING, _answers),),
        e.Refused: (
            Arrow(S.WITHDRAWN, _answers_cancelled, "cancel wanted"),
            Arrow(S.FAILED, _answers_wanted),
        ),
        e.ProvenAbsent: (
            Arrow(S.WITHDRAWN, _answers_cancelled, "cancel wanted"),
            Arrow(S.CREATE_PENDING, _answers_wanted),
        ),
        e.Inconclusive: (Arrow(S.CREATE_UNKNOWN, _answers),),
        e.CancelRequested: STAYS,
    },
    S.ACCEPTED: {
        e.Observed: (*_SEEN, Arrow(S.OBSERVING, _not_final)),
        e.CancelRequested: (Arrow(S.CANCEL_REQUESTED),),
        e.DeadlinePassed: (Arrow(S.RESULT_TIMED_OUT, _deadline(Deadline.RESULT), "result deadline"),),
    },
    S.OBSERVING: {
        e.Observed: (*_SEEN, Arrow(None, _not_final)),
        e.CancelRequested: (Arrow(S.CANCEL_REQUESTED),),
        e.DeadlinePassed: (Arrow(S.RESULT_TIMED_OUT, _deadline(Deadline.RESULT), "result deadline"),),
    },
    S.CANCEL_REQUESTED: {
        e.CallSent: (Arrow(None, _call(Action.CANCEL)),),
        e.CancelAnswered: (Arrow(S.CANCELLING, _answers),),
        e.CallLost: (Arrow(S.CANCELLING, _answers),),
        e.NotDelivered: (Arrow(None, _answers),),
        e.Throttled: (Arrow(None, _answers),),
        e.Observed: (*_SEEN, Arrow(None, _not_final)),
        e.DeadlinePassed: (
            Arrow(S.CANCELLATION_UNCONFIRMED, _deadline(Deadline.CANCEL, _no_open_call), "cancel deadline"),
        ),
    },
    S.CANCELLING: {
        e.CallSent: (Arrow(None, _call(Action.CANCEL)),),
        e.CancelAnswered: (Arrow(None, _answers),),
        e.CallLost: (Arrow(None, _answers),),
        e.NotDelivered: (Arrow(None, _answers),),
        e.Throttled: (Arrow(None, _answers),),
        e.Observed: (*_SEEN, Arrow(None, _not_final)),
        e.DeadlinePassed: (
            Arrow(S.CANCELLATION_UNCONFIRMED, _deadline(Deadline.CANCEL, _no_open_call), "cancel deadline"),
        ),
    },
    S.CANCELLATION_UNCONFIRMED: {
        e.Observed: (*_SEEN, Arrow(None, _not_final)),
        e.Decided: (
            Arrow(S.CANCELLING, _decided(Choice.WATCH, needs_time=True), "watch"),
            Arrow(S.CANCEL_REQUESTED, _decided(Choice.CANCEL), "send again"),
            Arrow(S.RESOLVED, _decided(Choice.CLOSE), "close"),
        ),
    },
    S.RESULT_TIMED_OUT: {
        e.Observed: (*_SEEN, Arrow(None, _not_final)),
        e.CancelRequested: (Arrow(S.CANCEL_REQUESTED),),
        e.Decided: (
            Arrow(S.OBSERVING, _decided(Choice.EXTEND, needs_time=True), "extend"),
            Arrow(S.RESOLVED, _decided(Choice.CLOSE), "close"),
        ),
    },
    S.RESULT_COLLECTING: {
        e.CallSent: (Arrow(None, _call(Action.COLLECT)),),
        e.CallLost: (Arrow(None, _answers),),
        e.Observed: (Arrow(None, _means(SUCCESS_MEANS)), Arrow(None, _not_final)),
        e.ResultAccepted: (Arrow(S.SUCCEEDED),),
        e.ResultAllItemsFailed: (Arrow(S.FAILED),),
        e.ResultMissing: (Arrow(S.RESULT_UNAVAILABLE),),
        e.ResultInvalid: (Arrow(S.RESULT_VALIDATION_FAILED),),
    },
    S.RESULT_UNAVAILABLE: {
        e.Observed: STAYS,
        e.Decided: (
            Arrow(S.RESULT_COLLECTING, _decided(Choice.COLLECT), "collect again"),
            Arrow(S.RESOLVED, _decided(Choice.ACCEPT), "accept as is"),
            Arrow(S.RESOLVED, _decided(Choice.CLOSE), "close"),
        ),
    },
    S.RESULT_VALIDATION_FAILED: {
        e.Observed: STAYS,
        e.Decided: (
            Arrow(S.RESULT_COLLECTING, _decided(Choice.COLLECT), "collect again"),
            Arrow(S.RESOLVED, _decided(Choice.ACCEPT), "accept as is"),
            Arrow(S.RESOLVED, _decided(Choice.CLOSE), "close"),
        ),
    },
    S.CONTRACT_VIOLATION: {
        e.CallLost: (Arrow(None, _answers),),
        e.Observed: STAYS,
        e.Decided: (
            Arrow(S.OBSERVING, _keeps_known_job, "keep job X"),
            Arrow(S.CANCEL_REQUESTED, _cancels_known_job, "cancel job X"),
            Arrow(S.RESOLVED, _decided(Choice.CLOSE), "close"),
        ),
    },
    S.FAILED: {
        e.Observed: (Arrow(None, _sent),),
        e.PartialAttached: (Arrow(None, _sent),),
        e.Decided: (Arrow(S.OBSERVING, _resumes, "resume"),),
    },
    S.CANCELLED: {e.Observed: (Arrow(None, _sent),), e.PartialAttached: (Arrow(None, _sent),)},
    S.SUCCEEDED: {e.Observed: (Arrow(None, _sent),)},
    S.RESOLVED: {e.Observed: (Arrow(None, _sent),)},
    S.REJECTED: {},
    S.WITHDRAWN: {e.Observed: (Arrow(None, _sent),)},
}


def _add_common_cells() -> None:
    """Put in the rows that DESIGN states for many states at once."""
    for state, cells in TRANSITIONS.items():
        if state is None:
            continue
        for remark in (e.Noted, e.Acknowledged, e.LeaseTaken):
            cells.setdefault(remark, STAYS)
        cells.setdefault(e.ReadFailed, (Arrow(None, _sent),))
        cells.setdefault(e.Notified, (Arrow(None, _sent),))
        if state not in TERMINAL and state is not S.AWAITING_APPROVAL:
            for violation in e.VIOLATIONS:
                to = None if state is S.CONTRACT_VIOLATION else S.CONTRACT_VIOLATION
                cells.setdefault(violation, (Arrow(to, _sent),))


_add_common_cells()


def advance(operation: Operation | None, evidence: e.Evidence) -> State:
    """Return the state that `evidence` leads to. `operation` is None only for `Submitted`.

    Raises IllegalTransition where the table has no arrow; the message names state and evidence.
    """
    state = None if operation is None else operation.state
    for arrow in TRANSITIONS[state].get(type(evidence), ()):
        if arrow.guard is None or arrow.guard(operation, evidence):
            if arrow.to is not None:
                return arrow.to
            return _op(operation).state
    where = "before it exists" if operation is None else f"in {operation.state}"
    detail = f" ({evidence.choice})" if isinstance(evidence, e.Decided) else ""
    raise IllegalTransition(
        f"{evidence.kind}{detail} does not apply to operation "
        f"{'' if operation is None else operation.operation_id + ' '}{where}; nothing was written"
    )


def drawn_arrows() -> list[tuple[State | None, State, str]]:
    """Return every arrow that changes a state: from, to, and its label in the diagram."""
    arrows: list[tuple[State | None, State, str]] = []
    for state, cells in TRANSITIONS.items():
        for kind, cell in cells.items():
            if kind in e.VIOLATIONS:
                continue
            for arrow in cell:
                if arrow.to is not None and arrow.to is not state:
                    label = f"{kind.__name__} ({arrow.words})" if arrow.words else kind.__name__
                    arrows.append((state, arrow.to, label))
    return arrows


def edge_words() -> Mapping[tuple[State | None, State], str]:
    """Return, for each pair of states with an arrow, the evidence that may lead along it."""
    words: dict[tuple[State | None, State], str] = {}
    for start, end, label in drawn_arrows():
        words[start, end] = f"{words[start, end]} / {label}" if (start, end) in words else label
    return words


def mermaid() -> str:
    """Return the machine as a Mermaid state diagram, one edge per pair of states. The README shows exactly this."""
    violations = " / ".join(kind.__name__ for kind in e.VIOLATIONS)
    return "\n".join(
        (
            "stateDiagram-v2",
            *(f"    {start or '[*]'} --> {end} : {label}" for (start, end), label in edge_words().items()),
            f"    any_sent_and_not_terminal --> {S.CONTRACT_VIOLATION} : {violations}",
            *(f"    {state} --> [*]" for state in State if state in TERMINAL),
            "",
        )
    )
