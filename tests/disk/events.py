"""One thing that a process asks of the disk, and who is told of it before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

What = Literal["open", "write", "sync", "syncdir", "truncate", "delete", "link", "rename", "mkdir"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call, before it is made. `name`: the file below the watched folder; `to`: where it is to be as well."""

    what: What
    name: str
    data: bytes = b""  #: of a write
    at: int = 0  #: offset of a write, length of a truncate
    to: str = ""
    made: bool = False  #: an open that makes the file
    room: Literal["database", "files"] = "files"  #: who asks: SQLite, or the product itself

    def __str__(self) -> str:
        return f"{self.what} {self.name}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The disk says no.

    `number` is an errno, or 0 where the process dies; of a write, the first `share` is done before.
    """

    number: int
    share: float = 0.0


class Watcher(Protocol):
    """Is asked before each call, and told after each one that went well. Never two at a time."""

    def before(self, call: Call) -> Refusal | None:
        """Refuse the call, or let it be."""

    def after(self, call: Call) -> None:
        """Hear that the call was made."""
