"""What people are told of checkpoints: by `doctor`, in packets, and by ``audit key``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from opledger.checkpoints import standing
from opledger.checkpoints.keys import key_path
from opledger.checkpoints.standing import Place, Standing
from opledger.config import AuditSettings
from opledger.edges.signing import load_key
from opledger.errors import ConfigWrong, IntegrityBroken
from opledger.rules.model import to_rfc3339
from opledger.store import checkpoints as table
from opledger.store.checkpoints import Ledger
from opledger.store.engine import Database


class Line(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    message: str


def lines(database: Database, audit: AuditSettings) -> Iterator[Line]:
    """Say how checkpoints, key and anchors are. Raises StoreUnavailable for the database."""
    try:
        found = standing.look(database, audit)
    except (ConfigWrong, IntegrityBroken) as error:
        yield Line("checkpoints", False, error.message)
        return
    if found.ledger is None:
        yield Line("checkpoints", True, "none was written yet: a worker writes them once something has happened")
        return
    yield _key(audit, found.ledger)
    yield from (_place(database, found, place) for place in found.places if place.ahead or not place.memory)
    yield Line("checkpoints", True, told(found))


def told(found: Standing) -> str:
    """Say up to where the history is signed, and up to where that is anchored."""
    newest, anchored = found.newest, found.anchored
    if newest is None:
        return "none was written yet: a worker writes them once something has happened"
    signed = (
        f"checkpoint {newest.number} of {to_rfc3339(newest.at)} covers {newest.events} events of {newest.operations} "
        "operations"
    )
    if found.ahead is not None:
        where = "an anchor holds more than that"
    elif anchored is None:
        where = "no anchor that can be read holds any: whoever can write to the database can rewrite its history unseen"
    elif anchored.number == newest.number:
        where = f"anchored up to there ({anchored.anchor})"
    else:
        where = f"anchored up to checkpoint {anchored.number} of {to_rfc3339(anchored.at)} ({anchored.anchor})"
    return f"{signed}; {where}"


def _key(audit: AuditSettings, ledger: Ledger) -> Line:
    path = key_path(audit, ledger.ledger_id)
    try:
        key = load_key(path)
    except ConfigWrong as error:
        return Line("signing key", False, error.message)
    if key is None:
        told_ = f"this machine writes no checkpoints: it has not the key of {ledger.origin} ({path})"
        return Line("signing key", True, told_)
    if key.public != ledger.public:
        return Line("signing key", False, f"{path} is not the key that signs the checkpoints of {ledger.origin}")
    return Line("signing key", True, f"{path} signs the checkpoints of {ledger.origin}; keep a copy of it elsewhere")


def _place(database: Database, found: Standing, place: Place) -> Line:
    name = f"anchor {place.name}"
    if place.problem is not None:
        return Line(name, False, place.problem)
    if place.ahead and place.newest is not None:
        return Line(name, False, standing.older(database.name, found.newest, place, place.newest))
    if place.newest is not None:
        note = place.newest.note
        return Line(name, True, f"holds checkpoint {note.number} of {to_rfc3339(note.at)}")
    return Line(name, True, "holds no checkpoint yet" if place.reads else "is only written to, and cannot be compared")


def of_operation(database: Database, operation_id: str) -> dict[str, Any] | None:
    """Return the checkpoint that holds an operation, as its packet shows it; None where none does yet."""
    found = table.covered(database, operation_id)
    if found is None:
        return None
    return {"number": found.number, "at": to_rfc3339(found.at), "seq": found.seq, "note": found.note}
