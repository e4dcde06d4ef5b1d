"""Histories by luck, led to what none of them has reached yet: states, kinds of evidence, arrows."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from opledger.errors import IllegalTransition
from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.model import (
    NEEDS_HUMAN,
    TERMINAL,
    Action,
    Actor,
    ActorKind,
    Choice,
    Deadline,
    ItemSummary,
    Means,
    Operation,
    Plan,
    State,
    StoredFile,
    StoredRequest,
    StoredResult,
)
from opledger.rules.projection import Entry, project
from opledger.rules.requests import fingerprint_of, headers_digest
from opledger.store.recording import seal

T0: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
WORDS: Final = ("running", "päuse", 'say "no"', "back\\slash", '},"at":"x', "\u202e", "", "timeout after 3 s")
ACTORS: Final = (
    Actor("worker-1", ActorKind.WORKER, "host-1", "17@2026"),
    Actor('o"brien', ActorKind.HUMAN),
    Actor("agent-7", ActorKind.AGENT, "höst", None),
    Actor("policy", ActorKind.POLICY),
)
LONGEST: Final = 16
SIGNED: Final = frozenset({"Approved.signature", "Approved.signed_at", "Submitted.signed_approval"})
"""What only a person's key can make; tests/core/rules/test_approval_signatures.py has such."""
EVERY: Final = frozenset(f"{name}.{part.name}" for name, kind in e.KINDS.items() for part in fields(kind)) - SIGNED
REQUEST: Final = StoredRequest(
    "POST", "https://api.example.com/jobs", (), b'{"rows":5}', "application/json", b'{"rows":5}',
    "https://api.example.com/jobs",
)  # fmt: skip
_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

Row = tuple[Any, ...]
Weighed = tuple[int, float, e.Evidence]


@dataclass(slots=True)
class Reached:
    """What all histories together have come to."""

    arrows: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)


def name_of(number: int, luck: random.Random) -> str:
    """Return an operation id."""
    return f"op_01KB{number:06d}" + "".join(luck.choice(_LETTERS) for _ in range(16))


def submission(luck: random.Random, contract: Contract, number: int, digest: str) -> e.Submitted:
    """Return the first event of an operation."""
    approvals = luck.choice((0, 0, 0, 0, 1, 2))
    return e.Submitted(
        contract=contract.name,
        contract_digest=contract.digest,
        fingerprint=fingerprint_of(contract, REQUEST),
        token=f"idem_{number:020d}" if number % 11 else None,
        trace_id=f"{number + 1:032x}",
        requested_by=luck.choice(("agent-7", "ana", "höst")),
        approvals_needed=approvals,
        create_timeout=timedelta(minutes=2),
        result_timeout=timedelta(hours=1),
        cancel_timeout=timedelta(minutes=5),
        collect_timeout=timedelta(minutes=15),
        method="POST",
        url="https://api.example.com/jobs",
        body_sha256=digest,
        approval_timeout=timedelta(hours=4) if approvals else None,
        expectation=luck.choice((None, "one report", "\u202e")),
        expected_effect=luck.choice((None, "costs 3 EUR")),
        tags=luck.choice((None, {"team": "growth", "ä": ""})),
        task=f"task {number}" if number % 7 == 0 else None,
        step="fetch" if number % 7 == 0 else None,
        approval_because="dear" if approvals else None,
        signed_approval=False,
        headers_sha256=headers_digest(REQUEST.headers, REQUEST.content_type) if number % 5 else None,  # none of old
    )


def happenings(luck: random.Random, op: Operation, answers: list[str]) -> list[e.Evidence]:
    """Everything that may happen to an operation, in the words of luck."""
    word, call, job = luck.choice(WORDS), f"call_{luck.randrange(3)}", f"{op.operation_id[-8:]}_{luck.randrange(2)}"
    if op.open_call is not None and luck.random() < 0.5:
        call = op.open_call.call_id  # else the answers of rare calls would hardly ever fit
    known = op.remote_job_id or job
    at = op.created_at + timedelta(seconds=luck.randrange(9999))
    result = StoredResult(
        "file:///r/7", 3, "0" * 64, "text/csv", validated=luck.random() < 0.8, problems=luck.choice(((), ("too few",))),
        items=luck.choice((None, ItemSummary(3, 2, 1, ("a",)))),
        also=luck.choice(((), (StoredFile("errors", "file:///r/8", 1, "1" * 64),))),
    )  # fmt: skip
    said: dict[str, Any] = {
        "call_id": call, "status": luck.choice((200, 202, 409, None)), "answer": luck.choice((None, *answers)),
        "request_id": luck.choice((None, "r-1")), "notes": luck.choice(((), (word,))),
    }  # fmt: skip
    permits = [
        e.CallSent(call, action, "POST", "https://api.example.com/jobs", 1, None, strategy, action is Action.CREATE)
        for action, strategy in ((Action.CREATE, None), (Action.CANCEL, None), (Action.COLLECT, None))
    ]
    observed = [
        e.Observed(
            **said, job_id=known, remote_state=word, means=means, progress=luck.choice((None, {"percent": 12.5})),
            updated_at=luck.choice((None, at)), error=luck.choice((None, word)), delivery=luck.choice((None, "dlv_1")),
        )
        for means in Means
    ]  # fmt: skip
    return [
        *permits,
        e.CallSent(
            call, Action.RECONCILE, "GET", "https://api.example.com/jobs", 2, "2" * 64, "resend", may_create=True
        ),
        e.CallSent(call, Action.RECONCILE, "GET", "https://api.example.com/jobs", 2, "2" * 64, "list"),
        *observed,
        e.Approved("ben", op.request_fingerprint, "3" * 64, op.contract_digest),
        e.Approved("carl", op.request_fingerprint),
        e.Rejected("ana"),
        e.ApprovalExpired(),
        e.Withdrawn("ana", "req_0"),
        e.Accepted(**said, job_id=known, remote_state=word, refs={"z": word, "a": "1"}, how="list", comparison="ref"),
        e.CallLost(**said, why=word),
        e.CallLost(**said, action=Action.CANCEL, why=word),
        e.NotDelivered(**said, why=word),
        e.NotDelivered(**said, action=Action.CANCEL, why=word),
        e.Throttled(**said, why=word, retry_at=at),
        e.Refused(**said, why=word, replay=luck.random() < 0.5),
        e.CompletedInline(**said, result=result, remote_state=word),
        e.Inconclusive(**said, why=word, strategy="list", absent=True, next_strategy=True),
        e.Inconclusive(**said, why=word, exhausted=True, retry_at=at),
        e.ProvenAbsent(**said, strategy="list", why=word),
        e.ReadFailed(**said, why=word, code=luck.choice(("read_failed", "gone", "credentials")), hint="Retry-After: 7"),
        e.CancelRequested("req_1", "ana", word),
        e.CancelAnswered(**said, verdict=luck.choice(("accepted", "refused", "already_finished", "unclear")), why=word),
        e.ResultAccepted(**said, result=result),
        e.ResultAllItemsFailed(**said, result=result, why=word),
        e.ResultMissing(**said, why=word),
        e.ResultInvalid(**said, why=word, problems=(word,), result=result),
        e.PartialAttached(**said, result=result),
        e.Notified("webhook", f"dlv_{luck.randrange(3)}", "job.done", job, luck.choice((None, *answers)), counts=True),
        *(e.DeadlinePassed(which, at) for which in Deadline),
        *(e.Decided("ana", choice, known, timedelta(hours=2), "req_2") for choice in Choice),
        e.Acknowledged("ana", luck.choice((None, at))),
        e.Noted(word, "Accepted", {"job_id": job}),
        e.Noted(word),
        e.LeaseTaken("worker-2", 4, "worker-1"),
        e.UnfamiliarJobId(**said, why=word, jobs=(known, "job_8")),
        e.TokenMismatch(**said, why=word, jobs=(known,)),
        e.ManyJobs(**said, why=word, jobs=(known, "job_9")),
        e.IdentityChanged(**said, why=word, jobs=(known,), other_operation="op_x"),
        e.FinalStateChanged(**said, why=word, jobs=(known,)),
    ]


def richer(luck: random.Random, evidence: e.Evidence, at: datetime) -> e.Evidence:
    """Fill fields that most evidence leaves at their defaults."""
    more: dict[str, Any] = {
        "replay": True,
        "retry_at": at,
        "received_at": at,
        "refs": {"status_url": "https://api.example.com/jobs/7"},
        "hint": "Retry-After: 7",
        "shares": "op_shares",
        "other_operation": "op_other",
        "supersedes": "op_before",
        "request_sha256": "4" * 64,
        "action": Action.COLLECT,
        "strategy": "list",
    }
    found = {part.name: more[part.name] for part in fields(evidence) if part.name in more and luck.random() < 0.2}
    return replace(evidence, **found) if found and not isinstance(evidence, e.CallSent) else evidence


def history(
    luck: random.Random, contract: Contract, number: int, digest: str, answers: list[str], reached: Reached
) -> tuple[Operation, list[Row]]:
    """Return one operation, as far as luck takes it, and its journal rows, as the store would write them.

    Each makes for the state in which the fewest have ended: the way there is learnt from the histories before.
    """
    goal = min(State, key=lambda state: reached.ends[state])
    name, now = name_of(number, luck), T0 + timedelta(minutes=number)
    first = richer(luck, submission(luck, contract, number, digest), now)
    record, events = _put(luck, name, None, first, now, [], reached)
    for step in range(LONGEST):
        if record.state is goal and step > 2 and luck.random() < 0.9:
            break
        now += timedelta(microseconds=luck.randrange(1, 10**8))
        evidence = _chosen(luck, record, happenings(luck, record, answers), reached, goal)
        record, events = _put(luck, name, record, evidence, now, events, reached)
    reached.ends[record.state] += 1
    return record, events


def _far(reached: Reached, goal: State) -> dict[str, int]:
    """Say how many arrows each state is away from the goal, by the arrows that are known."""
    far, ring = {str(goal): 0}, {str(goal)}
    while ring:
        ring = {left for left, _, to in reached.arrows if to in ring and left not in far}
        far.update({state: max(far.values()) + 1 for state in ring})
    return far


def _chosen(
    luck: random.Random, op: Operation, all_of_it: list[e.Evidence], reached: Reached, goal: State
) -> e.Evidence:
    """Take what leads nearer to the goal, or to the rarest arrow, or what is possible at all.

    What ends a history, or hands it to a person, is passed over most of the time: too much would lie behind it.
    """
    far = _far(reached, goal)
    possible: list[Weighed] = []
    stopping: list[Weighed] = []
    nearer: list[Weighed] = []
    rare: list[Weighed] = []
    for evidence in (richer(luck, one, op.created_at) for one in all_of_it):
        entry = Entry(op.operation_id, op.head_seq + 1, op.created_at, ACTORS[0], evidence, "try", None)
        try:
            after = project(op, entry).state
        except IllegalTransition:
            continue
        stops = after is not op.state and (after in TERMINAL or after in NEEDS_HUMAN)
        times = reached.arrows[op.state, evidence.kind, after] + (20 if after is op.state else 0)
        one = times, luck.random(), evidence
        (stopping if stops else possible).append(one)
        if min(reached.kinds[name] for name in _sorts(evidence)) < 3:
            rare.append(one)
        if far.get(after, 99) < far.get(op.state, 99):
            nearer.append(one)
    if rare and luck.random() < 0.8:
        return luck.choice(rare)[2]
    if nearer and luck.random() < 0.5:
        return luck.choice(nearer)[2]
    pool = stopping if stopping and (not possible or luck.random() < 0.1) else possible
    return min(pool, key=lambda one: one[:2])[2] if luck.random() < 0.7 else luck.choice(pool)[2]


def _sorts(evidence: e.Evidence) -> list[str]:
    """Name the kind, and the fields of it that say something."""
    return [evidence.kind, *(f"{evidence.kind}.{name}" for name in e.to_data(evidence))]


def _put(  # noqa: PLR0917 - one for each thing that makes an event
    luck: random.Random,
    name: str,
    before: Operation | None,
    evidence: e.Evidence,
    now: datetime,
    events: list[Row],
    reached: Reached,
) -> tuple[Operation, list[Row]]:
    cause = f"call:{evidence.call_id}" if isinstance(evidence, e.Answered) else luck.choice(("submit", 'x"y'))
    reason = luck.choice((None, None, *WORDS))
    entry = Entry(name, len(events) + 1, now, luck.choice(ACTORS), evidence, cause, reason)
    after = project(before, entry)
    plan = luck.choice((None, Plan("observe", now + timedelta(seconds=7), luck.choice(WORDS)), Plan("human", None, "")))
    sealed, row = seal(before, after, entry, plan, None)
    left = "" if before is None else before.state
    reached.arrows[left, evidence.kind, sealed.state] += 1
    for sort in _sorts(evidence):
        reached.kinds[sort] += 1
    reached.states[sealed.state] += 1
    return sealed, [*events, row]


def missing(reached: Reached) -> list[str]:
    """Name what no history has reached."""
    kinds = [f"no {kind}" for kind in (*e.KINDS, *sorted(EVERY)) if not reached.kinds[kind]]
    ends = [f"none is left in {state}" for state in State if not reached.ends[state]]
    return [*kinds, *ends]
