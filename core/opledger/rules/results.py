"""Whether a result is whole and what it should be: type, size, checksum, format, count (DESIGN §6, collect).

The bytes are looked at while they stream by; nothing large is kept. However they are cut, the verdict is the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules.contract import Also, Contract, Result
from opledger.rules.items import Outcomes
from opledger.rules.looks import ErrorRows, Fits, Look
from opledger.rules.model import ItemSummary
from opledger.rules.records import records
from opledger.rules.values import MISSING, Pick

_SIZES: Final[Mapping[str, int]] = {"md5": 16, "sha1": 20, "sha224": 28, "sha256": 32, "sha384": 48, "sha512": 64}
_LISTS: Final = frozenset({"content-digest", "repr-digest", "digest"})
_STRONGEST: Final = ("sha512", "sha256", "sha384", "sha224", "sha1", "md5")
_ITEM: Final = re.compile(r"\s*([A-Za-z0-9-]+)\s*=\s*:?([A-Za-z0-9+/_=-]*):?\s*(?:;.*)?")
_PREFIXED: Final = re.compile(r"(md5|sha-?(?:1|224|256|384|512))\s*[:=]\s*(.+)", re.IGNORECASE)
_OF_THE_WIRE: Final = frozenset({"content-digest", "content-md5", "content-length"})
"""Headers that speak of the bytes as they were packed for the wire (RFC 9530 §2, RFC 9110 §8.6)."""
_OF_EITHER: Final = frozenset({"repr-digest", "digest"})
"""A representation is packed, too, where it has a Content-Encoding (RFC 9110 §8.1, RFC 9530 §3). But what packs an
answer on its way seldom makes its digest anew, so that of the unpacked bytes is taken as well: both prove the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found. `problems` are sentences: first what makes the result invalid (`ok` is False), then remarks.

    `count` is the number of records where the format tells it. `checksum_failed` is worth one more fetch: a broken
    transfer looks like that, too.
    """

    ok: bool
    problems: tuple[str, ...]
    sha256: str
    size: int
    content_type: str | None
    count: int | None
    checksum_failed: bool
    checksum_compared: bool = False


class Checker:
    """Looks at one result: make it, `feed` it every byte in order, `finish`.

    `status_document` is the status answer that named the result (for JSON Pointers), `headers` those of the answer
    that brings it, with lower-case names. `outcomes` are told of every record. A `partial` result need not have all
    records that a whole one has.
    """

    def __init__(
        self,
        contract: Contract,
        status_document: Any | None,
        headers: Mapping[str, str],
        *,
        outcomes: Outcomes | None = None,
        also: Also | None = None,
        partial: bool = False,
    ) -> None:
        whole = contract.result or Result()
        # A further file has no more to show than its form and its items: what is said of the result is not said of it.
        self._result = whole if also is None else Result(format=whole.format, max_size=whole.max_size)
        self._partial = partial
        self._document = status_document
        self._headers = headers
        self._wrong: list[str] = []
        self._remarks: list[str] = []
        self._size = 0
        self._sha256 = hashlib.sha256()
        self._looks = tuple(_looks(self._result))
        if outcomes is not None:
            joins = outcomes.look() if also is None else outcomes.look(also.name, failed=also.failed)
            self._looks = (*self._looks, joins)
        self._records = records(self._result.format, self._looks, None if whole.items is None else whole.items.at)
        coding = headers.get("content-encoding", "").strip().lower()
        self._packed = coding[:20] if coding not in ("", "identity") else ""
        self._wire = 0
        self._checksum = self._expected_checksum()
        self._digest = hashlib.new(self._checksum[0], usedforsecurity=False) if self._checksum else None
        self._wire_digest = self._digest.copy() if self._digest is not None and self._packed else None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._size += len(chunk)
        self._sha256.update(chunk)
        if self._digest is not None:
            self._digest.update(chunk)
        self._records.feed(chunk)

    @property
    def wants_wire(self) -> bool:
        """True where the answer is packed: then `feed_wire` wants the bytes as they came."""
        return bool(self._packed)

    def feed_wire(self, chunk: bytes) -> None:
        """Take the next bytes of a packed answer, as they came over the wire."""
        self._wire += len(chunk)
        if self._wire_digest is not None:
            self._wire_digest.update(chunk)

    def so_far(self) -> str:
        """Return the SHA-256 of what was fed until now."""
        return self._sha256.hexdigest()

    def finish(self) -> Verdict:
        """Say what was found. Call it once, after the last byte."""
        self._records.finish()
        self._check_type()
        self._check_size()
        checksum_failed = self._check_checksum()
        if self._records.broken is not None:
            self._wrong.append(f"the result, read as {self._result.format}: {self._records.broken}")
        self._check_count()
        self._remarks += self._records.notes
        if getattr(self._records, "unended", False) and self._unmeasured():
            self._remarks.append(
                "the last line has no end, and nothing (no length, checksum, size or count) shows that it is whole"
            )
        for look in self._looks:
            self._wrong += look.problems
            self._remarks += look.notes
        return Verdict(
            ok=not self._wrong,
            problems=(*self._wrong, *self._remarks),
            sha256=self._sha256.hexdigest(),
            size=self._size,
            content_type=self._headers.get("content-type"),
            count=self._records.count,
            checksum_failed=checksum_failed,
            checksum_compared=self._checksum is not None,
        )

    def _unmeasured(self) -> bool:
        """True where nothing was compared that would have shown a result that was cut off."""
        result = self._result
        counted = result.count is not None and self._records.count is not None
        return not (self._checksum is not None or "content-length" in self._headers or result.size or counted)

    def _missing(self, what: str) -> None:
        """Note that the answer does not give what the contract names; a strict contract makes that a fault."""
        (self._wrong if self._result.strict else self._remarks).append(what)

    def _value(self, pick: Pick, what: str) -> Any:
        """Return what the contract points to, or MISSING, which is then noted."""
        if pick.header == "etag" and self._packed:
            self._missing(f"the {what} was not compared: {pick.text} may speak of the packed answer ({self._packed})")
            return MISSING
        value = pick.of(self._document, self._headers)
        if value is MISSING or value is None:
            self._missing(f"the {what} was not compared: the answer has no {pick.text}")
            return MISSING
        return value

    def _number(self, pick: Pick, what: str) -> int | None:
        value = self._value(pick, what)
        if value is MISSING:
            return None
        number = _whole(value)
        if number is None:
            self._missing(f"the {what} was not compared: {pick.text} is {str(value)[:40]!r}, which is no number")
        return number

    def _check_type(self) -> None:
        expected = self._result.content_type
        if not expected:
            return
        given = self._headers.get("content-type")
        if given is None:
            self._missing("the content type was not compared: the answer has none")
            return
        bare = given.partition(";")[0].strip().lower()
        if not any(_is_type(bare, one.lower()) for one in expected):
            self._wrong.append(f"the content type is {bare[:80]!r}, not {' or '.join(expected)}")

    def _check_size(self) -> None:
        if self._size > self._result.max_size:
            self._wrong.append(f"the result has {self._size} bytes; the contract takes {self._result.max_size} at most")
        if self._result.size is None:
            return
        expected = self._number(self._result.size, "size")
        packed = self._packed and self._result.size.header in _OF_THE_WIRE
        size = self._wire if packed else self._size
        if expected is not None and expected != size:
            what = "packed result" if packed else "result"
            self._wrong.append(f"the {what} has {size} bytes; {self._result.size.text} says {expected}")

    def _expected_checksum(self) -> tuple[str, bytes] | None:
        pick = self._result.checksum
        if pick is None:
            return None
        value = self._value(pick, "checksum")
        if value is MISSING:
            return None
        found = read_digest(str(value), self._result.checksum_algorithm, listed=pick.header in _LISTS)
        if found is None:
            self._missing(f"the checksum was not compared: {pick.text} is {str(value)[:80]!r}, which cannot be read")
        return found

    def _check_checksum(self) -> bool:
        if self._digest is None or self._checksum is None:
            return False
        name, expected = self._checksum
        header = None if self._result.checksum is None else self._result.checksum.header
        found = [self._digest]
        if self._wire_digest is not None and header in _OF_THE_WIRE | _OF_EITHER:
            found = [self._wire_digest] if header in _OF_THE_WIRE else [self._wire_digest, self._digest]
        if expected in [digest.digest() for digest in found]:
            return False
        of = " of the packed result" if found[0] is self._wire_digest else ""
        self._wrong.append(f"the {name}{of} is {found[0].hexdigest()}, not {expected.hex()} as the answer says")
        return True

    def _check_count(self) -> None:
        if self._result.count is None:
            return
        expected = self._number(self._result.count, "count")
        if expected is None:
            return
        found = self._records.count
        if found is None:
            self._remarks.append("the count was not compared: the records of this result cannot be counted")
        elif found != expected:
            what = f"the result has {found} records; {self._result.count.text} says {expected}"
            (self._remarks if self._partial else self._wrong).append(what)


def may_be_empty(contract: Contract, document: Any | None, headers: Mapping[str, str]) -> bool:
    """Tell whether a result without a single byte is the whole of it, and not one that is still to come.

    The contract may say so (``empty``), or the provider: no records, no items, or no bytes, in the status answer or in
    a header of its own. That a length of 0 is announced says nothing: it is that of the answer.
    """
    result = contract.result or Result()
    told = [result.count, result.size, None if result.items is None else result.items.total]
    picks = [pick for pick in told if pick is not None and pick.header not in _OF_THE_WIRE]
    return result.empty or any(_whole(pick.of(document, headers)) == 0 for pick in picks)


@dataclass(frozen=True, slots=True)
class Whole:
    """The verdict over all files of a result. `why` says, where every item failed, what the reason was."""

    ok: bool
    problems: tuple[str, ...]
    items: ItemSummary | None = None
    all_failed: bool = False
    why: str = ""


def judge(
    contract: Contract,
    status_document: Any | None,
    verdicts: Mapping[str, Verdict],
    files: Sequence[Outcomes],
    *,
    partial: bool = False,
    without: Mapping[str, str] | None = None,
) -> Whole:
    """Put the verdicts over the files of one result together; "" names the result itself, `files` hold its items.

    What is wrong with the items makes the result invalid, but for a `partial` one, where it is a remark. So is what is
    wrong with an optional file; `without` says why which of them is not there at all.
    """
    wrong: list[str] = []
    remarks: list[str] = [f"{name} is not there: {why}" for name, why in (without or {}).items()]
    others = contract.result.also if contract.result is not None and "" in verdicts else ()
    optional = {also.name for also in others if also.optional}
    for name, verdict in verdicts.items():
        said = [f"{name}: {problem}" if name else problem for problem in verdict.problems]
        (remarks if verdict.ok or name in optional else wrong).extend(said)
    if not files:
        return Whole(not wrong, (*wrong, *remarks))
    outcomes = Outcomes.joined(files)
    (remarks if partial else wrong).extend((*outcomes.problems(), *_total(contract, status_document, outcomes)))
    remarks += outcomes.notes
    why = ""
    all_failed = outcomes.count > 0 and outcomes.failed == outcomes.count
    if all_failed:
        reason = outcomes.reason()
        why = f"all {outcomes.count} items failed" + (f", most of them so: {reason}" if reason else "")
    return Whole(not wrong, (*wrong, *remarks), outcomes.summary(), all_failed, why)


def _total(contract: Contract, document: Any, outcomes: Outcomes) -> list[str]:
    items = None if contract.result is None else contract.result.items
    if items is None or items.total is None:
        return []
    expected = _whole(items.total.of(document, {}))
    if expected is None or expected == outcomes.count:
        return []
    return [f"the result has {outcomes.count} items; {items.total.text} says {expected}"]


def _looks(result: Result) -> Iterator[Look]:
    if result.error_row_when is not None:
        yield ErrorRows(result.error_row_when)
    if result.schema is not None:
        yield Fits(result.schema, by_record=result.format != "json")


def _is_type(given: str, expected: str) -> bool:
    kind, _, _ = given.partition("/")
    return expected in (given, f"{kind}/*", "*/*")


def _whole(value: Any) -> int | None:
    """Read a size or count: a whole number, also where it is written as text or as 3.0."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,19}\s*", value, re.ASCII):
        return int(value)
    return None


def read_digest(value: str, algorithm: str | None, *, listed: bool = False) -> tuple[str, bytes] | None:
    """Return (algorithm, digest) of a checksum as it is written, or None where it cannot be read.

    `listed` values name their algorithms: Content-Digest and Repr-Digest (RFC 9530) and the older Digest (RFC 3230);
    the strongest that is known is taken, or `algorithm` where that is given. Other values are hex or base64, maybe in
    quotes or after ``sha256:``; without an algorithm, their length tells it.
    """
    if not listed:
        text = value.strip().strip('"')
        prefixed = _PREFIXED.fullmatch(text)
        if prefixed is not None:
            algorithm, text = _name(prefixed.group(1)), prefixed.group(2)
        return _decoded(text.strip(), algorithm)
    found: dict[str, str] = {}
    for item in value.split(","):
        match = _ITEM.fullmatch(item)
        if match is not None:
            found[_name(match.group(1))] = match.group(2)
    for name in _STRONGEST if algorithm is None else (algorithm,):
        if name in found:
            return _decoded(found[name], name)
    return None


def _name(written: str) -> str:
    name = written.lower().replace("-", "")
    return "sha1" if name == "sha" else name


def _decoded(text: str, algorithm: str | None) -> tuple[str, bytes] | None:
    names = tuple(_SIZES) if algorithm is None else (algorithm,)
    if re.fullmatch(r"[0-9A-Fa-f]+", text):
        for name in names:
            if len(text) == 2 * _SIZES.get(name, 0):
                return name, bytes.fromhex(text)
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    for name in names:
        if len(raw) == _SIZES.get(name):
            return name, raw
    return None
