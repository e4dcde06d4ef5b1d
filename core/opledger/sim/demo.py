"""The demonstration: real operations against a real, misbehaving HTTP provider on loopback, with a real database and
a real worker in a process of its own.

It plays everybody else: agents that submit, an operator who cancels, and the person who decides what no program may
decide. At the end the provider's own log is judged, not our records.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from opledger.edges.clock import Clock, SystemClock
from opledger.errors import Refused
from opledger.ledger import Ledger
from opledger.rules.explain import waits_for_person
from opledger.rules.model import Choice, Operation, State
from opledger.rules.plain import clean
from opledger.rules.shapes import Event
from opledger.sim.contracts import contract_name
from opledger.sim.judge import Verdict, verdict
from opledger.sim.personalities import PERSONALITIES, plan
from opledger.sim.screen import Screen
from opledger.sim.stage import Stage

COUNT: Final = 60
"""At this size the plan has every variant of every personality once."""
LONGEST: Final = 55.0
"""Seconds after which the demonstration stops waiting and says what is left."""

LOOK: Final = 0.15
AGENTS: Final = ("agent-billing", "agent-reports", "agent-night")
OPERATOR: Final = "operator"
PROVIDER_REST: Final = timedelta(seconds=1)

SCRIPT: Final[Mapping[State, tuple[Choice, str]]] = {
    State.CREATE_UNKNOWN: (Choice.CLOSE, "looked at the provider: it shows no such job and keeps failing"),
    State.CONTRACT_VIOLATION: (Choice.CLOSE, "both jobs are known; told the provider"),
    State.CANCELLATION_UNCONFIRMED: (Choice.CLOSE, "the provider ignores the cancel; told them by phone"),
    State.RESULT_TIMED_OUT: (Choice.CLOSE, "it has run for too long; nobody waits for it any more"),
    State.RESULT_UNAVAILABLE: (Choice.ACCEPT, "the result is gone; the report will be ordered anew"),
    State.RESULT_VALIDATION_FAILED: (Choice.CLOSE, "the file does not match its checksum"),
}
"""What the person decides in the headless demonstration; with a console this is left to whoever sits there."""


@dataclass(slots=True)
class Part:
    """One operation of the play, and what its provider's personality is."""

    operation_id: str
    personality: str
    variant: str
    seen: int = 0  #: events that were shown
    version: int = -1
    rested: State | None = None  #: where automation brought it, before any person decided
    cancelled: bool = False


@dataclass(slots=True)
class Play:
    """The running demonstration."""

    ledger: Ledger
    screen: Screen
    clock: Clock
    decides: bool
    parts: dict[str, Part] = field(default_factory=dict)
    last: dict[str, Operation] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def submit(self, seed: int, count: int) -> None:
        """Play the agents: submit every job of the plan."""
        for place, (name, body) in enumerate(plan(seed, count)):
            operation = self.ledger.submit(
                contract_name(PERSONALITIES[name].flavour),
                body,
                requested_by=AGENTS[place % len(AGENTS)],
                expectation=f"the provider {PERSONALITIES[name].does}",
                tags={"personality": name},
            )
            self.parts[operation.operation_id] = Part(operation.operation_id, name, str(body["_variant"]))

    def look(self) -> bool:
        """Show what changed, decide what is to be decided; True once everything has ended."""
        for operation in self.ledger.store.queries.get_many(list(self.parts)):
            part = self.parts[operation.operation_id]
            self.last[operation.operation_id] = operation
            if operation.version != part.version:
                part.version = operation.version
                self._show(part)
            if part.rested is None and (operation.state.terminal or waits_for_person(operation)):
                part.rested = operation.state
            if self.decides:
                self._act(part, operation)
        if self.decides:
            self._resume_providers()
        ended = sum(operation.state.terminal for operation in self.last.values())
        people = sum(waits_for_person(operation) for operation in self.last.values())
        self.screen.progress(ended, len(self.parts), people)
        return ended == len(self.parts)

    def _show(self, part: Part) -> None:
        for event in self.ledger.events(part.operation_id)[part.seen :]:
            part.seen = event.seq
            if event.to_state is not None:
                self.reasons[part.operation_id] = said = reason_of(event)
                self.screen.transition(part.operation_id, part.personality, event, said)

    def _act(self, part: Part, operation: Operation) -> None:
        about = PERSONALITIES[part.personality]
        try:
            if about.wants_cancel and not part.cancelled and operation.state is State.OBSERVING:
                part.cancelled = True
                self.ledger.cancel(
                    part.operation_id, reason="ordered twice", by=OPERATOR, effect="the job stops, nothing is billed"
                )
            elif operation.state is State.AWAITING_APPROVAL:
                self.ledger.approve(part.operation_id, reason="within budget", by=OPERATOR)
            elif waits_for_person(operation) and operation.state in SCRIPT:
                choice, reason = SCRIPT[operation.state]
                self.ledger.resolve(part.operation_id, choice, reason=reason, by=OPERATOR)
        except Refused:
            return  # the record moved on between the look and the act; the next look shows how

    def _resume_providers(self) -> None:
        now = self.clock.now()
        for provider in self.ledger.store.providers():
            if provider.state == "paused" and provider.since is not None and now - provider.since > PROVIDER_REST:
                self.screen.say(
                    f"  {provider.contract} was paused: {clean(provider.reason or '')}; resumed by {OPERATOR}"
                )
                self.ledger.resume_provider(provider.contract, reason="the credentials are good again", by=OPERATOR)

    def intents(self) -> dict[str, int]:
        """How many cancel intents were recorded, by job id."""
        counted: Counter[str] = Counter()
        for operation in self.last.values():
            if operation.remote_job_id is not None:
                kinds = [event.kind for event in self.ledger.events(operation.operation_id)]
                counted[operation.remote_job_id] += kinds.count("CancelRequested")
        return dict(counted)


def run(
    *,
    headless: bool,
    seed: int = 7,
    count: int = COUNT,
    show: Callable[[str, Mapping[str, str]], None] | None = None,
    clock: Clock | None = None,
) -> int:
    """Run the demonstration; returns the exit code: 0 only if the provider's log shows an honest client.

    `show` opens the console on the ledger's URL (with the environment it needs) and returns when it is closed; without
    it, or `headless`, transitions are printed as they happen and a script decides what needs a person.
    """
    clock = clock or SystemClock()
    folder = Path(tempfile.mkdtemp(prefix="opledger-demo-"))
    screen = Screen(sys.stdout, clock)
    screen.say(f"opledger demo: {count} operations, seed {seed}, in {folder}")
    with Stage(folder, seed) as stage:
        screen.say(f"  provider {stage.sim.base_url} (its own process, misbehaving)   ledger {stage.url}")
        play = Play(stage.ledger, screen, clock, decides=headless or show is None)
        stage.start_worker()
        play.submit(seed, count)
        if headless or show is None:
            trouble = _watch(play, stage, clock)
        else:
            show(stage.url, stage.environment)
            play.look()
            trouble = None
        found = verdict(stage.sim.log(), play.intents())
        stage.stop_worker()
    screen.close()
    _report(screen, play, found)
    if trouble is not None:
        screen.say(f"not finished: {trouble}")
    screen.say(f"kept for a look: opledger --db {stage.url} list")
    return 0 if not found.problems and trouble is None else 1


def _watch(play: Play, stage: Stage, clock: Clock) -> str | None:
    """Look until all has ended; otherwise say what went wrong."""
    until = clock.monotonic() + LONGEST
    pause = threading.Event()
    while not play.look():
        gone = stage.worker_gone()
        if gone is not None:
            return gone
        if clock.monotonic() > until:
            left = Counter(str(op.state) for op in play.last.values() if not op.state.terminal)
            return f"after {LONGEST:g} s still open: " + ", ".join(f"{n} {state}" for state, n in left.items())
        pause.wait(LOOK)
    return None


def _report(screen: Screen, play: Play, found: Verdict) -> None:
    states: dict[State, list[Operation]] = {}
    for operation in play.last.values():
        states.setdefault(operation.state, []).append(operation)
    rows = [
        (state, len(operations), _why(play, operations))
        for state, operations in sorted(states.items(), key=lambda pair: -len(pair[1]))
    ]
    screen.table(rows)
    screen.personalities(_endings(play))
    screen.verdict(
        f"the provider's log: {found.requests} requests, {found.creates} creates for {found.wishes} tokens, "
        f"{found.jobs} jobs, {found.cancels} cancels",
        [*found.problems],
        [*found.notes],
    )


def _why(play: Play, operations: list[Operation]) -> str:
    """One line for a state: what is most often behind it."""
    reasons = Counter(play.reasons.get(operation.operation_id, "") for operation in operations)
    reason, count = reasons.most_common(1)[0]
    return reason if count == len(operations) else f"{reason} ({count}×), …"


def _endings(play: Play) -> list[tuple[str, str, str, bool]]:
    """For each personality and variant: what it does, where automation came to rest, and whether that is honest."""
    rested: dict[tuple[str, str], Counter[str]] = {}
    for part in play.parts.values():
        state = part.rested or play.last[part.operation_id].state
        rested.setdefault((part.personality, part.variant), Counter())[str(state)] += 1
    lines = []
    for (name, variant), states in sorted(rested.items()):
        about = PERSONALITIES[name]
        told = name if variant == "plain" else f"{name}/{variant}"
        expected = {str(state) for state in about.ends.get(variant, frozenset())}
        came = ", ".join(f"{state}" + (f" ×{n}" if n > 1 else "") for state, n in states.items())
        lines.append((told, about.does, came, set(states) <= expected))
    return lines


def reason_of(event: Event) -> str:
    """Return why a transition happened, in a few words that are safe to print."""
    data = event.data or {}
    said = event.reason or data.get("why") or data.get("error") or data.get("remote_state")
    if said is None and event.kind == "ResultAccepted":
        said = "fetched, checked and stored"
    return clean(str(said or event.cause), limit=70)
