"""An operation is the fold of its journal: `project` puts one more event on top (invariant I14).

States come from `states.advance`; everything else a record knows is worked out here, from the evidence alone, so that
a record can be rebuilt from its events at any time and must equal the stored row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from opledger.errors import IllegalTransition
from opledger.rules import attention, deliveries, partial
from opledger.rules import evidence as e
from opledger.rules.model import (
    FINAL_MEANS,
    NEEDS_HUMAN,
    TERMINAL,
    Action,
    Actor,
    Approval,
    Attempts,
    Attention,
    CancelIntent,
    Choice,
    Means,
    OpenCall,
    Operation,
    State,
)
from opledger.rules.opened import changed, opened
from opledger.rules.states import advance


class Entry(NamedTuple):
    """One event before it is hashed: what happened, when, by whom, because of what."""

    operation_id: str
    seq: int
    at: datetime
    actor: Actor
    evidence: e.Evidence
    cause: str
    reason: str | None = None


Changes = dict[str, Any]

_TAKES_ANSWERS: Final = frozenset(
    {State.CREATE_PENDING, State.RECONCILIATION, State.CANCEL_REQUESTED, State.CANCELLING, State.RESULT_COLLECTING}
) | {State.CONTRACT_VIOLATION}  # another operation's answer may lead there while a call of this one is under way
"""States in which the outcome of an effectful call can be recorded."""


def project(before: Operation | None, entry: Entry) -> Operation:
    """Return the record after `entry`. Does not touch next, version, head or lease: those belong to the store.

    Raises IllegalTransition where the state machine has no such arrow.
    """
    evidence = entry.evidence
    if isinstance(evidence, e.Submitted):
        return opened(entry.operation_id, entry.at, evidence, advance(before, evidence))
    changes = changes_by(before, entry)
    assert before is not None, "advance refuses everything but Submitted"
    return changed(before, changes) if changes else before


def changes_by(before: Operation | None, entry: Entry) -> Changes:
    """Return the fields of the record that an entry, any but the first, changes, and their values then.

    Raises IllegalTransition as `project`.
    """
    evidence = entry.evidence
    state = advance(before, evidence)
    if before is None:  # pragma: no cover - advance refuses everything but Submitted
        raise IllegalTransition("an operation begins with Submitted")
    changes: Changes = {}
    waiting = deliveries.waiting(before.unread, evidence, entry.cause, entry.seq)
    if waiting is not before.unread:
        changes["unread"] = waiting
    if before.open_call is not None and _closes(before, before.open_call, evidence):
        changes["open_call"] = None
    handler = _HANDLERS.get(type(evidence))
    if handler is not None:
        handler(before, entry, state, changes)
    if state is not before.state:
        _entered(before, entry, state, changes)
    attention.settle_acknowledgement(before, evidence, changes)
    return changes


def _closes(before: Operation, call: OpenCall, ev: e.Evidence) -> bool:
    """Tell whether the evidence is the outcome of the open call. A status read never is."""
    if before.state is State.CONTRACT_VIOLATION and isinstance(ev, e.Noted):
        return (ev.late or {}).get("call_id") == call.call_id  # nothing follows from the answer there, so it is a note
    if not isinstance(ev, e.Answered) or ev.call_id != call.call_id:
        return False
    return call.action is Action.COLLECT or not isinstance(ev, e.Observed | e.ReadFailed)


def _entered(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    """What holds on entering a state, whichever arrow led there."""
    changes["state"] = state
    if state is not State.RECONCILIATION:
        # Going there and back is one more try, not a new beginning: the waits between tries keep growing.
        changes.setdefault("backoff", 0)
    changes.setdefault("failures", 0)
    if state is not State.CREATE_UNKNOWN:
        changes.setdefault("exhausted", False)
    if state not in _TAKES_ANSWERS:
        # Nobody waits for that answer any more; should it come, it is noted as late.
        changes["open_call"] = None
    if state is State.CREATE_PENDING and before.create_deadline is None:
        changes["create_deadline"] = entry.at + before.create_timeout
        changes["result_deadline"] = entry.at + before.result_timeout
    elif state is State.CANCEL_REQUESTED:
        changes["cancel_deadline"] = entry.at + before.cancel_timeout
    elif state is State.RESULT_COLLECTING:
        changes.setdefault("collect_deadline", entry.at + before.collect_timeout)
    if "attention" not in changes:
        _attend(before, changes, attention.on_entering(state, entry.evidence, entry.reason, entry.at))


def _with_jobs(before: Operation, *jobs: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before.jobs, *(job for job in jobs if job))))


def _counted(before: Operation, action: Action) -> Attempts:
    return before.attempts.plus(action)


def _attend(before: Operation, changes: Changes, after: Attention | None) -> None:
    if after != before.attention:
        changes["attention"] = after


# --- one handler for each kind of evidence that changes more than the state --------------------------------------


def _approved(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.Approved)
    approval = Approval(ev.by, entry.at, entry.reason or "", ev.fingerprint)
    changes["approvals"] = (*before.approvals, approval)


def _call_sent(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.CallSent)
    changes["open_call"] = OpenCall(ev.call_id, ev.action, entry.at, ev.strategy or "")
    changes["attempts"] = _counted(before, ev.action)
    if ev.may_create or ev.action is Action.CREATE:
        changes["last_sent_at"] = entry.at
        if before.first_sent_at is None:
            changes["first_sent_at"] = entry.at
    if ev.action is Action.CANCEL and before.cancel is not None:
        changes["cancel"] = replace(
            before.cancel, sent=before.cancel.sent + 1, lost=False, reread=False, undelivered=False
        )


def _call_lost(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.CallLost)
    changes["last_error"] = ev.why
    if ev.action is Action.CREATE:
        changes["last_sent_at"] = entry.at  # a worker may have stood still between its permit and the first byte
    if ev.action is Action.CANCEL and before.cancel is not None:
        changes["cancel"] = replace(before.cancel, lost=True)


def _not_done(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.NotDelivered | e.Throttled)
    changes["last_error"] = ev.why
    changes["backoff"], changes["failures"] = before.backoff + 1, before.failures + 1
    _attend(before, changes, attention.after_undelivered(before, ev, entry.at))
    if ev.action is Action.CANCEL and before.cancel is not None:
        changes["cancel"] = replace(before.cancel, undelivered=True)


def _refused(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.Refused)
    changes["last_error"] = ev.why
    if state is State.CREATE_UNKNOWN:
        changes["exhausted"] = True
        changes["attention"] = Attention(
            state, entry.at, f"the resend was refused ({ev.why}); the first one is unknown"
        )


def _accepted(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.Accepted)
    _bound(before, entry, ev.job_id, changes)
    changes["remote_state"] = ev.remote_state
    changes["remote_refs"] = {**before.remote_refs, **(ev.refs or {})}


def _bound(before: Operation, entry: Entry, job_id: str, changes: Changes) -> None:
    changes["remote_job_id"] = job_id
    changes["jobs"] = _with_jobs(before, job_id)
    changes["accepted_at"] = before.accepted_at or entry.at
    changes["last_error"] = None
    changes["exhausted"] = False
    changes["attention"] = None


def _completed_inline(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.CompletedInline)
    changes["result"] = ev.result
    changes["remote_state"] = ev.remote_state
    changes["remote_means"] = Means.SUCCEEDED
    changes["accepted_at"] = entry.at


def _inconclusive(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.Inconclusive)
    changes["last_error"], changes["backoff"] = ev.why, before.backoff + 1
    if ev.strategy == "resend":
        changes["last_sent_at"] = entry.at  # as of a create that was lost
    if ev.next_strategy:
        changes["strategy"] = before.strategy + 1
    if ev.absent and before.absent_since is None:
        changes["absent_since"] = entry.at
    if ev.exhausted:
        changes["exhausted"] = True
        changes["attention"] = Attention(State.CREATE_UNKNOWN, entry.at, ev.why)


def _proven_absent(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    changes["absent_since"] = None
    changes["strategy"] = 0
    # Proven after our last send, so no earlier one left anything behind either.
    changes["duplicate_accepted"] = False


def _observed(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.Observed)
    if ev.delivery is None:
        changes["attempts"] = _counted(before, Action.OBSERVE)
    if before.state in TERMINAL:
        _attend(before, changes, attention.after_late_word(before, ev, entry.at))
        return
    changes["observed_at"] = entry.at
    changes["remote_state"] = ev.remote_state
    changes["remote_means"] = ev.means
    changes["failures"] = 0
    changes["backoff"] = before.backoff + 1 if ev.remote_state == before.remote_state else 1
    if before.last_error is not None or ev.error is not None:
        changes["last_error"] = ev.error
    if ev.progress is not None:
        changes["progress"] = dict(ev.progress)
    if ev.refs:
        changes["remote_refs"] = {**before.remote_refs, **ev.refs}
    if ev.delivery is not None:
        changes["told"] = deliveries.told_by(before, ev)
        if ev.updated_at is not None:
            changes["told_at"] = max(ev.updated_at, before.told_at or ev.updated_at)
    elif before.cancel is not None and before.cancel.lost and ev.means not in FINAL_MEANS:
        changes["cancel"] = replace(before.cancel, reread=True)
    if state not in NEEDS_HUMAN:
        _attend(before, changes, attention.after_word(before, ev, entry.at))


def _read_failed(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.ReadFailed)
    called = ev.code != deliveries.UNREADABLE
    if called and (before.open_call is None or before.open_call.call_id != ev.call_id):  # else its permit was counted
        changes["attempts"] = _counted(before, ev.action)
    if before.state in TERMINAL:
        if ev.code in (partial.LOST, deliveries.UNREADABLE):
            _attend(before, changes, Attention(ev.code, entry.at, ev.why))
        return
    changes["last_error"] = ev.why
    changes["failures"] = before.failures + 1
    changes["backoff"] = before.backoff + 1
    if state not in NEEDS_HUMAN:
        _attend(before, changes, attention.after_failed_read(before, ev, entry.at))


def _cancel_requested(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.CancelRequested)
    if before.cancel is None or before.cancel.request_id != ev.request_id:
        reason = entry.reason or ""
        changes["cancel"] = CancelIntent(ev.request_id, ev.by, entry.at, reason, ev.effect, shares=ev.shares)
        changes["expected_effect"] = ev.effect or before.expected_effect


def _result_seen(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.ResultAccepted | e.ResultAllItemsFailed | e.ResultInvalid | e.ResultMissing)
    if before.open_call is None and ev.call_id is not None:
        changes["attempts"] = _counted(before, Action.COLLECT)
    if not isinstance(ev, e.ResultMissing) and ev.result is not None:
        changes["result"] = ev.result
    changes["last_error"] = None if isinstance(ev, e.ResultAccepted) else ev.why


def _partial(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.PartialAttached)
    changes["result"] = ev.result
    changes["attempts"] = _counted(before, Action.COLLECT)
    if ev.result is not None and not ev.result.validated:
        why = f"the partial output is not what it should be: {'; '.join(ev.result.problems)}"
        _attend(before, changes, Attention(partial.INVALID, entry.at, why))


def _deadline_passed(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    if state is State.CREATE_UNKNOWN:
        changes["exhausted"] = True
        changes["attention"] = Attention(
            state, entry.at, "the create deadline passed and nobody knows whether the job was created"
        )


def _decided(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.Decided)
    changes["open_call"] = None
    longer = entry.at + (ev.extend_by if ev.extend_by is not None else before.result_timeout)
    names_job = ev.choice in (Choice.BIND, Choice.KEEP) or before.state is State.CONTRACT_VIOLATION
    if names_job and ev.job_id and ev.job_id != before.remote_job_id:
        changes["remote_refs"] = {}  # the other job's: its status URL must not be read for this one
    if ev.choice in (Choice.KEEP, Choice.EXTEND, Choice.RESUME):
        changes["cancel"] = None  # whoever lets it run on overrules a cancel that still stands
    if ev.choice in (Choice.BIND, Choice.KEEP) and ev.job_id:
        _bound(before, entry, ev.job_id, changes)
        changes["result_deadline"] = max(before.result_deadline or longer, longer)
    elif ev.choice is Choice.CANCEL:
        changes["cancel"] = CancelIntent(ev.request_id or "", ev.by, entry.at, entry.reason or "")
        if names_job and ev.job_id:
            changes["remote_job_id"] = ev.job_id
            changes["accepted_at"] = before.accepted_at or entry.at
    elif ev.choice is Choice.RESEND:
        changes["create_deadline"] = entry.at + before.create_timeout
        changes["result_deadline"] = max(before.result_deadline or longer, entry.at + before.result_timeout)
        changes["duplicate_accepted"] = True
        changes["exhausted"] = False
    elif ev.choice is Choice.WATCH and ev.extend_by is not None:
        changes["cancel_deadline"] = entry.at + ev.extend_by
    elif ev.choice in (Choice.EXTEND, Choice.RESUME):
        changes["result_deadline"] = longer
    elif ev.choice is Choice.COLLECT:
        changes["collect_deadline"] = entry.at + (ev.extend_by or before.collect_timeout)


def _noted(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    """A late answer may name a job: it is kept, so that another id under the same token is still noticed (I3, I11)."""
    ev = entry.evidence
    assert isinstance(ev, e.Noted)
    job_id = (ev.late or {}).get("job_id")
    brings_job = ev.late_kind == e.Accepted.__name__ and job_id and job_id not in before.jobs
    if brings_job:
        changes["jobs"] = _with_jobs(before, job_id)
    if state in TERMINAL and (brings_job or ev.late_kind == e.IdentityChanged.__name__):
        changes["attention"] = attention.after_late_news(ev, entry.at)


def _violated(before: Operation, entry: Entry, state: State, changes: Changes) -> None:
    ev = entry.evidence
    assert isinstance(ev, e.Violation)
    changes["jobs"] = _with_jobs(before, *ev.jobs)
    changes["last_error"] = ev.why
    changes["attention"] = Attention(State.CONTRACT_VIOLATION, entry.at, ev.why)


_HANDLERS: Final[Mapping[type[e.Evidence], Callable[[Operation, Entry, State, Changes], None]]] = {
    e.Approved: _approved,
    e.CallSent: _call_sent,
    e.CallLost: _call_lost,
    e.NotDelivered: _not_done,
    e.Throttled: _not_done,
    e.Refused: _refused,
    e.Accepted: _accepted,
    e.CompletedInline: _completed_inline,
    e.Inconclusive: _inconclusive,
    e.ProvenAbsent: _proven_absent,
    e.Observed: _observed,
    e.ReadFailed: _read_failed,
    e.CancelRequested: _cancel_requested,
    e.ResultAccepted: _result_seen,
    e.ResultAllItemsFailed: _result_seen,
    e.ResultMissing: _result_seen,
    e.ResultInvalid: _result_seen,
    e.PartialAttached: _partial,
    e.DeadlinePassed: _deadline_passed,
    e.Decided: _decided,
    e.Noted: _noted,
    **dict.fromkeys(e.VIOLATIONS, _violated),
}
