"""No alarm on what opledger itself has written: histories by luck, with whatever people and providers say in them.

``HISTORIES=100000 pytest -s tests/core/ledger/test_audit_honest.py`` looks at that many, and says how many it saw.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from opledger.errors import IllegalTransition
from opledger.ledger.auditing import look
from opledger.rules import evidence as e
from opledger.rules.audit import Leaf, sha256_of
from opledger.rules.fingerprint import fingerprint
from opledger.rules.model import Action, Actor, ActorKind, Choice, Means, Operation, Plan, StoredResult
from opledger.rules.projection import Entry, project
from opledger.store import rows
from opledger.store.auditing import Slice
from opledger.store.packing import row_of
from opledger.store.recording import seal
from tests.support.records import T0, a_permit, a_submission

HISTORIES = int(os.environ.get("HISTORIES", "1500"))
BODY = b'{"rows":5}'
URL = "https://api.example.com/v1/reports"
FINGERPRINT = fingerprint("reports", "POST", URL, BODY)
MEANS, CHOICES = list(Means), list(Choice)
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


Happening = Callable[[random.Random, str, str, str], e.Evidence]
"""What may happen, given luck, a word, a call and a job."""

HAPPENINGS: tuple[Happening, ...] = (
    lambda _luck, _word, call, _job: a_permit(Action.CREATE, call),
    lambda _luck, _word, call, _job: a_permit(Action.CANCEL, call),
    lambda _luck, _word, call, _job: a_permit(Action.RECONCILE, call, strategy="resend"),
    lambda _luck, word, call, job: e.Accepted(call_id=call, job_id=job, remote_state=word, refs={"z": word, "a": "1"}),
    lambda _luck, word, call, _job: e.CallLost(call_id=call, why=word),
    lambda _luck, word, call, _job: e.NotDelivered(call_id=call, why=word),
    lambda luck, word, call, _job: e.Throttled(
        call_id=call, why=word, retry_at=T0 + timedelta(seconds=luck.randrange(99))
    ),
    lambda _luck, word, call, _job: e.Refused(call_id=call, why=word),
    lambda _luck, _word, call, _job: e.CompletedInline(call_id=call, result=RESULT),
    lambda luck, word, call, _job: e.Inconclusive(
        call_id=call, why=word, exhausted=luck.random() < 0.3, next_strategy=True
    ),
    lambda _luck, _word, call, _job: e.ProvenAbsent(call_id=call),
    lambda luck, word, _call, job: e.Observed(
        job_id=job, means=luck.choice(MEANS), remote_state=word, progress={"percent": luck.random()}
    ),
    lambda _luck, _word, _call, job: e.Observed(job_id=job, means=Means.SUCCEEDED, remote_state="done"),
    lambda _luck, word, call, _job: e.ReadFailed(call_id=call, why=word),
    lambda _luck, _word, call, _job: e.ResultAccepted(call_id=call, result=RESULT),
    lambda _luck, word, call, _job: e.ResultInvalid(call_id=call, why=word, result=RESULT),
    lambda _luck, word, call, _job: e.ResultMissing(call_id=call, why=word),
    lambda _luck, word, _call, _job: e.CancelRequested("req_1", "ana", word),
    lambda _luck, _word, call, _job: e.CancelAnswered(call_id=call),
    lambda _luck, _word, call, _job: e.UnfamiliarJobId(call_id=call, jobs=("job_1", "job_2")),
    lambda luck, _word, _call, job: e.Decided(by="ana", choice=luck.choice(CHOICES), request_id="req_2", job_id=job),
    lambda _luck, _word, _call, _job: e.Approved("ana", FINGERPRINT),
    lambda _luck, _word, _call, _job: e.Rejected("ana"),
    lambda _luck, _word, _call, _job: e.Acknowledged("ana", T0),
    lambda _luck, word, _call, _job: e.Noted(word),
    lambda _luck, word, _call, _job: e.Notified("webhook", word),
)
"""Everything that may happen; each is only made once luck has chosen it, which is what makes many histories cheap."""


def happening(luck: random.Random, words: Sequence[str]) -> e.Evidence:
    """One of all those, in the words of luck."""
    make = luck.choice(HAPPENINGS)
    return make(luck, luck.choice(words), f"call_{luck.randrange(3)}", f"job_{luck.randrange(3)}")


def history(luck: random.Random, words: Sequence[str]) -> tuple[Operation, list[tuple[Any, ...]]]:
    """One operation, as far as luck takes it, as the store would write it."""
    name = f"op_{luck.randrange(10**20):026d}"
    first = a_submission(
        body_sha256=sha256_of(BODY),
        fingerprint=FINGERPRINT,
        approvals_needed=luck.randrange(2),
        tags={"z": luck.choice(words), "a": "b"},
        expectation=luck.choice(words) or None,
        task=luck.choice([None, "t"]),
        step="s",
    )
    now, record = T0, None
    events: list[tuple[Any, ...]] = []
    todo: list[e.Evidence] = [first, *(happening(luck, words) for _ in range(40))]
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
            [row_of(event) for _, events in histories for event in events],
            [(record.operation_id, "POST", URL, "[]", None, BODY, None, None) for record, _ in histories],
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
    histories = events = 0
    for _ in range(HISTORIES // 50):
        part = looked_at(luck, [history(luck, WORDS) for _ in range(50)])
        assert part.findings == []
        histories += part.operations
        events += part.events
    print(f"{histories:,} honest histories of {events:,} events: no alarm")  # noqa: T201 - for whoever asked for many
    assert histories == HISTORIES // 50 * 50
    assert events > 5 * HISTORIES
