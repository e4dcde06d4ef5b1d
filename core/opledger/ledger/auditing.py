"""Looking at slices of the ledger, here or in processes beside: what one operation's rows, leaves and record say."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from opledger.rules import audit, tree
from opledger.rules import evidence as e
from opledger.rules.audit import Check, Leaf, Raw, Scanner
from opledger.rules.files.contract import digest_of
from opledger.rules.fingerprint import fingerprint
from opledger.rules.folding import Folder
from opledger.rules.journal import Finding
from opledger.rules.model import Operation
from opledger.rules.projection import Entry
from opledger.rules.requests import headers_digest
from opledger.rules.tombstones import Tombstone
from opledger.store import auditing, rows
from opledger.store.auditing import Slice
from opledger.store.engine import Database

Leaves = Mapping[str, Sequence[Leaf]]

_LEASE: Final = frozenset({"lease_owner", "lease_expires_at", "lease_epoch"})
_JSON: Final = frozenset({"facts", "tags"})
_BY_ID: Final = itemgetter(0)
_HEAD_SEQ: Final = rows.COLUMNS.index("head_seq")
_HEAD_HASH: Final = rows.COLUMNS.index("head_hash")


@dataclass(slots=True)
class Part:
    """What a look at some operations has come to."""

    operations: int = 0
    events: int = 0
    archived: int = 0
    tail: int = 0  #: events that no checkpoint has seen yet
    loose: int = 0  #: operations that have such events
    findings: list[Finding] = field(default_factory=list)
    answers: dict[str, tuple[str, int]] = field(default_factory=dict)  #: hash -> the first event that cites it
    contracts: dict[str, str] = field(default_factory=dict)  #: digest -> an operation that is pinned to it

    def add(self, other: Part) -> None:
        """Add another part to this one."""
        self.operations += other.operations
        self.events += other.events
        self.archived += other.archived
        self.tail += other.tail
        self.loose += other.loose
        self.findings += other.findings
        self.contracts = {**other.contracts, **self.contracts}


def look(
    found: Slice,
    leaves: Leaves,
    checks: Sequence[Check] = (),
    *,
    records: bool = True,
    seen: Mapping[str, int] | None = None,
) -> Part:
    """Look at everything of some operations. `leaves` has theirs, of each in the order of the tree.

    `seen` says up to which event earlier leaves go, where those are not looked at; it only counts what came after.
    With `records=False` chains and leaves are looked at, and records are not computed again from their journals.
    """
    part, scanner, folder = Part(), Scanner(), Folder()
    kept = {row[0]: row for row in found.operations}
    requests = {row[0]: row for row in found.requests}
    stones = {row[0]: Tombstone(*row) for row in found.tombstones}
    chains = {name: list(chain) for name, chain in groupby(found.events, _BY_ID)}
    names = kept.keys() | chains.keys() | stones.keys() | leaves.keys()
    for name in sorted(names, key=lambda name: (not isinstance(name, str), str(name))):
        one = _One(name, chains.get(name, []), kept.get(name), leaves.get(name, ()), stones.get(name))
        part.operations += one.record is not None or bool(one.chain)
        part.events += len(one.chain)
        part.archived += one.stone is not None
        before = len(part.findings)
        part.findings += one.look(scanner)
        if one.chain:
            tail = one.tail((seen or {}).get(name, 0))
            part.tail += tail
            part.loose += tail > 0
        if records and before == len(part.findings) and one.chain and one.record is not None:
            again = folder.fold(one.chain, scanner.said)
            try:
                part.findings += _compared(part, name, again, one.record, requests.get(name), checks)
            except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
                words = f"its journal holds a value that no event has: {error}"
                part.findings.append(Finding("PROJECTION", name, one.chain[-1][1], words))
    part.findings = [one if _is_fit(one) else _fit(one) for one in part.findings]
    return part


def _is_fit(one: Finding) -> bool:
    named: tuple[Any, Any] = (one.operation_id, one.seq)
    return isinstance(named[0], str | None) and isinstance(named[1], int | None)


def _fit(one: Finding) -> Finding:
    """SQLite keeps whatever is put into a column; a name that is none names nothing."""
    name: Any = one.operation_id
    seq: Any = one.seq
    words = f"{one.message} (it stands under {name!r:.100}, {seq!r:.100})"
    return Finding(one.kind, name if isinstance(name, str) else None, seq if isinstance(seq, int) else None, words)


@dataclass(slots=True)
class _One:
    """All that there is of one operation."""

    name: Any
    chain: list[Raw]
    record: Raw | None
    leaves: Sequence[Leaf]
    stone: Tombstone | None

    def look(self, scanner: Scanner) -> list[Finding]:
        """What is wrong with it, but for what its record should be."""
        found = self._archived() if self.stone is not None else []
        if not self.chain:
            return found or ([] if self.stone is not None else [self._missing()])
        wrong = audit.chain(scanner, self.name, self.chain)
        found += wrong
        if self.record is None:
            words = "its journal is there, and its record is gone"
            found.append(Finding("MISSING_OP", self.name, None, words))
        if not wrong or all(isinstance(row[1], int) for row in self.chain):
            if self.leaves:
                found += audit.against_leaves(self.name, self.chain, self.leaves, intact=not wrong)
            found += self._head()
        return found

    def tail(self, before: int) -> int:
        """How many events stand behind the newest leaf."""
        last = self.chain[-1][1]
        seen = [leaf.seq for leaf in self.leaves if leaf.kind == tree.HEAD and type(leaf.seq) is int]
        return max(last - max([before, *seen]), 0) if type(last) is int else 0

    def _missing(self) -> Finding:
        if self.record is not None:
            words = "its record is there, and its whole journal is gone"
        else:
            leaf = self.leaves[-1]
            words = f"a checkpoint has seen event {leaf.seq} of it (leaf {leaf.number}), and now it is gone"
        return Finding("MISSING_OP", self.name, None, words)

    def _head(self) -> list[Finding]:
        """The record must name the last event."""
        if self.record is None:
            return []
        last = self.chain[-1]  # they come in order of seq
        seq, digest = self.record[_HEAD_SEQ], self.record[_HEAD_HASH]
        if (seq, digest) == (last[1], last[12]):
            return []
        words = f"the record names event {seq} as its last, and the journal ends at event {last[1]}"
        if seq == last[1]:
            words = f"the record names another hash for its last event, {seq}"
        return [Finding("PROJECTION", self.name, last[1], words)]

    def _archived(self) -> list[Finding]:
        stone = self.stone
        assert stone is not None
        if self.chain or self.record is not None:
            words = "its tombstone says that it was archived, and yet it stands here"
            return [Finding("MOVED", self.name, None, words)]
        heads = [leaf for leaf in self.leaves if leaf.kind == tree.HEAD]
        if not self.leaves:
            return []
        found: list[Finding] = []
        newest = heads[-1] if heads else None
        if newest is not None and type(stone.seq) is int and newest.seq > stone.seq:
            words = f"its tombstone says event {stone.seq}, and a checkpoint has seen event {newest.seq}"
            found.append(Finding("BEHIND_CHECKPOINT", self.name, newest.seq, words))
        elif newest is not None and (newest.seq, newest.hash) != (stone.seq, stone.head_hash):
            words = f"its tombstone names another last event than a checkpoint saw (leaf {newest.number})"
            found.append(Finding("REWRITTEN", self.name, newest.seq, words))
        for leaf in self.leaves:
            if leaf.kind == tree.TOMBSTONE and (leaf.seq, leaf.hash) != (stone.seq, _digest(stone)):
                words = f"its tombstone is not the one that a checkpoint saw (leaf {leaf.number})"
                found.append(Finding("REWRITTEN", self.name, leaf.seq, words))
        return found


def _digest(stone: Tombstone) -> bytes | None:
    try:
        return stone.digest()
    except (TypeError, ValueError):
        return None


def _compared(
    part: Part,
    name: str,
    again: tuple[Operation, list[Entry]] | Finding,
    record: Raw,
    request: Raw | None,
    checks: Sequence[Check],
) -> list[Finding]:
    """Compare a record and a request with what the journal says; PROJECTION where they differ.

    Notes in `part` which answers and which contract it rests on.
    """
    if isinstance(again, Finding):
        return [again]
    operation, entries = again
    for entry in entries:
        if (answer := getattr(entry.evidence, "answer", None)) is not None:
            part.answers.setdefault(answer, (name, entry.seq))
    part.contracts.setdefault(operation.contract_digest, name)
    found = [one for check in checks for one in check(name, entries)]
    wrong = _differing(record, operation)
    if wrong:
        words = f"the record is not what its journal says: {', '.join(wrong)}"
        found.append(Finding("PROJECTION", name, operation.head_seq, words))
    submitted = entries[0].evidence
    if isinstance(submitted, e.Submitted) and (why := _request(request, submitted)):
        found.append(Finding("PROJECTION", name, 1, why))
    return found


def _differing(record: Raw, again: Operation) -> list[str]:
    """The columns that are not what they would be, had they been written from the journal now."""
    try:
        must = rows.new_row(again)
    except ValueError:
        return ["all of it"]
    return [
        column
        for column, value, right in zip(rows.COLUMNS, record, must, strict=True)
        if value != right and column not in _LEASE and not (column in _JSON and _same_json(value, right))
    ]


def _same_json(one: Any, other: Any) -> bool:
    """The order of keys is no news: events have them sorted. A key that stands twice is, and so is a space."""
    try:
        return len(one) == len(other) and _in_order(one) == _in_order(other)
    except (TypeError, ValueError):
        return False


def _in_order(text: str) -> Any:
    return json.loads(text, object_pairs_hook=lambda pairs: ("object", sorted(pairs, key=itemgetter(0))))


def _request(row: Raw | None, submitted: e.Submitted) -> str | None:
    """Say how the stored request, which is what is sent, differs from what was submitted."""
    if row is None:
        return "the stored request is gone"
    wrong = [
        what
        for what, value, right in (
            ("method", row[1], submitted.method),
            ("url", row[2], submitted.url),
            ("body", audit.sha256_of(row[5]), submitted.body_sha256),
            ("headers", headers_sha256(row), submitted.headers_sha256),
        )
        if value != right and right is not None
    ]
    if not wrong and _fingerprint(row, submitted.contract) != submitted.fingerprint:
        wrong = ["what it was asked by, of which the fingerprint is made"]
    return f"the stored request is not the one that was submitted: {', '.join(wrong)}" if wrong else None


def headers_sha256(row: Raw) -> str | None:
    """Make the digest over the headers of a stored request. None where what stands there is none of ours."""
    try:
        return headers_digest(json.loads(row[3]), row[4])
    except (TypeError, ValueError, AttributeError):
        return None


def _fingerprint(row: Raw, contract: str) -> str | None:
    """Make the fingerprint again, as before every send. None where something stands there that no request has."""
    _, method, url, _, _, body, asked, template = row
    try:
        by = (body if asked is None else asked) or None
        return fingerprint(contract, method, url if template is None else template, by)
    except (TypeError, ValueError, AttributeError):
        return None


# --- what the journal cites by its hash ---------------------------------------------------------------------------


def cited(database: Database, part: Part) -> Part:
    """Look at the answers that a part rests on, too: PROJECTION for one that is gone, or is not what was received.

    Answers are never deleted, so one that an event cites is there whenever it is looked for.
    """
    for names in in_pieces([name for name in part.answers if _is_digest(name)], auditing.AT_ONCE):
        found = auditing.answers(database, [bytes.fromhex(name) for name in names])
        kept = {bytes(row[0]).hex(): audit.sha256_of(row[1]) for row in found}
        for name in names:
            if kept.get(name) != name:
                words = f"the answer that it cites, {name}, is gone"
                if name in kept:
                    words = f"the answer that it cites is not the one that came: its body does not hash to {name}"
                part.findings.append(Finding("PROJECTION", *part.answers[name], words))
    part.answers = {}
    return part


def _is_digest(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")


def pinned(database: Database, contracts: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the contracts that operations are pinned to: PROJECTION for one that is gone or has another text."""
    kept = {row[0]: _digest_of(row) for row in auditing.contracts(database)}
    for digest, name in contracts.items():
        if kept.get(digest) != digest:
            words = f"the contract that it is pinned to, {digest}, is gone"
            if digest in kept:
                words = f"the contract that it is pinned to has another name or text than when it was pinned: {digest}"
            yield Finding("PROJECTION", name, 1, words)


def _digest_of(row: Raw) -> str | None:
    _, name, source, environment = row
    try:
        named = tomllib.loads(source).get("name")
        return digest_of(source, json.loads(environment)) if named == name else None
    except (TypeError, ValueError, AttributeError):
        return None


# --- cut into slices ----------------------------------------------------------------------------------------------


def of_range(leaves: Leaves, names: Sequence[str], after: str, upto: str | None, at: int) -> tuple[Leaves, int]:
    """The leaves of the operations behind one id and up to another, out of sorted `names` from place `at` on."""
    found = {}
    while at < len(names) and (upto is None or names[at] <= upto):
        if names[at] > after:
            found[names[at]] = leaves[names[at]]
        at += 1
    return found, at


def in_pieces(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Cut a list into pieces."""
    for at in range(0, len(ids), size):
        yield ids[at : at + size]
