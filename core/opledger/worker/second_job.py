"""After a resend: is the job that it brought the only one under our reference? (B04)

A provider that ignores tokens starts a second job on a resend and answers with that one; only its list tells. The look
is owed until it has been made: by whom and when does not matter, but before anything else is done with the job.
"""

from __future__ import annotations

from typing import Final

from opledger.edges.clock import new_id
from opledger.rules import answers, lookups, requests
from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.journal import read_body
from opledger.rules.model import Action, Operation, State
from opledger.worker.hand import Hand
from opledger.worker.looking import read_pages, shows_all

TRIES: Final = 5
"""How often a look-up without a verdict is made again. Then the job is polled all the same, and the journal says so."""

_TOLD: Final = "after the resend, "
_RECENT: Final = 200
_NOTICED: Final = frozenset(violation.__name__ for violation in e.VIOLATIONS)


async def look_for_second_job(drive: Hand, contract: Contract, *, waiting: bool) -> bool:
    """Look at the provider's list where that is owed; False where it is not, or must wait after a try in vain."""
    strategy = shows_all(contract)
    if strategy is None or not drive.op.attempts.reconcile or not _untouched(drive.op):
        return False
    tries = await drive.shop.commits.run(lambda: _tries(drive))
    if tries is None or (waiting and tries):
        return False
    call_id = new_id("call")
    look_up = requests.look_up(drive.op, contract, strategy)
    reading, kept = await read_pages(drive, contract, lookups.Search(strategy), look_up, call_id, permitted=False)
    if isinstance(reading.evidence, e.Violation):
        await drive.settle(reading, call_id, kept, release=True)
        return True
    found = _verdict(reading.evidence)
    if found is None and tries + 1 < TRIES:
        await drive.settle(_failed(reading, call_id), call_id, kept, release=True)
        return True
    found = found or "gave no usable answer: whether a second job runs is not known"
    await drive.record(e.Noted(f"{_TOLD}{strategy.strategy} {found}"), f"call:{call_id}", answer=kept)
    return True


def _untouched(op: Operation) -> bool:
    """Tell whether nothing has been done with the job yet, also where a deadline or a cancel came before the look."""
    return op.state is State.ACCEPTED or (op.state in (State.OBSERVING, State.CANCELLING) and op.observed_at is None)


def _tries(drive: Hand) -> int | None:
    """How often the look was tried in vain; None where it is not owed. The journal tells, so no death can skip it."""
    tries = 0
    rows = drive.shop.store.queries.events(drive.op.operation_id, max(drive.op.head_seq - _RECENT, 0))
    for row in reversed(rows):
        if row.kind in _NOTICED:
            return None  # a person has seen it, and has said which job counts
        if row.kind not in ("Accepted", "Noted", "ReadFailed"):
            continue
        evidence = read_body(row.body).entry.evidence
        if isinstance(evidence, e.Accepted):
            return tries if evidence.how == "resend" else None
        if isinstance(evidence, e.Noted) and evidence.text.startswith(_TOLD):
            return None
        tries += isinstance(evidence, e.ReadFailed) and evidence.action is Action.RECONCILE
    return None


def _verdict(evidence: e.Evidence) -> str | None:
    """What the list shows, in words; None where it shows nothing yet, or could not be read."""
    if isinstance(evidence, e.Accepted):
        return "shows one job under our reference, ours"
    if isinstance(evidence, e.ProvenAbsent) or (
        isinstance(evidence, e.Inconclusive) and evidence.absent and evidence.retry_at is None
    ):
        return "shows no other job under our reference"
    return None


def _failed(reading: answers.Reading, call_id: str) -> answers.Reading:
    """A look-up without a verdict, as a read that told us nothing."""
    said = reading.evidence
    assert isinstance(said, e.Answered)
    failed = e.ReadFailed(
        call_id=call_id,
        status=said.status,
        answer=said.answer,
        notes=said.notes,
        action=Action.RECONCILE,
        why=f"whether a second job runs is not known: {getattr(said, 'why', said.kind)}",
        retry_at=getattr(said, "retry_at", None),
    )
    return answers.Reading(failed, credentials=reading.credentials)
