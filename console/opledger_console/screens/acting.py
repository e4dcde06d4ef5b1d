"""The keys that decide about one operation: which of them apply here and now, and what each dialog shows.

Nothing here takes an argument that data could fill: the operation is the one under the cursor when the key went down,
and from then on it goes by its id and version.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message

from opledger.errors import OpledgerError
from opledger.rules import cancels, human
from opledger.rules.explain import waits_for_person
from opledger.rules.model import ActorKind, Operation, State
from opledger_console.desk import Desk, deeds
from opledger_console.desk.operation import curl_of
from opledger_console.dialogs.acknowledge import AcknowledgeDialog
from opledger_console.dialogs.approve import ApproveDialog
from opledger_console.dialogs.cancel import CancelDialog, CancelSheet
from opledger_console.dialogs.copymenu import CopyMenu
from opledger_console.dialogs.note import NoteDialog
from opledger_console.dialogs.panel import TextPanel
from opledger_console.dialogs.reject import RejectDialog
from opledger_console.dialogs.resolve import ResolveDialog
from opledger_console.screens.deciding import DecidingScreen, Make, SheetRefused, grace_of
from opledger_console.verdicts import Verdict
from opledger_console.views import short_id

CLIPBOARD = 50_000
"""Characters that are sent to a terminal's clipboard at most; several terminals cut at 74,994 bytes of base64."""


@dataclass
class PacketReady(Message):
    """The escalation packet of an operation, as Markdown."""

    operation_id: str
    words: str


@dataclass
class ValuesReady(Message):
    """What of an operation people copy, each with its name."""

    values: tuple[tuple[str, str], ...]


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


class ActingScreen(DecidingScreen):
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
        who = human.actor(self.desk.settings.operator)
        if who.kind is ActorKind.AGENT and action in _PERSONS:
            return f"{who.name} is an agent; only a person may do this"
        return _not_now(action, op)

    # --- keys ---------------------------------------------------------------------------------------------------

    def action_approve(self) -> None:
        """Show exactly what would be sent, and ask."""
        self.ask(_approve_sheet)

    def action_reject(self) -> None:
        """Show what would have been sent, and ask."""
        self.ask(_reject_sheet)

    def action_cancel(self) -> None:
        """Show what a cancellation does and cannot undo, and ask."""
        self.ask(_cancel_sheet)

    def action_reconcile(self) -> None:
        """Ask what became of a create whose fate nobody knows."""
        self.ask(_resolve_sheet)

    def action_resolve(self) -> None:
        """Show the choices, and ask for one."""
        self.ask(_resolve_sheet)

    def action_acknowledge(self) -> None:
        """Take an attention, for a while."""
        self.ask(lambda desk, op: partial(AcknowledgeDialog, desk.ledger.show(op.operation_id), desk.now()))

    def action_note(self) -> None:
        """Write a remark into the journal."""
        self.ask(lambda desk, op: partial(NoteDialog, desk.ledger.show(op.operation_id), desk.now()))

    def action_poll(self) -> None:
        """Make a status read due now: it asks, and never creates."""
        op = self.subject()
        if op is not None:
            self.carry_out(Verdict("read", op.operation_id, None, ""))

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
            self._read_values(op)

    @work(thread=True, group="copy", exclusive=True, exit_on_error=False)
    def _read_values(self, op: Operation) -> None:
        values = values_of(op)
        try:
            values += (("request as curl, masked", curl_of(self.desk, op)),)
        except OpledgerError as error:
            self.post_message(SheetRefused(f"the request cannot be read: {error.message}"))
        self.post_message(ValuesReady(values))

    @on(ValuesReady)
    def _show_values(self, message: ValuesReady) -> None:
        if self.is_current:
            self.app.push_screen(CopyMenu(message.values), self._copy)

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


_ACTIONS = frozenset(
    {"approve", "reject", "cancel", "reconcile", "resolve", "acknowledge", "note", "poll", "packet", "copy"}
)
_PERSONS = frozenset({"approve", "reject", "reconcile", "resolve", "acknowledge"})
"""What only a person may do; the ledger refuses it too."""


def _not_now(action: str, op: Operation) -> str | None:
    name = short_id(op.operation_id)
    if action in ("approve", "reject"):
        asked = op.state is State.AWAITING_APPROVAL
        return None if asked else f"{name} is {op.state} and waits for no approval"
    if action == "cancel":
        why = human.why_no_cancel(op)
        # What the command line would be told to type, a key does here.
        return None if why is None else f"{name}: {why.replace('decide with: opledger resolve', 'v decides')}"
    if action == "reconcile":
        unknown = op.state is State.CREATE_UNKNOWN
        return None if unknown else f"{name} is {op.state}: the fate of its create is not in doubt"
    if action == "resolve":
        return None if waits_for_person(op) and op.state is not State.AWAITING_APPROVAL else _nothing(op)
    if action == "acknowledge":
        return None if op.attention is not None else f"{name} wants nobody's attention"
    if action == "poll":
        return None if op.state in cancels.LIVE else f"{name} is {op.state}: there is no job to read"
    return None


def _nothing(op: Operation) -> str:
    if op.state is State.AWAITING_APPROVAL:
        return f"{short_id(op.operation_id)} waits for approval: a approves, d declines"
    return f"{short_id(op.operation_id)} is {op.state}: there is nothing that only a person may decide"


# --- what dialogs show, read in a thread ---------------------------------------------------------------------------


def _approve_sheet(desk: Desk, op: Operation) -> Make:
    found, review = deeds.review_of(desk, op.operation_id)
    return partial(ApproveDialog, found, review, desk.now(), grace=grace_of(desk))


def _reject_sheet(desk: Desk, op: Operation) -> Make:
    found, review = deeds.review_of(desk, op.operation_id, "reject")
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
    return partial(CancelDialog, facts.operation, sheet, desk.now(), grace=grace_of(desk))


def _resolve_sheet(desk: Desk, op: Operation) -> Make:
    facts = deeds.choices_of(desk, op.operation_id)
    return partial(ResolveDialog, facts.operation, facts.options, facts.answers, desk.now())
