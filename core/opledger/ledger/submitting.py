"""Writing new operations down: each wish is judged by itself, and all that may be written go in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from opledger import config
from opledger.edges.clock import Clock, new_operation_id, new_trace_id
from opledger.edges.place import acting
from opledger.errors import BodyConflict, OpledgerError, UnknownOperation
from opledger.ledger.shelf import Shelf
from opledger.rules import decide, human, wishes
from opledger.rules.contract import Contract
from opledger.rules.model import Operation
from opledger.rules.wishes import Wish
from opledger.store import Declined, Filter, Opening, Recorded, Store, TokenTaken

Outcome = Operation | OpledgerError


@dataclass(frozen=True, slots=True)
class Submitting:
    """What it takes to submit: where to write, what is configured, and how to find what was submitted before."""

    store: Store
    settings: config.Settings
    clock: Clock
    shelf: Shelf
    find: Callable[[str], Operation]
    contract_of: Callable[[Operation], Contract]

    def submit_many(self, asked: Sequence[Wish]) -> tuple[Outcome, ...]:
        """Return the operation of each wish, or why there is none."""
        settled: dict[int, Outcome] = {}
        openings: dict[int, Opening] = {}
        read: dict[str, Contract] = {}
        for index, wish in enumerate(asked):
            try:
                first = self._first(wish)
                if first is not None:
                    settled[index] = first
                else:
                    openings[index] = self._opening(wish, read)
            except OpledgerError as error:
                settled[index] = error
        written = self.store.open_many(list(openings.values())) if openings else []
        for index, outcome in zip(openings, written, strict=True):
            if isinstance(outcome, Recorded):
                settled[index] = outcome.operation
            else:
                settled[index] = self._second_look(asked[index], outcome)
        return tuple(settled[index] for index in range(len(asked)))

    def _first(self, wish: Wish) -> Operation | None:
        """Return the operation that has this wish's id already. Raises BodyConflict for another body."""
        wishes.check(wish)
        human.actor(wish.requested_by)
        if wish.operation_id is None:
            return None
        try:
            first = self.store.get(wish.operation_id)
        except UnknownOperation:
            return None
        return wishes.same(wish, first, self.contract_of(first))

    def _opening(self, wish: Wish, read: dict[str, Contract]) -> Opening:
        contract = read.get(wish.contract)
        if contract is None:
            contract = read[wish.contract] = self.shelf.take(wish.contract)
        if wish.supersedes is not None:
            wish = replace(wish, supersedes=self.find(wish.supersedes).operation_id)
        operation_id = wish.operation_id or new_operation_id(self.clock)
        demand = wishes.needs(wish, contract, operation_id, self.settings.policies)
        admitted = wishes.admit(wish, contract, operation_id=operation_id, trace_id=new_trace_id(), demand=demand)
        submitted, now, jitter = admitted.submitted, self.clock.now(), self.clock.random()
        return Opening(
            operation_id=operation_id,
            evidence=submitted,
            request=admitted.request,
            actor=acting(human.actor(wish.requested_by)),
            at=now,
            cause="submit",
            plan=lambda op: decide.plan(op, contract, submitted, now, jitter),
        )

    def _second_look(self, wish: Wish, outcome: Declined) -> Outcome:
        """Judge again what somebody else submitted in the same instant, or before the contract was edited."""
        if not isinstance(outcome.error, BodyConflict | TokenTaken):
            return outcome.error
        try:
            first = self._first(wish) or self._of_step(wish)
            return outcome.error if first is None else wishes.same(wish, first, self.contract_of(first))
        except OpledgerError as error:
            return error

    def _of_step(self, wish: Wish) -> Operation | None:
        if wish.task is None:
            return None
        after = None
        while True:
            page = self.store.queries.list(Filter(task=wish.task), after=after)
            found = next((op for op in page.operations if op.step == wish.step), None)
            if found is not None or page.after is None:
                return found
            after = page.after
