"""Providers and workers: who may be called, how that goes, and who does the calling.

A provider is paused and resumed by name: by the one under the cursor when the key went down.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

from rich.text import Text
from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from opledger.errors import StoreUnavailable
from opledger_console.desk import Desk
from opledger_console.desk.providers import ProvidersReader
from opledger_console.dialogs.provider import ProviderDialog
from opledger_console.messages import LedgerAway
from opledger_console.pages.stations import (
    PROVIDERS,
    WORKERS,
    ProviderLook,
    Stations,
    WorkerLook,
    provider_row,
    provider_told,
    worker_row,
    worker_told,
)
from opledger_console.screens.deciding import DecidingScreen
from opledger_console.widgets.listing import Listing

AGAIN: Final = 5
"""After so many seconds without a change the figures are looked at again: they age by themselves."""


class ProvidersScreen(DecidingScreen):
    """Two lists, and the one under the cursor told."""

    TITLE_WORDS = "Providers"
    DEFAULT_CSS = """
    ProvidersScreen #providers { height: 2fr; min-height: 3; }
    ProvidersScreen #workers { height: 1fr; min-height: 3; }
    ProvidersScreen #told {
        height: 2fr; padding: 0 1; border-top: solid $panel; scrollbar-size-vertical: 1;
    }
    ProvidersScreen.-short #told { display: none; }
    ProvidersScreen.-away Listing, ProvidersScreen.-away #told { text-opacity: 60%; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "hold", "hold (pause)", id="provider.hold"),
        Binding("l", "let_go", "let go (resume)", id="provider.let_go"),
        Binding("tab", "other_list", "providers/workers", id="provider.other"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._reader = ProvidersReader(desk)
        self._found: Stations | None = None
        self._providers: dict[str, ProviderLook] = {}
        self._hands: dict[str, WorkerLook] = {}
        self._of_workers = False
        self._wanted: str | None = None
        self._ticks = 0

    def body(self) -> Iterable[Widget]:
        """Providers, workers, and what is under the cursor."""
        yield Listing(
            PROVIDERS, empty=" There is no provider yet: opledger contract list shows contracts.", id="providers"
        )
        yield Listing(WORKERS, empty=" No worker is known: nothing is driven. Start one: opledger worker", id="workers")
        with VerticalScroll(id="told", can_focus=False):
            yield Static("", id="words", markup=False)

    # --- looking ------------------------------------------------------------------------------------------------

    def question(self) -> Any:
        """There is one picture."""
        return "stations"

    def gather(self, question: Any) -> Stations:  # noqa: ARG002 - there is only one question
        """Read it."""
        return self._reader.read()

    def paint(self, question: Any, found: Any) -> None:  # noqa: ARG002 - there is only one question
        """Show it; where there are no figures yet, have them counted on the side."""
        self._found = found
        self._providers = {look.name: look for look in found.providers}
        self._hands = {look.name: look for look in found.workers}
        self._draw()
        if not found.counted and not self.at_work("pulse"):
            self._catch_up()

    @work(thread=True, group="pulse", exit_on_error=False)
    def _catch_up(self) -> None:
        try:
            self._reader.catch_up()
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
        else:
            self.app.call_from_thread(self.action_look)

    def tick(self) -> None:
        """Times go on; figures are looked at again now and then."""
        self._ticks += 1
        if self._ticks % AGAIN == 0:
            self.action_look()
        elif self._found is not None:
            self._draw()

    def _now(self) -> datetime:
        """The ledger's time, as it was told last: nothing here may wait for the database."""
        assert self._found is not None
        taken = self._found.taken_at
        return taken if self.overview is None else max(taken, self.overview.taken_at)

    def _draw(self) -> None:
        found = self._found
        if found is None:
            return
        now = self._now()
        rows = [provider_row(look, counted=found.counted) for look in found.providers]
        listing = self.query_one("#providers", Listing)
        listing.show(rows)
        if self._wanted is not None and listing.go_to(self._wanted):
            self._wanted = None
            listing.focus()
        self.query_one("#workers", Listing).show([worker_row(look, now) for look in found.workers])
        self._tell_of(now)

    # --- the one under the cursor -------------------------------------------------------------------------------

    def choose(self, name: str) -> None:
        """Put the cursor on a provider; now, or as soon as it has been read."""
        self._wanted = name
        if self._found is not None:
            self._draw()

    def chosen(self) -> ProviderLook | None:
        """Return the provider under the cursor; none where the cursor is among the workers."""
        key = None if self._of_workers else self.query_one("#providers", Listing).key
        return None if key is None else self._providers.get(key)

    def _tell_of(self, now: datetime) -> None:
        words, text = self.query_one("#words", Static), Text("")
        if self._found is not None and self._of_workers:
            worker = self._hands.get(self.query_one("#workers", Listing).key or "")
            text = Text("") if worker is None else worker_told(worker, now)
        elif self._found is not None:
            look = self.chosen()
            text = Text("") if look is None else provider_told(look, now, counted=self._found.counted)
        words.update(text)

    @on(Listing.Moved)
    def _moved(self, message: Listing.Moved) -> None:
        if message.instead_of is not None and message.key is not None and message.listing.id == "providers":
            self.say(f"{message.instead_of} is gone; the cursor went on to {message.key}", timeout=4)
        self._show_chosen()

    @on(Listing.Picked)
    def _picked(self) -> None:
        # There is no page of a provider: all that is known stands below the lists, and Enter goes on in it.
        self.query_one("#told", VerticalScroll).scroll_page_down(animate=False)

    def on_descendant_focus(self) -> None:
        """Tell of what is under the cursor of the list that has the focus."""
        self._of_workers = self.focused is not None and self.focused.id == "workers"
        self.query_one("#told", VerticalScroll).scroll_home(animate=False)
        self._show_chosen()

    def _show_chosen(self) -> None:
        if self._found is not None:
            self._tell_of(self._now())
        self.refresh_bindings()

    def action_other_list(self) -> None:
        """Go to the other list."""
        self.query_one("#providers" if self._of_workers else "#workers", Listing).focus()

    # --- pausing and resuming -----------------------------------------------------------------------------------

    def why_not(self, action: str) -> str | None:
        """Say why a provider cannot be paused or resumed here and now."""
        if action not in ("hold", "let_go"):
            return super().why_not(action)
        look = self.chosen()
        if look is None:
            return "the cursor is on no provider; tab goes to the other list"
        if self.desk.read_only:
            return "this console is read-only"
        if self.away is not None:
            return f"the database is away: {self.away}"
        if action == "hold":
            by = look.provider.by or "somebody"
            return f"calls to {look.name} are paused already, by {by}" if look.paused else None
        return None if look.paused else f"calls to {look.name} are not paused"

    def action_hold(self) -> None:
        """Ask why, and stop all calls to the provider."""
        self._ask("pause")

    def action_let_go(self) -> None:
        """Ask why, and allow calls again."""
        self._ask("resume")

    def _ask(self, verb: Literal["pause", "resume"]) -> None:
        look = self.chosen()
        if look is not None and not self.busy:
            why = look.provider.reason if look.paused else None
            self.show_dialog(ProviderDialog(look.name, verb, look.provider.open_operations, why))
