"""How this worker fares with each provider, and what follows where calls fail again and again (`rules.reach`).

Counting is done here and costs nothing. Only where calls fail, and with each sign of life, is it told to the others
and judged by what all of them say. Times are monotonic seconds, but for what is told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from opledger.edges.clock import Clock
from opledger.errors import StoreUnavailable
from opledger.rules import reach
from opledger.rules.contract import Contract
from opledger.rules.evidence import CallLost, Evidence, Inconclusive, NotDelivered, ReadFailed
from opledger.rules.reach import Budget, Row, Tally, Verdict
from opledger.store import Store
from opledger.store.encoding import from_micros, span_micros, to_micros
from opledger.store.reach import Report
from opledger.store.values import Aside
from opledger.worker.limits import Limits

log = logging.getLogger("opledger.worker")

ASK_EVERY: Final = 1.0
"""Seconds between two judgements of one provider, at least."""

SKIPPED: Final = timedelta(seconds=30)
"""For how long a contract is left to other workers, once something it needs was missing on this machine."""


class Run(Protocol):
    """Has the store's thread do something."""

    async def __call__(self, work: Any, /) -> Any:
        """Return what it returns."""
        ...


@dataclass(slots=True)
class _Fortune:
    """How it goes with one provider."""

    contract: Contract
    own: Row | None = None  #: failures since our last success
    common: Row | None = None  #: failures since anybody's
    told_at: int | None = None
    worked: datetime | None = None
    at: int = 0
    asides: int = 0
    aside: Aside | None = None
    asked: float = -ASK_EVERY
    written: Report | None = None  #: what the database has of it

    @property
    def well(self) -> bool:
        """True where the last call brought an answer."""
        return self.own is None

    @property
    def recent(self) -> int:
        """How long ago something may be, in microseconds, that others are still asked about."""
        return max(span_micros(self.contract.limits.error_window), reach.REMEMBERED)


class Reach:
    """What this worker knows of its providers."""

    def __init__(self, name: str, store: Store, clock: Clock, limits: Limits) -> None:
        self._name, self._store, self._clock, self._limits = name, store, clock, limits
        self._known: dict[str, _Fortune] = {}

    # --- counting -------------------------------------------------------------------------------------------

    def fared(self, contract: Contract, evidence: Evidence) -> bool:
        """Count what a call has brought; True where it is time to have it judged."""
        one = self._known.get(contract.name)
        if one is None:
            one = self._known[contract.name] = _Fortune(contract)
        if not isinstance(evidence, CallLost | NotDelivered | ReadFailed | Inconclusive):
            one.worked = self._clock.now()
            if one.own is not None or one.aside is not None:
                self._recovered(one)
            return False
        if isinstance(evidence, ReadFailed) and evidence.code not in ("read_failed", "result"):
            return False  # an answer that makes sense: not there yet, gone, throttled
        if isinstance(evidence, Inconclusive) and (evidence.absent or evidence.status is not None):
            return False
        one.contract, one.at = contract, to_micros(self._clock.now())
        one.own, one.common = _more(one.own, one.at), _more(one.common, one.at)
        budget = contract.limits.error_budget
        if budget == 0 or one.own.failures < min(reach.WITNESS, budget):
            return False
        return self._clock.monotonic() >= one.asked + ASK_EVERY

    def aside(self, contract: str) -> str | None:
        """Return why a provider is left to other workers now, or None."""
        one = self._known.get(contract)
        if one is None or one.aside is None or self._clock.now() >= one.aside.until:
            return None
        return f"this worker leaves it to others: {one.aside.why}"

    def resumed(self, contract: str) -> None:
        """Begin anew with a provider to which calls were stopped, and are no longer; what was told is removed."""
        if self._known.pop(contract, None) is not None:
            self._limits.careful(contract, on=False)

    def missing(self, contract: Contract, why: str) -> None:
        """Leave a provider to others for a while that needs something which is missing on this machine."""
        log.warning("%s is left out here: %s", contract.name, why)
        one = self._known.setdefault(contract.name, _Fortune(contract))
        now = self._clock.now()
        one.at = to_micros(now)
        one.aside = Aside(contract.name, now if one.aside is None else one.aside.since, now + SKIPPED, why)
        self._limits.skip(contract.name, self._clock.monotonic(), SKIPPED.total_seconds())

    # --- judging --------------------------------------------------------------------------------------------

    async def judge(self, contract: str, last: str, run: Run) -> str | None:
        """Tell what fails, and do what follows from what all say; return why the provider is to be paused, or None.

        `run`: has the store's thread do something. Where the database is away nothing follows, and it is asked again.
        """
        one = self._known.get(contract)
        if one is None or one.own is None:
            return None
        own, now, limits = one.own, self._clock.now(), one.contract.limits
        one.asked = self._clock.monotonic()
        one.told_at = one.told_at or to_micros(now)
        report, asides = self._report(one), one.asides
        budget = Budget(limits.error_budget, span_micros(limits.error_window))
        try:
            judged = await run(lambda: self._store.judge_reach(report, own, budget, now, asides=asides))
        except StoreUnavailable as error:
            log.warning("nobody could be asked about %s: %s", contract, error)
            return None
        one.written = report
        if self._known.get(contract) is not one or one.well:
            return None  # it has answered meanwhile
        if judged.worked_at is not None and one.common is not None and judged.worked_at >= one.common.since:
            one.common, one.told_at = None, None  # what failed before that is nobody's any longer
        if judged.verdict is Verdict.PAUSE:
            del self._known[contract]
            return f"error budget: {judged.why}; the last: {last}"
        if judged.verdict is Verdict.STAND_ASIDE and self.aside(contract) is None:
            self._stand_aside(one, f"{judged.why}; the last: {last}", now)
        return None

    def beat(self) -> None:
        """Tell what others want to know, and end what is over: part of a sign of life, on the store's thread.

        Raises StoreUnavailable.
        """
        if not self._known:
            return
        told, now = self._store.reach(), self._clock.now()
        failing: dict[str, int] = {}
        for report in told:
            tally, known = report.tally, self._known.get(report.contract)
            if tally.owner == self._name or tally.row is None or known is None:
                continue
            if tally.failing and tally.at >= to_micros(now) - known.recent:
                failing[report.contract] = min(tally.row.since, failing.get(report.contract, tally.row.since))
        news = [report for one in list(self._known.values()) for report in self._news(one, failing, now)]
        if news:
            self._store.tell_reach(news, now)

    def _news(self, one: _Fortune, failing: Mapping[str, int], now: datetime) -> Iterator[Report]:
        """Yield what is to be told of a provider, if anything."""
        name, enough = one.contract.name, min(reach.WITNESS, one.contract.limits.error_budget or reach.WITNESS)
        if one.aside is not None and (now >= one.aside.until or self._store.workers_alive(self._name, now) <= 1):
            self._limits.skip(name, self._clock.monotonic(), 0)
            one.aside = None  # it is tried again, one call at a time until one succeeds
        if one.own is not None and one.own.failures >= enough:
            one.told_at = one.told_at or to_micros(now)
        elif one.aside is None and one.written is None:
            worked = None if one.worked is None else to_micros(one.worked)
            if name not in failing or worked is None or worked < failing[name]:
                return
        elif one.aside is None and one.own is None and name not in failing:
            one.written = None
            self._store.forget_reach(self._name, name)
            return
        report = self._report(one)
        if report != one.written:
            one.written = report
            yield report

    # --- pieces ---------------------------------------------------------------------------------------------

    def _recovered(self, one: _Fortune) -> None:
        if one.asides:
            log.warning("%s answers this worker again", one.contract.name)
        one.own = one.common = one.told_at = one.aside = None
        one.asides = 0
        self._limits.careful(one.contract.name, on=False)

    def _stand_aside(self, one: _Fortune, why: str, now: datetime) -> None:
        assert one.own is not None
        length = timedelta(microseconds=reach.aside_for(one.asides))
        one.asides += 1
        one.aside = Aside(one.contract.name, from_micros(one.own.since), now + length, why)
        log.warning("%s is left to other workers for %.0f s: %s", one.contract.name, length.total_seconds(), why)
        self._limits.skip(one.contract.name, self._clock.monotonic(), length.total_seconds())
        self._limits.careful(one.contract.name, on=True)

    def _report(self, one: _Fortune) -> Report:
        worked = None if one.worked is None else to_micros(one.worked)
        tally = Tally(self._name, one.common, one.told_at, worked, max(one.at, worked or 0))
        return Report(one.contract.name, tally, one.aside)


def _more(row: Row | None, at: int) -> Row:
    return Row(1, at) if row is None else Row(row.failures + 1, row.since)
