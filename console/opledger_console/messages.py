"""What threads and widgets tell the screens. Handlers on the drawing loop own every change of what is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual.message import Message

from opledger_console.views import Overview


@dataclass
class OverviewTaken(Message):
    """The ledger as a whole, as it stands; the ledger can be read."""

    overview: Overview
    changed: bool  #: somebody has written since the one before

    def can_replace(self, message: Message) -> bool:
        """A newer picture replaces one that nobody has looked at yet, unless that would hide that something changed."""
        return isinstance(message, OverviewTaken) and (self.changed or not message.changed)


@dataclass
class LedgerAway(Message):
    """The database cannot be read now."""

    why: str


@dataclass
class Gathered(Message):
    """What a screen asked for, read by a thread. `question` is what was asked, so that late answers can be told."""

    question: Any
    found: Any


@dataclass
class NotGathered(Message):
    """What a screen asked for could not be had, and why; the ledger itself can be read."""

    question: Any
    why: str


@dataclass
class Chosen(Message):
    """The cursor stands on another row; None where there is none."""

    operation_id: str | None


@dataclass
class Opened(Message):
    """Somebody wants to see one operation: Enter, or a second click."""

    operation_id: str
    tab: str | None = None


@dataclass
class MoreWanted(Message):
    """A list is near an end of what it has."""

    backwards: bool
