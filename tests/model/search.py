"""Breadth first through all worlds, with the shortest trace to the first one that breaks a law."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from typing import Final

from opledger.rules.decisions import Wait
from tests.model import laws
from tests.model.book import Broken
from tests.model.world import EXPIRED, FREE, HELD, LOST, Label, Model, World, ends

ROUNDS: Final = 120
"""Most steps until everything must be at rest once faults stop (I21)."""


@dataclass
class Found:
    """What a search came to."""

    states: int
    depth: int  #: the longest shortest path to any state that was reached
    whole: bool  #: nothing was left unexplored
    seconds: float  #: of processor time
    records: int  #: distinct records
    broken: str | None = None
    trace: list[str] = field(default_factory=list)


def explore(model: Model, *, depth: int = 10_000, states: int = 10_000_000, liveness: bool = True) -> Found:
    """Visit every world within `depth` steps, up to `states` of them, and stop at the first broken law."""
    began = time.process_time()
    start = model.start()
    seen = {hash(start)}
    parents, places = array("q", [-1]), array("l", [-1])
    level, first = [start], 0
    deep, settled = 0, set[int]()

    def found(*, whole: bool = False, why: str | None = None, trace: list[str] | None = None) -> Found:
        spent = time.process_time() - began
        return Found(len(parents), deep, whole, spent, len(model.book.records), why, trace or [])

    while level and deep < depth:
        following: list[World] = []
        number = first
        for world in level:
            try:
                place = -1
                for place, (_, after) in enumerate(model.steps(world)):
                    mark = hash(after)
                    if mark in seen:
                        continue
                    seen.add(mark)
                    parents.append(number)
                    places.append(place)
                    following.append(after)
                    why = laws.broken(model, after) or (unsettled(model, after, settled) if liveness else None)
                    if why is not None:
                        deep += 1
                        return found(why=why, trace=_trace(model, start, parents, places, len(parents) - 1))
            except Broken as law:
                deep += 1
                trace = [*_trace(model, start, parents, places, number), "the next step breaks it"]
                return found(why=str(law), trace=trace)
            number += 1
            if len(parents) >= states:
                deep += 1
                return found()
        first += len(level)
        level = following
        deep += bool(level)
    return found(whole=not level)


def _trace(model: Model, start: World, parents: array[int], places: array[int], number: int) -> list[str]:
    """The steps that lead to a state, found again by walking."""
    chain: list[int] = []
    while parents[number] >= 0:
        chain.append(places[number])
        number = parents[number]
    world, lines = start, list[str]()
    for place in reversed(chain):
        for position, (label, after) in enumerate(model.steps(world)):
            if position == place:
                lines.append(_line(label, world, after, model))
                world = after
                break
    return lines


def _line(label: Label, before: World, after: World, model: Model) -> str:
    words = [label[0]]
    for part in label[1:]:
        words.append(":".join(map(str, part)) if isinstance(part, tuple) else str(part))
    changes = [
        f"{model.book.records[was].state} -> {model.book.records[now].state}"
        for was, now in zip(before.ops, after.ops, strict=True)
        if model.book.records[was].state is not model.book.records[now].state
    ]
    return " ".join(words) + (f"  [{'; '.join(changes)}]" if changes else "")


# --- progress ----------------------------------------------------------------------------------------------------


def unsettled(model: Model, world: World, settled: set[int]) -> str | None:
    """Stop all faults and let everybody do their work: everything must come to rest (I21). None where it does."""
    path: list[int] = []
    here: set[int] = set()
    for _ in range(ROUNDS):
        mark = hash(world)
        if mark in settled:
            settled.update(path)
            return None
        path.append(mark)
        if not world.drives and all(model.book.resting(op, world.now) for op in world.ops):
            settled.update(path)
            return None
        repeats = mark in here
        here.add(mark)
        world = model.later(world) if repeats else _fair(model, world)
    states = ", ".join(model.book.records[op].state for op in world.ops)
    return f"I21: faults have stopped, and after {ROUNDS} steps of work it is still {states}"


def _fair(model: Model, world: World) -> World:
    """The next step of a world in which nothing goes wrong."""
    for index, drive in enumerate(world.drives):
        if drive.phase == "wait":
            return _answered(model, world, index)
        if drive.phase == "got":
            return model.record(world, index)
        return next(iter(model.moves(world, index)))[1]
    for remote in world.remote:
        for job, status in remote.jobs:
            if status in "RX":
                return ends(world, job, "S" if status == "R" else "C")
    for k, op in enumerate(world.ops):
        if model.book.resting(op, world.now):
            continue
        if world.leases[k] == HELD:
            return world._replace(leases=(*world.leases[:k], EXPIRED, *world.leases[k + 1 :]))
        if not isinstance(model.book.decide(op, world.now), Wait) or world.leases[k] != FREE:
            return model.claim(world, k)
    return model.later(world)


def _answered(model: Model, world: World, index: int) -> World:
    drive = world.drives[index]
    for place, message in enumerate(world.net):
        if (message.k, message.call) == (drive.k, drive.call):
            return next(iter(model.arrivals(world, place)))[1]
    return model.got(world, index, LOST)
