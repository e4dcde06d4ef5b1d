"""Results that break off, expire, can be read once, are wrong, or are left behind by a job that did not succeed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from opledger.config import read_contract
from opledger.edges.files import ResultFolder
from opledger.errors import StoreUnavailable
from opledger.rules.model import Means, Operation, State
from opledger.worker import collect as collecting
from opledger.worker import fetching
from tests.scenarios.stage import Stage

ITEMS = [{"custom_id": f"row-{number}"} for number in range(1, 9)]


def ended(stage: Stage, personality: str = "ideal", variant: str | None = None, **body: Any) -> Operation:
    """Submit, and let the worker work until nothing more happens."""
    operation = stage.submit(personality, variant, **body)
    stage.run()
    return stage.show(operation)


def files(stage: Stage) -> list[str]:
    """The names of everything that lies where results are kept, whole or not."""
    return sorted(path.name for path in (stage.folder / "results").rglob("*") if path.is_file())


# --- a transfer that breaks off -----------------------------------------------------------------------------------


def test_a_result_that_breaks_off_is_gone_on_with(stage: Stage) -> None:
    """Only what is missing is asked for, of the same thing; the whole is checked as one, and there is one file."""
    found = ended(stage, "breaking", "resumes")
    assert (found.state, found.last_error) == (State.SUCCEEDED, None)
    assert found.result is not None
    assert (found.result.validated, found.result.problems) == (True, ())
    first, second = stage.wire("result", found)
    assert (first["status"], second["status"]) == (200, 206)
    start = int(second["headers"]["range"].removeprefix("bytes=").removesuffix("-"))
    assert 0 < start <= found.result.size // 2
    assert second["headers"]["if-range"].startswith('"')
    (told,) = stage.told(found, "ReadFailed")
    assert told["why"].endswith(f"; {start} bytes are here, the rest follows")
    assert files(stage) == [f"{found.operation_id}.csv"]
    stage.honest()


@pytest.mark.parametrize("variant", ["restarts", "changed"])
def test_a_result_that_cannot_be_gone_on_with_starts_anew(file_stage: Stage, variant: str) -> None:
    """A server that knows no ranges, or has another thing now, sends all of it: the first half is not kept."""
    found = ended(file_stage, "breaking", variant)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    assert (found.result.validated, found.result.problems) == (True, ())
    assert [entry["status"] for entry in file_stage.wire("result", found)] == [200, 200]
    assert files(file_stage) == [f"{found.operation_id}.csv"]


def test_a_result_that_breaks_off_is_gone_on_with_by_a_later_attempt(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came stays on the disk when the attempt ends; the next one asks for the rest of exactly the same thing."""
    monkeypatch.setattr(fetching, "MOST_RESUMES", 0)
    found = ended(stage, "breaking", "resumes")
    assert (found.state, found.attempts.collect) == (State.SUCCEEDED, 2)
    assert found.result is not None
    assert (found.result.validated, found.result.problems) == (True, ())
    first, second = stage.wire("result", found)
    assert (first["status"], second["status"]) == (200, 206)
    assert second["headers"]["range"].startswith("bytes=")
    assert second["headers"]["if-range"].startswith('"')
    assert files(stage) == [f"{found.operation_id}.csv"]
    stage.honest()


def test_a_half_that_was_changed_on_the_disk_is_not_gone_on_with(
    file_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash is looked at again; what does not fit is thrown away, and the whole is fetched."""
    monkeypatch.setattr(fetching, "MOST_RESUMES", 0)
    operation = file_stage.submit("breaking", "resumes")
    file_stage.until(operation, lambda op: op.attempts.collect == 1)
    (half,) = (file_stage.folder / "results").rglob("*.part")
    half.write_bytes(half.read_bytes().replace(b"row", b"raw"))
    file_stage.run()
    found = file_stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert [entry["status"] for entry in file_stage.wire("result", found)] == [200, 200]
    assert "range" not in file_stage.wire("result", found)[1]["headers"]
    assert files(file_stage) == [f"{found.operation_id}.csv"]


# --- B31 the download address died early --------------------------------------------------------------------------


def test_b31_an_address_that_died_is_replaced_by_a_fresh_one(stage: Stage) -> None:
    """The worker was away for twenty minutes; a status read names another address, and none is in the record."""
    operation = stage.submit("expiring", "fresh")
    stage.until_state(operation, State.RESULT_COLLECTING, State.SUCCEEDED)
    stage.passes(1200) if stage.show(operation).state is State.SUCCEEDED else stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    reads = [entry["kind"] for entry in stage.wire(None, operation) if entry["kind"] in ("status", "result")]
    assert reads[-3:] == ["result", "status", "result"]
    addresses = [entry["query"] for entry in stage.wire("result", operation)]
    assert addresses == ["sig=1", "sig=2"]
    assert "sig=" not in json.dumps([dict(event.data or {}) for event in stage.ledger.events(operation.operation_id)])


def test_b31_a_result_that_is_gone_is_unavailable_though_the_job_is_done(file_stage: Stage) -> None:
    """What the provider says of the job stands; only its result cannot be had."""
    found = ended(file_stage, "expiring", "gone")
    assert (found.state, found.remote_means) == (State.RESULT_UNAVAILABLE, Means.SUCCEEDED)
    assert "the result is gone (status 410)" in (found.last_error or "")


def test_b31_an_address_on_another_host_gets_no_credentials(file_stage: Stage) -> None:
    """Also a fresh one: only hosts that the contract lists, and never with what proves who we are."""
    found = ended(file_stage, "redirecting", "result")
    assert found.state is State.SUCCEEDED
    (foreign,) = [entry for entry in file_stage.sim.log() if entry["kind"] == "foreign"]
    assert (foreign["authorization"], foreign["credentials_in"]) == (False, [])


# --- B33 a small answer that unpacks to gigabytes -----------------------------------------------------------------


@contextmanager
def serving(body: bytes, status: int = 200, /, **headers: str) -> Iterator[str]:
    """Another host that answers everything with the same bytes."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("layers", [1, 2])
def test_b33_a_result_that_unpacks_beyond_its_limit_is_refused(file_stage: Stage, layers: int) -> None:
    """The wire carried little; what would have come out of it is never written, and other jobs go on."""
    bomb = gzip.compress(bytes(80 * 1024 * 1024))
    coding = ", ".join(["gzip"] * layers)
    for _ in range(layers - 1):
        bomb = gzip.compress(bomb)
    with serving(bomb, content_type="text/csv", content_encoding=coding) as host:
        listed = f'["{file_stage.sim.elsewhere.removeprefix("http://")}"]'
        file_stage.contract("v1", {f"result_hosts = {listed}": f'result_hosts = ["{host.removeprefix("http://")}"]'})
        operation = file_stage.submit(_seconds=5)
        other = file_stage.submit(_seconds=5)
        running = file_stage.until_state(operation, State.OBSERVING)
        file_stage.sim.control(job={"id": running.remote_job_id, "document": {"result_url": f"{host}/r.csv"}})
        file_stage.run()
    found = file_stage.show(operation)
    if layers == 1:
        assert (found.state, found.last_error) == (
            State.RESULT_VALIDATION_FAILED,
            "the result is not taken: the answer is larger than 67108864 bytes",
        )
    else:  # packed twice: nobody asked for that, so it is not unpacked at all
        assert found.state is State.RESULT_UNAVAILABLE
        assert "packed in a way that was not asked for" in (found.last_error or "")
    assert file_stage.show(other).state is State.SUCCEEDED
    assert files(file_stage) == [f"{other.operation_id}.csv"]


# --- a result without a byte, and digests of what was packed ------------------------------------------------------


def read_from(
    stage: Stage, body: bytes, changes: dict[str, str], document: dict[str, Any], status: int = 200, /, **headers: str
) -> Operation:
    """Let a job's result lie on another host that answers so; its status says what is in `document`."""
    with serving(body, status, content_type="text/csv", **headers) as host:
        listed = f'["{stage.sim.elsewhere.removeprefix("http://")}"]'
        hosts = {f"result_hosts = {listed}": f'result_hosts = ["{host.removeprefix("http://")}"]'}
        stage.contract("v1", {**hosts, **changes}, collect="20s")
        operation = stage.submit(_seconds=5)
        running = stage.until_state(operation, State.OBSERVING)
        stage.sim.control(job={"id": running.remote_job_id, "document": {"result_url": f"{host}/r.csv", **document}})
        stage.run()
    return stage.show(operation)


NO_SUM = {'checksum = "header:x-checksum-sha256"\n': ""}


@pytest.mark.parametrize(
    ("changes", "document", "state"),
    [
        ({}, {"records": 0}, State.SUCCEEDED),
        ({'count = "/records"\n': "empty = true\n"}, {}, State.SUCCEEDED),
        ({}, {"records": 3}, State.RESULT_UNAVAILABLE),
        ({'count = "/records"\n': ""}, {}, State.RESULT_UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("status", [200, 204])
def test_a_result_without_a_byte_is_taken_where_somebody_says_that_it_is_one(
    file_stage: Stage, changes: dict[str, str], document: dict[str, Any], state: State, status: int
) -> None:
    """Nothing was found, says the provider; else an empty answer is one that comes too early: it is asked for again."""
    found = read_from(file_stage, b"", {**NO_SUM, **changes}, document, status)
    assert found.state is state
    if state is State.SUCCEEDED:
        assert found.result is not None
        assert (found.result.size, found.result.validated, found.result.problems) == (0, True, ())
        with file_stage.ledger.result(found.operation_id) as handed:
            assert handed.stream().read() == b""
    else:
        assert found.attempts.collect > 1


ROWS = b"row,reference,amount\n1,a,3\n"


def digest_of(data: bytes) -> str:
    """As Content-Digest and Repr-Digest write it."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


@pytest.mark.parametrize(
    ("header", "packed", "right"),
    [
        ("content-digest", True, True),
        ("content-digest", False, False),
        ("repr-digest", True, True),
        ("repr-digest", False, True),
    ],
)
def test_a_digest_of_a_packed_answer_is_compared_with_what_it_speaks_of(
    file_stage: Stage, header: str, packed: bool, right: bool
) -> None:
    """Content-Digest is over the bytes of the wire; for Repr-Digest, those of the file are taken, too."""
    body = gzip.compress(ROWS)
    sums = {'checksum = "header:x-checksum-sha256"': f'checksum = "header:{header}"'}
    headers = {"content_encoding": "gzip", header.replace("-", "_"): digest_of(body if packed else ROWS)}
    found = read_from(file_stage, body, sums, {"records": 1}, **headers)
    assert found.state is (State.SUCCEEDED if right else State.RESULT_VALIDATION_FAILED)
    assert found.result is not None
    assert bool(found.result.problems) is not right


# --- a further file that is optional ------------------------------------------------------------------------------

ELSEWHERE = "http://elsewhere.invalid"


def other_errors(host: str) -> dict[str, str]:
    """Changes to a contract: the file of errors lies on another host."""
    return {
        "result_hosts = [": f'result_hosts = ["{host.removeprefix("http://")}", ',
        'url = "/error_url"': 'url = "/other_url"',
    }


@pytest.mark.parametrize(
    ("body", "status", "reads", "problem"),
    [
        (b"{}", 410, 1, "errors is not there: the provider says the result is gone (status 410)"),
        (b"{}", 404, 3, "errors is not there: the result is not ready yet (status 404)"),
        (b"{}", 503, 3, "errors is not there: "),
        (b"{}", 0, 0, "errors is not there: the result is on elsewhere.invalid"),
        (b'{"custom_id": ', 200, 1, "errors: the result, read as jsonl: line 1: "),
    ],
)
def test_an_optional_file_that_cannot_be_had_does_not_cost_the_result(
    stage: Stage, body: bytes, status: int, reads: int, problem: str
) -> None:
    """All items are in the result itself: that is a success, and what was wrong beside it is noted."""
    with serving(body, status or 200, content_type="application/jsonl") as host:
        url = f"{host if status else ELSEWHERE}/errors"
        stage.contract("batch", other_errors(host))
        operation = stage.submit("slow", flavour="batch", requests=ITEMS, _seconds=5)
        running = stage.until_state(operation, State.OBSERVING)
        stage.sim.control(job={"id": running.remote_job_id, "document": {"other_url": url}})
        stage.run()
    found = stage.show(operation)
    assert (found.state, found.attention, found.last_error) == (State.SUCCEEDED, None, None)
    assert found.result is not None
    assert found.result.validated
    assert found.result.problems[0].startswith(problem)
    assert found.result.items is not None
    assert (found.result.items.total, found.result.items.failed) == (8, 0)
    assert len(stage.wire("result", operation)) == max(1, reads)
    stage.honest()


def test_an_optional_file_is_not_spared_where_there_is_no_other(file_stage: Stage) -> None:
    """All items failed, so there is no result itself; that its only file must not be read is no success."""
    file_stage.contract("batch", {'url = "/error_url"': 'url = "/other_url"'})
    operation = file_stage.submit("batch", "mixed", flavour="batch", requests=ITEMS[:2], _seconds=5)
    running = file_stage.until_state(operation, State.OBSERVING)
    named = {"other_url": f"{ELSEWHERE}/errors", "result_url": None, "output_url": None}
    file_stage.sim.control(job={"id": running.remote_job_id, "document": named})
    file_stage.run()
    found = file_stage.show(operation)
    assert found.state is State.RESULT_UNAVAILABLE
    assert "elsewhere.invalid" in (found.last_error or "")


def test_items_whose_outcome_stood_in_a_lost_file_are_missing(file_stage: Stage) -> None:
    """The file may be spared, but not what became of two items: the rest is kept, and a person decides."""
    with serving(b"{}", 410) as host:
        file_stage.contract("batch", other_errors(host))
        operation = file_stage.submit("batch", "mixed", flavour="batch", requests=ITEMS, _seconds=5)
        running = file_stage.until_state(operation, State.OBSERVING)
        file_stage.sim.control(job={"id": running.remote_job_id, "document": {"other_url": f"{host}/errors"}})
        file_stage.run()
    found = file_stage.show(operation)
    assert found.state is State.RESULT_VALIDATION_FAILED
    assert found.result is not None
    assert found.result.location is not None
    assert "items missing from the result" in found.result.problems[0]
    assert found.result.problems[-1].startswith("errors is not there: ")


# --- schema, rows that carry an error, and what the status said ----------------------------------------------------

SCHEMA = {"type": "object", "required": ["custom_id"], "properties": {"response": {"type": "object"}}}


def schema(stage: Stage, text: str, flavour: str = "batch", **changes: str) -> None:
    """Write a contract with a schema beside it."""
    (stage.contracts / "lines.schema.json").write_text(text)
    lines = {'format = "jsonl"': 'format = "jsonl"\nschema = "lines.schema.json"', **changes}
    stage.contract(flavour, lines)


def test_a_schema_is_pinned_with_its_contract(stage: Stage) -> None:
    """What it was at submit is tried, whatever lies in the folder now; it is not meant for the file of errors."""
    schema(stage, json.dumps(SCHEMA))
    operation = stage.submit("batch", "mixed", flavour="batch", requests=ITEMS)
    (stage.contracts / "lines.schema.json").write_text("false")
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert read_contract(stage.contracts / "sim-batch.toml", {}).digest != found.contract_digest


def test_a_line_that_breaks_the_schema_is_named_without_its_content(file_stage: Stage) -> None:
    """The place and the rule; what stood there may be anybody's data."""
    schema(file_stage, json.dumps({**SCHEMA, "properties": {"response": {"type": "string"}}}))
    found = ended(file_stage, flavour="batch", requests=ITEMS[:2])
    assert found.state is State.RESULT_VALIDATION_FAILED
    assert found.result is not None
    assert found.result.problems == (
        "record 1 does not fit the schema: /response breaks properties/response/type",
        "record 2 does not fit the schema: /response breaks properties/response/type",
    )


def test_a_valid_file_with_a_row_that_carries_an_error_is_invalid(file_stage: Stage) -> None:
    """Every check of its form is passed, and the work went wrong all the same."""
    file_stage.contract("v1", {'format = "csv"\n': 'format = "csv"\nerror_row_when = \'row.row == "2"\'\n'})
    found = ended(file_stage)
    assert (found.state, found.last_error) == (
        State.RESULT_VALIDATION_FAILED,
        'record 2 carries an error: row.row == "2"',
    )


# --- a result that can be read once -------------------------------------------------------------------------------


def test_a_result_that_can_be_read_once_is_read_under_a_permit(stage: Stage) -> None:
    """The permit is durable before the read leaves, and there is one of each."""
    found = ended(stage, flavour="once")
    assert (found.state, found.attempts.collect, found.open_call) == (State.SUCCEEDED, 1, None)
    kinds = stage.kinds(found)
    assert kinds[-2:] == ["CallSent", "ResultAccepted"]
    assert len(stage.wire("result", found)) == 1
    stage.honest()


def test_a_single_read_that_was_lost_is_never_repeated(stage: Stage) -> None:
    """It broke off in the middle: what is left of it at the provider nobody knows, and a person is asked."""
    found = ended(stage, "cut", "result", flavour="once")
    assert (found.state, found.open_call) == (State.RESULT_UNAVAILABLE, None)
    assert "can be read only once, and that read is lost" in (found.last_error or "")
    stage.on(found)
    assert len(stage.wire("result", found)) == 1
    stage.ledger.resolve(found.operation_id, "collect", reason="they opened it again")
    stage.run()
    assert stage.show(found).state is State.RESULT_UNAVAILABLE  # 410: it was used up
    assert len(stage.wire("result", found)) == 2


def test_a_single_read_that_brought_a_not_yet_is_tried_again(stage: Stage) -> None:
    """The provider says that it has nothing to give so far: nothing is used up."""
    operation = stage.submit(flavour="once")
    stage.sim.control(answer_next={"kind": "result", "status": 425, "body": {}, "before": True})
    stage.run()
    # The simulated provider counts a read that it answers so, and would refuse the next one.
    found = stage.show(operation)
    assert stage.told(found, "ReadFailed")[0]["why"] == "the result is not ready yet (status 425)"
    assert (len(stage.wire("result", operation)), found.attempts.collect) == (2, 2)


def test_a_worker_that_died_with_a_permit_to_read_once_is_not_followed_by_another_read(stage: Stage) -> None:
    """Nobody knows whether the result was read: that is said, and not found out by reading."""
    operation = stage.submit(flavour="once")
    stage.dies("before", "ResultAccepted", operation)
    stage.leases_end()
    stage.run()
    found = stage.show(operation)
    assert found.state is State.RESULT_UNAVAILABLE
    assert "can be read only once" in (found.last_error or "")
    assert len(stage.wire("result", operation)) == 1


def test_a_single_read_that_is_sent_on_needs_another_permit(stage: Stage) -> None:
    """What was answered with a redirect brought nothing; what is read where it leads can be read once, too."""
    found = ended(stage, "redirecting", "result", flavour="once")
    assert (found.state, found.open_call, found.attempts.collect) == (State.SUCCEEDED, None, 2)
    assert stage.kinds(found)[-4:] == ["CallSent", "ReadFailed", "CallSent", "ResultAccepted"]
    (foreign,) = [entry for entry in stage.sim.log() if entry["kind"] == "foreign"]
    assert (foreign["authorization"], foreign["credentials_in"]) == (False, [])


def test_the_only_copy_stays_where_it_is_when_it_cannot_be_kept(
    file_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told where, and it is not read again: a person can still save it."""

    def full(*_: Any, **__: Any) -> str:
        raise StoreUnavailable("the disk is full, says the test")

    monkeypatch.setattr(collecting, "PATIENCE", (0.0,))
    monkeypatch.setattr(ResultFolder, "keep", full)
    found = ended(file_stage, flavour="once")
    assert (found.state, found.open_call) == (State.RESULT_UNAVAILABLE, None)
    (copy,) = [path for path in (file_stage.folder / "results").rglob("*") if path.is_file()]
    assert str(copy) in (found.last_error or "")
    assert copy.read_text().startswith("row,reference,amount")
    assert len(file_stage.wire("result", found)) == 1


# --- what a job leaves behind that did not succeed ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("personality", "state", "means"),
    [("failing", State.FAILED, Means.FAILED), ("expired", State.FAILED, Means.EXPIRED)],
)
def test_the_output_of_a_job_that_did_not_succeed_is_attached(
    stage: Stage, personality: str, state: State, means: Means
) -> None:
    """The state stays what it is; half of the items have an outcome, and that the others have none is a remark."""
    found = ended(stage, personality, flavour="batch", requests=ITEMS)
    assert (found.state, found.remote_means, found.attention, found.next) == (state, means, None, None)
    assert found.result is not None
    assert found.result.validated
    assert found.result.items is not None
    assert (found.result.items.total, found.result.items.failed) == (4, 0)
    assert found.result.problems[0].startswith("items missing from the result: row-5, row-6")
    assert Path(found.result.location or "").read_text().count("\n") == 4
    assert stage.kinds(found)[-2:] == ["Observed", "PartialAttached"]
    (event,) = [event for event in stage.ledger.events(found.operation_id) if event.kind == "PartialAttached"]
    assert event.to_state is None
    stage.honest()


def test_the_output_of_a_cancelled_job_is_attached(stage: Stage) -> None:
    """A cancel that was confirmed stays one."""
    operation = stage.submit("cancellable", flavour="batch", requests=ITEMS, _seconds=7200)
    stage.until_state(operation, State.OBSERVING)
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.attempts.collect) == (State.CANCELLED, 1)
    assert found.result is not None
    assert found.result.items is not None
    assert found.result.items.total == 4


def test_nothing_is_fetched_of_a_failed_job_whose_contract_does_not_want_it(file_stage: Stage) -> None:
    """As before: only a success has a result."""
    changes = {'collect_in = ["succeeded", "failed", "cancelled", "expired"]': 'collect_in = ["succeeded", "expired"]'}
    file_stage.contract("batch", changes)
    found = ended(file_stage, "failing", flavour="batch", requests=ITEMS)
    assert (found.state, found.result, found.next, file_stage.wire("result")) == (State.FAILED, None, None, [])


def test_partial_output_that_is_gone_is_an_attention_and_tried_no_more(stage: Stage) -> None:
    """The job has failed, and that is settled; that its output is lost somebody should know."""
    operation = stage.submit("failing", flavour="batch", requests=ITEMS)
    stage.sim.control(answer_next={"kind": "result", "status": 410, "body": {}})
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.result, found.next) == (State.FAILED, None, None)
    assert found.attention is not None
    assert (found.attention.code, found.attention.reason) == (
        "partial_unavailable",
        "the provider says the result is gone (status 410)",
    )
    stage.on(found)
    assert len(stage.wire("result", operation)) == 1


def test_partial_output_that_does_not_come_is_given_up_at_the_collect_deadline(stage: Stage) -> None:
    """Later and later, with a fresh status read each time, and not for ever."""
    operation = stage.submit("failing", flavour="batch", requests=ITEMS)
    stage.sim.control(answer_next=[{"kind": "result", "status": 503, "body": {}}] * 100)
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.next) == (State.FAILED, None)
    assert found.attention is not None
    assert found.attention.code == "partial_unavailable"
    assert "collect deadline passed" in found.attention.reason
    assert 10 < len(stage.wire("result", operation)) < 30
    last = stage.ledger.events(found.operation_id)[-1]
    assert (last.kind, last.cause) == ("ReadFailed", "deadline:collect")


def test_a_failed_job_that_comes_back_to_life_is_read_with_patience(stage: Stage) -> None:
    """While its output is fetched the provider says that it runs: it is told, and not asked again at once."""
    operation = stage.submit("failing", flavour="batch", requests=ITEMS)
    stage.sim.control(answer_next=[{"kind": "result", "status": 503, "body": {}}] * 2)
    stage.until_state(operation, State.FAILED)
    job = stage.show(operation).remote_job_id
    stage.sim.control(job={"id": job, "state": "running"})
    before = len(stage.wire("status", operation))
    stage.run(seconds=600)
    found = stage.show(operation)
    assert found.state is State.FAILED
    assert found.attention is not None
    assert found.attention.code == "final_state_contradicted"
    assert 1 <= len(stage.wire("status", operation)) - before < 25


def test_partial_output_under_another_jobs_id_is_given_up(file_stage: Stage) -> None:
    """The record has ended, so this is no violation any more; and the output of another job is not ours."""
    operation = file_stage.submit("failing", flavour="batch", requests=ITEMS)
    file_stage.sim.control(answer_next={"kind": "result", "status": 503, "body": {}})
    file_stage.until_state(operation, State.FAILED)
    job = file_stage.show(operation).remote_job_id
    file_stage.sim.control(job={"id": job, "document": {"id": "job_other"}})
    file_stage.run()
    found = file_stage.show(operation)
    assert (found.state, found.result) == (State.FAILED, None)
    assert found.attention is not None
    assert found.attention.code == "partial_unavailable"
