"""Figures about each provider from the events as they come: calls, errors, lateness. For sparklines, not for accounts.

Time is the events' own; nothing here knows a clock. Memory is bounded whatever comes: of everything that is counted
only so much is kept, and the longest-known goes first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from opledger.rules import evidence as e
from opledger.rules.model import EPOCH, Action
from opledger.rules.shapes import Event

ERRORS: Final = frozenset(
    kind.__name__
    for kind in (
        e.ReadFailed, e.CallLost, e.NotDelivered, e.Throttled, e.Refused, e.ResultMissing, e.ResultInvalid,
        *e.VIOLATIONS,
    )
)  # fmt: skip
"""The kinds of evidence that say that a call did not go as it should."""

OPERATIONS: Final = 20_000
"""Of how many operations the planned time of the next call is kept, and how many calls are known by their ids."""

MINUTES: Final = 180
"""How many minutes of a provider are kept."""

SECONDS: Final = 1_200
"""How many seconds in which something happened are kept of a provider: those of the last ten minutes, and some more."""

SAMPLES: Final = 2_000
"""How many latenesses of a provider are kept: the last ones, where more calls were made in ten minutes."""

PROVIDERS: Final = 1_000
SHARE: Final = 600
"""Seconds over which the share of errors and the lateness are taken."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Beat:
    """A provider's figures at one moment.

    `calls` and `errors` are of whole minutes by the clock, oldest first; the last one is the minute that runs.
    """

    calls: tuple[int, ...]
    errors: tuple[int, ...]
    creates: int  #: in the last 60 seconds, as the three below
    reads: int
    cancels: int
    collects: int
    error_share: float | None  #: of the calls of the last ten minutes, 0 to 1; None without calls
    late_p50: timedelta | None  #: of the calls of the last ten minutes whose planned time is known; None without any
    late_p95: timedelta | None


@dataclass(slots=True)
class _Minute:
    calls: int = 0
    errors: int = 0


@dataclass(slots=True)
class _Second:
    creates: int = 0
    reads: int = 0
    cancels: int = 0
    collects: int = 0
    errors: int = 0


@dataclass(slots=True)
class _Provider:
    minutes: dict[int, _Minute] = field(default_factory=dict)
    seconds: dict[int, _Second] = field(default_factory=dict)
    late: deque[tuple[int, timedelta]] = field(default_factory=lambda: deque(maxlen=SAMPLES))


class Pulse:
    """Counts the events of all providers.

    Feed it each event once, those of one operation in their order. What was missed is not in the figures.
    """

    def __init__(self) -> None:
        self._providers: dict[str, _Provider] = {}
        self._calls: dict[str, None] = {}
        self._due: dict[str, datetime] = {}

    def feed(self, contract: str, event: Event, due: datetime | None = None) -> None:
        """Count an event. `due` is when the plan in it wants the next call (`TailEvent.due_next`)."""
        # An event names the one before it by its hash, and only the next one of the same operation does.
        planned = self._due.pop(event.prev_hash, None)
        if due is not None:
            _keep(self._due, event.hash, due, OPERATIONS)
        data = event.data or {}
        call, failed = self._is_call(data), event.kind in ERRORS
        if not call and not failed:
            return
        provider = self._providers.get(contract) or _keep(self._providers, contract, _Provider(), PROVIDERS)
        second = _second(event.at)
        in_second = provider.seconds.get(second) or _keep(provider.seconds, second, _Second(), SECONDS)
        in_minute = provider.minutes.get(second // 60) or _keep(provider.minutes, second // 60, _Minute(), MINUTES)
        if failed:
            in_second.errors += 1
            in_minute.errors += 1
        if call:
            in_minute.calls += 1
            name = _sort(event.kind, data)
            setattr(in_second, name, getattr(in_second, name) + 1)
            if planned is not None:
                provider.late.append((second, max(event.at - planned, timedelta(0))))

    def of(self, contract: str, now: datetime, minutes: int = 30) -> Beat:
        """Return the figures of a provider; zeros for one of which nothing is known. At most `MINUTES` minutes."""
        provider = self._providers.get(contract) or _Provider()
        second = _second(now)
        last = second // 60
        shown = range(last - min(max(minutes, 1), MINUTES) + 1, last + 1)
        per_minute = [provider.minutes.get(minute) or _Minute() for minute in shown]
        recent = [one for at, one in provider.seconds.items() if second - 60 < at <= second]
        longer = [one for at, one in provider.seconds.items() if second - SHARE < at <= second]
        calls = sum(one.creates + one.reads + one.cancels + one.collects for one in longer)
        errors = sum(one.errors for one in longer)
        late = sorted(span for at, span in provider.late if second - SHARE < at <= second)
        return Beat(
            calls=tuple(one.calls for one in per_minute),
            errors=tuple(one.errors for one in per_minute),
            creates=sum(one.creates for one in recent),
            reads=sum(one.reads for one in recent),
            cancels=sum(one.cancels for one in recent),
            collects=sum(one.collects for one in recent),
            error_share=min(errors / calls, 1.0) if calls else None,
            late_p50=percentile(late, 50),
            late_p95=percentile(late, 95),
        )

    def _is_call(self, data: dict[str, Any]) -> bool:
        """Whether this is the first that is heard of a call: its permit or, for a read that needs none, its answer."""
        call_id = data.get("call_id")
        if not isinstance(call_id, str) or call_id in self._calls:
            return False
        _keep(self._calls, call_id, None, OPERATIONS)
        return True


def percentile(ordered: list[timedelta], percent: int) -> timedelta | None:
    """Return the smallest value that so many percent of all do not exceed; None of none."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def _sort(kind: str, data: dict[str, Any]) -> str:
    """What a call was for: the field that counts it."""
    if data.get("may_create") is True:
        return "creates"
    action = data.get("action")
    return _ACTIONS.get(action if isinstance(action, str) else "") or _KINDS.get(kind, "reads")


_ACTIONS: Final = {
    Action.CREATE.value: "creates",
    Action.RECONCILE.value: "reads",
    Action.OBSERVE.value: "reads",
    Action.CANCEL.value: "cancels",
    Action.COLLECT.value: "collects",
}
# What an answer that names no action was for; of effectful calls that matters only where the permit was not seen.
_KINDS: Final = {
    **{kind.__name__: "creates" for kind in (e.Accepted, e.CompletedInline, e.Refused)},
    **{kind.__name__: "creates" for kind in (e.CallLost, e.NotDelivered, e.Throttled)},
    **{kind.__name__: "collects" for kind in (e.ResultAccepted, e.ResultAllItemsFailed, e.ResultMissing)},
    **{kind.__name__: "collects" for kind in (e.ResultInvalid, e.PartialAttached)},
    e.CancelAnswered.__name__: "cancels",
}


def _second(at: datetime) -> int:
    return (at - EPOCH) // timedelta(seconds=1)


def _keep(known: dict[K, V], name: K, value: V, most: int) -> V:
    """Put a value in, and take out what has stood there longest where that is too many."""
    if len(known) >= most:
        del known[next(iter(known))]
    known[name] = value
    return value
