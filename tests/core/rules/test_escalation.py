from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import evidence as e
from opledger.rules.escalation import (
    LONGEST_REPEAT,
    LONGEST_RETRY,
    NEAR,
    Escalation,
    Later,
    Notice,
    Occasion,
    Over,
    Send,
    Severity,
    Target,
    Track,
    TrackState,
    after_sending,
    messages,
    next_step,
    of_operation,
    of_provider,
    repeat_after,
    retry_after,
    severity,
    target_name,
    triage,
)
from opledger.rules.model import Attention, Operation, State
from tests.support.contracts import a_contract
from tests.support.records import OPERATION_ID, T0, Story, a_record, seen

HALF_HOUR = timedelta(minutes=30)
TARGET = Target("oncall")


def at(minutes: float) -> datetime:
    """So many minutes after the attention was raised."""
    return T0 + timedelta(minutes=minutes)


def an_escalation(code: str = "create_unknown", **facts: Any) -> Escalation:
    """Something that wants a person since T0."""
    whole = Escalation(OPERATION_ID, "reports", code, T0, "no way is left", severity(code), OPERATION_ID)
    return replace(whole, **facts)


def a_track(code: str = "create_unknown", **facts: Any) -> Track:
    """What the target was told of it: nothing, unless `facts` say so."""
    return replace(Track("oncall", OPERATION_ID, code, T0, T0, due_at=T0), **facts)


def told(minutes: float = 0, rounds: int = 1, level: Severity = Severity.CRITICAL, **facts: Any) -> Track:
    """It was told then."""
    return a_track(state=TrackState.SENT, sent_at=at(minutes), rounds=rounds, severity=level, **facts)


# --- how urgent --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "level"),
    [
        ("contract_violation cancellation_unconfirmed create_unknown", Severity.CRITICAL),
        ("result_timed_out result_unavailable result_validation_failed", Severity.HIGH),
        ("provider_paused final_state_contradicted delivery_unreadable", Severity.HIGH),
        ("partial_unavailable partial_invalid", Severity.HIGH),  # the record has ended: nothing else shows them
        ("read_failed gone unknown_state throttled not_delivered waiting_human credentials awaiting_approval", "low"),
        ("a_code_of_tomorrow", Severity.LOW),
    ],
)
def test_each_code_has_a_severity(codes: str, level: Severity) -> None:
    """Somebody is woken for what may cost money now, and not for a failed read."""
    assert {severity(code) for code in codes.split()} == {level}


@pytest.mark.parametrize(("left", "level"), [(NEAR, "high"), (NEAR + timedelta(microseconds=1), "low")])
def test_an_approval_is_urgent_near_its_deadline(left: timedelta, level: str) -> None:
    """A wish that expires unread is a wish refused by nobody."""
    op = a_record(
        State.AWAITING_APPROVAL, attention=Attention("awaiting_approval", T0, "policy"), approval_deadline=T0 + left
    )
    found = of_operation(op, T0)
    assert found is not None
    assert (found.severity, found.deadline) == (level, T0 + left)


def test_what_needs_nobody_is_no_escalation() -> None:
    """A record without attention wants nothing."""
    assert of_operation(a_record(), T0) is None


def test_the_most_urgent_stands_first() -> None:
    """Untaken before taken, then severity, then the nearer deadline, then age."""
    low = an_escalation("gone")
    taken = an_escalation(acknowledged_by="jo")
    critical = an_escalation()
    soon = an_escalation("result_timed_out", deadline=at(5))
    later = an_escalation("result_timed_out", deadline=at(9))
    old, young = (an_escalation("result_unavailable", since=at(minutes)) for minutes in (0, 1))
    order = (critical, soon, later, old, young, low, taken)
    for shift in range(len(order)):
        assert triage((*order[shift:], *order[:shift]), T0) == order


def test_an_acknowledgement_lapses() -> None:
    """Whoever fell asleep over it no longer holds it."""
    one = an_escalation(acknowledged_by="jo", acknowledged_until=at(10))
    assert (one.acknowledged(at(9)), one.acknowledged(at(10))) == (True, False)
    assert an_escalation(acknowledged_by="jo").acknowledged(at(10_000))
    assert not an_escalation().acknowledged(T0)


# --- acknowledging, in the record --------------------------------------------------------------------------------


def acknowledged(op: Operation) -> tuple[str | None, datetime | None]:
    """Who holds the attention, and until when."""
    return op.acknowledged_by, op.acknowledged_until


def test_an_acknowledgement_stands_until_the_attention_is_another() -> None:
    """The same trouble in other words is the trouble that was seen; a new one was seen by nobody."""
    story = Story(a_contract())
    story.observing()
    story.tell(seen("odd"))
    op = story.tell(e.Acknowledged("jo", at(60)))
    assert acknowledged(op) == ("jo", at(60))
    assert acknowledged(story.wait(1).tell(seen("odder"))) == ("jo", at(60))
    assert acknowledged(story.tell(e.ReadFailed(code="gone", why="404"))) == (None, None)
    assert acknowledged(story.tell(e.Acknowledged("ana"))) == ("ana", None)
    assert acknowledged(story.tell(seen("running"))) == (None, None)


def test_a_trouble_that_comes_back_was_seen_by_nobody() -> None:
    """The same code once more, after it had ended, is news."""
    story = Story(a_contract())
    story.observing()
    story.tell(seen("odd"), e.Acknowledged("jo"), seen("running"))
    assert acknowledged(story.wait(1).tell(seen("odd"))) == (None, None)


def test_nothing_can_be_acknowledged_in_advance() -> None:
    """Where nothing needs attention, the word is a remark."""
    story = Story(a_contract())
    story.observing()
    assert acknowledged(story.tell(e.Acknowledged("jo"))) == (None, None)


# --- whom to tell ------------------------------------------------------------------------------------------------


def test_a_target_hears_of_its_codes_from_its_severity_on() -> None:
    """Chat gets everything, the pager only what must not wait."""
    pager = Target("pager", least=Severity.HIGH)
    assert [pager.wants(an_escalation(code)) for code in ("create_unknown", "result_timed_out", "gone")] == [1, 1, 0]
    only = Target("only", frozenset({"gone"}))
    assert (only.wants(an_escalation("gone")), only.wants(an_escalation())) == (True, False)


@given(
    st.sampled_from(Severity),
    st.sets(st.sampled_from(["create_unknown", "gone", "awaiting_approval", "provider_paused"])),
    st.sampled_from(["create_unknown", "gone", "awaiting_approval", "provider_paused", "result_timed_out", "odd"]),
    st.integers(0, 180),
)
def test_the_search_misses_nothing_that_is_wanted(least: Severity, on: set[str], code: str, left: int) -> None:
    """The database is asked by codes and deadline; whatever the target wants must pass that sieve."""
    target = Target("t", frozenset(on), least)
    deadline = at(left)
    one = an_escalation(code, deadline=deadline, severity=severity(code, deadline, T0))
    codes = target.listened_for()
    passes = (codes is None or code in codes) and (
        code != State.AWAITING_APPROVAL or deadline <= target.approvals_before(T0)
    )
    assert passes >= target.wants(one)
    if least is not Severity.CRITICAL:
        assert passes == target.wants(one)


def test_the_name_of_a_target_gives_no_secret_away() -> None:
    """It stands in the database and in logs."""
    url = "slack://T0KEN/s3cret"
    assert target_name(url, "oncall", 0) == "oncall"
    assert target_name(url, "oncall", 1) == "oncall/2"
    assert target_name("env:SLACK_URL", None, 0) == "env:SLACK_URL"
    name = target_name(url, None, 0)
    assert name.startswith("slack#")
    assert len(name) == len("slack#") + 8
    assert name != target_name(url + "x", None, 0)


# --- what to say now ---------------------------------------------------------------------------------------------


def test_what_is_new_is_told_at_once() -> None:
    """Whatever its severity, once."""
    for code in ("create_unknown", "gone"):
        assert next_step(a_track(code), an_escalation(code), TARGET, T0) == Send(Occasion.OPENED)
    assert next_step(told(level=Severity.LOW, code="gone"), an_escalation("gone"), TARGET, at(999)) == Later(None)


@pytest.mark.parametrize("standing", [None, an_escalation("gone"), an_escalation(since=at(1))])
def test_what_has_ended_is_not_told(standing: Escalation | None) -> None:
    """A notice of something that is over sends people after nothing; what came in its place has a track of its own."""
    assert next_step(a_track(), standing, TARGET, at(2)) == Over()
    assert next_step(told(), standing, TARGET, at(99)) == Over()


def test_a_target_that_no_longer_wants_it_is_told_nothing() -> None:
    """Settings change while tracks stand."""
    other = Target("oncall", frozenset({"gone"}))
    assert next_step(a_track(), an_escalation(), other, T0) == Over()
    assert next_step(told(), an_escalation(), other, at(99)) == Later(None)


def test_silence_about_something_critical_is_broken_again_and_again() -> None:
    """The wait doubles, so that a weekend does not make a hundred messages."""
    one = an_escalation()
    assert next_step(told(), one, TARGET, at(29)) == Later(at(30))
    assert next_step(told(), one, TARGET, at(30)) == Send(Occasion.REPEATED)
    assert next_step(told(30, rounds=2), one, TARGET, at(89)) == Later(at(90))
    assert next_step(told(30, rounds=2), one, TARGET, at(90)) == Send(Occasion.REPEATED)


def test_what_is_not_critical_is_not_repeated() -> None:
    """Low and high are told once: whoever reads them late still reads them."""
    track = told(level=Severity.HIGH, code="result_timed_out")
    assert next_step(track, an_escalation("result_timed_out"), TARGET, at(99_999)) == Later(None)


def test_an_acknowledgement_silences_until_it_lapses() -> None:
    """Then it is open again, which is said in so many words; the waits begin anew."""
    one = an_escalation(acknowledged_by="jo", acknowledged_until=at(60))
    assert next_step(a_track(), one, TARGET, T0) == Later(at(60))
    assert next_step(told(), one, TARGET, at(45)) == Later(at(60))
    assert next_step(told(0, rounds=4), one, TARGET, at(60)) == Send(Occasion.REOPENED)
    assert after_sending(told(0, rounds=4), one, Occasion.REOPENED, TARGET, at(60)) == (1, at(90))
    assert next_step(told(60), one, TARGET, at(61)) == Later(at(90))
    for_good = an_escalation(acknowledged_by="jo")
    assert next_step(told(), for_good, TARGET, at(99_999)) == Later(None)


def test_a_lapse_opens_again_what_is_not_critical_too() -> None:
    """Somebody promised to look until then."""
    one = an_escalation("gone", acknowledged_by="jo", acknowledged_until=at(60))
    assert next_step(told(level=Severity.LOW, code="gone"), one, TARGET, at(60)) == Send(Occasion.REOPENED)


def test_an_approval_is_told_again_when_its_deadline_is_near() -> None:
    """Once as news, once as urgent."""
    deadline = at(240)

    def standing(now: datetime) -> Escalation:
        code = "awaiting_approval"
        return an_escalation(code, deadline=deadline, severity=severity(code, deadline, now))

    first = after_sending(a_track("awaiting_approval"), standing(T0), Occasion.OPENED, TARGET, T0)
    assert first == (1, deadline - NEAR)
    track = told(level=Severity.LOW, code="awaiting_approval")
    assert next_step(track, standing(at(1)), TARGET, at(1)) == Later(deadline - NEAR)
    assert next_step(track, standing(at(180)), TARGET, at(180)) == Send(Occasion.RAISED)
    assert after_sending(track, standing(at(180)), Occasion.RAISED, TARGET, at(180)) == (2, None)


@given(
    code=st.sampled_from(["create_unknown", "gone", "result_timed_out", "awaiting_approval"]),
    deadline=st.none() | st.integers(1, 5_000),
    ack=st.none() | st.tuples(st.integers(0, 3_000), st.none() | st.integers(1, 3_000)),
)
def test_a_track_never_spins_and_never_sleeps_through(
    code: str, deadline: int | None, ack: tuple[int, int | None] | None
) -> None:
    """Looked at exactly when it asks to be, a track moves on each time, and silence is broken only where it may be."""
    track, due, said = a_track(code), at(0), []
    for _ in range(60):
        if due > at(6_000):
            break
        now, facts = due, {}
        minutes = (now - T0) / timedelta(minutes=1)
        if ack is not None and ack[0] <= minutes:
            facts = {"acknowledged_by": "jo", "acknowledged_until": None if ack[1] is None else at(ack[0] + ack[1])}
        ends = None if deadline is None else at(deadline)
        one = an_escalation(code, deadline=ends, severity=severity(code, ends, now), **facts)
        step = next_step(track, one, TARGET, now)
        assert not isinstance(step, Over)
        if isinstance(step, Send):
            assert not one.acknowledged(now)
            said.append(step.occasion)
            rounds, again = after_sending(track, one, step.occasion, TARGET, now)
            track = replace(track, rounds=rounds, sent_at=now, severity=one.severity)
        else:
            again = step.at
        if again is None:
            break
        assert again > now
        due = again
    else:
        pytest.fail("it spins")
    assert said[:1] == [Occasion.OPENED] or (ack is not None and ack[0] == 0)
    assert said.count(Occasion.RAISED) <= 1
    if code != "create_unknown":
        assert Occasion.REPEATED not in said


@given(st.integers(0, 500), st.integers(1, 100_000))
def test_waits_grow_and_are_capped(count: int, minutes: int) -> None:
    """However long nobody answers, and however long a target is away."""
    target = Target("t", repeat=timedelta(minutes=minutes))
    assert target.repeat <= repeat_after(count, target) <= max(LONGEST_REPEAT, target.repeat)
    assert repeat_after(count, target) <= repeat_after(count + 1, target)
    assert timedelta(seconds=7) < retry_after(count, 0.0) <= LONGEST_RETRY / 2
    assert retry_after(count, 0.5) <= retry_after(count + 1, 0.5) <= LONGEST_RETRY


# --- how to say it -----------------------------------------------------------------------------------------------


def test_a_notice_says_what_since_when_why_and_what_to_do() -> None:
    """Whoever is woken reads one message and knows where to begin."""
    one = an_escalation(state=State.CREATE_UNKNOWN, requested_by="agent-7", deadline=at(5))
    (message,) = messages([Notice(one, Occasion.REPEATED)], 5, T0)
    assert message.title == f"[critical] still not acknowledged: create_unknown: reports {OPERATION_ID}"
    assert message.body.splitlines() == [
        "state: create_unknown",
        "why: no way is left",
        "since: 2026-11-29T12:00:00.000000Z",
        "deadline: 2026-11-29T12:05:00.000000Z",
        "requested by: agent-7",
        f"then: opledger explain {OPERATION_ID}",
    ]
    assert (message.severity, message.covers) == (Severity.CRITICAL, (0,))


def test_a_stopped_provider_is_told_as_one() -> None:
    """Five hundred operations wait for the same thing."""
    (message,) = messages([Notice(of_provider("reports", "w1", "401", T0), Occasion.OPENED)], 5, T0)
    assert message.title == "[high] provider_paused: provider reports"
    assert "calls to reports were stopped by w1: 401" in message.body
    assert "opledger provider resume reports" in message.body


def test_many_at_once_become_one_message() -> None:
    """A page of counts and the few that come first, instead of a pager that never stops."""
    codes = ["gone"] * 4 + ["create_unknown"] * 2
    notices = [Notice(an_escalation(code, since=at(n)), Occasion.OPENED) for n, code in enumerate(codes)]
    assert len(messages(notices[:5], 5, T0)) == 5
    (message,) = messages(notices, 5, T0)
    assert message.title == "[critical] 6 escalations"
    lines = message.body.splitlines()
    assert lines[:2] == ["2 × create_unknown (critical)", "4 × gone (low)"]
    assert lines[4].startswith(f"- create_unknown: reports {OPERATION_ID} since 2026-11-29T12:04")
    assert lines[-1] == "and 1 more; all of them: opledger escalations"
    assert message.covers == (4, 5, 0, 1, 2, 3)


@given(st.lists(st.sampled_from(["gone", "create_unknown", "result_timed_out"]), max_size=12), st.integers(1, 6))
def test_every_notice_is_told_exactly_once(codes: list[str], digest: int) -> None:
    """What no message covers would be marked as told and never heard of."""
    found = messages([Notice(an_escalation(code), Occasion.OPENED) for code in codes], digest, T0)
    assert sorted(index for message in found for index in message.covers) == list(range(len(codes)))
    assert len(found) == (1 if len(codes) > digest else len(codes))


@given(st.text(max_size=400))
def test_a_providers_words_do_nothing_in_a_message(words: str) -> None:
    """They may hold escapes, mentions of everybody, disguised links and new lines that look like ours."""
    evil = words + "<!channel> @everyone \x1b[2J`x`\nthen: rm"
    one = an_escalation(reason=evil, requested_by=evil)
    for message in (
        *messages([Notice(one, Occasion.OPENED)], 5, T0),
        *messages([Notice(one, Occasion.OPENED)] * 2, 1, T0),
    ):
        text = message.title + message.body
        assert not set(text) & set("<>@`|\x1b")
        assert "\nthen: rm" not in text
        assert len(text) < 3_000
