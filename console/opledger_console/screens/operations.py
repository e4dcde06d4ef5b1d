"""The operations screen: the newest operations, live, and the one under the cursor explained."""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Static

from opledger.errors import OpledgerError
from opledger.rules.model import Operation
from opledger_console.desk import SHOWN, Desk
from opledger_console.messages import Chosen, DetailTaken, LedgerAway, SnapshotTaken
from opledger_console.text import block
from opledger_console.views import Snapshot
from opledger_console.widgets.detail import DetailPane
from opledger_console.widgets.frame import AttentionStrip, FrameLine
from opledger_console.widgets.table import OperationsTable

EVERY = 0.5
"""Seconds between two looks at the ledger."""


class OperationsScreen(Screen[None]):
    """Looks, and changes nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("exclamation_mark", "next_needing", "next that needs you", key_display="!"),
        Binding("f", "freeze", "freeze rows"),
        Binding("r", "look", "look now"),
        Binding("q", "app.quit", "quit"),
    ]

    def __init__(self, desk: Desk, where: str) -> None:
        super().__init__()
        self._desk = desk
        self._where = where
        self._snapshot: Snapshot | None = None
        self._away: str | None = None
        self._held: tuple[Operation, ...] | None = None  #: while frozen: which rows, in which order

    def compose(self) -> ComposeResult:
        """The frame, the list, what is under the cursor, the keys."""
        yield FrameLine(markup=False)
        yield AttentionStrip(markup=False)
        yield OperationsTable(id="operations")
        yield Static("", id="note", markup=False)
        yield DetailPane()
        yield Footer()

    def on_mount(self) -> None:
        """Look at once, then regularly."""
        self.query_one(OperationsTable).focus()
        self.set_interval(EVERY, self.action_look)
        self.action_look()

    def action_look(self) -> None:
        """Ask for a new picture; one that is under way is enough."""
        if not any(worker.group == "look" and worker.is_running for worker in self.workers):
            self._look()

    @work(thread=True, group="look", exit_on_error=False)
    def _look(self) -> None:
        try:
            self.post_message(SnapshotTaken(self._desk.snapshot()))
            chosen = self.query_one(OperationsTable).cursor_id
            if chosen is not None:
                self.post_message(DetailTaken(self._desk.detail(chosen)))
        except OpledgerError as error:
            self.post_message(LedgerAway(error.message))

    @work(thread=True, group="detail", exclusive=True, exit_on_error=False)
    def _explain(self, operation_id: str) -> None:
        try:
            self.post_message(DetailTaken(self._desk.detail(operation_id)))
        except OpledgerError as error:
            self.post_message(LedgerAway(error.message))

    @on(SnapshotTaken)
    def _show(self, message: SnapshotTaken) -> None:
        self._away = None
        self._snapshot = message.snapshot
        self.query_one(AttentionStrip).show(message.snapshot)
        rows = message.snapshot.operations
        if self._held is not None:
            fresh = {row.operation_id: row for row in rows}
            rows = tuple(fresh.get(row.operation_id, row) for row in self._held)
        self.query_one(OperationsTable).show(rows, message.snapshot.taken_at)
        self._note(message.snapshot, len(rows))
        self._frame()

    @on(LedgerAway)
    def _lost(self, message: LedgerAway) -> None:
        self._away = message.why
        self._frame()

    @on(DetailTaken)
    def _explained(self, message: DetailTaken) -> None:
        if message.detail.operation.operation_id == self.query_one(OperationsTable).cursor_id:
            self.query_one(DetailPane).show(message.detail)

    @on(Chosen)
    def _moved(self, message: Chosen) -> None:
        if message.operation_id is None:
            self.query_one(DetailPane).show(None)
        else:
            self._explain(message.operation_id)

    def _frame(self) -> None:
        mode = "READ-ONLY" if self._desk.read_only else "watches"
        self.query_one(FrameLine).show(self._where, self._desk.settings.operator, mode, self._snapshot, self._away)
        self.query_one(OperationsTable).set_class(self._away is not None, "-away")

    def _note(self, snapshot: Snapshot, shown: int) -> None:
        words = [f"{snapshot.total} operations"]
        if snapshot.total > SHOWN:
            words.append(f"the newest {shown} are listed; opledger list has all")
        if self._held is not None:
            words.append("FROZEN: rows stay where they are, f lets them move")
        words += [f"{count} {state}" for state, count in sorted(snapshot.counts.items(), key=lambda pair: -pair[1])]
        self.query_one("#note", Static).update(block("  ·  ".join(words)))

    def action_freeze(self) -> None:
        """Hold the rows where they are, while what they say goes on changing."""
        self._held = self._snapshot.operations if self._held is None and self._snapshot is not None else None
        self.action_look()

    def action_next_needing(self) -> None:
        """Move the cursor to the next operation that waits for a person."""
        table = self.query_one(OperationsTable)
        if not table.go_to_next_needing():
            self.notify("Nothing in this list waits for a person.", markup=False)
