"""The console: modes, global bindings, theme. Nothing else."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from opledger.config import Settings
from opledger_console.desk import Desk
from opledger_console.screens.operations import OperationsScreen


class ConsoleApp(App[int]):
    """The terminal console over one ledger."""

    TITLE = "opledger"
    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, desk: Desk, where: str) -> None:
        super().__init__()
        self._desk = desk
        self._where = where

    def on_mount(self) -> None:
        """Open the one screen there is so far."""
        self.push_screen(OperationsScreen(self._desk, self._where))

    def _fatal_error(self) -> None:
        """End without Textual's traceback: it prints local variables, and one of them may be a secret."""
        self.bell()
        self._close_messages_no_wait()
        self.exit(1, message="The console met an error and has ended; opledger list and explain show the same.")


def where_of(settings: Settings) -> str:
    """Return host and database, or the file's name, without credentials."""
    from urllib.parse import urlsplit

    parts = urlsplit(settings.database)
    if parts.scheme.startswith("sqlite"):
        return parts.path.rpartition("/")[2] or settings.database
    return f"{parts.hostname or 'localhost'}{parts.path}"


def run(settings: Settings, *, read_only: bool = False, worker: bool = True) -> int:
    """Open the console and return its exit code once it is closed; a worker it started ends with it."""
    desk = Desk(settings, read_only=read_only, drive=worker)
    try:
        return ConsoleApp(desk, where_of(settings)).run() or 0
    finally:
        desk.close()
