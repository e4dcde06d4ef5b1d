"""Writing new operations: record, first event and request in one go. The same wish twice is one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ClauseElement, and_, insert, or_, select

from opledger.errors import BodyConflict, ConfigWrong, OpledgerError
from opledger.rules.model import Operation, StoredRequest
from opledger.rules.projection import Entry, project
from opledger.rules.tombstones import Tombstone
from opledger.store import archiving, encoding, rows
from opledger.store.archiving import Archived
from opledger.store.recording import Outcome, seal, store_events, unstorable
from opledger.store.statements import Tongue, Tx
from opledger.store.tables import CONTRACT, OPERATION, REQUEST
from opledger.store.values import Declined, Opening, Recorded, TokenTaken

StepKey = tuple[str, str]  # task, step
TokenKey = tuple[str, str]  # contract, token


def _like(tongue: Tongue) -> ClauseElement:
    """Everything that some new operations could clash with. One statement: between two, another process may commit."""
    o = OPERATION.c
    return select(OPERATION).where(
        or_(
            tongue.among(o.operation_id, "ids"),
            and_(tongue.among(o.task, "tasks"), o.step.is_not(None)),
            tongue.among(o.idempotency_token, "tokens"),
        )
    )


def _pinned(tongue: Tongue) -> ClauseElement:
    return select(CONTRACT.c.digest).where(tongue.among(CONTRACT.c.digest, "digests"))


def _insert_operation(_: Tongue) -> ClauseElement:
    return insert(OPERATION)


def _insert_request(_: Tongue) -> ClauseElement:
    return insert(REQUEST)


@dataclass(slots=True)
class _Ledger:
    """What is there already, kept up to date while the batch is judged."""

    by_id: dict[str, Operation]
    by_step: dict[StepKey, Operation]
    tokens: dict[TokenKey, str]
    digests: set[str]
    archived: list[Tombstone]
    operations: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    requests: list[tuple[Any, ...]] = field(default_factory=list)


def open_all(tx: Tx, openings: Sequence[Opening]) -> list[Outcome]:
    """Write the new operations, each with its own outcome."""
    if not openings:
        return []
    ledger = _look(tx, openings)
    outcomes: list[Outcome] = []
    for opening in openings:
        try:
            outcomes.append(_existing(ledger, opening) or _open(ledger, opening))
        except OpledgerError as error:
            outcomes.append(Declined(error, ledger.by_id.get(opening.operation_id)))
    if ledger.operations:
        tx.wakes = True
        tx.many(tx.prepared(_insert_operation), ledger.operations)
        tx.many(tx.prepared(_insert_request), ledger.requests)
        store_events(tx, ledger.events)
    return outcomes


def _look(tx: Tx, openings: Sequence[Opening]) -> _Ledger:
    several = tx.tongue.several
    wishes = [opening.evidence for opening in openings]
    ids = several({opening.operation_id for opening in openings})
    tasks = several({wish.task for wish in wishes if wish.task is not None})
    tokens = several({wish.token for wish in wishes if wish.token is not None})
    found = [rows.from_row(row) for row in tx.all(_like, ids=ids, tasks=tasks, tokens=tokens)]
    digests = tx.all(_pinned, digests=several({wish.contract_digest for wish in wishes}))
    return _Ledger(
        {one.operation_id: one for one in found},
        {(one.task, one.step): one for one in found if one.task is not None and one.step is not None},
        {(one.contract, one.idempotency_token): one.operation_id for one in found if one.idempotency_token is not None},
        {row[0] for row in digests},
        archiving.taken(tx, ids, tasks, tokens),
    )


def _step_of(opening: Opening) -> StepKey | None:
    task, step = opening.evidence.task, opening.evidence.step
    return None if task is None or step is None else (task, step)


def _existing(ledger: _Ledger, opening: Opening) -> Recorded | None:
    """The operation that this wish already has. Raises BodyConflict where it has one with another body."""
    step = _step_of(opening)
    first, identity = ledger.by_id.get(opening.operation_id), f"operation id {opening.operation_id}"
    if first is None and step is not None:
        first, identity = ledger.by_step.get(step), f"step {step[1]} of task {step[0]}"
    if first is None:
        return None
    wish = opening.evidence
    if first.request_fingerprint == wish.fingerprint and first.contract == wish.contract:
        return Recorded(first, 1, existing=True)
    raise BodyConflict(
        f"{identity} was used before for another request: {first.operation_id} ({first.contract}, "
        f"{first.request_fingerprint[:19]}…, {first.state}) stands; send a changed request as a new operation"
    )


def _open(ledger: _Ledger, opening: Opening) -> Recorded:
    wish = opening.evidence
    _not_archived(ledger, opening)
    if wish.contract_digest not in ledger.digests:
        raise ConfigWrong(f"contract {wish.contract} ({wish.contract_digest}) is not in the ledger: pin it first")
    token = None if wish.token is None else (wish.contract, wish.token)
    if token is not None and token in ledger.tokens:
        raise TokenTaken(
            f"the idempotency token {wish.token} belongs to {ledger.tokens[token]}: two operations may not share one"
        )
    entry = Entry(opening.operation_id, 1, opening.at, opening.actor, wish, opening.cause)
    after = project(None, entry)
    operation, event = seal(None, after, entry, opening.plan(after), None)
    try:
        row, request = rows.new_row(operation), _request_row(opening.operation_id, opening.request)
    except ValueError as error:
        raise unstorable(entry, error) from error
    ledger.operations.append(row)
    ledger.events.append(event)
    ledger.requests.append(request)
    ledger.by_id[opening.operation_id] = operation
    step = _step_of(opening)
    if step is not None:
        ledger.by_step[step] = operation
    if token is not None:
        ledger.tokens[token] = opening.operation_id
    return Recorded(operation, 1)


def _not_archived(ledger: _Ledger, opening: Opening) -> None:
    """What an archived operation was called stays its own. Raises Archived."""
    wish, step = opening.evidence, _step_of(opening)
    for stone in ledger.archived:
        if stone.operation_id == opening.operation_id:
            raise Archived(stone, f"operation id {stone.operation_id}")
        if step is not None and (stone.task, stone.step) == step:
            raise Archived(stone, f"step {stone.step} of task {stone.task}")
        if wish.token is not None and (stone.contract, stone.idempotency_token) == (wish.contract, wish.token):
            raise Archived(stone, f"what used the idempotency token {wish.token}")


def _request_row(operation_id: str, request: StoredRequest) -> tuple[Any, ...]:
    return (
        operation_id,
        encoding.text(request.method),
        encoding.text(request.url),
        encoding.to_json(request.headers),
        encoding.text(request.content_type),
        request.body,
        None if request.asked == request.body else request.asked,
        None if request.fingerprint_url == request.url else encoding.text(request.fingerprint_url),
    )
