"""The console: modes, global bindings, theme. Nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from textual import on, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import get_current_worker

from opledger.config import Settings
from opledger.errors import OpledgerError
from opledger_console import keymap, terminal, themes, topics
from opledger_console.commands import Command, Vocabulary
from opledger_console.desk import Desk, trace
from opledger_console.dialogs.base import Dialog
from opledger_console.dialogs.leaving import QuitDialog
from opledger_console.messages import LedgerAway, Opened, OverviewTaken
from opledger_console.palette import PROVIDERS
from opledger_console.screens.audit import AuditScreen
from opledger_console.screens.base import LedgerScreen
from opledger_console.screens.command import CommandScreen
from opledger_console.screens.help import HelpScreen
from opledger_console.screens.inbox import InboxScreen
from opledger_console.screens.operation import OperationScreen
from opledger_console.screens.operations import OperationsScreen
from opledger_console.screens.providers import ProvidersScreen
from opledger_console.screens.tail import TailScreen
from opledger_console.screens.tasks import TasksScreen
from opledger_console.views import Look

ROOM: Final = (30, 10)
"""The smallest window in which the command palette is opened: Textual's list of choices breaks in smaller ones."""

HUNG_UP: Final = 129
"""The exit code after the terminal has gone: what a shell makes of SIGHUP."""

EVERY: Final = 1.0
"""Seconds between two looks at the frame while nothing changes."""

PACE: Final = 0.25
"""Seconds that lie at least between two looks, however much changes."""

SCREENS: Final[dict[str, type[LedgerScreen]]] = {
    "inbox": InboxScreen,
    "operations": OperationsScreen,
    "providers": ProvidersScreen,
    "tasks": TasksScreen,
    "tail": TailScreen,
    "audit": AuditScreen,
}


class ConsoleApp(App[int], inherit_bindings=False):
    """The terminal console over one ledger."""

    TITLE = "opledger"
    CSS_PATH: ClassVar[Any] = ["console.tcss"]
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    COMMANDS = PROVIDERS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "mode('inbox')", "inbox", show=False, id="mode.inbox"),
        Binding("2", "mode('operations')", "operations", show=False, id="mode.operations"),
        Binding("3", "mode('providers')", "providers", show=False, id="mode.providers"),
        Binding("4", "mode('tasks')", "tasks", show=False, id="mode.tasks"),
        Binding("5", "mode('tail')", "tail", show=False, id="mode.tail"),
        Binding("6", "mode('audit')", "audit", show=False, id="mode.audit"),
        Binding("exclamation_mark", "next_needing", "next that needs you", key_display="!", id="next", show=False),
        Binding("colon", "command", "command line", key_display=":", id="command", show=False),
        Binding("question_mark", "help", "help", key_display="?", id="help"),
        Binding("q", "leave", "quit", id="quit"),
        Binding("ctrl+c,ctrl+q", "leave", "quit", show=False, priority=True, id="quit.now"),
    ]

    def __init__(self, desk: Desk, *, start: str | None = None) -> None:
        super().__init__()
        self.desk = desk
        self._start = start
        for name, screen in SCREENS.items():
            self.add_mode(name, _making(screen, desk))

    def on_mount(self) -> None:
        """Dress, open the first screen, and begin to follow the ledger."""
        settings = self.desk.settings.console
        troubles = [themes.apply(self, settings.theme, os.environ)]
        troubles += keymap.apply(self, settings.keys)
        # The inbox is the start; where nothing needs a person it says so, and what was decided last.
        words = [one for one in troubles if one is not None]
        self._go(self._start or "inbox", (lambda screen: _warn(screen, words)) if words else None)
        self._follow()

    @work(thread=True, group="follow", exit_on_error=False)
    def _follow(self) -> None:
        """Look at the ledger whenever somebody has written, and once a second anyway."""
        desk, changed, me = self.desk, True, get_current_worker()
        while not (me.is_cancelled or desk.closing.is_set()):
            if not self.is_headless and terminal.hung_up():
                self.call_from_thread(self._hang_up)
                return
            try:
                overview = desk.overview()
                self.call_from_thread(self._tell, OverviewTaken(overview, changed))
                desk.closing.wait(PACE)
                changed = desk.wait_for_change(EVERY - PACE)
            except OpledgerError as error:
                changed = True
                self.call_from_thread(self._tell, LedgerAway(error.message))
                desk.closing.wait(EVERY)

    def _hang_up(self) -> None:
        terminal.leave_hard(HUNG_UP, self.desk.close)
        self.exit(HUNG_UP)

    def _tell(self, message: OverviewTaken | LedgerAway) -> None:
        """Pass news on to the screen of the ledger that is in front, also while a dialog covers it."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, LedgerScreen):
                screen.post_message(message)
                return

    @on(Opened)
    def _open(self, message: Opened) -> None:
        self.push_screen(OperationScreen(self.desk, message.operation_id, tab=message.tab))

    def action_mode(self, mode: str) -> None:
        """Go to one of the six screens; anything opened on top of another one stays there."""
        self.switch_mode(mode)

    def action_next_needing(self) -> None:
        """Go to the next thing that needs a person."""
        screen = self.screen
        if isinstance(screen, InboxScreen):
            screen.action_next()
        else:
            self.switch_mode("inbox")

    def action_command_palette(self) -> None:
        """Open the palette; where there is no room for a list of choices, say so."""
        if self.size.width < ROOM[0] or self.size.height < ROOM[1]:
            if isinstance(self.screen, LedgerScreen):
                self.screen.say(f"the palette needs a window of {ROOM[0]}x{ROOM[1]}", severity="warning")
        else:
            super().action_command_palette()

    def action_help(self) -> None:
        """Show the keys of this screen, and what to do in each state."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    # --- views, and the line in which they are named ------------------------------------------------------------

    def saved_views(self) -> tuple[str, ...]:
        """Return the names of the views that people have kept."""
        return tuple(sorted(self.desk.memory.prefs.views))

    def open_view(self, name: str) -> None:
        """Show the operations of a view that was kept."""
        self._on_operations(lambda screen: screen.open_view(name))

    def _on_operations(self, then: Callable[[OperationsScreen], None]) -> None:
        self._go("operations", then)

    def _go(self, mode: str, then: Callable[[Any], None] | None = None) -> None:
        """Go to a screen; `then` is done once it stands there."""
        self.switch_mode(mode)
        screen = self.screen_stack[0]
        if then is not None:
            screen.call_after_refresh(then, screen)

    def action_command(self) -> None:
        """Type a command: where to go, what to show."""
        stack = self._screen_stacks.get("operations", [])
        seen = stack[0].vocabulary() if stack and isinstance(stack[0], OperationsScreen) else {}
        vocabulary = Vocabulary(seen, tuple(themes.SHORT), self.saved_views(), topics.known())
        self.push_screen(CommandScreen(vocabulary), self._carry_out)

    def _carry_out(self, command: Command | None) -> None:
        if command is None:
            return
        verb, rest = command.verb, command.rest
        if verb == "ops":
            self._on_operations(lambda screen: screen.show_look(Look(rest, screen.look.sort)))
        elif verb == "tail":
            self._go("tail", (lambda screen: screen.show_only(rest)) if rest else None)
        elif verb == "find":
            self._go("audit", lambda screen: screen.find(rest))
        elif verb in SCREENS:
            self._go(verb)
        elif verb == "open":
            self.push_screen(OperationScreen(self.desk, rest))
        elif verb == "help":
            self.push_screen(HelpScreen(self.screen, rest or None))
        elif verb == "theme":
            trouble = themes.dress(self, rest)
            if trouble is not None and isinstance(self.screen, LedgerScreen):
                self.screen.say(trouble, severity="warning")
        elif verb == "save":
            self._on_operations(lambda screen: screen.save_view(rest))
        elif verb == "view":
            self.open_view(rest)
        else:
            self.action_leave()

    def action_leave(self) -> None:
        """Quit; the worker that was started here ends too, and cancels nothing. Asks where something typed is lost."""
        if isinstance(self.screen, QuitDialog):
            self.exit(0)  # asked for a second time
        elif isinstance(self.screen, Dialog) and (self.screen.holds_text or self.screen.sending):
            self.push_screen(QuitDialog(), self._left)
        else:
            self.exit(0)

    def _left(self, leaves: bool | None) -> None:  # noqa: FBT001 - how Textual hands over what a screen returned
        if leaves:
            self.exit(0)

    def _fatal_error(self) -> None:
        """End without Textual's traceback: it prints local variables, and one of them may be a secret."""
        error = self._exception
        words = "" if error is None else f" ({trace.write_down(error)})"
        self.bell()
        self._close_messages_no_wait()
        self.exit(1, message=f"The console met an error and has ended{words}; opledger list and explain show the same.")


def _warn(screen: LedgerScreen, words: list[str]) -> None:
    screen.say("\n".join(words), severity="warning", timeout=20)


def _making(screen: type[LedgerScreen], desk: Desk) -> Callable[[], Screen[Any]]:
    return partial(screen, desk)


def run(settings: Settings, *, read_only: bool = False, worker: bool = True, start: str | None = None) -> int:
    """Open the console and return its exit code once it is closed; a worker it started ends with it."""
    desk = Desk(settings, read_only=read_only, drive=worker)
    app = ConsoleApp(desk, start=start)
    try:
        with terminal.ending_well(app, desk.close):
            return app.run() or 0
    finally:
        desk.close()
