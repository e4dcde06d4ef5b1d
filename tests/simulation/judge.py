"""The invariants of the design (I1 … I25), judged on the provider's log and on the journal as it is exported.

Nothing here asks the product what it thinks: events are read with a connection of our own, folded by their words, and
held against what the provider knows. Only the hash chain and the projection are left to ``audit verify``.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from opledger.checkpoints.maker import Checkpointer
from opledger.errors import IllegalTransition
from opledger.ledger import audit
from opledger.rules import evidence as e
from opledger.rules import states
from opledger.rules.journal import read_body
from opledger.rules.jsontext import loads
from opledger.rules.model import State
from opledger.rules.projection import project
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.store.packing import unpack
from tests.simulation.people import People, Plan
from tests.simulation.ports import EPOCH
from tests.simulation.provider import DISHONEST, FINAL, LISTS, MEMORY, OWN, TOKENS, Arrived, Job
from tests.simulation.world import PHASES, World

EDGES: Final = frozenset(
    (None if state is None else state.value, kind.__name__, (arrow.to or state).value)  # type: ignore[union-attr]
    for state, cells in states.TRANSITIONS.items()
    for kind, arrows in cells.items()
    for arrow in arrows
)
"""Every arrow of the published table, as it was when this was loaded: a broken table does not judge itself."""

TERMINAL: Final = frozenset({"succeeded", "failed", "cancelled", "rejected", "withdrawn", "resolved"})
HUMAN: Final = frozenset(
    {
        "awaiting_approval",
        "contract_violation",
        "cancellation_unconfirmed",
        "result_timed_out",
        "result_unavailable",
        "result_validation_failed",
    }
)
VIOLATIONS: Final = frozenset({"UnfamiliarJobId", "TokenMismatch", "ManyJobs", "IdentityChanged", "FinalStateChanged"})
OUTCOMES: Final = frozenset(
    {
        "CallLost", "NotDelivered", "Throttled", "Refused", "Accepted", "CompletedInline", "Inconclusive",
        "ProvenAbsent", "CancelAnswered", "ResultAccepted", "ResultAllItemsFailed", "ResultMissing", "ResultInvalid",
        "PartialAttached", "ReadFailed", *VIOLATIONS,
    }
)  # fmt: skip
_CITED: Final = frozenset({"Accepted", "CompletedInline", "Observed", "Refused", "CancelAnswered"})
_KEPT: Final = frozenset({"Accepted", "Observed", "Refused", "CancelAnswered", "Throttled"})
PACE: Final = (1.0, 120.0)
"""Least and most seconds of a wait that the contracts leave to us: half of the first one, and the longest."""
EXPIRY: Final = 1_200.0
"""Seconds after which an approval is none, as the policies say."""
PARKED: Final = 900.0
"""Seconds in which a delivery that waits is handed over: whoever keeps house looks every few minutes."""
MANY: Final = 150
"""Pages of lists in a minute that are too many: a look-up reads twenty at most."""
WINDOW: Final = 0.9 * MEMORY
"""Seconds in which a token may be sent again: the last resend is to arrive well inside of the provider's memory."""
LAG: Final = 30.0
"""Seconds until a list shows a new job, as the contracts say."""


@dataclass(frozen=True)
class Event:
    """One journal row, read by its own words."""

    seq: int
    at: datetime
    actor: str
    kind: str
    from_state: str | None
    to_state: str | None
    cause: str
    data: dict[str, Any]
    body: bytes
    moment: float  #: virtual seconds at its commit
    next: dict[str, Any] | None = None  #: what it says comes next


@dataclass
class Record:
    """One operation: the row's few words, its journal, and what the provider knows of it."""

    id: str
    state: str
    job: str | None
    flavour: str
    token: str | None
    attention: str | None
    next_at: int | None
    facts: dict[str, Any]
    events: list[Event]
    plan: Plan
    jobs: list[Job]
    wire: list[Arrived]
    needed: int

    def has(self, *kinds: str) -> bool:
        """Whether there is an event of one of these kinds."""
        return any(event.kind in kinds for event in self.events)

    def chosen(self, *choices: str) -> bool:
        """Whether a person decided so."""
        return any(event.kind == "Decided" and event.data.get("choice") in choices for event in self.events)


def read_all(world: World, people: People) -> list[Record]:
    """Read the journal with our own eyes."""
    moments = {(operation, seq): moment for moment, operation, seq in world.commits}
    by_ref: dict[str, list[Arrived]] = defaultdict(list)
    for entry in world.provider.log:
        if entry.ref is not None:
            by_ref[entry.ref].append(entry)
    events: dict[str, list[Event]] = defaultdict(list)
    rows = world.eyes.execute(
        "SELECT operation_id, seq, at, actor, kind, from_state, to_state, cause, body FROM event"
        " ORDER BY operation_id, seq"
    )
    for operation, seq, _, actor, kind, start, end, cause, stored in rows:
        body = unpack(stored)
        document = loads(body)
        at = datetime.fromisoformat(document["at"])
        moment = moments.get((operation, seq), -1.0)
        data, then = document.get("data") or {}, document.get("next")
        found = Event(seq, at, actor, kind, start, end, cause or "", data, body, moment, then)
        events[operation].append(found)
    records = []
    query = (
        "SELECT operation_id, state, remote_job_id, contract, idempotency_token, attention_code, next_action_at, facts"
        " FROM operation ORDER BY operation_id"
    )
    for operation, state, job, contract, token, attention, next_at, facts in world.eyes.execute(query):
        one = people.plans[operation]
        flavour = "v1" if contract == "sim" else contract.removeprefix("sim-")
        needed = 0 if one.amount <= 100 else 1 if one.amount <= 1000 else 2
        records.append(
            Record(
                operation, state, job, flavour, token, attention, next_at, loads(facts.encode()) if facts else {},
                events[operation], one, world.provider.jobs_of(operation), by_ref[operation], needed,
            )
        )  # fmt: skip
    return records


def judge(world: World, people: People) -> tuple[list[Record], Counter[str]]:
    """Hold everything against everything; what is broken is told to the world."""
    records = read_all(world, people)
    arrows: Counter[str] = Counter()
    for record in records:
        _edges(world, record)
        _papers(world, record)
        _owned(world, record)
        _waits(world, record)
        _creates(world, record)
        _permits(world, record)
        _cancels(world, record)
        _truth(world, record)
        _at_rest(world, record)
        _fold(world, record, arrows)
        _reached(world, record)
    _one_job_one_operation(world, records)
    _wire(world, records)
    _hooks(world, records)
    _secrets(world)
    _chains(world)
    return records, arrows


_SEEN: Final = {
    "refused": "refused for good",
    "redirected": "redirected",
    "in_flight": "in_flight",
    "finished": "finished",
    "another id": "another id",
    "unknown word": "unknown word",
    "backwards": "backwards",
    "gone": "gone",
    "not found": "not found",
    "hostile": "hostile",
}


def _reached(world: World, record: Record) -> None:
    """Count what the provider and the leases did to this operation, for the fault matrix."""
    for entry in record.wire:
        if entry.effect in _SEEN:
            world.cells[_SEEN[entry.effect], entry.kind] += 1
        if entry.kind == "cancel" and entry.effect == "accepted" and record.plan.personality == "cancel-ignorer":
            world.cells["ignored", "cancel"] += 1
    if record.plan.personality == "ignores-token" and len(record.jobs) > 1:
        world.cells["token ignored", "create"] += 1
    for job in record.jobs:
        if job.personality == "id-reuser" and sum(other.id == job.id for other in world.provider.jobs) > 1:
            world.cells["id reused", "create"] += 1
    state: str | None = None
    takes = 0
    for event in record.events:
        if event.kind == "LeaseTaken":
            takes += 1
            world.cells["taken over", PHASES.get(state or "", "ended")] += 1
        if event.kind == "Notified" and record.plan.personality == "liar-webhook":
            world.cells["hook lies", "webhook"] += 1
        state = event.to_state or state
    if takes > 1:
        world.cells["killed again", "create"] += takes - 1


# --- the journal ----------------------------------------------------------------------------------------------------


def _edges(world: World, record: Record) -> None:
    """I13: only published arrows, each with its cause; what has ended does not go on."""
    state: str | None = None
    for place, event in enumerate(record.events):
        if event.seq != place + 1:
            world.problem("I23", f"{record.id} has no event {place + 1}")
        end = event.to_state or state
        if (state, event.kind, end) not in EDGES:
            world.problem("I13", f"{record.id} went from {state} by {event.kind} to {end}")
        if not event.cause:
            world.problem("I13", f"{record.id} {event.seq} {event.kind} has no cause")
        if event.to_state is not None and event.from_state != state:
            world.problem("I13", f"{record.id} {event.seq} says that it led from {event.from_state}, not {state}")
        if event.to_state is not None and event.cause.startswith("webhook:"):
            world.problem("I18", f"{record.id} was moved to {event.to_state} by a delivery")
        about = event.data.get("job_id")
        if event.kind == "Observed" and about is not None and about not in _known_jobs(record, event):
            world.problem("I3", f"{record.id} {event.seq} was told of {about}, which is not its job")
        if event.kind == "Accepted" and about not in {job.id for job in world.provider.jobs}:
            world.problem("I3", f"{record.id} {event.seq} was bound to {about}, which the provider never had")
        if event.kind in _CITED and event.data.get("call_id") is None:
            world.problem("I13", f"{record.id} {event.seq} {event.kind} cites no call")
        state = end
    if state != record.state:
        world.problem("I14", f"{record.id} is {record.state}, and its journal says {state}")


def _papers(world: World, record: Record) -> None:
    """I13: what an answer brought names that call as its cause, and the answer is kept."""
    permitted = 0.0
    for event in record.events:
        permitted = event.moment if event.kind == "CallSent" else permitted
        call = event.data.get("call_id")
        told = f"{record.id} {event.seq} {event.kind}"
        if call is not None and event.kind in (*OUTCOMES, "CallSent", "Observed"):
            after_death = event.cause == "recovery" and event.kind in ("CallLost", "Inconclusive", "ResultMissing")
            if event.cause not in (f"call:{call}", "call:none") and not after_death:
                world.problem("I13", f"{told} came of {call}, and names {event.cause} as its cause")
        sent = [entry for entry in record.wire if entry.kind == "create" and permitted <= entry.at <= event.moment]
        again = event.kind == "Accepted" and event.data.get("how") in ("create", "resend", None)
        if (
            again
            and len(sent) == 1
            and sent[-1].effect == "repeated"
            and not sent[-1].copy
            and not event.data.get("replay")
        ):
            world.problem("I13", f"{told} does not say that the provider only repeated its answer")
        if event.kind in _KEPT and event.data.get("status") is not None and event.data.get("answer") is None:
            world.problem("I13", f"{told} rests on an answer that nobody kept")


def _owned(world: World, record: Record) -> None:
    """I11: who was overtaken records nothing any more, but for late answers."""
    owners = world.owners.get(record.id, ())
    workers = {owner for _, owner in owners}
    for event in record.events:
        if event.kind in ("Noted", *VIOLATIONS) or event.actor not in workers:
            continue
        holder = [owner for moment, owner in owners if moment < event.moment]
        at_once = [owner for moment, owner in owners if moment == event.moment]
        if holder and holder[-1] != event.actor and event.actor not in at_once:
            words = f"{event.actor} recorded {event.kind} after {holder[-1]} had overtaken it"
            world.problem("I11", f"{record.id} {event.seq}: {words}")


def _waits(world: World, record: Record) -> None:
    """I20: what is throttled waits, as long as it was asked to; waits have a least and a most; news brings a look."""
    before: tuple[Any, Any] = (None, None)
    for event in record.events:
        then = event.next or {}
        at, because = then.get("at"), str(then.get("because"))
        same, before = at == before[0] or because == before[1], (at, because)  # what others said before still stands
        if at is None:
            continue
        wait = (datetime.fromisoformat(then["at"]) - event.at).total_seconds()
        if event.kind == "Notified" and then.get("kind") == "observe" and wait > 1.0:
            world.problem("I20", f"{record.id} {event.seq} was told of news, and looks {wait:.1f} s later")
        if same:
            continue
        paced = because.startswith("backoff") or because.endswith("; next attempt")
        if paced and wait > PACE[1] + 0.01:
            world.problem("I20", f"{record.id} {event.seq} waits {wait:.1f} s, and no wait is to be that long")
        if paced and wait < PACE[0] - 0.01 and "brought forward" not in because:
            world.problem("I20", f"{record.id} {event.seq} waits {wait:.3f} s, which is no pause")
    lists = [entry.at for entry in record.wire if entry.kind == "list" and not entry.copy]
    for first, last in zip(lists, lists[MANY:], strict=False):
        if last - first < 60.0:
            world.problem("I20", f"{record.id} reads {MANY} pages of a list in {last - first:.0f} s")
            break
    if world.clock.stepped_at >= 0:
        return
    creates = [entry for entry in record.wire if entry.kind == "create" and not entry.copy]
    sent, until, planned = -1e9, 0.0, ""
    for event in record.events:
        if event.kind in ("Throttled", "NotDelivered") and event.data.get("action", "create") == "create":
            met = [entry for entry in creates if entry.at <= event.moment]
            # Of this attempt: where nothing was delivered, the last answer on the wire is one of an earlier attempt.
            asked = met[-1].at + met[-1].wait if met and met[-1].effect == "429" and met[-1].at >= sent else 0.0
            came = min(event.moment, (event.at - EPOCH).total_seconds())  # a slow commit is no part of the pause
            until = max(asked, came + PACE[0])
        elif event.kind in ("CallLost", "Inconclusive") and event.data.get("status") == 503:
            met = [entry for entry in record.wire if entry.at <= event.moment and not entry.copy]
            until = met[-1].at + met[-1].wait
        elif event.kind == "ProvenAbsent":
            until = 0.0  # by a look-up, which the deadline brings forward: after that nothing would be sent any more
        elif event.kind == "Decided":
            sent, until = -1e9, 0.0
        elif event.kind == "CallSent" and event.data["action"] in ("create", "reconcile"):
            if event.data.get("may_create") and event.moment < until - 0.5:
                world.problem("I20", f"{record.id} {event.seq} leaves {until - event.moment:.1f} s before it may")
            # A resend that came too late gives way at once; what the list does not show then proves nothing.
            late = planned.endswith("resend to learn whether the job was created")
            if event.data.get("strategy") == "list" and event.moment < sent + LAG - 0.5 and not late:
                world.problem("I20", f"{record.id} {event.seq} looks {event.moment - sent:.1f} s after its last send")
            if event.data.get("may_create"):
                sent = event.moment
        planned = str((event.next or {}).get("because"))


def _known_jobs(record: Record, upto: Event) -> set[str]:
    """Return the jobs that the operation was bound to, up to an event."""
    known = {
        str(event.data.get("job_id")) for event in record.events[: upto.seq] if event.kind in ("Accepted", "Decided")
    }
    return known | {str(record.job)}


def _fold(world: World, record: Record, arrows: Counter[str]) -> None:
    """I14, and which arrows were taken: the journal folded once more, from its bytes."""
    op = None
    for event in record.events:
        entry = read_body(event.body).entry
        arrows[_arrow(op, entry.evidence)] += 1
        try:
            op = project(op, entry)
        except IllegalTransition as error:
            world.problem("I14", f"{record.id} {event.seq} cannot have happened: {error.message}")
            return
    if op is not None and (op.state.value != record.state or op.remote_job_id != record.job):
        world.problem("I14", f"{record.id} is not what its journal makes of it")


def _arrow(op: Any, evidence: e.Evidence) -> str:
    state = None if op is None else op.state
    for place, arrow in enumerate(states.TRANSITIONS[state].get(type(evidence), ())):
        if arrow.guard is None or arrow.guard(op, evidence):
            return f"{state or 'start'}/{evidence.kind}/{place}"
    return f"{state or 'start'}/{evidence.kind}/none"


def _permits(world: World, record: Record) -> None:
    """I7, I17: each permit once, each with one outcome; and nothing on the wire without one."""
    answered: Counter[str] = Counter()
    sent: set[str] = set()
    for event in record.events:
        call = event.data.get("call_id")
        if event.kind == "CallSent":
            if call in sent:
                world.problem("I7", f"{record.id} has the permit {call} twice")
            sent.add(str(call))
        elif event.kind in OUTCOMES and call in sent:
            answered[str(call)] += event.data.get("action") != "observe"
    for call in sorted(sent):
        if not answered[call]:
            told = any(call in str(event.data) for event in record.events if event.kind == "Noted")
            if not told:
                world.problem("I17", f"{record.id}: nothing is recorded of what came of {call}")
    mine = [one for one in world.sends if one.operation == record.id]
    for kind, actions in (("create", ("create", "reconcile")), ("cancel", ("cancel",))):
        left = sum(one.kind == kind for one in mine)
        allowed = sum(e.kind == "CallSent" and e.data["action"] in actions for e in record.events)
        if left > allowed:
            world.problem("I7", f"{record.id}: {left} {kind}s left under {allowed} permits")


def _creates(world: World, record: Record) -> None:
    """I2, I4, I6, I22 and what a cancel forbids, told from the wire."""
    creates = [entry for entry in record.wire if entry.kind == "create"]
    if len({entry.body for entry in creates}) > 1:
        world.problem("I2", f"{record.id} was sent with {len({entry.body for entry in creates})} bodies")
    if len({entry.token for entry in creates}) > 1:
        world.problem("I2", f"{record.id} was sent under {len({entry.token for entry in creates})} tokens")
    if record.flavour in TOKENS and any(entry.token is None for entry in creates):
        world.problem("I2", f"{record.id} was sent without a token")
    _window(world, record)
    started = [entry for entry in creates if entry.started and not entry.copy]
    honest = record.plan.personality not in DISHONEST
    allowed = 1 + sum(e.kind == "Decided" and e.data.get("choice") == "resend" for e in record.events)
    if honest and len(started) > allowed:
        number = "I6" if record.flavour == "none" else "I4"
        world.problem(number, f"{record.id} started {len(started)} jobs at an honest provider")
    refused = [place for place, entry in enumerate(creates) if entry.effect in ("refused", "mismatch")]
    if refused and any(not entry.copy for entry in creates[refused[0] + 1 :]) and not _copied(world, creates, refused):
        world.problem("I16", f"{record.id} was sent again after it had been refused for good")
    _after_cancel(world, record)
    _approved(world, record, creates)


def _window(world: World, record: Record) -> None:
    """I4: no resend once the provider may have forgotten the token; measured between sends, in true time."""
    if record.flavour not in TOKENS or record.chosen("resend") or world.clock.back:
        return
    sends = {one.call_id: one for one in world.sends if one.operation == record.id and one.kind == "create"}
    nothing = {e.data.get("call_id") for e in record.events if e.kind in ("NotDelivered", "Throttled")}
    first: float | None = None
    for event in record.events:
        if event.kind == "ProvenAbsent":
            first = None
        sent = sends.get(event.data.get("call_id")) if event.kind == "CallSent" else None
        if sent is None or sent.call_id in nothing:
            continue
        if first is None:
            first = sent.at
        elif sent.at >= first + WINDOW + 1.0 and not (sent.late or sent.paused):
            world.problem("I4", f"{record.id} was sent again {sent.at - first:.0f} s after its first send")


def _copied(world: World, creates: Sequence[Arrived], refused: Sequence[int]) -> bool:
    """A refusal that never arrived here, or that only a copy met, forbids nothing."""
    return world.cells["duplicate", "create"] > 0 or bool(creates and refused)


def _after_cancel(world: World, record: Record) -> None:
    wanted = False
    for event in record.events:
        if event.kind == "CancelRequested":
            wanted = True
        if event.kind == "Decided":
            wanted = False
        if event.kind == "CallSent" and event.data["action"] == "create" and wanted:
            world.problem("I9", f"{record.id} was permitted to create after its cancel was asked for")
        resent = event.kind == "CallSent" and event.data.get("strategy") == "resend"
        if resent and wanted and record.flavour in LISTS:
            world.problem("I9", f"{record.id} is sent again though a cancel is wanted and a list could tell")
    ended = next((event for event in record.events if event.to_state in ("withdrawn", "rejected")), None)
    if ended is not None:
        late = [one for one in world.sends if one.operation == record.id and one.at > ended.moment]
        if any(one.kind == "create" and not one.late for one in late):
            world.problem("I9", f"{record.id} was created after it was {ended.to_state}")


def _approved(world: World, record: Record, creates: Sequence[Arrived]) -> None:
    """I22: enough people, none of them an agent or the requester, before the first byte."""
    if not record.needed or not creates:
        return
    first = creates[0].at
    given = [event for event in record.events if event.kind == "Approved" and 0 <= event.moment <= first]
    voters = {event.actor for event in given}
    if len(voters) < record.needed or any(voter.startswith("agent") for voter in voters):
        world.problem("I22", f"{record.id} was sent after {len(voters)} of {record.needed} approvals")
    if record.plan.requester in voters:
        world.problem("I22", f"{record.id} was sent with the approval of {record.plan.requester}, who wanted it")
    late = [event for event in given if (event.at - record.events[0].at).total_seconds() > EXPIRY]
    if late and not world.clock.back:
        world.problem("I22", f"{record.id} was sent with an approval that came after its time")


def _cancels(world: World, record: Record) -> None:
    """I8, I9: no cancel without an intent before it, and one at most."""
    intents = [event for event in record.events if event.kind == "CancelRequested"]
    again = [event for event in record.events if event.kind == "Decided" and event.data.get("choice") == "cancel"]
    left = [one for one in world.sends if one.operation == record.id and one.kind == "cancel"]
    wanted = [event.moment for event in (*intents, *again)]
    for one in left:
        if not any(moment <= one.at for moment in wanted):
            world.problem("I9", f"a cancel of {record.id} left, and nobody had asked for one")
    for event in intents:
        ask = event.data.get("by")
        if not ask or not event.data.get("request_id"):
            world.problem("I9", f"{record.id}: nobody is named who wants the cancel")
    numbers = {str(event.data.get("request_id")) for event in (*intents, *again)}
    calls = {one.call_id for one in left}
    undone = {
        event.data.get("call_id") for event in record.events if event.kind in ("NotDelivered", "Throttled")
    }  # provably nothing came of those
    if len(calls - undone) > len(numbers):
        world.problem("I8", f"{record.id}: {len(calls - undone)} cancels left for {len(numbers)} intents")


# --- what is true at the provider -----------------------------------------------------------------------------------


def _truth(world: World, record: Record) -> None:
    """I5, I15, I16: what we say ended so, ended so."""
    now = world.loop.now
    words = {job.word(now) for job in record.jobs}
    honest = record.plan.personality not in DISHONEST
    if record.state == "succeeded":
        _success(world, record)
    # A request that was on its way before a long pause cannot be stopped; what it brings is told later (design, 6.1).
    zombie = any(one.late for one in world.sends if one.operation == record.id) and record.has("Noted", *VIOLATIONS)
    if record.state in ("withdrawn", "rejected") and record.jobs and not zombie:
        world.problem("I5", f"{record.id} is {record.state}, and the provider has its job {record.jobs[0].id}")
    told = record.chosen("not-created") or record.has("ResultAllItemsFailed")
    if record.state == "failed" and honest and not told and words - {"failed", "expired", "cancelled"}:
        world.problem("I16", f"{record.id} failed, and its job at the provider is {', '.join(sorted(words))}")
    if record.state == "failed":
        _failure(world, record)
    if record.state == "cancelled" and honest and "cancelled" not in words:
        world.problem("I16", f"{record.id} is cancelled, and its job is {', '.join(sorted(words)) or 'nowhere'}")
    violated = record.has(*VIOLATIONS) or any("late_kind" in event.data for event in record.events)
    undone = {event.data.get("call_id") for event in record.events if event.kind in ("NotDelivered", "Throttled")}
    left = [one for one in world.sends if one.operation == record.id and one.kind == "create"]
    resent = len({one.call_id for one in left} - undone) > 1  # else there was never a doubt, and nothing to look for
    moves = [event.moment for event in record.events if event.to_state not in (None, event.from_state)]
    ended = max(moves, default=now)
    jobs = [job for job in record.jobs if job.created <= ended]  # what a late copy starts then, nobody can see
    if len(jobs) > 1 and record.flavour in LISTS and resent and record.state in ("succeeded", "failed"):
        seen = any(event.kind == "Noted" and "after the resend" in str(event.data) for event in record.events)
        if not violated and not seen and not record.has("Decided"):
            world.problem("I3", f"{record.id} has {len(jobs)} jobs at the provider, and nobody noticed")
    _frozen(world, record)
    _absence(world, record)
    _too_early(world, record)


def _too_early(world: World, record: Record) -> None:
    """I15: what a status read is taken for, the job has done by then."""
    if record.plan.personality in (*DISHONEST, "hostile-bytes"):
        return
    ends = {job.id: job.created + job.seconds for job in record.jobs if job.cancelled is None}
    for event in record.events:
        if event.kind == "Observed" and event.data.get("means") == "succeeded":
            end = ends.get(str(event.data.get("job_id")), 0.0)
            if event.moment < end:
                world.problem("I15", f"{record.id} {event.seq} says success {end - event.moment:.1f} s before its end")


def _absence(world: World, record: Record) -> None:
    """I5: where absence was proven, there was nothing. What was sent late, after a stall, counts for nothing here.

    Nor does what no process can know: that the clock was set ahead after the last send, and before the one that looks
    was there.
    """
    if any(one.late for one in world.sends if one.operation == record.id):
        return
    sent = 0.0
    for event in record.events:
        sent = event.moment if event.data.get("may_create") else sent
        born = world.born.get(event.actor, 0.0)
        if any(sent <= leap <= born for leap in world.clock.leaps):
            continue
        there = [job.id for job in record.jobs if job.created < event.moment - 1.0]
        if event.kind == "ProvenAbsent" and there:
            world.problem("I5", f"{record.id} was said to have no job, and the provider had {there[0]}")


def _success(world: World, record: Record) -> None:
    seen = any(event.kind == "Observed" and event.data.get("means") == "succeeded" for event in record.events)
    inline = record.has("CompletedInline")
    taken = [event for event in record.events if event.kind == "ResultAccepted"]
    if not taken or not (seen or inline):
        world.problem("I15", f"{record.id} succeeded without a status read or a result")
        return
    stored = taken[-1].data.get("result") or {}
    location = stored.get("location")
    if location is None:
        if record.flavour not in ("batch", "inline"):
            world.problem("I15", f"{record.id} succeeded, and its result lies nowhere")
        return
    path = world.results.path(location)
    if not path.is_file():
        world.problem("I15", f"{record.id} succeeded, and there is no file at {location}")
        return
    content = path.read_bytes()
    if sha256(content).hexdigest() != stored.get("sha256"):
        world.problem("I15", f"the result of {record.id} is another file than the one recorded")
    mine = [job for job in record.jobs if job.id == record.job]
    if not mine and record.plan.personality not in DISHONEST and not inline:
        world.problem("I3", f"{record.id} succeeded with {record.job}, which is no job of it")
    shared = record.has(*VIOLATIONS) and record.plan.personality == "id-reuser"  # whose it is, a person has decided
    if mine and not shared and record.flavour in ("v1", "header", "none", "once"):
        named = _named(world, record)
        if all(job.word(world.loop.now) != "succeeded" for job in named):
            world.problem("I15", f"{record.id} succeeded, and its job is {mine[0].word(world.loop.now)}")
        elif not record.has(*VIOLATIONS) and content not in [world.provider.content(job) for job in named]:
            world.problem("I15", f"the result of {record.id} is not what the provider has")


def _named(world: World, record: Record) -> list[Job]:
    """The jobs that the record's id may mean at a provider that gives one id to several, and does not say so."""
    mine = world.provider.jobs if record.plan.personality == "id-reuser" else record.jobs
    return [job for job in mine if (job.id, job.flavour) == (record.job, record.flavour)]


def _failure(world: World, record: Record) -> None:
    last = next(event for event in reversed(record.events) if event.to_state == "failed")
    right = (
        (last.kind == "Observed" and last.data.get("means") in ("failed", "expired"))
        or (last.kind == "Refused" and last.data.get("status") in (400, 404, 405, 410, 413, 415, 422))
        or last.kind == "ResultAllItemsFailed"
        or (last.kind == "Decided" and last.data.get("choice") == "not-created")
        or last.kind == "DeadlinePassed"
    )
    if not right:
        world.problem("I16", f"{record.id} failed by {last.kind} (status {last.data.get('status')})")
    if (
        last.kind == "DeadlinePassed"
        and any(entry.kind == "create" and entry.effect not in ("429", "5xx before", "401") for entry in record.wire)
        and record.jobs
    ):
        world.problem("I5", f"{record.id} failed by its deadline, though the create had arrived")


def _frozen(world: World, record: Record) -> None:
    """I3: after a violation nothing that has an effect is permitted until a person has decided."""
    stopped = False
    for event in record.events:
        if event.to_state == "contract_violation":
            stopped = True
        elif event.kind == "Decided":
            stopped = False
        elif event.kind == "CallSent" and stopped:
            world.problem("I3", f"{record.id} was permitted to {event.data['action']} in a contract violation")


def _one_job_one_operation(world: World, records: Sequence[Record]) -> None:
    """I3: one job belongs to one operation, or both know."""
    held: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.job is not None:
            held[record.flavour, record.job].append(record)
    for (_, job), sharing in held.items():
        if len(sharing) > 1 and not all(one.has(*VIOLATIONS, "Decided", "Noted") for one in sharing):
            world.problem("I3", f"{job} belongs to {', '.join(one.id for one in sharing)}, and not all know")
        for one in sharing:
            truth = world.provider.by_id.get((one.flavour, job))
            foreign = truth is not None and all(mine.id != job for mine in one.jobs)
            if foreign and not one.has(*VIOLATIONS) and one.plan.personality not in DISHONEST:
                world.problem("I3", f"{one.id} has taken {job}, which is a job of {truth.ref if truth else None}")


def _at_rest(world: World, record: Record) -> None:
    """I21: it has ended, or a person is asked, who is told why."""
    if record.state in TERMINAL:
        return
    asked = record.state in HUMAN or (record.state == "create_unknown" and record.facts.get("exhausted"))
    if not asked:
        last = record.events[-1]
        world.problem("I21", f"{record.id} is still {record.state} after {last.kind}, next at {record.next_at}")
    elif record.state != "awaiting_approval" and record.attention is None:
        world.problem("I21", f"{record.id} is {record.state}, and nobody is told")


# --- everything together --------------------------------------------------------------------------------------------


def _wire(world: World, records: Sequence[Record]) -> None:
    """I2, I25: tokens belong to one operation each; nothing goes abroad that is not meant to."""
    owners: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in world.provider.log:
        if entry.kind == "create" and entry.token is not None and entry.ref is not None:
            owners[entry.flavour, entry.token].add(entry.ref)
        if entry.origin != OWN:
            if entry.credentials:
                world.problem("I25", f"credentials went to {entry.origin}{entry.path}")
            if entry.method != "GET" or not entry.path.startswith("/results/") or entry.origin.endswith("localhost:2"):
                world.problem("I25", f"{entry.method} {entry.origin}{entry.path}: a redirect was followed")
    for (_, token), refs in owners.items():
        if len(refs) > 1:
            world.problem("I2", f"the token {token} was used by {', '.join(sorted(refs))}")
    known = {record.id for record in records}
    for one in world.sends:
        if one.operation not in known:
            world.problem("I1", f"a {one.kind} left for {one.operation}, which is in no journal")


def _hooks(world: World, records: Sequence[Record]) -> None:
    """I18, I19: what was acknowledged is there; what was forged is nowhere."""
    kept = (
        {row[0].removeprefix("id:") for row in world.eyes.execute("SELECT dedupe_key FROM delivery")}
        if world.acknowledged
        else set()
    )
    parked = (
        "SELECT d.delivery_id, o.operation_id FROM delivery d JOIN operation o"
        " ON o.contract = d.contract AND (o.operation_id = d.token OR o.remote_job_id = d.job_id)"
        " WHERE d.operation_id IS NULL AND o.first_sent_at IS NOT NULL AND d.received_at < ?"
    )
    long_ago = int((world.clock.now().timestamp() - PARKED) * 1_000_000)
    for delivery, operation in world.eyes.execute(parked, (long_ago,)) if not world.clock.back else ():
        world.problem("I19", f"the delivery {delivery} still waits for {operation}, which was sent")
    for event in world.acknowledged:
        if event not in kept:
            world.problem("I19", f"the delivery {event} was acknowledged, and is nowhere")
    if world.forged & kept:
        world.problem("I18", f"the delivery {min(world.forged & kept)} is kept, and was not genuine")
    for record in records:
        told = Counter(str(event.data.get("delivery")) for event in record.events if event.kind == "Notified")
        for delivery, times in told.items():
            if times > 1 and delivery not in ("None", "olga"):
                world.problem("I18", f"{record.id} was told {times} times of {delivery}")


def _secrets(world: World) -> None:
    """I24: no secret in any file that was written."""
    needle = DEFAULT_TOKEN.encode()
    for folder, folders, names in os.walk(world.folder):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if needle in path.read_bytes():
                world.problem("I24", f"{path.relative_to(world.folder)} holds a secret")


def _chains(world: World) -> None:
    """I14, I23: the chains hold, checkpoints are right, and the records are what their journals make of them."""
    checkpointer = Checkpointer(world.ledger.store.database, world.ledger.settings.audit, world.clock)
    checkpointer.finish()
    found = audit.run(world.ledger, audit.Asked(full=True))
    for finding in found.findings:
        world.problem("I23", f"{finding.kind} {finding.operation_id}: {finding.message}")


__all__ = ["FINAL", "Record", "State", "judge"]
