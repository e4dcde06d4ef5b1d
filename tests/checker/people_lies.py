"""Lies about approvals and decisions, and about records, jobs and tokens."""

from __future__ import annotations

from tests.checker.honest import SECOND, Tale
from tests.checker.lies import again, arrived, change, find, insert, later, lie, standing
from tests.checker.machine import TERMINAL

# --- approvals and decisions ------------------------------------------------------------------------------------------


@lie("I22")
def approved_by_who_asked(tale: Tale) -> bool:
    event = find(tale, "Approved")
    if event is None:
        return False
    tale.events[0]["data"]["requested_by"] = event["data"]["by"]
    return True


@lie("I22")
def approved_by_an_agent(tale: Tale) -> bool:
    event = find(tale, "Approved")
    if event is None:
        return False
    event["actor"] = {**event["actor"], "kind": "agent"}
    return True


@lie("I22")
def approved_in_the_name_of_another(tale: Tale) -> bool:
    return change(tale, "Approved", {"by": "somebody-else"})


@lie("I22")
def approved_another_request(tale: Tale) -> bool:
    return change(tale, "Approved", {"fingerprint": "sha256:0"})


@lie("I22")
def approved_another_contract(tale: Tale) -> bool:
    return change(tale, "Approved", {"contract_digest": "sha256:0"})


@lie("I22")
def approved_twice_by_one_person(tale: Tale) -> bool:
    first = find(tale, "Approved", by="ana")
    second = find(tale, "Approved", by="jo")
    if first is None or second is None:
        return False
    second["data"]["by"], second["actor"] = "ana", first["actor"]
    return True


@lie("I22")
def sent_without_an_approval(tale: Tale) -> bool:
    event = find(tale, "Approved")
    if event is None or find(tale, "CallSent", action="create") is None:
        return False
    tale.events.remove(event)
    return True


@lie("I22")
def approved_after_the_time_had_run_out(tale: Tale) -> bool:
    event = find(tale, "Approved")
    if event is None:
        return False
    later(tale, event, 3600 * SECOND)
    return True


@lie("I22")
def decided_by_an_agent(tale: Tale) -> bool:
    event = find(tale, "Decided")
    if event is None:
        return False
    event["actor"] = {**event["actor"], "kind": "agent"}
    return True


@lie("I22")
def decided_by_the_worker(tale: Tale) -> bool:
    event = find(tale, "Decided")
    if event is None:
        return False
    event["actor"] = {"kind": "worker", "name": "worker-1"}
    return True


@lie("I22")
def decided_without_a_reason(tale: Tale) -> bool:
    event = find(tale, "Decided")
    if event is None:
        return False
    event["reason"] = None
    return True


@lie("I21")
def let_an_approval_expire_too_early(tale: Tale) -> bool:
    event = find(tale, "ApprovalExpired")
    if event is None:
        return False
    event["at"] -= 30 * SECOND
    return True


# --- the record, jobs and tokens --------------------------------------------------------------------------------------


@lie("I1")
def recorded_without_a_fingerprint(tale: Tale) -> bool:
    return change(tale, "Submitted", {"fingerprint": None})


@lie("I1")
def recorded_without_a_trace(tale: Tale) -> bool:
    return change(tale, "Submitted", {"trace_id": ""})


@lie("I1")
def recorded_without_a_deadline(tale: Tale) -> bool:
    return change(tale, "Submitted", {"result_timeout": 0})


@lie("I2")
def submitted_twice(tale: Tale) -> bool:
    first = tale.events[0]
    insert(tale, tale.events[1], "Submitted", dict(first["data"]), cause="submit")
    return True


@lie("I6")
def sent_again_without_a_token(tale: Tale) -> bool:
    if find(tale, "CallSent", strategy="resend") is None:
        return False
    tale.events[0]["data"]["token"] = None
    for entry in tale.log:
        entry["token"] = None
    return True


@lie("I6")
def started_twice_where_nothing_can_be_looked_up(tale: Tale) -> bool:
    if not again(tale, "create", started=True, job_id="job_twice") or arrived(tale, "create", started=True) is None:
        return False
    if find(tale, "ProvenAbsent") or find(tale, "Decided", choice="resend"):
        return False
    first = arrived(tale, "create")
    assert first is not None
    tale.events[0]["data"]["token"] = None
    for entry in tale.log:
        entry["token"] = None
    return bool(first["started"])


@lie("I4")
def sent_again_beyond_the_window(tale: Tale) -> bool:
    event = find(tale, "CallSent", strategy="resend")
    if event is None:
        return False
    later(tale, event, 3600 * SECOND)
    return True


@lie("I3")
def changed_the_job_without_a_word(tale: Tale) -> bool:
    event = find(tale, "Observed")
    if event is None:
        return False
    for one in tale.events[tale.events.index(event) :]:
        one["remote_job_id"] = "job_of_somebody_else"
    return True


@lie("I3")
def read_the_status_of_another_job(tale: Tale) -> bool:
    event = find(tale, "Observed")
    if event is None or standing(tale, event) in TERMINAL:
        return False
    event["data"]["job_id"] = "job_of_somebody_else"
    return True


@lie("I3")
def bound_a_job_that_was_never_started(tale: Tale) -> bool:
    event = find(tale, "Accepted")
    if event is None:
        return False
    event["data"]["job_id"] = "job_never"
    for one in tale.events[tale.events.index(event) :]:
        one["remote_job_id"] = "job_never"
    return True


@lie("I3")
def adopted_a_job_older_than_its_create(tale: Tale) -> bool:
    event, entry = find(tale, "Accepted", how="list"), arrived(tale, "create", started=True)
    if event is None or entry is None:
        return False
    entry["time"] = tale.events[0]["at"] - 3600 * SECOND
    return True


@lie("I3")
def adopted_a_job_of_somebody_else(tale: Tale) -> bool:
    event, entry = find(tale, "Accepted", how="list"), arrived(tale, "create", started=True)
    if event is None or entry is None:
        return False
    other = f"{tale.name}_bystander"
    entry.update(headers={}, token=f"tok_{other}", client_ref=other)
    return True


@lie("I3")
def adopted_without_comparing(tale: Tale) -> bool:
    event = find(tale, "Accepted", how="list")
    if event is None:
        return False
    del event["data"]["comparison"]
    return True


@lie("I3")
def took_the_second_of_two_jobs(tale: Tale) -> bool:
    event = find(tale, "Accepted", how="resend")
    if event is None:
        return False
    data = {"text": "a late answer", "late_kind": "Accepted", "late": {"job_id": "job_earlier"}}
    insert(tale, event, "Noted", data, cause="call:call_old")
    return True


@lie("I3")
def decided_for_a_job_that_never_came_up(tale: Tale) -> bool:
    return change(tale, "Decided", {"job_id": "job_never"}, choice="keep")
