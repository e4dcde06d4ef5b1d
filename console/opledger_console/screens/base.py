"""What every screen over the ledger has in common: the frame, looking without blocking, and keys that say why not.

A screen *asks* on the drawing loop (`question`), a thread *gathers* the answer from the desk, and the loop *paints* it.
Threads touch no widget; an answer to a question that has changed meanwhile is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from opledger.errors import OpledgerError, StoreUnavailable
from opledger_console.desk import Desk, trace
from opledger_console.messages import Gathered, LedgerAway, NotGathered, OverviewTaken
from opledger_console.views import Overview
from opledger_console.widgets.frame import AttentionStrip, FrameLine
from opledger_console.widgets.keys import KeysLine
from opledger_console.widgets.notice import NoticeLine

SMALLEST: Final = (30, 6)
"""Below this width or height a screen only says that it is too small."""


class LedgerScreen(Screen[None]):
    """A screen that shows a part of the ledger and follows it."""

    TITLE_WORDS: ClassVar[str] = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "look", "look now", show=False, id="look"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self.overview: Overview | None = desk.latest
        self.away: str | None = None
        self._again = False
        self._failed = ""

    # --- what a screen says of itself ---------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        """Yield the widgets between the frame and the keys."""
        return ()

    def question(self) -> Any:
        """Return what is to be read, as a frozen value; runs on the drawing loop. None: nothing now."""
        return None

    def gather(self, question: Any) -> Any:
        """Read the answer from the desk; runs in a thread and touches no widget. Raises OpledgerError."""
        raise NotImplementedError

    def paint(self, question: Any, found: Any) -> None:
        """Show an answer; runs on the drawing loop."""
        raise NotImplementedError

    def not_found(self, question: Any, why: str) -> None:  # noqa: ARG002 - for screens that care which
        """Say why a question has no answer."""
        self.say(why, severity="warning")

    def stays(self, question: Any) -> bool:
        """Tell whether an answer to this question is still wanted."""
        return bool(question == self.question())

    def why_not(self, action: str) -> str | None:  # noqa: ARG002 - for screens that switch keys off
        """Return why an action cannot be had now, in words; None where it can."""
        return None

    # --- the common part ----------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """The frame, what the screen is about, the keys."""
        yield FrameLine(self.desk.where, self.desk.settings.operator)
        yield AttentionStrip()
        yield from self.body()
        yield NoticeLine()
        yield KeysLine()
        yield Static(
            f"this window is too small; it needs {SMALLEST[0]}x{SMALLEST[1]}", classes="too-small", markup=False
        )

    def on_mount(self) -> None:
        """Look at once."""
        self._draw_frame()
        self.action_look()

    def on_screen_resume(self) -> None:
        """Look again when the screen comes back: it did not follow while it was covered."""
        self._draw_frame()
        self.action_look()

    def on_resize(self, event: events.Resize) -> None:
        """Say so where there is no room."""
        width, height = event.size.width, event.size.height
        self.set_class(width < SMALLEST[0] or height < SMALLEST[1], "-too-small")

    def say(self, words: str, *, severity: str = "information", timeout: float = 8.0) -> None:
        """Say something in the screen's own line; whatever stands in it is shown as it is."""
        self.query_one(NoticeLine).tell(words, severity, timeout)

    def action_look(self) -> None:
        """Ask for a new picture; one that is under way is enough, and is followed by another."""
        question = self.question()
        if question is None:
            return
        if self.at_work("look"):
            self._again = True
            return
        self._again = False
        self._look(question)

    def at_work(self, group: str) -> bool:
        """Tell whether a thread of this screen is at something; Textual's list holds those of all screens.

        One that has not begun yet counts, too: what a thread reads with is for one thread at a time.
        """
        return any(one.node is self and one.group == group and not one.is_finished for one in self.workers)

    @work(thread=True, group="look", exit_on_error=False)
    def _look(self, question: Any) -> None:
        self.read_for(question)

    def read_for(self, question: Any) -> None:
        """Gather an answer in this thread and post it; for screens that ask on the side, too."""
        try:
            self.post_message(Gathered(question, self.gather(question)))
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
        except OpledgerError as error:
            self.post_message(NotGathered(question, error.message))

    @on(Gathered)
    def _gathered(self, message: Gathered) -> None:
        self._failed = ""
        if self.stays(message.question):
            self.paint(message.question, message.found)
            self.refresh_bindings()
        else:
            self._again = True

    @on(NotGathered)
    def _not_gathered(self, message: NotGathered) -> None:
        if self.stays(message.question):
            self.not_found(message.question, message.why)
        else:
            self._again = True

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Look again if somebody asked meanwhile; say so where a thread met what nobody expected."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            words = trace.write_down(event.worker.error)
            if words != self._failed:  # once, not once a second
                self._failed = words
                self.say(f"reading failed, what you see may be old: {words}", severity="error", timeout=30)
        if event.worker.group == "look" and event.worker.is_finished and self._again and self.is_current:
            self.call_later(self.action_look)

    @on(OverviewTaken)
    def take_overview(self, message: OverviewTaken) -> None:
        """Draw the frame, and look again where something changed."""
        came_back = self.away is not None
        self.overview, self.away = message.overview, None
        self._draw_frame()
        if message.changed or came_back:
            self.action_look()
        else:
            self.tick()

    def tick(self) -> None:
        """Move countdowns on; called about once a second while nothing changes."""

    @on(LedgerAway)
    def take_loss(self, message: LedgerAway) -> None:
        """Leave the last picture standing, grey, with the time it was true."""
        self.away = message.why
        self._draw_frame()

    def _draw_frame(self) -> None:
        self.query_one(FrameLine).show(self.TITLE_WORDS, self.overview, self.away)
        if self.overview is not None:
            self.query_one(AttentionStrip).show(self.overview)
        self.set_class(self.away is not None, "-away")
        self.refresh_bindings()

    # --- while it is taken down ---------------------------------------------------------------------------------

    async def _dispatch_message(self, message: Message) -> None:
        """Let a message go that came too late: what was read, or a tick, when the widgets it is for are gone.

        While the screen stands, a widget that is missing is a fault, and is told as one.
        """
        try:
            await super()._dispatch_message(message)
        except NoMatches:
            if self.is_attached and self.query("FrameLine") and self.query("KeysLine"):
                raise

    # --- keys that are off --------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Switch a key off (and dim it) where its action cannot be had."""
        try:
            return True if self.why_not(action) is None else None
        except NoMatches:
            return None  # asked while the screen is put up or taken down: then no key of it does anything

    def on_key(self, event: events.Key) -> None:
        """Say why a key that is off does nothing.

        Not at once: in a burst of keys this one may be looked at before the one in front of it has moved the cursor.
        """
        active = self.active_bindings.get(event.key)
        if active is not None and not active.enabled and active.node is self:
            event.stop()
            self.call_later(self._press_again, event.key)

    async def _press_again(self, key: str) -> None:
        active = self.active_bindings.get(key)
        if active is None or active.node is not self or not self.is_current:
            return
        why = self.why_not(active.binding.action)
        if why is not None:
            self.say(why, severity="warning")
        else:
            await self.app.run_action(active.binding.action, self)
