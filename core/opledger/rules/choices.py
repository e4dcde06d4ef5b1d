"""What a person may decide about an operation, what each choice means, and what it will send."""

from __future__ import annotations

from dataclasses import dataclass

from opledger.rules.contract import Contract
from opledger.rules.model import Choice, Operation, State


@dataclass(frozen=True, slots=True)
class Option:
    """One choice: what it needs, where it leads, what follows, and what will be sent."""

    choice: Choice
    to: State
    consequence: str
    needs: tuple[str, ...] = ()
    sends: str | None = None
    jobs: tuple[str, ...] = ()


_CLOSE = (
    "Automation ends for good. Whatever runs at the provider goes on running and is nobody's concern here any more."
)


def choices(op: Operation, contract: Contract) -> tuple[Option, ...]:
    """Return what a person may decide in the operation's present state; empty where nothing is to be decided."""
    if op.state is State.CREATE_UNKNOWN:
        return _unknown(op, contract)
    if op.state is State.CONTRACT_VIOLATION:
        return _violation(op, contract)
    if op.state is State.CANCELLATION_UNCONFIRMED:
        return _unconfirmed(op, contract)
    if op.state is State.RESULT_TIMED_OUT:
        return (
            Option(Choice.EXTEND, State.OBSERVING, "Polling goes on until the new result deadline.", ("for",)),
            Option(Choice.CLOSE, State.RESOLVED, _CLOSE),
        )
    if op.state in (State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED):
        have = "The stored file stays attached." if op.result is not None else "There is no result."
        return (
            Option(
                Choice.COLLECT,
                State.RESULT_COLLECTING,
                "The result is fetched again, with a new collect deadline.",
                sends="result read",
            ),
            Option(Choice.ACCEPT, State.RESOLVED, f"It is taken as it is. {have}"),
            Option(Choice.CLOSE, State.RESOLVED, f"It is closed without a good result. {have}"),
        )
    return ()


def _create_line(op: Operation, contract: Contract) -> str:
    return f"{contract.create.method} create of {contract.name} under token {op.idempotency_token or '(none)'}"


def _cancel_line(contract: Contract) -> str | None:
    return None if contract.cancel is None else f"{contract.cancel.method} cancel"


def _unknown(op: Operation, contract: Contract) -> tuple[Option, ...]:
    wanted = op.cancel is not None and contract.cancel is not None
    bind = Option(
        Choice.BIND,
        State.ACCEPTED,
        "You have found the job at the provider: it becomes this operation's job and is "
        + ("cancelled, as somebody asked for." if wanted else "polled."),
        ("job",),
        sends=_cancel_line(contract) if wanted else None,
    )
    not_created = Option(
        Choice.NOT_CREATED,
        State.FAILED,
        "You are sure that the provider has no such job. If it has one after all, it runs on unseen.",
    )
    resend = Option(
        Choice.RESEND,
        State.CREATE_PENDING,
        "The same request is sent once more under the same token. If the first one arrived and the provider does "
        "not honour the token, there will be two jobs.",
        sends=_create_line(op, contract),
    )
    close = Option(Choice.CLOSE, State.RESOLVED, f"Nobody will know whether it was created. {_CLOSE}")
    # While a cancel is wanted, nothing is created any more: a resend would be taken back before it left.
    return (bind, not_created, close) if op.cancel is not None else (bind, not_created, resend, close)


def _violation(op: Operation, contract: Contract) -> tuple[Option, ...]:
    options: list[Option] = []
    if op.jobs:
        options.append(
            Option(
                Choice.KEEP,
                State.OBSERVING,
                "The named job becomes this operation's job and is polled; the others run on and cost what they cost.",
                ("job",),
                jobs=op.jobs,
            )
        )
        if contract.cancel is not None:
            options.append(
                Option(
                    Choice.CANCEL,
                    State.CANCEL_REQUESTED,
                    "A cancellation of the named job is requested; the others run on.",
                    ("job",),
                    sends=_cancel_line(contract),
                    jobs=op.jobs,
                )
            )
    options.append(Option(Choice.CLOSE, State.RESOLVED, _CLOSE, jobs=op.jobs))
    return tuple(options)


def _unconfirmed(op: Operation, contract: Contract) -> tuple[Option, ...]:
    options = [Option(Choice.WATCH, State.CANCELLING, "Polling goes on until the new cancel deadline.", ("for",))]
    if contract.cancel is not None:
        options.append(
            Option(
                Choice.CANCEL,
                State.CANCEL_REQUESTED,
                "A new cancel intent is recorded and sent once.",
                sends=_cancel_line(contract),
            )
        )
    options.append(Option(Choice.CLOSE, State.RESOLVED, _CLOSE))
    return tuple(options)
