"""A filter and a sort -> the ids of one window, out of a million operations, in a time that nobody feels.

Rows are read through a *source*: one or several ranges of an index (one for each state, contract …) that are merged.
Where a source answers the whole filter and has the order that is wanted, the window is read from it, and nothing else.
Otherwise the rows of one source are looked through for what is left of the filter:

- all of them, where a source holds few (`DRIVEN`);
- for sorts by deadline or next action, the next few in that order (`AHEAD`), which is enough where most rows fit;
- else the newest: the newest `SEARCHED` of all operations or the newest `DRIVEN` of a source, whichever reaches
  further back. The window then says how far that is.

Pages go by key, in both directions; nothing is ever counted off. Sources use indexes that exist for other reasons,
or over columns that never change: no poll pays for what people look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    Column,
    ColumnElement,
    Select,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    union_all,
)

from opledger.rules.filters import Key, Term, Wanted
from opledger.rules.model import Operation, State
from opledger.store import encoding
from opledger.store.conditions import SPAN, Binds, Conditions
from opledger.store.encoding import storable
from opledger.store.rows import deadline_of
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import OPERATION
from opledger.store.values import Place, Sort

o: Final = OPERATION.c

SEARCHED: Final = 100_000
"""How many of the newest operations are looked through for what no index knows."""

DRIVEN: Final = 10_000
"""How many rows of a source are looked through; they lie scattered, so that each costs more than in the order made."""

AHEAD: Final = 3_000
"""How many of the next deadlines or actions are looked through before the search goes by age."""

MANY: Final = 200
"""More contracts or codes than this are not merged; SQLite joins at most 500 selects."""

Condition = ColumnElement[bool]


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


_ORDERS: Final[dict[Sort, tuple[tuple[Column[Any], bool], ...]]] = {
    Sort.NEWEST: ((o.created_at, True), (o.operation_id, True)),
    Sort.OLDEST: ((o.created_at, False), (o.operation_id, False)),
    Sort.DEADLINE: ((o.deadline_at, False), (o.operation_id, False)),
    Sort.NEXT: ((o.next_action_at, False), (o.operation_id, False)),
    Sort.STATE: ((o.state, False), (o.created_at, True), (o.operation_id, True)),
}
"""The columns of each sort, and whether the largest comes first."""


def place_of(op: Operation, sort: Sort) -> Place | None:
    """Where an operation stands in a sort; None where the sort leaves it out."""
    if sort in {Sort.DEADLINE, Sort.NEXT}:
        planned = None if op.next is None else op.next.at
        at = deadline_of(op) if sort is Sort.DEADLINE else planned
        return None if at is None else (encoding.to_micros(at), op.operation_id)
    created = encoding.to_micros(op.created_at)
    return (op.state.value, created, op.operation_id) if sort is Sort.STATE else (created, op.operation_id)


@dataclass(frozen=True, slots=True)
class Source:
    """Ranges of an index. Together they hold every row for which the terms in `covers` hold, and no row twice."""

    branches: tuple[tuple[Condition, ...], ...]
    covers: frozenset[Term]
    order: Column[Any] | None = None  #: the order in which each branch comes
    states: tuple[str, ...] = ()  #: where each branch is one state: which, in order


@dataclass(frozen=True, slots=True)
class Reach:
    """A source, and which of its rows are looked at."""

    source: Source
    since: int | None = None  #: only what was made at this time or later; None: all


class Search:
    """One filter at one moment, in one transaction."""

    def __init__(self, tx: Tx, wanted: Wanted, now: datetime) -> None:
        self._tx = tx
        self._terms = wanted.terms
        self._binds = Binds()
        self._say = Conditions(tx.tongue, now, self._binds)

    # --- asked from outside -------------------------------------------------------------------------------------

    def ids(
        self, sort: Sort, *, start: Place | None = None, backwards: bool = False, most: int
    ) -> tuple[list[str], int | None]:
        """Up to `most` ids from `start` on, away from it, and since when was searched (None: all of it)."""
        if self._impossible:
            return [], None
        natural = self._natural(sort)
        if natural is not None and self._left(natural) == frozenset():
            return self._page(Reach(natural), sort, start, most, backwards=backwards), None
        if natural is not None and sort in {Sort.DEADLINE, Sort.NEXT}:
            ahead = self._ahead(natural, sort, start, most, backwards=backwards)
            if ahead is not None:
                return ahead, None
        reach = self._reach
        return self._page(reach, sort, start, most, backwards=backwards), reach.since

    def count(self, most: int) -> int:
        """How many operations fit, of those that are looked at; at most `most`."""
        if self._impossible:
            return 0
        whole = next((source for source in self._sources if not self._left(source)), None)
        reach = self._reach if whole is None else Reach(whole)
        total = 0
        for branch in reach.source.branches:
            total += self._count((*branch, *self._rest(reach)), most)
            if total >= most:
                return most
        return total

    # --- statements ---------------------------------------------------------------------------------------------

    def _all(self, statement: Select[Any]) -> list[Any]:
        prepared = self._tx.tongue.compile(statement)
        self._tx.cursor.execute(prepared.text, prepared.values(self._binds.values))
        return self._tx.cursor.fetchall()

    def _rest(self, reach: Reach) -> list[Condition]:
        """What is still to be asked of each row of a source."""
        rest = [self._say.holds(term) for term in self._terms if term not in reach.source.covers]
        if reach.since is not None:
            rest.insert(0, o.created_at >= self._binds.number(reach.since))
        return rest

    def _page(
        self,
        reach: Reach,
        sort: Sort,
        start: Place | None,
        most: int,
        *,
        backwards: bool,
        also: Sequence[Condition] = (),
    ) -> list[str]:
        order = [(column, down is not backwards) for column, down in _ORDERS[sort]]
        source = reach.source
        stepwise = sort is Sort.STATE and source.states != ()
        loud = stepwise or source.order is order[0][0]
        keys = [(column if loud else self._say.quiet(column), down) for column, down in order]
        rest = [*self._rest(reach), *also]
        if sort in {Sort.DEADLINE, Sort.NEXT}:
            rest.append(keys[0][0].is_not(None))
        branches: Sequence[tuple[Condition, ...]] = source.branches
        if start is not None and stepwise:
            branches = self._from_state(source, keys, start)
        elif start is not None:
            rest.append(self._beyond(keys, start))
        columns = [column for column, _ in order]
        merged = _merged([(*branch, *rest) for branch in branches], columns, keys, most)
        return [] if merged is None else [row[-1] for row in self._all(merged)]

    def _from_state(
        self, source: Source, keys: list[tuple[ColumnElement[Any], bool]], start: Place
    ) -> list[tuple[Condition, ...]]:
        """The branches from a place on: those of other states whole or not at all, so that none is read in vain."""
        state, down = str(start[0]), keys[0][1]
        beyond = self._beyond(keys[1:], start[1:])
        return [
            (*branch, beyond) if of == state else branch
            for of, branch in zip(source.states, source.branches, strict=True)
            if (of <= state if down else of >= state)
        ]

    def _beyond(self, order: list[tuple[ColumnElement[Any], bool]], start: Place) -> Condition:
        binds = [self._binds.text(one) if isinstance(one, str) else self._binds.number(one) for one in start]
        if len(order) == len(binds) == 3:
            (first, down), second = order[0], self._beyond(order[1:], start[1:])
            side = first < binds[0] if down else first > binds[0]
            # The first condition is implied, and lets the index begin at the right place.
            return and_(first <= binds[0] if down else first >= binds[0], or_(side, and_(first == binds[0], second)))
        (first, down), (id_, _) = order
        both, given = tuple_(first, id_), tuple_(*binds)
        if down:
            return and_(first <= binds[0], both < given)
        return and_(first >= binds[0], both > given)

    def _ahead(
        self, source: Source, sort: Sort, start: Place | None, most: int, *, backwards: bool
    ) -> list[str] | None:
        """The page, where it is found among the next few rows in the order of the sort; else None."""
        column = _ORDERS[sort][0][0]
        after: tuple[Condition, ...] = ()
        if start is not None:
            edge = self._binds.number(int(start[0]))
            after = (column <= edge if backwards else column >= edge,)
        branches = [(*branch, *after) for branch in source.branches]
        near = _merged(branches, [column], [(column, backwards)], AHEAD)
        if near is None:
            return []
        count, cut = self._edge(near, func.min if backwards else func.max)
        within: tuple[Condition, ...] = ()
        if count == AHEAD:
            edge = self._binds.number(cut)
            within = (column >= edge if backwards else column <= edge,)
        found = self._page(Reach(source), sort, start, most, backwards=backwards, also=within)
        return found if count < AHEAD or len(found) >= most else None

    def _count(self, conditions: Sequence[Condition], most: int) -> int:
        rows: Select[Any] = select(literal_column("1")).select_from(OPERATION).where(*conditions).limit(most)
        return int(self._all(select(func.count()).select_from(rows.subquery()))[0][0])

    def _edge(self, rows: Select[Any], pick: Any) -> tuple[int, Any]:
        """How many rows a statement finds, and the least or the greatest of its first column."""
        found = rows.subquery()
        count, edge = self._all(select(func.count(), pick(found.c[0])).select_from(found))[0]
        return count, edge

    # --- what may be searched -----------------------------------------------------------------------------------

    def _left(self, source: Source) -> frozenset[Term]:
        return frozenset(self._terms) - source.covers

    def _of(self, *keys: Key) -> frozenset[Term]:
        return frozenset(term for term in self._terms if term.key in keys)

    @cached_property
    def _impossible(self) -> bool:
        return not self._states or any(
            not term.negated and term.values and not any(map(storable, term.values)) for term in self._terms
        )

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

    def _natural(self, sort: Sort) -> Source | None:
        """A source that has the order of a sort, and the most of its filter."""
        if sort in {Sort.DEADLINE, Sort.NEXT}:
            return self._timed(Key.DEADLINE if sort is Sort.DEADLINE else Key.DUE)
        if sort is Sort.STATE:
            return self._by_state
        sources = [source for source in self._sources if source.order is o.created_at]
        return next((source for source in sources if not self._left(source)), None)

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
    def _sources(self) -> list[Source]:
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

    @cached_property
    def _reach(self) -> Reach:
        """What to look through where no source has both the filter and the order."""
        *helpful, everything = self._sources
        sizes = [(self._size(source, DRIVEN), source) for source in helpful]
        small = [(count, source) for (count, _), source in sizes if count < DRIVEN]
        if small:
            return Reach(min(small, key=lambda one: one[0])[1])
        count, since = self._size(everything, SEARCHED)
        if count < SEARCHED:
            return Reach(everything)
        reaches = [(edge, source) for (_, edge), source in sizes if edge is not None and edge <= since]
        # A source that has so many of the newest rows is no help: all of them lie together, its own lie scattered.
        edge, source = min(reaches, key=lambda one: one[0], default=(since, everything))
        return Reach(source, edge)

    def _size(self, source: Source, most: int) -> tuple[int, Any]:
        """How many rows a source has, counted up to `most`, and when the oldest of the newest so many was made."""
        if source.order is o.created_at:
            newest = _merged(source.branches, [o.created_at], [(o.created_at, True)], most)
            return (0, None) if newest is None else self._edge(newest, func.min)
        count = 0
        for branch in source.branches:
            count += self._count(branch, most)
        return count, None


def _merged(
    branches: Sequence[tuple[Condition, ...]],
    columns: Sequence[Column[Any]],
    order: Sequence[tuple[ColumnElement[Any], bool]],
    most: int,
) -> Select[Any] | None:
    """The first rows of all branches together; each branch is read no further than it can matter."""
    by = [column.desc() if down else column.asc() for column, down in order]
    parts = [select(*columns).where(*branch).order_by(*by).limit(most) for branch in branches]
    if len(parts) < 2:
        return parts[0] if parts else None
    union = union_all(*(select(part.subquery()) for part in parts)).subquery()
    outer = [column.desc() if down else column.asc() for column, (_, down) in zip(union.c, order, strict=True)]
    return select(union).order_by(*outer).limit(most)
