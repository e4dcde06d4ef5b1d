"""Values to open dialogs on, plain and hostile, and an app that opens one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from textual.app import App
from textual.screen import ModalScreen

from opledger.rules import review as rules_review
from opledger.rules.choices import Option, choices
from opledger.rules.guarantees import guarantees
from opledger.rules.model import Approval, Attention, Operation, State
from opledger.rules.policy import Demand
from opledger.rules.shapes import Json
from opledger_console.dialogs.acknowledge import AcknowledgeDialog
from opledger_console.dialogs.answer import AnswerDialog
from opledger_console.dialogs.approve import ApproveDialog
from opledger_console.dialogs.base import Dialog
from opledger_console.dialogs.bulk import BulkDialog, BulkOutcome, BulkReport, Prospect
from opledger_console.dialogs.cancel import CancelDialog, CancelSheet
from opledger_console.dialogs.copymenu import CopyMenu
from opledger_console.dialogs.leaving import QuitDialog
from opledger_console.dialogs.note import NoteDialog
from opledger_console.dialogs.panel import TextPanel
from opledger_console.dialogs.provider import ProviderDialog
from opledger_console.dialogs.reject import RejectDialog
from opledger_console.dialogs.resolve import ResolveDialog
from opledger_console.pages.plans import AnswerSheet
from tests.core.rules.operations import CANCEL, NOON, contract, operation

HOSTILE = "\x1b[2J\x1b]0;own\x07\x9b31m\x7f\u202e\u200b[@click=app.quit]x[/] [/ [bold red]\ud800\\ 9\ufe0f\U000e0041"
LEAVES = 'leaves = "the files that were written so far"\n'
DESTROYS = 'destroys = ["result"]\n'


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


class Opened(App[None]):
    """Opens one dialog and remembers what it hands back; `done` counts how often."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, dialog: ModalScreen[Any]) -> None:
        super().__init__()
        self.dialog = dialog
        self.answers: list[Any] = []

    def on_mount(self) -> None:
        """Open it."""
        self.push_screen(self.dialog, self.answers.append)


def waiting(**facts: Any) -> Operation:
    """An operation that waits for approval."""
    known: dict[str, Any] = {
        "approvals_needed": 2,
        "approvals": (Approval("ben", NOON, "fine", "sha256:11"),),
        "approval_deadline": NOON + timedelta(minutes=12, seconds=5),
        "expectation": "the nightly export, late because of the migration",
        "version": 7,
        "request_fingerprint": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    }
    return operation(State.AWAITING_APPROVAL, **{**known, **facts})


REQUEST: Json = {
    "method": "POST",
    "url": "https://api.example.com/v1/jobs?region=eu-central-1",
    "headers": {"Idempotency-Key": "idem_test", "Authorization": "[secret]", "Content-Type": "application/json"},
    "body": {"rows": 5000, "table": "orders", "where": "day = '2026-11-28'", "notify": ["ops@example.com"]},
}


def review(op: Operation, request: Json = REQUEST, **more: Any) -> Json:
    """A review as the ledger gives it."""
    terms = contract(CANCEL + LEAVES + DESTROYS)
    other = operation(State.OBSERVING, operation_id="op_01TESTTESTTESTTESTTEST0002")
    found = rules_review.differences({"rows": 5, "table": "orders", "limit": 3}, {"rows": 5000, "table": "orders"})
    alike = rules_review.Alike(other, "alike", found)
    demand = Demand(2, None, four_eyes=True, because="more than 1000 rows")
    return {**rules_review.review(op, terms, guarantees(terms), demand, request, alike), **more}


SHEET = CancelSheet(
    verb="request cancellation",
    sends="DELETE https://api.example.com/jobs/job_1",
    promises="yes, confirmed by a status read that says cancelled; is sent once per intent",
    leaves="the files that were written so far",
    destroys=(),
    others=(),
    deadline=timedelta(minutes=5),
    unknown_create=False,
)


def running(**facts: Any) -> Operation:
    """An operation that is polled."""
    return operation(
        State.OBSERVING, **{"version": 4, "remote_job_id": "job_1", "request_fingerprint": "sha256:abcdef", **facts}
    )


def violated(jobs: tuple[str, ...] = ("job_1", "job_2")) -> Operation:
    """An operation whose provider broke its promises."""
    return operation(State.CONTRACT_VIOLATION, version=9, jobs=jobs, request_fingerprint="sha256:abcdef")


def options(op: Operation) -> tuple[Option, ...]:
    """What a person may decide about it."""
    return choices(op, contract(CANCEL + LEAVES))


ANSWERS = (
    ("10:02:11Z POST /jobs 201", '{"id": "job_1", "state": "running", "owner": {"team": "blue", "rows": 5}}'),
    ("10:02:13Z GET /jobs/job_1 200", '{"id": "job_2", "state": "running", "owner": {"team": "red", "rows": 5}}'),
)
PROSPECTS = (
    *(Prospect(f"op_01TESTTESTTESTTESTTEST00{n:02}", "observing", True, "a cancel is recorded", n) for n in range(12)),
    Prospect("op_01TESTTESTTESTTESTTEST0099", "succeeded", False, "it has ended; there is nothing to cancel", 3),
)


def attention(why: str = "the provider has not answered for 20 minutes") -> Attention:
    """Something that wants a person."""
    return Attention("late", NOON, why)


def every(text: str | None = None, clock: Clock | None = None, big: bool = False) -> dict[str, Dialog[Any]]:
    """One dialog of each kind; with `text`, that text stands in every field that comes from outside."""
    t = text
    facts: dict[str, Any] = (
        {} if t is None else {"contract": t, "requested_by": t, "expectation": t, "acknowledged_by": t}
    )
    if t is not None:
        facts |= {"operation_id": f"op_{t}", "request_fingerprint": t, "approvals": (Approval(t, NOON, t, t),)}
        facts |= {"attention": attention(t), "jobs": (t, "job_2")}
    op = waiting(**facts)
    job = running(**{**facts, "jobs": ()})
    broken = replace(violated(), **facts)
    request = REQUEST if t is None else {"method": t, "url": f"https://{t}", "headers": {t: t}, "body": {t: t}}
    if big:
        request = {
            **request,
            "url": "https://api.example.com/" + "x" * 5000,
            "body": f"{t or 'x'}\n" * (100_000 // len(t or "x\n")),
        }
    seen = review(op, request)
    sheet, answers, prospects = SHEET, ANSWERS, PROSPECTS
    if t is not None:
        seen = {
            **seen,
            "because": t,
            "credentials": t,
            "leaves": t,
            "destroys": [t],
            "approvers": [t],
            "four_eyes": True,
        }
        seen["guarantees"] = {**seen["guarantees"], "gaps": [t]}
        gone = {"pointer": t, "change": "changed", "before": t, "after": t}
        seen["compared_with"] = {"operation_id": t, "relation": "same", "state": t, "differences": [gone]}
        sheet = replace(SHEET, sends=t, promises=t, leaves=t, destroys=(t,), others=((t, t, t),))
        answers = ((t, t), (t, f'{{"a": "{t}"}}'))
        prospects = (Prospect(t, t, True, t, 1), Prospect(t, t, False, t, 1))
    asked = AnswerSheet("monthly.plan.toml", "monthly", "publish", NOON, "Publish it?", ("yes", "no"), ("no",))
    if t is not None:
        asked = AnswerSheet(t, t, t, NOON, t, (t, f"{t} no"), (t,))
    return {
        "answer": AnswerDialog(asked, clock=clock),
        "approve": ApproveDialog(op, seen, NOON, clock=clock),
        "reject": RejectDialog(op, seen, NOON, clock=clock),
        "cancel": CancelDialog(job, sheet, NOON, clock=clock),
        "withdraw": CancelDialog(op, replace(sheet, verb="withdraw", sends=None), NOON, clock=clock),
        "resolve": ResolveDialog(broken, options(broken), answers, NOON, clock=clock),
        "note": NoteDialog(job, NOON, clock=clock),
        "acknowledge": AcknowledgeDialog(job, NOON, clock=clock),
        "pause": ProviderDialog(t or "jobs", "pause", 12, None, clock=clock),
        "resume": ProviderDialog(t or "jobs", "resume", 12, t or "it answers 500", clock=clock),
        "bulk": BulkDialog("cancel", prospects, clock=clock),
        "report": BulkReport("cancel", (BulkOutcome(t or "op_1", "failed", t or "gone"),), clock=clock),
        "panel": TextPanel("What has changed", t or "version 7 became 8", about=t or "op_1", clock=clock),
        "copy": CopyMenu((("operation id", t or "op_1"), ("job id", t or "job_1")), clock=clock),
        "quit": QuitDialog(clock=clock),
    }
