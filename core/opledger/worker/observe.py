"""Observing: one status read, recorded after the answer."""

from __future__ import annotations

from dataclasses import replace

from opledger.edges.clock import new_id
from opledger.rules import answers, partial, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer
from opledger.rules.contract import Contract
from opledger.rules.model import SUCCESS_MEANS, TERMINAL, Operation, State
from opledger.worker.hand import Hand
from opledger.worker.keep import document_of


async def observe(drive: Hand, contract: Contract) -> None:
    """One status read, recorded after the answer. An end that leaves something to collect keeps the lease for it."""
    request = await drive.ready(requests.observe(drive.op, contract))
    call_id = new_id("call")
    outcome = await drive.look(request)
    kept = drive.keep(outcome, contract)
    reading = answers.read_status(
        outcome,
        drive.op,
        contract,
        call_id=call_id,
        answer=kept.sha256 if kept else None,
        now=drive.shop.clock.now(),
    )
    if partial.wanted(drive.op, contract):
        reading = replace(reading, evidence=partial.ending(drive.op, reading.evidence))
    drive.fresh = None
    final = isinstance(reading.evidence, e.Observed) and _has_result(drive.op, contract, reading.evidence)
    if final and isinstance(outcome, Answer):
        drive.fresh = (document_of(outcome.body), outcome.url or request.url)
    keeps = final or drive.op.state is State.CANCEL_REQUESTED
    await drive.settle(reading, call_id, kept, release=not keeps)


def _has_result(op: Operation, contract: Contract, seen: e.Observed) -> bool:
    """Tell whether there is something to collect after this word. What has ended keeps the end it is known by."""
    if op.state in TERMINAL:
        return seen.means is op.remote_means and partial.wanted(op, contract)
    return seen.means in SUCCESS_MEANS or partial.is_worth(contract, seen.means)
