"""Marks on the operations list, and the saved views: which operations one decision is about, and which are shown."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message

from opledger.errors import OpledgerError
from opledger.rules.filters import FilterWrong
from opledger_console.desk import operations as reading
from opledger_console.messages import LedgerAway
from opledger_console.screens.bulk import BulkScreen
from opledger_console.views import Look
from opledger_console.widgets.table import OperationsTable


@dataclass
class PageRead(Message):
    """Another page of the list."""

    order: reading.Order
    found: reading.First
    backwards: bool


@dataclass
class Counted(Message):
    """How many operations the filter holds."""

    order: reading.Order
    count: int


@dataclass
class AllMarked(Message):
    """The ids of everything that matched when it was asked."""

    order: reading.Order
    ids: tuple[str, ...]


class MarkingScreen(BulkScreen):
    """A screen with the table of operations, on which they are marked and views are kept."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "mark", id="list.mark", show=False),
        Binding("m", "mark_to", "mark to here", show=False, id="list.mark_to"),
        Binding("M", "mark_all", "mark all that match", show=False, id="list.mark_all"),
        Binding("i", "invert", "invert marks", show=False, id="list.invert"),
        Binding("f", "views", "saved views", show=False, id="list.views"),
    ]

    look: Look
    """The filter and order that are shown, as people write them."""
    order: reading.Order
    """The same, as they were read."""

    @abstractmethod
    def show_look(self, look: Look) -> None:
        """Show another filter and order. Raises FilterWrong."""

    @abstractmethod
    def comment(self) -> None:
        """Draw the line that says what is shown."""

    @property
    def table(self) -> OperationsTable:
        """The list."""
        return self.query_one(OperationsTable)

    # --- marks --------------------------------------------------------------------------------------------------

    def marked(self) -> tuple[str, ...]:
        """The operations that are marked."""
        return tuple(sorted(self.table.marks, reverse=True))

    def unmark(self) -> None:
        """Take all marks away."""
        self.table.unmark()
        self.comment()

    def action_mark(self) -> None:
        """Mark the operation under the cursor, and go to the next one."""
        self.table.toggle_mark()
        self.table.action_move(1)
        self._marks_changed()

    def action_mark_to(self) -> None:
        """Mark from the nearest mark to the cursor."""
        self.table.mark_to_cursor()
        self._marks_changed()

    def action_invert(self) -> None:
        """Mark what is not marked, and the other way round."""
        self.table.invert_marks()
        self._marks_changed()

    def action_mark_all(self) -> None:
        """Mark everything that matches now, also what is not on the screen; what matches later is not among it."""
        self._mark_all(self.order)

    @work(thread=True, group="marks", exclusive=True, exit_on_error=False)
    def _mark_all(self, order: reading.Order) -> None:
        try:
            self.post_message(AllMarked(order, reading.frozen(self.desk.ledger, order)))
        except OpledgerError as error:
            self.post_message(LedgerAway(error.message))

    @on(AllMarked)
    def _all_marked(self, message: AllMarked) -> None:
        if message.order != self.order:
            return
        if len(message.ids) > reading.MARKED:
            self.say(f"more than {reading.MARKED:,} match; narrow the filter before marking all", severity="warning")
            return
        self.table.marks = set(message.ids)
        self.table.repaint()
        self._marks_changed()

    def _marks_changed(self) -> None:
        self.comment()
        self.refresh_bindings()

    # --- saved views ------------------------------------------------------------------------------------------------

    def save_view(self, name: str) -> None:
        """Keep what is shown under a name."""
        trouble = self.desk.memory.remember(views={**self.desk.memory.prefs.views, name: self.look})
        self.say(trouble or f"saved as {name}; f lists the saved views")

    def open_view(self, name: str) -> None:
        """Show a saved view."""
        look = self.desk.memory.prefs.views.get(name)
        if look is None:
            self.say(f"there is no view {name}; :save {name} makes one of what is shown", severity="warning")
            return
        try:
            self.show_look(look)
        except FilterWrong as error:
            self.say(error.message, severity="warning")

    def action_views(self) -> None:
        """Choose a saved view."""
        from opledger_console.dialogs.viewmenu import ViewMenu

        views = self.desk.memory.prefs.views
        if not views:
            self.say("no view is saved yet; :save NAME keeps the filter and order that are shown")
            return
        entries = tuple((name, f"{look.text or 'everything'}  ({look.sort})") for name, look in sorted(views.items()))
        self.app.push_screen(ViewMenu(entries), self._view_chosen)

    def _view_chosen(self, name: str | None) -> None:
        if name is not None:
            self.open_view(name)
