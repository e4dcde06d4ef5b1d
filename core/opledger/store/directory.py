"""The small tables: contracts, requests and answers by name; workers and providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ClauseElement, bindparam, delete, func, select, update

from opledger.rules.contract import Contract
from opledger.rules.model import TERMINAL, State, StoredRequest
from opledger.store import encoding
from opledger.store.recording import unknown
from opledger.store.share_tables import REACH
from opledger.store.statements import Tongue, Tx
from opledger.store.tables import ANSWER, CONTRACT, OPERATION, PROVIDER, REQUEST, WORKER
from opledger.store.values import Answer, Aside, Provider, WorkerLife

FORGOTTEN: Final = timedelta(days=1)
"""A worker that gave no sign of life for so long is dropped from the list."""


# --- contracts, requests, answers -------------------------------------------------------------------------------


def _pin(tongue: Tongue) -> ClauseElement:
    return tongue.insert(CONTRACT).on_conflict_do_nothing()


def _source(_: Tongue) -> ClauseElement:
    return select(CONTRACT.c.source, CONTRACT.c.environment).where(CONTRACT.c.digest == bindparam("digest"))


def pin_contract(tx: Tx, contract: Contract) -> None:
    """Keep a contract's text, so that operations can stay with it."""
    row = (contract.digest, contract.name, contract.source, encoding.to_json(dict(contract.environment)))
    tx.many(tx.prepared(_pin), [row])


def contract_source(tx: Tx, digest: str) -> tuple[str, Mapping[str, str]] | None:
    """The pinned text and the environment values it was read with, or None."""
    row = tx.one(_source, digest=digest)
    return None if row is None else (row[0], encoding.from_json(row[1]))


def _request(_: Tongue) -> ClauseElement:
    return select(REQUEST).where(REQUEST.c.operation_id == bindparam("operation_id"))


def request_of(tx: Tx, operation_id: str) -> StoredRequest:
    """The create request, exactly as stored. Raises UnknownOperation."""
    row = tx.one(_request, operation_id=operation_id) if encoding.storable(operation_id) else None
    if row is None:
        raise unknown(operation_id)
    _, method, url, headers, content_type, body, asked, fingerprint_url = row
    return StoredRequest(
        method=method,
        url=url,
        headers=tuple((name, value) for name, value in encoding.from_json(headers)),
        body=bytes(body),
        content_type=content_type,
        asked=bytes(body if asked is None else asked),
        fingerprint_url=url if fingerprint_url is None else fingerprint_url,
    )


def _answer(_: Tongue) -> ClauseElement:
    return select(ANSWER).where(ANSWER.c.sha256 == bindparam("sha256"))


def answer(tx: Tx, sha256: str) -> Answer | None:
    """A stored answer by the hash that events cite, or None."""
    try:
        digest = bytes.fromhex(sha256)
    except ValueError:
        return None
    row = tx.one(_answer, sha256=digest)
    if row is None:
        return None
    _, content_type, size, truncated, body = row
    return Answer(sha256, bytes(body), content_type, size, bool(truncated))


# --- workers ----------------------------------------------------------------------------------------------------


def _beat(tongue: Tongue) -> ClauseElement:
    statement = tongue.insert(WORKER)
    latest = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=[WORKER.c.name],
        set_={"heartbeat_at": latest.heartbeat_at, "lateness": latest.lateness, "host": latest.host, "pid": latest.pid},
    )


def _forget(_: Tongue) -> ClauseElement:
    return delete(WORKER).where(WORKER.c.heartbeat_at < bindparam("before"))


def _leave(_: Tongue) -> ClauseElement:
    return delete(WORKER).where(WORKER.c.name == bindparam("name"))


def _workers(_: Tongue) -> ClauseElement:
    return select(WORKER).order_by(WORKER.c.name)


def _asides(_: Tongue) -> ClauseElement:
    told = (REACH.c.owner, REACH.c.contract, REACH.c.aside_since, REACH.c.aside_until, REACH.c.why)
    return select(*told).where(REACH.c.aside_until.is_not(None)).order_by(REACH.c.owner, REACH.c.contract)


def heartbeat(tx: Tx, life: WorkerLife) -> None:
    """Note a sign of life; the first one of a name also notes when it started."""
    beat = encoding.to_micros(life.heartbeat)
    row = (life.name, life.host, life.pid, encoding.to_micros(life.started), beat, encoding.span_micros(life.lateness))
    tx.many(tx.prepared(_beat), [row])
    tx.run(_forget, before=beat - encoding.span_micros(FORGOTTEN))


def leave(tx: Tx, name: str) -> None:
    """Strike a worker off the list."""
    tx.run(_leave, name=name)


def workers(tx: Tx) -> list[WorkerLife]:
    """All workers that gave a sign of life and did not sign off, by name."""
    asides: dict[str, tuple[Aside, ...]] = {}
    for owner, contract, since, until, why in tx.all(_asides):
        aside = Aside(contract, encoding.from_micros(since), encoding.from_micros(until), why)
        asides[owner] = (*asides.get(owner, ()), aside)
    return [
        WorkerLife(
            name,
            host,
            pid,
            encoding.from_micros(started),
            encoding.from_micros(beat),
            encoding.span(late),
            asides.get(name, ()),
        )
        for name, host, pid, started, beat, late in tx.all(_workers)
    ]


@dataclass(frozen=True, slots=True)
class Holding:
    """How many operations a worker holds, and when its leases lapse unless it extends them, in the caller's time."""

    owner: str
    leases: int
    first_lapses: datetime
    last_lapses: datetime


def _holdings(tongue: Tongue) -> ClauseElement:
    o = OPERATION.c
    held = (o.lease_owner.is_not(None), o.lease_expires_at.is_not(None))
    ends = func.min(o.lease_expires_at), func.max(o.lease_expires_at)
    return select(o.lease_owner, func.count(), *ends, tongue.clock).where(*held).group_by(o.lease_owner)


def holdings(tx: Tx, now: datetime) -> dict[str, Holding]:
    """What each worker holds, by its name; also of those that are gone, whose leases have not been taken over yet."""
    micros = encoding.to_micros(now)
    # How long a lease still lasts by the shared clock, from the caller's now.
    return {
        owner: Holding(
            owner, leases, encoding.from_micros(first - clock + micros), encoding.from_micros(last - clock + micros)
        )
        for owner, leases, first, last, clock in tx.all(_holdings, now=micros)
    }


# --- providers --------------------------------------------------------------------------------------------------

OPEN_STATES: Final = tuple(state.value for state in State if state not in TERMINAL)


def _pause(tongue: Tongue) -> ClauseElement:
    statement = tongue.insert(PROVIDER)
    given = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=[PROVIDER.c.contract],
        set_={"state": given.state, "by": given.by, "reason": given.reason, "since": given.since},
        where=PROVIDER.c.state != given.state,  # the first one's reason stands
    )


def _resume(_: Tongue) -> ClauseElement:
    return (
        update(PROVIDER)
        .where(PROVIDER.c.contract == bindparam("name"), PROVIDER.c.state == "paused")
        .values(state="open", by=bindparam("who"), reason=bindparam("why"), since=bindparam("at"))
    )


def _paused(_: Tongue) -> ClauseElement:
    return select(PROVIDER.c.contract, PROVIDER.c.reason).where(PROVIDER.c.state == "paused")


def _providers(_: Tongue) -> ClauseElement:
    return select(PROVIDER)


def _contract_names(_: Tongue) -> ClauseElement:
    return select(CONTRACT.c.name).distinct()


def open_counts(tongue: Tongue) -> ClauseElement:
    """(contract, how many of its operations have not ended)."""
    o = OPERATION.c
    return select(o.contract, func.count()).where(tongue.among(o.state, "states")).group_by(o.contract)


def pause(tx: Tx, contract: str, by: str, reason: str, at: datetime) -> bool:
    """Stop all calls to a provider; False where they were stopped already (the first reason stands)."""
    tx.wakes = True
    return tx.many(tx.prepared(_pause), [(contract, "paused", by, reason, encoding.to_micros(at))]) == 1


def resume(tx: Tx, contract: str, by: str, reason: str, at: datetime) -> bool:
    """Allow calls again; False where they were not stopped."""
    tx.wakes = True
    return tx.run(_resume, name=contract, who=by, why=reason, at=encoding.to_micros(at)) == 1


def paused(tx: Tx) -> dict[str, str]:
    """The paused providers, and why."""
    return dict(tx.all(_paused))


def providers(tx: Tx) -> list[Provider]:
    """Every provider of the ledger, by name."""
    opened = dict(tx.all(open_counts, states=tx.tongue.several(OPEN_STATES)))
    known = {name: Provider(name, "open", open_operations=opened.get(name, 0)) for (name,) in tx.all(_contract_names)}
    for name, state, by, reason, since in tx.all(_providers):
        known[name] = Provider(name, state, by, reason, encoding.from_micros(since), opened.get(name, 0))
    return [known[name] for name in sorted(known)]
