"""Every kind of bad answer to a create, a status read and a cancel: what it must not be taken for."""

from __future__ import annotations

from typing import Any

import pytest

from opledger.rules.calls import Failure, Fate
from opledger.rules.model import State
from tests.scenarios.stage import Stage


def said(body: Any, status: int = 200, **more: Any) -> dict[str, Any]:
    """An answer."""
    return {"status": status, "body": body, **more}


HTML = said("<html><body>all is well</body></html>", content_type="text/html")
TRAP = {"location": "/v1/jobs/job_trap"}
GROUPS: dict[str, list[dict[str, Any]]] = {
    "server errors": [said({"error": {"code": "internal"}}, status) for status in (500, 502, 503, 504)],
    "client errors": [said({"error": {"code": "what"}}, status) for status in (400, 404, 409, 410)],
    "redirects": [said("", status, headers=TRAP) for status in (301, 302, 303, 307, 308)],
    "without an id": [said({}), said({"state": "queued"}), said({"id": None}), said({"id": " "}), said([]), said("")],
    "wrong type": [HTML, said("id=job_1", content_type="text/plain"), said(b"\x00\x01".decode())],
    "broken JSON": [
        said('{"id": "job_1"'),
        said('{"id": "job_1", "x": NaN}'),
        said('{"id": "job_1", "x": Infinity}'),
        said('{"id": "job_1", "x": 1e999}'),
        said('{"id": "job_1", "id": "job_2"}'),
        said('{"id": "job_1", "x": "\\ud800"}'),
        said('{"id": "job_1", "x": ' + "[" * 80 + "]" * 80 + "}"),
        said('{"id": "job_1", "x": ' + "9" * 5000 + "}"),
    ],
    "cut and dropped": [{"cut": True}, {"drop": True}],
}
MAPPED = {"refused = [400, 404, 405, 410, 413, 415, 422]": "refused = [422]"}
LOOKS_ONCE = {"absence_is_proof = true": "absence_is_proof = false"}


def order(stage: Stage, kind: str, answer: dict[str, Any]) -> None:
    """Order a bad answer for the next request of a kind. It is acted on all the same."""
    if "drop" in answer:
        stage.sim.control(drop_next=kind)
    else:
        stage.sim.control(answer_next={"kind": kind, **answer})


@pytest.mark.parametrize("group", list(GROUPS))
def test_a_bad_answer_to_a_create_leaves_it_unknown(stage: Stage, group: str) -> None:
    """The job was started all the same: it is found under the same token, and there is one."""
    stage.contract(changes=MAPPED)
    for answer in GROUPS[group]:
        order(stage, "create", answer)
        operation = stage.submit(_seconds=1)
        stage.run()
        found = stage.show(operation)
        assert found.state is State.SUCCEEDED, (answer, stage.kinds(operation))
        assert stage.kinds(operation)[2] == "CallLost", answer
        assert [found.remote_job_id] == stage.jobs(operation)
    assert [entry for entry in stage.wire() if "trap" in entry["path"]] == []
    if group != "client errors":  # the judge takes 400 for a refusal; this contract does not
        stage.honest()


@pytest.mark.parametrize("group", list(GROUPS))
def test_a_bad_answer_to_a_status_read_changes_nothing(file_stage: Stage, group: str) -> None:
    """It is counted, the next poll comes later, and the job's own end is the end."""
    stage = file_stage
    for answer in GROUPS[group]:
        operation = stage.until_state(stage.submit(_seconds=600), State.OBSERVING)
        for _ in range(3):
            order(stage, "status", answer)
        found = stage.until(operation, lambda op: op.failures == 3)
        assert found.state is State.OBSERVING, answer
        assert found.attention is not None, answer
        stage.run()
        assert stage.show(operation).state is State.SUCCEEDED, answer
        assert len(stage.wire("create", operation)) == 1
    assert [entry for entry in stage.wire() if "trap" in entry["path"]] == []
    stage.honest()


@pytest.mark.parametrize("group", list(GROUPS))
def test_a_bad_answer_to_a_cancel_is_no_end(file_stage: Stage, group: str) -> None:
    """One call, and the status reads say how it ended."""
    stage = file_stage
    for answer in GROUPS[group]:
        operation = stage.until_state(stage.submit("cancellable", _seconds=7200), State.OBSERVING)
        order(stage, "cancel", answer)
        stage.ledger.cancel(operation.operation_id, reason="ordered twice")
        stage.turn()
        assert stage.show(operation).state is State.CANCELLING, answer
        stage.run()
        assert stage.show(operation).state is State.CANCELLED, answer
        assert len(stage.wire("cancel", operation)) == 1, answer
    stage.honest()


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_a_refusal_that_the_contract_names_is_final(stage: Stage, status: int) -> None:
    """Nothing was created, says the contract: failed, and no other create under that token."""
    stage.sim.control(answer_next={"kind": "create", "before": True, **said({"error": {"code": "bad"}}, status)})
    operation = stage.submit(_seconds=1)
    stage.run()
    stage.on(operation)
    assert stage.show(operation).state is State.FAILED
    assert stage.calls() == ["create"]


@pytest.mark.parametrize("action", ["create", "observe", "cancel"])
def test_what_provably_never_left_is_tried_again(stage: Stage, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection, a name without an address, a failed TLS handshake: not sent, so no doubt, and no copy."""
    operation = stage.submit("cancellable" if action == "cancel" else "ideal", _seconds=600)
    if action != "create":
        stage.until_state(operation, State.OBSERVING)
    send, failures = stage.worker._http.send, 4
    methods = {"create": "POST", "observe": "GET", "cancel": "DELETE"}

    async def broken(request: Any) -> Any:
        nonlocal failures
        if request.method == methods[action] and failures > 0:
            failures -= 1
            return Failure(Fate.NOT_DELIVERED, "connection refused")
        return await send(request)

    monkeypatch.setattr(stage.worker._http, "send", broken)
    before = stage.calls()
    if action == "cancel":
        stage.contract(changes={"idempotent = false": "idempotent = true"})
        stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.turn()
    assert stage.show(operation).state is {
        "create": State.CREATE_PENDING, "observe": State.OBSERVING, "cancel": State.CANCEL_REQUESTED,
    }[action]  # fmt: skip
    assert stage.calls() == before
    found = stage.until(operation, lambda _: failures == 0)
    assert found.attention is not None
    stage.run()
    assert stage.show(operation).state is (State.CANCELLED if action == "cancel" else State.SUCCEEDED)
    assert len(stage.wire("create")) == 1
    assert len(stage.wire("cancel")) == (1 if action == "cancel" else 0)
    assert "CallLost" not in stage.kinds(operation)
    stage.honest()


def test_a_create_that_never_left_by_its_deadline_has_failed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt provably undelivered: nothing runs, and the record says so without a doubt."""
    operation = stage.submit(_seconds=1)

    async def refused(_: Any) -> Any:
        return Failure(Fate.NOT_DELIVERED, "connection refused")

    monkeypatch.setattr(stage.worker._http, "send", refused)
    stage.run()
    found = stage.show(operation)
    assert found.state is State.FAILED
    assert stage.wire() == []
    assert set(stage.kinds(operation)) == {"Submitted", "CallSent", "NotDelivered", "DeadlinePassed"}


def test_a_status_that_goes_backwards_is_stored_and_no_verdict(stage: Stage) -> None:
    """Running, then queued, then running again; also while a cancel is under way."""
    operation = stage.until_state(stage.submit("never_ending"), State.OBSERVING)
    job = operation.remote_job_id
    for word in ("running", "queued", "running", "queued"):
        stage.sim.control(job={"id": job, "state": word})
        stage.until(operation, lambda op, word=word: op.remote_state == word)  # type: ignore[misc]
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.turn()
    stage.sim.control(job={"id": job, "state": "cancelling"})
    stage.until(operation, lambda op: op.remote_state == "cancelling")
    stage.sim.control(job={"id": job, "state": "queued"})
    stage.until(operation, lambda op: op.remote_state == "queued")
    assert stage.show(operation).state is State.CANCELLING
    stage.sim.control(job={"id": job, "state": "cancelled"})
    stage.run()
    assert stage.show(operation).state is State.CANCELLED
    words = [data["remote_state"] for data in stage.told(operation, "Observed")]
    assert "queued" in words[words.index("running") :]


@pytest.mark.parametrize("word", ["failed", "running"])
def test_a_cancelled_job_that_says_otherwise_later_keeps_its_record(stage: Stage, word: str) -> None:
    """The contradiction is put before a person."""
    operation = stage.until_state(stage.submit("cancellable", _seconds=7200), State.OBSERVING)
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    stage.sim.control(job={"id": operation.remote_job_id, "state": word})
    found = stage.read_once(operation)
    assert found.state is State.CANCELLED
    assert found.attention is not None
    assert found.attention.code == "final_state_contradicted"


def test_a_job_that_changes_its_id_while_a_cancel_is_under_way_stops_everything(stage: Stage) -> None:
    """The read after the cancel answers for another job: nothing more is sent."""
    operation = stage.until_state(stage.submit("never_ending"), State.OBSERVING)
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.turn()
    stage.sim.control(job={"id": operation.remote_job_id, "document": {"id": "job_other"}})
    stage.run()
    assert stage.show(operation).state is State.CONTRACT_VIOLATION
    before = stage.calls()
    stage.on(operation)
    assert stage.calls() == before
    assert before.count("cancel") == 1
