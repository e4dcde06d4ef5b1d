"""One frozen class for each thing that can happen to an operation (DESIGN §3, §5).

The *type* of the evidence is the key of the transition table, so a change of state without evidence cannot be
written down. Every field is JSON-native, or a type that `to_data` and `from_data` know (times, durations, enums,
tuples, `StoredResult`), so that a journal can be read back into exactly the evidence that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timedelta
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from opledger.rules.model import (
    Action,
    Choice,
    Deadline,
    Means,
    StoredResult,
    from_rfc3339,
    to_rfc3339,
)
from opledger.rules.result_data import result_from_data, result_to_data


@dataclass(frozen=True, slots=True)
class Evidence:
    """Base of all evidence. `kind` is the word stored in the journal."""

    @property
    def kind(self) -> str:
        """The evidence class's name, as stored in `event.kind`."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class Submitted(Evidence):
    """The record was written. Everything the operation starts from stands here, so that it can be rebuilt."""

    contract: str
    contract_digest: str
    fingerprint: str
    token: str | None
    trace_id: str
    requested_by: str
    approvals_needed: int
    create_timeout: timedelta
    result_timeout: timedelta
    cancel_timeout: timedelta
    collect_timeout: timedelta
    method: str
    url: str
    body_sha256: str
    approval_timeout: timedelta | None = None
    expectation: str | None = None
    expected_effect: str | None = None
    tags: Mapping[str, str] | None = None
    supersedes: str | None = None
    task: str | None = None
    step: str | None = None
    approval_because: str | None = None
    signed_approval: bool = False  #: an approval counts only with the approver's SSH signature
    headers_sha256: str | None = None  #: over the headers and content type that are sent; None: an older version's


@dataclass(frozen=True, slots=True)
class Approved(Evidence):
    """A person approved exactly this fingerprint."""

    by: str
    fingerprint: str
    shown: str | None = None  #: sha256 of the stored review: what the approver was shown
    contract_digest: str | None = None
    signature: str | None = None  #: over `approval_signatures.Statement`, made by ssh-keygen; one line of base64
    signed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rejected(Evidence):
    """A person refused the request; it never left."""

    by: str


@dataclass(frozen=True, slots=True)
class ApprovalExpired(Evidence):
    """Nobody approved in time."""


@dataclass(frozen=True, slots=True)
class Withdrawn(Evidence):
    """The request was taken back, and provably never reached the provider (or was never accepted by it)."""

    by: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallSent(Evidence):
    """The permit of one effectful call, used once, committed before the first byte leaves."""

    call_id: str
    action: Action
    method: str
    url: str
    attempt: int
    request_sha256: str | None = None
    strategy: str | None = None  #: for a reconcile call: resend, get, list or singleton
    may_create: bool = False  #: the call can start work (a create, or a resend of one)


@dataclass(frozen=True, slots=True)
class Answered(Evidence):
    """What every answer carries: which call it answers, and where the raw bytes are kept."""

    call_id: str | None = None
    status: int | None = None
    answer: str | None = None  #: sha256 of the stored, sanitised answer
    request_id: str | None = None  #: the provider's own id for the request, for support
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallLost(Answered):
    """An effectful call whose fate is unknown: it may have reached the provider."""

    action: Action = Action.CREATE
    why: str = ""
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NotDelivered(Answered):
    """The call provably did not reach the provider: no connection, DNS or TLS failure before any byte."""

    action: Action = Action.CREATE
    why: str = ""


@dataclass(frozen=True, slots=True)
class Throttled(Answered):
    """The provider refused to take the call now and says (or its contract says) that nothing was done."""

    action: Action = Action.CREATE
    why: str = ""
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Refused(Answered):
    """A definitive rejection of this request: nothing runs."""

    why: str = ""
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Accepted(Answered):
    """Our request is bound to a job id."""

    job_id: str = ""
    remote_state: str | None = None
    refs: Mapping[str, str] | None = None
    how: str = "create"  #: create, resend, get, list, singleton
    comparison: str | None = None  #: for a look-up: what was compared and found equal
    replay: bool = False
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CompletedInline(Answered):
    """The create answer already was the result; it is stored before this is recorded."""

    result: StoredResult | None = None
    remote_state: str | None = None


@dataclass(frozen=True, slots=True)
class Inconclusive(Answered):
    """A reconciliation that neither found the job nor proved its absence."""

    why: str = ""
    strategy: str | None = None
    next_strategy: bool = False  #: move on to the contract's next strategy
    exhausted: bool = False  #: nothing automatic is left to try
    absent: bool = False  #: a look-up found nothing (not yet proof)
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProvenAbsent(Answered):
    """The contract's absence rule is satisfied: the provider has no such job."""

    strategy: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Observed(Answered):
    """The provider's word, and our reading of it: from a status read or, where there is none, from a delivery."""

    job_id: str | None = None
    remote_state: str | None = None
    means: Means = Means.UNKNOWN
    progress: Mapping[str, Any] | None = None
    updated_at: datetime | None = None
    error: str | None = None
    refs: Mapping[str, str] | None = None
    retry_at: datetime | None = None
    hint: str | None = None  #: where the poll hint came from, in words
    delivery: str | None = None  #: the webhook delivery that says so; nobody asked the provider: lower-grade evidence


@dataclass(frozen=True, slots=True)
class ReadFailed(Answered):
    """A read (status, look-up, result) that told us nothing. Never changes a state."""

    action: Action = Action.OBSERVE
    why: str = ""
    code: str = "read_failed"  #: attention code once it persists: read_failed, gone, not_visible_yet, credentials…
    retry_at: datetime | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested(Evidence):
    """A person or agent wants it cancelled; sent once per intent."""

    request_id: str
    by: str
    effect: str = ""
    shares: str | None = None  #: the operation whose cancel call stops this job too; then none is sent for this one


@dataclass(frozen=True, slots=True)
class CancelAnswered(Answered):
    """The provider answered the cancel call. What it says never decides the final state."""

    verdict: str = "accepted"  #: accepted, refused, already_finished, unclear
    why: str = ""
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ResultAccepted(Answered):
    """The result was fetched, checked and durably stored."""

    result: StoredResult | None = None


@dataclass(frozen=True, slots=True)
class ResultAllItemsFailed(Answered):
    """The result was fetched and stored, and every item in it failed."""

    result: StoredResult | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResultMissing(Answered):
    """The result cannot be had: gone, forbidden by origin rules, or not there by the collect deadline."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class ResultInvalid(Answered):
    """The result arrived whole and is wrong."""

    why: str = ""
    problems: tuple[str, ...] = ()
    result: StoredResult | None = None


@dataclass(frozen=True, slots=True)
class PartialAttached(Answered):
    """Output of a job that did not succeed, worth having; never changes the state."""

    result: StoredResult | None = None


@dataclass(frozen=True, slots=True)
class Notified(Evidence):
    """A hint that something changed (a webhook, or a person's wish for a read). Makes the operation due now."""

    source: str = ""
    reference: str | None = None
    event_type: str | None = None  #: what a webhook calls it, in its own words
    job_id: str | None = None  #: the job that a webhook names
    answer: str | None = None  #: sha256 of the stored body of a webhook
    counts: bool = False  #: the provider has no status read: the delivery itself is read as evidence
    received_at: datetime | None = None  #: when such a delivery came, where it waited for its operation


@dataclass(frozen=True, slots=True)
class DeadlinePassed(Evidence):
    """An absolute deadline of the record has passed."""

    which: Deadline
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Decided(Evidence):
    """A person decided what no program may decide."""

    by: str
    choice: Choice
    job_id: str | None = None
    extend_by: timedelta | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged(Evidence):
    """A person has seen the attention and works on it. `until` is when that lapses; None: with the attention."""

    by: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Noted(Evidence):
    """A remark, or an answer that came too late to be acted on."""

    text: str
    late_kind: str | None = None
    late: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LeaseTaken(Evidence):
    """A lease that another worker let expire was taken over."""

    owner: str
    epoch: int
    previous_owner: str


@dataclass(frozen=True, slots=True)
class Violation(Answered):
    """The provider broke its promises; both answers are kept and automation stops."""

    why: str = ""
    jobs: tuple[str, ...] = ()  #: job ids involved, the first one first
    other_operation: str | None = None


@dataclass(frozen=True, slots=True)
class UnfamiliarJobId(Violation):
    """A job id that is not ours came back under our token, or for our job."""


@dataclass(frozen=True, slots=True)
class TokenMismatch(Violation):
    """The provider knows our token with another body."""


@dataclass(frozen=True, slots=True)
class ManyJobs(Violation):
    """Several live jobs answer to one reference of ours."""


@dataclass(frozen=True, slots=True)
class IdentityChanged(Violation):
    """One job id stands for two operations, or a status answers for another job."""


@dataclass(frozen=True, slots=True)
class FinalStateChanged(Violation):
    """A final state that came back to life, or changed into another one."""


VIOLATIONS: Final[tuple[type[Evidence], ...]] = (
    UnfamiliarJobId,
    TokenMismatch,
    ManyJobs,
    IdentityChanged,
    FinalStateChanged,
)

KINDS: Final[Mapping[str, type[Evidence]]] = {
    cls.__name__: cls
    for cls in (
        Submitted, Approved, Rejected, ApprovalExpired, Withdrawn, CallSent, CallLost, NotDelivered, Throttled,
        Refused, Accepted, CompletedInline, Inconclusive, ProvenAbsent, Observed, ReadFailed, CancelRequested,
        CancelAnswered, ResultAccepted, ResultAllItemsFailed, ResultMissing, ResultInvalid, PartialAttached,
        Notified, DeadlinePassed, Decided, Acknowledged, Noted, LeaseTaken, *VIOLATIONS,
    )
}  # fmt: skip


# --- evidence <-> JSON data -------------------------------------------------------------------------------------

_Codec = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def _duration(micros: Any) -> timedelta:
    try:
        return timedelta(microseconds=micros)
    except OverflowError:
        raise ValueError(f"{micros} microseconds are longer than any duration") from None


def _codec(hint: Any) -> _Codec:
    """Return (encode, decode) for a field's type, or (None, None) where the value is JSON already."""
    if get_origin(hint) in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not type(None)]
        return _codec(inner[0]) if len(inner) == 1 else (None, None)
    if hint is datetime:
        return to_rfc3339, from_rfc3339
    if hint is timedelta:
        return (lambda value: value // timedelta(microseconds=1)), _duration
    if hint is StoredResult:
        return result_to_data, result_from_data
    if get_origin(hint) is tuple:
        return list, tuple
    if isinstance(hint, type) and issubclass(hint, Action | Choice | Deadline | Means):
        return str, hint
    return None, None


_Part = tuple[str, Any, Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def _layout(cls: type[Evidence]) -> tuple[_Part, ...]:
    hints = get_type_hints(cls)
    return tuple((f.name, f.default, *_codec(hints[f.name])) for f in fields(cls))


_LAYOUTS: Final = {cls: _layout(cls) for cls in KINDS.values()}
_DECODERS: Final = {
    cls: {name: decode for name, _, _, decode in layout if decode is not None} for cls, layout in _LAYOUTS.items()
}
_ABSENT: Final = {
    cls: {name: None for name, default, _, _ in layout if default is MISSING} for cls, layout in _LAYOUTS.items()
}
"""What a field without a default is where the data leave it out."""


def to_data(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence as JSON-native data. Fields at their default are left out, to keep events small."""
    data: dict[str, Any] = {}
    for name, default, encode, _ in _LAYOUTS[type(evidence)]:
        value = getattr(evidence, name)
        if value is None or (default is not MISSING and value == default):
            continue
        data[name] = value if encode is None else encode(value)
    return data


def from_data(kind: str, data: Mapping[str, Any]) -> Evidence:
    """Rebuild the evidence that `to_data` wrote.

    Raises ValueError for an unknown kind and TypeError for fields that do not belong to it: a journal that
    holds either was not written by this program, or by a newer one.
    """
    cls = KINDS.get(kind)
    if cls is None:
        raise ValueError(f"this opledger knows no event of the kind {kind!r}: use the newer one that wrote it")
    values: dict[str, Any] = {**_ABSENT[cls], **data}
    for name, decode in _DECODERS[cls].items():
        if values.get(name) is not None:
            values[name] = decode(values[name])
    return cls(**values)
