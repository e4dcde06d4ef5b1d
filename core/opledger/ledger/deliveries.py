"""Deliveries of webhooks: judged at the door, kept, and handed to the operations that they are about.

A delivery never changes a state here. It is appended to the operation as a hint and makes the next read due now; what
is so is what that read says. Where the provider has no status read, the worker reads the kept delivery itself. One that
comes before its job is known waits, and is handed over by whoever looks next.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from opledger import config
from opledger.edges.clock import new_id
from opledger.edges.place import acting
from opledger.edges.secrets import SecretResolver
from opledger.errors import ConfigWrong
from opledger.ledger.reading import Reading
from opledger.rules import decide, jsontext, redact, webhooks
from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.model import Actor, ActorKind, Operation
from opledger.rules.webhooks import Delivery, Headers, Kind, Refusal
from opledger.store import Answer, Incoming, KeptDelivery, Match, Named, Taken, Write

log = logging.getLogger("opledger.receiver")

KEPT_BODY: Final = 64 * 1024
"""Most bytes of a delivery's body that are kept, where a status read says what is so; else it is kept whole."""

SWEEPS: Final = 100
"""Most transactions of one sweep."""

RECEIVER: Final = Actor("webhooks", ActorKind.WORKER)
NOBODY: Final = ""
"""Under this name refusals are counted that belong to no contract: anybody can make names up."""


@dataclass(frozen=True, slots=True)
class Door:
    """One contract's way in: how its deliveries are verified, with today's secrets."""

    contract: Contract
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivery that was verified and is not stored yet."""

    contract: Contract
    delivery: Delivery
    raw: bytes
    received_at: datetime


class Doors:
    """The contracts that receive webhooks, as files and secrets were at the last look. Judging never blocks."""

    def __init__(self, settings: config.Settings, secrets: SecretResolver | None = None) -> None:
        self._settings = settings
        self._secrets = secrets or SecretResolver(settings.environment)
        self._seen: tuple[tuple[str, int, int], ...] | None = None
        self._contracts: dict[str, Contract] = {}
        self._doors: dict[str, Door] = {}
        self.mask = redact.Redactor(())  #: hides the secrets that were resolved here
        self._masked: tuple[str, ...] = ()
        self._told: set[str] = set()

    def look(self) -> None:
        """Read contracts that have changed, and secrets that may have. May block; call it about once a second.

        Where the contracts cannot be read, those that are known stay. Raises ConfigWrong only on the first look.
        """
        seen = tuple(sorted(self._facts()))
        if seen != self._seen:
            try:
                files = config.list_contracts(self._settings)
            except ConfigWrong as wrong:
                if self._seen is None:
                    raise
                log.error("the contracts cannot be read: %s", wrong)
                return
            # No command that fetches one secret inherits another one.
            self._secrets.hide(one for file in files if file.contract is not None for one in file.contract.references)
            self._contracts = {
                file.name: file.contract
                for file in files
                if file.contract is not None and file.contract.webhook is not None
            }
            self._seen = seen
            self._mask_more(commands=True)
        self._mask_more(commands=False)
        self._doors = {name: Door(contract, self._values(contract)) for name, contract in self._contracts.items()}
        if self._masked != self._secrets.known():
            self._masked = self._secrets.known()
            self.mask = redact.Redactor(self._masked)

    @property
    def names(self) -> tuple[str, ...]:
        """The contracts that receive webhooks."""
        return tuple(sorted(self._doors))

    def judge(self, name: str, raw: bytes, headers: Headers, now: datetime) -> Arrival | Refusal:
        """Verify one delivery to the contract of this name."""
        door = self._doors.get(name)
        if door is None or door.contract.webhook is None:
            return Refusal(Kind.UNKNOWN_CONTRACT)
        try:
            found = webhooks.verify(door.contract.webhook, raw, headers, door.secrets, now)
        except ConfigWrong as wrong:
            self._say(f"deliveries to {name} cannot be verified: {wrong.message}")
            return Refusal(Kind.UNAVAILABLE, wrong.message)
        return found if isinstance(found, Refusal) else Arrival(door.contract, found, raw, now)

    def _mask_more(self, *, commands: bool) -> None:
        """Get to know what else a provider may give back in a webhook: our key for its API, for one (I24).

        Where that cannot be had here, it need not be: a receiver may well run without it. Commands and keyrings are
        asked once for each version of the contracts, and not every half a minute.
        """
        for contract in self._contracts.values():
            for reference in contract.references:
                if reference.startswith(("command:", "keyring:")) is commands:
                    with suppress(ConfigWrong):
                        self._secrets.resolve(reference)

    def _values(self, contract: Contract) -> tuple[str, ...]:
        found = []
        for reference in contract.webhook.secrets if contract.webhook is not None else ():
            try:
                found.append(self._secrets.resolve(reference))
            except ConfigWrong as wrong:  # during a rotation one of several may be gone already
                self._say(f"a webhook secret of {contract.name} cannot be had: {wrong.message}")
        return tuple(found)

    def _say(self, sentence: str) -> None:
        """Log what is wrong once, and not each second or for each delivery."""
        if sentence not in self._told:
            self._told.add(sentence)
            log.error("%s", sentence)

    def _facts(self) -> Iterator[tuple[str, int, int]]:
        for folder in self._settings.contracts:
            try:
                entries = [(entry.path, entry.stat()) for entry in os.scandir(folder) if entry.name.endswith(".toml")]
            except OSError:
                continue  # `list_contracts` says what is wrong with the folder
            for path, fact in entries:
                yield path, fact.st_mtime_ns, fact.st_size


class Deliveries:
    """What is done with verified deliveries, in one ledger. Safe to use from several threads and processes."""

    def __init__(self, ledger: Reading) -> None:
        self._ledger = ledger
        self._store = ledger.store

    def check_version(self) -> None:
        """See that nobody has upgraded the ledger to what this program cannot use. Raises SchemaMismatch."""
        self._store.database.check_version()

    # --- taking ---------------------------------------------------------------------------------------------

    def take(self, arrivals: Sequence[Arrival], mask: redact.Redactor | None = None) -> list[Taken | Refusal]:
        """Store deliveries in one transaction and tell their operations; each has its own outcome.

        Everything is durable when this returns. Raises StoreUnavailable where the database cannot do its part: then
        nothing of the batch counts as taken.
        """
        masks = mask or redact.Redactor(())
        told = [one.delivery for one in arrivals]
        names = self._store.named(
            sorted({one.job_id for one in told if one.job_id is not None}),
            sorted({one.token for one in told if one.token is not None}),
        )
        about = [_about(one, names) for one in arrivals]
        wanted = {id_ for found in about if not isinstance(found, Refusal) for id_ in found}
        records = {op.operation_id: op for op in self._store.queries.get_many(sorted(wanted))}
        outcomes: dict[int, Taken | Refusal] = {}
        incoming: dict[int, Incoming] = {}
        for place, (arrival, found) in enumerate(zip(arrivals, about, strict=True)):
            if isinstance(found, Refusal):
                outcomes[place] = found
            else:
                operations = _meant(arrival.delivery, [records[id_] for id_ in found if id_ in records])
                incoming[place] = self._incoming(arrival, operations, masks)
        taken = self._store.take_deliveries(list(incoming.values()))
        outcomes.update(zip(incoming, taken, strict=True))
        return [outcomes[place] for place in range(len(arrivals))]

    def _incoming(self, arrival: Arrival, operations: Iterable[Operation], masks: redact.Redactor) -> Incoming:
        delivery = arrival.delivery
        kept = Incoming(
            new_id("dlv"),
            arrival.contract.name,
            _key(delivery.key, masks),
            arrival.received_at,
            _hidden(delivery.event_type, masks),
            _hidden(delivery.job_id, masks),
            _hidden(delivery.token, masks),
            _kept(arrival, masks),
        )
        matches = [
            self._match(op, kept, kept.answer, arrival.received_at)
            for op in operations
            if op.sent  # of what was never sent nothing can have happened: the delivery waits
        ]
        return replace(kept, matches=tuple(matches))

    def _match(self, op: Operation, delivery: Incoming | KeptDelivery, answer: Answer, at: datetime) -> Match:
        contract, jitter = self._ledger.contract_of(op), self._ledger.clock.random()
        counts = contract.status.by_delivery
        if op.state.terminal and not counts:
            return Match(op.operation_id, None)
        id_, event_type, job_id = delivery.delivery_id, delivery.event_type, delivery.job_id
        came = delivery.received_at if counts and delivery.received_at != at else None
        notified = e.Notified(webhooks.SOURCE, id_, event_type, job_id, answer.sha256, counts, came)
        write = Write(
            operation_id=op.operation_id,
            evidence=notified,
            actor=acting(RECEIVER),
            at=at,
            cause=f"webhook:{id_}",
            reason=webhooks.reason(op, event_type, job_id),
            plan=lambda after: decide.plan(after, contract, notified, at, jitter),
            answer=answer,
        )
        return Match(op.operation_id, write)

    # --- what waits -----------------------------------------------------------------------------------------

    def match_parked(self) -> int:
        """Hand over deliveries that were parked and whose operation is known by now; returns how many those were."""
        parked = self._store.parked_deliveries()
        if not parked:
            return 0
        now = self._ledger.clock.now()
        ids = sorted({one.operation_id for one in parked})
        records = {op.operation_id: op for op in self._store.queries.get_many(ids)}
        matches: dict[str, list[Match]] = {}
        for one in parked:
            op, kept = records.get(one.operation_id), one.delivery
            if op is not None and op.sent:
                match = self._match(op, kept, one.answer, now)
                matches.setdefault(kept.delivery_id, []).append(match)
        return self._store.match_deliveries(matches, now)

    def sweep(self) -> int:
        """Forget deliveries that no sender will repeat; returns how many."""
        before, swept = self._ledger.clock.now() - webhooks.KEEP, 0
        for _ in range(SWEEPS):
            some = self._store.sweep_deliveries(before)
            swept += some
            if not some:
                break
        if swept:
            log.info("%d deliveries of more than %s ago were forgotten", swept, webhooks.KEEP)
        return swept

    # --- counting, looking ----------------------------------------------------------------------------------

    def count(self, refused: Mapping[tuple[str, Kind], int]) -> None:
        """Add to the counters of refusals, given as (contract, kind): times."""
        told = {(contract, kind.value): times for (contract, kind), times in refused.items()}
        self._store.count_refusals(told, self._ledger.clock.now())

    def listed(self, operation: str | None = None, *, parked: bool = False, limit: int = 100) -> list[KeptDelivery]:
        """Return deliveries, the newest first: of one operation, those that match nothing yet, or all."""
        about = None if operation is None else self._ledger.show(operation).operation_id
        return self._store.deliveries(operation_id=about, parked=parked, most=limit)


def _about(arrival: Arrival, names: Sequence[Named]) -> list[str] | Refusal:
    """Return the operations that a delivery names, by our token or by the job; of its own contract only."""
    delivery, contract = arrival.delivery, arrival.contract.name
    by_token = [one for one in names if delivery.token is not None and delivery.token in (one.operation_id, one.token)]
    ours = [one.operation_id for one in by_token if one.contract == contract]
    if by_token and not ours:
        # A job id may be the same at two providers; our own tokens are not.
        return Refusal(Kind.WRONG_TENANT, f"{delivery.token} belongs to {by_token[0].contract}")
    ours += [
        one.operation_id
        for one in names
        if delivery.job_id is not None and one.job_id == delivery.job_id and one.contract == contract
    ]
    return list(dict.fromkeys(ours))


def _meant(delivery: Delivery, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return whom a delivery is about, of those that it names: our own token decides, while its operation is open.

    Where the job that it names is another operation's, it contradicts itself: the one with the token stops, and the
    other one is not moved by what was said about somebody else.
    """
    by_token = [op for op in operations if delivery.token in (op.operation_id, op.idempotency_token)]
    return by_token if any(not op.state.terminal for op in by_token) else operations


def _hidden(text: str | None, masks: redact.Redactor) -> str | None:
    return None if text is None else masks.hide_text(text)


def _key(key: str, masks: redact.Redactor) -> str:
    """Return what tells an event from others; of one with a secret in it only its digest is kept."""
    return key if masks.hide_text(key) == key else f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def _kept(arrival: Arrival, masks: redact.Redactor) -> Answer:
    """Return the body as it may be stored: without secrets, without what the contract redacts, cut at a sane length.

    Where it is itself the evidence it is kept whole: the receiver takes none that is too large.
    """
    body = masks.mask_bytes(arrival.raw)
    pointers = arrival.contract.safety.redact
    if pointers:
        body = jsontext.dumps(redact.redact_pointers(jsontext.loads(arrival.raw), pointers))
        body = masks.mask_bytes(body)
    most = len(body) if arrival.contract.status.by_delivery else KEPT_BODY
    return Answer.of(body[:most], "application/json", size=max(len(arrival.raw), len(body)))
