"""What is looked at before a decision: the review of a request, and the operations that one cancel would stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from opledger.ledger.signing import needed
from opledger.rules import cancels, jsontext
from opledger.rules.contract import Contract
from opledger.rules.guarantees import guarantees
from opledger.rules.model import Operation
from opledger.rules.packet import request_shown
from opledger.rules.review import most_alike, review
from opledger.store import Answer, Filter

if TYPE_CHECKING:
    from opledger.ledger.reading import Reading

COMPARED: Final = 200
"""How many of the newest operations of a contract are looked through for one that is much like a request."""


def review_of(ledger: Reading, op: Operation) -> dict[str, Any]:
    """Return the review of a request as data."""
    contract = ledger.contract_of(op)
    body = ledger.body_of(op)
    candidates = list(ledger.store.queries.list(Filter(contract=op.contract), limit=COMPARED).operations)
    if op.supersedes is not None and all(one.operation_id != op.supersedes for one in candidates):
        candidates.append(ledger.store.get(op.supersedes))
    wanted = [one for one in candidates if not one.state.terminal or one.operation_id == op.supersedes]
    others = [(one, ledger.body_of(one)) for one in wanted if one.operation_id != op.operation_id]
    request = request_shown(contract, ledger.store.request_of(op.operation_id))
    demand = ledger.demand(op)
    demand = replace(demand, signed=needed(ledger, op, demand))
    return review(op, contract, guarantees(contract), demand, request, most_alike(op, body, others))


def shown_to(ledger: Reading, op: Operation) -> Answer:
    """Return the review as it is kept beside an approval; its hash stands in the event."""
    return Answer.of(jsontext.dumps(review_of(ledger, op)), "application/json")


def sharing(ledger: Reading, op: Operation, contract: Contract) -> list[Operation]:
    """Return the other operations that a cancel of this one would stop."""
    mine = cancels.target(op, contract) if cancels.shared(contract) else None
    if mine is None:
        return []
    live = Filter(contract=op.contract, states=tuple(sorted(state.value for state in cancels.LIVE)))
    found: list[Operation] = []
    after = None
    while True:
        page = ledger.store.queries.list(live, limit=1000, after=after)
        found += [
            other
            for other in page.operations
            if other.operation_id != op.operation_id and cancels.target(other, ledger.contract_of(other)) == mine
        ]
        after = page.after
        if after is None:
            return found
