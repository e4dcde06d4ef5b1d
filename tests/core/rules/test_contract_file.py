from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from datetime import date, timedelta

import pytest

from opledger.rules.contract import KEPT, Also, Auth
from opledger.rules.files.contract import ContractInvalid, digest_of, parse
from opledger.rules.files.not_yet import NOT_YET
from opledger.rules.model import Means
from opledger.rules.schemas import Schema
from opledger.rules.values import Pick
from tests.core.rules.contract_example import EXAMPLE, driven

NOT_DRIVEN = ["resume"]

SMALL = """\
name = "jobs"
base_url = "${JOBS_URL:-https://api.example.com/}"
[var]
account = "${ACCOUNT:-acct_1}"
[create]
method = "POST"
path = "/{var.account}/jobs"
job_id = "/id"
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
succeeded = ["done"]
"""


def keys(source: str, **environment: str) -> list[str]:
    """The keys of everything that is wrong."""
    with pytest.raises(ContractInvalid) as caught:
        parse(source, environment=environment, beside=lambda _: "{}")
    return [problem.key for problem in caught.value.problems]


def test_the_documented_example_fails_only_for_what_is_not_driven_yet() -> None:
    """What cannot be driven must be named, all of it, and nothing else of the documented format may be refused."""
    with pytest.raises(ContractInvalid) as caught:
        parse(EXAMPLE, environment={}, beside=lambda _: "{}")
    assert [problem.key for problem in caught.value.problems] == NOT_DRIVEN
    assert all("cannot be driven by this version yet" in problem.message for problem in caught.value.problems)


def test_the_documented_example_is_read_value_by_value() -> None:
    """A key that is read into the wrong place would change what is sent, with no error anywhere."""
    contract = parse(driven(), environment={})
    assert (contract.name, contract.title, contract.contract_version) == ("reports", "Acme reports", 1)
    assert contract.base_url == "https://api.example.com"
    assert contract.verified_on == date(2026, 11, 29)
    assert contract.trace_header == "X-Trace-ID"
    assert contract.request_id_headers == ("x-request-id",)
    assert contract.auth == Auth("bearer", "env:REPORTS_TOKEN")
    assert contract.headers["X-Api-Version"].text == "2026-01-01"
    create = contract.create
    assert (create.method, create.path.text, create.body) == ("POST", "/v1/reports", "json")
    assert create.success == {200, 201, 202}
    assert [pick.text for pick in create.job_id] == ["/job_id"]
    assert create.refused == {400, 404, 405, 410, 413, 415, 422}
    assert create.fields["/client_ref"].names == ("operation_id",)
    assert create.error_when is not None
    assert create.error_when.text == "has(body.errors)"
    token = create.idempotency
    assert (token.mechanism, token.name, token.max_length) == ("header", "Idempotency-Key", 255)
    assert (token.memory, token.same_body) == (timedelta(hours=24), "replay_original")
    assert token.replay_marker is not None
    assert token.replay_marker.header == "idempotent-replayed"
    resend, look = contract.reconcile
    assert (resend.strategy, look.strategy) == ("resend", "list")
    assert (look.max_pages, look.visibility_lag, look.settle) == (100, timedelta(seconds=30), timedelta(minutes=2))
    assert (look.page_param, look.absence_is_proof) == ("cursor", False)
    assert contract.status.words["canceled"] is Means.CANCELLED
    assert [(rule.means, rule.when.text) for rule in contract.status.rules] == [
        (Means.FAILED, 'body.state == "done" && has(body.error)')
    ]
    assert contract.status.progress["total"].pointer == ("progress", "total")
    assert [hint.text for hint in contract.poll.hints][-1] == "/poll_after_seconds"
    assert contract.poll.max_silence == timedelta(minutes=5)
    assert contract.cancel is not None
    assert (contract.cancel.method, contract.cancel.idempotent, contract.cancel.destroys) == ("DELETE", True, ())
    result = contract.result
    assert result is not None
    assert (result.max_size, result.checksum_algorithm, result.format) == (2 * 1024**3, "sha256", "csv")
    assert (result.available_for, result.timeout) == (timedelta(hours=1), timedelta(minutes=10))
    assert (result.single_use, result.collect_in, result.schema) == (False, frozenset({Means.SUCCEEDED}), None)
    assert result.error_row_when is not None
    assert result.error_row_when.text == 'row.error != ""'
    assert result.also == (Also("errors", Pick.parse("/error_url"), optional=True),)
    assert result.items is not None
    assert (result.items.id.text, result.items.total) == ("/custom_id", Pick.parse("/counts/total"))
    assert (result.items.sent, result.items.at, result.items.reason) == (None, None, None)
    assert contract.deadlines.collect == timedelta(minutes=15)
    assert (contract.limits.concurrency, contract.limits.rate) == (20, 50.0)
    assert (contract.approval_required, contract.safety.billable) == (False, True)
    assert contract.safety.redact == ("/account", "/patient/name")


def test_everything_that_is_not_driven_can_still_be_told_from_a_typo() -> None:
    """A contract that waits for a later version must be right already, or it fails on the day it is needed."""
    source = EXAMPLE.replace('schema = "', 'shcema = "').replace('id = "/custom_id"\n', "")
    assert {"result.shcema", "result.items.id", "resume"} <= set(keys(source))


def test_a_schema_is_read_from_beside_the_contract_and_is_a_part_of_it() -> None:
    """Another schema is another contract; and what is pinned can be read again when the file is gone."""
    source = SMALL + '[result]\nurl = "/u"\nformat = "json"\nschema = "x.json"\n'
    first = parse(source, environment={}, beside={"x.json": '{"type": "object"}'}.__getitem__)
    assert first.result is not None
    assert first.result.schema == Schema('{"type": "object"}', "x.json")
    other = parse(source, environment={}, beside={"x.json": "{}"}.__getitem__)
    assert other.digest != first.digest
    again = parse(source, environment=first.environment)
    assert (again.digest, again.result) == (first.digest, first.result)
    assert keys(source.replace("x.json", "../x.json")) == ["result.schema"]


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{", '{"type": "objekt"}', '{"$ref": "http://127.0.0.1:9/x"}', '{"$ref": "file:///etc/hostname"}'],
)
def test_a_schema_that_cannot_be_used_is_refused_at_load(text: str) -> None:
    """Not when a result has come; and nothing is fetched for it."""
    source = SMALL + '[result]\nurl = "/u"\nformat = "json"\nschema = "x.json"\n'
    with pytest.raises(ContractInvalid, match=r"line 17, result\.schema: "):
        parse(source, environment={}, beside=lambda _: text)


STEPS = """\
[[create.steps]]
name = "upload"
method = "POST"
path = "/files"
effect = "none"
capture = { file = "/id" }
"""
AWS = 'region = "eu-west-1", service = "athena"'
LATER = [
    ("auth.kind", '[auth]\nkind = "sigv4"\nsecret = "env:X"\nregion = "eu-west-1"\nservice = "athena"\n'),
    ("create.body", '#create body = "multipart"'),
    ("create.body", '#create body = "file"'),
    ("create.steps", STEPS),
    ("create.idempotency.mechanism", '[create.idempotency]\nmechanism = "two_phase"\nname = "/x"\n'),
    ("resume", '[resume]\nmethod = "POST"\npath = "/jobs/{job_id}/retry"\n'),
    ("result.auth.kind", f'[result]\nurl = "/u"\nauth = {{ kind = "sigv4", secret = "env:X", {AWS} }}\n'),
]


@pytest.mark.parametrize(("key", "text"), LATER, ids=[f"{key}-{index}" for index, (key, _) in enumerate(LATER)])
def test_what_is_not_driven_is_refused_and_nothing_beside_it(key: str, text: str) -> None:
    """Silence about a thing that will not happen is the one answer that is not allowed."""
    if text.startswith("#create "):
        source = SMALL.replace('job_id = "/id"', f'job_id = "/id"\n{text.removeprefix("#create ")}')
    else:
        source = SMALL + text
    assert keys(source) == [key]


def test_steps_stand_in_place_of_the_path_of_a_single_call() -> None:
    """With several calls each has a path of its own."""
    assert keys(SMALL.replace('path = "/{var.account}/jobs"\n', "") + STEPS) == ["create.steps"]


def test_every_entry_of_the_list_is_tried_here() -> None:
    """A new line in the list of what is not driven needs a contract that shows it."""
    tried = {key for key, _ in LATER}
    assert {".".join(entry.key) for entry in NOT_YET} == tried


def test_words_stand_for_what_is_not_there() -> None:
    """Both cancel and result can say that there is nothing, or that the result is in the status answer."""
    contract = parse('cancel = "none"\nresult = "none"\n' + SMALL, environment={})
    assert (contract.cancel, contract.result) == (None, None)
    inline = parse('result = "inline:/output"\n' + SMALL, environment={}).result
    assert inline is not None
    assert inline.inline is not None
    assert inline.inline.pointer == ("output",)
    whole = parse('result = "inline:"\n' + SMALL, environment={}).result
    assert whole is not None
    assert whole.inline is not None
    assert whole.inline.pointer == ()


def test_the_environment_fills_base_url_and_variables_and_is_kept() -> None:
    """An operation pins its contract: reading the stored text with the stored values must give the same thing."""
    world = {"JOBS_URL": "http://127.0.0.1:9/x/", "ACCOUNT": "", "HOME": "/root"}
    contract = parse(SMALL, environment=world)
    assert (contract.base_url, contract.var) == ("http://127.0.0.1:9/x", {"account": "acct_1"})
    assert contract.environment == {"JOBS_URL": "http://127.0.0.1:9/x/"}
    again = parse(contract.source, environment=contract.environment)
    assert again == contract


def test_the_digest_is_of_the_text_and_of_the_values_it_used() -> None:
    """Another host or another line is another contract; a variable that is not mentioned changes nothing."""
    plain = parse(SMALL, environment={}).digest
    assert parse(SMALL, environment={"OTHER": "x"}).digest == plain
    assert parse(SMALL, environment={"ACCOUNT": "acct_2"}).digest != plain
    assert parse(SMALL + "# x\n", environment={}).digest != plain
    assert plain == digest_of(SMALL, {})
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", plain)


@pytest.mark.parametrize(
    ("memory", "window"),
    [
        ("24h", timedelta(hours=21, minutes=36)),
        ("60s", timedelta(seconds=30)),
        ("while_record_exists", KEPT),
    ],
)
def test_a_token_is_resent_only_well_inside_its_memory(memory: str, window: timedelta) -> None:
    """A resend that arrives after the provider forgot the token makes a second job (invariant I4)."""
    token = f'[create.idempotency]\nmechanism = "body"\nname = "/key"\nmemory = "{memory}"\n'
    contract = parse(SMALL + token + '[[reconcile]]\nstrategy = "resend"\n', environment={})
    assert contract.resend_window == window


def test_a_client_id_may_stand_in_the_path_instead_of_the_body() -> None:
    """Some providers take the caller's id as the name of the resource they create."""
    source = SMALL.replace('path = "/{var.account}/jobs"', 'path = "/jobs/{token}"')
    contract = parse(source + '[create.idempotency]\nmechanism = "client_id"\n', environment={})
    assert contract.create.idempotency.name is None


def test_a_create_that_is_always_answered_at_once_needs_no_status() -> None:
    """A synchronous provider gives no job id and has nothing to poll."""
    source = SMALL[: SMALL.index("[status]")].replace('job_id = "/id"', "inline_when = 'status == 200'")
    assert parse(source, environment={}).create.job_id == ()


def test_macros_bind_their_own_names() -> None:
    """A condition over a list needs a name for its items, which the CEL library reports as if it were free."""
    condition = "body.items.exists(i, i.ok && body.more.all(k, k.n == i.n)) || body.x.map(i, i.y).size() > 0"
    contract = parse(SMALL.replace('job_id = "/id"', f"job_id = \"/id\"\nerror_when = '{condition}'"), environment={})
    assert contract.create.error_when is not None
    assert contract.create.error_when.holds({"body": {"items": [{"ok": True, "n": 1}], "more": [{"n": 1}], "x": []}})


@pytest.mark.parametrize(
    ("checksum", "algorithm"),
    [
        ("header:x-checksum-sha256", "sha256"),
        ("header:content-md5", "md5"),
        ("header:content-digest", None),
        ("/meta/sha-512", "sha512"),
        ("/files/0/SHA1", "sha1"),
    ],
)
def test_a_checksum_tells_its_algorithm_by_its_name(checksum: str, algorithm: str | None) -> None:
    """A checksum compared by the wrong algorithm would reject every good result."""
    contract = parse(SMALL + f'[result]\nurl = "/u"\nchecksum = "{checksum}"\n', environment={})
    assert contract.result is not None
    assert contract.result.checksum_algorithm == algorithm


def test_a_contract_is_made_of_frozen_values() -> None:
    """Operations share contracts between threads; nothing may change one after it was read."""

    def frozen(value: object) -> None:
        if is_dataclass(value) and not isinstance(value, type):
            assert type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
            for each in fields(value):
                frozen(getattr(value, each.name))
        elif isinstance(value, tuple):
            for item in value:
                frozen(item)
        else:
            assert not isinstance(value, list | set)

    frozen(parse(driven(), environment={}))


RESEND = '[[reconcile]]\nstrategy = "resend"\n'
KEY = '[create.idempotency]\nmechanism = "header"\nname = "X-Key"\nmemory = "1h"\n'
LIST = '[[reconcile]]\nstrategy = "list"\npath = "/jobs"\nitems = ""\nitem_id = "/id"\n'
CANCEL = (
    '[cancel]\nmethod = "POST"\npath = "/cancel"\nquery = { id = "{job_id}" }\nbody = { force = true, why = ["x"] }\n'
)
HMAC = """\
[webhook]
scheme = "hmac"
secret = "env:S"
signature = "header:X-Signature"
signed = "{timestamp}.{body}"
digest = "sha256"
encoding = "hex"
timestamp = "header:X-Timestamp"
job_id = "/id"
"""
GOOD = [
    KEY + 'resend_adds = { retry = "true", "/meta/retry" = "true" }\n' + RESEND,
    '[create.fields]\n"/a" = "x"\n"/ab" = "y"\n"/c/d" = "{trace_id}"\n"/c/e" = "z"\n',
    '[headers]\nX-A = "1"\n[create.headers]\nX-A = "2"\n',
    '[auth]\nkind = "query"\nname = "api[key]"\nsecret = "file:/run/key"\nprefix = ""\n',
    '[auth]\nkind = "header"\nname = "Authorization"\nprefix = "Key "\nsecret = "command:pass show fal"\n',
    '[auth]\nkind = "basic"\nusername = "me"\nsecret = "keyring:opledger/me"\n',
    '[headers]\nCookie = "session={secret.s}"\n[secrets]\ns = "env:S"\n',
    KEY + LIST + "match = 'item.key == operation.token'\n",
    LIST + "match = 'item.kind == 3'\n",
    '[create.fields]\n"/trace" = "{trace_id}"\n' + LIST + "match = 'item.trace == operation.trace_id'\n",
    CANCEL,
    '[webhook]\nscheme = "none"\n',
    HMAC,
    '[result]\nurl = "/u"\nchecksum = "/sum"\nchecksum_algorithm = "sha256"\ncollect_in = ["succeeded"]\n',
]


@pytest.mark.parametrize("more", GOOD)
def test_what_is_right_is_not_refused(more: str) -> None:
    """A check that is too eager keeps people from writing down what their provider really does."""
    parse(SMALL + more, environment={})


def test_a_trace_header_counts_as_a_reference_that_is_sent() -> None:
    """Some providers store the trace id and list jobs by it."""
    source = 'trace_header = "traceparent"\n' + SMALL + LIST + "match = 'item.trace == operation.trace_id'\n"
    assert parse(source, environment={}).trace_header == "traceparent"


def test_a_constant_cancel_body_is_kept_as_the_bytes_that_are_sent() -> None:
    """What the approver sees is what leaves."""
    cancel = parse(SMALL + CANCEL, environment={}).cancel
    assert cancel is not None
    assert cancel.body == b'{"force":true,"why":["x"]}'


OAUTH = """\
[auth]
kind = "oauth2_client_credentials"
secret = "env:X"
client_id = "a"
token_url = "https://a.example/token"
"""


def test_an_oauth_client() -> None:
    """The least that must stand there, and all that may (RFC 6749 §4.4)."""
    least = parse(SMALL + OAUTH, environment={}).auth
    assert (least.kind, least.secret, least.client_id) == ("oauth2_client_credentials", "env:X", "a")
    assert (least.token_url, least.client_auth, least.scope) == ("https://a.example/token", "basic", None)
    assert (least.margin, least.lifetime) == (timedelta(seconds=60), timedelta(minutes=5))
    assert least.references == ("env:X",)
    more = OAUTH.replace('"a"', '"file:/run/id"').replace("https://a.example/token", "${IDP}/token/?api-version=1")
    more += 'scope = ["jobs.read", "jobs.write"]\naudience = "https://jobs"\nclient_auth = "post"\n'
    more += 'margin = "0s"\nlifetime = "1h"\n'
    full = parse(SMALL + more, environment={"IDP": "https://id.example"}).auth
    assert full.token_url == "https://id.example/token/?api-version=1"
    assert (full.scope, full.audience, full.client_auth) == ("jobs.read jobs.write", "https://jobs", "post")
    assert full.references == ("env:X", "file:/run/id")


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("auth.token_url", "https://a.example/token", "http://a.example/token"),
        ("auth.token_url", "https://a.example/token", "https://u:p@a.example/token"),
        ("auth.token_url", "https://a.example/token", "https://a.example/token#x"),
        ("auth.token_url", "https://a.example/token", "${NOT_SET}/token"),
        ("auth.client_id", 'client_id = "a"', 'client_id = ""'),
        ("auth.client_auth", 'client_id = "a"', 'client_id = "a"\nclient_auth = "jwt"'),
        ("auth.scope", 'client_id = "a"', 'client_id = "a"\nscope = "a  b"'),
        ("auth.lifetime", 'client_id = "a"', 'client_id = "a"\nlifetime = "0s"'),
        ("auth.username", 'client_id = "a"', 'client_id = "a"\nusername = "u"'),
        ("auth.kind", "[auth]", '[headers]\nAuthorization = "{secret.a}"\n[secrets]\na = "env:A"\n[auth]'),
    ],
)
def test_an_oauth_client_that_cannot_be(key: str, old: str, new: str) -> None:
    """The secret goes to that address: it is as strict about it as about base_url, and asks for https."""
    assert [found.split(" ")[0] for found in keys(SMALL + OAUTH.replace(old, new))] == [key]


@pytest.mark.parametrize("key", ["token_url", "client_id", "scope", "audience", "client_auth", "margin", "lifetime"])
def test_what_belongs_to_an_oauth_client_has_no_meaning_elsewhere(key: str) -> None:
    """Typos in the kind must not pass."""
    value = "30s" if key in ("margin", "lifetime") else "https://a.example" if key == "token_url" else "basic"
    assert keys(SMALL + f'[auth]\nkind = "bearer"\nsecret = "env:X"\n{key} = "{value}"\n') == [f"auth.{key}"]
