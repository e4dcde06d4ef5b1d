"""What can happen next: two drives of workers, a network, a provider, people, and time.

The worker's shell is told again here in a few lines (permit, send, answer, record, and a lease around them); what it
decides, what answers mean and what a record becomes are the product's own rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from opledger.rules import decide, human
from opledger.rules import evidence as e
from opledger.rules.choices import choices
from opledger.rules.decisions import Call, Conclude
from opledger.rules.model import Action, Actor, Choice, Operation, State
from tests.model import laws
from tests.model.book import Book, Broken, Code, at, name
from tests.model.scenarios import MEMORY, TICK, Scenario

FREE, HELD, EXPIRED = 0, 1, 2
"""What a lease is."""


class Drive(NamedTuple):
    """One drive of a worker: what it holds, its copy of the record, and how far it is."""

    k: int
    current: bool  #: nobody took the operation over since
    copy: int
    phase: str  #: held, permit, wait, got
    action: Action | None = None
    how: int = 0  #: the reconcile strategy
    call: str = ""
    code: Code = ()


class Message(NamedTuple):
    """A request on its way."""

    k: int
    kind: str
    call: str
    sent: int
    job: str = ""


class Remote(NamedTuple):
    """What the provider has of one operation, and what the model remembers of it beside every record."""

    jobs: tuple[tuple[str, str], ...] = ()  #: (id, R running, X told to stop, S succeeded, F failed, C cancelled)
    known: int = 0  #: since when the token is known, plus one; 0: never seen
    valid: int = 0  #: 0 not judged yet, 1 taken, 2 refused: the same bytes are judged the same
    duplicate: bool = False  #: a person let a possible second one be sent
    decided: bool = False  #: a person decided: the state is their word
    cancels: int = 0  #: cancel requests that left under the present intent


class Left(NamedTuple):
    """How much may still go wrong."""

    crashes: int
    expiries: int
    doubles: int
    cancels: int
    decisions: int


class World(NamedTuple):
    """Everything there is."""

    now: int
    ops: tuple[int, ...]
    leases: tuple[int, ...]
    drives: tuple[Drive, ...]
    net: tuple[Message, ...]
    remote: tuple[Remote, ...]
    left: Left


Label = tuple[Any, ...]
Step = tuple[Label, World]


@dataclass
class Shell:
    """What the shell around the rules guarantees. A broken design turns one of these off."""

    fence: bool = True  #: a write of a drive that was overtaken is refused
    same_owner: bool = False  #: the fence looks at the owner's name only, and both drives have one
    live: bool = True  #: a permit is refused where the lease has run out
    checks_lease: bool = True  #: the lease is looked at once more before the bytes leave
    checks_window: bool = True  #: and so is the token's memory
    permit_first: bool = True  #: the permit is durable before the bytes leave
    keeps_late: bool = True  #: an answer that came too late is noted
    one_id: bool = True  #: one job id cannot be bound to two operations
    exclusive: bool = True  #: an operation under a standing lease is not claimed
    transport_retries: bool = False  #: the transport repeats a request that got no answer
    reuses_permit: bool = False  #: after a lost answer the worker sends again under the same permit
    new_token: bool = False  #: each attempt has a token of its own
    webhook_trusted: bool = False  #: a delivery is taken for a status read
    forgets: bool = False  #: a lost answer is not recorded; the record looks as if nothing had been sent
    permits_by_version: bool = True  #: a permit is given only on the very record that it was decided on
    copies_lie: bool = False  #: a write goes onto the worker's own copy, whatever the record is by now
    judged_late: bool = False  #: a list is judged by when it was read to its end, not by when it was asked for


def _put(items: tuple[Any, ...], k: int, value: Any) -> tuple[Any, ...]:
    return (*items[:k], value, *items[k + 1 :])


def ends(world: World, job: str, end: str) -> World:
    """A job ends at the provider, whichever operations it was given to."""
    remote = tuple(
        one._replace(jobs=tuple((other, end if other == job else was) for other, was in one.jobs))
        for one in world.remote
    )
    return world._replace(remote=remote)


LOST: Final[Code] = ("lost",)
NOT_DELIVERED: Final[Code] = ("nd",)


class Model:
    """The successors of a world."""

    def __init__(self, scenario: Scenario, shell: Shell | None = None) -> None:
        self.scenario = scenario
        self.shell = shell or Shell()
        self.book = Book(scenario)
        self.contract = scenario.contract
        self.honest = scenario.manners == "honest"
        self.tokens = self.contract.create.idempotency.mechanism != "none"

    def start(self) -> World:
        """The world in which everything was submitted and nothing happened yet."""
        n, one = self.scenario.operations, self.scenario
        ops = tuple(self.book.submit(k) for k in range(n))
        left = Left(one.crashes, one.expiries, one.doubles, one.cancels * n, one.decisions)
        return World(0, ops, (FREE,) * n, (), (), (Remote(),) * n, left)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that can happen next. Raises Broken where a step itself breaks a law."""
        for index in range(len(world.drives)):
            yield from self._drive_steps(world, index)
        yield from self._claims(world)
        for index in range(len(world.net)):
            yield from self.arrivals(world, index)
        yield from self._jobs_end(world)
        yield from self._people(world)
        yield from self._time(world)

    # --- workers -----------------------------------------------------------------------------------------------

    def _claims(self, world: World) -> Iterator[Step]:
        if len(world.drives) >= self.scenario.drives:
            return
        for k, lease in enumerate(world.leases):
            if (lease == HELD and self.shell.exclusive) or self.book.resting(world.ops[k], world.now):
                continue
            if isinstance(self.book.decide(world.ops[k], world.now), decide.Wait) and lease == FREE:
                continue
            yield ("a worker claims", k), self.claim(world, k)

    def claim(self, world: World, k: int) -> World:
        """A worker takes an operation, over from another one where a lease has run out."""
        drives = world.drives
        if world.leases[k] == HELD and any(one.k == k and one.current for one in drives):
            raise Broken("I10: an operation is taken from a worker whose lease stands")
        if not self.shell.same_owner:
            drives = tuple(one._replace(current=False) if one.k == k else one for one in drives)
        drives = (*drives, Drive(k, True, world.ops[k], "held"))
        return world._replace(leases=_put(world.leases, k, HELD), drives=tuple(sorted(drives, key=_order)))

    def _drive_steps(self, world: World, index: int) -> Iterator[Step]:
        drive = world.drives[index]
        k = drive.k
        if world.left.crashes and drive.phase != "held":
            gone = self._without(world, index)
            yield (
                ("a worker dies", k, drive.phase),
                gone._replace(left=world.left._replace(crashes=world.left.crashes - 1)),
            )
        yield from self.moves(world, index)

    def moves(self, world: World, index: int) -> Iterator[Step]:
        """What a drive may do next, if it lives; first what it does where nothing goes wrong."""
        drive = world.drives[index]
        k = drive.k
        if drive.phase == "held":
            yield from self._decides(world, index)
        elif drive.phase == "permit":
            yield from self._leaves(world, index)
        elif drive.phase == "wait":
            if not self.scenario.quiet or not any(m.k == k and m.call == drive.call for m in world.net):
                yield ("no answer comes", k, drive.action), self.got(world, index, LOST)
        else:
            yield ("the outcome is recorded", k, drive.code), self.record(world, index)

    def _decides(self, world: World, index: int) -> Iterator[Step]:
        drive = world.drives[index]
        k = drive.k
        decision = self.book.decide(drive.copy, world.now)
        if isinstance(decision, Conclude):
            fresh = drive.copy == world.ops[k] and drive.current
            after = self._write(world, index, decision.evidence, decision.cause, must=fresh)
            yield ("concludes", k, decision.evidence.kind), after
        elif isinstance(decision, Call):
            if decision.action in (Action.OBSERVE, Action.COLLECT):
                for code in self._readings(world, k, decision.action, drive.copy):
                    got = drive._replace(phase="got", action=decision.action, call="read", code=code)
                    yield (decision.action.value, k, code), self._with(world, index, got)
            else:
                yield from self._permits(world, index, decision)
        else:
            yield ("lets go", k), self._release(world, index)

    def _permits(self, world: World, index: int, decision: Call) -> Iterator[Step]:
        drive, shell = world.drives[index], self.shell
        k, action, how = drive.k, decision.action, decision.strategy or 0
        call = self._call_id(world, k)
        resend = action is Action.RECONCILE and self.contract.reconcile[how].strategy == "resend"
        sent = e.CallSent(
            call, action, "POST", "/", 1, None,
            self.contract.reconcile[how].strategy if action is Action.RECONCILE else None,
            may_create=resend or action is Action.CREATE,
        )  # fmt: skip
        ready = drive._replace(phase="permit", action=action, how=how, call=call)
        if not shell.permit_first:
            yield ("makes ready", k, action), self._with(world, index, ready)
            return
        if shell.live and world.leases[k] == EXPIRED and drive.current:
            yield ("its lease has run out", k), self._without(world, index)
            return
        fresh = drive.copy == world.ops[k] and drive.current
        after = self._write(world, index, sent, "call:c", must=fresh, then=ready)
        yield ("permit to", k, action, call), after

    def _leaves(self, world: World, index: int) -> Iterator[Step]:
        """The bytes leave, or they do not."""
        drive, shell = world.drives[index], self.shell
        k, action = drive.k, drive.action
        assert action is not None
        resend = action is Action.RECONCILE and self.contract.reconcile[drive.how].strategy == "resend"
        if shell.checks_lease and (world.leases[k] == EXPIRED or not drive.current):
            undone: e.Evidence = e.NotDelivered(call_id=drive.call, action=action, why="stopped")
            if action is Action.RECONCILE:
                undone = e.Inconclusive(call_id=drive.call, why="stopped", strategy="resend")
            yield ("nothing is sent: the lease has run out", k), self._write(world, index, undone, "call:c")
            return
        if action is Action.RECONCILE and not resend:
            for code in self._listings(world, k):
                yield ("looks up", k, code), self.got(world, index, code)
            return
        if resend and shell.checks_window:
            op = self.book.records[drive.copy]
            if not decide.may_resend(op, self.contract, at(world.now)):
                late = e.Inconclusive(call_id=drive.call, why="too late", strategy="resend", next_strategy=True)
                yield ("nothing is sent: the window has passed", k), self._write(world, index, late, "call:c")
                return
        laws.leaves(current=drive.current, standing=world.leases[k] == HELD)
        kind = "cancel" if action is Action.CANCEL else "create"
        job = self.book.cancel_job(drive.copy) if kind == "cancel" else ""
        message = Message(k, kind, drive.call, world.now, job)
        sent = world._replace(net=tuple(sorted((*world.net, message))))
        if kind == "cancel":
            remote = world.remote[k]
            sent = sent._replace(remote=_put(world.remote, k, remote._replace(cancels=remote.cancels + 1)))
        yield ("sends", k, kind, drive.call), self._with(sent, index, drive._replace(phase="wait"))
        if not self.scenario.quiet:
            yield ("could not connect", k, kind), self.got(world, index, NOT_DELIVERED)

    def _readings(self, world: World, k: int, action: Action, copy: int) -> Iterator[Code]:
        job = self.book.records[copy].remote_job_id
        status = dict(pair for one in world.remote for pair in one.jobs).get(job or "")
        if action is Action.COLLECT:
            if status == "S":
                yield ("file",)
                if not self.scenario.quiet:
                    yield from (("bad",), ("gone",), ("503",))
            yield ("soon",)
            return
        if status is not None:
            words = {"R": "running", "X": "running", "S": "succeeded", "F": "failed", "C": "cancelled"}
            yield ("word", words[status])
        if not self.scenario.quiet:
            yield from (("word", "cancelling?"), ("404",), ("503",), ("lost",))

    def _listings(self, world: World, k: int) -> Iterator[Code]:
        words = {"R": "running", "X": "running", "S": "succeeded", "F": "failed", "C": "cancelled"}
        yield ("list", tuple((job, words[status]) for job, status in world.remote[k].jobs), world.now)
        if not self.scenario.quiet:
            yield ("503",)

    def _call_id(self, world: World, k: int) -> str:
        used = {drive.call for drive in world.drives if drive.k == k}
        used |= {message.call for message in world.net if message.k == k}
        open_call = self.book.records[world.ops[k]].open_call
        if open_call is not None:
            used.add(open_call.call_id)
        return next(call for call in ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9") if call not in used)

    # --- recording ---------------------------------------------------------------------------------------------

    def record(self, world: World, index: int) -> World:
        """Record what an answer means, to this worker."""
        drive = world.drives[index]
        k, action = drive.k, drive.action
        assert action is not None
        if drive.code == LOST and self.shell.forgets:
            after = self._release(world, index)
            op = self.book.records[after.ops[k]]
            return after._replace(ops=_put(after.ops, k, self.book.number(_forgotten(op))))
        if drive.code == LOST and self.shell.reuses_permit and action is not Action.OBSERVE:
            return self._with(world, index, drive._replace(phase="permit", code=()))
        # A list shows what there was when it was asked for, however long the answer takes (looking.py).
        asked = drive.code[2] if drive.code[0] == "list" and not self.shell.judged_late else world.now
        evidence = self.book.read(drive.copy, action, drive.how, drive.call, drive.code, asked)
        after = self._write(world, index, evidence, "call:c")
        if drive.code[0] == "job":
            laws.learnt(self.book.records[after.ops[k]], drive.code[1])
        return after

    def _write(
        self,
        world: World,
        index: int,
        evidence: e.Evidence,
        cause: str,
        *,
        must: bool = False,
        then: Drive | None = None,
    ) -> World:
        """A fenced write of a drive; then it holds on (`then`) or lets go. `must`: a refusal breaks a law."""
        drive, shell = world.drives[index], self.shell
        k = drive.k
        if shell.fence and not drive.current:
            return self._without(self._late(world, k, evidence), index)
        truth = drive.copy if shell.copies_lie else world.ops[k]
        if shell.permits_by_version and isinstance(evidence, e.CallSent) and drive.copy != world.ops[k]:
            return self._release(world, index)
        after = self.book.apply(truth, evidence, world.now, cause)
        if isinstance(after, str):
            if must:
                raise Broken(f"a worker with a true copy and a true lease does what the table refuses: {after}")
            return self._release(self._late(world, k, evidence), index)
        laws.owned(self.book.records[world.ops[k]], self.book.records[after], current=drive.current)
        laws.kept(self.book.records[world.ops[k]], self.book.records[after])
        clash = self._clash(world, k, after)
        if clash is not None:
            return self._collision(world, index, clash, evidence)
        written = world._replace(ops=_put(world.ops, k, after))
        if then is not None and isinstance(evidence, e.CallSent):
            resend = evidence.strategy == "resend"
            laws.permit(self.book.records[world.ops[k]], self.contract, evidence.action, resend=resend)
            return self._with(written, index, then._replace(copy=after))
        return self._release(written, index)

    def _clash(self, world: World, k: int, after: int) -> int | None:
        job = self.book.records[after].remote_job_id
        if job is None or not self.shell.one_id or job == self.book.records[world.ops[k]].remote_job_id:
            return None
        return next(
            (other for other, op in enumerate(world.ops) if other != k and self.book.records[op].remote_job_id == job),
            None,
        )

    def _collision(self, world: World, index: int, other: int, evidence: e.Evidence) -> World:
        k = world.drives[index].k
        job = getattr(evidence, "job_id", "")
        theirs = e.IdentityChanged(why="two", jobs=(job,), other_operation=name(k))
        told = self.book.apply(world.ops[other], theirs, world.now)
        if isinstance(told, str):
            note = e.Noted("two", late_kind=theirs.kind, late=e.to_data(theirs))
            told = self.book.apply(world.ops[other], note, world.now)
        assert isinstance(told, int)
        world = world._replace(ops=_put(world.ops, other, told))
        call = evidence.call_id if isinstance(evidence, e.Answered) else None
        mine = e.IdentityChanged(call_id=call, why="two", jobs=(job,), other_operation=name(other))
        return self._write(world, index, mine, "call:c")

    def _late(self, world: World, k: int, evidence: e.Evidence) -> World:
        """Keep an answer that came too late to be acted on (hand.py, _keep_late)."""
        if not isinstance(evidence, e.Answered) or evidence.call_id is None or not self.shell.keeps_late:
            return world
        after = self.book.late(world.ops[k], evidence, world.now)
        return world if after is None else world._replace(ops=_put(world.ops, k, after))

    # --- small changes of a world ------------------------------------------------------------------------------

    def _with(self, world: World, index: int, drive: Drive) -> World:
        return world._replace(drives=tuple(sorted(_put(world.drives, index, drive), key=_order)))

    def got(self, world: World, index: int, code: Code) -> World:
        """An answer has come to a drive, or the news that none will."""
        return self._with(world, index, world.drives[index]._replace(phase="got", code=code))

    def _without(self, world: World, index: int) -> World:
        return world._replace(drives=(*world.drives[:index], *world.drives[index + 1 :]))

    def _release(self, world: World, index: int) -> World:
        drive = world.drives[index]
        world = self._without(world, index)
        return world._replace(leases=_put(world.leases, drive.k, FREE)) if drive.current else world

    # --- network and provider ----------------------------------------------------------------------------------

    def arrivals(self, world: World, index: int) -> Iterator[Step]:
        """What may become of a request; first that it is served and answered."""
        message = world.net[index]
        without = world._replace(net=(*world.net[:index], *world.net[index + 1 :]))
        for remote, code in self.served(world, message):
            there = without._replace(remote=_put(world.remote, message.k, remote))
            yield ("the provider answers", message.k, message.kind, code), self._answered(there, message, code)
            if world.left.doubles and code[0] in ("job", "202"):
                left = world.left._replace(doubles=world.left.doubles - 1)
                again = world._replace(remote=_put(world.remote, message.k, remote), left=left)
                yield ("it arrives, and once more later", message.k, message.kind, code), again
            if self.shell.transport_retries and code[0] in ("job", "202"):
                again = world._replace(remote=_put(world.remote, message.k, remote))
                yield ("no answer: the transport sends it again", message.k, message.kind), again
        if not self.scenario.quiet:
            yield ("a request is lost", message.k, message.kind), without

    def _answered(self, world: World, message: Message, code: Code) -> World:
        for index, drive in enumerate(world.drives):
            if (drive.k, drive.phase, drive.call) == (message.k, "wait", message.call):
                return self.got(world, index, code)
        return world

    def served(self, world: World, message: Message) -> Iterator[tuple[Remote, Code]]:
        """What the provider makes of a request, and what it answers."""
        remote = world.remote[message.k]
        if message.kind == "cancel":
            yield from self._cancels(world, remote, message)
            return
        known = remote.known and world.now < remote.known - 1 + MEMORY
        if self.tokens and self.honest and known and not self.shell.new_token:
            yield remote, ("job", remote.jobs[-1][0])
            if not self.scenario.quiet:
                yield remote, ("503",)
            return
        if remote.valid != 2 and len(remote.jobs) < 3:
            k = 0 if self.scenario.manners == "same_id" else message.k
            job = f"j{k}{'abc'[len(remote.jobs)]}"
            status = next((was for one in world.remote for other, was in one.jobs if other == job), "R")
            made = remote._replace(jobs=(*remote.jobs, (job, status)), known=world.now + 1, valid=1)
            yield made, ("job", job)
            if not self.scenario.quiet:
                yield made, ("503",)
        if not self.scenario.quiet:
            if remote.valid != 1:
                yield remote._replace(valid=2), ("422",)
            yield from ((remote, ("429",)), (remote, ("503",)))

    def _cancels(self, world: World, remote: Remote, message: Message) -> Iterator[tuple[Remote, Code]]:
        status = dict(remote.jobs).get(message.job)
        stopped = remote._replace(
            jobs=tuple((job, "X" if job == message.job and was == "R" else was) for job, was in remote.jobs)
        )
        yield stopped, ("202",) if status in ("R", "X") else ("409",)
        if not self.scenario.quiet:
            yield from ((stopped, ("503",)), (remote, ("429",)))

    def _jobs_end(self, world: World) -> Iterator[Step]:
        for k, remote in enumerate(world.remote):
            for job, status in remote.jobs:
                for end in {"R": "SF", "X": "SC"}.get(status, ""):
                    yield ("a job ends", k, job, end), ends(world, job, end)
                if self.shell.webhook_trusted:
                    yield from self._trusted(world, k, job)

    def _trusted(self, world: World, k: int, job: str) -> Iterator[Step]:
        for word in ("succeeded", "failed"):
            told = e.Observed(None, job_id=job, remote_state=word, means=self.contract.status.words[word])
            after = self.book.apply(world.ops[k], told, world.now)
            if isinstance(after, int) and self.book.records[world.ops[k]].remote_job_id == job:
                yield ("a webhook says", k, word), world._replace(ops=_put(world.ops, k, after))

    # --- people and time ---------------------------------------------------------------------------------------

    def _people(self, world: World) -> Iterator[Step]:
        for k, number in enumerate(world.ops):
            op = self.book.records[number]
            if op.state is State.AWAITING_APPROVAL:
                for who in ("ann", "bob"):
                    approved = self.book.approval(number, who, world.now)
                    if approved is not None:
                        yield ("approves", k, who), self._said(world, k, approved, must=True)
                yield ("rejects", k), self._said(world, k, e.Rejected("ann"), must=True)
            if world.left.cancels:
                wish = self.book.cancellation(number)
                if wish is not None:
                    left = world.left._replace(cancels=world.left.cancels - 1)
                    yield ("wants it cancelled", k), self._said(world._replace(left=left), k, wish, must=True)
            if world.left.decisions:
                yield from self._decisions(world, k)

    def _decisions(self, world: World, k: int) -> Iterator[Step]:
        op, remote = self.book.records[world.ops[k]], world.remote[k]
        left = world.left._replace(decisions=world.left.decisions - 1)
        for option in choices(op, self.contract):
            choice = option.choice
            jobs: tuple[str | None, ...] = (None,)
            if "job" in option.needs:
                jobs = option.jobs or tuple(job for job, _ in remote.jobs)
            if choice is Choice.NOT_CREATED and not self._nowhere(world, k):
                continue  # a person who is sure of it is right
            for job in jobs:
                longer = TICK if "for" in option.needs else None
                decided = human.decision(
                    op, self.contract, Actor("ann"), choice, request_id="req_2", job=job, extend_by=longer
                )
                after = remote._replace(
                    decided=True,
                    duplicate=remote.duplicate or choice is Choice.RESEND,
                    cancels=0 if choice is Choice.CANCEL else remote.cancels,
                )
                there = world._replace(left=left, remote=_put(world.remote, k, after))
                yield ("decides", k, choice.value, job or ""), self._said(there, k, decided, must=True)

    def _nowhere(self, world: World, k: int) -> bool:
        under_way = any(drive.k == k and drive.phase in ("permit", "wait") for drive in world.drives)
        return not (world.remote[k].jobs or under_way or any(message.k == k for message in world.net))

    def _said(self, world: World, k: int, evidence: e.Evidence, *, must: bool) -> World:
        after = self.book.apply(world.ops[k], evidence, world.now, "human_request:req")
        if isinstance(after, str):
            raise Broken(f"a person is offered what the table refuses: {after}")
        return world._replace(ops=_put(world.ops, k, after))

    def _time(self, world: World) -> Iterator[Step]:
        for k, lease in enumerate(world.leases):
            living = any(drive.k == k and drive.current for drive in world.drives)
            if lease != HELD or (living and not world.left.expiries):
                continue
            left = world.left._replace(expiries=world.left.expiries - living)
            yield ("a lease runs out", k), world._replace(leases=_put(world.leases, k, EXPIRED), left=left)
        if world.now < self.scenario.horizon and all(message.sent == world.now for message in world.net):
            yield ("time passes",), self.later(world)

    def later(self, world: World) -> World:
        """One tick on. No lease outlasts it, and no read of the provider is under way for so long."""
        leases = tuple(EXPIRED if lease == HELD else lease for lease in world.leases)
        return world._replace(now=world.now + 1, leases=leases)


def _order(drive: Drive) -> tuple[Any, ...]:
    return (
        drive.k,
        drive.current,
        drive.copy,
        drive.phase,
        drive.action or "",
        drive.how,
        drive.call,
        repr(drive.code),
    )


def _forgotten(op: Operation) -> Operation:
    return replace(op, open_call=None)
