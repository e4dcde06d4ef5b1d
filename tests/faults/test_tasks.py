from __future__ import annotations

import json
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from opledger.rules.model import State
from opledger.sim.judge import judge
from opledger.tasks.reading import operation_of, read_task
from tests.faults import lab as labs
from tests.faults.lab import Lab
from tests.faults.task_victim import PLAN, Order, child

pytestmark = [pytest.mark.processes, pytest.mark.slow]

AT_ONCE = 6
PATIENCE = 180.0
SHARDS = 6
STEPS = ("create", "convert", "tell", "review", "publish", "deliver")


EVERY = {
    *(f"before record {kind} {step}" for kind in ("intent", "completed") for step in STEPS if step != "publish"),
    *("before record question publish", "before record answer publish", "before record note None"),
    *("before submit", "after submit", "before command convert.py", "after command convert.py"),
    *("before command notify.py", "after command notify.py", "before remember", "before release"),
    *("before write monthly.progress.jsonl", "after write monthly.progress.jsonl"),
    *("before write summary.md", "after write summary.md"),
}
"""What is among the writes and effects of an undisturbed run, or the enumeration proves nothing."""


class Receiver:
    """Takes notices over HTTP, and writes each down before it answers. It cannot be asked what it has."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock, log.open("ab") as file:
                    file.write(body + b"\n")
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def keys(self) -> Counter[str]:
        """How often a notice came, by its key."""
        return Counter(json.loads(line)["key"] for line in self.log.read_text().splitlines())

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiving(log: Path) -> Iterator[Receiver]:
    """A receiver for the length of a block."""
    receiver = Receiver(log)
    try:
        yield receiver
    finally:
        receiver.close()


@dataclass(frozen=True, slots=True)
class Life:
    """What became of one task whose worker may have been killed."""

    task: str
    folder: Path
    struck: str
    codes: tuple[int | None, ...]


def work(order: Order) -> tuple[int | None, str]:
    """Run one process to its end; returns its exit code and the last thing that it told."""
    ours, theirs = labs._CONTEXT.Pipe()
    process = labs._CONTEXT.Process(target=child, args=(order, theirs), daemon=True)
    with labs._ASKING:
        process.start()
    theirs.close()
    told = ""
    wait([process.sentinel], PATIENCE)
    while ours.poll():
        try:
            told = ours.recv()
        except EOFError:
            break
    with labs._ASKING:
        code = process.exitcode
        if code is None:
            process.kill()
        process.join(10)
    ours.close()
    return code, told


def prepare(folder: Path, task: str) -> None:
    """Put the example that is shipped into a folder, as a task of its own."""
    folder.mkdir()
    for one in (resources.files("opledger") / "sim" / "example").iterdir():
        if one.is_file():
            (folder / one.name).write_bytes(one.read_bytes())
    plan = folder / PLAN
    plan.write_text(plan.read_text().replace('task = "reports-2026-11"', f'task = "{task}"'))


def live(lab: Lab, receiver: Receiver, folder: Path, die_at: int, *, hand_over: bool = False) -> Life:
    """Do the example in a folder of its own, killed once, and let another process bring it to its end.

    With `hand_over` that one works in a copy of the folder, as on another machine, and must wait for the dead lease.
    """
    task = f"task-{folder.name}"
    prepare(folder, task)
    (folder / "opledger.toml").write_text('[worker]\nlease = "3s"\n' if hand_over else "")
    environment = {**lab.environment, "NOTICE_URL": receiver.url, "OPLEDGER_OPERATOR": "ana"}
    first, struck = work(Order(str(folder), environment, str(receiver.log), die_at))
    second = None
    if first != 0:
        if hand_over:
            there = folder.with_name(f"{folder.name}-there")
            shutil.copytree(folder, there)
            folder = there
        second, _ = work(Order(str(folder), environment, str(receiver.log)))
    return Life(task, folder, struck, (first, second))


def check(lab: Lab, receiver: Receiver, life: Life) -> None:
    """Each outside effect once, at most one step repeated, the summary complete: by what the receivers have."""
    tale = f"{life}\n{(life.folder / 'victim.log').read_text()[-3000:]}"
    assert life.codes in ((0, None), (-signal.SIGKILL, 0)), tale
    for step in ("create", "deliver"):
        op = operation_of(lab.ledger, life.task, step)
        assert op is not None and op.state is State.SUCCEEDED, tale
        assert len(lab.jobs(op)) == 1, tale
    view = read_task(lab.ledger, life.task)
    assert view is not None and view.state == "done" and view.runner is None, tale
    assert [one.state in ("done", "verified") for one in view.steps] == [True] * len(STEPS), tale
    ran = Counter((life.folder / "ran.log").read_text().split())
    assert ran["convert.py"] <= 2, tale
    (run,) = (one for one in (life.folder / "monthly.runs").iterdir() if one.name.startswith("run_"))
    assert run.name == view.run
    lines = b"".join(lab.ledger.store.tasks.lines(life.task))
    assert (run / "monthly.progress.jsonl").read_bytes() == lines, tale
    assert (life.folder / "monthly.progress.jsonl").read_bytes() == lines, tale
    assert (run / PLAN).read_bytes() == (life.folder / PLAN).read_bytes()
    summary = (run / "summary.md").read_text()
    for number, step in enumerate(STEPS, 1):
        assert f"### {number}. " in summary and f"({step}, " in summary, summary
    assert "outcome: done" in summary
    assert len((life.folder / "report.csv").read_text().splitlines()) == 7
    token = next(record for record in lines.splitlines() if b'"intent"' in record and b'"step": "tell"' in record)
    assert receiver.keys()[json.loads(token)["proof"]["token"]] == 1, tale


@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_at_every_write_and_every_effect(lab: Lab, tmp_path: Path, shard: int) -> None:
    """SIGKILL anywhere in a task of six steps; another process resumes it, and nothing outside is doubled or lost."""
    lab.contract()
    worker = lab.worker()
    lab.present()
    with receiving(tmp_path / "notices.jsonl") as receiver, ThreadPoolExecutor(AT_ONCE) as pool:
        clean = live(lab, receiver, tmp_path / "clean", 0)
        check(lab, receiver, clean)
        names = clean.struck.splitlines()
        assert set(names) >= EVERY
        numbers = range(shard + 1, len(names) + 1, SHARDS)
        lives = list(pool.map(lambda at: live(lab, receiver, tmp_path / f"at-{at}", at), numbers))
        for at, life in zip(numbers, lives, strict=True):
            check(lab, receiver, life)
            assert life.struck == names[at - 1]
    assert judge(lab.sim.log()) == []
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0


@pytest.mark.postgres
def test_killed_here_and_resumed_on_another_machine(server_lab: Lab, tmp_path: Path) -> None:
    """Two folders, one PostgreSQL: the second machine waits for the first one's lease, and goes on with its copy."""
    lab = server_lab
    lab.contract()
    worker = lab.worker()
    lab.present()
    with receiving(tmp_path / "notices.jsonl") as receiver, ThreadPoolExecutor(AT_ONCE) as pool:
        numbers = range(2, 76, 6)
        lives = list(pool.map(lambda at: live(lab, receiver, tmp_path / f"pg-{at}", at, hand_over=True), numbers))
        for life in lives:
            check(lab, receiver, life)
    assert sum(life.codes[0] == -signal.SIGKILL for life in lives) >= len(lives) - 2
    assert judge(lab.sim.log()) == []
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0
