"""What a person may decide about an operation, what each choice means, and what it will send."""

from __future__ import annotations

from dataclasses import dataclass

from opledger.rules.contract import Contract
from opledger.rules.model import NEEDS_HUMAN, Choice, Operation, State


@dataclass(frozen=True, slots=True)
class Option:
    """One choice: what must be so first, what it needs, where it leads, what follows, and what will be sent.

    `undoable` says what can never be undone once it is chosen.
    """

    choice: Choice
    to: State
    consequence: str
    needs: tuple[str, ...] = ()
    sends: str | None = None
    jobs: tuple[str, ...] = ()
    precondition: str = ""
    undoable: str = ""


_CLOSE = (
    "Automation ends for good. Whatever runs at the provider goes on running and is nobody's concern here any more."
)
_CLOSED = "A closed operation is never opened again; to go on, submit a new one."
_SENT = "What has been sent cannot be called back."


def choices(op: Operation, contract: Contract) -> tuple[Option, ...]:
    """Return what a person may decide in the operation's present state; empty where nothing is to be decided, yet."""
    if too_early(op) is not None:
        return ()
    if op.state is State.CREATE_UNKNOWN:
        return _unknown(op, contract)
    if op.state is State.CONTRACT_VIOLATION:
        return _violation(op, contract)
    if op.state is State.CANCELLATION_UNCONFIRMED:
        return _unconfirmed(op, contract)
    if op.state is State.RESULT_TIMED_OUT:
        return (
            Option(
                Choice.EXTEND,
                State.OBSERVING,
                f"{_goes_on(contract)} until the new result deadline.",
                ("for",),
                precondition="You have reason to think that the job will still end.",
                undoable="What the job costs meanwhile. A cancel that was wanted before is taken back by this.",
            ),
            _close("You need neither the job nor its result any more, or look after them elsewhere."),
        )
    if op.state in (State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED):
        return _without_result(op)
    return ()


def too_early(op: Operation) -> str | None:
    """Say why an operation that asks a person cannot be decided on yet; None where that is not so.

    What comes of a call under way belongs to what is decided on, and no permit stays without an outcome (I17).
    """
    call = op.open_call
    if call is None or op.state not in NEEDS_HUMAN:
        return None
    return (
        f"the {call.action} call of {op.operation_id} ({call.call_id}) is still without an outcome; the worker that "
        "made it records the answer, or another one that its fate is unknown, once the lease has run out; decide then"
    )


def _close(precondition: str, consequence: str = _CLOSE, jobs: tuple[str, ...] = ()) -> Option:
    return Option(Choice.CLOSE, State.RESOLVED, consequence, jobs=jobs, precondition=precondition, undoable=_CLOSED)


def _without_result(op: Operation) -> tuple[Option, ...]:
    have = "The stored file stays attached." if op.result is not None else "There is no result."
    return (
        Option(
            Choice.COLLECT,
            State.RESULT_COLLECTING,
            "The result is fetched again, with a new collect deadline.",
            sends="result read",
            precondition="The provider still has the result, or has mended it.",
            undoable="Nothing at the provider: a result read changes nothing there. A file that is fetched anew takes "
            "the place of the one that is attached.",
        ),
        Option(
            Choice.ACCEPT,
            State.RESOLVED,
            f"It is taken as it is. {have}",
            precondition="You have looked at what there is, and it will do.",
            undoable=_CLOSED,
        ),
        _close("You can do without the result.", f"It is closed without a good result. {have}"),
    )


def _create_line(op: Operation, contract: Contract) -> str:
    return f"{contract.create.method} create of {contract.name} under token {op.idempotency_token or '(none)'}"


def _goes_on(contract: Contract) -> str:
    return "Deliveries are waited for" if contract.status.by_delivery else "Polling goes on"


def _followed(contract: Contract) -> str:
    return "followed by its deliveries" if contract.status.by_delivery else "polled"


def _cancel_line(contract: Contract) -> str | None:
    return None if contract.cancel is None else f"the cancel call ({contract.cancel.method})"


def _cancelled(contract: Contract) -> str:
    """Say what a cancel leaves behind and destroys, as far as the contract knows."""
    said = [_SENT]
    cancel = contract.cancel
    if cancel is not None and cancel.leaves:
        said.append(f"It leaves behind: {cancel.leaves.rstrip('.')}.")
    if cancel is not None and cancel.destroys:
        said.append(f"It destroys: {', '.join(cancel.destroys)}.")
    return " ".join(said)


def _unknown(op: Operation, contract: Contract) -> tuple[Option, ...]:
    wanted = op.cancel is not None and contract.cancel is not None
    bind = Option(
        Choice.BIND,
        State.ACCEPTED,
        "You have found the job at the provider: it becomes this operation's job and is "
        + ("cancelled, as somebody asked for." if wanted else f"{_followed(contract)}."),
        ("job",),
        sends=_cancel_line(contract) if wanted else None,
        precondition="You have seen the job at the provider, and it is this request's job.",
        undoable="An operation keeps its job. "
        + (_cancelled(contract) if wanted else "Should it be another's job, only a violation or a close leads out."),
    )
    not_created = Option(
        Choice.NOT_CREATED,
        State.FAILED,
        "You are sure that the provider has no such job. If it has one after all, it runs on unseen.",
        precondition="You have asked the provider, late enough for a job to show, and there is none.",
        undoable="The operation has failed for good; to try again, submit a new one.",
    )
    resend = Option(
        Choice.RESEND,
        State.CREATE_PENDING,
        "The same request is sent once more under the same token. If the first one arrived and the provider does "
        "not honour the token, there will be two jobs.",
        sends=_create_line(op, contract),
        precondition="No job is to be seen at the provider, and a second one would be borne.",
        undoable=f"{_SENT} A second job, should there be one, runs and costs.",
    )
    close = _close(
        "Nobody needs the job any more, or somebody looks after it elsewhere.",
        f"Nobody will know whether it was created. {_CLOSE}",
    )
    # While a cancel is wanted, nothing is created any more: a resend would be taken back before it left.
    return (bind, not_created, close) if op.cancel is not None else (bind, not_created, resend, close)


def _violation(op: Operation, contract: Contract) -> tuple[Option, ...]:
    options: list[Option] = []
    if op.jobs:
        options.append(
            Option(
                Choice.KEEP,
                State.OBSERVING,
                f"The named job becomes this operation's job and is {_followed(contract)}; the others run on and cost "
                "what they cost.",
                ("job",),
                jobs=op.jobs,
                precondition="You have looked at the answers and know which job is the one that was wanted.",
                undoable="What the other jobs do and cost. A cancel that was wanted before is taken back by this.",
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
                    precondition="The named job is ours and not another customer's.",
                    undoable=_cancelled(contract),
                )
            )
    options.append(_close("Somebody has told the provider, and the jobs are looked after elsewhere.", jobs=op.jobs))
    return tuple(options)


def _unconfirmed(op: Operation, contract: Contract) -> tuple[Option, ...]:
    unsent = op.cancel is not None and op.cancel.sent == 0 and op.cancel.shares is None
    options = [
        Option(
            Choice.WATCH,
            State.CANCELLING,
            f"{_goes_on(contract)} until the new cancel deadline.",
            ("for",),
            precondition="You expect the job to end by itself: watching stops nothing."
            if unsent
            else "You have reason to think that the provider will still carry out the cancel.",
            undoable="No cancel was ever sent: what the job costs meanwhile."
            if unsent
            else "The cancel that was sent stands, and what the job costs meanwhile.",
        )
    ]
    if contract.cancel is not None:
        options.append(
            Option(
                Choice.CANCEL,
                State.CANCEL_REQUESTED,
                "A new cancel intent is recorded and sent once.",
                sends=_cancel_line(contract),
                precondition="The job still runs: the first cancel was never sent."
                if unsent
                else "The first cancel had no effect, and a second one does no harm at the provider.",
                undoable=_cancelled(contract),
            )
        )
    options.append(_close("The provider was told in another way, or the job may run to its end."))
    return tuple(options)
