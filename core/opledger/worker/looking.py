"""Look-ups: every page of a list, or the one answer of a get, read into one verdict."""

from __future__ import annotations

from dataclasses import replace

from opledger.errors import Refused
from opledger.rules import answers, lookups, redact, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Request
from opledger.rules.contract import Contract, Strategy
from opledger.store import Answer as StoredAnswer
from opledger.worker.hand import Hand
from opledger.worker.keep import KEPT_ANSWER


def shows_all(contract: Contract) -> Strategy | None:
    """Return the contract's list look-up, if it has one: it shows all jobs under our reference."""
    return next((strategy for strategy in contract.reconcile if strategy.strategy == "list"), None)


async def read_pages(
    drive: Hand, contract: Contract, search: lookups.Search, request: Request, call_id: str, *, permitted: bool = True
) -> tuple[answers.Reading, StoredAnswer | None]:
    """Read all pages of a look-up, each address once, within the contract's page cap.

    `permitted`: it runs under a reconcile permit, whose fate must be told if we are stopped meanwhile.
    """
    began = drive.shop.clock.now()  # what the first page shows is as old as this, however long the rest takes
    search.ahead = drive.shop.clock.ahead_since(drive.op.last_sent_at or began)
    seen: set[str] = set()
    pages: list[StoredAnswer] = []
    stopped = ""
    search.notes.append(f"asked: {request.method} {redact.mask_url(request.url)}")

    def undone(why: str) -> e.Evidence:
        return e.Inconclusive(call_id=call_id, why=why, strategy=search.strategy.strategy)

    while True:
        seen.add(request.url)
        request = await drive.ready(request)
        if permitted:
            outcome = await drive.send(request, call_id, undone=undone)
        else:
            outcome = await drive.look(request)
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
    evidence = lookups.conclude(search, drive.op, began, complete=not stopped, why_incomplete=stopped)
    together = _together(pages)
    if isinstance(evidence, e.Answered) and together is not None:
        evidence = replace(evidence, answer=together.sha256)
    return answers.Reading(evidence), together


def _together(pages: list[StoredAnswer]) -> StoredAnswer | None:
    """Keep all pages of a look-up as one answer: a verdict over several of them rests on every one."""
    if len(pages) < 2:
        return pages[0] if pages else None
    body = b"\n".join(page.body for page in pages)
    return StoredAnswer.of(body[:KEPT_ANSWER], pages[0].content_type, size=sum(page.size for page in pages))
