"""Collecting: fetch the result, check it while it streams, store it durably, then say so.

The place a result lies is taken from a status answer read under this lease, never from the record: signed addresses
die early and do not belong in a journal.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import new_id
from opledger.errors import Refused
from opledger.rules import answers, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Download, Failure, Request
from opledger.rules.contract import Contract
from opledger.rules.jsontext import dumps as dump_json
from opledger.rules.model import Action, StoredResult
from opledger.rules.results import Checker, Verdict
from opledger.rules.values import MISSING
from opledger.worker.hand import Hand
from opledger.worker.observe import observe
from opledger.worker.shelve import keep_lease, shelve

log = logging.getLogger("opledger.worker")

MOST_HOPS: Final = 5
"""Most redirects of one result read."""

Outcome = Download | Answer | Failure


async def keep_inline(drive: Hand, content: bytes, content_type: str | None) -> StoredResult:
    """Store a result that came inside an answer."""
    location = await asyncio.to_thread(
        drive.shop.results.keep_bytes, content, drive.op.operation_id, _suffix(content_type)
    )
    return StoredResult(location, len(content), hashlib.sha256(content).hexdigest(), content_type, validated=True)


async def collect(drive: Hand, contract: Contract) -> None:
    """Do one attempt to collect. Records what came of it; keeps the state where a later attempt may succeed."""
    result = contract.result
    assert result is not None
    # The provider is not asked while there is no place for what it has.
    folder = await asyncio.to_thread(drive.shop.results.temporary)
    if (result.inline is not None or result.url is not None) and drive.fresh is None:
        await observe(drive, contract)  # a fresh status answer, recorded like any other
        if drive.released or drive.shop.leaving():
            return  # the read failed, or told of something that ends the collecting
    document, answer_url = drive.fresh if drive.fresh is not None else (None, "")
    if result.inline is not None:
        await _collect_inline(drive, contract, document)
        return
    try:
        request = requests.collect(drive.op, contract, document, answer_url)
    except Refused as refused:
        drive.fresh = None
        await drive.record(e.ResultMissing(call_id=new_id("call"), why=refused.message), "call:none", release=True)
        return
    await _download(drive, contract, request, document, folder)


async def _collect_inline(drive: Hand, contract: Contract, document: Any) -> None:
    result = contract.result
    assert result is not None and result.inline is not None
    call_id = new_id("call")
    value = result.inline.of(document, {})
    drive.fresh = None
    if value is MISSING or value is None:
        why = f"the status answer has nothing at {result.inline.text}"
        await drive.record(e.ResultMissing(call_id=call_id, why=why), f"call:{call_id}", release=True)
        return
    content = value.encode() if isinstance(value, str) else dump_json(value)
    content_type = "text/plain; charset=utf-8" if isinstance(value, str) else "application/json"
    stored = await keep_inline(drive, content, content_type)
    await drive.record(e.ResultAccepted(call_id=call_id, result=stored), f"call:{call_id}", release=True)


async def _download(drive: Hand, contract: Contract, request: Request, document: Any, folder: Path) -> None:
    hops = 0
    again = False
    while True:
        call_id = new_id("call")
        outcome, checker = await _fetch(drive, contract, request, document, folder)
        onward = _redirect(drive, contract, outcome, request) if hops < MOST_HOPS else None
        if onward is not None:
            hops += 1
            request = onward
            continue
        if not isinstance(outcome, Download) or outcome.size == 0 or checker is None:
            await _brought_nothing(drive, contract, outcome, request, call_id)
            return
        verdict = await asyncio.to_thread(checker.finish)  # it may parse megabytes
        if verdict.checksum_failed and not again:
            again = True
            await asyncio.to_thread(Path(outcome.path).unlink, missing_ok=True)
            why = f"{verdict.problems[0]}; fetched once more"
            await drive.record(
                e.ReadFailed(call_id=call_id, status=outcome.status, action=Action.COLLECT, why=why, code="result"),
                f"call:{call_id}",
            )
            continue
        await _store(drive, outcome, verdict, call_id)
        return


def _redirect(drive: Hand, contract: Contract, outcome: Outcome, request: Request) -> Request | None:
    """Return where a result read may go on. Only result reads follow, and only where the contract lists the host."""
    if not isinstance(outcome, Answer) or outcome.status not in (301, 302, 303, 307, 308):
        return None
    location = outcome.headers.get("location")
    if not location:
        return None
    try:
        return requests.result_read(drive.op, contract, requests.result_url(contract, location, request.url))
    except Refused as refused:
        log.info("%s: %s", drive.op.operation_id, refused)
        return None


async def _brought_nothing(drive: Hand, contract: Contract, outcome: Outcome, request: Request, call_id: str) -> None:
    """Record a result read that brought no result: gone, on a host that may not be read, or to be tried again."""
    drive.fresh = None
    if isinstance(outcome, Download):
        await asyncio.to_thread(Path(outcome.path).unlink, missing_ok=True)
        outcome = Answer(outcome.status, outcome.headers, b"", outcome.answered_at, request.url)
    location = outcome.headers.get("location") if isinstance(outcome, Answer) else None
    if location and isinstance(outcome, Answer) and 300 <= outcome.status < 400:
        try:
            requests.result_url(contract, location, request.url)
        except Refused as refused:
            missing = e.ResultMissing(call_id=call_id, status=outcome.status, why=refused.message)
            await drive.record(missing, f"call:{call_id}", release=True)
            return
    if isinstance(outcome, Failure) and outcome.too_large:
        why = f"the result is not taken: {outcome.why}"
        invalid = e.ResultInvalid(call_id=call_id, status=outcome.status, why=why, problems=(why,))
        await drive.record(invalid, f"call:{call_id}", release=True)
        return
    kept = drive.keep(outcome, contract)
    reading = answers.read_missing_result(
        outcome, drive.op, contract, call_id=call_id, answer=kept.sha256 if kept else None
    )
    await drive.settle(reading, call_id, kept, release=True)


async def _fetch(
    drive: Hand, contract: Contract, request: Request, document: Any, folder: Path
) -> tuple[Outcome, Checker | None]:
    """Stream the result to a temporary file, renewing the lease while it lasts."""
    checkers: list[Checker] = []  # made once the headers are known: they say which checksum is to be computed

    def begin(headers: Mapping[str, str]) -> None:
        checkers.append(Checker(contract, document, headers))

    def feed(chunk: bytes) -> None:
        checkers[0].feed(chunk)

    await drive.fresh_lease()
    keeper = asyncio.ensure_future(keep_lease(drive))
    transfer = asyncio.ensure_future(drive.shop.http.download(request, folder, feed, on_head=begin))
    try:
        await asyncio.wait({keeper, transfer}, return_when=asyncio.FIRST_COMPLETED)
        if not transfer.done():
            transfer.cancel()
            await asyncio.wait({transfer})
            await keeper  # raises Dropped: the lease went while the transfer ran
        return transfer.result(), checkers[0] if checkers else None
    finally:
        keeper.cancel()
        transfer.cancel()
        await asyncio.gather(keeper, transfer, return_exceptions=True)


async def _store(drive: Hand, download: Download, verdict: Verdict, call_id: str) -> None:
    drive.fresh = None
    location = await shelve(drive, Path(download.path), _suffix(verdict.content_type))
    stored = StoredResult(
        location, verdict.size, verdict.sha256, verdict.content_type, validated=verdict.ok, problems=verdict.problems
    )
    facts: dict[str, Any] = {"call_id": call_id, "status": download.status, "result": stored}
    evidence: e.Evidence
    if verdict.ok:
        evidence = e.ResultAccepted(**facts)
    else:
        evidence = e.ResultInvalid(**facts, why="; ".join(verdict.problems), problems=verdict.problems)
    await drive.record(evidence, f"call:{call_id}", release=True)


_SUFFIXES: Final = {
    "application/json": ".json",
    "application/jsonl": ".jsonl",
    "application/x-ndjson": ".jsonl",
    "text/csv": ".csv",
    "text/plain": ".txt",
}


def _suffix(content_type: str | None) -> str:
    return _SUFFIXES.get((content_type or "").partition(";")[0].strip().lower(), ".bin")
