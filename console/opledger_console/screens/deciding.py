"""From a key to a record: what a dialog shows is read, the dialog asks, and what was decided is carried out and told.

A second press while the first one is under way does nothing. While a dialog is open its record is watched, and where it
moves on the dialog says so and can no longer confirm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual import on, work
from textual.message import Message

from opledger.errors import OpledgerError, StoreUnavailable
from opledger.rules.model import Operation
from opledger_console.desk import Desk, deeds
from opledger_console.dialogs.base import Dialog
from opledger_console.dialogs.deciding import Deciding
from opledger_console.dialogs.panel import TextPanel
from opledger_console.messages import LedgerAway, OverviewTaken
from opledger_console.screens.base import LedgerScreen
from opledger_console.verdicts import Verdict
from opledger_console.views import short_id
from opledger_console.widgets.notice import NoticeLine

Make = Callable[[], Deciding]
"""Makes a dialog from what was read; called on the drawing loop, where widgets are made."""


@dataclass
class SheetReady(Message):
    """What a dialog shows has been read."""

    make: Make


@dataclass
class SheetRefused(Message):
    """There is nothing to decide, and why."""

    why: str


@dataclass
class DeedDone(Message):
    """A verdict was carried out, or refused."""

    deed: deeds.Deed


@dataclass
class Moved(Message):
    """The record under an open dialog has changed in a way that matters."""

    subject: str
    words: str


def grace_of(desk: Desk) -> float:
    """Return the seconds in which an approval or a cancellation can be taken back before it is recorded."""
    return desk.settings.console.grace.total_seconds()


class DecidingScreen(LedgerScreen):
    """A screen from which something is decided."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.busy = False
        self._dialog: Dialog[Verdict] | None = None
        self._about: tuple[str, int] | None = None

    def subject(self) -> Operation | None:
        """Return the operation that is in focus."""
        return None

    # --- from key to dialog -------------------------------------------------------------------------------------

    def ask(self, read: Callable[[Desk, Operation], Make]) -> None:
        """Read what is to be shown about the operation in focus, and ask."""
        op = self.subject()
        if op is not None and not self.busy and self._dialog is None:
            self.busy = True
            self._read_sheet(op, read)

    @work(thread=True, group="sheet", exit_on_error=False)
    def _read_sheet(self, op: Operation, read: Callable[[Desk, Operation], Make]) -> None:
        try:
            make = read(self.desk, op)
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
            self.post_message(SheetRefused(f"the database is away: {error.message}"))
        except OpledgerError as error:
            self.post_message(SheetRefused(error.message))
        else:
            self.post_message(SheetReady(make))

    @on(SheetReady)
    def _show_dialog(self, message: SheetReady) -> None:
        self.busy = False
        if not self.is_current:
            return  # somebody has gone elsewhere meanwhile
        dialog = message.make()
        self.show_dialog(dialog, (dialog.operation.operation_id, dialog.operation.version))

    def show_dialog(self, dialog: Dialog[Verdict], about: tuple[str, int] | None = None) -> None:
        """Ask; the operation and version that it is about are watched while it is open."""
        self._dialog, self._about = dialog, about
        self.app.push_screen(dialog, self._decided)

    @on(SheetRefused)
    def _no_dialog(self, message: SheetRefused) -> None:
        self.busy = False
        self.say(message.why, severity="warning")

    def _decided(self, verdict: Verdict | None) -> None:
        self._dialog = self._about = None
        if verdict is None:
            self.say("nothing was done", timeout=3)
        else:
            self.carry_out(verdict)

    # --- from dialog to record ----------------------------------------------------------------------------------

    def carry_out(self, verdict: Verdict) -> None:
        """Have it done, once, and told; until then nothing else is decided from here."""
        self.busy = True
        self.say(f"recording: {verdict.verb} {short_id(verdict.subject)} …", timeout=120)
        self._carry_out(verdict)

    @work(thread=True, group="deed", exit_on_error=False)
    def _carry_out(self, verdict: Verdict) -> None:
        try:
            deed = deeds.carry_out_one(self.desk, verdict)
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
            # The answer to a commit can be lost like any other.
            deed = deeds.Deed(verdict, None, f"{error.message}; look whether it was recorded before doing it again")
        except OpledgerError as error:
            deed = deeds.Deed(verdict, False, error.message)
        self.post_message(DeedDone(deed))

    @on(DeedDone)
    def _tell(self, message: DeedDone) -> None:
        deed = message.deed
        self.busy = False
        self.query_one(NoticeLine).clear()
        if deed.done:
            self.say(deed.words)
        else:
            heading = "NOTHING WAS DONE" if deed.done is False else "NOBODY KNOWS WHETHER IT WAS RECORDED"
            self.app.push_screen(TextPanel(heading, deed.words, about=short_id(deed.verdict.subject)))
        self.action_look()

    # --- while a dialog is open ---------------------------------------------------------------------------------

    @on(OverviewTaken)
    def _check_dialog(self, message: OverviewTaken) -> None:
        if message.changed and self._about is not None:
            self._check(*self._about)

    @work(thread=True, group="check", exclusive=True, exit_on_error=False)
    def _check(self, operation_id: str, version: int) -> None:
        try:
            words = deeds.moved(self.desk, operation_id, version)
        except OpledgerError as error:
            words = error.message
        if words is not None:
            self.post_message(Moved(operation_id, words))

    @on(Moved)
    def _record_moved(self, message: Moved) -> None:
        if self._dialog is not None and self._about is not None and self._about[0] == message.subject:
            self._dialog.record_moved(message.words)
