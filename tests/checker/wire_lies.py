"""Lies about what arrived at the provider, and about permits and answers."""

from __future__ import annotations

from tests.checker.honest import BODY, SECOND, Data, Tale, stamp
from tests.checker.lies import again, arrived, change, cut_at, find, follows, insert, lie, standing

# --- what arrived at the provider -------------------------------------------------------------------------------------


@lie("I7")
def sent_without_a_permit(tale: Tale) -> bool:
    event = find(tale, "CallSent", action="create")
    if event is None or arrived(tale, "create") is None:
        return False
    tale.events.remove(event)
    return True


@lie("I7")
def created_twice_under_one_permit(tale: Tale) -> bool:
    return again(tale, "create", started=False, effect="repeated", status=202)


@lie("I2")
def started_two_jobs_under_one_token(tale: Tale) -> bool:
    found = find(tale, "Accepted", how="resend") is not None and arrived(tale, "create", effect="repeated") is not None
    entry = arrived(tale, "create", effect="repeated")
    if not found or entry is None or find(tale, "ProvenAbsent") or find(tale, "Decided", choice="resend"):
        return False
    entry["started"], entry["effect"] = True, "started"
    return True


@lie("I1")
def sent_before_the_permit_was_recorded(tale: Tale) -> bool:
    event, entry = find(tale, "CallSent", action="create"), arrived(tale, "create")
    if event is None or entry is None:
        return False
    entry["time"] = event["at"] - 1
    return True


@lie("I1")
def sent_before_the_operation_was_recorded(tale: Tale) -> bool:
    entry = arrived(tale, "create")
    if entry is None:
        return False
    entry["time"] = tale.events[0]["at"] - 100
    return True


@lie("I1")
def created_what_nobody_recorded(tale: Tale) -> bool:
    return again(tale, "create", headers={}, token="tok_elsewhere", client_ref="op_elsewhere")


@lie("I9")
def cancelled_what_nobody_recorded(tale: Tale) -> bool:
    return again(tale, "cancel", headers={}, token="tok_elsewhere", client_ref="op_elsewhere")


@lie("I2")
def sent_another_body(tale: Tale) -> bool:
    entry = arrived(tale, "create")
    if entry is None:
        return False
    entry["body_sha256"] = BODY[::-1]
    return True


@lie("I2")
def sent_another_token(tale: Tale) -> bool:
    entry = arrived(tale, "create")
    if entry is None:
        return False
    entry["token"] = "tok_new"
    return True


@lie("I17")
def cited_an_answer_that_was_never_sent(tale: Tale) -> bool:
    return change(tale, "Accepted", {"status": 201}, status=202)


@lie("I17")
def cited_an_answer_to_a_create_that_never_arrived(tale: Tale) -> bool:
    entry = arrived(tale, "create", status=202)
    if entry is None or find(tale, "Accepted", status=202) is None:
        return False
    tale.log.remove(entry)
    return True


@lie("I5")
def said_not_delivered_of_what_arrived(tale: Tale) -> bool:
    event = find(tale, "NotDelivered", action="create")
    if event is None:
        return False
    tale.log.append({**_request(tale, "create", event["at"] - 1), "started": False, "status": 500})
    return True


@lie("I5")
def said_throttled_of_what_started(tale: Tale) -> bool:
    entry = arrived(tale, "create", status=429)
    if entry is None:
        return False
    entry["started"], entry["job_id"] = True, "job_x"
    return True


@lie("I5")
def withdrew_what_was_accepted(tale: Tale) -> bool:
    if tale.state != "withdrawn":
        return False
    tale.log.append(_request(tale, "create", tale.events[-1]["at"] - 1))
    return True


@lie("I22")
def rejected_what_was_started(tale: Tale) -> bool:
    if tale.state != "rejected":
        return False
    tale.log.append(_request(tale, "create", tale.events[-1]["at"] - 1))
    return True


@lie("I16")
def failed_what_was_started_by_a_deadline(tale: Tale) -> bool:
    if find(tale, "DeadlinePassed", which="create") is None or tale.state != "failed":
        return False
    tale.log.append(_request(tale, "create", tale.events[-1]["at"] - 1))
    return True


@lie("I16")
def refused_what_was_started(tale: Tale) -> bool:
    entry = arrived(tale, "create", status=422)
    if entry is None:
        return False
    entry["started"], entry["job_id"] = True, "job_x"
    return True


def _request(tale: Tale, kind: str, at: int) -> Data:
    made = Tale(tale.rng, tale.name, at=at)
    made.arrives(kind, 202, "started", job_id=f"job_{tale.name}", started=kind == "create")
    return made.log[0]


@lie("I17")
def observed_what_was_never_read(tale: Tale) -> bool:
    if sum(entry["kind"] == "status" for entry in tale.log) != 1 or find(tale, "Observed") is None:
        return False
    tale.log = [entry for entry in tale.log if entry["kind"] != "status"]
    return True


def _other_word(tale: Tale, *words: str) -> bool:
    for word in words:
        entry = arrived(tale, "status", effect=word)
        if entry is not None:
            entry["effect"] = "running"
            return True
    return False


@lie("I15")
def observed_a_success_that_was_none(tale: Tale) -> bool:
    return _other_word(tale, "succeeded")


@lie("I16")
def observed_a_failure_that_was_none(tale: Tale) -> bool:
    return _other_word(tale, "failed", "expired")


@lie("I16")
def observed_a_cancellation_that_was_none(tale: Tale) -> bool:
    return _other_word(tale, "cancelled")


def _bad_status(tale: Tale, means: str, status: int) -> bool:
    event, entry = find(tale, "Observed", means=means), arrived(tale, "status", effect=means)
    if event is None or entry is None or event["to"] is None:
        return False
    event["data"]["status"] = entry["status"] = status
    return True


@lie("I15")
def read_a_500_as_success(tale: Tale) -> bool:
    return _bad_status(tale, "succeeded", 500)


@lie("I16")
def read_a_404_as_failure(tale: Tale) -> bool:
    return _bad_status(tale, "failed", 404)


@lie("I15")
def accepted_a_result_that_was_never_fetched(tale: Tale) -> bool:
    if find(tale, "ResultAccepted") is None:
        return False
    tale.log = [entry for entry in tale.log if entry["kind"] != "result"]
    return True


@lie("I8")
def cancelled_twice_on_the_wire(tale: Tale) -> bool:
    return again(tale, "cancel")


@lie("I9")
def cancelled_before_it_was_asked_for(tale: Tale) -> bool:
    entry, event = arrived(tale, "cancel"), find(tale, "CancelRequested")
    if entry is None or event is None:
        return False
    entry["time"] = event["at"] - 1
    return True


@lie("I3")
def cancelled_another_job(tale: Tale) -> bool:
    entry = arrived(tale, "cancel")
    if entry is None:
        return False
    entry["job_id"] = "job_of_somebody_else"
    return True


@lie("I17")
def cited_a_cancel_answer_that_was_never_sent(tale: Tale) -> bool:
    return change(tale, "CancelAnswered", {"status": 409})


@lie("I20")
def read_before_it_was_due(tale: Tale) -> bool:
    event = find(tale, "Observed", means="running")
    after = None if event is None else follows(tale, event)
    if event is None or after is None or after["kind"] != "Observed":
        return False
    event["next"] = {**event["next"], "at": stamp(after["at"] + SECOND)}
    return True


@lie("I20")
def planned_before_the_provider_wanted(tale: Tale) -> bool:
    event = find(tale, "ReadFailed", code="read_failed")
    if event is None or standing(tale, event) not in ("accepted", "observing"):
        return False
    if tale.deadlines["result"] < event["at"] + 10 * SECOND:
        return False
    event["data"]["retry_at"] = stamp(event["at"] + 4 * SECOND)
    return True


@lie("I3")
def went_on_after_a_violation(tale: Tale) -> bool:
    if tale.state != "contract_violation":
        return False
    tale.log.append(_request(tale, "result", tale.events[-1]["at"] + 60 * SECOND))
    return True


# --- permits and answers ----------------------------------------------------------------------------------------------


@lie("I7")
def used_a_permit_twice(tale: Tale) -> bool:
    permits = [event for event in tale.events if event["kind"] == "CallSent"]
    if len(permits) < 2:
        return False
    old, new = permits[1]["data"]["call_id"], permits[0]["data"]["call_id"]
    for event in tale.events:
        if event["data"].get("call_id") == old:
            event["data"]["call_id"] = new
            event["cause"] = event["cause"].replace(old, new)
    return True


@lie("I7")
def permitted_a_call_while_one_was_open(tale: Tale) -> bool:
    event = find(tale, "CallSent", action="create")
    if event is None:
        return False
    data = {**event["data"], "call_id": "call_second", "attempt": event["data"]["attempt"] + 1}
    insert(tale, follows(tale, event), "CallSent", data, cause="call:call_second")
    return True


@lie("I7")
def counted_an_attempt_wrongly(tale: Tale) -> bool:
    return change(tale, "CallSent", {"attempt": 7})


@lie("I5")
def sent_again_on_a_guess(tale: Tale) -> bool:
    event = find(tale, "CallLost")
    if event is None or event["to"] != "create_unknown":
        return False
    data = {"action": "create", "attempt": 2, "call_id": "call_guess", "may_create": True}
    insert(tale, follows(tale, event), "CallSent", data, cause="call:call_guess")
    return True


@lie("I5")
def read_a_lost_answer_as_a_failure(tale: Tale) -> bool:
    event = find(tale, "CallLost")
    if event is None or event["to"] != "create_unknown":
        return False
    cut_at(tale, event, "failed")
    return True


@lie("I5")
def read_a_lost_answer_as_withdrawn(tale: Tale) -> bool:
    event = find(tale, "CallLost")
    if event is None or event["to"] != "create_unknown":
        return False
    cut_at(tale, event, "withdrawn")
    return True


@lie("I5")
def accepted_without_a_job(tale: Tale) -> bool:
    return change(tale, "Accepted", {"job_id": ""})


@lie("I11")
def took_an_answer_that_came_too_late(tale: Tale) -> bool:
    event = find(tale, "CallLost")
    if event is None or event["to"] != "create_unknown":
        return False
    data = {"call_id": event["data"]["call_id"], "job_id": f"job_{tale.name}"}
    insert(tale, follows(tale, event), "Inconclusive", {**data, "exhausted": True})
    return True


@lie("I17")
def answered_a_call_that_was_never_made(tale: Tale) -> bool:
    event = find(tale, "Accepted")
    if event is None:
        return False
    event["data"]["call_id"] = "call_never"
    event["cause"] = "call:call_never"
    return True


@lie("I17")
def answered_a_cancel_with_a_create(tale: Tale) -> bool:
    event, sent = find(tale, "CancelAnswered"), find(tale, "CallSent", action="cancel")
    if event is None or sent is None:
        return False
    sent["data"]["action"] = "reconcile"
    return True


@lie("I17")
def forgot_the_outcome_of_a_call(tale: Tale) -> bool:
    event = find(tale, "CancelAnswered")
    after = None if event is None else follows(tale, event)
    if event is None or after is None or after["kind"] != "Observed" or after["to"] is None:
        return False
    tale.events.remove(event)
    after["from"] = "cancel_requested"
    return True


@lie("I13")
def cited_evidence_of_another_call(tale: Tale) -> bool:
    event = find(tale, "Observed")
    if event is None or event["data"].get("call_id") is None:
        return False
    event["cause"] = "call:call_of_another"
    return True
