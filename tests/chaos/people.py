"""Agents that order, and people who approve, cancel and decide, all at random; on a thread of their own.

They know no more than the ledger and the provider's own pages tell. Where the database is away they try again later.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from opledger.edges.clock import SystemClock, new_operation_id
from opledger.errors import OpledgerError, Refused, StoreUnavailable
from opledger.ledger import Ledger
from opledger.rules.explain import waits_for_person
from opledger.rules.model import Choice, Operation, State
from opledger.sim.contracts import contract_name
from opledger.sim.personalities import PERSONALITIES
from tests.chaos.schedule import Plan
from tests.faults.lab import Lab

POLICY: Final = """\
[[policy]]
when = 'operation.body.rows >= 100'
approvals = 2
approvers = ["ana", "jo"]
four_eyes = true
expires = "20s"
"""

LOOK: Final = 0.2
AGENTS: Final = ("agent-billing", "agent-reports", "agent-night")
ORDINARY: Final = ("v1", "v1", "v1", "v1", "header", "clientid", "query", "body", "unique", "inline", "batch", "none")
LARGE: Final = frozenset({"breaking"})
"""Their results are so large that they are all that a run would be about."""
SLOW: Final = LARGE | {"never_ending", "unknown_words", "replaying", "cancel_ignoring", "slow"}
"""They come to an end only by a deadline."""
REST: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wish:
    """One order: under an id of its own, so that it can be given again where it is not known whether it was taken."""

    operation_id: str
    contract: str
    body: dict[str, Any]
    by: str


@dataclass(slots=True)
class Crowd:
    """Everybody. `calm`: nobody orders any more, and what waits for a person is brought to an end."""

    lab: Lab
    plan: Plan
    calm: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    did: Counter[str] = field(default_factory=Counter)
    broken: str | None = None
    left: dict[str, Operation] = field(default_factory=dict)  #: what has not ended yet
    decided: Counter[tuple[str, str]] = field(default_factory=Counter)
    _wishes: list[Wish] = field(default_factory=list)
    _open: set[str] = field(default_factory=set)
    _paused: dict[str, float] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        """True until all that was ordered has ended."""
        return bool(self._wishes or self._open) or self.did["orders"] < max(1, self.plan.orders)

    def run(self) -> None:
        """Live, until told that all is done."""
        rng, clock = random.Random(f"people-{self.plan.seed}"), SystemClock()
        began, ordered, last = clock.monotonic(), 0, -LOOK
        try:
            with Ledger.open(self.lab.url, settings=self.lab.ledger.settings) as ledger:
                while not self.done.wait(0.02):
                    now = clock.monotonic() - began
                    while ordered < self.plan.orders or (not self.calm.is_set() and ordered < now * self.plan.rate):
                        self._wishes.append(self._wish(rng, clock))
                        ordered += 1
                    try:
                        self._order(ledger)
                        if now - last >= LOOK:
                            last = now
                            self._look(ledger, rng, clock.monotonic())
                    except StoreUnavailable:
                        self.did["turned away by the database"] += 1
        except Exception:  # noqa: BLE001 - whatever it was, the run must show it
            self.broken = traceback.format_exc()

    # --- ordering -------------------------------------------------------------------------------------------------

    def _wish(self, rng: random.Random, clock: SystemClock) -> Wish:
        body: dict[str, Any] = {"account": f"acct_{rng.randrange(1000)}", "rows": rng.randrange(3, 30)}
        if rng.random() < 0.06:
            body["rows"] = 100
        flavour = rng.choice(ORDINARY)
        if self.plan.only is None and rng.random() < 0.55:
            body |= {"_personality": "ideal", "_seconds": rng.choice((0.2, 0.5, 1.5, 4.0))}
            if flavour == "batch":
                body |= PERSONALITIES["batch"].options
        else:
            name = self.plan.only or rng.choice(sorted(set(PERSONALITIES) - (SLOW if self.plan.quick else LARGE)))
            about = PERSONALITIES[name]
            flavour = about.flavour
            body |= {"_personality": name, "_variant": rng.choice(about.variants), **about.options}
        return Wish(new_operation_id(clock), contract_name(flavour), body, rng.choice(AGENTS))

    def _order(self, ledger: Ledger) -> None:
        while self._wishes:
            wish = self._wishes[0]
            ledger.submit(wish.contract, wish.body, requested_by=wish.by, operation_id=wish.operation_id)
            self._open.add(wish.operation_id)
            self._wishes.pop(0)
            self.did["orders"] += 1
            if self.did["orders"] % 11 == 0:  # asked again by an agent that forgot: the same operation
                ledger.submit(wish.contract, wish.body, requested_by=wish.by, operation_id=wish.operation_id)
                self.did["orders given twice"] += 1

    # --- looking and deciding -------------------------------------------------------------------------------------

    def _look(self, ledger: Ledger, rng: random.Random, now: float) -> None:
        found = {op.operation_id: op for op in ledger.store.queries.get_many(sorted(self._open))}
        for operation in found.values():
            if operation.state.terminal:
                self._open.discard(operation.operation_id)
                continue
            try:
                self._act(ledger, operation, rng)
            except (Refused, OpledgerError) as error:
                if isinstance(error, StoreUnavailable):
                    raise
                self.did["told that it had changed"] += 1
        self.left = {name: op for name, op in found.items() if not op.state.terminal}
        self._resume(ledger, now)

    def _act(self, ledger: Ledger, op: Operation, rng: random.Random) -> None:
        name = op.operation_id
        if op.state is State.AWAITING_APPROVAL:
            self._approve(ledger, op, rng)
        elif waits_for_person(op):
            self._decide(ledger, op, rng)
        elif self._wants_cancel(ledger, op, rng):
            ledger.cancel(name, reason="ordered twice", by="olga", effect="it stops")
            self.did["cancel"] += 1
        elif not self.calm.is_set() and rng.random() < 0.01:
            ledger.note(name, "looked at it", by="olga")
            self.did["note"] += 1

    def _wants_cancel(self, ledger: Ledger, op: Operation, rng: random.Random) -> bool:
        """Some jobs show only to somebody who cancels what they are about; those go on for long otherwise."""
        cancellable = PERSONALITIES[self._personality(ledger, op)].wants_cancel
        likely = 0.3 if cancellable else 0.0 if self.calm.is_set() else 0.01
        return op.cancel is None and op.state is not State.RESULT_COLLECTING and rng.random() < likely

    def _personality(self, ledger: Ledger, op: Operation) -> str:
        return str(ledger.body_of(op).get("_personality", "ideal"))

    def _approve(self, ledger: Ledger, op: Operation, rng: random.Random) -> None:
        match rng.choices(("approve", "reject", "wait", "take back"), (6, 1, 6, 1))[0]:
            case "approve":
                by = ("ana", "jo")[len(op.approvals)]
                ledger.approve(op.operation_id, reason="within budget", by=by)
                self.did["approve"] += 1
            case "reject":
                ledger.reject(op.operation_id, reason="not this year", by="jo")
                self.did["reject"] += 1
            case "take back":
                ledger.cancel(op.operation_id, reason="not needed", by=op.requested_by)
                self.did["take back"] += 1
            case _:
                return

    def _decide(self, ledger: Ledger, op: Operation, rng: random.Random) -> None:
        name, state = op.operation_id, op.state
        times = self.decided[name, state]
        if not self.calm.is_set() and rng.random() < 0.5:
            return  # people take their time
        job, extend = None, None
        if state is State.CREATE_UNKNOWN:
            job = next((one["id"] for one in self.lab.sim.jobs() if one["client_ref"] == name), None)
            choice = Choice.NOT_CREATED if job is None else Choice.BIND
        elif state is State.CONTRACT_VIOLATION:
            keeps = times == 0 and bool(op.jobs) and rng.random() < 0.5
            choice = Choice.KEEP if keeps else Choice.CLOSE
            job = op.jobs[0] if keeps else None
        elif state is State.CANCELLATION_UNCONFIRMED:
            choice = (Choice.WATCH, Choice.CANCEL, Choice.CLOSE)[min(times, 2)]
            extend = timedelta(seconds=1) if choice is Choice.WATCH else None
        elif state is State.RESULT_TIMED_OUT:
            choice = Choice.EXTEND if times == 0 else Choice.CLOSE
            extend = timedelta(seconds=2) if choice is Choice.EXTEND else None
        else:
            choice = Choice.COLLECT if times == 0 else Choice.ACCEPT
        ledger.resolve(name, choice, reason="as the provider says", by="olga", job=job, extend_by=extend)
        self.decided[name, state] += 1
        self.did[f"decide {choice}"] += 1

    def _resume(self, ledger: Ledger, now: float) -> None:
        for provider in ledger.store.providers():
            if provider.state != "paused":
                self._paused.pop(provider.contract, None)
            elif now - self._paused.setdefault(provider.contract, now) > REST:
                ledger.resume_provider(provider.contract, reason="the credentials are good again", by="olga")
                self.did["resume a provider"] += 1
