"""One line of a progress file: one fact about a task, written in one way and read strictly.

The ledger keeps the same bytes, so that a file and the ledger can be compared without being understood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from opledger.rules import jsontext
from opledger.rules.model import from_rfc3339, to_rfc3339

MAX_LINE: Final = 256 * 1024
"""Most bytes of one record: what is larger belongs into a file of its own."""


class Kind(StrEnum):
    """What sort of fact it is."""

    INTENT = "intent"  #: the step is about to be done
    COMPLETED = "completed"  #: it was done, and its checks held
    FAILED = "failed"  #: it was tried and did not come out, or its proof does not hold any more
    VERIFIED = "verified"  #: its proof was tried again and holds
    DECISION = "decision"  #: a person decided what no program may decide
    QUESTION = "question"  #: a person was asked
    ANSWER = "answer"  #: and answered
    NOTE = "note"  #: a remark; with no step also the beginning and the end of a run


@dataclass(frozen=True, slots=True)
class Record:
    """One fact. `place` says at which progress file it was written down, `fingerprint` what the step was then."""

    seq: int
    at: datetime
    actor: str
    run: str
    step: str | None
    kind: Kind
    proof: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    fingerprint: str | None = None
    place: str = ""


class Unreadable(ValueError):
    """A line or a file is not what was written. The message is the end of a sentence that names the file."""


def write(record: Record) -> bytes:
    """Return the line, with its line feed. Raises ValueError for what is not JSON, and for more than `MAX_LINE`."""
    document = {
        "seq": record.seq,
        "at": to_rfc3339(record.at),
        "actor": record.actor,
        "run": record.run,
        "step": record.step,
        "kind": str(record.kind),
        "proof": dict(record.proof),
        "outputs": dict(record.outputs),
        "reason": record.reason,
        "fingerprint": record.fingerprint,
        "place": record.place,
    }
    line = jsontext.dumps_inert(document).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise ValueError(f"a record of {len(line):,} bytes is too large; put what it holds into a file")
    return line


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "seq": (int,),
    "at": (str,),
    "actor": (str,),
    "run": (str,),
    "step": (str, type(None)),
    "kind": (str,),
    "proof": (dict,),
    "outputs": (dict,),
    "reason": (str, type(None)),
    "fingerprint": (str, type(None)),
    "place": (str,),
}


def read(line: bytes) -> Record:
    """Read one line. Raises Unreadable for anything that `write` would not have written."""
    try:
        found = jsontext.loads(line)
    except jsontext.JsonError as error:
        raise Unreadable(f"does not hold JSON ({error})") from error
    if not isinstance(found, dict) or set(found) != set(_TYPES):
        raise Unreadable("has another shape than a record")
    for name, types in _TYPES.items():
        if not isinstance(found[name], types) or isinstance(found[name], bool):
            raise Unreadable(f"has a wrong {name}")
    try:
        at = from_rfc3339(found.pop("at"))
        kind = Kind(found.pop("kind"))
    except ValueError as error:
        raise Unreadable("has a time or a kind that no record has") from error
    record = Record(at=at, kind=kind, **found)
    if write(record) != line:
        raise Unreadable("is not written as a record is")
    return record


def read_all(data: bytes) -> tuple[Record, ...]:
    """Read a whole progress file. Raises Unreadable for one that is empty, cut, or holds anything else."""
    if not data.strip():
        raise Unreadable("is empty")
    if not data.endswith(b"\n"):
        raise Unreadable("is cut off in the middle of a line")
    found: list[Record] = []
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            record = read(line)
        except Unreadable as error:
            raise Unreadable(f"cannot be read: line {number} {error}") from error
        if record.seq != number:
            raise Unreadable(f"cannot be read: line {number} is record {record.seq}")
        found.append(record)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Compared:
    """A progress file beside the ledger. `broken` says what is wrong; else `behind` says whether it must be rewritten.

    A broken file is never repaired by a program.
    """

    broken: str | None = None
    behind: bool = False


def compare(data: bytes | None, ledger: Sequence[bytes], place: str) -> Compared:
    """Compare a progress file (None: there is none) with the lines that the ledger has of the task.

    The ledger is written first, so that a crash can leave the file of its own place one record behind. What was
    written at other places may be missing in any number. Everything else is a file that was lost, cut or changed.
    """
    if data is None:
        if any(read(line).step is not None for line in ledger):
            return Compared(f"is missing, and the ledger knows {len(ledger)} records of this task")
        return Compared(behind=bool(ledger))
    try:
        read_all(data)
    except Unreadable as error:
        return Compared(str(error))
    lines = data.splitlines(keepends=True)
    for number, (ours, theirs) in enumerate(zip(lines, ledger, strict=False), 1):
        if ours != theirs:
            return Compared(f"says something else in line {number} than the ledger")
    if len(lines) > len(ledger):
        of = read(lines[0]).proof.get("began")
        whose = f" (it was begun for task {of!r})" if of else ""
        return Compared(
            f"has {len(lines)} records{whose} where the ledger knows {len(ledger)}: it belongs to another ledger "
            "(look at OPLEDGER_DB), or the database was set back"
        )
    missing = [read(line) for line in ledger[len(lines) :]]
    if sum(record.place == place for record in missing) > 1:
        return Compared(f"lacks the last {len(missing)} records that the ledger has: it was cut or set back")
    return Compared(behind=bool(missing))
