"""What a worker has read once and needs all the time: pinned contracts, and the secrets that must not be shown."""

from __future__ import annotations

from opledger.edges.secrets import SecretResolver
from opledger.errors import ConfigWrong
from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse
from opledger.rules.redact import Redactor
from opledger.store import Store


class Known:
    """Contracts by digest, and a redactor for every secret that was resolved so far."""

    def __init__(self, store: Store, secrets: SecretResolver) -> None:
        self._store = store
        self._secrets = secrets
        self._contracts: dict[str, Contract] = {}
        self._redactor: tuple[tuple[str, ...], Redactor] = ((), Redactor(()))

    def contract(self, digest: str) -> Contract:
        """Return a pinned contract; it is parsed once and never changes. Raises ConfigWrong where it is not there."""
        known = self._contracts.get(digest)
        if known is None:
            pinned = self._store.contract_source(digest)
            if pinned is None:
                raise ConfigWrong(f"contract {digest} is not in the ledger, though an operation is pinned to it")
            source, environment = pinned
            known = self._contracts[digest] = parse(source, name_hint=digest, environment=environment)
            # No command that fetches one secret inherits another one.
            self._secrets.hide(known.references)
        return known

    def waiting(self, name: str) -> Contract | None:
        """Return a contract as the first operation of it that waits is pinned to it; None where it cannot be read.

        Why it cannot is said where that operation is driven.
        """
        digest = self._store.pinned(name)
        try:
            return None if digest is None else self.contract(digest)
        except ConfigWrong:
            return None

    def redactor(self) -> Redactor:
        """Return what masks all secrets known by now."""
        known = self._secrets.known()
        if self._redactor[0] != known:
            self._redactor = (known, Redactor(known))
        return self._redactor[1]
