"""Folding a whole chain into the record that must stand beside it, and fast: verifying makes every record again.

`projection` says what an event changes; here is only how not to do the same work twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.errors import IllegalTransition
from opledger.rules import jsontext
from opledger.rules.audit import Raw, Said
from opledger.rules.evidence import Evidence, Observed, Submitted, from_data
from opledger.rules.journal import Finding, actor_of, plan_of, read_body
from opledger.rules.model import EPOCH, Action, Actor, Operation
from opledger.rules.projection import Changes, Entry, changes_by, project

_FIELDS: Final = tuple(field.name for field in fields(Operation))
_CALL: Final = "call:"
_KEPT: Final = 4096


_OF_A_POLL: Final = frozenset(
    {"attempts", "observed_at", "remote_state", "remote_means", "failures", "backoff", "progress", "remote_refs"}
)
"""What a status read changes that brings no news: the same word again only counts on."""

_COUNTED: Final = frozenset({"attempts", "observed_at", "backoff"})
"""What every status read changes of an operation that has not ended."""


def _counts_on(entry: Entry, changes: Changes) -> bool:
    """Whether the same word once more would change nothing but what `_heard_again` changes.

    `entry` is one that was folded, and `changes` what it changed.
    """
    return type(entry.evidence) is Observed and changes.keys() <= _OF_A_POLL and changes.keys() >= _COUNTED


def _heard_again(before: Operation, times: int, at: datetime) -> Changes:
    """Return what changes when the word that was folded last is heard again so many times, the last time at `at`.

    Only behind an entry for which `_counts_on` is true, and only for the very same evidence but for its call. To fold
    it again, word by word, gives the same: a long wait is thousands of equal words.
    """
    attempts = before.attempts.plus(Action.OBSERVE, times)
    return {"attempts": attempts, "observed_at": at, "backoff": before.backoff + times}


class _Draft:
    """A record that is changed in place, event after event: to make a new one each time takes longer than all else.

    It has what anybody asks of an `Operation`; who folds asks for no plan, version or head.
    """

    def __init__(self, operation: Operation) -> None:
        self.__dict__.update({name: getattr(operation, name) for name in _FIELDS})

    sent = Operation.sent


class Folder:
    """Folds chains. Keeps what neighbouring events share; not for two threads at once."""

    def __init__(self) -> None:
        self._actors: dict[str, Actor] = {}
        self._words: dict[tuple[str, str], Observed] = {}

    def fold(self, rows: Sequence[Raw], said: Sequence[Said] = ()) -> tuple[Operation, list[Entry]] | Finding:
        """Fold a chain into the record that it must have beside it; PROJECTION where that cannot have happened.

        Returned with it are its entries, but for words that were only heard once more.

        `said` is what `Scanner` has found in each of these events: then their columns are known to be what the bytes
        say, and need not be read out of them again. Without it the bytes are read, of every event.
        """
        again: Any = None
        entries: list[Entry] = []
        waits: Evidence | None = None  #: the word that was folded last, if its like only count on
        times, at = 0, 0
        for index, row in enumerate(rows):
            try:
                if said:
                    # While a call is open, it matters whether a word is its answer.
                    closed = again is None or again.open_call is None
                    evidence = self._evidence(row[4], row[7], said[index][1], may_share=closed)
                    if evidence is waits:
                        times, at = times + 1, row[2]
                        continue
                    entry = self._entry(row, said[index][0], evidence)
                else:
                    entry = read_body(row[10]).entry
                if times:
                    again.__dict__.update(_heard_again(again, times, _moment(at)))
                    times = 0
                entries.append(entry)
                waits = None
                if again is None or isinstance(entry.evidence, Submitted):
                    again = _Draft(project(again, entry))
                    continue
                changes = changes_by(again, entry)
                again.__dict__.update(changes)
                if said and _counts_on(entry, changes):
                    waits = entry.evidence
            except (ValueError, KeyError, TypeError, AttributeError, IllegalTransition) as error:
                return _impossible(row, error)
        if times:
            again.__dict__.update(_heard_again(again, times, _moment(at)))
        assert again is not None, "a chain has at least one event"
        last = rows[-1]
        try:
            plan = plan_of(jsontext.loads(said[-1][2])) if said else read_body(last[10]).plan
        except (ValueError, KeyError, TypeError) as error:
            return _impossible(last, error)
        again.__dict__.update(next=plan, version=last[1], head_seq=last[1], head_hash=last[12].hex())
        return again, entries

    def _entry(self, row: Raw, start: str, evidence: Evidence) -> Entry:
        """Make an entry out of columns that were compared with the bytes, and of what has no column."""
        actor = self._actors.get(start) or self._actor(start)
        return Entry(row[0], row[1], _moment(row[2]), actor, evidence, row[7], row[8])

    def _actor(self, start: str) -> Actor:
        if len(self._actors) > _KEPT:
            self._actors.clear()
        found = self._actors[start] = actor_of(start)
        return found

    def _evidence(self, kind: str, cause: str, data: str, *, may_share: bool) -> Evidence:
        """Read evidence. The same word in the answer to another call is the same object: it differs by its call only.

        Nothing that is folded asks for the call of a status read, but while a call is open.
        """
        if not may_share or kind != "Observed" or not cause.startswith(_CALL):
            return from_data(kind, jsontext.loads(data))
        before, call, after = data.partition(f'"call_id":"{cause[len(_CALL) :]}",')
        known = self._words.get((before, after)) if call else None
        if known is not None:
            return known
        evidence = from_data(kind, jsontext.loads(data))
        if call and isinstance(evidence, Observed) and evidence.call_id == cause[len(_CALL) :]:
            if len(self._words) > _KEPT:
                self._words.clear()
            self._words[before, after] = evidence
        return evidence


def _moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def _impossible(row: Raw, error: Exception) -> Finding:
    return Finding("PROJECTION", row[0], row[1], f"event {row[1]} cannot follow what stands before it: {error}")
