"""The harness counts what stays alive as alive, and what turns a test red as killed: a made-up module and its tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import survivors
from tests.mutation.change import Source
from tests.mutation.modules import MODULES, ROOT

SUBJECT = """\
LIMITS = {"low": 3, "high": 9}


def _above(least):
    def passed(number):
        return number > least

    return passed


TALL = _above(LIMITS["high"])


def fits(number):
    return number >= LIMITS["low"] and not TALL(number)


def countdown(number):
    while number:
        number -= 1
    return "done"


def never(number):
    return number + 1
"""
TESTS = """\
import made_up


def test_fits():
    assert made_up.fits(5) is True
    assert made_up.fits(3) is True
    assert made_up.fits(2) is False
    assert made_up.fits(10) is False


def test_countdown():
    assert made_up.countdown(2) == "done"
"""
ALIVE = [
    "_above.passed: number > least -> number >= least",
    "countdown: 1 -> 2",
    "countdown: number -> not number",
]
RUN = """\
import json, sys
from pathlib import Path
from tests.mutation import ground
ground.GRACE = 0.1
sys.path.insert(0, sys.argv[1])
one = ground.Ground("made_up", Path(sys.argv[1], "made_up.py"), [sys.argv[1]], lambda mutant: True)
found = one.run(lambda line: None)
words = {mutant.number: f"{mutant.function}: {mutant.words}" for mutant in one.mutants}
print(json.dumps({
    "count": len(words), "broken": found.broken, "killed": found.killed, "timed out": found.timed_out,
    "alive": [words[number] for number in found.survived], "unreached": [words[number] for number in found.unreached],
}))
"""


def _run(folder: Path, tests: str) -> dict[str, Any]:
    (folder / "made_up.py").write_text(SUBJECT)
    (folder / "test_made_up.py").write_text(tests)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_what_no_test_sees_is_alive_and_the_rest_is_killed(tmp_path: Path) -> None:
    """In functions, in a table, in a closure that was made while the module was imported, and in a loop without end."""
    found = _run(tmp_path, TESTS)
    assert found["broken"] == ""
    assert sorted(found["alive"]) == ALIVE
    assert [words.partition(":")[0] for words in found["unreached"]] == ["never"] * 3
    assert found["timed out"] == 2
    assert found["killed"] + 2 + len(ALIVE) + 3 == found["count"] > 25


def test_tests_that_are_red_already_prove_nothing(tmp_path: Path) -> None:
    found = _run(tmp_path, TESTS.replace("is False", "is True"))
    assert "red without any change: " in found["broken"]
    assert (found["killed"], found["timed out"]) == (0, 0)


def test_changes_are_made_one_at_a_time_and_taken_back() -> None:
    source = Source(SUBJECT, "made_up.py")
    before = source.code
    for mutant in source.mutants:
        assert source.changed(mutant) != before, mutant
    assert source._compiled() == before
    assert {"comparison", "part", "not", "arithmetic", "number", "return", "argument"} <= {
        one.kind for one in source.mutants
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_module_is_there_and_every_excuse_has_its_change(module: Any) -> None:
    """An excuse for a change that can no longer be made is wrong, and so is one without a reason."""
    assert module.path.is_file()
    assert all((ROOT / "tests" / one.partition("::")[0]).is_file() for one in module.tests)
    if not (known := survivors.known(module.name)):
        return
    there = [(one.function, one.words) for one in Source(module.path.read_text("utf-8"), str(module.path)).mutants]
    assert not [key for key, times in known.items() if there.count(key) < times]
