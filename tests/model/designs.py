"""Broken designs: the rules or the worker's shell with one guarantee taken away. Each must be caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from opledger.errors import Refused
from opledger.rules import answers, choices, decide, human, lookups, pages, projection, states
from opledger.rules import evidence as e
from opledger.rules.choices import Option
from opledger.rules.contract import Contract
from opledger.rules.decisions import AskHuman, Call, Conclude, Wait
from opledger.rules.model import SUCCESS_MEANS, Action, Choice, Deadline, Means, Operation, State
from opledger.rules.states import Arrow
from tests.model import world
from tests.model.scenarios import SCENARIOS
from tests.model.search import Found, explore
from tests.model.world import Model, Shell

S = State
Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Design:
    """One broken design, and the small world in which it does harm."""

    name: str
    scenario: str
    patch: Patch = nullcontext
    shell: Shell | None = None
    slow: bool = False  #: its shortest trace is long; not in the default test run


def run(design: Design, *, states: int = 400_000) -> Found:
    """Search the design's world until a law is broken."""
    with design.patch():
        return explore(Model(SCENARIOS[design.scenario], design.shell), states=states)


# --- how rules are broken ----------------------------------------------------------------------------------------


def table(cells: dict[tuple[State, type[e.Evidence]], tuple[Arrow, ...] | None]) -> Patch:
    """Other cells of the transition table; None takes one out."""

    @contextmanager
    def patched() -> Iterator[None]:
        before = {state: dict(states.TRANSITIONS[state]) for state, _ in cells}
        try:
            for (state, kind), arrows in cells.items():
                if arrows is None:
                    states.TRANSITIONS[state].pop(kind, None)
                else:
                    states.TRANSITIONS[state][kind] = arrows
            yield
        finally:
            # Whole, so that the order is the old one too: the README's diagram is printed in it.
            for state, row in before.items():
                states.TRANSITIONS[state].clear()
                states.TRANSITIONS[state].update(row)

    return patched


def cell(state: State, kind: type[e.Evidence], *arrows: Arrow) -> Patch:
    """One other cell."""
    return table({(state, kind): arrows or None})


def to(state: State) -> tuple[Arrow, ...]:
    """A cell that leads to one state, whatever else is known."""
    return (Arrow(state),)


def function(owner: Any, name: str, other: Any) -> Patch:
    """Another function, method or value in place of one of the product's."""

    @contextmanager
    def patched() -> Iterator[None]:
        before = getattr(owner, name)
        setattr(owner, name, other)
        try:
            yield
        finally:
            setattr(owner, name, before)

    return patched


def entry(mapping: Any, key: Any, other: Any) -> Patch:
    """Another entry in one of the product's tables of functions."""

    @contextmanager
    def patched() -> Iterator[None]:
        before = mapping[key]
        mapping[key] = other
        try:
            yield
        finally:
            mapping[key] = before

    return patched


def both(*patches: Patch) -> Patch:
    """Several patches at once."""

    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one())
            yield

    return patched


# --- what stands in their place ----------------------------------------------------------------------------------

_LOST, _BOUND, _ABSENT = answers._lost, answers._bound, lookups._absent
_STATUS, _MEANS, _PLAN, _CHOICES = answers.read_status, pages.means_of, decide.plan, choices.choices


def _undelivered(why: str, facts: Any, *, resend: bool, retry_at: Any = None) -> e.Evidence:
    return _LOST(why, facts, resend=True) if resend else e.NotDelivered(**facts, action=Action.CREATE, why=why)


def _error_is_no(why: str, facts: Any, *, resend: bool, retry_at: Any = None) -> e.Evidence:
    if facts.get("status") == 503:
        return e.Refused(**facts, why=why)
    return _LOST(why, facts, resend=resend, retry_at=retry_at)


def _status_404(means: Means) -> Any:
    def read(outcome: Any, op: Operation, contract: Contract, **facts: Any) -> answers.Reading:
        if getattr(outcome, "status", None) == 404:
            seen = e.Observed(facts["call_id"], job_id=op.remote_job_id, remote_state="404", means=means)
            return answers.Reading(seen)
        return _STATUS(outcome, op, contract, **facts)

    return read


def _unmapped(means: Means) -> Any:
    def read(contract: Contract, word: str) -> Means:
        found = _MEANS(contract, word)
        return means if found is Means.UNKNOWN else found

    return read


def _any_id(page: Any, facts: Any, job_id: str, how: str, *, replay: bool) -> e.Evidence:
    return e.Accepted(**facts, job_id=job_id, how=how, replay=replay)


def _nothing_settles(search: Any, op: Operation, now: Any, facts: Any) -> e.Evidence:
    return e.ProvenAbsent(**facts, strategy="list")


def _settles_from_first(search: Any, op: Operation, now: Any, facts: Any) -> e.Evidence:
    return _ABSENT(search, replace(op, last_sent_at=op.first_sent_at), now, facts)


def _always(*_: Any, **__: Any) -> bool:
    return True


def _never(*_: Any, **__: Any) -> bool:
    return False


def _since_last(op: Operation, contract: Contract, now: Any) -> bool:
    window = contract.resend_window
    return window is not None and op.last_sent_at is not None and now < op.last_sent_at + window


def _unused_permit(op: Operation) -> Conclude:
    call = op.open_call
    assert call is not None
    undone = e.NotDelivered(call_id=call.call_id, action=call.action, why="nobody knows")
    return Conclude(undone, "recovery", "")


def _permit_forgotten(op: Operation) -> Call:
    return Call(Action.CREATE, "try again")


def _insists(op: Operation, contract: Contract, now: Any) -> Any:
    if op.cancel is not None and op.cancel.lost and op.cancel.sent < 5:
        return Call(Action.CANCEL, "again")
    return Call(Action.OBSERVE, "look")


def _takes_for_granted(op: Operation, contract: Contract, now: Any) -> Any:
    return Conclude(e.ResultAccepted(), "call:none", "it succeeded")


def _nobody_asked(op: Operation, contract: Contract, now: Any) -> Any:
    return Wait(None, "something will come")


def _creates_again(op: Operation, contract: Contract, now: Any) -> Any:
    return Call(Action.CREATE, "the answer was lost: once more")


def _cancels_on(op: Operation, contract: Contract, now: Any) -> Any:
    return Call(Action.CANCEL, "stop it") if contract.cancel is not None else AskHuman(op.state, "?")


def _no_plan(op: Operation, *rest: Any) -> Any:
    return None if op.state is S.OBSERVING else _PLAN(op, *rest)


def _impatient(op: Operation, contract: Contract, evidence: Any, now: Any, jitter: float) -> Any:
    return now, "at once"


def _withdraws(op: Operation, contract: Contract, who: Any, request_id: str, *_: Any) -> e.Evidence:
    if op.state is S.CREATE_PENDING:
        return e.Withdrawn(who.name, request_id)
    raise Refused("not in this design")


def _one_is_enough(operation: Any, evidence: Any) -> bool:
    return isinstance(evidence, e.Approved)


def _any_approval(op: Operation, who: Any, *_: Any, **__: Any) -> e.Evidence:
    if op.state is not S.AWAITING_APPROVAL:
        raise Refused("not waiting")
    return e.Approved(who.name, op.request_fingerprint)


def _counts_all(operation: Any, evidence: Any) -> bool:
    return len(operation.approvals) + 1 >= operation.approvals_needed


def _offers_more(op: Operation, contract: Contract) -> tuple[Option, ...]:
    more = Option(Choice.RESEND, S.CREATE_PENDING, "again")
    return (*_CHOICES(op, contract), more) if op.state is S.RESULT_TIMED_OUT else _CHOICES(op, contract)


def _nothing(before: Any, entry: Any, state: Any, changes: Any) -> None:
    """A handler that changes nothing."""


def _uncounted(before: Operation, entry: Any, state: State, changes: Any) -> None:
    """A handler of permits that forgets what it permitted."""
    projection._call_sent(before, entry, state, changes)
    changes.pop("open_call")


def _unsent(before: Operation, entry: Any, state: State, changes: Any) -> None:
    projection._call_sent(before, entry, state, changes)
    changes.pop("first_sent_at", None)


def _window_moves(before: Operation, entry: Any, state: State, changes: Any) -> None:
    projection._call_sent(before, entry, state, changes)
    if "last_sent_at" in changes:
        changes["first_sent_at"] = entry.at


_DEADLINES: Final = {
    state: (Arrow(S.FAILED, states._deadline(Deadline.RESULT)),) for state in (S.ACCEPTED, S.OBSERVING)
}
_NO_VIOLATION: Final[dict[tuple[State, type[e.Evidence]], tuple[Arrow, ...] | None]] = {
    (state, kind): (Arrow(None),)
    for state in (S.CREATE_PENDING, S.CREATE_UNKNOWN, S.RECONCILIATION, S.ACCEPTED, S.OBSERVING)
    for kind in (e.UnfamiliarJobId,)
}
_ANY_JOB: Final[dict[tuple[State, type[e.Evidence]], tuple[Arrow, ...] | None]] = {
    (state, e.Accepted): (Arrow(S.ACCEPTED, states._answers),) for state in (S.CREATE_PENDING, S.RECONCILIATION)
}

DESIGNS: Final = (
    # The shell: permit, send, record, and the lease around them.
    Design("the request is sent before it is recorded", "resend", shell=Shell(permit_first=False)),
    Design("writes are not fenced", "resend", shell=Shell(fence=False)),
    Design("the fence is the owner's name, and workers share one", "resend", shell=Shell(same_owner=True)),
    Design("a lease that stands is taken over", "resend", shell=Shell(exclusive=False)),
    Design("the lease is not looked at when the bytes leave", "resend", shell=Shell(checks_lease=False)),
    Design("an answer that comes too late is dropped", "resend", shell=Shell(keeps_late=False)),
    Design("a permit is given on an older copy", "both", shell=Shell(permits_by_version=False)),
    Design("a write goes onto the worker's own copy", "resend", shell=Shell(copies_lie=True)),
    Design("one job id may be bound to two operations", "collides", shell=Shell(one_id=False)),
    Design("the transport repeats what got no answer", "blind", shell=Shell(transport_retries=True)),
    Design("a permit is used again after a lost answer", "blind", shell=Shell(reuses_permit=True)),
    Design("every attempt has a token of its own", "resend", shell=Shell(new_token=True)),
    Design("a delivery is taken for a status read", "resend", shell=Shell(webhook_trusted=True)),
    Design("a lost answer is forgotten", "blind", shell=Shell(forgets=True)),
    Design("a list is judged by when it came", "list", shell=Shell(judged_late=True), slow=True),
    # What answers mean.
    Design("a lost answer is read as not delivered", "blind", function(answers, "_lost", _undelivered)),
    Design("a 503 to a create is a no", "blind", function(answers, "_lost", _error_is_no)),
    Design(
        "a 404 to a status read means failed", "resend", function(answers, "read_status", _status_404(Means.FAILED))
    ),
    Design(
        "a 404 to a status read means cancelled",
        "resend",
        function(answers, "read_status", _status_404(Means.CANCELLED)),
    ),
    Design("an unknown word means success", "resend", function(answers, "means_of", _unmapped(Means.SUCCEEDED))),
    Design("an unknown word means failure", "resend", function(answers, "means_of", _unmapped(Means.FAILED))),
    Design(
        "another job id under the token is taken",
        "twins",
        both(function(answers, "_bound", _any_id), table(_ANY_JOB)),
        slow=True,
    ),
    Design("the table binds a second job", "twins", table(_ANY_JOB), slow=True),
    Design("an empty list proves absence at once", "settle", function(lookups, "_absent", _nothing_settles)),
    Design(
        "the settle time runs from the first send",
        "settle",
        function(lookups, "_absent", _settles_from_first),
        slow=True,
    ),
    # What is decided.
    Design("the token's window is not looked at", "window", function(decide, "may_resend", _always)),
    Design("the window runs from the last send", "window", function(decide, "may_resend", _since_last), slow=True),
    Design(
        "the window has no margin",
        "window",
        function(Contract, "resend_window", property(lambda self: self.create.idempotency.memory)),
    ),
    Design("a permit without an outcome counts as unused", "blind", function(decide, "_recovered", _unused_permit)),
    Design("a permit without an outcome is passed over", "blind", function(decide, "_recovered", _permit_forgotten)),
    Design("an unknown create is sent again", "blind", entry(decide._DECIDERS, S.CREATE_UNKNOWN, _creates_again)),
    Design(
        "and the table lets it be sent",
        "blind",
        both(
            entry(decide._DECIDERS, S.CREATE_UNKNOWN, _creates_again),
            cell(S.CREATE_UNKNOWN, e.CallSent, Arrow(S.CREATE_PENDING, states._may_create)),
        ),
    ),
    Design(
        "a cancel without an answer is sent again", "calm", entry(decide._DECIDERS, S.CANCELLING, _insists), slow=True
    ),
    Design("a cancel goes on in a violation", "ignores", entry(decide._DECIDERS, S.CONTRACT_VIOLATION, _cancels_on)),
    Design("success is taken for granted", "calm", entry(decide._DECIDERS, S.RESULT_COLLECTING, _takes_for_granted)),
    Design("nobody is asked in the end", "blind", entry(decide._DECIDERS, S.CREATE_UNKNOWN, _nobody_asked)),
    Design("a running job has no next step", "resend", function(decide, "plan", _no_plan)),
    Design("the provider's wish to wait is not heard", "list", function(decide, "_reconcile_time", _impatient)),
    # What leads where.
    Design("the cancel's answer means cancelled", "calm", cell(S.CANCEL_REQUESTED, e.CancelAnswered, *to(S.CANCELLED))),
    Design("a lost cancel means cancelled", "calm", cell(S.CANCEL_REQUESTED, e.CallLost, *to(S.CANCELLED))),
    Design("a lost cancel counts as not sent", "calm", cell(S.CANCEL_REQUESTED, e.CallLost, Arrow(None)), slow=True),
    Design(
        "the cancel deadline means cancelled",
        "calm",
        both(
            cell(S.CANCEL_REQUESTED, e.DeadlinePassed, *to(S.CANCELLED)),
            cell(S.CANCELLING, e.DeadlinePassed, *to(S.CANCELLED)),
        ),
    ),
    Design(
        "the result deadline means failed",
        "calm",
        table({(state, e.DeadlinePassed): arrows for state, arrows in _DEADLINES.items()}),
    ),
    Design(
        "the create deadline means failed", "blind", cell(S.CREATE_UNKNOWN, e.DeadlinePassed, *to(S.FAILED)), slow=True
    ),
    Design("a lost create means failed", "blind", cell(S.CREATE_PENDING, e.CallLost, *to(S.FAILED))),
    Design("a lost create may be sent again", "blind", cell(S.CREATE_PENDING, e.CallLost, Arrow(None))),
    Design("an undecided look-up means absent", "list", cell(S.RECONCILIATION, e.Inconclusive, *to(S.CREATE_PENDING))),
    Design("an undecided look-up means failed", "list", cell(S.RECONCILIATION, e.Inconclusive, *to(S.FAILED))),
    Design(
        "a cancel takes back what may have been created",
        "resend",
        both(cell(S.CREATE_PENDING, e.Withdrawn, *to(S.WITHDRAWN)), function(human, "cancellation", _withdraws)),
    ),
    Design(
        "an unknown create that is not wanted is withdrawn",
        "resend",
        cell(S.CREATE_UNKNOWN, e.CancelRequested, *to(S.WITHDRAWN)),
    ),
    Design(
        "a create leaves though a cancel is wanted",
        "resend",
        cell(S.CREATE_PENDING, e.CallSent, Arrow(None, states._call(Action.CREATE))),
        shell=Shell(permits_by_version=False),
    ),
    Design(
        "a job that succeeded needs no result",
        "calm",
        cell(S.OBSERVING, e.Observed, Arrow(S.SUCCEEDED, states._means(SUCCESS_MEANS)), Arrow(None)),
    ),
    Design("a wrong result is good enough", "calm", cell(S.RESULT_COLLECTING, e.ResultInvalid, *to(S.SUCCEEDED))),
    Design("no result is good enough", "calm", cell(S.RESULT_COLLECTING, e.ResultMissing, *to(S.SUCCEEDED)), slow=True),
    Design(
        "a missing result means failed", "calm", cell(S.RESULT_COLLECTING, e.ResultMissing, *to(S.FAILED)), slow=True
    ),
    Design("a second job is a remark", "twins", table(_NO_VIOLATION)),
    Design("a poll has no deadline to lead to", "calm", cell(S.OBSERVING, e.DeadlinePassed), slow=True),
    Design("a lost create has no arrow", "blind", cell(S.CREATE_PENDING, e.CallLost)),
    Design("a look-up without a verdict has no arrow", "list", cell(S.RECONCILIATION, e.Inconclusive)),
    # What the record remembers.
    Design("a late answer's job is not kept", "resend", entry(projection._HANDLERS, e.Noted, _nothing)),
    Design("a permit leaves no trace", "blind", entry(projection._HANDLERS, e.CallSent, _uncounted)),
    Design("the first send is not remembered", "blind", entry(projection._HANDLERS, e.CallSent, _unsent)),
    Design(
        "each send starts the window anew", "window", entry(projection._HANDLERS, e.CallSent, _window_moves), slow=True
    ),
    # People.
    Design(
        "one approval is enough",
        "approval",
        cell(S.AWAITING_APPROVAL, e.Approved, Arrow(S.CREATE_PENDING, _one_is_enough)),
    ),
    Design(
        "one person may approve twice",
        "approval",
        both(
            function(human, "approval", _any_approval),
            cell(S.AWAITING_APPROVAL, e.Approved, Arrow(S.CREATE_PENDING, _counts_all), Arrow(None)),
        ),
    ),
    Design("silence is approval", "approval", cell(S.AWAITING_APPROVAL, e.ApprovalExpired, *to(S.CREATE_PENDING))),
    Design("a rejected request is sent", "approval", cell(S.AWAITING_APPROVAL, e.Rejected, *to(S.CREATE_PENDING))),
    Design(
        "a person is offered what the table refuses",
        "calm",
        both(function(world, "choices", _offers_more), function(human, "choices", _offers_more)),
    ),
)
