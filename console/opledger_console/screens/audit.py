"""The audit: compute the journal again and see whether it holds, and find an operation by anything that names it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from rich.text import Text
from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from opledger.errors import OpledgerError, StoreUnavailable, UsageError
from opledger.store.finding import Found
from opledger_console.desk import Desk, audit
from opledger_console.desk.audit import LISTED, Progress, Verified
from opledger_console.messages import LedgerAway, Opened
from opledger_console.pages.verifying import anchored, hits_line, how_far, outcome
from opledger_console.screens.base import LedgerScreen
from opledger_console.screens.command import LineScreen
from opledger_console.text import line
from opledger_console.views import GLYPHS, Column, Row, kind_of, short_id
from opledger_console.widgets.listing import Listing

FINDINGS: Final[tuple[Column, ...]] = (
    ("finding", 16, 0),
    ("id", 8, 0),
    ("event", 6, 60),
    ("what is wrong", 0, 0),
)
HITS: Final[tuple[Column, ...]] = (
    ("id", 8, 0),
    ("state", 26, 60),
    ("contract", 14, 90),
    ("job", 20, 110),
    ("found by", 0, 0),
)
LOW: Final = 16
"""In a terminal with fewer lines the explanation is cut to one."""

CHECKED: Final = (
    "What is checked: every event's hash and link, the columns beside it, each record and request against its journal, "
    "the leaves and signatures of all checkpoints, and what the anchors outside of the database hold."
)


@dataclass
class Went(Message):
    """A verification has got so far."""

    progress: Progress


class Known(Message):
    """The ledger was verified here before."""


@dataclass
class Ended(Message):
    """A verification has ended, or was stopped."""

    verified: Verified


@dataclass
class Searched(Message):
    """A search has gone through so many operations of so many."""

    done: int
    total: int


@dataclass
class FoundThem(Message):
    """A search has ended, or was stopped."""

    text: str
    found: Found


@dataclass
class Broke(Message):
    """What was under way could not go on, and why."""

    why: str


class AuditScreen(LedgerScreen):
    """One long thing at a time, with its progress; Esc stops it and keeps what it found."""

    TITLE_WORDS = "Audit"
    DEFAULT_CSS = """
    AuditScreen #audit { height: auto; padding: 0 1; }
    AuditScreen #anchored { height: auto; padding: 0 1; color: $text-muted; }
    AuditScreen.-short #anchored { height: 1; }
    AuditScreen #about { height: 1; padding: 0 1; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "verify", "verify", tooltip="compute every chain and every record again", id="audit.verify"),
        Binding(
            "slash",
            "find",
            "find",
            key_display="/",
            tooltip="find an operation by anything that names it",
            id="audit.find",
        ),
        Binding("escape", "stop", "stop", tooltip="stop what is under way", id="audit.stop"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.verified: Verified | None = None
        self.found: Found | None = None
        self._doing: str | None = None  #: "verify" or "find", while that is under way
        self._progress: Progress | None = None
        self._searched = (0, 0)
        self._text = ""
        self._showing = "findings"
        self._stop = threading.Event()

    def body(self) -> Iterable[Widget]:
        """What was verified last, what is under way, and what was found."""
        yield Static("", id="audit", markup=False)
        yield Static(CHECKED, id="anchored", markup=False)
        yield Static("", id="about", markup=False)
        yield Listing(FINDINGS, id="list")

    def on_mount(self) -> None:
        """Keys go to the list. What came since the ledger was last verified here is verified at once."""
        self.query_one(Listing).focus()
        self._draw()
        self._look_back()

    def on_resize(self, event: events.Resize) -> None:
        """In a low terminal the list comes first."""
        super().on_resize(event)
        self.set_class(event.size.height < LOW, "-short")

    def on_unmount(self) -> None:
        """A thread that goes through everything must not outlive the screen."""
        self._stop.set()

    def why_not(self, action: str) -> str | None:
        """One thing at a time."""
        if action in ("verify", "find"):
            if self.away is not None:
                return f"the database is away: {self.away}"
            return f"{_DOING[self._doing]} is under way; escape stops it" if self._doing is not None else None
        if action == "stop":
            return None if self._doing is not None or self._showing == "hits" else "nothing is under way"
        return super().why_not(action)

    # --- verifying ----------------------------------------------------------------------------------------------

    def action_verify(self) -> None:
        """Compute everything again."""
        self._begin_verifying(recent=False)

    @work(thread=True, group="audit-memory", exit_on_error=False)
    def _look_back(self) -> None:
        try:
            known = audit.was_verified(self.desk)
        except OpledgerError:
            return  # whatever it is, a verification says it
        if known:
            self.post_message(Known())

    @on(Known)
    def _known(self) -> None:
        if self._doing is None and self.verified is None:
            self._begin_verifying(recent=True)

    def _begin_verifying(self, *, recent: bool) -> None:
        self._begin("verify")
        self._progress, self._showing = None, "findings"
        self._verify(self._stop, recent=recent)
        self._draw()

    def _begin(self, what: str) -> None:
        self._doing, self._stop = what, threading.Event()
        self.refresh_bindings()

    @work(thread=True, group="audit", exit_on_error=False)
    def _verify(self, stop: threading.Event, *, recent: bool) -> None:
        try:
            ended = audit.verify(
                self.desk,
                lambda progress: self._post(Went(progress)),
                lambda: stop.is_set() or self.desk.closing.is_set(),
                recent=recent,
            )
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
            self.post_message(Broke(f"the database went away: {error.message}"))
        except OpledgerError as error:
            self.post_message(Broke(error.message))
        else:
            self.post_message(Ended(ended))

    def _post(self, message: Message) -> None:
        self.post_message(message)

    @on(Went)
    def _went(self, message: Went) -> None:
        self._progress = message.progress
        self._draw()

    @on(Ended)
    def _ended(self, message: Ended) -> None:
        self.verified, self._doing, self._progress = message.verified, None, None
        self.query_one("#anchored", Static).update(anchored(message.verified))
        self._draw()

    @on(Broke)
    def _broke(self, message: Broke) -> None:
        self._doing, self._progress = None, None
        self.say(f"stopped: {message.why}", severity="warning")
        self._draw()

    # --- finding ------------------------------------------------------------------------------------------------

    def action_find(self) -> None:
        """Ask for anything that names an operation."""
        asked = LineScreen(
            "find ",
            _some_text,
            value=self._text,
            hint="operation id, job id, trace id, provider's request id, fingerprint, token",
        )
        self.app.push_screen(asked, self.find)

    def find(self, text: str | None) -> None:
        """Look for it; None: somebody went back."""
        if text is None or self._doing is not None:
            return
        self._begin("find")
        self._text, self._searched, self._showing, self.found = text, (0, 0), "hits", None
        self._find(text, self._stop)
        self._draw()

    @work(thread=True, group="audit", exit_on_error=False)
    def _find(self, text: str, stop: threading.Event) -> None:
        try:
            found = audit.find(
                self.desk,
                text,
                lambda done, total: self._post(Searched(done, total)),
                lambda: stop.is_set() or self.desk.closing.is_set(),
            )
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
            self.post_message(Broke(f"the database went away: {error.message}"))
        except OpledgerError as error:
            self.post_message(Broke(error.message))
        else:
            self.post_message(FoundThem(text, found))

    @on(Searched)
    def _went_through(self, message: Searched) -> None:
        self._searched = (message.done, message.total)
        self._draw()

    @on(FoundThem)
    def _takehits_line(self, message: FoundThem) -> None:
        self.found, self._doing = message.found, None
        self._draw()

    # --- keys ---------------------------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """Stop what is under way; else go from what was looked for back to the findings."""
        if self._doing is not None:
            self._stop.set()
        else:
            self._showing, self.found = "findings", None
            self._draw()

    @on(Listing.Picked)
    def _picked(self, message: Listing.Picked) -> None:
        operation_id = message.key.rpartition("|")[2]
        if operation_id:
            self.post_message(Opened(operation_id, "raw" if self._showing == "findings" else None))

    # --- drawing ------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        self.query_one("#audit", Static).update(self._head())
        self.query_one("#about", Static).update(self._about())
        listing = self.query_one(Listing)
        columns = FINDINGS if self._showing == "findings" else HITS
        if listing.columns != columns:
            listing.show(())
            listing.columns = columns
            listing.refresh()
        listing.show(self._rows(), empty=self._empty())
        self.refresh_bindings()

    def _head(self) -> Text:
        words = Text(end="")
        if self._doing == "verify":
            words.append("verifying: ", style="bold")
            words.append("counting …" if self._progress is None else how_far(self._progress))
        elif self.verified is None:
            words.append("Nothing was verified in this session. v begins; it reads everything and changes nothing.")
        else:
            one = self.verified
            words.append(f"verified at {one.at:%H:%M:%S}Z: ", style="bold")
            words.append("" if one.complete else f"STOPPED after {one.progress.done:,} of {one.progress.total:,}; ")
            words.append(outcome(one), style="bold" if one.count else "")
        return words

    def _about(self) -> Text:
        words = Text(no_wrap=True, overflow="ellipsis", end="")
        if self._showing == "hits":
            words.append("found by ")
            words.append_text(line(self._text, limit=60))
            done, total = self._searched
            if self._doing == "find":
                words.append(f": looking … {done:,} of {total:,} operations" if total else ": looking …")
            elif self.found is not None:
                words.append(f": {hits_line(self.found)}")
        elif self.verified is not None and self.verified.count:
            words.append(", ".join(f"{number:,} {kind}" for kind, number in self.verified.kinds))
            if self.verified.count > LISTED:
                words.append(f"; the first {LISTED:,} are listed")
        return words

    def _rows(self) -> list[Row]:
        if self._showing == "hits":
            return [
                Row(
                    f"hit|{hit.operation.operation_id}",
                    (
                        short_id(hit.operation.operation_id),
                        f"{GLYPHS[hit.operation.state]} {hit.operation.state}",
                        hit.operation.contract,
                        hit.operation.remote_job_id or "",
                        hit.by,
                    ),
                    kind_of(hit.operation),
                )
                for hit in (self.found.hits if self.found is not None else ())
            ]
        return [
            Row(
                f"{place}|{one.operation_id or ''}",
                (
                    one.kind,
                    short_id(one.operation_id or ""),
                    "" if one.seq is None else str(one.seq),
                    one.message,
                ),
                "bad",
            )
            for place, one in enumerate(self.verified.findings if self.verified is not None else ())
        ]

    def _empty(self) -> str:
        if self._showing == "hits":
            return "" if self._doing == "find" else "no operation has that name; esc goes back"
        if self.verified is None:
            return ""
        return "no findings" if self.verified.complete else "no findings in what was checked"


_DOING: Final = {"verify": "a verification", "find": "a search", None: ""}


def _some_text(text: str) -> str:
    if not text.strip():
        raise UsageError("nothing is looked for; type an id, a token or a fingerprint")
    return text.strip()
