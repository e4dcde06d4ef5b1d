"""The effectful actions: create, reconcile, cancel. Each is a permit, a call, and what the answer means."""

from __future__ import annotations

from dataclasses import replace

from opledger.edges.clock import new_id
from opledger.errors import Refused
from opledger.rules import answers, decide, lookups, redact, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Request
from opledger.rules.contract import Contract, Strategy
from opledger.rules.model import Action
from opledger.store import Answer as StoredAnswer
from opledger.worker.collect import keep_inline
from opledger.worker.hand import Hand
from opledger.worker.keep import KEPT_ANSWER


async def create(drive: Hand, contract: Contract) -> None:
    """Send the create as it was stored, under a permit, and record what its answer means."""
    stored = await drive.shop.commits.run(lambda: drive.shop.store.request_of(drive.op.operation_id))
    request = requests.create(drive.op, contract, stored)
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
        stored = await keep_inline(drive, outcome.body, outcome.headers.get("content-type"))
        reading = replace(reading, evidence=replace(reading.evidence, result=stored))
    checks = resend and isinstance(reading.evidence, e.Accepted) and _references(contract) is not None
    wait = isinstance(reading.evidence, e.Accepted | e.Throttled | e.NotDelivered | e.Refused | e.Violation)
    # A standing cancel follows at once, under the same lease.
    await drive.settle(reading, call_id, kept, release=wait and not checks and drive.op.cancel is None)
    if checks:
        await _check_resend(drive, contract)


async def _check_resend(drive: Hand, contract: Contract) -> None:
    """A resend brought a job: see whether the provider shows another one under our reference (B04).

    A provider that ignores tokens starts a second job on a resend and answers with that one; only its list tells.
    """
    strategy = _references(contract)
    assert strategy is not None
    call_id = new_id("call")
    search = lookups.Search(strategy)
    look_up = requests.look_up(drive.op, contract, strategy)
    reading, kept = await _search(drive, contract, search, look_up, call_id, permitted=False)
    release = drive.op.cancel is None
    if isinstance(reading.evidence, e.Violation):
        await drive.settle(reading, call_id, kept, release=release)
        return
    found = "one job, ours" if isinstance(reading.evidence, e.Accepted) else "no other job"
    note = e.Noted(f"after the resend, {strategy.strategy} shows {found} under our reference")
    await drive.record(note, f"call:{call_id}", answer=kept, release=release)


async def reconcile(drive: Hand, contract: Contract, strategy: Strategy) -> None:
    """Try one of the contract's ways to learn the fate of a create, under a permit."""
    if strategy.strategy == "resend":
        stored = await drive.shop.commits.run(lambda: drive.shop.store.request_of(drive.op.operation_id))
        request = requests.create(drive.op, contract, stored, resend=True)
        request, call_id = await drive.permitted(
            Action.RECONCILE, request, strategy="resend", may_create=True, digest=requests.sent_digest(stored)
        )
        if decide.usable_strategy(drive.op, contract, drive.shop.clock.now()) is None:
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
    reading, kept = await _search(drive, contract, search, request, call_id)
    wait = isinstance(reading.evidence, e.Accepted | e.Violation | e.Inconclusive)
    await drive.settle(reading, call_id, kept, release=wait and drive.op.cancel is None)


async def _search(
    drive: Hand, contract: Contract, search: lookups.Search, request: Request, call_id: str, *, permitted: bool = True
) -> tuple[answers.Reading, StoredAnswer | None]:
    """Read all pages of a look-up, each address once, within the contract's page cap.

    `permitted`: it runs under a reconcile permit, whose fate must be told if we are stopped meanwhile.
    """
    seen: set[str] = set()
    pages: list[StoredAnswer] = []
    stopped = ""
    search.notes.append(f"asked: {request.method} {redact.mask_url(request.url)}")

    def undone(why: str) -> e.Evidence:
        return e.Inconclusive(call_id=call_id, why=why, strategy=search.strategy.strategy)

    while True:
        seen.add(request.url)
        request = await drive.within_lease(request)
        if permitted:
            outcome = await drive.send(request, call_id, undone=undone)
        else:
            outcome = await drive.shop.http.send(request)
        kept = drive.keep(outcome, contract)
        pages += [kept] if kept is not None else []
        page = lookups.read_page(
            outcome, drive.op, contract, search, call_id=call_id, answer=kept.sha256 if kept else None
        )
        if isinstance(page, answers.Reading):
            return page, kept
        assert isinstance(outcome, Answer)
        try:
            further = requests.next_page(contract, search.strategy, outcome, page.document, request.url)
        except Refused as refused:
            stopped = refused.message
            break
        if further is None:
            break
        if further in seen:
            stopped = "the list's pages go round in a circle"
            break
        if search.pages >= search.strategy.max_pages:
            stopped = f"the list has more than {search.strategy.max_pages} pages"
            break
        request = requests.look_up(drive.op, contract, search.strategy, further)
    evidence = lookups.conclude(search, drive.op, drive.shop.clock.now(), complete=not stopped, why_incomplete=stopped)
    together = _together(pages)
    if isinstance(evidence, e.Answered) and together is not None:
        evidence = replace(evidence, answer=together.sha256)
    return answers.Reading(evidence), together


async def cancel(drive: Hand, contract: Contract) -> None:
    """Send the cancel of the recorded intent, once, under a permit."""
    request, call_id = await drive.permitted(Action.CANCEL, requests.cancel(drive.op, contract))

    def undone(why: str) -> e.Evidence:
        return e.CallLost(call_id=call_id, action=Action.CANCEL, why=why)

    outcome = await drive.send(request, call_id, undone=undone)
    kept = drive.keep(outcome, contract)
    reading = answers.read_cancel(outcome, drive.op, contract, call_id=call_id, answer=kept.sha256 if kept else None)
    await drive.settle(reading, call_id, kept, release=True)


def _together(pages: list[StoredAnswer]) -> StoredAnswer | None:
    """Keep all pages of a look-up as one answer: a verdict over several of them rests on every one."""
    if len(pages) < 2:
        return pages[0] if pages else None
    body = b"\n".join(page.body for page in pages)
    return StoredAnswer.of(body[:KEPT_ANSWER], pages[0].content_type, size=sum(page.size for page in pages))


def _references(contract: Contract) -> Strategy | None:
    """Return the contract's list look-up, if it has one: it shows all jobs under our reference."""
    return next((strategy for strategy in contract.reconcile if strategy.strategy == "list"), None)
