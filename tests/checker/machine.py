"""The state machine of DESIGN §5, written from its table: what may follow from what, and what is known by then.

`leads` says which states an event may lead to; None stands for "the state stays". An empty answer: no such arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.checker.papers import Event

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
VIOLATIONS: Final = frozenset(
    {"UnfamiliarJobId", "TokenMismatch", "ManyJobs", "IdentityChanged", "FinalStateChanged"},
)
SUCCESS: Final = frozenset({"succeeded", "partial"})
FAILURE: Final = frozenset({"failed", "expired"})
FINAL: Final = SUCCESS | FAILURE | {"cancelled"}
REMARKS: Final = frozenset({"Noted", "Acknowledged", "LeaseTaken", "Notified", "ReadFailed"})
"""What may be said at any time and moves nothing."""

BEFORE_A_JOB: Final = frozenset({"create_pending", "create_unknown", "reconciliation"})
WATCHED: Final = frozenset({"accepted", "observing"})
CANCELS: Final = frozenset({"cancel_requested", "cancelling"})
LOOKED_AT: Final = WATCHED | CANCELS | {"cancellation_unconfirmed", "result_timed_out"}

DECISIONS: Final = {
    ("create_unknown", "bind"): "accepted",
    ("create_unknown", "not-created"): "failed",
    ("create_unknown", "resend"): "create_pending",
    ("create_unknown", "close"): "resolved",
    ("cancellation_unconfirmed", "watch"): "cancelling",
    ("cancellation_unconfirmed", "cancel"): "cancel_requested",
    ("cancellation_unconfirmed", "close"): "resolved",
    ("result_timed_out", "extend"): "observing",
    ("result_timed_out", "close"): "resolved",
    ("result_unavailable", "collect"): "result_collecting",
    ("result_unavailable", "accept"): "resolved",
    ("result_unavailable", "close"): "resolved",
    ("result_validation_failed", "collect"): "result_collecting",
    ("result_validation_failed", "accept"): "resolved",
    ("result_validation_failed", "close"): "resolved",
    ("contract_violation", "keep"): "observing",
    ("contract_violation", "cancel"): "cancel_requested",
    ("contract_violation", "close"): "resolved",
    ("failed", "resume"): "observing",
}

DEADLINES: Final = {
    "create": BEFORE_A_JOB,
    "result": WATCHED,
    "cancel": CANCELS,
    "collect": frozenset({"result_collecting"}),
}

RESULTS: Final = {
    "ResultAccepted": "succeeded",
    "ResultAllItemsFailed": "failed",
    "ResultMissing": "result_unavailable",
    "ResultInvalid": "result_validation_failed",
}


@dataclass(slots=True)
class Permit:
    """One permit of an effectful call, and what came of it."""

    call: str
    action: str
    seq: int
    at: int
    creates: bool
    outcome: Event | None = None
    ended_at: int | None = None


@dataclass(slots=True)
class Standing:
    """What is known of an operation after some of its events."""

    state: str | None = None
    first: Event | None = None
    job: str | None = None
    jobs: set[str] = field(default_factory=set)
    permits: dict[str, Permit] = field(default_factory=dict)
    open: Permit | None = None
    counted: dict[str, int] = field(default_factory=dict)
    approved: list[str] = field(default_factory=list)
    unknown: bool = False  #: a create was sent whose fate is not known
    absent: bool = False  #: it was proven once that nothing had been started
    duplicate: bool = False  #: a person let a possible duplicate be sent
    intent: str | None = None
    intents: list[int] = field(default_factory=list)  #: when each cancel was asked for
    cancels: int = 0  #: cancel calls permitted under the present intent that may have arrived
    seen: bool = False  #: a status read said that the job succeeded
    epoch: int = 0
    deadlines: dict[str, int] = field(default_factory=dict)
    created_by: int | None = None  #: when the first create was permitted

    @property
    def needed(self) -> int:
        """How many approvals the submission asked for."""
        return 0 if self.first is None else int(self.first.data.get("approvals_needed", 0))


def leads(now: Standing, event: Event) -> tuple[str | None, ...]:
    """Say which states an event may lead to, by the table alone; None: it stays."""
    state, kind, data = now.state, event.kind, event.data
    if state is None:
        if kind != "Submitted":
            return ()
        return ("awaiting_approval",) if data.get("approvals_needed", 0) > 0 else ("create_pending",)
    if kind in VIOLATIONS:
        sent = now.created_by is not None and state not in TERMINAL
        return (None if state == "contract_violation" else "contract_violation",) if sent else ()
    if kind in REMARKS:
        return (None,)
    if kind == "Decided":
        to = DECISIONS.get((state, str(data.get("choice"))))
        return () if to is None else (to,)
    if kind == "Observed":
        return _observed(state, str(data.get("means", "unknown")))
    if kind == "DeadlinePassed":
        return _overdue(now, str(data.get("which")))
    if kind in RESULTS:
        return (RESULTS[kind],) if state == "result_collecting" else ()
    return _OTHERS.get(kind, _never)(now, state, event)


def _never(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return ()


def _observed(state: str, means: str) -> tuple[str | None, ...]:
    if state in LOOKED_AT:
        if means in SUCCESS:
            return ("result_collecting",)
        if means in FAILURE:
            return ("failed",)
        if means == "cancelled":
            return ("cancelled",)
        return ("observing",) if state == "accepted" else (None,)
    if state in TERMINAL | {"contract_violation", "result_unavailable", "result_validation_failed"}:
        return (None,)
    # Read anew before its result is collected: another end than success is a violation, and no arrow.
    return (None,) if state == "result_collecting" and means not in FAILURE | {"cancelled"} else ()


def _overdue(now: Standing, which: str) -> tuple[str | None, ...]:
    if now.state not in DEADLINES.get(which, ()):
        return ()
    if which == "create":
        if now.state != "create_pending":
            return (None,)
        if now.unknown or now.duplicate:
            return ("create_unknown",)
        return ("failed",) if now.intent is None else ("withdrawn",)
    return {"result": ("result_timed_out",), "cancel": ("cancellation_unconfirmed",)}.get(which, ())


def _approved(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    if state != "awaiting_approval":
        return ()
    return ("create_pending",) if len(now.approved) + 1 >= now.needed else (None,)


def _refusal(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return ("rejected",) if state == "awaiting_approval" else ()


def _withdrawn(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return ("withdrawn",) if state in ("awaiting_approval", "create_pending") else ()


def _sent(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    match event.data.get("action"):
        case "create":
            return (None,) if state == "create_pending" and now.intent is None else ()
        case "reconcile":
            return ("reconciliation",) if state == "create_unknown" else ()
        case "cancel":
            return (None,) if state in CANCELS else ()
        case "collect":
            return (None,) if state == "result_collecting" else ()
        case _:
            return ()


def _lost(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    action = event.data.get("action", "create")
    if state == "create_pending":
        return ("create_unknown",)
    if state in CANCELS:
        return ("cancelling" if state == "cancel_requested" else None,)
    return (None,) if state == "result_collecting" and action == "collect" else ()


def _not_done(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return (None,) if state in CANCELS | {"create_pending"} else ()


def _refused(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    if state not in ("create_pending", "reconciliation"):
        return ()
    if state == "create_pending" and now.duplicate:
        return ("create_unknown",)  # it says nothing of the first one
    return ("failed",) if now.intent is None else ("withdrawn",)


def _accepted(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return ("accepted",) if state in ("create_pending", "reconciliation") else ()


def _inline(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return ("result_collecting",) if state in ("create_pending", "reconciliation") else ()


def _inconclusive(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    if state == "reconciliation":
        return ("create_unknown",)
    if state == "create_unknown":
        return (None,) if event.data.get("exhausted") is True else ()
    # A cancel is wanted before a permitted duplicate left: the first one is as unknown as it was.
    wanted = state == "create_pending" and now.intent is not None and now.duplicate
    return ("create_unknown",) if wanted else ()


def _absent(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    if state != "reconciliation":
        return ()
    return ("create_pending",) if now.intent is None else ("withdrawn",)


def _cancel_requested(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    if state in WATCHED | {"result_timed_out"}:
        return ("cancel_requested",)
    standing = state in ("create_unknown", "reconciliation") or (state == "create_pending" and bool(now.created_by))
    return (None,) if standing else ()


def _cancel_answered(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return ("cancelling" if state == "cancel_requested" else None,) if state in CANCELS else ()


def _partial(now: Standing, state: str, event: Event) -> tuple[str | None, ...]:
    return (None,) if state in ("failed", "cancelled") else ()


_OTHERS: Final = {
    "Approved": _approved,
    "Rejected": _refusal,
    "ApprovalExpired": _refusal,
    "Withdrawn": _withdrawn,
    "CallSent": _sent,
    "CallLost": _lost,
    "NotDelivered": _not_done,
    "Throttled": _not_done,
    "Refused": _refused,
    "Accepted": _accepted,
    "CompletedInline": _inline,
    "Inconclusive": _inconclusive,
    "ProvenAbsent": _absent,
    "CancelRequested": _cancel_requested,
    "CancelAnswered": _cancel_answered,
    "PartialAttached": _partial,
}


OUTCOMES: Final = frozenset(
    {
        "CallLost",
        "NotDelivered",
        "Throttled",
        "Refused",
        "Accepted",
        "CompletedInline",
        "Inconclusive",
        "ProvenAbsent",
        "CancelAnswered",
        *RESULTS,
        *VIOLATIONS,
    }
)
"""What can end a permitted call."""


def learn(now: Standing, event: Event) -> None:
    """Put one event on what is known, whether or not it was allowed to happen."""
    data, kind = event.data, event.kind
    if kind == "Submitted" and now.first is None:
        now.first = event
        if data.get("approval_timeout") is not None:
            now.deadlines["approval"] = event.at + data["approval_timeout"]
    elif kind == "Approved":
        now.approved.append(str(data.get("by")))
    elif kind == "CallSent":
        _permitted(now, event)
    elif kind in ("CancelRequested", "Decided"):
        _wished(now, event)
    elif kind == "CompletedInline" or (kind == "Observed" and data.get("means") in SUCCESS):
        now.seen = True
    elif kind == "LeaseTaken":
        now.epoch = max(now.epoch, int(data.get("epoch", 0)))
    elif kind == "ProvenAbsent":
        now.unknown = now.duplicate = False
        now.absent = True
    elif kind == "Noted" and data.get("late_kind") == "Accepted":
        now.jobs.add(str((data.get("late") or {}).get("job_id")))
    if kind in OUTCOMES:
        _ended(now, event)
    if kind in VIOLATIONS:
        now.jobs.update(str(job) for job in data.get("jobs", ()))
    if event.job is not None:
        now.job = event.job
        now.jobs.add(event.job)
    if event.entered is not None:
        _entered(now, event)


def _permitted(now: Standing, event: Event) -> None:
    data = event.data
    action = str(data.get("action"))
    creates = bool(data.get("may_create")) or action == "create"
    now.open = Permit(str(data.get("call_id")), action, event.seq, event.at, creates)
    now.permits.setdefault(now.open.call, now.open)
    now.counted[action] = now.counted.get(action, 0) + 1
    if creates:
        now.created_by = now.created_by or event.at
        now.unknown = True
    if action == "cancel":
        now.cancels += 1


def _ended(now: Standing, event: Event) -> None:
    permit = now.permits.get(str(event.data.get("call_id")))
    if permit is None or permit.outcome is not None:
        return
    permit.outcome, permit.ended_at = event, event.at
    if now.open is permit:
        now.open = None
    if permit.action == "cancel" and event.kind in ("NotDelivered", "Throttled"):
        now.cancels -= 1
    if permit.action == "create" and event.kind in ("NotDelivered", "Throttled"):
        now.unknown = now.duplicate
    elif event.kind in ("Accepted", "CompletedInline", "Refused"):
        now.unknown = event.kind == "Refused" and now.duplicate


def _wished(now: Standing, event: Event) -> None:
    data = event.data
    if event.kind == "CancelRequested" or data.get("choice") == "cancel":
        if now.intent != data.get("request_id"):
            now.intents.append(event.at)
            now.cancels = 0
        now.intent = str(data.get("request_id"))
        return
    match data.get("choice"):
        case "resend":
            now.duplicate = True
        case "keep" | "extend" | "resume":
            now.intent = None
        case _:
            return
    if data["choice"] in ("extend", "resume", "keep"):
        longer = data.get("extend_by")
        now.deadlines.pop("result", None)
        if longer is not None:
            now.deadlines["result"] = event.at + longer


def _entered(now: Standing, event: Event) -> None:
    """What holds from the moment a state is entered: which deadlines run."""
    now.state, first = event.entered, now.first
    if first is None:
        return
    by_choice = event.kind == "Decided" and event.data.get("choice") != "cancel"
    match now.state:
        case "create_pending" if "create" not in now.deadlines:
            now.deadlines["create"] = event.at + first.data.get("create_timeout", 0)
            now.deadlines["result"] = event.at + first.data.get("result_timeout", 0)
        case "create_pending" if by_choice:
            now.deadlines["create"] = event.at + first.data.get("create_timeout", 0)
            now.deadlines.pop("result", None)
        case "accepted" if by_choice:
            now.deadlines.pop("result", None)
        case "cancel_requested":
            now.deadlines["cancel"] = event.at + first.data.get("cancel_timeout", 0)
        case "result_collecting":
            longer = event.data.get("extend_by") or first.data.get("collect_timeout", 0)
            now.deadlines["collect"] = event.at + longer
        case "cancelling" if by_choice:
            now.deadlines["cancel"] = event.at + event.data.get("extend_by", 0)
        case _:
            return
