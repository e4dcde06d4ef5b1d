"""Each shipped contract against the answers that its provider documents."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import pytest

from opledger.rules import answers
from opledger.rules import evidence as e
from opledger.rules.calls import Answer
from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse
from opledger.rules.model import Means, Operation, State

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
RAY_DUPLICATE = (
    "Traceback (most recent call last):\n  …\nValueError: Job with submission_id idem_1 already exists. "
    "Please use a different submission_id.\n"
)


def shipped(name: str) -> Contract:
    """A shipped contract as it is on a machine where nothing is set."""
    text = (resources.files("opledger") / "contracts" / f"{name}.toml").read_text(encoding="utf-8")
    return parse(text, name_hint=name, environment={})


def operation(contract: Contract, job: str | None = None) -> Operation:
    """An operation in the state that the answer comes to."""
    limit = timedelta(hours=1)
    return Operation(
        operation_id="op_1",
        contract=contract.name,
        contract_digest=contract.digest,
        request_fingerprint="sha256:0",
        idempotency_token="idem_1",
        trace_id="0" * 31 + "1",
        requested_by="agent-7",
        created_at=NOW,
        state=State.OBSERVING if job else State.CREATE_PENDING,
        create_timeout=limit,
        result_timeout=limit,
        cancel_timeout=limit,
        collect_timeout=limit,
        remote_job_id=job,
        first_sent_at=NOW,
        accepted_at=NOW - limit if job else None,
    )


def answer(status: int, body: Any) -> Answer:
    """An HTTP answer; text as it is, everything else as JSON."""
    return Answer(status, {}, (body if isinstance(body, str) else json.dumps(body)).encode(), NOW)


CREATES = [
    ("airflow", 200, {"dag_run_id": "idem_1", "state": "queued"}, e.Accepted),
    ("airflow", 409, {"detail": {"reason": "Unique constraint violation"}}, e.CallLost),
    ("airflow", 404, {"detail": "DAG with dag_id: 'x' not found"}, e.Refused),
    ("airflow", 500, "Internal Server Error", e.CallLost),
    ("prefect", 201, {"id": "6e1c", "state": {"type": "SCHEDULED"}}, e.Accepted),
    ("prefect", 200, {"id": "6e1c", "state": {"type": "RUNNING"}}, e.Accepted),
    ("prefect", 409, {"detail": "Error creating flow run: …"}, e.CallLost),
    ("ray", 200, {"job_id": None, "submission_id": "idem_1"}, e.Accepted),
    ("ray", 400, RAY_DUPLICATE, e.CallLost),
    ("ray", 400, "Traceback …\nTypeError: entrypoint must be a string", e.CallLost),
    ("ray", 500, "No available agent to submit job, please try again later.", e.CallLost),
    ("stripe-reports", 200, {"id": "frr_1", "object": "reporting.report_run", "status": "pending"}, e.Accepted),
    ("stripe-reports", 400, {"error": {"type": "invalid_request_error"}}, e.Refused),
    ("stripe-reports", 400, {"error": {"type": "idempotency_error"}}, e.TokenMismatch),
    ("stripe-reports", 409, {"error": {"type": "idempotency_error"}}, e.CallLost),
    ("stripe-reports", 429, {"error": {"type": "rate_limit"}}, e.Throttled),
    ("stripe-reports", 500, {"error": {"type": "api_error"}}, e.CallLost),
]


@pytest.mark.parametrize(("name", "status", "body", "kind"), CREATES)
def test_an_answer_to_a_create_is_read_as_its_provider_means_it(
    name: str, status: int, body: Any, kind: type[e.Evidence]
) -> None:
    """A duplicate that is read as a refusal would call a running job failed."""
    contract = shipped(name)
    read = answers.read_create(
        answer(status, body), operation(contract), contract, call_id="call_1", answer=None, resend=False
    )
    assert type(read.evidence) is kind


STATUSES = [
    ("airflow", {"dag_run_id": "7", "state": "success"}, Means.SUCCEEDED),
    ("airflow", {"dag_run_id": "7", "state": "failed"}, Means.FAILED),
    ("prefect", {"id": "7", "state": {"type": "PAUSED"}}, Means.WAITING_HUMAN),
    ("prefect", {"id": "7", "state": {"type": "CRASHED", "message": "x"}}, Means.FAILED),
    ("prefect", {"id": "7", "state": {"type": "BRAND_NEW"}}, Means.UNKNOWN),
    ("ray", {"submission_id": "7", "job_id": None, "status": "STOPPED"}, Means.CANCELLED),
    ("stripe-reports", {"id": "7", "status": "pending"}, Means.RUNNING),
    ("stripe-reports", {"id": "7", "status": "failed", "error": "no data"}, Means.FAILED),
]


@pytest.mark.parametrize(("name", "body", "means"), STATUSES)
def test_a_status_word_is_read_as_its_provider_means_it(name: str, body: Any, means: Means) -> None:
    """A word in the wrong list ends an operation wrongly; a new word ends nothing."""
    contract = shipped(name)
    read = answers.read_status(
        answer(200, body), operation(contract, "7"), contract, call_id="call_1", answer=None, now=NOW
    )
    assert isinstance(read.evidence, e.Observed)
    assert read.evidence.means is means


CANCELS = [
    ("airflow", {"dag_run_id": "7", "state": "failed"}, "accepted"),
    ("prefect", {"status": "ACCEPT"}, "accepted"),
    ("prefect", {"status": "REJECT"}, "refused"),
    ("prefect", {"status": "ABORT"}, "refused"),
    ("ray", {"stopped": True}, "accepted"),
    ("ray", {"stopped": False}, "refused"),
]


@pytest.mark.parametrize(("name", "body", "verdict"), CANCELS)
def test_a_cancel_that_was_not_taken_is_not_believed(name: str, body: Any, verdict: str) -> None:
    """Two of these providers refuse a cancel with status 200."""
    contract = shipped(name)
    read = answers.read_cancel(answer(200, body), operation(contract, "7"), contract, call_id="call_1", answer=None)
    assert isinstance(read.evidence, e.CancelAnswered)
    assert read.evidence.verdict == verdict
