"""Collecting: fetch the result, check it while it streams, store it durably, then say so.

The place a result lies is taken from a status answer read under this lease, never from the record: signed addresses
die early and do not belong in a journal.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import new_id
from opledger.errors import Refused, StoreUnavailable
from opledger.rules import evidence as e
from opledger.rules import expectation, requests
from opledger.rules.contract import Contract
from opledger.rules.items import sent_keys
from opledger.rules.jsontext import dumps as dump_json
from opledger.rules.jsontext import loads as load_json
from opledger.rules.model import StoredFile, StoredResult
from opledger.rules.partial import ending
from opledger.rules.results import Whole, judge
from opledger.rules.values import MISSING
from opledger.worker.deliveries import told_document
from opledger.worker.fetching import Attempt, Fetched, Lacking, fetch
from opledger.worker.hand import Hand
from opledger.worker.observe import observe
from opledger.worker.shelve import shelve

MOST_PROBLEMS: Final = 50
"""Most problems of one result that are recorded."""
PROBLEM: Final = 500
"""Most characters of one of them."""
WHY: Final = 2000
"""Most characters of why a result is invalid."""
PATIENCE: Final = (1.0, 2.0, 4.0)
"""Seconds between tries to keep what cannot be read again."""


async def keep_inline(drive: Hand, contract: Contract, content: bytes, content_type: str | None) -> StoredResult:
    """Store a result that came inside an answer, and hold it against what is expected of it."""
    short = await asyncio.to_thread(expectation.tried_inline, drive.op, contract, content, content_type)
    location = await asyncio.to_thread(
        drive.shop.results.keep_bytes, content, drive.op.operation_id, _suffix(content_type)
    )
    sha256 = hashlib.sha256(content).hexdigest()
    return StoredResult(location, len(content), sha256, content_type, validated=not short, problems=short)


async def collect(drive: Hand, contract: Contract) -> None:
    """Do one attempt to collect. Records what came of it; keeps the state where a later attempt may succeed.

    What a job left behind that did not succeed is collected in the same way, and attached to it.
    """
    result = contract.result
    assert result is not None
    # The provider is not asked while there is no place for what it has.
    folder = await asyncio.to_thread(drive.shop.results.temporary)
    by_status = result.inline is not None or result.url is not None or bool(result.also)
    if by_status and contract.status.by_delivery:
        drive.fresh = (await told_document(drive), "")  # nobody can be asked anew
    elif by_status and drive.fresh is None:
        await observe(drive, contract)  # a fresh status answer, recorded like any other
        if drive.released or drive.shop.leaving():
            return  # the read failed, or told of something that ends the collecting
    document, answer_url = drive.fresh if drive.fresh is not None else (None, "")
    drive.fresh = None
    if result.inline is not None:
        await _collect_inline(drive, contract, document)
        return
    attempt = Attempt(drive, contract, folder, document, await _sent_keys(drive, contract))
    try:
        parts = requests.collect_parts(drive.op, contract, document, answer_url)
        texts = [request for _, request in parts if isinstance(request, str)]
        if len(texts) == len(parts):
            raise Refused(texts[0])  # no file is left that could be read
    except Refused as refused:
        missing = ending(drive.op, e.ResultMissing(call_id=new_id("call"), why=refused.message))
        await drive.record(missing, "call:none", release=True)
        return
    here: dict[str, Fetched] = {}
    without: dict[str, str] = {}
    try:
        for also, request in parts:
            spare = also is not None and also.optional and "" in here  # the result itself is here already
            found = Lacking(request) if isinstance(request, str) else await fetch(attempt, also, request, spare=spare)
            if found is None:
                return
            if also is not None and isinstance(found, Lacking):
                without[also.name] = found.why
            elif isinstance(found, Fetched):
                here["" if also is None else also.name] = found
        await _store(attempt, here, without)
        here.clear()  # what is kept has been moved
    finally:
        for found in here.values() if not result.single_use else ():
            await asyncio.to_thread(found.discard)


async def _sent_keys(drive: Hand, contract: Contract) -> frozenset[str] | None:
    """Return the keys of the items that were sent, where the contract says where they stand."""
    result = contract.result
    if result is None or result.items is None or result.items.sent is None:
        return None
    stored = await drive.stored_request(contract)
    return await asyncio.to_thread(lambda: sent_keys(contract, load_json(stored.asked) if stored.asked else None))


async def _collect_inline(drive: Hand, contract: Contract, document: Any) -> None:
    result = contract.result
    assert result is not None and result.inline is not None
    call_id = new_id("call")
    value = result.inline.of(document, {})
    if value is MISSING or value is None:
        why = f"{contract.status.told_in} has nothing at {result.inline.text}"
        await drive.record(e.ResultMissing(call_id=call_id, why=why), f"call:{call_id}", release=True)
        return
    content = value.encode() if isinstance(value, str) else dump_json(value)
    content_type = "text/plain; charset=utf-8" if isinstance(value, str) else "application/json"
    stored = await keep_inline(drive, contract, content, content_type)
    evidence: e.Evidence = e.ResultAccepted(call_id=call_id, result=stored)
    if not stored.validated:
        why = "; ".join(stored.problems)
        evidence = e.ResultInvalid(call_id=call_id, result=stored, why=why, problems=stored.problems)
    await drive.record(evidence, f"call:{call_id}", release=True)


async def _store(attempt: Attempt, here: Mapping[str, Fetched], without: Mapping[str, str]) -> None:
    """Judge all files together, keep them, and say so. `without`: why which optional file is not there."""
    drive, partial = attempt.drive, attempt.partial
    verdicts = {name: found.verdict for name, found in here.items()}
    outcomes = [found.outcomes for found in here.values() if found.outcomes is not None]

    def judged() -> Whole:
        return judge(attempt.contract, attempt.document, verdicts, outcomes, partial=partial, without=without)

    whole = await asyncio.to_thread(judged) if outcomes else judged()  # of items there may be millions
    first, main = next(iter(here.values())), here.get("")
    if not partial:
        whole = expectation.tried(drive.op, attempt.contract, whole, None if main is None else main.verdict)
    try:
        places = {name: await _keep(attempt, name, found) for name, found in here.items()}
    except StoreUnavailable as error:
        if not attempt.single_use or drive.held.lost:
            raise
        why = f"it was read, which can be done only once, and not kept ({error.message})"
        why = f"{why}; the only copy is {first.download.path} on the machine of {drive.shop.name}, for a few hours"
        missing = e.ResultMissing(call_id=first.call_id, status=first.download.status, why=why)
        await drive.record(missing, f"call:{first.call_id}", release=True)
        return
    stored = StoredResult(
        places.get(""),
        0 if main is None else main.verdict.size,
        None if main is None else main.verdict.sha256,
        None if main is None else main.verdict.content_type,
        validated=whole.ok,
        problems=tuple(problem[:PROBLEM] for problem in whole.problems[:MOST_PROBLEMS]),
        items=whole.items,
        also=tuple(
            StoredFile(name, places[name], one.verdict.size, one.verdict.sha256, one.verdict.content_type)
            for name, one in here.items()
            if name
        ),
    )
    facts: dict[str, Any] = {"call_id": first.call_id, "status": first.download.status, "result": stored}
    facts["notes"] = tuple(
        f"{name}: read by {one.call_id}, status {one.download.status}" for name, one in here.items() if one is not first
    )
    evidence: e.Evidence
    if partial:
        evidence = e.PartialAttached(**facts)
    elif not whole.ok:
        evidence = e.ResultInvalid(**facts, why="; ".join(stored.problems)[:WHY], problems=stored.problems)
    elif whole.all_failed:
        evidence = e.ResultAllItemsFailed(**facts, why=drive.shop.redactor().mask_text(whole.why))
    else:
        evidence = e.ResultAccepted(**facts)
    await drive.record(evidence, f"call:{first.call_id}", release=True)


async def _keep(attempt: Attempt, name: str, found: Fetched) -> str:
    """Bring a file to the store. One that cannot be read again is worth some patience where the store fails."""
    suffix = (f".{name}" if name else "") + _suffix(found.verdict.content_type)
    path = Path(found.download.path)
    for pause in PATIENCE if attempt.single_use else ():
        try:
            return await shelve(attempt.drive, path, suffix)
        except StoreUnavailable:
            await asyncio.sleep(pause)
    return await shelve(attempt.drive, path, suffix)


_SUFFIXES: Final = {
    "application/json": ".json",
    "application/jsonl": ".jsonl",
    "application/x-ndjson": ".jsonl",
    "text/csv": ".csv",
    "text/plain": ".txt",
}


def _suffix(content_type: str | None) -> str:
    return _SUFFIXES.get((content_type or "").partition(";")[0].strip().lower(), ".bin")
