"""Agent tasks: plans that survive their agent (DESIGN §8).

task       `Task`: open a plan, do its steps, answer, decide; for agents' own programs and the command line
runner     the loop: ask what is next, do it, write it down
doing      one step: submit, run a command, ask
book       the two places where progress stands, the ledger and the file beside the plan, kept as one
keeper     who runs the task: a lease in the ledger and a lock on this machine
checks     tries whether a step is done, against reality
commands   starts programs: no shell, a time limit, output that is cut and masked
outputs    the files that a step makes, before it is repeated
papers     the files of a task: plan, progress, archive
reading    tasks as frozen values, from the ledger alone: for the console
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opledger.tasks.task import Task as Task

__all__ = ["Task"]


def __getattr__(name: str) -> Any:
    """Load `Task` on first use: who only reads tasks needs no runner."""
    if name not in __all__:
        raise AttributeError(f"module 'opledger.tasks' has no attribute {name!r}")
    from opledger.tasks.task import Task

    return Task
