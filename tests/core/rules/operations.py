"""Contracts and records for tests of rules that look at both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse
from opledger.rules.model import Operation, State

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)

JOBS = """\
name = "jobs"
title = "Jobs for tests"
base_url = "https://api.example.com"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[create.idempotency]
mechanism = "header"
name = "Idempotency-Key"
memory = "1h"
[[reconcile]]
strategy = "resend"
[status]
path = "/jobs/{job_id}"
job_id = "/id"
state = "/state"
[status.states]
running = ["running"]
succeeded = ["done"]
failed = ["failed"]
cancelled = ["cancelled"]
"""

CANCEL = """\
[cancel]
method = "DELETE"
path = "/jobs/{job_id}"
"""


def contract(more: str = CANCEL, source: str = JOBS) -> Contract:
    """A contract; without `more` it has no cancel."""
    return parse(source + more, environment={})


def operation(state: State = State.OBSERVING, **facts: Any) -> Operation:
    """A record in a state, with whatever else a test wants to be so."""
    known: dict[str, Any] = {
        "operation_id": "op_01TESTTESTTESTTESTTEST0001",
        "contract": "jobs",
        "contract_digest": "sha256:00",
        "request_fingerprint": "sha256:11",
        "idempotency_token": "idem_test",
        "trace_id": "0" * 31 + "1",
        "requested_by": "agent-7",
        "created_at": NOON,
        "state": state,
        **dict.fromkeys(("create_timeout", "result_timeout"), timedelta(hours=1)),
        **dict.fromkeys(("cancel_timeout", "collect_timeout"), timedelta(minutes=5)),
    }
    return Operation(**{**known, **facts})
