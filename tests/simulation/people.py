"""Agents that submit, people that approve, cancel and decide, and the provider's webhooks with their receiver."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from opledger.edges.clock import new_operation_id
from opledger.edges.secrets import SecretResolver
from opledger.errors import OpledgerError, Refused, StoreUnavailable
from opledger.ledger.deliveries import Doors
from opledger.receiver.app import Receiver
from opledger.rules.model import Choice, Operation, State
from opledger.sim.contracts import contract_name
from opledger.sim.hooks import WEBHOOK_SECRET, Account, sign
from tests.simulation.faults import Focus
from tests.simulation.loop import WORLD
from tests.simulation.ports import EPOCH
from tests.simulation.provider import FINAL, FLAVOURS, PERSONALITIES, Job
from tests.simulation.world import PHASES, World

MOODS: Final = (
    "",
    "",
    "",
    "",
    "",
    "",
    "late",
    "gone",
    "wrong",
    "wrong once",
    "short",
    "words",
    "backwards",
    "refuses cancel",
)
ENDS: Final = ("succeeded",) * 8 + ("failed", "expired", "cancelled")


@dataclass
class Plan:
    """What the people of one operation will do."""

    operation: str
    flavour: str
    personality: str
    body: dict[str, Any]
    amount: int
    cancels_after: float | None
    approvals: str  #: yes, no, never or late
    requester: str = "agent-7"


def plan(random: Random, number: int, liked: list[str], flavours: list[str], operation: str, cancels: float) -> Plan:
    """Draw an operation."""
    flavour, personality = random.choice(flavours), random.choice(liked)
    seconds = random.choice((0.5, 3.0, 10.0, 45.0, 120.0, 400.0, 1e9 if random.random() < 0.3 else 60.0))
    amount = random.choice((0, 0, 0, 0, 500, 5000))
    body: dict[str, Any] = {
        "account": f"acct_{random.randrange(3)}",
        "number": number,
        "rows": random.randrange(0, 6),
        "amount": amount,
        "_personality": personality,
        "_seconds": seconds,
        "_end": random.choice(ENDS),
        "_mood": random.choice(MOODS),
    }
    if random.random() < 0.04:
        body["_refuse"] = True
    if flavour == "batch":
        body["requests"] = [{"custom_id": f"row-{row}", "amount": row} for row in range(1, 5)]
        body["_variant"] = random.choice(("mixed", "mixed", "all_failed", "nothing", "missing", "repeated", "extra"))
    after = random.choice((0.0, 0.5, 2.0, 20.0, 100.0, 500.0)) * (0.5 + random.random())
    return Plan(
        operation,
        flavour,
        personality,
        body,
        amount,
        after if random.random() < cancels else None,
        random.choice(("yes", "yes", "yes", "no", "never", "late")),
        "jo" if amount and random.random() < 0.3 else "agent-7",
    )


class People:
    """Everybody around one ledger who is no worker."""

    def __init__(self, world: World, operations: int, focus: Focus) -> None:
        self.world, self.count, self.focus = world, operations, focus
        world.swarm.rates.update(focus.faults)
        self.random = world.people_random
        self.plans: dict[str, Plan] = {}
        self.deciding = True
        self.last: float | None = None
        self.pending_hooks = 0
        doors = Doors(world.ledger.settings, SecretResolver({"HOOK_SECRET": WEBHOOK_SECRET}))
        doors.look()
        self.receiver = Receiver(world.ledger, doors)

    def begin(self) -> None:
        """Let them all go about their business."""
        world = self.world
        world.provider.tell = self.told
        world.cancelled = self.cancelled
        world.loop.spawn(world.receiving, self.receiver.intake.run())
        world.loop.spawn(world.receiving, self._house())
        world.loop.spawn(world.people, self._submitting())
        world.loop.spawn(world.people, self._deciding())
        world.loop.spawn(WORLD, self._chaos())

    async def _house(self) -> None:
        while True:
            await asyncio.sleep(90)
            if self.world.acknowledged:
                await self.receiver._keep_house(sweep=True)

    # --- agents -----------------------------------------------------------------------------------------------------

    async def _submitting(self) -> None:
        random, world = self.random, self.world
        liked = random.sample(PERSONALITIES, random.choice((2, 3, 5, len(PERSONALITIES))))
        flavours = random.sample(FLAVOURS, random.choice((1, 2, 3, len(FLAVOURS))))
        liked, flavours = list(self.focus.personalities) or liked, list(self.focus.flavours) or flavours
        pace = random.choice((0.0, 0.5, 5.0, 30.0))
        for number in range(self.count):
            if pace:
                await asyncio.sleep(random.expovariate(1 / pace))
            one = plan(random, number, liked, flavours, new_operation_id(world.clock), self.focus.cancels)
            self.plans[one.operation] = one
            world.loop.spawn(world.people, self._life(one))
        self.last = world.loop.now

    async def _insist(self, deed: Any) -> Any:
        """Do something until the store is there; return None where a rule refuses it."""
        while True:
            try:
                return deed()
            except StoreUnavailable:
                await asyncio.sleep(1.0 + 4 * self.random.random())
            except OpledgerError as error:
                self.world.say(f"people: refused: {type(error).__name__}")
                return None

    async def _life(self, one: Plan) -> None:
        world, ledger, random = self.world, self.world.ledger, self.random
        name = contract_name(one.flavour)

        deadlines: dict[str, Any] = random.choice(({}, {}, {}, {"create_deadline": "40s"}, {"result_deadline": "20s"}))

        def submit(**more: Any) -> Any:
            asked = {**one.body, **more}
            return ledger.submit(name, asked, requested_by=one.requester, operation_id=one.operation, **deadlines)

        done = await self._insist(submit)
        if done is None:
            world.problem("submit", f"{one.operation} was refused")
            return
        if world.swarm.strikes("same id, other body", world.chance):
            world.hit("same id, other body", "create")
            if await self._insist(lambda: submit(number=-1)) is not None:
                world.problem("I2", f"{one.operation} was taken with another body")
            await self._insist(submit)
        if one.amount > 100:
            world.loop.spawn(world.people, self._approving(one))
        if one.cancels_after is not None:
            await asyncio.sleep(one.cancels_after)
            await self._insist(lambda: ledger.cancel(one.operation, reason="not needed", by="agent-7"))
            if world.swarm.strikes("two at once", world.chance):
                world.hit("two at once", "cancel")
                await self._insist(lambda: ledger.cancel(one.operation, reason="once more", by="olga"))
        elif random.random() < 0.2:
            await asyncio.sleep(random.expovariate(1 / random.choice((5, 60, 600))))
            await self._insist(lambda: ledger.ask_for_read(one.operation, by="olga"))
            await self._insist(lambda: ledger.note(one.operation, "looked at it", by="olga"))
            await self._insist(lambda: ledger.acknowledge(one.operation, by="olga"))

    async def _approving(self, one: Plan) -> None:
        world, ledger = self.world, self.world.ledger
        await asyncio.sleep(self.random.expovariate(1 / 20))
        if one.approvals == "never":
            return
        if one.approvals == "no":
            await self._insist(lambda: ledger.reject(one.operation, reason="no", by="ana"))
            return
        if one.approvals == "late":  # nobody is to be kept waiting, and nobody to be taken by surprise
            await asyncio.sleep(1_200)
        await self._insist(lambda: ledger.approve(one.operation, reason="yes", by="agent-9"))  # is refused
        other = "sha256:" + "0" * 64
        if await self._insist(lambda: ledger.approve(one.operation, reason="yes", by="ana", fingerprint=other)):
            world.problem("I22", f"{one.operation} was approved by somebody who looked at another request")
        await self._insist(lambda: ledger.approve(one.operation, reason="yes", by="ana"))
        if world.swarm.strikes("two at once", world.chance):
            world.hit("two at once", "approve")
            await self._insist(lambda: ledger.approve(one.operation, reason="yes", by="ana"))
            await self._insist(lambda: ledger.reject(one.operation, reason="no", by="jo"))
        await asyncio.sleep(self.random.expovariate(1 / 20))
        await self._insist(lambda: ledger.approve(one.operation, reason="yes", by="jo"))

    # --- people -----------------------------------------------------------------------------------------------------

    async def _deciding(self) -> None:
        while True:
            await asyncio.sleep(60 + self.random.expovariate(1 / 150))
            if self.deciding:
                await self._decide_some()

    async def _decide_some(self) -> None:
        ledger, random = self.world.ledger, self.random
        await self.resume()
        for op in await self._insist(lambda: list(ledger.list(attention=True))) or []:
            if random.random() < 0.3:
                await self._insist(lambda op=op: ledger.acknowledge(op.operation_id, by="olga"))
            if random.random() < 0.3:
                await self._insist(lambda op=op: ledger.ask_for_read(op.operation_id, by="olga"))
            if op.state is State.RESULT_TIMED_OUT and random.random() < 0.3:
                await self._insist(lambda op=op: ledger.cancel(op.operation_id, reason="too late now", by="olga"))
            elif random.random() < 0.5:
                await self._insist(lambda op=op: self._decide(op))

    def cancelled(self, operation: str) -> None:
        """Want an operation cancelled."""
        deed = self._insist(lambda: self.world.ledger.cancel(operation, reason="not any more", by="olga"))
        self.world.loop.spawn(self.world.people, deed)

    async def resume(self) -> None:
        """Let calls to providers go on."""
        ledger = self.world.ledger
        for name in await self._insist(ledger.store.paused) or {}:
            await self._insist(lambda name=name: ledger.resume_provider(name, reason="looks well", by="olga"))

    def _decide(self, op: Operation) -> None:
        ledger, random = self.world.ledger, self.random
        options = ledger.choices(op.operation_id)
        if not options or (op.state is State.CREATE_UNKNOWN and not op.exhausted):
            return
        option = options[random.randrange(len(options))]
        job = None
        if "job" in option.needs:
            mine = [one.id for one in self.world.provider.jobs_of(op.operation_id)]
            known = list(op.jobs) if option.choice is not Choice.BIND else mine
            if not known:
                return
            job = known[random.randrange(len(known))]
        if option.choice is Choice.NOT_CREATED and self.world.provider.jobs_of(op.operation_id):
            return  # people are honest here: whoever says so has looked
        span = "5m" if "for" in option.needs else None
        with suppress(Refused):
            ledger.resolve(op.operation_id, option.choice, reason="decided", by="agent-9", job=job, extend_by=span)
            self.world.problem("I22", f"an agent decided what becomes of {op.operation_id}")
        ledger.resolve(op.operation_id, option.choice, reason="decided", by="olga", job=job, extend_by=span)

    # --- webhooks ---------------------------------------------------------------------------------------------------

    def told(self, job: Job) -> None:
        """A job has begun at the provider: what it will tell of it, and how honestly."""
        if job.flavour not in ("v1", "header"):
            return
        world = self.world
        random = world.provider.random
        if random.random() < 0.4 or world.swarm.strikes("hook lost", world.chance):
            return
        early = world.swarm.strikes("hook early", world.chance)
        lies = job.personality == "liar-webhook"
        if early:
            world.hit("hook early", "webhook")
        if early or lies:
            self._tells(job, "succeeded" if lies else "queued", 0.0 if early else 1.5)
        if job.seconds < 1e8:
            self._tells(job, None, job.seconds + 0.2)

    def _tells(self, job: Job, word: str | None, delay: float) -> None:
        world = self.world
        if world.swarm.strikes("hook late", world.chance):
            world.hit("hook late", "webhook")
            delay += world.moment(1, 600)
        copies = 1
        if world.swarm.strikes("hook twice", world.chance):
            world.hit("hook twice", "webhook")
            copies = 3
        for copy in range(copies):
            self.pending_hooks += 1
            world.loop.spawn(WORLD, self._send(job, word, delay + copy * 3.0))

    async def _send(self, job: Job, word: str | None, delay: float) -> None:
        world = self.world
        await asyncio.sleep(delay)
        said = word or job.word(world.loop.now)
        event = f"evt_{job.id}_{job.order}_{said}"
        data = {"id": job.id, "client_ref": job.ref, "state": said}
        body = json.dumps({"id": event, "type": f"job.{said}", "data": data}).encode()
        manner, age = "plain", 0.0
        if world.swarm.strikes("hook forged", world.chance):
            manner, event = "forged", event + "_forged"
        elif world.swarm.strikes("hook stale", world.chance):
            age, event = 3600.0, event + "_stale"
        if manner == "forged" or age:
            world.hit("hook forged" if manner == "forged" else "hook stale", "webhook")
            world.forged.add(event)
        try:
            for _ in range(12):
                at = int((EPOCH.timestamp()) + world.loop.now - age)
                headers = sign(Account("", manner=manner), event, at, body)
                status = await self._deliver(contract_name(job.flavour), headers, body)
                world.steps.calls += 1
                world.say(f"provider tells {event}: {status}")
                if status == 202:
                    if event in world.forged:
                        world.problem("I18", f"the delivery {event} was taken")
                    world.acknowledged[event] = job.ref or ""
                    return
                if event in world.forged:
                    return
                await asyncio.sleep(world.moment(5, 60))
        finally:
            self.pending_hooks -= 1

    async def _deliver(self, name: str, headers: dict[str, str], body: bytes) -> int:
        status: list[int] = []
        raw = [(key.encode(), value.encode()) for key, value in headers.items()]
        raw += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        scope = {
            "type": "http", "method": "POST", "path": f"/webhooks/{name}", "raw_path": b"", "query_string": b"",
            "headers": raw, "server": ("receiver", 80), "client": ("provider", 1), "scheme": "http",
            "http_version": "1.1", "root_path": "",
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        world = self.world
        await world.loop.spawn(world.receiving, self.receiver.app(scope, receive, send))
        return status[0]

    # --- what happens to processes ----------------------------------------------------------------------------------

    async def _chaos(self) -> None:
        world = self.world
        while True:
            await asyncio.sleep(self.world.chance.expovariate(1 / 25))
            for fault in ("killed anywhere", "stalled anywhere", "clock ahead", "clock back", "told to end"):
                if world.swarm.strikes(fault, world.chance):
                    self._strike(fault)

    def _strike(self, fault: str) -> None:
        world = self.world
        slot = world.slots[world.chance.randrange(len(world.slots))]
        process = slot.process
        busy = "idle"
        if slot.worker is not None and slot.worker._drives:
            drive, _ = next(iter(slot.worker._drives.values()))
            busy = PHASES.get(drive.op.state.value, "ended")
        world.hit(fault, busy)
        if fault == "clock ahead":
            world.clock.jump(world.chance.choice((5.0, 60.0, 900.0)))
        elif fault == "clock back":
            world.clock.jump(-world.chance.choice((0.5, 2.0, 10.0)))
        elif process is None or process.dead:
            return
        elif fault == "killed anywhere":
            world.kill(process)
        elif fault == "told to end":
            world.tell_to_end(slot)
        else:
            world.loop.stall(process, world.moment(5.0, 150.0))


def settled(job: Job, now: float) -> bool:
    """Tell whether a job has ended."""
    return job.word(now) in FINAL
