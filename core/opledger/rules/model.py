"""The nouns: frozen values that every room shares.

An `Operation` is the projection of its journal. Nothing here knows a database, a socket or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final


class State(StrEnum):
    """What we know and intend about an operation (DESIGN §5)."""

    AWAITING_APPROVAL = "awaiting_approval"  #: a person must approve before anything is sent
    CREATE_PENDING = "create_pending"  #: the create may be sent; nothing is known to run
    CREATE_UNKNOWN = "create_unknown"  #: a create was sent and nobody knows its fate
    RECONCILIATION = "reconciliation"  #: a look-up or a resend is under way to learn that fate
    ACCEPTED = "accepted"  #: the provider bound our request to a job id
    OBSERVING = "observing"  #: the job has been seen and is being polled
    CANCEL_REQUESTED = "cancel_requested"  #: a cancel intent is recorded, its call not yet answered
    CANCELLING = "cancelling"  #: the cancel was sent; a status read must say how it ended
    CANCELLATION_UNCONFIRMED = "cancellation_unconfirmed"  #: the cancel deadline passed without a final word
    RESULT_TIMED_OUT = "result_timed_out"  #: the result deadline passed; the job may still run
    RESULT_COLLECTING = "result_collecting"  #: the job succeeded; its result is being fetched
    RESULT_UNAVAILABLE = "result_unavailable"  #: the job succeeded but its result cannot be had
    RESULT_VALIDATION_FAILED = "result_validation_failed"  #: the result arrived whole and is wrong
    CONTRACT_VIOLATION = "contract_violation"  #: the provider broke its promises; automation stopped
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    RESOLVED = "resolved"

    @property
    def terminal(self) -> bool:
        """True where nothing more happens by itself."""
        return self in TERMINAL

    @property
    def needs_human(self) -> bool:
        """True where automation has ended and a person must decide.

        `create_unknown` is not listed: it needs a person only once its attention is raised.
        """
        return self in NEEDS_HUMAN


TERMINAL: Final = frozenset(
    {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.REJECTED, State.WITHDRAWN, State.RESOLVED}
)
NEEDS_HUMAN: Final = frozenset(
    {
        State.AWAITING_APPROVAL,
        State.CONTRACT_VIOLATION,
        State.CANCELLATION_UNCONFIRMED,
        State.RESULT_TIMED_OUT,
        State.RESULT_UNAVAILABLE,
        State.RESULT_VALIDATION_FAILED,
    }
)


class Action(StrEnum):
    """The recorded actions of the worker."""

    CREATE = "create"
    RECONCILE = "reconcile"
    OBSERVE = "observe"
    CANCEL = "cancel"
    COLLECT = "collect"


class Means(StrEnum):
    """Our canonical reading of the provider's word. An unmapped word is UNKNOWN: never success, never failure."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_HUMAN = "waiting_human"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PARTIAL = "partial"
    GONE = "gone"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """True where the provider says the job has ended."""
        return self in FINAL_MEANS


SUCCESS_MEANS: Final = frozenset({Means.SUCCEEDED, Means.PARTIAL})
FAILURE_MEANS: Final = frozenset({Means.FAILED, Means.EXPIRED})
FINAL_MEANS: Final = SUCCESS_MEANS | FAILURE_MEANS | {Means.CANCELLED}


class Deadline(StrEnum):
    """The five separate timers of an operation."""

    APPROVAL = "approval"
    CREATE = "create"
    RESULT = "result"
    CANCEL = "cancel"
    COLLECT = "collect"


class Choice(StrEnum):
    """What a person may decide (`resolve --as`)."""

    BIND = "bind"
    NOT_CREATED = "not-created"
    RESEND = "resend"
    KEEP = "keep"
    CANCEL = "cancel"
    WATCH = "watch"
    EXTEND = "extend"
    COLLECT = "collect"
    ACCEPT = "accept"
    RESUME = "resume"
    CLOSE = "close"


class ActorKind(StrEnum):
    """Who acts. Agents submit, wait and cancel; they never approve or resolve."""

    HUMAN = "human"
    AGENT = "agent"
    WORKER = "worker"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who caused an event, and in which process on which machine; None where that is not known (older events)."""

    name: str
    kind: ActorKind = ActorKind.HUMAN
    host: str | None = None
    process: str | None = None  #: ``PID@START``: the number alone comes again


_COUNTED: Final = {
    action: place
    for place, action in enumerate((Action.CREATE, Action.RECONCILE, Action.OBSERVE, Action.CANCEL, Action.COLLECT))
}


@dataclass(frozen=True, slots=True)
class Attempts:
    """How many calls of each kind were made (permits for effectful ones, answers for reads)."""

    create: int = 0
    reconcile: int = 0
    observe: int = 0
    cancel: int = 0
    collect: int = 0

    def plus(self, action: Action, times: int = 1) -> Attempts:
        """Return the same with more calls of one kind. `dataclasses.replace` takes three times as long, every poll."""
        counts = [self.create, self.reconcile, self.observe, self.cancel, self.collect]
        counts[_COUNTED[action]] += times
        return Attempts(*counts)


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval, bound to the fingerprint it was given for."""

    by: str
    at: datetime
    reason: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Attention:
    """Something a person should look at: a code, since when, and one sentence why."""

    code: str
    since: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A permit without an outcome: `CallSent` was committed and no answer is recorded.

    Found by a worker that did not make the call itself, it means "unknown" (invariant I7).
    """

    call_id: str
    action: Action
    at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CancelIntent:
    """A recorded wish to cancel: who, why, and what they expect to happen."""

    request_id: str
    by: str
    at: datetime
    reason: str
    effect: str = ""
    sent: int = 0  #: cancel calls permitted under this intent
    lost: bool = False  #: the last of them has no known answer
    reread: bool = False  #: the job was read after that and still ran
    undelivered: bool = False  #: the last of them provably never arrived, so this intent is still unsent
    shares: str | None = None  #: the operation whose cancel call stops this job too


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens next, when, and why, in one sentence; stored with every event."""

    kind: str  #: an Action value, "deadline" or "human"
    at: datetime | None
    because: str


@dataclass(frozen=True, slots=True)
class Lease:
    """Who acts for an operation now; the epoch is the fencing number of every write."""

    owner: str
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ItemSummary:
    """Outcomes of the items inside one job."""

    total: int
    succeeded: int
    failed: int
    failed_refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A further file of a result, kept beside it."""

    name: str
    location: str
    size: int
    sha256: str
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class StoredResult:
    """Where the result lies and how we know that it is whole.

    Without a `location` the provider made none, and what there is stands in `also`: a job whose items all failed.
    """

    location: str | None
    size: int
    sha256: str | None
    content_type: str | None
    validated: bool
    problems: tuple[str, ...] = ()
    items: ItemSummary | None = None
    also: tuple[StoredFile, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """The create request, stored once at submit and resent as stored.

    `url`, `headers` and `body` are the exact values that are sent, except credentials and
    ``{secret.NAME}`` headers, which the HTTP edge adds last. `asked` is the canonical JSON of what the caller
    asked for (before token and reference fields); `fingerprint_url` is the URL template with variables filled
    in but without operation id and token, so that the same wish has the same fingerprint.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    content_type: str | None
    asked: bytes
    fingerprint_url: str


@dataclass(frozen=True, slots=True)
class Operation:
    """The projection of one operation's journal (DESIGN §3)."""

    operation_id: str
    contract: str
    contract_digest: str
    request_fingerprint: str
    idempotency_token: str | None
    trace_id: str
    requested_by: str
    created_at: datetime
    state: State
    create_timeout: timedelta
    result_timeout: timedelta
    cancel_timeout: timedelta
    collect_timeout: timedelta

    expectation: str | None = None
    expected_effect: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    supersedes: str | None = None
    task: str | None = None
    step: str | None = None

    remote_job_id: str | None = None
    remote_state: str | None = None
    remote_means: Means | None = None
    remote_refs: Mapping[str, str] = field(default_factory=dict)
    progress: Mapping[str, Any] | None = None

    create_deadline: datetime | None = None
    result_deadline: datetime | None = None
    cancel_deadline: datetime | None = None
    collect_deadline: datetime | None = None
    approval_deadline: datetime | None = None

    next: Plan | None = None
    attempts: Attempts = Attempts()
    last_error: str | None = None
    attention: Attention | None = None
    acknowledged_by: str | None = None  #: who has seen the attention; forgotten as soon as it is another one
    acknowledged_until: datetime | None = None  #: when that lapses; None: not before the attention ends
    approvals: tuple[Approval, ...] = ()
    approvals_needed: int = 0

    open_call: OpenCall | None = None
    cancel: CancelIntent | None = None
    first_sent_at: datetime | None = None  #: first create permit; the token's memory is measured from here
    last_sent_at: datetime | None = None  #: last create or resend permit
    accepted_at: datetime | None = None
    observed_at: datetime | None = None  #: last answer from a status read that was understood
    backoff: int = 0  #: how many waits of the present kind came before; the exponent of the next one
    failures: int = 0  #: failed reads or undelivered calls in a row
    strategy: int = 0  #: index of the next reconcile strategy in the contract's list
    exhausted: bool = False  #: no automatic path out of create_unknown is left
    absent_since: datetime | None = None  #: when a look-up first found nothing
    duplicate_accepted: bool = False  #: a person accepted a possible duplicate by deciding to resend
    jobs: tuple[str, ...] = ()  #: every job id ever seen under our token
    unread: Mapping[str, int] = field(default_factory=dict)  #: deliveries to be read as evidence: id -> seq of Notified
    told: str | None = None  #: sha256 of the body of the delivery that told how the job ended: it names the result
    told_at: datetime | None = None  #: the provider's own time of the newest delivery that was read
    result: StoredResult | None = None

    version: int = 0
    head_seq: int = 0
    head_hash: str = "0" * 64
    lease: Lease | None = None

    @property
    def sent(self) -> bool:
        """True once a create permit was ever committed: from here on something may run remotely."""
        return self.first_sent_at is not None


def utc(moment: datetime) -> datetime:
    """Return `moment` in UTC; refuse naive times.

    Raises ValueError for a naive datetime (a time without a zone means nothing across machines) and for one that has
    no UTC: in the first and the last hours of all years.
    """
    if moment.tzinfo is None:
        raise ValueError("a naive time was given; every time needs a zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time lies outside of the years 1 to 9999 in UTC") from None


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""What stored times are counted from."""


def to_rfc3339(moment: datetime) -> str:
    """Write a time as RFC 3339 in UTC with exactly six fractional digits and ``Z``."""
    # Not strftime: it is four times as slow, and this is written several times for every poll.
    return (moment if moment.tzinfo is UTC else utc(moment)).isoformat(timespec="microseconds")[:26] + "Z"


def from_rfc3339(text: str) -> datetime:
    """Read what `to_rfc3339` wrote (and any other RFC 3339 time that names its offset).

    Raises ValueError for anything else, and for times without an offset.
    """
    return utc(datetime.fromisoformat(text))
