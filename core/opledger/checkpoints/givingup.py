"""After a backup was restored: a person says that the ledger goes on, and what it has forgotten is written down.

Everything that an anchor holds and the database does not is given up, by its numbers. In the same transaction a
checkpoint comes behind those, so that in no anchor two checkpoints ever have one number; it names what was said, by
whom and why, so that nobody without the key can give anything up. The fences of all open operations jump, so that
nobody of before can write any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from opledger.checkpoints import maker, standing
from opledger.checkpoints.keys import signer
from opledger.config import AuditSettings
from opledger.edges.anchors import open_anchors
from opledger.edges.clock import SystemClock
from opledger.errors import IntegrityBroken, Refused, StoreUnavailable, UsageError
from opledger.rules.auditlog import Acknowledgement
from opledger.rules.model import Actor, ActorKind, to_rfc3339
from opledger.rules.notes import Signed
from opledger.store import checkpointing
from opledger.store import checkpoints as table
from opledger.store.checkpointing import Moved
from opledger.store.checkpoints import Ledger
from opledger.store.encoding import to_micros
from opledger.store.engine import Database

MOST: Final = 2**62
"""A number that no checkpoint ever has."""

UNSIGNED: Final = (
    "nothing was written: what is given up must be signed, so run this where the key is (if it is lost for good, "
    "nothing can be signed or compared any more: take the anchors out of [audit] anchors)"
)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What the anchors hold and the database does not."""

    ledger: Ledger
    last: Signed  #: the newest of it
    first: int  #: number of the oldest of it, or of what must have been before
    epoch: int  #: highest fence that is known of it
    since: datetime | None  #: when the newest checkpoint was made that both know


@dataclass(frozen=True, slots=True)
class Given:
    """What was given up, and how many open operations got new fences."""

    acknowledged: Acknowledgement
    operations: int


def forgotten(database: Database, audit: AuditSettings) -> Forgotten:
    """Compare all that the anchors hold with the database.

    Raises Refused where they agree, StoreUnavailable where an anchor cannot be read now (it may know more than the
    others), ConfigWrong as `standing.look`.
    """
    found = standing.look(database, audit)
    for place in found.places:
        if place.problem is not None:
            raise StoreUnavailable(
                f"{place.problem}; it may know of more than the others, so bring it back first, or take it out of "
                "[audit] anchors"
            )
    if found.ledger is None or found.ahead is None:
        raise Refused("no anchor holds anything that the database does not: there is nothing to acknowledge")
    anchors = open_anchors(audit.anchors, found.ledger.ledger_id)
    public = standing.public_key(audit, found.ledger)
    held = standing.held_by(anchors, found.ledger, public)
    held += [known] if (known := standing.remembered(audit, found.ledger, public)) is not None else []
    lost = [one for one in held if not standing.knows(database, public, one)]
    last = max(lost, key=lambda one: one.note.number)
    # Also what nobody holds between the two: an anchor may have been away, and a number that is missing needs a reason.
    first = min([one.note.number for one in lost] + ([] if found.newest is None else [found.newest.number + 1]))
    since = [one.note.at for one in held if one.note.number < first]
    epoch = max(one.note.epoch for one in lost)
    return Forgotten(found.ledger, last, first, epoch, max(since, default=None))


def meaning(found: Forgotten) -> str:
    """Say what acknowledging means, for the person who is asked."""
    note = found.last.note
    since = "the beginning" if found.since is None else to_rfc3339(found.since)
    return (
        f"Checkpoints {found.first} to {note.number} ({to_rfc3339(note.at)}) are given up: whatever was submitted, "
        f"sent or answered from {since} on is not in this database. Operations that were open then are taken up from "
        "where this database has them, and requests that were sent may be sent again: look at the providers first. "
        "Workers of before can write no more. This stands in the ledger for good, and in every later verification."
    )


def check_person(who: Actor, reason: str) -> None:
    """Raise Refused for anybody but a person, UsageError for an empty reason."""
    if who.kind is not ActorKind.HUMAN:
        raise Refused(f"{who.name} is no person; only a person may say that the ledger goes on")
    if not reason.strip():
        raise UsageError("--reason is empty; say why the ledger goes on from here")


def acknowledge(
    database: Database, audit: AuditSettings, who: Actor, reason: str, now: datetime, expected: Forgotten
) -> Given:
    """Give up what the database has forgotten, in one transaction with a checkpoint that says so, and anchor that.

    `expected`: what was shown to the person. Raises Refused for anybody but a person, and where meanwhile something
    else is to be given up; ConfigWrong where this machine has not the key; IntegrityBroken where the newest checkpoint
    is not signed with it; otherwise as `forgotten`.
    """
    check_person(who, reason)
    found = forgotten(database, audit)
    if (found.last.hash, found.first) != (expected.last.hash, expected.first):
        raise Refused("an anchor or the database has changed meanwhile; nothing was written: look again")
    made = signer(database, audit, SystemClock(), UNSIGNED)
    newest = table.newest(database)
    if newest is not None:
        maker.check_ours(made, newest)
    # Behind what somebody without the key may have put into the table, too: it stays there, and verification names it.
    said = table.last_given_up(database)
    if said > MOST:
        raise IntegrityBroken(
            f"the database says that checkpoints up to {said} were given up, which nobody with the key has written: "
            "find out what happened with: opledger audit verify"
        )
    given = Acknowledgement(
        abandoned_from=found.first,
        abandoned_to=max(found.last.note.number, 0 if newest is None else newest.number, said + 1 if said else 0),
        at=to_micros(now),
        by=who.name,
        reason=reason.strip(),
        epoch=max(found.epoch, 0 if newest is None else newest.epoch),
        hash=found.last.hash,
    )
    before = Moved(newest, mark=0, epoch=0) if newest is None else Moved(newest, mark=newest.mark, epoch=newest.epoch)
    jumped = checkpointing.give_up(database, given, maker.drafted(made, before, now, given))
    maker.Checkpointer(database, audit).anchor()
    return Given(given, jumped)
