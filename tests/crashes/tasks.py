"""A task of two steps, run by commands that die anywhere; the next one goes on where the last one was."""

from __future__ import annotations

from typing import Final

import opledger.cli.tasks  # noqa: F401 - loaded once, and not anew by everybody who dies
from opledger.rules.model import State
from opledger.tasks.reading import operation_of, read_records, read_task
from tests.crashes.core import FILES
from tests.crashes.life import Life, Story

TASK: Final = "reports-2026-11"
STEPS: Final = ("create", "deliver")
PLAN: Final = f"""\
task = "{TASK}"
title = "Monthly report"

[[step]]
id = "create"
submit = {{ contract = "sim", body = {{ rows = 3, _personality = "ideal", _polls = 1 }} }}
check = {{ operation = "succeeded" }}

[[step]]
id = "deliver"
submit = {{ contract = "sim", body = {{ sha256 = "{{step.create.sha256}}", _personality = "ideal", _polls = 1 }} }}
"""
TIMED_OUT: Final = 6
"""The exit code of `opledger task run` where an operation that it waits for has not ended yet."""


def planned(life: Life) -> None:
    """There is a plan."""
    life.contract()
    folder = life.folder / "work"
    folder.mkdir()
    (folder / "monthly.plan.toml").write_text(PLAN, encoding="utf-8")


def run_it(life: Life) -> None:
    """An agent runs the task; while an operation is under way a worker works, and then the agent comes back."""
    for _ in range(2 * len(STEPS) + 1):
        code = _command(life)
        if code == 0:
            return
        assert code == TIMED_OUT, code
        life.run()
    raise AssertionError("the task goes round in a circle")


def _command(life: Life) -> int:
    return life.command("task", "run", str(life.folder / "work" / "monthly.plan.toml"), "--timeout", "0s")


def done_once(life: Life) -> None:
    """Each step has one operation, in order; ledger, progress file and archive tell the same; and that is the end."""
    lines = life.ledger.store.tasks.lines(TASK)
    assert _command(life) == 0
    assert life.ledger.store.tasks.lines(TASK) == lines, "it has ended, and was run again"
    view = read_task(life.ledger, TASK)
    assert view is not None and view.state == "done" and view.runner is None, view
    assert [(one.id, one.state in ("done", "verified")) for one in view.steps] == [(name, True) for name in STEPS]
    found = [operation_of(life.ledger, TASK, name) for name in STEPS]
    assert [op and op.operation_id for op in found] == life.ids(), (found, life.ids())
    assert [op and len(life.jobs(op)) for op in found] == [1, 1]
    creates = [entry["client_ref"] for entry in life.sim.log() if entry["kind"] == "create"]
    assert list(dict.fromkeys(creates)) == life.ids(), "a step left before the one before it"
    records = read_records(life.ledger, TASK)
    assert [one.seq for one in records] == list(range(1, len(records) + 1))
    for name in STEPS:
        kinds = [str(one.kind) for one in records if one.step == name]
        assert kinds[0] == "intent" and kinds.count("completed") == 1, kinds
    _papers(life, str(view.run))


def _papers(life: Life, run: str) -> None:
    folder = life.folder / "work"
    lines = b"".join(life.ledger.store.tasks.lines(TASK))
    archive = folder / "monthly.runs" / run
    for path in (folder / "monthly.progress.jsonl", archive / "monthly.progress.jsonl"):
        assert path.read_bytes() == lines, f"{path.name} is not what the ledger has"
    assert (archive / "monthly.plan.toml").read_text() == PLAN
    assert "outcome: done" in (archive / "summary.md").read_text()
    runs = [path.name for path in (folder / "monthly.runs").iterdir() if path.name != ".new"]
    assert runs == [run], f"it began {len(runs)} times"
    left = [path.name for path in (folder / "monthly.runs" / ".new").iterdir()]
    assert left == [], f"left behind for good: {left}"


TASKS: Final = (
    Story("task", planned, run_it, (State.SUCCEEDED,) * 2, must=FILES | {"task"}, made=True, check=done_once),
)
