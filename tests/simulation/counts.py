"""What a run must have reached: arrows of the table, cells of the fault matrix, faults. What has none is red."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from opledger.rules.evidence import VIOLATIONS
from opledger.rules.states import TRANSITIONS
from tests.simulation import faults
from tests.simulation.world import Outcome

NOT_YET: Final = frozenset(
    {
        "create_pending/Refused/0", "create_pending/Refused/1", "create_pending/Inconclusive/0",
        "create_pending/DeadlinePassed/0", "create_pending/DeadlinePassed/1", "create_pending/DeadlinePassed/2",
        "accepted/DeadlinePassed/0",
        "cancel_requested/Observed/0", "cancel_requested/Observed/1", "cancel_requested/Observed/2",
        "cancellation_unconfirmed/Observed/0", "cancellation_unconfirmed/Observed/1",
        "cancellation_unconfirmed/Observed/2",
        "result_timed_out/Observed/0", "result_timed_out/Observed/1", "result_timed_out/Observed/2",
        "result_timed_out/CancelRequested/0",
        "failed/Decided/0",  # no version drives a resume call yet
    }
)  # fmt: skip
"""Arrows that change a state and that this generator has not been seen to take often enough to insist on them.

They are counted like all others. `tests/model` takes them over the rules alone.
"""

CELLS: Final[Mapping[tuple[str, str], tuple[tuple[str, str], ...]]] = {
    ("3.1", "before intent commit"): (("killed before commit", "create"), ("killed before commit", "cancel")),
    ("3.1", "after intent commit, before send"): (("killed before send", "create"), ("killed before send", "cancel")),
    ("3.1", "after first request byte, before answer"): (
        ("killed after send", "create"), ("killed after send", "observe"), ("killed after send", "cancel"),
    ),
    ("3.1", "answer received, before its commit"): (("killed before commit", "observe"),),
    ("3.1", "after answer commit, before next step"): (
        ("killed after commit", "create"), ("killed after commit", "observe"),
    ),
    ("3.1", "during recovery"): (("killed again", "any"),),
    ("3.2", "DNS fail, refused, TLS fail"): (("refused", "create"), ("refused", "observe"), ("refused", "cancel")),
    ("3.2", "reset or timeout after a byte"): (
        ("request lost", "create"), ("request lost", "observe"), ("request lost", "cancel"),
    ),
    ("3.2", "answer dropped"): (("answer lost", "create"), ("answer lost", "observe"), ("answer lost", "cancel")),
    ("3.2", "answer cut at any byte"): (("cut", "create"), ("cut", "observe"), ("cut", "cancel")),
    ("3.2", "answer delayed beyond lease"): (
        ("answer late", "create"), ("answer late", "observe"), ("answer late", "cancel"),
    ),
    ("3.2", "answer duplicated, proxy repeats request"): (
        ("duplicate", "create"), ("duplicate", "observe"), ("duplicate", "cancel"), ("two at once", "approve"),
    ),
    ("3.2", "redirects"): (("redirected", "create"), ("redirected", "status"), ("redirected", "result")),
    ("3.3", "429 with and without Retry-After"): (("429", "create"), ("429", "observe"), ("429", "cancel")),
    ("3.3", "500, 502, 503, 504"): (
        ("5xx before", "create"), ("5xx after", "create"), ("5xx before", "observe"), ("5xx before", "cancel"),
    ),
    ("3.3", "400, 422"): (("refused for good", "create"),),
    ("3.3", "401, 403"): (("401", "create"), ("401", "observe")),
    ("3.3", "409"): (("in_flight", "create"), ("finished", "cancel")),
    ("3.3", "404, 410"): (("not found", "status"), ("gone", "result")),
    ("3.3", "HTML or wrong content type with 200"): (("html", "create"), ("html", "observe"), ("html", "cancel")),
    ("3.3", "invalid JSON and its kin"): (("hostile", "status"),),
    ("3.3", "unknown state word"): (("unknown word", "status"),),
    ("3.3", "job id changed"): (("another id", "status"),),
    ("3.3", "id already belongs to another operation"): (("id reused", "create"),),
    ("3.3", "token ignored"): (("token ignored", "create"),),
    ("3.3", "status goes backwards"): (("backwards", "status"),),
    ("3.3", "finishes before cancel takes effect"): (("finished", "cancel"),),
    ("3.3", "cancel 2xx, job runs on"): (("ignored", "cancel"),),
    ("3.4", "busy or locked beyond timeout"): (("store busy", "worker"), ("store busy", "approve")),
    ("3.4", "connection lost at COMMIT"): (("commit uncertain", "worker"), ("commit uncertain", "approve")),
    ("3.4", "commit takes longer than the lease"): (
        ("commit slow", "worker"), ("told late", "create"), ("told late", "observe"), ("told late", "cancel"),
    ),
    ("3.1", "told to end"): (
        ("told to end", "any"), ("told to end in a call", "create"), ("told to end in a call", "observe"),
        ("told to end in a call", "cancel"), ("told to end in a call", "collect"),
    ),
    ("3.5", "wall clock ahead"): (("clock ahead", "any"),),
    ("3.5", "wall clock back"): (("clock back", "any"),),
    ("3.5", "pause beyond lease, before permit"): (("stalled anywhere", "any"),),
    ("3.5", "pause beyond lease, between permit and send"): (
        ("stalled before send", "create"), ("stalled before send", "cancel"),
    ),
    ("3.5", "pause beyond lease, between permit and next look"): (("stalled at the permit", "create"),),
    ("3.5", "cancel between decision and permit"): (("cancel at the permit", "create"),),
    ("3.5", "lease expires during call"): (("taken over", "create"), ("taken over", "observe")),
    ("3.5", "two operators at once, double key press"): (("two at once", "approve"), ("two at once", "cancel")),
    ("3.5", "same operation key, different body"): (("same id, other body", "create"),),
    ("3.6", "same event twice"): (("hook twice", "webhook"),),
    ("3.6", "out of order"): (("hook late", "webhook"),),
    ("3.6", "arrives before the create answer"): (("hook early", "webhook"),),
    ("3.6", "forged signature"): (("hook forged", "webhook"),),
    ("3.6", "stale"): (("hook stale", "webhook"),),
    ("3.6", "says success, status says running"): (("hook lies", "webhook"),),
}  # fmt: skip
"""Rows of the fault matrix that this world has, and what counts as a hit of each live cell."""


def arrows() -> tuple[str, ...]:
    """Every arrow that leads to another state and must be taken; violations lead to one place from everywhere."""
    return tuple(
        f"{state or 'start'}/{kind.__name__}/{place}"
        for state, cells in TRANSITIONS.items()
        for kind, row in cells.items()
        for place, arrow in enumerate(row)
        if arrow.to not in (None, state) and kind not in VIOLATIONS
        if f"{state or 'start'}/{kind.__name__}/{place}" not in NOT_YET
    )


def everything() -> int:
    """How many arrows the table has, with those that only leave a remark."""
    return sum(len(row) for cells in TRANSITIONS.values() for row in cells.values())


@dataclass
class Counts:
    """What many seeds brought together."""

    seeds: int = 0
    operations: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    arrows: Counter[str] = field(default_factory=Counter)
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    mixed: int = 0  #: seeds in which at least three kinds of faults struck
    seconds: float = 0.0
    virtual: float = 0.0
    problems: int = 0

    def add(self, one: Outcome) -> None:
        """Count a seed in."""
        self.seeds += 1
        self.operations += one.operations
        for name in ("calls", "answers", "commits", "timers"):
            self.steps[name] += getattr(one.steps, name)
        self.states += one.states
        self.arrows += one.arrows
        self.cells += one.cells
        self.faults.update(one.faults)
        self.mixed += len(one.faults) >= 3
        self.seconds += one.seconds
        self.virtual += one.virtual
        self.problems += len(one.problems)

    def join(self, other: Counts) -> None:
        """Count in what others have brought together."""
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, mine + theirs)

    def document(self) -> dict[str, Any]:
        """What a file keeps of it; `of` makes it anew."""
        told: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**told, "cells": [[*cell, count] for cell, count in sorted(self.cells.items())]}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Counts:
        """Read what `document` made. Raises KeyError, TypeError and ValueError for anything else."""
        told: dict[str, Any] = {one.name: document[one.name] for one in fields(cls)}
        for name in ("steps", "states", "arrows", "faults"):
            told[name] = Counter(told[name])
        told["cells"] = Counter({(fault, phase): count for fault, phase, count in document["cells"]})
        return cls(**told)

    def missed(self, *, least: int, edges: Iterable[str] | None = None) -> list[str]:
        """Return what was to be reached and was not: cells and faults at least so often, arrows at least once."""
        found = [f"arrow {name}" for name in (arrows() if edges is None else edges) if not self.arrows[name]]
        for (part, row), hits in CELLS.items():
            for hit in hits:
                if self.hits(hit) < least:
                    found.append(f"cell {part} {row}: {' / '.join(hit)} ({self.hits(hit)} of {least})")
        found += [f"fault {name}" for name in faults.ALL if not self.faults[name]]
        return found

    def hits(self, hit: tuple[str, str]) -> int:
        """How often a fault struck in a phase."""
        name, phase = hit
        if phase == "any":
            return sum(count for (fault, _), count in self.cells.items() if fault == name)
        return self.cells[hit]

    @property
    def total(self) -> int:
        """All steps."""
        return sum(self.steps.values())

    @property
    def rate(self) -> float:
        """Steps in a CPU-minute."""
        return self.total / max(self.seconds, 1e-9) * 60

    def lines(self) -> list[str]:
        """Say what was reached."""
        said = ", ".join(f"{count:,} {name}" for name, count in sorted(self.steps.items()))
        shares = ", ".join(
            f"{state} {count / max(self.operations, 1):.1%}" for state, count in self.states.most_common()
        )
        spent = max(self.seconds, 1e-9)
        reached = sum(bool(self.arrows[name]) for name in arrows())
        cells = sum(self.hits(hit) > 0 for hits in CELLS.values() for hit in hits)
        return [
            f"{self.seeds} seeds, {self.operations:,} operations, {self.total:,} steps ({said})",
            (
                f"{self.seconds:.1f} CPU s: {self.rate:,.0f} steps and {self.operations / spent * 60:,.0f} operations "
                f"a CPU-minute; {self.virtual / spent:,.0f} virtual seconds to each"
            ),
            f"final states: {shares}",
            (
                f"arrows: {len(self.arrows)} of {everything()} ({reached} of {len(arrows())} that must be taken); "
                f"cells: {cells} of {sum(map(len, CELLS.values()))}; "
                f"faults: {len(self.faults)} of {len(faults.ALL)}; seeds with three kinds of faults or more: "
                f"{self.mixed / max(self.seeds, 1):.0%}"
            ),
        ]
