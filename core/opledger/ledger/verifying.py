"""How a verification goes: checkpoints and leaves, then all operations slice by slice, here or in processes beside.

Anchors are read first and the journal last: what an anchor or a leaf knows must then be in what is read after it,
however fast others write meanwhile.
"""

from __future__ import annotations

import contextlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from opledger.edges.clock import Clock
from opledger.errors import UsageError
from opledger.ledger.auditing import Part, pinned
from opledger.ledger.slices import is_name, parts
from opledger.rules import auditlog, notes
from opledger.rules.audit import Check, Leaf
from opledger.rules.auditlog import BEGINNING, Anchors, Judge, Kept, Log, Start
from opledger.rules.journal import Finding
from opledger.rules.model import to_rfc3339
from opledger.rules.notes import NoteInvalid, Signed
from opledger.rules.tree import Tree
from opledger.store import Store, auditing
from opledger.store.auditing import Papers

EVERY: Final = 0.2
"""Seconds between two words about how far it got."""

LISTED: Final = 1_000
"""Findings that are kept; the others are counted."""

MANY: Final = 100_000
"""Events from which on other processes help."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verification has got."""

    done: int  #: operations
    total: int
    events: int
    seconds: float
    found: int = 0

    @property
    def rate(self) -> float:
        """Events a second so far."""
        return self.events / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that it will take, should it go on like this; None while nobody can tell."""
        return self.seconds / self.done * max(self.total - self.done, 0) if self.done else None


@dataclass(frozen=True, slots=True)
class Trust:
    """By whom notes must be signed. `own` is False where only the database itself names the key."""

    origin: str
    public: bytes
    own: bool

    def judge(self) -> Judge:
        """Return what checks notes."""
        return auditlog.signed_by(self.origin, self.public)


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification found. `complete` is False where it was stopped: then it speaks for a part only."""

    at: datetime
    progress: Progress
    findings: tuple[Finding, ...]  #: at most `LISTED`
    kinds: tuple[tuple[str, int], ...]  #: all of them, counted, in the order of their kinds
    complete: bool
    notes: tuple[Finding, ...] = ()  #: what is no finding, and good to know
    checkpoints: int = 0
    archived: int = 0
    anchored: tuple[Signed, str] | None = None  #: the newest checkpoint that an anchor holds too, and which
    upto: str | None = None  #: the note of the newest checkpoint, where the whole log holds
    since: tuple[int, datetime] | None = None  #: only what came behind this checkpoint was looked at; when it was made

    @property
    def count(self) -> int:
        """How many findings there are."""
        return sum(number for _, number in self.kinds)

    def plus(self, more: Sequence[Finding]) -> Verified:
        """Return the same with more findings."""
        kinds = Counter(dict(self.kinds)) + Counter(one.kind for one in more)
        return replace(self, findings=(*self.findings, *more)[:LISTED], kinds=tuple(sorted(kinds.items())))

    def shape(self) -> dict[str, Any]:
        """The outcome as ``audit verify --json`` prints it."""
        up_to = None
        if self.anchored is not None:
            note, anchor = self.anchored[0].note, self.anchored[1]
            up_to = {"number": note.number, "at": to_rfc3339(note.at), "size": note.size, "anchor": anchor}
        return {
            "ok": self.complete and not self.count,
            "complete": self.complete,
            "operations": self.progress.done,
            "events": self.progress.events,
            "checkpoints": self.checkpoints,
            "anchored_up_to": up_to,
            "findings": [_shape(one) for one in self.findings],
            "found": dict(self.kinds),
            "notes": [_shape(one) for one in self.notes],
            "archived": self.archived,
            "since": None if self.since is None else {"number": self.since[0], "at": to_rfc3339(self.since[1])},
            "seconds": round(self.progress.seconds, 3),
        }


def _shape(one: Finding) -> dict[str, Any]:
    # The operation id of a tampered row may be anything; JSON has no half surrogates.
    name = None if one.operation_id is None else one.operation_id.encode("utf-8", "replace").decode()
    return {"kind": one.kind, "operation_id": name, "seq": one.seq, "message": one.message}


@dataclass(slots=True)
class _Run:
    """One verification under way."""

    clock: Clock
    told: Callable[[Progress], None]
    stop: Callable[[], bool]
    begun: float
    total: int = 0
    said: float = 0.0
    part: Part = field(default_factory=Part)
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    stopped: bool = False

    def find(self, found: Sequence[Finding]) -> None:
        """Keep findings, or count them where there are too many."""
        self.kinds.update(one.kind for one in found)
        self.findings += found[: max(LISTED - len(self.findings), 0)]

    def add(self, part: Part) -> None:
        """Take what a slice came to, and say how far it got now and then."""
        self.find(part.findings)
        part.findings = []
        self.part.add(part)
        if self.clock.monotonic() - self.said >= EVERY:
            self.said = self.clock.monotonic()
            self.told(self.progress())

    def asked(self) -> bool:
        """Whether somebody wants it stopped."""
        self.stopped = self.stopped or self.stop()
        return self.stopped

    def progress(self) -> Progress:
        """How far it is."""
        done = self.part.operations
        seconds = self.clock.monotonic() - self.begun
        return Progress(done, max(self.total, done), self.part.events, seconds, self.kinds.total())


def verify(  # noqa: PLR0913 - one for each thing that can be said of a verification
    store: Store,
    clock: Clock,
    *,
    trust: Callable[[tuple[str, str] | None], Trust | None],
    anchors: Sequence[Kept] = (),
    checks: Sequence[Check] = (),
    since: int | None = None,
    records: bool = True,
    helpers: Callable[[], ProcessPoolExecutor] | None = None,
    told: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Verified:
    """Verify the ledger, or what came behind the checkpoint `since`. Raises StoreUnavailable.

    `anchors` were read before. `trust` says, by what the database calls itself, who must have signed. `records=False`
    leaves out computing each record again. Told are two words at least, and about five a second.
    """
    run = _Run(clock, told, stop, clock.monotonic())
    operations, events, _ = auditing.counts(store.database)
    run.total = operations
    told(run.progress())
    papers = auditing.papers(store.database, *(() if not since else (since - 1,)))
    trusted = trust(papers.ledger)
    start, first = _start(papers, trusted, since)
    rows = papers.checkpoints[1:] if first is not None else papers.checkpoints
    judge = _nobody if trusted is None else trusted.judge()
    run.find(_other_key(papers, trusted))
    leaves: dict[str, list[Leaf]] = {}
    reading = auditing.leaves(store.database, start.tree.size, papers.last_leaf)
    log = auditlog.check(rows, _gathered(reading, leaves), judge, papers.acknowledgements, start)
    if first is not None:
        log.notes[first.note.number] = first
    run.find(log.findings)
    orphan = trusted is None and not papers.checkpoints
    compared = auditlog.orphaned(anchors) if orphan else auditlog.compare(anchors, log, judge, start.number)
    run.find(compared.findings)
    pool = helpers() if helpers is not None and events >= MANY and start is BEGINNING else None
    with pool or contextlib.nullcontext():
        ids = None if start is BEGINNING else sorted({*filter(is_name, leaves), *auditing.moved(store.database)})
        if ids is not None:
            run.total = len(ids)
        for part in parts(store, leaves, checks, run.asked, ids=ids, records=records, pool=pool):
            run.add(part)
    run.find([*pinned(store.database, run.part.contracts)])
    complete = not run.stopped
    if complete and not run.part.events and not run.part.archived and start is BEGINNING and (orphan or not run.kinds):
        run.find([Finding("NOTHING_CHECKED", None, None, "there was no event to check")])
    told(run.progress())
    return _outcome(run, papers, log, compared, trusted, first)


def _outcome(
    run: _Run, papers: Papers, log: Log, compared: Anchors, trusted: Trust | None, first: Signed | None
) -> Verified:
    complete, progress = not run.stopped, run.progress()
    # Operations that came meanwhile were checked as well, or not: all there were is what was gone through.
    total = progress.done if complete else progress.total
    return Verified(
        at=run.clock.now(),
        progress=Progress(progress.done, total, progress.events, progress.seconds, progress.found),
        findings=tuple(run.findings),
        kinds=tuple(sorted(run.kinds.items())),
        complete=complete,
        notes=tuple(_notes(run.part, papers, log, trusted)),
        checkpoints=len(papers.checkpoints),
        archived=run.part.archived,
        anchored=compared.newest,
        upto=None if log.findings or log.last not in log.notes else log.notes[log.last].whole,
        since=None if first is None else (first.note.number, first.note.at),
    )


def _notes(part: Part, papers: Papers, log: Log, trusted: Trust | None) -> Iterator[Finding]:
    if part.tail:
        tail = f"{_many(part.tail, 'event')} of {_many(part.loose, 'operation')}"
        words = f"{tail} came after the last checkpoint"
        if not log.last:
            words = f"there is no checkpoint yet: none of {tail} is anchored"
        yield Finding("UNANCHORED_TAIL", None, None, words)
    for one in log.given_up:
        words = (
            f"checkpoints {one.abandoned_from} to {one.abandoned_to} were given up by {one.by} ({one.reason}): the "
            "database was older than its anchors"
        )
        yield Finding("ACKNOWLEDGED", None, one.abandoned_to, words)
    if papers.checkpoints and trusted is not None and not trusted.own:
        words = (
            "signatures were checked with the key that the database itself names, because its own is not on this "
            "machine: give the key that you know, --key (opledger audit key prints it where the worker runs)"
        )
        yield Finding("KEY_OF_DATABASE", None, None, words)


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _other_key(papers: Papers, trusted: Trust | None) -> list[Finding]:
    """The key that the database names is for comparison only; that it is another one is news."""
    if trusted is None or papers.ledger is None:
        return []
    if (f"opledger/{papers.ledger[0]}", papers.ledger[1]) == (trusted.origin, b64encode(trusted.public).decode()):
        return []
    words = "the database names another ledger or another key than the one that must have signed"
    return [Finding("CHECKPOINT_SIG", None, None, words)]


def _nobody(_: Signed) -> str | None:
    return "nobody knows the key of this ledger: its name in the database is gone, and none was given"


def _gathered(leaves: Iterator[Leaf], by_operation: dict[str, list[Leaf]]) -> Iterator[Leaf]:
    for leaf in leaves:
        by_operation.setdefault(leaf.operation_id, []).append(leaf)
        yield leaf


def _start(papers: Papers, trusted: Trust | None, since: int | None) -> tuple[Start, Signed | None]:
    """Where to begin: behind a checkpoint that is signed and whose edge of the tree fits its root."""
    if not since or trusted is None:
        return BEGINNING, None
    row = next(iter(papers.checkpoints), None)
    if row is None or row.number != since:
        raise UsageError(f"there is no checkpoint {since} to begin at; verify all: --full")
    try:
        signed = notes.read(row.note)
        edge = Tree.of(signed.note.size, row.peaks)
        if why := trusted.judge()(signed):
            raise NoteInvalid(why)
        if edge.root != signed.note.root:
            raise NoteInvalid("its edge does not fit its root")
    except (ValueError, TypeError) as error:
        raise UsageError(f"checkpoint {since} cannot be begun at ({error}); verify all: --full") from error
    return Start(since, signed.hash, edge), signed
