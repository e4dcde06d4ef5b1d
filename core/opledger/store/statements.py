"""Statements are written once in SQLAlchemy Core, compiled once for the database at hand, and run by its driver.

Compiling and wrapping costs Core 40 to 100 µs for every execution, which is as much as everything else that a poll
costs together. So a statement here is a *recipe*: a function from a `Tongue` (what differs between the two databases)
to a Core construct. `Prepared` keeps its text and the order of its parameters.

The dialects of SQLAlchemy are loaded where they are spoken: that of PostgreSQL, with all the drivers it knows, takes a
tenth of the time that a command needs to start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    Column,
    ColumnElement,
    Dialect,
    TableClause,
    Text,
    any_,
    bindparam,
    cast,
    func,
    literal_column,
    select,
)

from opledger.store.encoding import storable

if TYPE_CHECKING:
    from sqlalchemy.dialects.sqlite import Insert

Kind = Literal["sqlite", "postgresql"]


class Cursor(Protocol):
    """The part of a driver's cursor that we use."""

    rowcount: int

    def execute(self, text: Any, values: Any = ..., /) -> Any:
        """Run one statement."""
        ...

    def executemany(self, text: Any, rows: Any, /) -> Any:
        """Run one statement for many rows."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows of the last result."""
        ...


@dataclass(frozen=True, slots=True)
class Tongue:
    """What must be said differently to SQLite and to PostgreSQL."""

    kind: Kind

    @property
    def clock(self) -> ColumnElement[int]:
        """The one clock that all workers share: the server's; for SQLite, which is one machine, the caller's `now`."""
        if self.kind == "sqlite":
            return bindparam("now", type_=BigInteger)
        return literal_column("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", BigInteger)

    def later(self, one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
        """The later of two times, neither of them NULL."""
        return func.max(one, other) if self.kind == "sqlite" else func.greatest(one, other)

    def member(self, document: ColumnElement[Any], name: ColumnElement[Any]) -> ColumnElement[Any]:
        """The text under a name in a flat JSON object of texts; NULL where there is none."""
        if self.kind == "sqlite":
            pairs = func.json_each(document).table_valued("key", "value")
            return select(pairs.c.value).where(pairs.c.key == name).scalar_subquery()
        from sqlalchemy.dialects.postgresql import JSONB

        return func.jsonb_extract_path_text(cast(document, JSONB), name)

    def among(self, column: Column[Any], name: str) -> ColumnElement[bool]:
        """`column` is one of the values in parameter `name`; pass them through `several`."""
        if self.kind == "sqlite":
            listed = func.json_each(bindparam(name, type_=Text))
            return column.in_(select(literal_column("value")).select_from(listed).scalar_subquery())
        from sqlalchemy.dialects.postgresql import ARRAY

        return column == any_(bindparam(name, type_=ARRAY(Text)))

    def insert(self, table: TableClause) -> Insert:
        """An INSERT that can say what to do about a row that is there already; both dialects say it alike."""
        if self.kind == "sqlite":
            from sqlalchemy.dialects import sqlite

            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)  # type: ignore[return-value]

    def several(self, values: Collection[str]) -> Any:
        """What to pass for a parameter of `among`; texts that no row can hold are left out."""
        sane = [value for value in values if storable(value)]
        return json.dumps(sane) if self.kind == "sqlite" else sane

    def compile(self, construct: ClauseElement) -> Prepared:
        """The text of a statement and the order of its parameters."""
        compiled = construct.compile(dialect=_dialect(self.kind))
        names: Sequence[str] = getattr(compiled, "positiontup", None) or ()
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        return Prepared(str(compiled), tuple(names), fixed)


Recipe = Callable[[Tongue], ClauseElement]


@cache
def _dialect(kind: Kind) -> Dialect:
    if kind == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.dialect(paramstyle="qmark")
    from sqlalchemy.dialects.postgresql import psycopg

    return psycopg.dialect(paramstyle="format")  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement ready for the driver."""

    text: str
    names: tuple[str, ...]
    fixed: dict[str, Any]  #: values that the recipe wrote into the statement itself

    def values(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """The parameters in order. Raises KeyError where one is missing."""
        fixed = self.fixed
        return tuple(given[name] if name in given else fixed[name] for name in self.names)


@dataclass(slots=True)
class Tx:
    """A series of statements on one connection: an open transaction, or reads."""

    cursor: Cursor
    tongue: Tongue
    known: dict[Any, Prepared]  #: shared by all transactions of a database
    wakes: bool = False  #: others must be told of this commit
    events: int = 0  #: journal rows that it has written
    proof: tuple[str, int, bytes] | None = None  #: an event that is stored exactly if this transaction was committed

    def prepared(self, recipe: Recipe) -> Prepared:
        """The compiled statement of a recipe; compiled on first use."""
        found = self.known.get(recipe)
        if found is None:
            found = self.known[recipe] = self.tongue.compile(recipe(self.tongue))
        return found

    def all(self, recipe: Recipe, **values: Any) -> list[Any]:
        """All rows of a query."""
        statement = self.prepared(recipe)
        self.cursor.execute(statement.text, statement.values(values))
        return self.cursor.fetchall()

    def one(self, recipe: Recipe, **values: Any) -> Any | None:
        """The first row of a query, or None."""
        rows = self.all(recipe, **values)
        return rows[0] if rows else None

    def run(self, recipe: Recipe, **values: Any) -> int:
        """Run a write; how many rows it changed."""
        statement = self.prepared(recipe)
        self.cursor.execute(statement.text, statement.values(values))
        return self.cursor.rowcount

    def many(self, statement: Prepared, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run one write for many rows, given in the order of `statement.names`; how many rows it changed."""
        self.cursor.executemany(statement.text, rows)
        return self.cursor.rowcount

    def clock(self) -> int | None:
        """The server's clock in microseconds; None on SQLite, where the callers' own is the shared one."""
        if self.tongue.kind == "sqlite":
            return None
        return int(self.all(_clock)[0][0])


def _clock(tongue: Tongue) -> ClauseElement:
    return select(tongue.clock)
