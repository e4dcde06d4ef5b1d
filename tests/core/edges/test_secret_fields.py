from __future__ import annotations

import json
from urllib.parse import parse_qs

import pytest

from opledger.edges.http import Http
from opledger.errors import ConfigWrong, SecretWrong
from opledger.rules import guarantees, packet, requests
from opledger.rules.calls import Answer, Request
from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse
from opledger.rules.model import State
from tests.core.edges.conftest import SECRET
from tests.core.edges.wire import Wire, reply
from tests.core.rules.operations import JOBS, operation

FIELDS = """
[create.fields]
"/callback/key" = "k-{secret.key}"
"/ref" = "{operation_id}"
[secrets]
key = "env:TOKEN"
other = "env:OTHER"
"""
WISH = {"note": "{secret.other} {secret.key}", "callback": {"url": "https://a.example"}, "n": 12345678901234567890}


def sent(contract: Contract, wire: Wire) -> Request:
    """The create as it is stored, at the test's own server."""
    ids = {"operation_id": "op_1", "trace_id": "0" * 31 + "1"}
    wish = WISH if contract.create.body == "json" else {**WISH, "n": "1"}
    stored = requests.prepare(contract, **ids, token="idem_1", asked=wish)
    assert SECRET.encode() not in stored.body
    assert b"secret.key" in stored.body
    op = operation(State.CREATE_PENDING, request_fingerprint=requests.fingerprint_of(contract, stored))
    shown = json.dumps(packet.request_shown(contract, stored))
    assert SECRET not in shown
    return requests.create(op, contract, stored)


def a_contract(wire: Wire, body: str = "json", fields: str = FIELDS) -> Contract:
    """A contract of that server."""
    source = JOBS.replace("https://api.example.com", wire.url).replace(
        'job_id = "/id"', f'job_id = "/id"\nbody = "{body}"', 1
    )
    return parse(source + fields, environment={})


@pytest.mark.parametrize("body", ["json", "form"])
async def test_a_secret_is_put_into_its_field_and_into_no_other(http: Http, body: str) -> None:
    """What the caller wrote stays as it is, though it looks the same: else it could send any secret anywhere."""
    async with Wire(reply(202, b'{"id":"j"}', close=True)) as wire:
        contract = a_contract(wire, body)
        for _ in range(2):
            assert isinstance(await http.send(sent(contract, wire)), Answer)
        first, second = wire.arrived
    assert first.body == second.body
    assert int(first.headers["content-length"]) == len(first.body)
    if body == "json":
        document = json.loads(first.body)
        assert document == {**WISH, "callback": {"url": "https://a.example", "key": f"k-{SECRET}"}, "ref": "op_1"}
    else:
        form = parse_qs(first.body.decode())
        assert form["callback[key]"] == [f"k-{SECRET}"]
        assert form["note"] == [WISH["note"]]
    assert any("A secret stands in the create's body" in gap for gap in guarantees.guarantees(contract).gaps)


async def test_a_field_whose_secret_cannot_be_had_is_not_sent(http: Http) -> None:
    """Nothing leaves with a hole in it."""
    async with Wire(reply(202)) as wire:
        with pytest.raises(SecretWrong):
            await http.send(sent(a_contract(wire, fields=FIELDS.replace("env:TOKEN", "env:NOWHERE")), wire))
        assert wire.connections == 0


async def test_an_answer_cannot_ask_for_a_secret_in_a_header() -> None:
    """What a create answered is the provider's own text, and a header that it is filled into is read for secrets."""
    async with Wire(reply()) as wire:
        contract = a_contract(wire, fields=FIELDS + '[create.refs]\nx = "/x"\n[headers]\nX-Job = "{step.x}"\n')
        op = operation(State.OBSERVING, remote_job_id="job-1", remote_refs={"x": "x-{secret.other}"})
        with pytest.raises(ConfigWrong, match="asks for a secret in the header X-Job"):
            requests.observe(op, contract)
        honest = operation(State.OBSERVING, remote_job_id="job-1", remote_refs={"x": "x-1"})
        assert ("X-Job", "x-1") in requests.observe(honest, contract).headers
