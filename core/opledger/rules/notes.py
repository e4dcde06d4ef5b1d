"""Checkpoints as text: C2SP signed notes in the form of a tlog-checkpoint, written and read strictly.

    opledger/ldg_01JC…                              origin: what the ledger is called outside
    1042                                            leaves of the tree
    2q4l…=                                          its root
    number 17                                       what follows is ours: extension lines
    at 2026-05-04T10:11:12.000345Z
    operations 1000
    events 20180
    epoch 12
    previous 5b1e…                                  hash of the note before
    acknowledged 77aa…                              only after a restored backup: digest of what was acknowledged

    — opledger/ldg_01JC… kd1fAg…                    signature

Sources: https://c2sp.org/signed-note, https://c2sp.org/tlog-checkpoint. Signatures are made and checked elsewhere.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from opledger.rules.model import to_rfc3339

GENESIS: Final = bytes(32)
"""What the first note names as the one before."""

MAX_NOTE: Final = 8 * 1024
"""Bytes of a note beyond which nobody reads it."""

_ED25519: Final = b"\x01"
_ORIGIN: Final = re.compile(r"opledger/ldg_[0-9A-HJKMNP-TV-Z]{26}")
_LINES: Final = ("number", "at", "operations", "events", "epoch", "previous")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class NoteInvalid(ValueError):
    """A text is no note of ours, or is not written as it must be."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a checkpoint says."""

    origin: str
    size: int  #: leaves
    root: bytes
    number: int
    at: datetime
    operations: int
    events: int  #: journal rows that the leaves cover
    epoch: int  #: highest fence that was seen
    previous: bytes
    acknowledged: bytes | None = None  #: after a restored backup: digest of the `auditlog.Acknowledgement`

    def text(self) -> str:
        """What is signed: everything up to the blank line, with its last line break."""
        lines = [
            self.origin,
            str(self.size),
            base64.b64encode(self.root).decode(),
            f"number {self.number}",
            f"at {to_rfc3339(self.at)}",
            f"operations {self.operations}",
            f"events {self.events}",
            f"epoch {self.epoch}",
            f"previous {self.previous.hex()}",
        ]
        if self.acknowledged is not None:
            lines.append(f"acknowledged {self.acknowledged.hex()}")
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Signed:
    """A note as it was read, with the signature that must be checked against `text`."""

    note: Note
    text: str
    whole: str
    key_id: bytes
    signature: bytes

    @property
    def hash(self) -> bytes:
        """What the next note names as the one before."""
        return hash_of(self.whole)


def hash_of(note: str) -> bytes:
    """Return the SHA-256 of a whole note, signature and all."""
    return sha256(note.encode("utf-8", "surrogatepass")).digest()


def sign_off(text: str, origin: str, key_id: bytes, signature: bytes) -> str:
    """Return the whole note: the text, a blank line, the signature."""
    return f"{text}\n\N{EM DASH} {origin} {base64.b64encode(key_id + signature).decode()}\n"


def read(whole: str) -> Signed:
    """Read a note. Only what `Note.text` and `sign_off` write is taken, to the byte; the signature is not checked.

    Raises NoteInvalid.
    """
    if len(whole) > MAX_NOTE:
        raise NoteInvalid(f"the note is longer than {MAX_NOTE} characters")
    text, blank, last = whole.partition("\n\n")
    if not blank:
        raise NoteInvalid("the note has no blank line before its signature")
    text += "\n"
    note = _note(text.split("\n")[:-1])
    key_id, signature = _signature(last, note.origin)
    if note.text() != text or sign_off(text, note.origin, key_id, signature) != whole:
        raise NoteInvalid("the note is not written as opledger writes it")
    return Signed(note, text, whole, key_id, signature)


def _note(lines: list[str]) -> Note:
    if len(lines) < 3:
        raise NoteInvalid("the note ends before its root")
    origin, size, root, *rest = lines
    if not _ORIGIN.fullmatch(origin):
        raise NoteInvalid("the note is not one of an opledger ledger")
    pairs = [line.partition(" ")[::2] for line in rest]
    names = tuple(name for name, _ in pairs)
    if names not in (_LINES, (*_LINES, "acknowledged")):
        raise NoteInvalid("the note has other lines than an opledger checkpoint")
    found = dict(pairs)
    acknowledged = found.get("acknowledged")
    return Note(
        origin=origin,
        size=_number("size", size),
        root=_root(root),
        number=_number("number", found["number"]),
        at=_time(found["at"]),
        operations=_number("operations", found["operations"]),
        events=_number("events", found["events"]),
        epoch=_number("epoch", found["epoch"]),
        previous=_hash("previous", found["previous"]),
        acknowledged=None if acknowledged is None else _hash("acknowledged", acknowledged),
    )


def _number(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise NoteInvalid(f"the {name} of the note is no number")
    return int(text)


def _root(text: str) -> bytes:
    found = _base64(text)
    if len(found) != 32:
        raise NoteInvalid("the root of the note is no hash")
    return found


def _hash(name: str, text: str) -> bytes:
    if not _HASH.fullmatch(text):
        raise NoteInvalid(f"{name} in the note is no hash")
    return bytes.fromhex(text)


def _time(text: str) -> datetime:
    try:
        if not _TIME.fullmatch(text):
            raise ValueError(text)
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        raise NoteInvalid("the time in the note is no time") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise NoteInvalid("the note has base64 in it that cannot be read") from None


def _signature(line: str, origin: str) -> tuple[bytes, bytes]:
    start = f"\N{EM DASH} {origin} "
    if not line.startswith(start) or not line.endswith("\n"):
        raise NoteInvalid("the note has no signature of its own ledger")
    found = _base64(line[len(start) : -1])
    if len(found) != 4 + 64:
        raise NoteInvalid("the signature of the note has not the length of one")
    return found[:4], found[4:]


# --- keys --------------------------------------------------------------------------------------------------------


def key_id(name: str, public: bytes) -> bytes:
    """Return the four bytes by which a signature names an Ed25519 key."""
    return sha256(name.encode("utf-8", "surrogatepass") + b"\n" + _ED25519 + public).digest()[:4]


def verifier_key(name: str, public: bytes) -> str:
    """Return a public key as others are given it: ``name+keyid+base64``."""
    return f"{name}+{key_id(name, public).hex()}+{base64.b64encode(_ED25519 + public).decode()}"


def read_verifier_key(text: str) -> tuple[str, bytes]:
    """Return name and public key. Raises NoteInvalid for what `verifier_key` did not write."""
    name, _, rest = text.partition("+")
    public = _base64(rest.partition("+")[2])[1:]
    if len(public) != 32 or verifier_key(name, public) != text:
        raise NoteInvalid("this is no verifier key: name+keyid+base64, as `opledger audit key` prints it")
    return name, public
