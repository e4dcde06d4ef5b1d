"""Each flavour recognises a repeated create in its own way."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import httpx
import pytest

from opledger.sim.flavours import FLAVOURS
from tests.core.sim.conftest import Client
from tests.fakes.sim import SimThread


def send(client: Client, flavour: str, token: str = "t1", **body: Any) -> httpx.Response:
    """Create a job, with the token where the flavour wants it."""
    about = FLAVOURS[flavour]
    body = {"client_ref": f"op_{token}", **body}
    headers = {about.token: token} if about.place == "header" else {}
    params = {about.token: token} if about.place == "query" else {}
    if about.place == "body":
        body[about.token] = token
    return client.http.post(f"/{flavour}/jobs", json=body, headers=headers, params=params)


@pytest.mark.parametrize("flavour", ["v1", "guarded", "header", "query", "body", "inline"])
def test_a_token_brings_back_the_same_job(client: Client, flavour: str) -> None:
    """Wherever the token stands."""
    first, second = send(client, flavour), send(client, flavour)
    assert first.json()["id"] == second.json()["id"]
    assert len(client.sim.jobs()) == 1
    assert {entry["token"] for entry in client.sim.log()} == {"t1"}


def test_a_query_flavour_answers_with_the_job_as_it_is_now(client: Client) -> None:
    """`return_current`, not the stored answer."""
    job = send(client, "query").json()["id"]
    client.finish(job)
    again = send(client, "query")
    assert (again.status_code, again.json()["state"]) == (200, "succeeded")


@pytest.mark.parametrize("flavour", ["clientid", "unique"])
def test_a_taken_id_or_name_is_a_conflict_that_names_the_job(client: Client, flavour: str) -> None:
    """A 409 can be the proof of success (F14)."""
    job = send(client, flavour).json()["id"]
    again = send(client, flavour)
    assert (again.status_code, again.json()["error"]["code"], again.json()["id"]) == (409, "already_exists", job)


def test_a_client_id_is_the_job_id(client: Client) -> None:
    """It can be looked up before any answer was seen."""
    with pytest.raises(httpx.ReadError):
        send(client, "clientid", "mine", _personality="lossy")
    assert client.http.get("/clientid/jobs/mine").json()["id"] == "mine"
    assert client.http.get("/clientid/jobs/other").status_code == 404


def test_a_client_id_is_required_where_it_is_the_id(client: Client) -> None:
    """Nothing to look up without it."""
    assert client.http.post("/clientid/jobs", json={}).status_code == 422


def test_names_can_be_listed(client: Client) -> None:
    """The look-up of the unique-name flavour."""
    send(client, "unique", "a")
    send(client, "unique", "b")
    found = client.http.get("/unique/jobs", params={"name": "b"}).json()["data"]
    assert [item["name"] for item in found] == ["b"]


def test_without_a_token_every_create_is_a_job(client: Client) -> None:
    """At most once cannot be shown here."""
    assert send(client, "none").json()["id"] != send(client, "none").json()["id"]


def test_one_job_at_a_time(client: Client) -> None:
    """The second must wait; the running one can be asked for."""
    assert client.http.get("/singleton/current").status_code == 404
    job = send(client, "singleton", "a", _seconds=60).json()["id"]
    busy = send(client, "singleton", "b")
    assert (busy.status_code, busy.json()["error"]["code"], busy.json()["id"]) == (409, "busy", job)
    assert client.http.get("/singleton/current").json()["client_ref"] == "op_a"
    client.finish(job)
    assert send(client, "singleton", "b").status_code == 202
    assert client.http.get("/singleton/current").json()["client_ref"] == "op_b"


def test_an_inline_flavour_answers_with_the_result(client: Client) -> None:
    """200 and the output; there is nothing to poll."""
    answer = send(client, "inline", rows=3)
    assert (answer.status_code, answer.json()["state"], answer.json()["output"]["records"]) == (200, "succeeded", 3)


def test_flavours_do_not_see_each_others_jobs(client: Client) -> None:
    """They are different providers."""
    job = send(client, "v1").json()["id"]
    assert client.http.get(f"/guarded/jobs/{job}").status_code == 404
    assert client.http.get("/guarded/jobs").json()["data"] == []


def test_a_form_is_read_as_well_as_json(client: Client, sim: SimThread) -> None:
    """For contracts with form bodies."""
    client.http.post("/query/jobs", data={"client_ref": "op_form", "rows": "3"}, params={"request_id": "t"})
    assert sim.log()[0]["client_ref"] == "op_form"


@pytest.mark.parametrize(
    ("headers", "params"),
    [
        ({"authorization": "Bearer {token}"}, {}),
        ({"x-api-key": "{token}"}, {}),
        ({"authorization": "Basic {basic}"}, {}),
        ({}, {"api_key": "{token}"}),
    ],
)
def test_every_kind_of_credentials_opens_the_door_and_stays_out_of_the_log(
    sim: SimThread, headers: dict[str, str], params: dict[str, str]
) -> None:
    """The log says where they were, never what they were."""
    basic = b64encode(f"sim:{sim.token}".encode()).decode()

    def filled(values: dict[str, str]) -> dict[str, str]:
        return {name: text.format(token=sim.token, basic=basic) for name, text in values.items()}

    answer = httpx.post(f"{sim.base_url}/v1/jobs", json={}, headers=filled(headers), params=filled(params))
    assert answer.status_code == 202
    (place,) = sim.log()[0]["credentials_in"]
    assert place.split(":")[1] in {*headers, *params}
    assert sim.token not in str(sim.log())
    assert basic not in str(sim.log())


def test_a_post_can_cancel_too(client: Client) -> None:
    """For contracts whose cancel is no DELETE."""
    job = send(client, "header", _seconds=60).json()["id"]
    assert client.http.post(f"/header/jobs/{job}/cancel").status_code == 202


def test_json_results_are_json(client: Client) -> None:
    """Two formats, one API."""
    job = send(client, "header", _format="json", rows=2).json()["id"]
    client.sim.control(advance=100)
    assert len(client.http.get(f"/header/jobs/{job}/result").json()["records"]) == 2
