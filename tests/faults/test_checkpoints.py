"""Checkpoints of real workers: killed at every step, on a restored backup, and at the end of every run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest

from opledger.checkpoints import standing
from opledger.config import load_settings
from opledger.ledger import Ledger
from opledger.ledger import audit as verifying
from opledger.rules import notes
from opledger.rules.model import State
from opledger.store.checkpoints import JUMP, newest
from tests.faults.lab import PATIENCE, Lab
from tests.faults.victim import CHECKPOINT_EFFECTS, Strike

pytestmark = pytest.mark.processes


def sound(lab: Lab) -> int:
    """Verify everything, from the outside; returns the number of the newest checkpoint, which is anchored."""
    settings = load_settings({"operator": "olga"}, {**os.environ, **lab.environment}, lab.folder)
    with Ledger.open(lab.url, settings=settings, read_only=True) as ledger:
        found = verifying.run(ledger, verifying.Asked(full=True))
        assert [f"{one.kind} {one.operation_id} {one.seq}: {one.message}" for one in found.findings] == []
        assert "UNANCHORED_TAIL" not in [one.kind for one in found.notes]  # every event is under a checkpoint
        last, stands = newest(ledger.store.database), standing.look(ledger.store.database, settings.audit)
        assert last is not None and stands.anchored is not None
        assert stands.anchored.number == last.number
        return last.number


def command(lab: Lab, *arguments: str) -> tuple[int, Any]:
    """Run one command of the program; its exit code and its document."""
    done = subprocess.run(
        [sys.executable, "-m", "opledger.cli", *arguments, "--json"],
        cwd=lab.folder,
        env={**os.environ, **lab.environment, "OPLEDGER_OPERATOR": "olga"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout or done.stderr.splitlines()[-1]
    return done.returncode, json.loads(said)


def killed(lab: Lab, at: str) -> None:
    """A worker dies at a step of a checkpoint; the next one goes on, and nothing of the history is lost."""
    operation = lab.submit(_polls=1)
    worker = lab.worker(Strike("kill", at=at), until_idle=True)
    assert worker.ends(2 * PATIENCE) == -signal.SIGKILL, worker.tail()
    assert worker.struck() == f"kill {at}"
    lab.finish(2 * PATIENCE)
    assert lab.show(operation).state is State.SUCCEEDED
    sound(lab)
    lab.honest()


@pytest.mark.parametrize("at", CHECKPOINT_EFFECTS)
def test_a_worker_dies_at_a_step_of_a_checkpoint(lab: Lab, at: str) -> None:
    """Key, name, leaves, note, commit, anchor: each before and after."""
    killed(lab, at)


@pytest.mark.postgres
@pytest.mark.parametrize("at", ["after leaves", "after note", "after checkpoint"])
def test_on_a_server_too(server_lab: Lab, at: str) -> None:
    """The advisory lock goes with the session, and the leaves with the transaction."""
    killed(server_lab, at)


def test_every_end_of_a_worker_leaves_all_signed_and_anchored(both: Lab) -> None:
    """--once, --until-idle and SIGTERM: whatever was written is in a checkpoint, and in the anchor."""
    first = both.submit(_polls=1)
    assert both.program("worker", "--once").wait(PATIENCE) == 0
    one = sound(both)
    other = both.submit(_polls=1)  # on a slow machine nothing may be left to do for the first one
    both.finish()
    assert {both.show(operation).state for operation in (first, other)} == {State.SUCCEEDED}
    two = sound(both)
    second = both.submit(_seconds=600)
    worker = both.program("worker", "--name", "long")
    both.until_state(second, State.ACCEPTED)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert one < two < sound(both)


def test_checkpoints_come_while_it_works(both: Lab) -> None:
    """Not only at its end: a worker may run for months."""
    (both.folder / "opledger.toml").write_text('[audit]\ncheckpoint = "200ms"\n')
    operation = both.submit(_seconds=600)
    both.program("worker", "--name", "long")
    both.until_state(operation, State.ACCEPTED)
    settings = load_settings({}, {**os.environ, **both.environment}, both.folder)
    database, clock = both.ledger.store.database, both.ledger.clock
    end = clock.monotonic() + PATIENCE
    while (stands := standing.look(database, settings.audit)).anchored is None:
        assert clock.monotonic() < end, "no checkpoint was anchored"
        both.ledger.store.wait_for_change(1)
    assert stands.newest is not None


def test_a_restored_backup_stops_the_worker_until_a_person_goes_on(lab: Lab) -> None:
    """The whole story with real files and processes: refused with exit code 4, acknowledged, and no number twice."""
    path = lab.folder / "ledger.db"
    lab.contract(result="2h")  # ten processes are started before it may go on
    kept = lab.submit(_polls=1)
    assert command(lab, "worker", "--once")[0] == 0
    lab.ledger.close()
    lab._ledger = None
    shutil.copy(path, lab.folder / "backup.db")
    assert not (lab.folder / "ledger.db-wal").exists()
    lost = lab.submit(_polls=1, rows=4)
    lab.finish()
    assert lab.show(lost).state is State.SUCCEEDED
    lab.ledger.close()
    lab._ledger = None
    before = newest_in_anchor(lab)
    shutil.copy(lab.folder / "backup.db", path)

    log = len(lab.sim.log())
    code, said = command(lab, "worker", "--once")
    assert (code, said["error"]["code"]) == (4, "integrity"), said
    assert "is older than its anchor" in said["error"]["message"]
    assert len(lab.sim.log()) == log  # nothing was sent
    code, health = command(lab, "doctor")
    assert code == 3
    assert any("is older than its anchor" in check["message"] for check in health["checks"] if not check["ok"])
    code, found = command(lab, "audit", "verify")
    assert (code, [one["kind"] for one in found["findings"]]) == (4, ["ANCHOR_AHEAD"])

    assert command(lab, "audit", "acknowledge", "--reason", "disk died", "--by", "agent-7", "--yes")[0] == 3
    code, said = command(lab, "audit", "acknowledge", "--reason", "disk died")
    assert code == 7
    assert "are given up" in said["error"]["message"]
    code, given = command(lab, "audit", "acknowledge", "--reason", "disk died", "--yes")
    assert (code, given["abandoned_to"], given["by"]) == (0, before, "olga")
    lab.finish()
    assert lab.show(kept).state is State.SUCCEEDED
    assert sound(lab) > before
    numbers = [notes.read(json.loads(line)["note"]).note.number for line in anchor_lines(lab)]
    assert len(set(numbers)) == len(numbers)
    epochs = [json.loads(line)["note"] for line in anchor_lines(lab)]
    assert notes.read(epochs[-1]).note.epoch > JUMP
    lab.honest()


def anchor_lines(lab: Lab) -> list[str]:
    """The lines of the anchor beside the database."""
    return (lab.folder / "ledger.db.anchor").read_text().splitlines()


def newest_in_anchor(lab: Lab) -> int:
    """The number of the last note there."""
    return notes.read(json.loads(anchor_lines(lab)[-1])["note"]).note.number
