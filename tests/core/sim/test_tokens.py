from __future__ import annotations

import httpx
import pytest

from opledger.sim.contracts import DEFAULT_TOKEN, contract_text
from opledger.sim.tokens import CLIENT
from tests.core.sim.conftest import Client
from tests.fakes.sim import SimThread

FORM = {"grant_type": "client_credentials"}
POSTED = {**FORM, "client_id": CLIENT, "client_secret": DEFAULT_TOKEN}


def status(sim: SimThread, token: str) -> int:
    """What a list of jobs is answered with, for whoever shows this token."""
    return httpx.get(f"{sim.base_url}/v1/jobs", headers={"authorization": f"Bearer {token}"}).status_code


def test_a_client_gets_a_token_that_opens_the_api(client: Client, sim: SimThread) -> None:
    """By header or by form; each token is another one, and the log tells which one came."""
    url = f"{sim.base_url}/oauth/token"
    first = httpx.post(url, data=FORM, auth=(CLIENT, DEFAULT_TOKEN)).json()
    second = httpx.post(url, data=POSTED).json()
    assert first["access_token"] != second["access_token"]
    assert (first["token_type"], first["expires_in"]) == ("bearer", 3600.0)
    assert status(sim, second["access_token"]) == 200
    log = sim.log()
    assert [(entry["kind"], entry["effect"], entry["access"]) for entry in log[-3:]] == [
        ("token", "issued", 1), ("token", "issued", 2), ("list", None, 2)
    ]  # fmt: skip
    assert first["access_token"] not in str(log) and DEFAULT_TOKEN not in str(log)


@pytest.mark.parametrize(
    ("data", "auth", "code"),
    [
        (FORM, (CLIENT, "wrong"), "invalid_client"),
        (FORM, ("wrong", DEFAULT_TOKEN), "invalid_client"),
        (FORM, None, "invalid_client"),
        ({**POSTED, "client_secret": ""}, None, "invalid_client"),
        ({"grant_type": "password"}, (CLIENT, DEFAULT_TOKEN), "unsupported_grant_type"),
    ],
)
def test_others_get_none(sim: SimThread, data: dict[str, str], auth: tuple[str, str] | None, code: str) -> None:
    """With the error codes of RFC 6749 §5.2."""
    answer = httpx.post(f"{sim.base_url}/oauth/token", data=data, auth=auth)
    assert answer.status_code in (400, 401)
    assert answer.json()["error"] == code


def test_tokens_run_out_and_are_taken_back(client: Client, sim: SimThread) -> None:
    """By order, and whatever was said of how long they last."""
    url = f"{sim.base_url}/oauth/token"
    sim.control(access={"lifetime": 0, "said": 3600})
    over = httpx.post(url, data=POSTED).json()
    assert (over["expires_in"], status(sim, over["access_token"])) == (3600, 401)
    sim.control(access={"lifetime": None, "said": None, "secret": "another"})
    assert httpx.post(url, data=POSTED).status_code == 401
    fresh = httpx.post(url, data={**POSTED, "client_secret": "another"}).json()
    assert "expires_in" not in fresh and status(sim, fresh["access_token"]) == 200
    sim.control(access={"revoke": True})
    assert status(sim, fresh["access_token"]) == 401
    with pytest.raises(ValueError, match="an access order"):
        sim.control(access={"lifetme": 3})


def test_a_contract_may_be_that_of_a_client(sim: SimThread) -> None:
    """The same API, with other credentials."""
    text = contract_text("v1", sim.base_url, oauth=True)
    assert 'kind = "oauth2_client_credentials"' in text
    assert f'token_url = "{sim.base_url}/oauth/token"' in text
