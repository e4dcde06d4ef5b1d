"""The operations screen: every operation of the ledger as a live list, with filter, order, views, marks and bulk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from opledger.errors import OpledgerError, StoreUnavailable
from opledger.rules.filters import FilterWrong, Wanted, matches, parse
from opledger.rules.model import Operation
from opledger_console.desk import Desk
from opledger_console.desk import operations as reading
from opledger_console.desk.operations import Sort
from opledger_console.messages import Chosen, LedgerAway, MoreWanted
from opledger_console.pages import columns
from opledger_console.screens.marking import Counted, MarkingScreen, PageRead
from opledger_console.text import block
from opledger_console.views import Detail, Look, TimeStyle, counted
from opledger_console.widgets.detail import DetailPane
from opledger_console.widgets.filterbar import FilterBar
from opledger_console.widgets.table import OperationsTable

RESTING: Final = 0.12
"""Seconds that the cursor rests on an operation before it is explained below the list."""

RECOUNT: Final = 2.0
"""Seconds after which a count that is known to be old is taken anew."""

_WORDS: Final = {
    Sort.NEWEST: "newest first",
    Sort.OLDEST: "oldest first",
    Sort.DEADLINE: "nearest deadline first",
    Sort.NEXT: "next action first",
    Sort.STATE: "by state",
}


@dataclass
class Explained(Message):
    """The operation under the cursor, explained."""

    detail: Detail


class OperationsScreen(MarkingScreen):
    """Mode 2."""

    TITLE_WORDS = "Operations"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "anew", "read anew", show=False, id="list.anew"),
        Binding("slash", "filter", "filter", key_display="/", id="list.filter"),
        Binding("s", "sort", "sort", id="list.sort"),
        Binding("F", "freeze", "freeze", id="list.freeze"),
        Binding("w", "wide", "wide", show=False, id="list.wide"),
        Binding("t", "time", "time format", show=False, id="list.time"),
        Binding("left_square_bracket", "history(-1)", "view before", show=False, key_display="[", id="list.before"),
        Binding("right_square_bracket", "history(1)", "view after", show=False, key_display="]", id="list.after"),
        Binding("home,g", "first", "first", show=False, id="list.first"),
        Binding("end,G", "last", "last", show=False, id="list.last"),
        Binding("escape", "back", "back", show=False, id="list.back"),
    ]
    DEFAULT_CSS = """
    OperationsScreen DetailPane { height: 9; border-top: none; background: $surface; }
    OperationsScreen #note { height: 1; text-wrap: nowrap; text-overflow: ellipsis; padding: 0 1; }
    OperationsScreen #note { color: $text-muted; background: $panel; }
    OperationsScreen.-away OperationsTable, OperationsScreen.-away DetailPane { opacity: 50%; }
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.look, self.order = _restored(desk.memory.prefs.last)
        self._history: list[Look] = [self.look]
        self._at = 0
        self._begun: reading.Order | None = None  #: the order whose first page is shown
        self._searched_to: Any = None
        self._newer = 0
        self._count: int | None = None
        self._resting: Timer | None = None
        self._recount: Timer | None = None

    def body(self) -> Iterable[Widget]:
        """The list, what is under the cursor, the filter, and a line on what is shown."""
        yield OperationsTable(id="operations")
        yield DetailPane()
        yield FilterBar()
        yield Static("", id="note", markup=False)

    def on_mount(self) -> None:
        """Dress the list as it was left, and begin."""
        self.table.focus()
        self._dress()
        super().on_mount()
        if self.desk.memory.trouble is not None:
            self.say(self.desk.memory.trouble, severity="warning")

    def on_resize(self, event: Any) -> None:
        """Show what is under the cursor only where there is room for it."""
        super().on_resize(event)
        self.query_one(DetailPane).display = event.size.height >= 30

    # --- reading ------------------------------------------------------------------------------------------------

    def question(self) -> reading.Question:
        """Ask for the first page of a new order, else for what is on the screen."""
        table = self.table
        if self._begun != self.order:
            return reading.Question(self.order, begin=True)
        top = table.rows[0] if table.rows and not table.more_above else None
        enter = table.follows and not table.held
        return reading.Question(self.order, False, table.visible_ids(), top, enter)

    def stays(self, question: reading.Question) -> bool:
        """An answer is wanted as long as the order is the same; rows that have moved on are found by their ids."""
        return question.order == self.order

    def gather(self, question: reading.Question) -> reading.First | reading.Fresh:
        """Read it."""
        return reading.answer(self.desk.ledger, question)

    def paint(self, question: reading.Question, found: reading.First | reading.Fresh) -> None:
        """Show it."""
        table = self.table
        if isinstance(found, reading.First):
            self._begun, self._searched_to, self._newer = question.order, found.searched_to, 0
            table.held = question.order.sort is not Sort.NEWEST
            table.reset(found.rows, found.now, more=found.more, cursor=table.cursor_id)
            self._count_matches(question.order)
        else:
            table.update_rows(found.rows, question.ids, found.now, lambda op: matches(op, self.order.wanted, found.now))
            self._newer = found.newer
            if table.strays or found.arrivals:
                self._count_again()
            if found.overtaken:
                self._begin_again()
            elif found.arrivals and table.follows and not table.held:
                table.arrive(found.arrivals)
            elif not table.rows and question.top is None and question.order.sort is Sort.NEWEST:
                self._begin_again()
        self.comment()

    def not_found(self, question: reading.Question, why: str) -> None:
        """Say why there is nothing."""
        self.table.give_up_more()
        super().not_found(question, why)

    def tick(self) -> None:
        """Countdowns move on by reading what is on the screen: the worker's plan may have moved, too."""
        self.action_look()

    def action_anew(self) -> None:
        """Read the list anew, in its order as it is now."""
        self._begin_again()

    def _begin_again(self) -> None:
        self.order = replace(self.order, generation=self.order.generation + 1)
        self.action_look()

    @on(MoreWanted)
    def _page(self, message: MoreWanted) -> None:
        rows = self.table.rows
        if rows:
            self._read_page(self.order, rows[0] if message.backwards else rows[-1], backwards=message.backwards)

    @work(thread=True, group="page", exit_on_error=False)
    def _read_page(self, order: reading.Order, beside: Operation, *, backwards: bool) -> None:
        try:
            found = reading.page(self.desk.ledger, order, beside, backwards=backwards)
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
            self.call_later(self.table.give_up_more)
        else:
            self.post_message(PageRead(order, found, backwards))

    @on(PageRead)
    def _add_page(self, message: PageRead) -> None:
        if message.order == self._begun:
            self.table.extend(message.found.rows, more=message.found.more, backwards=message.backwards)
            if message.found.searched_to is not None:
                self._searched_to = message.found.searched_to

    @work(thread=True, group="count", exclusive=True, exit_on_error=False)
    def _count_matches(self, order: reading.Order) -> None:
        if order.wanted == Wanted():
            return
        try:
            self.post_message(Counted(order, reading.count(self.desk.ledger, order)))
        except OpledgerError as error:
            self.post_message(LedgerAway(error.message))

    def _count_again(self) -> None:
        """Count what matches anew, as something came or went; not more often than every few seconds."""
        if self._recount is None and self.order.wanted != Wanted():
            self._recount = self.set_timer(RECOUNT, self._recounted)

    def _recounted(self) -> None:
        self._recount = None
        self._count_matches(self.order)

    @on(Counted)
    def _counted(self, message: Counted) -> None:
        if message.order == self.order:
            self._count = message.count
            self.comment()

    # --- the operation under the cursor -------------------------------------------------------------------------

    def subject(self) -> Operation | None:
        """The operation under the cursor."""
        return self.table.chosen

    @on(Chosen)
    def _moved(self, message: Chosen) -> None:
        self.refresh_bindings()
        if self._resting is not None:
            self._resting.stop()
        if message.operation_id is None:
            self.query_one(DetailPane).show(None)
        elif self.query_one(DetailPane).display:
            self._resting = self.set_timer(RESTING, self._explain_chosen)

    def _explain_chosen(self) -> None:
        for table in self.query(OperationsTable):  # none is left where the screen is taken down before the time is over
            if table.cursor_id is not None:
                self._explain(table.cursor_id)

    @work(thread=True, group="detail", exclusive=True, exit_on_error=False)
    def _explain(self, operation_id: str) -> None:
        try:
            self.post_message(Explained(reading.detail(self.desk.ledger, operation_id)))
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
        except OpledgerError:
            return  # it cannot be explained (its contract is gone, say); opening it says why

    @on(Explained)
    def _explained(self, message: Explained) -> None:
        if message.detail.operation.operation_id == self.table.cursor_id:
            self.query_one(DetailPane).show(message.detail)

    # --- what is shown ------------------------------------------------------------------------------------------

    def show_look(self, look: Look) -> None:
        """Show another filter and order, and keep it in the history. Raises FilterWrong."""
        self._turn_to(look)
        del self._history[self._at + 1 :]
        self._history.append(look)
        self._at = len(self._history) - 1

    def _turn_to(self, look: Look) -> None:
        wanted, sort = parse(look.text), _sort(look.sort)
        self.look = look
        self.order = reading.Order(wanted, sort, self.order.generation + 1)
        self._count = None
        self.desk.memory.remember(last=look)
        self.action_look()
        self.comment()

    def comment(self) -> None:
        """Draw the line that says what is shown."""
        overview, table, order = self.overview, self.table, self.order
        words = []
        if order.wanted == Wanted():
            words.append(counted(overview.total if overview else len(table.rows), "operation"))
        else:
            known = self._count
            count = "…" if known is None else f"{known:,}" if known <= reading.COUNTED else f"over {reading.COUNTED:,}"
            words.append(f"{count} match {self.look.text}")
        words.append(_WORDS[order.sort])
        if self._searched_to is not None:
            words.append(f"looked back to {self._searched_to:%d %b %H:%M}Z, not further")
        if table.strays:
            words.append(f"~ {counted(table.strays, 'row')} no longer of it, kept while the cursor or a mark is on it")
        if table.marks:
            words.append(f"{len(table.marks):,} marked: a, d, x decide about them; Esc unmarks")
        if table.held:
            news = f", {self._newer} new" if self._newer else ""
            words.append(f"FROZEN{news}: rows stay where they are; r reads them anew, F lets them move")
        elif self._newer:
            count = f"{self._newer}" if self._newer < reading.UNCOUNTED else f"over {reading.UNCOUNTED - 1}"
            words.append(f"{count} new above, g shows them")
        elif table.more_above:
            words.append("newer ones above, g shows them")
        if not table.rows and self._begun is not None:
            words.append("nothing here")
        self.query_one("#note", Static).update(block("  ·  ".join(words)))

    def _dress(self) -> None:
        prefs = self.desk.memory.prefs
        names = [name for name in self.desk.settings.console.columns if name in columns.NAMES]
        self.table.dress(names=names, wide=prefs.wide, style=prefs.time)

    def vocabulary(self) -> dict[str, tuple[str, ...]]:
        """Return what a filter could name, as far as it has been seen."""
        seen, overview = self.table.rows, self.overview
        return {
            "state": tuple(overview.counts if overview is not None else ()),
            "contract": tuple(sorted({op.contract for op in seen})),
            "by": tuple(sorted({op.requested_by for op in seen})),
            "tag": tuple(sorted({f"{name}={value}" for op in seen for name, value in op.tags.items()})),
            "task": tuple(sorted({op.task for op in seen if op.task})),
            "code": tuple(overview.attentions if overview is not None else ()),
        }

    def action_filter(self) -> None:
        """Type a filter."""
        bar = self.query_one(FilterBar)
        bar.vocabulary = self.vocabulary()
        bar.open(self.look.text)

    @on(FilterBar.Applied)
    def _filtered(self, message: FilterBar.Applied) -> None:
        self.table.focus()
        if message.text != self.look.text:
            self.show_look(Look(message.text, self.look.sort))

    @on(FilterBar.Left)
    def _not_filtered(self) -> None:
        self.table.focus()

    def action_sort(self) -> None:
        """Go to the next order."""
        sorts = list(Sort)
        after = sorts[(sorts.index(self.order.sort) + 1) % len(sorts)]
        self.show_look(Look(self.look.text, after.value))

    def action_freeze(self) -> None:
        """Hold the rows where they are, while what they say goes on changing; or let them move again."""
        table = self.table
        table.held = not table.held
        if not table.held and self.order.sort is Sort.NEWEST:
            self.action_look()
        self.comment()

    def action_wide(self) -> None:
        """Show every column that fits beside a short last one, or the other way round."""
        self.desk.memory.remember(wide=not self.desk.memory.prefs.wide)
        self._dress()

    def action_time(self) -> None:
        """Write times as ages, in UTC, or in the zone of this machine."""
        styles = list(TimeStyle)
        after = styles[(styles.index(self.desk.memory.prefs.time) + 1) % len(styles)]
        self.desk.memory.remember(time=after)
        self._dress()
        self.say(f"times are {after.value}")

    def action_first(self) -> None:
        """Go to the top, and follow it."""
        table = self.table
        if self._newer or table.more_above:
            table.cursor_id = None
            self._begin_again()
        else:
            table.follows = True
            table.scroll_to(y=0, animate=False, immediate=True, force=True)
            if table.rows:
                table.put_cursor_on(table.rows[0].operation_id)
        self.comment()

    def action_last(self) -> None:
        """Go to the last row that has been read; more are read from there."""
        self.table.last()

    def action_back(self) -> None:
        """Take marks away, then the filter."""
        if self.table.unmark():
            self.comment()
        elif self.look.text:
            self.show_look(Look("", self.look.sort))

    def action_history(self, by: int) -> None:
        """Go through the views of this session."""
        at = self._at + by
        if 0 <= at < len(self._history):
            self._at = at
            self._turn_to(self._history[at])


def _sort(name: str) -> Sort:
    return Sort(name) if name in list(Sort) else Sort.NEWEST


def _restored(look: Look) -> tuple[Look, reading.Order]:
    try:
        return look, reading.Order(parse(look.text), _sort(look.sort))
    except FilterWrong:
        return Look(), reading.Order(Wanted(), Sort.NEWEST)
