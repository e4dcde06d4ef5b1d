"""A durable ledger for long-running jobs on other people's HTTP APIs. The rooms:

errors      what goes wrong, and whose fault it is
rules/      decide, and touch nothing: states, evidence, contracts, what happens next, what an answer means
edges/      touch the world, and decide nothing: clock, HTTP, secrets, files
store/      the database: tables, migrations, the only state writes, reads for people
ledger      the door for agents, command line and console; cannot reach HTTP
worker      claim, decide, permit, send, read, record: the hub that knows rules and edges
checkpoints/ sign the history, anchor it outside, refuse a restored backup
service     runs the worker: ticks, renewals, sweeps, signals
tasks/      plans of many steps that survive their agent
receiver/   the HTTP door for webhooks: verify, store, then say so
cli/        one module a command group
sim/        the misbehaving provider and the demo
contracts/  shipped provider files
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opledger.errors import ConfigWrong as ConfigWrong
    from opledger.errors import LeaseLost as LeaseLost
    from opledger.errors import OpledgerError as OpledgerError
    from opledger.errors import ProviderBroke as ProviderBroke
    from opledger.errors import Refused as Refused
    from opledger.errors import StoreUnavailable as StoreUnavailable
    from opledger.ledger import Ledger as Ledger
    from opledger.tasks import Task as Task

__version__ = "0.1.0"
__all__ = [
    "ConfigWrong",
    "LeaseLost",
    "Ledger",
    "OpledgerError",
    "ProviderBroke",
    "Refused",
    "StoreUnavailable",
    "Task",
]


def __getattr__(name: str) -> Any:
    """Load `Ledger` and the errors on first use, so that ``import opledger`` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'opledger' has no attribute {name!r}")
    from importlib import import_module

    rooms = {"Ledger": "opledger.ledger", "Task": "opledger.tasks"}
    return getattr(import_module(rooms.get(name, "opledger.errors")), name)
