"""Targets that read answers of providers: what they say of a job, and the records of a result."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from opledger.errors import IllegalTransition
from opledger.rules import (
    answers,
    arrays,
    decide,
    delimited,
    journal,
    jsontext,
    lookups,
    pages,
    records,
    results,
    values,
)
from opledger.rules import evidence as e
from opledger.rules.answers import Reading
from opledger.rules.calls import Answer
from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse
from opledger.rules.looks import Look
from opledger.rules.model import Action, Actor, ActorKind, CancelIntent, OpenCall, Operation, State
from opledger.rules.projection import Entry, project
from opledger.sim.contracts import contract_text
from tests.core.rules.operations import operation
from tests.fuzz.ground import Target, law

NOW: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
WORKER: Final = Actor("worker-1", ActorKind.WORKER)
CONTRACTS: Final[dict[str, Contract]] = {
    flavour: parse(contract_text(flavour, "https://api.example.com"), environment={})
    for flavour in ("v1", "clientid", "query", "body")
}
_CALL: Final = "call_1"


def _before(action: str, contract: Contract) -> Operation:
    facts: dict[str, Any] = {"contract": contract.name, "created_at": NOW, "first_sent_at": NOW, "last_sent_at": NOW}
    states = {
        "create": State.CREATE_PENDING, "resend": State.RECONCILIATION, "look": State.RECONCILIATION,
        "cancel": State.CANCEL_REQUESTED, "result": State.RESULT_COLLECTING, "collecting": State.RESULT_COLLECTING,
    }  # fmt: skip
    state = states.get(action, State.OBSERVING)
    effects = {"create": Action.CREATE, "resend": Action.RECONCILE, "look": Action.RECONCILE, "cancel": Action.CANCEL}
    if action in effects:
        facts["open_call"] = OpenCall(_CALL, effects[action], NOW)
    if action not in ("create", "resend", "look"):
        facts |= {"remote_job_id": "job_7", "jobs": ("job_7",), "accepted_at": NOW, "remote_state": "running"}
    if action == "cancel":
        facts["cancel"] = CancelIntent("req_1", "ana", NOW, "too dear")
    return operation(state, result_deadline=NOW + timedelta(hours=1), **facts)


def _read(action: str, answer: Answer, op: Operation, contract: Contract) -> Reading | None:
    said = {"call_id": _CALL, "answer": "a" * 64}
    if action in ("create", "resend"):
        return answers.read_create(answer, op, contract, resend=action == "resend", **said)
    if action == "cancel" and contract.cancel is not None:
        return answers.read_cancel(answer, op, contract, **said)
    if action == "result" and contract.result is not None:
        return answers.read_missing_result(answer, op, contract, **said)
    if action == "look":
        strategy = next((one for one in contract.reconcile if one.strategy != "resend"), None)
        if strategy is None:
            return None
        search = lookups.Search(strategy)
        read = lookups.read_page(answer, op, contract, search, **said)
        if isinstance(read, Reading):
            return read
        return Reading(lookups.conclude(search, op, NOW + timedelta(minutes=2), complete=True))
    return answers.read_status(answer, op, contract, now=NOW, **said)


def provider_answers(data: bytes) -> bool:
    """``ACTION FLAVOUR STATUS``, headers, a blank line and the body of an answer: evidence, and a record after it."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.decode("latin-1").split("\n")
    words = [*first.split(" "), "", "", ""]
    action, contract = words[0], CONTRACTS.get(words[1], CONTRACTS["v1"])
    status = int(words[2]) if words[2].isascii() and words[2].isdigit() and len(words[2]) == 3 else 200
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    op = _before(action, contract)
    answer = Answer(status, headers, body, NOW, "https://api.example.com/v1/jobs/job_7")
    read = _read(action, answer, op, contract)
    if read is None:
        return False
    evidence = read.evidence
    law(not read.credentials or status in (401, 403), "credentials are called refused by an answer that says no such")
    if action in ("create", "resend"):
        _created(evidence, status, headers, body)
    if isinstance(evidence, e.Observed):
        law(status < 300 or status >= 400, "a redirect tells how a job is")
        law("text/html" not in headers.get("content-type", "") or _is_json(body), "an error page tells how a job is")
    _recorded(op, evidence, contract)
    return not isinstance(evidence, e.ReadFailed | e.CallLost | e.Inconclusive)


def _created(evidence: e.Evidence, status: int, headers: dict[str, str], body: bytes) -> None:
    if isinstance(evidence, e.Accepted):
        law(status < 300 or 400 <= status < 500, "a job is bound by an answer that is an error of the server")
        said = [*_texts(body), *headers.values()]
        law(evidence.job_id in said, "a job is bound whose id stands nowhere in the answer")
    if isinstance(evidence, e.Refused):
        law(status < 300 or 400 <= status < 500, "an error of the server is read as a definitive no")


def _is_json(body: bytes) -> bool:
    try:
        jsontext.loads(body)
    except jsontext.JsonError:
        return False
    return True


def _texts(body: bytes) -> list[str]:
    """Every text and whole number in a body, read by Python."""
    try:
        todo = [json.loads(body)]
    except (ValueError, RecursionError):
        return []
    found = []
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list):
            todo += one
        elif isinstance(one, str | int) and not isinstance(one, bool):
            found.append(str(one))
    return found


def _recorded(op: Operation, evidence: e.Evidence, contract: Contract) -> None:
    """It can be written down, is read as what it was, and what follows from it can be said."""
    entry = Entry(op.operation_id, 2, NOW, WORKER, evidence, f"call:{_CALL}", None)
    written = journal.body_of(entry, None, None, op.remote_job_id, None)
    law(journal.read_body(written).entry == entry, "read from the journal it is other evidence")
    law(b"\\u0000" not in written or not _column(evidence), "a NUL stands where a column of the database is to be")
    try:
        after = project(op, entry)
    except IllegalTransition:
        return
    law("\0" not in (after.remote_job_id or "") and "\0" not in (after.remote_state or ""), "a NUL in a column")
    plan = decide.plan(after, contract, evidence, NOW, 0.5)
    law(plan is None or plan.at is None or plan.at >= NOW - timedelta(days=1), "what comes next lies in the past")
    journal.body_of(entry, op.state, after.state, after.remote_job_id, plan)


def _column(evidence: e.Evidence) -> bool:
    return "\0" in (getattr(evidence, "job_id", None) or "")


# --- the records of a result -----------------------------------------------------------------------------------------


class _Seen(Look):
    """Keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, Any]] = []

    def row(self, row: Any, number: int) -> None:
        """Take one."""
        self.rows.append((number, row))


def result_records(data: bytes) -> bool:
    """``FORM SIZE`` and the bytes of a result: however they are cut into chunks, the outcome is the same."""
    first, _, rest = data.partition(b"\n")
    form, _, size = first.decode("latin-1").partition(" ")
    form = form if form in ("json", "jsonl", "csv") else "json"
    step = int(size) if size.isascii() and size.isdigit() and 0 < len(size) < 4 else 7
    outcomes = [_fed(form, rest, step) for step in (max(step, 1), 1, len(rest) + 1)]
    law(outcomes[0] == outcomes[1] == outcomes[2], "how the bytes were cut into chunks changes the outcome")
    broken, count, _, rows = outcomes[0]
    law(broken is not None or count is None or len(rows) <= count, "more records are seen than are counted")
    if broken is None and form == "json" and count is not None:
        read = jsontext.loads(rest)
        law(count == (len(read) if isinstance(read, list) else 1), "records of a JSON document are counted wrongly")
    if broken is None and form == "jsonl":
        lines = [line for line in rest.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
        law(count == len(lines), "lines are counted wrongly")
        law([row for _, row in rows] == [jsontext.loads(line) for line in lines], "a line is read as another value")
    if form == "csv":
        _as_python_reads_it(rest, broken, count)
    results.read_digest(rest[:200].decode("latin-1"), None, listed=step % 2 == 0)
    return broken is None


def _fed(form: Any, data: bytes, step: int) -> tuple[str | None, int | None, list[str], list[tuple[int, Any]]]:
    seen = _Seen()
    reader = records.records(form, (seen,))
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
    reader.finish()
    return reader.broken, reader.count, reader.notes, seen.rows


def _as_python_reads_it(data: bytes, broken: str | None, count: int | None) -> None:
    """Compare with Python's reader, where the file is one that both read: plain text, no lone carriage returns."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    if broken is not None or count is None or "\r" in text or "\0" in text or text.startswith("\ufeff"):
        return
    delimiter = delimited.delimiter_of(next((line for line in data.split(b"\n") if line), b"")).decode()
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter, strict=False) if row]
    except csv.Error:
        return
    law(count == max(len(rows) - 1, 0), "rows are counted otherwise than Python counts them")


def _answers() -> tuple[bytes, ...]:
    job = b'{"id":"job_7","state":"running","client_ref":"op_01TESTTESTTESTTESTTEST0001","progress":{"percent":5}}'
    item = b'{"data":[' + job + b'],"next":null,"has_more":false}'
    error = b'{"error":{"code":"already_exists","message":"x"},"id":"job_7"}'
    plain = b"content-type: application/json\nx-request-id: r1\n\n"
    return (
        b"create v1 201\n" + plain + job,
        b"create clientid 409\n" + plain + error,
        b"create v1 429\nretry-after: 7\n\n{}",
        b"resend v1 409\n" + plain + error.replace(b"already_exists", b"in_progress"),
        b"resend body 422\n" + plain + error.replace(b"already_exists", b"idempotency_mismatch"),
        b"status v1 200\n" + plain + job.replace(b"running", b"succeeded"),
        b"status query 404\n\n",
        b"status v1 200\ncontent-type: text/html\n\n<html>",
        b"collecting v1 200\n" + plain + job.replace(b"running", b"failed"),
        b"cancel v1 202\n" + plain + job,
        b"cancel v1 409\n" + plain + error,
        b"look v1 200\n" + plain + item,
        b"look clientid 200\n" + plain + job,
        b"result v1 202\nretry-after: Sun, 29 Nov 2026 12:00:07 GMT\n\n",
        b"status v1 401\nwww-authenticate: Bearer\n\n",
    )


_ROWS: Final = b'[{"id":1,"a":"x"},{"id":2,"a":null}]'

TARGETS: Final = (
    Target(
        "answers",
        provider_answers,
        (answers, lookups, pages, values),
        ("words", "json", "json", "lines"),
        _answers(),
        (
            b"create",
            b"resend",
            b"status",
            b"cancel",
            b"look",
            b"result",
            b"job_7",
            b"succeeded",
            b"failed",
            b"cancelled",
        ),
    ),
    Target(
        "results",
        result_records,
        (records, arrays, delimited, results),
        ("words", "lines"),
        (
            b"json 3\n" + _ROWS,
            b'json 2\n{"a":[1,2]}',
            b'jsonl 5\n{"a":1}\n\n{"a":2}\n',
            b'csv 4\nid,name\n1,a\n2,"b\nc"\n',
            b"csv 1\nid;name\r\n1;a\r\n",
            b"csv 9\n\xef\xbb\xbfid\tname\n1\t2",
            b"json 1\n[]",
            b"json 1\n [1 , 2 ] ",
        ),
    ),
)
