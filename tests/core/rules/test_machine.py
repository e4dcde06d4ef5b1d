"""The whole machine: a worker that obeys `decide` and may die, people who decide, a provider that may do anything.

Beside the record the test keeps its own account of what may be running at the provider, and holds the record to it
after every step. Twice: once by walking through everything that can happen, up to what the record can tell apart, and
once by luck, with a clock of its own and evidence at the wrong time. From wherever that leads, faults then stop, and
the operation must come to rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from opledger.errors import IllegalTransition
from opledger.rules import evidence as e
from opledger.rules import states
from opledger.rules.choices import choices
from opledger.rules.contract import Contract
from opledger.rules.decide import AskHuman, Call, Conclude, Decision, Wait, decide, open_deadline
from opledger.rules.model import Action, Choice, Deadline, Means, Operation, State, StoredResult
from opledger.rules.projection import Entry, project
from tests.support.contracts import GET, LIST, RESEND, a_contract, with_cancel
from tests.support.records import FINGERPRINT, OPERATION_ID, Story, a_permit, seconds, seen

TERMINAL: Final = {"succeeded", "failed", "cancelled", "rejected", "withdrawn", "resolved"}
ASKS: Final = {
    *("awaiting_approval", "contract_violation", "cancellation_unconfirmed"),
    *("result_timed_out", "result_unavailable", "result_validation_failed"),
}
VIOLATIONS: Final = (e.UnfamiliarJobId, e.TokenMismatch, e.ManyJobs, e.IdentityChanged, e.FinalStateChanged)
RESULT: Final = StoredResult("file:///r", 3, "0" * 64, "text/csv", validated=True)
ROUNDS: Final = 50  #: within so many steps everything must be at rest once faults stop (I21)
WINDOW: Final = timedelta(hours=24) * 9 / 10  #: what is left of the token's memory after the margin

CONTRACTS: Final = {
    "resend": a_contract(),
    "resend, then list": a_contract(reconcile=(RESEND, LIST)),
    "get, then resend": a_contract(reconcile=(GET, RESEND)),
    "no way to find out": a_contract(reconcile=()),
    "no cancel": a_contract(cancel=None, reconcile=(LIST,)),
    "idempotent cancel": with_cancel(idempotent=True),
    "no result": a_contract(result=None),
}

Maybe = e.Evidence | None  #: what comes back on a call; None is a worker that died before it could record it


def answers_to_create(call_id: str, story: Story) -> list[Maybe]:
    """What may come back on a create."""
    return [
        e.Accepted(call_id=call_id, job_id="job_1"),
        None,
        e.CallLost(call_id=call_id, why="reset"),
        e.CallLost(call_id=call_id, why="503", status=503),
        e.NotDelivered(call_id=call_id, why="refused"),
        e.Throttled(call_id=call_id, why="429", retry_at=story.now + seconds(50)),
        e.Refused(call_id=call_id, why="422"),
        e.CompletedInline(call_id=call_id, result=RESULT),
        e.TokenMismatch(call_id=call_id),
    ]


def answers_to_reconcile(call_id: str, story: Story, strategy: str) -> list[Maybe]:
    """What may come back on a look-up or a resend."""
    found: list[Maybe] = [
        e.Accepted(call_id=call_id, job_id="job_1", how=strategy),
        None,
        e.Inconclusive(call_id=call_id, why="503", strategy=strategy, next_strategy=True),
        e.Inconclusive(call_id=call_id, why="429", strategy=strategy, retry_at=story.now + seconds(50)),
        e.UnfamiliarJobId(call_id=call_id, jobs=("job_1", "job_2")),
    ]
    if strategy == "resend":
        return [*found, e.Refused(call_id=call_id, why="422"), e.CompletedInline(call_id=call_id, result=RESULT)]
    return [*found, e.ProvenAbsent(call_id=call_id), e.ManyJobs(call_id=call_id, jobs=("job_1", "job_2"))]


def answers_to_cancel(call_id: str, story: Story) -> list[Maybe]:
    """What may come back on a cancel."""
    return [
        e.CancelAnswered(call_id=call_id),
        None,
        e.CallLost(call_id=call_id, action=Action.CANCEL, why="reset"),
        e.NotDelivered(call_id=call_id, action=Action.CANCEL, why="refused"),
        e.Throttled(call_id=call_id, action=Action.CANCEL, why="429", retry_at=story.now + seconds(50)),
    ]


def answers_to_reads(call_id: str, story: Story) -> list[Maybe]:
    """What a status read may bring. A job that succeeded and now says otherwise is a violation already when read."""
    collecting = story.op.state is State.RESULT_COLLECTING
    means = [Means.RUNNING, Means.SUCCEEDED] if collecting else list(Means)
    facts: dict[str, Any] = {"call_id": call_id, "job_id": story.op.remote_job_id}
    return [
        e.ReadFailed(call_id=call_id, why="503"),
        *(e.Observed(**facts, means=Means.RUNNING, remote_state=word) for word in ("a", "b")),
        e.Observed(**facts, means=Means.RUNNING, remote_state="a", retry_at=story.now + seconds(20)),
        e.Observed(**facts, means=Means.RUNNING, remote_state="a", retry_at=story.now + timedelta(days=9000)),
        e.ReadFailed(call_id=call_id, why="404", code="gone"),
        *(e.Observed(**facts, means=reading, remote_state=reading.value) for reading in means),
        e.IdentityChanged(call_id=call_id, jobs=("job_1", "job_2")),
    ]


def answers_to_collect(call_id: str, story: Story) -> list[Maybe]:
    """What may come of fetching a result."""
    return [
        *answers_to_reads(call_id, story),
        e.ReadFailed(call_id=call_id, action=Action.COLLECT, why="not ready", code="not_ready"),
        e.ResultAccepted(call_id=call_id, result=RESULT),
        e.ResultAllItemsFailed(call_id=call_id, result=RESULT),
        e.ResultMissing(call_id=call_id, why="gone"),
        e.ResultInvalid(call_id=call_id, why="wrong", result=RESULT),
        e.FinalStateChanged(call_id=call_id, jobs=("job_1",)),
    ]


def strays(story: Story) -> list[e.Evidence]:
    """Evidence at the wrong time: late answers, doubled decisions, deadlines and readings out of nowhere."""
    call = story.op.open_call
    open_id = "call_none" if call is None else call.call_id
    request_id = f"req_{len(story.entries)}"
    found: list[e.Evidence] = [
        e.CancelRequested(request_id, "jo"),
        e.Withdrawn("jo"),
        e.Notified("webhook"),
        e.Noted("hm", late_kind="Accepted", late={"job_id": "job_2"}),
        e.Acknowledged("jo"),
        e.LeaseTaken("worker-2", 2, "worker-1"),
        e.PartialAttached(result=RESULT),
        e.ResultAccepted(call_id=open_id, result=RESULT),
        *(e.DeadlinePassed(which, story.now) for which in Deadline),
        *(e.ReadFailed(call_id=open_id, action=action) for action in Action),
        *(e.Observed(call_id=open_id, job_id="job_1", means=means) for means in Means),
        *(kind(jobs=("job_1", "job_2")) for kind in VIOLATIONS),
    ]
    for call_id in (None, "call_none"):
        found += [
            e.Accepted(call_id=call_id, job_id="job_1"),
            e.CallLost(call_id=call_id),
            e.Refused(call_id=call_id),
            e.NotDelivered(call_id=call_id),
            e.ProvenAbsent(call_id=call_id),
            e.CancelAnswered(call_id=call_id),
        ]
    for choice in Choice:
        found += [e.Decided("jo", choice, job, timedelta(hours=1), request_id) for job in (None, "job_1", "job_2")]
    return found


# --- what may be running at the provider ------------------------------------------------------------------------------


@dataclass(slots=True)
class Account:
    """Kept from the evidence alone, without looking at the record's own opinion."""

    contract: Contract
    doubt: bool = False  #: an earlier create may have been accepted, and nobody knows
    excused: bool = False  #: a person accepted that the next create may be a second one
    succeeded: bool = False  #: a status read (or an inline answer) said so
    cancels: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: the fates of the calls under each intent

    def watch(self, before: Operation, ev: e.Evidence, after: Operation) -> None:
        """Take one event into account, and refuse what must never happen."""
        if isinstance(ev, e.CallSent):
            self._permitted(before, ev)
        call = before.open_call
        if call is not None and isinstance(ev, e.Answered) and ev.call_id == call.call_id:
            self._answered(before, ev, cancel=call.action is Action.CANCEL)
        if isinstance(ev, e.Decided) and ev.choice is Choice.RESEND:
            self.excused = True
        if isinstance(ev, e.CompletedInline) or (
            isinstance(ev, e.Observed) and ev.means in (Means.SUCCEEDED, Means.PARTIAL)
        ):
            self.succeeded = True
        if before.state != after.state:
            self._moved(before, ev, after)

    def _permitted(self, before: Operation, ev: e.CallSent) -> None:
        assert before.open_call is None, "two calls at a time"
        if ev.action is Action.CREATE:
            assert before.cancel is None, "a create although somebody wants it cancelled"
            assert not self.doubt or self.excused, "a second create without certainty or a person's word"
        if ev.action is Action.CANCEL and before.cancel is not None:
            how = self.contract.cancel
            fates = self.cancels.get(before.cancel.request_id, ())
            assert how is not None, "a cancel where the provider has none"
            assert how.idempotent or set(fates) <= {"not taken"}, "a second cancel under one intent"
            self.cancels = {**self.cancels, before.cancel.request_id: (*fates, "sent")}

    def _answered(self, before: Operation, ev: e.Answered, *, cancel: bool) -> None:
        undone = isinstance(ev, e.NotDelivered | e.Throttled)
        if cancel:
            intent = before.cancel
            if undone and intent is not None:
                self.cancels = {**self.cancels, intent.request_id: (*self.cancels[intent.request_id][:-1], "not taken")}
            return
        if not undone:
            self.excused = False  # a person's word is good for one create that may have arrived
        if isinstance(ev, e.CallLost | e.Inconclusive):
            self.doubt = True
        elif isinstance(ev, e.Accepted | e.CompletedInline | e.ProvenAbsent):
            self.doubt = False
        elif isinstance(ev, e.Refused) and before.state is State.RECONCILIATION:
            self.doubt = False  # refused under the same token: the contract says that nothing runs

    def _moved(self, before: Operation, ev: e.Evidence, after: Operation) -> None:
        start, end = before.state.value, after.state.value
        if start in TERMINAL:
            resumed = start == "failed" and isinstance(ev, e.Decided) and ev.choice is Choice.RESUME
            assert resumed, f"{start} did not absorb {ev}"
        if end == "succeeded":
            assert self.succeeded, "success without a success that was read"
            assert after.result is not None or self.contract.result is None, "success without a stored result"
        if end == "cancelled":
            assert isinstance(ev, e.Observed), "cancelled by something else than a status read"
            assert ev.means is Means.CANCELLED
        if end == "failed":
            read = isinstance(ev, e.Observed) and ev.means in (Means.FAILED, Means.EXPIRED)
            said = isinstance(ev, e.ResultAllItemsFailed) or (isinstance(ev, e.Refused) and not self.doubt)
            person = isinstance(ev, e.Decided) and ev.choice is Choice.NOT_CREATED
            nowhere = isinstance(ev, e.DeadlinePassed) and not self.doubt
            assert read or said or person or nowhere, f"an invented failure: {ev}"
        if end == "withdrawn":
            assert not self.doubt, "withdrawn although it may run"


class Run:
    """One operation, its account, and the questions that must have good answers after every step."""

    def __init__(self, contract: Contract, **submission: Any) -> None:
        self.story = Story(contract, **submission)
        self.account = Account(contract)
        self.arrows: set[tuple[State, State]] = set()

    def copy(self) -> Run:
        """A second run that may go another way from here."""
        twin = Run.__new__(Run)
        twin.story = Story.__new__(Story)
        twin.story.contract, twin.story.now, twin.story.op = self.contract, self.now, self.op
        twin.story.entries = list(self.story.entries)
        twin.account = replace(self.account)
        twin.arrows = set()
        return twin

    @property
    def op(self) -> Operation:
        """The record as it is."""
        return self.story.op

    @property
    def now(self) -> Any:
        """The time."""
        return self.story.now

    @property
    def contract(self) -> Contract:
        """The contract."""
        return self.story.contract

    def record(self, evidence: e.Evidence) -> bool:
        """Record evidence if the machine takes it; where it does not, nothing may have changed."""
        before, events = self.op, len(self.story.entries)
        try:
            after = self.story.tell(evidence)
        except IllegalTransition:
            assert self.op is before
            assert len(self.story.entries) == events
            return False
        self.account.watch(before, evidence, after)
        if after.state is not before.state:
            self.arrows.add((before.state, after.state))
        return True

    def wait_for_the_plan(self) -> None:
        """Wake when it was planned."""
        if self.op.next is not None and self.op.next.at is not None:
            self.story.now = max(self.now, self.op.next.at)

    def permit(self, call: Call, call_id: str) -> list[Maybe]:
        """Make a call, with its permit if it has an effect; return what may come back."""
        action, strategy = call.action, None
        if action is Action.OBSERVE:
            return answers_to_reads(call_id, self.story)
        if action is Action.COLLECT:
            return answers_to_collect(call_id, self.story)
        if action is Action.RECONCILE:
            assert call.strategy is not None
            strategy = self.contract.reconcile[call.strategy].strategy
            if strategy == "resend":
                self._may_resend()
        assert self.record(a_permit(action, call_id, strategy=strategy)), f"a permit that is refused: {call}"
        if action is Action.CANCEL:
            return answers_to_cancel(call_id, self.story)
        if strategy is not None:
            return answers_to_reconcile(call_id, self.story, strategy)
        return answers_to_create(call_id, self.story)

    def _may_resend(self) -> None:
        """Only while the provider knows the token, and beside a cancel only where nothing else helps (I4)."""
        op = self.op
        assert op.first_sent_at is not None
        assert self.now < op.first_sent_at + WINDOW
        assert op.cancel is None or all(how.strategy == "resend" for how in self.contract.reconcile)

    # --- what always holds ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Ask every question."""
        op, now = self.op, self.now
        decision = decide(op, self.contract, now)
        asleep = decide(op, self.contract, now, paused="its credentials are refused")
        assert not isinstance(asleep, Call), "a call while the provider is paused"
        if op.open_call is not None and op.state.value not in TERMINAL:
            assert isinstance(decision, Conclude), "an open call was passed over"
            assert decision.cause == "recovery"
        deadline = open_deadline(op)
        if deadline is not None and now >= deadline[1]:
            assert isinstance(decision, Conclude), "a deadline passed in silence"
            assert isinstance(asleep, Conclude), "a pause held a deadline"
        code = None if op.attention is None else op.attention.code
        assert code not in ASKS - {op.state.value}, "an attention outlived its state"
        self._check_plan()

    def _check_plan(self) -> None:
        """Whatever has not ended and waits for no person has a finite next time, at most its deadline (I21)."""
        op, ahead = self.op, self.op.next
        if op.state.value in TERMINAL:
            assert ahead is None
            return
        assert ahead is not None
        asks = op.state.value in ASKS or (op.state is State.CREATE_UNKNOWN and op.exhausted)
        asks = asks and op.open_call is None  # first of all it is found out, or written down, what came of that call
        deadline, last = open_deadline(op), self.story.entries[-1].at
        if asks and (deadline is None or deadline[1] > last):
            assert ahead.kind == "human"
            assert ahead.at == (None if deadline is None else deadline[1])
            assert op.attention is not None
            return
        assert ahead.kind != "human"
        assert ahead.at is not None
        if deadline is not None:
            assert ahead.at <= max(deadline[1], last), "planned behind the deadline"
        then = decide(op, self.contract, max(ahead.at, last))
        assert isinstance(then, Call | Conclude), f"put off again: {then}"
        if isinstance(then, Call) and ahead.kind != "deadline":
            assert then.action.value == ahead.kind, "the plan names another call"

    # --- the end --------------------------------------------------------------------------------------------

    def comes_to_rest(self) -> None:
        """Faults stop; within a bounded number of steps it has ended or asks a person."""
        for _ in range(ROUNDS):
            decision = decide(self.op, self.contract, self.now)
            if self.op.state.value in TERMINAL or isinstance(decision, AskHuman):
                return
            self._ideally(decision)
        raise AssertionError(f"not at rest after {ROUNDS} rounds: {self.op}")

    def _ideally(self, decision: Decision) -> None:
        """One step with a provider that keeps every promise."""
        op, call_id = self.op, f"ideal_{len(self.story.entries)}"
        if isinstance(decision, Wait):
            assert decision.until is not None
            assert decision.until > self.now
            self.story.now = decision.until
        elif isinstance(decision, Conclude):
            assert self.record(decision.evidence)
        elif isinstance(decision, Call):
            self.permit(decision, call_id)
            wanted = op.cancel is not None and op.cancel.sent > 0
            final = Means.CANCELLED if wanted else Means.SUCCEEDED
            means = Means.RUNNING if op.state is State.ACCEPTED else final
            job = op.jobs[0] if op.jobs else "job_1"
            ideal: dict[Action, e.Evidence] = {
                Action.CREATE: e.Accepted(call_id=call_id, job_id=job),
                Action.RECONCILE: e.Accepted(call_id=call_id, job_id=job),
                Action.OBSERVE: e.Observed(call_id=call_id, job_id=job, means=means, remote_state=means.value),
                Action.CANCEL: e.CancelAnswered(call_id=call_id),
                Action.COLLECT: e.ResultAccepted(call_id=call_id, result=RESULT),
            }
            assert self.record(ideal[decision.action])

    def rebuilt(self) -> Operation:
        """Fold the journal again from what is stored of each event (I14)."""
        op: Operation | None = None
        for entry in self.story.entries:
            kept: Any = e.from_data(entry.evidence.kind, e.to_data(entry.evidence))
            assert kept == entry.evidence
            op = project(op, Entry(OPERATION_ID, entry.seq, entry.at, entry.actor, kept, entry.cause, entry.reason))
        assert op is not None
        return op


# --- everything that can happen ---------------------------------------------------------------------------------------


def told_apart(run: Run) -> tuple[Any, ...]:
    """What makes two runs different: all that guards, decisions and the account look at, with times as yes or no."""
    op, account, now = run.op, run.account, run.now
    intent, deadline = op.cancel, open_deadline(op)
    return (
        op.state,
        len(op.approvals),
        op.sent,
        None if op.open_call is None else op.open_call.action,
        None if intent is None else (min(intent.sent, 2), intent.lost, intent.reread, intent.undelivered),
        op.duplicate_accepted,
        op.exhausted,
        op.strategy % max(len(run.contract.reconcile), 1),
        op.remote_job_id is None,
        (account.doubt, account.excused, account.succeeded),
        None if intent is None else set(account.cancels.get(intent.request_id, ())) <= {"not taken"},
        deadline is not None and now >= deadline[1],
        op.first_sent_at is not None and now >= op.first_sent_at + WINDOW,
    )


def ways_on(run: Run, stray: Callable[[Story], list[e.Evidence]]) -> Iterator[Run]:
    """Every next step: the worker's when it planned to, with every answer; a long wait; people; strays."""
    awake = run.copy()
    awake.wait_for_the_plan()
    decision = decide(awake.op, awake.contract, awake.now)
    if isinstance(decision, Conclude):
        assert awake.record(decision.evidence), f"a conclusion that is refused: {decision}"
        yield awake
    elif isinstance(decision, Call):
        call_id = f"call_{len(run.story.entries)}"
        for index in range(len(awake.copy().permit(decision, call_id))):
            on = awake.copy()
            answer = on.permit(decision, call_id)[index]
            assert answer is None or on.record(answer), f"an answer that is refused: {answer}"
            yield on
    on = run.copy()
    on.story.wait(timedelta(hours=23))
    yield on
    yield from people(run)
    for evidence in stray(run.story):
        on = run.copy()
        if on.record(evidence):
            yield on


def people(run: Run) -> Iterator[Run]:
    """Every choice that a person is offered, which must be possible, and every judgement."""
    for option in choices(run.op, run.contract):
        for job in (option.jobs or ("job_1",)) if "job" in option.needs else (None,):
            on = run.copy()
            time = timedelta(hours=1) if "for" in option.needs else None
            assert on.record(e.Decided("ana", option.choice, job, time, f"req_{len(run.story.entries)}"))
            assert on.op.state is option.to
            yield on
    for judgement in (e.Approved("ana", FINGERPRINT), e.Approved("jo", FINGERPRINT), e.Rejected("jo")):
        on = run.copy()
        if on.record(judgement):
            yield on


def walk(run: Run, stray: Callable[[Story], list[e.Evidence]]) -> tuple[int, set[tuple[State, State]]]:
    """Go everywhere; return how many different records there are, and which arrows were taken."""
    known, queue = {told_apart(run)}, deque([run])
    arrows: set[tuple[State, State]] = set()
    while queue:
        here = queue.popleft()
        here.check()
        here.copy().comes_to_rest()
        for on in ways_on(here, stray):
            arrows.update(on.arrows)
            key = told_apart(on)
            if key not in known:
                known.add(key)
                queue.append(on)
    return len(known), arrows


def few_strays(story: Story) -> list[e.Evidence]:
    """Those that lead somewhere else; all of them would be too many for every day."""
    request_id = f"req_{len(story.entries)}"
    found: list[e.Evidence] = [e.CancelRequested(request_id, "jo"), e.Withdrawn("jo")]
    found.append(e.UnfamiliarJobId(jobs=("job_1", "job_2")))
    if story.op.state in (State.RESULT_TIMED_OUT, State.CANCELLATION_UNCONFIRMED):
        found += [e.Observed(job_id="job_1", means=means) for means in Means if means.final]  # somebody reads by hand
    return found


THOROUGH: Final = settings.default is not None and settings.default.max_examples >= 1000


def test_everything_that_can_happen() -> None:
    """From every record that can be reached, whatever comes next, no promise is broken and a way leads to rest.

    Every arrow of the table is taken on the way, or the walk would prove less than it says.
    """
    taken: set[tuple[State, State]] = set()
    for name, contract in CONTRACTS.items():
        run = Run(contract, approvals_needed=2, approval_timeout=timedelta(hours=4))
        records, arrows = walk(run, strays if THOROUGH else few_strays)
        assert records > 200, name
        taken |= arrows
    lawful = {
        (start, arrow.to)
        for start, cells in states.TRANSITIONS.items()
        for cell in cells.values()
        for arrow in cell
        if start is not None and arrow.to not in (None, start)
    }
    resumed = {(State.FAILED, State.OBSERVING)}  # no contract can be resumed yet
    assert taken | resumed == lawful


# --- and by luck ------------------------------------------------------------------------------------------------------

CANCEL_IT: Final = e.CancelRequested("req_1", "ana")
LOST: Final = (a_permit(Action.CREATE, "s1"), e.CallLost(call_id="s1", why="reset"))
RUNS: Final = (a_permit(Action.CREATE, "s1"), e.Accepted(call_id="s1", job_id="job_1"), seen("running"))
STARTS: Final[dict[str, tuple[e.Evidence, ...]]] = {
    "new": (),
    "sent": (a_permit(Action.CREATE, "s1"),),
    "throttled": (a_permit(Action.CREATE, "s1"), e.Throttled(call_id="s1", why="429")),
    "lost": LOST,
    "lost, and a duplicate accepted": (*LOST, e.Decided("ana", Choice.RESEND)),
    "lost and wanted back": (*LOST, CANCEL_IT),
    "sent and wanted back": (a_permit(Action.CREATE, "s1"), CANCEL_IT),
    "accepted": RUNS[:2],
    "running": RUNS,
    "to be cancelled": (*RUNS, CANCEL_IT),
    "cancelling": (*RUNS, CANCEL_IT, a_permit(Action.CANCEL, "s2"), e.CallLost(call_id="s2", action=Action.CANCEL)),
    "succeeded remotely": (*RUNS, seen("succeeded")),
    "result missing": (*RUNS, seen("succeeded"), e.ResultMissing(why="gone")),
    "result wrong": (*RUNS, seen("succeeded"), e.ResultInvalid(why="wrong")),
    "violated": (*RUNS, e.UnfamiliarJobId(jobs=("job_1", "job_2"))),
    "violated without a job": (*LOST, e.TokenMismatch()),
}
"""Where an operation may stand when the bad luck begins."""


class Machine(RuleBasedStateMachine):
    """One operation and its luck."""

    run: Run

    @initialize(contract=st.sampled_from(sorted(CONTRACTS)), start=st.sampled_from(sorted(STARTS)), asks=st.booleans())
    def submit(self, contract: str, start: str, asks: bool) -> None:
        """It begins, and something has happened already."""
        approvals = 2 if asks and start == "new" else 0
        self.run = Run(CONTRACTS[contract], approvals_needed=approvals, approval_timeout=timedelta(hours=4))
        self.paused: str | None = None
        self.calls = 0
        for evidence in STARTS[start]:
            cancels = isinstance(evidence, e.CallSent) and evidence.action is Action.CANCEL
            if cancels and CONTRACTS[contract].cancel is None:
                break
            assert self.run.record(evidence)

    @rule(data=st.data(), steps=st.integers(1, 3))
    def work(self, data: st.DataObject, steps: int) -> None:
        """Wake when it was planned and do what `decide` says, a few times."""
        for _ in range(steps):
            self.run.wait_for_the_plan()
            self.obey(data)

    @rule(data=st.data())
    def work_now(self, data: st.DataObject) -> None:
        """Look before it was planned."""
        self.obey(data)

    def obey(self, data: st.DataObject) -> None:
        """Do what `decide` says; a call may be answered in any way, or its worker dies."""
        run = self.run
        decision = decide(run.op, run.contract, run.now, paused=self.paused)
        if isinstance(decision, Conclude):
            assert run.record(decision.evidence), f"a conclusion that is refused: {decision}"
        elif isinstance(decision, Call):
            self.calls += 1
            answer = data.draw(st.sampled_from(run.permit(decision, f"call_{self.calls}")))
            assert answer is None or run.record(answer), f"an answer that is refused: {answer}"

    @rule()
    def pause(self) -> None:
        """Somebody stops or starts all calls to the provider."""
        self.paused = None if self.paused else "its credentials are refused"

    @rule(time=st.sampled_from([0.5, 3, 31, 121, 700, 4000, 90_000]))
    def wait(self, time: float) -> None:
        """Nobody looks for a while."""
        self.run.story.wait(time)

    @precondition(lambda self: next(people(self.run), None) is not None)
    @rule(data=st.data())
    def decide_as_a_person(self, data: st.DataObject) -> None:
        """Take one of the choices offered, or judge."""
        self.run = data.draw(st.sampled_from(list(people(self.run))))

    @precondition(lambda self: self.run.op.sent)
    @rule(data=st.data())
    def stray(self, data: st.DataObject) -> None:
        """Evidence out of turn: taken or refused, it must do no harm."""
        self.run.record(data.draw(st.sampled_from(strays(self.run.story))))

    @rule(action=st.sampled_from(Action))
    def permit_out_of_turn(self, action: Action) -> None:
        """A second permit while a call is open, a create beside a cancel, a call of the wrong kind."""
        op = self.run.op
        forbidden = op.open_call is not None or (action is Action.CREATE and op.cancel is not None)
        if forbidden or action is Action.OBSERVE:
            assert not self.run.record(a_permit(action, "call_rogue"))

    @invariant()
    def every_question_has_a_good_answer(self) -> None:
        """After every step."""
        self.run.check()

    def teardown(self) -> None:
        """The journal gives the record back, and once faults stop, the operation comes to rest."""
        if hasattr(self, "run"):
            assert self.run.rebuilt() == replace(self.run.op, next=None, version=0, head_seq=0)
            self.run.comes_to_rest()


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=30)
