"""Lies about states, time, deadlines, fences and plans."""

from __future__ import annotations

from typing import Any

from tests.checker.honest import SECOND, Tale, stamp
from tests.checker.lies import arrived, change, cut_at, find, follows, insert, lie, standing
from tests.checker.machine import HUMAN

# --- states -----------------------------------------------------------------------------------------------------------


@lie("I13")
def jumped_to_a_state(tale: Tale) -> bool:
    event = find(tale, "Accepted")
    if event is None:
        return False
    event["to"] = "result_collecting"
    return True


@lie("I13")
def moved_by_a_remark(tale: Tale) -> bool:
    event = find(tale, "Noted")
    if event is None:
        return False
    event["from"], event["to"] = standing(tale, event), "resolved"
    return True


@lie("I13")
def jumped_to_cancelled(tale: Tale) -> bool:
    event = find(tale, "CancelAnswered")
    if event is None:
        return False
    cut_at(tale, event, "cancelled")
    return True


@lie("I13")
def left_a_final_state(tale: Tale) -> bool:
    if tale.state not in ("succeeded", "cancelled"):
        return False
    insert(tale, None, "DeadlinePassed", {"which": "result"}, **{"from": tale.state, "to": "result_timed_out"})
    return True


@lie("I13")
def withdrew_a_running_job(tale: Tale) -> bool:
    event = find(tale, "Observed", means="running")
    if event is None or event["to"] is not None:
        return False
    event["kind"], event["data"] = "Withdrawn", {"by": "olga"}
    event["from"] = standing(tale, event)
    cut_at(tale, event, "withdrawn")
    return True


@lie("I14")
def left_another_state_than_it_was_in(tale: Tale) -> bool:
    event = next((one for one in tale.events if one["from"] == "accepted"), None)
    if event is None:
        return False
    event["from"] = "observing"
    return True


@lie("I13")
def created_after_a_cancel_was_wanted(tale: Tale) -> bool:
    event = find(tale, "CancelRequested")
    if event is None or standing(tale, event) != "create_pending":
        return False
    data = {"action": "create", "attempt": 2, "call_id": "call_more", "may_create": True}
    insert(tale, follows(tale, event), "CallSent", data, cause="call:call_more")
    return True


@lie("I13")
def sent_again_although_a_cancel_was_wanted(tale: Tale) -> bool:
    event = find(tale, "CallSent", strategy="list")
    if event is None or find(tale, "CancelRequested") is None or standing(tale, event) != "create_unknown":
        return False
    if tale.events.index(event) < tale.events.index(find(tale, "CancelRequested") or event):
        return False
    event["data"].update(strategy="resend", may_create=True)
    return True


@lie("I15")
def took_a_result_before_the_job_had_succeeded(tale: Tale) -> bool:
    event = find(tale, "Observed", means="running")
    if event is None or standing(tale, event) != "observing" or find(tale, "Observed", means="succeeded"):
        return False
    event["kind"] = "ResultAccepted"
    result = {"location": "/r", "size": 1, "sha256": "0", "validated": True}
    event["data"], event["from"] = {"call_id": event["data"]["call_id"], "result": result}, "observing"
    cut_at(tale, event, "succeeded")
    return True


def _result(tale: Tale, **values: Any) -> bool:
    event = find(tale, "ResultAccepted")
    if event is None:
        return False
    event["data"]["result"].update(values)
    return True


@lie("I15")
def took_a_result_that_was_not_valid(tale: Tale) -> bool:
    return _result(tale, validated=False)


@lie("I15")
def took_a_result_that_is_nowhere(tale: Tale) -> bool:
    return _result(tale, location=None)


@lie("I15")
def took_a_result_without_its_checksum(tale: Tale) -> bool:
    return _result(tale, sha256=None)


@lie("I15")
def took_no_result(tale: Tale) -> bool:
    return change(tale, "ResultAccepted", {"result": None})


@lie("I18")
def took_a_webhooks_word(tale: Tale) -> bool:
    event = find(tale, "Observed", means="succeeded")
    if event is None or event["to"] is None:
        return False
    event["data"] = {"job_id": tale.job, "means": "succeeded", "remote_state": "succeeded", "delivery": "msg_1"}
    event["cause"] = "webhook:msg_1"
    return True


def _refusal(tale: Tale, status: int) -> bool:
    event, entry = find(tale, "Refused"), arrived(tale, "create", status=422)
    if event is None or entry is None:
        return False
    event["data"]["status"] = entry["status"] = status
    return True


@lie("I16")
def failed_by_409(tale: Tale) -> bool:
    return _refusal(tale, 409)


@lie("I16")
def failed_by_401(tale: Tale) -> bool:
    return _refusal(tale, 401)


@lie("I16")
def failed_by_500(tale: Tale) -> bool:
    return _refusal(tale, 500)


@lie("I16")
def failed_by_a_word_that_means_running(tale: Tale) -> bool:
    return change(tale, "Observed", {"means": "running"}, means="failed")


# --- time, deadlines, fences and plans --------------------------------------------------------------------------------


@lie("I5")
def failed_by_a_deadline_with_a_call_open(tale: Tale) -> bool:
    event = find(tale, "NotDelivered")
    if event is None or find(tale, "DeadlinePassed", which="create") is None:
        return False
    tale.events.remove(event)
    return True


@lie("I5")
def withdrew_with_a_call_open(tale: Tale) -> bool:
    event = find(tale, "NotDelivered")
    if event is None or tale.state != "withdrawn" or find(tale, "Withdrawn") is None:
        return False
    tale.events.remove(event)
    return True


@lie("I21")
def ran_into_a_deadline_that_had_not_passed(tale: Tale) -> bool:
    event = find(tale, "DeadlinePassed")
    if event is None:
        return False
    event["data"]["deadline"] = stamp(event["at"] + 5 * SECOND)
    return True


@lie("I21")
def made_a_deadline_shorter(tale: Tale) -> bool:
    event = find(tale, "DeadlinePassed", which="result")
    if event is None or find(tale, "Decided") is not None:
        return False
    event["data"]["deadline"] = stamp(tale.events[0]["at"] + SECOND)
    return True


@lie("I21")
def planned_nothing(tale: Tale) -> bool:
    event = find(tale, "Accepted")
    if event is None:
        return False
    event["next"] = None
    return True


@lie("I21")
def planned_a_call_at_no_time(tale: Tale) -> bool:
    event = find(tale, "Observed", means="running")
    if event is None or event["next"] is None:
        return False
    event["next"] = {**event["next"], "kind": "observe", "at": None}
    return standing(tale, event) not in HUMAN


@lie("I21")
def stopped_half_way(tale: Tale) -> bool:
    event = find(tale, "Accepted")
    if event is None:
        return False
    del tale.events[tale.events.index(event) + 1 :]
    return True


@lie("I10")
def let_the_fence_go_back(tale: Tale) -> bool:
    event = find(tale, "LeaseTaken")
    if event is None:
        return False
    data = {**event["data"], "epoch": event["data"]["epoch"] - 1}
    insert(tale, follows(tale, event), "LeaseTaken", data, cause="lease")
    return True


@lie("I10")
def used_a_fence_twice(tale: Tale) -> bool:
    event = find(tale, "LeaseTaken")
    if event is None:
        return False
    insert(tale, follows(tale, event), "LeaseTaken", dict(event["data"]), cause="lease")
    return True


@lie("I28")
def let_time_go_back(tale: Tale) -> bool:
    event = find(tale, "Observed")
    if event is None:
        return False
    tale.events[tale.events.index(event) - 1]["at"] += 30 * SECOND
    return True


@lie("I13")
def did_it_for_no_cause(tale: Tale) -> bool:
    tale.events[-1]["cause"] = ""
    return True


@lie("I13")
def did_it_as_nobody(tale: Tale) -> bool:
    tale.events[-1]["actor"] = {"kind": "worker", "name": ""}
    return True


@lie("I9")
def asked_for_a_cancel_without_a_reason(tale: Tale) -> bool:
    event = find(tale, "CancelRequested")
    if event is None:
        return False
    event["reason"] = None
    return True


@lie("I9")
def asked_for_a_cancel_as_nobody(tale: Tale) -> bool:
    return change(tale, "CancelRequested", {"by": ""})


@lie("I9")
def cancelled_unasked(tale: Tale) -> bool:
    event = find(tale, "CancelRequested")
    if event is None or find(tale, "CallSent", action="cancel") is None or find(tale, "Decided") is not None:
        return False
    tale.events.remove(event)
    return True


@lie("I8")
def permitted_a_second_cancel(tale: Tale) -> bool:
    event = find(tale, "CancelAnswered")
    if event is None or find(tale, "Decided", choice="cancel") is not None:
        return False
    data = {"action": "cancel", "attempt": 2, "call_id": "call_more"}
    insert(tale, follows(tale, event), "CallSent", data, cause="call:call_more")
    return True
