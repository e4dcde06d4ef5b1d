"""What every status code means to every call: written down by hand from the contract below and the design (§5, §6).

Nothing in here is computed by the product. A line is: codes, bodies, outcome; the first that fits counts.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from typing import Final, Literal

Body = Literal["empty", "valid", "html", "cut", "broken"]
BODIES: Final[tuple[Body, ...]] = ("empty", "valid", "html", "cut", "broken")
"""Nothing; what the contract says; an error page; half of it and then the end; half of it where a length was told."""

OPERATION: Final = "op_01J7Q5X4D4PA3DK0F5Q2V8W9AB"
JOB: Final = "job_1"

CONTRACT: Final = """
name = "reports"
base_url = "BASE"
trace_header = "traceparent"

[auth]
kind = "bearer"
secret = "env:REPORTS_TOKEN"

[create]
method = "POST"
path = "/v1/reports"
success = [200, 201, 202]
job_id = "/job_id"
remote_state = "/state"
refused = [400, 404, 405, 410, 413, 415, 422]
fields = { "/client_ref" = "{operation_id}" }
error_when = 'has(body.errors)'

[create.idempotency]
mechanism = "header"
name = "Idempotency-Key"
memory = "24h"
same_body = "replay_original"
duplicate_when = 'status == 409'
mismatch_when = 'status == 422 && body.code == "idempotency_mismatch"'
in_flight_when = 'status == 409 && body.code == "in_progress"'

[[reconcile]]
strategy = "resend"

[[reconcile]]
strategy = "list"
path = "/v1/reports"
query = { client_ref = "{operation_id}" }
items = "/data"
item_id = "/job_id"
match = 'item.client_ref == operation.operation_id'
item_state = "/state"
visibility_lag = "30s"
absence_is_proof = false
settle = "2m"

[[reconcile]]
strategy = "get"
path = "/v1/reports/{token}"
item_id = "/job_id"
item_state = "/state"
ABSENCE

[status]
path = "/v1/jobs/{job_id}"
job_id = "/job_id"
state = "/state"
not_visible_for = "60s"
gone_when = 'status == 410'

[status.states]
queued = ["queued"]
running = ["running"]
succeeded = ["succeeded"]
failed = ["failed"]
cancelled = ["cancelled"]

[cancel]
method = "DELETE"
path = "/v1/jobs/{job_id}"
success = [200, 202, 204]
accepted_when = "true"
idempotent = true
already_finished_when = 'status == 409'

[result]
url = "/result_url"
not_ready_when = "status in [202, 404, 409, 425]"
content_type = ["text/csv"]
checksum = "header:x-checksum-sha256"
format = "csv"

[limits]
throttled_when = 'status == 429 || (status == 403 && headers["x-ratelimit-remaining"] == "0")'
"""
"""As the one in contracts.md, with a look-up by our own token beside its list."""

LINES: Final[dict[str, str]] = {
    # A create: what is not certain is lost. A refusal is one by its code, whatever page explains it.
    "create": """
        200,201,202                   valid   accepted
        400,404,405,410,413,415,422   answer  refused
        401,403                       answer  credentials
        409                           valid   accepted
        429                           answer  throttled
        *                             *       lost
    """,
    # The same request under the same token: nothing that is not certain makes it more or less unknown than it was.
    "resend": """
        200,201,202                   valid   accepted
        400,404,405,410,413,415,422   answer  refused
        401,403                       answer  credentials
        409                           valid   accepted
        *                             *       unknown
    """,
    # A list: one match in a page that can be read adopts; everything else proves nothing.
    "list": """
        2xx                           valid   accepted
        401,403                       answer  credentials
        *                             *       unknown
    """,
    # Under our own token: an answer of the API that says "no such thing" is proof here, an error page is none.
    "get": """
        2xx                           valid   accepted
        401,403                       answer  credentials
        404,410                       html    unknown
        404,410                       answer  absent
        *                             *       unknown
    """,
    # A status read, long after the job was accepted: only what can be read says something of the job.
    "status": """
        2xx                           valid   observed
        401,403                       answer  credentials
        404,410                       answer  gone
        429                           answer  throttled
        *                             *       failed
    """,
    # The same in the first minute: the job need not be visible yet.
    "young": """
        2xx                           valid   observed
        401                           answer  credentials
        403,404                       answer  not_visible_yet
        410                           answer  gone
        429                           answer  throttled
        *                             *       failed
    """,
    # A cancel says by its code whether it was taken; how the job ended only a status read says.
    "cancel": """
        200,202,204                   answer  accepted
        401,403                       answer  credentials
        404,410                       answer  unclear
        409                           answer  finished
        429                           answer  throttled
        4xx                           answer  refused
        *                             *       lost
    """,
    # A result: 200, 201 and 203 bring one. An error page in its place is wrong, half of one is fetched again.
    "result": """
        200,201,203                   valid   succeeded
        200,201,203                   html    invalid
        401                           answer  credentials
        410                           answer  missing
        *                             *       again
    """,
}

STATES: Final[dict[str, dict[str, str]]] = {
    "create": {
        "accepted": "accepted", "refused": "failed", "credentials": "create_pending", "throttled": "create_pending",
        "lost": "create_unknown",
    },
    "resend": {
        "accepted": "accepted", "refused": "failed", "credentials": "create_unknown", "unknown": "create_unknown",
    },
    "list": {"accepted": "accepted", "credentials": "create_unknown", "unknown": "create_unknown"},
    "get": {
        "accepted": "accepted", "credentials": "create_unknown", "unknown": "create_unknown",
        "absent": "create_pending",
    },
    "status": dict.fromkeys(("observed", "credentials", "gone", "throttled", "failed"), "observing"),
    "young": dict.fromkeys(
        ("observed", "credentials", "gone", "throttled", "failed", "not_visible_yet"), "observing"
    ),
    "cancel": {
        **dict.fromkeys(("accepted", "credentials", "unclear", "finished", "refused", "lost"), "cancelling"),
        "throttled": "cancel_requested",
    },
    "result": {
        "succeeded": "succeeded", "invalid": "result_validation_failed", "missing": "result_unavailable",
        "again": "result_collecting", "credentials": "result_collecting",
    },
}  # fmt: skip
"""The state after it."""

PAUSES: Final = frozenset({"credentials"})
"""Outcomes that pause the provider; no other does."""

PHASES: Final = tuple(LINES)


def expected(phase: str, code: int, body: Body) -> str:
    """The outcome that the table names."""
    for codes, bodies, outcome in _lines(phase):
        fits = bodies in ("*", body) or (bodies == "answer" and body != "broken")
        if fits and (codes == "*" or str(code) in codes.split(",") or codes == f"{code // 100}xx"):
            return outcome
    raise AssertionError(f"the table says nothing of {phase} {code} {body}")


def _lines(phase: str) -> Iterator[list[str]]:
    for line in LINES[phase].strip().splitlines():
        yield line.split()


# --- what is answered ---------------------------------------------------------------------------------------------


def csv_text() -> bytes:
    """A small result."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("row", "amount"), (1, 12), (2, 17), (3, 4)])
    return text.getvalue().encode()


def content(phase: str, body: Body) -> tuple[bytes, dict[str, str]]:
    """The body of an answer and its headers. What is cut or broken is told as if it were whole."""
    if body == "html":
        return b"<!doctype html><html><body><h1>All is well</h1></body></html>", {"content-type": "text/html"}
    job = {"job_id": JOB, "state": "running", "client_ref": OPERATION}
    whole = json.dumps({"data": [job]} if phase == "list" else job).encode()
    headers = {"content-type": "application/json"}
    if phase == "result":
        whole = csv_text()
        headers = {"content-type": "text/csv", "x-checksum-sha256": hashlib.sha256(whole).hexdigest()}
    if body == "empty":
        return b"", headers
    return (whole, headers) if body == "valid" else (whole[: len(whole) // 2], headers)
