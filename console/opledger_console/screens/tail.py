"""The tail: the events of all operations as they come, the newest at the bottom."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from typing import ClassVar, Final

from rich.text import Text
from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from opledger.store.tail import Mark, TailEvent
from opledger_console import tailfilter
from opledger_console.desk import Desk, tail
from opledger_console.desk.tail import Stretch
from opledger_console.messages import Opened
from opledger_console.screens.base import LedgerScreen
from opledger_console.screens.command import LineScreen
from opledger_console.screens.tailrows import CONTRACT, ROOMY, columns, gap, row_of
from opledger_console.tailfilter import TailWanted
from opledger_console.text import line
from opledger_console.views import Row, TimeStyle
from opledger_console.widgets.listing import Listing

MOST: Final = 5_000
"""Events that are held at once."""

NEAR: Final = 5
"""With so few rows left above the screen, the ones before them are read."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is read: what came after a mark, or what was before one, of what a filter wants."""

    at: Mark | None
    wanted: TailWanted
    back: bool = False
    generation: int = 0  #: counts how often the tail began anew


@dataclass(frozen=True, slots=True)
class Held:
    """Events that were read together, their rows (one more where some are missing), and where to go on before them."""

    events: tuple[TailEvent, ...]
    rows: tuple[Row, ...]
    start: Mark


class TailScreen(LedgerScreen):
    """Follows the journal, and stops as soon as somebody looks at a line of it."""

    TITLE_WORDS = "Tail"
    DEFAULT_CSS = """
    TailScreen #status { height: 1; color: $text-muted; padding: 0 1; }
    TailScreen.-away Listing { opacity: 50%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("L", "follow", "follow", tooltip="follow what comes, or stand still", id="tail.follow"),
        Binding("slash", "filter", "filter", key_display="/", tooltip="show only some of the events", id="tail.filter"),
        Binding("t", "time", "time format", show=False, tooltip="times in UTC, or in your zone", id="tail.time"),
        Binding("escape", "clear", "all events", show=False, id="tail.clear"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._text = ""
        self._wanted = TailWanted()
        self._begin()
        self._generation = 0
        self._day: date | None = None

    def _begin(self) -> None:
        self._held: deque[Held] = deque()
        self._ids: dict[str, str] = {}  #: row key -> operation id
        self._mark: Mark | None = None
        self._start: Mark | None = None
        self._ended = False
        self._asking: Question | None = None
        self._examined = 0
        self._gaps = 0
        self.following = True
        self.below = 0

    def body(self) -> Iterable[Widget]:
        """The events, and a line about what is shown."""
        yield Listing(columns(ROOMY), empty="no event yet", id="tail")
        yield Static("", id="status", markup=False)

    def on_mount(self) -> None:
        """Keys go to the list."""
        self.listing.focus()
        self.watch(self.listing, "scroll_y", self._scrolled, init=False)

    def on_resize(self, event: events.Resize) -> None:
        """Give the words the room there is."""
        super().on_resize(event)
        self.listing.columns = columns(event.size.width)
        self.listing.refresh()

    @property
    def listing(self) -> Listing:
        """The list of events."""
        return self.query_one(Listing)

    @property
    def held(self) -> int:
        """How many events are held."""
        return sum(len(part.rows) for part in self._held)

    @property
    def full(self) -> bool:
        """True where no more can be held without letting go of what somebody looks at."""
        return not self.following and self.held >= MOST

    # --- reading ------------------------------------------------------------------------------------------------

    def question(self) -> Question | None:
        """What came since; nothing while the tail is full and stands still."""
        return None if self.full else Question(self._mark, self._wanted, generation=self._generation)

    def stays(self, question: Question) -> bool:
        """An answer counts as long as the tail has not begun anew; two answers to one question cannot both come."""
        if question.back:
            return question == self._asking
        return question.generation == self._generation and question.at == self._mark

    def gather(self, question: Question) -> Stretch:
        """Read in a thread."""
        if question.back and question.at is not None:
            return tail.older(self.desk, question.at, question.wanted)
        return tail.newer(self.desk, question.at, question.wanted)

    def paint(self, question: Question, found: Stretch) -> None:
        """Add what was read, below or above."""
        if question.back:
            self._add_above(found)
        else:
            self._add_below(found)
        self._examined += found.examined
        self._show_status()
        self._fill()

    def _add_below(self, found: Stretch) -> None:
        first = self._mark is None
        self._mark = found.mark
        if first:
            self._start, self._ended = found.start, found.ended
        rows = self._remembered(found)
        if found.missed:
            self._gaps += 1
            rows = (gap(self._gaps), *rows)
        last = self.listing.rows[-1].key if self.listing.rows else None
        # Whoever has moved the cursor meanwhile is looking at something, also where that message is still under way.
        self.following = self.following and self.listing.key in (None, last)
        if rows:
            self._held.append(Held(found.events, rows, found.start))
        if self.following:
            self._let_go()
        else:
            self.below += len(rows)
        if rows or first:
            self._redraw()

    def _add_above(self, found: Stretch) -> None:
        self._asking = None
        self._start, self._ended = found.start, found.ended
        if found.events:
            self._held.appendleft(Held(found.events, self._remembered(found), found.start))
            self._redraw()

    def _remembered(self, found: Stretch) -> tuple[Row, ...]:
        rows = self._made(found.events)
        self._ids |= {row.key: one.operation_id for row, one in zip(rows, found.events, strict=True)}
        return rows

    def _made(self, some: tuple[TailEvent, ...]) -> tuple[Row, ...]:
        now = self.overview.taken_at if self.overview is not None else self.desk.now()
        self._day = now.date()
        return tuple(row_of(one, now, self.desk.memory.prefs.time) for one in some)

    def tick(self) -> None:
        """Write the date where it is not today any more."""
        if self.overview is not None and self.overview.taken_at.date() != self._day:
            self._rewrite()

    def _rewrite(self) -> None:
        for place, part in enumerate(self._held):
            made = self._made(part.events)
            self._held[place] = replace(part, rows=part.rows[: len(part.rows) - len(made)] + made)
        self._redraw()

    def _let_go(self) -> None:
        """Let the oldest go, a read at a time, so that the rest has a place to go on from."""
        while len(self._held) > 1 and self.held - len(self._held[0].rows) >= MOST:
            for row in self._held.popleft().rows:
                self._ids.pop(row.key, None)
            self._start, self._ended = self._held[0].start, False

    def _redraw(self) -> None:
        rows = [row for part in self._held for row in part.rows]
        empty = "no event yet" if not self._wanted.terms else "no such event"
        self.listing.show(list({row.key: row for row in rows}.values()), empty=empty)
        if self.following and rows:
            self.listing.go_to(rows[-1].key)

    # --- what was before ----------------------------------------------------------------------------------------

    def _scrolled(self) -> None:
        if self.is_current and not self.following and self.listing.scroll_offset.y <= NEAR:
            self._look_back()

    def _fill(self) -> None:
        """A filter that wants little: look back until the screen is full, or enough was looked through."""
        if self._wanted.terms and self.held < self.listing.size.height and self._examined < tail.EXAMINED:
            self._look_back()

    def _look_back(self) -> None:
        if self._asking is not None or self._ended or self._start is None or self.held >= MOST:
            return
        self._asking = Question(self._start, self._wanted, back=True, generation=self._generation)
        self._read_back(self._asking)

    @work(thread=True, group="back", exit_on_error=False)
    def _read_back(self, question: Question) -> None:
        self.read_for(question)

    def not_found(self, question: Question, why: str) -> None:
        """What was asked for on the side may be asked for again."""
        if question.back:
            self._asking = None
        super().not_found(question, why)

    # --- keys ---------------------------------------------------------------------------------------------------

    @on(Listing.Moved)
    def _moved(self) -> None:
        rows = self.listing.rows
        if not rows:
            return
        at_end = self.listing.key == rows[-1].key
        if at_end and not self.following:
            self._follow()
        elif not at_end:
            self.following = False
            if (self.listing.place or 0) <= NEAR:
                self._look_back()
        self._show_status()

    def _follow(self) -> None:
        if self.full:
            self._anew()  # what lies between is more than can be held
            return
        self.following, self.below = True, 0
        self._let_go()
        self._redraw()

    def _anew(self) -> None:
        """Begin again at the newest events."""
        self._generation += 1
        self._begin()
        self._redraw()
        self.action_look()

    def action_follow(self) -> None:
        """Follow what comes, or stand still."""
        if self.following:
            self.following = False
        else:
            self._follow()
        self._show_status()

    def action_time(self) -> None:
        """Write times in UTC, or in the zone of this machine."""
        local = self.desk.memory.prefs.time is TimeStyle.LOCAL
        self.desk.memory.remember(time=TimeStyle.UTC if local else TimeStyle.LOCAL)
        self._rewrite()

    def action_filter(self) -> None:
        """Ask which events are wanted."""
        known: dict[str, tuple[str, ...]] = {"contract": self._contracts()}
        asked = LineScreen(
            "/",
            lambda text: (text.strip(), tailfilter.parse(text)),
            value=self._text,
            offer=lambda text: tailfilter.complete(text, known),
            hint="kind: state: contract: by: actor: or a word; !kind:Observed leaves the polls out",
        )
        self.app.push_screen(asked, self._filtered)

    def _contracts(self) -> tuple[str, ...]:
        return tuple(sorted({row.cells[CONTRACT] for row in self.listing.rows} - {""}))

    def _filtered(self, asked: tuple[str, TailWanted] | None) -> None:
        if asked is not None:
            self._text, self._wanted = asked
            self._anew()

    def show_only(self, text: str) -> None:
        """Show the events that a filter wants. Raises FilterWrong."""
        self._filtered((text.strip(), tailfilter.parse(text)))

    def action_clear(self) -> None:
        """Want all events again."""
        if self._wanted.terms:
            self._filtered(("", TailWanted()))

    @on(Listing.Picked)
    def _picked(self, message: Listing.Picked) -> None:
        operation_id = self._ids.get(message.key)
        if operation_id is not None:
            self.post_message(Opened(operation_id, "timeline"))

    # --- the line below -----------------------------------------------------------------------------------------

    def _show_status(self) -> None:
        words = Text(no_wrap=True, overflow="ellipsis", end="")
        if self.following:
            words.append("following")
        else:
            words.append("standing still", style="bold")
            if self.full:
                words.append(f"; {self.held:,} events are held, newer ones are not read: G goes to the newest")
            elif self.below:
                words.append(f"; {self.below:,} new below, G goes there")
            else:
                words.append("; L follows")
        if self._text:
            words.append("  ·  ")
            words.append_text(line(self._text, limit=60, style="bold"))
            words.append(f": {self.held:,} of the last {self._examined:,} events")
        else:
            words.append(f"  ·  {self.held:,} events")
        if self._ended:
            words.append(", from the first on")
        self.query_one("#status", Static).update(words)
