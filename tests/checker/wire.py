"""What the provider's log says about a history: every request must have been allowed, and every answer must exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tests.checker.machine import FAILURE, SUCCESS, VIOLATIONS, Permit, Standing
from tests.checker.papers import Event, Facts, Finding, Request, Story

NOT_TAKEN: Final = frozenset({"NotDelivered", "Throttled", "Refused"})
"""Outcomes by which a create provably started nothing."""

MUTATES: Final = frozenset({"create", "cancel"})
EARLY: Final = 20_000
"""How much sooner than planned a call may be seen, in microseconds: two processes read the clock."""

STRAY: Final = 5_000_000
"""How long a read that was under way when automation stopped may take to arrive."""

Said = Iterator[tuple[str, int | None, str]]
"""Invariant, event and sentence."""


def owners(stories: Mapping[str, Story]) -> tuple[dict[str, str], dict[str, str]]:
    """Return whose trace ids and whose tokens there are."""
    traces, tokens = {}, {}
    for name, story in stories.items():
        if story.events:
            first = story.events[0].data
            traces[str(first.get("trace_id"))] = name
            if first.get("token") is not None:
                tokens[str(first["token"])] = name
    return traces, tokens


def sort_out(
    stories: Mapping[str, Story], log: Iterable[Request], archived: frozenset[str]
) -> tuple[dict[str, list[Request]], list[Finding]]:
    """Give every request to the operation that it was made for; what belongs to none is a finding."""
    traces, tokens = owners(stories)
    found: dict[str, list[Request]] = {}
    findings: list[Finding] = []
    before = 0
    for request in log:
        if request.number != before + 1:
            findings.append(Finding("I17", None, None, f"request {before + 1} is missing in the provider's log"))
        before = request.number
        if request.origin != "provider" and request.credentials:
            findings.append(Finding("I25", None, None, f"request {request.number} took credentials to another origin"))
        owner = traces.get(request.trace or "") or tokens.get(request.token or "")
        if owner is None and request.reference in stories:
            owner = request.reference
        if owner is not None:
            found.setdefault(owner, []).append(request)
        elif request.kind in MUTATES and request.reference not in archived:
            invariant = "I1" if request.kind == "create" else "I9"
            sentence = f"{request.kind} {request.number} arrived, and no operation was recorded that wants it"
            findings.append(Finding(invariant, request.reference, None, sentence))
    return found, findings


def judge_wire(story: Story, now: Standing, requests: list[Request], facts: Facts, apart: int) -> list[Finding]:
    """Judge one operation by what arrived at the provider for it; `apart`: how far their two clocks may differ."""
    if now.first is None:
        return []
    permits = list(now.permits.values())
    said: list[tuple[str, int | None, str]] = []
    creating = [permit for permit in permits if permit.creates]
    creates = [request for request in requests if request.kind == "create"]
    pairs = _paired("create", creating, creates, said, apart)
    said += _bodies(now, creates, apart)
    for permit in creating:
        said += _create_answered(permit, pairs.get(permit.call), apart)
    said += _jobs(now, creates, pairs, creating)
    said += _fates(story, now, creates)
    said += _cancels(now, [one for one in permits if one.action == "cancel"], requests, apart)
    said += _reads(story, requests, apart)
    said += _results(story, requests, facts, apart)
    said += _stopped(story, requests)
    said += _polite(story, requests, EARLY + apart)
    return [Finding(invariant, story.operation, seq, sentence) for invariant, seq, sentence in said]


def _paired(
    what: str, permits: list[Permit], requests: list[Request], said: list[tuple[str, int | None, str]], apart: int
) -> dict[str, Request]:
    """Say which request used which permit (I1, I7): the newest that was not used, and that fits the answer if any does.

    Where clocks differ, a permit may look younger than its request.
    """
    pairs: dict[str, Request] = {}
    for request in requests:
        free = [one for one in permits if one.call not in pairs]
        older = [one for one in reversed(free) if one.at <= request.at]
        nearly = [one for one in free if request.at < one.at <= request.at + apart]
        standing = [*_fitting(older, request), *_fitting(nearly, request), *older, *nearly]
        if standing:
            pairs[standing[0].call] = request
        elif free:
            said.append(("I1", free[0].seq, f"{what} {request.number} left before its permit was recorded"))
            pairs[free[0].call] = request
        else:
            said.append(("I7", None, f"{what} {request.number} arrived, and every permit was used before"))
    return pairs


def _fitting(permits: list[Permit], request: Request) -> list[Permit]:
    return [one for one in permits if one.outcome is not None and one.outcome.data.get("status") == request.status]


def _bodies(now: Standing, creates: list[Request], apart: int) -> Said:
    """One token, one body (I2)."""
    assert now.first is not None
    first = now.first.data
    for request in creates:
        if request.body != first.get("body_sha256"):
            yield "I2", 1, f"create {request.number} carried other bytes than were recorded"
        if request.token is not None and request.token != first.get("token"):
            yield "I2", 1, f"create {request.number} carried another token than was recorded"
        if request.at + apart < now.first.at:
            yield "I1", 1, f"create {request.number} arrived before the operation was recorded"


def _create_answered(permit: Permit, request: Request | None, apart: int) -> Said:
    """Whatever is cited of an answer must stand in the provider's log."""
    event = permit.outcome
    if event is None:
        return
    status, kind = event.data.get("status"), event.kind
    if request is None:
        if status is not None:
            yield "I17", event.seq, f"{kind} cites an answer of status {status} to a create that never arrived"
        return
    if kind == "NotDelivered":
        yield "I5", event.seq, f"the create was said not to have arrived; it is number {request.number} in the log"
    if status is not None and status != request.status:
        yield "I17", event.seq, f"{kind} cites status {status}; the provider answered {request.status}"
    if kind in ("Throttled", "Refused") and request.started:
        yield "I5", event.seq, f"{kind} says that nothing was started; create {request.number} started {request.job}"
    if kind == "Accepted" and request.fault is None and event.data.get("job_id") != request.job:
        yield "I17", event.seq, f"job {event.data.get('job_id')} was not in the answer, {request.job} was"
    if event.at + apart < request.at and status is not None:
        yield "I17", event.seq, f"{kind} is older than the create that it answers"


def _jobs(now: Standing, creates: list[Request], pairs: Mapping[str, Request], permits: list[Permit]) -> Said:
    """One wish starts one job (I2), and without a token no create is sent twice on a guess (I6)."""
    assert now.first is not None
    if now.duplicate or now.absent:
        return  # a person let it be sent again, or it was proven that there was no first
    token = now.first.data.get("token")
    started = [request for request in creates if request.started]
    if len(started) > 1 and not any(request.personality == "token_ignoring" for request in creates):
        jobs = ", ".join(str(one.job) for one in started)
        yield ("I6" if token is None else "I2"), None, f"it started {len(started)} jobs: {jobs}"
    taken = [one for one in permits if one.call in pairs and _kind(one.outcome) not in NOT_TAKEN]
    if token is None and len(taken) > 1:
        yield "I6", taken[1].seq, "a second create left although nothing could tell what became of the first"


def _kind(event: Event | None) -> str | None:
    return None if event is None else event.kind


def _fates(story: Story, now: Standing, creates: list[Request]) -> Said:
    """An end that says that nothing runs must be true (I5, I16, I22)."""
    started = [request for request in creates if request.started]
    ending = next((event for event in reversed(story.events) if event.entered is not None), None)
    if ending is None or not started:
        return
    job = started[0].job
    if now.state == "withdrawn":
        yield "I5", ending.seq, f"it was withdrawn, and the provider had started {job}"
    elif now.state == "rejected":
        yield "I22", ending.seq, f"it was rejected, and the provider had started {job}"
    elif now.state == "failed" and ending.kind in ("Refused", "DeadlinePassed"):
        yield "I16", ending.seq, f"it failed by {ending.kind}, and the provider had started {job}"


def _cancels(
    now: Standing, permits: list[Permit], requests: list[Request], apart: int
) -> list[tuple[str, int | None, str]]:
    """Cancels follow an intent, each under its own permit, and go to our job (I8, I9)."""
    cancels = [request for request in requests if request.kind == "cancel"]
    said: list[tuple[str, int | None, str]] = []
    if len(cancels) > len(permits):
        text = f"{len(cancels)} cancels arrived, {len(permits)} were permitted, {len(now.intents)} were asked for"
        said.append(("I8", None, text))
    pairs = _paired("cancel", permits, cancels, said, apart)
    for request in cancels:
        if not now.intents or request.at + apart < now.intents[0]:
            said.append(("I9", None, f"cancel {request.number} arrived before anybody had asked for one"))
        if request.job is not None and request.job not in now.jobs:
            said.append(("I3", None, f"cancel {request.number} went to job {request.job}, which is not ours"))
    for permit in permits:
        event, sent = permit.outcome, pairs.get(permit.call)
        if event is None or event.data.get("status") is None:
            continue
        if sent is None or sent.status != event.data["status"]:
            said.append(("I17", event.seq, f"{event.kind} cites a status {event.data['status']} that nobody sent"))
    return said


def _reads(story: Story, requests: list[Request], apart: int) -> Said:
    """Every status that was read must have been sent, before it was recorded, and with that word (I15, I16, I17)."""
    free = [request for request in requests if request.kind == "status"]
    for event in story.events:
        data = event.data
        status = data.get("status")
        read = event.kind == "Observed" or (event.kind == "ReadFailed" and data.get("action", "observe") == "observe")
        if not read or status is None or data.get("delivery") is not None:
            continue
        sent = [one for one in free if one.status == status and one.at <= event.at + apart]
        word = data.get("remote_state")
        honest = [one for one in sent if one.fault is not None or event.kind != "Observed" or one.effect == word]
        if not sent:
            yield "I17", event.seq, f"{event.kind} cites a status read answered with {status} that never arrived"
        elif not honest:
            means = data.get("means")
            invariant = "I15" if means in SUCCESS else "I16" if means in FAILURE | {"cancelled"} else "I17"
            yield invariant, event.seq, f"the provider never said {word!r}: it said {sent[-1].effect!r}"
        else:
            free.remove(honest[-1])


def _results(story: Story, requests: list[Request], facts: Facts, apart: int) -> Said:
    """A result that was accepted was fetched: by its own request, or with the status that it is a part of (I15)."""
    kinds = ("result", "foreign", "status", "create") if facts.inline else ("result", "foreign")
    fetched = [one for one in requests if one.kind in kinds and one.status in (200, 206, 302)]
    for event in story.events:
        if event.kind != "ResultAccepted" or event.data.get("call_id") is None:
            continue
        if not any(one.at <= event.at + apart for one in fetched):
            yield "I15", event.seq, "a result was accepted that was never fetched"


def _stopped(story: Story, requests: list[Request]) -> Said:
    """Once a promise was broken nothing leaves but reads of the status, until a person has decided (I3)."""
    since: Event | None = None
    for event in story.events:
        if event.kind in VIOLATIONS and event.entered == "contract_violation":
            since = event
        elif event.kind == "Decided" and since is not None:
            yield from _strays(since, event.at, requests)
            since = None
    if since is not None:
        yield from _strays(since, None, requests)


def _strays(since: Event, until: int | None, requests: list[Request]) -> Said:
    for request in requests:
        between = since.at + STRAY < request.at and (until is None or request.at < until)
        if between and request.kind in ("create", "cancel", "result"):
            yield "I3", since.seq, f"{request.kind} {request.number} left after {since.kind} had stopped everything"


def _polite(story: Story, requests: list[Request], early: int) -> Said:
    """No status is read before it is due (I20). Where several events stand at one moment, any plan of theirs counts."""
    events, place = story.events, 0
    for request in requests:
        if request.kind != "status":
            continue
        while place + 1 < len(events) and events[place + 1].at <= request.at:
            place += 1
        event = events[place]
        planned = None if event.plan is None else event.plan["at"]
        if planned is None or event.plan is None or event.plan["kind"] != "observe":
            continue
        if event.at + early < request.at < planned - early:
            sooner = (planned - request.at) / 1000
            yield "I20", event.seq, f"status read {request.number} came {sooner:g} ms before it was due"


def judge_jobs(stories: Mapping[str, Story], standings: Mapping[str, Standing]) -> list[Finding]:
    """One job is one operation's (I3), and tokens are nobody else's (I2)."""
    holders: dict[tuple[str, str], str] = {}
    tokens: dict[tuple[str, str], str] = {}
    findings: list[Finding] = []
    for name, now in standings.items():
        if now.first is None:
            continue
        contract = str(now.first.data.get("contract"))
        token = now.first.data.get("token")
        if token is not None:
            other = tokens.setdefault((contract, token), name)
            if other != name:
                findings.append(Finding("I2", name, 1, f"its token is that of {other}"))
        if now.job is None:
            continue
        other = holders.setdefault((contract, now.job), name)
        if other != name and not any(_violated(stories[one]) for one in (name, other)):
            findings.append(Finding("I3", name, None, f"job {now.job} is that of {other} as well"))
    return findings


def _violated(story: Story) -> bool:
    return any(event.kind in VIOLATIONS or event.data.get("late_kind") in VIOLATIONS for event in story.events)


def judge_adoption(standings: Mapping[str, Standing], found: Mapping[str, list[Request]], apart: int) -> list[Finding]:
    """A job that an operation took for its own was started for it, and not before it was asked for (I3)."""
    begun: dict[str, list[tuple[str, int]]] = {}
    for name, requests in found.items():
        for request in requests:
            if request.kind == "create" and request.started and request.job is not None:
                begun.setdefault(request.job, []).append((name, request.at))
    findings = []
    for name, now in standings.items():
        accepted = [one.outcome for one in now.permits.values() if _kind(one.outcome) == "Accepted"]
        for event in accepted:
            assert event is not None
            job = str(event.data.get("job_id"))
            ours = [at for owner, at in begun.get(job, ()) if owner == name]
            if not begun.get(job):
                findings.append(Finding("I3", name, event.seq, f"the provider never started job {job}"))
            elif not ours:
                findings.append(Finding("I3", name, event.seq, f"job {job} was started for {begun[job][0][0]}"))
            elif now.created_by is not None and ours[0] + apart < now.created_by:
                findings.append(Finding("I3", name, event.seq, f"job {job} is older than the first create"))
    return findings
