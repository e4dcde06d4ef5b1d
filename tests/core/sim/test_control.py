from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.core.sim.conftest import Client
from tests.fakes.sim import SimThread


def test_a_held_answer_waits_until_it_is_released(client: Client, sim: SimThread) -> None:
    """The way to kill a worker exactly between acceptance and answer."""
    sim.control(hold="create")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(client.create, key="k")
        assert sim.wait_for(kind="create", held="true") == 1
        assert not answer.done()
        assert len(sim.jobs()) == 1
        assert sim.control()["held"] == ["create"]
        sim.control(release=True)
        assert answer.result(timeout=10).status_code == 202
    assert sim.control() == {"holding": [], "held": [], "planned": []}


def test_a_resend_meets_the_first_request_in_flight(client: Client, sim: SimThread) -> None:
    """While the first answer is held, the token is busy."""
    sim.control(hold="create")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(client.create, key="k")
        sim.wait_for(kind="create", held="true")
        second = pool.submit(client.create, key="k")
        assert sim.wait_for(2, kind="create", held="true") == 2
        sim.control(release="create")
        assert (second.result().status_code, second.result().json()["error"]["code"]) == (409, "in_progress")
        assert first.result().status_code == 202


def test_a_client_that_died_ends_the_flight(client: Client, sim: SimThread) -> None:
    """A killed worker must not keep its token busy: its successor has to find the job."""
    sim.control(hold="create")
    with pytest.raises(httpx.ReadTimeout):
        client.http.post("/v1/jobs", json={}, headers={"idempotency-key": "k"}, timeout=0.05)
    assert sim.wait_for(kind="create", fault="client gone while held") == 1
    sim.control(release=True)
    again = client.http.post("/v1/jobs", json={}, headers={"idempotency-key": "k"})
    assert again.json()["id"] == sim.jobs()[0]["id"]


@pytest.mark.parametrize(("order", "started"), [("drop_next", True), ("drop_before_next", False)])
def test_the_next_answer_can_be_dropped_after_or_before_acting(
    client: Client, sim: SimThread, order: str, started: bool
) -> None:
    """Whatever the personality."""
    sim.control(**{order: "create"})
    with pytest.raises(httpx.ReadError):
        client.create(key="k")
    assert len(sim.jobs()) == int(started)
    assert client.create(key="k").status_code == 202


def test_a_cancel_can_be_dropped_before_it_is_obeyed(client: Client, sim: SimThread) -> None:
    """Then the job runs on, and only a status read can tell."""
    job = client.started("ideal", _seconds=30)
    sim.control(drop_before_next=["cancel"])
    with pytest.raises(httpx.ReadError):
        client.http.delete(f"/v1/jobs/{job}")
    assert sim.jobs()[0]["cancels"] == 0


def test_the_next_answer_can_be_dictated(client: Client, sim: SimThread) -> None:
    """Any status, header and body; once."""
    job = client.started("ideal")
    said = {"kind": "status", "status": 503, "headers": {"Retry-After": "7"}, "body": {"a": [1]}}
    sim.control(answer_next=[said, {"kind": "status", "body": "<p>", "content_type": "text/html"}])
    first, second, third = (client.status(job) for _ in range(3))
    assert (first.status_code, first.headers["retry-after"], first.json()) == (503, "7", {"a": [1]})
    assert (second.status_code, second.text, second.headers["content-type"]) == (200, "<p>", "text/html")
    assert third.json()["id"] == job


@pytest.mark.parametrize("before", [True, False])
def test_a_dictated_answer_may_leave_the_request_without_effect(client: Client, sim: SimThread, before: bool) -> None:
    """A 500 from the gateway or from the provider: the log knows."""
    sim.control(answer_next={"kind": "create", "status": 500, "body": "", "before": before})
    assert client.create().status_code == 500
    assert len(sim.jobs()) == int(not before)


def test_time_can_be_moved_for_one_job_or_for_all(client: Client, sim: SimThread) -> None:
    """Tests do not wait."""
    one, other = client.started("ideal", _seconds=60), client.started("ideal", _seconds=60)
    sim.control(advance={"job": one, "seconds": 100})
    assert [client.status(job).json()["state"] for job in (one, other)] == ["succeeded", "queued"]
    sim.control(advance=100)
    assert client.status(other).json()["state"] == "succeeded"


def test_a_job_can_be_set_to_any_state_and_back(client: Client, sim: SimThread) -> None:
    """Also a final state that comes back to life (B12)."""
    job = client.started("ideal", _seconds=60)
    for word in ("failed", "running", "archived", "succeeded"):
        sim.control(job={"id": job, "state": word})
        assert client.status(job).json()["state"] == word
    assert client.result(job).status_code == 200


def test_fields_can_be_laid_over_a_job(client: Client, sim: SimThread) -> None:
    """For shapes that no personality has."""
    job = client.started("ideal")
    sim.control(job={"id": job, "document": {"id": 9007199254740993}})
    assert client.status(job).json()["id"] == 9007199254740993


def test_credentials_can_be_revoked_and_given_back(client: Client, sim: SimThread) -> None:
    """A rotation that somebody forgot."""
    sim.control(revoke=True)
    assert client.create().status_code == 401
    sim.control(revoke=False)
    assert client.create().status_code == 202


def test_a_list_can_be_made_to_loop(client: Client, sim: SimThread) -> None:
    """Every page names the first one as the next."""
    client.create()
    sim.control(list_loops=True)
    assert client.http.get("/v1/jobs").json()["next"] == "0"


def test_tokens_can_be_forgotten(client: Client, sim: SimThread) -> None:
    """After the token's memory a resend is a new job."""
    client.create(key="k")
    sim.control(forget_tokens=True)
    client.create(key="k")
    assert [entry["started"] for entry in sim.log()] == [True, True]
    assert len(sim.jobs()) == 2


def test_the_log_can_be_read_from_a_number_on(client: Client, sim: SimThread) -> None:
    """A progress line must not read everything again."""
    for _ in range(3):
        client.create()
    assert [entry["at"] for entry in sim.log(after=1)] == [2, 3]


def test_waiting_for_what_does_not_come_ends(sim: SimThread) -> None:
    """It returns how many there were."""
    assert sim.wait_for(kind="cancel", timeout=0.02) == 0


def test_waiting_wakes_up_when_the_entry_arrives(client: Client, sim: SimThread) -> None:
    """No test has to sleep."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(sim.wait_for, 2, kind="create", status="202")
        client.create()
        client.create()
        assert waiting.result(timeout=10) == 2


def test_the_personalities_can_be_read(sim: SimThread) -> None:
    """One line each."""
    assert sim.ask("GET", "/_personalities")["ideal"] == "does what it says"


def test_a_reset_forgets_everything(client: Client, sim: SimThread) -> None:
    """One simulator serves a whole test module."""
    client.create()
    sim.control(hold="create", plan=["slow"], drop_next="status", revoke=True)
    assert sim.control(reset=True) == {"holding": [], "held": [], "planned": []}
    assert (sim.log(), sim.jobs()) == ([], [])
    assert client.create().json()["state"] == "queued"
    assert sim.log()[0]["personality"] == "ideal"


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ({"explode": True}, "'explode' is no command"),
        ({"plan": ["nice"]}, "'nice' is not a personality"),
        ({"hold": "everything"}, "'everything' is no kind of request"),
        ({"advance": "soon"}, "'soon' is not a number"),
        ({"advance": {"job": "job_x", "seconds": 1}}, "there is no job 'job_x'"),
        ({"job": {"id": "job_x", "state": "failed"}}, "there is no job 'job_x'"),
        ({"job": {"name": "x"}}, "a job change is an object"),
        ({"answer_next": {"status": 200}}, "an answer is an object with kind"),
        ({"answer_next": {"kind": "status", "statuss": 200}}, "an answer is an object with kind"),
    ],
)
def test_a_bad_command_is_refused_with_the_reason(sim: SimThread, commands: dict[str, Any], words: str) -> None:
    """A test with a typing error must fail at the command, not somewhere later."""
    with pytest.raises(ValueError, match=words):
        sim.control(**commands)
