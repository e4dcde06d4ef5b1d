"""The timeline: every change of state with its evidence, as a line of states; runs of observations in one line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime
from typing import Final

from opledger.rules import jsontext
from opledger.rules.model import NEEDS_HUMAN, TERMINAL, State
from opledger.rules.shapes import Event
from opledger_console.pages.events import fact, progress_words, told, word_of
from opledger_console.pages.rows import Cell, Key, Kind, Row, clock, exact, gap, pairs, row
from opledger_console.views import span

AMBIGUOUS: Final = frozenset(
    {State.CREATE_UNKNOWN, State.RECONCILIATION, State.CONTRACT_VIOLATION, State.CANCELLATION_UNCONFIRMED}
)
"""States in which nobody knows for sure what runs: drawn as a broken line."""

NARROW: Final = 60
"""Below this width the gaps between the lines are left out."""

FOLDED: Final = frozenset({"Observed", "ReadFailed", "Notified"})
STATES: Final = {state.value: state for state in State}


def rows(events: Sequence[Event], opened: Collection[Key], width: int) -> tuple[Row, ...]:
    """Return the timeline, oldest first. `opened` are the runs and events that somebody wants to see whole."""
    return tuple(_Drawing(events, opened, width).rows())


class _Drawing:
    """What is carried from one line to the next."""

    def __init__(self, events: Sequence[Event], opened: Collection[Key], width: int) -> None:
        self._events, self._opened, self._width = events, opened, width
        self._state: State | None = None
        self._at: datetime | None = None
        self._day: date | None = None

    def rows(self) -> Iterator[Row]:
        """Yield every line."""
        if not self._events:
            yield row("there is no event yet", "dim")
        for run in _runs(self._events):
            first = run[0]
            if len(run) == 1:
                yield from self._event(first)
                continue
            key = ("run", first.seq)
            yield from self._new_day(first)
            yield self._run(run, key)
            if key in self._opened:
                self._at = None
                for event in run:
                    yield from self._event(event)
            self._at = run[-1].at

    def _new_day(self, event: Event) -> Iterator[Row]:
        day = event.at.date()
        if day != self._day:
            self._day = day
            yield row(f"{day:%Y-%m-%d %a}", "head")

    def _front(self, event: Event) -> tuple[Cell, ...]:
        since, kind = gap(self._at, event.at)
        when: Cell = (clock(event.at), "dim", 9)
        return (when,) if self._width < NARROW else (when, (since, kind, 6))

    def _rail(self) -> Cell:
        broken = self._state in AMBIGUOUS
        return ("┊" if broken else "│", "warn" if broken else "dim", 1)

    def _event(self, event: Event) -> Iterator[Row]:
        yield from self._new_day(event)
        front = self._front(event)
        skewed = self._at is not None and event.at < self._at
        key = ("event", event.seq)
        what = told(event)
        if event.to_state is None:
            kind: Kind = "warn" if event.kind in _LOUD else "text"
            name = _NAMES.get(event.kind, event.kind)
            yield Row((*front, self._rail(), (f"{name}: {what}", kind, 0)), event.seq, opens=key)
        else:
            self._state = STATES.get(event.to_state)
            node, kind = _node(self._state)
            by = f"{event.kind} by {event.actor}: {what}"
            yield Row((*front, (node, kind, 1), (event.to_state, kind, 24), (by, "text", 0)), event.seq, opens=key)
        if key in self._opened:
            yield from details(event, self._width, skewed=skewed)
        self._at = event.at

    def _run(self, run: Sequence[Event], key: Key) -> Row:
        mark = "▾" if key in self._opened else "▸"
        cells = (*self._front(run[0]), self._rail(), (f"{mark} {folded(run)}", "text", 0))
        return Row(cells, run[0].seq, run[-1].seq, opens=key)


_LOUD: Final = frozenset({"CallLost", "NotDelivered", "ReadFailed", "LeaseTaken", "DeadlinePassed", "Throttled"})
_NAMES: Final = {"CallSent": "permit", "Observed": "observed", "Noted": "note"}


def _node(state: State | None) -> tuple[str, Kind]:
    if state in AMBIGUOUS:
        return "◌", "warn"
    if state is State.SUCCEEDED:
        return "■", "good"
    if state is State.FAILED or state in (State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED):
        return "■" if state in TERMINAL else "●", "bad"
    if state in TERMINAL:
        return "■", "ended"
    return "●", "warn" if state in NEEDS_HUMAN else "strong"


def _runs(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Split a journal: reads that follow each other and change nothing belong together."""
    run: list[Event] = []
    for event in events:
        folds = event.to_state is None and event.kind in FOLDED
        if run and not (folds and event.kind == run[0].kind):
            yield run
            run = []
        if folds:
            run.append(event)
        else:
            yield (event,)
    if run:
        yield run


def folded(run: Sequence[Event]) -> str:
    """Return a run in a few words: ``observed 14 times over 7m, running 3/10 … 9/10``."""
    first, last = run[0], run[-1]
    over = f" over {span(last.at - first.at)}"
    if first.kind == "ReadFailed":
        return f"{len(run)} reads told nothing{over}; the last: {fact(last, 'why') or last.cause}"
    if first.kind == "Notified":
        return f"{len(run)} notices{over}; the last from {fact(last, 'source') or last.cause}"
    words = list(dict.fromkeys(map(word_of, run)))
    said = " … ".join(words if len(words) < 3 else (words[0], words[-1]))
    ends = dict.fromkeys(filter(None, (progress_words(first), progress_words(last))))
    return f"observed {len(run)} times{over}, {said} {' … '.join(ends)}".rstrip()


def _where(event: Event) -> str:
    host = "" if event.host is None else f" on {event.host}"
    return host if event.process is None else f"{host}, process {event.process}"


def details(event: Event, width: int, *, skewed: bool = False) -> Iterator[Row]:
    """Return everything that an event holds: who, why, because of what, and its data."""
    if skewed:
        yield row("    its clock is behind that of the event before it: the time between them is not known", "warn",
                  seq=event.seq)  # fmt: skip
    facts = {
        "event": f"{event.seq} {event.kind} at {exact(event.at)}",
        "by": f"{event.actor} ({event.actor_kind or 'of unknown kind'}){_where(event)}",
        "state": None if event.to_state is None else f"{event.from_state or '(new)'} → {event.to_state}",
        "because of": event.cause,
        "reason": event.reason,
        "remote job": event.remote_job_id,
    }
    for name, value in (event.data or {}).items():
        shown = value if isinstance(value, str) else jsontext.dumps_inert(value)
        facts[f"· {name}"] = shown[:4096]
    if event.data is None:
        facts["data"] = "the bytes of this event cannot be read"
    facts["hash"] = event.hash
    yield from pairs(facts, width, indent=4, seq=event.seq)
