"""Credentials that only results are read with: for which host they are, and what is said of them."""

from __future__ import annotations

import pytest

from opledger.rules import answers, requests, review
from opledger.rules.calls import Answer, Request
from opledger.rules.contract import Auth, Contract
from opledger.rules.files.contract import ContractInvalid, parse
from opledger.rules.guarantees import guarantees, report_text
from opledger.rules.model import State
from opledger.rules.policy import Demand
from tests.core.rules.operations import JOBS, NOON, operation

AUTH = '[auth]\nkind = "bearer"\nsecret = "env:JOBS_TOKEN"\n'
KEY = Auth("header", "env:FILES_KEY", name="x-key", prefix="Key ")
TABLE = 'auth = { kind = "header", name = "x-key", prefix = "Key ", secret = "env:FILES_KEY" }\n'
FILES = "https://files.example.net:443"
OWN = "https://api.example.com:443"


def contract(table: str = TABLE, hosts: str = '["files.example.net"]', more: str = 'url = "/url"\n') -> Contract:
    """A contract whose results have credentials of their own."""
    return parse(f"result_hosts = {hosts}\n{JOBS}{AUTH}[result]\n{more}{table}", environment={})


def read(url: str, **changes: str) -> Request:
    """The read of a result at this URL."""
    found = contract(**changes)
    return requests.collect(operation(remote_job_id="job_1"), found, {"url": url}, "https://api.example.com/jobs/job_1")


def wrong(source: str) -> list[tuple[str, int | None]]:
    """Which keys are wrong, and on which line."""
    with pytest.raises(ContractInvalid) as caught:
        parse(source, environment={})
    return [(problem.key, problem.line) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("url", "auth", "goes_to"),
    [
        ("https://files.example.net/r?part=1", KEY, FILES),
        ("https://FILES.example.net:443/r", KEY, FILES),
        ("https://files.example.net:8443/r", Auth(), None),
        ("/r", Auth("bearer", "env:JOBS_TOKEN"), None),
    ],
)
def test_each_origin_gets_its_own_credentials(url: str, auth: Auth, goes_to: str | None) -> None:
    """And of our headers and secrets nothing goes abroad."""
    request = read(url)
    assert (request.auth, request.auth_origin, request.origin) == (auth, goes_to, OWN)
    if not url.startswith("/"):
        assert (request.headers, request.secrets, request.effectful) == ((), None, False)


def test_without_another_host_they_are_for_our_own_origin() -> None:
    """A provider may want another key for results; the one for creates is not sent then."""
    assert read("/r", hosts="[]").auth == KEY
    redirected = requests.result_read(operation(), contract(hosts="[]"), "https://api.example.com/r", redirected=True)
    assert redirected.auth == Auth()


def test_a_host_on_another_port_is_another_host() -> None:
    """Exactly the origin that the contract lists, under the scheme of the base URL."""
    assert requests.result_origin(contract(hosts='["files.example.net:8443"]')) == "https://files.example.net:8443"
    assert requests.result_origin(contract('auth = "same_origin"\n')) is None
    assert requests.result_origin(contract('auth = { kind = "none" }\n')) is None


def test_they_are_for_one_host_and_are_read_as_strictly_as_others() -> None:
    """Every mistake with its key and line."""
    source = f'result_hosts = ["a.example", "b.example"]\n{JOBS}[result]\nurl = "/u"\n'
    line = source.count("\n") + 1
    assert wrong(source + TABLE) == [("result.auth", line)]
    for table, key in (
        ('auth = { kind = "bearer" }\n', "result.auth.secret"),
        ('auth = { kind = "bearer", secret = "hunter2" }\n', "result.auth.secret"),
        ('auth = { kind = "bearer", secret = "env:A", name = "x" }\n', "result.auth.name"),
        ('auth = { kind = "sigv4", secret = "env:A", region = "a", service = "b" }\n', "result.auth.kind"),
        ('auth = "always"\n', "result.auth"),
    ):
        assert wrong(f'{JOBS}[result]\nurl = "/u"\n{table}') == [(key, line - 1)]


def test_where_all_secrets_are_is_told_in_one_place() -> None:
    """For the doctor that tries them, and for commands that must not inherit them."""
    hook = '[webhook]\nscheme = "standard"\nsecret = ["env:H1", "env:H2"]\njob_id = "/id"\n[secrets]\nk = "env:K"\n'
    found = parse(contract().source + hook, environment={})
    assert found.references == ("env:JOBS_TOKEN", "env:K", "env:FILES_KEY", "env:H1", "env:H2")
    assert parse(JOBS, environment={}).references == ()


def test_a_host_that_refuses_its_key_stops_the_provider_and_one_that_got_none_does_not() -> None:
    """One escalation in place of hundreds."""
    op = operation(State.RESULT_COLLECTING, remote_job_id="job_1")
    refused = Answer(401, {}, b"", NOON, "https://files.example.net/r")
    for found, stops in ((contract(), True), (contract('auth = "same_origin"\n'), False)):
        reading = answers.read_missing_result(refused, op, found, call_id="call_1", answer=None)
        assert reading.credentials is stops


def test_whoever_approves_sees_which_key_goes_where() -> None:
    """In the report, and in the review."""
    found = contract()
    told = guarantees(found)
    assert told.result["credentials"] == f"its own (header), to {FILES} only"
    assert f"credentials: its own (header), to {FILES} only" in report_text(found)
    same = guarantees(contract('auth = "same_origin"\n')).result["credentials"]
    assert same == f"those of the other calls (bearer), to {OWN} only"
    assert guarantees(contract('auth = "none"\n')).result["credentials"] is None
    assert any("travels in the URL" in gap for gap in guarantees(contract(TABLE.replace('"header"', '"query"'))).gaps)
    request = {"method": "POST", "url": "https://api.example.com/jobs", "headers": {}, "body": {}}
    shown = review.review(operation(), found, told, Demand(1, None), request, None)
    assert shown["result_credentials"] == f"env:FILES_KEY, to {FILES} only"
    assert f"  for its result: env:FILES_KEY, to {FILES} only" in review.lines(shown)
