"""The harnesses, each as something that looks for one bug and says what it cost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests.crashes.broken import BROKEN
from tests.fuzz import engine
from tests.fuzz.targets import TARGETS
from tests.model.designs import Patch
from tests.model.scenarios import SCENARIOS
from tests.model.search import explore
from tests.model.world import Model
from tests.network import bombs, codes
from tests.planted import tampers
from tests.planted.bug import Found, Look
from tests.simulation import run as simulation_run
from tests.simulation.faults import Focus
from tests.simulation.world import Violation

ROOT: Final = Path(__file__).resolve().parents[2]
OPERATIONS: Final = 12
"""Operations of one seed: enough for two to meet, few enough for a seed to be cheap."""


def seeds(
    *breaks: str,
    personalities: tuple[str, ...] = (),
    flavours: tuple[str, ...] = (),
    faults: dict[str, float] | None = None,
    cancels: float = 0.3,
    first: int = 0,
    operations: int = OPERATIONS,
) -> Look:
    """The simulation: seed after seed, until one breaks an invariant that the bug must break."""
    focus = Focus(personalities, flavours, faults or {}, cancels)

    def search(patch: Patch, seconds: float) -> Found:
        began, seed, others = time.process_time(), first, frozenset[str]()
        while True:
            spent = time.process_time() - began
            if spent >= seconds:
                return Found(None, f"seeds {first}-{seed - 1}", spent, others)
            with patch():
                problems = _outcome(seed, operations, focus)
            broke = frozenset(one.number for one in problems)
            wanted = [one for one in problems if not breaks or one.number in breaks]
            if wanted:
                spent = time.process_time() - began
                return Found(f"{wanted[0].number}: {wanted[0].words}", f"seed {seed}", spent, broke)
            others |= broke
            seed += 1

    return Look("simulation", search, breaks)


def _outcome(seed: int, operations: int, focus: Focus) -> list[Violation]:
    return simulation_run.run(seed, operations=operations, focus=focus).problems


def states(scenario: str, *, most: int = 400_000) -> Look:
    """The explicit-state model: every order of events in a small world, over the product's rules."""

    def search(patch: Patch, seconds: float) -> Found:
        began = time.process_time()
        with patch():
            found = explore(Model(SCENARIOS[scenario]), states=most)
        spent = time.process_time() - began
        return Found(found.broken, f"{scenario}, {found.states:,} states, {len(found.trace)} steps", spent)

    return Look("model", search)


def table(*phases: str) -> Look:
    """The table of status codes: every code, in these phases, with every body."""

    def search(patch: Patch, seconds: float) -> Found:
        began = time.process_time()
        with patch():
            found = codes.run(*phases)
        spent = time.process_time() - began
        return Found(found.faults[0] if found.faults else None, f"{found.cases:,} answers", spent)

    return Look("codes", search)


def inputs(target: str, *, seed: int = 1, executions: int = 3_000) -> Look:
    """The fuzzer: kept inputs of a target, then new ones."""

    def search(patch: Patch, seconds: float) -> Found:
        began, one = time.process_time(), TARGETS[target]
        with patch(), mock.patch.multiple(engine, MOST=1, SMALLER=0):
            report = engine.run(one, seed=seed, executions=executions)
        one.fresh()
        spent = time.process_time() - began
        what = report.findings[0].what if report.findings else None
        return Found(what, f"{target}, seed {seed}, {report.executions:,} inputs", spent)

    return Look("fuzz", search)


def tampering() -> Look:
    """A ledger that is tampered with: both verifiers must say so, and agree."""

    def search(patch: Patch, seconds: float) -> Found:
        began = time.process_time()
        with patch():
            what, where = tampers.missed()
        return Found(what, where, time.process_time() - began)

    return Look("tamper", search)


def death(name: str) -> Look:
    """Crash points: the bug is planted in the process that dies, at the point that brings it out."""
    broken = BROKEN[name]
    return _child(
        "crashes", f"{broken.story} at {broken.at!r}", "tests.crashes", "--jobs", "1", "--only", broken.story,
        "--at", broken.at, "--broken", name,
    )  # fmt: skip


def power(name: str) -> Look:
    """Power cuts: the damaged product's trace as images of a disk, of one story."""
    return _child(
        "disk", f"story ideal, seed 1, {name}", "tests.disk", "power", "--jobs", "1", "--only", "ideal",
        "--images", "400", "--break", name,
    )  # fmt: skip


def bomb(name: str, place: str, broken: str) -> Look:
    """A worker of its own that gets an answer which is made to hurt."""

    def search(patch: Patch, seconds: float) -> Found:
        before = os.times()
        found = bombs.run([bombs.Round(place, [name])], late=20.0, broken=broken, limit=max(seconds, 60))
        spent = sum(os.times()[:4]) - sum(before[:4])
        return Found(found.faults[0] if found.faults else None, f"bomb {name} for a {place}", spent)

    return Look("bombs", search)


def _child(harness: str, where: str, *command: str) -> Look:
    def search(patch: Patch, seconds: float) -> Found:
        before = os.times()
        paths = [str(ROOT), str(ROOT / "core"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=max(seconds, 60), check=False,
        )  # fmt: skip
        after = os.times()
        for trace in re.findall(r"--trace (\S+)", done.stdout):
            Path(trace).unlink(missing_ok=True)  # kept for whoever repeats it; what was planted is planted again
        spent = sum(after[:4]) - sum(before[:4])
        return Found(_said(done), where, spent)

    return Look(harness, search)


def _said(done: Any) -> str | None:
    """What the child found: one line of a violation. Exit 1 without one is a harness that broke."""
    if done.returncode == 0:
        return None
    lines = done.stdout.splitlines()
    told = next((line for line in lines if line.startswith(("WRONG", "BROKEN", "VIOLATION")) or ": point " in line), "")
    if done.returncode != 1 or not told:
        raise RuntimeError(f"the harness broke ({done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return told
