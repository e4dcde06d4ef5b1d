"""What a history alone must show, event by event (reliability §2): I1…I22 in the checker's own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.checker.machine import (
    CANCELS,
    DEADLINES,
    FAILURE,
    HUMAN,
    OUTCOMES,
    RESULTS,
    SUCCESS,
    TERMINAL,
    VIOLATIONS,
    Standing,
    leads,
    learn,
)
from tests.checker.papers import Event, Facts, Finding, Story, micros

Said = Iterator[tuple[str, str]]
"""Invariant and sentence."""

BACKWARDS: Final = 10_000_000
"""How far a time may lie before that of the event before it: writers are several, and what they write is dated before
it is committed, which is tried for as long as a lease lasts."""

CAUSES: Final = ("submit", "call:", "observation:", "deadline:", "human_request:", "webhook:", "recovery", "lease")
PEOPLE: Final = frozenset({"Approved", "Rejected", "Decided"})
MUST_ANSWER: Final = OUTCOMES - VIOLATIONS - frozenset(RESULTS) - {"Inconclusive"}
"""What is said only in answer to a permitted call."""

ANSWERS: Final = {
    "Accepted": ("create", "reconcile"),
    "CompletedInline": ("create", "reconcile"),
    "Refused": ("create", "reconcile"),
    "ProvenAbsent": ("reconcile",),
    "Inconclusive": ("reconcile",),
    "CancelAnswered": ("cancel",),
}
ACTIONS: Final = frozenset({"create", "reconcile", "observe", "cancel", "collect"})


def judge_story(story: Story, facts: Facts, calls: set[str]) -> tuple[Standing, list[Finding]]:
    """Walk through one history. `calls` holds the call ids of all histories so far, and gets those of this one."""
    now = Standing()
    findings: list[Finding] = []
    last = 0

    def say(event: Event, said: Said) -> None:
        findings.extend(Finding(invariant, story.operation, event.seq, text) for invariant, text in said)

    for event in story.events:
        special = _SPECIAL.get(event.kind)
        if special is not None:
            say(event, special(now, event, facts))
        if event.kind in OUTCOMES:
            say(event, _outcome(now, event))
        say(event, _edge(now, event))
        say(event, _plainly(now, event, last))
        if event.kind == "CallSent":
            call = str(event.data.get("call_id"))
            if call in calls:
                say(event, iter([("I7", f"call {call} was permitted before: a permit is used once")]))
            calls.add(call)
        last = event.at if not _late(event) else last
        learn(now, event)
        say(event, _planned(now, event))
    return now, findings


def _late(event: Event) -> bool:
    """Tell whether it tells of an answer that came after the lease was lost: it is dated when the answer came."""
    return "late_kind" in event.data or (event.reason or "").startswith("the answer came after")


# --- every event ------------------------------------------------------------------------------------------------------


def _edge(now: Standing, event: Event) -> Said:
    """Only arrows of the table (I13), and states that follow from each other (I14)."""
    if event.left != (now.state if event.entered is not None else None):
        yield "I14", f"it is said to leave {event.left}, and the state was {now.state}"
    if event.entered is not None and event.entered == event.left:
        yield "I13", f"{event.entered} is left for itself"
    allowed = leads(now, event)
    if event.entered not in allowed:
        where = "before anything was submitted" if now.state is None else f"in {now.state}"
        to = "leaves the state as it is" if event.entered is None else f"leads to {event.entered}"
        yield "I13", f"{event.kind} {where} {to}; the table allows {[one or 'no change' for one in allowed]}"
    if not event.actor or not event.cause.startswith(CAUSES):
        yield "I13", f"{event.kind} says neither who did it nor why: {event.actor!r}, {event.cause!r}"


def _plainly(now: Standing, event: Event, last: int) -> Said:
    if event.at < last - BACKWARDS and not _late(event):
        yield "I28", f"time goes back by {(last - event.at) / 1e6:g} s"
    call = event.data.get("call_id")
    if call is not None and event.cause.startswith("call:") and event.cause not in (f"call:{call}", "call:none"):
        yield "I13", f"it is said to follow from {event.cause} and cites call {call}"
    names_job = event.kind in ("Accepted", "Decided") and event.data.get("job_id") == event.job
    if event.job != now.job and not names_job:
        yield "I3", f"the job changed from {now.job} to {event.job} without a word"


def _planned(now: Standing, event: Event) -> Said:
    """What waits has a time (I21), and no earlier one than the provider asked for (I20)."""
    plan = event.plan
    if now.state in TERMINAL:
        return
    if plan is None or (plan["at"] is None and plan["kind"] not in ("human", "deadline")):
        yield "I21", f"in {now.state} nothing is planned"
        return
    if now.state in HUMAN and now.state != "awaiting_approval" and plan["kind"] not in ("human", "observe"):
        yield "I21", f"{now.state} waits for a person, and {plan['kind']} is planned"
    asked = event.data.get("retry_at")
    if asked is None or plan["at"] is None or plan["kind"] not in ACTIONS or event.entered is not None:
        return
    wanted = micros(asked)
    ends = next((now.deadlines.get(which) for which, states in DEADLINES.items() if now.state in states), None)
    if plan["at"] < wanted - 1000 and (ends is None or wanted + 2_000_000 < ends) and wanted - event.at < 60_000_000:
        yield "I20", f"the provider asked to wait until {asked}, and the next call is planned for earlier"


# --- kinds ------------------------------------------------------------------------------------------------------------


def _submitted(now: Standing, event: Event, facts: Facts) -> Said:
    data = event.data
    needed = ("contract", "fingerprint", "trace_id", "requested_by", "method", "url", "body_sha256")
    missing = [name for name in needed if not data.get(name)]
    missing += [name for name in ("create_timeout", "result_timeout") if not data.get(name, 0) > 0]
    if missing:
        yield "I1", f"the record was written without {', '.join(missing)}"
    if now.first is not None:
        yield "I2", "the operation was submitted a second time"


def _approved(now: Standing, event: Event, facts: Facts) -> Said:
    yield from _person(now, event, facts)
    first, data = now.first, event.data
    if first is None:
        return
    if data.get("fingerprint") != first.data.get("fingerprint"):
        yield "I22", "the approval is for another fingerprint than that of this request"
    if data.get("contract_digest") not in (None, first.data.get("contract_digest")):
        yield "I22", "the approval is for another version of the contract"
    if data.get("by") == first.data.get("requested_by"):
        yield "I22", f"{data.get('by')} approved their own request"
    if data.get("by") in now.approved:
        yield "I22", f"{data.get('by')} approved twice"
    ends = now.deadlines.get("approval")
    if ends is not None and event.at > ends + BACKWARDS:
        yield "I22", "the approval came after its time had run out"


def _person(now: Standing, event: Event, facts: Facts) -> Said:
    if event.actor_kind != "human":
        yield "I22", f"{event.kind} by {event.actor}, who is no person but a {event.actor_kind}"
    if event.data.get("by") != event.actor:
        yield "I22", f"{event.kind} names {event.data.get('by')}, and {event.actor} recorded it"


def _decided(now: Standing, event: Event, facts: Facts) -> Said:
    yield from _person(now, event, facts)
    if not event.reason:
        yield "I22", "a decision without a reason"
    choice, job = event.data.get("choice"), event.data.get("job_id")
    if choice in ("keep", "cancel") and now.state == "contract_violation" and job not in now.jobs:
        yield "I3", f"the decision is about job {job}, which never came up"


def _sent(now: Standing, event: Event, facts: Facts) -> Said:
    data = event.data
    action, call = str(data.get("action")), data.get("call_id")
    if not call:
        yield "I7", "a call was permitted without an id"
    if now.open is not None:
        yield "I7", f"a call was permitted while call {now.open.call} was open"
    if data.get("attempt") != now.counted.get(action, 0) + 1:
        yield "I7", f"this is {action} number {now.counted.get(action, 0) + 1}, and not {data.get('attempt')}"
    if data.get("may_create") or action == "create":
        yield from _creates(now, event, facts)
    if action == "cancel":
        if now.intent is None:
            yield "I9", "a cancel was permitted, and nobody asked for one"
        elif now.cancels >= facts.cancels:
            yield "I8", f"cancel call {now.cancels + 1} under one intent"


def _creates(now: Standing, event: Event, facts: Facts) -> Said:
    resend = event.data.get("action") == "reconcile"
    if len(set(now.approved)) < now.needed:
        yield "I22", f"a create was permitted after {len(set(now.approved))} of {now.needed} approvals"
    if now.unknown and not resend and not now.duplicate:
        yield "I5", "a create was permitted again while the fate of the last one is unknown"
    if resend and (now.first is None or now.first.data.get("token") is None):
        yield "I6", "a create was to be sent again without a token"
    if resend and facts.window is not None and now.created_by is not None:
        age = (event.at - now.created_by) / 1e6
        if age >= facts.window:
            yield "I4", f"the create was sent again {age:g} s after the first, beyond the token's window"
    if resend and now.intent is not None and facts.looks:
        yield "I13", "a create was sent again though a cancel stands and a look-up could tell"


def _accepted(now: Standing, event: Event, facts: Facts) -> Said:
    job = event.data.get("job_id")
    if not job:
        yield "I5", "accepted without a job id: that is an unknown fate"
    elif now.jobs and job not in now.jobs:
        yield "I3", f"job {job} came back, and {', '.join(sorted(now.jobs))} was known: that is a violation"
    if event.data.get("how") in ("get", "list", "singleton") and not event.data.get("comparison"):
        yield "I3", f"job {job} was adopted without saying what was compared"


def _refused(now: Standing, event: Event, facts: Facts) -> Said:
    status = event.data.get("status")
    if status not in facts.refused:
        yield "I16", f"status {status} is no refusal of this request"


def _lost(now: Standing, event: Event, facts: Facts) -> Said:
    if event.entered not in (None, "create_unknown", "cancelling"):
        yield "I5", f"a lost answer was read as {event.entered}"


def _observed(now: Standing, event: Event, facts: Facts) -> Said:
    data = event.data
    means, told = str(data.get("means", "unknown")), data.get("delivery") is not None
    if data.get("job_id") not in (None, now.job) and now.state not in TERMINAL:
        yield "I3", f"a status of job {data.get('job_id')} was read as one of {now.job}"
    if event.entered is None:
        return
    if told and not facts.told:
        yield "I18", "a webhook's word was taken for a status read"
    if not told and data.get("call_id") is None:
        yield "I17", "a state was observed without a call"
    status = data.get("status")
    if not told and (status is None or not 200 <= status < 300):
        invariant = "I15" if means in SUCCESS else "I16"
        yield invariant, f"status {status} was read as {means}"
    ends = {"result_collecting": SUCCESS, "failed": FAILURE, "cancelled": frozenset({"cancelled"})}
    if means not in ends.get(event.entered, (means,)):
        yield ("I15" if event.entered == "result_collecting" else "I16"), f"{means} was read as {event.entered}"


def _cancel_requested(now: Standing, event: Event, facts: Facts) -> Said:
    data = event.data
    if not data.get("by") or not data.get("request_id") or not event.reason:
        yield "I9", "a cancel was asked for without saying who, or why"
    if event.cause != f"human_request:{data.get('request_id')}":
        yield "I9", f"the intent {data.get('request_id')} has {event.cause} as its cause"


def _result(now: Standing, event: Event, facts: Facts) -> Said:
    if not now.seen:
        yield "I15", f"{event.kind} before any status read said that the job had succeeded"
    found = event.data.get("result")
    if event.kind != "ResultAccepted":
        return
    if found is None:
        if event.cause != "call:none":
            yield "I15", "a result was accepted, and none is kept"
        return
    if found.get("location") is None or not found.get("sha256") or found.get("size") is None:
        yield "I15", "a result was accepted that is not stored whole"
    if not found.get("validated"):
        yield "I15", f"a result was accepted that was not valid: {found.get('problems')}"


def _overdue(now: Standing, event: Event, facts: Facts) -> Said:
    which, text = str(event.data.get("which")), event.data.get("deadline")
    moment = None if text is None else micros(text)
    if moment is None or event.at < moment:
        yield "I21", f"the {which} deadline had not passed"
    known = now.deadlines.get(which)
    if known is not None and moment is not None and moment < known:
        yield "I21", f"the {which} deadline of this operation was later than {text}"
    if event.entered in ("failed", "withdrawn") and (now.unknown or now.open is not None):
        yield "I5", f"{event.entered} by a deadline, though a create may have arrived"


def _expired(now: Standing, event: Event, facts: Facts) -> Said:
    ends = now.deadlines.get("approval")
    if ends is None or event.at < ends:
        yield "I21", "the time for an approval had not run out"


def _withdrawn(now: Standing, event: Event, facts: Facts) -> Said:
    if now.unknown or now.open is not None:
        yield "I5", "withdrawn, though a create may have arrived"
    if not event.data.get("by"):
        yield "I9", "withdrawn by nobody"


def _taken(now: Standing, event: Event, facts: Facts) -> Said:
    epoch = event.data.get("epoch")
    if not isinstance(epoch, int) or epoch <= now.epoch:
        yield "I10", f"take-over {epoch} after take-over {now.epoch}: a fence only grows"


_SPECIAL: Final[dict[str, Callable[[Standing, Event, Facts], Said]]] = {
    "Submitted": _submitted,
    "Approved": _approved,
    "Rejected": _person,
    "Decided": _decided,
    "CallSent": _sent,
    "Accepted": _accepted,
    "Refused": _refused,
    "CallLost": _lost,
    "Observed": _observed,
    "CancelRequested": _cancel_requested,
    "ResultAccepted": _result,
    "ResultAllItemsFailed": _result,
    "ResultInvalid": _result,
    "DeadlinePassed": _overdue,
    "ApprovalExpired": _expired,
    "Withdrawn": _withdrawn,
    "LeaseTaken": _taken,
}


def _outcome(now: Standing, event: Event) -> Said:
    """An outcome ends the call that it answers, and no other (I11, I17)."""
    call, kind = event.data.get("call_id"), event.kind
    if kind in VIOLATIONS:
        return
    permit = now.permits.get(str(call))
    if permit is None:
        if kind in MUST_ANSWER or (kind == "Inconclusive" and call is not None):
            yield "I17", f"{kind} answers call {call}, which was never permitted"
        return
    if permit.outcome is not None:
        yield "I11", f"{kind} answers call {call}, whose fate was {permit.outcome.kind} already"
        return
    expected = ANSWERS.get(kind)
    if expected is not None and permit.action not in expected:
        yield "I17", f"{kind} answers a {permit.action} call"


# --- the end ----------------------------------------------------------------------------------------------------------


def judge_end(story: Story, now: Standing, *, idle: bool) -> list[Finding]:
    """What must hold at the end of a history; `idle`: and once faults have stopped and workers have nothing to do."""
    if not story.events:
        return []
    last = story.events[-1]

    def found(invariant: str, sentence: str) -> Finding:
        return Finding(invariant, story.operation, last.seq, sentence)

    findings = []
    if now.state in TERMINAL | HUMAN and now.open is not None and not _dropped(story, now.open.seq):
        findings.append(found("I17", f"call {now.open.call} has no outcome, and {now.state} was reached"))
    if not idle:
        return findings
    asks = now.state in HUMAN or (now.state == "create_unknown" and _kind(last.plan) == "human")
    if now.state not in TERMINAL and not asks:
        findings.append(found("I21", f"all workers are idle, and it is still {now.state}: {last.plan}"))
    if now.open is not None and now.state not in CANCELS and not _dropped(story, now.open.seq):
        findings.append(found("I17", f"call {now.open.call} never got an outcome"))
    return findings


def _dropped(story: Story, seq: int) -> bool:
    """Tell whether a violation ended everything while the call was under way: its answer is a late one, if it came."""
    return any(event.seq > seq and event.kind in VIOLATIONS for event in story.events)


def _kind(plan: Any) -> str | None:
    return None if plan is None else str(plan["kind"])
