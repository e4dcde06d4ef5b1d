"""When a person should look at a record though automation goes on: the codes, and the sentence beside each.

Every function returns the attention that holds afterwards, which is the one before where nothing is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from opledger.rules import evidence as e
from opledger.rules.model import FINAL_MEANS, NEEDS_HUMAN, Attention, Means, Operation, State

PERSISTENT: Final = 3
"""How many failed reads or undelivered calls in a row make an attention."""

_PATIENCE: Final = frozenset({"not_ready", "not_visible_yet"})
"""Codes of failed reads that are expected for a while; a deadline ends them."""

_AT_ONCE: Final = frozenset({"gone", "delivery_unreadable"})
"""Codes of failed reads that waiting will not mend."""

_REMARKABLE: Final[Mapping[Means, tuple[str, str]]] = {
    Means.UNKNOWN: ("unknown_state", "the contract does not say what {!r} means; polling goes on"),
    Means.WAITING_HUMAN: ("waiting_human", "the job waits for a person at the provider"),
    Means.GONE: ("gone", "the provider says {!r}: it no longer has the job"),
}


def on_entering(state: State, evidence: e.Evidence, reason: str | None, at: datetime) -> Attention | None:
    """A state was entered: the attention of the last one ends, and a state that needs a person raises its own."""
    if state not in NEEDS_HUMAN:
        return None
    if isinstance(evidence, e.DeadlinePassed):
        return Attention(state, at, f"the {evidence.which} deadline passed")
    return Attention(state, at, getattr(evidence, "why", "") or reason or evidence.kind)


def after_word(op: Operation, seen: e.Observed, at: datetime) -> Attention | None:
    """A status read was understood: that ends every earlier trouble, unless the word itself is remarkable."""
    if op.state is State.RESULT_COLLECTING and seen.means not in FINAL_MEANS:
        why = f"the provider says {seen.remote_state!r} of a job that had succeeded; it is read again"
        return _since(op, Attention("status_went_backwards", at, why))
    remark = _REMARKABLE.get(seen.means)
    if remark is None:
        return None
    why = remark[1].format(seen.remote_state)
    why = why if seen.delivery is None else why.replace("polling goes on", "the next delivery is waited for")
    return _since(op, Attention(remark[0], at, why))


def after_late_word(op: Operation, seen: e.Observed, at: datetime) -> Attention | None:
    """A status read of an operation that has ended: only another final word, or a job come back to life, is news."""
    if op.remote_means not in FINAL_MEANS or seen.means in (Means.UNKNOWN, op.remote_means):
        return op.attention
    why = f"the provider now says {seen.remote_state}, after {op.remote_state}; the record stays as it is"
    return Attention("final_state_contradicted", at, why)


def after_late_news(ev: e.Noted, at: datetime) -> Attention:
    """An operation that has ended learns that a job was created all the same, or that its job is another one's too."""
    job_id = (ev.late or {}).get("job_id")
    why = f"a late answer says that job {job_id} was created; the record stays as it is" if job_id else ev.text
    return Attention("final_state_contradicted", at, why)


def after_failed_read(op: Operation, failed: e.ReadFailed, at: datetime) -> Attention | None:
    """A read told us nothing: shown once it persists, and at once where waiting mends nothing."""
    persists = failed.code in _AT_ONCE or (op.failures + 1 >= PERSISTENT and failed.code not in _PATIENCE)
    return _since(op, Attention(failed.code, at, failed.why)) if persists and not op.exhausted else op.attention


def after_undelivered(op: Operation, undone: e.NotDelivered | e.Throttled, at: datetime) -> Attention | None:
    """A call was not taken: shown once it persists."""
    if op.failures + 1 < PERSISTENT or op.attention is not None:
        return op.attention
    return Attention("throttled" if isinstance(undone, e.Throttled) else "not_delivered", at, undone.why)


def settle_acknowledgement(op: Operation, evidence: e.Evidence, changes: dict[str, Any]) -> None:
    """Add to the changes of a record who has seen its attention. Another attention, or none, has been seen by nobody.

    The same attention with another sentence is still the one that was seen.
    """
    if isinstance(evidence, e.Acknowledged) and op.attention is not None:
        changes |= {"acknowledged_by": evidence.by, "acknowledged_until": evidence.until}
    elif op.acknowledged_by is not None and "attention" in changes:
        before, after = op.attention, changes["attention"]
        if before is None or after is None or (after.code, after.since) != (before.code, before.since):
            changes |= {"acknowledged_by": None, "acknowledged_until": None}


def _since(op: Operation, new: Attention) -> Attention:
    """Keep since when, where the code is the same."""
    same = op.attention is not None and op.attention.code == new.code
    return Attention(new.code, op.attention.since, new.reason) if op.attention is not None and same else new
