"""Running one seed: faults first, then peace, then judgement."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opledger.errors import StoreUnavailable
from tests.simulation.faults import Focus
from tests.simulation.judge import judge
from tests.simulation.loop import WORLD, Spinning
from tests.simulation.people import People
from tests.simulation.world import BOUND, SAFETY, SLICE, Outcome, Slot, World

EVERYTHING: Final = Focus()
OPERATIONS: Final = 20
"""Operations of one seed."""
ALL_GARBAGE: Final = 50
"""After how many seeds everything is looked through for garbage."""


def run(seed: int, *, operations: int = OPERATIONS, keep: bool = False, focus: Focus = EVERYTHING) -> Outcome:
    """Run a seed, and judge it. The same seed brings the same outcome."""
    if seed % ALL_GARBAGE == 0:
        gc.collect()  # what outlived its seed, and was set aside by those that followed
    with _unheard():
        return _run(seed, operations, keep=keep, focus=focus)


@contextmanager
def _unheard() -> Iterator[None]:
    """What dies here runs nothing any more; that its coroutines say so when they are freed is no news to anybody.

    What was there before the seed is set aside meanwhile: looking through it costs a tenth of the time of a seed.
    """
    heard, collecting = sys.unraisablehook, gc.isenabled()
    sys.unraisablehook = lambda _: None
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if collecting:
            gc.enable()
        sys.unraisablehook = heard


def _run(seed: int, operations: int, *, keep: bool, focus: Focus) -> Outcome:
    began = time.process_time()
    world = World(seed, keep=keep)
    with world.built():
        people = People(world, operations, focus)
        for number in (1, 2):
            slot = Slot(number, world.store)
            world.slots.append(slot)
            world.loop.in_strand(WORLD, world.start, slot)
        people.begin()
        try:
            _safety(world, people)
            _liveness(world, people)
        except Spinning as error:
            world.problem("I21", str(error))
        records, arrows = judge(world, people)
        states = Counter(record.state for record in records)
        world.finish()
        return Outcome(
            seed=seed,
            digest=world.hash.hexdigest(),
            operations=len(records),
            steps=world.steps,
            problems=world.problems,
            states=states,
            cells=world.cells,
            arrows=arrows,
            faults=frozenset(world.swarm.struck),
            seconds=time.process_time() - began,
            virtual=world.loop.now,
            lines=world.lines or [],
        )


def _safety(world: World, people: People) -> None:
    """With faults: until everything was submitted, and some time more."""
    while people.last is None:
        world.loop.run(until=world.loop.now + SLICE)
    world.loop.run(until=people.last + SAFETY)


def _liveness(world: World, people: People) -> None:
    """Without faults and without decisions: until nothing will become due without a person."""
    world.swarm.on = False
    people.deciding = False
    world.say("peace")
    world.loop.spawn(world.people, people.resume())
    end = world.loop.now + BOUND
    while world.loop.now < end:
        world.loop.run(until=world.loop.now + SLICE)
        if people.pending_hooks:
            continue
        try:
            if world.ledger.store.idle_horizon(world.clock.now()) is None:
                return
        except StoreUnavailable:  # pragma: no cover - there are no faults any more
            continue
    world.problem("I21", f"there is still something to do after {BOUND:.0f} s without faults")
