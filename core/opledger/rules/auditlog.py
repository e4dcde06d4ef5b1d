"""Whether the log that all operations are anchored in holds: leaves, checkpoints, what anchors outside keep of them.

A finding about a checkpoint names no operation, and has the checkpoint's number in place of a seq. Signatures are
checked by whoever calls; here is only what follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from opledger.rules import jsontext, notes, tree
from opledger.rules.audit import Leaf
from opledger.rules.journal import Finding
from opledger.rules.model import EPOCH
from opledger.rules.notes import NoteInvalid, Signed
from opledger.rules.tree import Tree

NOTHING: Final = Tree()
GIVEN_UP: Final = b"opledger/acknowledgement1"

Judge = Callable[[Signed], str | None]
"""Says what is wrong with a note's origin, key or signature; None: nothing."""


class Checkpoint(NamedTuple):
    """One row of the table, its columns in order."""

    number: int
    at: int
    size: int
    operations: int
    events: int
    epoch: int
    root: bytes
    previous: bytes
    note: str
    hash: bytes
    key_id: bytes
    peaks: bytes
    mark: int


class Acknowledgement(NamedTuple):
    """One row of the table, its columns in order."""

    abandoned_to: int
    abandoned_from: int
    at: int
    by: str
    reason: str
    epoch: int
    hash: bytes

    def digest(self) -> bytes | None:
        """SHA-256 over the domain ``opledger/acknowledgement1`` and all columns: compact JSON, keys sorted, UTF-8.

        It is what the note behind the numbers that were given up names. None for a row that is none of ours.
        """
        try:
            shape = {**self._asdict(), "hash": self.hash.hex()}
            return sha256(GIVEN_UP + jsontext.dumps(shape)).digest()
        except (TypeError, ValueError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Start:
    """The checkpoint up to which everything was verified before."""

    number: int = 0
    hash: bytes = notes.GENESIS
    tree: Tree = NOTHING


BEGINNING: Final = Start()


@dataclass(slots=True)
class Log:
    """What a look at checkpoints and leaves has come to."""

    findings: list[Finding] = field(default_factory=list)
    notes: dict[int, Signed] = field(default_factory=dict)  #: by number: those that can be read and are signed
    last: int = 0  #: number of the newest checkpoint in the table
    size: int = 0  #: leaves that a checkpoint covers
    end: Start = BEGINNING  #: how far everything holds
    given_up: list[Acknowledgement] = field(default_factory=list)  #: those that a signed note says


def _find(log: Log, kind: str, number: int | None, words: str) -> None:
    log.findings.append(Finding(kind, None, number, words))


def check(
    rows: Sequence[Checkpoint],
    leaves: Iterator[Leaf],
    judge: Judge,
    acknowledged: Sequence[Acknowledgement] = (),
    start: Start = BEGINNING,
) -> Log:
    """Check checkpoints in the order of their numbers, and the leaves under them, both from `start` on.

    Finds CHECKPOINT_SIG, CHECKPOINT_CHAIN and CHECKPOINT_GAP. Of leaves that are not those that were signed the first
    checkpoint that shows it is named; those behind it cannot hold then either. An acknowledgement counts by the signed
    note behind what it gives up, which names its digest; without that it is CHECKPOINT_SIG, at the last of its numbers.
    """
    log = Log(last=start.number, size=start.tree.size, end=start)
    signed = _signatures(rows, judge, log)
    growing = _Growing(leaves, start.tree)
    number, digest = start.number, start.hash
    for row, note in zip(rows, signed, strict=True):
        found = len(log.findings)
        if not _counts(row.number) or row.number <= number:
            _find(log, "CHECKPOINT_GAP", None, "a checkpoint has a number that cannot be")
            continue
        gap = row.number > number + 1
        said = None if note is None else note.note.acknowledged
        if (gap or said is not None) and said not in _given_up(acknowledged, number + 1, row.number - 1):
            words = f"checkpoint {number + 1} is missing before checkpoint {row.number}, and nobody has given it up"
            if not gap:
                words = f"checkpoint {row.number} says that some before it were given up, and that is gone or changed"
            _find(log, "CHECKPOINT_GAP", number + 1, words)
        elif note is not None and note.note.previous != digest:
            _find(log, "CHECKPOINT_CHAIN", row.number, f"checkpoint {row.number} does not follow from the one before")
        if note is not None:
            log.notes[row.number] = note
            log.size = note.note.size
            if why := growing.to(note.note, row.peaks):
                _find(log, "CHECKPOINT_CHAIN", row.number, why)
        number, digest, log.last = row.number, notes.hash_of(str(row.note)), row.number
        if found == len(log.findings) and not log.findings:
            log.end = Start(number, digest, growing.tree)
    beyond = growing.beyond()
    if beyond:
        words = f"{beyond} leaves stand behind those of checkpoint {log.last}, and no checkpoint has signed them"
        _find(log, "CHECKPOINT_CHAIN", log.last or None, words)
    for one in acknowledged:
        to = one.abandoned_to if _counts(one.abandoned_to) else None
        note = None if to is None else log.notes.get(to + 1)
        if (to is not None and to < start.number) or (note is not None and note.note.acknowledged == one.digest()):
            log.given_up.append(one)
            continue
        words = f"that checkpoints up to {one.abandoned_to!r:.40} were given up is said by no signed checkpoint"
        _find(log, "CHECKPOINT_SIG", to, f"{words}: it was put into the database, or changed, without the key")
    return log


def _given_up(acknowledged: Sequence[Acknowledgement], first: int, last: int) -> list[bytes]:
    """What explains that these numbers are missing: they, and perhaps some before them, were given up."""
    ours = [one for one in acknowledged if _counts(one.abandoned_from) and _counts(one.abandoned_to)]
    return [one.digest() or b"" for one in ours if one.abandoned_from <= first and one.abandoned_to == last]


class _Growing:
    """The tree, as leaf after leaf is read. Once it is not what was signed it stays so, and is not told again."""

    def __init__(self, leaves: Iterator[Leaf], tree_: Tree) -> None:
        self.tree = tree_
        self._leaves = leaves
        self._broken = False

    def to(self, note: notes.Note, peaks: Any) -> str | None:
        """Add leaves up to the size of a note, and say what is wrong then."""
        if self._broken:
            return None
        try:
            self.tree = self.tree.add(self._next(note.size - self.tree.size))
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            self._broken = True
            return f"the leaves under checkpoint {note.number} are not those that were signed: {error}"
        if self.tree.size != note.size or self.tree.root != note.root:
            self._broken = True
            return (
                f"the leaves under checkpoint {note.number} are not those that were signed: one of those that it added"
            )
        if peaks != self.tree.packed:
            return f"the edge of the tree beside checkpoint {note.number} is not what its leaves give"
        return None

    def _next(self, count: int) -> Iterator[bytes]:
        if count < 0:
            raise ValueError("the tree has become smaller")
        number = self.tree.size
        for _ in range(count):
            leaf = next(self._leaves, None)
            if leaf is None:
                raise ValueError(f"leaf {number} and what follows are missing")
            if leaf.number != number:
                raise ValueError(f"leaf {number} is missing")
            yield tree.leaf_of(leaf.kind, leaf.operation_id, leaf.seq, leaf.hash)
            number += 1

    def beyond(self) -> int:
        """Read what is left, and say how many leaves that were."""
        left = sum(1 for _ in self._leaves)
        return 0 if self._broken else left


def _signatures(rows: Sequence[Checkpoint], judge: Judge, log: Log) -> list[Signed | None]:
    """Read the notes and check their signatures: CHECKPOINT_SIG, also for columns that are not what the note says.

    From the newest to the oldest: a note whose hash a signed one names was signed with it, and need not be checked.
    """
    found: list[Signed | None] = []
    wrong: list[Finding] = []
    named: bytes | None = None
    for row in reversed(rows):
        try:
            signed = notes.read(row.note)
            why = _columns(row, signed) or (None if signed.hash == named else judge(signed))
        except (NoteInvalid, TypeError, AttributeError, UnicodeEncodeError) as error:
            signed, why = None, f"its note cannot be read ({error})"
        if signed is not None and why is not None and signed.hash != named and judge(signed) is not None:
            signed = None
        if why is not None:
            number = row.number if _counts(row.number) else None
            wrong.append(Finding("CHECKPOINT_SIG", None, number, f"of checkpoint {row.number} {why}"))
        named = None if signed is None else signed.note.previous
        found.append(signed)
    log.findings += reversed(wrong)
    return found[::-1]


def _counts(value: Any) -> bool:
    """SQLite keeps whatever is put into a column."""
    return isinstance(value, int)


def _columns(row: Checkpoint, signed: Signed) -> str | None:
    """Say which columns are not what the note says."""
    note = signed.note
    holds = {
        "number": note.number,
        "at": (note.at - EPOCH) // timedelta(microseconds=1),
        "size": note.size,
        "operations": note.operations,
        "events": note.events,
        "epoch": note.epoch,
        "root": note.root,
        "previous": note.previous,
        "hash": signed.hash,
        "key_id": signed.key_id,
    }
    wrong = [name for name, value in holds.items() if getattr(row, name) != value]
    return f"the note and the columns differ: {', '.join(wrong)}" if wrong else None


def signed_by(origin: str, public: bytes) -> Judge:
    """Return what checks that a note is of this ledger and signed with this key (32 bytes, Ed25519)."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key, key_id = Ed25519PublicKey.from_public_bytes(public), notes.key_id(origin, public)

    def judge(signed: Signed) -> str | None:
        if signed.note.origin != origin:
            return f"the note is of another ledger, {signed.note.origin}"
        if signed.key_id != key_id:
            return f"the note is signed with another key, {signed.key_id.hex()}, than {key_id.hex()}"
        try:
            key.verify(signed.signature, signed.text.encode())
        except InvalidSignature:
            return "the signature is not one of this note"
        return None

    return judge


# --- anchors ------------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """The notes that one anchor outside the database holds, in its order."""

    name: str
    notes: Sequence[str]


@dataclass(slots=True)
class Anchors:
    """What a look at the anchors has come to."""

    findings: list[Finding] = field(default_factory=list)
    newest: tuple[Signed, str] | None = None  #: the newest note that table and anchor agree on, and which anchor


def compare(anchors: Iterable[Kept], log: Log, judge: Judge, start: int = 0) -> Anchors:
    """Compare anchors with the table: ANCHOR_AHEAD, FORK, and CHECKPOINT_SIG for a note in an anchor nobody signed.

    Notes below `start` are passed over: that part of the table was not looked at this time.
    """
    result = Anchors()
    here = {number: signed.hash for number, signed in log.notes.items()}
    roots = {signed.note.size: signed for signed in log.notes.values()}
    for anchor in anchors:
        ahead: Signed | None = None
        for text in anchor.notes:
            try:
                signed = notes.read(text)
                why = None if signed.hash == here.get(signed.note.number) else judge(signed)
            except NoteInvalid as error:
                result.findings.append(Finding("CHECKPOINT_SIG", None, None, f"in the anchor {anchor.name}: {error}"))
                continue
            note, number = signed.note, signed.note.number
            if why is None and number < start:
                continue
            if why is not None:
                words = f"in the anchor {anchor.name}, of checkpoint {number}: {why}"
                result.findings.append(Finding("CHECKPOINT_SIG", None, number, words))
            elif here.get(number) == signed.hash:
                if result.newest is None or result.newest[0].note.number < number:
                    result.newest = signed, anchor.name
            elif any(one.abandoned_from <= number <= one.abandoned_to for one in log.given_up):
                continue
            elif number > log.last:
                ahead = signed if ahead is None or ahead.note.number < number else ahead
            elif number in here:
                words = f"the anchor {anchor.name} has another checkpoint {number} than the database; both are signed"
                result.findings.append(Finding("FORK", None, number, words))
            elif (twin := roots.get(note.size)) is not None and twin.note.root != note.root:
                words = f"checkpoint {number} in the anchor {anchor.name} has another tree of {note.size} leaves"
                result.findings.append(Finding("FORK", None, number, words))
        if ahead is not None:
            words = (
                f"the anchor {anchor.name} holds checkpoint {ahead.note.number}, and the database ends at {log.last}: "
                "it is older than its anchor (a restored backup?), or its end was cut off"
            )
            result.findings.append(Finding("ANCHOR_AHEAD", None, ahead.note.number, words))
    return result


def orphaned(anchors: Iterable[Kept]) -> Anchors:
    """Compare anchors with a database that has neither a ledger's name nor a checkpoint: ANCHOR_AHEAD for any note."""
    result = Anchors()
    for anchor in anchors:
        newest: notes.Note | None = None
        for text in anchor.notes:
            try:
                note = notes.read(text).note
            except NoteInvalid:
                continue  # torn by a crash
            newest = note if newest is None or newest.number < note.number else newest
        if newest is not None:
            words = (
                f"the anchor {anchor.name} holds checkpoint {newest.number} of {newest.origin}, and this database has "
                "neither that name nor any checkpoint: they were removed, or it is another database"
            )
            result.findings.append(Finding("ANCHOR_AHEAD", None, newest.number, words))
    return result
