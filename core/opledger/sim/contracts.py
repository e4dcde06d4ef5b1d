"""The simulator's own contract files: what it *promises*, whatever its personalities then do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from opledger.edges.files import atomic_write, private_folder
from opledger.sim.flavours import FLAVOURS
from opledger.sim.tokens import CLIENT

SECRET: Final = "env:SIM_TOKEN"  # noqa: S105 - a reference, not a value
DEFAULT_TOKEN: Final = "loopback-only-token"  # noqa: S105 - known to everybody; opens only the simulator

DEADLINES: Final[Mapping[str, str]] = {"create": "8s", "result": "20s", "cancel": "4s", "collect": "6s"}

_BEARER: Final = 'kind = "bearer"\nsecret = "{secret}"'
_AUTH: Final[Mapping[str, str]] = {
    "header": 'kind = "header"\nname = "x-api-key"\nsecret = "{secret}"',
    "query": 'kind = "basic"\nusername = "sim"\nsecret = "{secret}"',
}

_OAUTH: Final = f"""\
kind = "oauth2_client_credentials"
token_url = "{{base_url}}/oauth/token"
client_id = "{CLIENT}"
secret = "{{secret}}"
scope = "jobs"
"""

_REPLAYS: Final = """\
memory = "10m"
same_body = "replay_original"
mismatch_when = 'status == 422 && body.error.code == "idempotency_mismatch"'
in_flight_when = 'status == 409 && body.error.code == "in_progress"'
replay_marker = "header:Idempotent-Replayed"
"""
_KEY: Final = f"""
[create.idempotency]
mechanism = "header"
name = "Idempotency-Key"
max_length = 255
{_REPLAYS}"""
_RESEND: Final = """
[[reconcile]]
strategy = "resend"
"""
_LIST: Final = """
[[reconcile]]
strategy = "list"
path = "/{flavour}/jobs"
query = { client_ref = "{operation_id}", limit = "1" }
items = "/data"
item_id = "/id"
match = 'item.client_ref == operation.operation_id'
item_state = "/state"
item_created_at = "/created_at"
next_page = "/next"
page_param = "cursor"
max_pages = 20
visibility_lag = "500ms"
absence_is_proof = true
settle = "1s"
"""

_IDENTITY: Final[Mapping[str, str]] = {
    "v1": _KEY + _RESEND + _LIST,
    "guarded": _KEY + _RESEND + _LIST,
    "header": _KEY + _RESEND,
    "none": '\n[create.idempotency]\nmechanism = "none"\n',
    "clientid": """
[create.idempotency]
mechanism = "client_id"
name = "/id"
max_length = 64
same_body = "duplicate_error"
duplicate_when = 'status == 409 && body.error.code == "already_exists"'

[[reconcile]]
strategy = "get"
path = "/clientid/jobs/{token}"
item_id = "/id"
item_state = "/state"
absence_is_proof = true
settle = "1s"
""",
    "query": f"""
[create.idempotency]
mechanism = "query"
name = "request_id"
max_length = 64
{_REPLAYS.replace("replay_original", "return_current")}{_RESEND}""",
    "body": f"""
[create.idempotency]
mechanism = "body"
name = "/request_token"
max_length = 64
{_REPLAYS}{_LIST.replace('client_ref = "{operation_id}", limit = "1"', 'limit = "50"')}{_RESEND}""",
    "unique": """
[create.idempotency]
mechanism = "unique_name"
name = "/name"
max_length = 64
same_body = "duplicate_error"
duplicate_when = 'status == 409 && body.error.code == "already_exists"'
"""
    + _LIST.replace('client_ref = "{operation_id}", limit = "1"', 'name = "{token}"').replace(
        "item.client_ref == operation.operation_id", "item.name == operation.token"
    ),
    "singleton": """
[create.idempotency]
mechanism = "none"

[[reconcile]]
strategy = "singleton"
path = "/singleton/current"
item_id = "/id"
match = 'item.client_ref == operation.operation_id'
item_state = "/state"
absence_is_proof = false
""",
    "batch": _KEY + _RESEND + _LIST,
    "once": _KEY + _RESEND,
    "inline": _KEY + _RESEND,
}

_RESULT_URL: Final = """
[result]
url = "/result_url"
auth = "same_origin"
available_for = "1h"
timeout = "5s"
not_ready_when = "status in [202, 404, 409, 425]"
content_type = ["text/csv"]
max_size = "64MiB"
size = "header:content-length"
checksum = "header:x-checksum-sha256"
count = "/records"
strict = true
format = "csv"
"""
_ITEMS: Final = """\
format = "jsonl"
also = [{ name = "errors", url = "/error_url", optional = true }]
collect_in = ["succeeded", "failed", "cancelled", "expired"]

[result.items]
id = "/custom_id"
failed_when = 'item.error != null'
reason = "/error/message"
total = "/counts/total"
sent = "/requests"
"""
_RESULT: Final[Mapping[str, str]] = {
    "header": _RESULT_URL.replace('url = "/result_url"', 'path = "/header/jobs/{job_id}/result"')
    .replace('content_type = ["text/csv"]', 'content_type = ["application/json", "text/csv"]')
    .replace('count = "/records"\n', "")
    .replace('format = "csv"\n', ""),
    "once": _RESULT_URL + "single_use = true\n",
    "batch": _RESULT_URL.replace('url = "/result_url"', 'url = "/output_url"')
    .replace('content_type = ["text/csv"]', 'content_type = ["application/jsonl"]')
    .replace('count = "/records"\n', "")
    .replace('format = "csv"\n', _ITEMS),
}

STATES: Final = """\
queued = ["queued"]
running = ["running"]
cancelling = ["cancelling"]
succeeded = ["succeeded"]
failed = ["failed"]
cancelled = ["cancelled"]
expired = ["expired"]
"""
"""What the simulator's words for states mean, wherever they are read: in a status answer or in a webhook."""

_REST: Final = (
    """
[status]
method = "GET"
path = "/{flavour}/jobs/{job_id}"
job_id = "/id"
timeout = "2s"
state = "/state"
updated_at = "/updated_at"
updated_at_unit = "rfc3339"
progress = { completed = "/progress/completed", total = "/progress/total" }
error = ["/error/code", "/error/message"]
not_visible_for = "5s"
gone_when = 'status == 410'

[status.states]
"""
    + STATES
    + """
[poll]
first = "50ms"
factor = 1.6
max = "400ms"
hints = ["header:retry-after"]

[cancel]
method = "DELETE"
path = "/{flavour}/jobs/{job_id}"
success = [200, 202, 204]
timeout = "2s"
accepted_when = "body.accepted"
idempotent = false
already_finished_when = 'status == 409 && body.error.code == "already_finished"'
leaves = "Rows written before the cancel stay in the export."
"""
)


def contract_name(flavour: str) -> str:
    """The contract's name: ``sim`` for the main flavour, ``sim-FLAVOUR`` for the others."""
    return "sim" if flavour == "v1" else f"sim-{flavour}"


def contract_text(
    flavour: str,
    base_url: str,
    *,
    elsewhere: str | None = None,
    deadlines: Mapping[str, str] | None = None,
    secret: str = SECRET,
    oauth: bool = False,
) -> str:
    """Return the contract file for one flavour (a key of `FLAVOURS`), in TOML.

    `elsewhere` is the origin from which results may also be read; `deadlines` replaces some of `DEADLINES`;
    `secret` is the reference under which the credential is found; with `oauth` it is that of an OAuth client, which
    fetches access tokens with it. Raises KeyError for an unknown flavour.
    """
    about = FLAVOURS[flavour]
    hosts = "[]" if elsewhere is None else f'["{urlsplit(elsewhere).netloc}"]'
    times = "\n".join(f'{name} = "{time}"' for name, time in {**DEADLINES, **(deadlines or {})}.items())
    auth = _OAUTH.replace("{base_url}", base_url) if oauth else _AUTH.get(flavour, _BEARER)
    auth = auth.replace("{secret}", secret)
    body = "form" if flavour == "query" else "json"
    inline = "inline_when = 'status == 200'\n" if about.inline else ""
    result = 'result = "inline:/output"\n' if about.inline else ""
    table = "" if about.inline else _RESULT.get(flavour, _RESULT_URL)
    limit = """throttled_when = 'status == 429 || (status == 409 && body.error.code == "busy")'\n"""
    text = f"""\
# The simulated provider, {flavour}: {about.says}.
# It promises what stands here and keeps it only when it feels like it; see /_personalities.
name = "{contract_name(flavour)}"
title = "Simulated provider ({flavour})"
contract_version = 1
base_url = "{base_url}"
sources = ["opledger.sim"]
verified_on = 2026-11-29
trace_header = "traceparent"
request_id_headers = ["x-request-id"]
result_hosts = {hosts}
{result}
[auth]
{auth}

[create]
method = "POST"
path = "/{flavour}/jobs"
body = "{body}"
success = [200, 201, 202]
job_id = "/id"
remote_state = "/state"
timeout = "3s"
refused = [400, 404, 405, 410, 413, 415, 422]
fields = {{ "/client_ref" = "{{operation_id}}" }}
{inline}{_IDENTITY[flavour]}{_REST}{table}
[deadlines]
{times}

[limits]
concurrency = 50
{limit if about.repeat == "busy" else ""}
[safety]
billable = true
"""
    return text.replace("{flavour}", flavour)


def write_contracts(folder: Path, base_url: str, *, elsewhere: str | None = None) -> list[Path]:
    """Write every flavour's contract file into `folder` (made if it is missing) and return their paths."""
    private_folder(folder)
    written = []
    for flavour in FLAVOURS:
        path = folder / f"{contract_name(flavour)}.toml"
        atomic_write(path, contract_text(flavour, base_url, elsewhere=elsewhere).encode())
        written.append(path)
    return written
