"""One operation: its state here and there, what happens next and why, and everything that is known of it, in tabs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from opledger.errors import OpledgerError
from opledger.rules.model import Operation
from opledger_console.desk import Desk
from opledger_console.desk.operation import Found, Look, Reader, save_packet
from opledger_console.pages import head
from opledger_console.pages.rows import Key, row
from opledger_console.screens.acting import ActingScreen
from opledger_console.views import TimeStyle
from opledger_console.widgets.sheet import HeadSheet, Sheet
from opledger_console.widgets.tabs import TabLine

AROUND: Final = 4
"""Lines of the frame, the attention strip, the tabs and the keys."""

ROOM: Final = 12
"""Lines that the page gets before the head takes more."""

EVENTS: Final = frozenset({"timeline", "calls", "observations", "approvals", "raw"})
"""Tabs that are about events, and keep the cursor on the one that was chosen in another."""


@dataclass
class Saved(Message):
    """What became of a file that somebody wanted."""

    words: str
    done: bool


class OperationScreen(ActingScreen):
    """One operation. The tab and the chosen event survive whatever comes in."""

    TITLE_WORDS = "Operation"

    DEFAULT_CSS = """
    OperationScreen HeadSheet { padding: 0 0; background: $surface; }
    OperationScreen.-away Sheet { opacity: 60%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", "back", id="back"),
        Binding("left,h", "tab(-1)", "tab before", show=False, id="tab.before"),
        Binding("right,l", "tab(1)", "tabs", key_display="h/l", id="tab.next"),
        Binding("tab", "tab(1)", "next tab", show=False),
        Binding("shift+tab", "tab(-1)", "tab before", show=False),
        Binding("L", "follow", "follow", id="follow"),
        Binding("o", "save", "save", id="save", show=False),
        Binding("t", "time", "time format", show=False, id="operation.time"),
        Binding("r", "look_anew", "look now", id="look.anew", show=False),
    ]

    def __init__(self, desk: Desk, operation_id: str, tab: str | None = None) -> None:
        super().__init__(desk)
        self.operation_id, self.tab = operation_id, tab
        self.following = True
        self.seq: int | None = None  #: the event that was chosen, whichever tab shows it
        self.gone: str | None = None  #: why the operation cannot be shown
        self.found: Found | None = None
        self._opened: dict[str, frozenset[Key]] = {}
        self._tops: dict[str, int] = {}
        self._pages: dict[str, Found] = {}
        self._anew = 0
        self._unfolding = False
        self._reader = Reader(desk, operation_id)

    def body(self) -> Iterable[Widget]:
        """The head, the tabs, and the page of one of them."""
        yield HeadSheet(id="head")
        yield TabLine()
        yield Sheet(id="page")

    def on_mount(self) -> None:
        """The keys are for the page."""
        self.query_one("#page", Sheet).focus()

    def subject(self) -> Operation | None:
        """Return the operation that the page is about."""
        return self.found.operation if self.found is not None and self.gone is None else None

    # --- looking ------------------------------------------------------------------------------------------------

    def question(self) -> Look:
        """Ask for the tab in view, as wide as there is room."""
        width = self.query_one("#page", Sheet).scrollable_content_region.width or self.size.width
        opened = self._opened.get(self.tab or "", frozenset())
        local = self.desk.memory.prefs.time is TimeStyle.LOCAL
        return Look(self.operation_id, self.tab, opened, width, self._anew, local)

    def gather(self, question: Look) -> Found:
        """Read what is new of the operation."""
        return self._reader.look(question)

    def paint(self, question: Look, found: Found) -> None:
        """Show it; the cursor stays on its event."""
        self.gone = None
        self.found = found
        turned = question.tab != found.tab
        self.tab = found.tab
        self._pages[found.tab] = found
        self._show_page(found, self._tops.get(found.tab, 0) if turned else None)
        if self._unfolding:
            self._unfolding = False
            self.query_one("#page", Sheet).lift()
        self._show_head()

    def not_found(self, question: Look, why: str) -> None:  # noqa: ARG002 - it is one operation
        """Say that there is nothing, or no longer; what was read before stays to be seen."""
        self.gone = why
        self.refresh_bindings()
        self._show_head()
        if self.found is None:
            self.query_one("#page", Sheet).show([row("escape goes back", "dim")])

    def tick(self) -> None:
        """Move the countdowns on."""
        self._show_head()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - the base looks at it, too
        """Wrap the page anew."""
        self.call_after_refresh(self._refit)

    def _refit(self) -> None:
        self._show_head()
        self.action_look()

    # --- showing ------------------------------------------------------------------------------------------------

    def _show_page(self, found: Found, top: int | None) -> None:
        sheet = self.query_one("#page", Sheet)
        follow = self.following and found.tab in EVENTS
        sheet.show(found.rows, seq=self.seq, follow=follow, top=top)
        if follow:
            self.seq = sheet.seq
        self._show_tabs(found)

    def _show_tabs(self, found: Found) -> None:
        brief = "following" if self.following else "L follows"
        note = f"event {found.operation.head_seq}, {brief}"
        self.query_one(TabLine).show(found.tabs, self.tab or found.tab, note, brief)

    def _show_head(self) -> None:
        pane = self.query_one("#head", HeadSheet)
        found = self.found
        if self.gone is not None:
            old = "" if found is None else f"; what you see was true at {found.taken_at:%H:%M:%S}Z"
            pane.stand([row(f"{self.gone}{old}", "warn")])
            return
        if found is None:
            pane.stand([row("reading …", "dim")])
            return
        overview = self.overview
        now = found.taken_at if overview is None else max(found.taken_at, overview.taken_at)
        shown = head.Head(found.operation, found.explanation, found.unexplained, self._keys())
        height = max(self.size.height - AROUND - ROOM, 2)
        pane.stand(head.rows(shown, now, self.size.width, height))

    def _keys(self) -> tuple[tuple[str, str], ...]:
        """Return what a person may do here and now."""
        return tuple((key, words) for key, action, words in _DEEDS if self.why_not(action) is None)

    # --- keys ---------------------------------------------------------------------------------------------------

    def why_not(self, action: str) -> str | None:
        """Say why a key does nothing here."""
        if action == "save" and self.subject() is None:
            return "there is no operation here"
        return super().why_not(action)

    def action_back(self) -> None:
        """Go back to where the operation was opened."""
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()

    def action_tab(self, by: int) -> None:
        """Go to the next tab, round the end."""
        found = self.found
        if found is not None:
            names = [name for name, _ in found.tabs]
            self.turn_to(names[(names.index(self.tab or names[0]) + by) % len(names)])

    def turn_to(self, tab: str) -> None:
        """Show another tab: at once as it was last, and then as it is."""
        found = self.found
        if found is None or tab == self.tab or tab not in dict(found.tabs):
            return
        sheet = self.query_one("#page", Sheet)
        self._tops[self.tab or ""] = sheet.scroll_offset.y
        self.tab = tab
        if tab == "packet":
            self._anew += 1
        before = self._pages.get(tab)
        top = self._tops.get(tab, 0)
        if before is not None:
            self._show_page(before, top)
        else:
            sheet.show([row("reading …", "dim")], top=0)
            self._show_tabs(found)
        self.action_look()

    @on(TabLine.Clicked)
    def _clicked(self, message: TabLine.Clicked) -> None:
        self.turn_to(message.tab)

    def action_follow(self) -> None:
        """Follow the newest event, or stay where the cursor is."""
        self.following = not self.following
        if self.found is not None:
            self._show_page(self.found, None)

    def action_time(self) -> None:
        """Write times in UTC, or in the zone of this machine; how long ago stands between the lines anyway."""
        local = self.desk.memory.prefs.time is TimeStyle.LOCAL
        self.desk.memory.remember(time=TimeStyle.UTC if local else TimeStyle.LOCAL)
        self.say("times are in UTC" if local else "times are local")
        self.action_look()

    def action_look_anew(self) -> None:
        """Read again, also what is else read only once."""
        self._anew += 1
        self.action_look()

    def action_packet(self) -> None:
        """Show the escalation packet, which is a tab here."""
        self.turn_to("packet")

    def action_save(self) -> None:
        """Write the packet into a new file here."""
        op = self.subject()
        if op is not None:
            self._save(op.operation_id)

    @work(thread=True, group="save", exit_on_error=False)
    def _save(self, operation_id: str) -> None:
        try:
            path = save_packet(self.desk, operation_id, Path.cwd())
        except OpledgerError as error:
            self.post_message(Saved(error.message, done=False))
        else:
            self.post_message(Saved(f"the packet stands in {path}", done=True))

    @on(Saved)
    def _tell_saved(self, message: Saved) -> None:
        self.say(message.words, severity="information" if message.done else "warning")

    @on(Sheet.Marked)
    def _marked(self, message: Sheet.Marked) -> None:
        self.seq = message.seq
        if self.following:
            self.following = False
            if self.found is not None:
                self._show_tabs(self.found)

    @on(Sheet.Toggled)
    def _toggled(self, message: Sheet.Toggled) -> None:
        tab = self.tab or ""
        self._opened[tab] = self._opened.get(tab, frozenset()) ^ {message.key}
        self._unfolding = message.key in self._opened[tab]
        self.following = False
        self.action_look()


_DEEDS = (
    ("a", "approve", "approve"),
    ("d", "reject", "decline"),
    ("u", "reconcile", "settle the unknown create"),
    ("v", "resolve", "resolve"),
    ("x", "cancel", "cancel"),
    ("y", "acknowledge", "ack"),
    ("p", "poll", "poll now"),
    ("n", "note", "note"),
    ("e", "packet", "packet"),
)
