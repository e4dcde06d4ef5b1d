"""Observing: one status read, recorded after the answer."""

from __future__ import annotations

from opledger.edges.clock import new_id
from opledger.rules import answers, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer
from opledger.rules.contract import Contract
from opledger.rules.model import Means, State
from opledger.worker.hand import Hand
from opledger.worker.keep import document_of


async def observe(drive: Hand, contract: Contract) -> None:
    """One status read, recorded after the answer. A final success keeps the lease: collecting follows at once."""
    request = await drive.within_lease(requests.observe(drive.op, contract))
    call_id = new_id("call")
    outcome = await drive.shop.http.send(request)
    kept = drive.keep(outcome, contract)
    reading = answers.read_status(
        outcome,
        drive.op,
        contract,
        call_id=call_id,
        answer=kept.sha256 if kept else None,
        now=drive.shop.clock.now(),
    )
    drive.fresh = None
    final = isinstance(reading.evidence, e.Observed) and reading.evidence.means in (Means.SUCCEEDED, Means.PARTIAL)
    if final and isinstance(outcome, Answer):
        drive.fresh = (document_of(outcome.body), outcome.url or request.url)
    keeps = final or drive.op.state is State.CANCEL_REQUESTED
    await drive.settle(reading, call_id, kept, release=not keeps)
