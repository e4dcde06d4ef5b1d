"""Output of a job that did not succeed: when it is worth having, and until when it is tried for (DESIGN §5).

It is collected after the job's end and attached; the state stays what it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.model import TERMINAL, Action, Means, Operation, State

LOST: Final = "partial_unavailable"
"""Attention: the partial output cannot be had. Nothing is tried again after it."""
INVALID: Final = "partial_invalid"
"""Attention: the partial output was attached, and is not what it should be."""

GIVEN_UP: Final = e.ReadFailed(
    action=Action.COLLECT, why="the collect deadline passed before the partial output could be fetched", code=LOST
)
"""What is recorded at that deadline."""


def is_worth(contract: Contract, means: Means | None) -> bool:
    """Tell whether the contract wants the output of a job that ended so, other than by success."""
    return means is not Means.SUCCEEDED and contract.result is not None and means in contract.result.collect_in


def wanted(op: Operation, contract: Contract) -> bool:
    """Tell whether there is partial output that is still to be collected."""
    given_up = op.attention is not None and op.attention.code == LOST
    return (
        op.state in (State.FAILED, State.CANCELLED)
        and op.remote_job_id is not None
        and op.result is None
        and not given_up
        and is_worth(contract, op.remote_means)
    )


def deadline(op: Operation) -> datetime:
    """Return when it is given up: counted from the status read that told of the end."""
    return (op.observed_at or op.created_at) + op.collect_timeout


def ending(op: Operation, evidence: e.Evidence) -> e.Evidence:
    """Return what ends a collecting as it may be recorded of a job that has ended: its state stays what it is."""
    if op.state not in TERMINAL or not isinstance(evidence, e.ResultMissing | e.ResultInvalid | e.Violation):
        return evidence
    return e.ReadFailed(
        call_id=evidence.call_id,
        status=evidence.status,
        answer=evidence.answer,
        request_id=evidence.request_id,
        notes=evidence.notes,
        action=Action.COLLECT,
        why=evidence.why,
        code=LOST,
    )


def tries(op: Operation, evidence: e.Evidence) -> int | None:
    """Return how many tries came before the next one, by which it waits; None where it follows at once.

    A failed read waits, and so does another word of the provider: a job that came back to life is not asked as fast as
    the machine can.
    """
    if isinstance(evidence, e.ReadFailed) and evidence.action is Action.COLLECT:
        return op.attempts.collect
    other_word = isinstance(evidence, e.Observed) and evidence.means is not op.remote_means
    return op.attempts.observe if other_word or isinstance(evidence, e.ReadFailed) else None
