"""The record an operation begins with: everything `Submitted` says, and the deadlines that run from then on."""

from __future__ import annotations

from datetime import datetime

from opledger.rules.evidence import Submitted
from opledger.rules.model import Attention, Operation, State


def opened(operation_id: str, at: datetime, ev: Submitted, state: State) -> Operation:
    """Return the record that a submit begins."""
    waits = state is State.AWAITING_APPROVAL
    return Operation(
        operation_id=operation_id,
        contract=ev.contract,
        contract_digest=ev.contract_digest,
        request_fingerprint=ev.fingerprint,
        idempotency_token=ev.token,
        trace_id=ev.trace_id,
        requested_by=ev.requested_by,
        created_at=at,
        state=state,
        create_timeout=ev.create_timeout,
        result_timeout=ev.result_timeout,
        cancel_timeout=ev.cancel_timeout,
        collect_timeout=ev.collect_timeout,
        expectation=ev.expectation,
        expected_effect=ev.expected_effect,
        tags=dict(ev.tags or {}),
        supersedes=ev.supersedes,
        task=ev.task,
        step=ev.step,
        approvals_needed=ev.approvals_needed,
        approval_deadline=at + ev.approval_timeout if waits and ev.approval_timeout is not None else None,
        create_deadline=None if waits else at + ev.create_timeout,
        result_deadline=None if waits else at + ev.result_timeout,
        attention=Attention(state, at, ev.approval_because or "a person must approve before anything is sent")
        if waits
        else None,
    )
