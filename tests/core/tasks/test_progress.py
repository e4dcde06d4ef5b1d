from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from opledger.edges.files import atomic_write
from opledger.errors import Refused, StoreUnavailable
from opledger.rules.tasks.plan import PlanInvalid
from opledger.rules.tasks.story import PlanChanged
from opledger.tasks import commands, papers
from opledger.tasks.book import ProgressBroken
from opledger.tasks.keeper import AlreadyRun, Keeper
from opledger.tasks.reading import read_task, read_tasks
from opledger.tasks.task import Status
from tests.core.tasks.conftest import Desk, ran

ASK = '[[step]]\nid = "ask"\nask = { question = "Go on?", answers = ["yes", "no"], stop_on = ["no"] }\n'
STEPS = (ran("one"), ran("two", output="two.csv"), ASK, ran("three"))


def half_way(desk: Desk) -> bytes:
    """Two steps are done and a question is asked; returns the progress file."""
    desk.write(*STEPS)
    need = desk.task().run()
    assert need is not None and need.step == "ask"
    return desk.progress.read_bytes()


def broken_ones(data: bytes) -> dict[str, bytes | None]:
    """Everything that a progress file should not be."""
    lines = data.splitlines(keepends=True)
    return {
        "empty": b"",
        "cut in a line": data[:-20],
        "cut by lines": b"".join(lines[:-2]),
        "another shape": b'{"steps": []}\n',
        "no JSON": b"once upon a time\n",
        "changed": data.replace(b'"completed"', b'"verified"', 1),
        "longer": data + lines[-1],
        "missing": None,
    }


@pytest.mark.parametrize("how", list(broken_ones(b"x" * 30)))
def test_a_broken_file_stops_the_task_until_a_person_decides(desk: Desk, how: str) -> None:
    """Never a first run: nothing is done, the file is kept, and the ledger is what it is written anew from (B57)."""
    whole = half_way(desk)
    bad = broken_ones(whole)[how]
    if bad is None:
        desk.progress.unlink()
    else:
        desk.progress.write_bytes(bad)
    for _ in range(2):
        with pytest.raises(ProgressBroken, match="Nothing was done"):
            desk.task().run()
        status = desk.task().status()
        assert status.problem is not None and status.view.state == "stopped"
    assert desk.trace() == ["one", "two"]
    kept = [one.read_bytes() for one in desk.folder.glob("*.broken-*")]
    assert kept == ([] if bad is None else [bad])
    with pytest.raises(Refused, match="agent"):
        desk.task("agent-7").decide(None, "rebuild", reason="looks fine to me")
    with pytest.raises(ProgressBroken):
        desk.task().answer("ask", "yes", reason="too early")
    desk.task().decide(None, "rebuild", reason="the disk was full")
    assert desk.progress.read_bytes().startswith(whole)
    assert b"the disk was full" in desk.progress.read_bytes()
    desk.task().answer("ask", "yes", reason="fine")
    assert desk.task().run() is None
    assert desk.trace() == ["one", "two", "three"]


def test_a_file_without_a_ledger_is_no_first_run(desk: Desk) -> None:
    """The wrong database is named; the progress file stays where it is, and nothing runs."""
    whole = half_way(desk)
    other = desk.folder.with_name("other")
    other.mkdir()
    for name in ("monthly.progress.jsonl", "trace.py"):
        (other / name).write_bytes((desk.folder / name).read_bytes())
    (other / "monthly.plan.toml").write_text(desk.plan.read_text().replace('task = "monthly"', 'task = "weekly"'))
    for _ in range(2):
        with pytest.raises(
            ProgressBroken,
            match=r"begun for task 'monthly'. where the ledger knows 0: it belongs to another ledger.*begin anew",
        ):
            desk.task(plan=other / "monthly.plan.toml").run()
    assert (other / "monthly.progress.jsonl").read_bytes() == whole
    assert desk.trace(other) == []


def test_leftovers_of_a_crash_are_swept_and_read_by_nobody(desk: Desk) -> None:
    """A temporary file that a dead writer left."""
    half_way(desk)
    left = desk.folder / "monthly.runs" / ".new" / "tmpabc.part"
    left.write_text("half of a li")
    desk.task().answer("ask", "yes", reason="fine")
    assert desk.task().run() is None
    assert not left.exists()


def test_the_file_that_a_crash_left_behind_catches_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger has the completion, the file has not: the step is not repeated."""
    desk.write(*STEPS)
    real = atomic_write

    def full(path: Path, data: bytes) -> None:
        if path.name == desk.progress.name and data.count(b'"completed"') == 2:
            raise StoreUnavailable("no space left on device")
        real(path, data)

    monkeypatch.setattr(papers, "atomic_write", full)
    with pytest.raises(StoreUnavailable, match="no space"):
        desk.task().run()
    before = desk.progress.read_bytes()
    assert before.count(b'"completed"') == 1
    with pytest.raises(StoreUnavailable):
        desk.task().run()
    assert desk.progress.read_bytes() == before
    monkeypatch.setattr(papers, "atomic_write", real)
    need = desk.task().run()
    assert need is not None and need.step == "ask"
    assert desk.trace() == ["one", "two"]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_disk_that_is_full_at_any_write_loses_nothing(small: Desk, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """No effect without its intent, no completion lost: what the ledger took is never done again."""
    small.write(*STEPS)
    real, count = atomic_write, [0]

    def full(path: Path, data: bytes) -> None:
        count[0] += 1
        if count[0] == at:
            raise StoreUnavailable("no space left on device")
        real(path, data)

    monkeypatch.setattr(papers, "atomic_write", full)
    for _ in range(3):
        try:
            if small.task().run() is not None:
                small.task().answer("ask", "yes", reason="fine")
        except StoreUnavailable:
            continue
    assert small.task().run() is None
    assert small.trace() == ["one", "two", "three"]
    assert len(list((small.folder / "monthly.runs").glob("run_*/summary.md"))) == 1


@pytest.mark.processes
@pytest.mark.postgres
def test_a_real_limit_on_files_loses_nothing(tmp_path: Path, postgres_url: str) -> None:
    """The system itself refuses the write: the file stays whole, and catches up when there is room again."""
    desk = Desk(tmp_path, postgres_url)
    desk.write(ASK)
    desk.task().run()
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from opledger.ledger import Ledger\n"
        "from opledger.tasks import Task\n"
        f"with Ledger.open({postgres_url!r}) as ledger:\n"
        f"    task = Task(ledger, Path({str(desk.plan)!r}), 'ana')\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))\n"
        "    for number in range(10):\n"
        "        task.note(str(number) + ' ' + 'x' * 2_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1 and "StoreUnavailable" in done.stderr, done.stderr
    kept = desk.progress.read_bytes()
    assert 0 < len(kept) <= 6_000 and kept.endswith(b"\n")
    ledger = b"".join(desk.opened.store.tasks.lines("monthly"))
    assert ledger.startswith(kept) and ledger.count(b"\n") == kept.count(b"\n") + 1
    desk.task().answer("ask", "yes", reason="fine")
    assert desk.progress.read_bytes().startswith(ledger)
    assert desk.task().run() is None
    desk.opened.close()


# --- the plan ----------------------------------------------------------------------------------------------------


def test_a_plan_changed_under_its_steps_runs_nothing(desk: Desk) -> None:
    """It is refused and the step is named; put back, it goes on."""
    half_way(desk)
    desk.task().answer("ask", "yes", reason="fine")
    desk.write(ran("one"), ran("two", 'inputs = ["trace.py"]', output="two.csv"), ASK, ran("three"))
    with pytest.raises(PlanChanged, match="step two"):
        desk.task().run()
    assert desk.task().status().problem is not None
    assert desk.trace() == ["one", "two"]
    desk.write(*STEPS)
    assert desk.task().run() is None


def test_a_decision_lets_a_reworded_step_stand(desk: Desk) -> None:
    """A person may say that what was done is what is meant now."""
    half_way(desk)
    desk.task().answer("ask", "yes", reason="fine")
    desk.write(ran("one", 'inputs = ["trace.py"]'), *STEPS[1:])
    desk.task().decide("one", "done", reason="only the input is named now")
    assert desk.task().run() is None
    assert desk.trace() == ["one", "two", "three"]


def test_a_plan_file_is_used_again_for_the_next_task(desk: Desk) -> None:
    """The finished progress is archived; a new task id begins anew beside it."""
    desk.write(ran("one"))
    assert desk.task().run() is None
    first = desk.progress.read_bytes()
    assert desk.task().run() is None
    assert desk.progress.read_bytes() == first
    desk.write(ran("one"), task="next-month")
    assert desk.task().run() is None
    assert desk.trace() == ["one", "one"]
    archived = sorted((desk.folder / "monthly.runs").glob("run_*/monthly.progress.jsonl"))
    assert sorted(one.read_bytes() for one in archived) == sorted([first, desk.progress.read_bytes()])
    assert [view.task for view in read_tasks(desk.opened)] == ["next-month", "monthly"]


# --- runners -----------------------------------------------------------------------------------------------------


def test_nobody_runs_beside_a_live_runner(desk: Desk) -> None:
    """On the same machine it is told at once; on another one as soon as the lease is renewed."""
    desk.write(*STEPS)
    elsewhere = desk.copy("elsewhere")
    task = desk.task()
    with task._keeper():
        for plan in (desk.plan, elsewhere):
            with pytest.raises(AlreadyRun, match="is run by"):
                desk.task(plan=plan).run()
        with pytest.raises(AlreadyRun):
            desk.task().decide("one", "skip", reason="no need")
        view = read_task(desk.opened, "monthly")
        assert view is None  # nothing was written yet
    assert desk.trace() == desk.trace(elsewhere.parent) == []
    assert desk.task().run() is not None


def test_nobody_is_asked_about_what_is_being_done(small: Desk) -> None:
    """An intent without completion needs a person only once nobody is at it."""
    small.write(ran("notice", "repeatable = false"))
    looked: list[Status] = []
    real = commands.run
    task = small.task()
    with pytest.MonkeyPatch.context() as patch:

        def run(*args: Any, **kwargs: Any) -> commands.Ran:
            looked.append(small.task("jo").status())
            return real(*args, **kwargs)

        patch.setattr(commands, "run", run)
        assert task.run() is None
    assert [(one.view.state, one.need) for one in looked] == [("running", None)]


def test_a_pipe_in_place_of_a_file_holds_up_nobody(small: Desk) -> None:
    """Opening a pipe waits for a writer who never comes; it is as broken as an empty file."""
    small.write(*STEPS)
    small.task().run()
    small.progress.unlink()
    os.mkfifo(small.progress)
    assert "is empty" in (small.task().status().problem or "")
    with pytest.raises(ProgressBroken):
        small.task().run()
    assert not small.progress.exists()
    small.plan.unlink()
    os.mkfifo(small.plan)
    with pytest.raises(PlanInvalid):
        small.task()


def test_two_runners_at_once_do_everything_once(desk: Desk) -> None:
    """Whoever is first has it; the other is refused or finds everything done."""
    desk.write(ran("one"), ran("two"), ran("three"))
    start, refused = threading.Barrier(4), []

    def run() -> None:
        task = desk.task()
        start.wait()
        try:
            task.run()
        except AlreadyRun as error:
            refused.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert desk.trace() == ["one", "two", "three"]
    assert desk.task().run() is None
    assert desk.kinds().count((None, "note")) == 2


def test_who_only_looks_sees_no_half_of_a_write(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the ledger and the look at the file somebody writes to both: that breaks nothing."""
    half_way(small)
    looking, real = small.task(), papers.Papers.read_progress
    writers = [threading.Thread(target=lambda: small.task().note("meanwhile"))]

    def read(self: papers.Papers) -> bytes | None:
        if self is looking._book.papers and writers[0].ident is None:
            writers[0].start()
            writers[0].join(2)  # it has to wait for us, and we do not wait for it
        return real(self)

    monkeypatch.setattr(papers.Papers, "read_progress", read)
    assert looking.status().problem is None
    writers[0].join()
    assert small.kinds()[-1] == (None, "note")


def test_a_dead_runner_elsewhere_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease runs out; only then is the task taken over."""
    desk.write(ran("one"))
    elsewhere = desk.copy("elsewhere")
    monkeypatch.setattr(Keeper, "_renew", lambda _: None)
    dead = desk.task(plan=elsewhere)._keeper()
    dead.__enter__()
    clock = desk.opened.clock
    begun = clock.monotonic()
    assert desk.task().run() is None
    assert clock.monotonic() - begun > 1.0
    assert desk.trace() == ["one"]


def test_a_runner_that_lost_its_lease_stops(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not write, whatever it has done."""
    from opledger.errors import LeaseLost
    from opledger.tasks import commands

    desk.write(ran("one"), ran("two"))
    real = commands.run

    def slow(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        store = desk.opened.store.tasks
        lease = store.lease("monthly", desk.opened.clock.now())
        assert lease is not None and lease.owner is not None
        store.release("monthly", lease.owner, lease.epoch)
        return found

    monkeypatch.setattr(commands, "run", slow)
    with pytest.raises(LeaseLost):
        desk.task().run()
    assert desk.kinds()[-1] == ("one", "intent")


def test_hand_over_to_another_machine(desk: Desk) -> None:
    """The folder is copied in the middle; the ledger is shared; nothing is done twice, and both files end alike."""
    half_way(desk)
    there = desk.copy("there")
    desk.task("bo", there).answer("ask", "yes", reason="asked there")
    desk.task("bo", there).note("taken over")
    assert desk.task("bo", there).run() is None
    assert desk.trace() == ["one", "two"]
    assert desk.trace(there.parent) == ["one", "two", "three"]
    assert desk.task().run() is None  # here, the file catches up with what was written there
    assert desk.progress.read_bytes() == (there.parent / desk.progress.name).read_bytes()
    assert desk.trace() == ["one", "two"]


def test_hand_over_without_the_progress_file_stops(desk: Desk) -> None:
    """A machine that has the plan only must not begin anew; a person lets it go on from the ledger."""
    half_way(desk)
    there = desk.copy("there")
    (there.parent / desk.progress.name).unlink()
    with pytest.raises(ProgressBroken, match="is missing, and the ledger knows"):
        desk.task("bo", there).run()
    desk.task("bo", there).decide(None, "rebuild", reason="only the plan was handed over")
    desk.task("bo", there).answer("ask", "yes", reason="fine")
    assert desk.task("bo", there).run() is None
    assert desk.trace(there.parent) == ["one", "two", "three"]


def test_one_answer_counts(desk: Desk) -> None:
    """Of two people who answer at the same moment one is refused, and told who was first."""
    half_way(desk)
    start, told = threading.Barrier(2), []

    def answer(word: str) -> None:
        task = desk.task(word)
        start.wait()
        try:
            task.answer("ask", word, reason="mine")
        except Refused as error:
            told.append(error.message)

    threads = [threading.Thread(target=answer, args=(word,)) for word in ("yes", "no")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1 and "one answer counts" in told[0]
    assert desk.kinds().count(("ask", "answer")) == 1
