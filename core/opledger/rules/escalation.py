"""What wants a person, how urgently, in which order, and what is to be said about it now.

An escalation is an attention that stands: of one operation, or of a provider whose calls are stopped (one for all its
operations). A *track* remembers what one target has been told of one escalation; `next_step` says what follows from
it, and the shell does that. Nothing here sends anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from opledger.rules import deliveries, partial
from opledger.rules.decide import open_deadline
from opledger.rules.model import Operation, State, to_rfc3339
from opledger.rules.plain import SafeText, clean


class Severity(StrEnum):
    """How urgently a person is needed. Only what is critical is repeated while nobody answers."""

    CRITICAL = "critical"  #: money or work may be doubled or lost now, and automation has stopped
    HIGH = "high"  #: an outcome is open or wrong, and nothing but a person will change that
    LOW = "low"  #: worth a look; automation goes on


PROVIDER_PAUSED: Final = "provider_paused"
"""The code of the escalation of a provider whose calls are stopped."""

_PROVIDER: Final = "provider:"

CRITICAL_CODES: Final = frozenset({State.CONTRACT_VIOLATION, State.CANCELLATION_UNCONFIRMED, State.CREATE_UNKNOWN})
# A record that has ended is looked at by nobody else: where it is contradicted, or what its job left is lost or wrong,
# no poll, no deadline and no state says so. A delivery that cannot be read is all that was ever told of its job.
HIGH_CODES: Final = frozenset(
    {
        State.RESULT_TIMED_OUT, State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED, PROVIDER_PAUSED,
        "final_state_contradicted", partial.LOST, partial.INVALID, deliveries.UNREADABLE,
    }
)  # fmt: skip

NEAR: Final = timedelta(hours=1)
"""An approval that expires sooner than this is no longer low."""

LONGEST_REPEAT: Final = timedelta(hours=8)
FIRST_RETRY: Final = timedelta(seconds=15)
LONGEST_RETRY: Final = timedelta(minutes=15)
SHOWN: Final = 5  #: escalations that a digest tells one by one
REASON: Final = 300  #: characters of a reason in a notice

_RANK: Final = {Severity.CRITICAL: 0, Severity.HIGH: 1, Severity.LOW: 2}
_NEVER: Final = datetime.max.replace(tzinfo=UTC)

_DEFUSED: Final = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "\uff20", "`": "′", "|": "¦"})
"""What chat programs would obey in a provider's text: mentions of everybody, links in disguise, hidden words."""


def severity(code: str, deadline: datetime | None = None, now: datetime | None = None) -> Severity:
    """How urgent an attention code is. Codes that are not listed come from failed reads, and automation goes on.

    A wish that waits for approval is low until its deadline is near; without a deadline it stays low.
    """
    if code in CRITICAL_CODES:
        return Severity.CRITICAL
    near = code == State.AWAITING_APPROVAL and deadline is not None and now is not None and deadline - now <= NEAR
    return Severity.HIGH if near or code in HIGH_CODES else Severity.LOW


@dataclass(frozen=True, slots=True)
class Escalation:
    """One thing that wants a person now."""

    subject: str  #: an operation id, or ``provider:NAME``
    contract: str
    code: str
    since: datetime
    reason: str
    severity: Severity
    operation_id: str | None = None
    state: State | None = None
    deadline: datetime | None = None  #: the deadline that runs in the present state
    requested_by: str | None = None
    acknowledged_by: str | None = None
    acknowledged_until: datetime | None = None

    def acknowledged(self, now: datetime) -> bool:
        """True while a person's word that they have seen it holds."""
        return self.acknowledged_by is not None and (self.acknowledged_until is None or now < self.acknowledged_until)


def of_operation(op: Operation, now: datetime) -> Escalation | None:
    """Return what an operation wants of a person; None where it wants nothing."""
    if op.attention is None:
        return None
    running = open_deadline(op)
    deadline = None if running is None else running[1]
    return Escalation(
        subject=op.operation_id,
        contract=op.contract,
        code=str(op.attention.code),
        since=op.attention.since,
        reason=op.attention.reason,
        severity=severity(op.attention.code, deadline, now),
        operation_id=op.operation_id,
        state=op.state,
        deadline=deadline,
        requested_by=op.requested_by,
        acknowledged_by=op.acknowledged_by,
        acknowledged_until=op.acknowledged_until,
    )


def of_provider(contract: str, by: str, reason: str, since: datetime) -> Escalation:
    """Return the one escalation of a provider whose calls are stopped."""
    because = f"calls to {contract} were stopped by {by}: {reason}"
    return Escalation(provider_subject(contract), contract, PROVIDER_PAUSED, since, because, severity(PROVIDER_PAUSED))


def provider_subject(contract: str) -> str:
    """Return what stands in the place of an operation id; no operation id has a colon."""
    return f"{_PROVIDER}{contract}"


def triage(found: Iterable[Escalation], now: datetime) -> tuple[Escalation, ...]:
    """Order for a list of work: what nobody has taken first, then by severity, deadline and age."""
    return tuple(sorted(found, key=lambda one: _urgency(one, now)))


def _urgency(one: Escalation, now: datetime) -> tuple[bool, int, datetime, datetime, str]:
    return one.acknowledged(now), _RANK[one.severity], one.deadline or _NEVER, one.since, one.subject


# --- whom to tell ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """One place that notices go to, and what it wants to hear. `name` gives no secret away."""

    name: str
    codes: frozenset[str] = frozenset()  #: empty: all
    least: Severity = Severity.LOW
    repeat: timedelta = timedelta(minutes=30)  #: first wait before a critical one is told again; doubles
    digest: int = 5  #: more than so many at once become one message

    def wants(self, one: Escalation) -> bool:
        """True where this target is to hear of an escalation."""
        return (not self.codes or one.code in self.codes) and _RANK[one.severity] <= _RANK[self.least]

    def listened_for(self) -> frozenset[str] | None:
        """Return the codes that this target can ever want; None for all there are."""
        if self.least is Severity.LOW:
            return self.codes or None
        listed = CRITICAL_CODES if self.least is Severity.CRITICAL else CRITICAL_CODES | HIGH_CODES
        if self.least is Severity.HIGH:
            listed |= {State.AWAITING_APPROVAL}
        return frozenset(str(code) for code in listed if not self.codes or code in self.codes)

    def approvals_before(self, now: datetime) -> datetime:
        """Return the deadline from which on a waiting approval is not yet this target's concern."""
        return _NEVER if self.least is Severity.LOW else now + NEAR


def target_name(url: str, name: str | None, position: int) -> str:
    """Return what a target is called in the database, in logs and by `doctor`; its URL is a secret.

    Its own name, with a number from the second URL on; else the variable that holds the URL; else its scheme and a
    part of its hash, too short to try a password against.
    """
    if name is not None:
        return name if position == 0 else f"{name}/{position + 1}"
    if url.startswith("env:"):
        return url
    digest = hashlib.sha256(f"opledger notice target {url}".encode()).hexdigest()
    return f"{url.partition(':')[0]}#{digest[:8]}"


# --- what to say now ---------------------------------------------------------------------------------------------


class TrackState(StrEnum):
    """How far a track is."""

    PENDING = "pending"  #: to be told
    SENDING = "sending"  #: a worker has taken it; if that worker dies, it is told again
    SENT = "sent"  #: told at least once; a repetition may follow
    FAILED = "failed"  #: the last try failed; another one follows
    OVER = "over"  #: the attention ended before anything could be told


class Occasion(StrEnum):
    """Why something is told."""

    OPENED = "opened"
    RAISED = "raised"  #: it has become more urgent
    REPEATED = "repeated"  #: nobody has acknowledged it
    REOPENED = "reopened"  #: an acknowledgement has lapsed


@dataclass(frozen=True, slots=True)
class Track:
    """What one target has been told of one escalation. (target, subject, code, since) names it."""

    target: str
    subject: str
    code: str
    since: datetime
    first_seen: datetime
    state: TrackState = TrackState.PENDING
    due_at: datetime | None = None  #: when to look at it again; None: only if it is acknowledged
    severity: Severity | None = None  #: as it was told
    rounds: int = 0  #: times told since it opened or was reopened
    attempts: int = 0  #: tries in a row that failed
    sent_at: datetime | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Tell it now."""

    occasion: Occasion


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing to tell now; look again then. None: only if it is acknowledged."""

    at: datetime | None


@dataclass(frozen=True, slots=True)
class Over:
    """There is nothing left to tell."""


def next_step(track: Track, standing: Escalation | None, target: Target, now: datetime) -> Send | Later | Over:
    """Say what to do about a track that is due. `standing` is what its subject wants now; None: nothing.

    A target that no longer wants this is told nothing.
    """
    if standing is None or (standing.code, standing.since) != (track.code, track.since):
        return Over()
    if not target.wants(standing):
        return Over() if track.sent_at is None else Later(None)
    if standing.acknowledged(now):
        return Later(standing.acknowledged_until)
    if track.sent_at is None:
        return Send(Occasion.OPENED)
    if standing.acknowledged_until is not None and track.sent_at < standing.acknowledged_until:
        return Send(Occasion.REOPENED)
    if track.severity is not None and _RANK[standing.severity] < _RANK[track.severity]:
        return Send(Occasion.RAISED)
    if standing.severity is Severity.CRITICAL and now >= track.sent_at + repeat_after(track.rounds, target):
        return Send(Occasion.REPEATED)
    return Later(_look_again(standing, target, track.sent_at, track.rounds))


def repeat_after(rounds: int, target: Target) -> timedelta:
    """Return how long to wait for an answer after having told it `rounds` times: doubling, up to a limit."""
    doubled: timedelta = target.repeat * 2 ** min(max(rounds - 1, 0), 20)
    return min(doubled, max(LONGEST_REPEAT, target.repeat))


def after_sending(
    track: Track, standing: Escalation, occasion: Occasion, target: Target, now: datetime
) -> tuple[int, datetime | None]:
    """Return what to remember once it was told: the rounds, and when to look again."""
    rounds = 1 if occasion is Occasion.REOPENED else track.rounds + 1
    return rounds, _look_again(standing, target, now, rounds)


def retry_after(attempts: int, jitter: float) -> timedelta:
    """Return the wait after `attempts` failed tries in a row. `jitter` in [0, 1) makes it 0.5 to 1.5 times as long."""
    doubled: timedelta = FIRST_RETRY * 2 ** min(max(attempts - 1, 0), 20)
    return min(doubled, LONGEST_RETRY) * (0.5 + jitter)


def _look_again(standing: Escalation, target: Target, sent_at: datetime, rounds: int) -> datetime | None:
    if standing.severity is Severity.CRITICAL:
        return sent_at + repeat_after(rounds, target)
    if standing.code == State.AWAITING_APPROVAL and standing.severity is Severity.LOW and standing.deadline is not None:
        return standing.deadline - NEAR
    return None


# --- how to say it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    """An escalation that is to be told now, and why now."""

    standing: Escalation
    occasion: Occasion


@dataclass(frozen=True, slots=True)
class Message:
    """What one target gets, in one piece. `covers` are the positions of the notices that it tells."""

    title: SafeText
    body: SafeText
    severity: Severity
    covers: tuple[int, ...]


_WHY_NOW: Final = {
    Occasion.OPENED: "",
    Occasion.RAISED: "more urgent now: ",
    Occasion.REPEATED: "still not acknowledged: ",
    Occasion.REOPENED: "the acknowledgement has lapsed: ",
}


def messages(notices: Sequence[Notice], digest: int, now: datetime) -> tuple[Message, ...]:
    """Put notices into words, the most urgent first; more than `digest` of them into one message.

    What comes from outside is made inert: for terminals by `plain.clean`, and for chat programs besides.
    """
    order = tuple(sorted(range(len(notices)), key=lambda index: _urgency(notices[index].standing, now)))
    if len(notices) > digest:
        return (_digest([notices[index] for index in order], order),)
    return tuple(_single(notices[index], index) for index in order)


def _single(notice: Notice, index: int) -> Message:
    one = notice.standing
    title = f"[{one.severity}] {_WHY_NOW[notice.occasion]}{one.code}: {_name(one)}"
    lines = [f"why: {one.reason}", f"since: {to_rfc3339(one.since)}"]
    if one.state is not None:
        lines.insert(0, f"state: {one.state}")
    if one.deadline is not None:
        lines.append(f"deadline: {to_rfc3339(one.deadline)}")
    if one.operation_id is None:
        lines.append(f"then: opledger provider resume {one.contract}")
    else:
        lines += [f"requested by: {one.requested_by}", f"then: opledger explain {one.operation_id}"]
    return Message(_inert(title), SafeText("\n".join(_inert(line) for line in lines)), one.severity, (index,))


def _digest(notices: Sequence[Notice], covers: tuple[int, ...]) -> Message:
    found = [notice.standing for notice in notices]
    counts = sorted(Counter((_RANK[one.severity], one.severity, one.code) for one in found).items())
    worst = min(found, key=lambda one: _RANK[one.severity]).severity
    again = sum(notice.occasion is not Occasion.OPENED for notice in notices)
    title = f"[{worst}] {len(found)} escalations" + (f", {again} of them told before" if again else "")
    lines = [f"{number} × {code} ({level})" for ((_, level, code), number) in counts]
    lines += ["", "most urgent:"]
    for one in found[:SHOWN]:
        until = "" if one.deadline is None else f", deadline {to_rfc3339(one.deadline)}"
        lines.append(f"- {one.code}: {_name(one)} since {to_rfc3339(one.since)}{until}: {one.reason}")
    left = len(found) - SHOWN
    lines.append(f"and {left} more; all of them: opledger escalations" if left > 0 else "see: opledger escalations")
    return Message(_inert(title), SafeText("\n".join(_inert(line) for line in lines)), worst, covers)


def _name(one: Escalation) -> str:
    return f"provider {one.contract}" if one.operation_id is None else f"{one.contract} {one.operation_id}"


def _inert(text: str) -> SafeText:
    return SafeText(clean(text, limit=REASON).translate(_DEFUSED))
