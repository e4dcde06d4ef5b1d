"""What the operations list reads: windows by key, fresh readings of what is on the screen, counts, frozen sets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from opledger.ledger.reading import Reading
from opledger.rules.filters import Wanted
from opledger.rules.model import Operation
from opledger.store.values import Sort
from opledger_console.views import Detail

__all__ = ["Sort"]  # and what is defined here

PAGE: Final = 200
ARRIVING: Final = 200
"""New rows that are let in at once; where more have come, the list is read anew from its top."""
UNCOUNTED: Final = 1_000
COUNTED: Final = 100_000
MARKED: Final = 10_000
"""Operations that can be marked at once."""


@dataclass(frozen=True, slots=True)
class Order:
    """A filter and a sort, read; `text` and `sort` are how people write them."""

    wanted: Wanted
    sort: Sort
    generation: int = 0  #: counts questions, so that an answer to an earlier one can be told


@dataclass(frozen=True, slots=True)
class Question:
    """What is read: the first page of an order, or what is on the screen once more."""

    order: Order
    begin: bool
    ids: tuple[str, ...] = ()
    top: Operation | None = None
    enter: bool = False


@dataclass(frozen=True, slots=True)
class First:
    """The first page of a list."""

    rows: tuple[Operation, ...]
    more: bool
    searched_to: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Fresh:
    """New readings of rows, and what has come before the first one."""

    rows: dict[str, Operation]
    arrivals: tuple[Operation, ...]
    newer: int  #: rows before the first one that is held; capped
    overtaken: bool  #: so many have come that the list must be read anew
    now: datetime


def answer(ledger: Reading, question: Question) -> First | Fresh:
    """Read what a question asks for."""
    if question.begin:
        return first(ledger, question.order)
    return fresh(ledger, question.order, question.ids, question.top, enter=question.enter)


def first(ledger: Reading, order: Order) -> First:
    """Read the first page."""
    now = ledger.clock.now()
    page = ledger.store.queries.window(order.wanted, order.sort, now=now, limit=PAGE)
    return First(page.operations, page.more, page.searched_to, now)


def page(ledger: Reading, order: Order, beside: Operation, *, backwards: bool) -> First:
    """Read the page after, or before, a row."""
    now, queries = ledger.clock.now(), ledger.store.queries
    found = queries.window(
        order.wanted, order.sort, now=now, start=queries.key_of(beside, order.sort), backwards=backwards, limit=PAGE
    )
    return First(found.operations, found.more, found.searched_to, now)


def fresh(ledger: Reading, order: Order, ids: tuple[str, ...], top: Operation | None, *, enter: bool) -> Fresh:
    """Read rows again; with `enter` also what has come before `top`, else only how many that are."""
    queries, now = ledger.store.queries, ledger.clock.now()
    rows = {op.operation_id: op for op in queries.get_many(ids)}
    if order.sort is not Sort.NEWEST or top is None:
        return Fresh(rows, (), 0, False, now)
    key = queries.key_of(top, order.sort)
    if not enter:
        return Fresh(rows, (), queries.newer(order.wanted, order.sort, key, now=now, most=UNCOUNTED), False, now)
    found = queries.window(order.wanted, order.sort, now=now, start=key, backwards=True, limit=ARRIVING)
    return Fresh(rows, found.operations, 0, found.more, now)


def count(ledger: Reading, order: Order) -> int:
    """Count what a filter holds, up to `COUNTED` and one."""
    return ledger.store.queries.count(order.wanted, now=ledger.clock.now(), most=COUNTED + 1)


def frozen(ledger: Reading, order: Order) -> tuple[str, ...]:
    """Return the ids of everything that matches now, newest first, at most `MARKED` and one."""
    return ledger.store.queries.ids(order.wanted, now=ledger.clock.now(), most=MARKED + 1)


def detail(ledger: Reading, operation_id: str) -> Detail:
    """Return one operation, explained. Raises Refused for one that is not there."""
    explanation = ledger.explain(operation_id)
    return Detail(explanation.operation, explanation, ledger.history(operation_id), ledger.clock.now())
