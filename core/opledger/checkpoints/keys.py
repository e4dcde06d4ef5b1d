"""The ledger's name and the key that signs for it: made once, together, and never exchanged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opledger.config import AuditSettings
from opledger.edges.clock import Clock, new_ledger_id
from opledger.edges.signing import Key, load_key, make_key
from opledger.errors import ConfigWrong
from opledger.rules import notes
from opledger.store import checkpoints as table
from opledger.store.checkpoints import Ledger
from opledger.store.engine import Database

GO_ON: Final = "operations go on without; no checkpoint is written by this machine"


@dataclass(frozen=True, slots=True)
class Signer:
    """A ledger and its key."""

    ledger: Ledger
    key: Key

    @property
    def verifier(self) -> str:
        """The public key as others are given it."""
        return notes.verifier_key(self.ledger.origin, self.key.public)


def key_path(audit: AuditSettings, ledger_id: str) -> Path:
    """Return where the key of a ledger lies, or would lie."""
    return audit.key or audit.keys / f"{ledger_id}.key"


def signer(database: Database, audit: AuditSettings, clock: Clock, without: str = GO_ON) -> Signer:
    """Return the ledger's name and key; both are made where the ledger has no name yet.

    Raises ConfigWrong where this machine has not the key of this ledger, or has one that others may read; `without`
    says in it what that means.
    """
    ledger = table.ledger(database)
    if ledger is None:
        ledger = _name(database, audit, clock)
    path = key_path(audit, ledger.ledger_id)
    key = load_key(path)
    if key is None:
        raise ConfigWrong(
            f"this machine has not the key that signs the checkpoints of {ledger.origin} ({path}): bring it here from "
            f"the machine that made it or from a backup; {without}"
        )
    if key.public != ledger.public:
        raise ConfigWrong(
            f"{path} is another key than the one that signs the checkpoints of {ledger.origin}: put the right one "
            f"there; {without}"
        )
    return Signer(ledger, key)


def _name(database: Database, audit: AuditSettings, clock: Clock) -> Ledger:
    """Name the ledger. The key comes first: a name without a key could never be used, a key without a name is lost."""
    ledger_id = new_ledger_id(clock)
    path = key_path(audit, ledger_id)
    key = make_key(path)
    named = table.name_ledger(database, ledger_id, key.public, clock.now())
    if named.ledger_id != ledger_id and audit.key is None:
        path.unlink(missing_ok=True)  # another worker was faster; nobody knows of this one
    return named
