"""Each personality over a real socket: it does what its line says, and the log tells it as it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any

import httpx
import pytest

from opledger.sim.faults import REFUSED_FOR
from opledger.sim.hostile import PER_JOB, SHAPES
from opledger.sim.personalities import PERSONALITIES
from tests.core.sim.conftest import Client
from tests.fakes.clock import HandClock
from tests.fakes.sim import SimThread


def last(sim: SimThread) -> dict[str, Any]:
    """The log entry written last."""
    return sim.log()[-1]


def test_an_ideal_job_ends_in_a_result_whose_checksum_holds(client: Client) -> None:
    """The honest path, once through."""
    created = client.create(rows=4)
    assert created.status_code == 202
    job = created.json()["id"]
    assert client.status(job).json()["state"] == "queued"
    client.finish(job)
    done = client.status(job).json()
    assert (done["state"], done["progress"]) == ("succeeded", {"completed": 4, "total": 4})
    result = client.result(job)
    assert result.headers["content-type"] == "text/csv"
    assert result.headers["content-length"] == str(len(result.content))
    assert result.headers["x-checksum-sha256"] == sha256(result.content).hexdigest()
    assert result.text.splitlines()[0] == "row,reference,amount"
    assert len(result.text.splitlines()) == 1 + done["records"]


def test_a_repeated_create_is_replayed(client: Client) -> None:
    """The same token and body bring the stored answer, marked, and no second job."""
    first, second = client.create(key="k"), client.create(key="k")
    assert second.json() == first.json()
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert [entry["started"] for entry in client.sim.log()] == [True, False]


def test_another_body_under_the_same_token_is_refused(client: Client) -> None:
    """The provider's own guard against a client that changes its mind (B06)."""
    client.create(key="k", rows=1)
    answer = client.create(key="k", rows=2)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "idempotency_mismatch")


def test_a_lossy_create_starts_the_job_and_resets_the_connection_without_a_byte(client: Client, sim: SimThread) -> None:
    """The hard case: accepted, and nobody told. The client must see a reset, not an orderly end."""
    with pytest.raises(httpx.ReadError, match=r"reset|Errno 104|Errno 54"):
        client.create("lossy", key="k")
    assert (last(sim)["started"], last(sim)["status"]) == (True, None)
    again = client.create("lossy", key="k")
    assert again.json()["id"] == last(sim)["job_id"]
    assert len(sim.jobs()) == 1


def test_a_create_that_is_dropped_before_starts_nothing(client: Client, sim: SimThread) -> None:
    """To the client it looks like the lossy one; only the log knows."""
    with pytest.raises(httpx.ReadError):
        client.create("lossy_before", key="k")
    assert sim.jobs() == []
    assert client.create("lossy_before", key="k").status_code == 202


def test_a_cut_create_answer_has_half_its_bytes(client: Client, sim: SimThread) -> None:
    """Headers and half a body, then the end of the connection."""
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        client.create("cut", "create", key="k")
    assert len(sim.jobs()) == 1
    assert client.create("cut", "create", key="k").status_code == 202


def test_a_cut_result_is_whole_at_the_second_read(client: Client) -> None:
    """A broken transfer is no wrong result."""
    job = client.started("cut", "result")
    client.finish(job)
    with pytest.raises(httpx.RemoteProtocolError):
        client.result(job)
    assert client.result(job).status_code == 200


def test_a_slow_answer_arrives_whole(client: Client) -> None:
    """Late and in drops is not lost."""
    job = client.started("slow")
    client.finish(job)
    assert client.status(job).json()["id"] == job
    result = client.result(job)
    assert result.headers["x-checksum-sha256"] == sha256(result.content).hexdigest()


def test_a_throttling_provider_says_when_in_three_ways(client: Client) -> None:
    """Seconds, a date, and rubbish (B17)."""
    answers = [client.create("throttling", key="k") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 202]
    assert [answer.headers.get("retry-after") for answer in answers] == ["1", "soon", None]
    reads = [client.status(answers[-1].json()["id"]) for _ in range(5)]
    assert [read.status_code for read in reads] == [429, 503, 200, 200, 200]
    dated = parsedate_to_datetime(reads[0].headers["retry-after"])
    assert -5 < (dated - datetime.now(UTC)).total_seconds() <= 1
    assert [read.headers.get("retry-after") for read in reads[1:]] == ["1", "-3", "120junk", None]


def test_a_hidden_job_is_unknown_at_first_and_once_more_later(client: Client) -> None:
    """404 after create, then 200, then 404 again for a moment (B09)."""
    job = client.started("hidden")
    assert [client.status(job).status_code for _ in range(6)] == [404, 404, 404, 200, 404, 200]


def test_a_token_ignoring_provider_starts_a_second_job_and_lists_both(client: Client, sim: SimThread) -> None:
    """The lost answer hides the first job; the list gives it away (B04)."""
    with pytest.raises(httpx.ReadError):
        client.create("token_ignoring", key="k")
    client.create("token_ignoring", key="k")
    found = client.http.get("/v1/jobs", params={"client_ref": "op_k"}).json()["data"]
    assert len({item["id"] for item in found}) == len(sim.jobs()) == 2


def test_an_id_changing_provider_answers_for_another_job(client: Client) -> None:
    """First right, then wrong."""
    job = client.started("id_changing")
    ids = [client.status(job).json()["id"] for _ in range(2)]
    assert ids[0] == job
    assert ids[1] != job


def test_an_id_reusing_provider_gives_one_id_to_two_operations(client: Client) -> None:
    """Two tokens, one job."""
    first, second = (client.create("id_reusing", key=key).json()["id"] for key in "ab")
    assert first == second
    for key in "ab":  # the list does not deny what was begun for either
        found = client.http.get("/v1/jobs", params={"client_ref": f"op_{key}"}).json()["data"]
        assert [(item["id"], item["client_ref"]) for item in found] == [(first, f"op_{key}")]
    assert client.started("id_reusing") != client.started("ideal")


@pytest.mark.parametrize(
    ("personality", "variant", "status", "accepted", "code"),
    [
        ("cancellable", "prompt", 202, True, None),
        ("cancel_ignoring", "forever", 202, True, None),
        ("cancel_racing", None, 202, True, None),
        ("cancel_refusing", "conflict", 409, False, "not_cancellable"),
        ("cancel_refusing", "polite", 200, False, None),
        ("replaying", "failed", 409, False, "already_finished"),
    ],
)
def test_a_cancel_is_answered_as_the_personality_has_it(
    client: Client, personality: str, variant: str | None, status: int, accepted: bool, code: str | None
) -> None:
    """Yes, no, a polite no, and too late (B22)."""
    job = _whatever_it_takes(client, personality, variant)
    answer = client.http.delete(f"/v1/jobs/{job}")
    assert (answer.status_code, answer.json()["accepted"]) == (status, accepted)
    assert answer.json().get("error", {}).get("code") == code
    assert last(client.sim)["kind"] == "cancel"


def _whatever_it_takes(client: Client, personality: str, variant: str | None) -> str:
    try:
        return client.started(personality, variant, key="k")
    except httpx.ReadError:
        return client.started(personality, variant, key="k")


def test_a_racing_job_has_succeeded_when_the_cancel_is_answered(client: Client) -> None:
    """Cancel and finish cross."""
    job = client.started("cancel_racing")
    client.http.delete(f"/v1/jobs/{job}")
    assert client.status(job).json()["state"] == "succeeded"


def test_the_answer_to_a_cancel_may_be_dropped_after_it_was_obeyed(client: Client, sim: SimThread) -> None:
    """Only a status read can tell."""
    job = client.started("cancellable", "lossy")
    with pytest.raises(httpx.ReadError):
        client.http.delete(f"/v1/jobs/{job}")
    client.finish(job)
    assert client.status(job).json()["state"] == "cancelled"
    assert sim.jobs()[0]["cancels"] == 1


def test_a_replaying_provider_brings_back_the_failed_job(client: Client) -> None:
    """B03: the resend meets a finished failure, marked as a replay."""
    with pytest.raises(httpx.ReadError):
        client.create("replaying", "failed", key="k")
    again = client.create("replaying", "failed", key="k")
    assert (again.json()["state"], again.headers["idempotent-replayed"]) == ("failed", "true")
    assert again.json()["error"]["code"] == "source_unreadable"


def test_a_replaying_provider_may_store_its_500(client: Client, sim: SimThread) -> None:
    """The same 500 for ever, and never a job."""
    answers = [client.create("replaying", "error", key="k") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [500, 500, 500]
    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, "true", "true"]
    assert sim.jobs() == []


def test_a_hostile_job_gives_bad_answers_and_then_comes_to_its_senses(client: Client) -> None:
    """The id in the create answer is true, though it looks like markup."""
    created = client.create("hostile", _polls=1)
    job = created.json()["id"]
    assert "[@click=" in job
    assert "\x1b" in created.json()["message"]
    for _ in range(PER_JOB):
        client.status(job)
    sane = client.status(job)
    assert (sane.json()["id"], sane.json()["state"]) == (job, "succeeded")


def test_hostile_shapes_never_name_another_job() -> None:
    """They are meant to be survived; another id would rightly stop the client."""
    document: dict[str, Any] = {"id": "job_1", "state": "running", "progress": {}, "result_url": None}
    for name, shape in SHAPES.items():
        body = shape(document).body
        try:
            read = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict) and isinstance(read.get("id"), str):
            assert read["id"] == "job_1", name


def test_hostile_jobs_together_show_every_shape(client: Client) -> None:
    """One job gives a part of them; jobs start at different places."""
    starts = {sum(client.started("hostile").encode()) % len(SHAPES) for _ in range(60)}
    assert len(starts) > len(SHAPES) / 2


@pytest.mark.parametrize(("variant", "status"), [("status", 302), ("create", 307)])
def test_a_redirect_points_at_a_trap_on_the_other_origin(client: Client, variant: str, status: int) -> None:
    """Who follows it is told a success that is none."""
    answer = client.create("redirecting", variant, key="k")
    if variant == "status":
        answer = client.status(answer.json()["id"])
    assert answer.status_code == status
    assert answer.headers["location"].startswith(f"{client.sim.elsewhere}/trap/")
    trapped = httpx.get(answer.headers["location"])
    assert trapped.json()["state"] == "succeeded"
    assert (last(client.sim)["origin"], last(client.sim)["kind"]) == ("elsewhere", "foreign")


def test_a_redirected_result_is_there_for_whoever_comes_without_credentials(client: Client) -> None:
    """The contract lists this host; the true result stands there."""
    job = client.started("redirecting", "result")
    client.finish(job)
    answer = client.result(job)
    assert answer.status_code == 302
    there = httpx.get(answer.headers["location"])
    assert there.headers["x-checksum-sha256"] == sha256(there.content).hexdigest()
    assert last(client.sim)["credentials_in"] == []


def test_a_foreign_result_is_on_a_host_that_no_contract_lists(client: Client) -> None:
    """It must not be read."""
    job = client.started("redirecting", "foreign")
    client.finish(job)
    assert client.result(job).headers["location"].startswith("http://localhost:")


@pytest.mark.parametrize(
    ("variant", "statuses"),
    [("late", [404, 425, 200]), ("gone", [410, 410, 410]), ("fresh", [403, 200, 200])],
)
def test_an_expiring_result_is_late_gone_or_elsewhere(client: Client, variant: str, statuses: list[int]) -> None:
    """Each read here asks the status for the address first, as B31 wants it."""
    job = client.started("expiring", variant)
    client.finish(job)
    assert [client.result(job).status_code for _ in range(3)] == statuses


def test_an_address_that_died_stays_dead(client: Client) -> None:
    """Only a new status read brings a new one."""
    job = client.started("expiring", "fresh")
    client.finish(job)
    address = client.status(job).json()["result_url"]
    assert [client.http.get(address).status_code for _ in range(2)] == [403, 403]


def test_a_result_may_be_empty_at_first(client: Client) -> None:
    """An empty body is "not ready", never a result."""
    job = client.started("expiring", "empty")
    client.finish(job)
    assert client.result(job).content == b""
    assert client.result(job).content != b""


@pytest.mark.parametrize(("personality", "word"), [("failing", "failed"), ("expired", "expired")])
def test_a_job_that_ends_badly_has_an_error_and_no_result(client: Client, personality: str, word: str) -> None:
    """Asking for its result is refused."""
    job = client.started(personality)
    client.finish(job)
    said = client.status(job).json()
    assert (said["state"], said["result_url"]) == (word, None)
    assert said["error"]["code"]
    assert client.http.get(f"/v1/jobs/{job}/result").status_code == 409


def test_a_refused_create_starts_nothing(client: Client, sim: SimThread) -> None:
    """422 for good."""
    assert client.create("refusing").status_code == 422
    assert sim.jobs() == []


def test_unknown_words_pass(client: Client) -> None:
    """Strange words, null, a number, none at all; then the truth (B10)."""
    job = client.started("unknown_words", "passing", _polls=1)
    answers = [client.status(job).json() for _ in range(7)]
    assert [answer["result_url"] is None for answer in answers] == [True] * 6 + [False]
    assert [answer.get("state", "missing") for answer in answers] == [
        "Retry",
        "pending_review",
        None,
        7,
        "PAUSED by operator",
        "missing",
        "succeeded",
    ]


def test_an_unknown_word_may_be_the_last(client: Client) -> None:
    """It never changes and never has a result."""
    job = client.started("unknown_words", "last", _polls=1)
    said = [client.status(job).json() for _ in range(8)]
    assert [answer.get("state") for answer in said[-2:]] == ["archived", "archived"]
    assert said[-1]["result_url"] is None


@pytest.mark.parametrize("variant", ["status", "create"])
def test_credentials_are_refused_for_a_while(client: Client, variant: str) -> None:
    """Right credentials, wrong answer; it ends by itself."""
    answer = client.create("unauthorized", variant, key="k")
    if variant == "status":
        assert answer.status_code == 202
        answer = client.status(answer.json()["id"])
    assert answer.status_code == 401


@pytest.mark.parametrize("variant", ["status", "create"])
def test_credentials_are_taken_again_after_a_while(variant: str) -> None:
    """Counted from the first refusal, not in reads: a paused provider is not read at all."""
    clock = HandClock()
    with SimThread(clock=clock) as sim:
        client = Client(sim)
        with client.http:
            answer = client.create("unauthorized", variant, key="k")
            job = answer.json().get("id", "")

            def again() -> int:
                return (client.status(job) if job else client.create("unauthorized", variant, key="k")).status_code

            statuses = [again(), again()]
            clock.pass_by(REFUSED_FOR * 1.1)
            assert [*statuses, again()] == [401, 401, 200 if job else 202]


@pytest.mark.parametrize("variant", ["status", "create"])
def test_credentials_are_echoed_in_an_error_and_never_in_the_log(client: Client, sim: SimThread, variant: str) -> None:
    """The client must redact what it stores; our own log must be clean to judge it."""
    answer = client.create("credential_echo", variant, key="k")
    if variant == "status":
        answer = client.status(answer.json()["id"])
    assert sim.token in answer.text
    assert sim.token in answer.headers["x-debug-authorization"]
    assert sim.token not in json.dumps(sim.log())


def test_a_flapping_status_recovers(client: Client) -> None:
    """500, HTML, a reset, silence; then as if nothing had been (B14)."""
    job = client.started("flapping")
    assert client.status(job).status_code == 500
    assert client.status(job).headers["content-type"] == "text/html"
    with pytest.raises(httpx.ReadError):
        client.status(job)
    with pytest.raises(httpx.ReadTimeout):
        client.http.get(f"/v1/jobs/{job}", timeout=0.05)
    assert client.status(job).json()["id"] == job


@pytest.mark.parametrize(("variant", "right"), [("once", [False, True]), ("always", [False, False])])
def test_a_bad_checksum_does_not_fit_the_bytes(client: Client, variant: str, right: list[bool]) -> None:
    """Once is a broken transfer; always is a wrong result."""
    job = client.started("bad_checksum", variant)
    client.finish(job)
    reads = [client.result(job) for _ in range(2)]
    assert [read.headers["x-checksum-sha256"] == sha256(read.content).hexdigest() for read in reads] == right


def test_a_never_ending_job_runs_on(client: Client) -> None:
    """However much time passes."""
    job = client.started("never_ending")
    client.finish(job)
    assert client.status(job).json()["state"] == "running"


def test_every_personality_and_variant_can_be_asked_for(client: Client, sim: SimThread) -> None:
    """A name in the table that the server does not know would silently behave well."""
    asked = [(name, variant) for name, about in PERSONALITIES.items() for variant in about.variants]
    for name, variant in asked:
        try:
            client.create(name, variant)
        except httpx.TransportError:
            continue
    met = [(entry["personality"], entry["variant"]) for entry in sim.log()]
    assert met == asked


def test_a_personality_belongs_to_the_token_and_to_the_seed(client: Client, sim: SimThread) -> None:
    """A resend must meet the same provider as the first send, even if another personality is planned by then."""
    sim.control(plan=["hidden", "ideal"])
    client.create(key="k")
    client.create(key="k")
    assert [entry["personality"] for entry in sim.log()] == ["hidden", "hidden"]


def test_a_personality_may_be_chosen_by_header(client: Client, sim: SimThread) -> None:
    """For bodies that are not JSON."""
    client.http.post("/v1/jobs", content=b"raw", headers={"x-sim-personality": "failing", "x-client-ref": "op_raw"})
    assert (last(sim)["personality"], last(sim)["client_ref"]) == ("failing", "op_raw")


def test_faults_are_drawn_by_seed_and_reference() -> None:
    """Two servers with one seed treat the same operations alike; another seed deals anew."""
    dealt = []
    for seed in (1, 1, 2):
        with SimThread(seed=seed, faults="failing,hidden,expired,never_ending") as sim:
            client = Client(sim)
            with client.http:
                for number in range(12):
                    client.create(key=f"k{number}", _seconds=0)
            dealt.append([entry["personality"] for entry in sim.log()])
    assert dealt[0] == dealt[1] != dealt[2]
    assert len(set(dealt[0])) > 1


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic !!"}, {"authorization": ""}, {"x-api-key": "no"}],
)
def test_wrong_credentials_are_refused_and_the_request_is_logged(sim: SimThread, headers: dict[str, str]) -> None:
    """401 before anything is done; the log says only whether there were credentials."""
    answer = httpx.post(f"{sim.base_url}/v1/jobs", json={"client_ref": "op_1"}, headers=headers)
    assert answer.status_code == 401
    assert (last(sim)["authorization"], last(sim)["started"]) == ("authorization" in headers, False)
    assert last(sim)["client_ref"] == "op_1"


def test_a_malformed_body_is_refused(client: Client) -> None:
    """400, and nothing starts."""
    answer = client.http.post("/v1/jobs", content=b"{", headers={"content-type": "application/json"})
    assert (answer.status_code, client.sim.jobs()) == (400, [])


@pytest.mark.parametrize(
    "path", ["/v1/jobs/nothing", "/nowhere/jobs/nothing", "/header/jobs", "/v1/jobs/nothing/result"]
)
def test_what_is_not_there_is_not_found(client: Client, path: str) -> None:
    """Unknown job, unknown prefix, and a list where the flavour has none."""
    assert client.http.get(path).status_code == 404


def test_a_list_comes_in_pages(client: Client) -> None:
    """The cursor leads on, and ends."""
    jobs = [client.started("ideal", client_ref="op_same") for _ in range(3)]
    query = {"client_ref": "op_same", "limit": "2"}
    first = client.http.get("/v1/jobs", params=query).json()
    second = client.http.get("/v1/jobs", params={**query, "cursor": first["next"]}).json()
    assert [item["id"] for item in first["data"] + second["data"]] == jobs
    assert second["next"] is None
