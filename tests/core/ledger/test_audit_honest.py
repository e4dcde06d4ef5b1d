"""No alarm on what opledger itself has written: histories by luck, with whatever people and providers say in them.

``HISTORIES=100000 make test TESTS=tests/core/ledger/test_audit_honest.py`` looks at that many.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from opledger.errors import IllegalTransition
from opledger.ledger.auditing import look
from opledger.rules import evidence as e
from opledger.rules.audit import Leaf, sha256_of
from opledger.rules.model import Action, Actor, ActorKind, Choice, Means, Operation, Plan, StoredResult
from opledger.rules.projection import Entry, project
from opledger.store import rows
from opledger.store.auditing import Slice
from opledger.store.recording import seal
from tests.support.records import FINGERPRINT, T0, a_permit, a_submission

HISTORIES = int(os.environ.get("HISTORIES", "1500"))
BODY = b'{"rows":5}'
RESULT = StoredResult("file:///r", 3, "0" * 64, "text/csv", validated=True)
WORDS = (
    "",
    "running",
    "päuse",
    'say "no"',
    "back\\slash",
    '},"at":"x',
    ',"format":1,"from":',
    "\u202e\x7f\n",
    "a" * 300,
)
ACTORS = (
    Actor("worker-1", ActorKind.WORKER, "host-1", "17@2026"),
    Actor('o"brien', ActorKind.HUMAN),
    Actor("agent-7", ActorKind.AGENT, "höst", None),
    Actor("policy", ActorKind.POLICY),
)


def happenings(luck: random.Random, word: str) -> list[e.Evidence]:
    """Everything that may happen, in the words of luck."""
    call, job = f"call_{luck.randrange(3)}", f"job_{luck.randrange(3)}"
    return [
        a_permit(Action.CREATE, call),
        a_permit(Action.CANCEL, call),
        a_permit(Action.RECONCILE, call, strategy="resend"),
        e.Accepted(call_id=call, job_id=job, remote_state=word, refs={"z": word, "a": "1"}),
        e.CallLost(call_id=call, why=word),
        e.NotDelivered(call_id=call, why=word),
        e.Throttled(call_id=call, why=word, retry_at=T0 + timedelta(seconds=luck.randrange(99))),
        e.Refused(call_id=call, why=word),
        e.CompletedInline(call_id=call, result=RESULT),
        e.Inconclusive(call_id=call, why=word, exhausted=luck.random() < 0.3, next_strategy=True),
        e.ProvenAbsent(call_id=call),
        e.Observed(job_id=job, means=luck.choice(list(Means)), remote_state=word, progress={"percent": luck.random()}),
        e.Observed(job_id=job, means=Means.SUCCEEDED, remote_state="done"),
        e.ReadFailed(call_id=call, why=word),
        e.ResultAccepted(call_id=call, result=RESULT),
        e.ResultInvalid(call_id=call, why=word, result=RESULT),
        e.ResultMissing(call_id=call, why=word),
        e.CancelRequested("req_1", "ana", word),
        e.CancelAnswered(call_id=call),
        e.UnfamiliarJobId(call_id=call, jobs=("job_1", "job_2")),
        e.Decided(by="ana", choice=luck.choice(list(Choice)), request_id="req_2", job_id=job),
        e.Approved("ana", FINGERPRINT),
        e.Rejected("ana"),
        e.Acknowledged("ana", T0),
        e.Noted(word),
        e.Notified("webhook", word),
    ]


def history(luck: random.Random, words: list[str]) -> tuple[Operation, list[tuple[Any, ...]]]:
    """One operation, as far as luck takes it, as the store would write it."""
    name = f"op_{luck.randrange(10**20):026d}"
    first = a_submission(
        body_sha256=sha256_of(BODY),
        approvals_needed=luck.randrange(2),
        tags={"z": luck.choice(words), "a": "b"},
        expectation=luck.choice(words) or None,
        task=luck.choice([None, "t"]),
        step="s",
    )
    now, record = T0, None
    events: list[tuple[Any, ...]] = []
    todo: list[e.Evidence] = [first, *(luck.choice(happenings(luck, luck.choice(words))) for _ in range(40))]
    for evidence in todo:
        seq = len(events) + 1
        entry = Entry(
            name, seq, now, luck.choice(ACTORS), evidence, f"cause {luck.choice(words)}", luck.choice([None, *words])
        )
        try:
            after = project(record, entry)
        except IllegalTransition:
            continue
        plan = luck.choice(
            [None, Plan("observe", now + timedelta(seconds=7), luck.choice(words)), Plan("human", None, "")]
        )
        record, event = seal(record, after, entry, plan, None)
        events.append(event)
        now += timedelta(microseconds=luck.randrange(10**9))
    assert record is not None
    return record, events


def looked_at(luck: random.Random, histories: list[tuple[Operation, list[tuple[Any, ...]]]]) -> Any:
    """What a look at them comes to, with leaves wherever luck made a checkpoint."""
    leaves: dict[str, list[Leaf]] = {}
    for number, (record, events) in enumerate(histories):
        for seq in sorted(luck.sample(range(1, len(events) + 1), luck.randrange(len(events)))):
            leaf = Leaf(number, record.operation_id, seq, events[seq - 1][12], 1)
            leaves.setdefault(record.operation_id, []).append(leaf)
    return look(
        Slice(
            [rows.new_row(replace(record, lease=None)) for record, _ in histories],
            [event for _, events in histories for event in events],
            [
                (record.operation_id, "POST", "https://api.example.com/v1/reports", "[]", None, BODY, None, None)
                for record, _ in histories
            ],
            [],
        ),
        leaves,
    )


@given(st.integers(), st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_whatever_is_said_in_it(seed: int, words: list[str]) -> None:
    """Texts of every kind, in every place where the store takes them."""
    luck = random.Random(seed)
    part = looked_at(luck, [history(luck, words) for _ in range(3)])
    assert part.findings == []


def test_many_histories() -> None:
    """In the order of luck, in slices as they come."""
    luck = random.Random(20261130)
    events = 0
    for _ in range(HISTORIES // 50):
        part = looked_at(luck, [history(luck, list(WORDS)) for _ in range(50)])
        assert part.findings == []
        events += part.events
    assert events > 5 * HISTORIES
