"""Providers and workers as they stand, and the pulse of each provider from the journal's newest events."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from opledger import config
from opledger.errors import OpledgerError, StoreUnavailable
from opledger.ledger.health import ALIVE
from opledger.rules.contract import Contract
from opledger.rules.guarantees import report_text
from opledger.rules.pulse import Pulse
from opledger.store import Filter, Provider
from opledger.store.directory import Holding
from opledger.store.tail import Mark, TailEvent
from opledger.store.values import WorkerLife
from opledger_console.desk import SPARING, Desk
from opledger_console.pages.stations import Contracted, ProviderLook, Stations, WorkerLook

BACK: Final = 20_000
"""How many events are read at first, at most."""

SLICE: Final = 2_000
AT_ONCE: Final = 5_000
"""How many new events are read in one look; where there are more, the figures begin anew."""

MINUTES: Final = 30
FILES_EVERY: Final = 5.0
"""Seconds between two looks at the contract files."""


class ProvidersReader:
    """Reads providers and workers. Its figures grow with each look; `catch_up` reads what came before."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lock = threading.Lock()
        self._pulse: Pulse | None = None
        self._mark: Mark | None = None
        self._files: dict[str, config.ContractFile] = {}
        self._files_again = 0.0
        self._reports: dict[str, str] = {}
        self._pinned: dict[str, Contracted] = {}
        self._listed: tuple[Provider, ...] = ()
        self._list_again = 0.0

    # --- looking ------------------------------------------------------------------------------------------------

    def read(self) -> Stations:
        """Look at everything. Raises StoreUnavailable."""
        ledger = self._desk.ledger
        now, store = ledger.clock.now(), ledger.store
        self._read_files()
        with self._lock:
            self._follow()
            pulse = self._pulse or Pulse()
            beats = {provider.contract: pulse.of(provider.contract, now, MINUTES) for provider in self._providers()}
            counted = self._pulse is not None
        lives = {life.name: life for life in store.workers()}
        held = store.holdings(now)
        parked = store.parked_counts()
        refused: dict[str, list[tuple[str, int]]] = {}
        for one in store.refusals():
            refused.setdefault(one.contract, []).append((one.kind, one.times))
        return Stations(
            providers=tuple(
                ProviderLook(
                    provider,
                    self._contracted(provider.contract),
                    beats[provider.contract],
                    tuple(refused.get(provider.contract, ())),
                    parked.get(provider.contract, (0, now))[0],
                )
                for provider in self._listed
            ),
            workers=_workers(lives, held, now),
            counted=counted,
            taken_at=now,
        )

    def _providers(self) -> tuple[Provider, ...]:
        """Return the providers: first what is paused, then what is used, then what there is only a contract file of.

        How many operations are open is counted only so often as it costs little.
        """
        ledger = self._desk.ledger
        paused = ledger.store.paused()
        begun = ledger.clock.monotonic()
        before = {one.contract: one.reason for one in self._listed if one.state == "paused"}
        if begun >= self._list_again or paused != before:
            known = {provider.contract: provider for provider in ledger.store.providers()}
            unused = [Provider(name, "open") for name in sorted(self._files) if name not in known]
            used = sorted(known.values(), key=lambda one: (one.state != "paused", one.contract))
            self._listed = (*used, *unused)
            self._list_again = begun + SPARING * (ledger.clock.monotonic() - begun)
        return self._listed

    # --- the pulse ----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Count what came since the last look."""
        if self._pulse is None:
            return
        tail = self._desk.ledger.store.queries.tail(self._mark, limit=AT_ONCE)
        if tail.missed:
            self._pulse = self._mark = None
            return
        self._mark = tail.mark
        for one in tail.events:
            self._pulse.feed(one.contract, one.event, one.due_next)

    def catch_up(self) -> None:
        """Read the newest events, as far back as the figures go, so that there are figures at once.

        It takes its time in slices, and looks go on meanwhile. Raises StoreUnavailable.
        """
        queries = self._desk.ledger.store.queries
        oldest = self._desk.ledger.clock.now() - timedelta(minutes=MINUTES)
        newest = queries.tail(limit=SLICE)
        slices: list[tuple[TailEvent, ...]] = [newest.events]
        start, count = newest.start, len(newest.events)
        while slices[-1] and count < BACK and slices[-1][0].event.at > oldest and not self._desk.closing.is_set():
            before = queries.earlier(start, limit=SLICE)
            slices.append(before.events)
            start, count = before.start, count + len(before.events)
        pulse = Pulse()
        for events in reversed(slices):
            for one in events:
                pulse.feed(one.contract, one.event, one.due_next)
        with self._lock:
            self._pulse, self._mark = pulse, newest.mark

    # --- contracts ----------------------------------------------------------------------------------------------

    def _read_files(self) -> None:
        """Look at the contract files again, from time to time."""
        clock = self._desk.ledger.clock
        if clock.monotonic() < self._files_again:
            return
        try:
            self._files = {file.name: file for file in config.list_contracts(self._desk.settings)}
        except OpledgerError:
            self._files = {}  # what is paused, and by whom, must be seen also where a folder cannot be read
        self._files_again = clock.monotonic() + FILES_EVERY

    def _contracted(self, name: str) -> Contracted:
        file = self._files.get(name)
        if file is not None and file.contract is not None:
            return Contracted(file.contract, self._report(file.contract), from_file=True)
        wrong = None if file is None or file.error is None else file.error.message
        pinned = self._pinned.get(name) or self._pinned_contract(name)
        if wrong is None:
            return pinned
        return Contracted(pinned.contract, f"The contract file is wrong: {wrong}\n\n{pinned.guarantees}", False)

    def _pinned_contract(self, name: str) -> Contracted:
        """Return what the newest operation is pinned to."""
        ledger = self._desk.ledger
        try:
            newest = ledger.store.queries.list(Filter(contract=name), limit=1).operations
            contract = ledger.contract_of(newest[0]) if newest else None
        except StoreUnavailable:
            raise
        except OpledgerError as error:
            return Contracted(None, error.message, from_file=False)
        if contract is None:
            return Contracted(None, "There is no contract file of this name here.", from_file=False)
        self._pinned[name] = Contracted(contract, self._report(contract), from_file=False)
        return self._pinned[name]

    def _report(self, contract: Contract) -> str:
        if contract.digest not in self._reports:
            self._reports[contract.digest] = report_text(contract)
        return self._reports[contract.digest]


def _workers(lives: Mapping[str, WorkerLife], held: Mapping[str, Holding], now: datetime) -> tuple[WorkerLook, ...]:
    """Return the workers that are listed, and those that are not and still hold something; the living first."""
    found = [
        WorkerLook(name, life, life is not None and now - life.heartbeat < ALIVE, held.get(name))
        for name in {**lives, **held}
        for life in (lives.get(name),)
    ]
    return tuple(sorted(found, key=lambda one: (not one.alive, one.name)))
