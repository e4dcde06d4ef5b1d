"""The JSON shapes that other programs read (`show`, `choices`, `doctor` …): plain data, every key always there.

Keys are only ever added. Times are RFC 3339 with ``Z`` and six digits; what is not known is null, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from opledger.rules import expectation, jsontext
from opledger.rules.choices import Option
from opledger.rules.contract import ContractProblem, Guarantees
from opledger.rules.escalation import Escalation, severity
from opledger.rules.explain import Explanation
from opledger.rules.journal import Row
from opledger.rules.model import EPOCH, Lease, Operation, Plan, to_rfc3339
from opledger.rules.result_data import result_to_data

Json = dict[str, Any]


def moment(at: datetime | None) -> str | None:
    """Write a time, or null."""
    return None if at is None else to_rfc3339(at)


def record(op: Operation) -> Json:
    """Return an operation as `submit`, `show` and `list` give it."""
    return {
        "operation_id": op.operation_id,
        "contract": op.contract,
        "state": op.state.value,
        "remote_job_id": op.remote_job_id,
        "remote_state": op.remote_state,
        "remote_state_means": None if op.remote_means is None else op.remote_means.value,
        "request_fingerprint": op.request_fingerprint,
        "idempotency_token": op.idempotency_token,
        "trace_id": op.trace_id,
        "requested_by": op.requested_by,
        "approvals": [
            {"by": given.by, "at": moment(given.at), "reason": given.reason, "fingerprint": given.fingerprint}
            for given in op.approvals
        ],
        "tags": dict(op.tags),
        "expectation": op.expectation,
        "expectation_kind": expectation.kind(op.expectation),
        "supersedes": op.supersedes,
        "created_at": moment(op.created_at),
        "create_deadline": moment(op.create_deadline),
        "result_deadline": moment(op.result_deadline),
        "cancel_deadline": moment(op.cancel_deadline),
        "collect_deadline": moment(op.collect_deadline),
        "approval_deadline": moment(op.approval_deadline),
        "next_action": planned(op.next),
        "attempts": {
            "create": op.attempts.create,
            "reconcile": op.attempts.reconcile,
            "observe": op.attempts.observe,
            "cancel": op.attempts.cancel,
            "collect": op.attempts.collect,
        },
        "progress": None if op.progress is None else dict(op.progress),
        "last_error": op.last_error,
        "attention": _attention(op),
        "lease": _lease(op.lease),
        "result": None if op.result is None else result_to_data(op.result),
        "head_seq": op.head_seq,
        "head_hash": op.head_hash,
        "version": op.version,
        "contract_digest": op.contract_digest,
        "approvals_needed": op.approvals_needed,
        "expected_effect": op.expected_effect,
        "task": op.task,
        "step": op.step,
        "jobs": list(op.jobs),
        "remote_refs": dict(op.remote_refs),
    }


def planned(plan: Plan | None) -> Json | None:
    """Return what happens next, when, and why; null where all has ended."""
    return None if plan is None else {"kind": plan.kind, "at": moment(plan.at), "because": plan.because}


def _attention(op: Operation) -> Json | None:
    attention = op.attention
    if attention is None:
        return None
    return {
        "code": str(attention.code),
        "since": moment(attention.since),
        "reason": attention.reason,
        "severity": severity(attention.code).value,
        "acknowledged_by": op.acknowledged_by,
        "acknowledged_until": moment(op.acknowledged_until),
    }


def escalated(one: Escalation, now: datetime) -> Json:
    """Return what wants a person, as `escalations` gives it. Of a provider: no operation, no state."""
    return {
        "operation_id": one.operation_id,
        "contract": one.contract,
        "state": None if one.state is None else one.state.value,
        "code": one.code,
        "severity": one.severity.value,
        "first_seen": moment(one.since),
        "deadline": moment(one.deadline),
        "reason": one.reason,
        "requested_by": one.requested_by,
        "acknowledged": one.acknowledged(now),
        "acknowledged_by": one.acknowledged_by,
        "acknowledged_until": moment(one.acknowledged_until),
    }


def _lease(lease: Lease | None) -> Json | None:
    if lease is None:
        return None
    return {"owner": lease.owner, "epoch": lease.epoch, "expires_at": moment(lease.expires_at)}


def option(choice: Option) -> Json:
    """Return one of the `choices` of an operation."""
    return {
        "choice": choice.choice.value,
        "needs": list(choice.needs),
        "to": choice.to.value,
        "consequence": choice.consequence,
        "sends": choice.sends,
        "jobs": list(choice.jobs),
        "precondition": choice.precondition,
        "cannot_undo": choice.undoable,
    }


# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the journal, for people: what the row says, with the data out of its exact bytes.

    `data` is None where those bytes cannot be read; only a damaged journal has such rows.
    """

    seq: int
    at: datetime
    actor: str
    actor_kind: str | None
    kind: str
    from_state: str | None
    to_state: str | None
    cause: str
    reason: str | None
    remote_job_id: str | None
    data: Json | None
    prev_hash: str
    hash: str
    host: str | None = None  #: where the actor's process ran; None in events of older versions
    process: str | None = None


def event_of(row: Row) -> Event:
    """Read a stored row."""
    try:
        body = jsontext.loads(row.body)
    except jsontext.JsonError:
        body = None
    found = body if isinstance(body, dict) else {}
    actor, data = found.get("actor"), found.get("data")
    who = actor if isinstance(actor, dict) else {}
    return Event(
        seq=row.seq,
        at=EPOCH + timedelta(microseconds=row.at),
        actor=row.actor,
        actor_kind=who.get("kind"),
        kind=row.kind,
        from_state=row.from_state,
        to_state=row.to_state,
        cause=row.cause,
        reason=row.reason,
        remote_job_id=row.remote_job_id,
        data=data if isinstance(data, dict) else None,
        prev_hash=row.prev_hash.hex(),
        hash=row.hash.hex(),
        host=_word(who.get("host")),
        process=_word(who.get("process")),
    )


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def transition(event: Event) -> Json:
    """Return one change of state as `history` gives it."""
    return {
        "seq": event.seq,
        "at": moment(event.at),
        "actor": event.actor,
        "from": event.from_state,
        "to": event.to_state,
        "kind": event.kind,
        "cause": event.cause,
        "reason": event.reason,
        "remote_job_id": event.remote_job_id,
    }


def journal_event(event: Event) -> Json:
    """Return one event as `events` gives it."""
    return {
        **transition(event),
        "actor_kind": event.actor_kind,
        "host": event.host,
        "process": event.process,
        "data": event.data,
        "prev_hash": event.prev_hash,
        "hash": event.hash,
    }


# --- answers to questions ----------------------------------------------------------------------------------------


def explanation(found: Explanation) -> Json:
    """Return why an operation is where it is, as `explain` gives it."""
    blocked = found.blocked_by
    return {
        "operation_id": found.operation.operation_id,
        "state": found.operation.state.value,
        "why": found.why,
        "evidence": list(found.evidence),
        "next": planned(found.next),
        "blocked_by": None
        if blocked is None
        else {"code": blocked.code, "reason": blocked.reason, "until": moment(blocked.until)},
        "choices": [option(choice) for choice in found.choices],
    }


def contract_report(name: str, guarantees: Guarantees | None, problems: Sequence[ContractProblem] = ()) -> Json:
    """Return what `contract check` says: what is wrong, or what the contract lets us promise."""
    return {
        "name": name,
        "valid": guarantees is not None,
        "errors": [{"key": wrong.key, "line": wrong.line, "message": wrong.message} for wrong in problems],
        "guarantees": None
        if guarantees is None
        else {
            "create": dict(guarantees.create),
            "cancel": dict(guarantees.cancel),
            "result": dict(guarantees.result),
            "webhooks": dict(guarantees.webhooks),
            "gaps": list(guarantees.gaps),
        },
    }
