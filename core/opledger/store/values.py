"""What is handed to the store and what comes back: frozen values, without a trace of SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from opledger.errors import OpledgerError, Refused
from opledger.rules.evidence import Evidence, Submitted
from opledger.rules.model import Actor, Operation, Plan, StoredRequest
from opledger.rules.sharing import Pace


class Changed(Refused):
    """The record is not as the caller saw it; look again before deciding."""

    code: ClassVar[str] = "changed"


class JobIdTaken(Refused):
    """The provider gave one job id to two operations."""

    code: ClassVar[str] = "job_id_taken"

    def __init__(self, message: str, other_operation_id: str) -> None:
        super().__init__(message)
        self.other_operation_id = other_operation_id


class TokenTaken(Refused):
    """Another operation of this provider already has this idempotency token."""

    code: ClassVar[str] = "token_taken"


@dataclass(frozen=True, slots=True)
class Fence:
    """Whose lease a write stands on, and which take-over of it."""

    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A provider's answer as it is kept: sanitised and capped. Stored once for all events that cite it."""

    sha256: str  #: hex, over `body`
    body: bytes
    content_type: str | None
    size: int  #: bytes that were received, before sanitising and capping
    truncated: bool

    @classmethod
    def of(cls, body: bytes, content_type: str | None = None, *, size: int | None = None) -> Answer:
        """An answer with its hash; `size` where fewer bytes are kept than came."""
        full = len(body) if size is None else size
        return cls(hashlib.sha256(body).hexdigest(), body, content_type, full, truncated=full > len(body))


PlanNext = Callable[[Operation], Plan | None]


@dataclass(frozen=True, slots=True)
class Write:
    """One event to record, and the conditions under which it may be.

    `plan` says what happens next, given the record after the event; it may be called more than once and must be pure.
    """

    operation_id: str
    evidence: Evidence
    actor: Actor
    at: datetime
    cause: str
    plan: PlanNext
    reason: str | None = None
    fence: Fence | None = None  #: refused with LeaseLost unless this lease still stands
    live: bool = False  #: a permit: refused also where the lease has run out, though nobody took it
    expected_version: int | None = None  #: refused with `Changed` where the record has moved on
    basis: Operation | None = None  #: the writer's copy; spares a read where it is still the truth
    release: bool = False  #: give the lease back with this write
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """A new operation: its first event, and the request exactly as it will be sent."""

    operation_id: str
    evidence: Submitted
    request: StoredRequest
    actor: Actor
    at: datetime
    cause: str
    plan: PlanNext


@dataclass(frozen=True, slots=True)
class Recorded:
    """The event is durable; `operation` is the record after it. `existing`: it was there before this call."""

    operation: Operation
    seq: int
    existing: bool = False


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing was written, and why; `operation` is the record as it stands, where there is one."""

    error: OpledgerError
    operation: Operation | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """An operation under a new lease (`operation.lease`).

    `taken_from` names the owner whose lease ran out without being given back; it may be a process of the same name.
    """

    operation: Operation
    taken_from: str | None = None
    seated: bool = False  #: it was taken within this worker's share of what the contract allows
    moment: datetime | None = None  #: when its first call may be sent, where the contract has a rate


@dataclass(frozen=True, slots=True)
class Want:
    """What a worker wants of what one contract allows over all workers (`rules.sharing`), as part of a claim."""

    contract: str
    concurrency: int
    room: int  #: most operations that it could begin now
    seated: int = 0  #: operations it has begun that have a place
    queued: int = 0  #: operations it has begun that wait for one; they come before new ones
    used: int = 0  #: most places that were in use since it last asked
    wants: bool = False  #: more is due than it may begin
    pace: Pace | None = None
    moments: int = 0  #: operations with a place that wait for a moment to send at
    lead: timedelta = timedelta(0)  #: how long the answer takes to reach the one who asked
    asks: bool = True  #: False: only what it has, `limit`, is to be seen to still be its
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """What a worker got: how many calls it may have open, and moments for those that wait for one."""

    limit: int
    moments: tuple[datetime, ...] = ()
    opens: timedelta = timedelta(0)  #: after which time there is another moment to ask for
    busy: bool = False  #: others were settling theirs; ask again


class Takings(list[Claimed]):
    """What was claimed, with what came of each want by contract."""

    grants: Mapping[str, Grant] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Claim:
    """Which due operations a worker wants."""

    owner: str
    limit: int
    lease: timedelta
    now: datetime
    paused: Collection[str] = ()  #: contracts of which only operations with a passed deadline are due
    full: Collection[str] = ()  #: contracts of which nothing is wanted
    room: Mapping[str, int] | None = None  #: most operations of a contract; a contract that is not named has no limit
    wants: Sequence[Want] = ()

    def most(self, contract: str) -> int:
        """How many operations of a contract are wanted."""
        if contract in self.full:
            return 0
        room = self.limit if self.room is None else self.room.get(contract, self.limit)
        return max(0, min(room, self.limit))


@dataclass(frozen=True, slots=True)
class Aside:
    """That a worker leaves a provider to the others: since when, until when, and why."""

    contract: str
    since: datetime
    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class WorkerLife:
    """A worker and its last sign of life."""

    name: str
    host: str
    pid: int
    started: datetime
    heartbeat: datetime
    lateness: timedelta
    asides: tuple[Aside, ...] = ()  #: the providers that it leaves to others

    def aside(self, contract: str, now: datetime) -> Aside | None:
        """How it leaves a provider to others now, if it does."""
        return next((one for one in self.asides if one.contract == contract and one.until > now), None)


@dataclass(frozen=True, slots=True)
class Provider:
    """Whether calls to a provider are stopped, by whom, why and since when."""

    contract: str
    state: str  #: open or paused
    by: str | None = None
    reason: str | None = None
    since: datetime | None = None
    open_operations: int = 0


@dataclass(frozen=True, slots=True)
class Filter:
    """Which operations a person wants to see; empty fields do not restrict.

    `text` finds an operation id or the last characters of one, the beginning of a job id, or a trace id.
    """

    states: tuple[str, ...] = ()
    contract: str | None = None
    attention: bool = False
    attention_code: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    task: str | None = None
    requested_by: str | None = None
    text: str | None = None

    def texts(self) -> tuple[str, ...]:
        """Every text that is looked for."""
        single = (self.contract, self.attention_code, self.task, self.requested_by, self.text)
        return (*self.states, *self.tags, *self.tags.values(), *(text for text in single if text is not None))


@dataclass(frozen=True, slots=True)
class Page:
    """Some operations, newest first; `after` is where the next page begins, None on the last."""

    operations: tuple[Operation, ...]
    after: tuple[datetime, str] | None


class Sort(StrEnum):
    """In which order operations are shown."""

    NEWEST = "newest"
    OLDEST = "oldest"
    DEADLINE = "deadline"  #: nearest deadline first; those without one do not come at all
    NEXT = "next"  #: nearest next action first; those without one do not come at all
    STATE = "state"  #: by state, the newest of each first


Place = tuple[int | str, ...]
"""Where a row stands in a sort: the values it is sorted by (times in microseconds), the id last."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some operations in the order of a sort. `more`: others lie beyond, in the direction that was asked for.

    `searched_to`: only operations made at that time or later were looked at; None: all were.
    """

    operations: tuple[Operation, ...]
    more: bool
    searched_to: datetime | None = None
