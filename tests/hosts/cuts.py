"""Cutting one worker off while it holds leases and its calls are open, and what must come of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from opledger.rules.model import Operation, State
from opledger.sim.judge import judge
from tests.checker.judging import check
from tests.checker.papers import read_facts
from tests.hosts.lan import How
from tests.hosts.rig import PATIENCE, Desk, Rig, Slow, until

CREATES, CANCELS, RESULTS = 4, 2, 2
TRIES: Final = 4
"""How often calls are brought to stand open together; on a slow machine the first may be over before the last is."""

LATE: Final = timedelta(seconds=2)
"""By how much a request may arrive after it left, on a machine that does much else."""

SLOW: Final = 8.0
"""Seconds after the end of its lease in which an open transfer must have been broken off, on such a machine."""

SOON: Final = 10.0
"""Seconds after the end of a lease in which another worker must have taken over."""

BACK: Final = 25.0
"""Seconds after the cut is healed in which the worker must have got something done again."""

APART: Final = 0.1
"""Seconds: how well workers know the time of the database server."""

REACHED: Final = ("calls open at the cut: create", "calls open at the cut: result", "calls open at the cut: cancel")


@dataclass(frozen=True, slots=True)
class Cut:
    """What is cut, and how; or that the worker is killed (SIGKILL), which closes its sessions at once."""

    where: str  #: database, provider or both; or worker
    how: How | Literal["kill"]

    def __str__(self) -> str:
        return f"{self.where}:{self.how}"


CUTS: Final = (
    Cut("database", "silent"),
    Cut("database", "mute"),
    Cut("database", "deaf"),
    Cut("provider", "silent"),
    Cut("provider", "deaf"),
    Cut("both", "down"),
    Cut("both", "silent"),
    Cut("both", "mute"),
    Cut("worker", "kill"),
)


@dataclass(slots=True)
class Told:
    """What was seen."""

    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    handed_over: list[float] = field(default_factory=list)
    since_cut: list[float] = field(default_factory=list)  #: the same, since the cut or the kill
    back: list[float] = field(default_factory=list)
    noticed: list[tuple[str, float]] = field(default_factory=list)  #: who noticed a vanished link, after how long


@dataclass(slots=True)
class _Scene:
    """The operations that one worker holds, at the moment of the cut."""

    operations: list[Operation]
    ends: dict[str, datetime]  #: when each lease ends


def cut_off(rig: Rig, desk: Desk, cut: Cut, told: Told, *, brief: bool = False) -> str:
    """Do one of the cuts to one of the workers; what came of it is added to `told`, and said in a line.

    `brief`: only until the leases have ended, to see that a fault is found.
    """
    scene = _arrange(rig, desk, told)
    process = desk.process
    began = datetime.now(UTC)
    if cut.how == "kill":
        desk.kill()
    else:
        rig.lan.cut(desk.host, rig.addresses(cut.where), cut.how)
    for kind in ("create", "cancel"):
        rig.sim.control(release=kind)  # their answers reach the worker, or are on their way for ever
    lost = cut.where != "provider"
    if lost:
        _leases_end(rig, desk, scene, told, by_hanging_up=cut.where == "database")
    if brief:
        return f"{cut!s:16} {desk.name}: its leases have ended"
    rig.sim.control(release=True)
    ended = 0.0
    try:
        ended = until(lambda: _ended(rig, scene.operations), f"{cut}: the operations' ends", PATIENCE + 10 * rig.lease)
    except Slow as slow:
        left = [f"{op.operation_id} {op.state} {op.next}" for op in map(rig.lab.show, scene.operations) if _open(op)]
        told.wrong.append(f"I21 {slow}: {'; '.join(left)[:900]}")
    healed = datetime.now(UTC)
    if cut.how == "kill":
        rig.start(desk)
        process = desk.process
    rig.lan.heal(desk.host)
    if lost:
        _sent_nothing(rig, desk, scene, (began, healed), told)
        _handed_over(rig, scene, cut, began, told)
    back = _carries_on(rig, desk, cut, told)
    if process is None or process.poll() is not None:
        told.wrong.append(f"{cut}: the worker on {desk.name} has ended: {desk.log.read_text()[-500:]}")
    told.counts["cuts"] += 1
    over = f", handed over {max(told.handed_over):.1f} s after the end of a lease at most" if lost else ""
    return f"{cut!s:16} {desk.name}: all ended {ended:4.1f} s after that{over}; {back:.1f} s after healing it was back"


# --- before the cut ---------------------------------------------------------------------------------------------


def _arrange(rig: Rig, desk: Desk, told: Told) -> _Scene:
    """Bring the worker to hold leases with creates, cancels and result reads open at the provider."""
    operations: list[Operation] = []
    for _ in range(TRIES):
        with rig.only(desk):
            operations += _open_calls(rig, desk)
        now = [rig.lab.show(one) for one in operations]
        ends = {op.operation_id: op.lease.expires_at for op in now if op.lease and op.lease.owner.startswith(desk.name)}
        counts = Counter(one["kind"] for one in rig.held(desk, "create", "cancel", "result"))
        if len(counts) == 3:
            told.counts.update({f"calls open at the cut: {kind}": count for kind, count in counts.items()})
            told.counts["leases held at the cut"] += len(ends)
            return _Scene(operations, ends)
        rig.sim.control(release=True)
    raise Slow(f"{desk.name} never had its calls open together")


def _open_calls(rig: Rig, desk: Desk) -> list[Operation]:
    lab, sim = rig.lab, rig.sim
    cancelling = [lab.submit("cancellable", "prompt") for _ in range(CANCELS)]
    for one in cancelling:
        until(lambda one=one: lab.show(one).state is State.OBSERVING, "a job to be cancelled")  # type: ignore[misc]
    sim.control(hold=["result", "cancel"])
    collecting = [lab.submit(_polls=1) for _ in range(RESULTS)]
    until(lambda: len(rig.held(desk, "result")) >= RESULTS, "open result reads")
    for one in cancelling:
        lab.ledger.cancel(one.operation_id, reason="ordered twice")
    sim.control(hold="create")
    creating = [lab.submit(_polls=2) for _ in range(CREATES)]
    until(lambda: len(rig.held(desk, "create")) >= CREATES, "open creates")
    return [*cancelling, *collecting, *creating]


# --- while it lasts ---------------------------------------------------------------------------------------------


def _leases_end(rig: Rig, desk: Desk, scene: _Scene, told: Told, *, by_hanging_up: bool) -> None:
    """Wait until the worker's leases are over; by then it must have broken off what it had open."""
    last = max(scene.ends.values(), default=datetime.now(UTC))
    until(lambda: datetime.now(UTC) > last, "the end of leases")
    if not by_hanging_up:
        return  # nobody could see it: nothing that it says arrives
    try:
        until(lambda: not rig.held(desk, "result"), "the end of open transfers", SLOW)
    except Slow:
        told.wrong.append(f"I12 {desk.name} still reads results {SLOW:g} s after its leases have ended")
    told.counts["transfers broken off with their lease"] += RESULTS


def _open(operation: Operation) -> bool:
    return operation.state not in (State.SUCCEEDED, State.CANCELLED)


def _ended(rig: Rig, operations: list[Operation]) -> bool:
    return not any(_open(rig.lab.show(one)) for one in operations)


def _sent_nothing(rig: Rig, desk: Desk, scene: _Scene, when: tuple[datetime, datetime], told: Told) -> None:
    """A worker that cannot renew sends nothing once its lease is over (promise 9)."""
    for entry in rig.sim.log():
        at = datetime.fromisoformat(entry["time"])
        ends = scene.ends.get(entry["client_ref"] or "")
        if entry["peer"] == desk.host.address and ends is not None and ends + LATE < at < when[1]:
            late = (at - ends).total_seconds()
            told.wrong.append(
                f"I9 {desk.name} sent {entry['kind']} for {entry['client_ref']} {late:.1f} s after its lease"
            )


def _handed_over(rig: Rig, scene: _Scene, cut: Cut, began: datetime, told: Told) -> None:
    """Somebody else has taken over each lease, soon."""
    for operation_id, ends in scene.ends.items():
        takings = [event for event in rig.lab.ledger.events(operation_id) if event.kind == "LeaseTaken"]
        if not takings:
            told.wrong.append(f"{cut}: nobody took over {operation_id}")
            continue
        after = (takings[0].at - ends).total_seconds()
        told.handed_over.append(after)
        told.since_cut.append((takings[0].at - began).total_seconds())
        told.counts["leases taken over"] += 1
        if after > SOON:
            told.wrong.append(f"{cut}: {operation_id} was taken over {after:.1f} s after the lease had ended")
        if after < -APART:
            told.wrong.append(f"I9 {cut}: {operation_id} was taken over {-after:.2f} s before its lease had ended")


def _carries_on(rig: Rig, desk: Desk, cut: Cut, told: Told) -> float:
    """After healing the same process does what there is to do, alone."""
    with rig.only(desk):
        began = time.monotonic()
        one = rig.lab.submit(_polls=1)
        try:
            until(lambda: not _open(rig.lab.show(one)), "work after healing", PATIENCE)
        except Slow as slow:
            told.wrong.append(f"{cut}: {desk.name}: {slow}: {desk.log.read_text()[-500:]}")
        back = time.monotonic() - began
    told.back.append(back)
    if back > BACK and cut.how != "kill":  # that takes as long as it takes to start a worker
        told.wrong.append(f"{cut}: {desk.name} was back {back:.1f} s after healing, more than {BACK:g}")
    return back


# --- the judgement ----------------------------------------------------------------------------------------------


def judge_all(rig: Rig, told: Told, *, thorough: bool) -> None:
    """Both papers, as for chaos: the provider's log, and the exported history."""
    log = rig.sim.log()
    told.wrong += judge(log)
    creates: Counter[str] = Counter()
    for entry in log:
        if entry["kind"] == "create" and entry["started"]:
            creates[entry["client_ref"]] += 1
        told.counts[f"wire: {entry['kind']}"] += 1
    told.wrong += [f"I7 {ref} started {count} jobs" for ref, count in creates.items() if count > 1]
    export = rig.folder / "export.jsonl"
    for words in (("audit", "export", "--out", str(export)), *((("audit", "verify", "--full"),) if thorough else ())):
        program = rig.lab.program(*words)
        if (code := program.wait(PATIENCE)) != 0:
            told.wrong.append(f"opledger {' '.join(words)} ended with {code}")
            return
    facts = dict(read_facts(path.read_text()) for path in rig.lab.contracts.glob("*.toml"))
    entries: list[Any] = [json.dumps(entry) for entry in log]
    with export.open("rb") as lines:
        told.wrong += [str(finding) for finding in check(lines, entries, facts, idle=True, apart=APART)]
    told.counts["operations"] = len(rig.lab.ledger.list())
