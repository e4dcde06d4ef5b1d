"""A process that works on a task until it ends, and may die at a chosen write or effect; started by `test_tasks`.

It plays all parts in turn: the runner, the agent who reviews, and the person who answers and decides. What it does to
the outside is wrapped here, counted, and struck at; the product has no hooks for this.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opledger.config import load_settings
from opledger.ledger import Ledger
from opledger.rules.tasks.ahead import Need
from opledger.store.tasks import TaskStore
from opledger.tasks import commands, outputs, papers
from opledger.tasks.task import Task

Told = Callable[[str], None]
PLAN = "monthly.plan.toml"


@dataclass(frozen=True, slots=True)
class Order:
    """Where it works, and at which effect it dies (0: at none)."""

    folder: str
    environment: Mapping[str, str]
    notices: str  #: the receiver's own log, which the person looks at
    die_at: int = 0


class Effects:
    """Counts, and dies."""

    def __init__(self, die_at: int, told: Told) -> None:
        self.count, self._die_at, self._told = 0, die_at, told
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        """One effect is about to happen, or has happened."""
        self.count += 1
        self.names.append(name)
        if self.count == self._die_at:
            self._told(name)
            os.kill(os.getpid(), signal.SIGKILL)


def _wrap(effects: Effects, owner: Any, name: str, say: Callable[..., str], *, after: bool = False) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        word = say(*args)
        effects(f"before {word}")
        result = real(*args, **kwargs)
        if after:
            effects(f"after {word}")
        return result

    setattr(owner, name, wrapped)


def arm(effects: Effects, log: Path) -> None:
    """Wrap every write and every effect. Where the next one follows at once, its "before" is this one's "after"."""

    def ran(argv: Any, *_: Any) -> str:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{Path(argv[1]).name}\n")
        return f"command {Path(argv[1]).name}"

    _wrap(effects, TaskStore, "append", lambda _self, _task, record, *_: f"record {record.kind} {record.step}")
    _wrap(effects, papers, "atomic_write", lambda path, _: f"write {path.name}", after=True)
    _wrap(effects, Ledger, "submit", lambda *_: "submit", after=True)
    _wrap(effects, commands, "run", ran, after=True)
    _wrap(effects, outputs, "remember", lambda *_: "remember")
    _wrap(effects, TaskStore, "release", lambda *_: "release")


def act(ledger: Ledger, plan: Path, need: Need, notices: Path) -> None:
    """Do what is needed, as the one who may."""
    if need.who == "an agent":
        with Task(ledger, plan, "agent-7").step("review") as step:
            (plan.parent / "review.md").write_text(f"{step.outputs['convert']['rows']} rows, all fine\n")
    elif need.step == "publish":
        Task(ledger, plan, "ana").answer("publish", "yes", reason="it is fine")
    else:
        assert need.step == "tell", need.sentence()
        key = ledger_key(ledger, plan)
        sent = any(json.loads(line)["key"] == key for line in notices.read_text().splitlines())
        verdict = "done" if sent else "repeat"
        Task(ledger, plan, "ana").decide("tell", verdict, reason="looked at what the receiver has")


def ledger_key(ledger: Ledger, plan: Path) -> str:
    """The key of the notice, as the intent has it."""
    status = Task(ledger, plan, "ana").status()
    (tell,) = (one for one in status.view.steps if one.id == "tell")
    return str(tell.proof["token"])


def run(order: Order, told: Told) -> int:
    """Work until the task has ended; returns how many effects there were."""
    os.environ.update(order.environment)
    os.chdir(order.folder)
    effects = Effects(order.die_at, told)
    arm(effects, Path(order.folder) / "ran.log")
    plan = Path(order.folder) / PLAN
    with Ledger.open(settings=load_settings({}, os.environ, Path(order.folder))) as ledger:
        for _ in range(20):
            need = Task(ledger, plan, "ana").run(120)
            if need is None:
                told("\n".join(effects.names))
                return 0
            act(ledger, plan, need, Path(order.notices))
    return 1


def child(order: Order, pipe: Any) -> None:
    """Run as a child of the fork server."""
    sink = os.open(Path(order.folder) / "victim.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.exit(run(order, pipe.send))
