"""Commands beside each other, played by small ones; how the reliability programme runs its harnesses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import programme
from tests.support.beside import SKIPPED, Beside, Job, fits

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
TO_ONE_ANOTHER = """\
import pathlib, sys, time
ours, theirs, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
for turn in range(3):
    print(ours, turn, flush=True)
    (folder / f"{ours}{turn}").touch()
    end = time.monotonic() + 60
    while not (folder / f"{theirs}{turn}").exists():
        assert time.monotonic() < end, "nobody is beside it"
        time.sleep(0.005)
"""
"""Says a line, and waits for the other one to have said its own."""


def small(name: str, code: str, *words: object, **more: bool) -> Job:
    """A command of Python."""
    return Job(name, "a small one", (sys.executable, "-S", "-c", code, *map(str, words)), **more)


def ended(name: str, code: int) -> Job:
    """A command that ends so."""
    return small(name, f"raise SystemExit({code})")


def test_two_run_beside_each_other_and_what_they_say_is_kept_apart(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each waits for the other between its lines, and still each one's lines stand together."""
    jobs = [small("one", TO_ONE_ANOTHER, "a", "b", tmp_path), small("two", TO_ONE_ANOTHER, "b", "a", tmp_path)]
    assert Beside(2).run(jobs) == 0
    said = capfd.readouterr().out
    for name, letter in (("one", "a"), ("two", "b")):
        assert f"\n== {name}\n{letter} 0\n{letter} 1\n{letter} 2\n[" in said
        assert f"begun: {name}, a small one\n$ {sys.executable}" in said
        assert f"ended: {name}, held after" in said
    assert "2 at a time" in said


def test_no_more_run_than_may(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of three that must be the only one of their kind none meets another; what is said is said at once."""
    only = "import os, sys; os.mkdir(sys.argv[1]); print('was', 'here', flush=True); os.rmdir(sys.argv[1])"
    place = tmp_path / "place"
    assert Beside(1).run([small(name, only, place) for name in "abc"]) == 0
    assert capfd.readouterr().out.count("was here") == 3
    assert Beside(3).run([small(name, only, place, timed=True) for name in "abc"]) == 0
    assert Beside(3).run([small(name, only, place, alone=True) for name in "abc"]) == 0


def test_who_bears_whom() -> None:
    """One that judges by seconds has no other such one beside it, and some have nobody."""
    plain, timed, alone = Job("p", "", ()), Job("t", "", (), timed=True), Job("a", "", (), alone=True)
    assert all(fits(one, []) for one in (plain, timed, alone))
    assert fits(plain, [plain]) and fits(timed, [plain]) and fits(plain, [timed])
    assert not fits(timed, [plain, timed])
    assert not fits(alone, [plain]) and not fits(plain, [alone])


def test_one_that_does_not_bear_company_is_passed_by(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever comes after it in the list begins meanwhile; and all of them run in the end."""
    runs = Beside(2)
    assert runs.run([ended("a", 0), Job("b", "", ended("", 0).argv, alone=True), ended("c", 0)]) == 0
    assert sorted(end.name for end in runs.ends) == ["a", "b", "c"]
    begun = [line.split()[4] for line in capfd.readouterr().out.splitlines() if "begun:" in line]
    assert begun == ["a,", "c,", "b,"]


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize(("codes", "whole"), [((0, SKIPPED), 0), ((0, 1, 0), 1), ((SKIPPED, 3), 1)])
def test_one_that_found_something_makes_it_red(
    codes: tuple[int, ...], whole: int, at_once: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """And the others run all the same."""
    assert Beside(at_once).run([ended(f"h{number}", code) for number, code in enumerate(codes)]) == whole
    table = capfd.readouterr().out.rpartition("harness ")[2]
    words = {0: "held", SKIPPED: "skipped", 1: "FAILED (1)", 3: "FAILED (3)"}
    for number, code in enumerate(codes):
        assert f"\nh{number}{'':14}{words[code]}" in table


def test_one_that_is_killed_makes_it_red(capfd: pytest.CaptureFixture[str]) -> None:
    """As the system does with one that takes too much memory."""
    assert Beside(2).run([small("h", "import os; os.kill(os.getpid(), 9)"), ended("other", 0)]) == 1
    assert "FAILED (-9)" in capfd.readouterr().out


STAYS = """\
import os, pathlib, signal, sys, time
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
print("said", "before", flush=True)
(pathlib.Path(sys.argv[1]) / str(os.getpid())).touch()
while True:
    time.sleep(60)
"""
DRIVE = """\
import sys
from tests.support.beside import Beside
from tests.support.test_beside import STAYS, small
jobs = [small("hears", STAYS, sys.argv[1], ""), small("deaf", STAYS, sys.argv[1], "deaf"), small("late", "")]
sys.exit(Beside(2, grace=float(sys.argv[2])).run(jobs))
"""


def runs(pid: int) -> bool:
    """Whether there is such a process; one that is over and was not asked for its end is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_ctrl_c_all_end(tmp_path: Path, number: signal.Signals) -> None:
    """Also what a harness has started, and one that does not listen; nothing more begins, and it is told."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.Popen(
        [sys.executable, "-c", DRIVE, str(tmp_path), "0.2"],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + PATIENCE
        while len(pids := [int(path.name) for path in tmp_path.iterdir()]) < 4:
            assert time.monotonic() < end and run.poll() is None, "they did not begin"
            time.sleep(0.01)
        run.send_signal(number)
        said, _ = run.communicate(timeout=PATIENCE)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 128 + number, said
    while left := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.01)
    assert said.count("said before") == 4
    assert "ended: hears, stopped" in said and "ended: deaf, stopped" in said
    assert "begun: late" not in said


def test_each_harness_is_a_command_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen is what runs; processors are shared among those that run at a time."""
    asked: list[tuple[int, list[Job]]] = []

    def note(self: Beside, jobs: list[Job]) -> int:
        asked.append((self.at_once, list(jobs)))
        return 0

    monkeypatch.setattr(Beside, "run", note)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert programme.main([]) == programme.main(["--long"]) == programme.main(["--only", "crashes"]) == 0
    (two, short), (_, long), (one, crashes) = asked
    assert (two, one) == (2, 1)
    assert {job.name for job in long} - {job.name for job in short} == {"network bombs", "mutation"}
    for job in long:
        assert (ROOT / job.argv[2].replace(".", "/") / "__main__.py").is_file()
    assert [job.argv[-4:] for job in short if job.name == "crashes"] == [("--every", "3", "--jobs", "2")]
    assert [job.argv[-4:] for job in crashes] == [("--every", "3", "--jobs", "4")]


def test_a_harness_that_there_is_not_is_a_slip(capsys: pytest.CaptureFixture[str]) -> None:
    """And not a run that found nothing."""
    with pytest.raises(SystemExit) as slip:
        programme.main(["--only", "nothing"])
    assert slip.value.code == 2
    assert "there is no such harness; there are: disk faults" in capsys.readouterr().err
