"""OAuth clients: access tokens that run out, are taken back, or cannot be had, and what is never sent twice for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from opledger.rules.model import State
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.sim.tokens import CLIENT
from tests.scenarios.stage import Stage

BEARER = 'kind = "bearer"\nsecret = "env:SIM_TOKEN"'


def oauth(stage: Stage, secret: str = "env:SIM_TOKEN", *, client_auth: str = "basic", **changes: str) -> None:
    """The provider wants access tokens."""
    auth = f"""\
kind = "oauth2_client_credentials"
token_url = "{stage.sim.base_url}/oauth/token"
client_id = "{CLIENT}"
client_auth = "{client_auth}"
secret = "{secret}"
margin = "60s"
"""
    stage.contract(changes={BEARER: auth, **changes})


def granted(stage: Stage) -> list[int | None]:
    """The number of each access token that the provider gave."""
    return [entry["access"] for entry in stage.sim.log() if entry["kind"] == "token"]


@pytest.mark.parametrize("client_auth", ["basic", "post"])
def test_one_token_serves_all_operations_until_it_is_replaced(stage: Stage, client_auth: str) -> None:
    """One fetch at the first call, the next one a minute before the first runs out, and none for nothing."""
    oauth(stage, client_auth=client_auth)
    operations = [stage.submit(_seconds=5000) for _ in range(10)]
    assert granted(stage) == []
    stage.run(3000)
    assert granted(stage) == [1]
    stage.run()
    assert {stage.show(op).state for op in operations} == {State.SUCCEEDED}
    assert granted(stage) == [1, 2]
    calls = stage.wire()
    assert {entry["access"] for entry in calls} == {1, 2}
    assert {entry["status"] for entry in calls} <= {200, 202}
    stage.honest()


def test_a_create_whose_token_was_taken_back_is_a_recorded_second_attempt(stage: Stage) -> None:
    """401 says that it was not accepted: the same token of ours, the same bytes, one job; nobody is called."""
    oauth(stage)
    first = stage.until_state(stage.submit(_seconds=7200), State.OBSERVING)
    stage.sim.control(access={"revoke": True})
    second = stage.until_state(stage.submit(_seconds=30), State.SUCCEEDED)
    creates = stage.wire("create")[1:]
    assert [(entry["status"], entry["access"]) for entry in creates] == [(401, None), (202, 2)]
    assert len({(entry["token"], entry["body_sha256"]) for entry in creates}) == 1
    kinds = stage.kinds(second)
    assert [kind for kind in kinds if kind in ("CallSent", "Throttled", "CallLost", "Accepted")] == [
        *("CallSent", "Throttled", "CallSent", "Accepted"),
    ]
    assert "the next attempt takes fresh ones" in stage.told(second, "Throttled")[0]["why"]
    assert not stage.ledger.store.paused()
    assert len(stage.jobs(second)) == 1
    stage.run(600)
    assert stage.show(first).state is State.OBSERVING
    stage.honest()


def test_reads_look_ups_and_cancels_go_on_with_a_fresh_token(stage: Stage) -> None:
    """Each of them may be the one that finds out."""
    oauth(stage, **{"idempotent = false": "idempotent = true"})
    operation = stage.until_state(stage.submit("cancellable", _seconds=7200), State.OBSERVING)
    stage.sim.control(access={"revoke": True})
    stage.until(operation, lambda op: op.failures > 0)
    assert not stage.ledger.store.paused()
    stage.until(operation, lambda op: op.failures == 0)
    stage.sim.control(access={"revoke": True})
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.until_state(operation, State.CANCELLED)
    assert [entry["status"] for entry in stage.wire("cancel")] == [401, 202]
    stage.sim.control(drop_next="create", answer_next={"kind": "create", "status": 401, "body": {}, "before": True})
    lost = stage.until_state(stage.submit(_seconds=30), State.SUCCEEDED)
    assert len(stage.jobs(lost)) == 1
    assert not stage.ledger.store.paused()
    stage.honest({operation.remote_job_id or "": 1})


def test_a_fresh_token_that_is_refused_pauses_the_provider(stage: Stage) -> None:
    """Not the token is wrong then, but we are; one escalation, and all goes on when a person says so."""
    oauth(stage)
    stage.sim.control(revoke=True)
    operation = stage.submit(_seconds=30)
    stage.run(60)
    assert list(stage.ledger.store.paused()) == ["sim"]
    assert [entry["status"] for entry in stage.wire("create")] == [401]
    stage.sim.control(revoke=False)
    stage.ledger.resume_provider("sim", reason="they have let us in again")
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.wire("create")) == 2
    stage.honest()


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503, "body": {}, "before": True},
        {"status": 200, "body": "<html>", "content_type": "text/html", "before": True},
        {"status": 200, "body": {"access_token": ""}, "before": True},
        {"cut": True},
        "drop_next",
        "drop_before_next",
    ],
)
def test_without_a_token_nothing_is_sent_and_nothing_is_lost(file_stage: Stage, fault: dict[str, object] | str) -> None:
    """The trouble of the token endpoint leaves a create undelivered, never unknown."""
    stage = file_stage
    oauth(stage)
    if isinstance(fault, str):
        stage.sim.control(**{fault: ["token"] * 3})
    else:
        stage.sim.control(answer_next=[{"kind": "token", **fault}] * 3)
    operation = stage.until_state(stage.submit(_seconds=30), State.SUCCEEDED)
    kinds = stage.kinds(operation)
    assert "CallLost" not in kinds
    assert kinds.count("NotDelivered") >= 3
    assert len(stage.wire("create")) == 1
    assert not stage.ledger.store.paused()
    stage.honest()


def test_a_client_that_is_refused_pauses_its_provider_once(stage: Stage) -> None:
    """Ten operations, one question to a person; the secret is in no text of it."""
    oauth(stage)
    stage.contract("guarded")
    stage.sim.control(access={"secret": "another-Secret-42"})
    operations = [stage.submit(_seconds=30) for _ in range(10)]
    elsewhere = stage.submit(flavour="guarded", _seconds=30)
    stage.run(120)
    (reason,) = stage.ledger.store.paused().values()
    assert list(stage.ledger.store.paused()) == ["sim"]
    assert "refused our client (status 401, invalid_client)" in reason
    assert DEFAULT_TOKEN not in reason
    assert len(stage.ledger.store.stopped_providers()) == 1
    assert {stage.show(op).state for op in operations} == {State.CREATE_PENDING}
    assert {entry["flavour"] for entry in stage.wire("create")} == {"guarded"}
    assert stage.show(elsewhere).state is State.SUCCEEDED
    stage.sim.control(access={"secret": DEFAULT_TOKEN})
    stage.ledger.resume_provider("sim", reason="the secret is known again")
    stage.run()
    assert {stage.show(op).state for op in operations} == {State.SUCCEEDED}
    stage.honest()


def test_a_rotated_client_secret_is_taken_without_anybody_noticing(stage: Stage, tmp_path: Path) -> None:
    """The worker still knows the old one when the token runs out."""
    place = tmp_path / "client-secret"
    place.write_text(DEFAULT_TOKEN)
    place.chmod(0o600)
    oauth(stage, f"file:{place}")
    operation = stage.until_state(stage.submit(_seconds=30), State.OBSERVING)
    place.write_text("rotated-Secret-43")
    stage.sim.control(access={"secret": "rotated-Secret-43", "revoke": True})
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert not stage.ledger.store.paused()
    stage.honest()


def test_a_rotated_bearer_secret_is_taken_without_anybody_noticing(stage: Stage, tmp_path: Path) -> None:
    """A 401 while the worker knows an old value: it is read again before the provider is paused."""
    place = tmp_path / "token"
    place.write_text("outdated-Token-44")
    place.chmod(0o600)
    stage.contract(changes={'secret = "env:SIM_TOKEN"': f'secret = "file:{place}"'})
    worker = stage.worker
    assert worker._secrets.resolve(f"file:{place}") == "outdated-Token-44"
    place.write_text(DEFAULT_TOKEN)
    operation = stage.until_state(stage.submit(_seconds=30), State.SUCCEEDED)
    assert [entry["status"] for entry in stage.wire("create")] == [401, 202]
    assert not stage.ledger.store.paused()
    assert len(stage.jobs(operation)) == 1
    stage.honest()


def test_no_access_token_is_left_anywhere(stage: Stage, tmp_path: Path) -> None:
    """The provider repeats what it was sent, in body and headers of an error; the ledger holds nothing of it."""
    oauth(stage)
    stage.submit("credential_echo", "status", _seconds=30)
    stage.run()
    assert [entry for entry in stage.wire("status") if entry["fault"] == "credentials echoed"]
    answers = [text for operation in stage.operations() for _, text in stage.kept(operation)]
    assert any("could not parse header Authorization" in text for text in answers)
    kinds = ("ReadFailed", "Observed", "Accepted", "CallSent")
    everything = "".join(answers) + str([stage.told(op, kind) for op in stage.operations() for kind in kinds])
    assert "access_" not in everything
    if stage.url.startswith("sqlite"):
        for path in tmp_path.rglob("*"):
            assert path.is_dir() or b"access_" not in path.read_bytes().replace(b"access_token", b""), path


def test_a_secret_in_a_field_leaves_in_every_attempt_and_stays_out_of_the_record(stage: Stage) -> None:
    """The provider sees the same bytes twice; what is stored and shown has only the secret's name."""
    fields = 'fields = { "/client_ref" = "{operation_id}", "/callback_key" = "{secret.callback}" }'
    changes = {'fields = { "/client_ref" = "{operation_id}" }': fields}
    stage.contract(changes=changes, more='[secrets]\ncallback = "env:SIM_TOKEN"\n')
    stage.sim.control(drop_next="create")
    operation = stage.until_state(stage.submit(_seconds=30), State.SUCCEEDED)
    stored = stage.ledger.store.request_of(operation.operation_id)
    assert b"{secret.callback}" in stored.body and DEFAULT_TOKEN.encode() not in stored.body
    left = stored.body.replace(b"{secret.callback}", DEFAULT_TOKEN.encode())
    creates = stage.wire("create", operation)
    assert [entry["body_sha256"] for entry in creates] == [hashlib.sha256(left).hexdigest()] * 2
    assert DEFAULT_TOKEN not in str(stage.ledger.packet(operation.operation_id))
    stage.honest()
