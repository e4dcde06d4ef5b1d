"""Status reads: bugs B09 to B19 of other people, and what must not happen here."""

from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from opledger.edges.clock import SystemClock
from opledger.rules.model import State, from_rfc3339
from tests.scenarios.stage import Stage

PATIENT = {'not_visible_for = "5s"': 'not_visible_for = "5m"'}
NO_SUCH = {"error": {"code": "not_found", "message": "No such job."}}


def read_times(stage: Stage, operation: Any) -> list[Any]:
    """When status reads arrived."""
    return [from_rfc3339(entry["time"]) for entry in stage.wire("status", operation)]


def once_created(stage: Stage, operation: Any) -> None:
    """Exactly one create left, and it started exactly one job."""
    assert len(stage.wire("create", operation)) == 1
    assert len(stage.jobs(operation)) == 1


# --- B09 404 (or 403) straight after a successful create --------------------------------------------------------------


@pytest.mark.parametrize("status", [404, 403])
@pytest.mark.parametrize("first", [0, 1], ids=["at once", "after it was seen"])
def test_b09_not_found_soon_after_the_create_is_no_verdict(stage: Stage, status: int, first: int) -> None:
    """Within the grace period it is an observation: no failure, no other create, no paused provider."""
    stage.contract(changes=PATIENT)
    operation = stage.submit(_seconds=120)
    if first:
        stage.until_state(operation, State.OBSERVING)
    stage.sim.control(answer_next=[{"kind": "status", "status": status, "body": NO_SUCH}] * 4)
    stage.until(operation, lambda op: op.failures == 4)
    assert stage.show(operation).state is (State.OBSERVING if first else State.ACCEPTED)
    assert {data["code"] for data in stage.told(operation, "ReadFailed")} == {"not_visible_yet"}
    assert stage.ledger.store.paused() == {}
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    once_created(stage, operation)
    stage.honest()


def test_b09_not_found_after_the_grace_period_goes_to_a_person(stage: Stage) -> None:
    """It shows at once, the polls go on until the result deadline, and the raw answers are there."""
    stage.contract(result="10m")
    stage.sim.control(answer_next=[{"kind": "status", "status": 404, "body": NO_SUCH}] * 60)
    operation = stage.submit(_seconds=3600)
    found = stage.until(operation, lambda op: op.attention is not None)
    assert found.attention is not None
    assert (found.state, found.attention.code) == (State.ACCEPTED, "gone")
    stage.run()
    assert stage.show(operation).state is State.RESULT_TIMED_OUT
    assert any("No such job." in text for _, text in stage.kept(operation))
    once_created(stage, operation)


# --- B10 a status word nobody knew ------------------------------------------------------------------------------------


def test_b10_words_that_nobody_knows_are_kept_and_the_job_goes_on(stage: Stage) -> None:
    """Strange words, null, a number, and no word at all: neither success nor failure."""
    operation = stage.submit("unknown_words", "passing", _polls=9)
    found = stage.until(operation, lambda op: op.remote_state == "pending_review")
    assert found.state is State.OBSERVING
    assert found.attention is not None
    assert found.attention.code == "unknown_state"
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    words = [data["remote_state"] for data in stage.told(operation, "Observed")]
    assert words[:6] == ["Retry", "pending_review", "null", "7", "PAUSED by operator", "(missing)"]
    once_created(stage, operation)
    stage.honest()


def test_b10_an_unknown_word_that_never_changes_ends_at_the_deadline(stage: Stage) -> None:
    """The wait ends with a person and not with a guess."""
    stage.contract(result="30m")
    operation = stage.submit("unknown_words", "last", _seconds=1)
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.remote_state) == (State.RESULT_TIMED_OUT, "archived")
    assert stage.wire("result") == []


# --- B12 a final state that came back to life -------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["running", "succeeded"])
def test_b12_a_failed_job_that_comes_back_is_put_before_a_person(stage: Stage, word: str) -> None:
    """The record stays, both words stand in the journal, and nothing is created anew."""
    operation = stage.submit("failing", _seconds=1)
    stage.run()
    failed = stage.show(operation)
    assert failed.state is State.FAILED
    stage.sim.control(job={"id": failed.remote_job_id, "state": word})
    stage.passes(120)
    found = stage.read_once(operation)
    assert found.state is State.FAILED
    assert found.attention is not None
    assert found.attention.code == "final_state_contradicted"
    assert [data["remote_state"] for data in stage.told(operation, "Observed")][-2:] == ["failed", word]
    stage.on(operation)
    once_created(stage, operation)
    stage.honest()


def test_b12_a_success_that_turns_into_a_failure_is_put_before_a_person(stage: Stage) -> None:
    """After the result is here, and stored."""
    operation = stage.submit(_seconds=1)
    stage.run()
    succeeded = stage.show(operation)
    stage.sim.control(job={"id": succeeded.remote_job_id, "state": "failed"})
    found = stage.read_once(operation)
    assert (found.state, found.result) == (State.SUCCEEDED, succeeded.result)
    assert found.attention is not None
    assert found.attention.code == "final_state_contradicted"


def test_b12_a_success_that_fails_before_the_result_is_here_is_a_violation(stage: Stage) -> None:
    """The job had succeeded; while its result was not ready the provider says it failed."""
    operation = stage.submit("expiring", "late", _seconds=1)
    found = stage.until_state(operation, State.RESULT_COLLECTING)
    stage.sim.control(job={"id": found.remote_job_id, "state": "failed"})
    stage.run()
    found = stage.show(operation)
    assert found.state is State.CONTRACT_VIOLATION
    assert "FinalStateChanged" in stage.kinds(operation)
    before = stage.calls()
    stage.on(operation)
    assert stage.calls() == before


# --- B14 one bad poll was taken for a failed job ----------------------------------------------------------------------


def test_b14_two_hours_of_bad_polls_change_no_state(stage: Stage) -> None:
    """429, 500, 502, resets, cut answers, then refused credentials until somebody mends them: one job, a success."""
    stage.contract(result="6h")
    operation = stage.submit(_seconds=7200)
    stage.until_state(operation, State.OBSERVING)
    bad: list[dict[str, Any]] = [
        {"status": 429, "body": {}},
        {"status": 500, "body": {"error": "internal"}},
        {"status": 502, "body": "<html>nginx</html>", "content_type": "text/html"},
        {"status": 200, "body": "<html>fine</html>", "content_type": "text/html"},
        {"cut": True},
    ]
    stage.sim.control(answer_next=[{"kind": "status", **one} for one in bad], drop_next=["status", "status"])
    stage.until(operation, lambda op: op.failures == 7)
    assert stage.show(operation).state is State.OBSERVING
    stage.run(2400)
    assert stage.show(operation).failures == 0
    stage.sim.control(revoke=True)
    stage.run(600)
    (name,) = stage.ledger.store.paused()
    reads = len(stage.wire("status", operation))
    stage.run(600)
    assert len(stage.wire("status", operation)) == reads
    stage.sim.control(revoke=False)
    stage.ledger.resume_provider(name, reason="a new credential is in place")
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    once_created(stage, operation)
    stage.honest()


# --- B17 Retry-After as a date, or as rubbish -------------------------------------------------------------------------


def reads_twice_more(stage: Stage, operation: Any, before: int) -> None:
    """Let the worker work until two more reads have left."""
    stage.until(operation, lambda op: len(read_times(stage, op)) == before + 2)


RUBBISH = ("-3", "1.5", "120junk", "", "20261231T00", "Mon, 30 Feb 2026 10:00:00 GMT")


@pytest.mark.parametrize(
    ("value", "least"),
    [
        ("300", 300),
        ("DATE+300", 300),
        ("DATE-300", 0),
        ("20261231", 3600),
        ("120, 300", 300),
        *[(rubbish, 0) for rubbish in RUBBISH],
    ],
)
def test_b17_a_poll_is_never_earlier_than_a_valid_wish(file_stage: Stage, value: str, least: int) -> None:
    """Digits are seconds, a date is measured against the answer's own Date, the past means now, the rest is ignored."""
    stage = file_stage
    stage.passes(600)
    for status in (429, 503, 202, 200):
        operation = stage.submit(_seconds=7200)
        found = stage.until_state(operation, State.OBSERVING)
        asked = value
        if value.startswith("DATE"):
            # The provider's own clock goes right, and so does the Date of its answer; ours is ten minutes ahead.
            wanted = SystemClock().now() + timedelta(seconds=int(value.removeprefix("DATE")))
            asked = format_datetime(wanted, usegmt=True)
        answer = {"id": found.remote_job_id, "state": "running"} if status < 300 else {}
        headers = {"retry-after": asked}
        stage.sim.control(answer_next={"kind": "status", "status": status, "body": answer, "headers": headers})
        before = len(read_times(stage, operation))
        reads_twice_more(stage, operation, before)
        answered, following = read_times(stage, operation)[-2:]
        waited = (following - answered).total_seconds()
        assert waited >= least - (2 if asked != value and least else 0)
        if least == 0:
            assert 0.05 <= waited <= 60
        assert stage.show(operation).state is State.OBSERVING
        stage.sim.control(job={"id": found.remote_job_id, "state": "failed"})
        stage.until_state(operation, State.FAILED)


# --- B19 the job id lost its last digits ------------------------------------------------------------------------------

BIG = 9007199254740993


def test_b19_a_large_number_is_kept_to_its_last_digit(stage: Stage) -> None:
    """The id came as a JSON number beyond 2^53; every later request names exactly that."""
    stage.sim.control(answer_next={"kind": "create", "status": 201, "body": f'{{"id": {BIG}, "state": "queued"}}'})
    operation = stage.submit(_seconds=30)
    found = stage.until(operation, lambda op: op.failures > 0)
    assert found.remote_job_id == str(BIG)
    stage.ledger.cancel(operation.operation_id, reason="ordered twice")
    stage.turn()
    paths = [entry["path"] for entry in stage.wire() if entry["kind"] in ("status", "cancel")]
    assert set(paths) == {f"/v1/jobs/{BIG}"}


@pytest.mark.parametrize("rounded", ["9.007199254740993e15", "9007199254740992.0"])
def test_b19_a_rounded_id_in_a_list_is_not_our_job(file_stage: Stage, rounded: str) -> None:
    """A float names no job: it is neither adopted nor taken for absence."""
    stage = file_stage
    stage.contract("body", {'strategy = "resend"': 'strategy = "resend"'}, create="2m")
    operation = stage.submit(flavour="body", _seconds=30)
    item = f'{{"id": {rounded}, "client_ref": "{operation.operation_id}", "state": "running"}}'
    page = f'{{"data": [{item}], "next": null}}'
    refused = {"kind": "create", "status": 500, "body": {}, "before": True}
    stage.sim.control(answer_next=[{"kind": "create", "status": 500, "body": {}}, *[refused] * 60])
    stage.sim.control(answer_next=[{"kind": "list", "status": 200, "body": page}] * 60)
    stage.run()
    found = stage.show(operation)
    assert found.state is State.CREATE_UNKNOWN
    assert found.remote_job_id is None
    assert "ProvenAbsent" not in stage.kinds(operation)


@pytest.mark.parametrize("said", ['"%s "', '"JOB"', '"0%s"'], ids=["blank", "case", "leading zero"])
def test_b19_another_form_of_the_id_is_another_job(file_stage: Stage, said: str) -> None:
    """What is nearly our id is not our id: the answer stops everything, and is kept."""
    stage = file_stage
    operation = stage.submit(_seconds=3600)
    found = stage.until_state(operation, State.OBSERVING)
    job = str(found.remote_job_id)
    other = job.upper() if "JOB" in said else said.strip('"') % job
    stage.sim.control(job={"id": job, "document": {"id": other}})
    stage.run()
    found = stage.show(operation)
    assert found.state is State.CONTRACT_VIOLATION
    assert set(found.jobs) == {job, other}
    assert stage.kept(operation)[-1][0] == "IdentityChanged"


@pytest.mark.parametrize("said", [1.0, True, None, [], {}])
def test_b19_what_can_be_no_id_is_a_failed_read(file_stage: Stage, said: Any) -> None:
    """A float, true or null names no job at all; it is never taken for ours, and the deadline ends the wait."""
    stage = file_stage
    stage.contract(result="5m")
    operation = stage.submit(_seconds=1)
    found = stage.until_state(operation, State.ACCEPTED, State.OBSERVING)
    stage.sim.control(job={"id": found.remote_job_id, "state": "succeeded", "document": {"id": said}})
    stage.run()
    assert stage.show(operation).state is State.RESULT_TIMED_OUT
    assert stage.wire("result") == []
