"""What answers mean: every status in every phase, and the order in which an answer to a create is read.

The expectations are written from DESIGN §6 and reliability.md §3; none of them asks the code under test.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import answers
from opledger.rules import evidence as e
from opledger.rules.answers import Reading
from opledger.rules.calls import Answer, Failure, Fate
from opledger.rules.contract import Contract, Limits, Poll
from opledger.rules.model import Action, Means, State
from opledger.rules.pages import moment_of
from tests.support.contracts import (
    CREATE,
    RESULT,
    TOKEN,
    WORDS,
    a_contract,
    at,
    rule,
    when,
    with_cancel,
    with_create,
    with_limits,
    with_status,
)
from tests.support.records import JOB, T0, a_record, seconds

CALL: Final = "call_1"
RAW: Final = "a" * 64
NOW: Final = T0 + timedelta(minutes=30)
HTML: Final = b"<!DOCTYPE html><html><body>Bad gateway</body></html>"
ALL_STATUSES: Final = range(100, 600)


def an_answer(status: int = 200, body: Any = None, **headers: str) -> Answer:
    """An answer; `body` is bytes as they are, or a JSON value. Underscores in header names are hyphens."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, names, raw, NOW, "https://api.example.com/v1/reports")


def html(status: int) -> Answer:
    """An error page."""
    return an_answer(status, HTML, content_type="text/html; charset=utf-8")


def created(outcome: Answer | Failure, contract: Contract | None = None, **facts: Any) -> Reading:
    """The reading of an answer to a create."""
    op = a_record(State.CREATE_PENDING, first_sent_at=T0, **facts)
    return answers.read_create(outcome, op, contract or a_contract(), call_id=CALL, answer=RAW, resend=False)


def resent(outcome: Answer | Failure, contract: Contract | None = None, **facts: Any) -> Reading:
    """The reading of an answer to a resend."""
    op = a_record(State.RECONCILIATION, first_sent_at=T0, **facts)
    return answers.read_create(outcome, op, contract or a_contract(), call_id=CALL, answer=RAW, resend=True)


def status_read(
    outcome: Answer | Failure,
    contract: Contract | None = None,
    *,
    age: float = 600,
    state: State = State.OBSERVING,
    **facts: Any,
) -> Reading:
    """The reading of a status answer; `age` is how many seconds ago the job was accepted."""
    op = a_record(state, **{"remote_job_id": JOB, "accepted_at": NOW - seconds(age), **facts})
    return answers.read_status(outcome, op, contract or a_contract(), call_id=CALL, answer=RAW, now=NOW)


def cancelled(outcome: Answer | Failure, contract: Contract | None = None) -> Reading:
    """The reading of an answer to a cancel."""
    op = a_record(State.CANCEL_REQUESTED, remote_job_id=JOB)
    return answers.read_cancel(outcome, op, contract or a_contract(), call_id=CALL, answer=RAW)


def no_result(outcome: Answer | Failure, contract: Contract | None = None) -> Reading:
    """The reading of an answer that brought no result."""
    op = a_record(State.RESULT_COLLECTING, remote_job_id=JOB)
    return answers.read_missing_result(outcome, op, contract or a_contract(), call_id=CALL, answer=RAW)


def in_short(reading: Reading) -> str:
    """The evidence, and what tells its variants apart, in a few words."""
    ev = reading.evidence
    tail = ""
    if isinstance(ev, e.ReadFailed):
        tail = f" {ev.code}"
    elif isinstance(ev, e.CancelAnswered):
        tail = f" {ev.verdict}"
    elif isinstance(ev, e.Observed):
        tail = f" {ev.means}"
    return type(ev).__name__ + tail + (" +credentials" if reading.credentials else "")


# --- every status in every phase --------------------------------------------------------------------------------------

CREATED_JSON: Final = {"job_id": JOB, "state": "queued"}
BODIES: Final[dict[str, Any]] = {
    "empty": None,
    "json": CREATED_JSON,
    "json without id": {"state": "queued"},
    "html": HTML,
    "half": b'{"job_id": "job_1", "sta',
    "twice": b'{"job_id": "job_1", "job_id": "job_2"}',
    "nan": b'{"job_id": "job_1", "n": NaN}',
}
DEFINITIVE: Final = {400, 404, 405, 410, 413, 415, 422}


def expected_of_create(status: int, body: str, *, resend: bool) -> str:
    """DESIGN §6: refused only by a definitive 4xx, bound only by a readable success with an id, else lost."""
    lost = "Inconclusive" if resend else "CallLost"
    not_taken = "Inconclusive" if resend else "Throttled"
    if status == 409:
        return "Accepted" if body == "json" else lost
    if status == 429:
        return not_taken
    if status in (401, 403):
        return f"{not_taken} +credentials"
    if status in DEFINITIVE:
        return "Refused"
    if status in (200, 201, 202) and body == "json":
        return "Accepted"
    return lost


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("resend", [False, True], ids=["create", "resend"])
def test_a_create_answered_with_any_status(body: str, resend: bool) -> None:
    """Lost is never read as failed and never as created (I5, I16)."""
    read = resent if resend else created
    found = {status: in_short(read(an_answer(status, BODIES[body]))) for status in ALL_STATUSES}
    assert found == {status: expected_of_create(status, body, resend=resend) for status in ALL_STATUSES}


@pytest.mark.parametrize("body", [None, HTML, {"state": "queued"}], ids=["empty", "html", "json"])
@pytest.mark.parametrize("status", [200, 302, 409, 422, 429, 500, 503])
def test_whatever_a_create_is_answered_with_the_provider_says_when_to_come_back(status: int, body: Any) -> None:
    """Retry-After stands beside any status; nothing more is asked before, by whatever way (I20)."""
    for read in (created, resent):
        said = read(an_answer(status, body, retry_after="120")).evidence
        assert isinstance(said, e.Refused) or getattr(said, "retry_at", None) == NOW + seconds(120), said


def test_a_resend_that_is_answered_badly_makes_way_for_the_next_strategy() -> None:
    """To wait is one thing and to learn nothing by a resend another; only who is busy is asked the same again."""
    for status, again in ((429, True), (503, False), (302, False)):
        said = resent(an_answer(status, None, retry_after="120")).evidence
        assert isinstance(said, e.Inconclusive)
        assert said.next_strategy is not again


@pytest.mark.parametrize("status", [None, 200, 422, 503])
def test_a_create_without_a_whole_answer(status: int | None) -> None:
    """A status line that arrived before the answer broke proves nothing; only "never delivered" does (I5)."""
    cut = Failure(Fate.LOST, "cut after 20 bytes", status)
    assert in_short(created(cut)) == "CallLost"
    assert in_short(resent(cut)) == "Inconclusive"
    undelivered = Failure(Fate.NOT_DELIVERED, "connection refused")
    assert in_short(created(undelivered)) == "NotDelivered"
    assert in_short(resent(undelivered)) == "Inconclusive"  # the first one is as unknown as before


def expected_of_status(status: int, body: str, age: float) -> str:
    """DESIGN §6, observe: a failed read changes no job state; 404 and 410 are no verdicts."""
    if status == 429:
        return "ReadFailed throttled"
    if status == 410:
        return "ReadFailed gone"
    if status == 404:
        return "ReadFailed not_visible_yet" if age < 60 else "ReadFailed gone"
    if status == 403 and age < 60:
        return "ReadFailed not_visible_yet"
    if status in (401, 403):
        return "ReadFailed credentials +credentials"
    if 200 <= status < 300 and body == "json":
        return "Observed queued"
    return "ReadFailed read_failed"


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("age", [59.0, 60.0])
def test_a_status_read_answered_with_any_status(body: str, age: float) -> None:
    """No status code, no error page and no broken answer ever says how a job ended (I16, B09, B14)."""
    found = {status: in_short(status_read(an_answer(status, BODIES[body]), age=age)) for status in ALL_STATUSES}
    assert found == {status: expected_of_status(status, body, age) for status in ALL_STATUSES}


@pytest.mark.parametrize("state", ["failed", "succeeded", "cancelled", "expired"])
def test_an_error_answer_that_carries_a_final_word_is_no_final_word(state: str) -> None:
    """A 500 whose body says "failed" speaks of the request, not of the job."""
    for status in ALL_STATUSES:
        if not 200 <= status < 300:
            reading = status_read(an_answer(status, {"job_id": JOB, "state": state}))
            assert isinstance(reading.evidence, e.ReadFailed)


@pytest.mark.parametrize("fate", Fate)
def test_a_status_read_without_an_answer(fate: Fate) -> None:
    """It is counted, and that is all."""
    reading = status_read(Failure(fate, "timed out", 200))
    assert in_short(reading) == "ReadFailed read_failed"
    assert reading.evidence == e.ReadFailed(call_id=CALL, status=200, answer=RAW, why="timed out")


def expected_of_cancel(status: int, *, idempotent: bool) -> str:
    """DESIGN §6, cancel: the answer never decides; what may have arrived is not sent again."""
    if status == 429:
        return "Throttled" if idempotent else "CancelAnswered refused"
    if status in (401, 403):
        return "CancelAnswered refused +credentials"
    if status in (200, 202, 204):
        return "CancelAnswered accepted"
    if status in (404, 409, 410):
        return "CancelAnswered unclear"
    return "CancelAnswered refused" if 400 <= status < 500 else "CallLost"


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_a_cancel_answered_with_any_status(body: str, idempotent: bool) -> None:
    """None of them ends the job (B22)."""
    contract = with_cancel(idempotent=idempotent)
    found = {status: in_short(cancelled(an_answer(status, BODIES[body]), contract)) for status in ALL_STATUSES}
    assert found == {status: expected_of_cancel(status, idempotent=idempotent) for status in ALL_STATUSES}


def test_a_cancel_without_an_answer() -> None:
    """Lost may have arrived; undelivered has not."""
    lost = cancelled(Failure(Fate.LOST, "reset")).evidence
    assert lost == e.CallLost(call_id=CALL, answer=RAW, action=Action.CANCEL, why="reset")
    undelivered = cancelled(Failure(Fate.NOT_DELIVERED, "refused")).evidence
    assert undelivered == e.NotDelivered(call_id=CALL, action=Action.CANCEL, why="refused")


def expected_of_result(status: int, body: str) -> str:
    """DESIGN §6, collect: "not ready yet" and broken transfers are tried again; only 410 is gone for good."""
    if status in (202, 404, 409, 425) or (200 <= status < 300 and body == "empty"):
        return "ReadFailed not_ready"
    if status == 410:
        return "ResultMissing"
    return "ReadFailed result +credentials" if status == 401 else "ReadFailed result"


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("named", [True, False], ids=["not_ready_when", "by default"])
def test_a_result_read_answered_with_any_status(body: str, named: bool) -> None:
    """A result that is not there yet is no missing result."""
    contract = a_contract() if named else a_contract(result=replace(RESULT, not_ready_when=None))
    found = {status: in_short(no_result(an_answer(status, BODIES[body]), contract)) for status in ALL_STATUSES}
    assert found == {status: expected_of_result(status, body) for status in ALL_STATUSES}
    for fate in Fate:
        assert in_short(no_result(Failure(fate, "cut"), contract)) == "ReadFailed result"


def test_a_part_that_nobody_asked_for_is_said_to_be_one() -> None:
    """It is no success, and no redirect either."""
    found = no_result(an_answer(206, b"half")).evidence
    assert isinstance(found, e.ReadFailed)
    assert found.why == (
        "the provider sent a part of the result where nobody asked for a part; it was not taken (status 206)"
    )


def test_a_contract_may_wait_for_a_result_that_answers_410() -> None:
    """Its own condition comes first."""
    contract = a_contract(result=replace(RESULT, not_ready_when=when("status == 410")))
    assert in_short(no_result(an_answer(410), contract)) == "ReadFailed not_ready"


# --- the order of a create's answer -----------------------------------------------------------------------------------


def everything(**but: bool) -> Contract:
    """A contract whose every condition holds on the answer below, less those named false."""
    holds = {name: when("true" if but.get(name, True) else "false") for name in ("in_flight", "mismatch", "duplicate")}
    return with_create(
        refused=frozenset({403, 404}) if but.get("listed", False) else frozenset({404}),
        success=frozenset({403}) if but.get("success", False) else frozenset({200}),
        idempotency=replace(
            TOKEN,
            in_flight_when=holds["in_flight"],
            mismatch_when=holds["mismatch"],
            duplicate_when=holds["duplicate"],
        ),
    )


@pytest.mark.parametrize(
    ("but", "then"),
    [
        ({}, "CallLost"),
        ({"in_flight": False}, "TokenMismatch"),
        ({"in_flight": False, "mismatch": False}, "Accepted"),
        ({"in_flight": False, "mismatch": False, "duplicate": False}, "Throttled"),
        ({"in_flight": False, "mismatch": False, "duplicate": False, "throttled": False}, "Throttled +credentials"),
        ({"in_flight": False, "mismatch": False, "duplicate": False, "throttled": False, "listed": True}, "Refused"),
        (
            {
                **dict.fromkeys(("in_flight", "mismatch", "duplicate", "throttled"), False),
                "listed": True,
                "success": True,
            },
            "Accepted",
        ),
    ],
    ids=["in flight", "mismatch", "duplicate", "throttled", "credentials", "refused", "success"],
)
def test_the_reading_order_of_a_create(but: dict[str, bool], then: str) -> None:
    """In flight, mismatch, duplicate, throttled, credentials, refused, success: the first that holds wins."""
    throttled = "true" if but.get("throttled", True) else "false"
    contract = replace(everything(**but), limits=Limits(throttled_when=when(throttled)))
    assert in_short(created(an_answer(403, CREATED_JSON), contract)) == then


IN_FLIGHT: Final = {"code": "in_progress"}
MISMATCH: Final = {"code": "idempotency_mismatch"}


def test_a_first_request_that_still_runs_leaves_the_create_unknown() -> None:
    """Stay unknown, try later: it is no duplicate, though the status says so."""
    first = created(an_answer(409, IN_FLIGHT, retry_after="9")).evidence
    assert isinstance(first, e.CallLost)
    again = resent(an_answer(409, IN_FLIGHT, retry_after="9")).evidence
    assert isinstance(again, e.Inconclusive)
    assert (again.retry_at, again.next_strategy) == (NOW + seconds(9), False)
    assert again.strategy == "resend"
    silent = resent(an_answer(409, IN_FLIGHT)).evidence
    assert isinstance(silent, e.Inconclusive)
    assert (silent.retry_at, silent.next_strategy) == (None, True)


@pytest.mark.parametrize("read", [created, resent])
def test_a_token_known_with_another_body_is_a_violation(read: Any) -> None:
    """Not a refusal of this request, though the status is among those (B06)."""
    assert in_short(read(an_answer(422, MISMATCH))) == "TokenMismatch"
    named = read(an_answer(422, {**MISMATCH, "job_id": "job_9"})).evidence
    assert isinstance(named, e.TokenMismatch)
    assert named.jobs == ("job_9",)
    assert "idem_" in named.why


def test_a_duplicate_with_a_job_id_is_our_job() -> None:
    """A 409 can be proof of success (F14)."""
    for read, how in ((created, "create"), (resent, "resend")):
        found = read(an_answer(409, {"job_id": "job_5"})).evidence
        assert isinstance(found, e.Accepted)
        assert (found.job_id, found.how, found.replay) == ("job_5", how, True)


def test_a_duplicate_without_a_job_id_must_be_looked_up() -> None:
    """Named, but not by which id: neither created nor refused."""
    first, again = created(an_answer(409, {"error": "exists"})).evidence, resent(an_answer(409, HTML)).evidence
    assert isinstance(first, e.CallLost)
    assert isinstance(again, e.Inconclusive)
    assert "looked up" in first.why
    assert "looked up" in again.why
    assert again.next_strategy


def test_429_is_throttled_whatever_else_the_contract_names() -> None:
    """Not accepted: 429, and whatever `throttled_when` names beside it."""
    contract = with_limits('status == 503 && body.code == "busy"')
    assert in_short(created(an_answer(429), contract)) == "Throttled"
    assert in_short(created(an_answer(503, {"code": "busy"}), contract)) == "Throttled"
    assert in_short(created(an_answer(503, {"code": "down"}), contract)) == "CallLost"
    assert in_short(status_read(an_answer(429), contract)) == "ReadFailed throttled"
    assert in_short(status_read(an_answer(503, {"code": "busy"}), contract)) == "ReadFailed throttled"


def test_a_403_that_means_throttled_does_not_pause_the_provider() -> None:
    """Rate limits of some providers come as 403."""
    contract = with_limits('status == 403 && headers["x-ratelimit-remaining"] == "0"')
    limited = created(an_answer(403, None, x_ratelimit_remaining="0"), contract)
    assert in_short(limited) == "Throttled"
    assert in_short(created(an_answer(403), contract)) == "Throttled +credentials"


def test_a_throttled_create_says_until_when() -> None:
    """Provably not accepted, and the provider says when to come back."""
    found = created(an_answer(429, None, retry_after="120")).evidence
    assert isinstance(found, e.Throttled)
    assert (found.retry_at, found.action) == (NOW + seconds(120), Action.CREATE)
    again = resent(an_answer(429, None, retry_after="120")).evidence
    assert isinstance(again, e.Inconclusive)
    assert (again.retry_at, again.next_strategy) == (NOW + seconds(120), False)


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_listed_as_refusals_are_refusals(status: int) -> None:
    """Where the contract lists them, they are definitive and pause nobody."""
    contract = with_create(refused=frozenset({status}))
    assert in_short(created(an_answer(status), contract)) == "Refused"


def test_a_success_that_carries_an_error_is_a_refusal() -> None:
    """Some APIs say 200 to everything; the provider's own words go into the reason."""
    contract = with_create(error_when=when("has(body.errors)"))
    found = created(an_answer(200, {"errors": [1], "error": {"code": "E7"}, "job_id": JOB}), contract).evidence
    assert isinstance(found, e.Refused)
    assert "E7" in found.why
    assert in_short(created(an_answer(200, CREATED_JSON), contract)) == "Accepted"
    assert in_short(created(an_answer(200, HTML), contract)) == "CallLost"


def test_a_replay_is_recognised() -> None:
    """An old failure brought back by the same token must not look like a fresh one (B03)."""
    for status, kind in ((201, e.Accepted), (422, e.Refused)):
        for value, replay in (("true", True), ("1", True), ("false", False), ("", False), ("0", False)):
            found = created(an_answer(status, CREATED_JSON, idempotent_replayed=value)).evidence
            assert isinstance(found, kind)
            assert found.replay is replay
        silent = created(an_answer(status, CREATED_JSON)).evidence
        assert isinstance(silent, kind)
        assert not silent.replay


INLINE: Final = with_create(inline_when=when("status == 200"))


def test_a_success_that_already_is_the_result() -> None:
    """Synchronous providers answer with the result itself; 202 is still a job."""
    assert in_short(created(an_answer(200, {"output": [1]}), INLINE)) == "CompletedInline"
    assert in_short(created(an_answer(202, CREATED_JSON), INLINE)) == "Accepted"
    assert in_short(resent(an_answer(200, {"output": [1]}), INLINE)) == "CompletedInline"


@pytest.mark.parametrize(
    ("content_type", "body", "result", "then"),
    [
        ("text/csv", b"a,b\n1,2\n", RESULT, "CompletedInline"),
        ("TEXT/CSV; charset=utf-8", b"a,b\n", RESULT, "CompletedInline"),
        ("text/html", HTML, RESULT, "CallLost"),
        ("text/plain", b"a,b", RESULT, "CallLost"),
        ("application/octet-stream", b"\0\1", replace(RESULT, content_type=(), format="binary"), "CompletedInline"),
        ("text/html", HTML, replace(RESULT, content_type=(), format="binary"), "CallLost"),
        ("text/csv", b"a,b\n", replace(RESULT, content_type=(), format="json"), "CallLost"),
        ("text/csv", b"a,b\n", replace(RESULT, content_type=(), format=None), "CallLost"),
        ("text/html", HTML, None, "CallLost"),
        ("application/json", b'{"output": [1', None, "CallLost"),
        ("text/csv", b"", RESULT, "CallLost"),
    ],
)
def test_an_error_page_with_status_200_is_no_inline_result(
    content_type: str, body: bytes, result: Any, then: str
) -> None:
    """An unreadable 2xx is lost, unless the contract says that its results look like that."""
    contract = replace(INLINE, result=result)
    assert in_short(created(an_answer(200, body, content_type=content_type), contract)) == then


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed_and_say_so(status: int) -> None:
    """In every phase: unknown, with a note of what was seen."""
    to = an_answer(status, None, location="https://evil.example/")
    for reading in (created(to), resent(to), status_read(to), cancelled(to), no_result(to)):
        assert isinstance(reading.evidence, e.CallLost | e.Inconclusive | e.ReadFailed)
        assert f"redirect {status}, not followed" in reading.evidence.why


@pytest.mark.parametrize("body", [b"", b"<html>nginx</html>", b'{"error": "no"}'])
@pytest.mark.parametrize("status", [403, 416, 500, 503])
def test_an_error_in_place_of_a_result_is_told_by_its_status(status: int, body: bytes) -> None:
    """Nobody expects JSON of a file server, so nobody is told that its error page is none."""
    evidence = no_result(an_answer(status, body, content_type="text/html")).evidence
    assert isinstance(evidence, e.ReadFailed)
    assert evidence.why == f"the provider did not hand the result out (status {status})"


# --- job ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "job"),
    [
        ('"job_1"', "job_1"),
        ("9007199254740993", "9007199254740993"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("0", "0"),
        ("-7", "-7"),
        ('"0042"', "0042"),
        ('" job 1 "', " job 1 "),
        ('"日本/ü?#"', "日本/ü?#"),
        ('"' + "x" * 512 + '"', "x" * 512),
        ('"' + "x" * 513 + '"', None),
        ("9.007199254740993e15", None),
        ("1.0", None),
        ("true", None),
        ("null", None),
        ('""', None),
        ('"  "', None),
        ('"."', None),
        ('".."', None),
        ('" .. "', None),
        ('"a\\u0000b"', None),
        ('["job_1"]', None),
        ('{"id": "job_1"}', None),
    ],
)
def test_a_job_id_is_kept_exactly_or_is_none(raw: str, job: str | None) -> None:
    """Ids are text exactly as first received, never a float; what cannot be an id leaves the create lost (B19)."""
    found = created(an_answer(201, f'{{"job_id": {raw}}}'.encode())).evidence
    if job is None:
        assert isinstance(found, e.CallLost)
        assert "without a job id" in found.why
    else:
        assert isinstance(found, e.Accepted)
        assert found.job_id == job


def test_the_first_usable_id_is_taken() -> None:
    """A contract lists where the id may stand, in order of preference; a header is one of the places."""
    contract = with_create(job_id=(at("/id"), at("/job/id"), at("header:location|/jobs/([^/?]+)")))
    for body, job in (({"id": "a", "job": {"id": "b"}}, "a"), ({"id": None, "job": {"id": "b"}}, "b"), ({}, "c")):
        found = created(an_answer(201, body, location="/v1/jobs/c?x=1"), contract).evidence
        assert isinstance(found, e.Accepted)
        assert found.job_id == job


def test_an_unfamiliar_id_under_our_token_is_a_violation() -> None:
    """Both ids are kept; nothing is overwritten (B04)."""
    found = resent(an_answer(201, {"job_id": "job_2"}), jobs=("job_1",)).evidence
    assert isinstance(found, e.UnfamiliarJobId)
    assert found.jobs == ("job_1", "job_2")
    assert "job_1" in found.why
    assert "job_2" in found.why
    assert in_short(resent(an_answer(201, {"job_id": "job_1"}), jobs=("job_1",))) == "Accepted"
    assert in_short(resent(an_answer(409, {"job_id": "job_2"}), jobs=("job_1",))) == "UnfamiliarJobId"


# --- what an accepted create brings along -----------------------------------------------------------------------------


def test_an_accepted_create_keeps_word_references_and_hint() -> None:
    """Everything a later call needs, and nothing that another origin could use."""
    contract = with_create(refs={"run": at("/run_id"), "flag": at("/flag"), "list": at("/list")})
    body = {**CREATED_JSON, "status_url": "s/1", "run_id": 7, "flag": True, "list": [1]}
    found = created(an_answer(202, body, retry_after="5", x_request_id="req-9"), contract).evidence
    assert found == e.Accepted(
        call_id=CALL,
        status=202,
        answer=RAW,
        request_id="req-9",
        job_id=JOB,
        remote_state="queued",
        refs={"run": "7", "status_url": "https://api.example.com/v1/s/1"},
        how="create",
        retry_at=NOW + seconds(5),
        notes=found.notes if isinstance(found, e.Accepted) else (),
    )


@pytest.mark.parametrize("url", ["https://evil.example/s", "http://api.example.com/s", "https://u:p@api.example.com/s"])
def test_a_foreign_status_url_is_not_used_and_that_is_noted(url: str) -> None:
    """It would lead our credentials away."""
    found = created(an_answer(201, {**CREATED_JSON, "status_url": url})).evidence
    assert isinstance(found, e.Accepted)
    assert found.refs is None
    assert "the status URL is on another origin and is not used" in found.notes


def test_conditions_that_cannot_be_evaluated_do_not_hold_and_are_noted() -> None:
    """A missing key decides nothing, and somebody can see that it was missing."""
    found = created(an_answer(422, {"detail": "no code here"})).evidence
    assert isinstance(found, e.Refused)
    assert any("mismatch" in note and "could not be evaluated" in note for note in found.notes)
    assert created(an_answer(422, {"code": "other"})).evidence == e.Refused(
        call_id=CALL, status=422, answer=RAW, why="status 422"
    )


def test_an_integer_beyond_64_bits_makes_no_difference() -> None:
    """The conditions cannot be evaluated on such an answer; the id is read all the same."""
    found = created(an_answer(201, b'{"job_id": 123456789012345678901234567890, "code": 1}')).evidence
    assert isinstance(found, e.Accepted)


def test_texts_from_outside_are_cut() -> None:
    """A record is no place for a megabyte of somebody's words."""
    found = created(an_answer(201, {**CREATED_JSON, "state": "x" * 5000}, x_request_id="y" * 5000)).evidence
    assert isinstance(found, e.Accepted)
    assert (len(found.remote_state or ""), len(found.request_id or "")) == (200, 200)


# --- status -----------------------------------------------------------------------------------------------------------


def observed(body: Any, contract: Contract | None = None, **facts: Any) -> e.Observed:
    """The observation that a 200 brings."""
    found = status_read(an_answer(200, {"job_id": JOB, **body}), contract, **facts).evidence
    assert isinstance(found, e.Observed)
    return found


@pytest.mark.parametrize(("word", "means"), WORDS.items())
@pytest.mark.parametrize("spelt", [str, str.upper, str.title, lambda word: f"  {word}\n"])
def test_words_are_compared_without_case_and_blanks(word: str, means: Means, spelt: Any) -> None:
    """And kept as they were written."""
    found = observed({"state": spelt(word)})
    assert (found.means, found.remote_state, found.job_id) == (means, spelt(word), JOB)


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("Retry", "Retry"),
        (None, "null"),
        (7, "7"),
        (True, "true"),
        ([1], "[1]"),
        ({}, "{}"),
        ("", ""),
        ("fail", "fail"),
    ],
)
def test_a_word_nobody_knows_is_unknown(state: Any, word: str) -> None:
    """Never success, never failure; the raw value is kept (B10)."""
    found = observed({"state": state})
    assert (found.means, found.remote_state) == (Means.UNKNOWN, word)
    assert observed({}).remote_state == "(missing)"
    assert observed({}).means is Means.UNKNOWN


def test_several_places_make_one_word() -> None:
    """``life_cycle_state/result_state``."""
    contract = with_status(
        state=(at("/life"), at("/result")),
        words={"terminated/success": Means.SUCCEEDED, "running/(missing)": Means.RUNNING},
    )
    assert observed({"life": "TERMINATED", "result": "SUCCESS"}, contract).means is Means.SUCCEEDED
    assert observed({"life": "RUNNING"}, contract).means is Means.RUNNING


def test_an_answer_about_another_job_is_a_violation() -> None:
    """Both ids are kept (I3)."""
    found = status_read(an_answer(200, {"job_id": "job_2", "state": "succeeded"})).evidence
    assert isinstance(found, e.IdentityChanged)
    assert found.jobs == (JOB, "job_2")


@pytest.mark.parametrize("job", [None, 1.0, 9.007199254740993e15, True, "", [], {}])
def test_an_answer_about_no_job_is_a_failed_read(job: Any) -> None:
    """A rounded id is not our job, and not silently a new one (B19)."""
    reading = status_read(an_answer(200, {"job_id": job, "state": "succeeded"}), remote_job_id="9007199254740993")
    assert in_short(reading) == "ReadFailed read_failed"
    assert in_short(status_read(an_answer(200, {"state": "succeeded"}))) == "ReadFailed read_failed"


def test_an_id_that_is_a_number_here_and_a_text_there_is_the_same() -> None:
    """All digits are kept, so that the comparison is exact."""
    for raw in (b"9007199254740993", b'"9007199254740993"'):
        body = b'{"job_id": ' + raw + b', "state": "running"}'
        assert in_short(status_read(an_answer(200, body), remote_job_id="9007199254740993")) == "Observed running"
    rounded = b'{"job_id": 9007199254740992, "state": "running"}'
    assert in_short(status_read(an_answer(200, rounded), remote_job_id="9007199254740993")) == "IdentityChanged"


def test_a_contract_that_names_no_id_takes_the_answer_as_it_is() -> None:
    """Some status answers do not repeat the id."""
    assert in_short(status_read(an_answer(200, {"state": "running"}), with_status(job_id=None))) == "Observed running"


@pytest.mark.parametrize("body", [[], ["succeeded"], "succeeded", 7, True])
def test_json_of_another_shape_is_a_failed_read(body: Any) -> None:
    """There is no word in it that could be unknown."""
    contract = with_status(job_id=None)
    assert in_short(status_read(an_answer(200, body), contract)) == "ReadFailed read_failed"
    listed = with_status(job_id=None, state=(at("/0"),))
    assert in_short(status_read(an_answer(200, ["succeeded"]), listed)) == "Observed succeeded"


def test_a_status_read_keeps_progress_time_error_and_hint() -> None:
    """What a person wants to see, and nothing of another type."""
    body = {
        "job_id": JOB,
        "state": "running",
        "progress": {"completed": 3, "total": True},
        "updated_at": "2026-11-29T12:00:00+02:00",
        "error": {"code": "E1", "message": None},
        "poll_after_seconds": 20,
    }
    found = status_read(an_answer(200, body, x_request_id="req-9")).evidence
    assert found == e.Observed(
        call_id=CALL,
        status=200,
        answer=RAW,
        request_id="req-9",
        job_id=JOB,
        remote_state="running",
        means=Means.RUNNING,
        progress={"completed": 3},
        updated_at=datetime(2026, 11, 29, 10, tzinfo=UTC),
        error="E1",
        retry_at=NOW + seconds(20),
        hint="poll_after_seconds: 20",
    )


@pytest.mark.parametrize(
    ("value", "unit", "moment"),
    [
        (1_764_417_600, "s", datetime(2025, 11, 29, 12, tzinfo=UTC)),
        ("1764417600.5", "s", datetime(2025, 11, 29, 12, 0, 0, 500_000, tzinfo=UTC)),
        (1_764_417_600_250, "ms", datetime(2025, 11, 29, 12, 0, 0, 250_000, tzinfo=UTC)),
        ("2025-11-29T12:00:00Z", "rfc3339", datetime(2025, 11, 29, 12, tzinfo=UTC)),
        ("2025-11-29T12:00:00", "rfc3339", None),
        (1_764_417_600, "rfc3339", None),
        ("soon", "s", None),
        (1e300, "s", None),
        (float("nan"), "ms", None),
        (None, "s", None),
        (True, "s", None),
        ([1], "s", None),
    ],
)
def test_time_stamps_are_read_or_left(value: Any, unit: str, moment: datetime | None) -> None:
    """A stamp that cannot be read is no reason to fail a read."""
    assert moment_of(value, unit) == moment


def test_an_ended_job_is_not_polled_again_on_a_hint() -> None:
    """A final word needs no next poll."""
    found = observed({"state": "succeeded", "poll_after_seconds": 20})
    assert (found.retry_at, found.hint) == (None, None)


@pytest.mark.parametrize("word", ["failed", "cancelled", "expired"])
def test_a_final_state_that_changed_is_a_violation(word: str) -> None:
    """The job had succeeded and its result was being fetched (B12)."""
    known: dict[str, Any] = {"state": State.RESULT_COLLECTING, "remote_state": "succeeded"}
    body = {"job_id": JOB, "state": word}
    found = status_read(an_answer(200, body), **known).evidence
    assert isinstance(found, e.FinalStateChanged)
    assert (found.jobs, "succeeded" in found.why, word in found.why) == ((JOB,), True, True)
    for other in ("succeeded", "partial", "running", "pending_review"):
        assert in_short(status_read(an_answer(200, {**body, "state": other}), **known)).startswith("Observed")


def test_gone_is_said_by_the_contract_too() -> None:
    """Whatever status the provider gives it."""
    contract = with_status(gone_when=when('has(body.reason) && body.reason == "purged"'))
    for status in (200, 400, 500):
        assert in_short(status_read(an_answer(status, {"reason": "purged"}), contract)) == "ReadFailed gone"


# --- status rules -----------------------------------------------------------------------------------------------------


def test_rules_come_before_words_and_the_first_wins() -> None:
    """Providers that say "done" for success and failure alike."""
    contract = with_status(
        rules=(
            rule('body.state == "done" && has(body.error)', Means.FAILED),
            rule('body.state == "done"', Means.SUCCEEDED),
            rule("true", Means.QUEUED),
        )
    )
    assert observed({"state": "done", "error": {"code": "E"}}, contract).means is Means.FAILED
    done = observed({"state": "done"}, contract)
    assert (done.means, done.remote_state) == (Means.SUCCEEDED, "done")
    assert observed({"state": "failed"}, contract).means is Means.QUEUED


@pytest.mark.parametrize(
    "condition",
    ['body.status == "failed"', 'has(body.status) && body.status == "failed"', 'body["status"] == "failed"', "true"],
)
def test_a_rule_over_a_body_says_nothing_of_an_error_answer(condition: str) -> None:
    """`body.status` is not the status: a 500 with {"status": "failed"} is no failed job (I16)."""
    contract = with_status(job_id=None, rules=(rule(condition, Means.FAILED),))
    body = {"status": "failed"}
    for status in (400, 404, 409, 500, 503):
        assert isinstance(status_read(an_answer(status, body), contract).evidence, e.ReadFailed)
    assert in_short(status_read(an_answer(200, body), contract)) == "Observed failed"


def test_a_rule_may_read_the_status_itself() -> None:
    """Some providers answer 425 while a job runs; then the contract says so."""
    contract = with_status(job_id=None, rules=(rule('status == 425 && body.phase == "run"', Means.RUNNING),))
    assert in_short(status_read(an_answer(425, {"phase": "run"}), contract)) == "Observed running"
    assert in_short(status_read(an_answer(425, {"phase": "?"}), contract)) == "ReadFailed read_failed"


@pytest.mark.parametrize("means", [Means.SUCCEEDED, Means.FAILED, Means.RUNNING])
def test_no_rule_speaks_on_an_error_page(means: Means) -> None:
    """A login page with status 200 is no finished job."""
    contract = with_status(job_id=None, rules=(rule("status >= 200", means),))
    for status in (200, 404, 500):
        assert isinstance(status_read(html(status), contract).evidence, e.ReadFailed)
    assert in_short(status_read(an_answer(202), contract)) == f"Observed {means}"


# --- hints ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "20"}, 20),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "-3"}, None),
        ({"retry_after": "1.5"}, None),
        ({"retry_after": "120junk"}, None),
        ({"retry_after": ""}, None),
        ({"retry_after": "Sun, 29 Nov 2026 12:31:00 GMT"}, 60),
        ({"retry_after": "Sun, 29 Nov 2026 12:00:00 GMT"}, 0),
        ({"retry_after": "Sun, 29 Nov 2026 12:41:00 GMT", "date": "Sun, 29 Nov 2026 12:40:00 GMT"}, 60),
        ({"retry_after": "5, 9"}, 9),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "1"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "2"}, 2),
        ({}, None),
    ],
)
@pytest.mark.parametrize("hints", [(), (at("/poll_after_seconds"),), (at("header:retry-after"),)])
def test_standard_hints_are_honoured_whether_the_contract_names_them_or_not(
    headers: dict[str, str], wait: float | None, hints: Any
) -> None:
    """Never polled earlier than a valid value asks, and never a crash (B17)."""
    contract = a_contract(poll=Poll(hints=hints))
    at_that = None if wait is None else NOW + seconds(wait)
    for outcome in (
        an_answer(429, None, **headers),
        an_answer(503, None, **headers),
        an_answer(200, {"job_id": JOB, "state": "running"}, **headers),
    ):
        found = status_read(outcome, contract).evidence
        assert isinstance(found, e.ReadFailed | e.Observed)
        assert found.retry_at == at_that
        assert (found.hint is None) == (wait is None)


def test_an_absurd_hint_is_kept_within_the_calendar() -> None:
    """It is cut later, where the deadline is known; here it must not overflow."""
    for value in ("9" * 400, "99999999999"):
        found = status_read(an_answer(429, None, retry_after=value)).evidence
        assert isinstance(found, e.ReadFailed)
        assert found.retry_at is not None
        assert found.retry_at > NOW + timedelta(days=365)


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_a_cancel_that_says_no_with_200() -> None:
    """Accepted means what the contract says it means (B22)."""
    contract = with_cancel(accepted_when=when("body.accepted"))
    assert in_short(cancelled(an_answer(200, {"accepted": True}), contract)) == "CancelAnswered accepted"
    assert in_short(cancelled(an_answer(200, {"accepted": False}), contract)) == "CancelAnswered refused"


@pytest.mark.parametrize("body", [{}, HTML, None, b'{"accepted": tr'])
def test_a_cancel_whose_answer_cannot_be_read_was_not_refused(body: Any) -> None:
    """It may as well have been accepted: an answer that was cut, for one."""
    contract = with_cancel(accepted_when=when("body.accepted"))
    assert in_short(cancelled(an_answer(200, body), contract)) == "CancelAnswered unclear"


def test_a_cancel_of_a_finished_job_is_recognised() -> None:
    """The provider says that there was nothing to stop; a status read says how it ended."""
    contract = with_cancel(already_finished_when=when("status == 409"), idempotent=True)
    assert in_short(cancelled(an_answer(409), contract)) == "CancelAnswered already_finished"
    assert in_short(cancelled(an_answer(410), contract)) == "CancelAnswered unclear"


def test_a_throttled_cancel_says_until_when() -> None:
    """Only where the contract calls cancel idempotent may it be sent again."""
    found = cancelled(an_answer(429, None, retry_after="7"), with_cancel(idempotent=True)).evidence
    assert isinstance(found, e.Throttled)
    assert (found.retry_at, found.action) == (NOW + seconds(7), Action.CANCEL)


def test_no_answer_to_a_cancel_carries_a_final_state() -> None:
    """`cancelled` is only ever said because a status read said it (promise 7)."""
    for status in ALL_STATUSES:
        ev = cancelled(an_answer(status, {"state": "cancelled"})).evidence
        assert isinstance(ev, e.CancelAnswered | e.CallLost | e.Throttled)


def test_the_shared_contract_is_what_these_tests_take_it_for() -> None:
    """The tables above are written for the default lists."""
    assert CREATE.success == {200, 201, 202}
    assert CREATE.refused == DEFINITIVE


# --- nothing from outside breaks the reader ---------------------------------------------------------------------------

ODD: Final = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.sampled_from([JOB, "running", "succeeded", "2026-11-29T12:00:00Z", 10**30, "https://api.example.com/x"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
PLACES: Final = (
    "job_id",
    "state",
    "status_url",
    "updated_at",
    "progress",
    "error",
    "poll_after_seconds",
    "code",
    "run",
)
DEMANDING: Final = replace(
    with_create(refs={"run": at("/run")}, error_when=when('body.code == "error"')),
    status=with_status(
        updated_at_unit="ms", rules=(rule("body.run > 3", Means.SUCCEEDED), rule("size(body.error) == 0", Means.FAILED))
    ).status,
    cancel=with_cancel(accepted_when=when("body.state")).cancel,
    limits=with_limits("headers['x-left'] == '0' || body.code == 'slow'").limits,
)


@given(
    st.one_of(ODD, st.dictionaries(st.sampled_from(PLACES), ODD)),
    st.sampled_from([200, 201, 202, 204, 302, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503]),
    st.dictionaries(st.sampled_from(["retry-after", "date", "x-left", "content-type"]), st.text(max_size=30)),
)
def test_no_answer_breaks_the_reader_or_the_journal(body: Any, status: int, headers: dict[str, str]) -> None:
    """A worker that dies of one provider's odd answer stops the work of all the others."""
    outcome = replace(an_answer(status, json.dumps(body).encode()), headers=headers)
    for contract in (a_contract(), DEMANDING):
        for reading in (
            created(outcome, contract),
            resent(outcome, contract),
            status_read(outcome, contract),
            cancelled(outcome, contract),
            no_result(outcome, contract),
        ):
            ev = reading.evidence
            stored = json.loads(json.dumps(e.to_data(ev)))
            assert e.from_data(ev.kind, stored) == ev


@given(st.binary(max_size=60), st.sampled_from([200, 404, 500]))
def test_no_bytes_break_the_reader(body: bytes, status: int) -> None:
    """Not UTF-8, not JSON, not anything."""
    outcome = an_answer(status, body)
    for reading in (created(outcome), resent(outcome), status_read(outcome), cancelled(outcome), no_result(outcome)):
        assert json.dumps(e.to_data(reading.evidence))


@pytest.mark.parametrize("status", [200, 202, 302, 400, 404, 409, 410, 429, 500, 503])
def test_whatever_a_cancel_is_answered_with_the_provider_says_when_to_come_back(status: int) -> None:
    """The status read that follows is asked no sooner (I20)."""
    said = cancelled(an_answer(status, None, retry_after="120")).evidence
    assert isinstance(said, e.CancelAnswered | e.CallLost | e.Throttled)
    assert said.retry_at == NOW + seconds(120)
