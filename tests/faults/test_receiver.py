"""The receiver dies where it hurts: nothing that was acknowledged is lost, and nothing counts twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException

import pytest

from opledger.receiver import listen
from opledger.rules.model import Operation, State
from opledger.sim.hooks import WEBHOOK_SECRET, webhook_text
from tests.fakes.hooks import event, post, signed
from tests.faults.lab import ROOT, Lab

pytestmark = pytest.mark.processes

PATIENCE = 30


class Door:
    """An address that stays, and receivers behind it that come and go."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.socket = listen("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]  # kept, and not listened at: without a receiver nobody answers
        self.address = f"http://127.0.0.1:{self.port}/webhooks/sim"

    @contextmanager
    def receiver(self, when: str = "never", nth: int = 0) -> Iterator[subprocess.Popen[bytes]]:
        """A receiver process that takes connections."""
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.receiving", str(self.port), when, str(nth)],
            cwd=self.lab.folder,
            env={**os.environ, **self.lab.environment, "HOOK_SECRET": WEBHOOK_SECRET, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
            process.stdout.close()

    def send(self, number: int, job: str) -> int | None:
        """Send event `number` as a provider does: the status, or None where there was no answer."""
        body = event(f"job.news_{number}", id=job)
        headers = signed(body, f"msg_{number}", self.lab.ledger.clock.now().timestamp(), WEBHOOK_SECRET)
        try:
            return post(self.address, body, headers)[0]
        except (OSError, HTTPException):
            return None


Scene = tuple[Lab, Operation, str, Door]


@pytest.fixture
def observed(both: Lab) -> Iterator[Scene]:
    """An operation whose job runs, and nobody who works on it."""
    path = both.contracts / f"{both.contract()}.toml"
    path.write_text(path.read_text() + webhook_text("standard", "env:HOOK_SECRET"))
    operation = both.submit("never_ending", _seconds=1000)
    worker = both.worker()
    both.until_state(operation, State.OBSERVING)
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0
    (job,) = both.jobs(operation)
    door = Door(both)
    with door.socket:
        yield both, operation, job, door


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_receiver_that_is_killed_around_its_commit(observed: Scene, when: str) -> None:
    """Before: nothing is stored, after: it is; either way nobody was told, and the delivery that comes again counts."""
    lab, operation, job, door = observed
    with door.receiver(when, 2) as process:
        assert door.send(1, job) == 202
        assert door.send(2, job) is None
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert lab.kinds(operation).count("Notified") == (1 if when == "before" else 2)
    with door.receiver() as process:
        assert [door.send(number, job) for number in (1, 2, 3)] == [202, 202, 202]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert lab.kinds(operation).count("Notified") == 3
    assert sorted(one.key for one in lab.ledger.store.deliveries()) == ["id:msg_1", "id:msg_2", "id:msg_3"]
    assert lab.show(operation).state is State.OBSERVING


def test_a_receiver_that_is_killed_in_a_flood(observed: Scene) -> None:
    """Senders that got no answer send again; in the end each event is there once."""
    lab, operation, job, door = observed
    numbers = range(60)
    with ThreadPoolExecutor(8) as senders:
        with door.receiver("after", 4) as process:
            first = list(senders.map(lambda number: door.send(number, job), numbers))
            assert process.wait(PATIENCE) == -signal.SIGKILL
        answered = [number for number, status in zip(numbers, first, strict=True) if status == 202]
        assert 0 < len(answered) < len(numbers)
        stored = {one.key for one in lab.ledger.store.deliveries()}
        assert {f"id:msg_{number}" for number in answered} <= stored
        with door.receiver() as process:
            again = list(senders.map(lambda number: door.send(number, job), numbers))
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    assert set(again) == {202}
    told = [event.data or {} for event in lab.ledger.events(operation.operation_id) if event.kind == "Notified"]
    assert sorted(str(one["event_type"]) for one in told) == sorted(f"job.news_{number}" for number in numbers)


def test_the_command_receives_and_ends_on_a_signal(lab: Lab) -> None:
    """The whole way: the provider sends by itself, the command receives, a worker reads; at the end all leave."""
    path = lab.contracts / f"{lab.contract()}.toml"
    slow = path.read_text().replace('first = "50ms"', 'first = "10m"').replace('max = "400ms"', 'max = "10m"')
    path.write_text(slow + webhook_text("hmac"))
    program = subprocess.Popen(
        [sys.executable, "-m", "opledger.cli", "webhooks", "serve", "--port", "0", "--json"],
        cwd=lab.folder,
        env={**os.environ, **lab.environment, "SIM_WEBHOOK_SECRET": WEBHOOK_SECRET},
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    try:
        line = program.stdout.readline().decode()
        address = line.split('"')[3]
        assert '"contracts": ["sim"]' in line
        to = {"to": f"{address}/webhooks/sim", "scheme": "hmac", "manner": "plain"}
        lab.sim.ask("POST", "/_webhooks", to)
        worker = lab.worker(tick=600.0)
        operation = lab.submit(_seconds=0.5)
        lab.until_state(operation, State.SUCCEEDED)  # long before the first poll is due
        assert "Notified" in lab.kinds(operation)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE) == 0
    finally:
        lab.sim.ask("POST", "/_webhooks", {})
        program.kill()
        program.wait()
        program.stdout.close()
    lab.honest()


def test_a_receiver_whose_file_was_taken_away_stops(lab: Lab) -> None:
    """What it takes into a file that nobody can find again is lost; a sender that gets no answer sends again."""
    path = lab.contracts / f"{lab.contract()}.toml"
    path.write_text(path.read_text() + webhook_text("hmac"))
    lab.submit()
    program = subprocess.Popen(
        [sys.executable, "-m", "opledger.cli", "webhooks", "serve", "--port", "0", "--json"],
        cwd=lab.folder,
        env={**os.environ, **lab.environment, "SIM_WEBHOOK_SECRET": WEBHOOK_SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None
    try:
        assert '"contracts": ["sim"]' in program.stdout.readline().decode()
        (lab.folder / "ledger.db").rename(lab.folder / "away.db")
        _, said = program.communicate(timeout=PATIENCE)
        assert program.returncode == 4
        assert "was removed or renamed while it was open" in said.decode().splitlines()[-1]
        assert "Traceback" not in said.decode()
    finally:
        program.kill()
        program.communicate()
