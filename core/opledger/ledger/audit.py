"""Verifying a ledger as it is configured: by which key, against which anchors, from where on, and what is remembered.

Anchors are read first and the journal last: what an anchor or a leaf knows must then be in what is read after it,
however fast others write meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from opledger.checkpoints.standing import memory_name
from opledger.config import Settings
from opledger.edges import anchors as places
from opledger.edges import signing
from opledger.edges.files import atomic_write, private_folder
from opledger.edges.sshkeys import read_signers
from opledger.errors import ConfigWrong, OpledgerError, StoreUnavailable, UsageError
from opledger.ledger import archive
from opledger.ledger.reading import Reading
from opledger.ledger.slices import processes
from opledger.ledger.verifying import LISTED, Progress, Trust, Verified, verify
from opledger.rules import approval_signatures, notes
from opledger.rules.audit import Check
from opledger.rules.auditlog import Kept
from opledger.rules.journal import Finding
from opledger.rules.model import from_rfc3339, to_rfc3339
from opledger.rules.notes import NoteInvalid
from opledger.rules.signers import AllowedSigners
from opledger.store import Store, auditing

__all__ = ["LISTED", "Asked", "Progress", "Verified", "run", "was_verified"]

LARGE: Final = 300_000
"""Events up to which everything is verified, unless somebody asks for less."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants verified."""

    anchors: Sequence[Path] = ()  #: files, besides those of the settings
    key: str | None = None  #: as ``opledger audit key`` prints it
    full: bool = False  #: everything, however much there is
    since: int | None = None  #: what came behind this checkpoint
    recent: bool = False  #: what came since it was last verified here, however little there is
    helpers: int = 0  #: processes that may help
    archives: Sequence[Path] = ()  #: files that the archive wrote


def run(
    ledger: Reading,
    asked: Asked | None = None,
    *,
    told: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Verified:
    """Verify a ledger. Raises StoreUnavailable, and UsageError or ConfigWrong for what was asked."""
    asked = asked or Asked()
    store, settings = ledger.store, ledger.settings
    named = auditing.papers(store.database, auditing.NONE).ledger
    memory = None if named is None else remembered(settings.audit.verified(named[0]))
    here = "" if named is None else memory_name(settings.audit, named[0])
    kept, unread = _kept(settings, _ledger_id(named, asked.key), asked.anchors)
    if memory is not None:
        kept.append(Kept(here, [memory[0]]))
    since = asked.since
    if since is None and memory is not None and not asked.full:
        since = _since(ledger, memory[0], small=not asked.recent)
    make = partial(_checks, settings)
    signers, missing = _signers(settings)
    unread += missing
    found = verify(
        store,
        ledger.clock,
        trust=partial(_trust, asked.key, settings),
        anchors=kept,
        checks=[approval_signatures.check(signers)],
        since=since,
        helpers=processes(settings.database, asked.helpers, make) if asked.helpers > 1 else None,
        told=told,
        stop=stop,
    )
    more = [*archive.verify(ledger, asked.archives), *_astray(store, found)]
    if more:
        found = found.plus(more)
    if named is not None and found.complete and not found.count and found.upto is not None:
        remember(settings.audit.verified(named[0]), found.upto, found.at)
    anchored = found.anchored
    if anchored is not None and anchored[1] == here:
        anchored = None
    return replace(found, notes=(*found.notes, *unread, *archive.unread(ledger, asked.archives)), anchored=anchored)


def _astray(store: Store, found: Verified) -> Iterator[Finding]:
    """What would keep the checkpointer from signing new events; only told where leaves and checkpoints hold."""
    broken = any(kind.startswith(("CHECKPOINT", "ANCHOR", "FORK")) for kind, _ in found.kinds)
    if broken or not found.complete or found.since is not None:
        return
    for name, seq in auditing.astray(store.database):
        words = (
            f"the checkpointer is told that a leaf holds event {seq!r:.40} of it, and none does: what comes up to there"
        )
        id_, number = name if isinstance(name, str) else None, seq if type(seq) is int else None
        yield Finding("PROJECTION", id_, number, f"{words} would stay unsigned; delete its row of the table anchored")


def was_verified(ledger: Reading) -> bool:
    """Tell whether this ledger was verified on this machine before, and what was seen then is still there."""
    named = auditing.papers(ledger.store.database, auditing.NONE).ledger
    memory = None if named is None else remembered(ledger.settings.audit.verified(named[0]))
    return memory is not None and _since(ledger, memory[0], small=False) is not None


def _checks(settings: Settings) -> list[Check]:
    """What else is looked at in every whole chain: the signatures under approvals."""
    return [approval_signatures.check(_signers(settings)[0])]


def _signers(settings: Settings) -> tuple[AllowedSigners | None, list[Finding]]:
    """Whose keys count. Without the file that says so no signature can be judged; all else still can."""
    path = settings.audit.allowed_signers
    try:
        return None if path is None else read_signers(path), []
    except ConfigWrong as error:
        return None, [Finding("SIGNERS_UNREAD", None, None, f"no signature could be judged: {error.message}")]


def _since(ledger: Reading, note: str, *, small: bool) -> int | None:
    """The checkpoint to begin at, where all up to it was verified here; None: everything is to be verified."""
    if small and auditing.counts(ledger.store.database)[1] <= LARGE:
        return None
    with contextlib.suppress(NoteInvalid):
        number = notes.read(note).note.number
        row = next(iter(auditing.papers(ledger.store.database, number - 1, 1).checkpoints), None)
        if row is not None and row.note == note:
            return number
    return None


# --- anchors ------------------------------------------------------------------------------------------------------


def _ledger_id(named: tuple[str, str] | None, key: str | None) -> str | None:
    """Whose anchors to read. A database whose name was removed is still known to whoever brings the key."""
    if named is not None:
        return named[0]
    with contextlib.suppress(NoteInvalid):
        return None if key is None else notes.read_verifier_key(key.strip())[0].removeprefix("opledger/")
    return None


def _kept(settings: Settings, ledger_id: str | None, files: Sequence[Path]) -> tuple[list[Kept], list[Finding]]:
    """Read the anchors. Those of the settings that are out of reach are told, and are no finding."""
    kept: list[Kept] = []
    unread: list[Finding] = []
    for path in files:
        if not path.is_file():
            raise UsageError(f"there is no anchor {path}")
        kept.append(Kept(str(path), list(places.FileAnchor(path).notes())))
    for setting in settings.audit.anchors:
        if ledger_id is None and not (isinstance(setting, Path) and places.is_of_one(setting)):
            continue  # one place for many ledgers, and nobody knows which of them this is
        try:
            anchor = places.open_anchor(setting, ledger_id or "none")
            kept.append(Kept(anchor.name, list(anchor.notes())))
        except (StoreUnavailable, ConfigWrong) as error:
            unread.append(Finding("ANCHOR_UNREAD", None, None, f"an anchor was not compared: {error.message}"))
    return kept, unread


# --- whose signatures count ---------------------------------------------------------------------------------------


def _trust(key: str | None, settings: Settings, named: tuple[str, str] | None) -> Trust | None:
    """Say whose signature counts: of the key that was given, of this machine's own, of the one in the database."""
    if key is not None:
        try:
            origin, public = notes.read_verifier_key(key.strip())
            return Trust(origin, public, own=True)
        except NoteInvalid as error:
            raise UsageError(f"--key: {error}") from error
    if named is None:
        return None
    origin = f"opledger/{named[0]}"
    own = _own_key(settings, named[0])
    try:
        public = own or base64.b64decode(named[1], validate=True)
        return Trust(origin, public, own=own is not None) if len(public) == 32 else None
    except (ValueError, TypeError):
        return None


def _own_key(settings: Settings, ledger_id: str) -> bytes | None:
    """The public half of the key on this machine; None where there is none that may be used."""
    path = settings.audit.key or settings.audit.keys / f"{ledger_id}.key"
    with contextlib.suppress(ConfigWrong):
        key = signing.load_key(path)
        return None if key is None else key.public
    return None


# --- what was verified here before --------------------------------------------------------------------------------


def remembered(path: Path) -> tuple[str, datetime] | None:
    """Return the note up to which this user verified everything here, and when; None where nothing can be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return str(document["note"]), from_rfc3339(document["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(path: Path, note: str, at: datetime) -> None:
    """Keep that all up to this note holds. Best effort: it saves time, and is one more anchor."""
    with contextlib.suppress(OpledgerError):
        private_folder(path.parent)
        atomic_write(path, json.dumps({"note": note, "at": to_rfc3339(at)}).encode())
