"""The ten core stories. Each is told at every point, and the long form tells each of them at every pair of points."""

from __future__ import annotations

from typing import Any, Final

from opledger.rules.model import Operation, State
from opledger.sim.hooks import webhook_text
from opledger.sim.process import BackDoor
from tests.crashes.life import Begin, Life, Play, Story
from tests.fakes.hooks import without_status

S = State
FILES: Final = frozenset({"commit", "send", "receive", "file", "lease"})
CALLS: Final = frozenset({"commit", "send", "receive", "lease"})
ITEMS: Final = [{"custom_id": f"row-{number}"} for number in range(1, 9)]


def work(life: Life) -> None:
    """A worker works until nothing is left to do."""
    life.run()


def running(op: Operation) -> bool:
    """The job runs, or that is over."""
    return op.state.terminal or op.state in (S.OBSERVING, S.CANCEL_REQUESTED, S.CANCELLING)


def wish(
    flavour: str = "v1", personality: str = "ideal", variant: str | None = None, pace: str = "60s", **body: Any
) -> Play:
    """Prepare one operation of a flavour. `pace`: the longest time between two polls."""

    def prepare(life: Life) -> None:
        life.contract(
            flavour, {'max = "60s"': f'max = "{pace}"', "factor = 2.0": f"factor = {10 if pace != '60s' else 2}.0"}
        )
        life.submit(personality, variant, flavour=flavour, **body)

    return prepare


def control(**commands: Any) -> Begin:
    """Tell the provider, before anything happens."""

    def begin(sim: BackDoor, ids: list[str]) -> None:
        sim.control(**commands)

    return begin


# --- approvals --------------------------------------------------------------------------------------------------------

QUORUM: Final = "[[policy]]\nwhen = 'operation.body.rows > 2'\nexpires = \"4h\"\napprovals = 2\n"


def needs_two(life: Life) -> None:
    """An operation that two people must approve."""
    life.policies(QUORUM)
    life.contract()
    life.submit(_polls=1)


def both_approve(life: Life) -> None:
    """Two people approve, whoever of them has not yet; one of them at the command line."""
    life.run(60)
    for name in ("ana", "jo"):
        op = life.op()
        if op.state is S.AWAITING_APPROVAL and name not in {one.by for one in op.approvals}:
            if name == "jo":
                code = life.command("approve", op.operation_id, "--reason", "fine", "--yes", by=name)
                assert code == 0, code
            else:
                life.ledger.approve(op.operation_id, reason="fine", by=name)
    life.run()


# --- cancels ----------------------------------------------------------------------------------------------------------


def cancelled(life: Life) -> None:
    """The job runs, and somebody does not want it any more."""
    op = life.go(running)
    if op.cancel is None and not op.state.terminal:
        life.ledger.cancel(op.operation_id, reason="ordered twice", by="olga")
    life.run()


def cancelled_while_creating(life: Life) -> None:
    """The create has left and is not answered when somebody cancels."""
    op = life.op()
    if op.state is S.CREATE_PENDING and op.cancel is None and op.lease is None:
        life.during("create", lambda: life.ledger.cancel(op.operation_id, reason="ordered twice", by="olga"))
    elif op.cancel is None and not op.state.terminal:
        life.ledger.cancel(op.operation_id, reason="ordered twice", by="olga")
    life.run()


# --- webhooks are all that is told ------------------------------------------------------------------------------------


def without_reads(life: Life) -> None:
    """A provider that has no status read."""
    life.contract("v1", more=webhook_text("standard", "env:HOOK_SECRET", decides=True))
    path = life.contracts / "sim.toml"
    path.write_text(without_status(path.read_text()))
    life.submit(_seconds=0)


def told(life: Life) -> None:
    """The provider tells, again where nobody confirmed, and a worker reads what was told."""
    op = life.go(lambda op: op.remote_job_id is not None)
    if not op.state.terminal:
        life.receiver()
        life.deliver("running")
        life.turn()
        life.deliver("succeeded")
    life.run()


def heard(life: Life) -> None:
    """Both deliveries are there, once each."""
    assert len(life.ledger.store.deliveries()) == 2, life.ledger.store.deliveries()


# --- checkpoints ------------------------------------------------------------------------------------------------------


def sealed(life: Life) -> None:
    """Checkpoints come while a worker works, and at its end."""
    life.seal()
    life.go(running)
    life.seal()
    life.run()
    life.leave()
    life.seal()


def one_copy(life: Life) -> None:
    """There is one kept result."""
    assert len(list((life.folder / "results").glob("*/op_*"))) == 1


CORE: Final = (
    Story("plain", wish(_polls=2), work, (S.SUCCEEDED,), must=FILES, core=True, check=one_copy),
    Story(
        "lost-create",
        wish(_polls=1),
        work,
        (S.SUCCEEDED,),
        begin=control(drop_next="create"),
        must=CALLS,
        core=True,
    ),
    Story(
        "listed",
        wish("body", _polls=1),
        work,
        (S.SUCCEEDED,),
        begin=control(drop_next="create"),
        must=CALLS,
        core=True,
    ),
    Story("quorum", needs_two, both_approve, (S.SUCCEEDED,), must=CALLS, core=True),
    Story(
        "cancel-running",
        wish(personality="cancellable", variant="prompt", _seconds=3000),
        cancelled,
        (S.CANCELLED,),
        frozenset({S.CANCELLATION_UNCONFIRMED, S.SUCCEEDED, S.WITHDRAWN}),
        must=CALLS,
        core=True,
    ),
    Story(
        "cancel-while-creating",
        wish(personality="cancellable", variant="prompt", _seconds=3000),
        cancelled_while_creating,
        (S.CANCELLED,),
        frozenset({S.CANCELLATION_UNCONFIRMED, S.WITHDRAWN}),
        must=CALLS,
        core=True,
    ),
    Story("inline", wish("inline"), work, (S.SUCCEEDED,), must=FILES, core=True, check=one_copy),
    Story(
        "read-once",
        wish("once", _polls=1),
        work,
        (S.SUCCEEDED,),
        frozenset({S.RESULT_UNAVAILABLE}),
        must=FILES,
        core=True,
        orphans=True,
    ),
    Story(
        "told",
        without_reads,
        told,
        (S.SUCCEEDED,),
        must=FILES | {"delivery"},
        core=True,
        check=heard,
    ),
    Story("checkpoints", wish(_polls=1), sealed, (S.SUCCEEDED,), must=FILES | {"checkpoint"}, core=True),
)
