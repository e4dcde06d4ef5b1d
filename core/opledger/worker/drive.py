"""Driving one claimed operation: decide, act, and again until it must wait or needs a person."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from opledger.errors import ConfigWrong, OpledgerError, Refused, SecretWrong, StoreUnavailable
from opledger.rules import decide
from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.model import Action
from opledger.worker.actions import cancel, create, reconcile
from opledger.worker.collect import collect
from opledger.worker.deliveries import hand_over_parked, read_delivery
from opledger.worker.hand import Dropped, Hand
from opledger.worker.observe import observe
from opledger.worker.second_job import look_for_second_job

log = logging.getLogger("opledger.worker")

MOST_STEPS: Final = 32
"""Most steps of one drive; a record that wants more in one go is handed back and claimed again."""


class Drive(Hand):
    """One operation under one lease, driven by what the rules decide."""

    async def run(self) -> None:
        """Drive until the record must wait or needs a person; leave no lease behind."""
        try:
            if self.taken_from not in (None, self.shop.name):
                await self.record(e.LeaseTaken(self.shop.name, self.held.epoch, self.taken_from or ""), "recovery")
            for _ in range(MOST_STEPS):
                # A worker that was told to stop ends what it has begun, and begins nothing new.
                if self.released or self.shop.leaving() or not await self._step():
                    break
        except Dropped as reason:
            log.info("dropped %s: %s", self.op.operation_id, reason)
        except OpledgerError:
            # Tried again once the lease has run out. At once would be again and again, as fast as the machine can.
            self.held.lost = True
            raise
        finally:
            if not self.released and not self.held.lost:
                await asyncio.shield(self.release())

    async def read_now(self, contract: Contract) -> None:
        """Do one status read, recorded, and give the lease back. Raises Dropped where the record moved on."""
        try:
            await observe(self, contract)
        finally:
            if not self.released and not self.held.lost:
                await asyncio.shield(self.release())

    async def _step(self) -> bool:
        shop = self.shop
        contract = shop.contract_of(self.op.contract_digest)
        paused = shop.paused(self.op.contract)
        decision = decide.decide(self.op, contract, shop.clock.now(), paused=paused)
        waiting = isinstance(decision, decide.Wait)
        if paused is None and await look_for_second_job(self, contract, waiting=waiting):
            return True
        if isinstance(decision, decide.Read):
            await read_delivery(self, contract, decision)
            return True
        looks = contract.status.by_delivery and self.op.remote_job_id is not None
        if looks and isinstance(decision, decide.Wait | decide.Conclude) and await hand_over_parked(self):
            return True
        if isinstance(decision, decide.Conclude):
            await self.record(decision.evidence, decision.cause, reason=decision.because)
            return True
        return isinstance(decision, decide.Call) and await self._act(decision, contract)

    async def _act(self, decision: decide.Call, contract: Contract) -> bool:
        """Make a call; False where nothing more can be done for now."""
        try:
            if decision.action is Action.OBSERVE:
                await observe(self, contract)
            elif decision.action is Action.CREATE:
                await create(self, contract)
            elif decision.action is Action.RECONCILE:
                await reconcile(self, contract, contract.reconcile[decision.strategy or 0])
            elif decision.action is Action.CANCEL:
                await cancel(self, contract)
            else:
                await collect(self, contract)
        except ConfigWrong as wrong:
            # A secret that does not resolve, a record without a usable address: the provider is paused, one
            # escalation, and its operations wait.
            await self._misconfigured(decision.action, wrong)
            return False
        except Refused as refused:
            # This record alone cannot be called about: it backs off and shows, and its provider is not paused.
            log.warning("%s: %s", self.op.operation_id, refused)
            if self.op.open_call is not None or decision.action not in (Action.OBSERVE, Action.COLLECT):
                raise
            await self.record(e.ReadFailed(action=decision.action, why=refused.message), "recovery")
            return False
        except StoreUnavailable as error:
            if self.held.lost or decision.action is not Action.COLLECT:
                raise
            # The results' folder, not the database: the result stays where it is, and is fetched when there is room.
            log.warning("%s: %s", self.op.operation_id, error)
            await self.record(e.ReadFailed(action=Action.COLLECT, why=error.message, code="storage"), "recovery")
            return False
        return True

    async def _misconfigured(self, action: Action, wrong: ConfigWrong) -> None:
        if isinstance(wrong, SecretWrong):
            # Missing here, on this machine: another worker may have it, so the provider is not paused for everybody.
            self.shop.skip(self.shop.contract_of(self.op.contract_digest), wrong.message)
        else:
            log.warning("paused %s: %s", self.op.contract, wrong)
            await self.shop.pause(self.op.contract, wrong.message)
        if self.op.open_call is not None:
            call = self.op.open_call
            undone: e.Evidence = e.NotDelivered(call_id=call.call_id, action=call.action, why=wrong.message)
            if call.action is Action.RECONCILE:
                undone = e.Inconclusive(call_id=call.call_id, why=wrong.message, strategy=call.detail or None)
            await self.record(undone, f"call:{call.call_id}")
        elif action in (Action.OBSERVE, Action.COLLECT):
            await self.record(e.ReadFailed(action=action, why=wrong.message, code="credentials"), "recovery")
