"""The shares of what a contract allows, over all workers: settled within the transactions that claim.

What a worker has is a row that lasts for a second; once it has run out, its operations count by their own leases. So a
worker that dies leaves nothing behind that a lease would not. Whoever finds that a share has run out removes it before
giving its places to anybody: a claim that was on its way meanwhile then finds its own row gone, and takes nothing.

Whoever settles shares of a contract holds its row of `allowance`. Nobody waits for that, nor for a share: a worker that
stands still within a transaction must not hold up what others have to record. Who finds a row taken asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, ClauseElement, bindparam, delete, func, literal_column, select, update

from opledger.rules import sharing
from opledger.rules.holdups import MOST_AHEAD, Holder, Standing
from opledger.store import encoding
from opledger.store.share_tables import ALLOWANCE, SHARE
from opledger.store.statements import Tongue, Tx
from opledger.store.tables import OPERATION, WORKER
from opledger.store.values import Claim, Grant, Want

o: Final = OPERATION.c
s: Final = SHARE.c
BEFORE: Final = bindparam("before", type_=BigInteger)

RECENT: Final = 6 * sharing.SECOND
"""How old the last sign of life of a worker may be that is reckoned with."""

_LARGE: Final = 10_000
"""More moments than are ever booked at once."""


# --- statements -------------------------------------------------------------------------------------------------


def _make(tongue: Tongue) -> ClauseElement:
    return tongue.insert(ALLOWANCE).on_conflict_do_nothing()


def _allowances(tongue: Tongue) -> ClauseElement:
    a = ALLOWANCE.c
    return select(a.contract, a.tat).where(tongue.among(a.contract, "names")).with_for_update(skip_locked=True)


def _shares(tongue: Tongue) -> ClauseElement:
    found = select(s.contract, s.owner, s.slots, s.since, s.wants_at, s.expires_at)
    return found.where(tongue.among(s.contract, "names"))


def _over(tongue: Tongue) -> ClauseElement:
    """Shares that have run out, but for those whose owner claims on them right now."""
    found = select(s.contract, s.owner).where(tongue.among(s.contract, "names"), s.expires_at <= BEFORE)
    return found.with_for_update(skip_locked=True)


def _own(tongue: Tongue) -> ClauseElement:
    mine = select(s.contract).where(s.owner == bindparam("owner"), tongue.among(s.contract, "names"))
    return mine.with_for_update(skip_locked=True)


def _leased(tongue: Tongue) -> ClauseElement:
    # By what no index is over: it is to look at what is leased, and not at all operations of a contract.
    each = o.contract.concat(literal_column("''"))
    held = (o.lease_owner.is_not(None), o.lease_expires_at > tongue.clock)
    return select(each, o.lease_owner, func.count()).where(*held).group_by(each, o.lease_owner)


def _remove(_: Tongue) -> ClauseElement:
    return delete(SHARE).where(s.contract == bindparam("name"), s.owner == bindparam("owner"))


def _keep(tongue: Tongue) -> ClauseElement:
    statement = tongue.insert(SHARE)
    new = statement.excluded
    changed = {"slots": new.slots, "since": new.since, "wants_at": new.wants_at, "expires_at": new.expires_at}
    return statement.on_conflict_do_update(index_elements=[s.contract, s.owner], set_=changed)


def _pass_on(_: Tongue) -> ClauseElement:
    return update(ALLOWANCE).where(ALLOWANCE.c.contract == bindparam("name")).values(tat=bindparam("new_tat"))


def _alive(_: Tongue) -> ClauseElement:
    w = WORKER.c
    recent = w.heartbeat_at > bindparam("since", type_=BigInteger)
    return select(func.count()).where(w.name != bindparam("owner"), recent)


def _all_own(_: Tongue) -> ClauseElement:
    return select(s.contract).where(s.owner == bindparam("owner")).with_for_update(skip_locked=True)


def _bucket(_: Tongue) -> ClauseElement:
    return select(ALLOWANCE.c.tat).where(ALLOWANCE.c.contract == bindparam("name"))


def _before(_: Tongue) -> ClauseElement:
    waiting = (o.contract == bindparam("name"), o.lease_owner.is_(None), o.next_action_at.is_not(None))
    earlier = select(o.operation_id).where(*waiting, o.next_action_at < BEFORE).limit(MOST_AHEAD).subquery()
    return select(func.count()).select_from(earlier)


# --- settling ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    """What came of one want so far."""

    want: Want
    limit: int
    room: int
    at: int = 0
    tat: int = 0
    hungry: int = 0
    busy: bool = False
    booked: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Places:
    """What a claim may take, and the moments that go with it."""

    ask: Claim
    found: dict[str, _Place]

    def closed(self, contract: str) -> bool:
        """Whether nothing new may be begun: only deadlines are kept then."""
        place = self.found.get(contract)
        return contract in self.ask.paused or (place is not None and place.room <= 0)

    def most(self, contract: str) -> int:
        """How many operations of a contract may be taken."""
        place = self.found.get(contract)
        if place is None or self.closed(contract):
            return self.ask.most(contract)
        return min(self.ask.most(contract), place.room)

    def seated(self, contract: str) -> bool:
        """Whether what is taken of a contract has a place."""
        return contract in self.found and not self.closed(contract)

    def open(self, contract: str) -> int:
        """How many operations of a contract this worker has begun and not ended."""
        place = self.found.get(contract)
        return 0 if place is None else place.want.seated + place.want.queued

    def book(self, tx: Tx, taken: Mapping[str, int]) -> dict[str, list[int]]:
        """Book the moments for what was taken, after those that are waited for; return the former."""
        new: dict[str, list[int]] = {}
        for contract, place in self.found.items():
            want = place.want
            count = want.moments + (taken.get(contract, 0) if self.seated(contract) else 0)
            if want.pace is None or not want.asks or place.busy or not count:
                continue
            booked, tat = sharing.moments(want.pace, place.tat, place.at, count)
            if booked:
                tx.run(_pass_on, name=contract, new_tat=tat)
            place.tat, place.booked = tat, booked[: want.moments]
            new[contract] = booked[want.moments :]
        return new

    def grants(self) -> dict[str, Grant]:
        """What each want has come to."""
        grants = {}
        for contract, place in self.found.items():
            pace = place.want.pace
            opens = (
                0 if pace is None or not place.want.asks or place.busy else sharing.reopens(pace, place.tat, place.at)
            )
            booked = tuple(encoding.from_micros(moment) for moment in place.booked)
            grants[contract] = Grant(place.limit, booked, timedelta(microseconds=opens), busy=place.busy)
        return grants


def settle(tx: Tx, ask: Claim, now: int) -> Places:
    """Give this worker its share of what it wants, and see that those shares which it does not renew are still its."""
    places: dict[str, _Place] = {}
    asking = sorted(want.contract for want in ask.wants if want.asks)
    if asking:
        places.update(_settled(tx, ask, now, asking))
    places.update({want.contract: _Place(want, 0, 0) for want in ask.wants if not want.asks})
    fresh = [want for want in ask.wants if not want.asks and want.limit]
    if fresh:
        names = tx.tongue.several([want.contract for want in fresh])
        still = {row[0] for row in tx.all(_own, owner=ask.owner, names=names)}
        for want in fresh:
            if want.contract in still:
                places[want.contract] = _Place(want, want.limit, want.room)
    return Places(ask, places)


def _settled(tx: Tx, ask: Claim, now: int, names: list[str]) -> dict[str, _Place]:
    several = tx.tongue.several(names)
    tats = dict(tx.all(_allowances, names=several))
    if len(tats) < len(names):
        tx.many(tx.prepared(_make), [(name, 0) for name in names if name not in tats])
        tats = dict(tx.all(_allowances, names=several))
    several = tx.tongue.several(list(tats))  # of the others somebody settles shares right now
    clock = tx.clock() or now
    for name, owner in tx.all(_over, names=several, before=clock):
        tx.run(_remove, name=name, owner=owner)
    rows = tx.all(_shares, names=several)  # one that has run out and is left holds what it did: its owner claims on it
    leased = {(contract, owner): count for contract, owner, count in tx.all(_leased, now=now)}
    alive = workers_alive(tx, ask.owner, clock)
    found = {}
    kept = []
    for want in (one for one in ask.wants if one.asks):
        if want.contract not in tats:
            found[want.contract] = _Place(want, 0, 0, busy=True)
            continue
        mine = next((row for row in rows if row[:2] == (want.contract, ask.owner)), None)
        rivals = _rivals(want.contract, ask.owner, rows, leased)
        since = None if mine is None else mine[3]
        waiting = None if mine is None or mine[2] else mine[4]  # for its first place; who has some comes after those
        wants = None if not want.wants else clock if waiting is None else waiting
        me = sharing.Me(ask.owner, want.seated, want.used, wants, since)
        got = sharing.share(want.concurrency, me, rivals, clock, alive=alive)
        began = None if not got.slots else clock if since is None else since
        kept.append((want.contract, ask.owner, got.slots, began, wants, clock + sharing.FRESH))
        found[want.contract] = _placed(want, got, rivals, tats[want.contract], clock)
    tx.many(tx.prepared(_keep), kept)
    return found


def _rivals(contract: str, me: str, rows: Sequence[Any], leased: Mapping[tuple[str, str], int]) -> list[sharing.Rival]:
    """What all others may have open: their shares while they have one, else what they hold under a lease."""
    fresh = {
        row[1]: sharing.Rival(row[1], row[2], row[4], row[3]) for row in rows if row[0] == contract and row[1] != me
    }
    others = [
        sharing.Rival(owner, count)
        for (name, owner), count in leased.items()
        if name == contract and owner != me and owner not in fresh
    ]
    return [*fresh.values(), *others]


def _placed(want: Want, got: sharing.Share, rivals: Sequence[sharing.Rival], tat: int, clock: int) -> _Place:
    room = min(want.room, got.limit - want.seated - want.queued)
    place = _Place(want, got.limit, room, hungry=sum(rival.wants is not None for rival in rivals))
    if want.pace is not None:
        place.at = clock + min(encoding.span_micros(want.lead), sharing.MOST_LEAD)
        place.tat = sharing.settled(want.pace, tat, clock)
        bookable = len(sharing.moments(want.pace, place.tat, place.at, _LARGE)[0])
        place.room = min(room, sharing.portion(bookable, place.hungry) - want.moments)
    return place


def workers_alive(tx: Tx, owner: str, clock: int) -> int:
    """How many workers gave a sign of life lately, with this one."""
    return 1 + int(tx.all(_alive, owner=owner, since=clock - RECENT)[0][0])


def give_up(tx: Tx, owner: str) -> None:
    """Give back all shares of a worker that signs off."""
    for (name,) in tx.all(_all_own, owner=owner):
        tx.run(_remove, name=name, owner=owner)


def standing(tx: Tx, contract: str, now: int, due: int) -> Standing:
    """The shares of a contract as they are now, and how many of its operations have been due since before `due`."""
    clock = tx.clock() or now
    held = {owner: count for name, owner, count in tx.all(_leased, now=now) if name == contract}
    slots = {row[1]: row[2] for row in tx.all(_shares, names=tx.tongue.several([contract])) if row[5] > clock}
    holders = tuple(Holder(owner, held.get(owner, 0), slots.get(owner)) for owner in sorted({*held, *slots}))
    bucket = tx.one(_bucket, name=contract)
    ahead = tx.one(_before, name=contract, before=due)
    return Standing(holders, bucket[0] if bucket else 0, clock, ahead[0] if ahead else 0)
