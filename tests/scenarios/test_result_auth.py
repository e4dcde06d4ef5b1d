"""A result on a host of its own that wants credentials of its own: they go to exactly that host, and no others do."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from opledger.rules.model import Operation, State
from opledger.sim.contracts import DEFAULT_TOKEN
from tests.scenarios.hooked import Told
from tests.scenarios.stage import Stage

FILES_KEY = "files-key-5Zt9cQ2mVb7Rk1"
OWN = 'auth = { kind = "header", name = "x-files-key", prefix = "Key ", secret = "env:FILES_KEY" }'
CHANGES = {'auth = "same_origin"': OWN}


@pytest.fixture
def files(stage: Stage) -> Iterator[Stage]:
    """On both databases: a provider whose files lie elsewhere, under a key of their own."""
    stage.secrets["FILES_KEY"] = FILES_KEY
    stage.contract("v1", CHANGES)
    yield stage
    assert_kept_apart(stage)


def assert_kept_apart(stage: Stage) -> None:
    """Each origin saw its own credentials, whatever was asked of it, and never the other's."""
    for entry in stage.sim.log():
        told = str(entry["headers"]) + entry["query"]
        if entry["kind"] == "foreign":
            assert entry["headers"].get("x-files-key") == f"Key {FILES_KEY}"
            assert (entry["authorization"], entry["credentials_in"]) == (False, [])
            assert not {"x-request-id", "traceparent"} & set(entry["headers"])
        else:
            assert "files-key" not in told
            assert entry["credentials_in"] == ["header:authorization"]


def forms() -> list[bytes]:
    """The key as it may turn up: as it is, in hex, and in base64 at each of three offsets."""
    raw = FILES_KEY.encode()
    coded = [base64.b64encode(before + raw)[4:-4] for before in (b"", b"K", b"Ke", b"Key ")]
    return [raw, raw.hex().encode(), raw[:12], raw[-12:], *coded]


def traces(stage: Stage, operation: Operation) -> bytes:
    """All that is kept of an operation, in files and in the journal."""
    found = [path.read_bytes() for path in stage.folder.rglob("*") if path.is_file()]
    told = [str(event) for event in stage.ledger.events(operation.operation_id)] + [str(stage.kept(operation))]
    return b"".join([*found, *map(str.encode, told), str(stage.ledger.packet(operation.operation_id)).encode()])


def test_behind_a_redirect_the_host_of_the_results_gets_its_own_key(files: Stage) -> None:
    """The result is asked for at the provider, which sends us on to the host that the contract lists."""
    operation = files.submit("redirecting", "result")
    files.run()
    assert files.show(operation).state is State.SUCCEEDED
    kinds = [entry["kind"] for entry in files.sim.log() if entry["kind"] in ("result", "foreign")]
    assert kinds == ["result", "foreign"]
    assert [form for form in forms() if form in traces(files, operation)] == []


def test_a_host_that_is_not_listed_gets_nothing(files: Stage) -> None:
    """Nor is it asked."""
    operation = files.submit("redirecting", "foreign")
    files.run()
    assert files.show(operation).state is State.RESULT_UNAVAILABLE
    assert [entry for entry in files.sim.log() if entry["kind"] == "foreign"] == []


def test_a_key_that_is_refused_or_repeated_stops_the_provider_and_is_kept_nowhere(files: Stage) -> None:
    """One escalation, and the answer that repeats the key is masked before it is stored."""
    coded = base64.b64encode(f"Key {FILES_KEY}".encode()).decode()
    body = {"error": f"no such key: {FILES_KEY}", "raw": coded, "hex": FILES_KEY.encode().hex()}
    files.sim.control(answer_next={"kind": "foreign", "status": 401, "body": body, "headers": {"x-echo": FILES_KEY}})
    operation = files.submit("redirecting", "result")
    files.run(600)
    assert files.show(operation).state is State.RESULT_COLLECTING
    (paused,) = [one for one in files.ledger.providers() if one.state == "paused"]
    assert paused.contract == "sim"
    assert any("no such key" in text for _, text in files.kept(operation))
    files.ledger.resume_provider("sim", reason="the key is right now", by="ana")
    files.run(60)
    assert files.show(operation).state is State.SUCCEEDED
    assert [form for form in forms() if form in traces(files, operation)] == []
    assert DEFAULT_TOKEN.encode() not in traces(files, operation)


def test_a_key_that_does_not_resolve_sends_nothing_there(files: Stage) -> None:
    """It is missing on this machine: that shows, and another worker may have it."""
    del files.secrets["FILES_KEY"]
    operation = files.submit("redirecting", "result")
    files.run(60)
    found = files.show(operation)
    assert found.state is State.RESULT_COLLECTING
    assert "FILES_KEY" in (found.last_error or "")
    assert [entry for entry in files.sim.log() if entry["kind"] == "foreign"] == []


def test_a_link_that_a_delivery_names_is_read_with_the_key_of_its_host(stage: Stage) -> None:
    """Where there is no status read, this is how a result is had: a link without a signature, and a key."""
    stage.secrets["FILES_KEY"] = FILES_KEY
    with Told(stage, **CHANGES) as told:
        operation = stage.submit(_seconds=0)
        stage.turn()
        (job,) = stage.jobs(operation)
        told.deliver(operation, "succeeded", result_url=f"{stage.sim.elsewhere}/results/{job}")
        stage.run()
        assert stage.show(operation).state is State.SUCCEEDED
        assert [entry["kind"] for entry in stage.sim.log()] == ["create", "foreign"]
        assert_kept_apart(stage)
        assert [form for form in forms() if form in traces(stage, operation)] == []
