"""Makes up honest histories: random walks over the table of DESIGN §5, with a provider that is honest about them.

Nothing of opledger is used, so an honest history and the judge of it come from the same text and from no code. The lies
of `tests.checker.lies` are told about these.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from tests.checker.judging import judge
from tests.checker.machine import HUMAN, TERMINAL
from tests.checker.papers import EPOCH, Facts, Finding, read_export, read_log

Data = dict[str, Any]
START: Final = 1_800_000_000_000_000
SECOND: Final = 1_000_000
BODY: Final = hashlib.sha256(b"body").hexdigest()
URL: Final = "http://127.0.0.1:1/v1/jobs"
FACTS: Final = {"sim": Facts(window=540.0, looks=True)}
"""What the contract of these histories promises."""


def stamp(at: int) -> str:
    """Write microseconds as RFC 3339."""
    return (EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds")[:26] + "Z"


@dataclass(slots=True)
class Tale:
    """One operation as it is told: its events, and what the provider wrote down."""

    rng: random.Random
    name: str
    at: int = START
    events: list[Data] = field(default_factory=list)
    log: list[Data] = field(default_factory=list)
    state: str | None = None
    job: str | None = None
    due: int = START  #: no call before this
    approvals: int = 0
    calls: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    epoch: int = 0
    intent: bool = False
    duplicate: bool = False
    created: bool = False  #: the provider has started the job
    deadlines: dict[str, int] = field(default_factory=dict)
    word: str = "queued"

    @property
    def token(self) -> str:
        """The idempotency token."""
        return f"tok_{self.name}"

    @property
    def trace(self) -> str:
        """The trace id."""
        return hashlib.md5(self.name.encode(), usedforsecurity=False).hexdigest()

    # --- writing ------------------------------------------------------------------------------------------------------

    def tell(
        self,
        kind: str,
        data: Data,
        to: str | None = None,
        *,
        cause: str = "recovery",
        by: str = "worker-1",
        who: str = "worker",
        reason: str | None = None,
        plan: str = "observe",
    ) -> None:
        """Write one event down, and what is planned after it."""
        left = self.state if to is not None else None
        self.state = to or self.state
        wait = self.rng.randrange(20_000, 400_000)
        self.due = self.at + wait
        after: Data | None = {"at": stamp(self.due), "because": "it is so", "kind": plan}
        if self.state in TERMINAL:
            after = None
        elif self.state in HUMAN or plan == "human":
            after = {"at": None, "because": "a person must decide", "kind": "human"}
        self.events.append(
            {
                "actor": {"kind": who, "name": by},
                "at": self.at,
                "cause": cause,
                "data": data,
                "from": left,
                "kind": kind,
                "next": after,
                "reason": reason,
                "remote_job_id": self.job,
                "to": to,
            }
        )
        self.at += self.rng.randrange(1, 50_000)

    def arrives(self, kind: str, status: int | None, effect: str | None, **more: Any) -> None:
        """Let a request arrive at the provider."""
        self.log.append(
            {
                "at": 0,
                "time": self.at,
                "kind": kind,
                "origin": "provider",
                "status": status,
                "job_id": self.job,
                "token": self.token,
                "client_ref": self.name,
                "headers": {"traceparent": f"00-{self.trace}-{self.trace[:16]}-01"},
                "body_sha256": BODY,
                "started": False,
                "effect": effect,
                "fault": None,
                "personality": "ideal",
                "credentials_in": [],
                "authorization": False,
                **more,
            }
        )
        self.at += self.rng.randrange(1, 50_000)

    def call(self, action: str, **more: Any) -> str:
        """Permit an effectful call, when it is due."""
        self.at = max(self.at, self.due)
        self.calls += 1
        self.attempts[action] += 1
        name = f"call_{self.name}_{self.calls}"
        data = {"action": action, "attempt": self.attempts[action], "call_id": name, "method": "POST", "url": URL}
        if action == "create" or more.get("strategy") == "resend":
            data["may_create"] = True
        to = "reconciliation" if action == "reconcile" else None
        self.tell("CallSent", {**data, **more}, to, cause=f"call:{name}", plan=action)
        return name

    def answer(self, kind: str, call: str, to: str | None = None, *, plan: str = "observe", **data: Any) -> None:
        """Write down what the answer to a call meant."""
        self.tell(kind, {"call_id": call, **data}, to, cause=f"call:{call}", plan=plan)

    def person(self, kind: str, to: str | None, reason: str = "it is right so", **data: Any) -> None:
        """Let a person do something."""
        self.at += self.rng.randrange(1, SECOND)
        data.setdefault("by", "olga")
        cause = f"human_request:{data.get('request_id', 'req_1')}"
        self.tell(kind, data, to, cause=cause, by=data["by"], who="human", reason=reason)

    def dies(self, call: str, action: str) -> None:
        """Let the worker die in the middle of a call: another one takes over and knows nothing of it."""
        self.at += 3 * SECOND
        self.epoch += self.rng.randrange(1, 3)
        taken = {"epoch": self.epoch, "owner": "worker-2", "previous_owner": "worker-1"}
        self.tell("LeaseTaken", taken, cause="lease", by="worker-2", plan=action)

    def chance(self, *weights: float) -> int:
        """Return 0, 1, 2 … with these weights."""
        return self.rng.choices(range(len(weights)), weights)[0]


# --- the walk ---------------------------------------------------------------------------------------------------------


def _begin(tale: Tale) -> None:
    tale.approvals = tale.chance(3, 1, 1)
    data = {
        "approvals_needed": tale.approvals,
        "body_sha256": BODY,
        "contract": "sim",
        "contract_digest": "sha256:1",
        "create_timeout": 8 * SECOND,
        "result_timeout": 20 * SECOND,
        "cancel_timeout": 4 * SECOND,
        "collect_timeout": 6 * SECOND,
        "fingerprint": f"sha256:{tale.trace}",
        "method": "POST",
        "requested_by": "agent-7",
        "token": tale.token,
        "trace_id": tale.trace,
        "url": URL,
    }
    if tale.approvals:
        data["approval_timeout"] = 60 * SECOND
        tale.deadlines["approval"] = tale.at + 60 * SECOND
    to = "awaiting_approval" if tale.approvals else "create_pending"
    _pending_from(tale)
    tale.tell("Submitted", data, to, cause="submit", by="agent-7", who="agent", plan="create")


def _pending_from(tale: Tale) -> None:
    tale.deadlines["create"] = tale.at + 8 * SECOND
    tale.deadlines["result"] = tale.at + 20 * SECOND


def _awaiting(tale: Tale) -> None:
    approvers = ["ana", "jo"][: tale.approvals]
    match tale.chance(6, 1, 1, 1):
        case 0:
            for number, name in enumerate(approvers, 1):
                tale.at += tale.rng.randrange(1, SECOND)
                last = number == tale.approvals
                if last:
                    _pending_from(tale)
                data = {"by": name, "fingerprint": f"sha256:{tale.trace}", "contract_digest": "sha256:1"}
                to = "create_pending" if last else None
                tale.tell(
                    "Approved", data, to, cause="human_request:a", by=name, who="human", reason="ok", plan="create"
                )
        case 1:
            tale.person("Rejected", "rejected")
        case 2:
            tale.at = tale.deadlines["approval"] + 10_000
            tale.tell("ApprovalExpired", {}, "rejected", cause="deadline:approval", by="policy", who="policy")
        case _:
            tale.person("Withdrawn", "withdrawn")


def _create(tale: Tale) -> None:
    if tale.intent:
        tale.person("Withdrawn", "withdrawn", request_id="req_c")
        return
    job = f"job_{tale.name}"
    call = tale.call("create")
    match tale.chance(12, 3, 2, 2, 2, 1, 2, 1):
        case 0:
            tale.created = True
            tale.arrives("create", 202, "started", job_id=job, started=True)
            tale.job = job
            tale.answer("Accepted", call, "accepted", status=202, job_id=job, remote_state="queued")
        case 1:
            tale.created = True
            tale.arrives("create", None, "started", job_id=job, started=True, fault="answer dropped")
            tale.answer("CallLost", call, "create_unknown", why="reset", plan="reconcile")
        case 2:
            tale.arrives("create", None, None, job_id=None, fault="dropped before")
            tale.answer("CallLost", call, "create_unknown", why="reset", plan="reconcile")
        case 3:
            tale.arrives("create", 429, None, job_id=None, fault="throttled")
            until = stamp(tale.at + 10_000)
            tale.answer("Throttled", call, status=429, action="create", why="429", retry_at=until, plan="create")
        case 4:
            tale.answer("NotDelivered", call, action="create", why="refused connection", plan="create")
            if tale.chance(2, 1):
                tale.at = max(tale.at, tale.deadlines["create"] + 1000)
                data = {"which": "create", "deadline": stamp(tale.deadlines["create"])}
                tale.tell("DeadlinePassed", data, "failed", cause="deadline:create")
            elif tale.chance(4, 1):
                tale.intent = True
                tale.person("CancelRequested", None, request_id="req_c", effect="nothing runs")
        case 5:
            tale.arrives("create", 422, None, job_id=None)
            tale.answer("Refused", call, "failed", status=422, why="the account is closed")
        case 6:
            if tale.chance(1, 1):
                tale.created = True
                tale.arrives("create", 202, "started", job_id=job, started=True)
            tale.dies(call, "create")
            tale.tell("CallLost", {"call_id": call, "why": "the worker stopped"}, "create_unknown", plan="reconcile")
        case _:
            tale.created = True
            tale.arrives("create", 202, "started", job_id=job, started=True)
            broken: Data = {"jobs": [job, "job_other"], "status": 202, "why": "two ids"}
            tale.answer("UnfamiliarJobId", call, "contract_violation", **broken)


def _unknown(tale: Tale) -> None:
    job = f"job_{tale.name}"
    if not tale.intent and tale.chance(9, 1):
        tale.intent = True
        tale.person("CancelRequested", None, request_id="req_c", effect="nothing runs")
    match tale.chance(4, 4, 2, 1):
        case 0 if not tale.intent:
            call = tale.call("reconcile", strategy="resend")
            started = not tale.created
            tale.created = True
            effect = "started" if started else "repeated"
            tale.arrives("create", 202, effect, job_id=job, started=started)
            tale.job = job
            found: Data = {"status": 202, "job_id": job, "how": "resend", "replay": not started}
            tale.answer("Accepted", call, "accepted", **found)
        case 0 | 1:
            call = tale.call("reconcile", strategy="list")
            tale.arrives("list", 200, None, job_id=None)
            if tale.created:
                tale.job = job
                found = {"status": 200, "job_id": job, "how": "list", "comparison": "our reference"}
                tale.answer("Accepted", call, "accepted", **found)
            elif tale.intent:
                tale.answer("ProvenAbsent", call, "withdrawn", strategy="list", why="none after the settle time")
            else:
                tale.duplicate = False
                tale.answer("ProvenAbsent", call, "create_pending", strategy="list", why="none", plan="create")
        case 2:
            call = tale.call("reconcile", strategy="list")
            tale.answer("Inconclusive", call, "create_unknown", why="no answer", strategy="list", plan="reconcile")
        case _:
            tale.tell("Inconclusive", {"why": "nothing is left", "exhausted": True}, plan="human")
            _guess(tale)


def _guess(tale: Tale) -> None:
    """A person decides what no program may."""
    job = f"job_{tale.name}"
    if tale.created:
        tale.job = job
        tale.person("Decided", "accepted", choice="bind", job_id=job)
    elif tale.intent or tale.chance(1, 2):
        tale.person("Decided", "resolved", choice="close")
    else:
        tale.duplicate = True
        _pending_from(tale)
        tale.person("Decided", "create_pending", choice="resend")
        call = tale.call("create")
        tale.created = True
        tale.arrives("create", 202, "started", job_id=job, started=True)
        tale.job = job
        tale.answer("Accepted", call, "accepted", status=202, job_id=job)


def _reads(tale: Tale, means: str, to: str | None) -> None:
    tale.at = max(tale.at, tale.due)
    tale.arrives("status", 200, means)
    tale.calls += 1
    call = f"call_{tale.name}_{tale.calls}"
    plan = "collect" if to == "result_collecting" else "observe"
    tale.answer("Observed", call, to, status=200, job_id=tale.job, remote_state=means, means=means, plan=plan)


def _fails(tale: Tale) -> None:
    tale.at = max(tale.at, tale.due)
    status = tale.rng.choice((500, 503, 401, 404))
    tale.arrives("status", status, "running", fault="flapping")
    tale.calls += 1
    until = tale.at + 15_000
    data: Data = {"status": status, "why": "no", "code": "read_failed", "retry_at": stamp(until)}
    tale.answer("ReadFailed", f"call_{tale.name}_{tale.calls}", **data)


ENDS: Final = {
    "succeeded": "result_collecting",
    "failed": "failed",
    "expired": "failed",
    "cancelled": "cancelled",
}


def _watch(tale: Tale) -> None:
    if tale.intent or tale.chance(6, 1):
        tale.intent = True
        tale.deadlines["cancel"] = tale.at + 5 * SECOND  # a second more than it may take to ask
        tale.person("CancelRequested", "cancel_requested", request_id="req_c", effect="it stops")
        tale.deadlines["cancel"] = tale.events[-1]["at"] + 4 * SECOND
        return
    match tale.chance(4, 1, 4, 1, 1, 1, 1):
        case 0:
            _reads(tale, tale.rng.choice(("queued", "running", "unknown")), _onward(tale))
        case 1:
            _fails(tale)
        case 2:
            _reads(tale, "succeeded", "result_collecting")
        case 3:
            means = tale.rng.choice(("failed", "expired", "cancelled"))
            _reads(tale, means, ENDS[means])
        case 4:
            tale.at = max(tale.at, tale.deadlines["result"] + 1000)
            data = {"which": "result", "deadline": stamp(tale.deadlines["result"])}
            tale.tell("DeadlinePassed", data, "result_timed_out", cause="deadline:result")
        case 5:
            tale.tell("Notified", {"source": "webhook", "reference": "msg_1"}, cause="webhook:msg_1")
        case _:
            broken = {"jobs": [tale.job, "job_other"], "why": "another id"}
            tale.tell("IdentityChanged", broken, "contract_violation", cause="call:call_x")


def _onward(tale: Tale) -> str | None:
    return "observing" if tale.state == "accepted" else None


def _cancel(tale: Tale) -> None:
    if tale.state == "cancel_requested":
        call = tale.call("cancel")
        if tale.chance(3, 1):
            tale.arrives("cancel", None, "accepted", fault="answer dropped")
            tale.answer("CallLost", call, "cancelling", action="cancel", why="reset")
        else:
            tale.arrives("cancel", 202, "accepted")
            tale.answer("CancelAnswered", call, "cancelling", status=202, verdict="accepted")
        return
    match tale.chance(3, 4, 1, 1):
        case 0:
            _reads(tale, "cancelling", None)
        case 1:
            _reads(tale, "cancelled", "cancelled")
        case 2:
            _reads(tale, "succeeded", "result_collecting")
        case _:
            tale.at = max(tale.at, tale.deadlines["cancel"] + 1000)
            data = {"which": "cancel", "deadline": stamp(tale.deadlines["cancel"])}
            tale.tell("DeadlinePassed", data, "cancellation_unconfirmed", cause="deadline:cancel")


def _collect(tale: Tale) -> None:
    tale.at = max(tale.at, tale.due)
    tale.calls += 1
    call = f"call_{tale.name}_{tale.calls}"
    result = {"location": f"/results/{tale.name}", "size": 3, "sha256": "0" * 64, "validated": True, "problems": []}
    match tale.chance(7, 1, 1, 1, 1):
        case 0:
            tale.arrives("result", 200, None)
            tale.answer("ResultAccepted", call, "succeeded", status=200, result=result)
        case 1:
            tale.arrives("result", 200, None)
            tale.answer("ResultInvalid", call, "result_validation_failed", status=200, why="checksum")
        case 2:
            tale.answer("ResultMissing", call, "result_unavailable", why="gone")
        case 3:
            tale.arrives("result", 200, None)
            tale.answer("ResultAllItemsFailed", call, "failed", status=200, why="all failed", result=result)
        case _:
            tale.arrives("result", 404, None)
            tale.answer("ReadFailed", call, status=404, action="collect", why="not ready", plan="collect")


def _decide(tale: Tale) -> None:
    if tale.chance(3, 1):
        tale.at += 1000
        tale.tell("Noted", {"text": "seen"}, cause="human_request:n", by="olga", who="human")
    choices: Mapping[str, tuple[tuple[str, str], ...]] = {
        "cancellation_unconfirmed": (("watch", "cancelling"), ("cancel", "cancel_requested"), ("close", "resolved")),
        "result_timed_out": (("extend", "observing"), ("close", "resolved")),
        "result_unavailable": (("collect", "result_collecting"), ("accept", "resolved")),
        "result_validation_failed": (("collect", "result_collecting"), ("close", "resolved")),
        "contract_violation": (("keep", "observing"), ("close", "resolved")),
    }
    choice, to = tale.rng.choice(choices[str(tale.state)])
    data: Data = {"choice": choice, "request_id": f"req_{len(tale.events)}"}
    if choice in ("watch", "extend"):
        data["extend_by"] = 3 * SECOND
    if choice == "keep":
        tale.job = data["job_id"] = f"job_{tale.name}"
    if choice in ("keep", "extend"):
        tale.intent = False
    tale.person("Decided", to, **data)
    told = tale.events[-1]["at"]
    tale.deadlines["result"] = max(tale.deadlines["result"], told + 20 * SECOND)
    tale.deadlines["cancel"] = told + (3 if choice == "watch" else 4) * SECOND
    if choice == "extend":
        tale.deadlines["result"] = told + 3 * SECOND


STEPS: Final[Mapping[str, Callable[[Tale], None]]] = {
    "awaiting_approval": _awaiting,
    "create_pending": _create,
    "create_unknown": _unknown,
    "accepted": _watch,
    "observing": _watch,
    "cancel_requested": _cancel,
    "cancelling": _cancel,
    "result_collecting": _collect,
}


def make(seed: int | str, longest: int = 40) -> Tale:
    """Make one honest history that ends, or waits for a person; the same seed makes the same."""
    rng = random.Random(f"tale-{seed}")
    tale = Tale(rng, f"op_{seed}")
    _begin(tale)
    while tale.state not in TERMINAL:
        if tale.state in HUMAN and tale.state != "awaiting_approval":
            if len(tale.events) > longest or tale.chance(1, 2) == 0:
                break
            _decide(tale)
            continue
        STEPS[str(tale.state)](tale)
    if tale.state in ("failed", "cancelled", "succeeded") and tale.job is not None and tale.chance(4, 1):
        _late_word(tale)
    return tale


def _late_word(tale: Tale) -> None:
    tale.at += SECOND
    tale.arrives("status", 200, "succeeded")
    word: Data = {"status": 200, "job_id": tale.job, "remote_state": "succeeded", "means": "succeeded"}
    tale.answer("Observed", f"call_{tale.name}_late", **word)


# --- putting it on paper ----------------------------------------------------------------------------------------------


def papers(tales: Iterable[Tale]) -> tuple[list[Data], list[Data]]:
    """Return the documents of an export and of a log, before they are written as lines."""
    export: list[Data] = [{"format": "opledger-export/1", "origin": None, "verifier_key": None, "operations": None}]
    log: list[Data] = []
    for tale in tales:
        export += rows(tale)
        log += tale.log
    export.append({"type": "end", "lines": len(export) + 1})
    log.sort(key=lambda entry: int(entry["time"]))
    return export, [{**entry, "at": number, "time": stamp(entry["time"])} for number, entry in enumerate(log, 1)]


def rows(tale: Tale) -> list[Data]:
    """Return the documents of one history: its events, chained, and its record."""
    made: list[Data] = []
    name, before = tale.name, bytes(32)
    head = b"opledger/h1" + len(name).to_bytes(8, "big") + name.encode()
    for seq, event in enumerate(tale.events, 1):
        said = {**event, "seq": seq, "operation_id": name, "format": 1, "at": stamp(event["at"])}
        body = json.dumps(said).encode()
        digest = hashlib.sha256(head + seq.to_bytes(8, "big") + before + hashlib.sha256(body).digest()).digest()
        made.append(
            {
                "type": "event",
                "operation_id": name,
                "seq": seq,
                "at": event["at"],
                "actor": event["actor"]["name"],
                "kind": event["kind"],
                "from_state": event["from"],
                "to_state": event["to"],
                "cause": event["cause"],
                "reason": event["reason"],
                "remote_job_id": event["remote_job_id"],
                "body": base64.b64encode(body).decode(),
                "prev_hash": before.hex(),
                "hash": digest.hex(),
                "format": 1,
            }
        )
        before = digest
    states = [event["to"] for event in tale.events if event["to"] is not None]
    first = tale.events[0]["data"] if tale.events else {}
    record = {
        "type": "record",
        "operation_id": name,
        "state": states[-1] if states else None,
        "remote_job_id": tale.events[-1]["remote_job_id"] if tale.events else None,
        "version": len(made),
        "head_seq": len(made),
        "head_hash": before.hex(),
        "request": {key: first.get(key) for key in ("method", "url", "body_sha256")},
    }
    return [*made, record]


def findings_of(export: Iterable[Data], log: Iterable[Data]) -> list[Finding]:
    """Write both papers as lines, read them and judge them."""
    lines = [json.dumps(document).encode() for document in export]
    entries = [json.dumps(entry) for entry in log]
    return judge(read_export(lines), read_log(entries), FACTS, idle=True)


def judge_many(seed: int, count: int, some: int = 50, say: Callable[[str], None] = print) -> int:
    """Make and judge `count` honest histories, some to a paper; 1 where any was found to be bad."""
    states: Counter[str] = Counter()
    edges: set[tuple[Any, Any, Any]] = set()
    events = 0
    for start in range(0, count, some):
        tales = [make(f"{seed}_{number}") for number in range(start, min(start + some, count))]
        findings = findings_of(*papers(tales))
        for tale in tales:
            states[str(tale.state)] += 1
            events += len(tale.events)
            edges.update((one["from"], one["kind"], one["to"]) for one in tale.events if one["to"] is not None)
        if findings:
            first = findings[0]
            say(f"{first}  (python -m tests.checker --good {count} --seed {seed})")
            return 1
        if start // some % 400 == 399:
            say(f"{start + some} histories, {events} events")
    say(f"{count} honest histories, {events} events, {len(edges)} arrows, all accepted: {dict(states.most_common())}")
    return 0
