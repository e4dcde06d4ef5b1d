"""Reading deliveries where the provider has no status read: what was kept is the evidence, and nobody is called."""

from __future__ import annotations

from typing import Any

from opledger.rules import deliveries, webhooks
from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.decide import Read
from opledger.rules.journal import read_body
from opledger.rules.projection import Entry
from opledger.store import Answer as StoredAnswer
from opledger.store import Match, Parked, Write
from opledger.worker.hand import Hand
from opledger.worker.keep import document_of


async def read_delivery(drive: Hand, contract: Contract, decision: Read) -> None:
    """Read one delivery that was handed over, and record what it says. The receiver only keeps it."""
    entry, kept = await drive.shop.commits.run(lambda: _handed_over(drive, decision))
    told = entry.evidence
    assert isinstance(told, e.Notified)
    evidence = deliveries.read(told, entry.at, b"" if kept is None else kept.body, drive.op, contract)
    await drive.record(evidence, f"{deliveries.CAUSE}{decision.delivery}")


def _handed_over(drive: Hand, decision: Read) -> tuple[Entry, StoredAnswer | None]:
    store = drive.shop.store
    (row,) = store.queries.events(drive.op.operation_id, decision.seq - 1, limit=1)
    entry = read_body(row.body).entry
    digest = entry.evidence.answer if isinstance(entry.evidence, e.Notified) else None
    return entry, None if digest is None else store.answer(digest)


async def hand_over_parked(drive: Hand) -> bool:
    """Hand over what came before the job was known; True where there was something.

    A receiver does the same, as often as it looks; but no job waits for one that is not running.
    """
    store, op = drive.shop.store, drive.op
    parked = await drive.shop.commits.run(lambda: store.parked_deliveries(operation_id=op.operation_id))
    if not parked:
        return False
    matches = {one.delivery.delivery_id: [Match(op.operation_id, _told(drive, one))] for one in parked}
    matched = await drive.shop.commits.run(lambda: store.match_deliveries(matches, drive.shop.clock.now()))
    if matched:
        drive.op = await drive.shop.commits.run(lambda: store.get(op.operation_id))
    return matched > 0


def _told(drive: Hand, parked: Parked) -> Write:
    kept, answer = parked.delivery, parked.answer
    notified = e.Notified(
        webhooks.SOURCE,
        kept.delivery_id,
        kept.event_type,
        kept.job_id,
        answer.sha256,
        counts=True,
        received_at=kept.received_at,
    )
    reason = webhooks.reason(drive.op, kept.event_type, kept.job_id)
    return drive.write(notified, f"{deliveries.CAUSE}{kept.delivery_id}", reason=reason, answer=answer)


async def told_document(drive: Hand) -> Any:
    """Return what the delivery said that told how the job ended: it names the result."""
    digest = drive.op.told
    kept = None if digest is None else await drive.shop.commits.run(lambda: drive.shop.store.answer(digest))
    return None if kept is None else document_of(kept.body)
