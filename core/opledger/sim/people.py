"""The people of the demonstration: two who approve, and one who decides what no program may decide.

They do by a script what somebody would do with the console or the command line, through the same ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import Clock
from opledger.edges.files import atomic_write, private_folder
from opledger.errors import Refused
from opledger.ledger import Ledger
from opledger.rules.explain import waits_for_person
from opledger.rules.model import Choice, Operation, State
from opledger.rules.packet import markdown
from opledger.rules.plain import clean
from opledger.sim.personalities import PERSONALITIES
from opledger.sim.screen import Screen

APPROVERS: Final = ("ana", "jo")
OPERATOR: Final = "operator"
AGENTS: Final = ("agent-billing", "agent-reports", "agent-night")
PROVIDER_REST: Final = timedelta(seconds=1)
MUCH: Final = 1000
"""From so many rows on, two people must agree."""

POLICY: Final = f"""\
# The demonstration's rule: whoever orders this much needs two others to agree.
[[policy]]
when = 'operation.body.rows >= {MUCH}'
approvals = 2
approvers = {list(APPROVERS)}
four_eyes = true
expires = "5m"
""".replace("'ana', 'jo'", '"ana", "jo"')


@dataclass(frozen=True, slots=True)
class Scene:
    """One operation beside the plan: what it shows, the contract and the body."""

    name: str
    contract: str
    body: Mapping[str, Any]


def _large(rows: int, report: str = "year-end") -> dict[str, Any]:
    return {
        "report": report,
        "account": "acct_100",
        "purpose": "audit",
        "currency": "EUR",
        "rows": rows,
        "_personality": "ideal",
        "_variant": "plain",
    }


def _small(personality: str) -> dict[str, Any]:
    return {"report": "stock", "account": "acct_557", "rows": 40, "_personality": personality, "_variant": "plain"}


SCENES: Final = (
    Scene("two approve", "sim", _large(MUCH)),
    Scene("near copy", "sim", _large(MUCH + 1)),
    Scene("taken back", "sim", _large(4 * MUCH, "archive")),
    Scene("found by hand", "sim-none", _small("lossy")),
    Scene("sent once more", "sim-none", _small("lossy_before")),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One decision of the operator. Without a choice it is the wish to cancel."""

    choice: Choice | None
    reason: str
    extend_by: timedelta | None = None


_TOLD: Final = Answer(Choice.CLOSE, "both jobs are known; told the provider")
SCRIPT: Final[Mapping[tuple[str, State], Sequence[Answer]]] = {
    ("found by hand", State.CREATE_UNKNOWN): (Answer(Choice.BIND, "found the job in the provider's own list"),),
    ("sent once more", State.CREATE_UNKNOWN): (
        Answer(Choice.RESEND, "no such job is to be seen; a second one would be borne"),
    ),
    ("", State.CREATE_UNKNOWN): (Answer(Choice.NOT_CREATED, "the provider's own list shows no such job"),),
    ("token_ignoring", State.CONTRACT_VIOLATION): (
        Answer(Choice.KEEP, "the first job is the one that was ordered; the provider drops the other"),
        _TOLD,
    ),
    ("", State.CONTRACT_VIOLATION): (_TOLD,),
    ("", State.CANCELLATION_UNCONFIRMED): (
        Answer(Choice.WATCH, "it may only be slow to stop", timedelta(seconds=1)),
        Answer(Choice.CANCEL, "it still runs: ask once more, as a new intent"),
        Answer(Choice.CLOSE, "the provider ignores every cancel; told them by phone"),
    ),
    ("never_ending", State.RESULT_TIMED_OUT): (
        Answer(Choice.EXTEND, "the provider says that it is nearly done", timedelta(seconds=3)),
        Answer(None, "it is not done; nobody waits for it any more"),
    ),
    ("", State.RESULT_TIMED_OUT): (Answer(Choice.CLOSE, "nobody can say what its last word means"),),
    ("expiring", State.RESULT_UNAVAILABLE): (
        Answer(Choice.COLLECT, "the provider says that the file is back"),
        Answer(Choice.ACCEPT, "the result is gone; the report will be ordered anew"),
    ),
    ("", State.RESULT_UNAVAILABLE): (Answer(Choice.ACCEPT, "the result lies where we do not go; fetched by hand"),),
    ("", State.RESULT_VALIDATION_FAILED): (
        Answer(Choice.COLLECT, "it may have been cut on the way: fetch it again"),
        Answer(Choice.CLOSE, "the file does not match its checksum, twice"),
    ),
}
"""What the operator decides, by scene or personality (empty: any other) and state, one answer after the other."""


@dataclass(slots=True)
class Part:
    """One operation of the play: its provider's personality, or the scene that it is there for."""

    operation_id: str
    personality: str
    variant: str
    scene: str = ""
    seen: int = 0  #: events that were shown
    version: int = -1
    rested: State | None = None  #: where automation brought it, before any person decided
    cancelled: bool = False
    decided: Counter[State] = field(default_factory=Counter)

    @property
    def label(self) -> str:
        """What it is known by on the screen."""
        return self.scene or self.personality


def _script(part: Part, state: State) -> Sequence[Answer]:
    """Return what is decided about a part in a state: by its scene, else its personality, else as about any other."""
    names = (*([part.scene] if part.scene else []), part.personality, "")
    return next((SCRIPT[name, state] for name in names if (name, state) in SCRIPT), ())


@dataclass(slots=True)
class People:
    """Whoever acts by the script. `find_job` looks for a job at the provider, as a person would."""

    ledger: Ledger
    screen: Screen
    clock: Clock
    folder: Path
    find_job: Callable[[Operation], str | None]
    did: Counter[str] = field(default_factory=Counter)
    _told: set[str] = field(default_factory=set)  #: what is shown only once

    def act(self, part: Part, op: Operation) -> None:
        """Do what somebody would do about this operation now, if anything."""
        try:
            if op.state is State.AWAITING_APPROVAL:
                self._approval(part, op)
            elif self._wants_cancel(part, op):
                part.cancelled = True
                self.ledger.cancel(
                    op.operation_id, reason="ordered twice", by=OPERATOR, effect="the job stops, nothing is billed"
                )
                self.did["cancel"] += 1
            elif waits_for_person(op):
                self._decide(part, op)
        except Refused:
            return  # the record moved on between the look and the act; the next look shows how

    def _wants_cancel(self, part: Part, op: Operation) -> bool:
        about = PERSONALITIES[part.personality]
        return about.wants_cancel and not part.cancelled and op.state is State.OBSERVING

    # --- approvals ----------------------------------------------------------------------------------------------

    def _approval(self, part: Part, op: Operation) -> None:
        if part.scene == "taken back":
            self.ledger.cancel(op.operation_id, reason="ordered by mistake", by=op.requested_by)
            self.did["take back"] += 1
        elif part.scene == "near copy":
            self._reject(op)
        elif "near copy" in self._told:  # first the copy, so that the reviewer has something to compare
            self._approve(op)

    def _reject(self, op: Operation) -> None:
        compared = self.ledger.review(op.operation_id)["compared_with"]
        if compared is not None:
            where = "; ".join(f"{one['pointer']}: {one['before']} -> {one['after']}" for one in compared["differences"])
            self.screen.note(
                f"jo looks at {op.operation_id[-8:]}: it is like {compared['operation_id'][-8:]} but for {clean(where)}"
            )
        self._told.add("near copy")
        self.ledger.reject(op.operation_id, reason="much the same is asked for already", by="jo")
        self.did["reject"] += 1

    def _approve(self, op: Operation) -> None:
        who = APPROVERS[len(op.approvals)]
        if "agent" not in self._told:
            self._told.add("agent")
            try:
                self.ledger.approve(op.operation_id, reason="go on", by=op.requested_by)
            except Refused as no:
                self.screen.note(f"refused: {clean(no.message)}")
        done = self.ledger.approve(op.operation_id, reason="within budget", by=who)
        self.screen.note(f"{who} approves {op.operation_id[-8:]}: {len(done.approvals)} of {done.approvals_needed}")
        self.did["approve"] += 1

    # --- deciding -----------------------------------------------------------------------------------------------

    def _decide(self, part: Part, op: Operation) -> None:
        answers = _script(part, op.state)
        if not answers:
            return
        if op.state is State.CONTRACT_VIOLATION and "packet" not in self._told:
            self._take(op)
        answer = answers[min(part.decided[op.state], len(answers) - 1)]
        if answer.choice is None:
            self.ledger.cancel(op.operation_id, reason=answer.reason, by=OPERATOR, effect="it stops")
        else:
            job = None
            if answer.choice is Choice.KEEP:
                job = op.jobs[0]
            elif answer.choice is Choice.BIND:
                job = self.find_job(op)
            self.ledger.resolve(
                op.operation_id, answer.choice, reason=answer.reason, by=OPERATOR, job=job, extend_by=answer.extend_by
            )
        part.decided[op.state] += 1
        self.did[answer.choice or "cancel"] += 1

    def _take(self, op: Operation) -> None:
        """Acknowledge an escalation, and write the packet that goes to the provider's support."""
        self._told.add("packet")
        until = self.clock.now() + timedelta(minutes=10)
        self.ledger.acknowledge(op.operation_id, by=OPERATOR, reason="I am on it", until=until)
        self.did["acknowledge"] += 1
        path = self.folder / "packets" / f"{op.operation_id}.md"
        private_folder(path.parent)
        atomic_write(path, markdown(self.ledger.packet(op.operation_id)).encode())
        self.screen.note(f"{OPERATOR} is on {op.operation_id[-8:]}; for the provider's support: {path}")

    def resume_providers(self) -> None:
        """Show which providers were paused, and let their calls go on after a rest."""
        for provider in self.ledger.store.providers():
            if provider.state != "paused" or provider.since is None:
                continue
            name = f"{provider.contract} {provider.since}"
            if name not in self._told:
                self._told.add(name)
                self.screen.note(
                    f"provider {provider.contract} paused by {clean(provider.by or '')}: {clean(provider.reason or '')}"
                )
            if self.clock.now() - provider.since > PROVIDER_REST:
                self.ledger.resume_provider(provider.contract, reason="the credentials are good again", by=OPERATOR)
                self.screen.note(f"provider {provider.contract} resumed by {OPERATOR}: the credentials are good again")
                self.did["resume a provider"] += 1
