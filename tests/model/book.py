"""The real rules, remembered: every record is a small number, and no question is put to the rules twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.errors import IllegalTransition, Refused
from opledger.rules import answers, decide, human, lookups
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Failure, Fate
from opledger.rules.decisions import AskHuman, Decision
from opledger.rules.model import TERMINAL, Action, Actor, ActorKind, Attempts, Attention, Operation, StoredResult
from opledger.rules.policy import Demand
from opledger.rules.projection import Entry, project
from tests.model.scenarios import APPROVAL, CANCEL, COLLECT, CREATE, RESULT, T0, TICK, Scenario

WORKER: Final = Actor("worker", ActorKind.WORKER)
FINGERPRINT: Final = "sha256:11"
GOOD: Final = StoredResult("file:///r", 2, "0" * 64, "application/json", validated=True)
BAD: Final = replace(GOOD, validated=False)

Code = tuple[Any, ...]
"""What came back on a call, in short: ("job", "j0a"), ("lost",), ("503",), …"""


class Broken(Exception):
    """A law was broken on the way from one state to the next."""


def at(now: int) -> datetime:
    """The time at a tick."""
    return T0 + now * TICK


def name(k: int) -> str:
    """The id of the k-th operation."""
    return f"op_01TESTTESTTESTTESTTEST000{k}"


def _plain(op: Operation, strategies: int) -> Operation:
    """The record without what only words, counters and waits are made of: worlds that differ in these are one."""
    attention = None if op.attention is None else Attention(op.attention.code, T0, "")
    return replace(
        op,
        next=None,
        attempts=Attempts(),
        backoff=0,
        failures=0,
        last_error=None,
        attention=attention,
        observed_at=None,
        accepted_at=None if op.accepted_at is None else T0,
        absent_since=None,
        expected_effect=None,
        strategy=op.strategy % max(strategies, 1),
        remote_state=None if op.remote_means is None else op.remote_state,
        approvals=tuple(replace(one, at=T0) for one in op.approvals),
        cancel=None if op.cancel is None else replace(op.cancel, at=T0, reason=""),
        open_call=None if op.open_call is None else replace(op.open_call, at=T0),
    )


_FIELDS: Final = tuple(one.name for one in fields(Operation))


def _key(op: Operation) -> tuple[Any, ...]:
    values = (getattr(op, one) for one in _FIELDS)
    return tuple(tuple(sorted(value.items())) if isinstance(value, Mapping) else value for value in values)


class Book:
    """Records as numbers, and what the rules say of them."""

    def __init__(self, scenario: Scenario) -> None:
        self.contract = scenario.contract
        self.scenario = scenario
        self.records: list[Operation] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._applied: dict[tuple[Any, ...], int | str] = {}
        self._decided: dict[tuple[int, int], Decision] = {}
        self._memory: dict[tuple[Any, ...], Any] = {}

    def number(self, op: Operation) -> int:
        """The number of a record."""
        op = _plain(op, len(self.contract.reconcile))
        key = _key(op)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.records)
            self.records.append(op)
        return found

    def submit(self, k: int) -> int:
        """The number of a new record."""
        minutes = TICK
        submitted = e.Submitted(
            contract="jobs",
            contract_digest="sha256:00",
            fingerprint=FINGERPRINT,
            token=f"idem_{k}" if self.contract.create.idempotency.mechanism != "none" else None,
            trace_id="0" * 32,
            requested_by="agent-7",
            approvals_needed=self.scenario.approvals,
            create_timeout=CREATE * minutes,
            result_timeout=RESULT * minutes,
            cancel_timeout=CANCEL * minutes,
            collect_timeout=COLLECT * minutes,
            method="POST",
            url="https://api.example.com/jobs",
            body_sha256="0" * 64,
            approval_timeout=APPROVAL * minutes if self.scenario.approvals else None,
        )
        return self.number(project(None, Entry(name(k), 1, T0, WORKER, submitted, "submit")))

    def apply(self, number: int, evidence: e.Evidence, now: int, cause: str = "") -> int | str:
        """The record after some evidence, or why there is no such arrow. Raises Broken where nothing would follow."""
        if isinstance(evidence, e.Noted):  # it holds a dictionary, which cannot be looked up
            return self._apply(number, evidence, now, cause)
        key = (number, evidence, now)
        found = self._applied.get(key)
        if found is None:
            found = self._applied[key] = self._apply(number, evidence, now, cause)
        return found

    def _apply(self, number: int, evidence: e.Evidence, now: int, cause: str) -> int | str:
        before = self.records[number]
        try:
            after = project(before, Entry(before.operation_id, 1, at(now), WORKER, evidence, cause or "call:c"))
        except IllegalTransition as error:
            return error.message
        self._planned(before, after, evidence, now)
        return self.number(after)

    def late(self, number: int, evidence: e.Answered, now: int) -> int | None:
        """The record after an answer came too late to be acted on (hand.py, _keep_late); None where it is refused."""
        key = ("late", number, evidence, now)
        if key not in self._memory:
            current = self.records[number]
            note = e.Noted("late", late_kind=evidence.kind, late=e.to_data(evidence))
            late: e.Evidence = note
            job = evidence.job_id if isinstance(evidence, e.Accepted) else None
            if job and current.jobs and job not in current.jobs:
                late = e.UnfamiliarJobId(call_id=evidence.call_id, why="late", jobs=(*current.jobs, job))
            elif isinstance(evidence, e.Violation):
                late = evidence
            after = self.apply(number, late, now)
            if isinstance(after, str):
                after = self.apply(number, note, now)
            self._memory[key] = None if isinstance(after, str) else after
        found: int | None = self._memory[key]
        return found

    def _planned(self, before: Operation, after: Operation, evidence: e.Evidence, now: int) -> None:
        plan = decide.plan(after, self.contract, evidence, at(now), 0.5)
        if after.state in TERMINAL or isinstance(self.decide(self.number(after), now), AskHuman):
            return
        if plan is None or plan.at is None:
            raise Broken(f"I21: {after.state} after {evidence.kind} has no next step, so nobody would ever look again")
        deadline = decide.open_deadline(after)
        if deadline is not None and plan.at > max(deadline[1], at(now)):
            raise Broken(f"I21: {after.state} after {evidence.kind} is looked at only after its deadline")
        asked = getattr(evidence, "retry_at", None)
        if asked is not None and plan.at < asked and (deadline is None or plan.at < deadline[1] - timedelta(seconds=3)):
            raise Broken(f"I20: the provider asked to wait, and {after.state} is looked at earlier")

    def decide(self, number: int, now: int) -> Decision:
        """What the rules decide."""
        key = (number, now)
        found = self._decided.get(key)
        if found is None:
            found = self._decided[key] = decide.decide(self.records[number], self.contract, at(now))
        return found

    def resting(self, number: int, now: int) -> bool:
        """True where nothing more happens by itself: it has ended, or a person is asked."""
        return self.records[number].state in TERMINAL or isinstance(self.decide(number, now), AskHuman)

    # --- what answers mean, as the rules read them -------------------------------------------------------------

    def read(self, copy: int, action: Action, how: int, call: str, code: Code, now: int) -> e.Evidence:
        """What an answer means to a worker whose copy of the record is `copy`. `how` is the reconcile strategy."""
        key = (copy, action, how, call, code, now)
        found = self._memory.get(key)
        if found is None:
            found = self._memory[key] = self._read(self.records[copy], action, how, call, code, now)
        return found

    def _read(self, op: Operation, action: Action, how: int, call: str, code: Code, now: int) -> e.Evidence:
        outcome = _outcome(op, code, now)
        facts: dict[str, Any] = {"call_id": call, "answer": None}
        if action is Action.OBSERVE:
            return answers.read_status(outcome, op, self.contract, now=at(now), **facts).evidence
        if action is Action.CANCEL:
            return answers.read_cancel(outcome, op, self.contract, **facts).evidence
        if action is Action.COLLECT:
            return self._read_result(op, outcome, call, code)
        strategy = self.contract.reconcile[how] if action is Action.RECONCILE else None
        if strategy is None or strategy.strategy == "resend":
            return answers.read_create(outcome, op, self.contract, resend=strategy is not None, **facts).evidence
        search = lookups.Search(strategy)
        page = lookups.read_page(outcome, op, self.contract, search, **facts)
        if isinstance(page, answers.Reading):
            return page.evidence
        return lookups.conclude(search, op, at(now), complete=True)

    def _read_result(self, op: Operation, outcome: Answer | Failure, call: str, code: Code) -> e.Evidence:
        if code[0] == "file":
            return e.ResultAccepted(call_id=call, result=GOOD)
        if code[0] == "bad":
            return e.ResultInvalid(call_id=call, result=BAD, why="it does not fit")
        return answers.read_missing_result(outcome, op, self.contract, call_id=call, answer=None).evidence

    # --- what people may ask -----------------------------------------------------------------------------------

    def cancellation(self, number: int) -> e.Evidence | None:
        """A person wants it cancelled; None where that is refused."""
        try:
            return human.cancellation(self.records[number], self.contract, Actor("jo"), "req_1")
        except Refused:
            return None

    def approval(self, number: int, who: str, now: int) -> e.Evidence | None:
        """A person approves; None where that is refused."""
        try:
            return human.approval(self.records[number], Actor(who), Demand(), FINGERPRINT, now=at(now))
        except Refused:
            return None

    def cancel_job(self, copy: int) -> str:
        """The job that a cancel of this record is sent for."""
        return self.records[copy].remote_job_id or ""


def _outcome(op: Operation, code: Code, now: int) -> Answer | Failure:
    kind = code[0]
    if kind == "lost":
        return Failure(Fate.LOST, "reset")
    if kind == "nd":
        return Failure(Fate.NOT_DELIVERED, "refused")
    if kind == "job":
        return _answer(202, {"id": code[1], "state": "running"}, now)
    if kind == "word":
        return _answer(200, {"id": op.remote_job_id, "state": code[1]}, now)
    if kind == "list":
        items = [{"id": job, "state": word, "ref": op.operation_id} for job, word in code[1]]
        return _answer(200, {"data": items}, now)
    return _answer({"soon": 404, "gone": 410, "file": 200, "bad": 200}.get(kind) or int(kind), {}, now)


def _answer(status: int, document: Any, now: int) -> Answer:
    body = json.dumps(document).encode()
    return Answer(status, {"content-type": "application/json"}, body, at(now), "https://api.example.com/jobs")
