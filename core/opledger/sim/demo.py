"""The demonstration: real operations against a real, misbehaving HTTP provider on loopback, with a real database and
a real worker in a process of its own.

It plays everybody else: agents that submit, people who approve and cancel, and the one who decides what no program may
decide. At the end the provider's own log is judged, not our records.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import Clock, SystemClock
from opledger.ledger import Ledger
from opledger.rules.explain import waits_for_person
from opledger.rules.model import Choice, Operation, State
from opledger.rules.plain import clean
from opledger.rules.shapes import Event
from opledger.sim.contracts import contract_name
from opledger.sim.judge import Verdict, verdict
from opledger.sim.people import AGENTS, POLICY, SCENES, Part, People
from opledger.sim.personalities import PERSONALITIES, plan
from opledger.sim.screen import Screen
from opledger.sim.stage import Stage

log = logging.getLogger("opledger.demo")

COUNT: Final = 60
"""At this size the plan has every variant of every personality once."""
LONGEST: Final = 55.0
"""Seconds after which the demonstration stops waiting and says what is left."""

LOOK: Final = 0.15


@dataclass(slots=True)
class Play:
    """The running demonstration."""

    ledger: Ledger
    screen: Screen
    people: People | None  #: None where whoever sits at the console decides
    parts: dict[str, Part] = field(default_factory=dict)
    last: dict[str, Operation] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def submit(self, seed: int, count: int) -> None:
        """Play the agents: submit every job of the plan, and one for each scene."""
        for place, (name, body) in enumerate(plan(seed, count)):
            does = f"the provider {PERSONALITIES[name].does}"
            self._submit(contract_name(PERSONALITIES[name].flavour), body, AGENTS[place % len(AGENTS)], does)
        for scene in SCENES:
            self._submit(scene.contract, scene.body, AGENTS[0], f"shows: {scene.name}", scene.name)

    def _submit(self, contract: str, body: Mapping[str, Any], by: str, expects: str, scene: str = "") -> None:
        personality = str(body["_personality"])
        operation = self.ledger.submit(
            contract, body, requested_by=by, expectation=expects, tags={"personality": personality}
        )
        self.parts[operation.operation_id] = Part(
            operation.operation_id, personality, str(body["_variant"]), scene=scene
        )

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
            if self.people is not None:
                self.people.act(part, operation)
        if self.people is not None:
            self.people.resume_providers()
        ended = sum(operation.state.terminal for operation in self.last.values())
        people = sum(waits_for_person(operation) for operation in self.last.values())
        self.screen.progress(ended, len(self.parts), people)
        return ended == len(self.parts)

    def _show(self, part: Part) -> None:
        for event in self.ledger.events(part.operation_id)[part.seen :]:
            part.seen = event.seq
            if event.to_state is not None:
                self.reasons[part.operation_id] = said = reason_of(event)
                self.screen.transition(part.operation_id, part.label, event, said)

    def intents(self) -> dict[str, int]:
        """How many cancel intents were recorded, by job id: wishes to cancel, and decisions to cancel once more."""
        asked: dict[str, set[str]] = {}
        for operation in self.last.values():
            if operation.remote_job_id is not None:
                asked.setdefault(operation.remote_job_id, set()).update(
                    str(data["request_id"])
                    for kind, data in self._told(operation)
                    if kind == "CancelRequested" or (kind == "Decided" and data["choice"] == Choice.CANCEL)
                )
        return {job: len(requests) for job, requests in asked.items()}

    def accepted(self) -> frozenset[str]:
        """The tokens and references for which a person accepted a possible duplicate."""
        return frozenset(
            name
            for operation in self.last.values()
            if any(kind == "Decided" and data["choice"] == Choice.RESEND for kind, data in self._told(operation))
            for name in (operation.operation_id, operation.idempotency_token)
            if name is not None
        )

    def _told(self, operation: Operation) -> list[tuple[str, Mapping[str, Any]]]:
        return [(event.kind, event.data or {}) for event in self.ledger.events(operation.operation_id)]


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
    screen.say(f"opledger demo: {count + len(SCENES)} operations, seed {seed}, in {folder}")
    with Stage(folder, seed, POLICY) as stage:
        screen.say(f"  provider {stage.sim.base_url} (its own process, misbehaving)")
        screen.say(f"  ledger   {stage.url}")
        scripted = headless or show is None
        people = People(stage.ledger, screen, clock, folder, stage.find_job) if scripted else None
        play = Play(stage.ledger, screen, people)
        stage.start_worker()
        play.submit(seed, count)
        if show is None or headless:
            trouble = _watch(play, stage, clock)
        else:
            show(stage.url, stage.environment)
            play.look()
            trouble = None
        found = verdict(stage.sim.log(), play.intents(), play.accepted())
        stage.stop_worker()
    screen.close()
    _report(screen, play, found)
    if trouble is not None:
        screen.say(f"not finished: {trouble}")
    screen.say("kept for a look:")
    screen.say(f"  opledger --db {stage.url} list")
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
    if play.people is not None:
        screen.people(sorted(play.people.did.items()))
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
        if part.scene:
            continue  # there for the people, not for the provider
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
