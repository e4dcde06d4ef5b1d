"""Fetching one file of a result: followed where it may be, gone on with where it broke off, checked while it streams.

A result that can be read only once is read under a permit, and once: whatever becomes of that read, it is not repeated
unless the provider said that it had nothing to give yet.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import new_id
from opledger.edges.files import remove_spare
from opledger.edges.marks import Label, Marks
from opledger.edges.streams import Interrupted, Rest, Sink, in_thread
from opledger.errors import Refused
from opledger.rules import answers, partial, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Download, Failure, Fate, Request
from opledger.rules.contract import Also, Contract
from opledger.rules.items import Outcomes
from opledger.rules.model import TERMINAL, Action
from opledger.rules.pages import context
from opledger.rules.results import Checker, Verdict, may_be_empty
from opledger.worker.hand import Hand
from opledger.worker.progress import Shown
from opledger.worker.shelve import under_lease

log = logging.getLogger("opledger.worker")

MOST_HOPS: Final = 5
"""Most redirects of one result read."""
MOST_RESUMES: Final = 20
"""Most times that one transfer is gone on with after it broke off."""
MOST_FRUITLESS: Final = 3
"""Most times in a row that this brings nothing."""
MOST_TRIES: Final = 3
"""Most attempts that an optional file may end; the result that is here is not lost over it."""
PAUSE: Final = 0.5
"""Seconds after one that brought nothing."""

Outcome = Download | Answer | Failure
SMALL: Final = 16 * 1024
"""Bytes of a result that is looked at at once: handing it to a thread would take longer."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to collect. `document` is the status answer that named the result, `sent` the keys of its items."""

    drive: Hand
    contract: Contract
    folder: Path
    document: Any
    sent: frozenset[str] | None = None

    @property
    def partial(self) -> bool:
        """True for the output of a job that did not succeed."""
        return self.drive.op.state in TERMINAL

    @property
    def single_use(self) -> bool:
        """True where the result can be read only once."""
        return self.contract.result is not None and self.contract.result.single_use


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that is here, whole, and what was found in it."""

    download: Download
    verdict: Verdict
    call_id: str
    outcomes: Outcomes | None = None

    def discard(self) -> None:
        """Remove the file, if it was not moved away."""
        remove_spare(Path(self.download.path))


@dataclass(frozen=True, slots=True)
class Lacking:
    """An optional file that is not to be had, and why: the result is taken without it."""

    why: str


@dataclass(slots=True)
class _Way:
    """Where the fetching of one file stands."""

    attempt: Attempt
    also: Also | None
    request: Request
    ends: float  #: when the attempt is over, on the monotonic clock
    shown: Shown
    hops: int = 0
    resumes: int = 0
    fruitless: int = 0
    received: int = 0
    checked_again: bool = False
    rest: Rest | None = None
    checkers: list[tuple[Checker, Outcomes | None]] = field(default_factory=list)

    def begin(self, headers: Mapping[str, str]) -> Callable[[bytes], None] | None:
        """Make what checks the file. The headers say which checksum is to be computed, and of what."""
        contract, drive = self.attempt.contract, self.attempt.drive
        items = None if contract.result is None else contract.result.items
        outcomes = None if items is None else Outcomes(items, self.attempt.sent, context(drive.op))
        checker = Checker(
            contract,
            self.attempt.document,
            headers,
            outcomes=outcomes,
            also=self.also,
            partial=self.attempt.partial,
        )
        self.checkers = [(checker, outcomes)]  # of what is begun anew, nothing stays
        self.shown.begin(headers)
        return checker.feed_wire if checker.wants_wire else None

    def feed(self, chunk: bytes) -> None:
        """Check the next bytes."""
        self.checkers[-1][0].feed(chunk)
        self.shown.add(len(chunk))

    def marks(self) -> Marks | None:
        """Return what makes a transfer last beyond this attempt; None where it may be tried only once."""
        if self.attempt.single_use:
            return None
        op = self.attempt.drive.op
        name = "" if self.also is None else self.also.name
        label = Label(op.operation_id, name, op.remote_job_id, self.request.url)
        return Marks(self.attempt.folder, label, self._so_far)

    def _so_far(self) -> str:
        return self.checkers[-1][0].so_far()


async def fetch(
    attempt: Attempt, also: Also | None, request: Request, *, spare: bool = False
) -> Fetched | Lacking | None:
    """Fetch one file. Returns None, once that is recorded, where the attempt ends without it.

    One that is to `spare` ends the attempt only the first times: then the result is taken without it.
    """
    clock = attempt.drive.shop.clock
    shown = Shown(attempt.folder, attempt.drive.op.operation_id, clock)
    way = _Way(attempt, also, request, clock.monotonic() + request.timeout.total_seconds(), shown)
    try:
        while True:
            if way.rest is None:
                way.rest = await _left_over(way)
            call_id = await _call_id(way)
            outcome = await _unless_empty(way, await _transfer(way))
            if await _goes_on(way, outcome, call_id):
                continue
            if isinstance(outcome, Download):
                found = await _found(way, outcome, call_id)
                if found is None:
                    continue
                return found
            why = _lacks(way, outcome, call_id) if spare else None
            if why is not None:
                await _failed(way, outcome, call_id, f"{request.url.partition('?')[0]}: {why}")
                return Lacking(why)
            await _brought_nothing(way, outcome, call_id)
            return None
    finally:
        if way.rest is not None:
            await way.rest.sink.leave()
        await asyncio.to_thread(shown.end)


async def _call_id(way: _Way) -> str:
    """Name the call that follows; where it can be made only once, commit its permit first."""
    if not way.attempt.single_use:
        return new_id("call")
    _, call_id = await way.attempt.drive.permitted(Action.COLLECT, way.request)
    return call_id


async def _left_over(way: _Way) -> Rest | None:
    """Return what an earlier attempt left of this transfer, maybe that of a worker that died. It is looked at anew."""
    marks, unwanted = way.marks(), threading.Event()
    found = None if marks is None else await in_thread(marks.find)
    if marks is None or found is None:
        return None
    way.begin(found.headers)
    sink = Sink.again(found, way.feed, marks)
    rest = Rest.of(sink, found.status, found.headers, found.received)

    def look() -> bool:
        for piece in found.pieces():
            if unwanted.is_set():
                return False
            way.feed(piece)
        return way.checkers[-1][0].so_far() == found.sha256

    try:
        await way.attempt.drive.fresh_lease()
        right = rest is not None and await under_lease(way.attempt.drive, in_thread(look), unwanted)
    except BaseException:
        found.file.close()  # it stays for the next one
        raise
    if rest is None or not right:
        await sink.discard()
        return None
    way.received = rest.received
    log.info("%s: %d bytes are here from before", way.attempt.drive.op.operation_id, rest.received)
    return rest


async def _transfer(way: _Way) -> Outcome:
    """Stream to a temporary file, renewing the lease while it lasts."""
    drive, rest = way.attempt.drive, way.rest
    await drive.shop.turns.take(drive)
    await drive.fresh_lease()
    drive.shop.turns.spend(drive)
    left = max(way.ends - drive.shop.clock.monotonic(), 0.001)
    request = replace(way.request, timeout=min(way.request.timeout, timedelta(seconds=left)))
    way.rest = None  # from here on the transfer owns it
    transfer = drive.shop.http.download(
        request, way.attempt.folder, way.feed, on_head=way.begin, rest=rest, marks=way.marks()
    )
    return await under_lease(drive, transfer)


async def _goes_on(way: _Way, outcome: Outcome, call_id: str) -> bool:
    """Tell whether there is another call to make at once: behind a redirect, or for the rest of a transfer."""
    if isinstance(outcome, Interrupted) and outcome.rest is not None:
        way.rest = outcome.rest
        if way.attempt.single_use or not _may_resume(way, outcome.rest):
            return False
        await _failed(way, outcome, call_id, f"{outcome.why}; {outcome.rest.received} bytes are here, the rest follows")
        if way.fruitless:
            await asyncio.sleep(PAUSE)
        return True
    onward = _redirect(way, outcome) if way.hops < MOST_HOPS else None
    if onward is None:
        return False
    if way.attempt.single_use:
        await _failed(way, outcome, call_id, "redirected; the result is read where that leads")
    way.hops += 1
    way.request = onward
    return True


def _may_resume(way: _Way, rest: Rest) -> bool:
    """Count one more time that a transfer is gone on with, and tell whether it may be."""
    way.fruitless = 0 if rest.received > way.received else way.fruitless + 1
    way.received = rest.received
    way.resumes += 1
    in_time = way.ends > way.attempt.drive.shop.clock.monotonic()
    return in_time and way.resumes <= MOST_RESUMES and way.fruitless < MOST_FRUITLESS


async def _failed(way: _Way, outcome: Outcome, call_id: str, why: str) -> None:
    """Record a call that did not bring the file, while the attempt goes on."""
    failed = e.ReadFailed(call_id=call_id, status=outcome.status, action=Action.COLLECT, why=why, code="result")
    await way.attempt.drive.record(failed, f"call:{call_id}")


def _redirect(way: _Way, outcome: Outcome) -> Request | None:
    """Return where a result read may go on. Only result reads follow, and only where the contract lists the host."""
    drive, contract = way.attempt.drive, way.attempt.contract
    if not isinstance(outcome, Answer) or outcome.status not in (301, 302, 303, 307, 308):
        return None
    location = outcome.headers.get("location")
    if not location:
        return None
    try:
        url = requests.result_url(contract, location, way.request.url)
        return requests.result_read(drive.op, contract, url, redirected=True)
    except Refused as refused:
        log.info("%s: %s", drive.op.operation_id, refused)
        return None


async def _found(way: _Way, download: Download, call_id: str) -> Fetched | None:
    """Judge a file that is here. Returns None where its checksum is wrong, once: that looks like a broken transfer."""
    checker, outcomes = way.checkers[-1]
    if download.size <= SMALL:
        verdict = checker.finish()
    else:
        async with way.attempt.drive.shop.parsing:
            verdict = await asyncio.to_thread(checker.finish)  # it may parse megabytes
    if verdict.checksum_failed and not way.checked_again and not way.attempt.single_use:
        way.checked_again = True
        await asyncio.to_thread(remove_spare, Path(download.path))
        await _failed(way, download, call_id, f"{verdict.problems[0]}; fetched once more")
        return None
    if way.checked_again and not verdict.checksum_compared:
        # What was proven wrong once is not right because nothing is said any more.
        silent = "an earlier answer gave a checksum that did not fit, and this one gives none to compare"
        verdict = replace(verdict, ok=False, problems=(silent, *verdict.problems))
    return Fetched(download, verdict, call_id, outcomes)


async def _brought_nothing(way: _Way, outcome: Answer | Failure, call_id: str) -> None:
    """Record a result read that brought no result: gone, on a host that may not be read, or to be tried again."""
    drive, contract = way.attempt.drive, way.attempt.contract
    ended = _for_good(way, outcome, call_id)
    if ended is not None:
        await drive.record(partial.ending(drive.op, ended), f"call:{call_id}", release=True)
        return
    kept = drive.keep(outcome, contract)
    reading = answers.read_missing_result(
        outcome, drive.op, contract, call_id=call_id, answer=kept.sha256 if kept else None
    )
    reading = replace(reading, evidence=partial.ending(drive.op, reading.evidence))
    await drive.settle(reading, call_id, kept, release=True)


async def _unless_empty(way: _Way, outcome: Outcome) -> Outcome:
    """Take a file without a byte that is no result for what it is: an answer that there is none yet."""
    if not isinstance(outcome, Download) or _is_something(way, outcome):
        return outcome
    await asyncio.to_thread(remove_spare, Path(outcome.path))
    return Answer(outcome.status, outcome.headers, b"", outcome.answered_at, way.request.url)


def _is_something(way: _Way, download: Download) -> bool:
    """Tell whether a file is here, and not only the news that there is none yet."""
    if download.size:
        return True
    if way.also is not None:
        return download.status != HTTPStatus.NO_CONTENT  # that may be "not yet", and nothing says how much it has
    return may_be_empty(way.attempt.contract, way.attempt.document, download.headers)


def _lacks(way: _Way, outcome: Answer | Failure, call_id: str) -> str | None:
    """Say why a file that is optional is not waited for any longer; None where another attempt may bring it."""
    drive, contract = way.attempt.drive, way.attempt.contract
    ended = _for_good(way, outcome, call_id)
    if ended is None:
        ended = answers.read_missing_result(outcome, drive.op, contract, call_id=call_id, answer=None).evidence
    if isinstance(ended, e.ResultMissing | e.ResultInvalid):
        return ended.why
    tired = drive.op.attempts.collect + 1 >= MOST_TRIES
    return ended.why if tired and isinstance(ended, e.ReadFailed) else None


def _for_good(way: _Way, outcome: Answer | Failure, call_id: str) -> e.Evidence | None:
    """Return what ends the collecting, where no further try could bring anything else."""
    if isinstance(outcome, Failure) and outcome.too_large:
        why = f"the result is not taken: {outcome.why}"
        return e.ResultInvalid(call_id=call_id, status=outcome.status, why=why, problems=(why,))
    location = outcome.headers.get("location") if isinstance(outcome, Answer) else None
    if location and isinstance(outcome, Answer) and 300 <= outcome.status < 400:
        try:
            requests.result_url(way.attempt.contract, location, way.request.url)
        except Refused as refused:
            return e.ResultMissing(call_id=call_id, status=outcome.status, why=refused.message)
    if way.attempt.single_use and _may_be_used_up(outcome):
        why = outcome.why if isinstance(outcome, Failure) else f"it brought nothing (status {outcome.status})"
        lost = f"the result can be read only once, and that read is lost: {why}"
        return e.ResultMissing(call_id=call_id, status=outcome.status, why=lost)
    return None


def _may_be_used_up(outcome: Answer | Failure) -> bool:
    """Tell whether a read that brought nothing may have been the only one there is."""
    if isinstance(outcome, Failure):
        return outcome.fate is not Fate.NOT_DELIVERED
    return outcome.status >= 500 or (outcome.status < 300 and outcome.status != 202)
