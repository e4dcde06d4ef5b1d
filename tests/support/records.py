"""Records for tests: made at once in any shape, or told as a story of evidence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.decide import plan
from opledger.rules.model import Action, Actor, ActorKind, Means, Operation, State
from opledger.rules.projection import Entry, project
from tests.support.contracts import WORDS

T0: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
OPERATION_ID: Final = "op_01J7Q5X4D4PA3DK0F5Q2V8W9AB"
TOKEN: Final = "idem_abcdefghijklmnop"
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
FINGERPRINT: Final = "sha256:" + "f" * 64
JOB: Final = "job_1"
WORKER: Final = Actor("worker-1", ActorKind.WORKER)


def seconds(number: float) -> timedelta:
    """A duration."""
    return timedelta(seconds=number)


def a_record(state: State = State.OBSERVING, **facts: Any) -> Operation:
    """A record in any shape, possible or not, with nothing known beyond `facts`."""
    whole: dict[str, Any] = {
        "operation_id": OPERATION_ID,
        "contract": "reports",
        "contract_digest": "sha256:" + "c" * 64,
        "request_fingerprint": FINGERPRINT,
        "idempotency_token": TOKEN,
        "trace_id": TRACE,
        "requested_by": "agent-7",
        "created_at": T0,
        "state": state,
        "create_timeout": timedelta(minutes=2),
        "result_timeout": timedelta(hours=1),
        "cancel_timeout": timedelta(minutes=10),
        "collect_timeout": timedelta(minutes=15),
    }
    return Operation(**{**whole, **facts})


def a_submission(**changes: Any) -> e.Submitted:
    """The first event of an operation."""
    whole = e.Submitted(
        contract="reports",
        contract_digest="sha256:" + "c" * 64,
        fingerprint=FINGERPRINT,
        token=TOKEN,
        trace_id=TRACE,
        requested_by="agent-7",
        approvals_needed=0,
        create_timeout=timedelta(minutes=2),
        result_timeout=timedelta(hours=1),
        cancel_timeout=timedelta(minutes=10),
        collect_timeout=timedelta(minutes=15),
        method="POST",
        url="https://api.example.com/v1/reports",
        body_sha256="b" * 64,
    )
    return replace(whole, **changes)


def a_permit(action: Action, call_id: str = "call_1", *, strategy: str | None = None) -> e.CallSent:
    """The permit of an effectful call, as the worker writes it."""
    return e.CallSent(
        call_id=call_id,
        action=action,
        method="POST",
        url="https://api.example.com/v1/reports",
        attempt=1,
        strategy=strategy,
        may_create=action is Action.CREATE or strategy == "resend",
    )


class Story:
    """An operation told event by event: each is folded in, and what happens next is planned as the worker plans it."""

    def __init__(self, contract: Contract, **submission: Any) -> None:
        self.contract = contract
        self.now = T0
        self.entries: list[Entry] = []
        self.op = a_record()  # stands in until the next line
        self._tell(None, a_submission(**submission), "submit", None)

    def wait(self, time: float | timedelta) -> Story:
        """Let time pass."""
        self.now += time if isinstance(time, timedelta) else seconds(time)
        return self

    def tell(self, *all_evidence: e.Evidence, cause: str = "test", reason: str | None = None) -> Operation:
        """Record evidence, one event each, now. Raises IllegalTransition where it does not apply."""
        for evidence in all_evidence:
            self._tell(self.op, evidence, cause, reason)
        return self.op

    def _tell(self, before: Operation | None, evidence: e.Evidence, cause: str, reason: str | None) -> None:
        seq = len(self.entries) + 1
        entry = Entry(OPERATION_ID, seq, self.now, WORKER, evidence, cause, reason)
        after = project(before, entry)
        ahead = plan(after, self.contract, evidence, self.now, 0.5)
        self.entries.append(entry)
        self.op = replace(after, next=ahead, version=seq, head_seq=seq)

    # --- shortcuts ----------------------------------------------------------------------------------------------

    def lost(self, call_id: str = "call_1") -> Operation:
        """A create was sent and its answer lost."""
        return self.tell(a_permit(Action.CREATE, call_id), e.CallLost(call_id=call_id, why="reset"))

    def accepted(self, job_id: str = JOB, call_id: str = "call_1", **facts: Any) -> Operation:
        """A create was sent and accepted."""
        return self.tell(a_permit(Action.CREATE, call_id), e.Accepted(call_id=call_id, job_id=job_id, **facts))

    def observing(self) -> Operation:
        """The job is accepted and has been seen running."""
        self.accepted()
        return self.tell(seen("running"))


def seen(word: str, **facts: Any) -> e.Observed:
    """A status read with one of the words of `tests.support.contracts`."""
    return e.Observed(call_id="read", job_id=JOB, remote_state=word, means=WORDS.get(word, Means.UNKNOWN), **facts)
