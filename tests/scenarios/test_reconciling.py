"""Creates whose answer was lost: each way to find out, in the contract's order, and what is no answer."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from opledger.rules import lookups
from opledger.rules.model import Operation, State, from_rfc3339, to_rfc3339
from tests.scenarios.stage import Stage

IN_FLIGHT = {"error": {"code": "in_progress", "message": "still running"}}
MEMORY = 'memory = "10m"'
LIST_ONLY = {'[[reconcile]]\nstrategy = "resend"\n': ""}


def reconciled(stage: Stage, operation: Operation) -> list[str | None]:
    """The strategies that were tried, in order."""
    return [data.get("strategy") for data in stage.told(operation, "CallSent") if data["action"] == "reconcile"]


def listed(stage: Stage, *items: dict[str, Any], following: str | None = None) -> dict[str, Any]:
    """An answer of the list."""
    return {"kind": "list", "status": 200, "body": {"data": list(items), "next": following}}


@pytest.mark.parametrize(
    ("flavour", "strategy"),
    [
        ("v1", "resend"),
        ("header", "resend"),
        ("query", "resend"),
        ("clientid", "get"),
        ("unique", "list"),
        ("body", "list"),
        ("inline", "resend"),
    ],
)
@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "lost on the way"])
def test_each_strategy_leads_to_exactly_one_job(stage: Stage, flavour: str, strategy: str, arrived: bool) -> None:
    """Whether the create took effect or not, and by whatever the contract offers to find out."""
    stage.sim.control(**{"drop_next" if arrived else "drop_before_next": "create"})
    operation = stage.submit(flavour=flavour, _seconds=30)
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert reconciled(stage, operation)[0] == strategy
    assert len(stage.jobs(operation)) == 1
    if found.remote_job_id is not None and flavour != "inline":
        (accepted,) = stage.told(operation, "Accepted")
        assert accepted.get("how", "create") == (strategy if arrived or strategy == "resend" else "create")
        if accepted.get("how") == "list":
            assert "1 of" in accepted["comparison"]
    stage.honest()


def test_the_singleton_query_adopts_our_job_only(stage: Stage) -> None:
    """The one job that runs is ours, or it is somebody else's: then nothing is proven."""
    stage.contract("singleton", create="5m")
    stage.sim.control(drop_next="create")
    ours = stage.submit(flavour="singleton", _seconds=600)
    stage.until_state(ours, State.OBSERVING)
    assert stage.told(ours, "Accepted")[0]["how"] == "singleton"
    stage.sim.control(drop_next="create")
    other = stage.submit(flavour="singleton", _seconds=600)
    stage.run(600)
    found = stage.show(other)
    assert (found.state, found.remote_job_id, found.exhausted) == (State.CREATE_UNKNOWN, None, True)
    assert len(stage.jobs(other)) == 0


def test_strategies_come_in_the_contracts_order_and_round_again(stage: Stage) -> None:
    """Resend, list, resend: each inconclusive answer moves on to the next one."""
    stage.contract(changes={"absence_is_proof = true": "absence_is_proof = false"})
    stage.sim.control(drop_before_next=["create", "create", "create"])
    operation = stage.submit(_seconds=30)
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert reconciled(stage, operation)[:3] == ["resend", "list", "resend"]
    assert len(stage.jobs(operation)) == 1
    stage.honest()


def test_after_the_tokens_memory_only_look_ups_are_left(stage: Stage) -> None:
    """The memory counts from the first send, with a margin: no create leaves later, however long it takes."""
    stage.contract(changes={"absence_is_proof = true": "absence_is_proof = false"}, create="3h")
    stage.sim.control(
        drop_next="create", answer_next=[{"kind": "create", "status": 500, "body": {}, "before": True}] * 200
    )
    stage.sim.control(answer_next=[listed(stage)] * 200)
    operation = stage.submit(_seconds=36000)
    stage.run(7200)
    creates = [from_rfc3339(entry["time"]) for entry in stage.wire("create")]
    assert len(creates) > 3
    assert creates[-1] - creates[0] < timedelta(minutes=10)
    lists = [from_rfc3339(entry["time"]) for entry in stage.wire("list")]
    assert lists[-1] - creates[0] > timedelta(hours=1)
    assert "the token's memory" not in (stage.show(operation).last_error or "")
    stage.run()
    assert stage.show(operation).state is State.CREATE_UNKNOWN


def test_after_the_tokens_memory_without_a_look_up_a_person_is_asked(stage: Stage) -> None:
    """At-most-once cannot be shown any more, and the record says so."""
    stage.contract("header", {MEMORY: 'memory = "2m"'}, create="3h")
    stage.sim.control(drop_next="create")
    stage.sim.control(answer_next=[{"kind": "create", "status": 503, "body": {}, "before": True}] * 100)
    operation = stage.submit(flavour="header", _seconds=36000)
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.exhausted) == (State.CREATE_UNKNOWN, True)
    assert found.attention is not None
    assert "the token's memory at the provider has ended" in found.attention.reason
    creates = [from_rfc3339(entry["time"]) for entry in stage.wire("create")]
    assert creates[-1] - creates[0] < timedelta(minutes=2)


@pytest.mark.parametrize("flavour", ["header", "v1"], ids=["no look-up", "and a list"])
def test_the_window_is_checked_again_after_the_permit(
    stage: Stage, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is frozen between the permit of a resend and its sending wakes too late: nothing leaves."""
    stage.contract(flavour, {MEMORY: 'memory = "5m"'}, create="3h")
    stage.sim.control(drop_before_next="create")
    operation = stage.submit(flavour=flavour, _seconds=30)
    commits = stage.worker._commits
    record = commits.hand_in

    async def late(*writes: Any) -> Any:
        outcome = await record(*writes)
        if any(write.evidence.kind == "CallSent" and write.evidence.strategy == "resend" for write in writes):
            stage.passes(301)
        return outcome

    monkeypatch.setattr(commits, "hand_in", lambda *writes: asyncio.ensure_future(late(*writes)))
    stage.until(operation, lambda op: bool(stage.told(op, "Inconclusive")))
    assert len(stage.wire("create")) == 1
    stage.run()
    if flavour == "header":
        assert stage.show(operation).state is State.CREATE_UNKNOWN
        assert len(stage.wire("create")) == 1
    else:
        assert stage.calls()[:2] == ["create", "list"]
    assert any("before the resend left" in data["why"] for data in stage.told(operation, "Inconclusive"))


def test_what_a_resend_adds_is_on_no_first_create(stage: Stage) -> None:
    """The contract's `resend_adds` go with resends only; the stored request stays as it is."""
    adds = 'resend_adds = { "again" = "1" }\nreplay_marker ='
    stage.contract("header", {"replay_marker =": adds})
    stage.sim.control(drop_next="create")
    operation = stage.submit(flavour="header", _seconds=30)
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert [entry["query"] for entry in stage.wire("create")] == ["", "again=1"]
    assert "again" not in stage.ledger.store.request_of(operation.operation_id).url
    stage.honest()


def test_a_first_request_that_still_runs_is_waited_for(stage: Stage) -> None:
    """In flight is neither yes nor no: the same token again, later, and as late as the provider asks."""
    stage.sim.control(drop_next="create")
    busy = {"kind": "create", "status": 409, "body": IN_FLIGHT, "headers": {"retry-after": "30"}, "before": True}
    stage.sim.control(answer_next=[busy, busy])
    operation = stage.submit(_seconds=600)
    stage.until_state(operation, State.OBSERVING)
    times = [from_rfc3339(entry["time"]) for entry in stage.wire("create")]
    assert len(times) == 4
    assert all(later - earlier >= timedelta(seconds=30) for earlier, later in itertools.pairwise(times[1:]))
    assert reconciled(stage, operation) == ["resend", "resend", "resend"]
    stage.honest()


def test_in_flight_at_the_first_create_leaves_it_unknown(stage: Stage) -> None:
    """Our own first request may be the one that runs (a proxy repeated it)."""
    stage.sim.control(answer_next={"kind": "create", "status": 409, "body": IN_FLIGHT})
    operation = stage.submit(_seconds=30)
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert "CallLost" in stage.kinds(operation)
    assert len(stage.jobs(operation)) == 1
    stage.honest()


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "lost on the way"])
def test_a_refused_resend_does_not_hide_a_job_that_runs(stage: Stage, arrived: bool) -> None:
    """The account was closed in between, so the resend is refused: the list says whether the first one arrived."""
    no = {"kind": "create", "status": 422, "body": {"error": {"code": "account_closed"}}, "before": True}
    stage.sim.control(**{"drop_next" if arrived else "drop_before_next": "create"}, answer_next=[no, no])
    operation = stage.submit(_seconds=30)
    stage.run()
    assert stage.show(operation).state is (State.SUCCEEDED if arrived else State.FAILED)
    assert reconciled(stage, operation)[:2] == ["resend", "list"]
    assert len(stage.jobs(operation)) == (1 if arrived else 0)
    assert len({entry["token"] for entry in stage.wire("create")}) == 1


def test_without_any_strategy_it_stops_and_says_so_plainly(stage: Stage) -> None:
    """No token and no list: one create ever left, a person decides, and at-most-once cannot be shown."""
    stage.sim.control(drop_next="create")
    operation = stage.submit(flavour="none", _seconds=30)
    stage.run()
    stage.on(operation)
    found = stage.show(operation)
    assert (found.state, found.exhausted) == (State.CREATE_UNKNOWN, True)
    assert found.attention is not None
    assert "at-most-once cannot be shown" in found.attention.reason
    assert stage.calls() == ["create"]
    offered = {option.choice for option in stage.ledger.choices(operation.operation_id)}
    assert offered == {"bind", "not-created", "resend", "close"}
    (job,) = stage.jobs(operation)
    stage.ledger.resolve(operation.operation_id, "bind", job=job, reason="seen in the provider's own console")
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.wire("create")) == 1


# --- the list ---------------------------------------------------------------------------------------------------------


def test_all_pages_are_read_before_a_verdict(stage: Stage) -> None:
    """Our job stands on the last of the pages, among those of others."""
    others = [stage.submit(flavour="body", _seconds=30) for _ in range(3)]
    stage.run(5)
    stage.contract("body", {'limit = "50"': 'limit = "1"'})
    stage.sim.control(drop_next="create")
    operation = stage.submit(flavour="body", _seconds=30)
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    (accepted,) = stage.told(operation, "Accepted")
    assert "1 of 4 items on 4 pages" in accepted["comparison"]
    assert len({stage.show(op).remote_job_id for op in (*others, operation)}) == 4
    stage.honest()


def test_a_list_that_goes_round_in_a_circle_proves_nothing(stage: Stage) -> None:
    """Loops end the look-up; what it did not see may be there."""
    stage.contract("body", LIST_ONLY, create="3m")
    stage.sim.control(drop_before_next="create", list_loops=True)
    operation = stage.submit(flavour="body", _seconds=30)
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.exhausted) == (State.CREATE_UNKNOWN, True)
    assert any("circle" in data["why"] for data in stage.told(operation, "Inconclusive"))
    assert "ProvenAbsent" not in stage.kinds(operation)
    assert len(stage.wire("create")) == 1
    per_look = len(stage.wire("list")) / len(reconciled(stage, operation))
    assert per_look <= 2


def test_jobs_older_than_our_first_send_are_never_adopted(stage: Stage) -> None:
    """A finished job of last week under our very reference is not ours. But neither is it proof that ours is nowhere:
    as long as it stands there, nothing is created again. Then it is gone, and our own job is found.
    """
    stage.contract("body", LIST_ONLY, create="3m")
    operation = stage.submit(flavour="body", _seconds=30)
    old = {
        "id": "job_of_last_week",
        "client_ref": operation.operation_id,
        "state": "succeeded",
        "created_at": to_rfc3339(stage.clock.now() - timedelta(days=7)),
    }
    stage.sim.control(drop_before_next="create", answer_next=[listed(stage, old)] * 2)
    stage.run()
    found = stage.show(operation)
    assert found.state is State.SUCCEEDED
    assert "job_of_last_week" not in found.jobs
    doubts = [data["why"] for data in stage.told(operation, "Inconclusive") if data.get("why")]
    assert sum("made before our first send" in why for why in doubts) == 2
    assert len(stage.jobs(operation)) == 1
    stage.honest()


def test_absence_counts_only_after_the_settle_time(stage: Stage) -> None:
    """A look-up that finds nothing too early is no proof: the job shows up later, and there is one."""
    stage.contract("body", {**LIST_ONLY, 'settle = "1s"': 'settle = "2m"'})
    stage.sim.control(drop_next="create", answer_next=[listed(stage)])
    operation = stage.submit(flavour="body", _seconds=600)
    stage.until_state(operation, State.OBSERVING)
    first, second = (from_rfc3339(entry["time"]) for entry in stage.wire("list"))
    assert second - first >= timedelta(seconds=110)
    assert len(stage.wire("create")) == 1
    stage.honest()


def test_a_job_is_looked_for_only_once_it_can_be_visible(stage: Stage) -> None:
    """The provider shows new jobs late; before that a look says nothing and is not made."""
    stage.contract("body", {**LIST_ONLY, 'visibility_lag = "500ms"': 'visibility_lag = "90s"'})
    stage.sim.control(drop_next="create")
    operation = stage.submit(flavour="body", _seconds=600)
    stage.until_state(operation, State.OBSERVING)
    (created,), (looked, *_) = ([from_rfc3339(e["time"]) for e in stage.wire(kind)] for kind in ("create", "list"))
    assert looked - created >= timedelta(seconds=90)


@pytest.mark.parametrize("broken", ["shape", "html", "dropped", "items unread"])
def test_a_look_up_that_cannot_be_read_proves_nothing(file_stage: Stage, broken: str) -> None:
    """What cannot be read is never taken for absence: no create leaves until a whole look-up was made."""
    stage = file_stage
    stage.contract("body", LIST_ONLY, create="5m")
    stage.sim.control(drop_before_next="create")
    bad: dict[str, Any] = {
        "shape": {"kind": "list", "status": 200, "body": {"jobs": []}},
        "html": {"kind": "list", "status": 200, "body": "<html></html>", "content_type": "text/html"},
        "items unread": listed(stage, {"id": "job_1", "state": "running"}),
        "dropped": {"kind": "list", "cut": True},
    }[broken]
    stage.sim.control(answer_next=[bad] * 3)
    operation = stage.submit(flavour="body", _seconds=30)
    stage.run()
    assert stage.show(operation).state is State.SUCCEEDED
    calls = stage.calls()
    assert calls[:5] == ["create", "list", "list", "list", "list"]
    assert len(stage.jobs(operation)) == 1
    stage.honest()


@pytest.mark.parametrize("before", [True, False], ids=["not taken", "taken"])
def test_a_provider_that_asks_to_wait_gets_its_time(stage: Stage, before: bool) -> None:
    """A create answered with 503 and Retry-After may have arrived: the resend waits as it was asked to (I20)."""
    busy = {"kind": "create", "status": 503, "body": {}, "headers": {"retry-after": "60"}, "before": before}
    stage.sim.control(answer_next=busy)
    operation = stage.submit(_seconds=30)
    stage.run()
    first, second = (from_rfc3339(entry["time"]) for entry in stage.wire("create", operation))
    assert second - first >= timedelta(seconds=60)
    assert stage.show(operation).state is State.SUCCEEDED
    assert len(stage.jobs(operation)) == 1


@pytest.mark.parametrize("flavour", ["body", "header"])
def test_a_busy_gateway_says_nothing_of_what_stands_behind_it(stage: Stage, flavour: str) -> None:
    """503 with Retry-After reads like 429, and is not "not taken" (I5): the create went through."""
    if flavour == "body":
        stage.contract("body", LIST_ONLY)
    stage.sim.control(answer_next={"kind": "create", "status": 503, "body": {}, "headers": {"retry-after": "30"}})
    operation = stage.submit(flavour=flavour, _seconds=30)
    stage.run()
    assert "CallLost" in stage.kinds(operation)
    assert "Throttled" not in stage.kinds(operation)
    assert len(stage.jobs(operation)) == 1


NO_WAITS = {'settle = "1s"': 'settle = "0s"', 'visibility_lag = "500ms"': 'visibility_lag = "0s"'}
SOMEBODY_ELSES = {"id": "job_x", "client_ref": "somebody else", "state": "running"}


@pytest.mark.parametrize("status", [404, 410, 500])
def test_a_page_that_is_missing_is_not_the_end_of_the_list(stage: Stage, status: int) -> None:
    """A cursor that went stale: what was not read may hold our job, so that nothing is proven (I5)."""
    stage.contract("body", {**LIST_ONLY, **NO_WAITS})
    gone = {"kind": "list", "status": status, "body": {"error": {"code": "no_such_page", "message": "?"}}}
    stage.sim.control(drop_next="create", answer_next=[listed(stage, SOMEBODY_ELSES, following="2"), gone])
    operation = stage.submit(flavour="body", _seconds=30)
    stage.run()
    assert "ProvenAbsent" not in stage.kinds(operation)
    assert len(stage.wire("create", operation)) == 1
    stage.honest()


def test_a_list_is_as_old_as_its_first_page(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settle time passes while the pages are read: what the first one could not show yet is not absent (I5)."""
    stage.contract("body", {**LIST_ONLY, **NO_WAITS, 'settle = "1s"': 'settle = "2m"'})
    read = lookups.read_page

    def slow(*what: Any, **more: Any) -> Any:
        stage.passes(130)
        return read(*what, **more)

    monkeypatch.setattr(lookups, "read_page", slow)
    stage.sim.control(drop_next="create", answer_next=[listed(stage, SOMEBODY_ELSES)])
    operation = stage.submit(flavour="body", _seconds=600)
    stage.until_state(operation, State.OBSERVING)
    assert "ProvenAbsent" not in stage.kinds(operation)
    assert len(stage.wire("create", operation)) == 1


def test_the_first_send_is_remembered_beyond_a_proof_of_absence(stage: Stage) -> None:
    """The token's window runs from there, whatever was proven since (I4)."""
    stage.contract("body", LIST_ONLY)
    stage.sim.control(drop_before_next="create")
    operation = stage.submit(flavour="body", _seconds=30)
    stage.run()
    assert "ProvenAbsent" in stage.kinds(operation)
    first = next(event for event in stage.ledger.events(operation.operation_id) if event.kind == "CallSent")
    assert stage.show(operation).first_sent_at == first.at
