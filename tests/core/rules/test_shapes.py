from __future__ import annotations

import json
from datetime import timedelta

from opledger.rules import shapes
from opledger.rules.choices import choices
from opledger.rules.evidence import Noted
from opledger.rules.explain import explain
from opledger.rules.guarantees import guarantees
from opledger.rules.journal import GENESIS, Row, body_of
from opledger.rules.model import (
    Actor,
    ActorKind,
    Approval,
    Attention,
    ItemSummary,
    Lease,
    Means,
    Plan,
    State,
    StoredResult,
)
from opledger.rules.projection import Entry
from tests.core.rules.operations import NOON, contract, operation

RECORD = [
    *("operation_id", "contract", "state", "remote_job_id", "remote_state", "remote_state_means"),
    *(
        "request_fingerprint",
        "idempotency_token",
        "trace_id",
        "requested_by",
        "approvals",
        "tags",
        "expectation",
        "expectation_kind",
    ),
    *("supersedes", "created_at", "create_deadline", "result_deadline", "cancel_deadline", "collect_deadline"),
    *("approval_deadline", "next_action", "attempts", "progress", "last_error", "attention", "lease", "result"),
    *("head_seq", "head_hash"),
]
TRANSITION = ["seq", "at", "actor", "from", "to", "kind", "cause", "reason", "remote_job_id"]


def test_a_record_has_every_key_though_nothing_is_known() -> None:
    """Other programs read these keys; null is an answer, a missing key is none."""
    found = shapes.record(operation(State.CREATE_PENDING, idempotency_token=None))
    assert list(found)[: len(RECORD)] == RECORD
    assert found["attempts"] == {"create": 0, "reconcile": 0, "observe": 0, "cancel": 0, "collect": 0}
    unknown = {"remote_job_id", "remote_state", "remote_state_means", "next_action", "attention", "lease", "result"}
    assert {key for key in unknown if found[key] is not None} == set()
    assert json.loads(json.dumps(found)) == found


def test_a_record_that_knows_everything_is_written_out() -> None:
    """The nested shapes are as fixed as the keys."""
    op = operation(
        State.OBSERVING,
        remote_means=Means.RUNNING,
        remote_state="in progress",
        approvals=(Approval("ana", NOON, "ok", "sha256:11"),),
        create_deadline=NOON + timedelta(microseconds=5),
        next=Plan("observe", NOON, "Retry-After: 20"),
        attention=Attention(State.CONTRACT_VIOLATION, NOON, "two jobs"),
        acknowledged_by="jo",
        acknowledged_until=NOON,
        lease=Lease("worker-3", 2, NOON),
        progress={"completed": 146, "total": 500},
        result=StoredResult(
            "/r/1", 123, "ab", "text/csv", validated=True, problems=("a",), items=ItemSummary(5, 4, 1, ("i1",))
        ),
    )
    found = shapes.record(op)
    noon = "2026-11-29T12:00:00.000000Z"
    assert found["remote_state_means"] == "running"
    assert found["approvals"] == [{"by": "ana", "at": noon, "reason": "ok", "fingerprint": "sha256:11"}]
    assert found["create_deadline"] == "2026-11-29T12:00:00.000005Z"
    assert found["next_action"] == {"kind": "observe", "at": noon, "because": "Retry-After: 20"}
    seen = {"severity": "critical", "acknowledged_by": "jo", "acknowledged_until": noon}
    assert found["attention"] == {"code": "contract_violation", "since": noon, "reason": "two jobs", **seen}
    assert found["lease"] == {"owner": "worker-3", "epoch": 2, "expires_at": noon}
    assert found["progress"] == {"completed": 146, "total": 500}
    assert found["result"] == {
        "location": "/r/1",
        "size": 123,
        "sha256": "ab",
        "content_type": "text/csv",
        "validated": True,
        "problems": ["a"],
        "items": {"total": 5, "succeeded": 4, "failed": 1, "failed_refs": ["i1"]},
    }
    assert json.loads(json.dumps(found)) == found


def row(body: bytes) -> Row:
    """A stored event."""
    return Row("op_1", 3, 1_796_040_000_000_005, "ana", "Noted", None, None, "human_request:req_1", "why", None, body,
               bytes.fromhex(GENESIS), b"\x01" * 32, 1)  # fmt: skip


def test_an_event_is_read_from_its_exact_bytes() -> None:
    """What was hashed is what is shown."""
    entry = Entry(
        "op_1", 3, NOON, Actor("ana", ActorKind.HUMAN, "desk-1", "41@x"), Noted("seen it"), "human_request:req_1", "why"
    )
    found = shapes.journal_event(shapes.event_of(row(body_of(entry, None, None, None, None))))
    assert set(found) == {*TRANSITION, "actor_kind", "host", "process", "data", "prev_hash", "hash"}
    assert found["data"] == {"text": "seen it"}
    assert (found["actor"], found["actor_kind"]) == ("ana", "human")
    assert (found["host"], found["process"]) == ("desk-1", "41@x")
    assert (found["from"], found["to"], found["at"]) == (None, None, "2026-11-30T12:00:00.000005Z")
    assert found["prev_hash"] == GENESIS


def test_a_damaged_event_is_shown_as_far_as_it_can_be() -> None:
    """On-call must see the row that `audit verify` complains about."""
    found = shapes.event_of(row(b"\xffnot json"))
    assert (found.seq, found.data, found.actor_kind) == (3, None, None)


def test_transitions_have_exactly_these_keys() -> None:
    """`history` is read by programs."""
    assert list(shapes.transition(shapes.event_of(row(b"{}")))) == TRANSITION


def test_choices_and_explanations_are_plain_data() -> None:
    """They travel as JSON."""
    op = operation(State.CONTRACT_VIOLATION, jobs=("job_a", "job_b"))
    found = [shapes.option(one) for one in choices(op, contract())]
    assert found[0]["choice"] == "keep"
    assert set(found[0]) == {"choice", "needs", "to", "consequence", "sends", "jobs", "precondition", "cannot_undo"}
    assert (found[0]["needs"], found[0]["jobs"], found[0]["to"]) == (["job"], ["job_a", "job_b"], "observing")
    why = shapes.explanation(explain(op, contract(), NOON, events=[]))
    assert set(why) == {"operation_id", "state", "why", "evidence", "next", "blocked_by", "choices"}
    assert why["choices"] == found
    assert json.loads(json.dumps(why)) == why


def test_a_contract_report_has_the_shape_that_checks_read() -> None:
    """A valid one has guarantees and no errors."""
    found = shapes.contract_report("jobs", guarantees(contract()))
    assert set(found) == {"name", "valid", "errors", "guarantees"}
    assert set(found["guarantees"]) == {"create", "cancel", "result", "webhooks", "gaps"}
    assert {"at_most_once", "for", "conditions"} <= set(found["guarantees"]["create"])
    assert json.loads(json.dumps(found)) == found
