"""One worker is cut off the database, one host vanishes; faults that must be found; and nothing that stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.faults.lab import ROOT
from tests.hosts import lan, places
from tests.hosts.rig import PATHS

WHY = lan.impossible()
pytestmark = [
    pytest.mark.processes,
    pytest.mark.postgres,
    pytest.mark.skipif(WHY is not None, reason=f"there can be no hosts here: {WHY}"),
]
PATIENCE = 300
FAULTS = ("keeps on without a lease", "waits as long as the kernel")


def start(*words: str) -> subprocess.Popen[str]:
    """Begin a run."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.hosts", "--lease", "4", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PATHS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def runs() -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """A run as it should be and one with faults; both at a time, since they wait most of it."""
    good = start("--only", "database:deaf")
    planted = [word for fault in FAULTS for word in ("--planted", fault)]
    bad = start("--only", "database:silent", "--workers", "1", "--park", *planted)
    yield good, bad
    for run in (good, bad):
        run.kill()
        run.communicate()


def until_said(told: IO[str], word: str) -> list[str]:
    """Read what a run says, up to a line that begins so."""
    lines: list[str] = []
    for line in told:
        lines.append(line.rstrip("\n"))
        if line.startswith(word):
            return lines
    raise AssertionError("\n".join(lines))


def mentioning(word: str) -> list[int]:
    """The processes that were started for something, by their arguments or their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue  # it has ended
        if word.encode() in told:
            found.append(int(process.name))
    return found


def test_one_of_two_workers_is_cut_off(runs: tuple[subprocess.Popen[str], subprocess.Popen[str]]) -> None:
    """Its work goes over to the other one, it sends nothing more, and it carries on where the link is mended."""
    good, _ = runs
    said, _ = good.communicate(timeout=PATIENCE)
    assert good.returncode == 0, said
    assert "0 violations" in said
    for reached in ("leases taken over", "transfers broken off with their lease", "vanished links noticed"):
        assert reached in said, said


def test_faults_are_found_and_a_killed_run_leaves_nothing(
    runs: tuple[subprocess.Popen[str], subprocess.Popen[str]],
) -> None:
    """A transfer that outlives its lease, a listener and a server that wait for ever; then the run is killed."""
    _, bad = runs
    assert bad.stdout is not None
    *said, parked = until_said(bad.stdout, "parked")
    told = "\n".join(said)
    assert "I12 w1 still reads results" in told
    assert "I21 a listener does not notice" in told
    assert "I21 the server keeps the row locks" in told
    folder = Path(parked.split()[1])
    assert folder.is_dir()
    assert len(mentioning(folder.name)) > 2
    bad.kill()
    end = time.monotonic() + PATIENCE
    while left := mentioning(folder.name):
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)
    assert folder.name in places.sweep()
    assert not folder.exists()
