"""One operation as its page shows it, read in a thread: the record, why it is there, and the rows of one tab."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from opledger.edges.private import open_file
from opledger.errors import OpledgerError, Refused, StoreUnavailable, UnknownOperation
from opledger.rules import jsontext, review
from opledger.rules.choices import too_early
from opledger.rules.evidence import VIOLATIONS
from opledger.rules.explain import Explanation
from opledger.rules.guarantees import guarantees
from opledger.rules.journal import GENESIS, Finding, verify_chain
from opledger.rules.model import FINAL_MEANS, Operation, State, to_rfc3339
from opledger.rules.packet import markdown, request_shown
from opledger.rules.plain import clean
from opledger.rules.shapes import Event, event_of
from opledger_console.desk import Desk
from opledger_console.pages import calls, conflict, observations, papers, timeline
from opledger_console.pages.events import fact, told
from opledger_console.pages.rows import SHOWN, Key, Row
from opledger_console.views import short_id

PAGE: Final = 10_000
BROKEN: Final = frozenset(kind.__name__ for kind in VIOLATIONS)

TABS: Final[tuple[tuple[str, str], ...]] = (
    ("conflict", "Conflict"),
    ("timeline", "Timeline"),
    ("calls", "Calls"),
    ("observations", "Observed"),
    ("request", "Request"),
    ("result", "Result"),
    ("approvals", "Approvals"),
    ("raw", "Raw"),
    ("packet", "Packet"),
)
"""Every tab: its name in `Opened`, and the word on it. The first one is there only where a promise was broken."""


_EXPLAINED: Final = frozenset({"conflict", "result"})
"""Tabs that show more than the record and its journal."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the page wants to know."""

    operation_id: str
    tab: str | None  #: None: whichever matters most
    opened: frozenset[Key]
    width: int
    anew: int  #: differs where a person asks for what is else read only once
    local: bool = False  #: times in the zone of this machine, else in UTC


@dataclass(frozen=True, slots=True)
class Found:
    """The operation at one moment, and the rows of one tab."""

    operation: Operation
    explanation: Explanation | None
    unexplained: str | None
    taken_at: datetime
    tab: str
    tabs: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]


class Reader:
    """What has been read of one operation so far, so that each event is read once. For one thread at a time."""

    def __init__(self, desk: Desk, operation_id: str) -> None:
        self._desk, self._operation_id = desk, operation_id
        self._events: list[Event] = []
        self._verified: tuple[int, str] = (0, GENESIS)
        self._findings: list[Finding] = []
        self._review: dict[str, Any] | None = None
        self._packet: tuple[int, int, str] | None = None  # asked for by, made at event, text
        self._made: tuple[object, tuple[Row, ...]] = (None, ())

    def look(self, wanted: Look) -> Found:
        """Read what is new, and make the rows. Raises UnknownOperation, Refused, StoreUnavailable."""
        ledger = self._desk.ledger
        op = ledger.show(self._operation_id)
        self._operation_id = op.operation_id
        self._read(op)
        explanation, unexplained = self._explained(op)
        broken = any(event.kind in BROKEN for event in self._events)
        tabs = TABS if broken else TABS[1:]
        tab = wanted.tab if wanted.tab in dict(tabs) else None
        if tab is None:
            tab = "conflict" if broken and op.state is State.CONTRACT_VIOLATION else "timeline"
        # Others write all the time, and a page of ten thousand events is not made anew for each of their events.
        key = (
            tab,
            op,
            wanted.opened,
            wanted.width,
            wanted.anew,
            wanted.local,
            explanation if tab in _EXPLAINED else None,
        )
        if self._made[0] != key:
            self._made = (key, self._rows(tab, op, explanation, wanted))
        return Found(op, explanation, unexplained, ledger.clock.now(), tab, tabs, self._made[1])

    def _read(self, op: Operation) -> None:
        """Read the events that came since the last look."""
        while len(self._events) < op.head_seq:
            after = self._events[-1].seq if self._events else 0
            rows = self._desk.ledger.store.queries.events(op.operation_id, after, limit=PAGE)
            self._events += map(event_of, rows)
            if len(rows) < PAGE:
                return

    def _explained(self, op: Operation) -> tuple[Explanation | None, str | None]:
        try:
            return self._desk.ledger.explain(op.operation_id), None
        except StoreUnavailable:
            raise
        except OpledgerError as error:  # its contract is gone or cannot be read: the record still can
            return None, error.message

    def _rows(self, tab: str, op: Operation, explanation: Explanation | None, wanted: Look) -> tuple[Row, ...]:
        events: Sequence[Event] = self._events
        opened, width = wanted.opened, wanted.width
        if wanted.local:
            events = [replace(event, at=event.at.astimezone()) for event in events]
        if tab == "timeline":
            return timeline.rows(events, opened, width)
        if tab == "calls":
            kept = kept_answers(self._desk, calls.wanted(events, opened))
            return calls.rows(events, opened, width, kept, self._targets(op))
        if tab == "observations":
            return observations.rows(events, opened, width)
        if tab == "approvals":
            return papers.approvals(op, events, opened, self._shown(opened), width)
        if tab == "raw":
            self._verify(op)
            return papers.raw(op, events, opened, self._findings, width)
        if tab == "conflict":
            why = op.attention.reason if op.attention is not None else self._violation_words()
            options = explanation.choices if explanation is not None else ()
            jobs = _jobs_in_conflict(events)
            return conflict.rows(why, jobs, answers_in_conflict(self._desk, op), options, width, wait=too_early(op))
        if tab == "request":
            return self._request(op, width)
        if tab == "packet":
            return self._packet_rows(op, wanted)
        why = explanation.why if explanation is not None else ""
        return papers.result(op, why, self._promises(op), width)

    def _violation_words(self) -> str:
        return next((told(event) for event in reversed(self._events) if event.kind in BROKEN), "")

    def _targets(self, op: Operation) -> dict[str, str]:
        try:
            status = self._desk.ledger.contract_of(op).status
        except Refused:
            return {}
        return {} if status.path is None else {"observe": f"{status.method} {status.path.text}"}

    def _promises(self, op: Operation) -> dict[str, Any]:
        try:
            return dict(guarantees(self._desk.ledger.contract_of(op)).result)
        except Refused:
            return {}

    def _request(self, op: Operation, width: int) -> tuple[Row, ...]:
        if self._review is None:  # a request never changes, and comparing it reads many others
            ledger = self._desk.ledger
            self._review = {**ledger.review(op.operation_id), "request": request_shown(
                ledger.contract_of(op), ledger.store.request_of(op.operation_id))}  # fmt: skip
        found = self._review
        return papers.request(found["request"], op, found["credentials"], found["compared_with"], width)

    def _shown(self, opened: frozenset[Key]) -> dict[str, Sequence[str]]:
        """Return what approvers were shown, in lines."""
        found: dict[str, Sequence[str]] = {}
        for sha256 in papers.shown_hashes(self._events, opened):
            answer = self._desk.ledger.store.answer(sha256)
            if answer is not None:
                try:
                    found[sha256] = review.lines(jsontext.loads(answer.body))
                except (jsontext.JsonError, LookupError, TypeError, AttributeError):
                    # Another version wrote it, or it was changed: it is shown as it stands.
                    found[sha256] = answer.body.decode("utf-8", "replace").splitlines()
        return found

    def _verify(self, op: Operation) -> None:
        """Check the chain from where it was checked last."""
        queries = self._desk.ledger.store.queries
        while self._verified[0] < op.head_seq:
            rows = queries.events(op.operation_id, self._verified[0], limit=PAGE)
            if not rows:
                return
            self._findings += verify_chain(op.operation_id, rows, after=self._verified)
            self._verified = (rows[-1].seq, rows[-1].hash.hex())

    def _packet_rows(self, op: Operation, wanted: Look) -> tuple[Row, ...]:
        if self._packet is None or self._packet[0] != wanted.anew:
            document = self._desk.ledger.packet(op.operation_id)
            self._packet = (wanted.anew, document["head"]["seq"], markdown(document))
        _, upto, words = self._packet
        return papers.packet(words, upto, op.head_seq, wanted.width)


# --- answers -----------------------------------------------------------------------------------------------------


def kept_answers(desk: Desk, hashes: Sequence[str]) -> dict[str, calls.Kept]:
    """Return the stored answers that there are, by hash."""
    found = {}
    for sha256 in hashes:
        answer = desk.ledger.store.answer(sha256)
        if answer is not None:
            text = answer.body.decode("utf-8", "replace")
            found[sha256] = calls.Kept(text, answer.content_type, answer.size)
    return found


def _jobs_in_conflict(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the job ids that the newest broken promise is about."""
    broken = _last(events, BROKEN)
    jobs = None if broken is None else (broken.data or {}).get("jobs")
    return tuple(str(job) for job in jobs) if isinstance(jobs, list) else ()


def answers_in_conflict(desk: Desk, op: Operation) -> tuple[tuple[str, str], ...]:
    """Return the answers that contradict each other, the older first: title and text, the text as it is kept.

    The newest answer that broke a promise, and the one it contradicts. Where no body is kept, what was understood of
    the answer stands in its place. Empty where no promise was broken; one answer where it contradicts itself.
    """
    events = desk.ledger.events(op.operation_id)
    place = next((at for at in range(len(events) - 1, -1, -1) if events[at].kind in BROKEN), None)
    if place is None:
        return ()
    broken, before = events[place], events[:place]
    found = [(op.operation_id, broken)]
    other, theirs = _others(desk, op, broken)
    if other is not None:
        # One job was given to two operations: each has one of the two answers.
        ours = broken if fact(broken, "answer") else _last(before, {"Accepted"}) or broken
        found = [(op.operation_id, ours), *((other, event) for event in theirs)]
    elif (contradicted := _contradicted(broken, before)) is not None:
        found.append((op.operation_id, contradicted))
    found.sort(key=lambda pair: (pair[1].at, pair[1].seq))
    return tuple(_titled(desk, event, whose, op) for whose, event in found)


def _last(events: Sequence[Event], kinds: Collection[str]) -> Event | None:
    return next((event for event in reversed(events) if event.kind in kinds), None)


def _contradicted(broken: Event, before: Sequence[Event]) -> Event | None:
    """Return the event whose answer said something else."""
    answered = [event for event in before if event.kind in _SPEAKS and _speaks(event) != _speaks(broken)]
    last = answered[-1] if answered else None
    if broken.kind == "FinalStateChanged":
        return next((event for event in reversed(answered) if fact(event, "means") in FINAL_MEANS), last)
    if broken.kind in ("UnfamiliarJobId", "TokenMismatch"):
        return _last(answered, {"Accepted"}) or last
    return last


_SPEAKS: Final = frozenset({"Accepted", "Observed", "CompletedInline", "Inconclusive", "ResultAccepted"}) | BROKEN


def _speaks(event: Event) -> object:
    """Return what an answer can be told apart by: its bytes, or else its place."""
    return fact(event, "answer") or event.seq


def _others(desk: Desk, op: Operation, broken: Event) -> tuple[str | None, list[Event]]:
    """Return the other operation that a violation is about, and the event with its answer, as far as there is one."""
    other = fact(broken, "other_operation")
    if other is None or other == op.operation_id:
        return None, []
    try:
        events = desk.ledger.events(other)
    except (UnknownOperation, Refused):
        return None, []
    # The operation that came second broke the promise when its answer came; the first one was only told.
    answered = [event for event in events if event.kind in BROKEN and fact(event, "answer")]
    told_first = not fact(broken, "answer") and answered
    event = answered[-1] if told_first else _last(events, {"Accepted"})
    return other, [event] if event is not None else []


def _titled(desk: Desk, event: Event, whose: str, op: Operation) -> tuple[str, str]:
    status, sha256 = fact(event, "status"), fact(event, "answer")
    # Of an answer that broke a promise the record's own job says nothing: it is about another one.
    job = fact(event, "job_id") or (None if event.kind in BROKEN else event.remote_job_id)
    title = "" if whose == op.operation_id else f"of {short_id(whose)}: "
    title += f"{event.kind}, event {event.seq} at {to_rfc3339(event.at)[:19]}Z"
    title += f", status {status}" if status else ""
    title += f", job {job}" if job else ""
    kept = kept_answers(desk, [sha256] if sha256 else []).get(sha256 or "")
    if kept is None:
        return clean(f"{title} (no body is kept)"), jsontext.dumps_inert(event.data or {})
    cut = f" (first {SHOWN // 1024} KB)" if len(kept.text) > SHOWN else ""
    return clean(title + cut), clean(kept.text[:SHOWN], newlines=True)


def curl_of(desk: Desk, op: Operation) -> str:
    """Return the create request as a curl command, with the name of the credential in its place.

    It begins with a remark: a create that somebody sends by hand is recorded nowhere. Raises Refused where there is no
    request.
    """
    contract = desk.ledger.contract_of(op)
    shown = request_shown(contract, desk.ledger.store.request_of(op.operation_id))
    headers = dict(shown["headers"])
    if contract.auth.kind != "none":
        headers["Authorization"] = f"[{contract.auth.secret}]"
    words = ["curl", "-X", shown["method"], shown["url"]]
    for name, value in headers.items():
        words += ["-H", f"{name}: {value}"]
    body = shown["body"]
    if body:
        words += ["--data-raw", body if isinstance(body, str) else jsontext.dumps_inert(body)]
    return "# to look at: what is sent by hand is recorded nowhere\n" + shlex.join(words)


# --- saving ------------------------------------------------------------------------------------------------------


def save_packet(desk: Desk, operation_id: str, folder: Path) -> Path:
    """Write the packet into a new file of a folder, for its owner only, and return where it stands.

    Never over another file: a number is put behind the name instead. Raises Refused where it cannot be written.
    """
    document = desk.ledger.packet(operation_id)
    data = markdown(document).encode("utf-8", "replace")
    name = "".join(char for char in short_id(document["operation_id"]) if char.isalnum()) or "operation"
    stem = f"opledger-packet-{name}-event-{document['head']['seq']}"
    for number in range(1, 1000):
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}.md"
        try:
            # O_EXCL also refuses a link that somebody has put there.
            handle = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            continue
        except OSError as error:
            raise Refused(f"{path} cannot be written: {error.strerror}") from error
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise Refused(f"{path} cannot be written: {error.strerror}") from error
        return path
    raise Refused(f"{folder} is full of files named {stem}; remove some")
