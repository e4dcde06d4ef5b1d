"""Where this process runs: the only reads of the host's name and of the process's number."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from typing import Final, NamedTuple

from opledger.edges.clock import SystemClock
from opledger.rules.model import Actor
from opledger.rules.plain import clean

LONGEST_HOST: Final = 64
"""Characters that a host's name has at most; what Linux allows (HOST_NAME_MAX)."""


class Place(NamedTuple):
    """A process on a machine, as the journal names it."""

    host: str
    process: (
        str  #: ``PID@START``, where START is when the process first asked: numbers come again, in containers always
    )


def here() -> Place:
    """Return where this process runs. A forked child is another process and says so."""
    return _place(os.getpid())


def acting(actor: Actor) -> Actor:
    """Return an actor as one who acts in this process."""
    return Actor(actor.name, actor.kind, *here())


@lru_cache(maxsize=1)
def _place(pid: int) -> Place:
    started = SystemClock().now()
    return Place(_host(), f"{pid}@{started:%Y%m%dT%H%M%SZ}")


def _host() -> str:
    """Return the host's name. An administrator, or a container platform, made it up: it is outside text."""
    try:
        name = socket.gethostname()
    except OSError:
        name = ""
    return clean(name.strip() or "unknown", limit=LONGEST_HOST)
