"""From an action to the exact request: one wish, one body, one token, and no way out of the contract's own paths."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.errors import ConfigWrong, OpledgerError, Refused, UsageError
from opledger.rules import requests
from opledger.rules.calls import Answer, Request, origin_of
from opledger.rules.contract import Auth, Contract, Idempotency
from opledger.rules.model import Operation, State, StoredRequest
from opledger.rules.requests import fingerprint_of, prepare, sent_digest, wish
from tests.support.contracts import (
    CANCEL,
    LIST,
    RESULT,
    STATUS,
    a_contract,
    at,
    text,
    with_cancel,
    with_create,
    with_status,
    with_token,
)
from tests.support.records import JOB, OPERATION_ID, TRACE, a_record, seconds
from tests.support.records import TOKEN as KEY

ASKED = {"account": "acct_218", "big": 9007199254740993, "rows": [1, 2.5, None, True]}


def made(contract: Contract, asked: Any = ASKED, *, token: str | None = KEY) -> StoredRequest:
    """The create request as it is stored."""
    return prepare(contract, operation_id=OPERATION_ID, token=token, trace_id=TRACE, asked=asked)


def recorded(contract: Contract, stored: StoredRequest, **facts: Any) -> Operation:
    """A record of a stored request."""
    return a_record(State.CREATE_PENDING, request_fingerprint=fingerprint_of(contract, stored), **facts)


def sent(contract: Contract, asked: Any = ASKED, *, resend: bool = False, **facts: Any) -> Request:
    """The create request as it is sent."""
    stored = made(contract, asked, **facts)
    return requests.create(recorded(contract, stored), contract, stored, resend=resend)


def headers(request: Request | StoredRequest) -> dict[str, str]:
    """Headers by name; no name twice."""
    assert len(dict(request.headers)) == len(request.headers)
    return dict(request.headers)


# --- create: made once, sent as stored --------------------------------------------------------------------------------


def test_the_bytes_are_made_once_and_sent_as_stored() -> None:
    """One operation sends one body under one token, every time (I2)."""
    contract = a_contract()
    stored = made(contract)
    op = recorded(contract, stored)
    first, again, resent = (requests.create(op, contract, stored, resend=resend) for resend in (False, False, True))
    assert first == again == resent
    assert (first.method, first.url, first.body) == ("POST", stored.url, stored.body)
    assert first.headers == stored.headers
    assert first.effectful


def test_the_body_is_what_was_asked_and_the_contract_s_fields() -> None:
    """Integers keep their digits; the reference field stands beside them."""
    body = made(a_contract()).body
    assert json.loads(body) == {**ASKED, "client_ref": OPERATION_ID}
    assert b"9007199254740993" in body


def test_a_stored_request_is_sent_even_if_the_contract_would_make_another_today() -> None:
    """What was approved is what leaves; a contract edited since makes nothing new."""
    stored = made(a_contract())
    edited = with_create(fields={"/client_ref": text("{trace_id}")}, headers={"X-New": text("1")})
    assert requests.create(recorded(edited, stored), edited, stored).body == stored.body


@pytest.mark.parametrize(
    "change",
    [
        {"asked": b'{"account":"acct_219"}'},
        {"method": "PUT"},
        {"fingerprint_url": "https://api.example.com/v1/payouts"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_stored_request_that_was_changed_is_not_sent(change: dict[str, Any]) -> None:
    """The fingerprint is checked again before every send (I22)."""
    contract = a_contract()
    stored = made(contract)
    op = recorded(contract, stored)
    with pytest.raises(ConfigWrong, match="changed outside"):
        requests.create(op, contract, replace(stored, **change))


def test_the_digest_of_a_send_covers_all_that_is_sent() -> None:
    """The journal says exactly what left."""
    stored = made(a_contract())
    others = [
        replace(stored, body=b"{}"),
        replace(stored, url=stored.url + "?x=1"),
        replace(stored, method="PUT"),
        replace(stored, headers=(*stored.headers, ("X-A", "1"))),
        replace(stored, headers=stored.headers[:-1]),
    ]
    assert len({sent_digest(request) for request in (stored, *others)}) == len(others) + 1


@pytest.mark.parametrize("asked", [None, {}, [], "x", 0, ASKED], ids=repr)
def test_a_wish_has_the_fingerprint_of_its_request(asked: Any) -> None:
    """Look-alikes are found before there is an operation; the operation's own names must not matter."""
    contract = with_create(
        fields={},
        path=text("/v1/{var.account}/reports/{operation_id}"),
        query={"ref": text("{token}"), "trace": text("{trace_id}"), "kind": text("a b")},
    )
    contract = replace(contract, var={"account": "acct/218"})
    one = prepare(contract, operation_id="op_1", token="t" * 20, trace_id="0" * 32, asked=asked)
    two = prepare(contract, operation_id="op_2", token="u" * 20, trace_id="1" * 32, asked=asked)
    assert fingerprint_of(contract, one) == fingerprint_of(contract, two) == wish(contract, asked)
    assert one.url != two.url


def test_another_wish_has_another_fingerprint() -> None:
    """Body, path variables and contract make the wish."""
    contract = with_create(path=text("/v1/{var.account}"))
    one = wish(replace(contract, var={"account": "a"}), ASKED)
    others = {
        wish(replace(contract, var={"account": "b"}), ASKED),
        wish(replace(contract, var={"account": "a"}), {**ASKED, "account": "x"}),
        wish(replace(contract, var={"account": "a"}), None),
        wish(replace(contract, var={"account": "a"}, name="other"), ASKED),
    }
    assert len({one, *others}) == 5


def test_the_caller_s_fields_are_never_overwritten() -> None:
    """A field that the contract fills in is left out by the caller, or the submit is refused."""
    with pytest.raises(Refused, match="client_ref"):
        made(a_contract(), {"client_ref": "mine"})
    with pytest.raises(Refused, match="client_ref"):
        made(a_contract(), {"client_ref": None})
    same = made(a_contract(), {"client_ref": OPERATION_ID})
    assert json.loads(same.body) == {"client_ref": OPERATION_ID}


@pytest.mark.parametrize("parent", ["text", 7, [1], None])
def test_a_parent_that_is_no_object_is_not_replaced(parent: Any) -> None:
    """The caller's value would be lost."""
    contract = with_create(fields={"/meta/ref": text("{operation_id}")})
    with pytest.raises(UsageError):
        made(contract, {"meta": parent})
    assert json.loads(made(contract, {"meta": {"a": 1}}).body) == {"meta": {"a": 1, "ref": OPERATION_ID}}
    assert json.loads(made(contract, {}).body) == {"meta": {"ref": OPERATION_ID}}


def test_the_caller_s_own_value_is_not_touched() -> None:
    """The body may be used again by whoever gave it."""
    asked: dict[str, Any] = {"meta": {}}
    made(with_create(fields={"/meta/ref": text("{operation_id}")}), asked)
    assert asked == {"meta": {}}


def test_pointers_with_escapes_name_the_right_field() -> None:
    """``~1`` is a slash and ``~0`` a tilde (RFC 6901)."""
    contract = with_create(fields={"/a~1b/c~0d/~01": text("x")})
    assert json.loads(made(contract, {}).body) == {"a/b": {"c~d": {"~1": "x"}}}


@pytest.mark.parametrize("asked", ["text", [1], 7])
def test_a_body_that_cannot_hold_the_fields_is_refused(asked: Any) -> None:
    """Better at submit than at the provider."""
    with pytest.raises(UsageError):
        made(a_contract(), asked)


# --- where the token stands -------------------------------------------------------------------------------------------


def test_the_token_in_a_header() -> None:
    """The most common place; no other place has it."""
    stored = made(a_contract())
    assert headers(stored)["Idempotency-Key"] == KEY
    assert KEY not in stored.url
    assert KEY.encode() not in stored.body


def test_the_token_in_a_query() -> None:
    """Beside the contract's own parameters."""
    contract = with_create(query={"v": text("2")}, idempotency=Idempotency("query", "request_id"))
    stored = made(contract)
    assert dict(parse_qsl(urlsplit(stored.url).query)) == {"v": "2", "request_id": KEY}
    assert KEY not in headers(stored).values()


@pytest.mark.parametrize("mechanism", ["body", "client_id", "unique_name"])
def test_the_token_in_the_body(mechanism: Any) -> None:
    """A field like the others: never overwritten, never part of the fingerprint."""
    contract = with_create(idempotency=Idempotency(mechanism, "/meta/id"))
    stored = made(contract)
    assert json.loads(stored.body)["meta"] == {"id": KEY}
    assert fingerprint_of(contract, stored) == fingerprint_of(contract, made(contract, token="another token"))
    with pytest.raises(Refused):
        made(contract, {"meta": {"id": "mine"}})


def test_the_token_in_the_path() -> None:
    """``PUT /things/{token}`` names the resource."""
    contract = with_create(method="PUT", path=text("/v1/things/{token}"), idempotency=Idempotency("put_resource"))
    assert made(contract).url == f"https://api.example.com/v1/things/{KEY}"


def test_without_a_mechanism_there_is_no_token_anywhere() -> None:
    """A provider that takes none must not be sent one."""
    stored = made(with_create(idempotency=Idempotency()), token=None)
    assert "Idempotency-Key" not in headers(stored)


# --- what only a resend adds ------------------------------------------------------------------------------------------


def test_a_resend_adds_its_parameters_and_only_a_resend() -> None:
    """Some providers want to be told; the stored bytes stay as they are."""
    contract = with_token(resend_adds={"retry": "true", "/meta/retry": "1"})
    first, resent = sent(contract), sent(contract, resend=True)
    assert urlsplit(first.url).query == ""
    assert dict(parse_qsl(urlsplit(resent.url).query)) == {"retry": "true"}
    assert json.loads(resent.body or b"") == {**json.loads(first.body or b""), "meta": {"retry": "1"}}
    assert first.headers == resent.headers
    assert sent(contract, resend=True).body == resent.body


def test_what_a_resend_could_not_add_is_refused_at_submit() -> None:
    """When the answer is lost it is too late to find out."""
    with pytest.raises(Refused, match="/retry"):
        made(with_token(resend_adds={"/retry": "1"}), {"retry": "0"})


# --- body kinds -------------------------------------------------------------------------------------------------------


def test_a_form_is_flattened_in_brackets() -> None:
    """The common notation for nested values."""
    contract = with_create(body="form")
    stored = made(contract, {"a": {"b": [1, {"c": "x y"}]}, "t": True, "f": False, "n": None, "e&": "é=", "z": {}})
    assert stored.content_type == "application/x-www-form-urlencoded"
    assert parse_qsl(stored.body.decode(), keep_blank_values=True) == [
        ("a[b][0]", "1"),
        ("a[b][1][c]", "x y"),
        ("t", "true"),
        ("f", "false"),
        ("n", ""),
        ("e&", "é="),
        ("client_ref", OPERATION_ID),
    ]


def test_raw_text_goes_out_as_it_is() -> None:
    """No JSON quotes around it."""
    contract = with_create(body="raw", fields={})
    stored = made(contract, "line 1\nline 2 é")
    assert (stored.body.decode(), stored.content_type) == ("line 1\nline 2 é", "application/octet-stream")
    with pytest.raises(UsageError):
        made(contract, {"not": "text"})


def test_no_body_means_no_body() -> None:
    """Not an empty object, and no content type for it."""
    contract = with_create(body="none", fields={})
    request = sent(contract, None)
    assert (request.body, "Content-Type" in headers(request)) == (None, False)
    with pytest.raises(UsageError):
        made(contract, {})


def test_a_form_must_be_an_object() -> None:
    """Names need values."""
    with pytest.raises(UsageError):
        made(with_create(body="form", fields={}), ["a"])


def test_json_without_a_body_is_an_empty_object() -> None:
    """The contract's fields need something to stand in."""
    assert json.loads(made(a_contract(), None).body) == {"client_ref": OPERATION_ID}


# --- headers ----------------------------------------------------------------------------------------------------------


def test_general_headers_go_with_every_call_and_create_s_own_with_create() -> None:
    """A header of the create call replaces a general one of the same name."""
    contract = replace(
        with_create(headers={"X-Version": text("2"), "X-Create": text("{operation_id}")}),
        headers={"X-Version": text("1"), "X-Var": text("{var.team}")},
        var={"team": "data"},
        trace_header="X-Trace-ID",
    )
    create = headers(made(contract))
    assert (create["X-Version"], create["X-Create"], create["X-Var"]) == ("2", OPERATION_ID, "data")
    assert (create["X-Trace-ID"], create["Content-Type"]) == (TRACE, "application/json")
    read = headers(requests.observe(a_record(remote_job_id=JOB), contract))
    assert read == {"X-Version": "1", "X-Var": "data", "X-Trace-ID": TRACE}


def test_traceparent_has_the_form_of_the_standard() -> None:
    """W3C Trace Context: version, trace id, parent id, flags; the parent id is not zero."""
    contract = replace(a_contract(), trace_header="traceparent")
    version, trace, parent, flags = headers(made(contract))["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert len(parent) == 16
    assert int(parent, 16) != 0
    assert headers(requests.observe(a_record(remote_job_id=JOB), contract))["traceparent"].split("-")[1] == TRACE


def test_secrets_stay_references() -> None:
    """They are put in at the HTTP edge; here they would be stored, hashed and shown."""
    contract = replace(
        a_contract(), headers={"X-Callback": text("k={secret.callback}")}, secrets={"callback": "env:CALLBACK"}
    )
    request = sent(contract)
    assert headers(request)["X-Callback"] == "k={secret.callback}"
    assert request.secrets == {"callback": "env:CALLBACK"}
    assert request.auth == Auth("bearer", "env:REPORTS_TOKEN")
    assert request.origin == "https://api.example.com:443"


# --- reads about a job ------------------------------------------------------------------------------------------------

SAFE_JOB = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda job: job not in (".", "..")
)
EVERY_CALL = [
    requests.observe,
    requests.cancel,
    lambda op, contract: requests.collect(op, contract, {}, ""),
]


@pytest.mark.parametrize("call", EVERY_CALL, ids=["observe", "cancel", "collect"])
@given(job=SAFE_JOB)
def test_a_job_id_cannot_change_the_path(call: Any, job: str) -> None:
    """Whatever a provider calls its job, the call stays below the contract's path and names exactly that job."""
    contract = a_contract(
        status=replace(STATUS, path=text("/v1/jobs/{job_id}/state"), query={"id": text("{job_id}")}),
        cancel=replace(CANCEL, path=text("/v1/jobs/{job_id}/state"), query={"id": text("{job_id}")}),
        result=replace(RESULT, url=None, path=text("/v1/jobs/{job_id}/state")),
    )
    request = call(a_record(remote_job_id=job), contract)
    parts = urlsplit(request.url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "api.example.com", "")
    assert [unquote(segment) for segment in parts.path.split("/")] == ["", "v1", "jobs", job, "state"]
    assert parse_qsl(parts.query, keep_blank_values=True) in ([("id", job)], [])
    assert request.url.isascii()


@pytest.mark.parametrize(
    "job", ["a/../../admin", "a?x=1", "a#frag", "a%2Fb", "é/ü", "a b", "//evil.example", "a\\b", "日本"]
)
def test_hostile_job_ids_by_name(job: str) -> None:
    """The ones that were used against other people."""
    request = requests.observe(a_record(remote_job_id=job), a_contract())
    (segment,) = urlsplit(request.url).path.removeprefix("/v1/jobs/").split("/")
    assert unquote(segment) == job
    assert urlsplit(request.url).query == ""


@pytest.mark.parametrize("job", [".", ".."])
def test_a_job_id_of_dots_is_not_put_into_a_path(job: str) -> None:
    """Encoded or not, it would mean another path."""
    with pytest.raises(OpledgerError):
        requests.observe(a_record(remote_job_id=job), a_contract())


def test_a_status_read_uses_the_address_the_provider_named() -> None:
    """It was checked when it came; without one the contract's own path is used."""
    own = "https://api.example.com/v1/operations/77"
    assert requests.observe(a_record(remote_job_id=JOB, remote_refs={"status_url": own}), a_contract()).url == own
    assert requests.observe(a_record(remote_job_id=JOB), a_contract()).url == "https://api.example.com/v1/jobs/job_1"


def test_a_kept_value_that_happens_to_be_called_status_url_is_no_address() -> None:
    """Only the contract's own `status_url` is one."""
    contract = with_create(status_url=None)
    op = a_record(remote_job_id=JOB, remote_refs={"status_url": "https://api.example.com/elsewhere"})
    assert requests.observe(op, contract).url == "https://api.example.com/v1/jobs/job_1"


def test_a_record_without_any_address_says_so() -> None:
    """The status URL was foreign and the contract has no path of its own."""
    with pytest.raises(ConfigWrong, match="status"):
        requests.observe(a_record(remote_job_id=JOB), with_status(path=None))


def test_reads_are_no_effects_and_cancels_are() -> None:
    """No transport ever repeats an effectful request."""
    op = a_record(remote_job_id=JOB)
    assert not requests.observe(op, a_contract()).effectful
    assert not requests.look_up(op, a_contract(), LIST).effectful
    cancel = requests.cancel(op, with_cancel(method="POST", body=b'{"why":"x"}', timeout=seconds(9)))
    assert (cancel.effectful, cancel.method, cancel.body, cancel.timeout) == (True, "POST", b'{"why":"x"}', seconds(9))
    assert headers(cancel)["Content-Type"] == "application/json"
    assert "Content-Type" not in headers(requests.cancel(op, a_contract()))


def test_there_is_no_cancel_where_the_provider_has_none() -> None:
    """It is said, not sent."""
    with pytest.raises(Refused, match="no cancel"):
        requests.cancel(a_record(remote_job_id=JOB), a_contract(cancel=None))


@pytest.mark.parametrize(
    "contract",
    [
        with_status(path=text("/v1/runs/{step.run}")),
        with_status(query={"run": text("{step.run}")}),
        replace(a_contract(), headers={"X-Run": text("{step.run}")}),
    ],
    ids=["path", "query", "header"],
)
def test_values_of_the_create_s_answer_are_filled_in(contract: Contract) -> None:
    """Encoded like a job id; a value that the answer never had is named, and nothing is sent."""
    request = requests.observe(a_record(remote_job_id=JOB, remote_refs={"run": "a/b"}), contract)
    assert "a%2Fb" in request.url or headers(request) == {"X-Run": "a/b"}
    with pytest.raises(ConfigWrong, match=r"step\.run"):
        requests.observe(a_record(remote_job_id=JOB), contract)


def test_no_value_of_an_answer_adds_a_header() -> None:
    """A line break in it would."""
    contract = replace(a_contract(), headers={"X-Run": text("{step.run}")})
    with pytest.raises(ConfigWrong, match="X-Run"):
        requests.observe(a_record(remote_job_id=JOB, remote_refs={"run": "a\r\nX-Admin: 1"}), contract)


# --- look-ups ---------------------------------------------------------------------------------------------------------


def an_answer(document: Any, **facts: Any) -> Answer:
    """A JSON answer."""
    whole: dict[str, Any] = {"status": 200, "headers": {}, "answered_at": datetime(2026, 11, 29, 12, tzinfo=UTC)}
    return Answer(**{**whole, "body": json.dumps(document).encode(), **facts})


def test_a_look_up_asks_by_our_own_reference() -> None:
    """The reference goes into the query, encoded."""
    request = requests.look_up(a_record(operation_id="op_a&b=c"), a_contract(), LIST)
    assert parse_qsl(urlsplit(request.url).query) == [("client_ref", "op_a&b=c")]


def further(value: Any, **strategy: Any) -> str | None:
    """The next page of a list whose answer says `value`."""
    how = replace(LIST, **strategy)
    current = "https://api.example.com/v1/reports?client_ref=op_1&cursor=old"
    return requests.next_page(a_contract(), how, an_answer({"next": value}), {"next": value}, current)


def test_a_cursor_replaces_the_last_one() -> None:
    """And leaves the rest of the question as it was."""
    assert further("a&b/é") == "https://api.example.com/v1/reports?client_ref=op_1&cursor=a%26b%2F%C3%A9"
    assert further(50) == "https://api.example.com/v1/reports?client_ref=op_1&cursor=50"


@pytest.mark.parametrize("end", [None, "", False])
def test_the_list_ends_where_there_is_no_next_page(end: Any) -> None:
    """Null, nothing, or false."""
    assert further(end) is None
    assert further(end, page_param=None) is None


def test_a_list_without_pages_ends_at_once() -> None:
    """Neither a contract without `next_page` nor an answer without the key has more."""
    assert further("x", next_page=None) is None
    assert requests.next_page(a_contract(), LIST, an_answer({}), {}, "https://api.example.com/v1/reports") is None


def test_a_next_page_by_url_stays_on_our_own_origin() -> None:
    """Relative or absolute; anything else is not read, so the list is not complete."""
    assert further("?page=2", page_param=None) == "https://api.example.com/v1/reports?page=2"
    assert further("/v2/x", page_param=None) == "https://api.example.com/v2/x"
    for foreign in (
        "https://evil.example/x",
        "http://api.example.com/x",
        "//evil.example",
        "https://api.example.com:8/x",
    ):
        with pytest.raises(Refused, match="another origin"):
            further(foreign, page_param=None)


@pytest.mark.parametrize("value", [True, 1.5, ["x"], {"x": 1}])
def test_a_next_page_of_another_shape_is_not_guessed(value: Any) -> None:
    """A list that cannot be read to its end must not count as complete."""
    with pytest.raises(Refused):
        further(value)


def test_a_next_page_may_stand_in_a_header() -> None:
    """As in ``Link`` headers."""
    how = replace(LIST, next_page=at('header:link|<([^>]+)>; rel="next"'), page_param=None)
    answer = an_answer([], headers={"link": '<https://api.example.com/p?n=2>; rel="next"'})
    assert (
        requests.next_page(a_contract(), how, answer, [], "https://api.example.com/p")
        == "https://api.example.com/p?n=2"
    )


# --- results ----------------------------------------------------------------------------------------------------------


def the_result(value: Any, **contract: Any) -> Request:
    """The read of a result that the status answer names."""
    known = {"result_hosts": ("files.example.net", "cdn.example.net:8443"), **contract}
    return requests.collect(
        a_record(remote_job_id=JOB), a_contract(**known), {"result_url": value}, "https://api.example.com/v1/jobs/1"
    )


def test_a_result_of_our_own_origin_gets_our_credentials() -> None:
    """Relative URLs are resolved against the answer that named them."""
    request = the_result("result.csv?x=1")
    assert request.url == "https://api.example.com/v1/jobs/result.csv?x=1"
    assert request.auth == Auth("bearer", "env:REPORTS_TOKEN")
    assert (request.max_bytes, request.timeout) == (RESULT.max_size, RESULT.timeout)


def test_a_contract_may_withhold_credentials_from_results() -> None:
    """Signed URLs of the own origin break with an Authorization header."""
    request = the_result("/r", result=replace(RESULT, auth="none"))
    assert request.auth == Auth()


@pytest.mark.parametrize(
    "url", ["https://files.example.net/r", "https://FILES.example.net:443/r", "https://cdn.example.net:8443/r?sig=1"]
)
def test_a_listed_host_gets_the_request_and_nothing_else(url: str) -> None:
    """No credentials, no headers, no secrets (I25)."""
    request = replace(the_result(url, headers={"X-Api": text("1")}, trace_header="traceparent"), origin="")
    assert request == Request("GET", request.url, timeout=RESULT.timeout, max_bytes=RESULT.max_size)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/r",
        "https://cdn.example.net/r",  # listed with another port
        "https://files.example.net.evil.example/r",
        "//evil.example/r",
        "https://api.example.com.evil.example/r",
        "https://api.example.com:8443/r",
        "https://api.example.com@evil.example/r",
        "https://user:secret@api.example.com/r",
        "https://evil.example\\@api.example.com/r",
        "https://api.example.com\\.evil.example/r",
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/r",
        "http://[::1]/r",
        "http://files.example.net/r",  # a step down from https
        "http://api.example.com/r",
        "file:///etc/passwd",
        "ftp://files.example.net/r",
        "javascript:alert(1)",
        "https://files.example.net:x/r",
        "https://files.exa\tmple.net/r",
        "https://files.example.net/r\r\nX-Injected: 1",
        " https://files.example.net/r",
    ],
)
def test_a_result_elsewhere_is_not_read(url: str) -> None:
    """Unlisted hosts, a step down to http, and everything that two programs could read in two ways."""
    with pytest.raises(Refused):
        the_result(url)


@pytest.mark.parametrize("value", [None, "", 7, ["https://files.example.net/r"]])
def test_an_answer_without_a_result_url_says_so(value: Any) -> None:
    """The record needs the reason."""
    with pytest.raises(Refused, match="no result URL"):
        the_result(value)


def test_a_provider_on_plain_http_may_have_plain_results() -> None:
    """A loopback provider steps down from nothing."""
    request = the_result("http://files.example.net/r", base_url="http://127.0.0.1:8080")
    assert request.url == "http://files.example.net/r"


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("/v1/s/1", "https://api.example.com/v1/s/1"),
        ("https://API.example.com:443/s", "https://API.example.com:443/s"),
        ("https://evil.example/s", None),
        ("http://api.example.com/s", None),
        ("https://a:b@api.example.com/s", None),
        ("https://api.example.com:99999/s", None),
        ("https://api.example.com/s\r\n", None),
        ("mailto:x", None),
    ],
)
def test_a_status_url_is_used_only_on_our_own_origin(url: str, own: str | None) -> None:
    """A foreign status URL is not used at all."""
    assert requests.own_url(a_contract(), url, "https://api.example.com/v1/reports") == own


@given(st.text(max_size=60))
def test_no_url_from_outside_leaves_the_origin(value: str) -> None:
    """Whatever stands in an answer, the result is on the own origin, on a listed host, or refused."""
    contract = a_contract(result_hosts=("files.example.net",))
    found = requests.own_url(contract, value, "https://api.example.com/v1/reports")
    assert found is None or origin_of(found) == "https://api.example.com:443"
    try:
        url = requests.result_url(contract, value, "https://api.example.com/v1/reports")
    except Refused:
        return
    assert urlsplit(url).hostname in ("api.example.com", "files.example.net")
    assert urlsplit(url).scheme == "https"
