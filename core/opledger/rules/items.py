"""The outcome of each item of a job, over all files of its result.

A record belongs to an item by its key and by nothing else: providers answer in any order, leave items out, answer
twice, and answer for items that nobody sent. Memory is bounded by what was sent, or by `MOST_KEYS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from opledger.errors import Refused
from opledger.rules import jsontext, plain
from opledger.rules.contract import Contract, Items
from opledger.rules.looks import Look
from opledger.rules.model import ItemSummary
from opledger.rules.values import MISSING, ConditionError

MOST_KEYS: Final = 250_000
"""Most keys that are kept to find repeated ones, where it is not known what was sent."""
MOST_REFS: Final = 100
"""Most failed items that are named in the record."""
MOST_NAMED: Final = 10
"""Most missing, extra or repeated keys that are named."""

_STRAYS: Final = {
    "extra": "items in the result that were never sent",
    "repeated": "items that stand in the result more than once",
    "nameless": "records without a key",
}
_KEY: Final = 200
_REASONS: Final = 50


def key_of(value: Any) -> str | None:
    """Return a key as text: a text as it is, a whole number by its digits. None for what can be no key."""
    if isinstance(value, str) and value:
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def sent_keys(contract: Contract, asked: Any) -> frozenset[str] | None:
    """Return the keys of the items in a body as it was asked for; None where the contract does not say where they are.

    A raw body holds an item on each line. Raises Refused for items without a key, or two with the same one: their
    outcomes could never be told apart.
    """
    items = None if contract.result is None else contract.result.items
    if items is None or items.sent is None:
        return None
    rows = _lines(asked) if isinstance(asked, str) else items.sent.of(asked, {})
    if not isinstance(rows, list):
        raise Refused(f"the body has no list of items at {items.sent.text or 'its root'}; nothing was written")
    pick = items.sent_id or items.id
    keys = [key_of(pick.of(row, {})) for row in rows]
    if None in keys:
        number = keys.index(None) + 1
        raise Refused(f"item {number} of the body has no key at {pick.text}; every item needs one of its own")
    found = tuple(key for key in keys if key is not None)
    if len(set(found)) < len(found):
        twice = [key for key, times in Counter(found).items() if times > 1]
        named = _named(twice[:MOST_NAMED], len(twice))
        raise Refused(f"items of the body have the same key: {named}; give each one of its own")
    return frozenset(found)


def _lines(text: str) -> list[Any] | None:
    try:
        return [jsontext.loads(line) for line in text.split("\n") if line.strip()]
    except jsontext.JsonError:
        return None


class Outcomes:
    """Joins the records of one file to the items of a job; `joined` puts those of several files together.

    `sent` are the keys that were sent, where they are known; `operation` is the record as conditions see it.
    """

    def __init__(self, items: Items, sent: frozenset[str] | None, operation: Mapping[str, Any] | None = None) -> None:
        self.items = items
        self.sent = sent
        self.operation = dict(operation or {})
        self._seen: set[str | bytes] = set()
        self._failed_refs: list[str] = []
        self._reasons: Counter[str] = Counter()
        self._strays: dict[str, _Strays] = {}
        self.name = "the result"
        self.count = 0
        self.failed = 0
        self.notes: list[str] = []

    @classmethod
    def joined(cls, files: Sequence[Outcomes]) -> Outcomes:
        """Return the outcomes over all files; there is at least one. An item that stands in two is there twice."""
        first = files[0]
        whole = cls(first.items, first.sent, first.operation)
        for number, file in enumerate(files):
            whole._add(file, files[:number])
        return whole

    def look(self, name: str = "", *, failed: bool = False) -> Look:
        """Return what is to look at the records; with `failed`, each of them is an item that failed."""
        self.name = name or "the result"
        return _Joining(self, name, failed=failed)

    def take(self, row: Any, number: int, name: str, *, failed: bool) -> None:
        """Take one record."""
        key = key_of(self.items.id.of(row, {}))
        if key is None:
            self._stray("nameless", f"record {number}{f' of {name}' if name else ''}")
        elif self.sent is not None and key not in self.sent:
            self._stray("extra", key)
        elif self._is_new(key):
            self.count += 1
            if failed or self._has_failed(row, number):
                self._fail(key, row)
        else:
            self._stray("repeated", key)

    def has(self, mark: str | bytes) -> bool:
        """Tell whether an item stands in here; `mark` is its key, or what stands for it."""
        return mark in self._seen

    def reason(self) -> str:
        """Why most of the failed items failed, in the provider's words; empty where it does not say."""
        return self._reasons.most_common(1)[0][0] if self._reasons else ""

    def summary(self) -> ItemSummary:
        """Return the counts, and the first of the failed items."""
        return ItemSummary(self.count, self.count - self.failed, self.failed, tuple(self._failed_refs))

    def problems(self) -> tuple[str, ...]:
        """Say what keeps the outcomes from being trusted."""
        found: list[str] = []
        if self.sent is not None and len(self._seen) < len(self.sent):
            missing = sorted(self.sent - self._seen)
            found.append(f"items missing from the result: {_named(missing[:MOST_NAMED], len(missing))}")
        for kind, said in _STRAYS.items():
            if kind in self._strays:
                strays = self._strays[kind]
                found.append(f"{said}: {_named(strays.names, strays.count)}")
        return tuple(found)

    def _add(self, file: Outcomes, before: Sequence[Outcomes]) -> None:
        twice = self._seen & file._seen
        for key in sorted(twice, key=str):
            other = next(one.name for one in before if one.has(key))
            both = f"in {other} and in {file.name}"
            self._stray(
                "repeated", f"{key[: _KEY // 2]} ({both})" if isinstance(key, str) else f"an item that is {both}"
            )
        self._seen |= file._seen
        self.count += file.count - len(twice)
        self.failed += file.failed
        self._failed_refs = [*self._failed_refs, *file._failed_refs][:MOST_REFS]
        self._reasons += file._reasons
        for kind, strays in file._strays.items():
            self._strays.setdefault(kind, _Strays()).add(strays)
        self.notes += [note for note in file.notes if note not in self.notes]

    def _is_new(self, key: str) -> bool:
        # A key that was sent is in memory already; of others only a digest is kept.
        mark = key if self.sent is not None else blake2b(key.encode("utf-8", "surrogatepass"), digest_size=12).digest()
        if mark in self._seen:
            return False
        if self.sent is not None or len(self._seen) < MOST_KEYS:
            self._seen.add(mark)
        elif not any("repeated" in note for note in self.notes):
            self.notes.append(f"repeated items were looked for among the first {MOST_KEYS} only")
        return True

    def _has_failed(self, row: Any, number: int) -> bool:
        when = self.items.failed_when
        if when is None:
            return False
        try:
            return when.holds({"item": row, "operation": self.operation})
        except ConditionError:
            if not any("could not be tried" in note for note in self.notes):
                self.notes.append(f"item {number} (and maybe others) could not be tried against {when.text}")
            return False

    def _fail(self, key: str, row: Any) -> None:
        self.failed += 1
        if len(self._failed_refs) < MOST_REFS:
            self._failed_refs.append(key[:_KEY])
        reason = MISSING if self.items.reason is None else self.items.reason.of(row, {})
        text = reason if isinstance(reason, str) else "" if reason in (MISSING, None) else jsontext.dumps_text(reason)
        if text and (text[:_KEY] in self._reasons or len(self._reasons) < _REASONS):
            self._reasons[text[:_KEY]] += 1

    def _stray(self, kind: str, key: str) -> None:
        self._strays.setdefault(kind, _Strays()).add(_Strays([key[:_KEY]], 1))


@dataclass(slots=True)
class _Strays:
    """Keys that do not fit: how many, and the first of them."""

    names: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, other: _Strays) -> None:
        self.count += other.count
        if len(self.names) < MOST_NAMED:
            self.names = list(dict.fromkeys((*self.names, *other.names)))[:MOST_NAMED]


class _Joining(Look):
    needed = True

    def __init__(self, outcomes: Outcomes, name: str, *, failed: bool) -> None:
        super().__init__()
        self._outcomes, self._name, self._failed = outcomes, name, failed

    def row(self, row: Any, number: int) -> None:
        self._outcomes.take(row, number, self._name, failed=self._failed)


def _named(names: list[str], count: int) -> str:
    shown = ", ".join(plain.clean(name, limit=_KEY) for name in names)
    return shown if count <= len(names) else f"{shown} and {count - len(names)} more"
