"""The effectful actions: create, reconcile, cancel. Each is a permit, a call, and what the answer means."""

from __future__ import annotations

from dataclasses import replace

from opledger.rules import answers, decide, lookups, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Request
from opledger.rules.contract import Contract, Strategy
from opledger.rules.model import Action
from opledger.worker.collect import keep_inline
from opledger.worker.hand import Hand
from opledger.worker.looking import read_pages, shows_all


async def create(drive: Hand, contract: Contract) -> None:
    """Send the create as it was stored, under a permit, and record what its answer means."""
    stored = await drive.stored_request(contract)
    # Once a person let a possible duplicate be sent, this is a resend, with whatever the contract adds to one.
    request = requests.create(drive.op, contract, stored, resend=drive.op.duplicate_accepted)
    request, call_id = await drive.permitted(
        Action.CREATE, request, may_create=True, digest=requests.sent_digest(stored)
    )
    await _sent_create(drive, contract, request, call_id, resend=False)


async def _sent_create(drive: Hand, contract: Contract, request: Request, call_id: str, *, resend: bool) -> None:
    def undone(why: str) -> e.Evidence:
        if resend:
            return e.Inconclusive(call_id=call_id, why=why, strategy="resend")
        return e.CallLost(call_id=call_id, action=Action.CREATE, why=why)

    outcome = await drive.send(request, call_id, undone=undone)
    kept = drive.keep(outcome, contract)
    reading = answers.read_create(
        outcome, drive.op, contract, call_id=call_id, answer=kept.sha256 if kept else None, resend=resend
    )
    if isinstance(reading.evidence, e.CompletedInline) and isinstance(outcome, Answer):
        stored = await keep_inline(drive, contract, outcome.body, outcome.headers.get("content-type"))
        reading = replace(reading, evidence=replace(reading.evidence, result=stored))
    wait = isinstance(reading.evidence, e.Accepted | e.Throttled | e.NotDelivered | e.Refused | e.Violation)
    # A standing cancel, or the look for a second job, follows at once, under the same lease.
    # So does the look for what was told before the job was known, where nothing but deliveries tells.
    looks = isinstance(reading.evidence, e.Accepted) and (
        contract.status.by_delivery or (resend and shows_all(contract) is not None)
    )
    await drive.settle(reading, call_id, kept, release=wait and not looks and drive.op.cancel is None)


async def reconcile(drive: Hand, contract: Contract, strategy: Strategy) -> None:
    """Try one of the contract's ways to learn the fate of a create, under a permit."""
    if strategy.strategy == "resend":
        stored = await drive.stored_request(contract)
        request = requests.create(drive.op, contract, stored, resend=True)
        request, call_id = await drive.permitted(
            Action.RECONCILE, request, strategy="resend", may_create=True, digest=requests.sent_digest(stored)
        )
        if not decide.may_resend(drive.op, contract, drive.shop.clock.now()):
            # The window is checked once more, last thing before the bytes leave (I4).
            why = "the token's memory at the provider ended before the resend left"
            await drive.record(
                e.Inconclusive(call_id=call_id, why=why, strategy="resend", next_strategy=True), f"call:{call_id}"
            )
            return
        await _sent_create(drive, contract, request, call_id, resend=True)
        return
    request = requests.look_up(drive.op, contract, strategy)
    request, call_id = await drive.permitted(Action.RECONCILE, request, strategy=strategy.strategy)
    search = lookups.Search(strategy)
    reading, kept = await read_pages(drive, contract, search, request, call_id)
    wait = isinstance(reading.evidence, e.Accepted | e.Violation | e.Inconclusive)
    wait = wait and not (contract.status.by_delivery and isinstance(reading.evidence, e.Accepted))
    await drive.settle(reading, call_id, kept, release=wait and drive.op.cancel is None)


async def cancel(drive: Hand, contract: Contract) -> None:
    """Send the cancel of the recorded intent, once, under a permit."""
    request, call_id = await drive.permitted(Action.CANCEL, requests.cancel(drive.op, contract))

    def undone(why: str) -> e.Evidence:
        return e.CallLost(call_id=call_id, action=Action.CANCEL, why=why)

    outcome = await drive.send(request, call_id, undone=undone)
    kept = drive.keep(outcome, contract)
    reading = answers.read_cancel(outcome, drive.op, contract, call_id=call_id, answer=kept.sha256 if kept else None)
    await drive.settle(reading, call_id, kept, release=True)
