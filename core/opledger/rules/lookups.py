"""What a look-up says about a create whose answer was lost (DESIGN §6, reconcile).

A list is read page by page into a `Search`; `conclude` then says what the whole of it means. Exactly one match
adopts, more than one is a violation, none is proof only where the contract says so and the provider had time to settle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.rules import evidence as e
from opledger.rules.answers import CLOCK_SKEW, Reading
from opledger.rules.calls import Answer, Failure
from opledger.rules.contract import Contract, Strategy
from opledger.rules.files.checks import compares_reference
from opledger.rules.model import FINAL_MEANS, Means, Operation
from opledger.rules.pages import (
    CREDENTIALS,
    Page,
    content_type,
    first_id,
    means_of,
    moment_of,
    open_page,
    redirect_note,
    refusal,
    text_id,
    throttled,
    wait_until,
    word_of,
)
from opledger.rules.values import MISSING, Pick

_ROOT: Final = Pick("", pointer=())


@dataclass(frozen=True, slots=True)
class Match:
    """A job that answers to our reference."""

    job_id: str
    word: str | None
    live: bool


@dataclass(slots=True)
class Search:
    """What the pages of a look-up have shown so far."""

    strategy: Strategy
    matches: list[Match] = field(default_factory=list)
    items: int = 0
    too_old: int = 0
    aged: int = 0  #: of these, items that name our own reference: theirs cannot be, unless a clock is wrong
    nameless: int = 0  #: items that are ours and have no usable job id
    unread: int = 0  #: items on which the match could not be evaluated: they may be ours
    pages: int = 0
    ahead: timedelta = timedelta(0)  #: by how much the clock was set ahead since our last send
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_page(
    outcome: Answer | Failure, op: Operation, contract: Contract, search: Search, *, call_id: str, answer: str | None
) -> Reading | Page:
    """Read one page into `search`. A Reading ends the look-up without a verdict; a Page may have a successor."""
    strategy = search.strategy
    if isinstance(outcome, Failure):
        return Reading(
            _inconclusive(strategy, outcome.why, {"call_id": call_id, "status": outcome.status, "answer": answer})
        )
    page = open_page(outcome, contract, op)
    search.pages += 1
    busy = throttled(page)
    facts = page.facts(call_id, answer)
    retry_at, hint = wait_until(page)
    if busy:
        why = f"throttled ({hint or outcome.status})"
        return Reading(_inconclusive(strategy, why, facts, retry_at, again=retry_at is not None))
    if outcome.status in CREDENTIALS:
        why, pauses = refusal(outcome)
        at_once = outcome.answered_at if outcome.renewed else None
        return Reading(_inconclusive(strategy, why, facts, at_once, again=outcome.renewed), credentials=pauses)
    # An error page is that of a gateway, maybe: it says nothing of our job, whatever its code.
    page_of_html = not page.is_json and content_type(page) == "text/html"
    if strategy.strategy == "get" and outcome.status in (404, 410) and not page_of_html:
        search.facts = facts
        return page
    if not page.ok or not page.is_json:
        return Reading(_inconclusive(strategy, redirect_note(page), facts, retry_at))
    if not _gather(page, search):
        why = "the look-up answer has another shape than the contract says"
        return Reading(_inconclusive(strategy, why, facts, retry_at))
    search.facts = page.facts(call_id, answer)
    return page


def _gather(page: Page, search: Search) -> bool:
    """Add what the page shows; False where it has another shape than the contract says."""
    strategy, op = search.strategy, page.op
    if strategy.strategy == "list":
        items = page.pick(strategy.items)
        if not isinstance(items, list):
            return False
    else:
        items = [page.document]
    for item in items:
        search.items += 1
        made = moment_of(_of(strategy.item_created_at, item), strategy.created_at_unit)
        if made is not None and op.first_sent_at is not None and made < op.first_sent_at - CLOCK_SKEW:
            search.too_old += 1
            search.aged += compares_reference(strategy.match) != set() and _matches(page, search, item)
        elif _matches(page, search, item):
            _take(page, search, item)
    return True


def _matches(page: Page, search: Search, item: Any) -> bool:
    match = search.strategy.match
    if match is None:
        return True
    noted = len(page.notes)
    holds = page.holds(match, item=item)
    search.unread += len(page.notes) > noted
    if search.unread > 1:
        del page.notes[noted:]  # one note says it; thousands of items may have the same flaw
    return holds


def _take(page: Page, search: Search, item: Any) -> None:
    strategy = search.strategy
    raw_id = first_id(page, page.contract.create.job_id) if strategy.item_id is None else _of(strategy.item_id, item)
    job_id = text_id(raw_id)
    if job_id is None:
        # A singleton without a match names its job, or names none; anything else that is ours has an id.
        nothing = strategy.strategy == "singleton" and strategy.match is None and raw_id in (MISSING, None)
        search.nameless += not nothing
        return
    raw = _of(strategy.item_state, item)
    word = None if raw is MISSING else word_of(raw)
    means = Means.UNKNOWN if word is None else means_of(page.contract, word)
    search.matches.append(Match(job_id, word, means not in FINAL_MEANS))


def _of(pick: Pick | None, item: Any) -> Any:
    return MISSING if pick is None else pick.of(item, {})


def conclude(search: Search, op: Operation, now: datetime, *, complete: bool, why_incomplete: str = "") -> e.Evidence:
    """Say what the whole look-up means. `complete` is False where pages were left unread."""
    strategy = search.strategy
    facts = {**search.facts, "notes": (*search.facts.get("notes", ()), *search.notes)}
    by_id = {match.job_id: match for match in search.matches}
    jobs = tuple(by_id)
    if len(by_id) > 1:
        live = sum(match.live for match in by_id.values())
        why = f"{len(by_id)} jobs answer to our reference ({live} of them live)"
        return e.ManyJobs(**facts, why=why, jobs=tuple(dict.fromkeys((*op.jobs, *jobs))))
    if complete and (doubt := _doubt(search)):
        return e.Inconclusive(**facts, why=doubt, strategy=strategy.strategy, next_strategy=True)
    if len(by_id) == 1 and complete:
        match = search.matches[0]
        if op.jobs and match.job_id not in op.jobs:
            why = f"the look-up found job {match.job_id}, after job {op.jobs[0]}"
            return e.UnfamiliarJobId(**facts, why=why, jobs=(*op.jobs, match.job_id))
        compared = (
            strategy.match.text if strategy.match is not None else f"fetched under our own id by {strategy.strategy}"
        )
        return e.Accepted(
            **facts, job_id=match.job_id, remote_state=match.word, how=strategy.strategy,
            comparison=f"{compared}; 1 of {search.items} items on {search.pages} pages",
        )  # fmt: skip
    if not complete:
        return e.Inconclusive(**facts, why=why_incomplete, strategy=strategy.strategy, next_strategy=True)
    return _absent(search, op, now, facts)


def _doubt(search: Search) -> str | None:
    """Say why a complete look-up proves nothing, or None. What cannot be read is never taken for absence."""
    if search.nameless:
        return f"{search.nameless} items are ours and have no usable job id"
    if search.matches:
        return None
    if search.aged:
        # Never adopted; but a clock that was set ahead made our own job look as old, and absent (I28).
        return (
            f"{search.aged} items name our own reference and were made before our first send, by the provider's clock: "
            "another job's, or one of the clocks is wrong"
        )
    if search.unread:
        return f"{search.unread} items could not be compared with our reference; they may be ours"
    if search.strategy.strategy == "get" and search.items:
        return "something else than our job stands under our own id"
    return None


def _absent(search: Search, op: Operation, now: datetime, facts: dict[str, Any]) -> e.Evidence:
    strategy = search.strategy
    looked = f"{search.items} items on {search.pages} pages, none of them ours"
    if search.too_old:
        looked += f" ({search.too_old} older than our first send)"
    if not strategy.absence_is_proof:
        why = f"{looked}; the contract does not take absence as proof"
        return e.Inconclusive(**facts, why=why, strategy=strategy.strategy, next_strategy=True, absent=True)
    # A clock that was set ahead says that more time has passed than there was for a new job to show itself (I28).
    settled = (op.last_sent_at or now) + max(strategy.settle, strategy.visibility_lag) + search.ahead
    if now < settled:
        why = f"{looked}; the provider has until {settled:%H:%M:%S} UTC to show it"
        return e.Inconclusive(**facts, why=why, strategy=strategy.strategy, absent=True, retry_at=settled)
    why = f"{looked}, and the settle time has passed since our last send"
    return e.ProvenAbsent(**facts, strategy=strategy.strategy, why=why)


def _inconclusive(
    strategy: Strategy, why: str, facts: dict[str, Any], retry_at: datetime | None = None, *, again: bool = False
) -> e.Inconclusive:
    """Nothing more is asked before `retry_at`, and then the same (`again`), or what the contract names next."""
    return e.Inconclusive(**facts, why=why, strategy=strategy.strategy, next_strategy=not again, retry_at=retry_at)
