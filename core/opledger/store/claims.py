"""Leases: claiming what is due, renewing, giving back, and when to look again.

A claim reads only what it takes. For each contract it reads the head of an index that holds the contract's unleased
operations by due time; what waits, what is leased and what belongs to a full or paused provider is never visited.
Which contracts there are is itself read from that index by jumping from one name to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ClauseElement,
    ColumnElement,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    null,
    select,
    update,
)

from opledger.rules.model import State
from opledger.store import encoding, rows, shares
from opledger.store.recording import heads
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import OPERATION
from opledger.store.values import Claim, Claimed, Takings

o: Final = OPERATION.c
NOW: Final[BindParameter[int]] = bindparam("now")
LEASE: Final[BindParameter[int]] = bindparam("lease")
MOST: Final = bindparam("most", type_=BigInteger)

WAITING: Final = and_(o.lease_owner.is_(None), o.next_action_at.is_not(None))
HELD: Final = and_(o.lease_owner.is_not(None), o.next_action_at.is_not(None))
OF_CONTRACT: Final = o.contract == bindparam("contract")

MOST_EXPIRED: Final = 1_000
"""Most expired leases looked at in one claim: those of a few dead workers."""


# --- statements -------------------------------------------------------------------------------------------------


def _contracts(*_: Tongue) -> Any:
    """The names of all contracts with unleased, planned operations, found by jumping through the index."""
    first = select(func.min(o.contract).label("name")).where(WAITING)
    names = first.cte(recursive=True)
    other = OPERATION.alias()
    following = select(func.min(other.c.contract)).where(
        other.c.lease_owner.is_(None), other.c.next_action_at.is_not(None), other.c.contract > names.c.name
    )
    return names.union_all(select(following.scalar_subquery()).where(names.c.name.is_not(None)))


def _first_due(*conditions: ColumnElement[bool]) -> Any:
    """For each contract, when the first of its operations under some conditions is due."""
    names = _contracts()
    first = select(func.min(o.next_action_at)).where(o.contract == names.c.name, WAITING, *conditions)
    return select(names.c.name, first.scalar_subquery()).where(names.c.name.is_not(None))


def waiting(_: Tongue) -> ClauseElement:
    """(contract, when its first operation is due)."""
    return _first_due()  # type: ignore[no-any-return]


def _waiting_for_no_human(_: Tongue) -> ClauseElement:
    return _first_due(o.state != State.AWAITING_APPROVAL.value)  # type: ignore[no-any-return]


def due(_: Tongue) -> ClauseElement:
    """The operations of a contract that are due, earliest first."""
    return (
        select(o.next_action_at, o.operation_id)
        .where(OF_CONTRACT, WAITING, o.next_action_at <= NOW)
        .order_by(o.next_action_at)
        .limit(MOST)
        .with_for_update(skip_locked=True)
    )


def overdue(_: Tongue) -> ClauseElement:
    """The operations of a paused contract whose deadline has passed."""
    return (
        select(o.next_action_at, o.operation_id)
        .where(OF_CONTRACT, WAITING, o.deadline_at <= NOW, o.next_action_at <= NOW)
        .order_by(o.deadline_at)
        .limit(MOST)
        .with_for_update(skip_locked=True)
    )


def expired(tongue: Tongue) -> ClauseElement:
    """Operations that are due and whose holder let the lease run out."""
    return (
        select(o.next_action_at, o.operation_id, o.contract, o.deadline_at, o.lease_owner)
        .where(o.lease_owner.is_not(None), o.lease_expires_at <= tongue.clock, o.next_action_at <= NOW)
        .order_by(o.lease_expires_at)
        .limit(MOST_EXPIRED)
        .with_for_update(skip_locked=True)
    )


def _take(tongue: Tongue) -> ClauseElement:
    return (
        update(OPERATION)
        .where(tongue.among(o.operation_id, "ids"))
        .values(lease_owner=bindparam("owner"), lease_expires_at=tongue.clock + LEASE, lease_epoch=o.lease_epoch + 1)
        .returning(*o)
    )


def _extend(tongue: Tongue) -> ClauseElement:
    return update(OPERATION).where(tongue.among(o.operation_id, "ids")).values(lease_expires_at=tongue.clock + LEASE)


def _give_back(tongue: Tongue) -> ClauseElement:
    free = {"lease_owner": null(), "lease_expires_at": null()}
    return update(OPERATION).where(tongue.among(o.operation_id, "ids")).values(free)


def _give_back_all(_: Tongue) -> ClauseElement:
    free = {"lease_owner": null(), "lease_expires_at": null()}
    return update(OPERATION).where(o.lease_owner == bindparam("owner")).values(free)


def _first_deadline(_: Tongue) -> ClauseElement:
    return (
        select(o.deadline_at, o.next_action_at)
        .where(OF_CONTRACT, WAITING, o.deadline_at.is_not(None), o.state != bindparam("but"))
        .order_by(o.deadline_at)
        .limit(1)
    )


def _first_expiry(tongue: Tongue) -> ClauseElement:
    """For each contract, when a lease of it ends that somebody may then take; and when, while it is paused."""
    # In the caller's time: how long the lease still lasts by the shared clock, from the caller's now.
    due = tongue.later(o.lease_expires_at - tongue.clock + NOW, o.next_action_at)
    overdue = case((o.deadline_at.is_not(None), tongue.later(due, o.deadline_at)))
    # Grouped by what no index is over: SQLite would go through all that waits to have the contracts in order.
    each = o.contract.concat(literal_column("''"))
    return select(each, func.min(due), func.min(overdue)).where(HELD).group_by(each)


# --- claiming ---------------------------------------------------------------------------------------------------


def claim(tx: Tx, ask: Claim) -> Takings:
    """Take what is due under new leases, the longest overdue first, within this worker's shares."""
    now = encoding.to_micros(ask.now)
    places = shares.settle(tx, ask, now)
    picks = [*_unleased(tx, ask, places, now), *_abandoned(tx, places, now)]
    chosen = _chosen(ask, places, picks)
    taken = Counter(contract for _, _, contract, _ in chosen)
    moments = places.book(tx, taken)
    previous = {operation_id: owner or None for _, operation_id, _, owner in chosen}
    found = Takings()
    for one in _lease(tx, previous, ask.owner, ask.lease, now):
        contract = one.operation.contract
        if places.seated(contract):
            booked = moments.get(contract)
            moment = encoding.from_micros(booked.pop(0)) if booked else None
            one = replace(one, seated=True, moment=moment)  # noqa: PLW2901
        found.append(one)
    found.grants = places.grants()
    return found


_Pick = tuple[int, str, str, str]  # due at, operation, contract, previous owner or ""


def _chosen(ask: Claim, places: shares.Places, picks: list[_Pick]) -> list[_Pick]:
    """Choose what this worker has room for, in the order in which it was due.

    Where it has less room than there is to do, those contracts come first of which it has begun the least: the backlog
    of one provider holds up no other.
    """
    ranked: list[tuple[int, _Pick]] = []
    taken: dict[str, int] = {}
    picks.sort()
    for pick in picks:
        contract = pick[2]
        count = taken.get(contract, 0)
        if count < places.most(contract):
            taken[contract] = count + 1
            ranked.append((places.open(contract) + count, pick))
    ranked.sort()
    return sorted(pick for _, pick in ranked[: ask.limit])


def _unleased(tx: Tx, ask: Claim, places: shares.Places, now: int) -> list[_Pick]:
    picks: list[_Pick] = []
    if ask.limit <= 0:
        return picks
    for contract, first in tx.all(waiting):
        most = places.most(contract)
        if most and first <= now:
            recipe = overdue if places.closed(contract) else due
            found = tx.all(recipe, contract=contract, now=now, most=most)
            picks += [(at, operation_id, contract, "") for at, operation_id in found]
    return picks


def _abandoned(tx: Tx, places: shares.Places, now: int) -> list[_Pick]:
    return [
        (at, operation_id, contract, owner)
        for at, operation_id, contract, deadline, owner in tx.all(expired, now=now)
        if not places.closed(contract) or (deadline is not None and deadline <= now)
    ]


def _lease(tx: Tx, chosen: dict[str, str | None], owner: str, lease: timedelta, now: int) -> list[Claimed]:
    if not chosen:
        return []
    ids = tx.tongue.several(chosen)
    taken = {row[0]: row for row in tx.all(_take, ids=ids, owner=owner, lease=encoding.span_micros(lease), now=now)}
    return [Claimed(rows.from_row(taken[operation_id]), previous) for operation_id, previous in chosen.items()]


def claim_one(tx: Tx, operation_id: str, owner: str, lease: timedelta, now: datetime) -> Claimed | None:
    """Take one operation, due or not; None where there is none or its lease stands."""
    micros = encoding.to_micros(now)
    found = tx.one(heads, ids=tx.tongue.several([operation_id]))
    if found is None:
        return None
    holder, expires_at = found[3], found[5]
    clock = tx.clock() or micros
    if holder is not None and expires_at > clock:
        return None
    return _lease(tx, {operation_id: holder}, owner, lease, micros)[0]


# --- keeping and giving back ------------------------------------------------------------------------------------


def _ours(tx: Tx, owner: str, held: Sequence[tuple[str, int]]) -> set[str]:
    """The operations whose lease, of exactly that take-over, still is this owner's; locked."""
    epochs = dict(held)
    found = tx.all(heads, ids=tx.tongue.several(epochs)) if epochs else []
    return {row[0] for row in found if row[3] == owner and row[4] == epochs[row[0]]}


def renew(tx: Tx, owner: str, held: Sequence[tuple[str, int]], lease: timedelta, now: datetime) -> set[str]:
    """Extend leases; those that are still held."""
    ours = _ours(tx, owner, held)
    if ours:
        tx.run(_extend, ids=tx.tongue.several(ours), lease=encoding.span_micros(lease), now=encoding.to_micros(now))
    return ours


def release(tx: Tx, owner: str, held: Sequence[tuple[str, int]]) -> set[str]:
    """Give leases back; those that were still held."""
    ours = _ours(tx, owner, held)
    if ours:
        tx.wakes = True
        tx.run(_give_back, ids=tx.tongue.several(ours))
    return ours


def release_all(tx: Tx, owner: str) -> None:
    """Give back every lease of an owner that signs off."""
    freed = tx.run(_give_back_all, owner=owner)
    tx.wakes = tx.wakes or freed > 0


# --- when to look again -----------------------------------------------------------------------------------------

_NO_STATE: Final = ""


def next_due(tx: Tx, now: datetime, paused: Collection[str], full: Collection[str]) -> datetime | None:
    """When something is next to be claimed by a worker for which these contracts are paused and full."""
    return _earliest(tx, waiting, encoding.to_micros(now), paused, full, but=_NO_STATE)


def look(tx: Tx, now: datetime, paused: Collection[str]) -> tuple[datetime | None, frozenset[str]]:
    """When something is next to be claimed where these are paused; and which contracts, paused or not, have work."""
    micros = encoding.to_micros(now)
    due: set[str] = set()
    return _earliest(tx, waiting, micros, paused, (), but=_NO_STATE, due=due), frozenset(due)


def _pinned(_: Tongue) -> ClauseElement:
    return select(o.contract_digest).where(OF_CONTRACT, WAITING).order_by(o.next_action_at).limit(1)


def pinned(tx: Tx, contract: str) -> str | None:
    """The version of a contract that the first of its operations is pinned to; None where none waits."""
    row = tx.one(_pinned, contract=contract)
    return None if row is None else row[0]


def idle_horizon(tx: Tx, now: datetime | None, paused: Collection[str]) -> datetime | None:
    """When something becomes due without a person's doing; None where nothing ever will."""
    micros = (tx.clock() or 0) if now is None else encoding.to_micros(now)
    return _earliest(tx, _waiting_for_no_human, micros, paused, (), but=State.AWAITING_APPROVAL.value)


def _earliest(
    tx: Tx,
    recipe: Recipe,
    now: int,
    paused: Collection[str],
    full: Collection[str],
    *,
    but: str,
    due: set[str] | None = None,
) -> datetime | None:
    moments: list[int] = []
    for contract, first in tx.all(recipe):
        if contract in full or first is None:
            continue
        if due is not None and first <= now:
            due.add(contract)
        if contract not in paused:
            moments.append(first)
        elif (row := tx.one(_first_deadline, contract=contract, but=but)) is not None:
            moments.append(max(row))
    for contract, expiry, overdue_at in tx.all(_first_expiry, now=now):
        # A lease that ran out and may not be taken is no reason to look: that would be again and again, for nothing.
        moment = overdue_at if contract in paused else expiry
        if due is not None and expiry <= now:
            due.add(contract)
        if contract not in full and moment is not None:
            moments.append(moment)
    return encoding.from_micros(min(moments)) if moments else None
