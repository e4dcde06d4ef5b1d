"""What a look-up says about a create whose answer was lost: one match adopts, two stop, none proves little."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import evidence as e
from opledger.rules.answers import CLOCK_SKEW, Reading
from opledger.rules.calls import Answer, Failure, Fate
from opledger.rules.contract import Contract, Strategy
from opledger.rules.lookups import Search, conclude, read_page
from opledger.rules.model import Operation, State, to_rfc3339
from opledger.rules.pages import Page
from opledger.rules.values import Condition
from tests.support.contracts import GET, LIST, SINGLETON, a_contract, when, with_limits
from tests.support.records import OPERATION_ID, T0, a_record, seconds

CALL: Final = "call_1"
NOW: Final = T0 + timedelta(hours=1)
SETTLED: Final = T0 + LIST.settle


def a_lost_create(**facts: Any) -> Operation:
    """An operation whose create was sent at T0 and whose answer was lost."""
    return a_record(State.RECONCILIATION, **{"first_sent_at": T0, "last_sent_at": T0, **facts})


def an_answer(body: Any = None, status: int = 200, **headers: str) -> Answer:
    """An answer; `body` is bytes as they are, or a JSON value."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw, NOW)


def item(job: Any = "job_1", ref: Any = OPERATION_ID, **more: Any) -> dict[str, Any]:
    """One entry of a list."""
    return {"job_id": job, "client_ref": ref, "state": "running", "created_at": to_rfc3339(T0), **more}


def looked_up(
    strategy: Strategy,
    *outcomes: Answer | Failure,
    op: Operation | None = None,
    contract: Contract | None = None,
    now: datetime = NOW,
    stopped: str = "",
    ahead: timedelta = timedelta(0),
) -> Reading:
    """The outcome of a whole look-up, page by page, as the worker does it."""
    search = Search(strategy, ahead=ahead)
    record = op or a_lost_create()
    for outcome in outcomes:
        page = read_page(outcome, record, contract or a_contract(), search, call_id=CALL, answer="a" * 64)
        if isinstance(page, Reading):
            return page
        assert isinstance(page, Page)
    return Reading(conclude(search, record, now, complete=not stopped, why_incomplete=stopped))


def listed(*items: Any, **facts: Any) -> e.Evidence:
    """The evidence of a list with one page."""
    strategy = facts.pop("strategy", LIST)
    return looked_up(strategy, an_answer({"data": list(items)}), **facts).evidence


def inconclusive(evidence: e.Evidence) -> e.Inconclusive:
    """The evidence, which neither found the job nor proved anything."""
    assert isinstance(evidence, e.Inconclusive)
    assert not evidence.exhausted
    return evidence


# --- one --------------------------------------------------------------------------------------------------------------


def test_exactly_one_match_adopts_and_writes_the_comparison_down() -> None:
    """An auditor must see why this job is ours."""
    found = listed(item("job_9", "op_other"), item("job_1"), item("job_8", None))
    assert found == e.Accepted(
        call_id=CALL,
        status=200,
        answer="a" * 64,
        job_id="job_1",
        remote_state="running",
        how="list",
        comparison="item.client_ref == operation.operation_id; 1 of 3 items on 1 pages",
    )


def test_the_match_may_stand_on_any_page() -> None:
    """All pages are read before anything is said."""
    pages = [
        an_answer({"data": [item("job_9", "op_x")]}),
        an_answer({"data": [item("job_1")]}),
        an_answer({"data": []}),
    ]
    found = looked_up(LIST, *pages).evidence
    assert isinstance(found, e.Accepted)
    assert found.job_id == "job_1"
    assert found.comparison is not None
    assert found.comparison.endswith("1 of 2 items on 3 pages")


def test_one_job_seen_twice_is_one_job() -> None:
    """Pages shift while they are read."""
    found = looked_up(LIST, an_answer({"data": [item()]}), an_answer({"data": [item(state="succeeded")]})).evidence
    assert isinstance(found, e.Accepted)


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "?", None])
def test_a_match_that_has_ended_is_still_our_job(state: Any) -> None:
    """How it ended is for the status read to say."""
    found = listed(item(state=state))
    assert isinstance(found, e.Accepted)
    assert found.remote_state == ("null" if state is None else state)


def test_another_job_than_the_one_we_know_is_a_violation() -> None:
    """A late answer had named job 1; the list shows job 2 under our reference (I3)."""
    found = listed(item("job_2"), op=a_lost_create(jobs=("job_1",)))
    assert isinstance(found, e.UnfamiliarJobId)
    assert found.jobs == ("job_1", "job_2")
    assert isinstance(listed(item("job_1"), op=a_lost_create(jobs=("job_1",))), e.Accepted)


@pytest.mark.parametrize(("raw", "job"), [(9007199254740993, "9007199254740993"), ("0042", "0042")])
def test_ids_keep_all_their_digits(raw: Any, job: str) -> None:
    """As in a create's answer (B19)."""
    found = listed(item(raw))
    assert isinstance(found, e.Accepted)
    assert found.job_id == job


# --- many -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("states", [("running", "running"), ("running", "failed"), ("failed", "succeeded")])
@pytest.mark.parametrize("stopped", ["", "the list has more than 100 pages"])
def test_two_jobs_under_one_reference_stop_everything(states: tuple[str, str], stopped: str) -> None:
    """Both ids are kept; a list cut short makes two no less (B04)."""
    found = listed(item("J1", state=states[0]), item("J2", state=states[1]), stopped=stopped)
    assert isinstance(found, e.ManyJobs)
    assert found.jobs == ("J1", "J2")
    live = sum(state == "running" for state in states)
    assert f"2 jobs answer to our reference ({live} of them live)" in found.why


def test_two_jobs_on_two_pages_are_two_jobs() -> None:
    """And a job we knew before is listed with them."""
    known = a_lost_create(jobs=("J0",))
    found = looked_up(LIST, an_answer({"data": [item("J1")]}), an_answer({"data": [item("J2")]}), op=known).evidence
    assert isinstance(found, e.ManyJobs)
    assert found.jobs == ("J0", "J1", "J2")


# --- too old to be ours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "ours"),
    [
        (T0 - CLOCK_SKEW - seconds(0.000001), False),
        (T0 - CLOCK_SKEW, True),
        (T0 + timedelta(days=1), True),
    ],
)
def test_a_job_older_than_our_first_send_is_never_ours(made: datetime, ours: bool) -> None:
    """Two minutes are granted to a clock that is wrong, and not a microsecond more."""
    found = listed(item(created_at=to_rfc3339(made)))
    assert isinstance(found, e.Accepted if ours else e.Inconclusive)
    assert timedelta(minutes=2) == CLOCK_SKEW


def test_an_old_job_under_our_own_reference_is_no_proof_that_there_is_none() -> None:
    """A clock that had leapt ahead made our own job look old: it ran on, and its operation was said to be nowhere."""
    found = listed(item(created_at=to_rfc3339(T0 - timedelta(minutes=15))), now=SETTLED)
    assert isinstance(found, e.Inconclusive)
    assert "one of the clocks is wrong" in found.why


def test_an_old_job_that_only_looks_like_ours_is_somebody_elses() -> None:
    """Where the match names nothing of ours, the same request of last year matches too."""
    alike = replace(LIST, match=Condition.parse('item.state == "running"', frozenset({"item"})))
    found = listed(item(created_at="2025-01-01T00:00:00Z"), now=SETTLED, strategy=alike)
    assert isinstance(found, e.ProvenAbsent)


def test_an_old_job_does_not_make_two() -> None:
    """A reused reference of last year is not ours."""
    found = listed(item("old", created_at="2025-01-01T00:00:00Z"), item("job_1"))
    assert isinstance(found, e.Accepted)
    assert found.job_id == "job_1"


@pytest.mark.parametrize("stamp", [None, "yesterday", "2025-01-01T00:00:00", 7, [], True])
def test_a_stamp_that_cannot_be_read_excludes_nothing(stamp: Any) -> None:
    """Only a time that is known to be too early does."""
    assert isinstance(listed(item(created_at=stamp)), e.Accepted)


def test_units_of_the_stamp() -> None:
    """Seconds and milliseconds since 1970."""
    old, new = T0 - timedelta(hours=1), T0 + seconds(1)
    for how, scale in ((replace(LIST, created_at_unit="s"), 1), (replace(LIST, created_at_unit="ms"), 1000)):
        assert isinstance(listed(item(created_at=int(new.timestamp()) * scale), strategy=how), e.Accepted)
        assert isinstance(listed(item(created_at=int(old.timestamp()) * scale), strategy=how), e.Inconclusive)


# --- none -------------------------------------------------------------------------------------------------------------


def test_nothing_found_is_proof_only_where_the_contract_says_so() -> None:
    """Most lists promise nothing of the kind."""
    weak = replace(LIST, absence_is_proof=False)
    found = inconclusive(listed(item("x", "op_other"), strategy=weak))
    assert (found.absent, found.next_strategy, found.strategy) == (True, True, "list")
    assert "does not take absence as proof" in found.why
    assert isinstance(listed(item("x", "op_other")), e.ProvenAbsent)


@pytest.mark.parametrize(("settle", "lag"), [(60, 0), (60, 30), (10, 30), (0, 0)])
def test_nothing_found_is_proof_only_after_the_settle_time(settle: float, lag: float) -> None:
    """Measured from the last send, and never shorter than what a new job needs to be seen."""
    how = replace(LIST, settle=seconds(settle), visibility_lag=seconds(lag))
    last = T0 + seconds(500)
    op = a_lost_create(last_sent_at=last)
    settled = last + seconds(max(settle, lag))
    found = inconclusive(listed(strategy=how, op=op, now=settled - seconds(0.000001)))
    assert (found.retry_at, found.absent, found.next_strategy) == (settled, True, False)
    assert isinstance(listed(strategy=how, op=op, now=settled), e.ProvenAbsent)


def test_a_clock_that_was_set_ahead_makes_no_proof() -> None:
    """I28: the settle time is time that passed, not what the time of day says of it."""
    how, ahead = replace(LIST, settle=seconds(60)), seconds(3600)
    op = a_lost_create()
    settled = (op.last_sent_at or T0) + seconds(60)
    found = inconclusive(listed(strategy=how, op=op, now=settled + seconds(3599), ahead=ahead))
    assert found.retry_at == settled + ahead
    assert isinstance(listed(strategy=how, op=op, now=settled + ahead, ahead=ahead), e.ProvenAbsent)


def test_the_settle_time_is_no_proof_of_presence() -> None:
    """A match adopts at once."""
    assert isinstance(listed(item(), now=T0), e.Accepted)


@pytest.mark.parametrize("items", [[], [item("x", "op_other")], [item()]])
def test_a_list_cut_short_proves_nothing(items: list[Any]) -> None:
    """Neither that the job is absent nor that it is the only one."""
    found = inconclusive(listed(*items, stopped="the list's pages go round in a circle"))
    assert (found.why, found.next_strategy) == ("the list's pages go round in a circle", True)


@pytest.mark.parametrize("job", [None, 1.5, True, "", "..", {}, []])
def test_a_match_without_a_usable_id_is_not_absence(job: Any) -> None:
    """Our job is there; taking it for absent would create a second one."""
    found = inconclusive(listed(item(job)))
    assert (found.absent, found.retry_at) == (False, None)
    assert "no usable job id" in found.why
    without = {key: value for key, value in item().items() if key != "job_id"}
    assert "no usable job id" in inconclusive(listed(without)).why
    assert "no usable job id" in inconclusive(listed(item("job_1"), item(job))).why


@pytest.mark.parametrize("odd", [{}, {"job_id": "x"}, None, 7, "text", ["x"], {"clientRef": OPERATION_ID}])
def test_items_that_cannot_be_compared_are_not_absence(odd: Any) -> None:
    """The provider renamed a key: an empty result must not be read as "no such job"."""
    found = inconclusive(listed(item("x", "op_other"), odd))
    assert not found.absent
    assert "may be ours" in found.why
    assert any("could not be evaluated" in note for note in found.notes)
    assert isinstance(listed(item("job_1"), odd), e.Accepted)


def test_one_note_says_that_items_could_not_be_compared() -> None:
    """A thousand items with one flaw are one flaw."""
    found = inconclusive(listed(*([{"job_id": "x"}] * 1000)))
    assert len(found.notes) == 1
    assert "1000 items" in found.why


def test_a_contract_can_say_that_others_carry_no_reference() -> None:
    """`has` makes the comparison total, and absence provable again."""
    how = replace(LIST, match=when("has(item.client_ref) && item.client_ref == operation.operation_id"))
    assert isinstance(listed({"job_id": "x"}, strategy=how), e.ProvenAbsent)


# --- answers that say nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [LIST, GET, SINGLETON], ids=lambda how: how.strategy)
@pytest.mark.parametrize(
    "outcome",
    [
        an_answer(b"<html>down</html>", 500),
        an_answer(b"<html>login</html>", 200),
        an_answer(None, 503),
        an_answer(None, 200),
        an_answer(None, 204),
        an_answer(b'{"data": [', 200),
        an_answer(None, 302, location="https://evil.example"),
        an_answer({"error": "bad"}, 400),
        Failure(Fate.LOST, "timed out"),
        Failure(Fate.NOT_DELIVERED, "connection refused"),
    ],
    ids=lambda outcome: outcome.why if isinstance(outcome, Failure) else f"{outcome.status} {outcome.body[:6]!r}",
)
def test_what_cannot_be_read_is_inconclusive(strategy: Strategy, outcome: Answer | Failure) -> None:
    """Errors, pages of HTML, cut and lost answers: never a verdict, and the next way is tried."""
    reading = looked_up(strategy, outcome)
    found = inconclusive(reading.evidence)
    assert (found.next_strategy, found.absent, found.strategy) == (True, False, strategy.strategy)
    assert (reading.credentials, found.call_id) == (False, CALL)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_pause_the_provider(status: int) -> None:
    """And say nothing of the job."""
    reading = looked_up(LIST, an_answer({"data": []}, status))
    assert reading.credentials
    assert "credentials" in inconclusive(reading.evidence).why


@pytest.mark.parametrize(
    "outcome", [an_answer(None, 503, retry_after="40"), an_answer({"x": 1}, 200, retry_after="40")]
)
def test_a_look_up_that_failed_waits_as_long_as_asked(outcome: Answer) -> None:
    """Whatever comes next, and something else does, as this way showed nothing (I20)."""
    found = inconclusive(looked_up(LIST, outcome).evidence)
    assert (found.retry_at, found.next_strategy) == (NOW + seconds(40), True)


def test_a_throttled_look_up_waits_as_long_as_asked() -> None:
    """The same way is tried again then; without a time the next one is."""
    found = inconclusive(looked_up(LIST, an_answer(None, 429, retry_after="40")).evidence)
    assert (found.retry_at, found.next_strategy) == (NOW + seconds(40), False)
    assert inconclusive(looked_up(LIST, an_answer(None, 429)).evidence).next_strategy
    slow = with_limits("status == 503")
    found = inconclusive(looked_up(LIST, an_answer(None, 503, retry_after="4"), contract=slow).evidence)
    assert found.retry_at == NOW + seconds(4)


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": {}}, {"data": "x"}, [], "x", {"items": []}])
def test_a_list_of_another_shape_is_not_an_empty_list(body: Any) -> None:
    """Reading it as empty would prove that the job does not exist."""
    found = inconclusive(looked_up(LIST, an_answer(body)).evidence)
    assert "another shape" in found.why
    assert found.next_strategy


def test_a_bad_page_after_good_ones_ends_the_look_up() -> None:
    """What was seen so far is no verdict."""
    reading = looked_up(LIST, an_answer({"data": [item()]}), an_answer(None, 500), an_answer({"data": []}))
    inconclusive(reading.evidence)


@pytest.mark.parametrize("status", [404, 410])
def test_a_list_that_is_not_found_proves_nothing(status: int) -> None:
    """Only a get by our own id can be answered "not found"."""
    assert inconclusive(looked_up(LIST, an_answer(None, status)).evidence).absent is False
    assert inconclusive(looked_up(SINGLETON, an_answer(None, status)).evidence).absent is False


# --- get by our own id ------------------------------------------------------------------------------------------------


def test_a_get_that_finds_the_job_adopts_it() -> None:
    """It stands under the id that we made."""
    found = looked_up(GET, an_answer(item())).evidence
    assert isinstance(found, e.Accepted)
    assert (found.job_id, found.how, found.remote_state) == ("job_1", "get", "running")
    assert found.comparison is not None
    assert "own id" in found.comparison


def test_a_get_takes_the_id_from_where_create_has_it() -> None:
    """Without `item_id` the answer has the shape of the create's."""
    found = looked_up(replace(GET, item_id=None), an_answer(item())).evidence
    assert isinstance(found, e.Accepted)
    assert found.job_id == "job_1"


@pytest.mark.parametrize("status", [404, 410])
def test_not_found_is_proof_after_the_settle_time(status: int) -> None:
    """Before it, the create may still be on its way (B09)."""
    early = inconclusive(looked_up(GET, an_answer(None, status), now=SETTLED - seconds(1)).evidence)
    assert (early.retry_at, early.absent) == (SETTLED, True)
    found = looked_up(GET, an_answer(b"<html>not found</html>", status), now=SETTLED).evidence
    assert isinstance(found, e.ProvenAbsent)
    assert (found.status, found.call_id, found.strategy) == (status, CALL, "get")
    weak = replace(GET, absence_is_proof=False)
    assert inconclusive(looked_up(weak, an_answer(None, status)).evidence).next_strategy


@pytest.mark.parametrize("status", [404, 410])
def test_an_error_page_is_no_proof_of_absence(status: int) -> None:
    """A gateway whose route is missing for a minute answers so, and the job may run behind it."""
    page = an_answer(b"<html>not found</html>", status, content_type="text/html; charset=utf-8")
    assert inconclusive(looked_up(GET, page).evidence).absent is False
    assert isinstance(looked_up(GET, an_answer({"code": 5}, status)).evidence, e.ProvenAbsent)


@pytest.mark.parametrize("body", [{"job_id": None}, {}, [], "x", {"job_id": 1.5}])
def test_a_get_that_finds_something_without_an_id_is_not_absence(body: Any) -> None:
    """Something stands under our id."""
    assert inconclusive(looked_up(GET, an_answer(body)).evidence).absent is False


def test_a_get_that_finds_somebody_else_s_is_not_absence() -> None:
    """A match that does not hold leaves a stranger under our id: a create would collide with it."""
    how = replace(GET, match=when("item.client_ref == operation.operation_id"))
    found = inconclusive(looked_up(how, an_answer(item(ref="op_other"))).evidence)
    assert "under our own id" in found.why
    assert isinstance(looked_up(how, an_answer(item())).evidence, e.Accepted)


# --- singleton --------------------------------------------------------------------------------------------------------


def test_a_singleton_that_runs_is_adopted() -> None:
    """Only one can run at a time."""
    found = looked_up(SINGLETON, an_answer(item())).evidence
    assert isinstance(found, e.Accepted)
    assert (found.job_id, found.how) == ("job_1", "singleton")


@pytest.mark.parametrize("body", [{"job_id": None}, {}, {"job": None}])
def test_a_singleton_that_names_no_job_shows_none(body: Any) -> None:
    """That is its way to say that nothing runs; proof only where the contract says so."""
    assert inconclusive(looked_up(SINGLETON, an_answer(body)).evidence).absent
    strong = replace(SINGLETON, absence_is_proof=True, settle=seconds(60))
    assert isinstance(looked_up(strong, an_answer(body)).evidence, e.ProvenAbsent)


@pytest.mark.parametrize("job", [1.5, True, "", "..", {}, []])
def test_a_singleton_with_an_unusable_id_is_not_absence(job: Any) -> None:
    """Something runs."""
    strong = replace(SINGLETON, absence_is_proof=True)
    assert "no usable job id" in inconclusive(looked_up(strong, an_answer({"job_id": job})).evidence).why


def test_a_singleton_of_somebody_else_is_not_adopted() -> None:
    """Where jobs carry a reference it is compared."""
    how = replace(SINGLETON, match=when("item.client_ref == operation.operation_id"), absence_is_proof=True)
    assert isinstance(looked_up(how, an_answer(item(ref="op_other"))).evidence, e.ProvenAbsent)
    assert isinstance(looked_up(how, an_answer(item())).evidence, e.Accepted)
    nameless = {"client_ref": OPERATION_ID, "job_id": None}
    assert "no usable job id" in inconclusive(looked_up(how, an_answer(nameless)).evidence).why


# --- as a whole -------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(),
            st.text(max_size=5),
            st.fixed_dictionaries(
                {},
                optional={
                    "job_id": st.one_of(
                        st.none(), st.floats(allow_nan=False), st.integers(0, 3), st.sampled_from("ab")
                    ),
                    "client_ref": st.sampled_from([OPERATION_ID, "op_other", None, 7]),
                    "created_at": st.sampled_from(["2025-01-01T00:00:00Z", to_rfc3339(T0), "x", None, []]),
                    "state": st.sampled_from(["running", None, 7, {}]),
                },
            ),
        ),
        max_size=5,
    ),
    st.booleans(),
    st.booleans(),
)
def test_absence_is_proven_only_by_items_that_are_all_somebody_else_s(
    items: list[Any], complete: bool, settled: bool
) -> None:
    """Whatever a list holds, it never breaks the reader, and a second create needs certainty about every item."""
    found = listed(*items, now=SETTLED if settled else T0, stopped="" if complete else "cut")
    ours = [entry for entry in items if isinstance(entry, dict) and entry.get("client_ref") == OPERATION_ID]
    young = [entry for entry in ours if entry.get("created_at") != "2025-01-01T00:00:00Z"]
    if isinstance(found, e.ProvenAbsent):
        assert complete
        assert settled
        assert not ours
        for entry in items:
            assert isinstance(entry, dict)
            assert "client_ref" in entry or entry["created_at"] == "2025-01-01T00:00:00Z"
    if isinstance(found, e.Accepted):
        assert complete
        assert {str(entry.get("job_id")) for entry in young} == {found.job_id}
    if isinstance(found, e.ManyJobs):
        assert len({str(entry.get("job_id")) for entry in young}) > 1
