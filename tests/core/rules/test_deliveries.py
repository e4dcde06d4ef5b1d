"""A contract without a status read: how it is said, what it promises, and what a delivery may and may not do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from opledger.rules import deliveries
from opledger.rules import evidence as e
from opledger.rules.choices import choices
from opledger.rules.contract import Contract
from opledger.rules.decide import Call, Conclude, Read, Wait, decide, plan
from opledger.rules.evidence import from_data, to_data
from opledger.rules.explain import explain
from opledger.rules.files.contract import ContractInvalid, parse
from opledger.rules.guarantees import guarantees, report_text
from opledger.rules.jsontext import dumps
from opledger.rules.model import Action, Actor, CancelIntent, Choice, Means, Operation, Plan, State
from opledger.rules.projection import Entry, project
from tests.core.rules.operations import CANCEL, NOON, operation

TOLD = """\
name = "jobs"
base_url = "https://api.example.com"
status = "none"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
"""
HOOK = """\
[webhook]
scheme = "standard"
secret = "env:HOOK"
job_id = "/job/id"
token = "/job/ref"
event_type = "/type"
"""
STATES = """\
state = "/job/state"
error = "/job/error"
updated_at = "/at"
progress = { completed = "/job/rows" }
[webhook.states]
running = ["running"]
succeeded = ["done"]
failed = ["failed"]
cancelled = ["cancelled"]
[[webhook.rules]]
when = 'event_type == "job.dropped"'
means = "cancelled"
"""
RESULT = '[result]\nurl = "/job/url"\ncount = "/job/rows"\n'
WORKER = Actor("w1")
ID = "dlv_1"


def contract(more: str = CANCEL) -> Contract:
    """A contract whose provider has no status read."""
    return parse(TOLD + HOOK + STATES + more, environment={})


def problems(source: str) -> list[tuple[str, int | None, str]]:
    """What is wrong: key, line, message."""
    with pytest.raises(ContractInvalid) as caught:
        parse(source, environment={})
    return [(problem.key, problem.line, problem.message) for problem in caught.value.problems]


def keys(source: str) -> list[str]:
    """The keys that are wrong."""
    return [key for key, _, _ in problems(source)]


def record(state: State = State.ACCEPTED, **facts: object) -> Operation:
    """A record that was sent a minute ago."""
    known = {"remote_job_id": "job_1", "jobs": ("job_1",), "first_sent_at": NOON, "accepted_at": NOON}
    deadlines = {"result_deadline": NOON + timedelta(hours=1), "cancel_deadline": NOON + timedelta(minutes=10)}
    return operation(state, **{**known, **deadlines, **facts})


NOTIFIED = e.Notified("webhook", ID, "job.changed", "job_1", "aa" * 32, counts=True)
LATER = NOON + timedelta(minutes=1)


def read(document: object, op: Operation | None = None, told: e.Notified = NOTIFIED, **job: object) -> e.Evidence:
    """Read a delivery with this body, or with these facts of the job in it."""
    body = dumps({"type": told.event_type, "job": {"id": told.job_id, **job}} if document is None else document)
    return deliveries.read(told, LATER, body, op or record(), contract())


# --- the contract ------------------------------------------------------------------------------------------------


def test_what_a_delivery_says_of_its_job_is_read_like_a_status() -> None:
    """The same keys, in [webhook]: pointers into the delivery, a map of words, rules before it."""
    status = contract().status
    assert status.by_delivery
    assert status.path is None
    assert status.words["done"] is Means.SUCCEEDED
    assert [(rule.when.text, rule.means) for rule in status.rules] == [('event_type == "job.dropped"', Means.CANCELLED)]


@pytest.mark.parametrize(
    ("source", "key", "line", "says"),
    [
        (TOLD, "status", 3, "there is no [webhook]"),
        (TOLD + '[webhook]\nscheme = "none"\n', "webhook.scheme", 9, "nobody could ever learn"),
        (TOLD + HOOK, "webhook.state", 8, "is missing, and there are no rules"),
        (TOLD + HOOK + 'state = "/s"\n', "webhook.states", 8, "no word of the provider means anything"),
        (TOLD + HOOK + 'state = "/s"\n[webhook.states]\nfailed = ["x"]\n', "webhook.states", 15, "no job could ever"),
        (TOLD + HOOK + STATES + '[poll]\nmax_silence = "5m"\n', "poll.max_silence", 27, "never polled"),
        (TOLD + 'status_url = "/u"\n' + HOOK + STATES, "create.status_url", 8, "never polled"),
        (TOLD + HOOK + STATES + RESULT + '[safety]\nredact = ["/job/url"]\n', "safety.redact", 30, "hides result.url"),
        (TOLD + HOOK + STATES + '[safety]\nredact = ["/job"]\n', "safety.redact", 27, "hides webhook.state"),
        (TOLD + HOOK + STATES.replace('"/job/state"', '"header:x-state"'), "webhook.state", 14, "JSON Pointer"),
        (TOLD + HOOK + STATES.replace("event_type ==", "headers.x =="), "webhook.rules[0].when", 24, "'headers'"),
        (TOLD.replace('"none"', '"never"') + HOOK, "status", 3, "must be one of none"),
    ],
)
def test_what_cannot_be_is_told_with_key_and_line(source: str, key: str, line: int, says: str) -> None:
    """Without a status read and without deliveries nobody could ever learn anything."""
    (found,) = problems(source)
    assert found[:2] == (key, line)
    assert says in found[2]


def test_beside_a_status_read_a_delivery_is_a_hint_whatever_is_in_it() -> None:
    """Keys that would have no effect are not taken."""
    read_too = TOLD.replace('status = "none"\n', "") + '[status]\npath = "/jobs/{job_id}"\nstate = "/s"\n'
    source = f'{read_too}[status.states]\nsucceeded = ["done"]\n{HOOK}{STATES}'
    expected = {f"webhook.{key}" for key in ("state", "states", "rules", "error", "progress", "updated_at")}
    assert set(keys(source)) == expected
    assert not parse(source.replace(STATES, ""), environment={}).status.by_delivery


def test_the_report_says_plainly_what_deliveries_are_worth() -> None:
    """In the sentences that an approver reads."""
    told = guarantees(contract(CANCEL + RESULT))
    assert told.webhooks["final"] == "the delivery itself, which is lower-grade evidence"
    assert told.cancel["confirmed_by"] == "a delivery that says cancelled"
    assert told.result["where"] == "at the URL that the delivery names at /job/url"
    gaps = " ".join(told.gaps)
    for words in ("There is no status read", "lower-grade evidence", "lost is missed for good", "signature in it"):
        assert words in gaps
    assert "polled" not in gaps
    assert "next poll" not in gaps
    assert "there is no status read, so each is itself the (lower-grade) evidence" in report_text(contract())
    other = guarantees(parse(TOLD + HOOK.replace('job_id = "/job/id"\n', "") + STATES, environment={}))
    assert any("Deliveries do not name the job" in gap for gap in other.gaps)


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "means"), [("running", Means.RUNNING), (" Done ", Means.SUCCEEDED), ("archived", Means.UNKNOWN)]
)
def test_a_word_is_read_by_the_map_and_marked_as_told(word: str, means: Means) -> None:
    """Trimmed and case-folded, as in a status answer; nothing says that it was read."""
    seen = read(None, state=word, rows=7)
    assert isinstance(seen, e.Observed)
    assert (seen.remote_state, seen.means, seen.delivery) == (word, means, ID)
    assert (seen.call_id, seen.status, seen.answer) == (None, None, NOTIFIED.answer)
    assert seen.progress == {"completed": 7}
    assert deliveries.GRADE in seen.notes
    assert from_data("Observed", to_data(seen)) == seen


def test_a_rule_may_go_by_the_kind_of_event() -> None:
    """It may stand in a header, which is kept as the event type."""
    seen = read(None, told=replace(NOTIFIED, event_type="job.dropped"), state="running")
    assert isinstance(seen, e.Observed)
    assert seen.means is Means.CANCELLED


def test_what_says_nothing_of_the_state_changes_nothing() -> None:
    """Most events of most providers are about something else."""
    documents: list[object] = [{"job": {"state": None}}, {}, [], "text"]
    for document in documents:
        said = read(document)
        assert isinstance(said, e.Noted)
        assert "says nothing about the state" in said.text


def test_what_cannot_be_read_is_a_failed_read() -> None:
    """And a person is told at once: nothing else will come."""
    failed = deliveries.read(NOTIFIED, LATER, b'{"job": {"st', record(), contract())
    assert isinstance(failed, e.ReadFailed)
    assert failed.code == deliveries.UNREADABLE
    after = project(told(), entry(failed))
    assert after.attention is not None
    assert after.attention.code == deliveries.UNREADABLE
    assert after.attempts.observe == 0
    assert dict(after.unread) == {}


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.RESULT_COLLECTING, State.RESULT_UNAVAILABLE])
def test_older_news_than_the_end_changes_nothing(state: State) -> None:
    """Deliveries come in any order: running after done is no job come back to life."""
    op = record(state, remote_state="done", remote_means=Means.SUCCEEDED)
    said = read(None, op, state="running")
    assert isinstance(said, e.Noted)
    assert "no end" in said.text


def test_what_is_dated_before_the_newest_known_moves_nothing_back() -> None:
    """Deliveries overtake each other: neither the word nor the progress goes back. An end counts whatever its date."""

    def at(second: int, op: Operation, **job: object) -> e.Evidence:
        return read({"at": f"2026-11-29T12:00:{second:02}Z", "job": {"id": "job_1", **job}}, op)

    op = project(told(), entry(at(20, told(), state="running", rows=5)))
    assert (op.remote_state, op.progress) == ("running", {"completed": 5})
    for older in (at(19, op, state="queued", rows=2), at(1, op, state="no_such_word")):
        assert isinstance(older, e.Noted)
        assert "older than what is known" in older.text
    for fresh in (at(20, op, state="running", rows=6), at(19, op, state="done"), read(None, op, state="running")):
        assert isinstance(fresh, e.Observed)
    undated = project(op, entry(read(None, op, state="running")))
    assert isinstance(at(19, undated, state="running"), e.Noted)


def test_another_end_than_the_known_one_is_a_violation_or_after_the_end_an_attention() -> None:
    """A delivery never rewrites a final state."""
    ended = {"remote_state": "done", "remote_means": Means.SUCCEEDED, "unread": {ID: 5}}
    changed = read(None, record(State.RESULT_COLLECTING, **ended), state="failed")
    assert isinstance(changed, e.FinalStateChanged)
    succeeded = record(State.SUCCEEDED, **ended)
    after = project(succeeded, entry(read(None, succeeded, state="failed")))
    assert (after.state, after.remote_state) == (State.SUCCEEDED, "done")
    assert after.attention is not None
    assert after.attention.code == "final_state_contradicted"


def test_another_job_stops_everything_and_its_delivery_waits_for_a_person() -> None:
    """Which job is meant is not for a program to say (promise 4)."""
    elsewhere = replace(NOTIFIED, job_id="job_2")
    changed = read(None, told=elsewhere, state="done")
    assert isinstance(changed, e.IdentityChanged)
    assert changed.jobs == ("job_1", "job_2")
    stopped = project(told(), entry(changed))
    assert (stopped.state, dict(stopped.unread)) == (State.CONTRACT_VIOLATION, {ID: 5})
    assert not isinstance(decide(stopped, contract(), LATER), Read)
    kept = project(stopped, entry(e.Decided("ana", Choice.KEEP, "job_2"), "human_request:1"))
    assert isinstance(decide(kept, contract(), LATER), Read)
    seen = read(None, kept, elsewhere, state="done")
    assert isinstance(seen, e.Observed)
    assert isinstance(read(None, kept, NOTIFIED, state="done"), e.Noted)
    over = record(State.SUCCEEDED, remote_state="done", remote_means=Means.SUCCEEDED)
    late = project(over, entry(read(None, over, elsewhere, state="done")))
    assert late.attention is not None
    assert late.attention.code == "final_state_contradicted"


def test_a_job_that_turns_up_after_a_refusal_is_an_attention() -> None:
    """The create was refused, and under our token a job runs all the same."""
    refused = record(State.FAILED, remote_job_id=None, jobs=(), unread={ID: 5})
    late = project(refused, entry(read(None, refused, state="running")))
    assert late.state is State.FAILED
    assert late.attention is not None
    assert "job_1 was created" in late.attention.reason


def test_what_was_there_before_the_create_is_about_another_job() -> None:
    """A provider that gives ids anew, and a delivery that was parked for the first bearer of one."""
    parked = replace(NOTIFIED, received_at=NOON - timedelta(minutes=3))
    assert isinstance(read(None, told=parked, state="done"), e.Noted)
    assert isinstance(read({"at": "2026-11-29T11:00:00Z", "job": {"state": "done"}}), e.Noted)
    assert isinstance(read({"at": "2026-11-29T12:00:30Z", "job": {"state": "done"}}), e.Observed)
    assert isinstance(read(None, told=replace(NOTIFIED, received_at=NOON), state="done"), e.Observed)


# --- the record and the decision ---------------------------------------------------------------------------------


def entry(evidence: e.Evidence, cause: str = f"webhook:{ID}", seq: int = 9) -> Entry:
    """The event that records some evidence."""
    return Entry("op_01TESTTESTTESTTESTTEST0001", seq, LATER, WORKER, evidence, cause)


def told(state: State = State.ACCEPTED, **facts: object) -> Operation:
    """A record for which a delivery waits."""
    return record(state, unread={ID: 5}, **facts)


def test_only_a_delivery_that_counts_waits_to_be_read() -> None:
    """Beside a status read it is a hint, and the read that follows says what is so."""
    assert dict(project(record(), entry(NOTIFIED, seq=5)).unread) == {ID: 5}
    assert dict(project(record(), entry(replace(NOTIFIED, counts=False))).unread) == {}
    assert dict(project(told(), entry(e.Noted("a remark"), "recovery")).unread) == {ID: 5}
    assert dict(project(told(), entry(e.Noted("nothing"))).unread) == {}


def test_of_very_many_deliveries_the_newest_wait() -> None:
    """A record stays small whatever comes; the end is told last."""
    op = record(State.CREATE_UNKNOWN)
    for number in range(deliveries.MOST + 3):
        one = replace(NOTIFIED, reference=f"dlv_{number}")
        op = project(op, entry(one, f"webhook:dlv_{number}", seq=number + 5))
    assert len(op.unread) == deliveries.MOST
    assert min(op.unread.values()) == 8


def test_nothing_is_ever_polled_and_the_deadline_goes_on_counting() -> None:
    """There is nothing to do but wait, and at the deadline there is."""
    for state in (State.ACCEPTED, State.OBSERVING):
        waits = decide(record(state), contract(), LATER)
        assert isinstance(waits, Wait)
        assert waits.until == record().result_deadline
        planned = plan(record(state), contract(), NOTIFIED, LATER, 0.5)
        assert planned == Plan("deadline", record().result_deadline, waits.because)
        assert isinstance(decide(record(state), contract(), LATER + timedelta(hours=2)), Conclude)
    sent = record(State.CANCELLING, cancel_deadline=NOON + timedelta(minutes=10))
    assert isinstance(decide(sent, contract(), LATER), Wait)
    assert isinstance(decide(record(State.CANCEL_REQUESTED), contract(""), LATER), Wait)


@pytest.mark.parametrize("state", list(State))
def test_no_state_ever_asks_for_a_status_read(state: State) -> None:
    """Whatever became of a cancel, with or without one at the provider, before and after every deadline."""
    intents = [None, *(CancelIntent("req_1", "ana", NOON, "why", sent=sent, lost=bool(sent)) for sent in (0, 1))]
    for intent in (*intents, CancelIntent("req_1", "ana", NOON, "why", shares="op_2")):
        for found in (contract(), contract(""), contract(CANCEL + "idempotent = true\n" + RESULT)):
            for now in (LATER, LATER + timedelta(days=1)):
                decision = decide(record(state, cancel=intent), found, now)
                assert not (isinstance(decision, Call) and decision.action is Action.OBSERVE)


def test_a_delivery_is_read_at_once_the_oldest_first_and_before_a_deadline() -> None:
    """Whether a worker looks before or after the deadline must not decide what counts."""
    several = record(unread={"dlv_2": 8, ID: 5, "dlv_3": 9})
    assert decide(several, contract(), LATER) == Read(ID, 5, "a delivery has come and is not read yet")
    assert isinstance(decide(several, contract(), LATER + timedelta(hours=2)), Read)
    assert plan(several, contract(), NOTIFIED, LATER, 0.5) == Plan(
        "observe", LATER, "a delivery has come and is not read yet"
    )
    backed_off = replace(several, next=Plan("observe", LATER + timedelta(minutes=5), "later"))
    assert isinstance(decide(backed_off, contract(), LATER), Read)


@pytest.mark.parametrize(
    "state", [State.CREATE_PENDING, State.CREATE_UNKNOWN, State.RECONCILIATION, State.CONTRACT_VIOLATION]
)
def test_it_waits_while_it_is_open_which_job_it_is_about(state: State) -> None:
    """Only an answer to a call of ours binds a job, and only a person says which of several."""
    assert not isinstance(decide(told(state), contract(), LATER), Read)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.RESULT_TIMED_OUT, State.RESULT_UNAVAILABLE])
def test_a_late_one_is_read_too(state: State) -> None:
    """After a deadline it is what was waited for; after the end it may be a contradiction."""
    assert isinstance(decide(told(state), contract(), LATER), Read)
    assert plan(told(state), contract(), NOTIFIED, LATER, 0.5) is not None
    assert plan(record(State.SUCCEEDED), contract(), NOTIFIED, LATER, 0.5) is None


def test_while_the_provider_is_paused_it_waits_but_no_deadline_passes_over_it() -> None:
    """What a stopped provider says does not count now, and is not lost either."""
    paused = Wait(NOON + timedelta(hours=1), "calls to jobs are paused: nonsense")
    assert decide(told(), contract(), LATER, paused="nonsense") == paused
    assert isinstance(decide(told(result_deadline=None), contract(), LATER, paused="nonsense"), Wait)
    for late in (NOON + timedelta(hours=1), LATER + timedelta(hours=2)):
        assert isinstance(decide(told(), contract(), late, paused="nonsense"), Read)


def test_a_delivery_is_no_answer_to_a_cancel_that_was_lost() -> None:
    """An old "running" would have it sent again; only a status read after it could."""
    how = CANCEL + "idempotent = true\n"
    lost = CancelIntent("req_1", "ana", NOON, "why", sent=1, lost=True)
    op = told(State.CANCELLING, cancel=lost)
    after = project(op, entry(read(None, op, state="running")))
    assert after.cancel == lost
    assert isinstance(decide(after, contract(how), LATER), Wait)


def test_what_told_of_the_end_names_the_result() -> None:
    """And a later word of another end does not take that away."""
    done = project(told(), entry(read(None, told(), state="done")))
    assert (done.state, done.told) == (State.RESULT_COLLECTING, NOTIFIED.answer)
    assert decide(done, contract(RESULT), LATER) == Call(
        Action.COLLECT, "the job succeeded; its result is to be fetched"
    )
    missing = replace(done, state=State.RESULT_UNAVAILABLE, unread={ID: 5})
    other = replace(NOTIFIED, answer="bb" * 32)
    assert project(missing, entry(read(None, missing, other, state="failed"))).told == NOTIFIED.answer
    assert project(missing, entry(read(None, missing, other, state="done"))).told == other.answer


def test_the_explanation_and_the_choices_promise_no_poll() -> None:
    """Nobody is told to read what cannot be read."""
    for op in (record(), record(State.OBSERVING, remote_state="running"), record(State.CANCELLING)):
        why = explain(op, contract(), LATER, events=()).why
        assert "poll" not in why
        assert "status read can" not in why
    late = explain(record(State.RESULT_TIMED_OUT), contract(), LATER, events=())
    assert "opledger read" not in late.why
    assert "Deliveries are waited for" in late.choices[0].consequence
    due = explain(told(), contract(), LATER, events=(), workers_alive=False)
    assert due.blocked_by is not None
    assert due.blocked_by.code == "no_worker"
    assert due.next == Plan("observe", LATER, "a delivery has come and is not read yet")
    assert all("poll" not in option.consequence for option in choices(record(State.CREATE_UNKNOWN), contract()))
