"""Cut, delayed, doubled and broken exchanges (T12), and what the journal may say of each of them.

Every exchange that the proxy saw is held against the one event that the journal has of it. What the proxy knows
decides: an answer of which one byte is missing tells nothing, and a request that the proxy took may have arrived.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from opledger.edges import tokens as token_fetches
from opledger.rules.model import Operation, State
from opledger.sim.judge import judge
from tests.network.proxy import Framing, Seen, Toxic
from tests.network.stand import SHORT, Stand, stand

BATCH: Final = 40
SLACK: Final = 3.0
"""Seconds by which a call may end late on a machine that has other things to do (I12 says 250 ms on a quiet one)."""

DROP: Final = Toxic("cut", "answer", 0, reset=True)
"""The provider acts, and nobody hears of it."""

HONEST: Final = Toxic("pieces", at=-1)
"""Nothing is done to it."""

CROSSED: Final = Toxic("crossed")
"""The answers of two exchanges change places."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a journal."""

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One operation whose one exchange is broken."""

    phase: str
    toxic: Toxic

    def __str__(self) -> str:
        return f"{self.phase}: {self.toxic}"


@dataclass
class Tally:
    """What was done and what came of it."""

    cases: Counter[str] = field(default_factory=Counter)  #: by phase
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)  #: by phase and kind of toxic
    cut: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))  #: bytes at which was cut
    told: Counter[tuple[str, str]] = field(default_factory=Counter)  #: by kind of exchange and of evidence
    states: Counter[str] = field(default_factory=Counter)  #: in which operations ended
    lost: int = 0  #: exchanges whose answer was not whole
    whole: int = 0
    arrived: int = 0  #: creates that the provider took though their answer was lost
    longest: float = 0.0  #: seconds beyond its timeout that a call took
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another one to this one."""
        for name in ("cases", "kinds", "told", "states"):
            getattr(self, name).update(getattr(other, name))
        for key, offsets in other.cut.items():
            self.cut[key] |= offsets
        self.lost, self.whole, self.arrived = (
            self.lost + other.lost, self.whole + other.whole, self.arrived + other.arrived,
        )  # fmt: skip
        self.longest = max(self.longest, other.longest)
        self.faults += other.faults


# --- phases: how an operation is brought to the exchange that is broken ------------------------------------------


def _create(here: Stand, toxics: Sequence[Toxic]) -> list[Operation]:
    made = [here.stage.submit(_seconds=2) for _ in toxics]
    for one, toxic in zip(made, toxics, strict=True):
        here.proxy.arm("create", one.idempotency_token or "", toxic)
    return made


def _again(flavour: str, kind: str) -> Callable[[Stand, Sequence[Toxic]], list[Operation]]:
    """The first create's answer is lost; the exchange that is to learn its fate is broken."""

    def prepare(here: Stand, toxics: Sequence[Toxic]) -> list[Operation]:
        made = [here.stage.submit(flavour=flavour, _seconds=2) for _ in toxics]
        for one, toxic in zip(made, toxics, strict=True):
            token = one.idempotency_token or ""
            here.proxy.arm("create", token, DROP, *([toxic] if kind == "create" else []))
            if kind != "create":
                here.proxy.arm(kind, token, toxic)
        return made

    return prepare


def _status(here: Stand, toxics: Sequence[Toxic]) -> list[Operation]:
    made = [here.stage.submit(_seconds=2 if number % 2 else 9) for number, _ in enumerate(toxics)]
    found = here.until(made, State.OBSERVING, State.RESULT_COLLECTING, State.SUCCEEDED)
    for one, toxic in zip(found, toxics, strict=True):
        here.proxy.arm("status", one.remote_job_id or "", toxic)
    return made


def _cancel(here: Stand, toxics: Sequence[Toxic]) -> list[Operation]:
    made = [here.stage.submit("cancellable", "slowly", _seconds=40) for _ in toxics]
    found = here.until(made, State.OBSERVING)
    for one, toxic in zip(found, toxics, strict=True):
        here.proxy.arm("cancel", one.remote_job_id or "", toxic)
        here.stage.ledger.cancel(one.operation_id, reason="ordered twice")
    return made


def _result(here: Stand, toxics: Sequence[Toxic]) -> list[Operation]:
    made = [here.stage.submit(_seconds=2, rows=4) for _ in toxics]
    found = here.until(made, State.OBSERVING)
    for one, toxic in zip(found, toxics, strict=True):
        here.proxy.arm("result", one.remote_job_id or "", toxic)
    return made


def _token(here: Stand, toxics: Sequence[Toxic]) -> list[Operation]:
    tokens = here.stage.worker._http._keys.tokens
    tokens._held.clear()
    tokens._failed.clear()
    token_fetches.TIMEOUT = timedelta(seconds=here.timeout)  # type: ignore[misc]  # the stand that was built last set it
    here.proxy.arm("token", "", *toxics)
    return [here.stage.submit(flavour="guarded", _seconds=2)]


PHASES: Final[Mapping[str, Callable[[Stand, Sequence[Toxic]], list[Operation]]]] = {
    "create": _create,
    "resend": _again("header", "create"),
    "list": _again("unique", "list"),
    "get": _again("clientid", "status"),
    "status": _status,
    "cancel": _cancel,
    "result": _result,
    "token": _token,
}
KIND: Final = {"resend": "create", "get": "status"}
"""What the proxy calls the exchange of a phase, where that is another word."""


# --- running ------------------------------------------------------------------------------------------------------


def batches(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Give cases that may run at the same time."""
    phases: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        phases[case.phase].append(case)
    for phase, mine in phases.items():
        size = 1 if phase == "token" else BATCH
        for start in range(0, len(mine), size):
            yield mine[start : start + size]


def run(here: Stand, cases: Sequence[Case], *, refused: bool = False) -> Tally:
    """Run cases of one phase at the same time, each with an operation of its own, and judge them."""
    phase, tally = cases[0].phase, Tally()
    here.forget()
    before = len(here.sim.log())
    made = PHASES[phase](here, [case.toxic for case in cases])
    if refused:
        here.refuse()
        here.stage.turn()
        here.accept()
    here.stage.run()
    unused = here.proxy.disarm()
    if unused:
        tally.faults.append(f"{phase}: {unused} of {len(cases)} exchanges never came; first case {cases[0]}")
    log = here.sim.log(before)
    for case, one in zip(cases, made, strict=True):
        story = Story(here, case, one, log, refused=refused, beside=cases)
        tally.faults += [f"{case}: {fault}" for fault in story.judge(tally)]
        tally.cases[phase] += 1
        tally.kinds[phase, "refused" if refused else case.toxic.kind] += 1
        if case.toxic.kind == "cut" and not refused:
            tally.cut[phase, case.toxic.side].add(case.toxic.at)
    doubled = here.idempotent or any(case.toxic.kind == "twice" for case in cases)
    tally.faults += [] if doubled else [f"{phase}: the provider's log: {fault}" for fault in judge(log)]
    return tally


class Story:
    """What the proxy, the provider and the journal tell of one operation."""

    def __init__(
        self,
        here: Stand,
        case: Case,
        operation: Operation,
        log: Sequence[Mapping[str, Any]],
        *,
        refused: bool,
        beside: Sequence[Case],
    ) -> None:
        """`beside`: what is done at the same time, over connections that all share."""
        self.here, self.case, self.refused, self.beside = here, case, refused, beside
        self.op = here.stage.show(operation)
        events = here.stage.ledger.events(operation.operation_id)
        self.events = [Event(event.kind, dict(event.data or {})) for event in events]
        names = [
            name.encode() for name in (self.op.idempotency_token, self.op.remote_job_id, operation.operation_id) if name
        ]
        self.seen = [one for one in here.proxy.seen if any(name in one.request for name in names)]
        self.tokens = [one for one in here.proxy.seen if one.kind == "token"]
        self.log = [entry for entry in log if entry["client_ref"] == operation.operation_id]

    def judge(self, tally: Tally) -> Iterator[str]:
        """Say what is wrong."""
        yield from self._pairs(tally)
        yield from self._permits()
        yield from self._provider()
        yield from self._end()
        tally.states[str(self.op.state)] += 1
        for one in self.seen + self.tokens:
            late = one.ended - one.began - self.here.timeout
            tally.longest = max(tally.longest, late)
            if late > SLACK and one.kind != "token":
                took = one.ended - one.began
                yield f"a {one.kind} call was open for {took:.1f} s, its timeout is {self.here.timeout:g} s"

    # --- every exchange has one event, and it says no more than the wire did -----------------------------------------

    def _pairs(self, tally: Tally) -> Iterator[str]:
        for one, event in self._paired():
            if event is None:
                yield f"a {one.kind} request left, and the journal has no word of it"
                continue
            tally.told[one.kind, event.kind] += 1
            wrong = self._wrong(one, event)
            if wrong:
                yield f"{wrong}; the journal says {event.kind} {dict(event.data)}"
            if not one.whole:
                tally.lost += 1
                tally.arrived += one.kind == "create" and one.times > 0
            tally.whole += one.whole

    def _paired(self) -> Iterator[tuple[Seen, Event | None]]:
        creates = self._outcomes(lambda data: data.get("may_create", False))
        looks = self._outcomes(lambda data: data.get("strategy") in ("get", "list"))
        yield from _zip([one for one in self.seen if one.kind == "create"], creates)
        yield from _zip(
            [one for one in self.seen if one.kind == "cancel"], self._outcomes(lambda d: d["action"] == "cancel")
        )
        statuses = [one for one in self.seen if one.kind == "status"]
        gets = [] if self.case.phase != "get" else statuses[: len(looks)]
        yield from _zip(gets or [one for one in self.seen if one.kind == "list"] if looks else [], looks)
        reads = [
            event
            for event in self.events
            if event.kind in ("Observed", "IdentityChanged", "FinalStateChanged")
            or (event.kind == "ReadFailed" and event.data.get("action", "observe") == "observe")
            if not (self.refused and "the server refused the connection" in event.data.get("why", ""))
        ]
        yield from _zip(statuses[len(gets) :], reads)
        ends = ("ResultAccepted", "ResultInvalid", "ResultMissing", "ResultAllItemsFailed")
        brought = [
            event
            for event in self.events
            if event.kind in ends or (event.kind == "ReadFailed" and event.data.get("action") == "collect")
        ]
        yield from _zip([one for one in self.seen if one.kind == "result"], brought)

    def _outcomes(self, wanted: Callable[[Mapping[str, Any]], bool]) -> list[Event]:
        """The outcomes of the permits of a kind; those of calls that provably never left have no exchange."""
        calls = [event.data["call_id"] for event in self.events if event.kind == "CallSent" and wanted(event.data)]
        found: list[Event] = []
        for call in calls:
            answers = [one for one in self.events if one.kind != "CallSent" and one.data.get("call_id") == call]
            if len(answers) != 1:
                return [*found, Event(f"{len(answers)} outcomes", {})]
            if answers[0].kind != "NotDelivered" or not (self.refused or self.case.phase == "token"):
                found.append(answers[0])
        return found

    def _wrong(self, one: Seen, event: Event) -> str | None:
        """Say how the event contradicts the exchange; None where it does not."""
        lost = {"create": {"CallLost", "Inconclusive"}, "cancel": {"CallLost"}, "list": {"Inconclusive"}}
        silence = lost.get(one.kind, {"ReadFailed"})
        if one.kind == "status" and "strategy" in event.data:
            silence = {"Inconclusive"}
        if not one.whole:
            unclear = event.kind == "CancelAnswered" and event.data.get("verdict") == "unclear"
            return (
                None
                if event.kind in silence or unclear
                else f"only {one.given} of {len(one.answer)} bytes of the answer came"
            )
        slow = one.ended - one.began > 0.7 * self.here.timeout
        if event.kind in silence and (one.broken or one.stray or slow):
            return None
        if one.stray and one.toxic is not None and one.toxic.kind in ("swap", "crossed"):
            return None  # what a damaged answer says cannot be told from what an honest one says
        said: Any = json.loads(one.body) if one.kind != "result" else None
        match one.kind:
            case "create" if one.status == 202:
                good = event.kind == "Accepted" and event.data["job_id"] == said["id"]
            case "create":
                good = event.kind in ("Accepted", *silence)
            case "list":
                good = event.kind == "Accepted" and event.data["job_id"] == said["data"][0]["id"]
            case "cancel":
                good = event.kind == "CancelAnswered"
            case "status":
                good = (event.kind == "Observed" and event.data["remote_state"] == said["state"]) or (
                    event.kind == "Accepted" and event.data["job_id"] == said["id"]
                )
            case _:
                digest = hashlib.sha256(one.body).hexdigest()
                good = event.kind == "ResultAccepted" and event.data["result"]["sha256"] == digest
                good = good or (self._may_come_instead() and event.kind == "ResultInvalid")
        return None if good else "the whole answer came and says something else"

    # --- what left, what arrived, how it ended -----------------------------------------------------------------------

    def _permits(self) -> Iterator[str]:
        """No request without a permit, and no permit used twice (I7)."""
        sent = [event.data for event in self.events if event.kind == "CallSent"]
        for kind, permits in (
            ("create", sum(bool(data.get("may_create")) for data in sent)),
            ("cancel", sum(data["action"] == "cancel" for data in sent)),
        ):
            left = [one for one in self.seen if one.kind == kind]
            if len(left) > permits:
                yield f"{len(left)} {kind} requests left under {permits} permits"
            read = [one.request for one in left if one.toxic is None or one.toxic.kind not in ("slam", "stall")]
            if len({request.partition(b"\r\n\r\n")[2] for request in read}) > 1:
                yield f"{kind} requests with different bodies"
        gone = self.refused or self.case.phase == "token"
        if not gone and any(event.kind == "NotDelivered" for event in self.events):
            yield "a call that may have arrived is called not delivered"
        if self.refused and self.case.phase == "create" and self.events[2].kind != "NotDelivered":
            yield f"nobody listened, and the journal says {self.events[2].kind}"

    def _provider(self) -> Iterator[str]:
        started = sum(bool(entry["started"]) for entry in self.log)
        if started > 1:
            yield f"the provider started {started} jobs"
        jobs = {entry["job_id"] for entry in self.log if entry["started"]}
        if self.op.remote_job_id is not None and jobs != {self.op.remote_job_id} and not self._may_be_wrong():
            yield f"the record says job {self.op.remote_job_id}, the provider started {jobs}"
        cancels = sum(one.kind == "cancel" for one in self.seen)
        if cancels > 1 and not self.here.idempotent and "CancelRequested" in {event.kind for event in self.events}:
            yield f"{cancels} cancel requests left for one intent"

    def _may_be_wrong(self) -> bool:
        return self.case.toxic.kind in ("swap", "crossed")

    def _may_come_instead(self) -> bool:
        """A second answer that comes when the request for the result has left is read as its answer (RFC 9112 §9.2).

        Nobody can tell the two apart; what the result is compared with stops it. That request may be another one's.
        """
        return any(case.toxic.kind in ("echo", "late") and case.phase == "status" for case in self.beside)

    def _end(self) -> Iterator[str]:
        ends = {State.SUCCEEDED}
        if self._may_come_instead():
            ends |= {State.RESULT_VALIDATION_FAILED}
        if self.case.phase == "cancel":
            ends |= {State.CANCELLED}
        if self._may_be_wrong():
            ends |= {
                State.CONTRACT_VIOLATION,
                State.RESULT_TIMED_OUT,
                State.RESULT_VALIDATION_FAILED,
                State.CREATE_UNKNOWN,
            }
            ends |= {State.RESULT_UNAVAILABLE, State.CANCELLATION_UNCONFIRMED}
        if self.op.state not in ends:
            kinds = [event.kind for event in self.events]
            yield f"it ended as {self.op.state}: {kinds}, {self.op.last_error}"
        if self.op.state is State.SUCCEEDED:
            results = {hashlib.sha256(one.body).hexdigest() for one in self.seen if one.kind == "result" and one.body}
            kept = self.op.result.sha256 if self.op.result else None
            if kept not in results:
                yield "the stored result is none that the provider sent"


def _zip(seen: Sequence[Seen], events: Sequence[Event]) -> Iterator[tuple[Seen, Event | None]]:
    for number, one in enumerate(seen):
        yield one, events[number] if number < len(events) else None
    if len(events) > len(seen):
        extra = Seen("unknown", b"", None)
        yield extra, None


# --- which cases --------------------------------------------------------------------------------------------------


def sizes(here: Stand) -> dict[str, tuple[int, int]]:
    """Bytes of the request and of the answer of each phase, taken from honest exchanges."""
    found = {}
    for phase in PHASES:
        here.forget()
        PHASES[phase](here, [HONEST])
        here.stage.run()
        (one,) = [one for one in here.proxy.seen if one.toxic == HONEST]
        found[phase] = len(one.request), len(one.answer)
    return found


def every_cut(lengths: Mapping[str, tuple[int, int]], *, both: bool = False) -> list[Case]:
    """A cut after every byte of every request and answer, by FIN or RST in turn or `both`; answers framed in turn."""
    cases = []
    for phase, (asked, said) in lengths.items():
        for at in range(asked + 1):
            cases += [Case(phase, Toxic("cut", "request", at, end)) for end in _ends(at, both=both)]
        for at in range(said + 1):
            framing = _FRAMINGS[at % 3]
            cases += [Case(phase, Toxic("cut", "answer", at, end, framing)) for end in _ends(at // 3, both=both)]
    return cases


_FRAMINGS: Final[tuple[Framing, ...]] = ("length", "chunked", "close")


def _ends(number: int, *, both: bool) -> tuple[bool, ...]:
    return (False, True) if both else (number % 2 == 1,)


def some_cuts(lengths: Mapping[str, tuple[int, int]], number: int, seed: int) -> list[Case]:
    """The ends of every request and answer, and cuts between them that chance takes, the same number of each phase."""
    chance = random.Random(seed)
    cases = []
    for phase, (asked, said) in lengths.items():
        mine = every_cut({phase: (asked, said)})
        edges = [
            case for case in mine
            if case.toxic.at in ((0, 1, asked - 1, asked) if case.toxic.side == "request" else (0, 1, said - 1, said))
        ]  # fmt: skip
        known = set(edges)
        rest = [case for case in mine if case not in known]
        wanted = max(0, number // len(lengths) - len(edges))
        cases += edges + chance.sample(rest, min(wanted, len(rest)))
    return cases


QUICK: Final = (
    Toxic("cut", "request"),
    Toxic("cut", "request", reset=True),
    Toxic("cut", "answer"),
    Toxic("cut", "answer", reset=True),
    Toxic("cut", "answer", framing="chunked"),
    Toxic("cut", "answer", framing="chunked", reset=True),
    Toxic("cut", "answer", framing="close"),
    Toxic("cut", "answer", framing="close", reset=True),
    Toxic("half", "request"),
    Toxic("half", "answer"),
    Toxic("half", "answer", framing="close"),
    Toxic("slam", "request"),
    Toxic("delay", "request", seconds=0.05),
    Toxic("delay", "answer", seconds=0.05),
    Toxic("pieces", "answer"),
    Toxic("twice", "request"),
    Toxic("twice", "answer"),
    Toxic("echo", "answer"),
    Toxic("late", "answer", seconds=0.02),
    Toxic("garbage", "answer"),
    Toxic("swap", "answer"),
)
"""What is over in a moment."""

HANGING: Final = (
    Toxic("silent"),
    Toxic("hole", "answer"),
    Toxic("hole", "answer", framing="chunked"),
    Toxic("hole", "answer", framing="close"),
    Toxic("drip", "answer", seconds=0.2),
    Toxic("drip", "answer", seconds=0.2, framing="close"),
    Toxic("stall", "request"),
)
"""What only the deadline of the call ends."""


def spread(
    lengths: Mapping[str, tuple[int, int]], toxics: Sequence[Toxic], offsets: int, phases: Sequence[str] = ()
) -> list[Case]:
    """Each of these at so many offsets, evenly spread, in each phase where it can be."""
    cases = []
    for phase, (asked, said) in lengths.items():
        for toxic in toxics:
            size = asked if toxic.side == "request" else said
            # A drip or hole after the last byte would be no fault at all.
            last = size - 1 if toxic.kind in ("hole", "drip", "half", "slam", "stall") else size
            for number in range(offsets if not phases or phase in phases else 0):
                at = last * number // max(1, offsets - 1)
                cases.append(Case(phase, replace(toxic, at=at)))
    return cases


def usable(case: Case) -> bool:
    """False for what cannot be had in this phase."""
    kind = case.toxic.kind
    if kind in ("slam", "stall"):
        # What is read of a request before it is known must tell whose it is, and something must be left to read.
        return case.phase != "token"
    return not (case.phase == "token" and kind in ("swap", "twice"))


REFUSED: Final = ("create", "status", "cancel")
"""Where the moment can be chosen at which nobody listens."""


def missed(total: Tally) -> list[str]:
    """Say what a run must reach and has not."""
    wanted: set[tuple[str, str]] = {
        (phase, toxic.kind) for phase in PHASES for toxic in (*QUICK, *HANGING) if usable(Case(phase, toxic))
    }
    wanted |= {(phase, "refused") for phase in REFUSED} | {("status", "crossed")}
    kinds = (
        "Accepted CallLost Inconclusive",
        "Observed ReadFailed",
        "CancelAnswered CallLost",
        "ResultAccepted ReadFailed",
    )
    told = {
        (exchange, kind)
        for exchange, words in zip(("create", "status", "cancel", "result"), kinds, strict=True)
        for kind in words.split()
    } | {("list", "Accepted"), ("list", "Inconclusive"), ("status", "IdentityChanged")}
    found = [f"never reached: {phase} {kind}" for phase, kind in sorted(wanted - set(total.kinds))]
    found += [f"never told: {exchange} {kind}" for exchange, kind in sorted(told - set(total.told))]
    return found + ([] if total.arrived else ["no create arrived whose answer was lost"])


__all__ = ["SHORT", "Case", "Stand", "Tally", "batches", "every_cut", "run", "sizes", "some_cuts", "spread", "stand"]
