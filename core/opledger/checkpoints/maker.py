"""What a worker runs beside its work: a checkpoint when enough has happened, and its way into every anchor.

It never stands in the way of operations: what goes wrong here is logged, shown by `doctor`, and tried again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from opledger.checkpoints import standing
from opledger.checkpoints.keys import Signer, signer
from opledger.config import AuditSettings
from opledger.edges.anchors import Anchor, open_anchors
from opledger.edges.clock import Clock, SystemClock
from opledger.edges.signing import is_signed
from opledger.errors import ConfigWrong, IntegrityBroken, OpledgerError, StoreUnavailable
from opledger.rules import notes, tree
from opledger.rules.auditlog import Acknowledgement
from opledger.rules.notes import Note, NoteInvalid
from opledger.store import checkpointing
from opledger.store import checkpoints as table
from opledger.store.checkpointing import Draft, Moved
from opledger.store.checkpoints import Newest
from opledger.store.engine import Database

log = logging.getLogger("opledger.checkpoints")

ROWS: Final = 64
"""Journal rows after which the next checkpoint comes, whatever the time."""

SHARE: Final = 50.0
"""How many times as long as a checkpoint took none is written: where much happens, they take 2 % of the time."""

SWEEP: Final = 300.0
"""Seconds after which the database is asked for all heads that moved, whenever that was."""


@dataclass(slots=True)
class _Kept:
    """An anchor as this worker writes to it."""

    anchor: Anchor
    upto: int | None = None  #: number of the newest checkpoint that it holds; None: not known yet
    problem: str | None = None


@dataclass(slots=True)
class _State:
    """What is known after the first look."""

    signer: Signer
    anchors: list[_Kept] = field(default_factory=list)


class Checkpointer:
    """Checkpoints of one ledger, as one worker writes them. Safe to call from several threads."""

    def __init__(self, database: Database, audit: AuditSettings, clock: Clock | None = None) -> None:
        self._database = database
        self._audit = audit
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._state: _State | None = None
        self._trusted: bytes | None = None  #: hash of the newest note whose signature is known to be ours
        self._rows = 0
        self._next = 0.0
        self._swept: float | None = None
        self._told: set[str] = set()
        self._reached = 0  #: the highest number that this process has seen in the database
        self.lost: IntegrityBroken | None = None  #: the database has fewer than that: it went back while it was used

    def start(self) -> None:
        """Refuse a database that is older than one of its anchors.

        Raises IntegrityBroken, ConfigWrong where an anchor is not fit or belongs to another ledger, StoreUnavailable
        for the database. An anchor out of reach is logged: what it holds cannot be compared.
        """
        found = standing.check(self._database, self._audit)
        for place in found.places:
            if place.problem is not None:
                log.warning("not compared: %s", place.problem)

    @property
    def due(self) -> bool:
        """Whether it is time to `run`: this process wrote `ROWS` rows, or ``[audit] checkpoint`` has passed.

        False while it is being run.
        """
        now, rows = self._clock.monotonic(), self._database.events
        patience = self._next + self._audit.checkpoint.total_seconds()
        return not self._lock.locked() and now >= self._next and (rows - self._rows >= ROWS or now >= patience)

    def finish(self) -> None:
        """Write the last checkpoint of this worker."""
        self.run(last=True)

    def run(self, *, last: bool = False) -> None:
        """Write what is to be written now. What stands in the way is logged once, and tried again next time."""
        with self._lock:
            began = self._clock.monotonic()
            self._rows = self._database.events
            most = self._audit.checkpoint.total_seconds()
            rest = most
            try:
                self._run(everything=last or self._is_sweep(began))
                self._told.clear()
                rest = min((self._clock.monotonic() - began) * SHARE, most)
            except (StoreUnavailable, ConfigWrong, IntegrityBroken) as error:
                self._tell(error)
            self._next = self._clock.monotonic() + rest

    def _is_sweep(self, now: float) -> bool:
        if self._swept is not None and now - self._swept < SWEEP:
            return False
        self._swept = now
        return True

    def _tell(self, error: OpledgerError) -> None:
        if error.message not in self._told:
            self._told.add(error.message)
            log.warning("no checkpoint: %s", error.message)

    def _run(self, *, everything: bool) -> None:
        state = self._state
        while True:
            moved = checkpointing.moved(self._database, everything=everything)
            self._check_grown(0 if moved.newest is None else moved.newest.number)
            if not moved.leaves:
                break
            if state is None:
                state = self._state = self._begin()
            if not self._write(state.signer, moved) or not moved.more:
                break
        if moved.newest is not None and state is None:
            state = self._state = self._begin()
        if state is not None:
            self._anchor(state)

    def _begin(self) -> _State:
        made = signer(self._database, self._audit, self._clock)
        anchors = open_anchors(self._audit.anchors, made.ledger.ledger_id)
        return _State(made, [_Kept(anchor) for anchor in anchors])

    # --- writing ------------------------------------------------------------------------------------------------

    def _write(self, made: Signer, moved: Moved) -> bool:
        """Sign and write one checkpoint; False where another worker was faster."""
        if moved.newest is not None and moved.newest.hash != self._trusted:
            check_ours(made, moved.newest)
        draft = drafted(made, moved, self._clock.now())
        if not checkpointing.add(self._database, draft):
            return False
        self._trusted = draft.parsed.hash
        self._reached = draft.parsed.note.number
        return True

    def _check_grown(self, number: int) -> None:
        """See that the database has not become older, as a backup does that is put under a running worker."""
        if number < self._reached:
            self.lost = IntegrityBroken(
                f"the database {self._database.name} has become older while it was used: it ends at checkpoint "
                f"{number} and had {self._reached}. Was a backup restored, or has a server taken over that lacks the "
                "newest? What was sent since is not in it, and would be sent again: look, and start again"
            )
            raise self.lost
        self._reached = number

    # --- anchoring ----------------------------------------------------------------------------------------------

    def anchor(self) -> None:
        """Bring to every anchor what there is, and write nothing else. What stands in the way is logged."""
        with self._lock:
            try:
                self._state = self._state or self._begin()
                self._anchor(self._state)
            except (StoreUnavailable, ConfigWrong, IntegrityBroken) as error:
                self._tell(error)

    def _anchor(self, state: _State) -> None:
        """Bring to every anchor what it does not have."""
        for kept in state.anchors:
            try:
                self._catch_up(state.signer, kept)
                kept.problem = None
            except (StoreUnavailable, ConfigWrong, IntegrityBroken) as error:
                kept.upto = None  # what it took of the last ones is not known
                if error.message != kept.problem:
                    log.warning("not anchored: %s", error.message)
                kept.problem = error.message

    def _catch_up(self, made: Signer, kept: _Kept) -> None:
        if kept.upto is None:
            kept.upto = self._find(made, kept.anchor)
        while missing := table.notes_after(self._database, kept.upto):
            kept.anchor.append(missing)
            kept.upto = missing[-1][0]

    def _find(self, made: Signer, anchor: Anchor) -> int:
        """The newest checkpoint that an anchor holds; 0: none. Where it cannot be read, what there is now counts.

        Raises IntegrityBroken where it holds one that the database does not have: nothing is written behind that.
        """
        newest = table.newest(self._database)
        near = 0 if newest is None else newest.number
        if not anchor.reads:
            return max(near - 1, 0)
        place = standing.place_of(anchor, made.ledger, made.key.public, near)
        if place.problem is not None:
            raise StoreUnavailable(place.problem)
        if place.newest is None:
            return 0
        if not standing.knows(self._database, made.key.public, place.newest):
            raise IntegrityBroken(
                standing.older(self._database.name, table.newest(self._database), place, place.newest)
            )
        return place.newest.note.number


def _foreign(number: int) -> IntegrityBroken:
    return IntegrityBroken(
        f"checkpoint {number} in the database was not signed with the ledger's key, or says something else than its "
        "row: nothing is signed on top of it; find out what happened with: opledger audit verify"
    )


def check_ours(made: Signer, newest: Newest) -> None:
    """See that the newest checkpoint is one of ours, before another is signed on top of it. Raises IntegrityBroken."""
    try:
        signed = notes.read(newest.note)
    except NoteInvalid as error:
        raise _foreign(newest.number) from error
    note = signed.note
    said = (note.number, note.size, note.root, note.operations, note.events, note.epoch)
    held = (newest.number, newest.tree.size, newest.tree.root, newest.operations, newest.events, newest.epoch)
    if note.origin != made.ledger.origin or said != held or not is_signed(signed, made.key.public):
        raise _foreign(newest.number)


def drafted(made: Signer, moved: Moved, at: datetime, given: Acknowledgement | None = None) -> Draft:
    """Sign a checkpoint over all that has moved; `given` is what it says was given up before it."""
    newest = moved.newest
    grown = (newest.tree if newest is not None else tree.Tree()).add(
        tree.leaf_of(one.kind, one.operation_id, one.seq, one.hash) for one in moved.leaves
    )
    heads = [one for one in moved.leaves if one.kind == tree.HEAD]
    note = Note(
        origin=made.ledger.origin,
        size=grown.size,
        root=grown.root,
        number=(0 if newest is None else newest.number) + 1 if given is None else given.abandoned_to + 1,
        at=at,
        operations=(0 if newest is None else newest.operations) + sum(one.before == 0 for one in heads),
        events=(0 if newest is None else newest.events) + sum(one.seq - one.before for one in heads),
        epoch=moved.epoch if given is None else max(moved.epoch, given.epoch + table.JUMP),
        previous=notes.GENESIS if newest is None else newest.hash,
        acknowledged=None if given is None else given.digest(),
    )
    whole = made.key.sign(note.text(), note.origin)
    return Draft(moved, whole, notes.read(whole), grown)
