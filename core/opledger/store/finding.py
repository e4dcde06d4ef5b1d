"""Finding an operation by anything that names it: an id of ours or of the provider's, a token, a fingerprint.

First what an index answers at once. Only where that finds nothing is everything gone through, the newest operations
first, a slice at a time: provider request ids, earlier job ids and fingerprints stand in no index, and an index for a
search that somebody makes once a month would be paid for by every poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    Column,
    Text,
    bindparam,
    func,
    select,
    tuple_,
)

from opledger.rules import jsontext
from opledger.rules.model import Operation
from opledger.store import rows
from opledger.store.encoding import LONGEST_KEY, storable
from opledger.store.engine import Database
from opledger.store.packing import unpack
from opledger.store.recording import records
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import EVENT, OPERATION

SLICE: Final = 500
"""How many operations are gone through between two looks at `stop`."""

EVENTS: Final = 20_000
"""How many events are read at once."""

END: Final = 4
"""So many last characters of an operation id are enough for a search."""

BEGINNING: Final = 8
"""So many first characters of a job id or a trace id."""

DIGITS: Final = 6
"""So many last digits of a fingerprint: people are shown that many."""

_SHORT: Final = 8
_BEYOND: Final = "\U0010ffff"
_HEX: Final = frozenset("0123456789abcdef")
_LAST: Final = 2**62
o: Final = OPERATION.c
e: Final = EVENT.c


@dataclass(frozen=True, slots=True)
class Hit:
    """An operation that was found, and by what, in words."""

    operation: Operation
    by: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, each operation once.

    `complete` is False where it was stopped, or where there were more than were asked for. `searched` is how many
    operations were gone through one by one; 0 where an index knew.
    """

    hits: tuple[Hit, ...]
    complete: bool
    searched: int


def find_all(
    database: Database,
    text: str,
    *,
    most: int = 50,
    told: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Found:
    """The operations that a text may mean; see `Queries.find_all`."""
    most = max(most, 1)
    wanted = text.strip()
    if not wanted or len(wanted) > LONGEST_KEY or not storable(wanted):
        return Found((), complete=True, searched=0)
    known = database.read(lambda tx: _known(tx, wanted, most + 1))
    if known:
        return _found(database, known, most, complete=True, searched=0)
    return _Search(database, wanted, most, told, stop).run()


def _found(database: Database, named: dict[str, str], most: int, *, complete: bool, searched: int) -> Found:
    ids = list(named)[:most]
    stored = database.read(lambda tx: tx.all(records, ids=tx.tongue.several(ids)))
    there = {row[0]: rows.from_row(row) for row in stored}
    hits = tuple(Hit(there[one], named[one]) for one in ids if one in there)
    return Found(hits, complete=complete and len(named) <= most, searched=searched)


# --- what an index knows ------------------------------------------------------------------------------------------


def _equal(column: Column[Any]) -> Recipe:
    return lambda _: (
        select(o.operation_id)
        .where(column == bindparam("text", type_=Text))
        .order_by(o.operation_id)
        .limit(bindparam("most", type_=BigInteger))
    )


def _begins(column: Column[Any]) -> Recipe:
    return lambda _: (
        select(o.operation_id)
        .where(column >= bindparam("text", type_=Text), column < bindparam("beyond", type_=Text))
        .order_by(o.operation_id)
        .limit(bindparam("most", type_=BigInteger))
    )


# Made once: a transaction knows its statements by their recipes.
WHOLE: Final[dict[str, Recipe]] = {
    "operation id": _equal(o.operation_id),
    "remote job id": _equal(o.remote_job_id),
    "trace id": _equal(o.trace_id),
    "idempotency token": _equal(o.idempotency_token),
}
STARTS: Final[dict[str, Recipe]] = {
    "beginning of the operation id": _begins(o.operation_id),
    "beginning of the remote job id": _begins(o.remote_job_id),
    "beginning of the trace id": _begins(o.trace_id),
}
ENDS: Final = _equal(o.short_id)


def _known(tx: Tx, text: str, most: int) -> dict[str, str]:
    """The ids that an index finds, and by what. A whole value goes before the beginning of one."""
    found: dict[str, str] = {}
    cases = dict.fromkeys((text, text.upper(), text.lower(), text[:3].lower() + text[3:].upper()))
    for by, recipe in WHOLE.items():
        # Ids of ours are hexadecimal or Crockford's digits, which people write in either case; others are theirs.
        ours = by in {"operation id", "trace id"}
        for case in cases if ours else (text,):
            found |= dict.fromkeys((row[0] for row in tx.all(recipe, text=case, most=most) if row[0] not in found), by)
    if len(text) >= _SHORT:
        for case in cases:
            ids = [row[0] for row in tx.all(ENDS, text=case[-_SHORT:], most=_LAST) if row[0].endswith(case)]
            found |= dict.fromkeys((one for one in ids if one not in found), "end of the operation id")
    if found:
        return found
    for by, recipe in STARTS.items():
        ours = by == "beginning of the operation id"
        if ours or len(text) >= BEGINNING:
            for case in cases if ours else (text,):
                ids = [row[0] for row in tx.all(recipe, text=case, beyond=case + _BEYOND, most=most)]
                found |= dict.fromkeys((one for one in ids if one not in found), by)
    return found


# --- what must be gone through ------------------------------------------------------------------------------------


class _Search:
    """One search through everything."""

    def __init__(
        self,
        database: Database,
        text: str,
        most: int,
        told: Callable[[int, int], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self._database = database
        self._text = text
        self._most = most
        self._told = told
        self._stop = stop
        self._needle = f'_id":{encode_basestring(text)}'.encode()  # as `journal.body_of` writes it
        self._fact = encode_basestring_ascii(text)  # as `encoding.to_json` writes it
        digits = text.lower().removeprefix("sha256:")
        self._digits = digits if len(digits) >= DIGITS and _HEX.issuperset(digits) else None

    def run(self) -> Found:
        """Go through everything."""
        total = int(self._database.read(lambda tx: tx.all(_count))[0][0])
        named: dict[str, str] = {}
        done, place, complete = 0, (_LAST, ""), True
        while True:
            if self._stop is not None and self._stop():
                complete = False
                break
            page, hits = self._database.read(partial(self._slice, place=place))
            named |= hits
            done += len(page)
            if page and self._told is not None:
                self._told(done, max(done, total))
            if len(page) < SLICE:
                break
            if len(named) > self._most:
                complete = False
                break
            place = (page[-1][1], page[-1][0])
        return _found(self._database, named, self._most, complete=complete, searched=done)

    def _slice(self, tx: Tx, place: tuple[int, str]) -> tuple[list[Any], dict[str, str]]:
        page = tx.all(_page, at=place[0], id=place[1], fact=self._fact, most=SLICE)
        cited = self._cited(tx, page)
        hits = {}
        for operation_id, _, fingerprint, has, _ in page:
            by = self._own(operation_id, fingerprint) or cited.get(operation_id)
            if by is None and has and self._had_job(tx, operation_id):
                by = "earlier job id"
            if by is not None:
                hits[operation_id] = by
        return page, hits

    def _cited(self, tx: Tx, page: list[Any]) -> dict[str, str]:
        """What the text is in the events of these operations: looked for here, because the bytes are kept packed."""
        cited: dict[str, str] = {}
        for ids, after, upto in _portions([(row[0], row[4]) for row in page]):
            for operation_id, seq, stored in tx.all(_journal, ids=tx.tongue.several(ids), after=after, upto=upto):
                body = unpack(stored)
                if operation_id not in cited and isinstance(body, bytes) and self._needle in body:
                    what = _what(body, self._text, seq)
                    if what is not None:
                        cited[operation_id] = what
        return cited

    def _own(self, operation_id: str, fingerprint: str) -> str | None:
        if self._digits is not None and fingerprint.endswith(self._digits):
            return "request fingerprint"
        if len(self._text) >= END and operation_id.endswith((self._text, self._text.upper())):
            return "end of the operation id"
        return None

    def _had_job(self, tx: Tx, operation_id: str) -> bool:
        stored = tx.all(records, ids=tx.tongue.several([operation_id]))
        return any(self._text in rows.from_row(row).jobs for row in stored)


def _what(body: bytes, text: str, seq: int) -> str | None:
    """What the text is in the bytes of an event, in words; None where it is something else, or they cannot be read."""
    try:
        event = jsontext.loads(body)
    except jsontext.JsonError:
        return None
    data = event.get("data") if isinstance(event, dict) else None
    for values in _mappings(data):
        if values.get("request_id") == text:
            # A person's wish has a request id too; only what names a call came from the provider.
            return f"{'provider request id' if 'call_id' in values else 'request id'} in event {seq}"
        if values.get("job_id") == text:
            return f"job id in event {seq}"
        if values.get("call_id") == text:
            return f"call id in event {seq}"
    return None


def _mappings(data: Any) -> Iterator[dict[str, Any]]:
    """The evidence of an event, and the evidence that came too late, where it is a note of that."""
    if isinstance(data, dict):
        yield data
        if isinstance(data.get("late"), dict):
            yield data["late"]


def _count(_: Tongue) -> ClauseElement:
    return select(func.count()).select_from(OPERATION)


def _page(tongue: Tongue) -> ClauseElement:
    at, id_ = bindparam("at", type_=BigInteger), bindparam("id", type_=Text)
    position = func.instr if tongue.kind == "sqlite" else func.strpos
    has = position(o.facts, bindparam("fact", type_=Text)) > 0
    return (
        select(o.operation_id, o.created_at, o.request_fingerprint, has, o.head_seq)
        # The first condition is implied, and lets the index begin at the right place.
        .where(o.created_at <= at, tuple_(o.created_at, o.operation_id) < tuple_(at, id_))
        .order_by(o.created_at.desc(), o.operation_id.desc())
        .limit(bindparam("most", type_=BigInteger))
    )


def _portions(sizes: Iterable[tuple[str, int]]) -> Iterator[tuple[list[str], int, int]]:
    """Operations and the range of seq to read of them, `EVENTS` rows at once: a poll a minute makes long journals."""
    some: list[str] = []
    rows_of_some = 0
    for operation_id, size in sizes:
        if size > EVENTS:
            yield from (([operation_id], after, after + EVENTS) for after in range(0, size, EVENTS))
            continue
        if rows_of_some + size > EVENTS:
            yield some, 0, EVENTS
            some, rows_of_some = [], 0
        some.append(operation_id)
        rows_of_some += size
    if some:
        yield some, 0, EVENTS


def _journal(tongue: Tongue) -> ClauseElement:
    after, upto = bindparam("after", type_=BigInteger), bindparam("upto", type_=BigInteger)
    return (
        select(e.operation_id, e.seq, e.body)
        .where(tongue.among(e.operation_id, "ids"), e.seq > after, e.seq <= upto)
        .order_by(e.operation_id, e.seq)
    )
