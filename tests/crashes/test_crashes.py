from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.crashes.__main__ import main
from tests.crashes.broken import BROKEN
from tests.crashes.points import KINDS, fresh, kinds
from tests.crashes.stories import STORIES
from tests.faults.lab import ROOT

pytestmark = pytest.mark.processes


SLOW = """\
import sys
from tests.crashes.__main__ import main
from tests.scenarios import stage
stage.BREATH = 0.0
sys.exit(main(sys.argv[1:]))
"""
"""The harness on a machine on which nothing ends in time."""


def run(*arguments: str, slow: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the harness in a process of its own: it forks, and so must have one thread."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *(["-c", SLOW] if slow else ["-m", "tests.crashes"]), "--jobs", "1", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_core_stories_with_deaths_at_a_sample_of_points() -> None:
    """A sample; all of them: ``python -m tests.crashes``, and every story: ``--long``."""
    done = run("--every", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"10 stories, (\d+) points, (\d+) kills, 0 pairs .* 0 wrong", done.stdout)
    assert found is not None, done.stdout
    points, deaths = map(int, found.groups())
    assert points > 400
    assert deaths >= points / 31


def test_a_death_in_the_recovery_from_a_death() -> None:
    """Whoever takes over dies as well, and a third one brings it to its end: recovery is no special time.

    Nor is it one on a slow machine, on which time passes for those that wait for a place while others work.
    """
    done = run("--only", "plain", "--pairs", "--every", "12", slow=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"1 stories, .* (\d+) pairs .* 0 wrong", done.stdout)
    assert found is not None, done.stdout
    assert int(found.group(1)) >= 4


def test_every_planted_fault_is_found() -> None:
    """Each by the story and at the point that are named for it."""
    done = run("--prove")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(BROKEN)} of {len(BROKEN)} planted faults were found" in done.stdout


def test_a_story_that_does_not_exist_is_a_slip() -> None:
    """And not a run that found nothing."""
    assert main(["--only", "nothing"]) == 2


def test_the_stories_are_enough() -> None:
    """Ten core ones, forty in all, and every kind of point is one that some story must have."""
    assert len(STORIES) >= 40
    assert sum(story.core for story in STORIES.values()) == 10
    assert set().union(*(story.must for story in STORIES.values())) == set(KINDS)
    assert {one.story for one in BROKEN.values()} <= set(STORIES)


def test_a_point_is_of_its_kinds() -> None:
    """By its name alone."""
    assert kinds("after commit exchange record Observed") == {"commit", "lease"}
    assert kinds("sent call POST") == {"send"}
    assert kinds("after call POST") == {"receive"}
    assert kinds("before fsync anchor") == {"file", "checkpoint"}
    assert kinds("after rename task") == {"file", "task"}
    assert kinds("before commit append") == {"commit", "task"}
    assert kinds("before leaves") == {"checkpoint"}


def test_pairs_are_made_of_points_that_leave_something_else_behind() -> None:
    """Between the answer to a call and the transaction that follows nothing outside changes."""
    names = [
        "before commit a",
        "after commit a",
        "before call POST",
        "sent call POST",
        "after call POST",
        "before commit b",
    ]
    assert fresh(names) == [1, 2, 4, 5]
    assert fresh(["before call GET", "sent call GET", "after call GET"]) == [1]
    assert fresh([]) == []
