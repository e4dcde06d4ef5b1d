"""Where the rows of a filter can be read from: ranges of indexes, found from the terms of the filter.

The indexes exist for other reasons, or are over columns that never change: no poll pays for what people look at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from sqlalchemy import BigInteger, ClauseElement, Column, ColumnElement, bindparam, func, select

from opledger.rules.filters import Key, Term, Wanted
from opledger.rules.model import TERMINAL, State
from opledger.store.conditions import SPAN, Binds, Conditions
from opledger.store.encoding import storable
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import OPERATION
from opledger.store.values import Sort

o: Final = OPERATION.c

MANY: Final = 200
"""More contracts or codes than this are not merged; SQLite joins at most 500 selects."""

Condition = ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class Source:
    """Ranges of an index. Together they hold every row for which the terms in `covers` hold, and no row twice."""

    branches: tuple[tuple[Condition, ...], ...]
    covers: frozenset[Term]
    order: Column[Any] | None = None  #: the order in which each branch comes
    states: tuple[str, ...] = ()  #: where each branch is one state: which, in order


def contract_names(_: Tongue) -> ClauseElement:
    """The contracts of all operations."""
    return _jumping(o.contract)


def attention_codes(_: Tongue) -> ClauseElement:
    """The attention codes that there are."""
    return _jumping(o.attention_code)


def _jumping(column: Column[Any]) -> ClauseElement:
    """All values of a column, found by jumping through its index."""
    names = select(func.min(column).label("name")).where(column.is_not(None)).cte("names", recursive=True)
    other = OPERATION.alias("other").c[column.name]
    following = select(func.min(other)).where(other > names.c.name).scalar_subquery()
    names = names.union_all(select(following).where(names.c.name.is_not(None)))
    return select(names.c.name).where(names.c.name.is_not(None)).limit(bindparam("most", type_=BigInteger))


class Sources:
    """The sources for one filter."""

    def __init__(self, tx: Tx, wanted: Wanted, say: Conditions, binds: Binds) -> None:
        self._tx = tx
        self._terms = wanted.terms
        self._say = say
        self._binds = binds

    def left(self, source: Source) -> frozenset[Term]:
        """The terms that are still to be asked of each row of a source."""
        return frozenset(self._terms) - source.covers

    def _of(self, *keys: Key) -> frozenset[Term]:
        return frozenset(term for term in self._terms if term.key in keys)

    @cached_property
    def impossible(self) -> bool:
        """Whether the filter contradicts itself, or asks for a text that no row can hold."""
        return not self._states or any(
            not term.negated and term.values and not any(map(storable, term.values)) for term in self._terms
        )

    def empty(self, sort: Sort) -> bool:
        """Whether a sort certainly shows nothing: what has ended has no deadline."""
        return self.impossible or (sort is Sort.DEADLINE and TERMINAL.issuperset(map(State, self._states)))

    @cached_property
    def _states(self) -> list[str]:
        allowed = frozenset(State).intersection(*(term.states() for term in self._terms))
        return sorted(state.value for state in allowed)

    def _chosen(self, key: Key, known: Iterable[str] | None = None) -> list[str] | None:
        """The values that the terms of a key leave; None where they leave more than is known."""
        allowed = None if known is None else set(known)
        for term in self._of(key):
            if not term.negated:
                allowed = set(term.values) if allowed is None else allowed & set(term.values)
        if allowed is None:
            return None
        for term in self._of(key):
            if term.negated:
                allowed -= set(term.values)
        return sorted(filter(storable, allowed))

    @cached_property
    def _contracts(self) -> list[str] | None:
        """The contracts that are wanted; None where they are too many to be merged."""
        found = self._chosen(Key.CONTRACT)
        if found is None:
            found = self._chosen(Key.CONTRACT, self._names(contract_names))
        return found if found is not None and len(found) <= MANY else None

    def _names(self, of: Recipe) -> list[str]:
        return [row[0] for row in self._tx.all(of, most=MANY + 1)]

    def natural(self, sort: Sort) -> Source | None:
        """A source that has the order of a sort, and the most of its filter."""
        if sort in {Sort.DEADLINE, Sort.NEXT}:
            return self._timed(Key.DEADLINE if sort is Sort.DEADLINE else Key.DUE)
        if sort is Sort.STATE:
            return self._by_state
        sources = [source for source in self.all if source.order is o.created_at]
        return next((source for source in sources if not self.left(source)), None)

    @cached_property
    def _ages(self) -> tuple[tuple[Condition, ...], frozenset[Term]]:
        terms = self._of(Key.AGE)
        conditions = []
        for term in terms:
            within = self._say.in_span(term, o.created_at)
            conditions.append(~within if term.negated else within)
        return tuple(conditions), terms

    def _created(self, branches: Iterable[Condition | None], covers: frozenset[Term], **more: Any) -> Source:
        """A source whose branches come by `created_at`, as far as the terms about age let them."""
        ages, covered = self._ages
        parts = tuple(ages if branch is None else (branch, *ages) for branch in branches)
        return Source(parts, covers | covered, o.created_at, **more)

    def _equal(self, column: Column[Any], values: Iterable[str]) -> list[Condition | None]:
        return [column == self._binds.text(value) for value in values]

    @cached_property
    def _by_state(self) -> Source:
        return self._created(self._equal(o.state, self._states), self._of(Key.STATE), states=tuple(self._states))

    def _timed(self, key: Key) -> Source | None:
        """The operations with a next action or a deadline, by that moment."""
        if self._contracts is None:
            return None
        column = SPAN[key]
        terms = frozenset(term for term in self._of(key) if not term.negated)
        spans = [self._say.in_span(term, column) for term in terms]
        contracts = self._equal(o.contract, self._contracts)
        branches = [(contract, column.is_not(None), *spans) for contract in contracts if contract is not None]
        if key is Key.DUE:
            branches = [(*branch, o.lease_owner.is_(None)) for branch in branches]
            of_contract = [self._say.among(self._say.quiet(o.contract), self._contracts)]
            held = (o.lease_owner.is_not(None), o.lease_expires_at >= 0, self._say.quiet(column).is_not(None))
            branches.append((*held, *spans, *(of_contract if self._of(Key.CONTRACT) else [])))
        return Source(tuple(branches), terms | self._of(Key.CONTRACT), column)

    @cached_property
    def all(self) -> list[Source]:
        """Every source that helps with this filter; that of all operations is the last."""
        found = []
        if self._of(Key.STATE):
            found.append(self._by_state)
        coded = self._coded()
        if coded is not None:
            found.append(coded)
        by = self._chosen(Key.BY)
        if by is not None:
            found.append(self._created(self._equal(o.requested_by, by), self._of(Key.BY)))
        if self._of(Key.CONTRACT) and self._contracts is not None:
            found.append(self._created(self._equal(o.contract, self._contracts), self._of(Key.CONTRACT)))
        for key in (Key.DUE, Key.DEADLINE):
            timed = self._timed(key) if any(not term.negated for term in self._of(key)) else None
            if timed is not None:
                found.append(timed)
        found += [source for term in self._terms if not term.negated for source in self._pointed(term)]
        return [*found, self._created([None], frozenset())]

    def _coded(self) -> Source | None:
        needs = self._of(Key.NEEDS)
        only_me = [term for term in needs if set(term.values) == ({"nobody"} if term.negated else {"me"})]
        codes = self._chosen(Key.CODE)
        if codes is None and only_me:
            codes = self._chosen(Key.CODE, self._names(attention_codes))
        if codes is None or len(codes) > MANY:
            return None
        return self._created(self._equal(o.attention_code, codes), self._of(Key.CODE) | frozenset(only_me))

    def _pointed(self, term: Term) -> list[Source]:
        """Sources for terms that mean few operations, in no order."""
        values = [value for value in term.values if storable(value)]
        column = {Key.TASK: o.task, Key.JOB: o.remote_job_id, Key.TRACE: o.trace_id}.get(term.key)
        if term.key is Key.TEXT:
            alternatives = self._say.alternatives(values[0])
        elif term.key is Key.TASK:
            alternatives = [o.task == self._binds.text(value) for value in values]
        elif column is not None:
            alternatives = [self._say.begins(column, value) for value in values]
        else:
            return []
        said = self._say
        apart = [
            (one, *(said.fails(other) for other in alternatives[:number])) for number, one in enumerate(alternatives)
        ]
        return [Source(tuple(apart), frozenset([term]))]
