"""Operations, events and times for the tests of the store, in as few words as possible."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from opledger.rules import evidence as e
from opledger.rules import journal
from opledger.rules.contract import Contract, Create
from opledger.rules.fingerprint import fingerprint
from opledger.rules.model import Action, Actor, ActorKind, Means, Operation, Plan, StoredRequest
from opledger.rules.projection import project
from opledger.rules.values import Template
from opledger.store import Claimed, Declined, Fence, Opening, Recorded, Store, Write

T0 = datetime(2026, 11, 29, 14, 22, 11, 123456, tzinfo=UTC)
LEASE = timedelta(seconds=30)
AGENT = Actor("agent-7", ActorKind.AGENT)
WORKER = Actor("w1", ActorKind.WORKER)
ANA = Actor("ana")

CONTRACT = Contract(
    name="reports",
    digest="sha256:" + "c" * 64,
    base_url="https://api.example.test",
    create=Create(method="POST", path=Template("/v1/reports")),
    source='name = "reports"\n',
    environment={"HOST": "api.example.test"},
)

_numbers = itertools.count(1)


def after(seconds: float) -> datetime:
    """A moment that many seconds after T0."""
    return T0 + timedelta(seconds=seconds)


def planned(at: datetime | None, kind: str = "observe") -> Callable[[Operation], Plan]:
    """A `plan` that always says the same."""
    return lambda _: Plan(kind, at, "the test says so")


def no_plan(_: Operation) -> None:
    """A `plan` for records that nobody need look at again."""


def submitted(number: int, **changes: Any) -> e.Submitted:
    """The first event of operation `number`."""
    asked = request(number)
    values: dict[str, Any] = {
        "contract": "reports",
        "contract_digest": CONTRACT.digest,
        "fingerprint": fingerprint(changes.get("contract", "reports"), asked.method, asked.url, asked.body),
        "token": f"idem_{number}",
        "trace_id": f"{number:032x}",
        "requested_by": "agent-7",
        "approvals_needed": 0,
        "create_timeout": timedelta(minutes=2),
        "result_timeout": timedelta(hours=1),
        "cancel_timeout": timedelta(minutes=10),
        "collect_timeout": timedelta(minutes=15),
        "method": "POST",
        "url": "https://api.example.test/v1/reports",
        "body_sha256": "b" * 64,
    }
    return e.Submitted(**{**values, **changes})


def request(number: int = 0) -> StoredRequest:
    """The request of operation `number`."""
    body = f'{{"account":"acct_{number}"}}'.encode()
    url = "https://api.example.test/v1/reports"
    headers = (("Idempotency-Key", f"idem_{number}"), ("X-Twice", "a"), ("X-Twice", "b"))
    return StoredRequest("POST", url, headers, body, "application/json", body, url)


def opening(number: int | None = None, *, due: datetime | None = T0, **changes: Any) -> Opening:
    """A new operation, due at `due`; `at` and `operation_id` may be given too."""
    number = next(_numbers) if number is None else number
    at = changes.pop("at", T0)
    operation_id = changes.pop("operation_id", f"op_{number:026d}")
    return Opening(
        operation_id, submitted(number, **changes), request(number), AGENT, at, "submit", planned(due, "create")
    )


def opened(store: Store, count: int = 1, **changes: Any) -> list[Operation]:
    """That many new operations, written."""
    return [operation_of(outcome) for outcome in store.open_many([opening(**changes) for _ in range(count)])]


def operation_of(outcome: Recorded | Declined) -> Operation:
    """The record after a write that must have been recorded."""
    assert isinstance(outcome, Recorded), outcome
    return outcome.operation


def refusal_of(outcome: Recorded | Declined) -> Exception:
    """Why a write was declined, which it must have been."""
    assert isinstance(outcome, Declined), outcome
    return outcome.error


def claim(store: Store, owner: str = "w1", *, now: datetime = T0, limit: int = 100, **how: Any) -> list[Claimed]:
    """Claim with a lease of thirty seconds."""
    return store.claim(owner, limit=limit, lease=LEASE, now=now, **how)


def fence_of(claimed: Claimed) -> Fence:
    """The fence of a fresh claim."""
    lease = claimed.operation.lease
    assert lease is not None
    return Fence(lease.owner, lease.epoch)


def write(operation: Operation | str, evidence: e.Evidence, *, due: datetime | None = T0, **how: Any) -> Write:
    """A write whose next action is due at `due`."""
    operation_id = operation if isinstance(operation, str) else operation.operation_id
    values: dict[str, Any] = {"actor": WORKER, "at": T0, "cause": "call:c1", "plan": planned(due)}
    return Write(operation_id=operation_id, evidence=evidence, **{**values, **how})


def sent(call_id: str = "c1") -> e.CallSent:
    """The permit of a create call."""
    return e.CallSent(call_id, Action.CREATE, "POST", "https://api.example.test/v1/reports", 1, may_create=True)


def accepted(job_id: str, call_id: str = "c1") -> e.Accepted:
    """The provider's yes."""
    return e.Accepted(call_id=call_id, status=202, job_id=job_id, remote_state="queued")


def observed(word: str = "running", means: Means = Means.RUNNING, **more: Any) -> e.Observed:
    """One status read."""
    return e.Observed(status=200, remote_state=word, means=means, **more)


def noted(text: str = "seen") -> e.Noted:
    """The one event that is legal everywhere."""
    return e.Noted(text)


def bound(store: Store, operation: Operation, job_id: str, **how: Any) -> Operation:
    """Drive a new operation to `accepted`, without a lease."""
    writes = [write(operation, sent(), **how), write(operation, accepted(job_id), **how)]
    return operation_of(store.record_many(writes)[-1])


def expire(store: Store, *operations: Operation) -> None:
    """Let leases run out, as if their time had passed (PostgreSQL counts by its own clock, which no test can turn)."""
    ids = [operation.operation_id for operation in operations]
    mark = "?" if store.database.kind == "sqlite" else "%s"

    def work(tx: Any) -> None:
        for operation_id in ids:
            tx.cursor.execute(f"UPDATE operation SET lease_expires_at = 1 WHERE operation_id = {mark}", (operation_id,))

    store.database.write(work)


def folded(store: Store, operation_id: str) -> Operation:
    """The record as its journal alone says it is (without the lease, which is no part of the journal)."""
    record: Operation | None = None
    for row in store.queries.events(operation_id):
        event = journal.read_body(row.body)
        record = project(record, event.entry)
        record = replace(record, next=event.plan, version=row.seq, head_seq=row.seq, head_hash=row.hash.hex())
    assert record is not None
    return record


def assert_whole(store: Store, *operation_ids: str) -> None:
    """The record is the fold of its journal (I14), and the journal is an unbroken chain."""
    for operation_id in operation_ids:
        assert replace(store.get(operation_id), lease=None) == folded(store, operation_id)
        assert journal.verify(store.queries.events(operation_id)) == []
