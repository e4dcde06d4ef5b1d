"""What a kept delivery says of its job, where the provider has no status read.

It is lower-grade evidence: nobody asked, nothing can be asked again, and deliveries come in any order, twice, or never.
So a delivery may only take an operation forward. What is older than the end that is known changes nothing, what was
there before our create was sent is not about our job, and another end than the known one is for a person to look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from opledger.rules import evidence as e
from opledger.rules.answers import CLOCK_SKEW, by_rule, observed
from opledger.rules.calls import Answer
from opledger.rules.contract import Contract
from opledger.rules.decisions import Read
from opledger.rules.model import FINAL_MEANS, SUCCESS_MEANS, TERMINAL, Means, Operation, State
from opledger.rules.pages import Page, means_of, open_page, word_of
from opledger.rules.values import MISSING

CAUSE: Final = "webhook:"
"""What the cause of everything that a delivery brings begins with; its id follows."""

UNREADABLE: Final = "delivery_unreadable"
"""Attention: a delivery was verified and kept, and cannot be read."""

MOST: Final = 200
"""Most deliveries of one operation that wait to be read; of more, the newest."""

GRADE: Final = "told by a delivery, not read from the provider: lower-grade evidence"

_WAITS_FOR_JOB: Final = frozenset(
    {
        *(State.AWAITING_APPROVAL, State.CREATE_PENDING, State.CREATE_UNKNOWN, State.RECONCILIATION),
        State.CONTRACT_VIOLATION,
    }
)
"""States in which it is open which job a delivery would be about."""

_OPEN: Final = frozenset(
    {
        *(State.ACCEPTED, State.OBSERVING, State.CANCEL_REQUESTED, State.CANCELLING),
        *(State.CANCELLATION_UNCONFIRMED, State.RESULT_TIMED_OUT),
    }
)
"""States in which it is open how the job ends."""


def unread(op: Operation, contract: Contract) -> Read | None:
    """Return the oldest delivery that is to be read, where the job is known and deliveries are all there is.

    What comes before the job is known waits until it is; what comes in a violation, until a person has decided.
    """
    if not op.unread or not contract.status.by_delivery or op.state in _WAITS_FOR_JOB:
        return None
    seq, delivery = min((seq, delivery) for delivery, seq in op.unread.items())
    return Read(delivery, seq, "a delivery has come and is not read yet")


def waiting(before: Mapping[str, int], evidence: e.Evidence, cause: str, seq: int) -> Mapping[str, int]:
    """Return the deliveries that wait to be read after some evidence: one more, one less, or the same.

    One that speaks of another job waits on: which job is meant is for a person to say, and then it is read.
    """
    if not cause.startswith(CAUSE) or isinstance(evidence, e.Violation):
        return before
    delivery = cause.removeprefix(CAUSE)
    if isinstance(evidence, e.Notified):
        return dict([*before.items(), (delivery, seq)][-MOST:]) if evidence.counts else before
    return {one: told for one, told in before.items() if one != delivery} if delivery in before else before


def told_by(op: Operation, seen: e.Observed) -> str | None:
    """Return which body names the job's result from now on. No other end takes that of a success from us."""
    ends = seen.means in FINAL_MEANS
    keeps = op.remote_means in SUCCESS_MEANS and seen.means not in SUCCESS_MEANS
    return seen.answer if ends and not keeps else op.told


def read(told: e.Notified, came: datetime, body: bytes, op: Operation, contract: Contract) -> e.Evidence:
    """Read a delivery as a status answer is read, less what only an answer can say.

    `told` is the event that handed it over and `came` the time of that event; `body` is what was kept.
    """
    came = told.received_at or came
    if op.first_sent_at is not None and came < op.first_sent_at - CLOCK_SKEW:
        return _nothing(told, "it came before the create was sent, so it is not about our job")
    other = _other_job(told, op)
    if other is not None:
        return other
    page = open_page(Answer(200, {"content-type": "application/json"}, body, came), contract, op)
    if not page.is_json:
        why = page.why_not_json.replace("the answer", "what was kept of it")
        return e.ReadFailed(answer=told.answer, why=f"delivery {told.reference} cannot be read: {why}", code=UNREADABLE)
    means, word = by_rule(page, event_type=told.event_type or "")
    words = [page.pick(pick) for pick in contract.status.state]
    if word is None:
        if all(found is MISSING or found is None for found in words):
            return _nothing(told, "it says nothing about the state of the job")
        word = "/".join(map(word_of, words))
    return _seen(told, page, word, means or means_of(contract, word))


def _seen(told: e.Notified, page: Page, word: str, means: Means) -> e.Evidence:
    op = page.op
    if op.state not in _OPEN and means not in FINAL_MEANS:
        return _nothing(told, f"it says {word} after {op.remote_state or op.state}, and that is no end")
    if op.state is State.RESULT_COLLECTING and means not in SUCCESS_MEANS:
        why = f"the job was {op.remote_state}, and a delivery now says {word}"
        return e.FinalStateChanged(answer=told.answer, why=why, jobs=tuple(filter(None, (op.remote_job_id,))))
    seen = observed(page, None, told.answer, word, means)
    sent = op.first_sent_at
    if seen.updated_at is not None and sent is not None and seen.updated_at < sent - CLOCK_SKEW:
        return _nothing(told, "it is dated before the create was sent, so it is not about our job")
    newest = op.told_at
    if means not in FINAL_MEANS and newest is not None and (seen.updated_at or newest) < newest:
        return _nothing(told, f"it says {word}, and is older than what is known")
    notes = (*seen.notes, GRADE)
    return replace(seen, status=None, delivery=told.reference, notes=notes, retry_at=None, hint=None)


def _other_job(told: e.Notified, op: Operation) -> e.Evidence | None:
    """Compare the job that a delivery names with the one that is known."""
    named, known = told.job_id, op.remote_job_id
    if named is None or named == known:
        return None
    if known is None:
        # It has ended without a job: refused, withdrawn or closed. A synchronous success has no job either.
        if op.remote_means in FINAL_MEANS:
            return None
        late = e.Accepted(job_id=named, answer=told.answer, how="delivery")
        return e.Noted(f"delivery {told.reference} names job {named}", late_kind=late.kind, late=e.to_data(late))
    if named in op.jobs:
        return _nothing(told, f"it is about job {named}, and this operation's job is {known}")
    why = f"a delivery for job {known} names job {named}"
    changed = e.IdentityChanged(answer=told.answer, why=why, jobs=(known, named))
    if op.state not in TERMINAL:
        return changed
    return e.Noted(why, late_kind=changed.kind, late=e.to_data(changed))


def _nothing(told: e.Notified, why: str) -> e.Noted:
    """A delivery that changes nothing, and why: it is read, and kept."""
    data: dict[str, Any] = {"answer": told.answer} if told.answer is not None else {}
    return e.Noted(f"delivery {told.reference} changes nothing: {why}", late=data or None)
