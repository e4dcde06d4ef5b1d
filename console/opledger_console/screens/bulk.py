"""Deciding about many: exactly the operations that are marked, each by itself, with a report of what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on, work
from textual.message import Message

from opledger.errors import OpledgerError, StoreUnavailable
from opledger_console.desk import deeds
from opledger_console.desk.deeds import Outcome
from opledger_console.dialogs.bulk import BulkDialog, BulkOutcome, BulkReport, Prospect
from opledger_console.messages import LedgerAway
from opledger_console.screens.acting import ActingScreen
from opledger_console.screens.deciding import SheetRefused, grace_of
from opledger_console.verdicts import BulkVerdict, Verb


@dataclass
class ProspectsReady(Message):
    """What a decision would do to each of the marked operations."""

    verb: Verb
    prospects: tuple[Prospect, ...]


@dataclass
class BulkGoesOn(Message):
    """So many have been decided."""

    done: int
    total: int


@dataclass
class BulkDone(Message):
    """All have been decided, or skipped, or failed."""

    verdict: BulkVerdict
    outcomes: tuple[Outcome, ...]


class BulkScreen(ActingScreen):
    """A screen on which several operations can be marked. A decision is about the marked ones, where there are any."""

    def marked(self) -> tuple[str, ...]:
        """Return the ids of the marked operations."""
        return ()

    def unmark(self) -> None:
        """Take all marks away."""

    def why_not(self, action: str) -> str | None:
        """With marks, what can be decided is said for each in the dialog; what is for one alone is off."""
        if self.marked() and action in ("approve", "reject", "cancel"):
            if self.desk.read_only:
                return "this console is read-only"
            return None if self.away is None else f"the database is away: {self.away}"
        return super().why_not(action)

    def action_approve(self) -> None:
        """Approve the marked ones, or the one under the cursor."""
        if not self._many("approve"):
            super().action_approve()

    def action_reject(self) -> None:
        """Decline the marked ones, or the one under the cursor."""
        if not self._many("reject"):
            super().action_reject()

    def action_cancel(self) -> None:
        """Request cancellation of the marked ones, or of the one under the cursor."""
        if not self._many("cancel"):
            super().action_cancel()

    def _many(self, verb: Verb) -> bool:
        ids = self.marked()
        if ids and not self.busy:
            self.busy = True
            self.say(f"looking what this would do to {len(ids):,} operations …", timeout=3)
            self._read_prospects(verb, ids)
        return bool(ids)

    @work(thread=True, group="sheet", exit_on_error=False)
    def _read_prospects(self, verb: Verb, ids: Sequence[str]) -> None:
        try:
            found = deeds.prospects(self.desk, ids, verb)
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
            self.post_message(SheetRefused(f"the database is away: {error.message}"))
        except OpledgerError as error:
            self.post_message(SheetRefused(error.message))
        else:
            prospects = tuple(
                Prospect(
                    one.operation_id,
                    "" if one.operation is None else one.operation.state.value,
                    one.eligible,
                    one.because,
                    None if one.operation is None else one.operation.version,
                )
                for one in found
            )
            self.post_message(ProspectsReady(verb, prospects))

    @on(ProspectsReady)
    def _ask_for_many(self, message: ProspectsReady) -> None:
        self.busy = False
        if self.is_current:
            self.app.push_screen(
                BulkDialog(message.verb, message.prospects, grace=grace_of(self.desk)), self._many_decided
            )

    def _many_decided(self, verdict: BulkVerdict | None) -> None:
        if verdict is None:
            self.say("nothing was done", timeout=3)
        else:
            self.busy = True
            self._carry_out_many(verdict)

    @work(thread=True, group="deed", exit_on_error=False)
    def _carry_out_many(self, verdict: BulkVerdict) -> None:
        total = len(verdict.targets)

        def told(done: int) -> None:
            if done % 25 == 0:
                self.post_message(BulkGoesOn(done, total))

        try:
            outcomes = deeds.carry_out_many(self.desk, verdict.targets, verdict.verb, verdict.reason, told)
        except OpledgerError as error:
            self.post_message(SheetRefused(error.message))
        else:
            self.post_message(BulkDone(verdict, tuple(outcomes)))

    @on(BulkGoesOn)
    def _goes_on(self, message: BulkGoesOn) -> None:
        self.say(f"{message.done:,} of {message.total:,} decided …", timeout=2)

    @on(BulkDone)
    def _report(self, message: BulkDone) -> None:
        self.busy = False
        self.unmark()
        self.app.push_screen(BulkReport(message.verdict.verb, tuple(map(_told, message.outcomes))))
        self.action_look()


def _told(outcome: Outcome) -> BulkOutcome:
    if outcome.error is None:
        state = "" if outcome.operation is None else outcome.operation.state.value
        words = "decided so before; nothing was written" if outcome.done else f"now {state}"
        return BulkOutcome(outcome.operation_id, "done", words)
    failed = outcome.operation is None
    return BulkOutcome(outcome.operation_id, "failed" if failed else "skipped", outcome.error.message)
