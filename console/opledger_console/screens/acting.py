"""Deciding from a screen: a key reads what is to be shown, a dialog asks, and what was decided is carried out.

Nothing here takes an argument that data could fill: the operation is the one under the cursor when the key went down,
and from then on it goes by its id and version. A second press while the first one is under way does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message

from opledger.errors import OpledgerError, StoreUnavailable
from opledger.rules.explain import waits_for_person
from opledger.rules.model import TERMINAL, Operation, State
from opledger_console.desk import Desk, deeds
from opledger_console.dialogs.acknowledge import AcknowledgeDialog
from opledger_console.dialogs.approve import ApproveDialog
from opledger_console.dialogs.cancel import CancelDialog, CancelSheet
from opledger_console.dialogs.copymenu import CopyMenu
from opledger_console.dialogs.deciding import Deciding
from opledger_console.dialogs.note import NoteDialog
from opledger_console.dialogs.panel import TextPanel
from opledger_console.dialogs.reject import RejectDialog
from opledger_console.dialogs.resolve import ResolveDialog
from opledger_console.messages import LedgerAway, OverviewTaken
from opledger_console.screens.base import LedgerScreen
from opledger_console.verdicts import Verdict
from opledger_console.views import short_id

GRACE = 5.0
"""Seconds between the last key and the record, in which an approval or a cancellation can be taken back."""


Make = Callable[[], Deciding]
"""Makes a dialog from what was read; called on the drawing loop, where widgets are made."""


CLIPBOARD = 50_000
"""Characters that are sent to a terminal's clipboard at most; several terminals cut at 74,994 bytes of base64."""


@dataclass
class SheetReady(Message):
    """What a dialog shows has been read."""

    make: Make


@dataclass
class SheetRefused(Message):
    """There is nothing to decide, and why."""

    why: str


@dataclass
class PacketReady(Message):
    """The escalation packet of an operation, as Markdown."""

    operation_id: str
    words: str


@dataclass
class DeedDone(Message):
    """A verdict was carried out, or refused."""

    deed: deeds.Deed


@dataclass
class Moved(Message):
    """The record under an open dialog has changed in a way that matters."""

    subject: str
    words: str


def values_of(op: Operation) -> tuple[tuple[str, str], ...]:
    """Return what of an operation people copy, each with its name."""
    from opledger.rules import jsontext, shapes

    found = [
        ("operation id", op.operation_id),
        ("short id", short_id(op.operation_id)),
        ("remote job id", op.remote_job_id),
        ("trace id", op.trace_id),
        ("idempotency token", op.idempotency_token),
        ("fingerprint", op.request_fingerprint),
        ("command that explains it", f"opledger explain {op.operation_id}"),
        ("record as JSON", jsontext.dumps_inert(shapes.record(op), indent=2)),
    ]
    return tuple((name, value) for name, value in found if value)


class ActingScreen(LedgerScreen):
    """A screen with one operation in focus about which people decide."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "approve", "approve", id="approve"),
        Binding("d", "reject", "decline", id="reject"),
        Binding("x", "cancel", "cancel", id="cancel"),
        Binding("u", "reconcile", "unknown create", id="reconcile", show=False),
        Binding("v", "resolve", "resolve", id="resolve"),
        Binding("y", "acknowledge", "ack", id="acknowledge", show=False),
        Binding("n", "note", "note", id="note", show=False),
        Binding("p", "poll", "poll now", id="poll", show=False),
        Binding("e", "packet", "packet", id="packet", show=False),
        Binding("c", "copy", "copy", id="copy", show=False),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.busy = False
        self._dialog: Deciding | None = None
        self._about: tuple[str, int] | None = None

    def subject(self) -> Operation | None:
        """Return the operation that is in focus."""
        return None

    # --- which keys apply ---------------------------------------------------------------------------------------

    def why_not(self, action: str) -> str | None:
        """Say why a decision cannot be had here and now."""
        if action not in _ACTIONS:
            return super().why_not(action)
        op = self.subject()
        if op is None:
            return "there is no operation here"
        if action == "copy":
            return None
        if action == "packet":
            return None if self.away is None else "the database is away"
        if self.desk.read_only:
            return "this console is read-only"
        if self.away is not None:
            return f"the database is away: {self.away}"
        return _not_now(action, op)

    # --- keys ---------------------------------------------------------------------------------------------------

    def action_approve(self) -> None:
        """Show exactly what would be sent, and ask."""
        self._open(_approve_sheet)

    def action_reject(self) -> None:
        """Show what would have been sent, and ask."""
        self._open(_reject_sheet)

    def action_cancel(self) -> None:
        """Show what a cancellation does and cannot undo, and ask."""
        self._open(_cancel_sheet)

    def action_reconcile(self) -> None:
        """Ask what became of a create whose fate nobody knows."""
        self._open(_resolve_sheet)

    def action_resolve(self) -> None:
        """Show the choices, and ask for one."""
        self._open(_resolve_sheet)

    def action_acknowledge(self) -> None:
        """Take an attention, for a while."""
        self._open(lambda desk, op: partial(AcknowledgeDialog, desk.ledger.show(op.operation_id), desk.now()))

    def action_note(self) -> None:
        """Write a remark into the journal."""
        self._open(lambda desk, op: partial(NoteDialog, desk.ledger.show(op.operation_id), desk.now()))

    def action_poll(self) -> None:
        """Make a status read due now: it asks, and never creates."""
        op = self.subject()
        if op is not None:
            self._carry_out(Verdict("read", op.operation_id, None, ""))

    def action_packet(self) -> None:
        """Show the escalation packet: everything that support at the provider needs."""
        op = self.subject()
        if op is not None:
            self._packet(op.operation_id)

    @work(thread=True, group="packet", exclusive=True, exit_on_error=False)
    def _packet(self, operation_id: str) -> None:
        from opledger.rules.packet import markdown

        try:
            words = markdown(self.desk.ledger.packet(operation_id))
        except OpledgerError as error:
            self.post_message(SheetRefused(error.message))
            return
        self.post_message(PacketReady(operation_id, words))

    @on(PacketReady)
    def _show_packet(self, message: PacketReady) -> None:
        self.app.push_screen(TextPanel("PACKET", message.words, about=short_id(message.operation_id)))

    def action_copy(self) -> None:
        """Choose what goes to the terminal's clipboard."""
        op = self.subject()
        if op is not None:
            self.app.push_screen(CopyMenu(values_of(op)), self._copy)

    def _copy(self, value: str | None) -> None:
        if value is None:
            return
        if len(value) > CLIPBOARD:
            self.say(
                f"{len(value):,} characters are more than terminals take ({CLIPBOARD:,}); "
                "opledger show --json prints the record, opledger packet --out saves the packet",
                severity="warning",
            )
            return
        self.app.copy_to_clipboard(value)
        self.say(f"sent to the terminal: {len(value):,} characters (tmux takes them with set-clipboard on)")

    # --- from key to dialog -------------------------------------------------------------------------------------

    def _open(self, read: Callable[[Desk, Operation], Make]) -> None:
        op = self.subject()
        if op is None or self.busy or self._dialog is not None:
            return
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
        self._dialog, self._about = dialog, (dialog.operation.operation_id, dialog.operation.version)
        self.app.push_screen(dialog, self._decided)

    @on(SheetRefused)
    def _no_dialog(self, message: SheetRefused) -> None:
        self.busy = False
        self.say(message.why, severity="warning")

    def _decided(self, verdict: Verdict | None) -> None:
        self._dialog = self._about = None
        if verdict is not None:
            self._carry_out(verdict)

    # --- from dialog to record ----------------------------------------------------------------------------------

    @work(thread=True, group="deed", exit_on_error=False)
    def _carry_out(self, verdict: Verdict) -> None:
        try:
            deed = deeds.carry_out_one(self.desk, verdict)
        except StoreUnavailable as error:
            self.post_message(LedgerAway(error.message))
            # It may or may not have been recorded: the answer to a commit can be lost like any other.
            deed = deeds.Deed(verdict, False, f"{error.message}; look whether it was recorded before doing it again")
        except OpledgerError as error:
            deed = deeds.Deed(verdict, False, error.message)
        self.post_message(DeedDone(deed))

    @on(DeedDone)
    def _tell(self, message: DeedDone) -> None:
        deed = message.deed
        if deed.done:
            self.say(deed.words)
        else:
            self.app.push_screen(TextPanel("NOTHING WAS DONE", deed.words, about=short_id(deed.verdict.subject)))
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


_ACTIONS = frozenset(
    {"approve", "reject", "cancel", "reconcile", "resolve", "acknowledge", "note", "poll", "packet", "copy"}
)
_READABLE = frozenset(
    {
        State.ACCEPTED,
        State.OBSERVING,
        State.CANCEL_REQUESTED,
        State.CANCELLING,
        State.CANCELLATION_UNCONFIRMED,
        State.RESULT_TIMED_OUT,
    }
)


def _not_now(action: str, op: Operation) -> str | None:
    name = short_id(op.operation_id)
    if action in ("approve", "reject"):
        asked = op.state is State.AWAITING_APPROVAL
        return None if asked else f"{name} is {op.state} and waits for no approval"
    if action == "cancel":
        if op.state in TERMINAL:
            return f"{name} has ended ({op.state}); there is nothing to cancel"
        return f"{name} has a cancellation under way" if op.state is State.CANCELLING else None
    if action == "reconcile":
        unknown = op.state is State.CREATE_UNKNOWN
        return None if unknown else f"{name} is {op.state}: the fate of its create is not in doubt"
    if action == "resolve":
        return None if waits_for_person(op) and op.state is not State.AWAITING_APPROVAL else _nothing(op)
    if action == "acknowledge":
        return None if op.attention is not None else f"{name} wants nobody's attention"
    if action == "poll":
        return None if op.state in _READABLE else f"{name} is {op.state}: there is no job to read"
    return None


def _nothing(op: Operation) -> str:
    if op.state is State.AWAITING_APPROVAL:
        return f"{short_id(op.operation_id)} waits for approval: a approves, d declines"
    return f"{short_id(op.operation_id)} is {op.state}: there is nothing that only a person may decide"


# --- what dialogs show, read in a thread ---------------------------------------------------------------------------


def _approve_sheet(desk: Desk, op: Operation) -> Make:
    found, review = deeds.review_of(desk, op.operation_id)
    return partial(ApproveDialog, found, review, desk.now(), grace=GRACE)


def _reject_sheet(desk: Desk, op: Operation) -> Make:
    found, review = deeds.review_of(desk, op.operation_id)
    return partial(RejectDialog, found, review, desk.now())


def _cancel_sheet(desk: Desk, op: Operation) -> Make:
    facts = deeds.cancel_facts(desk, op.operation_id)
    sheet = CancelSheet(
        verb="withdraw" if facts.withdraws else "request cancellation",
        sends=facts.sends,
        promises=facts.promises,
        leaves=facts.leaves,
        destroys=facts.destroys,
        others=tuple((other.operation_id, other.state.value, other.contract) for other in facts.others),
        deadline=facts.deadline,
        unknown_create=facts.unknown_create,
    )
    return partial(CancelDialog, facts.operation, sheet, desk.now(), grace=GRACE)


def _resolve_sheet(desk: Desk, op: Operation) -> Make:
    facts = deeds.choices_of(desk, op.operation_id)
    return partial(ResolveDialog, facts.operation, facts.options, facts.answers, desk.now())
