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

from opledger.config import Settings
from opledger.errors import OpledgerError
from opledger_console import themes
from opledger_console.desk import Desk, trace
from opledger_console.messages import LedgerAway, Opened, OverviewTaken
from opledger_console.screens.audit import AuditScreen
from opledger_console.screens.base import LedgerScreen
from opledger_console.screens.help import HelpScreen
from opledger_console.screens.inbox import InboxScreen
from opledger_console.screens.operation import OperationScreen
from opledger_console.screens.operations import OperationsScreen
from opledger_console.screens.providers import ProvidersScreen
from opledger_console.screens.tail import TailScreen
from opledger_console.screens.tasks import TasksScreen

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


class ConsoleApp(App[int]):
    """The terminal console over one ledger."""

    TITLE = "opledger"
    CSS_PATH: ClassVar[Any] = ["console.tcss"]
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "mode('inbox')", "inbox", show=False, id="mode.inbox"),
        Binding("2", "mode('operations')", "operations", show=False, id="mode.operations"),
        Binding("3", "mode('providers')", "providers", show=False, id="mode.providers"),
        Binding("4", "mode('tasks')", "tasks", show=False, id="mode.tasks"),
        Binding("5", "mode('tail')", "tail", show=False, id="mode.tail"),
        Binding("6", "mode('audit')", "audit", show=False, id="mode.audit"),
        Binding("exclamation_mark", "next_needing", "next that needs you", key_display="!", id="next", show=False),
        Binding("question_mark", "help", "help", key_display="?", id="help"),
        Binding("q", "leave", "quit", id="quit"),
        Binding("ctrl+c", "leave", "quit", show=False, priority=True, id="quit.now"),
    ]

    def __init__(self, desk: Desk, *, start: str | None = None) -> None:
        super().__init__()
        self.desk = desk
        self._start = start
        for name, screen in SCREENS.items():
            self.add_mode(name, _making(screen, desk))

    def on_mount(self) -> None:
        """Dress, open the first screen, and begin to follow the ledger."""
        themes.apply(self, self.desk.settings.console.theme, os.environ)
        if self.desk.settings.console.keys:
            self.set_keymap(dict(self.desk.settings.console.keys))
        # The inbox is the start; where nothing needs a person it says so, and what was decided last.
        self.switch_mode(self._start or "inbox")
        self._follow()

    @work(thread=True, group="follow", exit_on_error=False)
    def _follow(self) -> None:
        """Look at the ledger whenever somebody has written, and once a second anyway."""
        desk, changed = self.desk, True
        while not desk.closing.is_set():
            try:
                overview = desk.overview()
                self.call_from_thread(self._tell, OverviewTaken(overview, changed))
                desk.closing.wait(PACE)
                changed = desk.wait_for_change(EVERY - PACE)
            except OpledgerError as error:
                changed = True
                self.call_from_thread(self._tell, LedgerAway(error.message))
                desk.closing.wait(EVERY)

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

    def action_help(self) -> None:
        """Show the keys of this screen, and what to do in each state."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def action_leave(self) -> None:
        """Quit; the worker that was started here ends too, and cancels nothing."""
        self.exit(0)

    def _fatal_error(self) -> None:
        """End without Textual's traceback: it prints local variables, and one of them may be a secret."""
        error = self._exception
        words = "" if error is None else f" ({trace.write_down(error)})"
        self.bell()
        self._close_messages_no_wait()
        self.exit(1, message=f"The console met an error and has ended{words}; opledger list and explain show the same.")


def _making(screen: type[LedgerScreen], desk: Desk) -> Callable[[], Screen[Any]]:
    return partial(screen, desk)


def run(settings: Settings, *, read_only: bool = False, worker: bool = True, start: str | None = None) -> int:
    """Open the console and return its exit code once it is closed; a worker it started ends with it."""
    desk = Desk(settings, read_only=read_only, drive=worker)
    try:
        return ConsoleApp(desk, start=start).run() or 0
    finally:
        desk.close()
