"""The inbox: one row for each thing that waits for a person, the most urgent first, and the one under the cursor told.

What is decided here goes by the id of the operation under the cursor. Where that one needs nobody any more, the cursor
goes on and the screen says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from rich.text import Text
from textual import on
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from opledger.rules.choices import choices
from opledger.rules.escalation import Escalation, Severity
from opledger.rules.model import Operation, State
from opledger_console.desk import Desk
from opledger_console.desk.inbox import InboxReader, Settled, Waiting
from opledger_console.messages import LedgerAway, Opened
from opledger_console.pages.waiting import COLUMNS, TABS, fate, left_words, row_of, taken_words, what
from opledger_console.screens.acting import ActingScreen
from opledger_console.screens.providers import ProvidersScreen
from opledger_console.text import line
from opledger_console.views import GLYPHS, Column, Row, TimeStyle, counted, short_id, span, stamp
from opledger_console.widgets.listing import Listing

SETTLED_COLUMNS: Final[tuple[Column, ...]] = (
    ("age", 4, 0),
    ("decided", 20, 0),
    ("by", 14, 60),
    ("provider", 12, 70),
    ("id", 8, 50),
    ("why", 0, 0),
)
NOTHING: Final = "Nothing waits for a person."

_OFFERS: Final[tuple[tuple[str, str, str], ...]] = (
    ("approve", "a", "approve what is shown then"),
    ("reject", "d", "decline it: it never leaves"),
    ("reconcile", "u", "say what became of the create"),
    ("resolve", "v", "resolve it"),
    ("cancel", "x", "cancel"),
    ("acknowledge", "y", "take it, so that notices fall silent"),
    ("poll", "p", "read the job now"),
)
"""What may be done with which key; whether it may be done here and now, the screen says."""


class InboxScreen(ActingScreen):
    """Everything that needs a decision."""

    TITLE_WORDS = "Inbox"
    DEFAULT_CSS = """
    InboxScreen #waiting { height: 2fr; min-height: 4; }
    InboxScreen #settled { height: 1fr; display: none; }
    InboxScreen #sum { height: 1; padding: 0 1; color: $text-muted; }
    InboxScreen #told {
        height: 1fr; min-height: 4; padding: 0 1; border-top: solid $panel; scrollbar-size-vertical: 1;
    }
    InboxScreen.-short #waiting { height: 1fr; min-height: 2; }
    InboxScreen.-short #told { display: none; }
    InboxScreen.-empty #waiting { height: 2; min-height: 2; }
    InboxScreen.-empty #told { display: none; }
    InboxScreen.-empty #settled { display: block; }
    InboxScreen.-away #waiting, InboxScreen.-away #settled, InboxScreen.-away #told { text-opacity: 60%; }
    """

    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012 - Textual declares it so

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._reader = InboxReader(desk)
        self._found: Waiting | None = None
        self._known: dict[str, Escalation] = {}

    def body(self) -> Iterable[Widget]:
        """What waits, how much of it there is, and what is under the cursor."""
        yield Listing(COLUMNS, empty=" looking …", id="waiting")
        yield Static("", id="sum", markup=False)
        with VerticalScroll(id="told"):
            yield Static("", id="words", markup=False)
        yield Listing(SETTLED_COLUMNS, empty=" Nobody has decided anything lately.", id="settled")

    # --- looking ------------------------------------------------------------------------------------------------

    def question(self) -> Any:
        """There is one inbox."""
        return "inbox"

    def gather(self, question: Any) -> Waiting:  # noqa: ARG002 - there is only one question
        """Read it."""
        return self._reader.read()

    def paint(self, question: Any, found: Any) -> None:  # noqa: ARG002 - there is only one question
        """Show what waits, or what was decided last."""
        self._found = found
        self._known = {one.subject: one for one in found.rows}
        was_empty = self.has_class("-empty")
        self.set_class(not found.rows, "-empty")
        self._draw(self._now())
        if was_empty != self.has_class("-empty") or self.focused is None:
            self._listing().focus()

    @on(LedgerAway)
    def _say_what_is_off(self) -> None:
        # Later: the screen does not know yet that the ledger is away.
        self.call_later(self.tick)

    def tick(self) -> None:
        """Countdowns go on while nothing changes."""
        if self._found is not None:
            self._draw(self._now())

    def _now(self) -> datetime:
        """The ledger's time, as it was told last: nothing here may wait for the database."""
        assert self._found is not None
        taken = self._found.taken_at
        return taken if self.overview is None else max(taken, self.overview.taken_at)

    def _draw(self, now: datetime) -> None:
        found = self._found
        if found is None:
            return
        rows = [row_of(one, now) for one in found.rows]
        self.query_one("#waiting", Listing).show(rows, empty=f" {_nothing(found)}")
        self.query_one("#settled", Listing).show([_settled_row(one, now) for one in found.settled])
        self.query_one("#sum", Static).update(_sum(found, now))
        self._tell_of(now)

    # --- the one under the cursor -------------------------------------------------------------------------------

    def chosen(self) -> Escalation | None:
        """Return what is under the cursor."""
        key = self.query_one("#waiting", Listing).key
        return None if key is None else self._known.get(key)

    def subject(self) -> Operation | None:
        """Return the operation under the cursor, as it was read; of a provider there is none."""
        one = self.chosen()
        if one is None or one.operation_id is None or self._found is None:
            return None
        return self._found.operations.get(one.operation_id)

    def why_not(self, action: str) -> str | None:
        """Say more than that there is no operation: nothing waits at all, or the row is a provider."""
        why = super().why_not(action)
        if why is None or self.subject() is not None or self._found is None:
            return why
        one = self.chosen()
        if one is None:
            return "nothing waits for a person" if not self._found.rows else why
        return "this row is a provider, not an operation: Enter shows it, and l lets it go there"

    def _tell_of(self, now: datetime) -> None:
        one, words = self.chosen(), self.query_one("#words", Static)
        words.update(Text("") if one is None else self._told(one, self.subject(), now))

    def _told(self, one: Escalation, op: Operation | None, now: datetime) -> Text:
        text = _head(one, op, now)
        text.append("\nwhy: ", style="bold")
        text.append_text(line(one.reason, limit=600))
        taken = taken_words(one, now)
        if taken:
            text.append("\ntaken: ", style="bold")
            text.append_text(line(taken, limit=100))
        text.append("\nyou may: ", style="bold")
        text.append_text(self._offers(op))
        text.append("\nif nobody does anything: ", style="bold")
        text.append_text(line(fate(one, op, now), limit=400))
        if op is not None and op.expectation:
            text.append("\nexpected: ", style="bold")
            text.append_text(line(op.expectation, limit=200))
        return text

    def _offers(self, op: Operation | None) -> Text:
        text = Text()
        if op is None:
            text.append("enter", style="bold")
            text.append(" shows the provider, where l lets it go")
            return text
        refused = None
        for action, key, words in _OFFERS:
            if action == "resolve" and op.state is State.CREATE_UNKNOWN:
                continue  # it opens the same dialog as the one before
            why = self.why_not(action)
            if why is not None:
                refused = refused or why
                continue
            unsent = action == "cancel" and not op.sent
            said = (
                "take it back: nothing was sent"
                if unsent
                else f"{words}{self._choices(op) if action in ('resolve', 'reconcile') else ''}"
            )
            text.append(" · " if text else "")
            text.append(key, style="bold")
            text.append(f" {said}")
        if not text and refused is not None:
            text.append_text(line(f"look at it with Enter; {refused}", limit=200))
        return text

    def _choices(self, op: Operation) -> str:
        contract = None if self._found is None else self._found.contracts.get(op.contract_digest)
        offered = () if contract is None else choices(op, contract)
        return f" ({', '.join(option.choice.value for option in offered)})" if offered else ""

    @on(Listing.Moved, "#waiting")
    def _moved(self, message: Listing.Moved) -> None:
        gone = message.instead_of
        if gone is not None and message.key is not None:
            self.say(f"{_name(gone)} needs nobody any more; the cursor went on to {_name(message.key)}", timeout=4)
        if self._found is not None:
            self._tell_of(self._now())
        self.refresh_bindings()

    @on(Listing.Picked, "#waiting")
    def _picked(self, message: Listing.Picked) -> None:
        one = self._known.get(message.key)
        if one is None:
            return
        if one.operation_id is None:
            self.app.switch_mode("providers")
            self.app.call_later(self._show_provider, one.contract)
        else:
            self.post_message(Opened(one.operation_id, TABS.get(one.code, "timeline")))

    def _show_provider(self, name: str) -> None:
        screen = self.app.screen
        if isinstance(screen, ProvidersScreen):
            screen.choose(name)

    @on(Listing.Picked, "#settled")
    def _look_back(self, message: Listing.Picked) -> None:
        settled = () if self._found is None else self._found.settled
        for one in settled:
            if one.key == message.key:
                self.post_message(Opened(one.operation_id, "timeline"))

    def action_next(self) -> None:
        """Go to the next row in the order of urgency, from the last one round to the first."""
        listing = self.query_one("#waiting", Listing)
        if not listing.rows:
            self.say(NOTHING if self._found is None else _nothing(self._found))
            return
        place = listing.place
        listing.go_to(listing.rows[0 if place is None else (place + 1) % len(listing.rows)].key)
        listing.focus()

    def _listing(self) -> Listing:
        return self.query_one("#settled" if self.has_class("-empty") else "#waiting", Listing)


# --- words ---------------------------------------------------------------------------------------------------------


def _name(subject: str) -> str:
    """Return what people call a row."""
    kind, colon, provider = subject.partition(":")
    return f"{kind} {provider}" if colon else short_id(subject)


def _head(one: Escalation, op: Operation | None, now: datetime) -> Text:
    text = Text()
    if op is None:
        text.append("‖ provider ", style="bold")
        text.append_text(line(one.contract, limit=60, style="bold"))
        text.append(f"  paused for {stamp(one.since, now, TimeStyle.RELATIVE)}")
        return text
    text.append(f"{GLYPHS[op.state]} {short_id(op.operation_id)}  {op.state.value}", style="bold")
    wanted = "" if one.code == op.state else f"{what(one.code)}, "
    text.append(f"  {wanted}{one.severity.value}, for {stamp(one.since, now, TimeStyle.RELATIVE)}")
    if one.deadline is not None:
        left = left_words(one.deadline, now)
        text.append(f", deadline {'passed' if left == 'passed' else f'in {left}'}", style="bold")
    text.append("\n")
    text.append_text(line(op.contract, limit=40))
    text.append("  asked by ", style="dim")
    text.append_text(line(op.requested_by, limit=40))
    text.append("  job ", style="dim")
    text.append_text(line(op.remote_job_id or "(none)", limit=60))
    if one.code == State.AWAITING_APPROVAL:
        text.append(f"  {len(op.approvals)} of {counted(op.approvals_needed, 'approval')}", style="dim")
    return text


def _tasks(number: int) -> str:
    """Say that tasks wait: what they ask is no operation, and is shown on a screen of its own."""
    one = "1 task waits for somebody: 4 shows it"
    return one if number == 1 else f"{number:,} tasks wait for somebody: 4 shows them"


def _nothing(found: Waiting) -> str:
    return f"No operation waits for a person; {_tasks(found.tasks)}." if found.tasks else NOTHING


def _sum(found: Waiting, now: datetime) -> Text:
    """Say how much waits; where not all of it is listed, how to get at the rest."""
    text = Text(no_wrap=True, overflow="ellipsis", end="")
    if not found.rows:
        text.append("decided last" if found.settled else "")
        return text
    if found.total > len(found.rows):
        text.append(f"the first {len(found.rows):,} of {found.total:,}", style="bold")
        text.append(f", and {found.total - len(found.rows):,} more: 2 shows all, filter needs:me")
        return text
    counts = [(level.value, sum(one.severity is level for one in found.rows)) for level in Severity]
    text.append(", ".join(f"{count} {level}" for level, count in counts if count))
    taken = sum(one.acknowledged(now) for one in found.rows)
    text.append(f"  ·  {taken} taken by somebody" if taken else "")
    if found.tasks:
        text.append(f"  ·  {counted(found.tasks, 'task')} {'waits' if found.tasks == 1 else 'wait'}: press 4")
    return text


def _settled_row(one: Settled, now: datetime) -> Row:
    cells = (span(now - one.at), one.words, one.by, one.contract, short_id(one.operation_id), one.why)
    return Row(one.key, cells)
