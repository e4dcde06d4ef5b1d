"""Stories of creates and cancels beyond the core: how a create is found again, and what people decide."""

from __future__ import annotations

from typing import Any, Final

from opledger.rules.model import Operation, State
from opledger.sim.process import BackDoor
from tests.crashes.core import CALLS, FILES, cancelled, control, running, wish, work
from tests.crashes.life import Life, Story

S = State
BAD: Final = {"kind": "create", "status": 503, "body": {}, "before": True}
BUSY: Final = {"kind": "create", "status": 429, "body": {}, "headers": {"retry-after": "150"}, "before": True}
ASK: Final = "[[policy]]\nwhen = 'operation.body.rows > 2'\nexpires = \"4h\"\n"


def decide(life: Life, choice: str, **more: Any) -> None:
    """A person decides, as long as that decision is open."""
    op = life.op()
    waits = op.state.needs_human or (op.state is S.CREATE_UNKNOWN and op.exhausted)
    if waits and choice not in life.decided():
        life.ledger.resolve(op.operation_id, choice, reason="looked at their console", **more)


def bound(life: Life) -> None:
    """A person looks at the provider's console, and binds the job that is there."""
    life.run()
    jobs = life.jobs(life.op())
    decide(life, "bind", job=jobs[0]) if jobs else decide(life, "not-created")
    life.run()
    jobs = life.jobs(life.op())  # the create that a person allowed may be lost as well
    if life.op().state is S.CREATE_UNKNOWN:
        decide(life, "bind", job=jobs[0]) if jobs else decide(life, "close")
    life.run()


def sent_again(life: Life) -> None:
    """A person accepts a possible second job."""
    life.run()
    decide(life, "resend")
    life.run()
    decide(life, "close")


def closed(life: Life) -> None:
    """A person gives it up."""
    life.run()
    decide(life, "close")
    life.run()


def asks_one(life: Life) -> None:
    """An operation that one person must approve."""
    life.policies(ASK)
    life.contract()
    life.submit(_polls=1)


def rejected(life: Life) -> None:
    """Nobody wants it."""
    life.run(60)
    op = life.op()
    if op.state is S.AWAITING_APPROVAL:
        life.ledger.reject(op.operation_id, reason="too dear", by="jo")
    life.run()


def lapsed(life: Life) -> None:
    """Nobody looks at it for a day."""
    life.run(60)
    life.passes(24 * 3600)
    life.run()


def withdrawn(life: Life) -> None:
    """It is taken back before any worker saw it."""
    op = life.op()
    if op.cancel is None and not op.state.terminal:
        life.ledger.cancel(op.operation_id, reason="changed my mind", by="olga")
    life.run()


def unconfirmed(life: Life) -> None:
    """The provider says yes and runs on; a person watches, asks again, and closes."""
    cancelled(life)
    for choice, more in (("watch", {"extend_by": "5m"}), ("cancel", {}), ("close", {})):
        decide(life, choice, **more)
        life.run()


def quietly(life: Life) -> None:
    """Nothing proves that a create is absent, and resends are taken for a while only."""
    life.contract("header", {'memory = "10m"': 'memory = "2m"'}, create="3h")
    life.submit(flavour="header", _seconds=36000)


def impatient(life: Life) -> None:
    """A create that must have left within minutes."""
    life.contract(create="10m")
    life.submit(_polls=1)


def proven_absent(life: Life) -> None:
    """Only the list says whether there is a job."""
    life.contract("body", {'[[reconcile]]\nstrategy = "resend"\n': ""}, create="30m")
    life.submit(flavour="body", _polls=1)


def idempotent(life: Life) -> None:
    """A cancel that may be sent again."""
    life.contract(changes={"idempotent = false": "idempotent = true"})
    life.submit("cancellable", "prompt", _seconds=3000)


def lost_twice(sim: BackDoor, ids: list[str]) -> None:
    """The answer to the create is lost, and those to all resends."""
    sim.control(drop_next="create", answer_next=[BAD] * 200)


def renewed(life: Life) -> None:
    """The answer to a create takes so long that the lease must be renewed under it."""
    op = life.op()
    if op.state is S.CREATE_PENDING and op.lease is None:
        life.during("create", lambda: _long(life))
    life.run()


def _long(life: Life) -> None:
    for _ in range(3):
        life.passes(50)
        life.loop.run(life.worker.renew())


def extended(life: Life) -> None:
    """The job takes longer than its deadline, and a person gives it more time."""
    life.run()
    decide(life, "extend", extend_by="2h")
    life.run()


def _watched(op: Operation) -> bool:
    return op.state is S.CREATE_UNKNOWN or running(op)


def cancelled_unknown(life: Life) -> None:
    """A cancel of a create whose fate is unknown waits until the job is known."""
    op = life.go(_watched)
    if op.cancel is None and not op.state.terminal:
        life.ledger.cancel(op.operation_id, reason="ordered twice", by="olga")
    life.run()


LOST: Final = control(drop_next="create")
UNCONFIRMED: Final = frozenset({S.CANCELLATION_UNCONFIRMED})

CREATING: Final = (
    Story("found-by-id", wish("clientid", _polls=1), work, (S.SUCCEEDED,), begin=LOST, must=CALLS),
    Story("absent", proven_absent, work, (S.SUCCEEDED,), begin=control(drop_before_next="create"), must=CALLS),
    Story(
        "singleton",
        wish("singleton", _polls=1),
        bound,
        (S.SUCCEEDED,),
        frozenset({S.RESOLVED, S.FAILED}),
        begin=LOST,
        must=CALLS,
    ),
    Story(
        "unknown-bind",
        wish("none", _polls=1),
        bound,
        (S.SUCCEEDED,),
        frozenset({S.RESOLVED, S.FAILED}),
        begin=LOST,
        must=CALLS,
    ),
    Story(
        "unknown-resend",
        wish("none", _polls=1),
        sent_again,
        (S.SUCCEEDED,),
        frozenset({S.RESOLVED}),
        begin=LOST,
        must=CALLS,
        jobs=2,
    ),
    Story("unknown-close", wish("none", _polls=1), closed, (S.RESOLVED,), begin=LOST, must=CALLS),
    Story("token-window", quietly, closed, (S.RESOLVED,), begin=lost_twice, must=CALLS),
    Story("create-deadline", impatient, work, (S.FAILED,), begin=control(answer_next=[BUSY] * 200), must=CALLS),
    Story("renewed", wish(_polls=1), renewed, (S.SUCCEEDED,), must=CALLS),
    Story("rejected", asks_one, rejected, (S.REJECTED,), must=frozenset({"commit", "lease"})),
    Story("lapsed", asks_one, lapsed, (S.REJECTED,), must=frozenset({"commit", "lease"})),
    Story("withdrawn", wish(), withdrawn, (S.WITHDRAWN,), must=frozenset({"commit", "lease"})),
    Story(
        "cancel-refused",
        wish(personality="cancel_refusing", variant="conflict", pace="20m", _seconds=600),
        cancelled,
        (S.SUCCEEDED,),
        UNCONFIRMED,
        must=FILES,
    ),
    Story(
        "cancel-refused-politely",
        wish(personality="cancel_refusing", variant="polite", pace="20m", _seconds=600),
        cancelled,
        (S.SUCCEEDED,),
        UNCONFIRMED,
        must=FILES,
    ),
    Story("cancel-races", wish(personality="cancel_racing"), cancelled, (S.SUCCEEDED,), UNCONFIRMED, must=FILES),
    Story(
        "cancel-lost",
        wish(personality="cancellable", variant="lossy", _seconds=3000),
        cancelled,
        (S.CANCELLED,),
        UNCONFIRMED | {S.SUCCEEDED},
        must=CALLS,
    ),
    Story(
        "cancel-again",
        idempotent,
        cancelled,
        (S.CANCELLED,),
        begin=control(drop_before_next="cancel"),
        must=CALLS,
        resends_cancels=True,
    ),
    Story(
        "cancel-unconfirmed",
        wish(personality="cancel_ignoring", variant="forever", pace="20m"),
        unconfirmed,
        (S.RESOLVED,),
        must=CALLS,
    ),
    Story(
        "cancel-unknown",
        wish("body", "cancellable", "prompt", _seconds=3000),
        cancelled_unknown,
        (S.CANCELLED,),
        UNCONFIRMED | {S.WITHDRAWN},
        begin=LOST,
        must=CALLS,
    ),
    Story("extended", wish(pace="50m", _seconds=9000), extended, (S.SUCCEEDED,), must=FILES),
)
