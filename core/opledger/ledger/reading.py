"""What may be asked of a ledger without changing anything, and waiting for others to change it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from opledger import config
from opledger.edges.clock import Clock, SystemClock
from opledger.edges.stores import open_store
from opledger.errors import DatabaseReplaced, Refused, SchemaMismatch, StoreUnavailable, UnknownOperation, UsageError
from opledger.ledger.results import CheckedResult, checked, under_way
from opledger.rules import choices as options
from opledger.rules import escalation, jsontext, wishes
from opledger.rules.contract import Contract
from opledger.rules.durations import parse_duration
from opledger.rules.escalation import Escalation
from opledger.rules.explain import Explanation, Happened, explain, waits_for_person
from opledger.rules.files.contract import parse
from opledger.rules.guarantees import guarantees
from opledger.rules.holdups import Blocked, unreached
from opledger.rules.model import Operation, State
from opledger.rules.policy import Demand
from opledger.rules.shapes import Event, event_of
from opledger.rules.wishes import Wish
from opledger.store import Filter, Provider, Store
from opledger.store.values import WorkerLife

if TYPE_CHECKING:
    from opledger.ledger.health import Check

LOOK: Final = timedelta(seconds=1)
"""Longest time between two looks at records that are waited for, should a wake-up be missed."""

AWAY: Final = 60.0
"""Seconds for which a database may be away while somebody waits: more than a server takes to restart."""
AGAIN: Final = 0.2
"""Seconds until it is tried again."""

RECENT: Final = 200
"""How many events an explanation looks back over."""

PAGE: Final = 10_000
NEWS: Final = 6
"""How many events a refusal names at most of those that came between."""

SUFFIX: Final = 8
"""How many of an id's last characters people see; at least so many name an operation."""

T = TypeVar("T")
Span = timedelta | float | str
"""A time as callers may give it: a timedelta, seconds, or text such as ``30s``."""


class WaitTimedOut(TimeoutError):
    """The time to wait ran out; nothing is lost. `operations` are the records as they stand."""

    def __init__(self, message: str, operations: Sequence[Operation]) -> None:
        super().__init__(message)
        self.operations = tuple(operations)


class Reading:
    """An open ledger, as far as it can be asked without changing anything.

    An operation may be named by its whole id or by its last eight or more characters.
    """

    def __init__(self, store: Store, settings: config.Settings, clock: Clock) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self._contracts: dict[str, Contract] = {}

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        settings: config.Settings | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
        tested: bool = False,
    ) -> Self:
        """Open the ledger at `url`, or the one that environment and settings files name.

        `tested`: what stays open for long tries first that its login cannot rewrite history.
        Raises StoreUnavailable where it cannot be used, ConfigWrong where a setting is wrong.
        """
        found = settings or config.load_settings({"db": url}, os.environ, Path.cwd())
        store = Store.open(url or found.database, read_only=read_only, tested=tested)
        return cls(store, found, clock or SystemClock())

    def close(self) -> None:
        """Close all connections."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one operation --------------------------------------------------------------------------------------

    def show(self, operation: str) -> Operation:
        """Return the record. Raises UnknownOperation, and Refused where several ids end like that."""
        try:
            return self.store.queries.find(operation)
        except UnknownOperation:
            if len(operation) <= SUFFIX:
                raise
            ending = self.store.queries.list(Filter(text=operation[-SUFFIX:])).operations
            found = [op for op in ending if op.operation_id.upper().endswith(operation.upper())]
            if len(found) != 1:
                raise
            return found[0]

    def events(self, operation: str) -> tuple[Event, ...]:
        """Return the whole journal of one operation, first event first."""
        op = self.show(operation)
        found: tuple[Event, ...] = ()
        while len(found) < op.head_seq:
            rows = self.store.queries.events(op.operation_id, len(found), limit=PAGE)
            found += tuple(event_of(row) for row in rows)
            if len(rows) < PAGE:
                break
        return found

    def what_changed(self, op: Operation, version: int) -> str:
        """Say in a sentence what happened to a record since somebody looked at its `version`."""
        if version > op.version:
            return f"{op.operation_id} has no version {version} yet, it stands at {op.version}; look at it again"
        news = self.store.queries.events(op.operation_id, version, limit=NEWS)
        told = [
            f"{row.kind} by {row.actor}" + (f" ({row.from_state} -> {row.to_state})" if row.to_state else "")
            for row in news
        ]
        more = op.version - version - len(told)
        told += [f"{more} more"] if more > 0 else []
        return (
            f"{op.operation_id} has changed since you looked at version {version}: {', '.join(told)}; it is now "
            f"{op.state}, version {op.version}: look again and decide anew"
        )

    def history(self, operation: str) -> tuple[Event, ...]:
        """Return the transitions: the events that changed the state."""
        return tuple(event for event in self.events(operation) if event.to_state is not None)

    def choices(self, operation: str) -> tuple[options.Option, ...]:
        """Return what a person may decide now."""
        op = self.show(operation)
        return options.choices(op, self.contract_of(op))

    def explain(self, operation: str) -> Explanation:
        """Say why an operation is where it is, what happens next and when, and what holds it up."""
        from opledger.ledger.health import ALIVE  # with webhooks and signers, which few commands need

        op = self.show(operation)
        now = self.clock.now()
        rows = self.store.queries.events(op.operation_id, max(op.head_seq - RECENT, 0), limit=RECENT)
        alive = [life for life in self.store.workers() if now - life.heartbeat < ALIVE]
        found = explain(
            op,
            self.contract_of(op),
            now,
            events=[Happened(row.seq, row.kind, row.to_state is not None, row.actor, row.reason) for row in rows],
            paused=self.store.paused().get(op.contract),
            workers_alive=bool(alive),
            standing=self.store.standing(op, now),
            unreached=_unreached(op.contract, alive, now),
        )
        here = under_way(op, self.settings.results, now)
        return found if here is None else replace(found, why=f"{found.why} {here}")

    def packet(self, operation: str) -> dict[str, Any]:
        """Return the escalation packet: all that support or the next person on call needs, sanitised."""
        from opledger.checkpoints import report  # with the library for keys, which few commands need
        from opledger.rules.packet import Kept, cited, packet

        op = self.show(operation)
        events = self.events(op.operation_id)
        kept: dict[str, Kept] = {}
        for sha256 in cited(events):
            answer = self.store.answer(sha256)
            if answer is not None:
                text = answer.body.decode("utf-8", "replace")
                kept[sha256] = Kept(sha256, text, answer.content_type, answer.size, answer.truncated)
        contract = self.contract_of(op)
        request = self.store.request_of(op.operation_id)
        held = report.of_operation(self.store.database, op.operation_id)
        return packet(op, contract, guarantees(contract), events, request, kept, checkpoint=held)

    def result(
        self, operation: str, *, also: str | None = None, progress: Callable[[int, int], None] | None = None
    ) -> CheckedResult:
        """Return the stored result, after a look at every byte of it; close it when done.

        `also` names a further file of the result; `progress` is told how many bytes of how many were looked at. Raises
        Refused where there is no result, with why; IntegrityBroken where it is gone from its store or is not what was
        stored; StoreUnavailable where the store is out of reach; ConfigWrong where OPLEDGER_RESULTS names none.
        """
        op = self.show(operation)
        return checked(op, open_store(self.settings.results), also, progress)

    def contract_of(self, op: Operation) -> Contract:
        """Return the contract that an operation is pinned to: its text, and the environment it was read with."""
        known = self._contracts.get(op.contract_digest)
        if known is None:
            pinned = self.store.contract_source(op.contract_digest)
            if pinned is None:
                raise Refused(
                    f"the contract of {op.operation_id} is not in the ledger: it was removed by hand; restore it"
                )
            source, environment = pinned
            known = self._contracts[op.contract_digest] = parse(source, name_hint=op.contract, environment=environment)
        return known

    def body_of(self, op: Operation) -> Any:
        """Return the body that the caller asked for; None where there is none."""
        asked = self.store.request_of(op.operation_id).asked
        return jsontext.loads(asked) if asked else None

    def demand(self, op: Operation) -> Demand:
        """Return the approval that the policies of today and the contract ask for."""
        wish = Wish(
            op.contract, self.body_of(op), requested_by=op.requested_by, tags=op.tags, task=op.task, step=op.step
        )
        return wishes.needs(wish, self.contract_of(op), op.operation_id, self.settings.policies)

    # --- waiting --------------------------------------------------------------------------------------------

    def wait(self, operation: str, timeout: Span | None = None) -> Operation:
        """Wait until an operation has ended or needs a person, and return the record; see `wait_all`."""
        return self.wait_all([operation], timeout)[0]

    def wait_all(self, operations: Sequence[str], timeout: Span | None = None) -> tuple[Operation, ...]:
        """Wait until each operation has ended or needs a person, and return the records.

        Raises WaitTimedOut (a TimeoutError) with the records as they stand where `timeout` runs out; nothing is lost.
        A database that is away for up to a minute meanwhile is waited for.
        """
        ids = [self.show(text).operation_id for text in operations]
        length = span(timeout, "the timeout", least=timedelta(0))
        until = None if length is None else self.clock.monotonic() + length.total_seconds()
        while True:
            found = self._patiently(lambda: tuple(self.store.queries.get_many(ids)), until)
            unsettled = [op for op in found if not op.state.terminal and not waits_for_person(op)]
            if not unsettled:
                return found
            pause = LOOK.total_seconds()
            if until is not None:
                pause = min(pause, until - self.clock.monotonic())
            if pause <= 0:
                states = ", ".join(f"{op.operation_id} is still {op.state}" for op in unsettled)
                raise WaitTimedOut(f"the time to wait ran out: {states}; nothing is lost, wait again", found)
            self._look_again(pause, until)

    def _look_again(self, pause: float, until: float | None) -> None:
        """Wait until somebody has written, or for `pause` seconds."""
        self._patiently(lambda: self.store.wait_for_change(pause, threading.Event()), until)

    def _patiently(self, read: Callable[[], T], until: float | None) -> T:
        """Read, again where the database is away, as it is while its server restarts; not for ever, nor beyond `until`.

        Raises StoreUnavailable.
        """
        end: float | None = None
        while True:
            try:
                return read()
            except (DatabaseReplaced, SchemaMismatch):
                raise
            except StoreUnavailable:
                now = self.clock.monotonic()
                if end is None:
                    end = now + AWAY if until is None else min(now + AWAY, until)
                if now >= end:
                    raise
                threading.Event().wait(AGAIN)

    def check_readable(self, op: Operation) -> None:
        """Raise Refused where no status read may be made: nothing was sent, or calls to the provider are stopped."""
        if not op.sent:
            raise Refused(f"{op.operation_id} was never sent ({op.state}), so there is nothing to read")
        self.check_has_status_read(op)
        paused = self.store.paused().get(op.contract)
        if paused is not None:
            raise Refused(f"calls to {op.contract} are paused ({paused}); resume them first: opledger provider resume")

    def check_has_status_read(self, op: Operation) -> None:
        """Raise Refused where nobody can ask the provider how a job goes."""
        if self.contract_of(op).status.by_delivery:
            raise Refused(
                f'{op.contract} has no status read (status = "none"): only its webhooks tell how a job goes. Wait '
                f"for a delivery, or look at the provider yourself; what has come: opledger events {op.operation_id}"
            )

    def last_event(self, operation: str, kinds: Collection[str], *, after_seq: int = 0) -> Event | None:
        """Return the latest of the recent events that is of one of these kinds, or None."""
        op = self.show(operation)
        rows = self.store.queries.events(op.operation_id, max(op.head_seq - RECENT, after_seq), limit=RECENT)
        return next((event_of(row) for row in reversed(rows) if row.kind in kinds), None)

    def wait_for_event(self, operation: str, kinds: Collection[str], *, after_seq: int, timeout: Span) -> Operation:
        """Wait until the journal has an event of one of these kinds behind `after_seq`; return the record then.

        Raises WaitTimedOut.
        """
        until = self.clock.monotonic() + (span(timeout, "the timeout") or timedelta(0)).total_seconds()
        while self._patiently(lambda: self.last_event(operation, kinds, after_seq=after_seq), until) is None:
            pause = min(LOOK.total_seconds(), until - self.clock.monotonic())
            if pause <= 0:
                op = self.show(operation)
                holder = op.lease.owner if op.lease is not None else "no worker"
                raise WaitTimedOut(
                    f"nothing was read of {op.operation_id} in time ({holder} holds it); try again", [op]
                )
            self._look_again(pause, until)
        return self.show(operation)

    # --- providers and health -------------------------------------------------------------------------------

    def providers(self) -> tuple[Provider, ...]:
        """Return every provider that the ledger or a contract file knows, and whether calls to it are stopped."""
        known = {provider.contract: provider for provider in self.store.providers()}
        for file in config.list_contracts(self.settings):
            known.setdefault(file.name, Provider(file.name, "open"))
        return tuple(known[name] for name in sorted(known))

    def escalations(self, contract: str | None = None) -> tuple[Escalation, ...]:
        """Return everything that wants a person now, the most urgent first; what somebody has taken stands last."""
        now = self.clock.now()
        found = [one for one in self.store.stopped_providers().values() if contract in (None, one.contract)]
        # By code, because there is an index of codes: a million operations that want nobody are not looked at.
        for code in self.store.queries.attentions():
            wanted, after, more = Filter(attention_code=code, contract=contract), None, True
            while more:
                page = self.store.queries.list(wanted, limit=PAGE, after=after)
                found += [one for op in page.operations if (one := escalation.of_operation(op, now)) is not None]
                after, more = page.after, page.after is not None
        return escalation.triage(found, now)

    def doctor(self) -> tuple[Check, ...]:
        """Return what is well and what is not: contracts, clocks, workers, overdue work."""
        from opledger.ledger import health

        return health.checks(self.store, self.settings, self.clock.now())

    # Last, because the name hides Python's own in the rest of the class body.
    def list(
        self,
        *,
        states: Sequence[str] = (),
        contract: str | None = None,
        attention: bool = False,
        tags: Mapping[str, str] | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> tuple[Operation, ...]:
        """Return operations, newest first; `after` names the operation behind which to go on."""
        for state in states:
            if state not in frozenset(State):
                raise UsageError(f"{state!r} is no state; there are: {', '.join(State)}")
        if limit < 1:
            raise UsageError(f"a limit of {limit} shows nothing; give 1 or more")
        behind = None
        if after is not None:
            last = self.show(after)
            behind = (last.created_at, last.operation_id)
        wanted = Filter(states=tuple(states), contract=contract, attention=attention, tags=tags or {})
        return self.store.queries.list(wanted, limit=limit, after=behind).operations


def _unreached(contract: str, alive: Sequence[WorkerLife], now: datetime) -> Blocked | None:
    """Say where each worker that is alive leaves a provider to the others."""
    asides = [(life.name, aside.until, aside.why) for life in alive if (aside := life.aside(contract, now)) is not None]
    return unreached(contract, asides) if asides and len(asides) == len(alive) else None


def span(value: Span | None, what: str, *, least: timedelta = timedelta(microseconds=1)) -> timedelta | None:
    """Read a time given as timedelta, seconds or text. Raises UsageError for one that makes no sense."""
    if value is None:
        return None
    try:
        length = parse_duration(value) if isinstance(value, str) else value
        length = length if isinstance(length, timedelta) else timedelta(seconds=length)
    except (ValueError, OverflowError, TypeError) as error:
        raise UsageError(f"{what}: {error}") from error
    if length < least:
        raise UsageError(f"{what} must be more than nothing; give a duration such as 30s")
    return length
