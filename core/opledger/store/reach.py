"""How each worker fares with each provider that somebody has trouble with: told here, and judged by all of it.

While all is well nothing is written: a worker whose calls fail says so, the others find that with their next sign of
life and say when they last succeeded. What is told is removed when all is well again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, ClauseElement, bindparam, delete, select

from opledger.rules import reach
from opledger.rules.reach import Budget, Judged, Row, Tally
from opledger.store import encoding
from opledger.store.share_tables import REACH
from opledger.store.shares import workers_alive
from opledger.store.statements import Tongue, Tx
from opledger.store.values import Aside

r: Final = REACH.c
FORGOTTEN: Final = encoding.span_micros(timedelta(days=1))


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker tells of one provider, and whether it leaves it to the others."""

    contract: str
    tally: Tally
    aside: Aside | None = None


def _all(_: Tongue) -> ClauseElement:
    return select(REACH).order_by(r.owner, r.contract)


def _of_contract(_: Tongue) -> ClauseElement:
    return select(REACH).where(r.contract == bindparam("name"))


def _keep(tongue: Tongue) -> ClauseElement:
    statement = tongue.insert(REACH)
    new = statement.excluded
    told = ("failures", "since", "told_at", "worked_at", "at", "aside_since", "aside_until", "why")
    return statement.on_conflict_do_update(
        index_elements=[r.contract, r.owner], set_={name: getattr(new, name) for name in told}
    )


def _remove(_: Tongue) -> ClauseElement:
    return delete(REACH).where(r.contract == bindparam("name"), r.owner == bindparam("owner"))


def _remove_owner(_: Tongue) -> ClauseElement:
    return delete(REACH).where(r.owner == bindparam("owner"))


def _remove_contract(_: Tongue) -> ClauseElement:
    return delete(REACH).where(r.contract == bindparam("name"))


def _forget(_: Tongue) -> ClauseElement:
    return delete(REACH).where(r.at < bindparam("before", type_=BigInteger))


def told(tx: Tx) -> list[Report]:
    """All that workers tell of providers."""
    return [_read(row) for row in tx.all(_all)]


def keep(tx: Tx, reports: Sequence[Report], now: datetime) -> None:
    """Write down what a worker tells."""
    tx.many(tx.prepared(_keep), [_written(one) for one in reports])
    tx.run(_forget, before=encoding.to_micros(now) - FORGOTTEN)


def judge(tx: Tx, mine: Report, own: Row, budget: Budget, now: datetime, *, asides: int) -> Judged:
    """Write down how a worker fares with a provider, and judge by what all have told."""
    micros = encoding.to_micros(now)
    keep(tx, [mine], now)
    others = [one.tally for one in map(_read, tx.all(_of_contract, name=mine.contract))]
    others = [one for one in others if one.owner != mine.tally.owner]
    alive = workers_alive(tx, mine.tally.owner, micros)
    return reach.judge(budget, own, mine.tally, others, micros, alive=alive, asides=asides)


def forget(tx: Tx, owner: str, contract: str) -> None:
    """Remove what a worker told of a provider with which all is well."""
    tx.run(_remove, name=contract, owner=owner)


def give_up(tx: Tx, owner: str) -> None:
    """Remove all that a worker told that signs off."""
    tx.run(_remove_owner, owner=owner)


def begin_anew(tx: Tx, contract: str) -> None:
    """Forget all that was told of a provider: a person says that calls to it may be made again."""
    tx.run(_remove_contract, name=contract)


def _written(one: Report) -> tuple[Any, ...]:
    tally, aside = one.tally, one.aside
    row = (None, None) if tally.row is None else (tally.row.failures, tally.row.since)
    away = (None, None, None)
    if aside is not None:
        away = (encoding.to_micros(aside.since), encoding.to_micros(aside.until), aside.why)  # type: ignore[assignment]
    return (one.contract, tally.owner, *row, tally.told_at, tally.worked_at, tally.at, *away)


def _read(found: Any) -> Report:
    contract, owner, failures, since, told_at, worked_at, at, aside_since, aside_until, why = found
    row = None if failures is None else Row(failures, since)
    aside = None
    if aside_until is not None:
        aside = Aside(contract, encoding.from_micros(aside_since), encoding.from_micros(aside_until), why)
    return Report(contract, Tally(owner, row, told_at, worked_at, at), aside)
