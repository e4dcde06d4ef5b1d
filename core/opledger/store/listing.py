"""A filter and a sort -> the ids of one window, out of a million operations, in a time that nobody feels.

Rows are read through a *source*: one or several ranges of an index (one for each state, contract …) that are merged.
Where a source answers the whole filter and has the order that is wanted, the window is read from it, and nothing else.
Otherwise the rows of one source are looked through for what is left of the filter:

- all of them, where a source holds few (`DRIVEN`);
- for sorts by deadline or next action, the next few in that order (`AHEAD`), which is enough where most rows fit;
- else the newest: the newest `SEARCHED` of all operations or the newest `DRIVEN` of a source, whichever reaches
  further back. The window then says how far that is.

Pages go by key, in both directions; nothing is ever counted off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Select, and_, func, literal_column, or_, select, tuple_, union_all

from opledger.rules.filters import Wanted
from opledger.rules.model import Operation
from opledger.store import encoding
from opledger.store.conditions import Binds, Conditions
from opledger.store.rows import deadline_of
from opledger.store.sources import Condition, Source, Sources
from opledger.store.statements import Tx
from opledger.store.tables import OPERATION
from opledger.store.values import Place, Sort

o: Final = OPERATION.c

SEARCHED: Final = 100_000
"""How many of the newest operations are looked through for what no index knows."""

DRIVEN: Final = 10_000
"""How many rows of a source are looked through; they lie scattered, so that each costs more than in the order made."""

AHEAD: Final = 3_000
"""How many of the next deadlines or actions are looked through before the search goes by age."""


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
        self._sources = Sources(tx, wanted, self._say, self._binds)

    # --- asked from outside -------------------------------------------------------------------------------------

    def ids(
        self, sort: Sort, *, start: Place | None = None, backwards: bool = False, most: int
    ) -> tuple[list[str], int | None]:
        """Up to `most` ids from `start` on, away from it, and since when was searched (None: all of it)."""
        if self._sources.empty(sort):
            return [], None
        natural = self._sources.natural(sort)
        if natural is not None and self._sources.left(natural) == frozenset():
            return self._page(Reach(natural), sort, start, most, backwards=backwards), None
        if natural is not None and sort in {Sort.DEADLINE, Sort.NEXT}:
            ahead = self._ahead(natural, sort, start, most, backwards=backwards)
            if ahead is not None:
                return ahead, None
        reach = self._reach
        return self._page(reach, sort, start, most, backwards=backwards), reach.since

    def count(self, most: int) -> int:
        """How many operations fit, of those that are looked at; at most `most`."""
        if self._sources.impossible:
            return 0
        whole = next((source for source in self._sources.all if not self._sources.left(source)), None)
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

    # --- where to look -------------------------------------------------------------------------------------------

    @cached_property
    def _reach(self) -> Reach:
        """What to look through where no source has both the filter and the order."""
        *helpful, everything = self._sources.all
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
