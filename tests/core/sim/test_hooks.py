from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opledger.rules.files.contract import parse
from opledger.sim.contracts import contract_text
from opledger.sim.hooks import MANNERS, WEBHOOK_SECRET, webhook_text
from tests.core.ledgers import Home
from tests.fakes.hooks import ReceiverThread
from tests.fakes.sim import SimThread
from tests.support.databases import sqlite_template, sqlite_url  # noqa: F401 - fixtures

BODY = json.dumps({"rows": 1, "client_ref": "ref_1", "_seconds": 0}).encode()


@pytest.fixture
def receiver(tmp_path: Path, sqlite_url: str) -> Iterator[ReceiverThread]:  # noqa: F811
    """A receiver for what the simulator sends."""
    home = Home(tmp_path, sqlite_url)
    for scheme in ("standard", "hmac"):
        text = contract_text("v1", "http://127.0.0.1:9").replace('name = "sim"', f'name = "sim-{scheme}"')
        (tmp_path / "contracts" / f"{scheme}.toml").write_text(text + webhook_text(scheme, "env:HOOK_SECRET"))
    with home.ledger() as ledger, ReceiverThread(ledger, secret=WEBHOOK_SECRET) as running:
        yield running


def sent(sim: SimThread, receiver: ReceiverThread, count: int, **how: Any) -> list[dict[str, Any]]:
    """Create one job, and wait for what is sent about it."""
    told = {"to": receiver.url(f"sim-{how.get('scheme', 'standard')}"), **how}
    sim.ask("POST", "/_webhooks", told)
    sim.control(reset=True)
    _create(sim)
    while True:
        found: list[dict[str, Any]] = sim.ask("GET", "/_webhooks")
        if len(found) >= count and found[-1]["status"] is not None:
            return found


def _create(sim: SimThread) -> None:
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    line = HTTPConnection(urlsplit(sim.base_url).netloc, timeout=20)
    line.request("POST", "/v1/jobs", BODY, {**sim.headers, "idempotency-key": "k", "content-type": "application/json"})
    assert line.getresponse().status == 202
    line.close()


EXPECTED = {
    "plain": ["queued", "running", "succeeded"],
    "duplicated": [word for word in ("queued", "running", "succeeded") for _ in range(3)],
    "reordered": ["succeeded", "running", "queued"],
    "early": ["queued", "running", "succeeded"],
    "forged": ["queued", "running", "succeeded"],
    "stranger": ["queued", "running", "succeeded"],
    "replayed": ["queued", "running", "succeeded"],
}


@pytest.mark.parametrize("manner", sorted(EXPECTED))
def test_a_job_sends_its_events_in_the_manner_of_the_account(receiver: ReceiverThread, manner: str) -> None:
    """And signs them as that manner has it."""
    with SimThread() as sim:
        found = sent(sim, receiver, len(EXPECTED[manner]), manner=manner)
    assert [one["event"] for one in found] == EXPECTED[manner]
    assert {one["status"] for one in found} == ({401} if manner in ("forged", "replayed") else {202})
    assert len({one["id"] for one in found}) == 3


def test_the_other_scheme_is_signed_well(receiver: ReceiverThread) -> None:
    """One that carries time and signatures in a single header."""
    with SimThread() as sim:
        assert {one["status"] for one in sent(sim, receiver, 3, scheme="hmac")} == {202}


def test_only_known_manners_can_be_asked_for() -> None:
    """A mistyped one would test nothing."""
    with SimThread() as sim:
        with pytest.raises(ValueError, match="plain"):
            sim.ask("POST", "/_webhooks", {"to": "http://127.0.0.1:9", "manner": "odd"})
        with pytest.raises(ValueError, match="no such job"):
            sim.ask("POST", "/_deliver", {"job": "job_9", "events": ["queued"]})
    assert set(MANNERS) == {*EXPECTED, "late", "lost"}


@pytest.mark.parametrize("scheme", ["standard", "hmac"])
def test_the_contract_text_is_read(scheme: str) -> None:
    """What tests and demonstrations append to a contract is what the receiver verifies by."""
    contract = parse(contract_text("v1", "http://127.0.0.1:9") + webhook_text(scheme), environment={})
    assert contract.webhook is not None
    assert contract.webhook.scheme == scheme
