from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import evidence as e
from opledger.rules import pulse
from opledger.rules.model import Action
from opledger.rules.pulse import Beat, Pulse
from opledger.rules.shapes import Event

T0 = datetime(2026, 11, 29, 14, 22, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Told:
    """One event, whose it is, and what is planned by it."""

    operation: int
    contract: str
    evidence: e.Evidence
    at: float  #: seconds after T0
    due: float | None = None


def moment(seconds: float) -> datetime:
    """That many seconds after T0."""
    return T0 + timedelta(seconds=seconds)


def event(evidence: e.Evidence, at: datetime, before: str, name: str) -> Event:
    """An event as the journal shows it, in a chain."""
    data = e.to_data(evidence)
    return Event(1, at, "w1", "worker", evidence.kind, None, None, "c", None, None, data, before, name)


def fed(story: Sequence[Told]) -> Pulse:
    """A pulse that has heard a story."""
    beats = Pulse()
    heads: dict[int, str] = {}
    for number, told in enumerate(story):
        before = heads.get(told.operation, "0" * 64)
        heads[told.operation] = f"{number + 1:064x}"
        shown = event(told.evidence, moment(told.at), before, heads[told.operation])
        beats.feed(told.contract, shown, None if told.due is None else moment(told.due))
    return beats


def sent(call_id: str, action: Action, *, may_create: bool = False) -> e.CallSent:
    """The permit of a call."""
    return e.CallSent(call_id, action, "POST", "https://x.test", 1, may_create=may_create)


# --- a recount that keeps everything -------------------------------------------------------------------------------

ANSWERS: dict[str, type[e.Answered]] = {
    "creates": e.Accepted,
    "reads": e.Observed,
    "cancels": e.CancelAnswered,
    "collects": e.ResultAccepted,
}


def recount(story: Sequence[Told], sorts: dict[str, str], contract: str, now: float, minutes: int) -> Beat:
    """The figures, counted from the whole story with the whole memory of it. `sorts`: what each call was for."""
    seconds = {index: math.floor((moment(told.at) - T0).total_seconds() + 30) for index, told in enumerate(story)}
    here = math.floor((moment(now) - T0).total_seconds() + 30)  # T0 is half a minute past a minute
    mine = [index for index, told in enumerate(story) if told.contract == contract]
    first: dict[str, int] = {}
    for index, told in enumerate(story):
        call_id = getattr(told.evidence, "call_id", None)
        if call_id is not None:
            first.setdefault(call_id, index)
    calls = {index: sorts[call_id] for call_id, index in first.items() if index in mine}
    bad = [index for index in mine if story[index].evidence.kind in {"ReadFailed", "CallLost", "Throttled"}]
    late = []
    for index in calls:
        before = [one for one in range(index) if story[one].operation == story[index].operation]
        if before and story[before[-1]].due is not None:
            due = moment(story[before[-1]].due or 0)
            if here - 600 < seconds[index] <= here:
                late.append(max(moment(story[index].at) - due, timedelta(0)))
    late.sort()

    def within(indices: Sequence[int], span: int) -> list[int]:
        return [index for index in indices if here - span < seconds[index] <= here]

    def of_minute(indices: Sequence[int], back: int) -> int:
        return sum(seconds[index] // 60 == here // 60 - back for index in indices)

    of_sort = {sort: len([one for one in within(list(calls), 60) if calls[one] == sort]) for sort in ANSWERS}
    all_calls, all_bad = len(within(list(calls), 600)), len(within(bad, 600))
    return Beat(
        calls=tuple(of_minute(list(calls), back) for back in reversed(range(minutes))),
        errors=tuple(of_minute(bad, back) for back in reversed(range(minutes))),
        **of_sort,
        error_share=min(all_bad / all_calls, 1.0) if all_calls else None,
        late_p50=late[math.ceil(len(late) * 0.5) - 1] if late else None,
        late_p95=late[math.ceil(len(late) * 95 / 100) - 1] if late else None,
    )


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Told], dict[str, str]]:
    """Calls of a few operations of two providers, some with a permit, some failing, among events that are no calls."""
    story: list[Told] = []
    sorts: dict[str, str] = {}
    at = 0.0
    for number in range(draw(st.integers(0, 25))):
        operation = draw(st.integers(0, 3))
        contract = "ab"[operation % 2]
        sort = draw(st.sampled_from([*ANSWERS, "none"]))
        at += draw(st.sampled_from([0.0, 0.25, 1.0, 29.5, 61.0, 400.0]))
        due = draw(st.none() | st.sampled_from([at - 1, at, at + 0.5, at + 30]))
        if sort == "none":
            story.append(Told(operation, contract, e.Noted("x"), at, due))
            continue
        call_id = f"call_{number}"
        sorts[call_id] = sort
        if sort in {"creates", "cancels"}:
            action = Action.CANCEL if sort == "cancels" else draw(st.sampled_from([Action.CREATE, Action.RECONCILE]))
            permit = sent(call_id, action, may_create=sort == "creates")
            story.append(Told(operation, contract, permit, at, due))
            at += draw(st.sampled_from([0.0, 0.5, 70.0]))
        kind = draw(st.sampled_from([ANSWERS[sort], e.ReadFailed, e.Throttled]))
        more: dict[str, Any] = {} if kind is ANSWERS[sort] else {"action": _action(sort)}
        story.append(Told(operation, contract, kind(call_id=call_id, **more), at, due))
    return story, sorts


def _action(sort: str) -> Action:
    return {"creates": Action.CREATE, "cancels": Action.CANCEL, "collects": Action.COLLECT}.get(sort, Action.OBSERVE)


@given(stories(), st.sampled_from([-75.0, 0.0, 0.75, 30.0, 59.0, 600.0]), st.sampled_from([1, 3, 30]))
def test_the_figures_are_those_of_a_recount(
    told: tuple[list[Told], dict[str, str]], later: float, minutes: int
) -> None:
    """Counting as events come forgets nothing that a window of the present needs."""
    story, sorts = told
    now = (story[-1].at if story else 0.0) + later
    beats = fed(story)
    for contract in "ab":
        assert beats.of(contract, moment(now), minutes) == recount(story, sorts, contract, now, minutes)


# --- single points -------------------------------------------------------------------------------------------------


def test_nothing_known_is_zeros() -> None:
    """A provider without events has a flat line and no share of nothing."""
    beat = Pulse().of("x", T0, 2)
    assert beat == Beat((0, 0), (0, 0), 0, 0, 0, 0, None, None, None)


@pytest.mark.parametrize(("asked", "shown"), [(0, 1), (-5, 1), (10**9, pulse.MINUTES)])
def test_a_foolish_width_is_put_right(asked: int, shown: int) -> None:
    """A line of a milliard points is no line."""
    assert len(Pulse().of("x", T0, asked).calls) == shown


def test_an_answer_is_no_second_call() -> None:
    """One create is a permit and an answer."""
    story = [Told(1, "x", sent("c1", Action.CREATE, may_create=True), 0), Told(1, "x", e.Accepted(call_id="c1"), 1)]
    beat = fed(story).of("x", moment(2))
    assert (beat.calls[-1], beat.creates, beat.reads, beat.error_share) == (1, 1, 0, 0.0)


@pytest.mark.parametrize(
    ("answer", "sort"),
    [
        (e.Accepted(call_id="c"), "creates"),
        (e.CallLost(call_id="c"), "creates"),
        (e.CallLost(call_id="c", action=Action.CANCEL), "cancels"),
        (e.CancelAnswered(call_id="c"), "cancels"),
        (e.Inconclusive(call_id="c"), "reads"),
        (e.ReadFailed(call_id="c"), "reads"),
        (e.ReadFailed(call_id="c", action=Action.COLLECT), "collects"),
        (e.ResultMissing(call_id="c"), "collects"),
        (e.PartialAttached(call_id="c"), "collects"),
    ],
)
def test_an_answer_whose_permit_was_not_seen_is_a_call_of_its_kind(answer: e.Answered, sort: str) -> None:
    """A console is opened in the middle of things."""
    beat = fed([Told(1, "x", answer, 0)]).of("x", moment(0))
    assert {name: getattr(beat, name) for name in ANSWERS} == {**dict.fromkeys(ANSWERS, 0), sort: 1}


def test_lateness_is_measured_from_the_plan_before() -> None:
    """From the planned time to the permit, and not to the answer; too early is not late."""
    story = [
        Told(1, "x", e.Noted("plan"), 0, due=10),
        Told(1, "x", sent("c1", Action.CREATE), 12, due=13),
        Told(1, "x", e.Accepted(call_id="c1"), 90, due=100),
        Told(2, "x", e.Noted("plan"), 0, due=200),
        Told(1, "x", e.Observed(call_id="c2"), 99),
    ]
    beat = fed(story).of("x", moment(99))
    assert (beat.late_p50, beat.late_p95) == (timedelta(0), timedelta(seconds=2))


def test_a_clock_that_runs_ahead_does_not_wipe_the_present() -> None:
    """One wrong time takes one place in memory and no more."""
    story = [Told(1, "x", e.Observed(call_id=f"c{number}"), number) for number in range(5)]
    story.insert(3, Told(2, "x", e.Observed(call_id="ahead"), 10**8))
    assert fed(story).of("x", moment(5)).calls[-1] == 5


def test_damaged_data_is_no_call() -> None:
    """What somebody broke in the journal must not break the line."""
    beats = Pulse()
    odd: list[dict[str, Any] | None] = [None, {}, {"call_id": 3}, {"call_id": "c", "action": []}]
    for number, data in enumerate(odd):
        beats.feed("x", replace(event(e.Noted("x"), T0, f"{number}", f"{number + 1}"), data=data))
    assert beats.of("x", T0).calls[-1] == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console stays open for weeks over millions of operations."""
    for name in ("OPERATIONS", "MINUTES", "SECONDS", "SAMPLES", "PROVIDERS"):
        monkeypatch.setattr(pulse, name, 5)
    story = []
    for number in range(60):
        story.append(Told(number, f"x{number % 7}", e.Noted("plan"), number * 61, due=number * 61 + 1))
        story.append(Told(number, "x", e.Observed(call_id=f"c{number}"), number * 61 + 2, due=number * 61 + 9))
    beats = fed(story)
    kept = beats._providers["x"]
    sizes = [len(beats._due), len(beats._calls), len(kept.minutes), len(kept.seconds), len(kept.late)]
    assert sizes == [5, 5, 5, 5, 5]
    assert beats.of("x", moment(59 * 61 + 2)).calls[-1] == 1


def test_providers_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has been known longest goes first, and an event that is known is not counted as another."""
    monkeypatch.setattr(pulse, "PROVIDERS", 2)
    beats = fed([Told(number, f"x{number}", e.Observed(call_id=f"c{number}"), 0) for number in range(3)])
    assert [beats.of(f"x{number}", T0).calls[-1] for number in range(3)] == [0, 1, 1]
