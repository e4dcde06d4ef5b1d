"""What people decide in the console, carried out through the ledger; and what they are shown before they do.

The rules live in the ledger: four eyes, agents, read-only, what may be decided in which state. A decision is bound to
the operation and the version that was looked at; where only a worker looked at the job since, it still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from opledger.errors import OpledgerError, Refused
from opledger.ledger.bulk import Decision, Outcome, Prospect, Target, carry_out, changed_meanwhile, preview
from opledger.ledger.bulk import Verb as BulkVerb
from opledger.ledger.reviewing import sharing
from opledger.rules import cancels
from opledger.rules.approval_signatures import Statement
from opledger.rules.choices import Option, too_early
from opledger.rules.guarantees import cancel_line, guarantees
from opledger.rules.model import Operation, State
from opledger_console.desk import Desk
from opledger_console.verdicts import Verdict
from opledger_console.views import short_id

__all__ = ["CancelFacts", "Choices", "Deed", "Outcome"]  # and the functions below


@dataclass(frozen=True, slots=True)
class Deed:
    """What became of a verdict, in words. `done`: it is recorded; None: nobody knows."""

    verdict: Verdict
    done: bool | None
    words: str


@dataclass(frozen=True, slots=True)
class CancelFacts:
    """What a person must know before they ask for a cancellation."""

    operation: Operation
    withdraws: bool  #: nothing was ever sent, so that it is taken back here and nothing leaves
    sends: str | None
    promises: str
    leaves: str | None
    destroys: tuple[str, ...]
    others: tuple[Operation, ...]  #: live operations that the same call would stop
    deadline: timedelta | None
    unknown_create: bool


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person may decide, and the answers that contradict each other, title and text each."""

    operation: Operation
    options: tuple[Option, ...]
    answers: tuple[tuple[str, str], ...]


# --- before ------------------------------------------------------------------------------------------------------


def review_of(
    desk: Desk, operation_id: str, verb: Literal["approve", "reject"] = "approve"
) -> tuple[Operation, dict[str, Any]]:
    """Return what an approver is shown. Raises Refused where there is nothing to approve, or not for this person."""
    desk.check_writable()
    op = desk.ledger.show(operation_id)
    if op.state is not State.AWAITING_APPROVAL:
        raise Refused(f"{short_id(operation_id)} is {op.state} and waits for no approval")
    review = desk.ledger.review(operation_id)
    look = Decision(verb, "a look before it is decided", sign=_elsewhere if review["signed"] else None)
    (ahead,) = preview(desk.ledger, [operation_id], look)
    if not ahead.eligible:
        raise Refused(ahead.because)
    return op, review


def _elsewhere(statement: Statement) -> str:
    """Stand in for who signs: ssh-keygen asks at a terminal, and that one is ours."""
    raise Refused(f"an approval of {short_id(statement.operation_id)} is signed on the command line")


def cancel_facts(desk: Desk, operation_id: str) -> CancelFacts:
    """Return what a cancellation would do. Raises Refused where nothing can be cancelled, and why."""
    desk.check_writable()
    ledger = desk.ledger
    op = ledger.show(operation_id)
    (ahead,) = preview(ledger, [operation_id], Decision("cancel", "a look before it is asked for"))
    others = tuple(sharing(ledger, op, ledger.contract_of(op)))
    if not ahead.eligible and not others:
        raise Refused(ahead.because)
    contract = ledger.contract_of(op)
    call = contract.cancel
    withdraws = ahead.to is State.WITHDRAWN
    return CancelFacts(
        operation=op,
        withdraws=withdraws,
        sends=None if withdraws or call is None else cancels.target(op, contract) or f"{call.method} {call.path.text}",
        promises=cancel_line(guarantees(contract).cancel),
        leaves=None if call is None else call.leaves,
        destroys=() if call is None else tuple(call.destroys),
        others=others,
        deadline=None if withdraws else op.cancel_timeout,
        unknown_create=op.state in (State.CREATE_UNKNOWN, State.RECONCILIATION),
    )


def choices_of(desk: Desk, operation_id: str) -> Choices:
    """Return what a person may decide now. Raises Refused where there is nothing to decide."""
    desk.check_writable()
    op = desk.ledger.show(operation_id)
    options = desk.ledger.choices(operation_id)
    if not options:
        said = f"{short_id(operation_id)} is {op.state}: there is nothing to decide about it now"
        raise Refused(too_early(op) or said)
    answers: tuple[tuple[str, str], ...] = ()
    if op.state is State.CONTRACT_VIOLATION:
        from opledger_console.desk.operation import answers_in_conflict

        answers = answers_in_conflict(desk, op)
    return Choices(op, options, answers)


def moved(desk: Desk, operation_id: str, version: int) -> str | None:
    """Say what happened to a record since `version`, if a decision on it no longer holds."""
    return changed_meanwhile(desk.ledger, operation_id, version)


# --- the deed ----------------------------------------------------------------------------------------------------

_BULK: Final[Mapping[str, BulkVerb]] = {verb: verb for verb in ("approve", "reject", "cancel", "resolve")}


def carry_out_one(desk: Desk, verdict: Verdict) -> Deed:
    """Do what was decided, or say why not; nothing is done halfway. Raises StoreUnavailable."""
    desk.check_writable()
    ledger = desk.ledger
    try:
        if verdict.verb in _BULK:
            return _decide(desk, verdict)
        if verdict.verb == "pause":
            ledger.pause_provider(verdict.subject, reason=verdict.reason)
            return Deed(verdict, True, f"calls to {verdict.subject} are paused; what runs there goes on")
        if verdict.verb == "resume":
            ledger.resume_provider(verdict.subject, reason=verdict.reason)
            return Deed(verdict, True, f"calls to {verdict.subject} go on, slowly at first")
        name = short_id(verdict.subject)
        if verdict.verb == "acknowledge":
            until = None if verdict.until is None else ledger.clock.now() + verdict.until
            ledger.acknowledge(verdict.subject, reason=verdict.reason, until=until)
            lapse = "until it ends" if until is None else f"until {until:%H:%M}Z"
            return Deed(verdict, True, f"{name}: notices fall silent {lapse}; it stays in the inbox")
        if verdict.verb == "note":
            ledger.note(verdict.subject, verdict.reason)
            return Deed(verdict, True, f"{name}: noted")
        ledger.ask_for_read(verdict.subject)
        return Deed(verdict, True, f"{name}: a status read is due now; it never creates anything")
    except Refused as error:
        return Deed(verdict, False, error.message)


def _decide(desk: Desk, verdict: Verdict) -> Deed:
    ledger = desk.ledger
    decision = Decision(
        verb=_BULK[verdict.verb],
        reason=verdict.reason,
        effect=verdict.effect,
        choice=verdict.choice or "",
        job=verdict.job,
        extend_by=verdict.length,
        fingerprint=verdict.fingerprint,
    )
    targets = [Target(verdict.subject, verdict.version), *(Target(other) for other in verdict.also)]
    outcomes = list(carry_out(ledger, targets, decision))
    first = outcomes[0]
    if first.error is not None:
        return Deed(verdict, False, first.error.message)
    words = _words(verdict, first)
    missed = [outcome for outcome in outcomes[1:] if outcome.error is not None]
    words += "".join(f"; {short_id(outcome.operation_id)}: {outcome.error}" for outcome in missed)
    return Deed(verdict, True, words)


def _words(verdict: Verdict, outcome: Outcome) -> str:
    op = outcome.operation
    name, state = short_id(verdict.subject), "" if op is None else op.state.value
    if outcome.done:
        return f"{name}: decided so before, nothing was written"
    if verdict.verb == "approve":
        if op is not None and op.state is State.AWAITING_APPROVAL:
            return f"{name}: approved, {len(op.approvals)} of {op.approvals_needed}; it waits for the others"
        return f"{name}: approved; the next free worker sends it, once"
    if verdict.verb == "reject":
        return f"{name}: rejected; it never leaves"
    if verdict.verb == "cancel":
        if op is not None and op.state is State.WITHDRAWN:
            return f"{name}: withdrawn; nothing was ever sent"
        until = f" until {op.cancel_deadline:%H:%M:%S}Z" if op is not None and op.cancel_deadline else ""
        return f"{name}: cancellation requested; whether it ends, the provider says{until}"
    return f"{name}: {verdict.choice} is recorded; it is {state} now"


def prospects(desk: Desk, operation_ids: Sequence[str], verb: Any) -> list[Prospect]:
    """Say what a decision would do to each of many, and write nothing."""
    desk.check_writable()
    return preview(desk.ledger, operation_ids, Decision(verb, "a look before it is decided"))


def carry_out_many(
    desk: Desk, targets: Sequence[tuple[str, int | None]], verb: Any, reason: str, told: Callable[[int], None]
) -> list[Outcome]:
    """Decide many, one by one; each has its own outcome. `told` hears how many are done. Raises StoreUnavailable.

    What was decided before the database went away stays decided. The one that was under way then is in doubt, because
    the answer to a commit can be lost like any other; those after it were not begun.
    """
    desk.check_writable()
    outcomes: list[Outcome] = []
    decision = Decision(verb, reason)
    try:
        for outcome in carry_out(desk.ledger, [Target(*target) for target in targets], decision):
            outcomes.append(outcome)
            told(len(outcomes))
    except OpledgerError as error:
        doubt = f"nobody knows whether it was recorded, look before doing it again: {error.message}"
        for name, _ in targets[len(outcomes) :]:
            outcomes.append(Outcome(name, None, Refused(doubt)))
            doubt = f"not begun: {error.message}"
    return outcomes
