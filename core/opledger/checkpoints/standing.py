"""How database, key and anchors stand to each other: up to where the history is anchored, and what speaks against it.

A database that was restored from a backup does not know what it has forgotten. Its anchors do: if one of them holds a
checkpoint that the database does not have, nothing may be sent before a person has said how to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from opledger.checkpoints.keys import key_path
from opledger.config import AuditSettings
from opledger.edges.anchors import Anchor, FileAnchor, open_anchors
from opledger.edges.signing import is_signed, load_key
from opledger.errors import ConfigWrong, IntegrityBroken, StoreUnavailable
from opledger.rules import notes
from opledger.rules.model import to_rfc3339
from opledger.rules.notes import NoteInvalid, Signed
from opledger.store import checkpoints as table
from opledger.store.checkpoints import Ledger, Newest
from opledger.store.engine import Database


@dataclass(frozen=True, slots=True)
class Anchored:
    """Up to which checkpoint the history is anchored outside, and where."""

    number: int
    at: datetime
    size: int
    anchor: str


@dataclass(frozen=True, slots=True)
class Place:
    """One anchor: the newest checkpoint that it holds, or why it cannot be told."""

    name: str
    reads: bool
    newest: Signed | None = None
    problem: str | None = None
    ahead: bool = False  #: it holds a checkpoint that the database does not have
    memory: bool = False  #: it is what this user remembers of the last verification, and no anchor


@dataclass(frozen=True, slots=True)
class Standing:
    """What a look has found."""

    ledger: Ledger | None
    newest: Newest | None
    places: tuple[Place, ...]

    @property
    def anchored(self) -> Anchored | None:
        """The newest checkpoint of the database that an anchor which can be read holds too."""
        kept = [one for one in self.places if not one.ahead and not one.memory]
        held = [(one.newest.note, one.name) for one in kept if one.newest is not None]
        if not held:
            return None
        note, name = max(held, key=lambda pair: pair[0].number)
        return Anchored(note.number, note.at, note.size, name)

    @property
    def ahead(self) -> tuple[Place, Signed] | None:
        """The anchor that knows most of what the database does not have."""
        found = [(one, one.newest) for one in self.places if one.ahead and one.newest is not None]
        return max(found, key=lambda pair: pair[1].note.number, default=None)


def look(database: Database, audit: AuditSettings) -> Standing:
    """Read anchors and database, and compare. May block while an anchor far away does not answer.

    Raises ConfigWrong where an anchor cannot be meant, or belongs to another ledger; StoreUnavailable for the database.
    """
    ledger = table.ledger(database)
    if ledger is None:
        _unnamed(database, audit)
        return Standing(None, None, ())
    public = public_key(audit, ledger)
    # Anchors first: what another worker writes between the two looks is then in the database at least.
    near = table.newest(database)
    places = [
        place_of(anchor, ledger, public, 0 if near is None else near.number)
        for anchor in open_anchors(audit.anchors, ledger.ledger_id)
    ]
    known = remembered(audit, ledger, public)
    if known is not None:
        places.append(Place(memory_name(audit, ledger.ledger_id), reads=True, newest=known, memory=True))
    compared = tuple(_compared(database, public, place) for place in places)
    return Standing(ledger, table.newest(database), compared)


def public_key(audit: AuditSettings, ledger: Ledger) -> bytes:
    """Return the key that signs: of this machine where it has one, otherwise what the database says.

    Raises ConfigWrong for a key file that cannot be used.
    """
    key = load_key(key_path(audit, ledger.ledger_id))
    return ledger.public if key is None else key.public


def _unnamed(database: Database, audit: AuditSettings) -> None:
    """See that no anchor knows of a ledger at the place of one that has no name yet. Raises ConfigWrong."""
    for anchor in open_anchors(audit.anchors, "none"):
        if not isinstance(anchor, FileAnchor):
            continue  # an object store has a folder for each ledger, and a log cannot be read
        try:
            held = [signed.note.origin for signed in readable(anchor.latest(0))]
        except StoreUnavailable:
            continue  # whoever writes to it says so
        if held:
            raise other(anchor.name, held[-1], f"the ledger in {database.name}, which has no checkpoint yet")


def other(anchor: str, origin: str, ledger: str) -> ConfigWrong:
    """Say that an anchor belongs to another ledger."""
    return ConfigWrong(
        f"the anchor {anchor} belongs to {origin} and not to {ledger}: if that database was replaced or moved, bring "
        "it back; if this is a new one, move the anchor away or name another under [audit] anchors in opledger.toml"
    )


def readable(texts: Iterable[str]) -> list[Signed]:
    """Return those that are notes; whether they are signed is not looked at."""
    found = []
    for text in texts:
        try:
            found.append(notes.read(text))
        except NoteInvalid:
            continue  # a torn or foreign line: what is whole counts
    return found


def place_of(anchor: Anchor, ledger: Ledger, public: bytes, near: int) -> Place:
    """Read the newest checkpoint of an anchor. Raises ConfigWrong where it belongs to another ledger."""
    try:
        held = readable(anchor.latest(near))
    except StoreUnavailable as error:
        return Place(anchor.name, anchor.reads, problem=error.message)
    ours = [signed for signed in held if signed.note.origin == ledger.origin]
    if held and not ours:
        raise other(anchor.name, held[-1].note.origin, ledger.origin)
    for signed in sorted(ours, key=lambda one: one.note.number, reverse=True):
        if is_signed(signed, public):
            return Place(anchor.name, anchor.reads, signed)
    problem = f"the anchor {anchor.name} holds checkpoints, and none is signed with the ledger's key" if ours else None
    return Place(anchor.name, anchor.reads, problem=problem)


def knows(database: Database, public: bytes, held: Signed) -> bool:
    """Whether the database has a note, or a signed one in it says that this was given up: no row alone can say that."""
    if table.has(database, held.note.number, held.hash):
        return True
    for given, text in table.given_up(database, held.note.number):
        for signed in readable([text] if isinstance(text, str) else []):
            ours = signed.note.origin == held.note.origin and signed.note.number == given.abandoned_to + 1
            if ours and signed.note.acknowledged == given.digest() and is_signed(signed, public):
                return True
    return False


def _compared(database: Database, public: bytes, place: Place) -> Place:
    if place.newest is None or knows(database, public, place.newest):
        return place
    return replace(place, ahead=True)


def check(database: Database, audit: AuditSettings) -> Standing:
    """Refuse a database that is older than one of its anchors: IntegrityBroken. Raises otherwise as `look`."""
    found = look(database, audit)
    if found.ahead is not None:
        raise IntegrityBroken(older(database.name, found.newest, *found.ahead))
    return found


def older(name: str, newest: Newest | None, place: Place, held: Signed) -> str:
    """Say what it means that an anchor is ahead of the database, and what to do."""
    note = held.note
    if newest is None:
        ends = "has no checkpoint at all"
    elif newest.number >= note.number:
        ends = f"has another checkpoint {note.number} than that anchor"
    else:
        ends = f"ends at checkpoint {newest.number} of {to_rfc3339(newest.at)}"
    since = "before then" if newest is None else f"after {to_rfc3339(min(newest.at, note.at))}"
    return (
        f"the database {name} is older than its anchor {place.name}: it {ends}, and the anchor holds checkpoint "
        f"{note.number} of {to_rfc3339(note.at)} ({note.events} events). Was a backup restored? What was sent {since} "
        "is not in it, and would be sent again. Bring back a newer database; or find out at the providers what was "
        "sent, and go on with: opledger audit acknowledge --reason …"
    )


def memory_name(audit: AuditSettings, ledger_id: str) -> str:
    """Return what people are told of that file."""
    return f"{audit.verified(ledger_id)} (what was verified on this machine before)"


def remembered(audit: AuditSettings, ledger: Ledger, public: bytes) -> Signed | None:
    """Return the note up to which this user has verified the ledger here; None where no signed one can be read.

    It is an anchor that costs nothing: who restores a backup with the anchor beside it does not restore this.
    """
    try:
        held = readable(FileAnchor(audit.verified(ledger.ledger_id)).latest(0))
    except StoreUnavailable:
        return None  # it only saves time, and the next verification writes it anew
    ours = [one for one in held if one.note.origin == ledger.origin and is_signed(one, public)]
    return ours[-1] if ours else None


def held_by(anchors: Sequence[Anchor], ledger: Ledger, public: bytes) -> list[Signed]:
    """Return all checkpoints of this ledger in anchors that can be read. Raises StoreUnavailable."""
    return [
        signed
        for anchor in anchors
        for signed in readable(anchor.notes())
        if signed.note.origin == ledger.origin and is_signed(signed, public)
    ]
