"""What must hold in every world, told from the provider's side, and on the way from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opledger.rules.contract import Contract
from opledger.rules.model import TERMINAL, Action, Operation, State
from tests.model.book import Broken

if TYPE_CHECKING:
    from tests.model.world import Model, Remote, World

LIVE: Final = frozenset("RXS")
MOST_CANCELS: Final = 5


def permit(op: Operation, contract: Contract, action: Action, *, resend: bool) -> None:
    """What may not even be permitted, by the record as it stands. Raises Broken."""
    if op.state in TERMINAL or op.state is State.CONTRACT_VIOLATION:
        raise Broken(f"I3: a {action} is permitted while the operation is {op.state}")
    if action is Action.CREATE and op.cancel is not None:
        raise Broken("a create is permitted though a cancel is wanted")
    look_ups = any(one.strategy != "resend" for one in contract.reconcile)
    if op.cancel is not None and resend and look_ups:
        raise Broken("a resend is permitted though a cancel is wanted and a look-up could tell as much")


def owned(before: Operation, after: Operation, *, current: bool) -> None:
    """Nobody changes a state who was overtaken. Raises Broken."""
    if not current and after.state is not before.state and after.state is not State.CONTRACT_VIOLATION:
        raise Broken(f"I11: a worker that was overtaken took the record from {before.state} to {after.state}")


def kept(before: Operation, after: Operation) -> None:
    """A worker's write takes nothing back that others have recorded. Raises Broken."""
    if before.cancel is not None and after.cancel is None:
        raise Broken("I11: a cancel that a person recorded was written over")
    if not set(before.jobs) <= set(after.jobs):
        raise Broken("I11: a job that was known was written over")


def leaves(*, current: bool, standing: bool) -> None:
    """Nothing leaves but under a lease. Raises Broken."""
    if not (current and standing):
        raise Broken("I12: an effectful call leaves without a lease that stands")


def learnt(op: Operation, job: str) -> None:
    """A job id that reached a worker is in the record, whoever holds it by then. Raises Broken."""
    if job not in op.jobs:
        raise Broken(f"I11: the answer that named job {job} was dropped")


def broken(model: Model, world: World) -> str | None:
    """Say which law this world breaks, or None."""
    for k, number in enumerate(world.ops):
        op, remote = model.book.records[number], world.remote[k]
        found = (
            _first(model, world, k, op, remote)
            or _ended(op, remote, honest=model.honest)
            or _cancelled(model, op, remote)
        )
        if found is not None:
            return found
    return _one_owner(world) or _one_id(model, world)


def _first(model: Model, world: World, k: int, op: Operation, remote: Remote) -> str | None:
    creating = any(message.k == k and message.kind == "create" for message in world.net)
    if (remote.jobs or creating) and op.first_sent_at is None:
        return "I1: a create is on the wire, and the record says that nothing was ever sent"
    if (remote.jobs or creating) and len({one.by for one in op.approvals}) < op.approvals_needed:
        return "I22: a create is on the wire without the approvals it needs"
    if len(remote.jobs) > 1 and model.honest and not remote.duplicate:
        return f"I2/I4/I6: two jobs for one wish: {', '.join(job for job, _ in remote.jobs)}"
    if len(op.jobs) > 1 and not remote.decided and op.state not in TERMINAL | {State.CONTRACT_VIOLATION}:
        return f"I3: jobs {', '.join(op.jobs)} came under one token, and the operation goes on as {op.state}"
    if op.remote_job_id is not None and op.remote_job_id not in op.jobs:
        return f"job {op.remote_job_id} is bound and was never heard of"
    return None


def _ended(op: Operation, remote: Remote, *, honest: bool) -> str | None:
    status = dict(remote.jobs).get(op.remote_job_id or "")
    if op.state is State.SUCCEEDED and (op.result is None or not op.result.validated or op.result.location is None):
        return "I15: succeeded without a good result"
    if op.state in (State.SUCCEEDED, State.RESULT_COLLECTING) and status not in ("S", None):
        return f"I15: {op.state}, and the job is {status}"
    if op.state is State.CANCELLED and status != "C":
        return f"cancelled, and the provider never said so: the job is {status}"
    if remote.decided or remote.duplicate:
        return None
    # A second job that a provider starts in silence against its word is known to nobody (reliability.md, 6.3).
    told = [(job, was) for job, was in remote.jobs if honest or job in op.jobs]
    alive = [job for job, was in told if was in LIVE]
    if op.state is State.FAILED and alive:
        return f"I5/I16: failed, and job {alive[0]} runs or has succeeded"
    if op.state in (State.WITHDRAWN, State.REJECTED) and told:
        return f"{op.state}, and job {told[0][0]} was created"
    return None


def _cancelled(model: Model, op: Operation, remote: Remote) -> str | None:
    cancel = model.contract.cancel
    most = 0 if cancel is None else MOST_CANCELS if cancel.idempotent else 1
    if remote.cancels > most:
        return f"I8: {remote.cancels} cancel requests under one intent"
    if remote.cancels and (op.cancel is None or not op.cancel.sent) and not remote.decided:
        return "I9: a cancel is on the wire, and the record has no intent or no permit for it"
    return None


def _one_owner(world: World) -> str | None:
    held = [drive.k for drive in world.drives if drive.current]
    if len(set(held)) < len(held):
        return "I10: two workers hold one operation"
    return None


def _one_id(model: Model, world: World) -> str | None:
    bound: dict[str, int] = {}
    for k, number in enumerate(world.ops):
        op = model.book.records[number]
        if op.remote_job_id is None or op.state in TERMINAL or op.state is State.CONTRACT_VIOLATION:
            continue
        if world.remote[k].decided:
            continue
        if op.remote_job_id in bound:
            return f"I3: job {op.remote_job_id} belongs to two operations, and both go on"
        bound[op.remote_job_id] = k
    return None
