"""From what somebody wants done to the first event of an operation and the request that will be sent.

Everything that can be refused is refused here, before anything is written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from opledger.errors import BodyConflict, UsageError
from opledger.rules import expectation, fingerprint, items, policy, requests
from opledger.rules.contract import Contract
from opledger.rules.evidence import Submitted
from opledger.rules.model import Operation, StoredRequest, to_rfc3339
from opledger.rules.policy import Demand, Policy

_ID: Final = re.compile(r"op_[0-9A-Za-z_-]{1,64}")
_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")
_NAME: Final = 200
_TEXT: Final = 4_000


@dataclass(frozen=True, slots=True)
class Wish:
    """One piece of work that somebody wants done, once.

    `body` is a JSON value; deadlines count from the moment it may be sent. A `task` goes with a `step`.
    """

    contract: str
    body: Any = None
    requested_by: str = ""
    operation_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    expectation: str | None = None
    create_deadline: timedelta | None = None
    result_deadline: timedelta | None = None
    supersedes: str | None = None
    task: str | None = None
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """A wish that may be written down: its first event, and the exact request."""

    operation_id: str
    submitted: Submitted
    request: StoredRequest


def check(wish: Wish) -> None:
    """Raise UsageError for an id, tag, deadline or text that cannot be kept."""
    if wish.operation_id is not None and _ID.fullmatch(wish.operation_id) is None:
        raise UsageError(
            f"{wish.operation_id!r} is not an operation id; write op_ and up to 64 letters, digits, - or _"
        )
    for key, value in wish.tags.items():
        if _TAG.fullmatch(key) is None or len(value) > _NAME or not value.isprintable():
            raise UsageError(f"the tag {key}={value} cannot be kept; use short words and printable values")
    for name, span in (("create", wish.create_deadline), ("result", wish.result_deadline)):
        if span is not None and span <= timedelta(0):
            raise UsageError(f"the {name} deadline must lie ahead; give a duration of more than 0")
    if (wish.task is None) != (wish.step is None):
        raise UsageError("a task needs its step and a step its task; give both or neither")
    for name, text in (("task", wish.task), ("step", wish.step)):
        if text is not None and (not text.strip() or len(text) > _NAME or not text.isprintable()):
            raise UsageError(f"the {name} {text!r} cannot be kept; use a short printable name")
    if wish.expectation is not None and (len(wish.expectation) > _TEXT or "\0" in wish.expectation):
        raise UsageError(f"the expectation is longer than {_TEXT} characters or holds a NUL; shorten it")
    try:
        expectation.check(wish.expectation)
    except ValueError as error:
        raise UsageError(f"the expectation cannot be tried: {error}") from error


def fingermarkof(wish: Wish, contract: Contract) -> str:
    """Return the fingerprint that a wish has under a contract. Raises UsageError for a body that is not JSON."""
    try:
        return requests.wish(contract, wish.body)
    except ValueError as error:
        raise UsageError(f"the body cannot be sent: {error}; mend it and submit again") from error


def same(wish: Wish, first: Operation, pinned: Contract) -> Operation:
    """Return the operation that stands for this wish already; `pinned` is the contract it was submitted under.

    A contract that has been edited since makes no new wish of an old one. Raises BodyConflict for another body.
    """
    if first.contract == wish.contract and fingermarkof(wish, pinned) == first.request_fingerprint:
        return first
    as_step = f"task {first.task}, step {first.step} is " if _same_step(wish, first) else ""
    raise BodyConflict(
        f"{as_step}{first.operation_id}, which {first.requested_by} submitted to {first.contract} at "
        f"{to_rfc3339(first.created_at)} with another body ({first.request_fingerprint}); the first one stands: "
        "give a changed wish an identity of its own"
    )


def _same_step(wish: Wish, first: Operation) -> bool:
    return wish.task is not None and (wish.task, wish.step) == (first.task, first.step)


def needs(wish: Wish, contract: Contract, operation_id: str, policies: Sequence[Policy]) -> Demand:
    """Return the approval that a wish needs before it may leave. `body` in a policy is what the caller asked for."""
    subject = {
        "operation_id": operation_id,
        "contract": contract.name,
        "method": contract.create.method,
        "url": contract.base_url,
        "body": wish.body,
        "requested_by": wish.requested_by,
        "tags": dict(wish.tags),
        "task": wish.task,
        "step": wish.step,
    }
    return policy.demand(policies, contract, subject)


def admit(wish: Wish, contract: Contract, *, operation_id: str, trace_id: str, demand: Demand) -> Admitted:
    """Make the first event and the request of an operation that may be written down.

    Raises UsageError for a body that does not fit the contract, Refused for one that already carries a field which the
    contract fills in, or that holds two items under one key.
    """
    items.sent_keys(contract, wish.body)
    mark = fingermarkof(wish, contract)
    idempotency = contract.create.idempotency
    token = None
    if idempotency.mechanism != "none":
        token = fingerprint.token_for(
            operation_id, mark, task=wish.task, step=wish.step, max_length=idempotency.max_length
        )
    request = requests.prepare(contract, operation_id=operation_id, token=token, trace_id=trace_id, asked=wish.body)
    deadlines = contract.deadlines
    submitted = Submitted(
        contract=contract.name,
        contract_digest=contract.digest,
        fingerprint=mark,
        token=token,
        trace_id=trace_id,
        requested_by=wish.requested_by,
        approvals_needed=demand.approvals,
        create_timeout=wish.create_deadline or deadlines.create,
        result_timeout=wish.result_deadline or deadlines.result,
        cancel_timeout=deadlines.cancel,
        collect_timeout=deadlines.collect,
        method=request.method,
        url=request.url,
        body_sha256=hashlib.sha256(request.body).hexdigest(),
        approval_timeout=demand.expires if demand.approvals else None,
        expectation=wish.expectation,
        tags=dict(wish.tags) or None,
        supersedes=wish.supersedes,
        task=wish.task,
        step=wish.step,
        approval_because=demand.because if demand.approvals else None,
        signed_approval=demand.signed,
        headers_sha256=requests.headers_digest(request.headers, request.content_type),
    )
    return Admitted(operation_id, submitted, request)
