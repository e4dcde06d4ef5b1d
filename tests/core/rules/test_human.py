from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.errors import Refused, UsageError
from opledger.rules import evidence as e
from opledger.rules import human
from opledger.rules.choices import choices
from opledger.rules.model import TERMINAL, Action, Actor, ActorKind, Approval, CancelIntent, Choice, OpenCall, State
from opledger.rules.policy import Demand
from opledger.rules.states import TRANSITIONS, advance
from tests.core.rules.operations import NOON, contract, operation

ANA, JO = Actor("ana"), Actor("jo")
AGENT = Actor("agent-7", ActorKind.AGENT)
ASKS = Demand(2)
WAITS = operation(State.AWAITING_APPROVAL, approvals_needed=2)
SENT = {"first_sent_at": NOON, "last_sent_at": NOON}
INTENT = CancelIntent("req_1", "jo", NOON, "too slow")


@pytest.mark.parametrize("name", ["agent", "agent-7", "agent:x", "Agent_1", "agents/4", "agent7"])
def test_agents_are_known_by_name(name: str) -> None:
    """Agents never approve, so whoever bears such a name is taken for one."""
    assert human.actor(name).kind is ActorKind.AGENT


@pytest.mark.parametrize("name", ["ana", "agentur", "jo agent", "reagent-1"])
def test_other_names_are_people(name: str) -> None:
    """A person must not be locked out by a name that merely looks similar."""
    assert human.actor(name).kind is ActorKind.HUMAN


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x1b[2J", "\u202eana"])
def test_a_name_that_nobody_can_read_acts_for_nobody(name: str) -> None:
    """The journal says who acted; a forged or empty name would make it useless."""
    with pytest.raises(UsageError):
        human.actor(name)


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_a_reason_must_say_something(text: str | None) -> None:
    """An empty reason is what people type when they are not asked for one."""
    with pytest.raises(UsageError, match="reason"):
        human.reason(text)


def test_an_approval_is_bound_to_the_fingerprint() -> None:
    """What was approved can be compared before every send."""
    assert human.approval(WAITS, ANA, ASKS) == e.Approved("ana", WAITS.request_fingerprint)
    assert human.approval(WAITS, ANA, ASKS, WAITS.request_fingerprint).by == "ana"


@pytest.mark.parametrize(
    ("who", "demand", "changes", "says"),
    [
        (AGENT, ASKS, {}, "only a person"),
        (ANA, ASKS, {"requested_by": "ana"}, "four eyes"),
        (ANA, ASKS, {"requested_by": "Ana"}, "four eyes"),
        (ANA, ASKS, {"approvals": (Approval("ana", NOON, "ok", "sha256:11"),)}, "already"),
        (ANA, replace(ASKS, approvers=frozenset({"kim"})), {}, "kim"),
        (ANA, replace(ASKS, approvers=frozenset()), {}, "nobody"),
        (ANA, ASKS, {"state": State.CREATE_PENDING}, "not waiting"),
        (ANA, ASKS, {"request_fingerprint": "sha256:22"}, "look at it again"),
    ],
)
def test_approvals_are_refused(who: Actor, demand: Demand, changes: dict[str, Any], says: str) -> None:
    """Each way to approve what one may not approve is closed, and the sentence says why."""
    with pytest.raises(Refused, match=says):
        human.approval(replace(WAITS, **changes), who, demand, "sha256:11")


def test_an_approval_that_comes_too_late_is_refused() -> None:
    """The deadline holds also where no worker has been there to record it; a rejection does no harm."""
    late = replace(WAITS, approval_deadline=NOON)
    with pytest.raises(Refused, match="expired"):
        human.approval(late, ANA, ASKS, now=NOON)
    assert human.approval(late, ANA, ASKS, now=NOON - timedelta(microseconds=1)).by == "ana"
    assert human.rejection(late, ANA, ASKS).by == "ana"


def test_four_eyes_can_be_waived() -> None:
    """A team of one says so in its settings."""
    mine = replace(WAITS, requested_by="ana")
    assert human.approval(mine, ANA, replace(ASKS, four_eyes=False)).by == "ana"
    assert human.rejection(mine, ANA, replace(ASKS, four_eyes=False)).by == "ana"


@pytest.mark.parametrize(("who", "requester"), [(AGENT, "kim"), (ANA, "ana")])
def test_rejections_are_refused(who: Actor, requester: str) -> None:
    """The requester takes the request back instead; agents decide nothing."""
    with pytest.raises(Refused):
        human.rejection(replace(WAITS, requested_by=requester), who, ASKS)


@pytest.mark.parametrize("state", [State.AWAITING_APPROVAL, State.CREATE_PENDING])
@pytest.mark.parametrize("who", [ANA, AGENT])
def test_what_was_never_sent_is_withdrawn(state: State, who: Actor) -> None:
    """Nothing runs, so nothing need be cancelled, even where the provider has no cancel."""
    found = human.cancellation(operation(state), contract(""), who, "req_9", "nothing runs")
    assert found == e.Withdrawn(who.name, "req_9")


def test_an_agent_withdraws_only_its_own() -> None:
    """Withdrawn is for the requester and for operators."""
    with pytest.raises(Refused, match="did not request"):
        human.cancellation(operation(State.CREATE_PENDING, requested_by="kim"), contract(), AGENT, "req_9")


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        (State.CREATE_PENDING, {**SENT, "open_call": OpenCall("call_1", Action.CREATE, NOON)}),
        (State.CREATE_UNKNOWN, SENT),
        (State.RECONCILIATION, SENT),
        (State.ACCEPTED, SENT),
        (State.OBSERVING, SENT),
        (State.OBSERVING, {**SENT, "cancel": INTENT}),
        (State.RESULT_TIMED_OUT, SENT),
    ],
)
def test_a_cancel_is_recorded_where_something_may_run(state: State, facts: dict[str, Any]) -> None:
    """The wish is durable before anything is sent, and the state machine takes it in each of these states."""
    op = operation(state, **facts)
    found = human.cancellation(op, contract(), ANA, "req_9", "it stops")
    assert found == e.CancelRequested("req_9", "ana", "it stops")
    advance(op, found)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (State.CREATE_UNKNOWN, "as soon as it can be"),
        (State.ACCEPTED, "as soon as it can be"),
        (State.CANCEL_REQUESTED, "as soon as it can be"),
        (State.CANCELLATION_UNCONFIRMED, "resolve"),
    ],
)
def test_a_second_cancel_is_told_of_the_first(state: State, says: str) -> None:
    """One intent is sent once; whoever repeats it learns who was first and what became of it."""
    with pytest.raises(Refused, match=rf"by jo at 2026.*{says}"):
        human.cancellation(operation(state, **SENT, cancel=INTENT), contract(), ANA, "req_9")


def test_a_cancel_that_was_sent_is_said_to_be() -> None:
    """Nobody should wait for a call that has long gone out."""
    with pytest.raises(Refused, match="it was sent"):
        human.cancellation(
            operation(State.CANCELLING, **SENT, cancel=replace(INTENT, sent=1)), contract(), ANA, "req_9"
        )


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (State.RESULT_COLLECTING, "result_collecting: the job has succeeded"),
        (State.RESULT_UNAVAILABLE, "opledger resolve"),
        (State.RESULT_VALIDATION_FAILED, "opledger resolve"),
        (State.CONTRACT_VIOLATION, "which job stands"),
        *((state, rf"has ended \({state}\)") for state in sorted(TERMINAL)),
    ],
)
def test_a_cancel_that_can_do_nothing_is_refused(state: State, says: str) -> None:
    """What has ended cannot be stopped, and a violation is for a person to decide."""
    with pytest.raises(Refused, match=says):
        human.cancellation(operation(state, **SENT), contract(), ANA, "req_9")


@pytest.mark.parametrize("state", [State.CREATE_UNKNOWN, State.ACCEPTED, State.OBSERVING, State.RESULT_TIMED_OUT])
def test_a_provider_without_cancel_is_said_to_have_none(state: State) -> None:
    """A wish that can never be sent must not look like one that will be."""
    with pytest.raises(Refused, match="has no cancel"):
        human.cancellation(operation(state, **SENT), contract(""), ANA, "req_9")


def test_an_undelivered_create_can_be_taken_back_without_cancel() -> None:
    """It was provably not accepted, so the standing wish ends in withdrawn and nothing has to be sent."""
    op = operation(State.CREATE_PENDING, **SENT)
    assert isinstance(human.cancellation(op, contract(""), ANA, "req_9"), e.CancelRequested)
    with pytest.raises(Refused, match="has no cancel"):
        human.cancellation(replace(op, duplicate_accepted=True), contract(""), ANA, "req_9")


def test_every_choice_that_is_offered_can_be_taken() -> None:
    """`choices` and the state machine must not contradict each other."""
    from opledger.rules.choices import choices

    taken = set()
    for state in State:
        op = operation(state, **SENT, jobs=("job_a", "job_b"))
        for option in choices(op, contract()):
            found = human.decision(
                op,
                contract(),
                ANA,
                option.choice,
                request_id="req_9",
                job="job_b" if "job" in option.needs else None,
                extend_by=timedelta(minutes=1) if "for" in option.needs else None,
            )
            assert advance(op, found) is option.to
            taken.add((state, option.choice))
    offered_by_table = {
        state for state, cells in TRANSITIONS.items() if e.Decided in cells and state is not State.FAILED
    }
    assert {state for state, _ in taken} == offered_by_table


@pytest.mark.parametrize(
    ("state", "choice", "given", "error", "says"),
    [
        (State.CREATE_UNKNOWN, Choice.BIND, {}, Refused, "--job"),
        (State.CREATE_UNKNOWN, Choice.BIND, {"job": "  "}, Refused, "--job"),
        (State.CREATE_UNKNOWN, Choice.BIND, {"job": "a\x1bb"}, Refused, "--job"),
        (State.CREATE_UNKNOWN, Choice.CLOSE, {"job": "job_a"}, UsageError, "no job"),
        (State.CREATE_UNKNOWN, Choice.CLOSE, {"extend_by": timedelta(1)}, UsageError, "no time"),
        (State.CREATE_UNKNOWN, Choice.KEEP, {"job": "job_a"}, Refused, "bind, not-created, resend, close"),
        (State.CONTRACT_VIOLATION, Choice.KEEP, {"job": "job_z"}, Refused, "job_a"),
        (State.RESULT_TIMED_OUT, Choice.EXTEND, {}, Refused, "--for"),
        (State.RESULT_TIMED_OUT, Choice.EXTEND, {"extend_by": timedelta(0)}, Refused, "--for"),
        (State.OBSERVING, Choice.CLOSE, {}, Refused, "nothing is to be decided"),
        (State.SUCCEEDED, Choice.CLOSE, {}, Refused, "nothing is to be decided"),
    ],
)
def test_decisions_are_refused(
    state: State, choice: Choice, given: dict[str, Any], error: type[Refused], says: str
) -> None:
    """Nothing is decided that was not offered, or without what it needs."""
    op = operation(state, **SENT, jobs=("job_a",))
    with pytest.raises(error, match=says):
        human.decision(op, contract(), ANA, choice, request_id="req_9", **given)


def test_nothing_is_decided_while_a_call_is_under_way() -> None:
    """What comes of it belongs to what is decided on, and a decision would leave the permit without outcome (I17)."""
    call = OpenCall("call_9", Action.CANCEL, NOON)
    op = operation(State.CONTRACT_VIOLATION, **SENT, jobs=("job_a",), open_call=call)
    assert choices(op, contract()) == ()
    with pytest.raises(Refused, match=r"the cancel call .*call_9.* without an outcome.*lease"):
        human.decision(op, contract(), ANA, Choice.CLOSE, request_id="req_9")


def test_agents_decide_nothing() -> None:
    """A program must not overrule what another program could not settle."""
    with pytest.raises(Refused, match="only a person"):
        human.decision(operation(State.CREATE_UNKNOWN), contract(), AGENT, Choice.CLOSE, request_id="req_9")
