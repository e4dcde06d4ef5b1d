"""The terms of a filter as conditions on one row of `operation`; `rules.filters.matches` says the same in Python.

A condition made here takes part in no choice of an index: which rows are read is decided in `listing`, which knows how
many there are, and a database that decided otherwise could read a million rows for the sake of a hundred. On SQLite
that is what the ``+`` before a column says; PostgreSQL counts for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Text,
    and_,
    bindparam,
    false,
    func,
    not_,
    or_,
    type_coerce,
)
from sqlalchemy.sql.elements import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from opledger.rules.filters import SPANS, SUFFIX, Key, Term
from opledger.store import encoding
from opledger.store.encoding import storable
from opledger.store.statements import Tongue
from opledger.store.tables import OPERATION

o: Final = OPERATION.c
_BEYOND: Final = "\U0010ffff"

EQUAL: Final[dict[Key, Column[Any]]] = {
    Key.CONTRACT: o.contract,
    Key.BY: o.requested_by,
    Key.TASK: o.task,
    Key.CODE: o.attention_code,
    Key.REMOTE: o.remote_state,
}
"""Keys whose values are compared with a column as they are."""

BEGINS: Final[dict[Key, Column[Any]]] = {Key.JOB: o.remote_job_id, Key.TRACE: o.trace_id}
SPAN: Final[dict[Key, Column[Any]]] = {Key.AGE: o.created_at, Key.DUE: o.next_action_at, Key.DEADLINE: o.deadline_at}


@dataclass(frozen=True, slots=True)
class Binds:
    """The values of a statement's parameters, gathered while it is written."""

    values: dict[str, Any] = field(default_factory=dict)

    def text(self, value: str) -> ColumnElement[Any]:
        """A parameter for a text."""
        return bindparam(self._named(value), type_=Text)

    def number(self, value: int) -> ColumnElement[Any]:
        """A parameter for a number or a time."""
        return bindparam(self._named(value), type_=BigInteger)

    def _named(self, value: Any) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return name


@dataclass(frozen=True, slots=True)
class Conditions:
    """Writes conditions for one database and one moment."""

    tongue: Tongue
    now: datetime
    binds: Binds

    def quiet(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """A column that no index is chosen for."""
        if self.tongue.kind != "sqlite":
            return column
        return type_coerce(UnaryExpression(column, operator=custom_op("+"), type_=column.type), column.type)

    def holds(self, term: Term) -> ColumnElement[bool]:
        """Whether a term holds for a row."""
        plain = self._plain(term)
        return self.fails(plain) if term.negated else plain

    def fails(self, condition: ColumnElement[bool]) -> ColumnElement[bool]:
        """Whether a condition does not hold; one about a value that is not there does not."""
        return not_(func.coalesce(condition, false()))

    def _plain(self, term: Term) -> ColumnElement[bool]:
        if term.key in SPANS:
            return self.in_span(term, self.quiet(SPAN[term.key]))
        if term.key is Key.STATE:
            meant = Term(Key.STATE, term.values).states()
            return self.among(self.quiet(o.state), sorted(meant))
        if term.key is Key.NEEDS:
            code = self.quiet(o.attention_code)
            return or_(*(code.is_not(None) if value == "me" else code.is_(None) for value in term.values))
        sane = [value for value in term.values if storable(value)]
        if not sane:
            return false()
        if term.key in EQUAL:
            return self.among(self.quiet(EQUAL[term.key]), sane)
        if term.key in BEGINS:
            return or_(*(self.begins(self.quiet(BEGINS[term.key]), value) for value in sane))
        if term.key is Key.TAG:
            return or_(*map(self._tagged, sane))
        return or_(*(self.means(self.quiet, value) for value in sane))

    def in_span(self, term: Term, column: ColumnElement[Any]) -> ColumnElement[bool]:
        """What a term about an age or a wait says of a column with a moment."""
        if term.key is Key.AGE:
            edge = self.binds.number(encoding.to_micros(self.now - term.span))
            return column > edge if term.than == "<" else column < edge
        edge = self.binds.number(encoding.to_micros(self.now + term.span))
        return column < edge if term.than == "<" else column > edge

    def among(self, column: ColumnElement[Any], values: Iterable[str]) -> ColumnElement[bool]:
        """Whether a column has one of a few values; none has one of no values."""
        # SQLAlchemy would leave an empty list open until it runs the statement, and here a driver runs it.
        return column.in_(listed) if (listed := [self.binds.text(value) for value in values]) else false()

    def begins(self, column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
        """Whether a column begins with a text, said so that an index helps."""
        return and_(column >= self.binds.text(text), column < self.binds.text(text + _BEYOND))

    def alternatives(self, text: str) -> list[ColumnElement[bool]]:
        """What a word without a key may mean, each with an index of its own."""
        return self._alternatives(lambda column: column, text)

    def means(self, shown: Any, text: str) -> ColumnElement[bool]:
        """Whether a row is meant by a word without a key."""
        return or_(*self._alternatives(shown, text))

    def _alternatives(self, shown: Any, text: str) -> list[ColumnElement[bool]]:
        found = [self.begins(shown(column), text) for column in (o.operation_id, o.remote_job_id, o.trace_id)]
        if len(text) == SUFFIX:
            found.append(self.among(shown(o.short_id), dict.fromkeys((text, text.upper()))))
        return found

    def _tagged(self, text: str) -> ColumnElement[bool]:
        name, equals, value = text.partition("=")
        tags = self.quiet(o.tags)
        found = self.tongue.member(tags, self.binds.text(name))
        exact = found == self.binds.text(value) if equals else found.is_not(None)
        # Reading JSON is slow; most rows are told apart by a piece of text that every fitting one has.
        piece = encoding.to_json({name: value})[1:-1] if equals else encoding.to_json(name) + ":"
        within = func.instr if self.tongue.kind == "sqlite" else func.strpos
        return and_(within(tags, self.binds.text(piece)) > 0, exact)
