"""Reads for people: frozen values, pages by key, counts. Works on a database that was opened for reading only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    Select,
    Text,
    bindparam,
    func,
    or_,
    select,
    tuple_,
    union,
)

from opledger.errors import Refused
from opledger.rules.filters import Wanted
from opledger.rules.journal import Row
from opledger.rules.model import Operation
from opledger.store import archiving, encoding, finding, packing, rows
from opledger.store import tail as tails
from opledger.store.archiving import Archived
from opledger.store.directory import OPEN_STATES, open_counts
from opledger.store.encoding import storable
from opledger.store.engine import Database
from opledger.store.finding import Found
from opledger.store.listing import Search, place_of
from opledger.store.recording import records, unknown
from opledger.store.statements import Tongue, Tx
from opledger.store.tables import EVENT, OPERATION
from opledger.store.tail import Mark, Tail
from opledger.store.values import Filter, Page, Place, Sort, Window

o: Final = OPERATION.c
SUFFIX: Final = 8
"""How many of an id's last characters people see and may type."""

MOST: Final = 100
_BEYOND: Final = "\U0010ffff"


def _events(_: Tongue) -> ClauseElement:
    return (
        select(EVENT)
        .where(EVENT.c.operation_id == bindparam("operation_id"), EVENT.c.seq > bindparam("seq"))
        .order_by(EVENT.c.seq)
        .limit(bindparam("most", type_=BigInteger))
    )


def _by_suffix(_: Tongue) -> ClauseElement:
    return select(o.operation_id).where(o.short_id == bindparam("suffix")).order_by(o.operation_id).limit(6)


def _states(_: Tongue) -> ClauseElement:
    return select(o.state, func.count()).group_by(o.state)


def _attentions(_: Tongue) -> ClauseElement:
    return select(o.attention_code, func.count()).where(o.attention_code.is_not(None)).group_by(o.attention_code)


def _ids(_: Tongue) -> ClauseElement:
    return (
        select(o.operation_id)
        .where(o.operation_id > bindparam("after"))
        .order_by(o.operation_id)
        .limit(bindparam("most", type_=BigInteger))
    )


class Queries:
    """What people may ask of the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, operation_id: str) -> Operation:
        """One record. Raises UnknownOperation."""
        found = self.get_many([operation_id])
        if not found:
            raise unknown(operation_id)
        return found[0]

    def get_many(self, operation_ids: Sequence[str]) -> list[Operation]:
        """The records that there are, in the order asked for."""
        ids = self._database.tongue.several(dict.fromkeys(operation_ids))
        found = {row[0]: row for row in self._database.read(lambda tx: tx.all(records, ids=ids))}
        return [rows.from_row(found[operation_id]) for operation_id in operation_ids if operation_id in found]

    def find(self, text: str) -> Operation:
        """The record that a person means by an id, or by the last eight characters of one.

        Raises UnknownOperation, and Refused where several ids end like that (the message lists them).
        """
        exact = self.get_many([text])
        if exact:
            return exact[0]
        ids = self._by_suffix(text)
        if not ids:
            stone = self._database.read(lambda tx: archiving.find(tx, text)) if storable(text) else None
            raise unknown(text) if stone is None else Archived(stone, stone.operation_id)
        if len(ids) > 1:
            raise Refused(f"several operations end in {text}: {', '.join(ids)}; give the whole id")
        return self.get(ids[0])

    def _by_suffix(self, text: str) -> list[str]:
        if len(text) != SUFFIX or not storable(text):
            return []

        def work(tx: Tx) -> list[Any]:
            return tx.all(_by_suffix, suffix=text) or tx.all(_by_suffix, suffix=text.upper())

        return [row[0] for row in self._database.read(work)]

    def events(self, operation_id: str, after_seq: int = 0, *, limit: int = 10_000) -> list[Row]:
        """The journal of one operation, in order. An operation that is not there has none."""
        if not storable(operation_id):
            return []
        found = self._database.read(lambda tx: tx.all(_events, operation_id=operation_id, seq=after_seq, most=limit))
        return [packing.row_of(row) for row in found]

    def chains(self, *, step: int = 500) -> Iterator[tuple[Operation, list[Row]]]:
        """Every operation with its journal, in order of id, each pair seen at one moment; for verifying all of it."""
        after = ""
        while True:
            ids = self._database.read(partial(_some_ids, after=after, most=step))
            for operation_id in ids:
                yield self._database.read(partial(_chain, operation_id=operation_id), snapshot=True)
            if len(ids) < step:
                return
            after = ids[-1]

    def list(
        self, wanted: Filter | None = None, *, limit: int = MOST, after: tuple[datetime, str] | None = None
    ) -> Page:
        """Operations, newest first, a page at a time; `after` is the `Page.after` of the page before."""
        wanted = wanted or Filter()
        values: dict[str, Any] = {}
        if not all(map(storable, wanted.texts())):
            return Page((), None)
        statement = _listing(self._database.tongue, wanted, after, values)
        prepared = self._database.tongue.compile(statement.limit(limit + 1))

        def work(tx: Tx) -> list[Any]:
            tx.cursor.execute(prepared.text, prepared.values(values))
            return tx.cursor.fetchall()

        found = [rows.from_row(row) for row in self._database.read(work)]
        more = len(found) > limit
        shown = tuple(found[:limit])
        return Page(shown, (shown[-1].created_at, shown[-1].operation_id) if more and shown else None)

    def window(
        self,
        wanted: Wanted,
        sort: Sort,
        *,
        now: datetime,
        start: Place | None = None,
        backwards: bool = False,
        limit: int = 200,
    ) -> Window:
        """The operations that come after the place `start` in a sort (or at its beginning), in the order of the sort.

        With `backwards`, those that come right before it. `now` is the moment from which ages and waits are counted.
        """

        def work(tx: Tx) -> Window:
            ids, since = Search(tx, wanted, now).ids(sort, start=start, backwards=backwards, most=limit + 1)
            shown = ids[:limit]
            if backwards:
                shown.reverse()
            found = {row[0]: row for row in tx.all(records, ids=tx.tongue.several(shown))}
            operations = tuple(rows.from_row(found[operation_id]) for operation_id in shown)
            searched_to = None if since is None else encoding.from_micros(since)
            return Window(operations, len(ids) > limit, searched_to)

        return self._database.read(work, snapshot=True)

    def key_of(self, operation: Operation, sort: Sort) -> Place:
        """Where an operation stands in a sort; fit for `window` and `newer`.

        Raises Refused for an operation that the sort leaves out.
        """
        place = place_of(operation, sort)
        if place is None:
            raise Refused(f"{operation.operation_id} has no place in a list sorted by {sort}; sort it by newest")
        return place

    def newer(self, wanted: Wanted, sort: Sort, key: Place, *, now: datetime, most: int = 1000) -> int:
        """How many operations stand before a place; counted up to `most`."""

        def work(tx: Tx) -> int:
            return len(Search(tx, wanted, now).ids(sort, start=key, backwards=True, most=most)[0])

        return self._database.read(work, snapshot=True)

    def count(self, wanted: Wanted, *, now: datetime, most: int = 100_001) -> int:
        """How many operations a filter finds; counted up to `most`.

        Where a window would say `searched_to`, only what was made since is counted.
        """
        return self._database.read(lambda tx: Search(tx, wanted, now).count(most), snapshot=True)

    def ids(self, wanted: Wanted, *, now: datetime, most: int) -> tuple[str, ...]:
        """The ids of the newest operations that a filter finds, at most so many: a set that no longer changes."""
        return self._database.read(
            lambda tx: tuple(Search(tx, wanted, now).ids(Sort.NEWEST, most=most)[0]), snapshot=True
        )

    def counts(self) -> dict[str, int]:
        """How many operations are in each state (states without any are left out)."""
        return dict(self._database.read(lambda tx: tx.all(_states)))

    def attentions(self) -> dict[str, int]:
        """How many operations carry each attention code."""
        return dict(self._database.read(lambda tx: tx.all(_attentions)))

    def open_by_contract(self) -> dict[str, int]:
        """How many operations of each contract have not ended."""
        return dict(self._database.read(lambda tx: tx.all(open_counts, states=tx.tongue.several(OPEN_STATES))))

    def tail(self, after: Mark | None = None, *, limit: int = 500) -> Tail:
        """The events of all operations that came after a mark; without one, the newest. Oldest first.

        Where more than `limit` came, the newest of them, and `missed` is set.
        """
        return tails.tail(self._database, after, limit)

    def earlier(self, before: Mark, *, limit: int = 500) -> Tail:
        """The last events before a mark (`Tail.start`), oldest first; none at the beginning of the journal."""
        return tails.earlier(self._database, before, limit)

    def find_all(
        self,
        text: str,
        *,
        most: int = 50,
        told: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Found:
        """The operations that a text may mean, each with what it is there, the newest first where it was a search.

        An operation id (whole, or its beginning or end), a remote job id, a trace id, an idempotency token: by an
        index. Where that finds nothing everything is gone through: fingerprints (whole, or their last six digits or
        more), provider request ids and earlier job ids in the journal. `told` hears how many operations of how many
        were gone through; `stop` is asked between slices.
        """
        return finding.find_all(self._database, text, most=most, told=told, stop=stop)


def _some_ids(tx: Tx, *, after: str, most: int) -> list[str]:
    return [row[0] for row in tx.all(_ids, after=after, most=most)]


def _chain(tx: Tx, operation_id: str) -> tuple[Operation, list[Row]]:
    record = rows.from_row(tx.all(records, ids=tx.tongue.several([operation_id]))[0])
    return record, [packing.row_of(row) for row in tx.all(_events, operation_id=operation_id, seq=0, most=1_000_000)]


def _listing(tongue: Tongue, wanted: Filter, after: tuple[datetime, str] | None, values: dict[str, Any]) -> Select[Any]:
    conditions: list[ColumnElement[bool]] = []

    def where(column: Any, value: str | None) -> None:
        if value is not None:
            values[column.name] = value
            conditions.append(column == bindparam(column.name, type_=Text))

    where(o.contract, wanted.contract)
    where(o.task, wanted.task)
    where(o.requested_by, wanted.requested_by)
    where(o.attention_code, wanted.attention_code)
    if wanted.states:
        values["states"] = tongue.several(wanted.states)
        conditions.append(tongue.among(o.state, "states"))
    if wanted.attention:
        conditions.append(o.attention_code.is_not(None))
    for number, (name, value) in enumerate(wanted.tags.items()):
        values[f"tag_{number}"], values[f"tag_value_{number}"] = name, value
        tag = tongue.member(o.tags, bindparam(f"tag_{number}", type_=Text))
        conditions.append(tag == bindparam(f"tag_value_{number}", type_=Text))
    if wanted.text:
        conditions.append(o.operation_id.in_(_matching(wanted.text, values)))
    if after is not None:
        values["at"], values["id"] = encoding.to_micros(after[0]), after[1]
        at, id_ = bindparam("at", type_=BigInteger), bindparam("id", type_=Text)
        # The first condition is implied, and lets the index begin at the right place.
        conditions += [o.created_at <= at, tuple_(o.created_at, o.operation_id) < tuple_(at, id_)]
    return select(OPERATION).where(*conditions).order_by(o.created_at.desc(), o.operation_id.desc())


def _matching(text: str, values: dict[str, Any]) -> Any:
    """Ids whose operation is meant by a text: each alternative by its own index."""
    values |= {"text": text, "upper": text.upper()[-SUFFIX:], "beyond": text + _BEYOND}
    given, beyond = bindparam("text", type_=Text), bindparam("beyond", type_=Text)
    return union(
        select(o.operation_id).where(o.operation_id >= given, o.operation_id < beyond),
        select(o.operation_id).where(or_(o.short_id == bindparam("upper", type_=Text), o.short_id == given)),
        select(o.operation_id).where(o.remote_job_id >= given, o.remote_job_id < beyond),
        select(o.operation_id).where(o.trace_id >= given, o.trace_id < beyond),
    )
