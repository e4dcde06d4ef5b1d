from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from opledger.rules.model import State
from opledger.sim.judge import judge
from opledger.sim.process import SimProcess
from tests.faults.lab import Lab
from tests.faults.victim import Strike

pytestmark = [pytest.mark.processes, pytest.mark.slow]

AT_ONCE = 6
"""How many lives are lived at once: most of each is waiting for a dead worker's lease."""

EVERY = {
    f"{when} {effect}"
    for when in ("before", "after")
    for effect in (
        *("claim", "record CallSent.create", "send POST", "record Accepted", "send GET", "record Observed"),
        *("download", "keep", "record ResultAccepted", "farewell"),
    )
} | {"before chunk"}
"""What must have been struck, or the enumeration proves nothing."""


@dataclass(frozen=True, slots=True)
class Life:
    """What became of one operation whose worker was killed."""

    struck: tuple[str | None, ...]
    codes: tuple[int, ...]
    state: State
    creates: int
    jobs: int
    reads: int
    kept: int
    tale: str


def live(sim: SimProcess, folder: Path, template: Path, deaths: Iterable[Strike]) -> Life:
    """Drive one operation in a ledger of its own, through some deaths, to its end."""
    folder.mkdir()
    shutil.copy(template, folder / "ledger.db")
    with Lab(folder, f"sqlite:///{folder / 'ledger.db'}", sim) as lab:
        operation = lab.submit(_polls=2)
        hands = []
        for strike in deaths:
            hands.append(lab.worker(strike, until_idle=True, lease=0.5))
            hands[-1].ends()
        hands.append(lab.worker(until_idle=True, lease=5.0))
        codes = [hand.ends() for hand in hands]
        found = lab.show(operation)
        return Life(
            struck=tuple(hand.struck() for hand in hands),
            codes=tuple(codes),
            state=found.state,
            creates=len(lab.wire("create", operation)),
            jobs=len(lab.jobs(operation)),
            reads=len(lab.wire("status", operation)),
            kept=len(lab.kept()),
            tale=f"{lab.kinds(operation)}\n{hands[-1].tail()}",
        )


def check(life: Life) -> None:
    """One job, one result, a true end, and no worker that went down by itself."""
    assert life.codes[-1] == 0, life.tale
    assert all(code in (0, -signal.SIGKILL) for code in life.codes), life.tale
    assert life.state is State.SUCCEEDED, life.tale
    assert (life.jobs, life.kept) == (1, 1), life.tale
    # A permit is used once: a death costs at most one more create, and a resend starts nothing.
    assert life.creates <= len(life.codes), life.tale


def test_killed_at_every_effect(sim: SimProcess, tmp_path: Path, sqlite_template: Path) -> None:
    """SIGKILL before and after everything a worker does to the outside, one after the other, until a run is whole."""
    clean = live(sim, tmp_path / "clean", sqlite_template, [Strike(number=10_000)])
    check(clean)
    assert clean.reads == 2
    struck: set[str | None] = set()

    def die(number: int, name: str = "") -> Life:
        strike = Strike(at=name) if name else Strike(number=number)
        return live(sim, tmp_path / str(number), sqlite_template, [strike])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        first, whole = 1, False
        while not whole:
            numbers = range(first, first + 2 * AT_ONCE)
            lives = list(pool.map(die, numbers))
            for life in lives:
                check(life)
                struck.add(life.struck[0])
            whole = lives[-1].codes[0] == 0
            first = numbers.stop
        # Which number an effect has depends on who was faster; what no number met is met by its name.
        missed = sorted(EVERY - {name.removeprefix("kill ") for name in struck if name is not None})
        for life in pool.map(die, range(first, first + len(missed)), missed):
            check(life)
            struck.add(life.struck[0])
    assert {f"kill {name}" for name in EVERY} <= struck
    assert judge(sim.log()) == []


def test_killed_again_during_recovery(sim: SimProcess, tmp_path: Path, sqlite_template: Path) -> None:
    """The second worker dies too, at every fourth effect of its own: recovery is no special time."""
    firsts = ("after record CallSent.create", "before record Accepted", "after keep")
    pairs = [(at, number) for at in firsts for number in range(2, 26, 4)]

    def both(pair: tuple[str, int]) -> Life:
        at, number = pair
        folder = tmp_path / f"{firsts.index(at)}-{number}"
        return live(sim, folder, sqlite_template, [Strike(at=at), Strike(number=number)])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        lives = list(pool.map(both, pairs))
    for life in lives:
        check(life)
    assert judge(sim.log()) == []
    assert sum(life.codes[:2] == (-signal.SIGKILL, -signal.SIGKILL) for life in lives) > len(lives) / 2
