"""The tail of the journal: the events of all operations as they come, and the ones before them.

SQLite numbers its rows in the order of their commits, so a mark is a row number. PostgreSQL has nothing like it: what
committed last may stand anywhere. There a mark holds a *snapshot*, which says of every transaction whether it could be
seen at that moment; new is what could not. The time of an event only bounds where to look: `OVERLAP` behind the
newest one. So nothing is shown twice, and an event is lost to the tail only if it becomes visible later than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    ClauseElement,
    ColumnElement,
    FromClause,
    Subquery,
    Text,
    bindparam,
    cast,
    func,
    literal_column,
    not_,
    or_,
    select,
    tuple_,
)
from sqlalchemy.types import UserDefinedType

from opledger.rules import jsontext
from opledger.rules.model import Action, from_rfc3339
from opledger.rules.shapes import Event, event_of
from opledger.store.engine import Database
from opledger.store.packing import row_of
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import EVENT, OPERATION

OVERLAP: Final = 30_000_000
"""Microseconds (on PostgreSQL) behind the newest event in which one that became visible late is still found."""

MOST: Final = 10_000
"""The most events of one answer."""

_FIRST_SPAN: Final = 1_000_000
_WIDER: Final = 4
_LONGEST_SPAN: Final = 100 * 366 * 86_400_000_000
_EVER: Final = -(2**62)
_ACTIONS: Final = frozenset(Action)
_rowid: Final[ColumnElement[int]] = literal_column("event.rowid", BigInteger)
e: Final = EVENT.c


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the tail. Only this module knows what stands in it; it is good for the database that gave it."""

    place: tuple[int, str, int]  #: SQLite: row number; PostgreSQL: at, operation id, seq
    snapshot: str = ""  #: PostgreSQL: what could be seen
    floor: int = 0  #: PostgreSQL: the time before which nothing new is looked for, in microseconds


@dataclass(frozen=True, slots=True)
class TailEvent:
    """One event, and whose it is."""

    operation_id: str
    contract: str  #: empty where the record is gone
    requested_by: str
    event: Event
    due_next: datetime | None  #: when the next call is due by the plan in this event; None: no call is planned


@dataclass(frozen=True, slots=True)
class Tail:
    """Some events, oldest first.

    `mark` goes to `tail` for what comes next, `start` to `earlier` for what was before. `missed`: there were more new
    ones than asked for, and the older of them were left out.
    """

    events: tuple[TailEvent, ...]
    mark: Mark
    start: Mark
    missed: bool


def tail(database: Database, after: Mark | None, limit: int) -> Tail:
    """The events that came after a mark; without one, the newest. At most `MOST`."""
    limit = min(max(limit, 1), MOST)
    if database.kind == "sqlite":
        return database.read(lambda tx: _file_tail(tx, after, limit))
    return database.read(lambda tx: _server_tail(tx, after, limit), snapshot=True)


def earlier(database: Database, before: Mark, limit: int) -> Tail:
    """The events before a mark, as far as `tail` does not give them. At most `MOST`."""
    limit = min(max(limit, 1), MOST)
    if database.kind == "sqlite":
        return database.read(lambda tx: _file_earlier(tx, before, limit))
    return database.read(lambda tx: _server_earlier(tx, before, limit), snapshot=True)


# --- rows -> events -----------------------------------------------------------------------------------------------


def _shown(row: Sequence[Any]) -> TailEvent:
    stored = row_of(row)
    contract, requested_by = row[_WIDTH], row[_WIDTH + 1]
    return TailEvent(stored.operation_id, contract or "", requested_by or "", event_of(stored), _due(stored.body))


def _due(body: bytes) -> datetime | None:
    """When the plan in the bytes of an event wants a call; None where it wants none or cannot be read."""
    try:
        planned = jsontext.loads(body)["next"]
        return from_rfc3339(planned["at"]) if planned["kind"] in _ACTIONS else None
    except (ValueError, KeyError, TypeError):
        return None


_WIDTH: Final = len(EVENT.columns)


def _with_owner(some: Subquery) -> list[ColumnElement[Any]]:
    return [*(some.c[column.name] for column in EVENT.columns), OPERATION.c.contract, OPERATION.c.requested_by]


def _owned(some: Subquery) -> FromClause:
    # An outer join: where a record was removed by hand, its events must show all the more.
    return some.outerjoin(OPERATION, OPERATION.c.operation_id == some.c.operation_id)


# --- SQLite -------------------------------------------------------------------------------------------------------


def _file_tail(tx: Tx, after: Mark | None, limit: int) -> Tail:
    found = tx.all(_rows_after, after=0 if after is None else after.place[0], most=limit + 1)
    if not found:
        mark = after or Mark((0, "", 0))
        return Tail((), mark, mark, missed=False)
    rows = found[:limit][::-1]
    more = after is not None and len(found) > limit
    return Tail(tuple(map(_shown, rows)), _row_mark(rows[-1]), _row_mark(rows[0]), missed=more)


def _file_earlier(tx: Tx, before: Mark, limit: int) -> Tail:
    rows = tx.all(_rows_before, before=before.place[0], most=limit)[::-1]
    if not rows:
        return Tail((), before, before, missed=False)
    return Tail(tuple(map(_shown, rows)), _row_mark(rows[-1]), _row_mark(rows[0]), missed=False)


def _row_mark(row: Any) -> Mark:
    return Mark((row[-1], "", 0))


def _rows_after(_: Tongue) -> ClauseElement:
    return _by_row(_rowid > bindparam("after", type_=BigInteger))


def _rows_before(_: Tongue) -> ClauseElement:
    return _by_row(_rowid < bindparam("before", type_=BigInteger))


def _by_row(condition: ColumnElement[bool]) -> ClauseElement:
    wanted = select(EVENT, _rowid.label("number")).where(condition)
    some = wanted.order_by(_rowid.desc()).limit(bindparam("most", type_=BigInteger)).subquery()
    return select(*_with_owner(some), some.c.number).select_from(_owned(some)).order_by(some.c.number.desc())


# --- what a snapshot saw ------------------------------------------------------------------------------------------


class _Named(UserDefinedType[Any]):
    """A type of PostgreSQL that SQLAlchemy has no class for."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """The name of the type."""
        return self.name


def _visible() -> ColumnElement[bool]:
    """Whether a snapshot saw the transaction that wrote an event."""
    number = cast(cast(_whole(literal_column("event.xmin::text::bigint", BigInteger)), Text), _Named("xid8"))
    snapshot = cast(bindparam("snapshot", type_=Text), _Named("pg_snapshot"))
    return func.pg_visible_in_snapshot(number, snapshot, type_=Boolean)


def _whole(low: ColumnElement[int]) -> ColumnElement[int]:
    """The number of a transaction, of which a row holds the lower half; the latest that ends so, up to `xmax`."""
    return low + (bindparam("xmax", type_=BigInteger) - low) // _WRAP * _WRAP


_WRAP: Final = literal_column("4294967296", BigInteger)


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def _server_tail(tx: Tx, after: Mark | None, limit: int) -> Tail:
    snapshot, now = tx.all(_moment)[0]
    # A database that was put back to an earlier time begins again to count its transactions.
    put_back = after is not None and _xmax(after.snapshot) > _xmax(snapshot)
    if after is None or put_back:
        rows = _backwards(tx, _since, now, limit)
        old, floor = (now, "", 0), 0
    else:
        seen: dict[str, Any] = {"floor": after.floor, "snapshot": after.snapshot, "xmax": _xmax(snapshot)}
        rows = tx.all(_unseen, **seen, most=limit + 1)
        old, floor = after.place, after.floor
    shown = rows[:limit][::-1]
    if not shown:
        mark = Mark(old, snapshot, floor)
        return Tail((), mark, mark, missed=False)
    newest = _place(shown[-1]) if after is None or put_back else max(old, _place(shown[-1]))
    # An event of a clock that runs ahead must not hide what all others write until they get there.
    mark = Mark(newest, snapshot, max(floor, min(newest[0], now) - OVERLAP))
    more = put_back or (after is not None and len(rows) > limit)
    return Tail(tuple(map(_shown, shown)), mark, Mark(_place(shown[0]), snapshot, mark.floor), missed=more)


def _server_earlier(tx: Tx, before: Mark, limit: int) -> Tail:
    at, operation_id, seq = before.place
    current = _xmax(tx.all(_moment)[0][0])
    place: dict[str, Any] = {"at": at, "operation_id": operation_id, "seq": seq}
    seen: dict[str, Any] = {"late": before.floor, "snapshot": before.snapshot, "xmax": current}
    rows = _backwards(tx, _before, at, limit, **place, **seen)[:limit][::-1]
    if not rows:
        return Tail((), before, before, missed=False)
    first, last = (Mark(_place(row), before.snapshot, before.floor) for row in (rows[0], rows[-1]))
    return Tail(tuple(map(_shown, rows)), last, first, missed=False)


def _backwards(tx: Tx, recipe: Recipe, top: int, limit: int, **values: Any) -> list[Any]:
    """The last events before `top`.

    The index by time knows ranges and no order, so the range grows until it holds enough.
    """
    span = _FIRST_SPAN
    while True:
        floor = top - span if span < _LONGEST_SPAN else _EVER
        rows = tx.all(recipe, floor=floor, most=limit, **values)
        if len(rows) >= limit or floor == _EVER:
            return rows
        span *= _WIDER


def _xmax(snapshot: str) -> int:
    """The first transaction that had not begun."""
    return int(snapshot.split(":")[1])


def _place(row: Any) -> tuple[int, str, int]:
    return row[2], row[0], row[1]


def _moment(tongue: Tongue) -> ClauseElement:
    return select(literal_column("pg_current_snapshot()::text", Text), tongue.clock)


def _since(_: Tongue) -> ClauseElement:
    return _by_time()


def _unseen(_: Tongue) -> ClauseElement:
    return _by_time(not_(_visible()))


def _before(_: Tongue) -> ClauseElement:
    at, late = bindparam("at", type_=BigInteger), bindparam("late", type_=BigInteger)
    here = tuple_(at, bindparam("operation_id", type_=Text), bindparam("seq", type_=BigInteger))
    # What was not visible then and is not too old for `tail` came, or will come, from there.
    return _by_time(e.at <= at, tuple_(e.at, e.operation_id, e.seq) < here, or_(e.at < late, _visible()))


def _by_time(*conditions: ColumnElement[bool]) -> ClauseElement:
    wanted = select(EVENT).where(e.at >= bindparam("floor", type_=BigInteger), *conditions)
    ordered = wanted.order_by(e.at.desc(), e.operation_id.desc(), e.seq.desc())
    some = ordered.limit(bindparam("most", type_=BigInteger)).subquery()
    # The order again: a join keeps none.
    last_first = (some.c.at.desc(), some.c.operation_id.desc(), some.c.seq.desc())
    return select(*_with_owner(some)).select_from(_owned(some)).order_by(*last_first)
