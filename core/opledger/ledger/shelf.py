"""The contract files as one process sees them: read again only when something in their folders has changed.

Reading and compiling a contract costs about as much as ten durable submits, and agents submit in loops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from opledger import config
from opledger.rules.contract import Contract
from opledger.store import Store

Seen = tuple[tuple[str, int, int], ...]  # path, time of the last change in nanoseconds, size


class Shelf:
    """Contracts by name, each pinned in the ledger before it is handed out. May be used from several threads."""

    def __init__(self, store: Store, settings: config.Settings) -> None:
        self._store = store
        self._settings = settings
        self._read: dict[str, tuple[Seen, Contract]] = {}
        self._pinned: frozenset[str] = frozenset()

    def take(self, name: str) -> Contract:
        """Return the contract of this name as it is now. Raises what `config.find_contract` raises."""
        seen = tuple(sorted(self._look()))
        known = self._read.get(name)
        if known is not None and known[0] == seen:
            return known[1]
        contract = config.find_contract(self._settings, name)
        if contract.digest not in self._pinned:
            self._store.pin_contract(contract)
            self._pinned |= {contract.digest}
        self._read[name] = (seen, contract)
        return contract

    def _look(self) -> Iterator[tuple[str, int, int]]:
        """Yield what would differ if a contract file had been changed, added or removed."""
        for folder in self._settings.contracts:
            try:
                facts = [(entry.path, entry.stat()) for entry in os.scandir(folder) if entry.name.endswith(".toml")]
            except OSError:
                return  # `find_contract` says what is wrong with the folder
            for path, fact in facts:
                yield path, fact.st_mtime_ns, fact.st_size
